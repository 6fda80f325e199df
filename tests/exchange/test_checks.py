"""What is refused on the way in, and on the way out."""

import datetime
import pickle
from dataclasses import replace

import numpy as np
import pytest

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot._utils import pack_triangle
from skslot.exchange import (
    AlignedModel,
    ClassStatistics,
    ClientStatistics,
    MessageError,
    load_message,
)
from skslot.exchange._message import is_semidefinite
from skslot.exchange._wire import WIRE_DTYPES

NAN, INF = np.array([np.nan, 0, 0]), np.array([0, np.inf, 0])
NOT_PSD = np.array([1.0, 2.0, 0.0, 1.0, 0.0, 1.0])
NEGATIVE = np.array([1.0, 0.0, 0.0, -1.0, 0.0, 1.0])

WRONG = [
    ("client statistics", {"mean": NAN}, "mean contains NaN or infinity"),
    ("client statistics", {"mean": INF}, "mean contains NaN or infinity"),
    (
        "client statistics",
        {"mean": np.zeros(2)},
        "covariance .* does not fit",
    ),
    ("client statistics", {"mean": np.zeros((1, 3))}, "mean must have 1 axes, not 2"),
    ("client statistics", {"mean": np.zeros(3, int)}, "mean has the wrong dtype"),
    ("client statistics", {"n_samples": 0}, "n_samples must be a whole number from 1"),
    ("client statistics", {"n_samples": 2.5}, "n_samples must be a whole number"),
    ("client statistics", {"n_samples": True}, "n_samples must be a whole number"),
    ("client statistics", {"n_samples": "5"}, "n_samples must be a whole number"),
    ("client statistics", {"n_samples": None}, "n_samples must be a whole number"),
    ("client statistics", {"n_samples": 2**60}, "n_samples must be a whole number"),
    ("client statistics", {"shrinkage": -0.1}, "shrinkage must be a number from 0"),
    ("client statistics", {"shrinkage": 1.1}, "shrinkage must be a number from 0 to 1"),
    ("client statistics", {"n_features": 4}, "announces another number of features"),
    ("client statistics", {"encoder": 5}, "encoder must be text, got 5"),
    ("client statistics", {"client": ["A"]}, r"client \['A'\] cannot be sent"),
    ("client statistics", {"covariance_triangle": NOT_PSD}, "not positive semi-def"),
    ("client statistics", {"covariance_triangle": NEGATIVE}, "negative variance"),
    ("client statistics", {"stranger": np.ones(3)}, r"\['stranger'\] do not belong"),
    ("alignment reference", {"covariance_triangle": NOT_PSD}, "not positive semi-def"),
    ("alignment reference", {"covariance_triangle": np.ones(5)}, "triangle of 5"),
    (
        "alignment reference",
        {"covariance_triangle": np.ones((2, 3))},
        "must be a vector of floats",
    ),
    ("alignment reference", {"mean": NAN}, "mean contains NaN"),
    ("alignment reference", {"n_iter": -1}, "n_iter must be"),
    ("alignment reference", {"residual": -1.0}, "residual must be"),
    ("alignment reference", {"tau": 1.5}, "tau must be a number from 0 to 1"),
    ("class statistics", {"classes": ["a"]}, "1 classes have 2 counts"),
    ("class statistics", {"classes": ["a", "a"]}, "name each label once"),
    ("class statistics", {"classes": [1, True]}, "all numbers or all booleans"),
    ("class statistics", {"classes": ["a", 1]}, "all text, all numbers"),
    ("class statistics", {"classes": [None, 1]}, "all text, all numbers"),
    ("class statistics", {"classes": "ab"}, "classes must be a list"),
    ("class statistics", {"classes": []}, "classes must be a list"),
    ("class statistics", {"counts": np.array([-1, 5])}, "counts must be at least 0"),
    ("class statistics", {"counts": np.array([0, 0])}, "at least one row"),
    ("class statistics", {"counts": np.array([1.0, 2.0])}, "counts has the wrong dty"),
    ("class statistics", {"counts": np.array([2**62, 2**62])}, "counts must add up"),
    ("class statistics", {"means": np.ones((3, 3))}, "means has the shape"),
    (
        "class statistics",
        {"means": np.ones((2, 4))},
        "covariance .* does not fit",
    ),
    ("class statistics", {"shrinkage": np.array([2.0])}, "shrinkage must be"),
    ("class statistics", {"shrinkage": np.array([0.1, 0.1])}, "shrinkage has the sha"),
    ("class statistics", {"covariance_triangle": NOT_PSD}, "not positive semi-def"),
    ("class statistics", {"covariance_triangle": np.ones(0)}, "must have 2 axes"),
    ("class means", {"counts": np.array([0, 5])}, "counts must be at least 1"),
    ("class means", {"counts": np.array([1.0, 2.0])}, "counts has the wrong dtype"),
    ("class means", {"means": np.ones((3, 3))}, "means has the shape"),
    ("class means", {"means": np.array([NAN, INF])}, "means contains NaN or infinity"),
    ("class means", {"means": np.ones((2, 0))}, "there are no features"),
    ("class means", {"classes": ["a"]}, "1 classes have 2 counts"),
    ("class means", {"classes": ["a", "a"]}, "name each label once"),
    ("class means", {"covariance_triangle": NOT_PSD}, "do not belong"),
    ("class rows", {"method": "guess"}, "method must be one of 'kmeans', 'herding'"),
    ("class rows", {"method": 5}, "method must be one of"),
    ("class rows", {"counts": np.array([0, 30])}, "counts must be at least 1"),
    ("class rows", {"n_rows": np.array([2, 2])}, "do not add up to the rows sent"),
    ("class rows", {"n_rows": np.array([-1, 4])}, "n_rows must be at least 0"),
    ("class rows", {"weights": np.array([12.0, 0.0, 30.0])}, "must be positive"),
    ("class rows", {"weights": np.array([13.0, 1.0, 1.0])}, "do not stand for as many"),
    ("class rows", {"soft_labels": np.ones((3, 2))}, "soft_labels must be shares"),
    ("class rows", {"soft_labels": np.ones((2, 2))}, "does not fit the rest"),
    ("class rows", {"means": np.empty(0)}, "a covariance, but no means"),
    ("class rows", {"covariance_triangle": NOT_PSD}, "not positive semi-def"),
    ("curved head", {"curvature": "flat"}, "curvature must be one of 'none', 'gram'"),
    ("curved head", {"curvature": "gram"}, "class_curvature belongs to .* 'kfac'"),
    ("curved head", {"curvature": "diag"}, "class_curvature belongs to .* 'kfac'"),
    ("curved head", {"fisher": np.ones((2, 4))}, "fisher belongs to .* 'diag'"),
    ("curved head", {"class_curvature": np.eye(2)}, "not one of probabilities"),
    ("curved head", {"class_curvature": -np.eye(2)}, "not one of probabilities"),
    ("curved head", {"coef": np.ones((3, 3))}, "does not fit the rest"),
    ("curved head", {"shrinkage": np.array([2.0])}, "shrinkage must be a number"),
    (
        "curved head",
        {"covariance_triangle": np.empty(0), "shrinkage": np.empty(0)},
        "needs a covariance",
    ),
    (
        "curved head",
        {
            "curvature": "diag",
            "class_curvature": np.empty(0),
            "fisher": np.ones((2, 3)),
        },
        "a column for the intercept",
    ),
    (
        "curved head",
        {
            "curvature": "diag",
            "class_curvature": np.empty(0),
            "fisher": -np.ones((2, 4)),
        },
        "negative variance",
    ),
    ("class mixtures", {"counts": np.array([0, 5])}, "counts must be at least 1"),
    ("class mixtures", {"n_components": np.array([2, 1])}, "do not add up to the comp"),
    ("class mixtures", {"n_components": np.array([0, 2])}, "n_components must be at l"),
    ("class mixtures", {"weights": np.array([-1.0, 1.0])}, "weights must be shares"),
    ("class mixtures", {"weights": np.array([0.5, 1.0])}, "weights must be shares"),
    ("class mixtures", {"covariance_type": "diag"}, "does not fit the covariance_type"),
    ("class mixtures", {"covariance_type": 1}, "does not fit the covariance_type"),
    ("class mixtures", {"covariances": np.array([NOT_PSD] * 2)}, "not positive semi"),
    ("class mixtures", {"covariances": np.array([NEGATIVE] * 2)}, "negative variance"),
    ("class mixtures", {"covariance_triangle": np.ones(0)}, "but no covariance"),
    ("low-rank mixtures", {"covariance_type": "diag"}, "does not fit the covariance_t"),
    ("low-rank mixtures", {"covariances": np.ones((2, 1))}, "has 1 columns, which do"),
    ("low-rank mixtures", {"covariances": np.ones((2, 6))}, "has 6 columns, which do"),
    ("low-rank mixtures", {"covariances": np.ones((2, 13))}, "has 13 columns, which"),
    ("low-rank mixtures", {"covariances": -np.ones((2, 4))}, "negative variance"),
    ("linear model", {"classes": ["a", "b", "c"]}, "3 classes have 1 rows"),
    ("linear model", {"intercept": np.zeros(2)}, "intercept has the shape"),
    ("linear model", {"coef": np.zeros((1, 0))}, "there are no features"),
    ("feature summary", {"variance": -1.0}, "variance must be a number from 0"),
    ("feature summary", {"n_samples": 0}, "n_samples must be"),
    ("feature scale", {"scale": 0.0}, "scale must be"),
    ("feature scale", {"scale": "wide"}, "scale must be a number"),
    ("head weights", {"n_rounds": 0}, "n_rounds must be"),
    ("head weights", {"n_features": -3}, "n_features must be"),
    ("head weights", {"losses": np.zeros(3)}, "losses has the shape"),
    ("head weights", {"counts": np.array([1])}, "2 classes have 1 counts"),
    ("head weights", {"weights/bias": NAN}, "weights/bias contains NaN"),
    ("head weights", {"weights": NAN}, r"\['weights'\] do not belong"),
]


