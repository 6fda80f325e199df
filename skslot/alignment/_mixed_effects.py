"""Alignment by mixed effects: cells of clients, their offsets, their linear maps.

Pure functions. Whether a client is known by its rows or by its message, it is described
as a :class:`Site`, and everything after that is the same code.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .._clients import number_unnamed, shorten, without
from .._linalg import pack_triangle, unpack_triangle
from .._parallel import map_in_order
from .._warnings import warn_user
from ..effects import Cells, MixedEffects, WithinCovariance, fit_mixed_effects
from ..exchange import AlignmentReference
from ..statistics import average_rows, is_constant, shrinkage_coefficient
from ._maps import MixedEffectsMap
from ._optimal_transport import (
    ClientGaussian,
    floored_coefficient,
    full_map,
    solve_reference,
    survey,
)

# Strengths of linear maps below this change nothing that matters.
LEAST_STRENGTH = 1e-3
# How the covariance that linear maps lead to is solved for.
SOLVER = "anderson", 1e-8, 100


class Site(NamedTuple):
    """What the model knows of a client: the cells that it holds, and its covariance.

    ``cells`` has the number of rows and the mean of each class, by label; ``sample`` is
    the covariance of all rows as it is.
    """

    client: object
    cells: dict
    sample: np.ndarray
    encoder: str | None = None

    @property
    def counts(self):
        """Number of rows of each class that it holds."""
        return np.array([count for count, _ in self.cells.values()], dtype=np.float64)

    @property
    def means(self):
        """Mean of each class that it holds."""
        return np.array([mean for _, mean in self.cells.values()])

    @property
    def n_samples(self):
        """Number of rows."""
        return self.counts.sum()

    @property
    def mean(self):
        """Mean of all rows."""
        return average_rows(self.means, self.counts)

    def scatter(self):
        """Products of deviations of rows from the means of their cells, summed."""
        apart = self.means - self.mean
        return self.n_samples * self.sample - (apart.T * self.counts) @ apart

    def within(self):
        """Trace of the scatter."""
        between = self.counts @ np.square(self.means - self.mean).sum(axis=1)
        return max(self.n_samples * np.trace(self.sample) - between, 0.0)

    def gaussian(self, shrinkage=None):
        """Mean and shrunk covariance, for the linear map.

        Who has computed the ``shrinkage`` before passes it.
        """
        n_samples = round(self.n_samples)
        if shrinkage is None:
            coefficient = shrinkage_coefficient("oas", self.sample, n_samples)
            shrinkage = floored_coefficient(self.sample, coefficient)
        facts = self.client, n_samples, self.mean, shrinkage, False, self.encoder
        return ClientGaussian.of(*facts, self.sample)


def site_of_moments(client, moments, class_means):
    """Describe a client by the moments of its rows, and its class means."""
    # the triangle that messages have, for the same bits
    sample = unpack_triangle(pack_triangle(moments.sample_covariance()))
    return Site(client, class_means, sample)


def site_of_message(message):
    """Describe a client by its message."""
    if not hasattr(message, "class_means"):
        raise ValueError(
            f"mixed effects need labels, but client {message.client!r} sent a "
            f"{type(message).__name__} without any; pass y to client_update, or let "
            "the client join when the others are fitted."
        )
    if not message.covariance_triangle.size:
        raise ValueError(
            f"client {message.client!r} sent no covariance; its classifier needs the "
            "aligner too."
        )
    sample = unpack_triangle(message.covariance_triangle)
    return Site(message.client, message._means_held(), sample, message.encoder)


@dataclass(frozen=True)
class MixedAlignment:
    """The model of all clients, and a map for each of them.

    ``founders`` are the clients that the model was fitted to. ``sites`` has the cells
    of each client, after its linear map; ``maps`` its map, unless there are too many
    linear ones to keep. ``reference`` is what linear maps lead to, or None.
    """

    labels: list
    model: MixedEffects
    founders: list
    strength: float
    by_rows: bool
    reference: AlignmentReference | None
    sites: dict
    taus: dict
    maps: dict
    encoder: str | None

    @property
    def clients(self):
        """Ids of all clients."""
        return list(self.sites)

    @property
    def n_features(self):
        """Number of features."""
        return self.model.means.shape[1]

    def linear_map(self, site):
        """Map of a client without its offset."""
        tau = strength_of(self.strength, self.by_rows, site.n_samples, self.n_features)
        return linear_map(site, tau, self.reference)

    def rows_and_means(self, cells):
        """Numbers of rows and means of all classes; zero where there is no cell."""
        counts = np.zeros(len(self.labels))
        means = np.zeros((len(self.labels), self.n_features))
        position = {label: index for index, label in enumerate(self.labels)}
        for label, (count, mean) in cells.items():
            counts[position[label]], means[position[label]] = count, mean
        return counts, means

    def offset_of(self, client):
        """Offset of a client, whether the model was fitted to it or not."""
        is_founder = client in self.founders
        model = self.model
        offset = model.offset if is_founder else model.offset_of_newcomer
        return offset(*self.rows_and_means(self.sites[client]))

    def with_site(self, site):
        """The same with one more client, which the model is not fitted to."""
        linear = self.linear_map(site)
        sites = {**self.sites, site.client: moved_cells(site, linear)}
        new = replace(self, sites=sites, taus={**self.taus, site.client: linear.tau})
        offset = new.offset_of(site.client)
        return replace(
            new, maps={**self.maps, site.client: replace(linear, offset=offset)}
        )

    def without_client(self, client):
        """The same without a client that the model is not fitted to."""
        parts = {"sites": self.sites, "taus": self.taus, "maps": self.maps}
        return replace(self, **{k: without(v, client) for k, v in parts.items()})


def strength_of(strength, by_rows, n_samples, n_features):
    """Strength of the linear map of a client: less with few rows, if it is to be."""
    return strength * (n_samples / (n_samples + n_features) if by_rows else 1.0)


def linear_map(site, tau, reference):
    """Linear map of a client around its mean, towards the reference if there is one."""
    no_offset = np.zeros(len(site.mean))
    if tau == 0 or reference is None:
        return MixedEffectsMap(site.mean, None, no_offset, 0.0)
    matrix = full_map(site.gaussian(), reference).matrix
    return MixedEffectsMap(site.mean, matrix, no_offset, float(tau))


def find_reference(found, gaussians, n_jobs, say):
    """What linear maps lead to; ``gaussians()`` gives those of all clients anew."""
    return solve_reference(found, gaussians, n_jobs, say, *SOLVER)


def reference_of_list(found, gaussians, n_jobs, say):
    """The same for a list of Gaussians; the part of ``fit`` worth caching."""
    return find_reference(found, lambda: gaussians, n_jobs, say)


def solve_sites(sites, tau, keep_maps, n_jobs, find_reference):
    """Alignment of clients; ``sites()`` gives them one by one, anew on each call.

    Without linear maps they are read once, else once per pass of the solver and twice
    more. ``find_reference(found, gaussians)`` solves for what these maps lead to.
    """
    known, within, constant = [], [], []

    def first_look():
        for site in sites():
            facts = site.sample.diagonal(), site.mean, site.n_samples
            if site.n_samples > 1 and is_constant(*facts).all():
                constant.append(site.client)
            known.append(site._replace(sample=None))
            within.append(site.within())
            yield site

    if tau == 0:
        deque(first_look(), maxlen=0)
    else:
        looked_at = map_in_order(Site.gaussian, first_look(), n_jobs)
        found = survey(looked_at, "samples")
    if constant:
        warn_user(
            f"the rows of client {shorten(constant)} do not vary at all; have a look "
            "at how its features were made. It gets an offset and no linear map."
        )
    names = number_unnamed([site.client for site in known])
    labels = np.unique([label for site in known for label in site.cells]).tolist()
    cells = [site.cells for site in known]
    model = fit_mixed_effects(join_cells(cells, labels, sum(within)))
    by_rows = tau == "auto"
    strength = float(model.strength if by_rows else tau)
    n_features = len(known[0].mean)
    taus = [strength_of(strength, by_rows, s.n_samples, n_features) for s in known]
    linear, reference = [linear_map(site, 0.0, None) for site in known], None
    if max(taus) >= LEAST_STRENGTH:

        def gaussians():
            for site, facts in zip(sites(), found.facts, strict=True):
                yield site.gaussian(facts.shrinkage)

        reference = find_reference(found, gaussians)
        pairs = zip(sites(), taus, strict=True)
        moved = map_in_order(
            lambda pair: _push(*pair, reference, keep_maps), pairs, n_jobs
        )
        linear, cells, within = zip(*moved, strict=True)
        model = fit_mixed_effects(join_cells(cells, labels, sum(within)))
    else:
        taus = [0.0] * len(known)
    alignment = MixedAlignment(
        labels,
        model,
        names,
        strength,
        by_rows,
        reference,
        dict(zip(names, cells, strict=True)),
        dict(zip(names, taus, strict=True)),
        {},
        known[0].encoder,
    )
    maps = {
        name: replace(each, offset=alignment.offset_of(name))
        for name, each in zip(names, linear, strict=True)
        if each is not None
    }
    return replace(alignment, maps=maps)


def join_cells(cells, labels, within=0.0):
    """Cells of all clients, their classes numbered by ``labels``."""
    position = {label: index for index, label in enumerate(labels)}
    held = [len(each) for each in cells]
    pairs = [pair for each in cells for pair in each.values()]
    return Cells(
        np.repeat(np.arange(len(held)), held),
        np.array([position[label] for each in cells for label in each]),
        np.array([count for count, _ in pairs], dtype=np.float64),
        np.array([mean for _, mean in pairs]),
        within,
    )


def within_covariance(sites, alignment, n_jobs):
    """Covariance of all rows around their class means, without effects of clients.

    The rows of ``sites`` are moved by the maps of the alignment.
    """
    founders = alignment.founders
    cells = join_cells([alignment.sites[each] for each in founders], alignment.labels)
    offsets = np.array([alignment.offset_of(each) for each in founders])
    shares = cells.counts / cells.class_counts[cells.label]
    pooled = WithinCovariance(cells.counts.sum(), cells.least_variance)
    apart = cells.means  # a copy, as large as all messages
    apart -= offsets[cells.client]
    apart -= cells.class_sums(shares, apart)[cells.label]

    def moved(numbered):
        position, site = numbered
        own = cells.client == position
        between = (apart[own].T * cells.counts[own]) @ apart[own]
        linear = alignment.maps.get(founders[position]) or alignment.linear_map(site)
        return site.n_samples, _moved_scatter(site, linear) + between

    for n_samples, scatter in map_in_order(moved, enumerate(sites), n_jobs):
        pooled.add(n_samples, scatter)
    return pooled


def _push(site, tau, reference, keep_map):
    """Linear map of a client, and what it makes of its cells and their scatter."""
    linear = linear_map(site, tau, reference)
    within = max(np.trace(_moved_scatter(site, linear)), 0.0)
    return linear if keep_map else None, moved_cells(site, linear), within


def moved_cells(site, linear):
    """Cells of a client after its linear map."""
    means = linear._move(site.means) if linear.tau > 0 else site.means
    pairs = zip(site.cells.items(), means, strict=True)
    return {label: (count, mean) for (label, (count, _)), mean in pairs}


def _moved_scatter(site, linear):
    """Scatter of the rows of a client after its linear map."""
    scatter, matrix = site.scatter(), linear.affine[0]
    return scatter if matrix is None else matrix @ scatter @ matrix


def check_classes_known(labels, known, client):
    """Refuse labels of a newcomer that no other client has."""
    strangers = [label for label in labels if label not in known]
    if strangers:
        raise ValueError(
            f"client {client!r} has rows of {shorten(strangers)}, classes that no "
            "client had in fit; fit again with its rows, or leave them out."
        )
