"""What leaves a client and what comes back: packing, equality, constant rows."""

import copy
import pickle
import warnings
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf, oas

from skslot import FederatedOTAligner
from skslot._utils import pack_triangle, triangle_order, unpack_triangle
from skslot.exchange import (
    AlignmentReference,
    ClientStatistics,
    FeatureScale,
    Message,
    MessageError,
)
from skslot.exchange._wire import decode
from skslot.statistics import FeatureMoments


def random_covariance(n_features, seed=0):
    factor = np.random.default_rng(seed).standard_normal((n_features, n_features))
    return factor @ factor.T


def statistics_of(X, client=None, **params):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(do not vary|is singular)")
        return FederatedOTAligner(**params).client_update(X, client=client)


@pytest.mark.parametrize("n_features", [1, 2, 3, 17])
@pytest.mark.parametrize("order", ["C", "F"])
def test_packing_is_the_upper_triangle_row_by_row(n_features, order):
    matrix = np.asarray(random_covariance(n_features), order=order)
    expected = matrix[np.triu_indices(n_features)]
    assert np.array_equal(pack_triangle(matrix), expected)


@pytest.mark.parametrize("n_features", [1, 2, 3, 17])
def test_packing_round_trip_is_exact(n_features):
    matrix = random_covariance(n_features)
    packed = pack_triangle(matrix)
    assert packed.shape == (n_features * (n_features + 1) // 2,)
    assert np.array_equal(unpack_triangle(packed), matrix)


def test_only_the_upper_triangle_is_read():
    matrix = random_covariance(4)
    spoilt = np.triu(matrix) + np.tril(np.full((4, 4), np.nan), -1)
    assert np.array_equal(pack_triangle(spoilt), pack_triangle(matrix))


def test_packing_does_not_alias_its_input():
    matrix = random_covariance(4)
    packed = pack_triangle(matrix)
    matrix[:] = 0
    assert packed.all()
    unpack_triangle(packed)[:] = 0
    assert packed.all()


@pytest.mark.parametrize(("length", "order"), [(1, 1), (3, 2), (131_328, 512)])
def test_order_follows_from_the_length(length, order):
    assert triangle_order(length) == order


@pytest.mark.parametrize("length", [2, 4, 5, 131_327])
def test_impossible_length_is_refused(length):
    with pytest.raises(ValueError, match=f"cannot have {length} entries"):
        unpack_triangle(np.zeros(length))


@pytest.mark.parametrize("shape", [(10, 30), (30, 10), (30, 1)], ids=str)
@pytest.mark.parametrize(
    ("shrinkage", "estimator"), [("ledoit_wolf", ledoit_wolf), ("oas", oas)]
)
def test_covariance_is_that_of_scikit_learn(shrinkage, estimator, shape):
    X = np.random.default_rng(0).normal(3, size=shape)
    message = statistics_of(X, shrinkage=shrinkage)
    covariance, coefficient = estimator(X)
    assert abs(message.shrinkage - coefficient) <= 1e-12
    np.testing.assert_allclose(
        message.shrunk_covariance, covariance, rtol=1e-12, atol=1e-12
    )


def test_message_holds_size_mean_and_sample_covariance():
    X = np.random.default_rng(0).normal(3, size=(20, 4))
    message = statistics_of(X, client="A")
    assert (message.client, message.n_samples, message.n_features) == ("A", 20, 4)
    np.testing.assert_allclose(message.mean, X.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(message.covariance, np.cov(X.T, ddof=0), rtol=1e-12)


def test_only_the_triangle_of_a_covariance_is_sent():
    covariance = random_covariance(3)
    message = ClientStatistics(9, np.zeros(3), covariance, 0.0, "A")
    sent, _ = decode(message.to_bytes("float64"))
    assert np.array_equal(sent["covariance_triangle"], pack_triangle(covariance))
    assert ClientStatistics.from_bytes(message.to_bytes("float64")) == message


def test_covariance_that_is_not_symmetric_is_refused():
    message = replace(example_statistics(), covariance=np.array([[2.0, 1], [0, 3]]))
    with pytest.raises(MessageError, match="client 'A': covariance is not symmetric"):
        message.to_bytes()


def example_statistics(client="A"):
    return ClientStatistics(
        5, np.arange(2.0), np.array([[2.0, 1.0], [1.0, 3.0]]), 0.1, client
    )


def example_reference():
    return AlignmentReference(np.arange(2.0), np.eye(2), 3, 1e-9)


@pytest.mark.parametrize("message", [example_statistics(), example_reference()])
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_are_equal(message, duplicate):
    assert duplicate(message) == message


@pytest.mark.parametrize("client", [None, "A", 3, ("A", 1), ("A", ("b", "c"))])
def test_client_of_any_kind_compares(client):
    assert example_statistics(client) == example_statistics(client)
    assert example_statistics(client) != example_statistics("another")


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (example_statistics(), {"n_samples": 6}),
        (example_statistics(), {"mean": np.array([0.0, np.nextafter(1, 2)])}),
        (example_statistics(), {"mean": np.arange(3.0)}),
        (example_statistics(), {"covariance": np.zeros((2, 2))}),
        (example_statistics(), {"shrinkage": 0.2}),
        (example_reference(), {"mean": np.zeros(2)}),
        (example_reference(), {"covariance": 2 * np.eye(2)}),
        (example_reference(), {"n_iter": 4}),
        (example_reference(), {"residual": 0.0}),
    ],
)
def test_any_difference_makes_messages_unequal(message, changes):
    assert message != replace(message, **changes)


