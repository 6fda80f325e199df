"""Whether diagnose recommends a model that is as good as the best it offers.

Run with::

    python examples/benchmarks/bench_diagnose.py
    python examples/benchmarks/bench_diagnose.py --features FILE.npz --heart FOLDER

The embedded digits are always there; the file holds ``X``, ``y`` and ``client`` (or
``domain``, an index into ``domains``), and the folder has the UCI files
``processed.*.data`` of Heart Disease. For every setting and partition, ``diagnose``
sees the training rows, and all models that it offers are fitted to them and tested.

``shared`` are partitions by ``paper_split``, whose test labels are not skewed. ``as
now`` skews all rows first, so that each site is tested with the label mix that it was
trained with. Hospitals are cross-validated; there ``shared`` is the accuracy with the
test rows of each class weighed as in the label mix of all hospitals.

Printed are the mean over partitions of the accuracy (%, macro mean over clients) of
what was recommended, the best offered model by that mean, the difference with its
standard error, how often each was recommended, and the seconds (CPU) of a diagnosis. A
setting is right if the difference is not below -1 point. Results are kept in
``--results`` (JSON lines), so a run that was interrupted goes on where it stopped.

``--tables cells,rows`` prints what the warning of ``FederatedOTAligner.fit`` rests on:
the points of accuracy that ``tau=0.4`` gains over ``tau=0``, by the share of empty
(client, class) cells, and at one client whose rows are thinned out, by its rows per
feature.
"""

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from bench_mixed_effects import load_hospitals
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.experiments import FeatureSet
from skslot.inspection import diagnose
from skslot.inspection._diagnose import offered_models
from skslot.model_selection import (
    StratifiedClientKFold,
    class_table,
    dirichlet_label_shift,
    paper_split,
)

SHIFTS = (None, 5.0, 2.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.01)
PARTS = (0.5, 0.25, 0.1, 0.05)  # of the rows, without label shift
EMPTY = (0.0, 1e-9, 0.05, 0.1, 0.2, 1.0)
THIN = (0.02, 0.05, 0.1, 0.2, 0.4)  # rows per feature
FEWEST = 40  # rows of a client that keeps its label mix, some of which are tested


def splits_of(data, alpha, labels_at_use, seed):
    """Pairs of training and test rows of a partition."""
    if data.name == "heart":
        folds = StratifiedClientKFold(5, shuffle=True, random_state=seed)
        return list(folds.split(data.X, data.y, client_ids=data.client_ids))
    if labels_at_use == "shared":
        return [data.partition(alpha, seed)]
    kept = dirichlet_label_shift(
        data.y, data.client_ids, alpha, min_samples=FEWEST, random_state=seed
    )
    rows = data.y[kept], data.client_ids[kept]
    train, test = paper_split(*rows, None, random_state=seed)
    return [(kept[train], kept[test])]


def filled(train, test):
    """Features without missing values; those that have some are scaled too."""
    if not np.isnan(train).any():
        return train, test
    steps = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return steps.fit_transform(train), steps.transform(test)


def macro_accuracy(right, y, client_ids, shares):
    """Mean over clients, with classes weighed by their shares if these are given."""
    means = []
    for client in np.unique(client_ids):
        here = client_ids == client
        if shares is None:
            means.append(right[here].mean())
        else:
            cells = {c: right[here & (y == c)].mean() for c in np.unique(y[here])}
            weights = [shares[c] for c in cells]
            means.append(np.average(list(cells.values()), weights=weights))
    return 100 * float(np.mean(means))


def run(data, alpha, labels_at_use, seed):
    """Accuracy of all models and of what was recommended, and what that was."""
    models = offered_models(labels_at_use == "as_now")
    right = {name: np.zeros(len(data.y)) for name in [*models, "recommended"]}
    tested, chosen, seconds = [], [], []
    for train, test in splits_of(data, alpha, labels_at_use, seed):
        rows, test_rows = filled(data.X[train], data.X[test])
        y, ids = data.y[train], data.client_ids[train]
        start = time.process_time()
        found = diagnose(rows, y, ids, labels_at_use=labels_at_use)
        seconds.append(time.process_time() - start)
        for name, model in models.items():
            model = clone(model).fit(rows, y, client_ids=ids)
            answers = model.predict(test_rows, client_ids=data.client_ids[test])
            right[name][test] = answers == data.y[test]
        right["recommended"][test] = right[found.chosen][test]
        tested.append(test)
        chosen.append(found.chosen)
    test = np.sort(np.concatenate(tested))
    shares = None
    if data.name == "heart" and labels_at_use == "shared":
        shares = np.bincount(data.y) / len(data.y)
    return {
        "accuracy": {
            name: macro_accuracy(
                each[test], data.y[test], data.client_ids[test], shares
            )
            for name, each in right.items()
        },
        "chosen": chosen,
        "seconds": seconds,
    }


def run_all(sets, arguments):
    """Results of all settings, those from earlier runs included."""
    results, done = Path(arguments.results), {}
    if results.exists():
        for line in results.read_text().splitlines():
            *key, found = json.loads(line)
            done[tuple(key)] = found
    alphas = [None if alpha == "none" else float(alpha) for alpha in arguments.alphas]
    settings = []
    for name, data in sets.items():
        if data.name == "heart":
            settings += [(name, None, "shared"), (name, None, "as_now")]
        else:
            settings += [(name, alpha, "shared") for alpha in alphas]
            settings += [(name, alpha, "as_now") for alpha in (1.0, 0.1)]
    seeds = range(arguments.first, arguments.first + arguments.partitions)
    for seed in seeds:
        for name, *setting in settings:
            key = (name, *setting, seed)
            if key not in done:
                print(*key, file=sys.stderr, flush=True)
                done[key] = run(sets[name], *setting, seed)
                with results.open("a") as file:
                    file.write(json.dumps([*key, done[key]]) + "\n")
    return {each: [done[*each, seed] for seed in seeds] for each in settings}


