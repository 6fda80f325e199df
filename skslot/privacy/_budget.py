"""Differential privacy by the Gaussian mechanism: one noisy release per client.

``PrivacyBudget.release`` clips the samples of a client, packs their class counts, class
sums and Gram matrix into one vector, adds noise to it, and computes statistics from the
noisy sums alone. The functions follow in this order.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from sklearn.utils import check_array, check_consistent_length

from .._utils import import_optional, pack_triangle, packed_diagonal, unpack_triangle
from ..statistics import shrink_covariance

# The only neighbouring relation for which there is a guarantee.
ADJACENCY = "one row added or removed"

# How counts, class sums and the Gram matrix share the budget: squares of their weights
# in the vector. Class means matter most, and the Gram matrix can be mixed with the
# identity where noise hides it. Without classes there is a single sum, which needs less
# of the budget, and alignment depends on the Gram matrix.
SPLIT_OF_CLASSES = {"counts": 0.05, "sums": 0.8, "gram": 0.15}
SPLIT_OF_MEANS = {"counts": 0.05, "sums": 0.95}
SPLIT_OF_ALL = {"counts": 0.05, "sums": 0.25, "gram": 0.7}

# Clipped samples are rounded to multiples of the clip norm divided by this number. Sums
# of integers are exact in any order, so their rounding cannot depend on a sample.
GRID = 2**16
# Number of samples whose products sum to at most 2^53. Up to there, float64 represents
# all integers.
EXACT_ROWS = 2**20
# Distances in clip norms are cut here, so that their squares do not overflow.
FARTHEST = 1e100

# Before noise is added, numbers are rounded to this power of two, in units of the
# sensitivity. Noise of full precision could reveal their last bits.
GRAIN = -40
# Additional noise that covers all rounding. Dividing exact sums by their units changes
# the vector by 2^-53 of its norm, which is at most the number of samples, and GRAIN
# changes it by 2^-40 times the root of its length. For a billion samples and a hundred
# million numbers, both are below a quarter of this.
MARGIN = 1e-6

# Eigenvalues of a noise matrix may slightly exceed their asymptotic bound.
LIFT = 1.25


class PrivateStatistics(NamedTuple):
    """Statistics of the samples of a client, computed from noisy sums.

    Parameters
    ----------
    counts : ndarray of shape (n_classes,)
        Noisy number of samples of each class, rounded; their sum is at least one.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class; zero where the count is zero.
    covariance : ndarray of shape (n_features, n_features) or None
        Covariance of all samples, if it was released.

    See Also
    --------
    PrivacyBudget.release : Computes the statistics.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.privacy import PrivateStatistics
    >>> PrivateStatistics(np.array([3]), np.zeros((1, 2)), None).counts
    array([3])
    """

    counts: np.ndarray
    means: np.ndarray
    covariance: np.ndarray | None


@dataclass(frozen=True)
class PrivacyBudget:
    """Differential privacy guarantee for the message of one client.

    Samples are clipped to a norm around a public centre. Class counts, class sums and
    the Gram matrix are then released together, once, with Gaussian noise. Everything
    else is computed from them. Adding or removing one sample of the client changes the
    probability of any message by at most a factor of ``exp(epsilon)``, except with
    probability ``delta``.

    Estimators take a budget as their parameter ``privacy``. Read more in the
    :doc:`User Guide </user_guide/privacy>`.

    Parameters
    ----------
    epsilon : float
        Maximum change of the log-odds of any message caused by one sample.
    delta : float
        Probability of a larger change. It should be well below one over the number of
        samples.
    clip_norm : float
        Samples further than this from the centre are moved to this distance. Choose it
        without looking at the samples.
    center : array-like of shape (n_features,), default=None
        Public centre around which samples are clipped, stored as a tuple. It must not
        be computed from the samples. If None, the origin is used.

    See Also
    --------
    gaussian_noise_scale : Noise that the guarantee requires.

    Notes
    -----
    The set of classes is public. Guarantees add up over releases of the same samples:
    two releases with ``epsilon=1`` give the guarantee of one with ``epsilon=2``.

    OpenDP draws the noise from the randomness of the operating system. There is no
    seed, so no two messages are equal.

    Examples
    --------
    >>> from skslot.privacy import PrivacyBudget
    >>> budget = PrivacyBudget(epsilon=3.0, delta=1e-5, clip_norm=1.0)
    >>> budget.guarantee["adjacency"]
    'one row added or removed'
    >>> from skslot import FedCGSClassifier
    >>> FedCGSClassifier(privacy=budget)
    FedCGSClassifier(privacy=PrivacyBudget(epsilon=3.0, delta=1e-05, clip_norm=1.0))
    """

    epsilon: float
    delta: float
    clip_norm: float
    center: object = None

    def __post_init__(self):
        gaussian_noise_scale(self.epsilon, self.delta)
        if not 0 < self.clip_norm < np.inf:
            raise ValueError(f"clip_norm must be positive, got {self.clip_norm!r}.")
        for name in ("epsilon", "delta", "clip_norm"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.center is None:
            return
        center = np.asarray(self.center, dtype=np.float64)
        if center.ndim != 1 or not np.isfinite(center).all():
            raise ValueError(
                "center must be a vector of finite numbers, one per feature, got an "
                f"array of shape {center.shape}."
            )
        object.__setattr__(self, "center", tuple(center.tolist()))

    def __repr__(self):
        center = "" if self.center is None else f", center=<{len(self.center)} numbers>"
        return (
            f"PrivacyBudget(epsilon={self.epsilon}, delta={self.delta}, "
            f"clip_norm={self.clip_norm}{center})"
        )

    @property
    def guarantee(self):
        """The guarantee as messages carry it."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "clip_norm": self.clip_norm,
            "adjacency": ADJACENCY,
        }

    def release(self, X, y=None, classes=None, *, with_covariance=True):
        """Release statistics of the samples of a client, once.

        Every call spends the whole budget.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), default=None
            Labels. If None, all samples are one class.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur, which are public. Required with ``y``, whose labels
            must be among them.
        with_covariance : bool, default=True
            Whether to release the covariance. If False, the whole budget is spent on
            counts and means.

        Returns
        -------
        statistics : PrivateStatistics
            Counts, means and covariance, computed from the noisy sums alone.
        """
        X = check_array(X, dtype=np.float64)
        held = _class_membership(X, y, classes)
        center = self._center(X.shape[1])
        if not with_covariance:
            split = SPLIT_OF_MEANS
        else:
            split = SPLIT_OF_ALL if y is None else SPLIT_OF_CLASSES
        rows = clip_rows(X, self.clip_norm, center)
        scale = gaussian_noise_scale(self.epsilon, self.delta) * (1 + MARGIN)
        noisy = opendp_noise(packed_sums(rows, held, split), scale)
        sums = unpack_sums(noisy, len(held), X.shape[1], split)
        noise = {name: scale / np.sqrt(share) for name, share in split.items()}
        counts, means, covariance = _statistics(*sums, noise)
        means[counts > 0] = center + self.clip_norm * means[counts > 0]
        if covariance is not None:
            covariance *= self.clip_norm**2
        return PrivateStatistics(counts.astype(np.int32), means, covariance)

    def _center(self, n_features):
        if self.center is None:
            return np.zeros(n_features)
        if len(self.center) != n_features:
            raise ValueError(
                f"center has {len(self.center)} numbers, but rows have {n_features} "
                "features; give it one number per feature."
            )
        return np.array(self.center)


