"""Running an experiment, with what is done kept in a file."""

import json
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from .. import __version__
from ..alignment import FederatedOTAligner
from ..classifiers import FedAvgClassifier, FedCGSClassifier, FedPFTClassifier
from ._plans import PLANS, Run
from ._tables import ExperimentResult

FEDAVG_ROUNDS = 10
METHODS = {
    "FedAvg": lambda seed: FedAvgClassifier(FEDAVG_ROUNDS, random_state=seed),
    "O-FedAvg": lambda seed: FedAvgClassifier(random_state=seed),
    "FedCGS": lambda seed: FedCGSClassifier(),
    "FedPFT": lambda seed: FedPFTClassifier(random_state=seed),
}


def run_experiment(name, data, n_runs=5, *, results=None, progress=None):
    """Run one of the paper's experiments.

    Parameters
    ----------
    name : {"main", "skew", "domain-only", "tau", "backbones", "scalability"}
        Which experiment.
    data : FeatureSet
        What it runs on.
    n_runs : int, default=5
        How many partitions, and how many seeds on the first partition.
    results : str or path-like, default=None
        File to which each run is added when it is done (JSON lines). Runs that it holds
        already, of the same data and version, are not repeated.
    progress : callable, default=None
        Called with (runs done, runs in all).

    Returns
    -------
    result : ExperimentResult
        Prints in the paper's layout.

    See Also
    --------
    paper_results : What the paper reports.

    Examples
    --------
    >>> from skslot.experiments import FeatureSet, run_experiment
    >>> run_experiment("nonsense", FeatureSet.embedded())
    Traceback (most recent call last):
    ValueError: name must be one of 'main', 'skew', ...
    """
    if name not in PLANS:
        raise ValueError(f"name must be one of {str([*PLANS])[1:-1]}, got {name!r}.")
    plan = PLANS[name]
    data = data.with_finer_clients(plan.n_parts)
    runs = plan.runs(n_runs)
    store = _Store(results, data)
    accuracy = {run: store.done[run] for run in runs if run in store.done}
    _report(progress, len(accuracy), len(runs))
    todo = [run for run in runs if run not in accuracy]
    for (alpha, partition), same_rows in groupby(todo, _partition_of):
        train, test = data.partition(alpha, partition)
        for tau, same_features in groupby(same_rows, lambda run: run.tau):
            features = _aligned(data, train, test, tau)
            for run in same_features:
                accuracy[run] = _accuracy(run, data, train, test, *features)
                store.add(run, accuracy[run])
                _report(progress, len(accuracy), len(runs))
    return ExperimentResult(
        name, data.name, data.clients, n_runs, accuracy, data.dataset
    )


def _partition_of(run):
    return run.alpha, run.partition


def _report(progress, done, total):
    if progress is not None:
        progress(done, total)


def _aligned(data, train, test, tau):
    """Training and test features, which all methods share."""
    if tau == 0:
        return data.X[train], data.X[test]
    ids = data.client_ids
    aligner = FederatedOTAligner(tau=tau).fit(data.X[train], client_ids=ids[train])
    return tuple(
        aligner.transform(data.X[rows], client_ids=ids[rows]) for rows in (train, test)
    )


def _accuracy(run, data, train, test, train_features, test_features):
    """Percent of right predictions at each client."""
    classifier = METHODS[run.method](run.seed)
    ids = data.client_ids
    classifier.fit(train_features, data.y[train], client_ids=ids[train])
    right = classifier.predict(test_features) == data.y[test]
    return [100 * float(right[ids[test] == c].mean()) for c in data.clients]


class _Store:
    """Runs that are done, by what determines their result."""

    def __init__(self, path, data):
        self.path = None if path is None else Path(path)
        self.origin = {"version": __version__, "data": data.fingerprint()}
        self.done = {}
        if self.path is not None and self.path.exists():
            text = self.path.read_text(encoding="utf-8", errors="replace")
            # half a line may be all that is left of a first run that was killed
            known = [self._read(line) for line in text.splitlines()]
            if text and not any(known) and not text.startswith('{"origin": '):
                raise ValueError(
                    f"{self.path} holds no runs of experiments; name another file for "
                    "the results, nothing was added to this one."
                )
            if text and not text.endswith("\n"):
                self._append("\n")

    def _read(self, line):
        """Keep the run in a line, if it is ours; tell whether there is one."""
        try:
            record = json.loads(line)
            origin, run, accuracy = (record[k] for k in ("origin", "run", "accuracy"))
        # half a line, of a run that was killed while it wrote, or no run at all
        except (ValueError, KeyError, TypeError):
            return False
        if origin == self.origin:
            self.done[Run(**run)] = accuracy
        return True

    def add(self, run, accuracy):
        if self.path is None:
            return
        record = {"origin": self.origin, "run": asdict(run), "accuracy": accuracy}
        self._append(json.dumps(record) + "\n")

    def _append(self, text):
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
