"""Alignment by optimal transport: Gaussians of clients, their reference, their maps.

Pure functions. Whether a client is known by its rows or by its message, it is described
as a :class:`ClientGaussian`, and everything after that is the same code.
"""

import pickle
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError, cholesky, eigh, eigvalsh
from xxhash import xxh3_128

from .._clients import number_unnamed, shorten, without
from .._linalg import ROUNDING, pack_triangle, unpack_triangle
from .._parallel import map_in_order
from .._warnings import warn_user
from ..exchange import AlignmentReference, ClientStatistics, check_same_features
from ..geometry import transport_matrix
from ..geometry._barycenter import solve_barycenter
from ..statistics import FeatureMoments, average_rows, is_constant, shrink_covariance
from ._maps import TransportMap

# Smallest eigenvalue of a client's covariance, relative to their mean. The shrunk
# covariance has no eigenvalue below `shrinkage` in this unit, so raising the shrinkage
# to the floor is enough. At 1e-6 the barycenter solvers stall.
SHRINKAGE_FLOOR = 1e-4


class ClientGaussian(NamedTuple):
    """What alignment knows of a client; ``sample`` is its covariance as it is.

    If it ``is_constant``, its rows do not vary, and only their mean can be aligned.
    Facts about a client are the same without the covariance, which may not fit in
    memory for all of them.
    """

    client: object
    n_samples: int
    mean: np.ndarray
    total_variance: float
    is_constant: bool
    shrinkage: float
    is_singular: bool
    encoder: str | None
    sample: np.ndarray | None
    privacy: dict | None = None

    @classmethod
    def of(
        cls,
        client,
        n_samples,
        mean,
        shrinkage,
        is_singular,
        encoder,
        sample,
        privacy=None,
    ):
        """Describe a client, of whose variances the sum is kept."""
        variances = sample.diagonal()
        constant = bool(is_constant(variances, mean, n_samples).all())
        variation = float(variances.sum()), constant
        facts = client, n_samples, mean, *variation, shrinkage, is_singular
        return cls(*facts, encoder, sample, privacy)

    @property
    def facts(self):
        """All but the covariance."""
        return self._replace(sample=None)

    @property
    def covariance(self):
        """Shrunk covariance."""
        return shrink_covariance(self.sample, self.shrinkage)

    def message(self):
        """The message that describes the client."""
        return ClientStatistics(
            self.n_samples,
            self.mean,
            pack_triangle(self.sample),
            self.shrinkage,
            self.client,
            self.encoder,
            self.privacy,
        )


def describe_rows(moments, shrinkage, client=None):
    """Gaussian of a client, from the moments of its rows."""
    sample = moments.sample_covariance()
    coefficient = floored_coefficient(sample, moments.covariance(shrinkage)[1])
    # symmetric but for rounding: the triangle that messages have, for the same bits
    sample = unpack_triangle(pack_triangle(sample))
    facts = client, moments.n_samples, moments.mean, coefficient
    return ClientGaussian.of(*facts, _is_floor(coefficient), None, sample)


def describe_message(message, shrinkage=None):
    """Gaussian of a client, from its message.

    Sent in float16, a covariance may get negative eigenvalues; the shrinkage is raised
    until they are above the floor. Who has done that before passes the ``shrinkage``.
    """
    if not hasattr(message, "client_statistics"):
        raise TypeError(
            f"expected the message of a client, got a {type(message).__name__}; bytes "
            "are read by skslot.exchange.load_message."
        )
    sent = message.client_statistics()
    sample = unpack_triangle(sent.covariance_triangle)
    if shrinkage is None:
        shrinkage = floored_coefficient(sample, sent.shrinkage)
    facts = sent.client, sent.n_samples, sent.mean, shrinkage
    facts += _is_floor(sent.shrinkage), sent.encoder, sample, sent.privacy
    return ClientGaussian.of(*facts)


class Survey(NamedTuple):
    """What a first look at all clients gives: facts, weights and mean covariance.

    The covariance is None if the rows of no client vary.
    """

    facts: list
    weights: np.ndarray
    covariance: np.ndarray | None


