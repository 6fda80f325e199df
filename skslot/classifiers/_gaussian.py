"""Gaussian classifiers from class statistics: pure functions of arrays."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from ..geometry._linalg import cholesky, eigh
from ..statistics._classes import class_means, merge_class_means
from ..statistics._shrinkage import shrink, shrinkage_coefficient

# Added to the diagonal by ridge="auto", in units of the mean variance of a feature:
# keeps constant features and classes of one row from making the covariance singular.
LEAST_RIDGE = 1e-6

# A feature of which less than this share is not a linear combination of others.
COLLINEAR = 1e-12


@dataclass(frozen=True)
class PooledStatistics:
    """Statistics of the rows of all clients together."""

    classes: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    scatter: np.ndarray

    def covariance(self, kind):
        """Covariance of all rows ("total") or around their class means ("within")."""
        n_samples = self.counts.sum()
        if kind == "total":
            return self.scatter / n_samples
        centred = self.means - self.counts @ self.means / n_samples
        between = (centred.T * self.counts) @ centred
        return (self.scatter - between) / n_samples


def counts_and_means(X, y, classes):
    """Number of rows and mean of each of ``classes``; zero where there is none."""
    counts = np.zeros(len(classes), dtype=np.int32)
    means = np.zeros((len(classes), X.shape[1]))
    held = class_means(X, y)
    for index, label in enumerate(classes.tolist()):
        if label in held:
            counts[index], means[index] = held[label]
    return counts, means


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
        means = merge_class_means(means, _means_held(message))
    classes = np.unique(list(means))
    counts, means = zip(*(means[label] for label in classes.tolist()), strict=True)
    return PooledStatistics(classes, np.array(counts, float), np.array(means), scatter)


def regularize(pooled, kind, ridge):
    """Covariance with ``ridge`` on its diagonal, or what "auto" stands for."""
    covariance = pooled.covariance(kind)
    if ridge == "auto":
        n_samples = pooled.counts.sum()
        coefficient = shrinkage_coefficient("oas", covariance, n_samples, None)
        covariance = shrink(covariance, coefficient)
        ridge = LEAST_RIDGE * np.trace(pooled.covariance("total")) / len(covariance)
        if not _is_positive_definite(_add_ridge(covariance, ridge)):
            # rounding, mostly of float16 messages: lift eigenvalues above the noise
            ridge -= 2 * eigh(covariance)[0][0]
    return _add_ridge(covariance, ridge)


def gaussian_head(means, covariance, log_priors):
    """Weights and intercepts of the classifier with Gaussian classes."""
    rounding = 8 * np.finfo(np.float64).eps * np.abs(means).max(axis=0)
    if np.all(np.diag(covariance) <= rounding**2):
        # rows do not vary: only priors can tell classes apart
        return np.zeros_like(means), log_priors.copy()
    try:
        factor = cholesky(covariance)
    except LinAlgError:
        factor = np.zeros_like(covariance)
    if np.any(np.diag(factor) ** 2 <= COLLINEAR * np.diag(covariance)):
        raise ValueError(
            "the pooled covariance is singular, so ridge=0 or a tiny ridge cannot "
            "invert it; use ridge='auto' or a larger number."
        )
    # Scores from the centre of the classes: a term that all classes share cancels,
    # which float32 features far from the origin would drown in.
    centre = means.mean(axis=0)
    coef = cho_solve((factor, True), (means - centre).T).T
    return coef, log_priors - 0.5 * np.sum(coef * (means + centre), axis=1)


def _add_ridge(covariance, ridge):
    return covariance + ridge * np.eye(len(covariance))


def _is_positive_definite(matrix):
    try:
        cholesky(matrix)
    except LinAlgError:
        return False
    return True


def _means_held(message):
    """Number of rows and mean of each class that a client has rows of."""
    rows = zip(message.classes, message.counts.tolist(), message.means, strict=True)
    return {label: (count, mean) for label, count, mean in rows if count > 0}
