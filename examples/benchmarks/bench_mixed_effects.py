"""Mixed effects against its peers, with unlabelled rows, for new sites, and its cost.

Run with::

    python examples/benchmarks/bench_mixed_effects.py
    python examples/benchmarks/bench_mixed_effects.py --features FILE.npz
    python examples/benchmarks/bench_mixed_effects.py --tables heart --heart FOLDER

The file holds ``X``, ``y`` and ``client`` (or ``domain``, an index into ``domains``);
without one the embedded digits are used. Partition s draws with ``rng =
numpy.random.default_rng(s)``: test rows are those where ``rng.random(n) < 0.3``. Of the
others a third is for training, drawn by ``rng.choice``, if there is no label shift,
else what ``dirichlet_label_shift`` keeps with ``random_state=s``. Test rows are not
skewed. Printed are the mean over partitions of the accuracy (%, macro mean over
clients) and the mean of its difference to one method on the same partitions, with the
standard error of that.

The tables:

- ``main``: one upload, against local training and rows pooled.
- ``heads``: other heads behind an aligner. ``--fedavg`` adds FedAvg, which is slow.
- ``unlabelled``: ``adapt_client``, as in ``skslot bench unlabelled``. Half of the test
  rows of each site, drawn at random, are set aside for sites to learn from, 200 at
  most, and the others are scored. The methods of ``main`` have no use for such rows.
- ``join``: each site in turn is left out of training and joins with rows that were set
  aside, labelled ones only of classes that some other site has.
- ``cost``: seconds. Those for many files are printed by ``bench_exchange.py --labels
  --mixed``.
- ``heart``: four hospitals, cross-validated; ``--heart`` names the folder with the UCI
  files ``processed.*.data``.

Results are kept in ``--results`` (JSON lines), so a run that was interrupted goes on
where it stopped.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn import set_config
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.experiments import FeatureSet
from skslot.experiments._measures import (
    KNOWN_SITES,
    NEW_SITES,
    LocalDiscriminant,
    accuracy_at,
    at_known_sites,
    at_new_sites,
    discriminant_analysis,
    fit_rows,
)
from skslot.metrics import client_scores
from skslot.model_selection import StratifiedClientKFold, dirichlet_label_shift
from skslot.statistics import Cells, fit_mixed_effects

TAUS = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
HOSPITALS = ["cleveland", "hungarian", "switzerland", "va"]


def split(data, alpha, seed):
    """Training and test rows of a partition."""
    rng = np.random.default_rng(seed)
    is_test = rng.random(len(data.y)) < 0.3
    train = np.flatnonzero(~is_test)
    if alpha is None:
        train = rng.choice(train, len(train) // 3, replace=False)
    else:
        labels, ids = data.y[train], data.client_ids[train]
        train = train[dirichlet_label_shift(labels, ids, alpha, random_state=seed)]
    return data.select(train), data.select(is_test)


class Pooled:
    """A classifier of all rows in one place, or of what an aligner makes of them."""

    def __init__(self, fit, aligner=None):
        self.fit_classifier, self.aligner = fit, aligner

    def fit(self, X, y, client_ids):
        if self.aligner is not None:
            self.aligner.fit(X, y, client_ids=client_ids)
        self.model = self.fit_classifier(self.moved(X, client_ids), y, client_ids)
        return self

    def predict(self, X, client_ids):
        return self.model.predict(self.moved(X, client_ids))

    def moved(self, X, client_ids):
        if self.aligner is None:
            return X
        return self.aligner.transform(X, client_ids=client_ids)


def macro_accuracy(classifier, train, test):
    """Fit and test: mean over clients of the percent of right predictions."""
    return float(np.mean(accuracy_at(fit_rows(classifier, train), test)))


def run_main(data, alpha, seed, arguments, memory):
    rows = split(data, alpha, seed)
    slot = {
        tau: FedCGSClassifier(aligner=FederatedOTAligner(tau, memory=memory))
        for tau in TAUS
    }
    slot = {tau: macro_accuracy(each, *rows) for tau, each in slot.items()}
    before = {"local LDA": LocalDiscriminant(), "FedCGS": FedCGSClassifier()}
    after = {
        "FedPFT": FedPFTClassifier(random_state=0),
        "rows pooled, LDA": Pooled(lambda X, y, ids: discriminant_analysis(X, y)),
        "mixed effects, tau=0": MixedEffectsClassifier(tau=0),
        "mixed effects": MixedEffectsClassifier(),
    }
    return {
        **{name: macro_accuracy(each, *rows) for name, each in before.items()},
        "SLOT 0.4 + FedCGS": slot[0.4],
        "SLOT, best tau on the test rows": max(slot.values()),
        **{name: macro_accuracy(each, *rows) for name, each in after.items()},
    }


def run_heads(data, alpha, seed, arguments, memory):
    rows = split(data, alpha, seed)
    heads = {"logistic regression": _logistic}
    if arguments.fedavg:
        heads["FedAvg"] = _fedavg
    aligners = {
        "no alignment": lambda: None,
        "SLOT 0.4": lambda: FederatedOTAligner(0.4, memory=memory),
        "mixed tau=0": lambda: MixedEffectsAligner(0),
        "mixed tau=auto": lambda: MixedEffectsAligner("auto", memory=memory),
    }
    scores = {
        f"{head}, {name}": macro_accuracy(Pooled(fit, aligner()), *rows)
        for head, fit in heads.items()
        for name, aligner in aligners.items()
    }
    mixed = MixedEffectsClassifier(memory=memory)
    return scores | {"mixed effects": macro_accuracy(mixed, *rows)}


def _logistic(X, y, client_ids):
    return LogisticRegression(max_iter=2000).fit(X, y)


def _fedavg(X, y, client_ids):
    from skslot import FedAvgClassifier

    return FedAvgClassifier(random_state=0).fit(X, y, client_ids=client_ids)


def run_unlabelled(data, alpha, seed, arguments, memory):
    found = at_known_sites(*split(data, alpha, seed), seed)
    return {name: float(np.mean(values)) for name, values in found.items()}


def run_join(data, alpha, seed, arguments, memory):
    found = at_new_sites(*split(data, alpha, seed), seed)
    return {name: float(np.mean(values)) for name, values in found.items()}


def load_hospitals(folder):
    """Thirteen measurements, disease or not, and the hospital of each patient."""
    paths = [Path(folder, f"processed.{name}.data") for name in HOSPITALS]
    tables = [np.genfromtxt(path, delimiter=",") for path in paths]
    table = np.vstack(tables)
    for column in (3, 4):  # a blood pressure or cholesterol of 0 is missing
        table[table[:, column] == 0, column] = np.nan
    ids = np.repeat(HOSPITALS, [len(each) for each in tables])
    return FeatureSet("heart", table[:, :13], (table[:, 13] > 0).astype(int), ids)


def run_heart(data, alpha, seed, arguments, memory):
    """Five-fold cross-validation at the same hospitals."""
    classifiers = {
        "FedCGS": FedCGSClassifier(),
        "SLOT 0.4 + FedCGS": FedCGSClassifier(aligner=FederatedOTAligner(0.4)),
        "mixed effects, pooled priors": MixedEffectsClassifier(),
        "mixed effects, client priors": MixedEffectsClassifier(priors="client"),
        "mixed effects, uniform priors": MixedEffectsClassifier(priors="uniform"),
    }
    folds = StratifiedClientKFold(5, shuffle=True, random_state=seed)
    values = {name: np.empty(len(data.y)) for name in classifiers}
    for train, test in folds.split(data.X, data.y, client_ids=data.client_ids):
        for name, classifier in classifiers.items():
            model = make_pipeline(
                SimpleImputer(strategy="median"), StandardScaler(), classifier
            )
            values[name][test] = fit_rows(model, data.select(train)).decision_function(
                data.X[test], client_ids=data.client_ids[test]
            )
    metrics = {
        "label mix kept": "accuracy",
        "balanced test labels": "balanced_accuracy",
        "AUC": roc_auc_score,
    }
    scores = {}
    for words, metric in metrics.items():
        for name, found in values.items():
            found = found if callable(metric) else (found > 0).astype(int)
            mean = client_scores(data.y, found, data.client_ids, metric).mean
            scores[f"{name}; {words}"] = 100 * mean
    return scores


def seconds(action, repeats):
    """Median processor time of actions, run in turn."""
    times = []
    for _ in range(repeats):
        times.append([])
        for each in action:
            start = time.process_time()
            each()
            times[-1].append(time.process_time() - start)
    return np.median(times, axis=0)


def print_cost():
    rng, m = np.random.default_rng(0), 512
    ids, y = np.divmod(np.arange(2800), 700)
    y = y % 7
    X = rng.normal(size=(2800, m)) + rng.normal(size=(7, m))[y]
    train = FeatureSet("drawn", X + rng.normal(size=(4, m))[ids], y, ids)
    fedcgs, mixed, maps = seconds(
        [
            lambda: fit_rows(FedCGSClassifier(), train),
            lambda: fit_rows(MixedEffectsClassifier(tau=0), train),
            lambda: fit_rows(MixedEffectsClassifier(), train),
        ],
        15,
    )
    print("fit, 2,800 rows of 512 features and 7 classes at 4 clients")
    print(f"  FedCGS {fedcgs:.3f} s, mixed effects with tau=0 {mixed:.3f} s: ", end="")
    print(f"{mixed / fedcgs:.2f} times as long; with maps {maps:.1f} s")
    for n_clients, n_classes in ((4, 7), (50, 50), (100, 100)):
        client, label = np.divmod(np.arange(n_clients * n_classes), n_classes)
        means = rng.normal(size=(n_clients, m))[client]
        means = means + rng.normal(size=(n_classes, m))[label]
        means += rng.normal(size=means.shape)
        counts = rng.integers(1, 50, len(means)).astype(float)
        within = float(m * (counts.sum() - len(counts)))
        cells = Cells(client, label, counts, means, within)
        (took,) = seconds([lambda cells=cells: fit_mixed_effects(cells)], 3)
        print(f"variance components, {n_clients} x {n_classes} cells: {took:.2f} s")


TABLES = {
    "main": (run_main, "mixed effects"),
    "heads": (run_heads, "mixed effects"),
    "unlabelled": (run_unlabelled, next(iter(KNOWN_SITES))),
    "join": (run_join, next(iter(NEW_SITES))),
    "heart": (run_heart, None),
}


def run_table(name, data, alphas, arguments):
    """Scores of all partitions, those from earlier runs included."""
    results = Path(arguments.results)
    done = {}
    if results.exists():
        for line in results.read_text().splitlines():
            *key, scores = json.loads(line)
            done[tuple(key)] = scores
    run = TABLES[name][0]
    last = arguments.first + arguments.partitions
    keys = [(name, a, seed) for seed in range(arguments.first, last) for a in alphas]
    for key in keys:
        if key not in done:
            print(*key, file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as memory:
                done[key] = run(data, *key[1:], arguments, memory)
            with results.open("a") as file:
                file.write(json.dumps([*key, done[key]]) + "\n")
    return {alpha: [done[key] for key in keys if key[1] == alpha] for alpha in alphas}


def print_table(name, runs):
    base = TABLES[name][1]
    print(f"\n{name}: accuracy (%)", end="")
    print(f", and difference to {base} +/- its s.e." if base else " +/- s.e.")
    heads = [f"alpha {alpha or 'none'}" for alpha in runs] if base else [""]
    methods = list(next(iter(runs.values()))[0])
    width = max(map(len, methods))
    print(" " * width + "".join(f"{head:>22}" for head in heads))
    for method in methods:
        cells = ""
        for scores in runs.values():
            values = np.array([each[method] for each in scores])
            apart = values - ([each[base] for each in scores] if base else 0)
            error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else 0
            sign = f" {apart.mean():+6.1f}" if base else ""
            cell = f"{values.mean():.1f}{sign} +/- {error:.1f}"
            cells += f"{cell if method != base else f'{values.mean():.1f}':>22}"
        print(f"{method:<{width}}{cells}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", metavar="FILE.npz")
    parser.add_argument("--heart", metavar="FOLDER")
    parser.add_argument("--tables", default="main,unlabelled,join,cost")
    parser.add_argument("--alphas", nargs="*", default="none 1 0.1 0.05 0.01".split())
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--first", type=int, default=100, help="the first partition")
    parser.add_argument("--fedavg", action="store_true", help="FedAvg in heads")
    parser.add_argument("--results", default="mixed_effects.jsonl", metavar="FILE")
    arguments = parser.parse_args()
    set_config(enable_metadata_routing=True)
    data = FeatureSet.embedded()
    if arguments.features:
        data = FeatureSet.from_file(arguments.features)
    alphas = [None if alpha == "none" else float(alpha) for alpha in arguments.alphas]
    for name in arguments.tables.split(","):
        if name == "cost":
            print_cost()
        elif name == "heart":
            hospitals = load_hospitals(arguments.heart)
            print_table(name, run_table(name, hospitals, [None], arguments))
        else:
            print_table(name, run_table(name, data, alphas, arguments))


if __name__ == "__main__":
    main()
