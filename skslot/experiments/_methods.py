"""All one-shot methods on the same partitions, beside local and pooled training.

A method that shall be on the leaderboard is a line of ``METHODS``, and an aligner one
of ``ALIGNERS``.
"""

import time
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from .._utils import can_train_nets, ignored
from ..alignment import AlignmentWarning, FederatedOTAligner, MixedEffectsAligner
from ..classifiers import (
    FedAvgClassifier,
    FedCGSClassifier,
    FedCOFClassifier,
    FedCoresetClassifier,
    FedEnsembleClassifier,
    FedMergeClassifier,
    FedPFTClassifier,
    FedQDAClassifier,
    FedRidgeClassifier,
    MixedEffectsClassifier,
)
from ._leaderboard import BASE, LOCAL, POOLED, Leaderboard
from ._paper_tables import NEED_TORCH
from ._sites import (
    LocalDiscriminant,
    accuracy_at,
    align_rows,
    discriminant_analysis,
    fit_rows,
)
from ._store import RunStore


class PooledTraining:
    """Discriminant analysis of the rows of all sites, as if these could be sent."""

    def fit(self, X, y, client_ids):
        """Fit one classifier to all rows."""
        self.model = discriminant_analysis(X, y)
        return self

    def predict(self, X, client_ids):
        """Predict rows by the one classifier."""
        return self.model.predict(X)


DRAWN = {"random_state": 0}
METHODS = {
    LOCAL: LocalDiscriminant(),
    POOLED: PooledTraining(),
    BASE: FedCGSClassifier(),
    "FedCGS within": FedCGSClassifier("within"),
    "nearest mean": FedCGSClassifier("identity", priors="uniform"),
    "FedRidge": FedRidgeClassifier(),
    "AFL": FedRidgeClassifier.as_afl(),
    "Fed3R": FedRidgeClassifier.as_fed3r(),
    "FedCOF": FedCOFClassifier(),
    "FedQDA": FedQDAClassifier(),
    "naive Bayes": FedQDAClassifier("diag"),
    "FedPFT": FedPFTClassifier(**DRAWN),
    "FedPFT diag": FedPFTClassifier(covariance_type="diag", **DRAWN),
    "FedPFT lowrank": FedPFTClassifier(covariance_type="lowrank", **DRAWN),
    "FedPFT 100 draws": FedPFTClassifier(draws=100, **DRAWN),
    "CCVR": FedPFTClassifier(covariance_type="full", pool="class", **DRAWN),
    "FedCoreset": FedCoresetClassifier(**DRAWN),
    "FedCoreset herding": FedCoresetClassifier(
        "herding", allow_real_rows=True, **DRAWN
    ),
    "head average": FedMergeClassifier("none"),
    "RegMean": FedMergeClassifier("gram"),
    "Fisher merging": FedMergeClassifier("diag"),
    "FedLPA": FedMergeClassifier("kfac"),
    "ensemble": FedEnsembleClassifier("mean"),
    "ensemble weighted": FedEnsembleClassifier("weighted"),
    "ensemble vote": FedEnsembleClassifier("vote"),
    "ensemble stack": FedEnsembleClassifier("stack"),
    "O-FedAvg": FedAvgClassifier(**DRAWN),
    "mixed effects": MixedEffectsClassifier(),
}
ALIGNERS = {
    "none": None,
    "SLOT 0.4": FederatedOTAligner(0.4),
    "SLOT auto": FederatedOTAligner("auto"),
    "mixed effects": MixedEffectsAligner(),
}
# The first two are not federated, the last one is an alignment itself.
WITHOUT_ALIGNER = (LOCAL, POOLED, "mixed effects")
ALPHAS = (None, 1.0, 0.1, 0.05, 0.01)


@dataclass(frozen=True)
class MethodRun:
    """One training run: what is trained, with which alignment, on which partition."""

    alpha: float | None
    partition: int
    method: str
    alignment: str