def test_messages_of_different_kinds_are_unequal():
    assert example_statistics() != example_reference()
    assert example_statistics() != "A"


@pytest.mark.parametrize("message", [example_statistics(), example_reference()])
def test_messages_are_frozen(message):
    with pytest.raises(FrozenInstanceError):
        message.mean = np.zeros(2)


@pytest.mark.parametrize("message", [example_statistics(), example_reference()])
def test_messages_are_not_hashable(message):
    with pytest.raises(TypeError, match="unhashable"):
        hash(message)


def test_message_does_not_follow_later_updates():
    X = np.random.default_rng(0).normal(size=(20, 3))
    moments = FeatureMoments.from_rows(X)
    message = ClientStatistics(20, moments.mean, moments.sample_covariance(), 0.0)
    kept = copy.deepcopy(message)
    moments.update(X + 5)
    assert message == kept


@pytest.mark.parametrize(
    "value", [0.0, 0.1, 1e6 + 0.1, -1e6 / 3, 1e-300, 1 / 3, 12345.678]
)
@pytest.mark.parametrize("n_samples", [1, 2, 3, 7, 1000, 1025])
def test_repeated_row_is_constant_despite_rounding(value, n_samples):
    X = np.full((n_samples, 3), value) * [1.0, 1e3, 0.7]
    assert statistics_of(X).is_constant


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1, 1 / 3])
def test_repeated_row_in_many_chunks_is_constant(value):
    row = np.full((7, 2), value)
    moments = sum(FeatureMoments.from_rows(row) for _ in range(300))
    message = ClientStatistics(
        moments.n_samples, moments.mean, moments.sample_covariance(), 0.0
    )
    assert message.is_constant


@pytest.mark.parametrize(("ulps", "is_constant"), [(0, True), (4, True), (100, False)])
def test_spread_of_a_few_ulps_is_rounding(ulps, is_constant):
    mean = np.array([0.0, 3.0])
    deviation = ulps * np.finfo(np.float64).eps * mean
    message = ClientStatistics(9, mean, np.diag(deviation**2), 0.0)
    assert message.is_constant == is_constant


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_one_feature_that_varies_is_enough(offset, n_features):
    X = np.full((20, n_features), offset)
    X[::2, -1] += 1e-6
    assert not statistics_of(X, shrinkage=0.1).is_constant


def test_small_feature_beside_a_large_constant_one_varies():
    X = np.random.default_rng(0).normal(scale=1e-12, size=(20, 2))
    X[:, 0] = 1e6
    assert not statistics_of(X, shrinkage=0.1).is_constant


def test_representations_are_short():
    assert repr(example_statistics()) == (
        "ClientStatistics(client='A', n_samples=5, n_features=2, shrinkage=0.1)"
    )
    assert repr(example_reference()) == (
        "AlignmentReference(n_features=2, n_iter=3, residual=1.0e-09)"
    )


def test_number_of_features_comes_from_an_array_or_is_missed():
    class Sizes(Message):
        table: np.ndarray = Message.array("c", "m", meaning="a table")

    class Nothing(Message):
        text: str = Message.fact("some text")

    assert Sizes(np.zeros((2, 5))).n_features == 5
    with pytest.raises(TypeError, match="Nothing needs an array of size 'm'"):
        _ = Nothing("a").n_features


def test_float64_changes_no_bit_of_what_a_client_sends():
    """Exactly symmetric in memory, a covariance comes back as it was."""
    X = np.random.default_rng(0).normal(3, 2, size=(5000, 40))
    aligner = FederatedOTAligner()
    for rows in (X[:50], X):  # in one tile, and in several
        message = aligner.client_update(rows, client="A")
        assert np.array_equal(message.covariance, message.covariance.T)
        assert ClientStatistics.from_bytes(message.to_bytes("float64")) == message


def test_a_message_without_statistics_of_a_client_says_so():
    with pytest.raises(TypeError, match="FeatureScale contains no statistics"):
        FeatureScale(np.zeros(3), 1.0).client_statistics()
