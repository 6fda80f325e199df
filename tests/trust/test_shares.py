"""A cap on the weight of one client."""

import numpy as np
import pytest

from skslot.trust import cap_shares


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cap", [0.2, 0.35, 0.5, 0.9, 1.0])
def test_nobody_has_more_than_the_cap_and_nobody_gains(seed, cap):
    rows = np.random.default_rng(seed).lognormal(3, 2, size=5)
    weights = cap_shares(rows, cap)
    assert np.all(weights <= rows)
    assert weights.max() <= cap * weights.sum() * (1 + 1e-12)
    # a client either has all of its rows, or as many as the cap allows
    at_cap = np.isclose(weights, cap * weights.sum())
    assert np.all(at_cap | (weights == rows))


def test_weights_below_the_cap_stay_as_they_are():
    rows = np.array([30, 40, 30])
    assert np.array_equal(cap_shares(rows, 0.4), rows)


def test_weights_are_those_of_lowering_the_largest_again_and_again():
    rows = np.array([1000.0, 300.0, 40.0, 20.0])
    expected = rows.copy()
    for _ in range(1000):
        expected = np.minimum(rows, 0.3 * expected.sum())
    np.testing.assert_allclose(cap_shares(rows, 0.3), expected, rtol=1e-6)


def test_the_least_cap_makes_all_the_same():
    assert np.array_equal(cap_shares([9, 5, 7], 1 / 3), [5, 5, 5])


def test_a_cap_that_cannot_be_kept_is_refused():
    with pytest.raises(ValueError, match="max_share=0.3 is too small for 3"):
        cap_shares([1, 2, 3], 0.3)