def print_table(found):
    heads = f"{'data':<8}{'alpha':>6}{'labels':>8}{'recommended':>13}"
    print(f"{heads}  {'best offered':<36}{'difference':>14}  chosen; seconds")
    n_right = 0
    for (name, alpha, labels), runs in found.items():
        offered = [model for model in runs[0]["accuracy"] if model != "recommended"]
        means = {m: np.mean([r["accuracy"][m] for r in runs]) for m in offered}
        best = max(means, key=means.get)
        ours = np.array([r["accuracy"]["recommended"] for r in runs])
        apart = ours - [r["accuracy"][best] for r in runs]
        error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else 0.0
        n_right += apart.mean() >= -1
        chosen = Counter(model for r in runs for model in r["chosen"])
        counts = ", ".join(f"{model} {n}" for model, n in chosen.most_common())
        took = np.mean([s for r in runs for s in r["seconds"]])
        print(
            f"{name:<8}{alpha or 'none':>6}{labels:>8}{ours.mean():>13.1f}  "
            f"{f'{best} {means[best]:.1f}':<36}"
            f"{f'{apart.mean():+.1f} +/- {error:.1f}':>14}  {counts}; {took:.1f} s"
        )
    print(f"right in {n_right} of {len(found)} settings")


def gains(data, train, test):
    """Points that tau=0.4 gains, at each client."""
    rows, test_rows = filled(data.X[train], data.X[test])
    ids = data.client_ids[test]
    right = []
    for aligner in (None, FederatedOTAligner(0.4, tol=1e-5)):
        model = FedCGSClassifier("within", aligner=aligner)
        model.fit(rows, data.y[train], client_ids=data.client_ids[train])
        right.append(model.predict(test_rows, client_ids=ids) == data.y[test])
    gain = 100 * (right[1].astype(float) - right[0])
    return {client: gain[ids == client].mean() for client in data.clients}


def thinned(data, train, part, seed):
    """A part of the rows of each cell, at least two."""
    rng = np.random.default_rng(seed)
    names = np.array([data.client_ids[train], data.y[train]], dtype=str)
    kept = []
    for cell in np.unique(names, axis=1).T:
        rows = train[(names == cell[:, None]).all(axis=0)]
        size = min(len(rows), max(2, round(part * len(rows))))
        kept.append(rng.choice(rows, size, replace=False))
    return np.sort(np.concatenate(kept))


def print_cells(sets, seeds):
    """What alignment gains, by the share of empty cells."""
    edges = list(zip(EMPTY, EMPTY[1:], strict=False))
    for name, data in sets.items():
        found = []
        for seed in seeds:
            plain = splits_of(data, None, "shared", seed)[0]
            runs = [(thinned(data, plain[0], p, seed), plain[1]) for p in PARTS]
            if data.name == "heart":
                runs.append(plain)
            else:
                runs += [data.partition(alpha, seed) for alpha in SHIFTS]
            for train, test in runs:
                counts = class_table(data.y[train], data.client_ids[train]).counts
                gain = np.mean(list(gains(data, train, test).values()))
                found.append((np.mean(counts == 0), gain))
        empty, gain = np.transpose(found)
        for low, high in edges:
            here = gain[(empty >= low) & (empty < high)]
            if len(here):
                text = f"{here.mean():+.1f}, lost in {(here < 0).sum()} of {len(here)}"
                words = "none" if high < 1e-6 else f"{low:.0%} to {high:.0%}"
                print(f"{name:<8}empty cells {words}: {text}")


def print_rows(sets, seeds):
    """What alignment gains at a client, by its rows per feature."""
    for name, data in sets.items():
        found = {part: [] for part in THIN}
        for seed in seeds if data.name != "heart" else ():
            train, test = data.partition(0.1, seed)
            client = data.clients[seed % len(data.clients)]
            mine = train[data.client_ids[train] == client]
            others = np.setdiff1d(train, mine)
            for part in THIN:
                size = max(2, int(part * data.X.shape[1]))
                if size < len(mine):
                    few = np.random.default_rng(seed).choice(mine, size, replace=False)
                    kept = np.concatenate([others, few])
                    found[part].append(gains(data, kept, test)[client])
        for part, gain in found.items():
            if gain:
                error = np.std(gain, ddof=1) / np.sqrt(len(gain))
                text = f"{np.mean(gain):+.1f} +/- {error:.1f}, {len(gain)} partitions"
                print(f"{name:<8}{part:g} rows per feature: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", metavar="FILE.npz")
    parser.add_argument("--heart", metavar="FOLDER")
    parser.add_argument("--tables", default="advice", help="of advice, cells, rows")
    parser.add_argument("--alphas", nargs="*", default="none 1 0.1 0.05 0.01".split())
    parser.add_argument("--partitions", type=int, default=5)
    parser.add_argument("--first", type=int, default=100, help="the first partition")
    parser.add_argument("--results", default="diagnose.jsonl", metavar="FILE")
    arguments = parser.parse_args()
    sets = {"digits": FeatureSet.embedded()}
    if arguments.features:
        sets["file"] = FeatureSet.from_file(arguments.features)
    if arguments.heart:
        sets["heart"] = load_hospitals(arguments.heart)
    warnings.simplefilter("ignore", UserWarning)  # of small clients
    seeds = range(arguments.first, arguments.first + arguments.partitions)
    for table in arguments.tables.split(","):
        if table == "cells":
            print_cells(sets, seeds)
        elif table == "rows":
            print_rows(sets, seeds)
        else:
            print_table(run_all(sets, arguments))


if __name__ == "__main__":
    main()
