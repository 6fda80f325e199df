"""Linear classifiers from class statistics: their base class and the mathematics."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.linalg import LinAlgError, cholesky
from scipy.linalg import cho_solve

from ..exchange import ClassStatistics
from ..privacy import PrivacyBudget
from ..statistics import (
    FeatureMoments,
    average_rows,
    class_means,
    is_constant,
    merge_class_means,
    shrink_covariance,
    stack_class_means,
)
from ._base import AlignedClassifierMixin, FoldedHeadsMixin, OneShotClassifier

LEAST_RIDGE = FeatureMoments.LEAST_RIDGE

# A feature of which less than this share is not a linear combination of others.
COLLINEAR = 1e-12

RIDGE_REMEDY = (
    "so ridge=0 or a tiny ridge cannot invert it; use ridge='auto' or a larger number."
)


class ClassStatisticsClassifier(
    FoldedHeadsMixin, AlignedClassifierMixin, OneShotClassifier
):
    """Linear classifier from class counts, class means and one covariance.

    A subclass has the parameters ``aligner`` and ``privacy`` and a method
    ``_fit_head(pooled)``, which sets ``coef_`` and ``intercept_`` from the statistics
    of all rows together.
    """

    message_type = ClassStatistics

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "privacy": [PrivacyBudget, None],
    }

    @property
    def _ids_matter(self):
        return self.aligner is not None

    def _summarize(self, X, y, classes, client, seed):
        if self.privacy is not None:
            return ClassStatistics.release(
                self.privacy, X, y, classes, client, self._noisy_shrinkage
            )
        counts, means = counts_and_means(X, y, classes)
        part = self._part_for_alignment(FeatureMoments.from_rows(X))
        return ClassStatistics(classes.tolist(), counts, means, *part, client)

    def _learn(self, messages, seed):
        self._fit_aligner(messages)
        pooled = pool_statistics(
            self._aligned_messages(messages, ClassStatistics.pushed)
        )
        self.classes_ = pooled.classes
        self._fit_head(pooled)


# ------------------------------------------------------------------ pooling


@dataclass(frozen=True)
class PooledStatistics:
    """Statistics of the rows of all clients together."""

    classes: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    scatter: np.ndarray

    @property
    def n_samples(self):
        """Number of rows, or their weight."""
        return self.counts.sum()

    @property
    def mean(self):
        """Mean of all rows."""
        return average_rows(self.means, self.counts)

    def covariance(self, kind):
        """Covariance of all rows ("total") or around their class means ("within").

        "identity" is that multiple of the identity that has the trace of the latter.
        """
        if kind == "total":
            return self.scatter / self.n_samples
        within = (self.scatter - self._between()) / self.n_samples
        return shrink_covariance(within, 1.0) if kind == "identity" else within

    def weighted(self, weights):
        """The same where rows count by the weight of their class.

        Exact for classes that have one covariance, as clients send one for all.
        """
        heavier = replace(self, counts=weights * self.counts)
        within = heavier.n_samples * self.covariance("within")
        return replace(heavier, scatter=within + heavier._between())

    def _between(self):
        """Scatter of the class means."""
        centred = self.means - self.mean
        return (centred.T * self.counts) @ centred


def counts_and_means(X, y, classes):
    """Number of rows and mean of each of ``classes``; zero where there is none."""
    counts, means = stack_class_means(class_means(X, y), classes.tolist())
    return counts.astype(np.int32), means


def pool_statistics(messages):
    """Pool ClassStatistics of several clients, read one by one.

    Classes nobody holds are dropped.
    """
    means, n_samples, mean, scatter = {}, 0, 0.0, 0.0
    for message in messages:
        added, apart = message.n_samples, message.mean - mean
        share = added / (n_samples + added)
        scatter = scatter + added * message.covariance
        scatter += np.outer(n_samples * share * apart, apart)
        mean = mean + share * apart
        n_samples += added
        means = merge_class_means(means, message.cells())
    return PooledStatistics(*stack_means(means), scatter)


def stack_means(means):
    """Classes in their order, and arrays of their counts and means."""
    classes = np.unique(list(means))
    counts, means = zip(*(means[label] for label in classes.tolist()), strict=True)
    return classes, np.array(counts, float), np.array(means)


# ------------------------------------------------------------------ linear classifiers


def factorise(covariance, means, n_samples, remedy=RIDGE_REMEDY):
    """Cholesky factor of a covariance; None if rows do not vary."""
    magnitudes = np.abs(means).max(axis=0)
    if is_constant(np.diag(covariance), magnitudes, n_samples).all():
        return None
    try:
        factor = cholesky(covariance)
    except LinAlgError:
        factor = np.zeros_like(covariance)
    if np.any(np.diag(factor) ** 2 <= COLLINEAR * np.diag(covariance)):
        raise ValueError(f"the pooled covariance is singular, {remedy}")
    return factor


def head_of_means(means, factor, log_priors):
    """Weights and intercepts of the classifier with Gaussian classes.

    ``factor`` is the Cholesky factor of their covariance; if None, priors decide.
    """
    if factor is None:
        return np.zeros_like(means), log_priors.copy()
    # Scores from the centre of the classes: a term that all classes share cancels,
    # which float32 features far from the origin would drown in.
    centre = average_rows(means)
    coef = cho_solve((factor, True), (means - centre).T).T
    return coef, log_priors - 0.5 * np.sum(coef * (means + centre), axis=1)


def class_priors(priors, counts, classes):
    """Class probabilities: shares in the rows, equal, or those that were given."""
    if isinstance(priors, str):
        counts = counts if priors == "empirical" else np.ones_like(counts)
        return counts / counts.sum()
    return check_priors(priors, classes)


def check_priors(priors, classes):
    """Class probabilities that were given, for each of ``classes``."""
    priors = np.asarray(priors, dtype=np.float64)
    if priors.shape != classes.shape or not ((priors > 0) & (priors < np.inf)).all():
        raise ValueError(
            f"priors must be {len(classes)} positive numbers, one for each of the "
            f"classes {classes.tolist()}, got {priors.tolist()!r}."
        )
    return priors / priors.sum()