@pytest.mark.parametrize(("kind", "changes", "match"), WRONG)
def test_wrong_value_is_refused(messages, tampered, kind, changes, match):
    data = tampered(messages[kind], **changes)
    with pytest.raises(MessageError, match=match):
        load_message(data)


def test_messages_that_were_not_changed_are_read(message, tampered):
    assert load_message(tampered(message)) == message


def test_error_names_the_client(messages, tampered):
    data = tampered(messages["client statistics"], n_samples=0)
    with pytest.raises(MessageError, match="^client 'A': n_samples must") as caught:
        ClientStatistics.from_bytes(data)
    assert caught.value.client == "A"
    assert caught.value.path is None


def test_long_names_are_cut_in_errors(messages, tampered):
    data = tampered(messages["client statistics"], n_samples=0, client="x" * 10_000)
    with pytest.raises(MessageError) as caught:
        load_message(data)
    assert len(str(caught.value)) < 200


def test_errors_can_be_pickled():
    error = MessageError("it is wrong.", "A", "A.slot")
    copied = pickle.loads(pickle.dumps(error))
    assert str(copied) == str(error) == "A.slot: client 'A': it is wrong."


@pytest.mark.parametrize("kind", ["unheard of", None, 5, ["client statistics"]])
def test_unknown_kind_is_refused(messages, tampered, kind):
    data = tampered(messages["client statistics"], kind=kind)
    with pytest.raises(MessageError, match="no message is of the kind|nested"):
        load_message(data)


