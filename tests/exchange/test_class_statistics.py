"""Statistics of classes agree with the samples that they summarize."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skslot import (
    FedCGSClassifier,
    FedCoresetClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
)
from skslot.exchange import ClassStatistics

RNG = np.random.default_rng(0)
Y = np.repeat([0, 1, 2], [5, 20, 35])
X = RNG.standard_normal((60, 4)) * [1, 2, 3, 4] + np.outer(Y, [3, -1, 0, 5]) + 5
CLASSES = [0, 1, 2, 7]  # of the last there is no sample
MATRIX, OFFSET = RNG.standard_normal((4, 4)), RNG.standard_normal(4)


def scatter_within(X, y):
    """Sum over classes of the scatter around the mean of the class."""
    centred = X - np.array([X[y == label].mean(axis=0) for label in y])
    return centred.T @ centred


@pytest.mark.parametrize(
    "classifier", [FedCGSClassifier(), FedPFTClassifier(), FedCoresetClassifier()]
)
def test_scatter_is_around_class_means(classifier):
    classifier.set_params(aligner=FederatedOTAligner())
    message = classifier.client_update(X, Y, classes=CLASSES)
    assert_allclose(message.scatter(), scatter_within(X, Y), rtol=1e-9, atol=1e-9)


def test_statistics_are_those_of_the_samples():
    message = FedCGSClassifier().client_update(X, Y, classes=CLASSES)
    assert message.n_samples == 60
    assert_allclose(message.mean, X.mean(axis=0), rtol=1e-12)
    assert_allclose(message.covariance, np.cov(X.T, bias=True), rtol=1e-11)
    for label, (count, mean) in message.cells().items():
        assert count == np.sum(Y == label)
        assert_allclose(mean, X[Y == label].mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("matrix", [None, MATRIX], ids=["shift", "map"])
def test_mapped_statistics_are_those_of_mapped_samples(matrix):
    """The matrix is not symmetric, unlike those of aligners."""
    message = FedCGSClassifier().client_update(X, Y, classes=CLASSES)
    mapped = X + OFFSET if matrix is None else X @ matrix.T + OFFSET
    expected = FedCGSClassifier().client_update(mapped, Y, classes=CLASSES)
    found = message.pushed(matrix, OFFSET)
    for name in ("counts", "means", "covariance", "mean"):
        assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12)
    assert_allclose(found.scatter(), scatter_within(mapped, Y), atol=1e-9)


def test_statistics_from_sums_are_those_of_the_samples():
    one_hot = np.equal.outer(CLASSES, Y)
    found = ClassStatistics.from_sums(CLASSES, one_hot.sum(1), one_hot @ X, X.T @ X)
    expected = FedCGSClassifier().client_update(X, Y, classes=CLASSES)
    for name in ("counts", "means", "covariance"):
        assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-11)
