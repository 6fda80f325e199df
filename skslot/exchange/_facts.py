"""What messages of any kind say about their client, to compare it with others."""

from dataclasses import fields, replace

import numpy as np

from .._linalg import packed_diagonal
from ..trust import ClientFacts
from ._message import fingerprint_names
from ._wire import WireArray


def facts_of(message):
    """What a message says about its client; None if it is none of a client."""
    n_samples = getattr(message, "n_samples", None)
    if n_samples is None and hasattr(message, "counts"):
        n_samples = message.counts.sum().item()
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
    mean, arrays = message.mean, message._wire_arrays()
    triangle = arrays.get("covariance_triangle")
    if triangle is not None and triangle.tensor.size:
        return mean, _diagonal(triangle, len(mean)), class_means
    if hasattr(message, "covariance_type"):
        return mean, _variances_of_mixtures(message, mean), class_means
    if hasattr(message, "variance"):
        return mean, np.full(len(mean), message.variance), class_means
    return mean, None, class_means


def _diagonal(triangles, n_features):
    """Variances in packed triangles, of which nothing else is made numbers of."""
    tensor, exponent = triangles
    return WireArray(tensor[..., packed_diagonal(n_features)], exponent).decode()


def _variances_of_mixtures(message, mean):
    """Variance of each feature, of all components together."""
    kind, n_features = message.covariance_type, len(mean)
    covariances = message._wire_arrays()["covariances"]
    if kind == "full":
        flat = _diagonal(covariances, n_features)
    else:
        flat = covariances.decode()
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
