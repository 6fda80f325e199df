"""Local training: what one client gets, label shift, and what may be trained."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from skorch import NeuralNet, NeuralNetClassifier
from skorch.callbacks import EarlyStopping

from skslot import FedAvgClassifier
from skslot.classifiers import _torch_heads

# Most of these tests are about one client; the warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:No client_ids were passed")

N_CLASSES = 4
SOFTMAXES = ["balanced", "held", "all"]

# ------------------------------------------------------------------ one client alone


@pytest.mark.parametrize("local_softmax", SOFTMAXES)
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("net", ["zero", "linear", "perceptron"], indirect=True)
def test_one_client_and_round_is_the_net_alone_bit_for_bit(
    net, standardize, local_softmax, blobs, same_weights
):
    X, y = blobs()
    params = {"standardize": standardize, "local_softmax": local_softmax}
    classifier = FedAvgClassifier(net=net, net__lr=1e-3, random_state=7, **params)
    classifier.fit(X, y)
    alone = classifier.local_net(X.shape[1], np.bincount(y))
    rows = classifier.scale_.apply(X) if standardize else X.astype(np.float32)
    torch.manual_seed(7)
    alone.fit(rows, y)
    assert same_weights(classifier.net_, alone)


@pytest.mark.parametrize("params", [{}, {"train_split": None, "batch_size": 7}])
def test_one_client_and_round_is_the_users_net_alone_bit_for_bit(
    params, blobs, skorch_net, same_weights
):
    X, y = blobs()
    net = skorch_net(**params)
    classifier = FedAvgClassifier(net=net, standardize=False, random_state=3)
    classifier.fit(X, y)
    torch.manual_seed(3)
    alone = clone(net).fit(X.astype(np.float32), y)
    assert same_weights(classifier.net_, alone)
    assert np.array_equal(classifier.predict(X), alone.predict(X.astype(np.float32)))
    expected = alone.predict_proba(X.astype(np.float32))
    assert np.allclose(classifier.predict_proba(X), expected, atol=1e-6)


@pytest.mark.parametrize("random_state", [0, np.random.RandomState(1), None])
def test_random_state(rows, random_state):
    X, y, clients = rows
    classifier = FedAvgClassifier(
        net=torch.nn.Linear, net__max_epochs=1, random_state=random_state
    )
    first = clone(classifier).fit(X, y, client_ids=clients).model_
    again = clone(classifier).fit(X, y, client_ids=clients).model_
    # clone copies a RandomState, so that only None differs
    assert (first == again) == (random_state is not None)


@pytest.fixture
def torch_rng_is_left_alone():
    torch.manual_seed(123)
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("torch_rng_is_left_alone")
@pytest.mark.parametrize("net", ["zero", "perceptron", "skorch"], indirect=True)
def test_the_random_state_of_the_caller_is_left_alone(rows, net):
    X, y, clients = rows
    classifier = FedAvgClassifier(net=net, net__max_epochs=1, random_state=0)
    classifier.fit(X, y, client_ids=clients).predict(X)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("expected", [1, 2])
def test_threads(expected, blobs, skorch_net, probabilities):
    """One for the nets made here; a net of the user is used as it would be alone."""
    noted = set()

    class NotesThreads(probabilities):
        def forward(self, X):
            noted.add(torch.get_num_threads())
            return super().forward(X)

    net = NotesThreads if expected == 1 else skorch_net(module=NotesThreads)
    FedAvgClassifier(net=net, random_state=0).fit(*blobs(20))
    assert noted == {expected}


@pytest.mark.usefixtures("two_threads")
def test_the_number_of_threads_changes_nothing(blobs):
    X, y = blobs(1500, n_features=300)
    classifier = FedAvgClassifier(net__max_epochs=2, random_state=0)
    several = clone(classifier).fit(X, y).model_
    torch.set_num_threads(1)
    one = classifier.fit(X, y).model_
    torch.set_num_threads(2)
    assert one == several


# -------------------------------------------------------------------------- label shift


@pytest.mark.parametrize("local_softmax", SOFTMAXES)
def test_a_class_that_clients_miss_survives(rows, local_softmax, blobs):
    X, y, clients = rows
    keep = (y != 3) | (clients == "C")  # one client only
    classifier = FedAvgClassifier(local_softmax=local_softmax, random_state=0)
    classifier.fit(X[keep], y[keep], client_ids=clients[keep])
    test_X, test_y = blobs(400, seed=1)
    predicted = classifier.predict(test_X)
    for label in range(N_CLASSES):
        assert np.mean(predicted[test_y == label] == label) > 0.8


@pytest.mark.parametrize("local_softmax", SOFTMAXES)
def test_clients_with_a_single_class_each(local_softmax, blobs):
    X, y = blobs()
    classifier = FedAvgClassifier(local_softmax=local_softmax, random_state=0)
    classifier.fit(X, y, client_ids=y)
    assert classifier.score(*blobs(400, seed=1)) > 0.9


@pytest.mark.parametrize("net", ["zero", "linear", "skorch"], indirect=True)
def test_a_client_with_a_single_row(rows, net):
    X, y, clients = rows
    clients[-1] = "D"
    classifier = FedAvgClassifier(net=net, random_state=0)
    classifier.fit(X, y, client_ids=clients)
    assert set(classifier.clients_report_.clients) == {"A", "B", "C", "D"}
    assert np.isfinite(classifier.decision_function(X)).all()


def test_one_row_in_all():
    classifier = FedAvgClassifier(random_state=0).fit([[1.0, 2.0]], ["a"])
    assert classifier.predict([[0.0, 0.0]]) == ["a"]
    assert np.array_equal(classifier.predict_proba([[0.0, 0.0]]), [[1.0]])


@pytest.mark.parametrize("net", ["zero", "perceptron"], indirect=True)
def test_labels_and_clients_may_be_text(rows, net):
    X, y, clients = rows
    names = np.array(["dog", "cat", "ape", "bee"])[y]
    classifier = FedAvgClassifier(net=net, net__max_epochs=30, random_state=0)
    classifier.fit(X, names, client_ids=clients)
    assert classifier.classes_.tolist() == ["ape", "bee", "cat", "dog"]
    assert classifier.score(X, names) > 0.9
    assert np.allclose(classifier.predict_proba(X).sum(axis=1), 1)


def test_held_leaves_the_rows_of_absent_classes_as_they_were(blobs):
    X, y = blobs()
    net = torch.nn.Linear(X.shape[1], N_CLASSES)
    present = y < 2
    message = FedAvgClassifier(
        net=net,
        net__lr=1e-3,
        net__optimizer__weight_decay=0,
        local_softmax="held",
        standardize=False,
    ).client_update(X[present], y[present], classes=range(N_CLASSES))
    start, end = net.weight.detach().numpy(), message.weights["weight"]
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


def test_the_default_repairs_what_the_paper_setting_does_not(blobs):
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


# --------------------------------------------------------------------------------- nets


def test_a_module_starts_with_the_weights_it_has_and_keeps_them(rows):
    X, y, clients = rows
    net = torch.nn.Linear(X.shape[1], N_CLASSES)
    start = net.weight.detach().clone()
    classifier = FedAvgClassifier(
        net=net, net__max_epochs=1, net__lr=1e-12, net__optimizer__weight_decay=0
    )
    classifier.fit(X, y, client_ids=clients)
    assert np.allclose(classifier.model_.weights["weight"], start, atol=1e-6)
    classifier.set_params(net__lr=0.01).fit(X, y, client_ids=clients)
    assert torch.equal(net.weight, start)


def test_a_perceptron_learns_what_no_linear_head_can():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    clients = np.arange(600) % 3

    def net(n_features, n_classes):
        return torch.nn.Sequential(
            torch.nn.Linear(n_features, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, n_classes),
        )

    params = {"net__lr": 0.1, "net__max_epochs": 20, "random_state": 0}
    classifier = FedAvgClassifier(3, net=net, **params).fit(X, y, client_ids=clients)
    assert classifier.score(X, y) > 0.9
    assert not hasattr(classifier, "coef_")
    linear = classifier.set_params(net=None).fit(X, y, client_ids=clients)
    assert linear.score(X, y) < 0.7
    assert linear.coef_.shape == (2, 2)
    assert not hasattr(linear.set_params(net=net).fit(X, y), "coef_")


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_module_gives_coefficients(rows, bias):
    X, y, _ = rows
    net = torch.nn.Linear(X.shape[1], N_CLASSES, bias=bias)
    classifier = FedAvgClassifier(net=net, standardize=False, net__lr=1e-3).fit(X, y)
    assert classifier.intercept_.any() == bias


def test_a_skorch_net_is_not_changed_and_its_parameters_are_reachable(rows, skorch_net):
    X, y, clients = rows
    net = skorch_net()
    classifier = FedAvgClassifier(net=net, random_state=0)
    classifier.set_params(net__lr=0.5).fit(X, y, client_ids=clients)
    assert not net.initialized_
    assert classifier.net_.lr == 0.5
    assert classifier.score(X, y) > 0.9


def test_a_skorch_net_may_stop_early(rows, skorch_net):
    X, y, clients = rows
    epochs = []
    stop = EarlyStopping("train_loss", patience=1, threshold=1e9, sink=epochs.append)
    quiet = {"callbacks__print_log": None, "verbose": 1}
    net = skorch_net(max_epochs=50, callbacks=[stop], **quiet)
    FedAvgClassifier(net=net, random_state=0).fit(X, y, client_ids=clients)
    assert len(epochs) == 3


def test_other_skorch_nets_are_refused(blobs, probabilities):
    net = NeuralNet(probabilities, criterion=torch.nn.NLLLoss)
    with pytest.raises(TypeError, match="NeuralNetClassifier or a torch module"):
        FedAvgClassifier(net=net).fit(*blobs())


def test_an_interrupt_stops_the_fit(monkeypatch, blobs):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(NeuralNetClassifier, "train_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        FedAvgClassifier().fit(*blobs())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", torch.optim.RMSprop])
def test_optimizers(optimizer, blobs):
    X, y = blobs()
    classifier = FedAvgClassifier(
        net__optimizer=optimizer, net__max_epochs=20, random_state=0
    )
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


def test_training_that_diverges_is_refused(blobs):
    X, y = blobs()
    classifier = FedAvgClassifier(standardize=False, net__lr=10.0)
    with pytest.raises(ValueError, match=r"diverged at client 'A'.*standardize=True"):
        classifier.fit(1e30 * X, y, client_ids=["A"] * len(y))
