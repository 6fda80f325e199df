"""Bytes that one-shot classifiers send, and what they print."""

import warnings

import numpy as np
import pytest
from one_shot_variants import (
    ALL,
    EACH,
    IDS,
    PLAIN,
    X,
    Y,
    fitted,
    messages_of,
    new,
    over,
)

from skslot import (
    FedCGSClassifier,
    FedCoresetClassifier,
    FedPFTClassifier,
    MixedEffectsClassifier,
)
from skslot.exchange import load_message


@over(ALL)
def test_bytes_of_messages_are_counted(variant):
    for message in messages_of(new(variant)):
        for dtype in ("float64", "float32", "float16"):
            assert message.nbytes(dtype) == len(message.to_bytes(dtype))


@over(PLAIN)
def test_messages_without_names_are_numbered(variant):
    classifier = new(variant)
    messages = [
        classifier.client_update(X[IDS == client], Y[IDS == client])
        for client in np.unique(IDS)
    ]
    report = classifier.server_aggregate(messages).clients_report_
    assert report.clients == [0, 1, 2]


@over(EACH)
def test_progress_is_printed_on_request(variant, capsys):
    fitted(variant)
    assert capsys.readouterr().out == ""
    classifier = fitted(variant, verbose=1)
    printed = capsys.readouterr().out
    for text in ("'Bern' done (1/3)", "'Oslo' done (2/3)", "'Turin' done (3/3)"):
        assert f"[{type(classifier).__name__}] client {text}" in printed


@pytest.mark.parametrize(
    "classifier",
    [
        FedCGSClassifier(),
        FedPFTClassifier(covariance_type="diag"),
        FedPFTClassifier(covariance_type="full"),
        FedCoresetClassifier(random_state=0),
        MixedEffectsClassifier(),
    ],
    ids=str,
)
def test_float16_far_from_zero_is_worth_a_warning(classifier, tmp_path):
    """Of three features, one is near zero and one does not vary."""
    X = np.random.default_rng(0).normal([3000, 0, 0], [1, 1, 0], size=(40, 3))
    X[:, 2] = 3000
    message = classifier.client_update(X, np.tile([0, 1], 20), client="A")
    expected = "float16 rounds the mean of 1 features of client 'A' .* dtype='float32'"
    with pytest.warns(UserWarning, match=expected):
        message.to_bytes("float16")
    with pytest.warns(UserWarning, match=expected):
        message.save(tmp_path / "A.slot", "float16", min_samples=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message.to_bytes("float32")


@pytest.mark.parametrize("covariance_type", ["spherical", "lowrank"])
def test_float16_is_judged_by_one_variance_if_a_message_has_no_more(covariance_type):
    X = np.random.default_rng(0).normal([3000, 0, -3000], 1, size=(40, 3))
    classifier = FedPFTClassifier(covariance_type=covariance_type, n_loadings=1)
    message = classifier.client_update(X, np.tile([0, 1], 20), client="A")
    with pytest.warns(UserWarning, match="float16 rounds the mean of 2 features"):
        message.to_bytes("float16")


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_float32_keeps_any_scale(scale):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.tile([0, 1], 20)
    X[y == 1] += 1
    exact = FedCGSClassifier().fit(X, y).predict(X)
    message = FedCGSClassifier().client_update(X * scale, y)
    received = load_message(message.to_bytes("float32"))
    scaled = FedCGSClassifier().server_aggregate([received]).predict(X * scale)
    assert np.array_equal(scaled, exact)
