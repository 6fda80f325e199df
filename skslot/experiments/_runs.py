"""Running an experiment of the paper."""

from itertools import groupby

from .._utils import can_train_nets, ignored
from ..alignment import AlignmentWarning, FederatedOTAligner
from ..classifiers import (
    FedAvgClassifier,
    FedCGSClassifier,
    FedPFTClassifier,
    MixedEffectsClassifier,
)
from ._paper_tables import (
    NEED_TORCH,
    OURS,
    PLANS,
    ExperimentResult,
    Run,
    UnlabelledPlan,
)
from ._sites import (
    LocalDiscriminant,
    accuracy_at,
    align_rows,
    at_known_sites,
    at_new_sites,
    fit_rows,
)
from ._store import RunStore

FEDAVG_ROUNDS = 10
METHODS = {
    "FedAvg": lambda run: FedAvgClassifier(FEDAVG_ROUNDS, random_state=run.seed),
    "O-FedAvg": lambda run: FedAvgClassifier(random_state=run.seed),
    "FedCGS": lambda run: FedCGSClassifier(),
    "FedPFT": lambda run: FedPFTClassifier(random_state=run.seed),
    "local LDA": lambda run: LocalDiscriminant(),
    "mixed effects": lambda run: MixedEffectsClassifier(run.tau),
}


def run_experiment(name, data, n_runs=5, *, results=None, progress=None):
    """Run one of the paper's experiments.

    Parameters
    ----------
    name : {"main", "skew", "domain-only", "tau", "backbones", "scalability", \
"unlabelled"}
        Which experiment; "unlabelled" is not in the paper.
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
        Prints in the paper's layout. What needs torch is left out where that is not
        installed, and the last lines say so.

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
    progress = progress or (lambda done, total: None)
    plan = PLANS[name]
    data = data.with_finer_clients(plan.n_parts)
    store = RunStore(results, data, Run)
    runs = _that_can_run(plan.runs(n_runs), store.done)
    accuracy = {run: store.done[run]["accuracy"] for run in runs if run in store.done}
    progress(len(accuracy), len(runs))
    todo = [run for run in runs if run not in accuracy]
    measure = _run_sites if isinstance(plan, UnlabelledPlan) else _run_methods
    for key, same_rows in groupby(todo, lambda run: (run.alpha, run.partition)):
        train, test = (data.select(rows) for rows in data.partition(*key))
        for run, values in measure(list(same_rows), train, test):
            accuracy[run] = values
            store.add(run, {"accuracy": values})
            progress(len(accuracy), len(runs))
    return ExperimentResult(
        name, data.name, data.clients, n_runs, accuracy, data.dataset
    )


def _that_can_run(runs, done):
    """Runs of methods that are done, or whose packages are installed."""
    if can_train_nets():
        return runs
    todo = {run.method for run in runs if run not in done}
    return [run for run in runs if run.method not in todo.intersection(NEED_TORCH)]


def _run_methods(runs, train, test):
    """Train and test: each run, and percent of right predictions at each client."""
    for tau, same_tau in groupby(runs, lambda run: run.tau):
        aligned = None
        for run in same_tau:
            rows = train, test
            if tau != 0 and (run.method, tau) not in OURS:  # which align by themselves
                aligned = rows = aligned or _aligned(train, test, tau)
            yield run, accuracy_at(fit_rows(METHODS[run.method](run), rows[0]), rows[1])


def _aligned(train, test, tau):
    """Align training and test features, which all methods share."""
    aligner = FederatedOTAligner(tau=tau)
    with ignored(AlignmentWarning):
        aligner.fit(train.X, client_ids=train.client_ids)
    return align_rows(aligner, train, test)


def _run_sites(runs, train, test):
    """Let sites learn by themselves; the same as for methods."""
    seed = runs[0].partition
    found = at_known_sites(train, test, seed) | at_new_sites(train, test, seed)
    for run in runs:
        yield run, found[run.method]
