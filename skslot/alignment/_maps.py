"""The map of one client."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, get_blas_funcs
from sklearn.utils.validation import check_array

from ..geometry import displacement_map


@dataclass(frozen=True, eq=False)
class TransportMap:
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

    @cached_property
    def affine(self):
        """Matrix and offset: a row ``z`` goes to ``matrix @ z + offset``."""
        return displacement_map(self.mean, self.matrix, self.target_mean, self.tau)

    def transform(self, X):
        """Move rows towards the reference.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of this client. float32 stays float32.

        Returns
        -------
        X_aligned : ndarray of shape (n_samples, n_features)
            Moved features; a copy, even for ``tau=0``.
        """
        return self._move(self._check(X))

    def _move(self, X, out=None):
        """Align rows that were checked before, into ``out`` if it is given."""
        if self.tau == 0:
            return np.positive(X, out=out, order="C")
        matrix, offset = (part.astype(X.dtype, copy=False) for part in self.affine)
        out = np.empty_like(X, order="C") if out is None else out
        out[:] = offset
        # out += X @ matrix in a single call, transposed because BLAS counts by columns
        gemm = get_blas_funcs("gemm", dtype=X.dtype)
        gemm(1.0, matrix.T, X.T, beta=1.0, c=out.T, overwrite_c=True)
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

    def _move_back(self, X, out=None):
        """Undo ``_move``, for rows that were checked before."""
        if self.tau == 0:
            return np.positive(X, out=out, order="C")
        matrix, offset = self.affine
        out = np.empty_like(X, order="C") if out is None else out
        out[:] = cho_solve(cho_factor(matrix), (X - offset).T).T
        return out

    def _check(self, X):
        X = check_array(X, dtype=(np.float64, np.float32), order="C")
        if X.shape[1] != len(self.mean):
            raise ValueError(
                f"X has {X.shape[1]} features, but this map was made for "
                f"{len(self.mean)}."
            )
        return X
