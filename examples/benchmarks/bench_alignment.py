"""
=================================================
Speed of the alignment next to its closest peers
=================================================

Times client statistics, barycenter and aligner against scikit-learn, pyRiemann, POT
and bare NumPy, and prints each ratio beside the one that skslot promises.

Run it with::

    pip install ".[bench]"
    python examples/benchmarks/bench_alignment.py            # some minutes
    python examples/benchmarks/bench_alignment.py --quick    # less than one minute
    python examples/benchmarks/bench_alignment.py --only moments,transform

Everything runs on one BLAS thread, and in one thread but for the section on threads.
Peers take turns in one process, and a time is the median over the turns of the CPU
time, which other processes on the machine disturb less than the time on the clock. A
peer that is not installed is skipped. The features are synthetic, with a fixed seed.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import contextlib
import importlib
import io
import math
import platform
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from statistics import median

import numpy as np
from sklearn.covariance import ledoit_wolf
from threadpoolctl import threadpool_info, threadpool_limits

from skslot import FederatedOTAligner
from skslot.cli import main as run_command
from skslot.geometry import bures_barycenter, transport_matrix
from skslot.statistics import FeatureMoments

RESIDUAL = 1e-10
POT_TIMED_PASSES = 2
POT_TRACED_PASSES = 60
TAU_GRID = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ROWS = (2048, 4096, 8192, 16384)
CLIENTS = (3, 6, 12, 24)

# ------------------------------------------------------------------------ sections


def bench_moments(quick):
    """Mean and Ledoit-Wolf covariance of one client."""
    rows = []
    for n_features in (256, 512) if quick else (256, 512, 1024):
        for n_samples in (4 * n_features, 8 * n_features):
            progress(f"moments: m={n_features}, n={n_samples}")
            (X,) = make_clients(1, n_samples, n_features)
            ours, theirs = cpu_seconds(
                lambda X=X: FeatureMoments.from_rows(X).covariance("ledoit_wolf"),
                lambda X=X: ledoit_wolf(X),
                repeats=5 if quick or n_features > 512 else 21,
            )
            times = milliseconds(theirs), milliseconds(ours)
            rows.append([n_features, n_samples, *times, *at_least(2.5, theirs / ours)])
    print_table(
        "Moments: FeatureMoments.from_rows(X).covariance() against ledoit_wolf(X)",
        ["m", "n", "sklearn ms", "skslot ms", "ratio", "required", "met"],
        rows,
        "The same covariance to 1e-12 for one product of the rows instead of three, "
        "and it can still be merged with that of other rows.",
    )


def bench_barycenter(quick):
    """Barycenter to the same residual by three libraries."""
    pyriemann, pot = optional("pyriemann.utils"), optional("ot")
    rows = []
    for n_features in (256,) if quick else (256, 512):
        for n_clients in (6,) if quick else (6, 12):
            case = f"barycenter: m={n_features}, K={n_clients}"
            progress(f"{case}, counting passes")
            covariances = client_covariances(n_clients, n_features)
            contestants = barycenter_contestants(covariances, pyriemann, pot)
            progress(f"{case}, timing")
            repeats = 3 if quick or n_features > 256 else 5
            seconds = cpu_seconds(*contestants, repeats=repeats)
            for row in barycenter_rows(covariances, contestants, seconds):
                rows.append([n_features, n_clients, *row])
    header = ["m", "K", "solver", "passes", "seconds", "residual"]
    print_table(
        f"Barycenter of K Ledoit-Wolf covariances, to residual {RESIDUAL:.0e}",
        [*header, "ratio", "required", "met"],
        rows,
        "The ratio is the CPU time of the peer over that of skslot.",
        "The residual is |sum_k w_k T_k - I| / sqrt(m) for all. Passes include the one "
        f"that sees it fall to {RESIDUAL:.0e}. pyRiemann runs exactly as many as it "
        "needs, counted beforehand with solver='fixed_point', which is the same "
        f"iteration. POT is timed for {POT_TIMED_PASSES} passes and scaled up: all its "
        "passes cost the same. How many it needs is a lower bound, from the slope of "
        f"the residual at pass {POT_TRACED_PASSES}; convergence only gets slower.",
    )


def bench_transform(quick):
    """Aligning rows against the bare products that it cannot do without."""
    rows = []
    for n_features in (256,) if quick else (256, 512):
        for dtype in (np.float64, np.float32):
            progress(f"transform: m={n_features}, {dtype.__name__}")
            X, ids = stacked_clients(4, 2000, n_features, dtype)
            aligner = FederatedOTAligner(tol=1e-3).fit(X, client_ids=ids)
            shuffle = np.random.default_rng(0).permutation(len(X))
            for order, X_, ids_ in (
                ("adjacent", X, ids),
                ("shuffled", X[shuffle], ids[shuffle]),
            ):
                bare, ours = cpu_seconds(
                    bare_transform(aligner, X_, ids_, order == "adjacent"),
                    lambda a=aligner, X=X_, ids=ids_: a.transform(X, client_ids=ids),
                    repeats=15 if quick else 31,
                )
                times = milliseconds(bare), milliseconds(ours)
                verdict = at_most(1.10, ours / bare)
                rows.append([n_features, dtype.__name__, order, *times, *verdict])
    print_table(
        "FederatedOTAligner.transform against X[rows] @ M.T + b for each client",
        ["m", "dtype", "rows", "bare ms", "skslot ms", "ratio", "required", "met"],
        rows,
        "Checking the rows, grouping them by client and making the maps is all that "
        "comes on top of the products.",
        "8000 rows of 4 clients, named by strings. The bare loop has its maps ready, "
        "and takes slices where the rows of a client are adjacent and boolean masks "
        "where they are shuffled.",
    )


def bench_memory(quick):
    """A grid of tau with a cache against a single fit without."""
    rows = []
    sizes = {256: 1.6} if quick else {256: 1.6, 512: 1.45}
    for n_features, required in sizes.items():
        progress(f"memory: m={n_features}")
        X, ids = stacked_clients(4, 1000, n_features)
        once, grid = cpu_seconds(
            lambda X=X, ids=ids: FederatedOTAligner().fit(X, client_ids=ids),
            lambda X=X, ids=ids: fit_tau_grid(X, ids),
            repeats=3 if quick or n_features > 256 else 5,
        )
        times = milliseconds(once), milliseconds(grid)
        rows.append([n_features, *times, *at_most(required, grid / once)])
    print_table(
        f"{len(TAU_GRID)} values of tau with memory= against one fit without",
        ["m", "one fit ms", "grid ms", "ratio", "required", "met"],
        rows,
        "A search over tau costs little more than one fit of the aligner, not six.",
        "4000 samples of 4 clients; the cache is empty at the start of each grid. The "
        "client steps run six times, the solver once.",
    )


def bench_threads(quick):
    """Two threads against one, on the clock; needs two cores that are free."""
    rows = []
    for n_clients, required in ((8, 1.4),) if quick else ((8, 1.4), (50, 1.6)):
        X, ids = stacked_clients(n_clients, 1000, 512)
        times = {1: [], 2: []}
        for turn in range(5 if n_clients == 8 else 3):
            for n_jobs, taken in times.items():
                progress(f"threads: K={n_clients}, n_jobs={n_jobs}, turn {turn + 1}")
                start = time.perf_counter()
                FederatedOTAligner(n_jobs=n_jobs).fit(X, client_ids=ids)
                taken.append(time.perf_counter() - start)
        one, two = min(times[1]), min(times[2])
        load = f"{os.getloadavg()[0]:.1f}"
        verdict = at_least(required, one / two)
        rows.append([n_clients, f"{one:.2f}", f"{two:.2f}", load, *verdict])
    print_table(
        "FederatedOTAligner.fit with n_jobs=2 against n_jobs=1, 512 features",
        ["K", "n_jobs=1 s", "n_jobs=2 s", "load", "ratio", "required", "met"],
        rows,
        "Clients of a pass run in parallel, with the same result.",
        "The shortest of several turns on the clock, 1000 rows of each client. A load "
        "above 2 means that others were using the two cores.",
    )


def bench_report(quick):
    """The page of skslot report."""
    n_features = 128 if quick else 512
    X, ids = stacked_clients(4, 1950, n_features)
    y = np.abs(X[:, :7]).argmax(axis=1)
    progress(f"report: m={n_features}")
    with tempfile.TemporaryDirectory() as folder:
        features, page = f"{folder}/features.npz", f"{folder}/page.html"
        np.savez(features, X=X, y=y, client=ids)
        start = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            run_command(["report", features, "-o", page])
        seconds = time.process_time() - start
    rows = [[len(X), n_features, *at_most(60, seconds)]]
    print_table(
        "skslot report on 4 clients, seconds of one core",
        ["n", "m", "seconds", "required", "met"],
        rows,
        "All models of skslot diagnose, distances and pictures.",
    )


def bench_growth(quick):
    """How cost grows with the number of features, clients and rows."""
    sizes = (64, 128, 256) if quick else (64, 128, 256, 512)
    cases = [
        *(("moments", "m", m, lambda m=m: time_moments(4096, m)) for m in sizes),
        *(("moments", "n", n, lambda n=n: time_moments(n, 256)) for n in ROWS),
        *(("one pass", "m", m, lambda m=m: time_pass(6, m)) for m in sizes),
        *(("one pass", "K", k, lambda k=k: time_pass(k, 128)) for k in CLIENTS),
    ]
    rows, before = [], None
    for step, varies, size, measure in cases:
        progress(f"growth: {step}, {varies}={size}")
        seconds, passes = measure()
        known = before and before[:2] == (step, varies)
        factor = f"{seconds / before[2]:.1f}" if known else ""
        rows.append([step, varies, size, milliseconds(seconds), factor, passes])
        before = step, varies, seconds
    print_table(
        "Growth of the cost of moments, and of one pass of the barycenter",
        ["step", "varies", "size", "ms", "x before", "passes"],
        rows,
        "Twice the rows or twice the clients cost twice as much, twice the features at "
        "most four times as much for moments and eight times for a pass, and the "
        "number of passes hardly changes.",
        "What does not vary is m=256, n=4096 for moments and m=128, K=6 for a pass.",
    )


# ------------------------------------------------------------------------ the data


def make_clients(n_clients, n_samples, n_features, seed=0):
    """Rows of each client, statistically like the features of a frozen encoder.

    A decaying spectrum, heavy tails and seven classes in different proportions. Each
    client turns the features and stretches them in its own way. The shrunk
    covariances get condition numbers around 1e3 and shrinkage around 0.03, as those of
    ResNet-18 features of photographs and drawings do.
    """
    rng = np.random.default_rng(seed)
    spread = (1 + np.arange(n_features) / 3) ** -0.5
    class_means = 1.5 * spread * rng.normal(size=(7, n_features))
    clients = []
    for _ in range(n_clients):
        noise = rng.normal(size=(n_features, n_features)) / math.sqrt(n_features)
        turn, _ = np.linalg.qr(np.eye(n_features) + 0.6 * noise)
        stretch = np.exp(0.4 * rng.normal(size=n_features))
        shift = 0.5 * spread * rng.normal(size=n_features)
        classes = rng.choice(7, size=n_samples, p=rng.dirichlet(np.ones(7)))
        radius = np.exp(0.7 * rng.normal(size=(n_samples, 1)))
        rows = radius * spread * rng.normal(size=(n_samples, n_features))
        rows += class_means[classes] + shift
        clients.append((rows * stretch) @ turn)
    return clients


def stacked_clients(n_clients, n_samples, n_features, dtype=np.float64):
    """Rows of all clients below each other, and the client of each row."""
    X = np.vstack(make_clients(n_clients, n_samples, n_features)).astype(dtype)
    return X, np.repeat([f"site {k}" for k in range(n_clients)], n_samples)


def client_covariances(n_clients, n_features):
    clients = make_clients(n_clients, 4 * n_features, n_features)
    return np.array([FeatureMoments.from_rows(X).covariance()[0] for X in clients])


# -------------------------------------------------------------------- the contests


@dataclass
class Contestant:
    """A barycenter solver that remembers its last answer.

    ``passes`` is what it needs to reach the residual, ``timed_passes`` what a call
    runs, if that is less.
    """

    name: str
    solve: Callable
    passes: int
    timed_passes: int | None = None
    required: float | None = None
    answer: np.ndarray | None = None

    def __call__(self):
        self.answer = self.solve()


def barycenter_contestants(covariances, pyriemann, pot):
    small = covariances.shape[1] < 512
    _, result = bures_barycenter(covariances, tol=RESIDUAL)
    contestants = [
        Contestant(
            "skslot",
            lambda: bures_barycenter(covariances, tol=RESIDUAL)[0],
            result.n_iter,
        )
    ]
    if pyriemann:
        _, plain = bures_barycenter(covariances, tol=RESIDUAL, solver="fixed_point")
        contestants.append(
            Contestant(
                "pyRiemann",
                lambda: run_pyriemann(pyriemann, covariances, plain.n_iter),
                plain.n_iter,
                required=1.5 if small else 1.8,
            )
        )
    if pot:
        contestants.append(
            Contestant(
                "POT",
                lambda: run_pot(pot, covariances),
                passes_of_pot(covariances),
                timed_passes=POT_TIMED_PASSES,
                required=25 if small else 50,
            )
        )
    return contestants


def barycenter_rows(covariances, contestants, times):
    rows = []
    for contestant, seconds in zip(contestants, times, strict=True):
        if contestant.timed_passes:
            seconds *= contestant.passes / contestant.timed_passes
            passes, reached = f">= {contestant.passes}", "-"
        else:
            passes = contestant.passes
            reached = f"{barycenter_residual(contestant.answer, covariances):.0e}"
        verdict = (
            at_least(contestant.required, seconds / times[0])
            if contestant.required
            else [""] * 3
        )
        rows.append([contestant.name, passes, f"{seconds:.2f}", reached, *verdict])
    return rows


def run_pyriemann(pyriemann_utils, covariances, passes):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Convergence not reached")
        return pyriemann_utils.mean_wasserstein(covariances, tol=0.0, maxiter=passes)


def run_pot(ot, covariances):
    means = np.zeros(covariances.shape[:2])
    with contextlib.redirect_stdout(io.StringIO()):  # it prints "Dit not converge."
        return ot.gaussian.bures_wasserstein_barycenter(
            means, covariances, num_iter=POT_TIMED_PASSES, eps=0.0
        )[1]


def passes_of_pot(covariances):
    """Least number of passes of POT's fixed point until the residual is reached.

    Runs the iteration from POT's starting point, one eigendecomposition per client and
    pass. The residual is a sum of decaying powers, so that its logarithm is convex in
    the number of passes: the last slope, continued, arrives too early.
    """
    identity = np.eye(covariances.shape[1])
    barycenter = covariances.mean(axis=0) / len(covariances)
    residuals = []
    while len(residuals) < POT_TRACED_PASSES:
        root, inverse_root = matrix_powers(barycenter, 0.5, -0.5)
        barycenter = np.mean(
            [matrix_powers(root @ c @ root, 0.5)[0] for c in covariances], axis=0
        )
        mean_map = inverse_root @ barycenter @ inverse_root
        residuals.append(np.linalg.norm(mean_map - identity) / math.sqrt(len(identity)))
        if residuals[-1] <= RESIDUAL:
            return len(residuals)
    slope = math.log(residuals[-1] / residuals[-2])
    return len(residuals) + math.ceil(math.log(RESIDUAL / residuals[-1]) / slope)


def barycenter_residual(barycenter, covariances):
    mean_map = np.mean([transport_matrix(barycenter, c) for c in covariances], axis=0)
    n_features = len(mean_map)
    return np.linalg.norm(mean_map - np.eye(n_features)) / math.sqrt(n_features)


def matrix_powers(matrix, *exponents):
    """Powers of a symmetric positive definite matrix."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    halves = [vectors * eigenvalues ** (exponent / 2) for exponent in exponents]
    return [half @ half.T for half in halves]  # a symmetric product, half the work


