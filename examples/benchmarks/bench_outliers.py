"""What a poisoned message costs honest sites, and whether honest sites stand out.

Run with::

    python examples/benchmarks/bench_outliers.py
    python examples/benchmarks/bench_outliers.py --features FILE.npz
    python examples/benchmarks/bench_outliers.py --tables honest --heart FOLDER

The file holds ``X``, ``y`` and ``client`` (or ``domain``, an index into ``domains``);
without one the embedded digits are used. Partition s draws with ``rng =
numpy.random.default_rng(s)``: test rows are those where ``rng.random(n) < 0.3``, and
clients learn from the others, or under label shift from those that
``dirichlet_label_shift`` keeps with ``random_state=s``.

The tables:

- ``attacks``: each client in turn sends a message that poisons the model of all.
  Printed is the mean accuracy (%) of the *other* sites without an attack, and what the
  attack costs them in points, on average and for the worst choice of attacker, with
  ``screen=None`` and with "exclude"; and how often the attacker, and how often
  somebody else, was left out.
- ``honest``: how often anybody stands out in honest partitions, from class means and
  variances alone: all clients, three of them, two of them, and each divided into five.
  ``--heart`` adds four hospitals, from the UCI files ``processed.*.data``, as they are
  and standardised.
"""

import argparse
import os
import warnings
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.stats import ortho_group
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from skslot import FedCGSClassifier, FederatedOTAligner, MixedEffectsClassifier
from skslot.experiments import FeatureSet
from skslot.model_selection import dirichlet_label_shift
from skslot.trust import examine_clients

METHODS = {
    "FedCGS": FedCGSClassifier(),
    "FedCGS, aligned": FedCGSClassifier(aligner=FederatedOTAligner(0.4)),
    "mixed effects": MixedEffectsClassifier(),
}


# ------------------------------------------------------------------------ attacks


def shift_all(X, y, rng):
    return X + 1e6


def shift_one_class(X, y, rng):
    moved = X.copy()
    moved[y == y[0]] += 1e4
    return moved


def scale_all(X, y, rng):
    return 1000 * X


def scale_class_means(X, y, rng):
    moved = X.copy()
    for label in np.unique(y):
        moved[y == label] += 999 * X[y == label].mean(axis=0)
    return moved


def rotate(X, y, rng):
    rotation = ortho_group.rvs(X.shape[1], random_state=rng)
    return X[:, rng.permutation(X.shape[1])] @ rotation


def claim_rows(message):
    counts = np.ceil(1e8 * (message.counts / message.counts.max()))
    return replace(message, counts=counts.astype(np.int32))


# What the attacker does to its rows, so that its message is one that rows can have.
ATTACKS = {
    "all means + 1e6": shift_all,
    "one class mean + 1e4": shift_one_class,
    "counts of 1e8": None,
    "units x 1000": scale_all,
    "class means x 1000": scale_class_means,
    "another encoder (rotation)": rotate,
}


def split(data, alpha, seed):
    """Rows to learn from and test rows."""
    rng = np.random.default_rng(seed)
    is_test = rng.random(len(data.y)) < 0.3
    train = np.flatnonzero(~is_test)
    if alpha is not None:
        kept = dirichlet_label_shift(
            data.y[train], data.client_ids[train], alpha, random_state=seed
        )
        train = train[kept]
    return train, np.flatnonzero(is_test)


def message_of(classifier, data, train, client, attack=None):
    rows = train[data.client_ids[train] == client]
    X, y = data.X[rows].astype(np.float64), data.y[rows]
    if attack is not None and ATTACKS[attack] is not None:
        X = ATTACKS[attack](X, y, np.random.default_rng(0))
    classes = np.unique(data.y)
    message = classifier.client_update(X, y, classes=classes, client=client)
    claims = attack is not None and ATTACKS[attack] is None
    return claim_rows(message) if claims else message


def accuracy(classifier, data, test, without):
    """Mean over clients but one."""
    scores = []
    for client in data.clients:
        if client != without:
            rows = test[data.client_ids[test] == client]
            scores.append(classifier.score(data.X[rows], data.y[rows], None, client))
    return 100 * np.mean(scores)