# ------------------------------------------------------------------ exact sums


def _class_membership(X, y, classes):
    """Return 1 where a sample belongs to a class; shape (n_classes, n_samples)."""
    if y is None:
        return np.ones((1, len(X)))
    if classes is None:
        raise ValueError(
            "classes is missing: labels that may occur must be agreed on beforehand, "
            "not read off y."
        )
    check_consistent_length(X, y)
    held = np.equal.outer(np.asarray(classes), np.asarray(y)).astype(np.float64)
    if not (held.sum(axis=0) == 1).all():  # a sample in two classes would count twice
        raise ValueError("each label in y must be among classes, and there once.")
    return held


def clip_rows(X, clip_norm, center):
    """Centre and clip samples; return them as multiples of ``clip_norm / GRID``.

    Rounding is towards zero, so that no sample leaves the ball.
    """
    with np.errstate(over="ignore"):
        Z = (X - center) / clip_norm
    Z = np.clip(Z, -FARTHEST, FARTHEST)
    Z /= np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1.0)
    return np.trunc(GRID * Z)


def packed_sums(rows, held, split):
    """Pack counts, class sums and the upper triangle of the Gram matrix in one vector.

    Each part is weighted by the root of its share of the budget. The shares add up to
    one, so the contribution of one sample has a norm of at most one.
    """
    parts = {"counts": held.sum(axis=1), "sums": (held @ rows).ravel() / GRID}
    if "gram" in split:
        gram = np.zeros((rows.shape[1], rows.shape[1]), dtype=np.int64)
        for start in range(0, len(rows), EXACT_ROWS):  # without any rounding
            part = rows[start : start + EXACT_ROWS]
            gram += (part.T @ part).astype(np.int64)
        triangle = pack_triangle(gram.astype(np.float64))
        parts["gram"] = _triangle_weights(len(gram)) * triangle / GRID**2
    return np.concatenate([np.sqrt(split[name]) * part for name, part in parts.items()])