def survey(gaussians, weights):
    """Look at the Gaussians of all clients, one by one."""
    facts, counts, total = [], [], 0.0
    for each in gaussians:
        facts.append(each.facts)
        counts.append(float(each.n_samples) if weights == "samples" else 1.0)
        if not each.is_constant:
            total = total + counts[-1] * each.covariance
    counts = np.array(counts)
    varying = counts[[not each.is_constant for each in facts]]
    mean = total / varying.sum() if len(varying) else None
    return Survey(facts, counts / counts.sum(), mean)


def solve_reference(found, gaussians, n_jobs, say, solver, tol, max_iter):
    """Reference of some clients, of whom a survey was made.

    ``gaussians()`` gives the Gaussians of all clients one by one, once per pass of the
    solver. Clients whose rows do not vary count in the mean and are left out of the
    barycenter.
    """
    facts, weights, start = found
    mean = average_rows(np.array([each.mean for each in facts]), weights)
    varying = np.array([not each.is_constant for each in facts])
    barycenter, n_iter, residual = np.zeros((len(mean), len(mean))), 0, 0.0
    if start is not None:

        def covariances():
            for each, is_varying in zip(gaussians(), varying, strict=True):
                if is_varying:
                    yield each.covariance

        barycenter, result = solve_barycenter(
            covariances,
            weights[varying] / weights[varying].sum(),
            tol,
            max_iter,
            solver,
            n_jobs,
            start,
            say,
        )
        n_iter, residual = result.n_iter, result.residual
    return AlignmentReference.from_covariance(
        mean, barycenter, n_iter, residual, facts[-1].encoder
    )


def full_map(gaussian, reference):
    """Map of a client that goes all the way to the reference."""
    if gaussian.is_constant or not reference.covariance_triangle.any():
        matrix = np.eye(len(gaussian.mean))
    else:
        target = _without_rounding(reference.covariance)
        matrix = transport_matrix(gaussian.covariance, target)
    return TransportMap(gaussian.mean, matrix, reference.mean, 1.0)