def bare_transform(aligner, X, ids, adjacent):
    """The loop over clients that a user would write, with the maps given."""
    maps = [[part.astype(X.dtype) for part in m.affine] for m in aligner.maps_.values()]
    clients, n_rows = aligner.clients_, len(X) // len(maps)

    def transform():
        aligned = np.empty_like(X)
        for k, (matrix, offset) in enumerate(maps):
            rows = (
                slice(n_rows * k, n_rows * (k + 1)) if adjacent else ids == clients[k]
            )
            aligned[rows] = X[rows] @ matrix.T + offset
        return aligned

    ours = aligner.transform(X, client_ids=ids)
    np.testing.assert_allclose(transform(), ours, rtol=1e-3, atol=1e-3)
    return transform


def fit_tau_grid(X, ids):
    with tempfile.TemporaryDirectory() as cache:
        for tau in TAU_GRID:
            FederatedOTAligner(tau=tau, memory=cache).fit(X, client_ids=ids)


def time_moments(n_samples, n_features):
    (X,) = make_clients(1, n_samples, n_features)
    (seconds,) = cpu_seconds(
        lambda: FeatureMoments.from_rows(X).covariance(), repeats=7
    )
    return seconds, ""


def time_pass(n_clients, n_features):
    """Seconds of one pass of the barycenter, and number of passes."""
    covariances = client_covariances(n_clients, n_features)
    _, result = bures_barycenter(covariances, tol=RESIDUAL)
    (seconds,) = cpu_seconds(
        lambda: bures_barycenter(covariances, tol=RESIDUAL),
        repeats=3 if n_features < 512 else 1,
    )
    return seconds / result.n_iter, result.n_iter


