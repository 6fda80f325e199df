"""The steps that a fit is made of, and the messages between them."""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skslot import FedAvgClassifier
from skslot.exchange import FeatureScale, FeatureSummary, HeadWeights
from skslot.exchange._wire import encode

# Most of these tests are about one client; the warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:No client_ids were passed")

RAW = {"standardize": False, "net__lr": 1e-3}


def by_hand(classifier, X, y, clients):
    """The steps that fit is made of, each message as bytes."""
    classes, names = np.unique(y), np.unique(clients)
    sites = {name: clients == name for name in names}
    scale, summaries, start, messages = None, [], None, []
    if classifier.standardize:
        for name, site in sites.items():
            summary = classifier.client_summary(X[site], client=name)
            sent = summary.to_bytes("float64")
            summaries.append(FeatureSummary.from_bytes(sent))
        scale = classifier.server_scale(summaries)
        scale = FeatureScale.from_bytes(scale.to_bytes("float64"))
    for _ in range(classifier.n_rounds):
        latest = []
        for name, site in sites.items():
            message = classifier.client_update(
                X[site],
                y[site],
                classes=classes,
                client=name,
                scale=scale,
                start=start,
            )
            sent = message.to_bytes("float64")
            latest.append(HeadWeights.from_bytes(sent))
        start = classifier.server_average(latest)
        start = HeadWeights.from_bytes(start.to_bytes("float64"))
        messages += latest
    return classifier.server_aggregate([*summaries, *messages])


@pytest.mark.parametrize(
    ("net", "params"),
    [
        ("zero", {}),
        ("zero", {"n_rounds": 3, "averaging": "samples"}),
        ("zero", {"n_rounds": 2, "local_softmax": "held", **RAW}),
        ("perceptron", {"n_rounds": 2}),
    ],
    indirect=["net"],
    ids=["default", "rounds", "raw", "perceptron"],
)
def test_fit_equals_the_steps_called_by_hand(rows, net, params):
    X, y, clients = rows
    classifier = FedAvgClassifier(net=net, random_state=0, **params)
    fitted = clone(classifier).fit(X, y, client_ids=clients)
    stepped = by_hand(classifier, X, y, clients)
    assert stepped.model_ == fitted.model_
    assert stepped.scale_ == fitted.scale_
    assert stepped.history_ == fitted.history_
    assert np.array_equal(stepped.classes_, fitted.classes_)
    assert np.array_equal(stepped.predict_proba(X), fitted.predict_proba(X))


