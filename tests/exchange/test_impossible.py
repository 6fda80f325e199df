"""Messages that no rows can have are refused, and those of rows never are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FedCoresetClassifier,
    FederatedOTAligner,
    FedMergeClassifier,
    FedPFTClassifier,
)
from skslot.exchange import ClientStatistics, MessageError, load_message
from skslot.exchange._message import rounding_norm
from skslot.exchange._wire import WIRE_DTYPES

ALIGNER = FederatedOTAligner()
MAKERS = {
    "class statistics": FedCGSClassifier(aligner=ALIGNER),
    "mixtures, spherical": FedPFTClassifier(aligner=ALIGNER, random_state=0),
    "mixtures, diag": FedPFTClassifier(
        3, covariance_type="diag", aligner=ALIGNER, random_state=0
    ),
    "mixtures, full": FedPFTClassifier(
        2, covariance_type="full", aligner=ALIGNER, random_state=0
    ),
    "mixtures, lowrank": FedPFTClassifier(
        covariance_type="lowrank", n_loadings=3, aligner=ALIGNER
    ),
    "core-set": FedCoresetClassifier(aligner=ALIGNER, random_state=0),
    "curved head": FedMergeClassifier("gram", aligner=ALIGNER),
}


def message_of(kind="class statistics", seed=0, **changes):
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 3
    X = rng.standard_normal((60, 5)) + 2 * rng.standard_normal((3, 5))[y]
    return replace(MAKERS[kind].client_update(X, y, client="A"), **changes)


# ------------------------------------------------------------------ rows have them


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.filterwarnings("ignore")  # few rows, coarse wires, EM that stops early
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_messages_of_rows_are_never_refused(kind, data):
    """Few rows, constant or dependent features, offsets, scales, and every wire."""
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, m = draw(st.sampled_from([2, 3, 9, 60])), draw(st.integers(1, 12))
    rank, n_classes = draw(st.integers(1, m)), draw(st.sampled_from([1, 2, 5]))
    y = rng.integers(n_classes, size=n)
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, m))
    X += rng.standard_normal((n_classes, m))[y] * 10.0 ** draw(st.integers(-4, 4))
    X *= np.geomspace(1, 10.0 ** draw(st.sampled_from([0, 3, 6])), m)
    X += rng.standard_normal(m) * 10.0 ** draw(st.sampled_from([-9, 0, 3, 8]))
    # weights have the inverse unit, and must stay below 2e60
    smallest = -50 if kind == "curved head" else -60
    X *= 10.0 ** draw(st.sampled_from([smallest, -12, -3, 0, 3, 12]))
    if draw(st.booleans()):
        X = X.astype(np.float32)
    first, second, third = (draw(st.sampled_from(WIRE_DTYPES)) for _ in range(3))
    message = MAKERS[kind].client_update(X, y, client="A").as_received(first)
    received = load_message(message.to_bytes(second))
    assert load_message(received.to_bytes(third)) == received.as_received(third)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_statistics_of_secure_sums_are_not_refused(offset):
    message = message_of()
    message = replace(message, means=message.means + offset)
    pooled = type(message).from_sums(message.classes, *message.sums())
    assert load_message(pooled.to_bytes("float64")) == pooled


# ------------------------------------------------------------- no rows have them


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("order", [32, 512])
def test_clearly_negative_eigenvalue_is_refused_in_any_dimension(order, dtype):
    rng = np.random.default_rng(0)
    vectors, _ = np.linalg.qr(rng.standard_normal((order, order)))
    values = np.r_[-0.45 if dtype == "float16" else -1e-3, np.ones(order - 1)]
    matrix = (vectors * values) @ vectors.T
    data = ClientStatistics(9, np.zeros(order), matrix, 0.1, "A").to_bytes(dtype)
    with pytest.raises(MessageError, match="not positive semi-definite"):
        load_message(data)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bound_on_rounding_holds_and_does_not_grow_with_the_order(dtype):
    rng = np.random.default_rng(0)
    for order in (8, 64, 256):
        rows = rng.standard_normal((2 * order, order)) * np.geomspace(1, 1e-3, order)
        matrix = rows.T @ rows / len(rows)
        rounded = matrix.astype(dtype).astype(np.float64)
        error = np.linalg.norm(rounded - matrix, 2)
        share = {"float32": 2.0**-22, "float16": 2.0**-10}[dtype]
        assert error <= rounding_norm(rounded)
        assert rounding_norm(rounded) <= 1.01 * share * np.linalg.norm(matrix)


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
@pytest.mark.parametrize("kind", ["class statistics", "core-set", "curved head"])
def test_class_means_further_apart_than_rows_are_refused(kind, dtype):
    message = message_of(kind)
    means = message.means.copy()
    means[0] += 50.0
    wrong = replace(message, means=means)
    with pytest.raises(MessageError, match="client 'A': class means are further apart"):
        load_message(wrong.to_bytes(dtype))


def test_class_means_apart_in_a_direction_that_no_feature_shows_are_refused():
    """On the diagonal all is well: only eigenvalues tell."""
    rng = np.random.default_rng(0)
    axis = np.ones(6) / np.sqrt(6)
    covariance = np.eye(6) - 0.99 * np.outer(axis, axis)
    means = np.array([axis, -axis])
    counts = np.array([10, 10], np.int32)
    message = message_of(classes=["a", "b"], counts=counts, means=means / 2)
    wrong = replace(message, covariance=covariance)
    wrong._check()
    with pytest.raises(MessageError, match="class means are further apart"):
        load_message(wrong.to_bytes("float64"))
    other = rng.standard_normal(6)
    other -= other @ axis * axis
    apart = np.array([other, -other]) / np.linalg.norm(other) / 2
    right = replace(wrong, means=apart)
    assert load_message(right.to_bytes("float64")) == right


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
@pytest.mark.parametrize("kind", [kind for kind in MAKERS if "mixtures" in kind])
@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_spread_of_components_must_fit_that_of_the_rows(kind, dtype, factor):
    message = message_of(kind)
    wrong = replace(message, covariances=factor * message.covariances)
    with pytest.raises(MessageError, match="variances of components add up to"):
        load_message(wrong.to_bytes(dtype))


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if "mixtures" in kind])
def test_components_further_apart_than_rows_are_refused(kind):
    message = message_of(kind)
    wrong = replace(message, means=10 * message.means)
    with pytest.raises(MessageError, match="means of components are further apart"):
        load_message(wrong.to_bytes("float64"))


def test_rows_of_a_core_set_stand_for_all_rows():
    message = message_of("core-set")
    wrong = replace(message, weights=message.weights / 2)
    with pytest.raises(MessageError, match="do not stand for as many rows"):
        load_message(wrong.to_bytes("float64"))


def test_counts_add_up_to_the_rows_that_the_header_announces(messages, tampered):
    message = messages["class statistics"]
    assert load_message(tampered(message, n_samples=message.n_samples)) == message
    with pytest.raises(MessageError, match="announces another number of rows"):
        load_message(tampered(message, n_samples=message.n_samples + 1))


# ----------------------------------------------------------------------- in memory


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "mixtures, full"])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda m: {"classes": [0, 0, 1]}, "name each label once"),
        (lambda m: {"covariance": -m.covariance}, "negative varianc"),
        (lambda m: {"means": 100 * m.means}, "further apart"),
    ],
    ids=["labels", "covariance", "means"],
)
def test_servers_refuse_what_cannot_be_without_a_file_too(kind, change, match):
    classifier = MAKERS[kind]
    good, message = message_of(kind, seed=1), message_of(kind)
    wrong = replace(message, **change(message), client="B")
    with pytest.raises(MessageError, match=f"client 'B': .*{match}"):
        classifier.server_aggregate([good, wrong])


def test_negated_components_are_refused_without_a_file_too():
    message = message_of("mixtures, full")
    wrong = replace(message, covariances=-message.covariances)
    with pytest.raises(MessageError, match="client 'A': a covariance contains a negat"):
        MAKERS["mixtures, full"].server_aggregate([wrong])


def test_masked_arrays_are_refused():
    message = message_of()
    wrong = replace(message, means=np.ma.masked_array(message.means, message.means > 0))
    with pytest.raises(MessageError, match="client 'A': means is a masked array"):
        FedCGSClassifier().server_aggregate([wrong])


@pytest.mark.parametrize("integers_first", [False, True])
def test_heads_of_integers_and_of_numbers_do_not_go_together(integers_first):
    pytest.importorskip("torch")
    classifier = FedAvgClassifier(standardize=False, random_state=0)
    X = np.random.default_rng(0).standard_normal((20, 2))
    a, b = (classifier.client_update(X, np.arange(20) % 2, client=c) for c in "AB")
    wrong = replace(
        b, weights={k: np.rint(w).astype(int) for k, w in b.weights.items()}
    )
    messages = [wrong, a] if integers_first else [a, wrong]
    with pytest.raises(MessageError, match="sent another head than client"):
        classifier.server_average(messages)
    with pytest.raises(ValueError, match="weights do not fit the head: .* is integers"):
        classifier.server_aggregate([wrong])
