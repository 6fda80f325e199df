"""Checks of covariances, and symmetric matrices as packed triangles."""

import numpy as np
from scipy.linalg.lapack import dtpttr, dtrttp

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
        others = np.abs(matrix[index])
        others[index] = 0.0
        if (others <= LEAK * scale[index] * scale).all():
            diagonal = matrix[index, index]
            matrix[index] = matrix[:, index] = 0.0
            matrix[index, index] = diagonal
    return matrix


def congruence(matrix, factor):
    """Compute the lower triangle of ``factor.T @ matrix @ factor``.

    ``matrix`` is symmetric and ``factor`` lower triangular. Entries above the diagonal
    of the result are not meaningful; ``np.linalg.eigh`` ignores them.
    """
    # The factor is zero above its diagonal, so the trailing blocks of the result only
    # need the trailing blocks of the arguments. With four blocks of columns, this takes
    # about 60 % of the time of two full products; more blocks are not faster.
    product, size = np.zeros_like(factor), -(-len(factor) // 4)
    for start in range(0, len(factor), size):
        rest, columns = slice(start, None), slice(start, start + size)
        pushed = matrix[rest, rest] @ factor[rest, columns]
        product[rest, columns] = factor[rest, rest].T @ pushed
    return product


# ------------------------------------------------------------------ packed


def pack_triangle(matrix):
    """Upper triangle, row by row, as a vector of length ``m (m + 1) / 2``."""
    packed, _ = dtrttp(matrix.T, uplo="L")
    return packed


def unpack_triangle(packed):
    """Full symmetric matrix from its packed upper triangle."""
    lower, _ = dtpttr(triangle_order(len(packed)), packed, uplo="L")
    full = lower + lower.T
    full[np.diag_indices_from(full)] *= 0.5
    return full


def triangle_order(length):
    """Order of the matrix whose packed triangle has this length."""
    order = (int(np.sqrt(8 * length + 1)) - 1) // 2
    if order * (order + 1) // 2 != length:
        raise ValueError(f"a packed triangle cannot have {length} entries.")
    return order


def packed_diagonal(order):
    """Positions of the diagonal in a packed triangle."""
    return np.r_[0, np.cumsum(np.arange(order, 1, -1))]
