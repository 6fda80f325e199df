"""MixedEffectsAligner: offsets of clients by a random-effects model."""

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.utils.validation import check_memory

from .. import __version__
from .._docstrings import document
from .._sklearn_compat import Interval, StrOptions
from .._utils import map_in_order, number_unnamed, shorten, warn_user
from ..base import check_classes_agreed
from ..exchange import (
    AlignmentReference,
    ClassStatistics,
    ClientStatistics,
    Message,
    MixedEffectsModel,
    check_same_features,
    receive,
)
from ..statistics import (
    Cells,
    FeatureMoments,
    MixedEffects,
    VarianceComponents,
    WithinCovariance,
    average_rows,
    class_means,
    fit_mixed_effects,
    fit_unlabelled,
    floor_shrinkage,
    is_constant,
    shrinkage_coefficient,
)
from ._base import MixedEffectsMap, SolvedAligner, merge_cells
from ._optimal_transport import Restartable, full_map, solve_reference, survey

# Strengths of linear maps below this change nothing that matters.
LEAST_STRENGTH = 1e-3
# How the covariance that linear maps lead to is solved for.
SOLVER = "anderson", 1e-8, 100


@document
class MixedEffectsAligner(SolvedAligner):
    """Remove the effect of each client from the features, and keep that of the labels.

    A random-effects model of the means of all (client, class) cells separates the
    offset of a client from the effect of its class distribution. It estimates three
    variances from the data, so there is no strength to choose. ``transform`` subtracts
    the offset of the client. Labels are only needed in ``fit``.

    Read more in the :doc:`User Guide </user_guide/mixed_effects>`.

    Parameters
    ----------
    tau : float in [0, 1] or "auto", default=0
        Strength of an additional linear map, which moves the covariance of each client
        towards the barycenter of all clients. It works as in
        :class:`FederatedOTAligner`, but around the mean of the client. ``"auto"``
        computes it from the variances and the number of samples of each client.
    {unknown_client}
    {privacy}
    {client_column}
    {keep_client_column}
    {screen}
    {memory}
    {n_jobs}
    {verbose}

    Attributes
    ----------
    {clients_}
    {classes_}
    {variance_components_}
    {client_offsets_}
    {class_means_}
    {tau_}
    {converged_}
    reference_ : MixedEffectsModel
        Message of the server.
    maps_ : list of MixedEffectsMap
        Map of each client.
    statistics_ : list of ClassStatistics
        Message of each client. Clients that joined without labels have no class counts.
    {means_}
    covariances_ : ndarray of shape (n_clients, n_features, n_features)
        Covariance of each client used by linear maps, shrunk by "oas".
    {clients_report_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    MixedEffectsClassifier : Classifier based on the same model, and the better choice
        if a linear classifier suffices.
    FederatedOTAligner : Alignment that needs no labels.

    Notes
    -----
    The model assumes normal effects, with one variance for all features. If no two
    clients share a class, the effects of a client and of its classes cannot be
    distinguished. A weak prior then splits the difference, and removes a third of it.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import MixedEffectsAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> aligner = MixedEffectsAligner()
    >>> aligner = aligner.fit(data.data, data.target, client_ids=data.client_ids)
    >>> aligner.variance_components_
    {'client': ..., 'class': ..., 'interaction': ...}
    >>> aligner.transform(data.data[:1], client_ids=data.client_ids[:1]).shape
    (1, 64)
    """

    _parameter_constraints: dict = {
        **SolvedAligner._parameter_constraints,
        "tau": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
    }

    def __init__(
        self,
        tau=0,
        *,
        unknown_client="error",
        privacy=None,
        client_column=None,
        keep_client_column=False,
        screen="warn",
        memory=None,
        n_jobs=None,
        verbose=0,
    ):
        self.tau = tau
        self.unknown_client = unknown_client
        self.privacy = privacy
        self.client_column = client_column
        self.keep_client_column = keep_client_column
        self.screen = screen
        self.memory = memory
        self.n_jobs = n_jobs
        self.verbose = verbose

    # ------------------------------------------------------- the steps, one by one

    def client_update(self, X, y=None, *, classes=None, client=None):
        """Run the client step: summarize the samples of one client.

        Parameters
        ----------
        {X}
        {y}
            Required.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur. Required with ``privacy`` and ignored otherwise.
        {client}

        Returns
        -------
        statistics : ClassStatistics
            Message to the server.
        """
        self._validate_params()
        X = self._read_client(X, client)
        y = self._check_labels(y, X)
        if self.privacy is not None:
            check_classes_agreed(self, classes, client)
            return ClassStatistics.release(self.privacy, X, y, classes, client)
        return self._summarize(X, y, client)

    def client_map(self, message, reference):
        """Compute the map of one client from the model of the server.

        It needs no fitted estimator and has no side effects.

        Parameters
        ----------
        message : Message
            Message that the client sent.
        reference : MixedEffectsModel
            ``reference_`` of the server.

        Returns
        -------
        map : MixedEffectsMap
            Map that aligns features of this client without the estimator.
        """
        self._validate_params()
        _check_fits(reference, message)
        return alignment_of_message(reference).make_map(message)

    # ------------------------------------------------------------ what was fitted

    @property
    def classes_(self):
        """Labels that at least one client holds."""
        return np.array(self._aligned().labels)

    @property
    def variance_components_(self):
        """Variance of each kind of effect."""
        client, label, interaction = self._aligned().model.components
        return {"client": client, "class": label, "interaction": interaction}

    @property
    def client_offsets_(self):
        """What is subtracted from the features of each client."""
        return np.array([each.offset for each in self.maps_.values()])

    @property
    def class_means_(self):
        """Mean of each class over clients, without their offsets."""
        return self._aligned().model.means

    @property
    def tau_(self):
        """Strength of the linear map of each client."""
        return np.array(list(self._aligned().taus.values()))

    @property
    def converged_(self):
        """Whether the search for the variances converged."""
        return self._aligned().model.converged

    @property
    def reference_(self):
        """Message of the server."""
        return self._message(self._covariance_within())

    @property
    def statistics_(self):
        """Message of each client; without classes if these were guessed."""
        return [self._message_of(client) for client in self._aligned().clients]

    @property
    def means_(self):
        """Mean of each client."""
        return np.array([self._site_of(each).mean for each in self._aligned().clients])

    @property
    def covariances_(self):
        """Shrunk covariance of each client."""
        sites = map(self._site_of, self._aligned().clients)
        return np.array([site.gaussian().shrunk_covariance for site in sites])

    # ------------------------------------------------------------------- helpers

    _needs_labels = True
    _why_labels = (
        "Labels distinguish client effects from class effects; FederatedOTAligner "
        "needs none."
    )

    def _summarize(self, X, y, client):
        moments = FeatureMoments.from_rows(X)
        return ClassStatistics.from_moments(moments, class_means(X, y), client=client)

    def _merge(self, message, added):
        moments, cells = merge_cells(message, added)
        if isinstance(message, Site):
            return message._replace(moments=moments, class_cells=cells)
        return ClassStatistics.from_moments(moments, cells, client=message.client)

    def _solver(self, received):
        return partial(solve_mixed_effects, received, tau=self.tau, memory=self.memory)

    def _identity(self, n_features):
        return MixedEffectsMap.identity(n_features)

    def _keep(self, received, joined, alignment=None):
        super()._keep(received, joined, alignment)
        self._covariance = None

    def _within(self, shrinkage="clients"):
        """Covariance within classes and its shrinkage."""
        sites = map(site_of_message, self._received)
        return within_covariance(sites, self._aligned(), self.n_jobs).shrunk(shrinkage)

    def _covariance_within(self):
        """Covariance within classes, computed when it is first needed."""
        if self._covariance is None:
            self._covariance = self._within()[0]
        return self._covariance

    def _message(self, covariance, priors=None, by_client=False):
        """The message to all clients."""
        return model_message(self._aligned(), covariance, priors, by_client)

    def _message_of(self, client):
        """What a client sent or would send, without labels if it had to guess them."""
        if client in self._joined:
            return self._joined[client].message()
        return self._received.sent_by(client)

    def _site_of(self, client):
        """What is known of a client, in fit or since."""
        if client in self._joined:
            return self._joined[client]
        return site_of_message(self._received.of_client(client))

    def _newcomer(self, X, y, client):
        """Cells of a client that joins later; if it has no labels, they are guessed."""
        alignment = self._aligned()
        moments = FeatureMoments.from_rows(X)
        if y is not None:
            means = class_means(X, self._check_labels(y, X))
            check_classes_known(means, alignment.labels, client)
            return Site.of_moments(client, moments, means)
        # linear maps do not depend on labels
        anything = {alignment.labels[0]: (len(X), moments.mean)}
        linear = alignment.linear_map(Site.of_moments(client, moments, anything))
        rows = linear._move(X.astype(np.float64, copy=False))
        fit = fit_unlabelled(alignment.model, self._covariance_within(), rows)
        means = linear._move_back(fit.means)
        cells = zip(alignment.labels, fit.counts.tolist(), means, strict=True)
        held = {label: (count, mean) for label, count, mean in cells if count > 0}
        return Site.of_moments(client, moments, held, fit)

    def _adopt(self, message, statistics):
        """Take over the model of a server, at a site that knows itself at most."""
        alignment = alignment_of_message(message)
        if statistics is not None:
            _check_fits(message, statistics)
            alignment = alignment.with_client(statistics)
        messages = [] if statistics is None else [statistics]
        self._keep(receive(messages, Message), {}, alignment)
        self._covariance = message.covariance
        self.n_features_in_ = message.n_features
        return self


