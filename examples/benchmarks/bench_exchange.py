"""Memory and time to align many clients from their files.

Run with::

    python examples/benchmarks/bench_exchange.py --clients 1000 --features 512
    python examples/benchmarks/bench_exchange.py --clients 1000 --features 512 --labels
    python examples/benchmarks/bench_exchange.py --clients 1000 --labels --mixed

Writes one file per client, then aggregates them in a process of its own that reads
them as a stream, in ``--jobs`` threads, and prints the peak memory of that process. The
files go to a temporary folder: 527 kB each with 512 features in float32. With
``--labels`` there are ten classes, and a classifier is made from the same files as
well: FedCGS, or with ``--mixed`` mixed effects without linear maps.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from skslot import FedCGSClassifier, FederatedOTAligner, MixedEffectsClassifier
from skslot.exchange import load_messages


def estimator(labels, mixed=False, n_jobs=None):
    """What the clients and the server run."""
    if mixed:
        return MixedEffectsClassifier(tau=0, n_jobs=n_jobs)
    aligner = FederatedOTAligner(n_jobs=n_jobs)
    return FedCGSClassifier(aligner=aligner, n_jobs=n_jobs) if labels else aligner


def write_files(folder, n_clients, n_features, dtype, labels, mixed):
    """One message per client, on rows of its own scale and offset."""
    start = time.perf_counter()
    rng = np.random.default_rng(0)
    site, spectrum = estimator(labels, mixed), np.geomspace(0.1, 10, n_features)
    y = (np.arange(n_features + 100) % 10,) if labels else ()
    for client in range(n_clients):
        rows = rng.standard_normal((n_features + 100, n_features), dtype=np.float32)
        rows *= spectrum * np.exp(0.3 * rng.standard_normal(n_features))
        rows += rng.standard_normal(n_features)
        message = site.client_update(rows, *y, client=f"{client:04}")
        message.with_encoder("benchmark").save(folder / f"{client:04}.slot", dtype)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    print(f"{size:.0f} MB written in {time.perf_counter() - start:.0f} s", flush=True)


class Progress:
    """A line on stderr that counts files and passes."""

    def __init__(self):
        self.passes = 1
        self.start = time.perf_counter()

    def __call__(self, done, total):
        if done % max(total // 100, 1) == 0:
            seconds = time.perf_counter() - self.start
            text = f"\rpass {self.passes}: {done}/{total} files, {seconds:.0f} s"
            print(text, end="", file=sys.stderr, flush=True)
        self.passes += done == total


def aggregate(folder, labels, mixed, n_jobs):
    """Align the clients of a folder and print what it took."""
    progress = Progress()
    messages = load_messages(
        sorted(folder.glob("*.slot")), on_error="skip", progress=progress
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = estimator(labels, mixed, n_jobs).server_aggregate(messages)
    seconds = time.perf_counter() - progress.start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("", file=sys.stderr)
    print(
        f"{len(messages.paths)} files, {len(messages.refused)} refused: {result}\n"
        f"{seconds:.0f} s in {progress.passes - 1} passes over the files; peak memory "
        f"{peak:.0f} MB, of which {before:.0f} MB before the first file"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--labels", action="store_true")
    parser.add_argument("--mixed", action="store_true", help="with --labels")
    parser.add_argument("--jobs", type=int, default=1, help="threads of the server")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--aggregate", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    kind = arguments.labels, arguments.mixed
    if arguments.write:
        sizes = arguments.clients, arguments.features, arguments.dtype
        write_files(arguments.write, *sizes, *kind)
    elif arguments.aggregate:
        aggregate(arguments.aggregate, *kind, arguments.jobs)
    else:
        # a process of its own for each: a child has the peak memory of its parent
        with tempfile.TemporaryDirectory() as folder:
            for step in ("--write", "--aggregate"):
                command = [sys.executable, __file__, *sys.argv[1:], step, folder]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
