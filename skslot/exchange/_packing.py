"""Symmetric matrices as the vector of their upper triangle."""

import numpy as np
from scipy.linalg.lapack import dtpttr, dtrttp


def pack_triangle(matrix):
    """Upper triangle, row by row, as a vector of length ``m (m + 1) / 2``."""
    packed, _ = dtrttp(matrix.T, uplo="L")
    return packed


def unpack_triangle(packed):
    """Full symmetric matrix from its packed upper triangle."""
    order = triangle_order(len(packed))
    lower, _ = dtpttr(order, packed, uplo="L")
    lower = np.tril(lower)
    lower += np.tril(lower, -1).T
    return lower


def triangle_order(length):
    """Order of the matrix whose packed triangle has this length."""
    order = (int(np.sqrt(8 * length + 1)) - 1) // 2
    if order * (order + 1) // 2 != length:
        raise ValueError(f"a packed triangle cannot have {length} entries.")
    return order