# ------------------------------------------------------------ positive semi-definite


def statistics_of(covariance):
    mean = np.zeros(len(covariance))
    return ClientStatistics(9, mean, covariance, 0.1, "A")


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
@pytest.mark.parametrize("n_samples", [1, 2, 5, 200])
@pytest.mark.parametrize("spread", [0, 1, 6], ids=lambda s: f"spread 1e{s}")
def test_rounded_covariance_is_never_refused(dtype, n_samples, spread):
    """Singular ones neither, nor features of very different size."""
    rng = np.random.default_rng(0)
    for scale in (1e-12, 1.0, 1e12):
        rows = rng.standard_normal((n_samples, 40)) * np.geomspace(1, 10**spread, 40)
        covariance = np.cov(scale * rows.T, bias=True)
        message = statistics_of(covariance)
        received = ClientStatistics.from_bytes(message.to_bytes(dtype))
        assert received == message.as_received(dtype)


@pytest.mark.parametrize(("dtype", "least"), [("float64", -1e-6), ("float32", -1e-3)])
def test_clearly_negative_eigenvalue_is_refused(dtype, least):
    vectors, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((40, 40)))
    eigenvalues = np.r_[least, np.linspace(0.5, 1, 39)]
    covariance = vectors * eigenvalues @ vectors.T
    data = statistics_of((covariance + covariance.T) / 2).to_bytes(dtype)
    with pytest.raises(MessageError, match="not positive semi-definite"):
        ClientStatistics.from_bytes(data)


def test_constant_rows_are_no_mistake():
    message = statistics_of(np.zeros((3, 3)))
    assert ClientStatistics.from_bytes(message.to_bytes()) == message


# -------------------------------------------------------------------- on the way out


@pytest.mark.parametrize(
    "client",
    [("A", 1), datetime.date(2026, 1, 1), b"A", frozenset("A"), np.datetime64("2026")],
    ids=repr,
)
def test_names_that_do_not_survive_are_not_sent(messages, client, tmp_path):
    message = replace(messages["client statistics"], client=client)
    with pytest.raises(MessageError, match="client .* cannot be sent: only text"):
        message.to_bytes()
    with pytest.raises(MessageError, match="cannot be sent"):
        message.save(tmp_path / "A.slot")
    assert list(tmp_path.iterdir()) == []


