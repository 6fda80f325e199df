"""Maps of clients, and moving rows of many."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils.validation import check_array

from ..geometry import displacement_map

# Rows that are moved at once.
TILE_ROWS = 1024


class ClientMap:
    """Moves the rows of one client by an affine map.

    A subclass has ``n_features`` and ``affine``, a matrix and an offset: a row ``z``
    goes to ``matrix @ z + offset``. The matrix is symmetric and positive definite, or
    None where rows are only shifted; the offset is None too where they stay. It also
    has the ``mean`` of the client and what the map makes of it, ``moved_mean``.
    """

    def transform(self, X):
        """Move rows towards those of the other clients.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of this client. float32 stays float32.

        Returns
        -------
        X_aligned : ndarray of shape (n_samples, n_features)
            Moved features; always a copy.
        """
        return self._move(self._check(X))

    def _move(self, X, out=None, overwrite=False):
        """Align rows that were checked before, into ``out`` if it is given.

        ``overwrite`` allows to use X as work space.
        """
        matrix, offset = self._affine_or_none
        out = np.empty_like(X, order="C") if out is None else out
        if offset is None:
            out[:] = X
            return out
        if matrix is None:
            return np.add(X, offset.astype(X.dtype, copy=False), out=out)
        # Around the mean, which a constant feature does not leave: it stays constant,
        # and float32 keeps its digits for what varies. Tiles stay in the cache.
        centre = self.mean.astype(X.dtype)
        target = self.moved_mean + matrix @ (centre - self.mean)
        target, matrix = target.astype(X.dtype), matrix.astype(X.dtype, copy=False)
        n_rows = 0 if overwrite else min(len(X), TILE_ROWS)
        buffer = np.empty((n_rows, X.shape[1]), X.dtype)
        for start in range(0, len(X), TILE_ROWS):
            rows, moved = X[start : start + TILE_ROWS], out[start : start + TILE_ROWS]
            work = rows if overwrite else buffer[: len(rows)]
            centred = np.subtract(rows, centre, out=work)
            np.matmul(centred, matrix, out=moved)
            moved += target
        return out

    def inverse_transform(self, X):
        """Move aligned rows back to where they came from.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Aligned features of this client.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            Features before alignment.
        """
        return self._move_back(self._check(X))

    def _move_back(self, X, out=None, overwrite=False):
        """Undo ``_move``, for rows that were checked before."""
        matrix, offset = self._affine_or_none
        out = np.empty_like(X, order="C") if out is None else out
        if offset is None:
            out[:] = X
        elif matrix is None:
            np.subtract(X, offset.astype(X.dtype, copy=False), out=out)
        else:
            out[:] = cho_solve(cho_factor(matrix), (X - offset).T).T
        return out

    @property
    def _affine_or_none(self):
        return self.affine

    def _check(self, X):
        X = check_array(X, dtype=(np.float64, np.float32), order="C")
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but this map was made for "
                f"{self.n_features}."
            )
        return X


@dataclass(frozen=True, eq=False)
class TransportMap(ClientMap):
    """Moves the features of one client towards the reference.

    All that a site needs at prediction time; made by
    :meth:`skslot.FederatedOTAligner.client_map`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the client.
    matrix : ndarray of shape (n_features, n_features)
        Linear part of the full optimal-transport map.
    target_mean : ndarray of shape (n_features,)
        Mean of the reference.
    tau : float
        Strength: 0 leaves rows as they are, 1 is the full map.

    See Also
    --------
    skslot.geometry.displacement_map : The formula.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.alignment import TransportMap
    >>> moved = TransportMap(np.zeros(1), np.eye(1), np.array([4.0]), tau=0.5)
    >>> moved.transform([[1.0]])
    array([[3.]])
    """

    mean: np.ndarray
    matrix: np.ndarray
    target_mean: np.ndarray
    tau: float

    def __repr__(self):
        return f"TransportMap(n_features={len(self.mean)}, tau={self.tau:g})"

    @classmethod
    def identity(cls, n_features):
        """Map that leaves rows as they are.

        Parameters
        ----------
        n_features : int
            Number of features.

        Returns
        -------
        map : TransportMap
            The map with ``tau=0``.
        """
        zero = np.zeros(n_features)
        return cls(zero, np.eye(n_features), zero, tau=0.0)

    def at(self, tau):
        """Give the map another strength.

        Parameters
        ----------
        tau : float
            Strength: 0 leaves rows as they are, 1 is the full map.

        Returns
        -------
        map : TransportMap
            A new map.
        """
        if not 0 <= tau <= 1:
            raise ValueError(f"tau must lie in [0, 1], got {tau!r}.")
        return replace(self, tau=float(tau))

    @property
    def n_features(self):
        """Number of features."""
        return len(self.mean)

    @property
    def moved_mean(self):
        """Where the mean of the client goes."""
        return self.mean + self.tau * (self.target_mean - self.mean)

    @cached_property
    def affine(self):
        """Matrix and offset: a row ``z`` goes to ``matrix @ z + offset``."""
        return displacement_map(self.mean, self.matrix, self.target_mean, self.tau)

    @property
    def _affine_or_none(self):
        return (None, None) if self.tau == 0 else self.affine


@dataclass(frozen=True, eq=False)
class MixedEffectsMap(ClientMap):
    """Takes the effect of one client out of its features.

    Made by :meth:`skslot.MixedEffectsAligner.client_map`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the client.
    matrix : ndarray of shape (n_features, n_features) or None
        Linear part of the full optimal-transport map; None without one.
    offset : ndarray of shape (n_features,)
        Offset of the client, which is subtracted.
    tau : float
        Strength of the linear part: 0 leaves it out, 1 is the full map. It stretches
        rows around their mean, which it does not move.

    See Also
    --------
    TransportMap : A map that moves the mean towards that of all clients.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.alignment import MixedEffectsMap
    >>> moved = MixedEffectsMap(np.zeros(1), None, np.array([2.0]), tau=0.0)
    >>> moved.transform([[5.0]])
    array([[3.]])
    """

    mean: np.ndarray
    matrix: np.ndarray | None
    offset: np.ndarray
    tau: float

    def __repr__(self):
        return f"MixedEffectsMap(n_features={self.n_features}, tau={self.tau:g})"

    @classmethod
    def identity(cls, n_features):
        """Map that leaves rows as they are.

        Parameters
        ----------
        n_features : int
            Number of features.

        Returns
        -------
        map : MixedEffectsMap
            The map without offset.
        """
        return cls(np.zeros(n_features), None, np.zeros(n_features), tau=0.0)

    @property
    def n_features(self):
        """Number of features."""
        return len(self.mean)

    def at(self, share):
        """Go only a part of the way.

        Parameters
        ----------
        share : float
            0 leaves rows as they are, 1 is the whole map.

        Returns
        -------
        map : MixedEffectsMap
            A new map.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {share!r}.")
        return replace(self, offset=share * self.offset, tau=share * self.tau)

    @property
    def moved_mean(self):
        """Where the mean of the client goes."""
        return self.mean - self.offset

    @cached_property
    def affine(self):
        """Matrix, None for the identity, and offset, which is added."""
        if self.matrix is None:
            return None, -self.offset
        matrix = self.tau * self.matrix
        matrix[np.diag_indices_from(matrix)] += 1.0 - self.tau
        return matrix, self.mean - matrix @ self.mean - self.offset


def move_rows(X, groups, maps, back=False):
    """Move the rows of each client by its map, or back."""
    moves = [each._move_back if back else each._move for each in maps]
    if len(moves) == 1:
        return moves[0](X)
    moved = np.empty_like(X, order="C")
    for move, rows in zip(moves, groups.rows, strict=True):
        if isinstance(rows, slice):  # a view, to be written to without a copy
            move(X[rows], out=moved[rows])
        else:  # copies of a few rows stay in the cache
            for start in range(0, len(rows), TILE_ROWS):
                part = rows[start : start + TILE_ROWS]
                moved[part] = move(X[part], overwrite=True)
    return moved
