"""Gaussian classifiers from class statistics: pure functions of arrays."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve

from ..geometry._linalg import cholesky
from ..statistics._shrinkage import shrink, shrinkage_coefficient

# What oracle-approximating shrinkage may round down to when there are many rows; keeps
# a constant feature from making the covariance singular.
LEAST_SHRINKAGE = 1e-6


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


def class_means(X, y, classes):
    """Number of rows and mean of each class; zero where there is none."""
    counts = np.array([np.sum(y == label) for label in classes], dtype=np.int32)
    means = np.zeros((len(classes), X.shape[1]))
    for index in np.flatnonzero(counts):
        means[index] = X[y == classes[index]].mean(axis=0, dtype=np.float64)
    return counts, means


def pool_statistics(messages):
    """Pool ClassStatistics of several clients; classes nobody holds are dropped."""
    classes = np.unique([c for m in messages for c in _held(m)])
    position = {label: index for index, label in enumerate(classes.tolist())}
    n_features = messages[0].means.shape[1]
    counts = np.zeros(len(classes))
    sums = np.zeros((len(classes), n_features))
    total = sum(message.n_samples for message in messages)
    mean = sum(message.counts @ message.means for message in messages) / total
    scatter = np.zeros((n_features, n_features))
    for message in messages:
        held = message.counts > 0
        rows = [position[label] for label in _held(message)]
        counts[rows] += message.counts[held]
        sums[rows] += message.counts[held, None] * message.means[held]
        apart = message.mean - mean
        scatter += message.n_samples * (message.covariance + np.outer(apart, apart))
    return PooledStatistics(classes, counts, sums / counts[:, None], scatter)


def regularize(covariance, n_samples, ridge):
    """Add ``ridge`` to the diagonal, or shrink as the number of rows demands."""
    if ridge == "auto":
        coefficient = shrinkage_coefficient("oas", covariance, n_samples, None)
        return shrink(covariance, max(coefficient, LEAST_SHRINKAGE))
    regularized = covariance.copy()
    regularized[np.diag_indices_from(regularized)] += ridge
    return regularized


def gaussian_head(means, covariance, log_priors):
    """Weights and intercepts of the classifier with Gaussian classes."""
    if not covariance.any():  # rows do not vary: only priors can tell classes apart
        return np.zeros_like(means), log_priors.copy()
    try:
        factor = cholesky(covariance)
    except LinAlgError:
        raise ValueError(
            "the pooled covariance is singular, so ridge=0 or a tiny ridge cannot "
            "invert it; use ridge='auto' or a larger number."
        ) from None
    coef = cho_solve((factor, True), means.T).T
    return coef, log_priors - 0.5 * np.sum(coef * means, axis=1)


def _held(message):
    return [c for c, n in zip(message.classes, message.counts, strict=True) if n > 0]
