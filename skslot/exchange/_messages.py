"""The messages of the alignment round."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..statistics._shrinkage import shrink
from ._base import Message
from ._packing import pack_triangle, unpack_triangle


@dataclass(frozen=True, eq=False, repr=False)
class ClientStatistics(Message):
    """What one client sends: size, mean, covariance and shrinkage of its features.

    No row and no label is in it. Usually made by
    :meth:`skslot.FederatedOTAligner.client_update`.

    Parameters
    ----------
    n_samples : int
        Number of rows that were summarised.
    mean : ndarray of shape (n_features,)
        Their mean.
    covariance_triangle : ndarray of shape (n_features * (n_features + 1) / 2,)
        Upper triangle of their sample covariance, row by row.
    shrinkage : float
        Weight of the identity in the shrunk covariance, in [0, 1].
    client : object, default=None
        Name of the client, for error messages.

    See Also
    --------
    AlignmentReference : What the server makes of these and sends back.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> rows = np.random.default_rng(0).normal(size=(50, 3))
    >>> statistics = FederatedOTAligner().client_update(rows, client="A")
    >>> statistics
    ClientStatistics(client='A', n_samples=50, n_features=3, shrinkage=...)
    >>> statistics.covariance.shape
    (3, 3)
    """

    kind = "client statistics"
    array_fields = ("mean", "covariance_triangle")

    n_samples: int
    mean: np.ndarray
    covariance_triangle: np.ndarray
    shrinkage: float
    client: object = None

    @classmethod
    def from_covariance(cls, n_samples, mean, covariance, shrinkage, client=None):
        """Message from a full sample covariance.

        Parameters
        ----------
        n_samples : int
            Number of rows.
        mean : ndarray of shape (n_features,)
            Their mean.
        covariance : ndarray of shape (n_features, n_features)
            Their sample covariance; only the upper triangle is read.
        shrinkage : float
            Shrinkage coefficient.
        client : object, default=None
            Name of the client.

        Returns
        -------
        statistics : ClientStatistics
            The message.
        """
        return cls(n_samples, mean, pack_triangle(covariance), shrinkage, client)

    def __repr__(self):
        return (
            f"ClientStatistics(client={self.client!r}, n_samples={self.n_samples}, "
            f"n_features={self.n_features}, shrinkage={self.shrinkage:.3g})"
        )

    @property
    def n_features(self):
        """Number of features."""
        return len(self.mean)

    @property
    def covariance(self):
        """Shrunk covariance, the one that alignment works with."""
        return shrink(unpack_triangle(self.covariance_triangle), self.shrinkage)

    @property
    def variances(self):
        """Variance of each feature, without shrinkage."""
        diagonal = np.r_[0, np.cumsum(np.arange(self.n_features, 1, -1))]
        return self.covariance_triangle[diagonal]

    @cached_property
    def is_constant(self):
        """Whether the rows do not vary, so that only their mean can be aligned."""
        rounding = 8 * np.finfo(np.float64).eps * np.abs(self.mean)
        return bool(np.all(self.variances <= rounding**2))


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentReference(Message):
    """What the server sends back: the Gaussian that all clients are moved towards.

    Usually made by :meth:`skslot.FederatedOTAligner.server_aggregate`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Weighted mean of the clients' means.
    covariance : ndarray of shape (n_features, n_features)
        Bures-Wasserstein barycenter of the clients' shrunk covariances.
    n_iter : int
        Passes that the barycenter took.
    residual : float
        Its scale-free residual.
    tau : float, default=None
        Strength of the alignment, when the server chose it (``tau="auto"``).

    See Also
    --------
    ClientStatistics : What the clients sent.
    skslot.geometry.bures_barycenter : Computes the covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> rng, aligner = np.random.default_rng(0), FederatedOTAligner()
    >>> sites = [rng.normal(size=(50, 3)), rng.normal(2, 3, size=(60, 3))]
    >>> reference = aligner.server_aggregate([aligner.client_update(X) for X in sites])
    >>> reference
    AlignmentReference(n_features=3, n_iter=..., residual=...)
    """

    kind = "alignment reference"
    array_fields = ("mean", "covariance")

    mean: np.ndarray
    covariance: np.ndarray
    n_iter: int
    residual: float
    tau: float | None = None

    def __repr__(self):
        return (
            f"AlignmentReference(n_features={len(self.mean)}, n_iter={self.n_iter}, "
            f"residual={self.residual:.1e})"
        )
