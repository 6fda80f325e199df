"""What a search over tau costs on top of a search over the shrinkage alone.

Run with::

    python examples/benchmarks/bench_grid_cost.py                        # simulated
    python examples/benchmarks/bench_grid_cost.py --features FILE.npz

The file holds ``X``, ``y`` and ``client`` (or ``domain``, an index into ``domains``).
Two searches by GridSearchCV take turns: three values of the shrinkage at one tau, and
the same three with six values of tau each. Both have an aligner with ``memory=``, whose
cache is empty at the start of every search. The median over the turns of the CPU time
on one BLAS thread is printed, and the ratio, which skslot promises to be 1.3 at most.

What comes on top is moving the rows, fitting the classifier and predicting for each
tau, so the ratio grows with the number of rows and with the cost of the classifier.
"""

import argparse
import os
import sys
import tempfile
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

from statistics import median

from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.datasets import make_shifted_clients
from skslot.experiments import FeatureSet
from skslot.model_selection import StratifiedClientKFold, paper_split

TAUS = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
SHRINKAGES = ["ledoit_wolf", "oas", 0.1]
REQUIRED = 1.3


MODELS = {
    "aligner, FedCGS": Pipeline(
        [("aligner", FederatedOTAligner()), ("head", FedCGSClassifier())]
    ),
    "FedCGS(aligner)": FedCGSClassifier(aligner=FederatedOTAligner()),
}


def training_rows(options):
    """Features, labels and clients of the training rows of one partition."""
    if options.features:
        data = FeatureSet.from_file(options.features)
        X, y, clients = data.X, data.y, data.client_ids
    else:
        data = make_shifted_clients(
            options.rows, n_features=options.width, n_classes=7, random_state=0
        )
        X, y, clients = data.data, data.target, data.client_ids
    train, _ = paper_split(y, clients, options.alpha or None)
    return X[train], y[train], clients[train]


def search(model, grid, rows, n_splits):
    """One search with a cache that is empty at its start."""
    X, y, clients = rows
    with (
        tempfile.TemporaryDirectory() as memory,
        config_context(enable_metadata_routing=True),
    ):
        model.set_params(aligner__memory=memory)
        cv = StratifiedClientKFold(n_splits)
        search = GridSearchCV(model, grid, cv=cv, error_score="raise")
        search.fit(X, y, client_ids=clients)


def compare(name, rows, options):
    """Median CPU seconds of the small and of the large search."""
    small = {"aligner__shrinkage": SHRINKAGES}
    large = {**small, "aligner__tau": TAUS}
    times = [], []
    for turn in range(options.repeats):
        for grid, taken in zip((small, large), times, strict=True):
            print(f"{name}, turn {turn + 1}", file=sys.stderr, flush=True)
            start = time.process_time()
            search(MODELS[name], grid, rows, options.folds)
            taken.append(time.process_time() - start)
    return map(median, times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", metavar="FILE.npz")
    parser.add_argument("--rows", type=int, default=6000, help="if simulated")
    parser.add_argument("--width", type=int, default=512, help="if simulated")
    parser.add_argument("--alpha", type=float, default=0.1, help="0 = no label shift")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    rows = training_rows(options)
    print(f"{len(rows[0])} training rows, {rows[0].shape[1]} features")
    print(
        f"{'model':<18}{'shrinkage':>11}{'x tau':>9}{'ratio':>8}{'required':>10}  met"
    )
    for name in options.models:
        small, large = compare(name, rows, options)
        ratio = large / small
        met = "yes" if ratio <= REQUIRED else "NO"
        print(
            f"{name:<18}{small:>9.1f} s{large:>7.1f} s{ratio:>8.2f}"
            f"{f'<= {REQUIRED}':>10}  {met}",
            flush=True,
        )


if __name__ == "__main__":
    main()
