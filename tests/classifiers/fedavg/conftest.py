"""Rows of clients that miss classes, and nets to train on them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
skorch = pytest.importorskip("skorch")

N_CLASSES = 4


def make_blobs(n_samples=160, n_features=6, seed=0, n_classes=N_CLASSES):
    rng = np.random.default_rng(seed)
    y = np.arange(n_samples) % n_classes
    centres = 3 * np.random.default_rng(99).normal(size=(n_classes, n_features))
    X = 5.0 + centres[y] + rng.normal(size=(n_samples, n_features))
    return X, y


class Perceptron(torch.nn.Module):
    """A head with a hidden layer, dropout and batch normalisation."""

    def __init__(self, n_features, n_classes, n_hidden=8):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(n_features, n_hidden),
            torch.nn.BatchNorm1d(n_hidden),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(n_hidden, n_classes),
        )

    def forward(self, X):
        return self.layers(X)


class Probabilities(torch.nn.Module):
    """What skorch expects by default: probabilities for its NLLLoss."""

    def __init__(self, n_features=6, n_classes=N_CLASSES, bias=True):
        super().__init__()
        self.linear = torch.nn.Linear(n_features, n_classes, bias=bias)

    def forward(self, X):
        return torch.softmax(self.linear(X), dim=-1)


def make_skorch_net(**params):
    defaults = {
        "module": Probabilities,
        "max_epochs": 3,
        "lr": 0.05,
        "batch_size": 16,
        "iterator_train__shuffle": True,
        "train_split": None,
        "verbose": 0,
    }
    return skorch.NeuralNetClassifier(**{**defaults, **params})


NETS = {
    "zero": None,
    "linear": torch.nn.Linear,
    "perceptron": Perceptron,
    "skorch": make_skorch_net(),
}


@pytest.fixture
def blobs():
    """Function that draws features and labels."""
    return make_blobs


@pytest.fixture
def rows():
    """Features, labels and clients; every client misses a class."""
    X, y = make_blobs()
    clients = np.array(["A", "B", "C"])[np.arange(len(y)) // 4 % 3]
    missed = {"A": 0, "B": 1, "C": 2}
    keep = np.array([missed[c] != label for c, label in zip(clients, y, strict=True)])
    return X[keep], y[keep], clients[keep]


@pytest.fixture
def net(request):
    """Value of the parameter of this name, by a word for it."""
    return NETS[request.param]


@pytest.fixture
def perceptron():
    return Perceptron


@pytest.fixture
def probabilities():
    return Probabilities


@pytest.fixture
def skorch_net():
    """Function that makes a net as a user of skorch would."""
    return make_skorch_net


@pytest.fixture
def same_weights():
    """Function that compares the weights of two fitted nets bit for bit."""

    def same(left, right):
        left, right = left.module_.state_dict(), right.module_.state_dict()
        return left.keys() == right.keys() and all(
            torch.equal(left[name], right[name]) for name in left
        )

    return same
