"""Symmetric matrices as packed triangles."""

import numpy as np
from scipy.linalg.lapack import dpftrf, dtpttr, dtrttp, spftrf


def pack_triangle(matrix):
    """Upper triangle, row by row, as a vector of length ``m (m + 1) / 2``."""
    packed, _ = dtrttp(matrix.T, uplo="L")
    return packed


def unpack_triangle(packed):
    """Full symmetric matrix from its packed upper triangle."""
    lower = unpack_lower_triangle(packed)
    full = lower + lower.T
    full[np.diag_indices_from(full)] *= 0.5
    return full


def unpack_lower_triangle(packed):
    """Lower triangle of the symmetric matrix, with zeros above."""
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
