"""LAPACK on symmetric matrices, full and packed; only lower triangles are read.

What takes long is called past SciPy's wrappers, which hold the interpreter lock, so
that threads run side by side. SciPy offers the same routines to Cython without a lock.
"""

import ctypes

import numpy as np
from scipy import LowLevelCallable
from scipy.linalg import LinAlgError, cython_blas, cython_lapack
from scipy.linalg.lapack import dpftrf, dtpttr, dtrttp, spftrf

# Covariances often come from float32 or from a wire format: what is below this
# share of the largest entry (or eigenvalue) is rounding, not a mistake.
ROUNDING = 1e-6
# The same for what computations of ours in float64 leave of a zero.
LEAK = 1e-8


def check_covariance(matrix, name, n_features=None):
    """Return ``matrix`` as float64 after checking that it can be a covariance."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}.")
    if n_features is not None and len(matrix) != n_features:
        raise ValueError(
            f"{name} is {len(matrix)} x {len(matrix)}, expected "
            f"{n_features} x {n_features} like the others."
        )
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} contains NaN or infinity.")
    if np.abs(matrix - matrix.T).max() > ROUNDING * np.abs(matrix).max():
        raise ValueError(f"{name} is not symmetric.")
    return matrix


def check_eigenvalues(eigenvalues, name):
    """Refuse a spectrum that no covariance can have."""
    if eigenvalues[0] < -ROUNDING * max(eigenvalues[-1], -eigenvalues[0] * ROUNDING):
        raise ValueError(
            f"{name} is not positive semi-definite: its smallest eigenvalue is "
            f"negative, at {eigenvalues[0] / np.abs(eigenvalues).max():.1e} of the "
            "largest in magnitude."
        )


def is_uncorrelated(covariance):
    """Find features that have no covariance with any other feature."""
    return np.count_nonzero(covariance, axis=0) <= (covariance.diagonal() != 0)


def clear_leaks(matrix, uncorrelated):
    """Zero, in place, what rounding leaks from and to uncorrelated features.

    Barycenters and maps keep them apart from all others, but eigenvectors do so only to
    rounding. A constant feature would begin to vary by 1e-17 that way, and whoever
    divides by its deviation would see noise. Only entries that are rounding are zeroed,
    as covariances may also cancel each other in a mean.
    """
    scale = np.sqrt(np.abs(matrix.diagonal()))
    for index in np.flatnonzero(uncorrelated):
        others = np.delete(np.abs(matrix[index]), index)
        most = LEAK * scale[index] * np.delete(scale, index)
        if (others <= most).all():
            diagonal = matrix[index, index]
            matrix[index] = matrix[:, index] = 0.0
            matrix[index, index] = diagonal
    return matrix


# ------------------------------------------------------------- without the lock


def _unlocked(module, name):
    """A routine of BLAS or LAPACK, whose arguments are all passed by address."""
    found = LowLevelCallable.from_cython(module, name)
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype = ctypes.c_void_p
    address.argtypes = [ctypes.py_object, ctypes.c_char_p]
    n_arguments = found.signature.count(",") + 1
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)
    routine = prototype(address(found.function, found.signature.encode()))

    def run(*arguments):
        routine(*map(_address, arguments))

    return run


def _address(argument):
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data
    if isinstance(argument, float):
        return ctypes.byref(ctypes.c_double(argument))
    if isinstance(argument, bytes):
        return argument
    # most builds read 32 bits and some 64: either is right, as the low half comes first
    return ctypes.byref(ctypes.c_int64(argument))


_syevd, _potrf, _sygst = (
    _unlocked(cython_lapack, name) for name in ("dsyevd", "dpotrf", "dsygst")
)
_syrk, _trsm = (_unlocked(cython_blas, name) for name in ("dsyrk", "dtrsm"))


def _by_columns(matrix):
    """Copy in the order that LAPACK counts in, to be overwritten."""
    return np.array(matrix, dtype=np.float64, order="F")


def eigh(matrix, *, overwrite=False):
    """Eigenvalues in ascending order and eigenvectors as Fortran-ordered columns."""
    vectors = matrix if overwrite else _by_columns(matrix)
    order, info = len(vectors), np.zeros(1, np.int64)
    eigenvalues = np.empty(order)
    work = np.empty(1 + 6 * order + 2 * order**2)
    whole = np.empty(3 + 5 * order, np.int64)
    arguments = b"V", b"L", order, vectors, order, eigenvalues, work, len(work)
    _syevd(*arguments, whole, len(whole), info)
    if info[0]:
        raise LinAlgError(f"eigendecomposition did not converge (info={info[0]}).")
    return eigenvalues, vectors


def cholesky(matrix):
    """Lower factor in Fortran order; LinAlgError if not positive definite."""
    factor, info = _by_columns(matrix), np.zeros(1, np.int64)
    _potrf(b"L", len(factor), factor, len(factor), info)
    if info[0]:
        raise LinAlgError("matrix is not positive definite.")
    return np.triu(factor.T).T


def congruence(matrix, lower_factor):
    """Lower triangle of ``L.T @ matrix @ L``, in half the work of two products."""
    product, order = _by_columns(matrix), len(matrix)
    info = np.zeros(1, np.int64)
    _sygst(2, b"L", order, product, order, lower_factor, order, info)
    return product


def gram(matrix):
    """``matrix @ matrix.T`` as a full symmetric matrix."""
    return mirror(lower_gram(matrix))


def lower_gram(matrix):
    """Lower triangle of the same matrix, with zeros above."""
    matrix = np.asarray(matrix, dtype=np.float64, order="F")
    n_rows, n_columns = matrix.shape
    product = np.zeros((n_rows, n_rows), order="F")
    sizes = b"L", b"N", n_rows, n_columns
    _syrk(*sizes, 1.0, matrix, n_rows, 0.0, product, n_rows)
    return product


def mirror(lower):
    """Full symmetric matrix from a lower triangle with zeros above."""
    full = lower + lower.T
    full[np.diag_indices_from(full)] *= 0.5
    return full


def solve_right(lower_factor, matrix):
    """``matrix @ inv(L)``."""
    return _solve_triangular(b"R", b"N", lower_factor, matrix)


def solve_left_transposed(lower_factor, matrix, *, overwrite=False):
    """``inv(L.T) @ matrix``."""
    return _solve_triangular(b"L", b"T", lower_factor, matrix, overwrite)


def _solve_triangular(side, transposed, lower_factor, matrix, overwrite=False):
    solution, order = matrix if overwrite else _by_columns(matrix), len(lower_factor)
    (n_rows, n_columns), how = solution.shape, (side, b"L", transposed, b"N")
    _trsm(*how, n_rows, n_columns, 1.0, lower_factor, order, solution, n_rows)
    return solution


# ------------------------------------------------------------------ packed


def pack_triangle(matrix):
    """Upper triangle, row by row, as a vector of length ``m (m + 1) / 2``."""
    packed, _ = dtrttp(matrix.T, uplo="L")
    return packed


def unpack_triangle(packed):
    """Full symmetric matrix from its packed upper triangle."""
    return mirror(unpack_lower_triangle(packed))


def unpack_lower_triangle(packed):
    """Lower triangle of the same matrix, with zeros above."""
    lower, _ = dtpttr(triangle_order(len(packed)), packed, uplo="L")
    return lower


def triangle_order(length):
    """Order of the matrix whose packed triangle has this length."""
    order = (int(np.sqrt(8 * length + 1)) - 1) // 2
    if order * (order + 1) // 2 != length:
        raise ValueError(f"a packed triangle cannot have {length} entries.")
    return order


def packed_diagonal(order):
    """Positions of the diagonal in a packed triangle."""
    return np.r_[0, np.cumsum(np.arange(order, 1, -1))]


def is_semidefinite(packed, tolerance, less=None):
    """Whether no eigenvalue is below minus the tolerance, but for rounding.

    Of the matrix itself or, with a matrix ``less`` of as many columns, of what it is
    without ``less.T @ less``. Narrow numbers are factorised in single precision, which
    is faster and takes half the memory; the tolerance for float32 is near its rounding,
    so that a failure is looked at again.
    """
    precisions = {"float16": [np.float32], "float32": [np.float32, np.float64]}
    return any(
        _has_cholesky_factor(packed, tolerance, precision, less)
        for precision in precisions.get(packed.dtype.name, [np.float64])
    )


def _has_cholesky_factor(packed, shift, dtype, less=None):
    """Whether Cholesky's method succeeds once the diagonal is shifted.

    In LAPACK's rectangular full packed format, which has the size of the triangle and
    nearly the speed of a full matrix. Its columns are the rows here.
    """
    order = triangle_order(len(packed))
    half, is_even = (order + 1) // 2, 1 - order % 2
    rectangle = np.empty((half, order + is_even), dtype)
    stop = 0
    for index in range(order):
        start, stop = stop, stop + order - index
        if index < half:
            column = rectangle[index, index + is_even :]
        else:
            column = rectangle[index - half + 1 - is_even :, index - half]
        column[:] = packed[start:stop]
        if less is not None:
            column -= less[:, index] @ less[:, index:]
        column[0] += shift
    factorise = spftrf if dtype is np.float32 else dpftrf
    _, info = factorise(order, rectangle.ravel(), uplo="L", overwrite_a=1)
    return info == 0
