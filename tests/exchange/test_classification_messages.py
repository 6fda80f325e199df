"""Messages of the classifiers: round trips, sums, maps and mixtures."""

import copy
import json
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from safetensors.numpy import save

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier
from skslot._utils import unpack_triangle
from skslot.exchange import ClassMixtures, ClassStatistics, LinearModel, MessageError
from skslot.exchange._message import is_array
from skslot.exchange._wire import WIRE_DTYPES, checksum

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((60, 4)) * [1, 2, 3, 4] + 5, np.array(list("abc") * 20)
ALIGNER = FederatedOTAligner()

MESSAGES = {
    "statistics": FedCGSClassifier().client_update(X, Y, client="A"),
    "statistics, one class missing": FedCGSClassifier(aligner=ALIGNER).client_update(
        X, Y, classes=["a", "b", "bb", "c"], client=7
    ),
    "mixtures": FedPFTClassifier().client_update(X, Y, client="A"),
    "mixtures, full, aligned": FedPFTClassifier(
        covariance_type="full", aligner=ALIGNER
    ).client_update(X, Y, client=None),
    "linear": LinearModel(
        ["a", "b"], RNG.standard_normal((1, 4)), np.array([0.5]), "A"
    ),
    "linear, numbers": LinearModel([1, 2, 3], np.eye(3), np.zeros(3)),
}


@pytest.fixture(params=MESSAGES)
def message(request):
    return copy.deepcopy(MESSAGES[request.param])


# ------------------------------------------------------------------- all of them


def test_float64_round_trip_is_exact(message):
    assert type(message).from_bytes(message.to_bytes("float64")) == message


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_received_is_what_arrives(message, dtype):
    arrived = type(message).from_bytes(message.to_bytes(dtype))
    assert message.as_received(dtype) == arrived


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_sending_twice_changes_nothing(message, dtype):
    received = message.as_received(dtype)
    assert received.as_received(dtype) == received
    assert len(received.to_bytes(dtype)) == len(message.to_bytes(dtype))


def test_float16_changes_the_numbers():
    message = MESSAGES["statistics"]
    received = message.as_received("float16")
    assert received != message
    np.testing.assert_allclose(received.means, message.means, rtol=2**-11)
    assert np.array_equal(received.counts, message.counts)


def test_default_precision_is_float32(message):
    assert message.to_bytes() == message.to_bytes("float32")


def test_messages_are_frozen(message):
    with pytest.raises(FrozenInstanceError):
        message.client = "somebody else"


def test_messages_differ_when_a_field_does(message):
    assert message != replace(message, client="somebody else")
    name = next(filter(is_array, fields(message))).name
    assert message != replace(message, **{name: getattr(message, name) + 1})
    assert message != "something else"


def test_messages_are_not_hashable(message):
    with pytest.raises(TypeError, match="unhashable"):
        hash(message)


@pytest.mark.parametrize("client", ["Bern", "Zürich", 5, None, 2.5])
@pytest.mark.parametrize("labels", [["a", "b"], [0, 1], [-2, 7], [False, True]])
def test_names_and_labels_survive(client, labels):
    y = np.array(labels)[np.arange(20) % 2]
    for classifier in (FedCGSClassifier(), FedPFTClassifier()):
        message = classifier.client_update(X[:20], y, client=client)
        read = type(message).from_bytes(message.to_bytes())
        assert read.client == client
        assert read.classes == labels
        assert [type(label) for label in read.classes] == [type(v) for v in labels]


def test_numpy_names_survive():
    message = FedCGSClassifier().client_update(X, Y, client=np.str_("Bern"))
    assert ClassStatistics.from_bytes(message.to_bytes()).client == "Bern"
    message = FedCGSClassifier().client_update(X, Y, client=np.int64(5))
    assert ClassStatistics.from_bytes(message.to_bytes()).client == 5


def test_message_of_another_kind_is_refused(message):
    for kind in {ClassStatistics, ClassMixtures, LinearModel} - {type(message)}:
        match = f"expected .* kind '{kind.kind}', got '{message.kind}'"
        with pytest.raises(ValueError, match=match):
            kind.from_bytes(message.to_bytes())


def test_message_without_a_field_is_refused():
    tensors = {"coef": np.ones((2, 2))}
    header = {"format": "1", "kind": "linear model", "dtype": "float64", "scales": {}}
    header["classes"] = ["a", "b"]
    header["checksum"] = checksum(header, tensors)
    data = save(tensors, metadata={"skslot": json.dumps(header)})
    with pytest.raises(ValueError, match=r"lacks \['intercept', 'client', 'encoder'\]"):
        LinearModel.from_bytes(data)


def test_bytes_that_are_no_message_are_refused(message):
    with pytest.raises(ValueError, match="not a skslot message"):
        type(message).from_bytes(message.to_bytes()[:-1])


def test_labels_and_rows_are_not_in_the_message():
    """No row of X can be found among the numbers that leave the client."""
    message = MESSAGES["statistics"]
    numbers = np.concatenate([message.means, message.covariance]).ravel()
    assert np.abs(X.reshape(-1, 1) - numbers).min() > 1e-9


# --------------------------------------------------------------- ClassStatistics


