"""What one row can change, and what is made of the noisy sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skslot.privacy import PrivacyBudget

CLASSES = np.arange(3)
BUDGET = PrivacyBudget(1.0, 1e-5, clip_norm=2.0)
NUMBERS = st.floats(-1e6, 1e6, width=64)


def silent(vector, scale):
    return vector


def change(budget, X, y, row, label):
    """How far one more row moves the vector that noise is added to."""
    more = budget.sums(np.vstack([X, row]), np.append(y, label), CLASSES)
    return np.linalg.norm(more - budget.sums(X, y, CLASSES))


@settings(max_examples=200, deadline=None)
@given(
    X=arrays(float, (4, 5), elements=NUMBERS),
    row=arrays(float, 5, elements=NUMBERS),
    label=st.sampled_from(CLASSES.tolist()),
    clip_norm=st.floats(1e-3, 1e3),
    center=arrays(float, 5, elements=st.floats(-10, 10)),
)
def test_no_row_changes_more_than_one(X, row, label, clip_norm, center):
    budget = PrivacyBudget(1.0, 1e-5, clip_norm, center)
    y = np.array([0, 1, 1, 2])
    assert change(budget, X, y, row, label) <= 1 + 1e-9


def test_no_row_that_a_search_finds_changes_more_than_one():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10, 4)), np.arange(10) % 3
    best, most = rng.normal(size=4), 0.0
    for step in range(2000):
        row = best + rng.standard_cauchy(4) * 0.99**step
        found = change(BUDGET, X, y, row, step % 3)
        if found > most:
            best, most = row, found
    assert 0.9 < most <= 1 + 1e-9
    worst = change(BUDGET, X, y, np.array([0, 0, 50.0, 0]), 1)
    assert worst == pytest.approx(1.0, abs=1e-9)  # the noise is not needlessly large


def test_rows_inside_the_ball_stay_and_others_move_to_its_surface():
    X = np.array([[0.5, 0.0], [30.0, 40.0]])
    centred = PrivacyBudget(1, 1e-5, 5.0, center=[0.5, 0.0]).centred(X)
    assert np.array_equal(centred[0], [0.0, 0.0])
    assert np.linalg.norm(centred[1]) == pytest.approx(5.0)
    assert np.linalg.norm(centred[1]) <= 5.0


def test_without_noise_the_statistics_are_those_of_the_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    budget = PrivacyBudget(1e8, 0.5, clip_norm=20.0, center=[1.0, 2.0, 3.0, 4.0])
    counts, means, covariance = budget.statistics(X, y, CLASSES, silent)
    assert counts.tolist() == [20, 20, 20]
    for label in CLASSES:
        np.testing.assert_allclose(means[label], X[y == label].mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(covariance, np.cov(X.T, bias=True), atol=1e-2)


@pytest.mark.parametrize("n_samples", [1, 3, 40])
def test_statistics_under_heavy_noise_are_those_of_some_rows(n_samples):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(n_samples, 6)), np.arange(n_samples) % 3

    def noise(vector, scale):
        return vector + scale * rng.standard_normal(len(vector))

    budget = PrivacyBudget(0.1, 1e-6, clip_norm=1.0)
    counts, means, covariance = budget.statistics(X, y, CLASSES, noise)
    assert counts.sum() >= 1
    assert counts.min() >= 0
    assert np.linalg.norm(means, axis=1).max() <= 1 + 1e-9
    shares = counts / counts.sum()
    apart = means - shares @ means
    within = covariance - (apart.T * shares) @ apart
    assert np.linalg.eigvalsh(within).min() > -1e-9


def test_noise_hides_directions_by_a_known_amount():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 8)) * [3, 1, 1, 1, 1, 1, 1, 1]
    y = np.zeros(500, dtype=int)

    def noise(vector, scale):
        return vector + scale * rng.standard_normal(len(vector))

    spreads = []
    for epsilon in (0.05, 1.0, 50.0):
        budget = PrivacyBudget(epsilon, 1e-5, clip_norm=10.0)
        _, _, covariance = budget.statistics(X, y, CLASSES[:1], noise)
        eigenvalues = np.linalg.eigvalsh(covariance)
        spreads.append(eigenvalues[-1] / eigenvalues.mean())
    assert spreads[0] < spreads[2]
    assert spreads[2] == pytest.approx(9 / 2, rel=0.2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((1.0, 1e-5, 0.0), "clip_norm must be positive"),
        ((1.0, 1e-5, np.inf), "clip_norm must be positive"),
        ((0.0, 1e-5, 1.0), "epsilon must be positive"),
    ],
)
def test_budgets_that_guarantee_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PrivacyBudget(*settings)


def test_a_centre_of_another_length_is_refused():
    with pytest.raises(ValueError, match="center must be 4 finite numbers"):
        PrivacyBudget(1.0, 1e-5, 1.0, [0.0, 1.0]).centred(np.zeros((2, 4)))


def test_the_guarantee_reads_as_a_sentence():
    text = "epsilon 1, delta 1e-05, one row added or removed, rows clipped to norm 2"
    assert BUDGET.guarantee == text
