"""The map of one client, on its own."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from skslot.alignment import TransportMap
from skslot.geometry import displacement_map, transport_matrix

N_FEATURES = 4


def random_covariance(rng):
    factor = rng.standard_normal((N_FEATURES, 2 * N_FEATURES))
    return factor @ factor.T / N_FEATURES


@pytest.fixture
def make_map():
    rng = np.random.default_rng(0)
    matrix = transport_matrix(random_covariance(rng), random_covariance(rng))
    mean, target_mean = 3 * rng.standard_normal((2, N_FEATURES))
    return lambda tau: TransportMap(mean, matrix, target_mean, tau)


@pytest.fixture
def rows():
    return np.random.default_rng(1).normal(2, 3, (30, N_FEATURES))


@pytest.mark.parametrize("tau", [0.0, 0.1, 0.4, 1.0])
def test_rows_move_by_the_formula(make_map, rows, tau):
    moved = make_map(tau)
    mean = (1 - tau) * moved.mean + tau * moved.target_mean
    matrix = (1 - tau) * np.eye(N_FEATURES) + tau * moved.matrix
    expected = mean + (rows - moved.mean) @ matrix.T
    np.testing.assert_allclose(moved.transform(rows), expected, rtol=1e-12, atol=1e-12)


def test_affine_is_the_displacement_map(make_map):
    moved = make_map(0.3)
    expected = displacement_map(moved.mean, moved.matrix, moved.target_mean, 0.3)
    for part, expected_part in zip(moved.affine, expected, strict=True):
        assert np.array_equal(part, expected_part)


@pytest.mark.parametrize("tau", [0.1, 0.4, 1.0])
def test_mean_of_the_client_goes_towards_the_target(make_map, tau):
    moved = make_map(tau)
    expected = (1 - tau) * moved.mean + tau * moved.target_mean
    actual = moved.transform(moved.mean[None])[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["transform", "inverse_transform"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tau_zero_returns_a_bitwise_copy(make_map, rows, method, dtype):
    rows = rows.astype(dtype)
    moved = getattr(make_map(0.0), method)(rows)
    assert moved.dtype == dtype
    assert moved.tobytes() == rows.tobytes()
    assert not np.shares_memory(moved, rows)


def test_identity_leaves_rows_as_they_are(rows):
    identity = TransportMap.identity(N_FEATURES)
    assert identity.transform(rows).tobytes() == rows.tobytes()
    assert identity.inverse_transform(rows).tobytes() == rows.tobytes()


@pytest.mark.parametrize("tau", [0.1, 0.4, 1.0])
def test_inverse_goes_back(make_map, rows, tau):
    moved = make_map(tau)
    back = moved.inverse_transform(moved.transform(rows))
    np.testing.assert_allclose(back, rows, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["transform", "inverse_transform"])
def test_float32_stays_float32_and_close_to_float64(make_map, rows, method):
    rows = rows.astype(np.float32)
    narrow = getattr(make_map(0.7), method)(rows)
    wide = getattr(make_map(0.7), method)(rows.astype(np.float64))
    assert (narrow.dtype, wide.dtype) == (np.float32, np.float64)
    assert np.linalg.norm(narrow - wide) <= 1e-6 * np.linalg.norm(wide)


@pytest.mark.parametrize("make", [list, pd.DataFrame, np.asfortranarray], ids=str)
def test_container_makes_no_difference(make_map, rows, make):
    moved = make_map(0.5)
    assert np.array_equal(moved.transform(make(rows)), moved.transform(rows))


@pytest.mark.parametrize("method", ["transform", "inverse_transform"])
@pytest.mark.parametrize("tau", [0.0, 0.5])
@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda X: X[:, :2], ValueError, "X has 2 features, .* made for 4"),
        (lambda X: X[0], ValueError, "Expected 2D array"),
        (lambda X: X[:0], ValueError, "0 sample"),
        (lambda X: csr_array(X), TypeError, "Sparse data was passed"),
        (lambda X: np.where(X > 4, np.nan, X), ValueError, "contains NaN"),
        (lambda X: np.where(X > 4, np.inf, X), ValueError, "contains infinity"),
    ],
)
def test_bad_rows_are_refused(make_map, rows, method, tau, spoil, error, message):
    with pytest.raises(error, match=message):
        getattr(make_map(tau), method)(spoil(rows))


@pytest.mark.parametrize("method", ["transform", "inverse_transform"])
@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_rows_are_not_written_to(make_map, rows, method, tau):
    kept = rows.copy()
    rows.flags.writeable = False
    getattr(make_map(tau), method)(rows)
    assert np.array_equal(rows, kept)


def test_map_is_frozen(make_map):
    with pytest.raises(FrozenInstanceError):
        make_map(0.5).tau = 1.0


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
@pytest.mark.parametrize("used_before", [False, True])
def test_copies_move_rows_alike(make_map, rows, duplicate, used_before):
    moved = make_map(0.5)
    expected = make_map(0.5).transform(rows)
    if used_before:
        moved.transform(rows)
    assert np.array_equal(duplicate(moved).transform(rows), expected)
