"""A feature that does not vary has no say, whatever its value and the CPU.

Vectorised sums of a constant are not exact, and in which way not depends on the CPU: a
variance of 1e-31 in place of zero must not be divided by.
"""

import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from skslot import FedAvgClassifier, FedCOFClassifier, FederatedOTAligner
from skslot.statistics import FeatureMoments, average_rows, is_constant
from skslot.utils import all_estimators

CONSTANTS = [0.0, 3.7, 1e8, -0.1, 1e-8]
COLUMN = 2


def fast(estimator_class):
    """An estimator that takes little time and draws the same numbers each time."""
    settings_of = {FedAvgClassifier: {"net__max_epochs": 2}}
    estimator = estimator_class(**settings_of.get(estimator_class, {}))
    params = {"random_state": 0}
    known = estimator.get_params()
    return estimator.set_params(**{k: v for k, v in params.items() if k in known})


def estimators():
    """Every estimator on features of clients, and with an aligner inside."""
    for name, estimator_class in all_estimators():
        if name in ("FrozenEncoder", "FederatedGridSearchCV"):
            continue
        estimator = fast(estimator_class)
        lacks_torch = name == "FedAvgClassifier" and find_spec("torch") is None
        marks = pytest.mark.skipif(lacks_torch, reason="torch is missing")
        yield pytest.param(estimator, id=name, marks=marks)
        if "aligner" in estimator.get_params():
            aligned = clone(estimator).set_params(aligner=FederatedOTAligner())
            yield pytest.param(aligned, id=f"{name}, aligned")
        if name == "FedMergeClassifier":
            for curvature in ("diag", "kfac", "none"):
                other = clone(estimator).set_params(curvature=curvature)
                yield pytest.param(other, id=f"{name}, {curvature}")
    yield pytest.param(FederatedOTAligner("auto"), id="FederatedOTAligner, auto")


EVERY = pytest.mark.parametrize("estimator", list(estimators()))


def rows_with(constant, n_samples, dtype, seed=0):
    """Three clients and classes, five features of which the third is constant."""
    rng = np.random.default_rng(seed)
    client_ids = np.repeat(np.arange(3), n_samples)
    y = np.tile(np.arange(3), n_samples)
    X = rng.normal(size=(3 * n_samples, 4)) + 0.3 * client_ids[:, None]
    X += np.outer(y, [1.0, 0.0, -1.0, 0.5])
    return np.insert(X, COLUMN, constant, axis=1).astype(dtype), y, client_ids


def results(estimator, X, y, client_ids):
    """Probabilities, or features without the constant one."""
    with warnings.catch_warnings():  # of clients with few rows, and of outliers
        warnings.simplefilter("ignore")
        estimator = clone(estimator).fit(X, y, client_ids=client_ids)
    ids = {"client_ids": client_ids} if estimator_needs_ids(estimator) else {}
    if hasattr(estimator, "predict_proba"):
        return estimator.predict_proba(X, **ids)
    return np.delete(estimator.transform(X, **ids), COLUMN, axis=1)


def estimator_needs_ids(estimator):
    return hasattr(estimator, "aligner_") or hasattr(estimator, "client_map")


@EVERY
@settings(max_examples=6, deadline=None)
@given(
    constant=st.sampled_from(CONSTANTS),
    n_samples=st.integers(15, 60),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_value_of_a_constant_feature_does_not_matter(
    estimator, constant, n_samples, dtype
):
    found = results(estimator, *rows_with(constant, n_samples, dtype))
    assert np.isfinite(found).all()
    if isinstance(estimator, FedCOFClassifier):
        return  # has no intercept: a constant feature is one
    expected = results(estimator, *rows_with(0.0, n_samples, dtype))
    # FedPFT adds noise to all features of the rows that it draws, also to constant
    # ones. Next to 1e8 that noise is rounded to 1e-8: up to 1.6e-9 was seen.
    tolerance = 1e-8 if type(estimator).__name__ == "FedPFTClassifier" else 1e-9
    if dtype is np.float32:  # the precision of features that are returned
        tolerance = 1e-5
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@EVERY
def test_rows_that_do_not_vary_at_all_give_finite_results(estimator):
    X, y, client_ids = rows_with(0.0, 15, np.float64)
    for constant in CONSTANTS:
        X[:] = constant
        assert np.isfinite(results(estimator, X, y, client_ids)).all(), constant


@EVERY
def test_feature_that_is_constant_at_one_client_gives_finite_results(estimator):
    X, y, client_ids = rows_with(0.0, 15, np.float64)
    for constant in CONSTANTS:
        X[:, COLUMN] = np.random.default_rng(1).normal(size=len(X)) + constant
        X[client_ids == 1, COLUMN] = constant
        assert np.isfinite(results(estimator, X, y, client_ids)).all(), constant


# ------------------------------------------------------------------ the two rules


@given(
    value=st.floats(-1e300, 1e300),
    n_samples=st.integers(1, 3000),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_mean_of_a_constant_is_exact(value, n_samples, dtype):
    X = np.full((n_samples, 2), value if dtype is np.float64 else value / 1e290, dtype)
    weights = np.linspace(0.0, 1.0, n_samples) + 1e-3
    np.testing.assert_array_equal(average_rows(X), X[0])
    np.testing.assert_array_equal(average_rows(X, weights), X[0])


def test_rows_without_weight_do_not_count():
    X = np.array([[5e9], [3.7], [3.7]])
    assert average_rows(X, np.array([0, 2, 7])) == [3.7]


@given(
    value=st.floats(-1e100, 1e100),
    n_samples=st.integers(1, 3000),
    n_parts=st.integers(1, 5),
)
def test_variance_of_a_constant_is_zero(value, n_samples, n_parts):
    parts = np.array_split(np.full((n_samples, 2), value), n_parts)
    moments = sum(FeatureMoments.from_rows(part) for part in parts if len(part))
    np.testing.assert_array_equal(moments.sample_covariance(), 0.0)


@given(
    value=st.floats(-1e100, 1e100),
    n_samples=st.integers(2, 3000),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_variance_by_numpy_of_a_constant_is_rounding(value, n_samples, dtype):
    """As computed by anybody else, in float64."""
    X = np.full((n_samples, 1), value if dtype is np.float64 else value / 1e90, dtype)
    variance = X.var(axis=0, dtype=np.float64)
    assert is_constant(variance, X[0], n_samples).all()


@given(st.floats(1e-150, 1e150), st.integers(2, 1000))
def test_variance_of_a_millionth_of_the_mean_is_more_than_rounding(mean, n_samples):
    assert not is_constant([(1e-6 * mean) ** 2], [mean], n_samples).any()
