"""Heads and their local training: all that needs torch and skorch."""

from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from inspect import signature

import numpy as np
import torch
from scipy.special import log_softmax
from sklearn.base import clone
from skorch import NeuralNetClassifier

OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
# Rows per batch where no gradient is needed.
EVALUATION_BATCH = 4096
# Added to the rows of each class in balanced training. Fewer push classes that a client
# lacks down less, which is better the more clients differ; five did at least as well as
# "held" on PACS and on digits, aligned or not.
EXTRA_ROWS = 5


class LinearHead(torch.nn.Linear):
    """Linear layer that starts at zero, so that averages keep no random part."""

    def reset_parameters(self):
        torch.nn.init.zeros_(self.weight)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)


class LocalCrossEntropy(torch.nn.CrossEntropyLoss):
    """Cross-entropy of logits that are shifted by a constant for each class."""

    def __init__(self, offsets):
        super().__init__()
        self.register_buffer("offsets", torch.as_tensor(offsets, dtype=torch.float32))

    def forward(self, input, target):
        return super().forward(input + self.offsets, target)


class HeadNet(NeuralNetClassifier):
    """A net that trains on one thread.

    Heads are small, so that more threads would mostly wait for each other; and results
    depend on their number in the last bits.
    """

    def fit_loop(self, *args, **kwargs):
        with threads(1):
            return super().fit_loop(*args, **kwargs)


