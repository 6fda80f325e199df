"""Write the embedded data set as four sites, each with a folder of its own.

python make_sites.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np

from skslot.datasets import load_digit_scanners


def make_sites(folder):
    """Write ``features.npz`` of each site; return the names of the sites."""
    data = load_digit_scanners()
    names = np.unique(data.client_ids).tolist()
    for name in names:
        rows = data.client_ids == name
        site = Path(folder) / name
        site.mkdir(parents=True, exist_ok=True)
        np.savez(site / "features.npz", X=data.data[rows], y=data.target[rows])
    return names


if __name__ == "__main__":
    print(*make_sites(sys.argv[1]))
