"""The Gaussian mechanism: how much noise a guarantee takes, and where it comes from."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from sklearn.utils import check_array, check_consistent_length

from .._utils import (
    import_optional,
    pack_triangle,
    packed_diagonal,
    triangle_order,
    unpack_triangle,
)
from ..statistics import shrink_covariance

# Numbers are rounded to this power of two, in units of the sensitivity, before noise of
# the same grain is added: noise of full precision could give away the last bits.
GRAIN = -40

# More noise by this share makes up for all rounding. Sums of rows are exact; that they
# are divided by their units moves the vector by 2^-53 of its norm, which is at most the
# number of rows, and its grain moves it by 2^-40 times the root of its length. For a
# billion rows and a hundred million numbers both are below a fourth of this.
MARGIN = 1e-6


def gaussian_noise_scale(epsilon, delta):
    """Compute the least noise for a guarantee, per unit of sensitivity.

    The analytic Gaussian mechanism [1]_: the smallest standard deviation for which
    Gaussian noise is (epsilon, delta)-differentially private.

    Parameters
    ----------
    epsilon : float
        Most that one row may change the logarithm of the odds of any outcome.
    delta : float
        Probability with which it may change more.

    Returns
    -------
    scale : float
        Standard deviation of the noise, divided by the largest change (in Euclidean
        norm) that adding or removing one row makes.

    See Also
    --------
    PrivacyBudget : Uses it for what a client sends.

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
        # the second term by its logarithm: e^epsilon alone may overflow
        return ndtr(less) - np.exp(epsilon + log_ndtr(-more)) - delta

    # at the root itself, rounding might fall on the wrong side
    return float(np.exp(brentq(excess, -20.0, 20.0, xtol=1e-12)) * (1 + 1e-9))


def opendp_noise(numbers, scale):
    """Add Gaussian noise to numbers of unit sensitivity, by a vetted sampler.

    Neither NumPy's generator, whose state can be found out from what it gave, nor its
    normal numbers, whose gaps give the number below away, are made for this.
    """
    opendp = import_optional("opendp.prelude", "privacy", "differential privacy")
    opendp.enable_features("contrib")
    atoms = opendp.atom_domain(T=float, nan=False)
    space = opendp.vector_domain(atoms, size=len(numbers)), opendp.l2_distance(T=float)
    measure = opendp.m.make_gaussian(*space, scale=scale, k=GRAIN)
    return np.array(measure(numbers.tolist()))


_source = opendp_noise


def add_noise(numbers, scale):
    """Add noise, from where it always comes but in tests."""
    return _source(numbers, scale)


@contextmanager
def noise_for_tests(source):
    """Let noise come from elsewhere, which voids every guarantee: for tests only.

    ``source(numbers, scale)`` returns the numbers with its noise.
    """
    global _source
    _source = source
    try:
        yield
    finally:
        _source = opendp_noise


# ------------------------------------------------------------------ sums


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


# ------------------------------------------------------------------ budget


# How counts, sums of rows and the Gram matrix share the budget: squares of their
# weights in the one vector that noise is added to. Class means decide most, and the
# Gram matrix can be mixed with the identity where noise hides it. Without classes there
# is one sum, which takes less, and the Gram matrix is what alignment is about.
SPLIT_OF_CLASSES = {"counts": 0.05, "sums": 0.8, "gram": 0.15}
SPLIT_OF_MEANS = {"counts": 0.05, "sums": 0.95}
SPLIT_OF_ALL = {"counts": 0.05, "sums": 0.25, "gram": 0.7}

# The only kind of neighbour that there is a guarantee for.
ADJACENCY = "one row added or removed"

# Eigenvalues of the noise reach its radius but for a little; this much more is lifted.
LIFT = 1.25


