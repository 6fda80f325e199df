"""Symmetric matrices as the vector of their upper triangle."""

import numpy as np
from scipy.linalg.lapack import dpptrf, dtrttp


def pack_triangle(matrix):
    """Upper triangle, row by row, as a vector of length ``m (m + 1) / 2``."""
    packed, _ = dtrttp(matrix.T, uplo="L")
    return packed


def unpack_triangle(packed):
    """Full symmetric matrix from its packed upper triangle."""
    order = triangle_order(len(packed))
    matrix = np.empty((order, order))
    stop = 0
    for index in range(order):
        start, stop = stop, stop + order - index
        matrix[index, index:] = matrix[index:, index] = packed[start:stop]
    return matrix


def triangle_order(length):
    """Order of the matrix whose packed triangle has this length."""
    order = (int(np.sqrt(8 * length + 1)) - 1) // 2
    if order * (order + 1) // 2 != length:
        raise ValueError(f"a packed triangle cannot have {length} entries.")
    return order


def packed_diagonal(order):
    """Positions of the diagonal in a packed triangle."""
    return np.r_[0, np.cumsum(np.arange(order, 1, -1))]


def is_semidefinite(packed, tolerance):
    """Whether no eigenvalue is below minus the tolerance, but for rounding."""
    order = triangle_order(len(packed))
    shifted = packed.copy()
    shifted[packed_diagonal(order)] += tolerance
    # in packed form: half the memory of a full matrix, which is still to come
    _, info = dpptrf(order, shifted, lower=1, overwrite_ap=1)
    return info == 0