def unpack_sums(vector, n_classes, n_features, split):
    """Return counts, class sums and Gram matrix (or None) from :func:`packed_sums`."""
    ends = np.cumsum([n_classes, n_classes * n_features])
    counts, sums, gram = np.split(vector, ends)
    counts = counts / np.sqrt(split["counts"])
    sums = sums.reshape(n_classes, n_features) / np.sqrt(split["sums"])
    if "gram" not in split:
        return counts, sums, None
    gram = gram / _triangle_weights(n_features) / np.sqrt(split["gram"])
    return counts, sums, unpack_triangle(gram)


def _triangle_weights(order):
    """Return weights that give a packed triangle the norm of its symmetric matrix.

    Entries off the diagonal occur twice in the matrix, so their weight is the root of
    two. The norm of a sample's Gram matrix is then the square of the sample's norm.
    """
    weights = np.full(order * (order + 1) // 2, np.sqrt(2))
    weights[packed_diagonal(order)] = 1.0
    return weights


# ------------------------------------------------------------------ noise


def gaussian_noise_scale(epsilon, delta):
    """Compute the smallest noise for a guarantee, per unit of sensitivity.

    This is the analytic Gaussian mechanism [1]_: the smallest standard deviation for
    which Gaussian noise is (epsilon, delta)-differentially private.

    Parameters
    ----------
    epsilon : float
        Maximum change of the log-odds of any outcome caused by one sample.
    delta : float
        Probability of a larger change.

    Returns
    -------
    scale : float
        Standard deviation of the noise, divided by the largest change (in Euclidean
        norm) caused by adding or removing one sample.

    See Also
    --------
    PrivacyBudget : Uses it for the message of a client.

    References
    ----------
    .. [1] B. Balle, Y.-X. Wang. "Improving the Gaussian Mechanism for Differential
       Privacy: Analytical Calibration and Optimal Denoising". ICML, 2018.

    Examples
    --------
    >>> from skslot.privacy import gaussian_noise_scale
    >>> round(gaussian_noise_scale(1.0, 1e-5), 3)
    3.731
    """
    if not (1e-6 <= epsilon <= 1e9 and 1e-30 <= delta < 1):
        raise ValueError(
            f"epsilon must be positive and delta between 0 and 1 (1e-6 to 1e9, 1e-30 "
            f"to 1), got {epsilon!r} and {delta!r}."
        )

    def excess(log_scale):
        scale = np.exp(log_scale)
        less, more = 0.5 / scale - epsilon * scale, 0.5 / scale + epsilon * scale
        # the second term by its logarithm, because e^epsilon alone may overflow
        return ndtr(less) - np.exp(epsilon + log_ndtr(-more)) - delta

    # rounding at the root itself might fall on the wrong side
    return float(np.exp(brentq(excess, -20.0, 20.0, xtol=1e-12)) * (1 + 1e-9))


def opendp_noise(numbers, scale):
    """Add Gaussian noise to numbers of unit sensitivity, with a vetted sampler.

    NumPy's generator is not suitable: its state can be inferred from its output, and
    gaps between its normal numbers reveal the number below.
    """
    opendp = import_optional("opendp.prelude", "privacy", "differential privacy")
    opendp.enable_features("contrib")
    atoms = opendp.atom_domain(T=float, nan=False)
    space = opendp.vector_domain(atoms, size=len(numbers)), opendp.l2_distance(T=float)
    measure = opendp.m.make_gaussian(*space, scale=scale, k=GRAIN)
    return np.array(measure(numbers.tolist()))


# ------------------------------------------------------------------ statistics


def _statistics(counts, sums, gram, noise):
    """Compute counts, class means and covariance from noisy sums.

    Sums are in units of the clip norm. ``noise`` contains the standard deviation of the
    noise of each part, for the Gram matrix on its diagonal.
    """
    noisy_counts, counts = counts, np.maximum(np.rint(counts), 0.0)
    if not counts.any():
        counts[np.argmax(noisy_counts)] = 1.0
    mean = sums.sum(axis=0) / counts.sum()
    means = sums / np.maximum(counts, 1.0)[:, None]
    if len(counts) > 1:
        means = _shrink_means(means, mean, noise["sums"], counts)
    # a mean that noise has moved out of the ball cannot be right
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1.0)
    means[counts == 0] = 0.0
    if gram is None:
        return counts, means, None
    within = _lift_eigenvalues(gram - (means.T * counts) @ means, noise["gram"])
    apart = means - counts @ means / counts.sum()
    total = (within + (apart.T * counts) @ apart) / counts.sum()
    return counts, means, (total + total.T) / 2  # products are not quite symmetric


