"""What differential privacy costs in accuracy, and how many rows a site needs for it.

Run with::

    python examples/benchmarks/bench_privacy.py
    python examples/benchmarks/bench_privacy.py --features FILE.npz

The file holds ``X``, ``y`` and ``client`` (or ``domain``, an index into ``domains``);
without one the embedded digits are used. Partition s draws with ``rng =
numpy.random.default_rng(s)``: test rows are those where ``rng.random(n) < 0.3``, the
others are for training, without label shift. Nothing is chosen by looking at rows: each
row has its own mean subtracted and is divided by its norm, and the clip norm is 1.

Printed are means over partitions of the accuracy (%, macro mean over clients), and the
mean of the difference to no noise on the same partitions with its standard error.

- ``epsilon``: noise at each site, and noise once, as a trusted curator would add it who
  has the rows of all sites. Mixed effects need statistics of each site; as a row is at
  one site only, a curator would add as much noise to them as the sites do.
- ``rows``: the same with noise at each site that has so many training rows, drawn at
  random (all of its rows, if it has fewer).

Noise comes from NumPy, so that numbers can be reproduced; ``--opendp`` takes that of
the package, which has the same distribution and no seed, and is slower.
"""

import argparse
import os
import warnings
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import patch

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from skslot import FedCGSClassifier, FedRidgeClassifier, MixedEffectsClassifier
from skslot.experiments import FeatureSet
from skslot.privacy import PrivacyBudget

NOISE = "skslot.privacy._budget.opendp_noise"

EPSILONS = (np.inf, 8.0, 3.0, 1.0)
DELTA = 1e-5
METHODS = {
    "FedCGS": FedCGSClassifier(),
    "FedCGS, within": FedCGSClassifier("within"),
    "FedRidge": FedRidgeClassifier(),
    "mixed effects, tau=0": MixedEffectsClassifier(tau=0),
}
LINEAR_MAPS = {"mixed effects": MixedEffectsClassifier()}


def normalised(X):
    """Rows without their own mean, of norm 1."""
    X = X - X.mean(axis=1, keepdims=True)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def split(data, seed):
    """Training and test rows of a partition."""
    is_test = np.random.default_rng(seed).random(len(data.y)) < 0.3
    return data.select(~is_test), data.select(is_test)


def numpy_noise(seed):
    rng = np.random.default_rng([seed, 1])
    return lambda numbers, scale: numbers + scale * rng.standard_normal(len(numbers))


def messages_of(rows, epsilon, classes, by_site=True):
    """What sites send, or a curator in the place of all of them."""
    budget = None if epsilon == np.inf else PrivacyBudget(epsilon, DELTA, 1.0)
    sender = FedCGSClassifier(privacy=budget)
    groups = {"all": slice(None)}
    if by_site:
        groups = {name: rows.client_ids == name for name in np.unique(rows.client_ids)}
    return [
        sender.client_update(rows.X[at], rows.y[at], classes=classes, client=str(name))
        for name, at in groups.items()
    ]


def accuracy(classifier, messages, test, by_site):
    classifier.server_aggregate(messages)
    ids = test.client_ids.astype(str) if by_site else None
    is_right = classifier.predict(test.X, client_ids=ids) == test.y
    sites = np.unique(test.client_ids)
    return 100 * np.mean([is_right[test.client_ids == site].mean() for site in sites])


def run_epsilon(train, test, methods):
    classes, scores = np.unique(train.y), {}
    for epsilon in EPSILONS:
        messages = messages_of(train, epsilon, classes)
        for name, method in methods.items():
            is_mixed = name.startswith("mixed")
            score = accuracy(method, messages, test, is_mixed)
            scores[f"{name}, at sites", epsilon] = score
        once = messages_of(train, epsilon, classes, by_site=False)
        for name in ("FedCGS", "FedCGS, within", "FedRidge"):
            scores[f"{name}, once", epsilon] = accuracy(
                methods[name], once, test, False
            )
    return scores


def run_rows(train, test, sizes, seed):
    rng, scores = np.random.default_rng([seed, 2]), {}
    classes, order = np.unique(train.y), rng.permutation(len(train.y))
    for size in sizes:
        ids = train.client_ids[order]
        kept = [order[ids == site][:size] for site in np.unique(ids)]
        rows = train.select(np.concatenate(kept))
        for epsilon in EPSILONS:
            messages = messages_of(rows, epsilon, classes)
            for name in ("FedRidge", "mixed effects, tau=0"):
                score = accuracy(METHODS[name], messages, test, "mixed" in name)
                scores[f"{name}, {size} rows", epsilon] = score
    return scores


def distance_of_classes(data):
    """Median distance of a class mean from the mean of its site, in clip norms."""
    apart = []
    for site in np.unique(data.client_ids):
        rows = data.select(data.client_ids == site)
        for label in np.unique(rows.y):
            mean = rows.X[rows.y == label].mean(axis=0)
            apart.append(np.linalg.norm(mean - rows.X.mean(axis=0)))
    return np.median(apart)


def print_table(title, runs):
    """A line for each method, a column for each epsilon."""
    heads = [f"epsilon {epsilon:g}" for epsilon in EPSILONS]
    heads[0] = "no noise"
    names = list(dict.fromkeys(name for name, _ in runs[0]))
    width = max(map(len, names))
    print(
        f"\n{title}, {len(runs)} partitions: accuracy (%), and difference to no noise"
    )
    print(" " * width + f"{heads[0]:>10}" + "".join(f"{h:>22}" for h in heads[1:]))
    for name in names:
        plain = np.array([run[name, np.inf] for run in runs])
        cells = f"{plain.mean():>10.1f}"
        for epsilon in EPSILONS[1:]:
            values = np.array([run[name, epsilon] for run in runs])
            apart = values - plain
            error = apart.std(ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0
            cell = f"{values.mean():.1f} {apart.mean():+6.1f} +/- {error:.1f}"
            cells += f"{cell:>22}"
        print(f"{name:<{width}}{cells}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", metavar="FILE.npz")
    parser.add_argument("--tables", default="epsilon,rows")
    parser.add_argument("--partitions", type=int, default=5)
    parser.add_argument("--sizes", nargs="*", type=int, default=[250, 500, 1000, 2000])
    parser.add_argument("--linear-maps", action="store_true", help="tau='auto' too")
    parser.add_argument("--opendp", action="store_true", help="noise of the package")
    arguments = parser.parse_args()
    # class statistics serve mixed effects, whose variances may not be told apart
    warnings.filterwarnings("ignore", message="the search for the variance components")
    data = FeatureSet.embedded()
    if arguments.features:
        data = FeatureSet.from_file(arguments.features)
    data = replace(data, X=normalised(data.X))
    methods = METHODS | (LINEAR_MAPS if arguments.linear_maps else {})
    runs = {name: [] for name in arguments.tables.split(",")}
    for seed in range(arguments.partitions):
        train, test = split(data, seed)
        source = nullcontext() if arguments.opendp else patch(NOISE, numpy_noise(seed))
        with source:
            if "epsilon" in runs:
                runs["epsilon"].append(run_epsilon(train, test, methods))
            if "rows" in runs:
                runs["rows"].append(run_rows(train, test, arguments.sizes, seed))
    for name, results in runs.items():
        print_table(name, results)
    print(
        f"\nclass means are {distance_of_classes(data):.2f} from those of their sites"
    )


if __name__ == "__main__":
    main()
