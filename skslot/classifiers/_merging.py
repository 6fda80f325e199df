"""Merging of linear heads by their curvature: pure functions of messages.

Weights and intercept of a class are one vector here, for rows that are centred at one
origin for all clients and end in a one. Of a class, only the clients that hold it have
a say, and a client with a single class has none: it had nothing to tell it from.
"""

import numpy as np
from numpy.linalg import cholesky
from scipy.linalg import cho_solve

from .._warnings import warn_user
from ..statistics import average_rows, is_constant
from ._softmax import conjugate_gradients

# Added to the diagonal, in its own unit: where no client has curvature, the average of
# heads stays.
LEAST_CURVATURE = 1e-10


def merge_heads(heads, curvature, off_diagonal):
    """Classes, weights and intercepts of all clients.

    ``heads()`` loops over the CurvedHead of each client.
    """
    classes = np.unique(np.concatenate([head.classes for head in heads()]))
    holders, origin = _survey(heads, classes, curvature != "none")

    def clients():
        for head in heads():
            if len(head.classes) > 1:
                yield np.searchsorted(classes, head.classes), _shift(head, origin), head

    average = _merge_by_average(clients(), holders, len(origin) + 1)
    if curvature == "diag":
        merged = _merge_by_diagonal(clients(), average, origin)
    elif curvature == "gram":
        merged = _merge_by_gram(clients(), average, origin, holders, off_diagonal)
    elif curvature == "kfac":
        merged = _merge_by_factors(clients(), average, origin, off_diagonal)
    else:
        merged = average
    coef = merged[:, :-1]
    return classes, coef, merged[:, -1] - coef @ origin


def second_moments(head, origin):
    """Mean of ``z z^T`` over the rows of a client, centred and ending in a one.

    Features that stay at the origin have moments of exactly zero: what rounding leaves
    of them would be divided by itself.
    """
    mean = np.r_[head.mean - origin, 1.0]
    moments = np.outer(mean, mean)
    moments[:-1, :-1] += head.covariance
    size = np.r_[origin, 0.0]
    constant = is_constant(moments.diagonal(), size, head.n_samples)
    moments[constant] = moments[:, constant] = 0.0
    return moments


def _survey(heads, classes, needs_origin):
    """Which client holds which class, and the mean of the clients' means."""
    holders, means = [], []
    for head in heads():
        holders.append(np.isin(classes, head.classes) & (len(head.classes) > 1))
        means.append(head.mean if needs_origin else np.zeros(head.n_features))
    return np.array(holders), average_rows(np.array(means))


def _shift(head, origin):
    """Weights and intercepts for rows that are centred at the origin."""
    return np.column_stack([head.coef, head.intercept + head.coef @ origin])


def _merge_by_average(clients, holders, n_weights):
    total = np.zeros((holders.shape[1], n_weights))
    for where, weights, _ in clients:
        total[where] += weights
    return total / np.maximum(holders.sum(axis=0), 1)[:, None]


def _merge_by_diagonal(clients, average, origin):
    """Fisher merging: each weight by the curvature that it has at each client."""
    total, sums = np.zeros_like(average), np.zeros_like(average)
    for where, weights, head in clients:
        fisher = head.fisher.copy()
        # the same at the common origin, which is apart from that of the client
        fisher[:, :-1] += fisher[:, -1:] * np.square(head.mean - origin)
        total[where] += fisher
        sums[where] += fisher * (weights - average[where])
    apart = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)
    return average + apart


def _merge_by_gram(clients, average, origin, holders, off_diagonal):
    """RegMean: least squares to what each head says about the rows of its client."""
    # classes that the same clients hold share one matrix
    patterns, group = np.unique(holders, axis=1, return_inverse=True)
    group = group.ravel()
    grams = np.zeros((patterns.shape[1], average.shape[1], average.shape[1]))
    sums = np.zeros_like(average)
    for where, weights, head in clients:
        gram = _damp(second_moments(head, origin), off_diagonal)
        grams[np.unique(group[where])] += gram
        sums[where] += (weights - average[where]) @ gram
    merged = average.copy()
    for index in np.unique(group[holders.any(axis=0)]):
        own, gram = group == index, grams[index]
        scale = np.sqrt(gram.diagonal())
        scale[scale == 0] = np.inf  # a feature that is zero everywhere
        scaled = gram / scale / scale[:, None]
        np.fill_diagonal(scaled, 1 + LEAST_CURVATURE)
        apart = cho_solve((cholesky(scaled), True), (sums[own] / scale).T).T
        merged[own] += apart / scale
    return merged


def _merge_by_factors(clients, average, origin, off_diagonal):
    """Laplace's approximation of each client: curvature of classes times features."""
    forms, target = [], np.zeros_like(average)
    diagonal = np.zeros_like(average)
    for where, weights, head in clients:
        gram = _damp(second_moments(head, origin), off_diagonal)
        curvature = _centre(head.class_curvature)
        forms.append((where, curvature, gram))
        target[where] += curvature @ weights @ gram
        diagonal[where] += np.outer(curvature.diagonal(), gram.diagonal())

    def apply(weights):
        image = np.zeros_like(weights)
        for where, curvature, gram in forms:
            image[where] += curvature @ weights[where] @ gram
        return image

    merged, converged = conjugate_gradients(apply, target, average, diagonal)
    if not converged:
        warn_user(
            "merging by curvature='kfac' did not converge; a smaller off_diagonal "
            "makes it easier."
        )
    return merged


def _damp(gram, off_diagonal):
    damped = off_diagonal * gram
    np.fill_diagonal(damped, gram.diagonal())
    return damped


def _centre(curvature):
    """Make scores that all classes share cost nothing, which the wire rounded."""
    centred = curvature - curvature.mean(axis=0)
    return centred - centred.mean(axis=1, keepdims=True)
