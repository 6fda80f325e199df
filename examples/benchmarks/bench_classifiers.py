"""The classifiers with and without alignment, on a features file.

Run with::

    python examples/benchmarks/bench_classifiers.py --features FILE.npz

The file holds ``X``, ``y`` and ``client`` (or ``domain``, an index into ``domains``).
The protocol is the paper's: 70 % of each (client, class) cell for training, of which
clients keep Dirichlet shares per class; test rows are not skewed. Printed are the mean
over partitions of the accuracy of each client, their macro mean with its standard error
over partitions, and the standard deviation over clients.

With ``--checks`` it prints the wire and speed figures instead.
"""

import argparse
import os
import sys
import tempfile
import time
from functools import partial

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline

from skslot import (
    FedCGSClassifier,
    FedCOFClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    FedQDAClassifier,
    FedRidgeClassifier,
)
from skslot.classifiers._fedpft import single_gaussian
from skslot.experiments import FeatureSet
from skslot.model_selection import paper_split


def methods(names):
    known = {
        "FedCGS": lambda: FedCGSClassifier(),
        "FedCGS within": lambda: FedCGSClassifier(covariance="within"),
        "FedCGS identity": lambda: FedCGSClassifier("identity", priors="uniform"),
        "FedRidge": lambda: FedRidgeClassifier(),
        "Fed3R": lambda: FedRidgeClassifier.as_fed3r(),
        "FedCOF": lambda: FedCOFClassifier(),
        "FedQDA": lambda: FedQDAClassifier(),
        "FedQDA diag": lambda: FedQDAClassifier("diag"),
        "FedPFT": lambda: FedPFTClassifier(random_state=0),
        "FedPFT 100 rows": lambda: FedPFTClassifier(draws=100, random_state=0),
        "FedPFT low rank": lambda: FedPFTClassifier(
            covariance_type="lowrank", draws=100, random_state=0
        ),
        "FedPFT merged": lambda: FedPFTClassifier(pool="class", random_state=0),
        "O-FedAvg": _fedavg,
        "O-FedAvg paper": lambda: _fedavg(paper=True),
    }
    return {name: known[name] for name in (names or known)}


def _fedavg(paper=False):
    from skslot import FedAvgClassifier

    if paper:
        return FedAvgClassifier.as_in_paper(random_state=0)
    return FedAvgClassifier(random_state=0)


def accuracy_by_client(classifier, data, train, test, tau, memory):
    X, y, clients = data
    aligner = FederatedOTAligner(tau=tau, memory=memory)
    pipeline = make_pipeline(aligner, classifier)
    with config_context(enable_metadata_routing=True):
        pipeline.fit(X[train], y[train], client_ids=clients[train])
        right = pipeline.predict(X[test], client_ids=clients[test]) == y[test]
    return [right[clients[test] == client].mean() for client in np.unique(clients)]


def print_table(data, alphas, taus, partitions, min_samples, names, memory):
    clients = np.unique(data[2])
    head = "".join(f"{str(client)[:9]:>10}" for client in clients)
    print(f"{'alpha':<7}{'method':<16}{'tau':>5}{head}{'mean':>8}{'s.e.':>6}{'std':>6}")
    for alpha in alphas:
        splits = [
            paper_split(*data[1:], alpha, min_samples=min_samples, random_state=seed)
            for seed in range(partitions)
        ]
        for name, make in methods(names).items():
            for tau in taus:
                print(f"{alpha} {name} tau={tau}", file=sys.stderr, flush=True)
                runs = [
                    accuracy_by_client(make(), data, train, test, tau, memory)
                    for train, test in splits
                ]
                runs = 100 * np.array(runs)
                means = runs.mean(axis=1)
                error = means.std(ddof=1) / np.sqrt(len(means))
                row = "".join(f"{value:>10.1f}" for value in runs.mean(axis=0))
                print(
                    f"{alpha!s:<7}{name:<16}{tau:>5g}{row}{means.mean():>8.1f}"
                    f"{error:>6.1f}{runs.std(axis=1).mean():>6.1f}",
                    flush=True,
                )


def wire_variants():
    aligner = FederatedOTAligner()
    fedpft = partial(FedPFTClassifier, random_state=0)
    early = LogisticRegression(max_iter=1000)
    converged = LogisticRegression(solver="newton-cg", tol=1e-6, max_iter=1000)
    return {
        "FedCGS total, one upload": partial(FedCGSClassifier, aligner=aligner),
        "FedCGS within, one upload": partial(
            FedCGSClassifier, "within", aligner=aligner
        ),
        "FedPFT spherical": fedpft,
        "FedPFT, rows not centred": partial(fedpft, estimator=early),
        "FedPFT, not centred but converged": partial(fedpft, estimator=converged),
        "FedPFT spherical, one upload": partial(fedpft, aligner=aligner),
    }


