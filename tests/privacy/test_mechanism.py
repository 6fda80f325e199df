"""How much noise a guarantee takes, and whether it is there."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import beta

from skslot.privacy import PrivacyBudget, gaussian_noise_scale
from skslot.privacy._mechanism import add_noise


@pytest.mark.parametrize(
    ("epsilon", "scale"), [(0.5, 7.032), (1, 3.731), (3, 1.391), (8, 0.600)]
)
def test_noise_is_that_of_the_analytic_gaussian_mechanism(epsilon, scale):
    assert gaussian_noise_scale(epsilon, 1e-5) == pytest.approx(scale, abs=1e-3)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 10.0, 200.0, 2000.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_noise_is_enough_and_not_more(epsilon, delta):
    def leak(scale):
        first, second = 0.5 / scale - epsilon * scale, -0.5 / scale - epsilon * scale
        return ndtr(first) - np.exp(epsilon + log_ndtr(second))

    scale = gaussian_noise_scale(epsilon, delta)
    assert leak(scale) <= delta
    assert leak(scale * (1 - 1e-6)) > delta


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (1, 0), (1, 1), (np.nan, 1e-5)]
)
def test_guarantees_that_cannot_be_are_refused(epsilon, delta):
    with pytest.raises(ValueError, match="epsilon must be positive and delta"):
        gaussian_noise_scale(epsilon, delta)


def test_noise_has_the_deviation_that_was_asked_for():
    pytest.importorskip("opendp")
    numbers = np.linspace(-5, 5, 4000)
    added = add_noise(numbers, 2.5) - numbers
    assert added.std() == pytest.approx(2.5, rel=0.06)
    assert abs(added.mean()) < 0.2
    assert not np.array_equal(added, add_noise(numbers, 2.5) - numbers)


def epsilon_of(mu, delta):
    """Epsilon of the Gaussian mechanism whose outcomes are ``mu`` deviations apart."""
    epsilons = np.linspace(1e-3, 20, 20_000)
    leaks = ndtr(mu / 2 - epsilons / mu) - np.exp(
        epsilons + log_ndtr(-mu / 2 - epsilons / mu)
    )
    return epsilons[np.argmax(leaks <= delta)]


@pytest.mark.parametrize("epsilon", [3.0, 8.0])
def test_an_attacker_finds_less_than_the_guarantee_but_not_much_less(epsilon):
    """A likelihood ratio test on 1,000 releases with one row and 1,000 without."""
    pytest.importorskip("opendp")
    budget = PrivacyBudget(epsilon, 1e-5, clip_norm=2.0)
    rng = np.random.default_rng(0)
    X, y, classes = rng.normal(size=(20, 3)), np.arange(20) % 2, np.arange(2)
    row = np.array([[100.0, 0.0, 0.0]])  # the worst one: all of it in one feature
    with_row, its_y = np.vstack([X, row]), np.append(y, 1)
    without = budget.sums(X, y, classes)
    change = budget.sums(with_row, its_y, classes) - without
    n_releases, outcomes = 1000, []
    for rows, labels in ((X, y), (with_row, its_y)):
        projections = []

        def noise(vector, scale):
            noisy = add_noise(vector, scale)
            projections.append((noisy - without) @ change)  # noqa: B023
            return noisy

        for _ in range(n_releases):
            budget.release(rows, labels, classes, noise)
        outcomes.append(np.array(projections))
    absent, present = outcomes
    threshold = 0.5
    wrong = [(absent > threshold).sum(), (present <= threshold).sum()]
    # each rate is below this but for one test in two thousand
    rates = [beta.ppf(0.9995, count + 1, n_releases - count) for count in wrong]
    apart = -ndtri(rates[0]) - ndtri(rates[1])
    found = epsilon_of(apart, budget.delta)
    assert 0.3 * epsilon < found <= epsilon
