"""
Features too large for one process: moments merged by joblib
============================================================

A site with many files of features does not have to load them all. Each process reads
one file and keeps its moments, some :math:`8 m^2` bytes; their sum is that of all rows,
so the message to the server is the same as if there had been one file.
"""

# %%
# Eight files of features, as an encoder would have written them.
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from joblib import Parallel, delayed

from skslot import FederatedOTAligner
from skslot.statistics import FeatureMoments


def write_files(folder, n_files=8, n_rows=2000, n_features=64):
    """Files of features, and their paths."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(n_features, n_features))
    paths = [Path(folder) / f"features-{number}.npy" for number in range(n_files)]
    for path in paths:
        np.save(path, 10 + rng.normal(size=(n_rows, n_features)) @ mixing)
    return paths


# %%
# One process per file. A file is mapped into memory and read in blocks.
def moments_of(path):
    """Moments of the rows in one file."""
    return FeatureMoments.from_rows(np.load(path, mmap_mode="r"))


def site_message(paths, n_jobs=2):
    """What the site sends, from all its files."""
    parts = Parallel(n_jobs=n_jobs)(delayed(moments_of)(path) for path in paths)
    return FederatedOTAligner().client_update(sum(parts), client="large site")


# %%
# The same as with all rows in memory.
if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        paths = write_files(folder)
        merged = site_message(paths)
        rows = np.vstack([np.load(path) for path in paths])
    at_once = FederatedOTAligner().client_update(rows, client="large site")
    difference = np.abs(merged.covariance - at_once.covariance).max()
    print(merged)
    print(f"largest difference to all rows at once: {difference:.1e}")