def print_wire_checks(data, partitions):
    """What a narrower wire changes in predictions, accuracy and bytes."""
    X, y, clients = data
    print(
        f"{'classifier':<36}{'wire':<9}{'changed':>9}{'points':>8}{'bytes up':>10}"
        f"{'fit s':>7}"
    )
    for name, make in wire_variants().items():
        rows = {wire: [] for wire in ("float64", "float32", "float16")}
        for seed in range(partitions):
            train, test = paper_split(y, clients, 0.1, random_state=seed)
            for wire, results in rows.items():
                classifier, sent = make(), []
                start = time.process_time()
                for client in np.unique(clients):
                    own = train[clients[train] == client]
                    sent.append(classifier.client_update(X[own], y[own], client=client))
                classifier.server_aggregate([each.as_received(wire) for each in sent])
                seconds = time.process_time() - start
                predicted = classifier.predict(X[test], client_ids=clients[test])
                if wire == "float64":
                    exact = predicted
                gain = np.mean(predicted == y[test]) - np.mean(exact == y[test])
                up = max(message.nbytes(wire) for message in sent)
                changed = np.mean(predicted != exact)
                results.append([100 * changed, 100 * gain, up, seconds])
        for wire, results in rows.items():
            changed, gain, _, seconds = np.mean(results, axis=0)
            print(
                f"{name:<36}{wire:<9}{changed:>8.2f}%{gain:>+8.2f}"
                f"{results[-1][2]:>10}{seconds:>7.2f}",
                flush=True,
            )


def print_closed_form_speed(when):
    """EM gains more than the closed form from memory that was in use before."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 512))
    print(f"closed form against GaussianMixture(n_components=1), {when}:")
    for kind in ("spherical", "diag", "full"):
        closed, em = [], []
        for _ in range(25):
            start = time.process_time()
            single_gaussian(X, kind)
            closed.append(time.process_time() - start)
            start = time.process_time()
            GaussianMixture(covariance_type=kind).fit(X)
            em.append(time.process_time() - start)
        ratio = np.median(em) / np.median(closed)
        print(f"  {kind:<10} {ratio:>6.0f} times faster (400 rows, 512 features)")


def print_costs(data):
    """Time of a fit in closed form against that of FedCGS on the same rows."""
    X, y, clients = data
    makers = {
        "FedCGS": FedCGSClassifier,
        "FedRidge": FedRidgeClassifier,
        "FedCOF": FedCOFClassifier,
        "FedQDA": FedQDAClassifier,
        "FedQDA diag": partial(FedQDAClassifier, "diag"),
    }
    seconds = {name: [] for name in makers}
    for _ in range(7):
        for name, make in makers.items():
            start = time.process_time()
            make().fit(X, y, client_ids=clients)
            seconds[name].append(time.process_time() - start)
    print(f"fit of {len(X)} rows of {X.shape[1]} features, median of 7:")
    for name, times in seconds.items():
        ratio = np.median(times) / np.median(seconds["FedCGS"])
        print(f"  {name:<12} {np.median(times):>7.3f} s {ratio:>6.2f} times FedCGS")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", required=True, metavar="FILE.npz")
    parser.add_argument("--alphas", type=float, nargs="*", default=[0.1, 0.05, 0.01])
    parser.add_argument("--taus", type=float, nargs="*", default=[0.0, 0.4])
    parser.add_argument("--partitions", type=int, default=5)
    parser.add_argument("--min-samples", type=int, default=10, help="rows of a client")
    parser.add_argument("--methods", nargs="*", default=None)
    parser.add_argument("--no-shift", action="store_true", help="no label shift")
    parser.add_argument("--checks", action="store_true")
    arguments = parser.parse_args()
    if arguments.checks:
        print_closed_form_speed("in a fresh process")
    features = FeatureSet.from_file(arguments.features)
    data = features.X, features.y, features.client_ids
    if arguments.checks:
        print_costs(data)
        print_wire_checks(data, arguments.partitions)
        print_closed_form_speed("after other work")
        return
    alphas = [None] if arguments.no_shift else arguments.alphas
    with tempfile.TemporaryDirectory() as memory:
        print_table(
            data,
            alphas,
            arguments.taus,
            arguments.partitions,
            arguments.min_samples,
            arguments.methods,
            memory,
        )


if __name__ == "__main__":
    main()