def _without_rounding(covariance):
    """A covariance, less what the rounding of the wire left below zero."""
    try:
        cholesky(covariance)
    except LinAlgError:
        eigenvalues, vectors = eigh(covariance)
        return (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    return covariance


def full_map_of_message(message, reference):
    """Full map of a client, from its message."""
    check_same_features(reference, message)
    return full_map(describe_message(message), reference)


def floored_coefficient(sample, coefficient):
    """Shrinkage that leaves no eigenvalue below the floor, raised if it must be."""
    mean_eigenvalue = np.trace(sample) / len(sample)
    if not mean_eigenvalue > 0:  # constant rows, which no shrinkage can help
        return coefficient
    excess = shrink_covariance(sample, coefficient)
    # just below the floor, so that a coefficient at the floor passes
    excess[np.diag_indices_from(excess)] -= 0.99 * SHRINKAGE_FLOOR * mean_eigenvalue
    try:
        cholesky(excess)
    except LinAlgError:
        least = eigvalsh(sample)[0] / mean_eigenvalue
        if least > -ROUNDING:  # zero but for rounding
            return SHRINKAGE_FLOOR
        return (SHRINKAGE_FLOOR - least) / (1.0 - least)
    return coefficient


# ------------------------------------------------------------------ all clients


@dataclass(frozen=True)
class Alignment:
    """Reference, weights and maps of all clients.

    ``facts`` and ``maps`` are by client; maps that are too many to keep are not there.
    ``class_means`` are those of the messages, if they were asked for. What is solved
    for does not depend on ``tau``, the strength of the maps, and may be cached.
    """

    facts: dict
    weights: np.ndarray
    reference: AlignmentReference
    maps: dict
    class_means: dict | None = None
    tau: float = 1.0

    @property
    def clients(self):
        """Ids of all clients."""
        return list(self.facts)

    def at(self, tau):
        """The same with another strength."""
        maps = {client: each.at(tau) for client, each in self.maps.items()}
        return replace(self, maps=maps, tau=float(tau))

    def map_to_reference(self, gaussian):
        """Map of any client, known or not."""
        return full_map(gaussian, self.reference).at(self.tau)

    def with_client(self, gaussian):
        """The same with one more client, which has no weight in the reference."""
        client = gaussian.client
        return replace(
            self,
            facts={**self.facts, client: gaussian.facts},
            weights=np.append(self.weights, 0.0),
            maps={**self.maps, client: self.map_to_reference(gaussian)},
        )

    def without_client(self, client):
        """The same without a client that has no weight in the reference."""
        return replace(
            self,
            facts=without(self.facts, client),
            weights=np.delete(self.weights, self.clients.index(client)),
            maps=without(self.maps, client),
        )


def pickled(*key, make):
    """What is made for a key, as bytes.

    joblib takes many small objects apart in Python, which takes longer than to solve
    for few features; it stores bytes as they are.
    """
    return pickle.dumps(make())


def digest_of(X, groups):
    """What tells the rows of clients apart, in a small part of the time of joblib's."""
    digest = xxh3_128(np.ascontiguousarray(X))
    digest.update(pickle.dumps((X.shape, X.dtype.str, groups)))
    return digest.hexdigest()


def moments_by_client(X, groups, n_jobs, known=None):
    """Moments of the rows of each client, unless they are known."""
    if known:
        return {client: known[client] for client in groups.clients}
    rows = (X[each] for each in groups.rows)
    found = map_in_order(FeatureMoments.from_rows, rows, n_jobs)
    return dict(zip(groups.clients, found, strict=True))


def solve_moments(moments, joined, n_jobs, say, factors, shrinkage, weights, *settings):
    """Alignment from the moments of each client; the joined ones have no weight.

    ``factors`` say what part of its rows each of the others counts for.
    """

    def describe(named):
        client, each = named
        return _weigh(describe_rows(each, shrinkage, client), factors.get(client, 1))

    known = list(map_in_order(describe, moments.items(), n_jobs))
    founders = [each for each in known if each.client not in joined]
    found = survey(founders, weights)
    reference = solve_reference(found, lambda: founders, n_jobs, say, *settings)
    names = [each.client for each in founders]
    share_of = dict(zip(names, found.weights, strict=True))
    return Alignment(
        {each.client: each.facts for each in known},
        np.array([share_of.get(client, 0.0) for client in moments]),
        reference,
        dict(zip(moments, _full_maps(known, reference, n_jobs), strict=True)),
    )


def _weigh(gaussian, factor):
    return gaussian._replace(n_samples=gaussian.n_samples * factor)


def solve_messages(messages, keep_maps, with_classes, weights, *settings, n_jobs, say):
    """Alignment from the messages of all clients.

    They are read once, once per pass of the solver, and once more to keep maps.
    """
    class_means = []

    def first_look():
        for message in messages:
            if with_classes:
                class_means.append(_class_means_of(message))
            yield message

    def gaussians():
        for message, known in zip(messages, found.facts, strict=True):
            yield describe_message(message, known.shrinkage)

    found = survey(map_in_order(describe_message, first_look(), n_jobs), weights)
    reference = solve_reference(found, gaussians, n_jobs, say, *settings)
    maps = _full_maps(gaussians(), reference, n_jobs) if keep_maps else []
    names = number_unnamed([each.client for each in found.facts])
    return Alignment(
        dict(zip(names, found.facts, strict=True)),
        found.weights,
        reference,
        dict(zip(names, maps, strict=keep_maps)),
        dict(zip(names, class_means, strict=with_classes)),
    )


def _full_maps(gaussians, reference, n_jobs):
    return map_in_order(lambda each: full_map(each, reference), gaussians, n_jobs)


def _class_means_of(message):
    """Number of rows and mean of each class that a client has rows of."""
    if not hasattr(message, "class_means"):
        raise ValueError(
            "tau='auto' needs class counts and means, but the message of client "
            f"{message.client!r} has none; pass y to client_update."
        )
    return message._means_held()


# --------------------------------------------------------------------- warnings


def warn_about(facts, shrinkage):
    """Warn about clients whose covariance says little."""
    for note in degeneracy_notes(facts, shrinkage):
        warn_user(note)


def degeneracy_notes(facts, shrinkage):
    """Sentences on clients whose covariance says little or nothing, for a warning."""
    constant = [each.client for each in facts if each.is_constant]
    floored = [
        each.client
        for each in facts
        if each.is_singular and not each.is_constant and shrinkage != SHRINKAGE_FLOOR
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


def _is_floor(shrinkage):
    """Whether a shrinkage was raised to the floor, and maybe rounded by the wire."""
    return bool(np.isclose(shrinkage, SHRINKAGE_FLOOR, rtol=2**-10, atol=0))


def _named(clients):
    if clients == [None]:
        return "this client"
    return f"client {shorten(clients) if len(clients) > 1 else repr(clients[0])}"