class PrivateStatistics(NamedTuple):
    """Statistics of the rows of a client that were made of noisy sums.

    Parameters
    ----------
    counts : ndarray of shape (n_classes,)
        Rows of each class, noisy and rounded; at least one in all.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class; zero where the count is.
    covariance : ndarray of shape (n_features, n_features) or None
        Covariance of all rows, if it was asked for.

    See Also
    --------
    PrivacyBudget.release : Makes them.

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
    """A guarantee of differential privacy for what one client sends.

    Rows are clipped to a norm around a public centre. Counts of classes, sums of rows
    of each class and their Gram matrix are then released together, once, with Gaussian
    noise; everything else is computed from these. Whether any one row was among those
    of the client changes the probability of any message by at most a factor of
    ``exp(epsilon)``, but for a probability of ``delta``.

    Estimators take it as their parameter ``privacy``. Read more in the
    :doc:`User Guide </user_guide/privacy>`.

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
        be computed from the rows either. Kept as a tuple.

    See Also
    --------
    gaussian_noise_scale : How much noise that takes.

    Notes
    -----
    The set of classes is taken as public. Guarantees add up over releases of the same
    rows: two with ``epsilon=1`` are together no better than one with ``epsilon=2``.

    Noise is drawn by OpenDP from the randomness of the operating system; there is no
    seed, so that no two messages are the same.

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
        """Release statistics of the rows of a client, once.

        Every call spends the whole budget.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,), default=None
            Their labels; without, all rows are one class.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur, which are public; needed with ``y``. Rows of other
            labels are refused.
        with_covariance : bool, default=True
            Whether the covariance is released too. Without, the budget is for counts
            and means alone.

        Returns
        -------
        statistics : PrivateStatistics
            Counts, means and covariance, made of the noisy sums alone.
        """
        X = check_array(X, dtype=np.float64)
        held = _rows_of_classes(X, y, classes)
        center = self._center(X.shape[1])
        if not with_covariance:
            split = SPLIT_OF_MEANS
        else:
            split = SPLIT_OF_ALL if y is None else SPLIT_OF_CLASSES
        rows = clip_rows(X, self.clip_norm, center)
        scale = gaussian_noise_scale(self.epsilon, self.delta) * (1 + MARGIN)
        noisy = add_noise(packed_sums(rows, held, split), scale)
        sums = NoisySums.unpack(noisy, len(held), X.shape[1], split, scale)
        counts, means, covariance = _statistics(sums)
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


def _rows_of_classes(X, y, classes):
    """Which rows are of which class, of shape (n_classes, n_samples)."""
    if y is None:
        return np.ones((1, len(X)))
    if classes is None:
        raise ValueError(
            "classes is missing: labels that may occur must be agreed on beforehand, "
            "not read off y."
        )
    check_consistent_length(X, y)
    held = np.equal.outer(np.asarray(classes), np.asarray(y)).astype(np.float64)
    if not (held.sum(axis=0) == 1).all():  # a row in two classes would count twice
        raise ValueError("each label in y must be among classes, and there once.")
    return held


def _statistics(sums):
    """Counts, class means and covariance, in units of the clip norm."""
    counts = np.maximum(np.rint(sums.counts), 0.0)
    if not counts.any():
        counts[np.argmax(sums.counts)] = 1.0
    mean = sums.sums.sum(axis=0) / counts.sum()
    means = sums.sums / np.maximum(counts, 1.0)[:, None]
    if len(counts) > 1:
        means = _pulled_together(means, mean, sums.noise["sums"], counts)
    # a mean that noise has moved out of the ball cannot be right
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1.0)
    means[counts == 0] = 0.0
    if sums.gram is None:
        return counts, means, None
    within = sums.gram - (means.T * counts) @ means
    within = _lifted(within, sums.noise["gram"])
    apart = means - counts @ means / counts.sum()
    total = (within + (apart.T * counts) @ apart) / counts.sum()
    return counts, means, (total + total.T) / 2  # products are not quite symmetric


def _pulled_together(means, mean, noise, counts):
    """Class means, nearer to the mean of all rows the more of their distance is noise.

    The estimator of James and Stein, where the variance is known: that of the noise.
    """
    apart = means - mean
    expected = max(means.shape[1] - 2, 0) * (noise / np.maximum(counts, 1.0)) ** 2
    squares = np.maximum(np.square(apart).sum(axis=1), expected)
    hidden = expected / np.where(squares > 0, squares, 1.0)
    return mean + (1 - hidden)[:, None] * apart


def _lifted(scatter, noise):
    """Scatter mixed with the identity, as much as it takes to lift what noise lowered.

    Noise in a symmetric matrix moves its eigenvalues by up to a radius, which is known.
    A weight of the identity of radius / (radius + mean eigenvalue) makes the least ones
    positive again, keeps the trace, and vanishes with the noise.
    """
    n_features = len(scatter)
    radius = LIFT * noise * np.sqrt(2 * n_features)
    trace = np.trace(scatter)
    # a trace below its own standard deviation cannot be told from that
    least = noise * np.sqrt(n_features)
    if trace < least:
        scatter = scatter + (least - trace) / n_features * np.eye(n_features)
        trace = least
    if not trace > 0:  # no noise, and rows that do not vary
        return np.zeros_like(scatter)
    mixed = shrink_covariance(scatter, radius / (radius + trace / n_features))
    eigenvalues, vectors = np.linalg.eigh(mixed)
    return (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