class BatchIterator:
    """Batches of a dataset by indexing; a DataLoader would put them together by row."""

    def __init__(self, dataset, batch_size, shuffle=False):
        self.X = torch.as_tensor(dataset.X)
        labels = torch.zeros(len(self.X)) if dataset.y is None else dataset.y
        self.y = torch.as_tensor(labels)
        self.batch_size = batch_size
        self.shuffle = shuffle

    def __len__(self):
        return -(-len(self.X) // self.batch_size)

    def __iter__(self):
        order = torch.randperm(len(self.X)) if self.shuffle else None
        for start in range(0, len(self.X), self.batch_size):
            rows = slice(start, start + self.batch_size)
            rows = rows if order is None else order[rows]
            yield self.X[rows], self.y[rows]


def logit_offsets(counts, local_softmax):
    """What is added to the logits of each class while a client trains."""
    counts = np.asarray(counts, dtype=np.float64)
    if local_softmax == "balanced":
        return np.log(counts + EXTRA_ROWS)
    # A class on its own has nothing to be told apart from but those held elsewhere.
    if local_softmax == "held" and np.sum(counts > 0) > 1:
        return np.where(counts > 0, 0.0, -np.inf)
    return np.zeros_like(counts)


def make_net(net, params, defaults, local_softmax, n_features, counts):
    """Make the unfitted net of a client with ``counts`` rows of each class.

    ``net`` and ``local_softmax`` are those of FedAvgClassifier. ``params`` are what the
    user set of the net, ``defaults`` what else it gets if it is made here; ``net__`` is
    in front of their names in skorch.
    """
    params, defaults = (
        {name.removeprefix("net__"): value for name, value in given.items()}
        for given in (params, defaults)
    )
    if isinstance(net, NeuralNetClassifier):
        return clone(net).set_params(**_with_optimizer(params))
    if hasattr(net, "fit_loop"):
        raise TypeError(
            "net must be a skorch NeuralNetClassifier or a torch module, got a "
            f"{type(net).__name__}."
        )
    if isinstance(net, torch.nn.Module):
        module = deepcopy(net)
    else:
        make = LinearHead if net is None else net
        module = partial(make, n_features, len(counts))
    params = _with_optimizer({**defaults, **params})
    arguments = signature(params["optimizer"]).parameters
    for name in defaults:  # those that this optimizer does not have
        _, is_argument, argument = name.partition("optimizer__")
        if is_argument and argument not in arguments:
            del params[name]
    return HeadNet(
        module,
        criterion=LocalCrossEntropy,
        criterion__offsets=logit_offsets(counts, local_softmax),
        **params,
        iterator_train=BatchIterator,
        iterator_train__shuffle=True,
        iterator_valid=BatchIterator,
        iterator_valid__batch_size=EVALUATION_BATCH,
        train_split=None,
        callbacks="disable",
        classes=list(range(len(counts))),
        verbose=0,
    )


def train(net, X, codes, start, seed):
    """Train an unfitted net, from ``start`` or its own weights: (weights, losses).

    Leaves the random state and the number of threads of torch as they were.
    """
    n_threads = 1 if isinstance(net, HeadNet) else torch.get_num_threads()
    with threads(n_threads), _seeded(seed, net.device):
        net.initialize()
        if start is not None:
            load_weights(net, start.weights)
        before = _mean_loss(net, X, codes)
        if net.callbacks == "disable":
            # partial_fit takes Ctrl-C for a callback that stops early, and goes on
            net.fit_loop(X, codes)
        else:
            net.partial_fit(X, codes)
        after = _mean_loss(net, X, codes)
    weights = net.module_.state_dict()
    weights = {name: _to_numpy(tensor) for name, tensor in weights.items()}
    for name, array in weights.items():
        if array.dtype.kind == "f":
            weights[name] = array.astype(np.float64)
    return weights, np.array([before, after])


def fitted_net(net, weights):
    """The net with these weights, ready to predict."""
    with _seeded(0, net.device):
        net.initialize()
    load_weights(net, weights)
    return net


def load_weights(net, weights):
    """Set the weights of an initialised net."""
    state = net.module_.state_dict()
    missing = sorted(state.keys() ^ weights.keys())
    if missing:
        raise ValueError(f"the weights do not fit the head: see {missing}.")
    for name, tensor in state.items():
        values = torch.as_tensor(np.array(weights[name]))
        is_same_kind = values.is_floating_point() == tensor.is_floating_point()
        if values.shape != tensor.shape or not is_same_kind:
            raise ValueError(
                f"the weights do not fit the head: {name} is {_layout(values)}, that "
                f"of the head {_layout(tensor)}."
            )
        state[name] = values.to(tensor)
    net.module_.load_state_dict(state)


def linear_coefficients(net, scale=None):
    """Weights and intercepts of a net that is linear in its logits, else None.

    They are for rows before these are scaled.
    """
    module = net.module_
    linear = type(module).forward is torch.nn.Linear.forward
    if not linear or not _has_logits(net):
        return None
    coef = _to_numpy(module.weight).astype(np.float64)
    intercept = np.zeros(len(coef))
    if module.bias is not None:
        intercept += _to_numpy(module.bias)
    if scale is not None:
        coef /= scale.scale
        intercept -= coef @ scale.mean
    return coef, intercept


def class_scores(net, X):
    """Logits, or logarithms of probabilities, of each class."""
    with _seeded(0, net.device):  # a DataLoader draws a seed
        if not _has_logits(net):
            probabilities = net.predict_proba(X).astype(np.float64)
            return np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
        outputs = net.forward(X)
    logits = outputs[0] if isinstance(outputs, tuple) else outputs
    return _to_numpy(logits).astype(np.float64)


def _with_optimizer(params):
    """Replace the name of an optimizer by its class."""
    if "optimizer" in params:
        name = params["optimizer"]
        params = {**params, "optimizer": OPTIMIZERS.get(name, name)}
    return params


def _has_logits(net):
    return isinstance(net.criterion_, torch.nn.CrossEntropyLoss)


def _mean_loss(net, X, codes):
    """Cross-entropy over all classes, whatever local training minimises."""
    log_probabilities = log_softmax(class_scores(net, X), axis=1)
    return -log_probabilities[np.arange(len(codes)), codes].mean()


def _layout(tensor):
    kind = "numbers" if tensor.is_floating_point() else "integers"
    return f"{kind} of shape {tuple(tensor.shape)}"


def _to_numpy(tensor):
    return tensor.detach().cpu().numpy()


@contextmanager
def _seeded(seed, device):
    """Seed the random state of torch within a block."""
    device = torch.device(device or "cpu")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":  # torch.manual_seed would seed the accelerators, too
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield


@contextmanager
def threads(number):
    """Set the number of threads of torch within a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
