"""Sums over clipped rows as one vector, of which one row changes a norm of one."""

from typing import NamedTuple

import numpy as np

from .._linalg import (
    pack_triangle,
    packed_diagonal,
    triangle_order,
    unpack_triangle,
)

# Clipped rows are rounded to whole multiples of the clip norm divided by this. Sums of
# whole numbers are exact in any order, so that no rounding in them depends on a row.
GRID = 2**16
# Rows whose products add up to at most 2^53, below which float64 has all whole numbers.
EXACT_ROWS = 2**20
# Distances above this, in clip norms, are all the same; their squares do not overflow.
FARTHEST = 1e100


def clip_rows(X, clip_norm, center):
    """Rows less the centre, clipped, in whole multiples of ``clip_norm / GRID``.

    Rounding is towards zero, so that no row leaves the ball.
    """
    with np.errstate(over="ignore"):
        Z = (X - center) / clip_norm
    Z = np.clip(Z, -FARTHEST, FARTHEST)
    Z /= np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1.0)
    return np.trunc(GRID * Z)


def packed_sums(rows, held, split):
    """The vector that noise is added to, from clipped rows.

    Counts, class sums and the upper triangle of the Gram matrix follow each other, each
    in its unit. What is off the diagonal counts twice in the norm of the matrix, hence
    by the root of two here: the norm of what a row adds to the Gram matrix is then the
    square of its own norm. With shares of the budget that add up to one, the norm of
    all that a row adds is one at most.
    """
    parts = {"counts": held.sum(axis=1), "sums": (held @ rows).ravel() / GRID}
    if "gram" in split:
        parts["gram"] = _balance(pack_triangle(_gram(rows)), np.sqrt(2)) / GRID**2
    return np.concatenate([np.sqrt(split[name]) * part for name, part in parts.items()])


class NoisySums(NamedTuple):
    """Sums with noise, in units of the clip norm, and the deviation of that noise.

    That of ``gram`` is for its diagonal; beside it, noise is less by the root of two.
    """

    counts: np.ndarray
    sums: np.ndarray
    gram: np.ndarray | None
    noise: dict

    @classmethod
    def unpack(cls, vector, n_classes, n_features, split, scale):
        """Take the vector of ``packed_sums`` apart."""
        ends = np.cumsum([n_classes, n_classes * n_features])
        counts, sums, gram = np.split(vector, ends)
        noise = {name: scale / np.sqrt(share) for name, share in split.items()}
        if "gram" in split:
            gram = _balance(gram / np.sqrt(split["gram"]), np.sqrt(0.5))
            gram = unpack_triangle(gram)
        return cls(
            counts / np.sqrt(split["counts"]),
            sums.reshape(n_classes, n_features) / np.sqrt(split["sums"]),
            gram if "gram" in split else None,
            noise,
        )


def _gram(rows):
    """Products of whole numbers, summed over rows without any rounding."""
    total = np.zeros((rows.shape[1], rows.shape[1]), dtype=np.int64)
    for start in range(0, len(rows), EXACT_ROWS):
        part = rows[start : start + EXACT_ROWS]
        total += (part.T @ part).astype(np.int64)
    return total.astype(np.float64)


def _balance(packed, factor):
    """A packed triangle, with what is off the diagonal times a factor."""
    balanced = packed * factor
    diagonal = packed_diagonal(triangle_order(len(packed)))
    balanced[diagonal] = packed[diagonal]
    return balanced