def _check_fits(model, message):
    """Refuse a message on other features or classes than those of a model."""
    check_same_features(model, message)
    site = site_of_message(message)
    check_classes_known(site.cells(), model.classes, site.client)


# ----------------------------------------------------------------- one client


class Site(NamedTuple):
    """A client as the model sees it: the cells that it holds, and its covariance.

    ``class_cells`` has the number of rows and the mean of each class, by label, and
    ``sample`` is the covariance of all rows without shrinkage. A client that joined
    later has the ``moments`` of its rows and, if its labels were predicted, the
    ``guess``.
    """

    client: object
    class_cells: dict
    sample: np.ndarray
    encoder: str | None = None
    moments: FeatureMoments | None = None
    guess: object = None

    @classmethod
    def of_moments(cls, client, moments, cells, guess=None):
        """Describe a client that joins later."""
        sample = moments.sample_covariance()
        return cls(client, cells, sample, moments=moments, guess=guess)

    def cells(self):
        """Number of rows and mean of each class, by label."""
        return self.class_cells

    def message(self):
        """What the client would send; without classes if these were guessed."""
        if self.guess is not None:
            return self.gaussian()
        return ClassStatistics.from_moments(
            self.moments, self.class_cells, client=self.client
        )

    @property
    def counts(self):
        """Number of rows of each class that it holds."""
        counts = [count for count, _ in self.class_cells.values()]
        return np.array(counts, dtype=np.float64)

    @property
    def means(self):
        """Mean of each class that it holds."""
        return np.array([mean for _, mean in self.class_cells.values()])

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
            shrinkage = floor_shrinkage(self.sample, coefficient)
        return ClientStatistics(
            n_samples, self.mean, self.sample, shrinkage, self.client, self.encoder
        )


