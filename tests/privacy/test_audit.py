"""An attacker who knows all rows but one, and looks at a thousand releases."""

from unittest.mock import patch

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import beta

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.privacy import PrivacyBudget
from skslot.privacy._budget import opendp_noise

NOISE = "skslot.privacy._budget.opendp_noise"

pytest.importorskip("opendp")
N_RELEASES, N_MESSAGES = 1000, 20


def epsilon_of(mu, delta):
    """Epsilon of the Gaussian mechanism whose outcomes are ``mu`` deviations apart."""
    epsilons = np.linspace(1e-3, 20, 20_000)
    leaks = ndtr(mu / 2 - epsilons / mu) - np.exp(
        epsilons + log_ndtr(-mu / 2 - epsilons / mu)
    )
    return epsilons[np.argmax(leaks <= delta)]


def released(estimator, X, y):
    """Noisy vectors of many messages, and the vector without noise.

    A few messages show that nothing but the noise changes, and that it is new in each;
    the noise of the others is drawn at once.
    """
    noisy, plain, scales = [], [], set()

    def source(numbers, scale):
        plain.append(numbers)
        scales.add(scale)
        noisy.append(opendp_noise(numbers, scale))
        return noisy[-1]

    with patch(NOISE, source):
        for _ in range(N_MESSAGES):
            estimator.client_update(X, y, classes=[0, 1])
    assert len(plain) == N_MESSAGES
    assert np.ptp(plain, axis=0).max() == 0
    assert np.ptp(noisy, axis=0).min() > 0
    (scale,) = scales
    others = np.tile(plain[0], (N_RELEASES - N_MESSAGES, 1))
    drawn = opendp_noise(others.ravel(), scale).reshape(others.shape)
    return np.vstack([noisy, drawn]), plain[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "epsilon"),
    [
        (FedCGSClassifier(), 3.0),
        (FederatedOTAligner(), 8.0),
    ],
)
def test_an_attacker_finds_less_than_the_guarantee_but_not_much_less(
    estimator, epsilon
):
    """A likelihood ratio test on 1,000 messages with one row and 1,000 without."""
    estimator.set_params(privacy=PrivacyBudget(epsilon, 1e-5, clip_norm=2.0))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    without, base = released(estimator, X, y)
    row = [[100.0, 0.0, 0.0]]
    with_row, other = released(estimator, np.vstack([X, row]), np.append(y, 1))
    # the likelihood ratio of two normal distributions of one variance, in one number
    absent, present = ((each - base) @ (other - base) for each in (without, with_row))
    wrong = [(absent > 0.5).sum(), (present <= 0.5).sum()]
    # each rate is below this but for one test in two thousand
    rates = [beta.ppf(0.9995, count + 1, N_RELEASES - count) for count in wrong]
    apart = -ndtri(rates[0]) - ndtri(rates[1])
    assert 0.3 * epsilon < epsilon_of(apart, 1e-5) <= epsilon
