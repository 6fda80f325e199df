"""Run the paper's experiments, or compare methods, and keep what is done in a file."""

import json
import time
from dataclasses import asdict
from functools import lru_cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from .. import __version__
from .._atomic import naming
from .._methods import METHODS, make_classifier
from .._utils import can_train_nets
from ..alignment import FederatedOTAligner, MixedEffectsAligner
from ._measures import (
    LocalDiscriminant,
    PooledDiscriminant,
    accuracy_at,
    align_rows,
    at_known_sites,
    at_new_sites,
    fit_rows,
    measure,
)
from ._results import OURS, PLANS, ExperimentResult, Leaderboard, Run

BASELINES = {"local": LocalDiscriminant, "pooled": PooledDiscriminant}
ONE_SHOT = [*BASELINES, *(name for name in METHODS if name != "fedavg")]
NEED_TORCH = {"fedavg", "o-fedavg"}
ALIGNERS = {
    "none": None,
    "SLOT 0.4": FederatedOTAligner(0.4),
    "SLOT auto": FederatedOTAligner("auto"),
    "mixed effects": MixedEffectsAligner(),
}
# The baselines are not federated, and mixed effects are an alignment themselves.
WITHOUT_ALIGNER = (*BASELINES, "mixed")
ALPHAS = (None, 1.0, 0.1, 0.05, 0.01)


# ------------------------------------------------------------- the experiments


def run_experiment(name, data, n_runs=5, *, results=None, progress=None):
    """Run one of the paper's experiments.

    Parameters
    ----------
    name : {"main", "skew", "domain-only", "tau", "backbones", "scalability", \
"unlabelled"}
        Which experiment; "unlabelled" is not in the paper.
    data : FeatureSet
        Features to run it on.
    n_runs : int, default=5
        Number of partitions, and of seeds on the first partition.
    results : str or path-like, default=None
        File to which each run is added when it is done (JSON lines). Runs that the file
        has already, for the same data and version, are not repeated.
    progress : callable, default=None
        Called with (runs done, runs in all).

    Returns
    -------
    result : ExperimentResult
        Prints as a table. Methods that need torch are excluded where it is not
        installed, and the last lines name them.

    See Also
    --------
    paper_results : The paper's numbers.

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

    @lru_cache(maxsize=1)
    def partition(alpha, number):
        return [data.select(rows) for rows in data.partition(alpha, number)]

    @lru_cache(maxsize=1)
    def aligned(alpha, number, tau):
        train, test = partition(alpha, number)
        return align_rows(fit_rows(FederatedOTAligner(tau=tau), train), train, test)

    @lru_cache(maxsize=1)
    def at_sites(alpha, number):
        rows = *partition(alpha, number), number
        return at_known_sites(*rows) | at_new_sites(*rows)

    def measure_run(run):
        key, tau = (run.alpha, run.partition), run.alignment
        if name == "unlabelled":
            return {"accuracy": at_sites(*key)[run.method]}
        aligns_itself = tau == 0 or (run.method, tau) in OURS
        train, test = partition(*key) if aligns_itself else aligned(*key, tau)
        classifier = fit_rows(_classifier_of_paper(run), train)
        return {"accuracy": accuracy_at(classifier, test)}

    runs = plan.runs(n_runs)
    found, left_out = _complete(runs, measure_run, data, results, progress)
    origin = data.name, data.clients, n_runs
    return ExperimentResult(name, *origin, found, data.dataset, left_out)


def _classifier_of_paper(run):
    if run.method in BASELINES:
        return BASELINES[run.method]()
    if run.method == "mixed":
        return make_classifier("mixed", tau=run.alignment)
    if run.method == "fedcgs":
        return make_classifier("fedcgs")
    return make_classifier(run.method, random_state=run.seed)


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

    They are expected to lie between two baselines: discriminant analysis of each client
    alone, and of the pooled rows of all clients.

    Parameters
    ----------
    data : FeatureSet
        Features to compare the methods on.
    methods : list of str, default=None
        Names of the methods, such as "mixed" or "fedcgs"; "local" and "pooled" are the
        baselines. If None, all methods are compared. FedCGS without alignment always
        runs, since the other methods are compared with it. Methods that need torch are
        excluded where it is not installed.
    alphas : list of float or None, default=(None, 1.0, 0.1, 0.05, 0.01)
        Concentrations of the label shift; None for no label shift.
    n_runs : int, default=5
        Number of partitions.
    alignments : list of str, default=("none", "SLOT 0.4", "SLOT auto", "mixed effects")
        Alignments to combine the methods with, in one upload where a method has an
        ``aligner``.
    results : str or path-like, default=None
        File to which each run is added when it is done (JSON lines). Runs that the file
        has already, for the same data and version, are not repeated.
    progress : callable, default=None
        Called with (runs done, runs in all).
    n_jobs : int, default=None
        Number of processes.

    Returns
    -------
    board : Leaderboard
        Prints as a table, best methods first.

    See Also
    --------
    run_experiment : Run one of the paper's experiments.

    Examples
    --------
    >>> from skslot.experiments import FeatureSet, compare_methods
    >>> board = compare_methods(FeatureSet.embedded(), ["fedcof"], [0.1], n_runs=2)
    >>> table = board.to_frame()
    >>> table.loc[table["alignment"] == "none", ["method", "sent"]].round(-3)
       method     sent
    1  FedCOF   2000.0
    4  FedCGS  12000.0
    """
    names = ONE_SHOT if methods is None else methods
    _check_names("methods", names, [*BASELINES, *METHODS])
    _check_names("alignments", alignments, ALIGNERS)
    pairs = [("fedcgs", "none")]
    for name in names:
        pairs += product([name], ["-"] if name in WITHOUT_ALIGNER else alignments)
    alphas = [None if alpha is None else float(alpha) for alpha in alphas]
    runs = [
        Run(alpha, None, number, alignment, method)
        for number, alpha, (method, alignment) in product(range(n_runs), alphas, pairs)
    ]
    runs = list(dict.fromkeys(runs))  # each run once
    measure_run = partial(_measure_method, data)
    found, left_out = _complete(runs, measure_run, data, results, progress, n_jobs)
    origin = data.name, data.clients, n_runs
    return Leaderboard("methods", *origin, found, data.dataset, left_out)


