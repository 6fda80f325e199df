"""Alignment as two pure steps: client arrays to a message, messages to a reference."""

from dataclasses import replace

import numpy as np
from scipy.linalg import LinAlgError

from .._clients import shorten
from ..exchange import AlignmentReference, ClientStatistics
from ..exchange._features import check_pair, check_same_features
from ..exchange._packing import unpack_triangle
from ..geometry import transport_matrix
from ..geometry._barycenter import solve_barycenter
from ..geometry._linalg import ROUNDING, cholesky, eigh
from ..statistics._shrinkage import shrink
from ._auto_tau import automatic_tau_of

# Smallest eigenvalue of a client's covariance, relative to their mean. The shrunk
# covariance has no eigenvalue below `shrinkage` in this unit, so raising the shrinkage
# to the floor is enough. At 1e-6 the barycenter solvers stall.
SHRINKAGE_FLOOR = 1e-4


def summarize(moments, shrinkage, client=None):
    """Client step: the message that describes some rows by their moments."""
    sample = moments.sample_covariance()
    coefficient = floored_coefficient(sample, moments.covariance(shrinkage)[1])
    return ClientStatistics.from_covariance(
        moments.n_samples, moments.mean, sample, coefficient, client
    )


def aggregate(statistics, weights, solver, tol, max_iter):
    """Server step: the reference of some clients, as (reference, weights).

    ``statistics`` is read once per pass of the solver. Clients whose rows do not vary
    count in the mean and are left out of the barycenter.
    """
    clients, counts, means, varying = [], [], [], []
    encoder = None
    for message in check_same_features(statistics):
        encoder = message.encoder
        clients.append(message.client)
        counts.append(message.n_samples)
        means.append(message.mean)
        varying.append(not message.is_constant)
    twice = {name for name in clients if name is not None and clients.count(name) > 1}
    if twice:
        raise ValueError(
            f"more than one message came from client {shorten(sorted(twice, key=str))}."
        )
    if not means:
        raise ValueError("statistics is empty: there is no client to align.")
    counts = np.asarray(counts, dtype=np.float64)
    weights = (
        counts / counts.sum()
        if weights == "samples"
        else np.full_like(counts, 1 / len(counts))
    )
    mean = weights @ np.array(means)
    if not any(varying):
        flat = np.zeros((len(mean), len(mean)))
        reference = AlignmentReference.from_covariance(mean, flat, 0, 0.0, encoder)
        return reference, weights
    barycenter, result = solve_barycenter(
        _Covariances(statistics), weights[varying], tol, max_iter, solver
    )
    reference = AlignmentReference.from_covariance(
        mean, barycenter, result.n_iter, result.residual, encoder
    )
    return reference, weights


def statistics_of(message):
    """What alignment needs of a message, made positive definite if it was rounded.

    Messages of classifiers have more in them. Sent in float16, a covariance may get
    negative eigenvalues; the shrinkage is raised until they are above the floor.
    """
    if not hasattr(message, "client_statistics"):
        raise TypeError(
            f"expected the message of a client, got a {type(message).__name__}; bytes "
            "are read by ClientStatistics.from_bytes."
        )
    statistics = message.client_statistics()
    if statistics.is_constant:
        return statistics
    sample = unpack_triangle(statistics.covariance_triangle)
    coefficient = floored_coefficient(sample, statistics.shrinkage)
    return replace(statistics, shrinkage=coefficient)


def map_matrix(statistics, reference):
    """Client step, after the reference came back: the linear part of the full map."""
    check_pair(reference, statistics)
    if statistics.is_constant or not reference.covariance_triangle.any():
        return np.eye(statistics.n_features)
    return transport_matrix(statistics.covariance, reference.covariance)


def degeneracy_notes(statistics, shrinkage):
    """Sentences on clients whose covariance says little or nothing, for a warning."""
    constant = [s.client for s in statistics if s.is_constant]
    floored = [
        s.client
        for s in statistics
        if not s.is_constant
        and np.isclose(s.shrinkage, SHRINKAGE_FLOOR, rtol=2**-10, atol=0)
        and shrinkage != SHRINKAGE_FLOOR
    ]
    notes = []
    if constant:
        notes.append(
            f"The rows of {_named(constant)} do not vary (a single row, or "
            "constant features): their covariance is left out of the reference and "
            "their map only translates."
        )
    if floored:
        notes.append(
            f"The covariance of {_named(floored)} is singular or nearly so (few "
            "rows, or constant or repeated features): its shrinkage was raised to "
            f"{SHRINKAGE_FLOOR:g}. The map may magnify directions in which these rows "
            "do not vary; give a larger shrinkage, such as 0.1, or more rows."
        )
    return notes


def floored_coefficient(sample, coefficient):
    """Shrinkage that leaves no eigenvalue below the floor, raised if it must be."""
    mean_eigenvalue = np.trace(sample) / len(sample)
    if not mean_eigenvalue > 0:  # constant rows, which no shrinkage can help
        return coefficient
    excess = shrink(sample, coefficient)
    # just below the floor, so that a coefficient at the floor passes
    excess[np.diag_indices_from(excess)] -= 0.99 * SHRINKAGE_FLOOR * mean_eigenvalue
    try:
        cholesky(excess)
    except LinAlgError:
        least = eigh(sample)[0][0] / mean_eigenvalue
        if least > -ROUNDING:  # zero but for rounding
            return SHRINKAGE_FLOOR
        return (SHRINKAGE_FLOOR - least) / (1.0 - least)
    return coefficient


def _named(clients):
    if clients == [None]:
        return "this client"
    return f"client {shorten(clients) if len(clients) > 1 else repr(clients[0])}"


class _Covariances:
    """Covariances of the clients that vary, made anew on each pass."""

    def __init__(self, statistics):
        self.statistics = statistics

    def __iter__(self):
        return (s.covariance for s in self.statistics if not s.is_constant)


class ReceivedStatistics:
    """Statistics of messages that are read anew on each pass, never held as a whole."""

    def __init__(self, messages):
        self.messages = messages

    def __iter__(self):
        return map(statistics_of, self.messages)


def tau_of(messages):
    """Automatic strength from messages that describe classes."""
    cells, traces = [], []
    for message in messages:
        if not hasattr(message, "class_means"):
            raise ValueError(
                "tau='auto' needs class counts and means, but the message of client "
                f"{message.client!r} has none; pass y to client_update."
            )
        rows = zip(message.classes, message.counts, message.class_means, strict=True)
        cells.append({label: (n, mean) for label, n, mean in rows if n > 0})
        traces.append(message.client_statistics().variances.sum())
    return automatic_tau_of(cells, traces)
