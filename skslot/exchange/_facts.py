"""What messages of any kind say about their client, to compare it with others."""

import hashlib
import json
import re
from dataclasses import fields, replace

import numpy as np

from .._utils import packed_diagonal, warn_user
from ..statistics import is_constant
from ..trust import ClientFacts

# Characters of names of columns in a header, which has at most a million.
MOST_NAMES = 100_000
WITH_NAMES = re.compile(r"(?:columns|plan):[0-9a-f]{16} (\[.*\])")
# Largest rounding of a mean by float16 without a warning, in standard deviations.
COARSE = 0.1


def facts_of(message):
    """What a message says about its client; None if it is none of a client."""
    n_samples = _n_samples(message)
    if n_samples is None:
        return None
    client = getattr(message, "client", None)
    names = fingerprint_names(getattr(message, "encoder", None))
    if hasattr(message, "n_values"):
        return ClientFacts.from_columns(client, n_samples, message.moments, names)
    if getattr(message, "privacy", None) is not None:
        names = None  # noise has the same unit in all columns
    mean, variances, class_means = _moments(message)
    described = mean, variances, class_means, _head(message), names
    return ClientFacts.from_moments(client, n_samples, *described)


def warn_if_coarse(message):
    """Warn if float16 rounds means of a client's features by much of their deviation.

    float16 has eleven significant bits, which an offset far from zero uses up.
    """
    n_samples = _n_samples(message)
    if n_samples is None:
        return
    mean, variances, _ = _moments(message)
    if mean is None or variances is None:
        return
    varies = ~is_constant(variances, mean, n_samples)
    deviations = np.sqrt(np.maximum(variances, 0.0))
    coarse = np.sum(varies & (np.abs(mean) / 2**11 > COARSE * deviations))
    if coarse:
        client = getattr(message, "client", None)
        warn_user(
            f"float16 rounds the mean of {coarse} features of client {client!r} by "
            "more than a tenth of their standard deviation; use dtype='float32', or "
            "centre the features."
        )


def _n_samples(message):
    """Number of samples behind a message; None if it is not a client's."""
    n_samples = getattr(message, "n_samples", None)
    if n_samples is None and hasattr(message, "counts"):
        n_samples = message.counts.sum().item()
    return n_samples


def _moments(message):
    """Mean and variances of features, and class means, as far as they are known."""
    if hasattr(message, "soft_labels") and not message.means.size:
        return _moments_of_rows(message)
    class_means = None
    if hasattr(message, "cells"):
        if not message.class_means.size:
            return None, None, None
        class_means = message.cells()
    elif not hasattr(message, "mean"):
        return None, None, None
    mean, covariance = message.mean, getattr(message, "covariance", None)
    if covariance is not None and covariance.size:
        return mean, covariance.diagonal(), class_means
    if hasattr(message, "covariance_type"):
        return mean, _variances_of_mixtures(message, mean), class_means
    if hasattr(message, "variance"):
        return mean, np.full(len(mean), message.variance), class_means
    return mean, None, class_means


def _variances_of_mixtures(message, mean):
    """Variance of each feature, of all components together."""
    kind, n_features = message.covariance_type, len(mean)
    flat = message.covariances
    if kind == "full":
        flat = flat[:, packed_diagonal(n_features)]
    if kind == "lowrank":
        loadings = flat[:, :-1].reshape(len(flat), -1, n_features)
        flat = np.square(loadings).sum(axis=1) + np.square(flat[:, -1:])
    rows = message.weights * np.repeat(message.counts, message.n_components)
    return rows @ (flat + np.square(message.means - mean)) / rows.sum()


def _moments_of_rows(message):
    """The same of rows that stand for others."""
    weights, rows = message.weights, message.rows
    if not len(rows):
        return None, None, None
    mean = weights @ rows / weights.sum()
    variances = weights @ np.square(rows - mean) / weights.sum()
    class_means = {}
    for position, label in enumerate(message.classes):
        own = message.owners == position
        if own.any():
            weight = weights[own].sum()
            class_means[label] = weight, weights[own] @ rows[own] / weight
    return mean, variances, class_means


def _head(message):
    """Weights of a head, if there is one."""
    if hasattr(message, "coef"):
        return [message.coef, message.intercept]
    weights = getattr(message, "weights", None)
    return list(weights.values()) if isinstance(weights, dict) else ()


def weigh(message, factor):
    """The same message, of a client that counts as much as a part of its rows."""
    if factor == 1:
        return message
    parts = [name for name in ("counts", "n_samples") if name in _names(message)][:1]
    if hasattr(message, "soft_labels"):
        parts.append("weights")
    return replace(message, **{name: getattr(message, name) * factor for name in parts})


def _names(message):
    return {each.name for each in fields(message)}


def feature_fingerprint(names, plan=None):
    """Compute a fingerprint of the columns of a table, for messages on its rows.

    Sites whose columns differ in name, number or order get different ones. The names
    are in it, unless they are very many, so that errors can say what differs.

    Parameters
    ----------
    names : iterable of str
        Names of the feature columns, in their order.
    plan : str, default=None
        What else must be the same at all sites, as a text: what is made of columns.

    Returns
    -------
    fingerprint : str
        To be passed to ``with_encoder`` of a message.

    See Also
    --------
    fingerprint_names : Reads the names.

    Examples
    --------
    >>> from skslot.exchange import feature_fingerprint
    >>> feature_fingerprint(["age", "weight"])
    'columns:f4f5b7f73149a985 ["age", "weight"]'
    """
    text = json.dumps([str(name) for name in names])
    digest = hashlib.sha256((text if plan is None else plan).encode()).hexdigest()[:16]
    shown = f" {text}" if len(text) <= MOST_NAMES else ""
    return f"{'columns' if plan is None else 'plan'}:{digest}{shown}"


def fingerprint_names(fingerprint):
    """Read the names of columns from a fingerprint.

    Parameters
    ----------
    fingerprint : str or None
        What a message says of its features, its ``encoder``.

    Returns
    -------
    names : list of str or None
        Names of the features in their order; None if it does not say them.

    See Also
    --------
    feature_fingerprint : Makes it.

    Examples
    --------
    >>> from skslot.exchange import feature_fingerprint, fingerprint_names
    >>> fingerprint_names(feature_fingerprint(["age", "weight"]))
    ['age', 'weight']
    >>> fingerprint_names("resnet18") is None
    True
    """
    found = WITH_NAMES.fullmatch(fingerprint or "")
    try:
        names = json.loads(found.group(1)) if found else None
    except (ValueError, RecursionError):  # somebody else wrote it
        return None
    is_list = isinstance(names, list) and all(isinstance(n, str) for n in names)
    return names if is_list else None