def test_labels_that_do_not_survive_are_not_sent(messages):
    message = replace(messages["class statistics"], classes=[b"a", b"b"])
    with pytest.raises(MessageError, match="label b'a' cannot be sent"):
        message.to_bytes()


def test_names_of_any_kind_can_be_used_in_one_process():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    ids = [("site", row % 3) for row in range(40)]
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    classifier.fit(X, y, client_ids=ids)
    assert set(classifier.clients_report_.clients) == set(ids)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_not_sent(messages, bad):
    message = replace(messages["client statistics"], mean=np.array([0.0, bad, 0.0]))
    with pytest.raises(MessageError, match="client 'A': mean contains NaN"):
        message.to_bytes()


def test_servers_check_messages_again(messages):
    wrong = replace(messages["client statistics"], n_samples=0)
    with pytest.raises(MessageError, match="client 'A': n_samples"):
        FederatedOTAligner().server_aggregate([wrong])
    wrong = replace(messages["class statistics"], counts=np.array([-5, 9]))
    with pytest.raises(MessageError, match="client 'A': counts"):
        FedCGSClassifier().server_aggregate([wrong])


def test_class_statistics_of_secure_sums_can_be_sent(messages):
    message = messages["class statistics"]
    pooled = ClassStatistics.from_sums(message.classes, *message.sums())
    assert ClassStatistics.from_bytes(pooled.to_bytes("float64")) == pooled


def test_packing_is_not_confused_by_the_order_of_memory():
    covariance = np.asfortranarray(np.cov(np.random.default_rng(0).normal(size=(3, 9))))
    assert np.array_equal(pack_triangle(covariance), pack_triangle(covariance.copy()))


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_numbers_whose_squares_overflow_are_refused(messages, dtype):
    message = replace(messages["client statistics"], mean=np.full(3, 1e300))
    with pytest.raises(MessageError, match="client 'A'.*mean contains .* 1e\\+300"):
        message.to_bytes(dtype)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 7, 8, 40])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_definiteness_is_that_of_the_eigenvalues(order, dtype):
    rng = np.random.default_rng(order)
    for least in (-0.1, 0.1):
        basis = np.linalg.qr(rng.standard_normal((order, order)))[0]
        values = np.r_[least, rng.uniform(1, 2, order - 1)]
        matrix = ((basis * values) @ basis.T).astype(dtype).astype(np.float64)
        assert is_semidefinite(matrix, 0.05) == (least > 0)
        assert is_semidefinite(matrix, 0.15)


@pytest.mark.parametrize("largest", [2.0**-10, 2.0**-20, 2.0**-30, 2.0**20, 2.0**40])
@pytest.mark.parametrize("later", WIRE_DTYPES)
@pytest.mark.filterwarnings("ignore:float16 rounds the mean")
def test_rounding_up_to_a_power_of_two_refuses_nobody(largest, later):
    """Then the scale that the wire used is not the one of the numbers received."""
    rows = np.random.default_rng(0).standard_normal((20, 64))
    covariance = rows.T @ rows
    covariance *= largest * (1 - 2.0**-13) / np.abs(covariance).max()
    message = ClientStatistics(20, np.ones(64), covariance, 0.1, "A")
    received = load_message(message.to_bytes("float16"))
    assert load_message(received.to_bytes(later)).client == "A"


@pytest.mark.parametrize(
    ("classes", "match"),
    [
        (["x", "x\0"], "ends in a zero character"),
        ([2**53 + 1, 3], "send it as text"),
        ([True, 2], "all numbers or all booleans"),
        ([1.5, 2.5], "is a fraction"),
    ],
)
def test_labels_that_an_array_would_change_are_refused(messages, classes, match):
    message = replace(messages["class statistics"], classes=classes)
    with pytest.raises(MessageError, match=match):
        message.to_bytes()


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_what_was_received_cannot_be_changed(messages, dtype):
    received = load_message(messages["client statistics"].to_bytes(dtype))
    for array in (received.mean, received.covariance):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 99.0


@pytest.mark.parametrize(
    ("changes", "tau", "match"),
    [
        ({"client": "A"}, 0.4, "head is for client 'A'"),
        ({"encoder": "other"}, 0.4, "encoder 'other'"),
        ({}, 0.5, "the reference says 0.4"),
    ],
)
def test_parts_of_a_model_must_fit(messages, changes, tau, match):
    reference = messages["alignment reference"].with_encoder("one")
    head = replace(messages["linear model"], client=None, encoder="one")
    assert AlignedModel.of(head, reference, 0.4).reference == reference
    with pytest.raises(ValueError, match=match):
        AlignedModel.of(replace(head, **changes), reference, tau)