def test_statistics_describe_all_rows():
    message = MESSAGES["statistics"]
    assert message.n_samples == 60
    assert message.n_features == 4
    np.testing.assert_allclose(message.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(message.covariance, np.cov(X.T, bias=True), atol=1e-12)
    for index, label in enumerate("abc"):
        expected = X[Y == label].mean(axis=0)
        np.testing.assert_allclose(message.means[index], expected, rtol=1e-12)


def test_absent_class_has_no_rows_and_mean_zero():
    message = MESSAGES["statistics, one class missing"]
    assert message.counts.tolist() == [20, 20, 0, 20]
    assert not message.means[2].any()


def test_statistics_for_alignment_are_those_of_the_aligner():
    message = MESSAGES["statistics, one class missing"]
    actual, expected = message.client_statistics(), ALIGNER.client_update(X, client=7)
    np.testing.assert_allclose(actual.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(actual.covariance, expected.covariance, rtol=1e-12)
    assert (actual.n_samples, actual.client) == (60, 7)
    assert actual.shrinkage == pytest.approx(expected.shrinkage, rel=1e-12)


def test_sums_are_sums_over_rows():
    counts, class_sums, second_moment = MESSAGES["statistics"].sums()
    assert counts.tolist() == [20, 20, 20]
    expected = [X[Y == label].sum(axis=0) for label in "abc"]
    np.testing.assert_allclose(class_sums, expected, rtol=1e-12)
    np.testing.assert_allclose(second_moment, X.T @ X, rtol=1e-12)


def test_sums_and_back():
    message = MESSAGES["statistics, one class missing"]
    actual = ClassStatistics.from_sums(message.classes, *message.sums())
    np.testing.assert_allclose(actual.means, message.means, atol=1e-12)
    np.testing.assert_allclose(actual.covariance, message.covariance, atol=1e-11)
    assert np.array_equal(actual.counts, message.counts)
    assert actual.classes == message.classes


@pytest.mark.parametrize("value", [0.1, 17.3, 1e6, 1e-9])
def test_sums_of_a_feature_that_does_not_vary_give_no_negative_variance(value):
    rows = np.column_stack([X, np.full(len(X), value)])
    counts = np.array([20, 20, 20])
    sums = np.array([rows[Y == label].sum(axis=0) for label in "abc"])
    # as if all had been rounded down
    moment = np.nextafter(rows.T @ rows, -np.inf)
    message = ClassStatistics.from_sums(list("abc"), counts, sums, moment)
    assert 0 <= message.covariance[-1, -1] < 1e-12 * value**2


def test_sums_that_no_rows_have_are_refused():
    counts, sums = np.array([50, 50]), np.array([[100.0, 0.0], [0.0, 0.0]])
    with pytest.raises(MessageError, match="squares of feature 0 .* is -5.2e.03"):
        ClassStatistics.from_sums([0, 1], counts, sums, -5000 * np.eye(2))


@pytest.mark.parametrize("tolerance", [0.5, [0.0, 0.5]])
def test_sums_are_refused_beyond_the_tolerance_only(tolerance):
    counts, sums = np.array([2, 2]), np.array([[2.0, 2.0], [0.0, 0.0]])
    moment = np.array([[2.0, 2.0], [2.0, 1.6]])
    message = ClassStatistics.from_sums([0, 1], counts, sums, moment, tolerance)
    assert message.covariance[1, 1] == 0.25
    moment[1, 1] = 1.4
    with pytest.raises(MessageError, match="squares of feature 1 .* is -0.6"):
        ClassStatistics.from_sums([0, 1], counts, sums, moment, tolerance)


def test_pushed_statistics_are_those_of_mapped_rows():
    matrix, offset = RNG.standard_normal((4, 4)), RNG.standard_normal(4)
    actual = MESSAGES["statistics, one class missing"].pushed(matrix, offset)
    expected = FedCGSClassifier().client_update(
        X @ matrix.T + offset, Y, classes=actual.classes
    )
    np.testing.assert_allclose(actual.means, expected.means, atol=1e-11)
    np.testing.assert_allclose(actual.covariance, expected.covariance, atol=1e-11)


# ----------------------------------------------------------------- ClassMixtures


@pytest.mark.parametrize("n_components", [1, 2])
def test_class_means_are_those_of_the_rows(n_components):
    classifier = FedPFTClassifier(n_components, random_state=0)
    message = classifier.client_update(X, Y)
    expected = [X[Y == label].mean(axis=0) for label in "abc"]
    np.testing.assert_allclose(message.class_means, expected, atol=1e-9)


def test_mixtures_for_alignment_are_those_of_the_aligner():
    message = MESSAGES["mixtures, full, aligned"]
    actual, expected = message.client_statistics(), ALIGNER.client_update(X)
    np.testing.assert_allclose(actual.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(actual.covariance, expected.covariance, rtol=1e-12)


def test_full_mixtures_hold_the_covariance_of_each_class():
    message = MESSAGES["mixtures, full, aligned"]
    for flat, label in zip(message.covariances, message.classes, strict=True):
        expected = np.cov(X[Y == label].T, bias=True)
        np.testing.assert_allclose(unpack_triangle(flat), expected, atol=1e-12)


def test_mixtures_hold_only_the_classes_of_the_client():
    message = FedPFTClassifier().client_update(X, Y, classes=list("abcdef"))
    assert message.classes == ["a", "b", "c"]
    assert message.counts.tolist() == [20, 20, 20]