def compare_methods(
    data,
    methods=None,
    alphas=ALPHAS,
    n_runs=5,
    *,
    alignments=tuple(ALIGNERS),
    results=None,
    progress=None,
    n_jobs=None,
):
    """Compare all one-shot methods on the same partitions, aligned and not.

    Beside them are the two ends between which they are expected: discriminant analysis
    of each site alone, and of the rows of all sites pooled.

    Parameters
    ----------
    data : FeatureSet
        What to compare them on.
    methods : list of str, default=None
        Names of the methods, as the table has them; all by default, but for those that
        need torch where it is not installed. FedCGS without alignment always runs,
        since the others are compared with it.
    alphas : list of float or None, default=(None, 1.0, 0.1, 0.05, 0.01)
        Concentrations of the label shift; None for no label shift.
    n_runs : int, default=5
        How many partitions.
    alignments : list of str, default=("none", "SLOT 0.4", "SLOT auto", "mixed effects")
        Alignments to combine the methods with, in one upload where a method has an
        ``aligner``.
    results : str or path-like, default=None
        File to which each run is added when it is done (JSON lines). Runs that it holds
        already, of the same data and version, are not repeated.
    progress : callable, default=None
        Called with (runs done, runs in all).
    n_jobs : int, default=None
        Processes over runs.

    Returns
    -------
    board : Leaderboard
        Prints as a table, best methods first.

    See Also
    --------
    run_experiment : The paper's experiments.

    Examples
    --------
    >>> from skslot.experiments import FeatureSet, compare_methods
    >>> board = compare_methods(FeatureSet.embedded(), ["FedCOF"], [0.1], n_runs=2)
    >>> for row in board.rows():
    ...     if row.alignment == "none":
    ...         print(row.method, f"{row.sent / 1000:.0f} kB")
    FedCOF 2 kB
    FedCGS 12 kB
    """
    left_out = []
    if methods is None and not can_train_nets():
        left_out = [name for name in METHODS if name in NEED_TORCH]
    names = [name for name in methods or METHODS if name not in left_out]
    _check_names("methods", names, METHODS)
    _check_names("alignments", alignments, ALIGNERS)
    runs = _list_runs(names, alignments, alphas, n_runs)
    store = RunStore(results, data, MethodRun)
    progress = progress or (lambda done, total: None)
    found = {run: store.done[run] for run in runs if run in store.done}
    progress(len(found), len(runs))
    todo = [run for run in runs if run not in found]
    jobs = (delayed(_run)(data, run) for run in todo)
    for run, measured in Parallel(n_jobs, return_as="generator")(jobs):
        found[run] = measured
        store.add(run, measured)
        progress(len(found), len(runs))
    return Leaderboard(data.name, data.clients, n_runs, found, left_out)


def _check_names(parameter, names, known):
    for name in names:
        if name not in known:
            raise ValueError(
                f"{parameter} must be among {', '.join(known)}; got {name!r}."
            )


def _list_runs(names, alignments, alphas, n_runs):
    """List what to run, whole partitions first; each run once."""
    pairs = [(BASE, "none")]
    for name in names:
        pairs += product([name], ["-"] if name in WITHOUT_ALIGNER else alignments)
    alphas = [None if alpha is None else float(alpha) for alpha in alphas]
    keys = product(range(n_runs), alphas, pairs)
    runs = [MethodRun(alpha, partition, *pair) for partition, alpha, pair in keys]
    return list(dict.fromkeys(runs))


def _run(data, run):
    """Measure one run: accuracy at each client, bytes from it, seconds of one core."""
    parts = data.partition(run.alpha, run.partition)
    train, test = (data.select(rows) for rows in parts)
    if run.method in NEED_TORCH:
        import_module("skorch")  # takes seconds, which are not those of the method
    start = time.process_time()
    try:
        with threadpool_limits(1):  # threads are no faster on matrices this small
            accuracy, sent = measure(
                METHODS[run.method], ALIGNERS.get(run.alignment), train, test
            )
    except ValueError as error:  # a method that cannot learn from these rows
        return run, {"accuracy": None, "error": " ".join(str(error).split())}
    seconds = time.process_time() - start
    return run, {"accuracy": accuracy, "sent": sent, "seconds": seconds}


def measure(classifier, aligner, train, test, dtype="float32"):
    """Train and test a classifier, aligned unless ``aligner`` is None.

    Messages are sent with the precision ``dtype``. Return the percent of right
    predictions at each client, and the bytes that it sent.
    """
    classifier = clone(classifier, safe=False)  # a baseline is copied
    sent = np.zeros(len(train.clients), dtype=int)
    if aligner is not None and hasattr(classifier, "aligner"):
        classifier.set_params(aligner=aligner)
    elif aligner is not None:  # the statistics are a message of their own
        aligner = fit_rows(clone(aligner), train)
        train, test = align_rows(aligner, train, test)
        sent += [message.nbytes(dtype) for message in aligner.statistics_]
    sent += _train(classifier, train, dtype)
    return accuracy_at(classifier, test), sent.tolist()


def _train(classifier, train, dtype):
    """Fit a classifier, and count the bytes that each client sends for it."""
    rows = [train.client_ids == client for client in train.clients]
    if isinstance(classifier, LocalDiscriminant):
        fit_rows(classifier, train)
        return [0 for _ in rows]
    if isinstance(classifier, PooledTraining):  # rows and labels are sent
        fit_rows(classifier, train)
        size = np.dtype(dtype).itemsize * (train.X.shape[1] + 1)
        return [size * own.sum() for own in rows]
    if isinstance(classifier, FedAvgClassifier):
        return _train_in_rounds(classifier, train, rows, dtype)
    classes = np.unique(train.y)
    messages = [
        classifier.client_update(
            train.X[own], train.y[own], classes=classes, client=client
        )
        for client, own in zip(train.clients, rows, strict=True)
    ]
    with ignored(AlignmentWarning):
        classifier.server_aggregate([each.as_received(dtype) for each in messages])
    return [message.nbytes(dtype) for message in messages]


def _train_in_rounds(classifier, train, rows, dtype):
    """Do the same for FedAvg, whose messages are as large as their average."""
    fit_rows(classifier, train)
    sent = []
    for client, own in zip(train.clients, rows, strict=True):
        head = replace(classifier.model_, client=client)
        sent.append(classifier.n_rounds * head.nbytes(dtype))
        if classifier.standardize:
            summary = classifier.client_summary(train.X[own], client=client)
            sent[-1] += summary.nbytes(dtype)
    return sent