def site_of_message(message):
    """Describe a client by its message."""
    if not message.describes_classes:
        raise ValueError(
            f"mixed effects need labels, but client {message.client!r} sent a "
            f"{type(message).__name__} without any; pass y to client_update, or let "
            "the client join when the others are fitted."
        )
    if not message.covariance.size:
        raise ValueError(
            f"client {message.client!r} sent no covariance; its classifier needs the "
            "aligner too."
        )
    return Site(message.client, message.cells(), message.covariance, message.encoder)


# ------------------------------------------------------------------ all clients


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

    def make_map(self, message):
        """Map of any client, whether it took part or not."""
        site = message if isinstance(message, Site) else site_of_message(message)
        return self.with_client(site).maps[site.client]

    def with_client(self, message):
        """The same with one more client, which the model is not fitted to."""
        site = message if isinstance(message, Site) else site_of_message(message)
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
        kept = {
            name: {c: each for c, each in part.items() if c != client}
            for name, part in parts.items()
        }
        return replace(self, **kept)


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


def solve_mixed_effects(received, *, tau, memory, n_jobs, say):
    """Solve for the alignment of clients from their messages."""

    def find_reference(found, gaussians):
        if memory is None:
            gaussians = Restartable(gaussians)
            return solve_reference(found, gaussians, n_jobs, say, *SOLVER)
        solve = check_memory(memory).cache(reference_of_list, ignore=["n_jobs", "say"])
        return solve(found, list(gaussians()), __version__, n_jobs=n_jobs, say=say)

    def sites():
        return map(site_of_message, received)

    alignment = solve_sites(sites, tau, received.in_memory, n_jobs, find_reference)
    if not alignment.model.converged:
        warn_user(
            "the search for the variance components did not converge; the model is "
            "that of the best ones found."
        )
    return alignment


