"""How well each way of choosing tau does, against the best tau.

Run with::

    python examples/benchmarks/bench_tau_selection.py --features FILE.npz

The file holds ``X``, ``y`` and ``client`` (or ``domain``, an index into ``domains``).
For every label shift, partition and classifier, tau is chosen by each rule from the
training rows alone, and the test accuracy (macro mean over clients, labels not skewed)
at that tau is compared with the best on the grid: the difference is the regret. Results
are kept in ``--results`` (JSON lines), so a run that was interrupted goes on where it
stopped.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import groupby, product
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn import set_config
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier
from skslot.experiments import FeatureSet
from skslot.metrics import client_scores
from skslot.model_selection import (
    CellHoldoutKFold,
    FederatedGridSearchCV,
    StratifiedClientKFold,
    paper_split,
)

TAUS = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
CLASSIFIERS = {
    "FedCGS total": lambda: FedCGSClassifier(),
    "FedCGS within": lambda: FedCGSClassifier("within"),
    "FedPFT": lambda: FedPFTClassifier(random_state=0),
}


def run_setting(data, alpha, seed, name, n_splits, memory):
    """Test accuracy at every tau, and the tau that each rule chooses."""
    X, y, clients = data
    train, test = paper_split(y, clients, alpha, random_state=seed)
    training = {"X": X[train], "y": y[train], "client_ids": clients[train]}
    # the reference is the same to four digits at a tolerance that is faster to reach
    aligner = FederatedOTAligner(memory=memory, tol=1e-5)
    pipeline = Pipeline([("align", aligner), ("head", CLASSIFIERS[name]())])
    accuracy = {}
    for tau in [*TAUS, "auto"]:
        pipeline.set_params(align__tau=tau).fit(**training)
        predicted = pipeline.predict(X[test], client_ids=clients[test])
        accuracy[tau] = client_scores(y[test], predicted, clients[test]).mean
    grid = {"align__tau": TAUS}
    plain = GridSearchCV(pipeline, grid, cv=StratifiedClientKFold(5)).fit(**training)
    search = FederatedGridSearchCV(pipeline, grid, cv=CellHoldoutKFold(n_splits))
    search.fit(**training)
    held_out = TAUS[int(np.argmax(search.cv_results_["mean_test_score"]))]
    chosen = {
        "tau = 0": 0.0,
        "tau = 0.4": 0.4,
        "auto": "auto",
        "stratified CV": plain.best_params_["align__tau"],
        "cell hold-out": held_out,
        "FederatedGridSearchCV": search.best_tau_,
    }
    return {
        "alpha": alpha,
        "seed": seed,
        "classifier": name,
        "accuracy": [accuracy[tau] for tau in TAUS],
        "tau_auto": search.tau_auto_,
        "chosen": chosen,
        "by_rule": {rule: accuracy[tau] for rule, tau in chosen.items()},
        "best": max(accuracy.values()),
    }


def run_all(arguments):
    results = Path(arguments.results)
    done = []
    if results.exists():
        done = [json.loads(line) for line in results.read_text().splitlines()]
    known = {(r["alpha"], r["seed"], r["classifier"]) for r in done}
    alphas = [None if alpha <= 0 else alpha for alpha in arguments.alphas]
    todo = [
        (seed, alpha, name)
        for seed, alpha, name in product(
            range(arguments.partitions), alphas, arguments.classifiers
        )
        if (alpha, seed, name) not in known
    ]
    features = FeatureSet.from_file(arguments.features)
    data = features.X, features.y, features.client_ids
    started = time.monotonic()
    for (seed, alpha), settings in groupby(enumerate(todo, 1), lambda s: s[1][:2]):
        with tempfile.TemporaryDirectory() as memory:  # shared by the classifiers
            for count, (_, _, name) in settings:
                result = run_setting(data, alpha, seed, name, arguments.folds, memory)
                done.append(result)
                with results.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                left = (time.monotonic() - started) / count * (len(todo) - count)
                text = f"{count}/{len(todo)}: alpha={alpha} partition {seed} {name}"
                text += f", about {left / 60:.0f} min left"
                print(text, file=sys.stderr, flush=True)
    return done


def print_tables(done):
    rules = list(done[0]["by_rule"])
    width = max(map(len, rules)) + 2
    alphas = sorted({r["alpha"] for r in done}, key=lambda a: -(a or np.inf))
    names = list(dict.fromkeys(r["classifier"] for r in done))
    print("Test accuracy (%), mean over partitions; alpha = none is no label shift.")
    head = "".join(f"{rule:>{max(len(rule) + 2, 10)}}" for rule in [*rules, "best tau"])
    print(f"{'classifier':<15}{'alpha':>6}{'n':>4}{head}")
    for name in names:
        for alpha in alphas:
            runs = [r for r in done if (r["classifier"], r["alpha"]) == (name, alpha)]
            means = [
                100 * np.mean([r["by_rule"][rule] for r in runs]) for rule in rules
            ]
            means.append(100 * np.mean([r["best"] for r in runs]))
            row = "".join(
                f"{value:>{max(len(rule) + 2, 10)}.1f}"
                for rule, value in zip([*rules, "best tau"], means, strict=True)
            )
            print(f"{name:<15}{alpha or 'none':>6}{len(runs):>4}{row}")
    print("\nMean regret against the best tau (points), and standard error over runs.")
    for rule in rules:
        regret = 100 * np.array([r["best"] - r["by_rule"][rule] for r in done])
        error = regret.std(ddof=1) / np.sqrt(len(regret))
        print(f"{rule:<{width}}{regret.mean():>6.2f} +/- {error:.2f}")


def draw(done, path):
    """Accuracy over tau for each label shift, and where the rules end up."""
    import matplotlib.pyplot as plt

    rules = {
        "stratified CV": ("X", "#d55e00"),
        "auto": ("^", "#009e73"),
        "FederatedGridSearchCV": ("o", "#0072b2"),
    }
    alphas = sorted({r["alpha"] for r in done}, key=lambda a: -(a or np.inf))
    figure, axes = plt.subplots(1, len(alphas), figsize=(11, 3), layout="constrained")
    for alpha, ax in zip(alphas, axes, strict=True):
        runs = [r for r in done if r["alpha"] == alpha]
        curve = 100 * np.mean([r["accuracy"] for r in runs], axis=0)
        ax.plot(TAUS, curve, color="0.6", label="fixed tau")
        for rule, (marker, colour) in rules.items():
            taus = [r["chosen"][rule] for r in runs]
            if rule == "auto":
                taus = [r["tau_auto"] for r in runs]
            level = 100 * np.mean([r["by_rule"][rule] for r in runs])
            ax.plot(np.mean(taus), level, marker, color=colour, label=rule, ms=8)
        ax.set_title("no label shift" if alpha is None else f"alpha = {alpha:g}")
        ax.set_xlabel("tau (mean of those chosen)")
    axes[0].set_ylabel("test accuracy (%)")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4
    )
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", required=True, metavar="FILE.npz")
    parser.add_argument("--results", default="tau_selection.jsonl", metavar="FILE")
    parser.add_argument(
        "--alphas", type=float, nargs="*", default=[0, 0.5, 0.1, 0.05], help="0 = none"
    )
    parser.add_argument("--partitions", type=int, default=5)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--classifiers", nargs="*", default=list(CLASSIFIERS))
    parser.add_argument("--figure", metavar="FILE", help="draw the results as well")
    arguments = parser.parse_args()
    set_config(enable_metadata_routing=True)
    done = run_all(arguments)
    print_tables(done)
    if arguments.figure:
        draw(done, arguments.figure)


if __name__ == "__main__":
    main()
