"""Covariance within classes, against sums over rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import oas

from skslot.statistics import within_covariance


def draw_rows(seed=0, sizes=(30, 20, 50), n_features=6):
    """Rows of clients whose covariances differ, around class means of all."""
    rng = np.random.default_rng(seed)
    return [
        rng.normal(size=(size, n_features)) * rng.uniform(0.5, 2, n_features)
        for size in sizes
    ]


def pooled(rows, shrinkage, **params):
    scatters = ((len(each), each.T @ each) for each in rows)
    return within_covariance(scatters, shrinkage, **params)


def replicates(rows):
    """Shrinkage by Ledoit and Wolf's formula, with clients as replicates."""
    n = sum(map(len, rows))
    covariance = sum(each.T @ each for each in rows) / n
    shares = np.array([len(each) / n for each in rows])
    apart = [each.T @ each / len(each) - covariance for each in rows]
    squares = np.array([np.sum(each**2) for each in apart])
    m = len(covariance)
    target = np.sum((covariance - np.trace(covariance) / m * np.eye(m)) ** 2)
    return shares**2 @ squares / (1 - np.sum(shares**2)) / target


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 60), min_size=2, max_size=6))
def test_clients_are_replicates(seed, sizes):
    rows = draw_rows(seed, sizes)
    covariance, coefficient = pooled(rows, "clients")
    together = np.vstack(rows)
    sample, n = together.T @ together / len(together), len(together)
    least = pooled(rows, "oas")[1]
    expected = min(1, max(least, replicates(rows)))
    assert coefficient == pytest.approx(expected, rel=1e-9)
    variance = np.trace(sample) / 6
    expected = (1 - expected) * sample + (expected + 1e-6) * variance * np.eye(6)
    np.testing.assert_allclose(covariance, expected, atol=1e-10 * n)


def test_oas_is_that_of_scikit_learn():
    rows = draw_rows()
    sample = np.vstack(rows)
    covariance, coefficient = pooled(rows, "oas")
    expected, weight = oas(sample, assume_centered=True)
    assert coefficient == pytest.approx(weight)
    ridge = 1e-6 * np.trace(expected) / 6 * np.eye(6)
    np.testing.assert_allclose(covariance, expected + ridge, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 1.0])
def test_a_number_is_the_coefficient(shrinkage):
    rows = draw_rows()
    covariance, coefficient = pooled(rows, shrinkage)
    assert coefficient == shrinkage
    together = np.vstack(rows)
    sample = together.T @ together / len(together)
    variance = np.trace(sample) / 6
    expected = (1 - shrinkage) * sample + (shrinkage + 1e-6) * variance * np.eye(6)
    np.testing.assert_allclose(covariance, expected, rtol=1e-12, atol=1e-14)


def test_single_client_is_no_replicate():
    rows = draw_rows(sizes=(40,))
    assert pooled(rows, "clients")[1] == pooled(rows, "oas")[1]


def test_clients_that_agree_are_shrunk_little():
    rows = draw_rows(sizes=(40,))[0]
    same = pooled([rows, rows, rows], "clients")[1]
    assert same == pooled([rows, rows, rows], "oas")[1]
    assert pooled(draw_rows(), "clients")[1] > same


def test_order_of_clients_does_not_matter():
    rows = draw_rows()
    first, second = (pooled(each, "clients") for each in (rows, rows[::-1]))
    np.testing.assert_allclose(first[0], second[0], rtol=1e-12)
    assert first[1] == pytest.approx(second[1], rel=1e-12)


def test_constant_features_leave_it_invertible():
    rows = [each * np.array([1, 1, 1, 0, 0, 0]) for each in draw_rows()]
    covariance, _ = pooled(rows, 0.0)
    assert np.linalg.eigvalsh(covariance)[0] > 0


def test_nothing_varies():
    covariance, _ = within_covariance([(2, np.zeros((3, 3))), (3, np.zeros((3, 3)))])
    assert not covariance.any()


def test_negative_eigenvalues_from_rounding_are_lifted():
    scatter = 10 * np.array([[1.0, 1.001], [1.001, 1.0]])
    covariance, _ = within_covariance([(10, scatter)], 0.0)
    assert np.linalg.eigvalsh(covariance)[0] > 0


def test_least_variance_is_left_where_rows_do_not_vary():
    covariance, _ = within_covariance([(5, np.zeros((3, 3)))], least_variance=1e-8)
    np.testing.assert_allclose(covariance, 1e-8 * np.eye(3), rtol=1e-5)
    varying = pooled(draw_rows(), "clients", least_variance=1e-8)[0]
    assert np.array_equal(varying, pooled(draw_rows(), "clients")[0])