def _check_names(parameter, names, known):
    for name in names:
        if name not in known:
            raise ValueError(
                f"{parameter} must be among {', '.join(known)}; got {name!r}."
            )


def _measure_method(data, run):
    """Measure accuracy at each client, bytes that it sends, and seconds of one core."""
    train, test = (data.select(r) for r in data.partition(run.alpha, run.partition))
    make = BASELINES.get(run.method) or partial(make_classifier, run.method)
    if run.method in NEED_TORCH:
        import_module("skorch")  # takes seconds, which are not those of the method
    start = time.process_time()
    try:
        with threadpool_limits(1):  # threads are no faster on matrices this small
            accuracy, sent = measure(make(), ALIGNERS.get(run.alignment), train, test)
    except ValueError as error:  # a method that cannot learn from these rows
        return {"accuracy": None, "error": " ".join(str(error).split())}
    seconds = time.process_time() - start
    return {"accuracy": accuracy, "sent": sent, "seconds": seconds}


# ------------------------------------------------------- runs and their file


def _complete(runs, measure_run, data, results, progress, n_jobs=None):
    """Measure the runs that the file of results does not have.

    Return what was measured by run, and the methods that need torch, where it is not
    installed.
    """
    store = RunStore(results, data)
    left_out = []
    if not can_train_nets():
        todo = dict.fromkeys(run.method for run in runs if run not in store.done)
        left_out = [method for method in todo if method in NEED_TORCH]
        runs = [run for run in runs if run.method not in left_out]
    progress = progress or (lambda done, total: None)
    todo = [run for run in runs if run not in store.done]
    progress(len(runs) - len(todo), len(runs))
    jobs = (delayed(measure_run)(run) for run in todo)
    measured = Parallel(n_jobs, return_as="generator")(jobs)
    for number, (run, found) in enumerate(zip(todo, measured, strict=True), 1):
        store.add(run, found)
        progress(len(runs) - len(todo) + number, len(runs))
    return {run: store.done[run] for run in runs}, left_out


class RunStore:
    """Completed runs in a file of JSON lines, to resume an interrupted experiment.

    ``done`` has what was measured in each run: a dict with ``accuracy`` among its keys.
    Runs of other data or versions are skipped.
    """

    def __init__(self, path, data):
        self.path = None if path is None else Path(path)
        self.origin = {"version": __version__, "data": data.fingerprint()}
        self.done = {}
        text = ""
        if self.path is not None and self.path.exists():
            text = self.path.read_text(encoding="utf-8", errors="replace")
        # half a line may be all that is left of a first run that was killed
        known = [self._read(line) for line in text.splitlines()]
        if text and not any(known) and not text.startswith('{"origin": '):
            raise ValueError(
                f"{self.path} contains no runs of experiments; nothing was added to "
                "it. Name another file for the results."
            )
        if text and not text.endswith("\n"):
            self._append("\n")

    def _read(self, line):
        """Keep the run in a line, if it has this origin; return whether it is a run."""
        try:
            record = json.loads(line)
            origin, run = record.pop("origin"), Run(**record.pop("run"))
            is_run = "accuracy" in record
        # half a line, of a run that was killed while it wrote, or no run at all
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        if is_run and origin == self.origin:
            self.done[run] = record
        return is_run

    def add(self, run, measured):
        """Keep a run, and add it to the file."""
        self.done[run] = measured
        if self.path is not None:
            record = {"origin": self.origin, "run": asdict(run), **measured}
            self._append(json.dumps(record) + "\n")

    def _append(self, text):
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(text)
