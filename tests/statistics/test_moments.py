"""Mergeable moments: agreement with scikit-learn, exact merging, refusals."""

import copy
import pickle
import tracemalloc
from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.covariance import empirical_covariance, ledoit_wolf, oas

from skslot.statistics import FeatureMoments

property_test = settings(max_examples=40, deadline=None, derandomize=True)


def random_rows(seed, n_samples, n_features):
    """Correlated rows with heavy tails, columns of different scale."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((n_features, n_features))
    scales = np.geomspace(0.1, 10, n_features)
    return rng.standard_t(5, (n_samples, n_features)) @ mixing * scales


def powers_of_norm(X):
    """Sum over rows of the powers 2 to 4 of their distance from the mean."""
    norms = np.linalg.norm(X - X.mean(axis=0), axis=1)
    return [np.sum(norms**power) for power in (2, 3, 4)]


def errors(moments, expected, X):
    """Normwise errors, each relative to the sum that bounds the quantity."""
    second, third, fourth = powers_of_norm(X)
    return [
        np.linalg.norm(moments.mean - expected.mean) / np.linalg.norm(X, axis=1).mean(),
        np.linalg.norm(moments._scatter - expected._scatter) / second,
        np.linalg.norm(moments._cubic - expected._cubic) / third,
        abs(moments._quartic - expected._quartic) / fourth,
    ]


def state(moments):
    """Everything a moments object holds, as bytes."""
    return {key: np.asarray(value).tobytes() for key, value in vars(moments).items()}


SHAPES = [(10, 40), (40, 10), (2, 5), (3, 1), (200, 1), (5000, 8), (1025, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("name", "estimator"), [("ledoit_wolf", ledoit_wolf), ("oas", oas)]
)
def test_shrunk_covariance_is_that_of_scikit_learn(name, estimator, shape):
    X = random_rows(0, *shape)
    covariance, coefficient = FeatureMoments.from_rows(X).covariance(name)
    expected_covariance, expected_coefficient = estimator(X)
    assert abs(coefficient - expected_coefficient) <= 1e-12
    error = np.linalg.norm(covariance - expected_covariance)
    assert error <= 1e-12 * np.linalg.norm(expected_covariance)


@pytest.mark.parametrize("coefficient", [0, 0.0, 0.3, 1, np.float32(0.5)])
def test_number_is_the_weight_of_the_identity(coefficient):
    X = random_rows(1, 30, 4)
    sample = empirical_covariance(X)
    expected = (1 - coefficient) * sample
    expected += coefficient * np.trace(sample) / 4 * np.eye(4)
    covariance, used = FeatureMoments.from_rows(X).covariance(coefficient)
    assert used == coefficient
    np.testing.assert_allclose(covariance, expected, rtol=1e-12, atol=1e-12)


def test_sample_covariance_is_divided_by_n():
    X = random_rows(2, 30, 4)
    covariance = FeatureMoments.from_rows(X).sample_covariance()
    np.testing.assert_allclose(covariance, np.cov(X.T, ddof=0), rtol=1e-12)


def test_covariance_is_exactly_symmetric():
    moments = sum(map(FeatureMoments.from_rows, np.split(random_rows(3, 90, 7), 3)))
    covariance, _ = moments.covariance()
    assert np.array_equal(covariance, covariance.T)


def merged_by_update(parts):
    moments = FeatureMoments(parts[0].shape[1])
    for part in parts:
        moments.update(part)
    return moments


def merged_in_pairs(parts):
    """Merge as a tree, so that both operands have many rows."""
    moments = [FeatureMoments.from_rows(part) for part in parts]
    while len(moments) > 1:
        moments = [reduce(add, moments[i : i + 2]) for i in range(0, len(moments), 2)]
    return moments[0]


MERGES = {
    "merge": lambda parts: reduce(
        FeatureMoments.merge, map(FeatureMoments.from_rows, parts)
    ),
    "plus": lambda parts: reduce(add, map(FeatureMoments.from_rows, parts)),
    "sum": lambda parts: sum(map(FeatureMoments.from_rows, parts)),
    "update": merged_by_update,
    "tree": merged_in_pairs,
}


@pytest.mark.parametrize(("offset", "tolerance"), [(0, 1e-12), (1e6, 1e-10)])
@pytest.mark.parametrize("how", MERGES)
def test_merging_any_split_in_any_order_equals_all_rows(how, offset, tolerance):
    @property_test
    @given(st.data())
    def check(data):
        n_samples = data.draw(st.integers(2, 40), label="n_samples")
        n_features = data.draw(st.integers(1, 6), label="n_features")
        X = random_rows(data.draw(st.integers(0, 2**32 - 1)), n_samples, n_features)
        X += offset * X.std()
        order = data.draw(st.permutations(range(n_samples)), label="order")
        cuts = st.lists(st.integers(0, n_samples), max_size=n_samples)
        parts = np.split(X[order], sorted(data.draw(cuts, label="cuts")))
        moments, expected = MERGES[how](parts), FeatureMoments.from_rows(X)
        assert moments.n_samples == n_samples
        assert max(errors(moments, expected, X)) <= tolerance

    check()


@pytest.mark.parametrize("offset", [0.0, 2.0**24])
def test_sums_are_those_of_the_definition(offset):
    near_zero = np.round(random_rows(4, 2500, 5) * 1024) / 1024
    X = near_zero + offset  # without rounding, so the offset can be left out below
    centred = near_zero - near_zero.mean(axis=0)
    squared_norms = np.sum(centred**2, axis=1)
    expected = FeatureMoments(5)
    expected.mean = near_zero.mean(axis=0) + offset
    expected._scatter = centred.T @ centred
    expected._cubic = squared_norms @ centred
    expected._quartic = squared_norms @ squared_norms
    assert max(errors(FeatureMoments.from_rows(X), expected, X)) <= 1e-12


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_thousand_single_rows_lose_nothing(offset):
    X = random_rows(5, 1000, 4)
    X += offset * X.std()
    moments = sum(FeatureMoments.from_rows(row[None]) for row in X)
    assert max(errors(moments, FeatureMoments.from_rows(X), X)) <= 1e-12


def test_clients_far_apart_merge():
    X = random_rows(6, 60, 4)
    X[30:] += 1e4 * X.std()
    moments = sum(map(FeatureMoments.from_rows, np.split(X, 2)))
    assert max(errors(moments, FeatureMoments.from_rows(X), X)) <= 1e-12


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.int64, np.int8, np.uint8, np.bool_]
)
def test_rows_accumulate_in_float64(dtype):
    X = (100 + random_rows(7, 3000, 6)).astype(dtype)
    narrow, wide = (FeatureMoments.from_rows(rows) for rows in (X, X.astype(float)))
    assert state(narrow) == state(wide)


def test_float32_at_a_large_offset_keeps_the_precision_of_its_values():
    X = (1000 + random_rows(8, 5000, 3)).astype(np.float32)
    expected, _ = ledoit_wolf(X.astype(np.float64))
    covariance, _ = FeatureMoments.from_rows(X).covariance()
    np.testing.assert_allclose(covariance, expected, rtol=1e-10)


@pytest.mark.parametrize("make", [list, pd.DataFrame, np.asfortranarray], ids=str)
def test_rows_come_in_any_container(make):
    X = random_rows(9, 50, 3)
    moments = FeatureMoments.from_rows(make(X))
    assert max(errors(moments, FeatureMoments.from_rows(X), X)) <= 1e-12


def test_memory_map_is_read_in_little_memory(tmp_path):
    path, shape = tmp_path / "X", (40_000, 32)
    np.random.default_rng(0).standard_normal(shape, dtype=np.float32).tofile(path)
    X = np.memmap(path, np.float32, "r", shape=shape)
    tracemalloc.start()
    moments = FeatureMoments.from_rows(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < X.nbytes / 8  # a tile of 1024 rows in float64 and a few matrices
    assert state(moments) == state(FeatureMoments.from_rows(np.array(X)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("row", [0, 1500, -1])
def test_values_that_are_not_finite_leave_the_object_unchanged(bad, row):
    X = random_rows(10, 2000, 3)
    moments = FeatureMoments.from_rows(X)
    before = state(moments)
    X[row, 1] = bad
    with pytest.raises(ValueError, match="NaN, infinity or values too large"):
        moments.update(X)
    assert state(moments) == before


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (csr_array(np.eye(3)), TypeError, "X is sparse"),
        (np.zeros(3), ValueError, r"shape \(3,\)"),
        (np.zeros((2, 3, 1)), ValueError, r"shape \(2, 3, 1\)"),
        ([], ValueError, r"shape \(0,\)"),
        (np.array([["a", "b", "c"]]), ValueError, "numeric matrix"),
        (np.zeros((2, 3), dtype=complex), ValueError, "numeric matrix"),
        (np.zeros((2, 3), dtype=object), ValueError, "numeric matrix"),
        (np.zeros((2, 4)), ValueError, "X has 4 features, but these moments have 3"),
    ],
)
def test_bad_rows_are_refused(X, error, message):
    with pytest.raises(error, match=message):
        FeatureMoments(3).update(X)


@pytest.mark.parametrize("n_features", [0, -1])
def test_features_are_required(n_features):
    with pytest.raises(ValueError, match="n_features must be at least 1"):
        FeatureMoments(n_features)


def test_rows_without_columns_are_refused():
    with pytest.raises(ValueError, match="n_features must be at least 1"):
        FeatureMoments.from_rows(np.zeros((3, 0)))


def test_no_rows_change_nothing():
    X = random_rows(11, 20, 3)
    moments = FeatureMoments.from_rows(X)
    before = state(moments)
    empty = FeatureMoments.from_rows(X[:0])
    assert state(moments.update(X[:0])) == before
    assert state(moments + empty) == before
    assert state(empty + moments) == before


@pytest.mark.parametrize("method", ["covariance", "sample_covariance"])
def test_there_is_no_covariance_of_no_rows(method):
    with pytest.raises(ValueError, match="no covariance of no rows"):
        getattr(FeatureMoments(3), method)()


@pytest.mark.parametrize(
    "shrinkage", [True, False, np.True_, "lw", "0.1", None, -0.01, 1.01, np.nan, [0.1]]
)
def test_bad_shrinkage_is_refused(shrinkage):
    moments = FeatureMoments.from_rows(random_rows(12, 20, 3))
    with pytest.raises(ValueError, match=r"shrinkage must .*\[0, 1\]"):
        moments.covariance(shrinkage)


def test_different_widths_do_not_merge():
    with pytest.raises(ValueError, match="3 features with moments of 4"):
        FeatureMoments(3) + FeatureMoments(4)


def test_merge_takes_moments_only():
    with pytest.raises(TypeError, match="got ndarray"):
        FeatureMoments(3).merge(np.zeros((2, 3)))


@pytest.mark.parametrize("other", [1, "a", None, 0.5])
def test_plus_takes_moments_only(other):
    with pytest.raises(TypeError):
        FeatureMoments(3) + other
    with pytest.raises(TypeError):
        other + FeatureMoments(3)


def test_update_is_in_place_and_returns_the_object():
    X = random_rows(13, 20, 3)
    moments = FeatureMoments(3)
    assert moments.update(X[:5]) is moments
    assert moments.update(X[5:]) is moments
    assert moments.n_samples == 20


@pytest.mark.parametrize("merge", [FeatureMoments.merge, add], ids=["merge", "+"])
@pytest.mark.parametrize("n_first", [0, 7])
def test_merging_leaves_the_operands_alone(merge, n_first):
    X = random_rows(14, 20, 3)
    first, second = FeatureMoments(3).update(X[:n_first]), FeatureMoments.from_rows(X)
    before = state(first), state(second)
    merged = merge(first, second)
    merged.update(X)
    assert (state(first), state(second)) == before


def test_rows_are_not_written_to():
    X = random_rows(15, 20, 3)
    kept = X.copy()
    X.flags.writeable = False
    FeatureMoments.from_rows(X).update(X)
    assert np.array_equal(X, kept)


def test_what_was_read_before_an_update_stays():
    X = random_rows(16, 20, 3)
    moments = FeatureMoments.from_rows(X)
    mean, kept = moments.mean, moments.mean.copy()
    moments.update(X + 1)
    assert np.array_equal(mean, kept)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_are_independent(duplicate):
    X = random_rows(17, 20, 3)
    moments = FeatureMoments.from_rows(X)
    twin = duplicate(moments)
    before = state(moments)
    assert state(twin) == before
    twin.update(X)
    assert state(moments) == before


def test_representation_names_the_size():
    moments = FeatureMoments.from_rows(np.zeros((4, 2)))
    assert repr(moments) == "FeatureMoments(n_features=2, n_samples=4)"
