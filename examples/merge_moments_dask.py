"""
Features too large for one machine: moments merged by Dask
==========================================================

The blocks of a Dask array may be on as many machines as you like. Each is turned into
its moments where it is, and the moments are added up pair by pair. Needs Dask:
``pip install "dask[array]"``.
"""

# %%
# An array that is never in memory as a whole; in earnest, ``da.from_zarr`` or the like.
import dask
import dask.array as da
import numpy as np

from skslot import FederatedOTAligner
from skslot.statistics import FeatureMoments


def make_features(n_rows=16_000, n_features=64):
    """Dask array of features, in blocks of rows."""
    random = da.random.default_rng(0)
    rows = random.normal(size=(n_rows, n_features), chunks=(2000, n_features))
    return rows * np.linspace(1, 3, n_features) + 10


# %%
# Moments of each block, then sums of pairs until one is left.
def merge_blocks(features):
    """Moments of all rows, computed where the blocks are."""
    summarize = dask.delayed(FeatureMoments.from_rows)
    parts = [summarize(block) for block in features.to_delayed().ravel()]
    while len(parts) > 1:
        parts = [dask.delayed(sum)(parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0].compute()


# %%
# The same as with all rows in memory.
if __name__ == "__main__":
    features = make_features()
    aligner = FederatedOTAligner()
    merged = aligner.client_update(merge_blocks(features), client="large site")
    at_once = aligner.client_update(features.compute(), client="large site")
    difference = np.abs(merged.covariance - at_once.covariance).max()
    print(merged)
    print(f"largest difference to all rows at once: {difference:.1e}")
