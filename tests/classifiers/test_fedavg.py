"""Federated averaging: what one client gets, what many agree on, what travels."""

import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from skorch import NeuralNet, NeuralNetClassifier
from skorch.callbacks import EarlyStopping

from skslot import FedAvgClassifier, FederatedOTAligner
from skslot.classifiers import Communication, _torch_heads
from skslot.exchange import FeatureScale, FeatureSummary, HeadWeights
from skslot.exchange._wire import encode

# Most of these tests are about one client; the warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:fitted without client_ids")

N_CLASSES = 4
SOFTMAXES = ["balanced", "held", "all"]


def blobs(n_samples=160, n_features=6, seed=0, n_classes=N_CLASSES):
    rng = np.random.default_rng(seed)
    y = np.arange(n_samples) % n_classes
    centres = 3 * np.random.default_rng(99).normal(size=(n_classes, n_features))
    X = 5.0 + centres[y] + rng.normal(size=(n_samples, n_features))
    return X, y


@pytest.fixture
def rows():
    """Features, labels and clients; every client misses a class."""
    X, y = blobs()
    clients = np.array(["A", "B", "C"])[np.arange(len(y)) // 4 % 3]
    missed = {"A": 0, "B": 1, "C": 2}
    keep = np.array([missed[c] != label for c, label in zip(clients, y, strict=True)])
    return X[keep], y[keep], clients[keep]


@pytest.fixture
def torch_rng_is_left_alone():
    torch.manual_seed(123)
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


class Perceptron(torch.nn.Module):
    """A head with a hidden layer, dropout and batch normalisation."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(n_features, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(8, n_classes),
        )

    def forward(self, X):
        return self.layers(X)


class Probabilities(torch.nn.Module):
    """What skorch expects by default: probabilities for its NLLLoss."""

    def __init__(self, n_features=6, n_classes=N_CLASSES):
        super().__init__()
        self.linear = torch.nn.Linear(n_features, n_classes)

    def forward(self, X):
        return torch.softmax(self.linear(X), dim=-1)


def user_net(**params):
    defaults = {
        "module": Probabilities,
        "max_epochs": 3,
        "lr": 0.05,
        "batch_size": 16,
        "iterator_train__shuffle": True,
        "train_split": None,
        "verbose": 0,
    }
    return NeuralNetClassifier(**{**defaults, **params})


def weights_of(net):
    return {name: t.numpy() for name, t in net.module_.state_dict().items()}


def assert_same_weights(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert np.array_equal(left[name], right[name]), name


def by_hand(classifier, X, y, clients):
    """The steps that fit is made of, each message as bytes."""
    classes, names = np.unique(y), np.unique(clients)
    sites = {name: clients == name for name in names}
    scale, summaries, start, messages = None, [], None, []
    if classifier.standardize:
        for name, site in sites.items():
            summary = classifier.client_summary(X[site], name)
            sent = summary.to_bytes(classifier.wire_dtype)
            summaries.append(FeatureSummary.from_bytes(sent))
        scale = classifier.server_scale(summaries)
        scale = FeatureScale.from_bytes(scale.to_bytes(classifier.wire_dtype))
    for _ in range(classifier.n_rounds):
        latest = []
        for name, site in sites.items():
            message = classifier.client_update(
                X[site], y[site], classes, name, scale=scale, start=start
            )
            sent = message.to_bytes(classifier.wire_dtype)
            latest.append(HeadWeights.from_bytes(sent))
        start = classifier.server_average(latest)
        start = HeadWeights.from_bytes(start.to_bytes(classifier.wire_dtype))
        messages += latest
    return classifier.server_aggregate(messages, summaries)


# ------------------------------------------------------- one client, or the same twice


@pytest.mark.parametrize("local_softmax", SOFTMAXES)
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("head", [None, torch.nn.Linear, Perceptron])
def test_one_client_and_round_is_the_net_alone_bit_for_bit(
    head, standardize, local_softmax
):
    X, y = blobs()
    params = {"standardize": standardize, "local_softmax": local_softmax, "lr": 1e-3}
    classifier = FedAvgClassifier(head=head, random_state=7, **params).fit(X, y)
    net = classifier.local_net(X.shape[1], np.bincount(y))
    rows = classifier.scale_.apply(X) if standardize else X.astype(np.float32)
    torch.manual_seed(7)
    net.fit(rows, y)
    assert_same_weights(weights_of(classifier.net_), weights_of(net))


@pytest.mark.parametrize("params", [{}, {"train_split": None, "batch_size": 7}])
def test_one_client_and_round_is_the_users_net_alone_bit_for_bit(params):
    X, y = blobs()
    net = user_net(**params)
    classifier = FedAvgClassifier(head=net, standardize=False, random_state=3)
    classifier.fit(X, y)
    torch.manual_seed(3)
    alone = clone(net).fit(X.astype(np.float32), y)
    assert_same_weights(weights_of(classifier.net_), weights_of(alone))
    assert np.array_equal(classifier.predict(X), alone.predict(X.astype(np.float32)))
    expected = alone.predict_proba(X.astype(np.float32))
    assert np.allclose(classifier.predict_proba(X), expected, atol=1e-6)


@pytest.mark.parametrize("averaging", ["uniform", "samples"])
@pytest.mark.parametrize("head", [None, Perceptron])
def test_two_identical_clients_equal_one(head, averaging):
    X, y = blobs()
    classifier = FedAvgClassifier(2, head=head, averaging=averaging, random_state=0)
    one = clone(classifier).fit(X, y)
    twice, both = np.vstack([X, X]), np.r_[y, y]
    two = classifier.fit(twice, both, client_ids=np.repeat([0, 1], len(y)))
    assert_same_weights(weights_of(one.net_), weights_of(two.net_))
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


# --------------------------------------------------------- the same, however it is run


@pytest.mark.parametrize("wire_dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"n_rounds": 3, "averaging": "samples"},
        {"n_rounds": 2, "standardize": False, "local_softmax": "held", "lr": 1e-3},
        {"n_rounds": 2, "head": Perceptron},
    ],
    ids=["default", "rounds", "raw", "perceptron"],
)
def test_fit_equals_the_steps_called_by_hand(rows, params, wire_dtype):
    X, y, clients = rows
    classifier = FedAvgClassifier(wire_dtype=wire_dtype, random_state=0, **params)
    fitted = clone(classifier).fit(X, y, client_ids=clients)
    stepped = by_hand(classifier, X, y, clients)
    assert stepped.model_ == fitted.model_
    assert stepped.scale_ == fitted.scale_
    assert stepped.history_ == fitted.history_
    assert stepped.communication_ == fitted.communication_
    assert np.array_equal(stepped.classes_, fitted.classes_)
    assert np.array_equal(stepped.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("head", [None, torch.nn.Linear])  # importable by processes
def test_processes_change_nothing(rows, head):
    X, y, clients = rows
    classifier = FedAvgClassifier(2, head=head, max_epochs=2, random_state=0)
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


@pytest.mark.parametrize("random_state", [0, np.random.RandomState(1), None])
def test_random_state(rows, random_state):
    X, y, clients = rows
    classifier = FedAvgClassifier(
        head=torch.nn.Linear, max_epochs=1, random_state=random_state
    )
    first = clone(classifier).fit(X, y, client_ids=clients).model_
    again = clone(classifier).fit(X, y, client_ids=clients).model_
    # clone copies a RandomState, so that only None differs
    assert (first == again) == (random_state is not None)


@pytest.mark.usefixtures("torch_rng_is_left_alone")
@pytest.mark.parametrize("head", [None, Perceptron, user_net()])
def test_the_random_state_of_the_caller_is_left_alone(rows, head):
    X, y, clients = rows
    classifier = FedAvgClassifier(head=head, max_epochs=1, random_state=0)
    classifier.fit(X, y, client_ids=clients).predict(X)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


class NotesThreads(Probabilities):
    """Knows how many threads it was used with."""

    def forward(self, X):
        self.linear.weight.threads = torch.get_num_threads()
        return super().forward(X)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("head", "expected"), [(NotesThreads, 1), (user_net(module=NotesThreads), 2)]
)
def test_threads(head, expected):
    """One for the nets made here; a net of the user is used as it would be alone."""
    X, y = blobs(20)
    noted = []

    def train(net, *args):
        result = trained(net, *args)
        noted.append(net.module_.linear.weight.threads)
        return result

    trained = _torch_heads.train
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_torch_heads, "train", train)
        FedAvgClassifier(head=head, random_state=0).fit(X, y)
    assert noted == [expected]


@pytest.mark.usefixtures("two_threads")
def test_the_number_of_threads_changes_nothing():
    X, y = blobs(1500, n_features=300)
    classifier = FedAvgClassifier(max_epochs=2, random_state=0)
    several = clone(classifier).fit(X, y).model_
    torch.set_num_threads(1)
    one = classifier.fit(X, y).model_
    torch.set_num_threads(2)
    assert one == several


# ------------------------------------------------------------------------ label shift


@pytest.mark.parametrize("local_softmax", SOFTMAXES)
def test_a_class_that_clients_miss_survives(rows, local_softmax):
    X, y, clients = rows
    keep = (y != 3) | (clients == "C")  # one client only
    classifier = FedAvgClassifier(local_softmax=local_softmax, random_state=0)
    classifier.fit(X[keep], y[keep], client_ids=clients[keep])
    test_X, test_y = blobs(400, seed=1)
    predicted = classifier.predict(test_X)
    for label in range(N_CLASSES):
        assert np.mean(predicted[test_y == label] == label) > 0.8


@pytest.mark.parametrize("local_softmax", SOFTMAXES)
def test_clients_with_a_single_class_each(local_softmax):
    X, y = blobs()
    classifier = FedAvgClassifier(local_softmax=local_softmax, random_state=0)
    classifier.fit(X, y, client_ids=y)
    assert classifier.score(*blobs(400, seed=1)) > 0.9


@pytest.mark.parametrize("head", [None, torch.nn.Linear, user_net()])
def test_a_client_with_a_single_row(rows, head):
    X, y, clients = rows
    clients[-1] = "D"
    classifier = FedAvgClassifier(head=head, random_state=0)
    classifier.fit(X, y, client_ids=clients)
    assert set(classifier.communication_) == {"A", "B", "C", "D"}
    assert np.isfinite(classifier.decision_function(X)).all()


def test_one_row_in_all():
    classifier = FedAvgClassifier(random_state=0).fit([[1.0, 2.0]], ["a"])
    assert classifier.predict([[0.0, 0.0]]) == ["a"]
    assert np.array_equal(classifier.predict_proba([[0.0, 0.0]]), [[1.0]])


def test_a_class_that_nobody_holds_is_not_predicted(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(standardize=False, lr=1e-3, random_state=0)
    messages = [
        classifier.client_update(X[clients == c], y[clients == c], [9, *range(5)], c)
        for c in "ABC"
    ]
    classifier.server_aggregate(messages)
    assert classifier.model_.classes == [0, 1, 2, 3, 4, 9]
    assert classifier.classes_.tolist() == [0, 1, 2, 3]
    assert classifier.predict_proba(X).shape == (len(X), 4)
    assert classifier.coef_.shape == (4, X.shape[1])


@pytest.mark.parametrize("head", [None, Perceptron])
def test_labels_and_clients_may_be_text(rows, head):
    X, y, clients = rows
    names = np.array(["dog", "cat", "ape", "bee"])[y]
    classifier = FedAvgClassifier(head=head, max_epochs=30, random_state=0)
    classifier.fit(X, names, client_ids=clients)
    assert classifier.classes_.tolist() == ["ape", "bee", "cat", "dog"]
    assert classifier.score(X, names) > 0.9
    assert np.allclose(classifier.predict_proba(X).sum(axis=1), 1)


def test_held_leaves_the_rows_of_absent_classes_as_they_were():
    X, y = blobs()
    head = torch.nn.Linear(X.shape[1], N_CLASSES)
    present = y < 2
    message = FedAvgClassifier(
        head=head, local_softmax="held", standardize=False, weight_decay=0, lr=1e-3
    ).client_update(X[present], y[present], range(N_CLASSES))
    start, end = head.weight.detach().numpy(), message.weights["weight"]
    assert np.array_equal(start[2:], end[2:])
    assert not np.array_equal(start[:2], end[:2])


@pytest.mark.parametrize(
    ("local_softmax", "counts", "expected"),
    [
        ("all", [3, 0, 1], [0, 0, 0]),
        ("held", [3, 0, 1], [0, -np.inf, 0]),
        ("held", [3, 0, 0], [0, 0, 0]),
        ("balanced", [3, 0, 1], np.log([8, 5, 6])),
    ],
)
def test_what_is_added_to_logits(local_softmax, counts, expected):
    offsets = _torch_heads.logit_offsets(counts, local_softmax)
    assert np.array_equal(offsets, expected)


def test_the_default_repairs_what_the_paper_setting_does_not():
    X, y = blobs(2000, n_features=20)
    X += 20.0
    rng = np.random.default_rng(0)
    site = rng.integers(4, size=len(y))
    X += 2.0 * rng.normal(size=(4, 20))[site]
    keep = (site == y) | (site == (y + 1) % 4) & (rng.random(len(y)) < 0.1)
    scores = [
        classifier.fit(X[keep], y[keep], client_ids=site[keep]).score(X, y)
        for classifier in (
            FedAvgClassifier.as_in_paper(random_state=0),
            FedAvgClassifier(local_softmax="all", random_state=0),
            FedAvgClassifier(random_state=0),
        )
    ]
    assert scores[0] < 0.5 < scores[1] < scores[2]


# -------------------------------------------------------------------- standardization


def test_scale_is_that_of_the_pooled_rows(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(wire_dtype="float64", max_epochs=1)
    scale = classifier.fit(X, y, client_ids=clients).scale_
    assert np.allclose(scale.mean, X.mean(axis=0), rtol=1e-12)
    assert math.isclose(scale.scale, np.sqrt(X.var(axis=0).mean()), rel_tol=1e-12)
    scaled = scale.apply(X)
    assert scaled.dtype == np.float32
    assert np.allclose(scaled.mean(axis=0), 0, atol=1e-6)


def test_shift_and_scale_of_features_do_not_matter(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(wire_dtype="float64", random_state=0)
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


# -------------------------------------------------------------------- what is exchanged


@pytest.mark.parametrize("wire_dtype", ["float64", "float32", "float16"])
def test_communication_counts_every_message(rows, wire_dtype):
    X, y, clients = rows
    classifier = FedAvgClassifier(3, wire_dtype=wire_dtype, random_state=0)
    classifier.fit(X, y, client_ids=clients)
    size = np.dtype(wire_dtype).itemsize
    n_weights = (X.shape[1] + 1) * N_CLASSES
    for bytes_ in classifier.communication_.values():
        least = size * (X.shape[1] + 3 * n_weights)
        assert least < bytes_.up < least + 4 * 800
        assert least < bytes_.down < least + 4 * 800
    summary = classifier.client_summary(X[clients == "A"], "A")
    up = len(summary.to_bytes(wire_dtype))
    down = len(classifier.scale_.to_bytes(wire_dtype))
    one = FedAvgClassifier(wire_dtype=wire_dtype, random_state=0)
    one.fit(X, y, client_ids=clients)
    first = one.client_update(
        X[clients == "A"], y[clients == "A"], range(N_CLASSES), "A", scale=one.scale_
    )
    assert one.communication_["A"] == Communication(
        up + len(first.to_bytes(wire_dtype)),
        down + len(one.model_.to_bytes(wire_dtype)),
    )


def test_without_standardization_there_is_one_message_less(rows):
    X, y, clients = rows
    plain = FedAvgClassifier(standardize=False, lr=1e-3)
    plain.fit(X, y, client_ids=clients)
    more = FedAvgClassifier().fit(X, y, client_ids=clients)
    assert plain.scale_ is None
    assert plain.communication_["A"].up < more.communication_["A"].up


def test_averages_count_clients_or_rows(rows):
    X, y, clients = rows
    sites = [(X[clients == c], y[clients == c], c) for c in "ABC"]
    sites[0] = (X[:5], y[:5], "A")
    for averaging, shares in [
        ("uniform", np.ones(3)),
        ("samples", [len(site[1]) for site in sites]),
    ]:
        classifier = FedAvgClassifier(averaging=averaging, standardize=False, lr=1e-3)
        messages = [classifier.client_update(a, b, range(4), c) for a, b, c in sites]
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


def test_messages_survive_their_bytes(rows):
    X, y, _ = rows
    classifier = FedAvgClassifier(head=Perceptron, standardize=False, random_state=0)
    message = classifier.client_update(X, y, client="A")
    assert HeadWeights.from_bytes(message.to_bytes()) == message
    assert message.weights["layers.1.num_batches_tracked"].dtype.kind == "i"
    other = classifier.client_update(X[1:], y[1:], client="A")
    assert message != other
    assert message != "A"
    with pytest.raises(ValueError, match="kind 'head weights', got 'feature summary'"):
        HeadWeights.from_bytes(classifier.client_summary(X).to_bytes())
    with pytest.raises(ValueError, match=r"lacks \['classes', .*'n_rounds'"):
        HeadWeights.from_bytes(encode(HeadWeights.kind, {}, {}, "float32"))


# ------------------------------------------------------------------------------- heads


def test_a_module_starts_with_the_weights_it_has_and_keeps_them(rows):
    X, y, clients = rows
    head = torch.nn.Linear(X.shape[1], N_CLASSES)
    start = head.weight.detach().clone()
    classifier = FedAvgClassifier(head=head, max_epochs=1, lr=1e-12, weight_decay=0)
    classifier.fit(X, y, client_ids=clients)
    assert np.allclose(classifier.model_.weights["weight"], start, atol=1e-6)
    classifier.set_params(lr=0.01).fit(X, y, client_ids=clients)
    assert torch.equal(head.weight, start)


def test_a_perceptron_learns_what_no_linear_head_can():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    clients = np.arange(600) % 3

    def head(n_features, n_classes):
        return torch.nn.Sequential(
            torch.nn.Linear(n_features, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, n_classes),
        )

    params = {"lr": 0.1, "max_epochs": 20, "random_state": 0}
    classifier = FedAvgClassifier(3, head=head, **params).fit(X, y, client_ids=clients)
    assert classifier.score(X, y) > 0.9
    assert not hasattr(classifier, "coef_")
    linear = classifier.set_params(head=None).fit(X, y, client_ids=clients)
    assert linear.score(X, y) < 0.7
    assert linear.coef_.shape == (2, 2)
    assert not hasattr(linear.set_params(head=head).fit(X, y), "coef_")


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_module_gives_coefficients(rows, bias):
    X, y, _ = rows
    head = torch.nn.Linear(X.shape[1], N_CLASSES, bias=bias)
    classifier = FedAvgClassifier(head=head, standardize=False, lr=1e-3).fit(X, y)
    assert classifier.intercept_.any() == bias


def test_a_skorch_net_is_not_changed_and_its_parameters_are_reachable(rows):
    X, y, clients = rows
    net = user_net()
    classifier = FedAvgClassifier(head=net, random_state=0)
    classifier.set_params(head__lr=0.5).fit(X, y, client_ids=clients)
    assert not net.initialized_
    assert classifier.net_.lr == 0.5
    assert classifier.score(X, y) > 0.9


def test_a_skorch_net_may_stop_early(rows):
    X, y, clients = rows
    epochs = []
    stop = EarlyStopping("train_loss", patience=1, threshold=1e9, sink=epochs.append)
    quiet = {"callbacks__print_log": None, "verbose": 1}
    net = user_net(max_epochs=50, callbacks=[stop], **quiet)
    FedAvgClassifier(head=net, random_state=0).fit(X, y, client_ids=clients)
    assert len(epochs) == 3


def test_other_skorch_nets_are_refused():
    head = NeuralNet(Probabilities, criterion=torch.nn.NLLLoss)
    with pytest.raises(TypeError, match="NeuralNetClassifier or a torch module"):
        FedAvgClassifier(head=head).fit(*blobs())


def test_an_interrupt_stops_the_fit(monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(NeuralNetClassifier, "train_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        FedAvgClassifier().fit(*blobs())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", torch.optim.RMSprop])
def test_optimizers(optimizer):
    X, y = blobs()
    classifier = FedAvgClassifier(optimizer=optimizer, max_epochs=20, random_state=0)
    assert classifier.fit(X, y).score(X, y) > 0.9
    net = classifier.local_net(2, [1, 1])
    assert hasattr(net, "optimizer__momentum") == (
        optimizer in ("sgd", torch.optim.RMSprop)
    )


def test_batches_are_those_of_a_shuffling_data_loader_in_content():
    dataset = torch.utils.data.TensorDataset(torch.arange(10.0), torch.arange(10))
    dataset.X, dataset.y = dataset.tensors
    batches = _torch_heads.BatchIterator(dataset, 4, shuffle=True)
    assert len(batches) == 3
    for _ in range(2):
        drawn = list(batches)
        assert [len(X) for X, _ in drawn] == [4, 4, 2]
        values = torch.cat([X for X, _ in drawn])
        assert sorted(values.tolist()) == list(range(10))
        assert torch.equal(values, torch.cat([y for _, y in drawn]).float())


# ------------------------------------------------------------------------- the preset


def test_preset_of_the_paper():
    classifier = FedAvgClassifier.as_in_paper(random_state=0)
    assert classifier.head is torch.nn.Linear
    assert (classifier.lr, classifier.momentum, classifier.weight_decay) == (
        1e-3,
        0.9,
        1e-5,
    )
    assert (classifier.max_epochs, classifier.batch_size) == (10, 64)
    assert not classifier.standardize
    assert classifier.local_softmax == "all"
    assert classifier.averaging == "uniform"
    assert FedAvgClassifier.as_in_paper(lr=0.01, local_softmax="held").lr == 0.01


# ------------------------------------------------------------------------------ misuse


def test_without_torch_the_install_line_is_named(monkeypatch):
    for package in ("torch", "skorch"):
        with monkeypatch.context() as context:
            context.setitem(sys.modules, package, None)
            for use in (
                lambda: FedAvgClassifier().fit(*blobs()),
                lambda: FedAvgClassifier().client_update(*blobs()),
                FedAvgClassifier.as_in_paper,
            ):
                with pytest.raises(ImportError, match=r'pip install "skslot\[torch\]"'):
                    use()


def test_import_and_construction_need_no_torch():
    code = """
import sys
class NotInstalled:
    def find_spec(name, path=None, target=None):
        if name in ("torch", "skorch"):
            raise ImportError(name)
sys.meta_path.insert(0, NotInstalled)
from skslot import FedAvgClassifier
from sklearn.base import clone
clone(FedAvgClassifier(lr=0.1)).client_summary([[1.0], [2.0]])
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_training_that_diverges_is_refused():
    X, y = blobs()
    classifier = FedAvgClassifier(standardize=False, lr=10.0)
    with pytest.raises(ValueError, match=r"diverged at client 'A'.*standardize=True"):
        classifier.fit(1e30 * X, y, client_ids=["A"] * len(y))


def test_steps_with_random_weights_need_a_seed(rows):
    X, y, _ = rows
    classifier = FedAvgClassifier(head=Perceptron, standardize=False, max_epochs=1)
    with pytest.raises(ValueError, match="random_state to the same integer"):
        classifier.client_update(X, y)
    start = classifier.set_params(random_state=0).client_update(X, y)
    classifier.set_params(random_state=None).client_update(X, y, start=start)


def test_steps_say_what_is_missing(rows):
    X, y, _ = rows
    classifier = FedAvgClassifier(max_epochs=1)
    scale = classifier.server_scale([classifier.client_summary(X)])
    with pytest.raises(ValueError, match="scale was not passed.*server_scale"):
        classifier.client_update(X, y)
    message = classifier.client_update(X, y, scale=scale)
    with pytest.raises(ValueError, match="summaries was not passed"):
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
    classifier = FedAvgClassifier(standardize=False, max_epochs=1, lr=1e-3)
    messages = [classifier.client_update(X, y, client=client) for client in "AB"]
    with pytest.raises(error, match=match):
        classifier.server_aggregate(change(*messages))


def test_heads_that_cannot_be_averaged(rows):
    X, y, _ = rows
    classifier = FedAvgClassifier(standardize=False, max_epochs=1, lr=1e-3)
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
    with pytest.raises(ValueError, match="different rounds"):
        classifier.server_average([message, later])
    other = FedAvgClassifier(
        head=Perceptron, standardize=False, max_epochs=1, random_state=0
    ).client_update(X, y, client="B")
    with pytest.raises(ValueError, match="same architecture"):
        classifier.server_average([message, other])
    with pytest.raises(ValueError, match="do not fit the head"):
        classifier.client_update(X, y, start=other)


def test_unnamed_clients_are_numbered(rows):
    X, y, clients = rows
    classifier = FedAvgClassifier(standardize=False, max_epochs=1, lr=1e-3)
    messages = [
        classifier.client_update(X[clients == c], y[clients == c], range(4))
        for c in "ABC"
    ]
    assert set(classifier.server_aggregate(messages).communication_) == {0, 1, 2}


# ------------------------------------------------------------------- scikit-learn's way


def test_progress(rows, capsys):
    X, y, clients = rows
    FedAvgClassifier(2, verbose=1).fit(X, y, client_ids=clients)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("[FedAvgClassifier] round 1/2: client 'A' done (1/3)")
    assert "loss 1.386 -> " in lines[0]
    FedAvgClassifier().fit(X, y, client_ids=clients)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("head", [None, Perceptron, user_net()])
def test_pickle_and_clone(rows, head):
    X, y, clients = rows
    classifier = FedAvgClassifier(head=head, max_epochs=1, random_state=0)
    classifier.fit(X, y, client_ids=clients)
    copy = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(copy.predict_proba(X), classifier.predict_proba(X))
    again = clone(classifier).fit(X, y, client_ids=clients)
    assert again.model_ == classifier.model_


GRID = {"classifier__lr": [1e-3, 1e-2], "classifier__standardize": [True, False]}


def test_grid_search_behind_the_aligner_with_routed_ids(rows):
    X, y, clients = rows
    steps = [
        ("aligner", FederatedOTAligner()),
        ("classifier", FedAvgClassifier(max_epochs=3, random_state=0)),
    ]
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(Pipeline(steps), GRID, cv=2, error_score="raise")
        search.fit(X, y, client_ids=clients)
        assert search.score(X, y, client_ids=clients) > 0.9
        best = search.best_estimator_
        probabilities = best.predict_proba(X, client_ids=clients)
    assert probabilities.shape == (len(X), N_CLASSES)
    assert set(best[-1].communication_) == {"A", "B", "C"}


def test_grid_search_behind_the_aligner_with_a_client_column(rows):
    pd = pytest.importorskip("pandas")
    X, y, clients = rows
    frame = pd.DataFrame(X, columns=list("uvwxyz")).assign(site=clients)
    aligner = FederatedOTAligner(client_column="site", keep_client_column=True)
    classifier = FedAvgClassifier(max_epochs=3, client_column="site", random_state=0)
    aligner.set_output(transform="pandas")
    pipeline = Pipeline([("aligner", aligner), ("classifier", classifier)])
    search = GridSearchCV(pipeline, GRID, cv=2, scoring="accuracy", error_score="raise")
    search.fit(frame, y)
    assert search.score(frame, y) > 0.9
    fitted = search.best_estimator_[-1]
    assert set(fitted.communication_) == {"A", "B", "C"}
    assert fitted.n_features_in_ == 7


CHECKED = [
    FedAvgClassifier(),
    FedAvgClassifier(2, max_epochs=5, averaging="samples", local_softmax="held"),
]


@parametrize_with_checks(CHECKED)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
