"""
===========================================
FedAvg: what repairs it, and how fast it is
===========================================

Prints the accuracy of one-shot FedAvg in settings from the paper's to the default, and
the time of a fit next to the same loop written directly in torch.

Run it with::

    pip install ".[torch]"
    python examples/benchmarks/bench_fedavg.py                      # embedded digits
    python examples/benchmarks/bench_fedavg.py --features FILE.npz  # your features
    python examples/benchmarks/bench_fedavg.py --only speed

The file holds ``X``, ``y`` and ``client`` (or ``domain``). The protocol is the paper's:
70 % of each (client, class) cell for training, of which clients keep Dirichlet shares
per class; test rows are not skewed. Printed is the accuracy in percent, averaged over
clients and partitions, with its standard error over partitions, at two strengths of
alignment. All settings see the same partitions.

Speed is CPU time on one thread: both loops take turns, and the ratio is that of their
medians.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import time
from statistics import median

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from skslot import FedAvgClassifier, FedCGSClassifier, FederatedOTAligner
from skslot.datasets import load_digit_scanners
from skslot.model_selection import dirichlet_label_shift

TAUS = (0.0, 0.4)


def settings(seed):
    """Classifiers by name, each adding one thing to the one before."""
    plain = {"random_state": seed, "standardize": True, "local_softmax": "all"}
    return {
        "paper: raw features, lr 1e-3": FedAvgClassifier.as_in_paper(random_state=seed),
        "paper with lr 1e-2": FedAvgClassifier.as_in_paper(
            net__lr=1e-2, random_state=seed
        ),
        "+ standardized": FedAvgClassifier(net=torch.nn.Linear, **plain),
        "+ head starts at zero": FedAvgClassifier(**plain),
        '+ local_softmax="held"': FedAvgClassifier(
            **{**plain, "local_softmax": "held"}
        ),
        'default: local_softmax="balanced"': FedAvgClassifier(random_state=seed),
        "default, weighted by samples": FedAvgClassifier(
            averaging="samples", random_state=seed
        ),
        "default, 10 rounds": FedAvgClassifier(10, random_state=seed),
        "for comparison: FedCGS": FedCGSClassifier(),
    }


def load(path):
    """Features, labels and clients of a file, or of the embedded digits."""
    if path is None:
        data = load_digit_scanners()
        return data.data, data.target, data.client_ids
    with np.load(path, allow_pickle=False) as file:
        client = file["client"] if "client" in file else file["domain"]
        return file["X"].astype(np.float64), file["y"], client


def split(y, clients, alpha, min_samples, seed):
    """Training rows with skewed labels, and test rows."""
    cells = np.char.add(clients.astype(str), y.astype(str))
    train, test = train_test_split(
        np.arange(len(y)), test_size=0.3, stratify=cells, random_state=seed
    )
    kept = dirichlet_label_shift(
        y[train], clients[train], alpha, min_samples=min_samples, random_state=seed
    )
    return train[kept], test


def macro_accuracy(classifier, aligned, y, clients, train, test):
    """Accuracy, averaged over clients."""
    classifier.fit(aligned[train], y[train], client_ids=clients[train])
    right = classifier.predict(aligned[test]) == y[test]
    return np.mean([right[clients[test] == c].mean() for c in np.unique(clients)])


def print_table(data, alpha, min_samples, partitions):
    """Accuracy of every setting, without and with alignment."""
    X, y, clients = data
    results = {}
    for seed in range(partitions):
        train, test = split(y, clients, alpha, min_samples, seed)
        for tau in TAUS:
            aligner = FederatedOTAligner(tau=tau)
            aligner.fit(X[train], client_ids=clients[train])
            aligned = aligner.transform(X, client_ids=clients)
            for name, classifier in settings(seed).items():
                accuracy = macro_accuracy(classifier, aligned, y, clients, train, test)
                results.setdefault(name, {}).setdefault(tau, []).append(100 * accuracy)
    heads = "".join(f"{f'tau={tau:g}':>16}" for tau in TAUS)
    print(
        f"alpha={alpha:g}, {partitions} partitions, clients have at least "
        f"{min_samples} rows"
    )
    print(f"{'':<36}{heads}")
    for name, by_tau in results.items():
        cells = ""
        for values in by_tau.values():
            error = np.std(values, ddof=1) / np.sqrt(len(values))
            cells += f"{f'{np.mean(values):.1f} ± {error:.1f}':>16}"
        print(f"{name:<36}{cells}")


def torch_loop(sites, n_classes, seed):
    """One round of the default, written directly in torch."""
    total = sum(len(X) for X, _ in sites)
    mean = sum(X.sum(axis=0) for X, _ in sites) / total
    scale = np.sqrt(
        sum(np.square(X - mean).sum() for X, _ in sites) / mean.size / total
    )
    heads = []
    for X, y in sites:
        X = torch.as_tensor(((X - mean) / scale).astype(np.float32))
        y = torch.as_tensor(y)
        offsets = torch.log(5.0 + torch.bincount(y, minlength=n_classes))
        head = torch.nn.Linear(X.shape[1], n_classes)
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        optimizer = torch.optim.SGD(
            head.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-5
        )
        torch.manual_seed(seed)
        for _ in range(10):
            for rows in torch.randperm(len(X)).split(64):
                optimizer.zero_grad()
                logits = head(X[rows]) + offsets
                torch.nn.functional.cross_entropy(logits, y[rows]).backward()
                optimizer.step()
        heads.append(head.weight.detach())
    return torch.stack(heads).mean(dim=0)


def timed(function):
    """Result and CPU time of a call."""
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def print_speed(turns):
    """Time of a fit next to that of the loop in torch."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    n_samples, n_features, n_classes, n_clients = 6000, 512, 7, 4
    y = rng.integers(n_classes, size=n_samples)
    X = rng.normal(size=(n_classes, n_features))[y] / 4
    X += rng.normal(size=(n_samples, n_features))
    clients = np.arange(n_samples) * n_clients // n_samples
    sites = [
        (X[clients == client], y[clients == client]) for client in range(n_clients)
    ]
    classifier = FedAvgClassifier(random_state=0)
    ours, theirs = [], []
    for _ in range(turns):
        _, seconds = timed(lambda: classifier.fit(X, y, client_ids=clients))
        ours.append(seconds)
        weight, seconds = timed(lambda: torch_loop(sites, n_classes, 0))
        theirs.append(seconds)
    apart = np.abs(classifier.model_.weights["weight"] - weight.numpy()).max()
    print(
        f"{n_samples} rows x {n_features} features, {n_clients} clients, 10 epochs: "
        f"FedAvgClassifier {median(ours):.2f} s, torch {median(theirs):.2f} s, ratio "
        f"{median(ours) / median(theirs):.2f} (promised: at most 3); largest "
        f"difference of weights {apart:.1e}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    parser.add_argument("--features", help="npz file with X, y and client or domain")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--min-samples", type=int, default=10, help="of each client")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--only", choices=["table", "speed"])
    args = parser.parse_args()
    if args.only != "table":
        print_speed(turns=7)
    if args.only != "speed":
        data = load(args.features)
        print_table(data, args.alpha, args.min_samples, args.partitions)


if __name__ == "__main__":
    main()
