"""Budgets, and what is made of noisy sums."""

import pickle
from copy import deepcopy

import numpy as np
import pytest

from skslot.privacy import PrivacyBudget

CLASSES = np.arange(3)


def test_without_noise_the_statistics_are_those_of_the_rows(seen):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    budget = PrivacyBudget(1e9, 0.5, clip_norm=20.0, center=[1.0, 2.0, 3.0, 4.0])
    with seen():
        counts, means, covariance = budget.release(X, y, CLASSES)
    assert counts.tolist() == [20, 20, 20]
    for label in CLASSES:
        np.testing.assert_allclose(means[label], X[y == label].mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(covariance, np.cov(X.T, bias=True), atol=0.02)


def test_without_labels_all_rows_are_one_class(seen):
    X = np.random.default_rng(0).normal(size=(60, 4))
    with seen():
        counts, means, covariance = PrivacyBudget(1e9, 0.5, 20.0).release(X)
    assert counts.tolist() == [60]
    np.testing.assert_allclose(means[0], X.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(covariance, np.cov(X.T, bias=True), atol=0.02)


def test_means_alone_take_the_whole_budget(seen):
    X, y = np.zeros((6, 4)), np.arange(6) % 3
    with seen() as vectors:
        found = PrivacyBudget(1, 1e-5, 1.0).release(
            X, y, CLASSES, with_covariance=False
        )
    assert found.covariance is None
    assert len(vectors[0]) == 3 + 3 * 4
    assert np.square(vectors[0][:3] / 2).sum() == pytest.approx(3 * 0.05)


@pytest.mark.parametrize("n_samples", [1, 3, 40])
@pytest.mark.parametrize("n_features", [1, 6, 30])
def test_statistics_under_heavy_noise_are_those_of_some_rows(
    n_samples, n_features, seeded
):
    X = np.random.default_rng(1).normal(size=(n_samples, n_features))
    y = np.arange(n_samples) % 3
    with seeded():
        counts, means, covariance = PrivacyBudget(0.1, 1e-6, 1.0).release(X, y, CLASSES)
    assert counts.sum() >= 1
    assert counts.min() >= 0
    assert np.linalg.norm(means, axis=1).max() <= 1 + 1e-9
    shares = counts / counts.sum()
    apart = means - shares @ means
    within = covariance - (apart.T * shares) @ apart
    assert np.linalg.eigvalsh(within).min() > -1e-9 * np.trace(covariance)
    assert np.trace(covariance) > 0  # noise is not taken for rows that do not vary


@pytest.mark.parametrize("n_samples", [200, 20_000])
def test_covariances_can_be_inverted_with_little_and_much_noise(n_samples, seeded):
    """Noise makes eigenvalues of either sign, however many rows there are."""
    X = np.random.default_rng(0).normal(size=(n_samples, 40)) * np.r_[5.0, np.ones(39)]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    with seeded():
        covariance = PrivacyBudget(1, 1e-5, 1.0).release(X).covariance
    eigenvalues = np.linalg.eigvalsh(covariance)
    assert eigenvalues[0] > 0.05 * eigenvalues.mean()


def test_the_covariance_comes_nearer_to_that_of_the_rows_with_more_rows(seeded):
    rng = np.random.default_rng(2)
    errors = []
    for n_samples in (100, 1000, 100_000):
        X = rng.normal(size=(n_samples, 8)) * np.r_[3.0, np.ones(7)]
        with seeded():
            found = PrivacyBudget(1, 1e-5, clip_norm=12.0).release(X).covariance
        true = np.cov(X.T, bias=True)
        errors.append(np.linalg.norm(found - true) / np.linalg.norm(true))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


def test_class_means_that_noise_hides_are_pulled_together(seeded):
    rng = np.random.default_rng(3)
    y = np.arange(300) % 3
    X = np.eye(50)[y] + 0.01 * rng.normal(size=(300, 50))
    spreads = []
    for epsilon in (0.1, 100.0):
        with seeded():
            means = PrivacyBudget(epsilon, 1e-5, 1.0).release(X, y, CLASSES).means
        spreads.append(np.linalg.norm(means - means.mean(axis=0)))
    assert spreads[0] < 0.3 * np.sqrt(2)
    assert spreads[1] == pytest.approx(np.sqrt(2), rel=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((1.0, 1e-5, 0.0), "clip_norm must be positive"),
        ((1.0, 1e-5, np.inf), "clip_norm must be positive"),
        ((0.0, 1e-5, 1.0), "epsilon must be positive"),
        ((1.0, 1e-5, 1.0, [[0.0]]), "center must be a vector of finite numbers"),
        ((1.0, 1e-5, 1.0, [np.nan]), "center must be a vector of finite numbers"),
    ],
)
def test_budgets_that_guarantee_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PrivacyBudget(*settings)


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        ([0, 1, 1], None, "classes is missing"),
        ([0, 1, 7], [0, 1], "must be among classes"),
        ([0, 1, 1], [0, 1, 1], "there once"),
        ([0, 1], [0, 1], "inconsistent numbers of samples"),
    ],
)
def test_labels_that_were_not_agreed_on_are_refused(y, classes, message):
    with pytest.raises(ValueError, match=message):
        PrivacyBudget(1.0, 1e-5, 1.0).release(np.zeros((3, 2)), y, classes)


def test_a_centre_of_another_length_is_refused():
    with pytest.raises(ValueError, match="center has 2 numbers, but rows have 4"):
        PrivacyBudget(1.0, 1e-5, 1.0, [0.0, 1.0]).release(np.zeros((2, 4)))


@pytest.mark.parametrize("center", [None, np.arange(512.0)])
def test_budgets_are_values(center):
    budget = PrivacyBudget(3, 1e-5, 1, center)
    for same in (deepcopy(budget), pickle.loads(pickle.dumps(budget))):
        assert same == budget
        assert hash(same) == hash(budget)
    assert budget != PrivacyBudget(3, 1e-5, 2, center)
    assert len(repr(budget)) < 100
    with pytest.raises(AttributeError):
        budget.epsilon = 1e9
