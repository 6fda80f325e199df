"""Feature maps that all clients share, although each makes its own."""

import re
from numbers import Integral

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_array

REMEDY = (
    "choose one whose fit needs no more than the number of features, such as "
    "RBFSampler or PolynomialCountSketch with numbers for gamma and random_state."
)


def map_features(feature_map, X):
    """Rows through the map, which is fitted to their number of columns alone."""
    fitted = clone(feature_map).fit(np.zeros((2, X.shape[1])))
    return check_array(fitted.transform(X), dtype=(np.float64, np.float32), order="C")


def check_is_shared(feature_map, n_features):
    """Refuse a map that would be another one at each client."""
    for name, value in feature_map.get_params().items():
        if name.split("__")[-1] == "random_state" and not isinstance(value, Integral):
            raise ValueError(
                f"feature_map has {name}={value!r}, so each client would draw a map of "
                f"its own; set it to an integer that all clients share."
            )
    rows = np.random.default_rng(0).uniform(size=(16, n_features))
    first, second = (
        np.asarray(clone(feature_map).fit(some).transform(rows))
        for some in (rows[:6], rows[6:])
    )
    if not np.array_equal(first, second):
        raise ValueError(
            f"feature_map {type(feature_map).__name__} depends on the rows that it is "
            f"fitted to, which clients do not share; {REMEDY}"
        )


def name_map(feature_map, n_features):
    """Fingerprint of the features that the map makes of so many."""
    params = sorted(feature_map.get_params(deep=False).items())
    listed = ", ".join(f"{name}={value!r}" for name, value in params)
    return f"{n_features} features through {type(feature_map).__name__}({listed})"


def features_before(fingerprint):
    """Number of features before the map; None if the fingerprint is of another kind."""
    match = re.match(r"(\d+) features through ", fingerprint or "")
    return int(match[1]) if match else None
