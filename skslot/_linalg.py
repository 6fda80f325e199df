"""Symmetric matrices as packed triangles."""

import numpy as np
from scipy.linalg.lapack import dtpttr, dtrttp


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