def _shrink_means(means, mean, noise, counts):
    """Shrink class means towards the mean of all samples, by the share of noise.

    This is the estimator of James and Stein for a known variance, that of the noise.
    """
    apart = means - mean
    expected = max(means.shape[1] - 2, 0) * (noise / np.maximum(counts, 1.0)) ** 2
    squares = np.maximum(np.square(apart).sum(axis=1), expected)
    hidden = expected / np.where(squares > 0, squares, 1.0)
    return mean + (1 - hidden)[:, None] * apart


def _lift_eigenvalues(scatter, noise):
    """Mix a noisy scatter matrix with the identity, until it is positive again.

    Noise in a symmetric matrix changes its eigenvalues by up to a known radius. The
    weight of the identity is radius / (radius + mean eigenvalue). It keeps the trace,
    and vanishes with the noise.
    """
    n_features = len(scatter)
    radius = LIFT * noise * np.sqrt(2 * n_features)
    trace = np.trace(scatter)
    # a trace below its own standard deviation cannot be distinguished from it
    least = noise * np.sqrt(n_features)
    if trace < least:
        scatter = scatter + (least - trace) / n_features * np.eye(n_features)
        trace = least
    if not trace > 0:  # no noise, and samples that do not vary
        return np.zeros_like(scatter)
    mixed = shrink_covariance(scatter, radius / (radius + trace / n_features))
    eigenvalues, vectors = np.linalg.eigh(mixed)
    return (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
