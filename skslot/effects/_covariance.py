"""Covariance within classes, shrunk by how much it differs between clients."""

import numpy as np
from numpy.linalg import LinAlgError, cholesky, eigvalsh

from ..statistics import shrinkage_coefficient

# Share of the mean variance that is always added to the diagonal, so that constant
# features do not make the covariance singular.
LEAST_RIDGE = 1e-6


class WithinCovariance:
    """Covariance of all rows around their class means, added up client by client.

    Parameters
    ----------
    n_samples : int
        Rows of all clients.
    least_variance : float, default=0.0
        Variance of a feature below which all of it is rounding. So much is left on the
        diagonal if rows do not vary within classes.

    See Also
    --------
    MixedEffects : Has the offsets that are taken out of the rows before.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.effects import WithinCovariance
    >>> pooled = WithinCovariance(n_samples=30)
    >>> pooled.add(10, 10 * np.diag([1.0, 2.0]))
    >>> pooled.add(20, 20 * np.diag([3.0, 2.0]))
    >>> covariance, shrinkage = pooled.shrunk("clients")
    >>> round(shrinkage, 2)
    1.0
    >>> pooled.shrunk(0.0)[0].round(2)
    array([[2.33, 0.  ],
           [0.  , 2.  ]])
    """

    def __init__(self, n_samples, least_variance=0.0):
        self.n_samples = n_samples
        self.least_variance = least_variance
        self._sum = self._weighted = 0.0
        self._squares = self._shares = 0.0
        self._n_clients = 0

    def add(self, n_samples, scatter):
        """Add the rows of a client.

        Parameters
        ----------
        n_samples : int
            Their number.
        scatter : ndarray of shape (n_features, n_features)
            Sum of the products of their deviations from the class means of all.
        """
        share = n_samples / self.n_samples
        self._n_clients += 1
        self._sum = self._sum + scatter
        self._weighted = self._weighted + (share / self.n_samples) * scatter
        self._squares += np.vdot(scatter, scatter) / self.n_samples**2
        self._shares += share**2

    def shrunk(self, shrinkage):
        """Compute the covariance, pulled towards a multiple of the identity.

        Parameters
        ----------
        shrinkage : {"clients", "oas"} or float
            Weight of the identity. "clients" takes clients as replicates: the more
            their covariances differ, the less the pooled one says about the next.

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
            The covariance.
        coefficient : float
            Weight of the identity.
        """
        covariance = self._sum / self.n_samples
        n_features = len(covariance)
        variance = max(np.trace(covariance) / n_features, self.least_variance)
        coefficient = shrinkage
        if isinstance(shrinkage, str):
            coefficient = shrinkage_coefficient("oas", covariance, self.n_samples)
        if shrinkage == "clients":
            coefficient = max(coefficient, self._between_clients(covariance))
        coefficient = float(min(coefficient, 1.0))
        shrunk = (1 - coefficient) * covariance
        ridge = (coefficient + LEAST_RIDGE) * variance
        diagonal = np.diag_indices_from(shrunk)
        shrunk[diagonal] += ridge
        try:
            cholesky(shrunk)
        except LinAlgError:
            # rounding, mostly of float16 messages: lift eigenvalues above the noise
            shrunk[diagonal] += max(-2 * eigvalsh(shrunk)[0], 0.0)
        return shrunk, coefficient

    def _between_clients(self, covariance):
        """Ledoit and Wolf's coefficient, with clients as independent replicates."""
        apart = np.square(covariance).sum() - np.trace(covariance) ** 2 / len(
            covariance
        )
        if self._n_clients < 2 or not apart > 0:
            return 0.0
        cross = np.vdot(self._weighted, covariance)
        spread = self._squares - 2 * cross + self._shares * np.square(covariance).sum()
        return max(spread, 0.0) / (1 - self._shares) / apart
