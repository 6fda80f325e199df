"""Noisy sums of a client under differential privacy, and statistics made of them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._linalg import eigh, pack_triangle, unpack_triangle
from ._mechanism import add_noise, gaussian_noise_scale

# How counts, class sums and the Gram matrix share the budget: squares of their weights
# in the one vector that noise is added to. Class means matter most, and the Gram matrix
# can be shrunk where noise hides it.
SPLIT = {"counts": 0.1, "sums": 0.7, "gram": 0.2}


class PrivateSums(NamedTuple):
    """Sums over clipped rows with noise, and the standard deviation of that noise."""

    counts: np.ndarray
    sums: np.ndarray
    gram: np.ndarray
    noise: dict


@dataclass(frozen=True)
class PrivacyBudget:
    """A guarantee of differential privacy for what one client sends.

    Rows are clipped to a norm around a public centre. Counts of classes, sums of rows
    of each class and their Gram matrix are then released together, once, with Gaussian
    noise; everything else is computed from these. Whether any one row was among those
    of the client changes the probability of any message by at most a factor of
    ``exp(epsilon)``, but for a probability of ``delta``.

    Parameters
    ----------
    epsilon : float
        Most that one row may change the logarithm of the odds of any message.
    delta : float
        Probability with which it may change more; well below one over the number of
        rows.
    clip_norm : float
        Rows further than this from the centre are moved to this distance. It must be
        chosen without looking at the rows.
    center : array-like of shape (n_features,), default=None
        Public centre that rows are clipped around; by default the origin. It must not
        be computed from the rows either.

    See Also
    --------
    gaussian_noise_scale : How much noise that takes.

    Notes
    -----
    The set of classes is taken as public, so ``classes`` must be given. Guarantees add
    up over releases of the same rows: two with ``epsilon=1`` are together no better
    than one with ``epsilon=2``.

    Examples
    --------
    >>> from skslot.privacy import PrivacyBudget
    >>> PrivacyBudget(epsilon=3.0, delta=1e-5, clip_norm=1.0).guarantee
    'epsilon 3, delta 1e-05, one row added or removed, rows clipped to norm 1'
    """

    epsilon: float
    delta: float
    clip_norm: float
    center: object = None

    def __post_init__(self):
        gaussian_noise_scale(self.epsilon, self.delta)
        if not 0 < self.clip_norm < np.inf:
            raise ValueError(f"clip_norm must be positive, got {self.clip_norm!r}.")

    @property
    def guarantee(self):
        """The guarantee as text, which messages carry."""
        return (
            f"epsilon {self.epsilon:g}, delta {self.delta:g}, one row added or "
            f"removed, rows clipped to norm {self.clip_norm:g}"
        )

    def centred(self, X):
        """Compute clipped rows, less the centre.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features)
            Rows of norm ``clip_norm`` at most.
        """
        Z = X.astype(np.float64) - self._center(X.shape[1])
        norms = np.linalg.norm(Z, axis=1, keepdims=True)
        factors = np.minimum(1.0, self.clip_norm / np.maximum(norms, self.clip_norm))
        # rounding must not leave a row outside
        return Z * np.where(factors < 1, factors * (1 - 1e-12), 1.0)

    def release(self, X, y, classes, noise=add_noise):
        """Release noisy sums over the rows of a client, once.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Rows.
        y : ndarray of shape (n_samples,)
            Their labels.
        classes : ndarray of shape (n_classes,)
            Labels that may occur, which are public.
        noise : callable, default=add_noise
            Adds noise to a vector of unit sensitivity; another one is for tests only.

        Returns
        -------
        released : PrivateSums
            Counts, sums and Gram matrix of the clipped rows, with noise.
        """
        vector = self.sums(X, y, classes)
        scale = gaussian_noise_scale(self.epsilon, self.delta)
        noisy = noise(vector, scale)
        n_classes, n_features = len(classes), X.shape[1]
        units = self._units()
        ends = np.cumsum([n_classes, n_classes * n_features])
        counts, sums, gram = np.split(noisy, ends)
        return PrivateSums(
            counts * units["counts"],
            sums.reshape(n_classes, n_features) * units["sums"],
            unpack_triangle(gram * units["gram"]),
            {name: scale * unit for name, unit in units.items()},
        )

    def sums(self, X, y, classes):
        """Compute the vector that noise is added to, of unit sensitivity.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Rows.
        y : ndarray of shape (n_samples,)
            Their labels.
        classes : ndarray of shape (n_classes,)
            Labels that may occur.

        Returns
        -------
        vector : ndarray
            Counts, class sums and the upper triangle of the Gram matrix, each in its
            unit. One row more or less changes it by a norm of 1 at most.
        """
        Z, units = self.centred(X), self._units()
        held = np.equal.outer(classes, y).astype(np.float64)
        parts = {
            "counts": held.sum(axis=1),
            "sums": (held @ Z).ravel(),
            "gram": pack_triangle(Z.T @ Z),
        }
        return np.concatenate([part / units[name] for name, part in parts.items()])

    def statistics(self, X, y, classes, noise=add_noise):
        """Compute counts, class means and covariance of a client from one release.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Rows.
        y : ndarray of shape (n_samples,)
            Their labels.
        classes : ndarray of shape (n_classes,)
            Labels that may occur, which are public.
        noise : callable, default=add_noise
            Adds noise to a vector of unit sensitivity; another one is for tests only.

        Returns
        -------
        counts : ndarray of shape (n_classes,)
            Rows of each class, rounded; at least one in all.
        means : ndarray of shape (n_classes, n_features)
            Mean of each class; zero where the count is.
        covariance : ndarray of shape (n_features, n_features)
            Covariance of all rows. Directions in which the noise hides the rows are
            pulled to the mean variance.
        """
        released = self.release(X, y, classes, noise)
        counts = np.maximum(np.rint(released.counts), 0.0)
        if not counts.any():
            counts[np.argmax(released.counts)] = 1.0
        means = released.sums / np.maximum(counts, 1.0)[:, None]
        means[counts == 0] = 0.0
        # a mean that noise has moved out of the ball cannot be right
        norms = np.linalg.norm(means, axis=1, keepdims=True)
        means *= np.minimum(1.0, self.clip_norm / np.maximum(norms, self.clip_norm))
        within = released.gram - (means.T * counts) @ means
        within = _denoised(within, released.noise["gram"])
        mean = counts @ means / counts.sum()
        between = ((means - mean).T * counts) @ (means - mean)
        means[counts > 0] += self._center(X.shape[1])
        return counts.astype(np.int32), means, (within + between) / counts.sum()

    def _units(self):
        """One unit of each part of the vector, in units of the rows."""
        sizes = {"counts": 1.0, "sums": self.clip_norm, "gram": self.clip_norm**2}
        return {name: sizes[name] / np.sqrt(share) for name, share in SPLIT.items()}

    def _center(self, n_features):
        if self.center is None:
            return np.zeros(n_features)
        center = np.asarray(self.center, dtype=np.float64)
        if center.shape != (n_features,) or not np.isfinite(center).all():
            raise ValueError(
                f"center must be {n_features} finite numbers, one per feature, got an "
                f"array of shape {center.shape}."
            )
        return center


def _denoised(scatter, noise):
    """Scatter pulled to a multiple of the identity by as much as noise hides it.

    The shrinkage of Ledoit and Wolf, where the error of each entry need not be
    estimated: it is the noise that was added.
    """
    n_features = len(scatter)
    variance = max(np.trace(scatter) / n_features, 0.0)
    target = variance * np.eye(n_features)
    apart = np.square(scatter - target).sum()
    share = min(1.0, noise**2 * n_features**2 / apart) if apart > 0 else 1.0
    eigenvalues, vectors = eigh((1 - share) * scatter + share * target)
    return (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
