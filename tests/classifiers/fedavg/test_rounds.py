"""Rounds: what clients agree on, how losses go, and what it costs."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.base import clone

from skslot import FedAvgClassifier
from skslot.exchange import HeadWeights

# Most of these tests are about one client; the warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:No client_ids were passed")

N_CLASSES = 4


@pytest.mark.parametrize("averaging", ["uniform", "samples"])
@pytest.mark.parametrize("net", ["zero", "perceptron"], indirect=True)
def test_two_identical_clients_equal_one(net, averaging, blobs, same_weights):
    X, y = blobs()
    classifier = FedAvgClassifier(2, net=net, averaging=averaging, random_state=0)
    one = clone(classifier).fit(X, y)
    twice, both = np.vstack([X, X]), np.r_[y, y]
    two = classifier.fit(twice, both, client_ids=np.repeat([0, 1], len(y)))
    assert same_weights(one.net_, two.net_)
    assert one.history_ == two.history_


def test_a_second_round_starts_from_the_average_with_a_new_optimizer(rows):
    X, y, clients = rows
    params = {"standardize": False, "local_softmax": "all", "random_state": 5}
    first = FedAvgClassifier(1, **params).fit(X, y, client_ids=clients)
    second = FedAvgClassifier(2, **params).fit(X, y, client_ids=clients)
    heads = []
    for name in np.unique(clients):
        own = torch.as_tensor(X[clients == name].astype(np.float32))
        labels = torch.as_tensor(y[clients == name])
        head = torch.nn.Linear(X.shape[1], N_CLASSES)
        head.load_state_dict(first.net_.module_.state_dict())
        optimizer = torch.optim.SGD(
            head.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5
        )
        torch.manual_seed(6)
        for _ in range(10):
            for batch in torch.randperm(len(own)).split(64):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(
                    head(own[batch]), labels[batch]
                )
                loss.backward()
                optimizer.step()
        heads.append(head.weight.detach())
    expected = torch.stack(heads).mean(dim=0).numpy()
    assert np.allclose(second.model_.weights["weight"], expected, atol=1e-6)


# processes import what they are given, and cannot import classes of tests
@pytest.mark.slow
@pytest.mark.parametrize("net", ["zero", "linear"], indirect=True)
def test_processes_change_nothing(rows, net):
    X, y, clients = rows
    classifier = FedAvgClassifier(2, net=net, net__max_epochs=2, random_state=0)
    alone = clone(classifier).fit(X, y, client_ids=clients)
    together = classifier.set_params(n_jobs=2).fit(X, y, client_ids=clients)
    assert alone.model_ == together.model_
    assert alone.history_ == together.history_


def test_order_of_clients_rows_does_not_matter_beyond_their_own_order(rows):
    X, y, clients = rows
    order = np.argsort(clients, kind="stable")
    classifier = FedAvgClassifier(random_state=0)
    left = clone(classifier).fit(X, y, client_ids=clients)
    right = classifier.fit(X[order], y[order], client_ids=clients[order])
    assert left.model_ == right.model_


def test_averages_count_clients_or_rows(rows):
    X, y, clients = rows
    sites = [(X[clients == c], y[clients == c], c) for c in "ABC"]
    sites[0] = (X[:5], y[:5], "A")
    for averaging, shares in [
        ("uniform", np.ones(3)),
        ("samples", [len(site[1]) for site in sites]),
    ]:
        classifier = FedAvgClassifier(
            averaging=averaging, standardize=False, net__lr=1e-3
        )
        messages = [
            classifier.client_update(a, b, classes=range(4), client=c)
            for a, b, c in sites
        ]
        average = classifier.server_average(messages)
        for name in ("weight", "bias"):
            stack = [message.weights[name] for message in messages]
            expected = np.average(stack, axis=0, weights=shares)
            assert np.allclose(average.weights[name], expected, rtol=1e-6)
        assert average.n_samples == sum(len(site[1]) for site in sites)


def test_history_has_the_global_loss(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(5, averaging="samples", random_state=0)
    history = classifier.fit(X, y, client_ids=clients).history_
    assert [entry["round"] for entry in history] == [1, 2, 3, 4, 5]
    losses = [entry["global_loss"] for entry in history]
    assert math.isclose(losses[0], math.log(N_CLASSES), rel_tol=1e-6)
    assert losses == sorted(losses, reverse=True)
    before = clone(classifier).set_params(n_rounds=4).fit(X, y, client_ids=clients)
    scores = log_softmax(before.decision_function(X), axis=1)
    assert math.isclose(losses[4], -scores[np.arange(len(y)), y].mean(), rel_tol=1e-4)
    assert all(entry["local_loss"] < entry["global_loss"] for entry in history)


def test_without_standardization_there_is_no_scale(rows):
    X, y, clients = rows
    plain = FedAvgClassifier(standardize=False, net__lr=1e-3)
    assert plain.fit(X, y, client_ids=clients).scale_ is None


def test_progress(rows, capsys):
    X, y, clients = rows
    FedAvgClassifier(2, verbose=1).fit(X, y, client_ids=clients)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("[FedAvgClassifier] round 1/2: client 'A' done (1/3)")
    assert "loss 1.386 -> " in lines[0]
    FedAvgClassifier().fit(X, y, client_ids=clients)
    assert capsys.readouterr().out == ""


def head_of(client, counts, weight):
    weights, losses = {"weight": weight}, np.zeros(2)
    return HeadWeights(["a", "b"], counts, weights, losses, 1, 1, client)


def test_the_average_is_exact_whatever_the_precision_of_the_first_client():
    third = np.array([1 / 3, 2 / 3])
    narrow = third.astype(np.float16)
    messages = [
        head_of("A", np.array([1, 1], np.int32), narrow),
        head_of("B", np.array([1, 1], np.int32), third),
    ]
    expected = (narrow.astype(np.float64) + third) / 2
    average = FedAvgClassifier().server_average(messages)
    assert average.weights["weight"].dtype == np.float64
    assert np.array_equal(average.weights["weight"], expected)


@pytest.mark.parametrize(("n_rows", "dtype"), [(1000, "int32"), (2**31 - 1, "int64")])
def test_rows_of_many_clients_are_counted_without_overflow(n_rows, dtype):
    counts = np.array([n_rows, 1], dtype=np.int32)
    messages = [head_of(client, counts, np.ones(2)) for client in "AB"]
    average = FedAvgClassifier(averaging="samples").server_average(messages)
    assert average.counts.tolist() == [2 * n_rows, 2]
    assert average.counts.dtype == dtype
