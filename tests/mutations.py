"""Check that tests notice mistakes in the mathematics and the messages.

Each mutation changes one expression in a temporary copy of the repository. The tests of
the changed package must then fail. Run with ``make mutations``, or for some packages
with ``python tests/mutations.py geometry trust``. The exit code is 1 if the tests pass
despite a mutation, or if the expression is no longer in the source.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("skslot", "tests", "docs", "examples", "pyproject.toml", "README.md")
TESTS_FAILED = 1  # exit code of pytest; others mean that tests could not be run


class Mutation(NamedTuple):
    """A mistake, and the tests that should notice it."""

    name: str
    path: str  # within the package
    before: str
    after: str

    @property
    def folder(self):
        """Folder of the tests."""
        return self.path.split("/")[0]


MUTATIONS = [
    Mutation(
        "offset of a map: sign",
        "geometry/_gaussians.py",
        "tau * (np.asarray(target_mean) - matrix",
        "tau * (np.asarray(target_mean) + matrix",
    ),
    Mutation(
        "barycenter: weights dropped",
        "geometry/_gaussians.py",
        "root_weights = weights / np.sqrt(scale)",
        "root_weights = np.full_like(weights, 1 / len(weights)) / np.sqrt(scale)",
    ),
    Mutation(
        "merged moments: weight off by one",
        "statistics/_moments.py",
        "own_share * other.n_samples * np.outer",
        "own_share * (other.n_samples - 1) * np.outer",
    ),
    Mutation(
        "random effects: determinant dropped",
        "statistics/_random_effects.py",
        "        + log_determinant\n",
        "",
    ),
    Mutation(
        "map of mixed effects: sign of the offset",
        "alignment/_mixed_effects.py",
        "self.mean - matrix @ self.mean - self.offset",
        "self.mean - matrix @ self.mean + self.offset",
    ),
    Mutation(
        "automatic tau: shares along the wrong axis",
        "alignment/_optimal_transport.py",
        "counts / np.maximum(counts.sum(axis=1",
        "counts / np.maximum(counts.sum(axis=0",
    ),
    Mutation(
        "linear classifier: sign in the intercept",
        "classifiers/_gaussian.py",
        "coef * (means + centre)",
        "coef * (means - centre)",
    ),
    Mutation(
        "quadratic classifier: determinant dropped",
        "classifiers/_fedqda.py",
        "log_priors[index] - np.log(lengths).sum() - distances",
        "log_priors[index] - distances",
    ),
    Mutation(
        "scatter within classes: sign",
        "exchange/_client_messages.py",
        "self.n_samples * self.covariance - apart.T @ apart",
        "self.n_samples * self.covariance + apart.T @ apart",
    ),
    Mutation(
        "wire format: sign of the exponent",
        "exchange/_wire.py",
        "np.ldexp(array, -exponent)",
        "np.ldexp(array, exponent)",
    ),
    Mutation(
        "share of capped clients: off by one",
        "trust/_screening.py",
        "left = 1 - max_share * n_capped",
        "left = 1 - max_share * (n_capped + 1)",
    ),
    Mutation(
        "clipping for privacy: wrong axis",
        "privacy/_budget.py",
        "np.linalg.norm(Z, axis=1",
        "np.linalg.norm(Z, axis=0",
    ),
]


def copy_repository(copy):
    """Copy what the tests need, without caches."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "_build", "generated")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy)


def outcome_of(mutation, copy, options):
    """Return the test that fails because of a mutation, or None, and the exit code."""
    path = copy / "skslot" / mutation.path
    source = path.read_text()
    if source.count(mutation.before) != 1:
        return f"found {source.count(mutation.before)} times in {mutation.path}", None
    path.write_text(source.replace(mutation.before, mutation.after))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", *options]
    # a file may change twice within the resolution of the times of cached bytecode
    env = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            [*command, "-p", "no:cacheprovider", f"tests/{mutation.folder}"],
            cwd=copy,
            env=env,
            capture_output=True,
            text=True,
        )
    finally:
        path.write_text(source)
    failed = re.search(
        r"^(?:FAILED|ERROR) (?:tests/)?(.+?)(?: - .*)?$", run.stdout, re.M
    )
    return failed and failed[1], run.returncode


def main():
    """Print a line for each mutation; return whether all were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", help="tests to run; default: all")
    # others are for pytest
    arguments, options = parser.parse_known_args()
    chosen = [
        each
        for each in MUTATIONS
        if not arguments.folders or each.folder in arguments.folders
    ]
    survived = 0
    print(f"{'mutation':44}{'tests':14}{'seconds':>7}  failed test", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_repository(copy)
        for mutation in chosen:
            start = time.perf_counter()
            failed, code = outcome_of(mutation, copy, options)
            seconds = time.perf_counter() - start
            if code == TESTS_FAILED:
                result = failed
            elif code == 0:
                result = "SURVIVED"
            else:
                result = f"NOT RUN: {failed or f'pytest ended with {code}'}"
            survived += code != TESTS_FAILED
            line = f"{mutation.name:44}{mutation.folder:14}{seconds:7.0f}  {result}"
            print(line, flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutations were noticed")
    return survived == 0


if __name__ == "__main__":
    sys.exit(not main())
