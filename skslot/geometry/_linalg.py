"""Checked LAPACK calls on symmetric matrices; only lower triangles are read."""

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf, dsyevd, dsygst

# Covariances often come from float32 or from a wire format: what is below this
# share of the largest entry (or eigenvalue) is rounding, not a mistake.
ROUNDING = 1e-6


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


def eigh(matrix, *, overwrite=False):
    """Eigenvalues in ascending order and eigenvectors as Fortran-ordered columns."""
    eigenvalues, vectors, info = dsyevd(matrix, lower=1, overwrite_a=overwrite)
    if info:
        raise LinAlgError(f"eigendecomposition did not converge (info={info}).")
    return eigenvalues, vectors


def cholesky(matrix):
    """Lower factor in Fortran order; LinAlgError if not positive definite."""
    factor, info = dpotrf(matrix, lower=1, clean=1)
    if info:
        raise LinAlgError("matrix is not positive definite.")
    return factor


def congruence(matrix, lower_factor):
    """Lower triangle of ``L.T @ matrix @ L``, in half the work of two products."""
    product, _ = dsygst(matrix, lower_factor, itype=2, lower=1)
    return product


def gram(matrix):
    """``matrix @ matrix.T`` as a full symmetric matrix."""
    return mirror(dsyrk(1.0, matrix, lower=1))


def mirror(lower):
    """Full symmetric matrix from a lower triangle with zeros above."""
    full = lower + lower.T
    full[np.diag_indices_from(full)] *= 0.5
    return full


def solve_right(lower_factor, matrix):
    """``matrix @ inv(L)``."""
    return dtrsm(1.0, lower_factor, matrix, side=1, lower=1)


def solve_left_transposed(lower_factor, matrix):
    """``inv(L.T) @ matrix``."""
    return dtrsm(1.0, lower_factor, matrix, side=0, lower=1, trans_a=1)
