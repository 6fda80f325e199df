"""Bytes that one-shot classifiers send, and what they print."""

import pickle

import numpy as np
import pytest
from one_shot_variants import (
    ALL,
    IDS,
    LINEAR,
    PLAIN,
    X,
    Y,
    fitted,
    fitted_once,
    messages_of,
    new,
    over,
)
from sklearn.ensemble import RandomForestClassifier

from skslot import FedCGSClassifier, FedPFTClassifier
from skslot.exchange import LinearModel


@over(ALL)
@pytest.mark.parametrize("wire_dtype", ["float64", "float32", "float16"])
def test_bytes_up_are_those_of_the_messages(variant, wire_dtype):
    classifier = fitted(variant, wire_dtype=wire_dtype)
    expected = {
        message.client: len(message.to_bytes(wire_dtype))
        for message in messages_of(new(variant, wire_dtype=wire_dtype))
    }
    up = {client: bytes_.up for client, bytes_ in classifier.communication_.items()}
    assert up == expected


@over(LINEAR)
def test_bytes_down_are_those_of_a_linear_model(variant):
    classifier = fitted_once(variant)
    model = LinearModel(list("abcd"), np.ones((4, 5)), np.ones(4), "Oslo")
    expected = len(model.to_bytes(classifier.wire_dtype))
    # the name of a client in the header may cost one more unit of padding, of 8 bytes
    assert abs(classifier.communication_["Oslo"].down - expected) <= 24


def test_bytes_down_include_the_map_when_the_estimator_is_not_linear():
    forest = RandomForestClassifier(5, max_depth=2, random_state=0)
    plain = fitted("pft spherical", estimator=forest)
    aligned = fitted("pft spherical aligned", estimator=forest)
    actual = plain.communication_["Oslo"].down
    assert actual == len(pickle.dumps(plain.estimator_))
    assert aligned.communication_["Oslo"].down > actual + 8 * 5 * 5


@over(PLAIN)
def test_messages_without_names_are_numbered(variant):
    classifier = new(variant)
    messages = [
        classifier.client_update(X[IDS == client], Y[IDS == client])
        for client in np.unique(IDS)
    ]
    assert list(classifier.server_aggregate(messages).communication_) == [0, 1, 2]


@over(ALL)
def test_progress_is_printed_on_request(variant, capsys):
    fitted(variant)
    assert capsys.readouterr().out == ""
    classifier = fitted(variant, verbose=1)
    printed = capsys.readouterr().out
    for text in ("'Bern' done (1/3)", "'Oslo' done (2/3)", "'Turin' done (3/3)"):
        assert f"[{type(classifier).__name__}] client {text}" in printed


def test_float16_far_from_zero_is_worth_a_warning():
    X = np.random.default_rng(0).normal(3000, 1, size=(20, 2))
    with pytest.warns(UserWarning, match="float16 rounds the mean of 2 features"):
        FedPFTClassifier().client_update(X, np.tile([0, 1], 10), client="A")


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_float32_wire_keeps_any_scale(scale):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.tile([0, 1], 20)
    X[y == 1] += 1
    exact = FedCGSClassifier().fit(X, y).predict(X)
    scaled = FedCGSClassifier(wire_dtype="float32").fit(X * scale, y).predict(X * scale)
    assert np.array_equal(scaled, exact)
