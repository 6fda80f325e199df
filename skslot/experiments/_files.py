"""Reading a file of features."""

import numpy as np

from .._numpy_files import load_numpy
from ._protocol import check_split


def read_file(path):
    """What a file of features holds, by the names that FeatureSet has for it."""
    arrays = load_numpy(path)
    if isinstance(arrays, np.ndarray):
        raise ValueError(f"{path} must be an .npz file, with X and client in it.")
    has_clients = "client" in arrays or {"domain", "domains"} <= set(arrays)
    if "X" not in arrays or not has_clients:
        raise ValueError(
            f"{path} must hold X and client (or domain and domains), for most purposes "
            f"y too; it holds {sorted(arrays)}."
        )
    _check_shapes(path, arrays)
    if "client" in arrays:
        client_ids = arrays["client"]
    else:
        client_ids = arrays["domains"][arrays["domain"]]
    split, dataset = arrays.get("split"), arrays.get("dataset")
    return {
        "X": arrays["X"].astype(np.float64),
        "y": arrays.get("y"),
        "client_ids": client_ids,
        "split": None if split is None else check_split(split, f"{path}: split"),
        "dataset": None if dataset is None else str(dataset),
    }


def _check_shapes(path, arrays):
    if arrays["X"].ndim != 2:
        raise ValueError(f"{path}: X must have a row of numbers for each sample.")
    n_rows = len(arrays["X"])
    for name in ("y", "client", "domain", "split"):
        if name in arrays and arrays[name].shape != (n_rows,):
            raise ValueError(
                f"{path}: {name} has the shape {arrays[name].shape}, but there are "
                f"{n_rows} rows in X."
            )