def run_attacks(data, methods, alpha, seeds):
    names = ["method", "attack", "honest", "None", "worst", "exclude", "worst"]
    heads = "{:<16}{:<28}{:>7}{:>8}{:>7}{:>11}{:>7}{:>9}{:>7}"
    print(heads.format(*names, "attacker", "others"))
    for method in methods:
        classifier = METHODS[method]
        costs = {name: [] for name in ATTACKS}
        for seed in range(seeds):
            train, test = split(data, alpha, seed)
            classifier.set_params(screen=None)
            sent = {c: message_of(classifier, data, train, c) for c in data.clients}
            honest = classifier.server_aggregate(list(sent.values()))
            before = {c: accuracy(honest, data, test, c) for c in data.clients}
            for name in ATTACKS:
                for attacker in data.clients:
                    poison = message_of(classifier, data, train, attacker, name)
                    messages = list({**sent, attacker: poison}.values())
                    after = {}
                    for screen in (None, "exclude"):
                        classifier.set_params(screen=screen)
                        fitted = classifier.server_aggregate(messages)
                        after[screen] = accuracy(fitted, data, test, attacker)
                    out = fitted.clients_report_.left_out
                    costs[name].append(
                        [
                            before[attacker],
                            before[attacker] - after[None],
                            before[attacker] - after["exclude"],
                            attacker in out,
                            len(out.keys() - {attacker}),
                        ]
                    )
        for name, rows in costs.items():
            mean, worst = np.mean(rows, axis=0), np.max(rows, axis=0)
            print(
                f"{method:<16}{name:<28}{mean[0]:7.1f}{mean[1]:8.1f}{worst[1]:7.1f}"
                f"{mean[2]:11.1f}{worst[2]:7.1f}{mean[3]:9.0%}{mean[4]:7.0%}",
                flush=True,
            )


# ------------------------------------------------------------------- honest sites


def messages_of_clients(X, y, client_ids):
    return [
        FedCGSClassifier().client_update(X[own], y[own], client=client)
        for client in np.unique(client_ids)
        for own in [client_ids == client]
    ]


def groupings(client_ids, seed):
    """All clients, three, two, and each divided into five."""
    rng = np.random.default_rng(seed)
    clients = np.unique(client_ids)
    everybody = np.full(len(client_ids), True)
    parts = rng.integers(5, size=len(client_ids))
    divided = np.char.add(client_ids.astype(str), parts.astype(str))
    return {
        "all": (everybody, client_ids),
        "three": (
            np.isin(client_ids, rng.choice(clients, 3, replace=False)),
            client_ids,
        ),
        "two": (np.isin(client_ids, rng.choice(clients, 2, replace=False)), client_ids),
        "each in five": (everybody, divided),
    }


def run_honest(data, seeds):
    print(f"{'clients':<14}{'alpha':>6}{'runs':>6}{'stand out':>11}", end="")
    print(f"{'distance':>10}{'class means':>13}")
    found = {}
    for alpha in (None, 1.0, 0.1, 0.05, 0.01):
        for seed in range(seeds):
            train, _ = split(data, alpha, seed)
            X, y, ids = data.X[train], data.y[train], np.asarray(data.client_ids[train])
            for name, (rows, groups) in groupings(ids, seed).items():
                messages = messages_of_clients(X[rows], y[rows], groups[rows])
                report = examine_clients(messages)
                found.setdefault((name, alpha), []).append(
                    [
                        bool(report.outliers),
                        np.nanmax([each.distance for each in report]),
                        np.nanmax([each.class_distance for each in report]),
                    ]
                )
    for (name, alpha), rows in sorted(found.items(), key=lambda item: item[0][0]):
        rows = np.array(rows)
        print(
            f"{name:<14}{alpha or 'none':>6}{len(rows):6}{rows[:, 0].mean():11.1%}"
            f"{rows[:, 1].max():10.1f}{rows[:, 2].max():13.1f}",
            flush=True,
        )


def load_hospitals(folder):
    """Four hospitals; what is missing is the mean of all."""
    names = ("cleveland", "hungarian", "switzerland", "va")
    tables = [
        np.genfromtxt(Path(folder, f"processed.{name}.data"), delimiter=",")
        for name in names
    ]
    table = np.vstack(tables)
    ids = np.repeat(names, [len(each) for each in tables])
    X = SimpleImputer().fit_transform(table[:, :-1])
    y = (table[:, -1] > 0).astype(int)
    return {
        "hospitals, as they are": FeatureSet("hospitals", X, y, ids),
        "hospitals, standardised": FeatureSet(
            "hospitals", StandardScaler().fit_transform(X), y, ids
        ),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", metavar="FILE.npz")
    parser.add_argument("--heart", metavar="FOLDER")
    parser.add_argument("--tables", default="attacks,honest")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--alpha", type=float, help="label shift under attack")
    parser.add_argument("--attack-partitions", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=50)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    data = FeatureSet.embedded()
    if arguments.features:
        data = FeatureSet.from_file(arguments.features)
    tables = arguments.tables.split(",")
    if "attacks" in tables:
        print(f"{data.name}: cost of an attack for the other sites, in points")
        settings = arguments.methods, arguments.alpha, arguments.attack_partitions
        run_attacks(data, *settings)
    if "honest" in tables:
        named = {data.name: data}
        if arguments.heart:
            named |= load_hospitals(arguments.heart)
        for name, each in named.items():
            print(f"{name}: honest partitions in which anybody stands out")
            run_honest(each, arguments.partitions)


if __name__ == "__main__":
    main()