def reference_of_list(found, gaussians, version, n_jobs, say):
    """What linear maps lead to; the part that is worth caching."""
    return solve_reference(found, gaussians, n_jobs, say, *SOLVER)


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
        found = survey(map(Site.gaussian, first_look()), "samples", n_jobs)
    if constant:
        warn_user(
            f"the rows of client {shorten(constant)} do not vary at all; have a look "
            "at how its features were made. It gets an offset and no linear map."
        )
    names = number_unnamed([site.client for site in known])
    labels = np.unique([label for site in known for label in site.class_cells]).tolist()
    cells = [site.class_cells for site in known]
    model = fit_mixed_effects(join_cells(cells, labels, sum(within)))
    by_rows = tau == "auto"
    strength = float(model.strength if by_rows else tau)
    n_features = len(known[0].mean)
    taus = [strength_of(strength, by_rows, s.n_samples, n_features) for s in known]
    linear, reference = [linear_map(site, 0.0, None) for site in known], None
    if max(taus) >= LEAST_STRENGTH:

        def gaussians():
            for site, facts in zip(sites(), found.summaries, strict=True):
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
    pairs = zip(site.class_cells.items(), means, strict=True)
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


# ----------------------------------------------------------------- as a message


def model_message(alignment, covariance, priors=None, by_client=False):
    """The message to all clients, from what was fitted."""
    model, reference = alignment.model, alignment.reference
    return MixedEffectsModel(
        alignment.labels,
        model.class_counts.astype(np.int64),
        model.holders.astype(np.int64),
        model.means,
        model.effects,
        (covariance + covariance.T) / 2,  # products are not quite symmetric
        np.array(model.components),
        model.class_shares if priors is None else priors,
        np.empty(0) if reference is None else reference.covariance,
        alignment.strength,
        alignment.by_rows,
        by_client,
        alignment.founders,
        alignment.encoder,
    )


def alignment_of_message(message):
    """What was fitted, from the message to all clients; without their cells."""
    model = MixedEffects(
        VarianceComponents(*message.components.tolist()),
        message.means,
        message.effects,
        message.class_counts.astype(np.float64),
        message.holders,
    )
    reference = None
    if message.reference_covariance.size:
        reference = AlignmentReference(
            np.zeros(message.n_features), message.reference_covariance, 0, 0.0
        )
    return MixedAlignment(
        message.classes,
        model,
        message.clients,
        message.strength,
        message.by_rows,
        reference,
        {},
        {},
        {},
        message.encoder,
    )
