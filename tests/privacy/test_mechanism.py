"""How much noise a guarantee takes, and whether it is there."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from skslot.privacy import gaussian_noise_scale
from skslot.privacy._budget import GRAIN, MARGIN, opendp_noise


@pytest.mark.parametrize(
    ("epsilon", "scale"), [(0.5, 7.032), (1, 3.731), (3, 1.391), (8, 0.600)]
)
def test_noise_is_that_of_the_analytic_gaussian_mechanism(epsilon, scale):
    assert gaussian_noise_scale(epsilon, 1e-5) == pytest.approx(scale, abs=1e-3)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.3, 1.0, 10.0, 200.0, 2000.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_noise_is_enough_and_not_more(epsilon, delta):
    def leak(scale):
        first, second = 0.5 / scale - epsilon * scale, -0.5 / scale - epsilon * scale
        return ndtr(first) - np.exp(epsilon + log_ndtr(second))

    scale = gaussian_noise_scale(epsilon, delta)
    assert leak(scale) <= delta
    assert leak(scale * (1 - 1e-6)) > delta


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (0, 1e-5),
        (-1, 1e-5),
        (1, 0),
        (1, 1),
        (np.nan, 1e-5),
        (np.inf, 1e-5),
        (1e300, 0.1),
    ],
)
def test_guarantees_that_cannot_be_are_refused(epsilon, delta):
    with pytest.raises(ValueError, match="epsilon must be positive and delta"):
        gaussian_noise_scale(epsilon, delta)


def test_noise_has_the_deviation_that_was_asked_for():
    pytest.importorskip("opendp")
    numbers = np.linspace(-5, 5, 4000)
    added = opendp_noise(numbers, 2.5) - numbers
    assert added.std() == pytest.approx(2.5, rel=0.06)
    assert abs(added.mean()) < 0.2
    assert not np.array_equal(added, opendp_noise(numbers, 2.5) - numbers)


def test_noise_leaves_no_finer_bits_of_a_number():
    pytest.importorskip("opendp")
    noisy = opendp_noise(np.full(100, np.pi), 1.0)
    assert np.array_equal(np.ldexp(noisy, -GRAIN) % 1, np.zeros(100))


def test_the_margin_covers_what_the_sampler_says_about_rounding():
    """OpenDP's own account of 100,000 numbers, against that of no rounding."""
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    atoms = dp.atom_domain(T=float, nan=False)
    space = dp.vector_domain(atoms, size=100_000), dp.l2_distance(T=float)
    stated = dp.m.make_gaussian(*space, scale=1.0 + MARGIN, k=GRAIN).map(1.0)
    assert stated < 0.5  # 1 / (2 scale^2), in zero-concentrated privacy


def test_packages_for_noise_are_imported_when_noise_is_drawn(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r'pip install "skslot\[privacy\]"'):
        opendp_noise(np.zeros(2), 1.0)