def test_a_class_that_nobody_holds_is_not_predicted(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(standardize=False, net__lr=1e-3, random_state=0)
    messages = [
        classifier.client_update(
            X[clients == c], y[clients == c], classes=[9, *range(5)], client=c
        )
        for c in "ABC"
    ]
    classifier.server_aggregate(messages)
    assert classifier.model_.classes == [0, 1, 2, 3, 4, 9]
    assert classifier.classes_.tolist() == [0, 1, 2, 3]
    assert classifier.predict_proba(X).shape == (len(X), 4)
    assert classifier.coef_.shape == (4, X.shape[1])


def test_unnamed_clients_are_numbered(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(standardize=False, net__max_epochs=1, net__lr=1e-3)
    messages = [
        classifier.client_update(X[clients == c], y[clients == c], classes=range(4))
        for c in "ABC"
    ]
    assert set(classifier.server_aggregate(messages).clients_report_.clients) == {
        0,
        1,
        2,
    }


# ---------------------------------------------------------------------- standardization


def test_scale_is_that_of_the_pooled_rows(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(net__max_epochs=1)
    scale = classifier.fit(X, y, client_ids=clients).scale_
    assert np.allclose(scale.mean, X.mean(axis=0), rtol=1e-12)
    assert math.isclose(scale.scale, np.sqrt(X.var(axis=0).mean()), rel_tol=1e-12)
    scaled = scale.apply(X)
    assert scaled.dtype == np.float32
    assert np.allclose(scaled.mean(axis=0), 0, atol=1e-6)


def test_shift_and_scale_of_features_do_not_matter(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(random_state=0)
    plain = clone(classifier).fit(X, y, client_ids=clients)
    moved = classifier.fit(1e4 + 100 * X, y, client_ids=clients)
    for name, array in plain.model_.weights.items():
        assert np.allclose(array, moved.model_.weights[name], atol=1e-5)
    assert np.allclose(plain.predict_proba(X), moved.predict_proba(1e4 + 100 * X))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_features_that_do_not_vary(value):
    X, y = np.full((10, 3), value), np.arange(10) % 2
    classifier = FedAvgClassifier().fit(X, y, client_ids=np.arange(10) // 7)
    assert classifier.scale_.scale == 1.0
    assert np.isfinite(classifier.predict_proba(X)).all()


def test_coefficients_are_for_features_as_they_are(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(random_state=0).fit(X, y, client_ids=clients)
    with torch.no_grad():
        scaled = torch.as_tensor(classifier.scale_.apply(X))
        expected = classifier.net_.module_(scaled).numpy()
    scores = classifier.decision_function(X)
    assert scores.dtype == np.float64
    assert np.allclose(scores, expected, atol=1e-5)
    assert np.array_equal(scores, X @ classifier.coef_.T + classifier.intercept_)


# ----------------------------------------------------------------------------- messages


def test_messages_survive_their_bytes(rows, perceptron):
    X, y, _ = rows
    classifier = FedAvgClassifier(net=perceptron, standardize=False, random_state=0)
    message = classifier.client_update(X, y, client="A")
    assert HeadWeights.from_bytes(message.to_bytes("float64")) == message
    assert message.weights["layers.1.num_batches_tracked"].dtype.kind == "i"
    other = classifier.client_update(X[1:], y[1:], client="A")
    assert message != other
    assert message != "A"
    with pytest.raises(ValueError, match="kind 'head weights', got 'feature summary'"):
        HeadWeights.from_bytes(classifier.client_summary(X).to_bytes())
    with pytest.raises(ValueError, match=r"lacks \['classes', .*'n_rounds'"):
        HeadWeights.from_bytes(encode(HeadWeights.kind, {}, {}, "float32"))


def test_steps_with_random_weights_need_a_seed(rows, perceptron):
    X, y, _ = rows
    classifier = FedAvgClassifier(net=perceptron, standardize=False, net__max_epochs=1)
    with pytest.raises(ValueError, match="random_state to the same integer"):
        classifier.client_update(X, y)
    start = classifier.set_params(random_state=0).client_update(X, y)
    classifier.set_params(random_state=None).client_update(X, y, start=start)


def test_steps_say_what_is_missing(rows):
    X, y, _ = rows
    classifier = FedAvgClassifier(net__max_epochs=1)
    scale = classifier.server_scale([classifier.client_summary(X)])
    with pytest.raises(ValueError, match="scale was not passed.*server_scale"):
        classifier.client_update(X, y)
    message = classifier.client_update(X, y, scale=scale)
    with pytest.raises(ValueError, match="a FeatureSummary among the messages was not"):
        classifier.server_aggregate([message])
    classifier.set_params(standardize=False)
    with pytest.raises(ValueError, match="scale was passed"):
        classifier.client_update(X, y, scale=scale)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda m, n: [], ValueError, "empty"),
        (lambda m, n: [m, n, n], ValueError, "'B'.*a name of its own"),
        (
            lambda m, n: [m, n.to_bytes()],
            TypeError,
            "HeadWeights.*load_message",
        ),
    ],
)
def test_messages_that_cannot_be_averaged(rows, change, error, match):
    X, y, _ = rows
    classifier = FedAvgClassifier(standardize=False, net__max_epochs=1, net__lr=1e-3)
    messages = [classifier.client_update(X, y, client=client) for client in "AB"]
    with pytest.raises(error, match=match):
        classifier.server_aggregate(change(*messages))


def test_heads_that_cannot_be_averaged(rows, perceptron):
    X, y, _ = rows
    classifier = FedAvgClassifier(standardize=False, net__max_epochs=1, net__lr=1e-3)
    message = classifier.client_update(X, y, client="A")
    some = classifier.client_update(X[y < 2], y[y < 2], client="B")
    with pytest.raises(ValueError, match=r"same classes to every client_update"):
        classifier.server_average([message, some])
    with pytest.raises(ValueError, match=r"Pass the same classes in every round"):
        classifier.client_update(X[y < 2], y[y < 2], start=message)
    narrow = classifier.client_update(X[:, 1:], y, client="B")
    with pytest.raises(ValueError, match="same encoder"):
        classifier.server_average([message, narrow])
    later = classifier.client_update(X, y, client="B", start=message)
    with pytest.raises(ValueError, match="after 2 rounds of training"):
        classifier.server_average([message, later])
    other = FedAvgClassifier(
        net=perceptron, standardize=False, net__max_epochs=1, random_state=0
    ).client_update(X, y, client="B")
    with pytest.raises(ValueError, match="sent another head than"):
        classifier.server_average([message, other])
    with pytest.raises(ValueError, match="do not fit the head"):
        classifier.client_update(X, y, start=other)