# ----------------------------------------------------------- timing and printing


def cpu_seconds(*tasks, repeats):
    """Median CPU seconds of each task; the tasks take turns."""
    times = [[] for _ in tasks]
    for _ in range(repeats):
        for task, taken in zip(tasks, times, strict=True):
            start = time.process_time()
            task()
            taken.append(time.process_time() - start)
    return [median(taken) for taken in times]


def at_least(required, ratio):
    return [f"{ratio:.2f}", f">= {required:g}", "yes" if ratio >= required else "NO"]


def at_most(required, ratio):
    return [f"{ratio:.2f}", f"<= {required:g}", "yes" if ratio <= required else "NO"]


def milliseconds(seconds):
    return f"{1e3 * seconds:.1f}"


def print_table(title, header, rows, meaning, method=""):
    table = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    print(f"\n{title}\n")
    for line in table:
        cells = (c.rjust(width) for c, width in zip(line, widths, strict=True))
        print(("  " + "  ".join(cells)).rstrip())
    print()
    for text in filter(None, (meaning, method)):
        print(textwrap.fill(text, 79))
    sys.stdout.flush()


def print_versions():
    versions = [f"Python {platform.python_version()}"]
    for package in ("skslot", "numpy", "scipy", "scikit-learn", "POT", "pyriemann"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{package} {metadata.version(package)}")
    blas = {
        f"{lib['internal_api']} {lib['version']} ({lib.get('architecture', 'unknown')})"
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
    print(", ".join(versions))
    print("BLAS on one thread:", ", ".join(sorted(blas)))


def optional(module):
    """A peer, or None if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        print(f"\n{module.partition('.')[0]} is not installed: skipped.")
        return None


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


SECTIONS = {
    "moments": bench_moments,
    "barycenter": bench_barycenter,
    "transform": bench_transform,
    "memory": bench_memory,
    "threads": bench_threads,
    "report": bench_report,
    "growth": bench_growth,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases")
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=list(SECTIONS),
        metavar="SECTIONS",
        help="some of " + ",".join(SECTIONS),
    )
    options = parser.parse_args()
    unknown = set(options.only) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown section {', '.join(sorted(unknown))}")
    print_versions()
    with threadpool_limits(1):
        for name in options.only:
            SECTIONS[name](options.quick)


if __name__ == "__main__":
    main()
