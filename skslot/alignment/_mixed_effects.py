"""MixedEffectsAligner: offsets of clients by a random-effects model."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from numbers import Real

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_memory

from .. import __version__
from .._docstrings import document
from .._sklearn_compat import Interval, StrOptions
from .._utils import Restartable, ignored, map_in_order, shorten, warn_user
from ..base import check_classes_agreed
from ..exchange import (
    ClassStatistics,
    ClientStatistics,
    Message,
    MixedEffectsModel,
    check_same_features,
    receive,
)
from ..geometry import bures_barycenter, transport_matrix
from ..statistics import (
    Cells,
    FeatureMoments,
    class_means,
    fit_mixed_effects,
    fit_unlabelled,
    floor_shrinkage,
    is_constant,
    lift_eigenvalues,
    shrink_covariance,
    shrinkage_coefficient,
    stack_class_means,
    within_covariance,
)
from ._base import ClientMap, SolvedAligner

# Linear maps of a smaller strength change nothing that matters.
LEAST_TAU = 1e-3
# How the covariance that linear maps lead to is solved for.
SOLVER = {"solver": "anderson", "tol": 1e-8, "max_iter": 100}


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
        Strength of an additional linear map: the covariance of each client is moved
        this part of the way to the barycenter of all clients, as in
        :class:`FederatedOTAligner`, but around the mean of the client. ``"auto"``
        derives it from the variances, and for each client from its number of samples.
    within_shrinkage : {"clients", "oas"} or float in [0, 1], default="clients"
        Weight of the identity in the covariance within classes, which predicts the
        labels of clients that join without. ``"clients"`` derives it from the
        differences between clients, ``"oas"`` from the number of samples.
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
        Fitted model, which is the message of the server to all clients.
    maps_ : mapping of MixedEffectsMap
        Map of each client, by its id.
    cells_ : dict
        For each client a dict of its classes, with the number of samples and their
        mean after the linear map. Empty for a client that joined without labels.
    fits_ : dict of SiteFit
        Estimates for each client that joined without labels.
    statistics_ : list of ClassStatistics
        Message of each client, without labels if it joined without.
    {means_}
    covariances_ : ndarray of shape (n_clients, n_features, n_features)
        Covariance of each client, shrunk by "oas" as for linear maps.
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
        "within_shrinkage": [
            StrOptions({"clients", "oas"}),
            Interval(Real, 0, 1, closed="both"),
        ],
    }

    def __init__(
        self,
        tau=0,
        *,
        within_shrinkage="clients",
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
        self.within_shrinkage = within_shrinkage
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
        if not isinstance(reference, MixedEffectsModel):
            raise TypeError(
                "reference must be the reference_ of the server, a MixedEffectsModel, "
                f"got a {type(reference).__name__}."
            )
        check_fits(reference, message)
        return map_of_client(reference, message)

    @classmethod
    def from_model(cls, model, statistics=None):
        """Make the aligner of a site from the model of a server.

        Parameters
        ----------
        model : MixedEffectsModel
            The ``reference_`` of the server.
        statistics : ClassStatistics, default=None
            Message that the site had sent. If None, the site joins by
            :meth:`add_client`.

        Returns
        -------
        aligner : MixedEffectsAligner
            Fitted aligner for this site only.
        """
        if not isinstance(model, MixedEffectsModel):
            raise TypeError(
                f"model must be a MixedEffectsModel, got a {type(model).__name__}; "
                "files and bytes are read by skslot.exchange.load_message."
            )
        aligner = cls(tau="auto" if model.by_rows else model.tau)
        alignment = MixedAlignment(model, {}, {})
        messages = []
        if statistics is not None:
            check_fits(model, statistics)
            alignment, messages = alignment.with_client(statistics), [statistics]
        aligner._keep(receive(messages, Message), {}, alignment)
        aligner.n_features_in_ = model.n_features
        return aligner

    # ------------------------------------------------------------ what was fitted

    @property
    def reference_(self):
        """Fitted model, which is the message of the server to all clients."""
        return self._aligned().model

    @property
    def classes_(self):
        """Labels that at least one client holds."""
        return np.array(self.reference_.classes)

    @property
    def variance_components_(self):
        """Variance of each kind of effect."""
        components = self.reference_.components.tolist()
        return dict(zip(("client", "class", "interaction"), components, strict=True))

    @property
    def class_means_(self):
        """Mean of each class over clients, without their offsets."""
        return self.reference_.means

    @property
    def converged_(self):
        """Whether the search for the variances converged."""
        return self.reference_.converged

    @property
    def client_offsets_(self):
        """Offset of each client."""
        alignment = self._aligned()
        return np.array([alignment.offset(each) for each in alignment.clients])

    @property
    def tau_(self):
        """Strength of the linear map of each client."""
        alignment = self._aligned()
        return np.array([alignment.tau(each) for each in alignment.clients])

    @property
    def cells_(self):
        """Class means of each client, after its linear map."""
        return self._aligned().cells

    @property
    def fits_(self):
        """Estimates for clients that joined without labels."""
        joined = self._joined.items()
        fits = {client: fit_of(message) for client, message in joined}
        return {client: fit for client, fit in fits.items() if fit is not None}

    @property
    def statistics_(self):
        """Message of each client; without classes if these were predicted."""
        return [
            self._joined.get(client) or self._received.sent_by(client)
            for client in self._aligned().clients
        ]

    @property
    def means_(self):
        """Mean of each client."""
        return np.array([message.mean for message in self.statistics_])

    @property
    def covariances_(self):
        """Shrunk covariance of each client."""
        messages = (
            self._joined.get(client) or self._received.of_client(client)
            for client in self._aligned().clients
        )
        return np.array([shrunk_by_oas(message) for message in messages])

    # ------------------------------------------------------------------- helpers

    _needs_labels = True
    _why_labels = (
        "Labels distinguish client effects from class effects; FederatedOTAligner "
        "needs none."
    )

    def _merge(self, message, added):
        # labels take the place of predicted ones
        is_predicted = isinstance(message, ClientStatistics)
        return added if is_predicted else super()._merge(message, added)

    def _solver(self, received):
        return partial(
            solve_mixed_effects,
            received,
            tau=self.tau,
            shrinkage=self.within_shrinkage,
            memory=self.memory,
        )

    def _newcomer(self, X, y, client):
        """Message of a client that joins later; without labels, they are predicted."""
        model, moments = self._aligned().model, FeatureMoments.from_rows(X)
        if y is not None:
            means = class_means(X, self._check_labels(y, X))
            check_classes_known(means, model.classes, client)
            return ClassStatistics.from_moments(moments, means, client=client)
        message = ClientStatistics.from_moments(moments, "oas", client)
        linear = linear_map_of(model, message)
        rows = linear._move(X.astype(np.float64, copy=False))
        vars(message)["fit"] = fit_unlabelled(model, model.covariance, rows)
        return message


@dataclass(frozen=True, eq=False)
class MixedEffectsMap(ClientMap):
    """Map that subtracts the effect of one client from its features.

    Made by :meth:`skslot.MixedEffectsAligner.client_map`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the client.
    matrix : ndarray of shape (n_features, n_features) or None
        Linear part of the full optimal-transport map. None leaves it out.
    offset : ndarray of shape (n_features,)
        Offset of the client, which is subtracted.
    tau : float
        Strength of the linear part: 0 leaves it out, 1 is the full map. It transforms
        samples around the mean of the client.

    See Also
    --------
    TransportMap : Map that also moves the mean of the client towards the reference.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.alignment import MixedEffectsMap
    >>> moved = MixedEffectsMap(np.zeros(1), None, np.array([2.0]), tau=0.0)
    >>> moved.transform([[5.0]])
    array([[3.]])
    """

    mean: np.ndarray
    matrix: np.ndarray | None
    offset: np.ndarray
    tau: float

    def __repr__(self):
        return f"MixedEffectsMap(n_features={self.n_features}, tau={self.tau:g})"

    @classmethod
    def identity(cls, n_features):
        """Make the map that leaves samples as they are.

        Parameters
        ----------
        n_features : int
            Number of features.

        Returns
        -------
        map : MixedEffectsMap
            The map without offset.
        """
        return cls(np.zeros(n_features), None, np.zeros(n_features), tau=0.0)

    @property
    def n_features(self):
        """Number of features."""
        return len(self.mean)

    def at(self, share):
        """Scale the map.

        Parameters
        ----------
        share : float
            0 leaves samples as they are, 1 is the whole map.

        Returns
        -------
        map : MixedEffectsMap
            A new map.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {share!r}.")
        return replace(self, offset=share * self.offset, tau=share * self.tau)

    @property
    def _centre(self):
        return self.mean, self.mean - self.offset

    @cached_property
    def affine(self):
        """Matrix, None for the identity, and offset, which is added."""
        if self.matrix is None:
            return None, -self.offset
        matrix = self.tau * self.matrix
        matrix[np.diag_indices_from(matrix)] += 1.0 - self.tau
        return matrix, self.mean - matrix @ self.mean - self.offset


# ------------------------------------------------------------------ one client


def check_describes_classes(message):
    """Reject a message without class means or covariance."""
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


def check_classes_known(labels, known, client):
    """Reject labels of a newcomer that no other client has."""
    strangers = [label for label in labels if label not in known]
    if strangers:
        raise ValueError(
            f"client {client!r} has rows of {shorten(strangers)}, classes that no "
            "client had in fit; fit again with its rows, or leave them out."
        )


def check_fits(model, message):
    """Reject a message on other features or classes than those of a model."""
    check_same_features(model, message)
    check_describes_classes(message)
    check_classes_known(message.cells(), model.classes, message.client)


def fit_of(message):
    """Estimates that come with a client that joined without labels, else None."""
    return getattr(message, "fit", None)


def varies(message):
    """Whether any feature of a client varies."""
    facts = message.covariance.diagonal(), message.mean, message.n_samples
    return not is_constant(*facts).all()


def shrunk_by_oas(message):
    """Covariance of a client for its linear map."""
    covariance, n_samples = message.covariance, round(message.n_samples)
    coefficient = shrinkage_coefficient("oas", covariance, n_samples)
    return shrink_covariance(covariance, floor_shrinkage(covariance, coefficient))


def client_tau(tau, by_rows, n_samples, n_features):
    """Strength of the linear map of a client, lower with few samples if ``by_rows``."""
    return tau * (n_samples / (n_samples + n_features) if by_rows else 1.0)


def linear_map(message, tau, reference_covariance):
    """Map of a client around its mean, without its offset."""
    no_offset, matrix = np.zeros(len(message.mean)), None
    if tau > 0 and reference_covariance.any() and varies(message):
        # sent in float16, the reference may have negative eigenvalues
        target = lift_eigenvalues(reference_covariance)
        matrix = transport_matrix(shrunk_by_oas(message), target)
    return MixedEffectsMap(message.mean, matrix, no_offset, float(tau))


def linear_map_of(model, message):
    """Map of any client, without its offset, from the fitted model."""
    sizes = message.n_samples, model.n_features
    tau = client_tau(model.tau, model.by_rows, *sizes)
    return linear_map(message, tau, model.reference_covariance)


def map_of_client(model, message):
    """Map of any client, whether or not the model was fitted to it."""
    linear, fit = linear_map_of(model, message), fit_of(message)
    if fit is not None:
        return replace(linear, offset=fit.offset)
    cells = stack_class_means(moved_cells(message, linear), model.classes)
    is_fitted = message.client in model.clients
    offset = model.offset if is_fitted else model.offset_of_newcomer
    return replace(linear, offset=offset(*cells))


def moved_cells(message, linear):
    """Class means of a client after its linear map."""
    held = message.cells()
    means = linear._move(np.array([mean for _, mean in held.values()]))
    pairs = zip(held.items(), means, strict=True)
    return {label: (count, mean) for (label, (count, _)), mean in pairs}


def moved_scatter(message, linear):
    """Scatter of a client around its class means, after its linear map."""
    scatter, matrix = message.scatter(), linear.affine[0]
    return scatter if matrix is None else matrix @ scatter @ matrix


# ------------------------------------------------------------------ all clients


@dataclass(frozen=True)
class MixedAlignment:
    """Fitted model, with the class means and the maps of clients.

    ``cells`` contains the class means of each client after its linear map, and none for
    clients without labels. ``maps`` contains the map of each client, unless messages
    are in files: there are too many linear maps to keep then.
    """

    model: MixedEffectsModel
    cells: dict
    maps: dict

    @property
    def clients(self):
        """Ids of all clients."""
        return list(self.cells)

    def tau(self, client):
        """Strength of the linear map of a client."""
        if client in self.maps:
            return self.maps[client].tau
        n_samples = sum(count for count, _ in self.cells[client].values())
        facts = self.model.tau, self.model.by_rows, n_samples, self.model.n_features
        return client_tau(*facts)

    def offset(self, client):
        """Offset of a client."""
        if client in self.maps:
            return self.maps[client].offset
        cells = stack_class_means(self.cells[client], self.model.classes)
        return self.model.offset(*cells)

    def make_map(self, message):
        """Map of any client, whether or not the model was fitted to it."""
        return map_of_client(self.model, message)

    def with_client(self, message):
        """Add a client that the model is not fitted to."""
        client, each = message.client, self.make_map(message)
        linear = replace(each, offset=np.zeros_like(each.offset))
        cells = {} if fit_of(message) else moved_cells(message, linear)
        return replace(
            self,
            cells={**self.cells, client: cells},
            maps={**self.maps, client: each},
        )

    def without_client(self, client):
        """Remove a client that the model is not fitted to."""
        cells = {c: each for c, each in self.cells.items() if c != client}
        maps = {c: each for c, each in self.maps.items() if c != client}
        return replace(self, cells=cells, maps=maps)


def solve_mixed_effects(received, *, tau, shrinkage, memory, n_jobs, say):
    """Fit the model to the messages of all clients, and make their maps.

    Messages are read one by one, two times. Linear maps take two more, and one for each
    iteration of the solver.
    """
    known = []
    for message in received:
        check_describes_classes(message)
        within = max(np.trace(message.scatter()), 0.0)
        facts = message.n_samples, varies(message), message.cells(), within
        known.append((*facts, linear_map(message, 0.0, None)))
    n_samples, varying, class_means, within, linear = zip(*known, strict=True)
    names, n_features = received.names, len(linear[0].mean)
    sizes = list(zip(names, n_samples, varying, strict=True))
    constant = [name for name, n, does_vary in sizes if n > 1 and not does_vary]
    if constant:
        warn_user(
            f"the rows of client {shorten(constant)} do not vary at all; have a look "
            "at how its features were made. It gets an offset and no linear map."
        )
    classes = np.unique([label for held in class_means for label in held]).tolist()
    cells = Cells.of_clients(class_means, classes, sum(within))
    fitted = fit_mixed_effects(cells)

    by_rows = tau == "auto"
    tau = fitted.client_share if by_rows else float(tau)
    taus = [client_tau(tau, by_rows, n, n_features) for n in n_samples]
    reference = np.empty(0)
    if max(taus) < LEAST_TAU:
        tau = 0.0
    else:
        reference = np.zeros((n_features, n_features))
        weights = [round(n) for _, n, does_vary in sizes if does_vary]
        if weights:
            covariances = Restartable(
                lambda: map(shrunk_by_oas, filter(varies, received))
            )
            if memory is not None:
                covariances = list(covariances)
            solve = check_memory(memory).cache(barycenter_of, ignore=["n_jobs", "say"])
            reference = solve(covariances, weights, __version__, n_jobs, say)

        def push(message_and_tau):
            message, tau = message_and_tau
            each = linear_map(message, tau, reference)
            within = max(np.trace(moved_scatter(message, each)), 0.0)
            kept = each if received.in_memory else None
            return moved_cells(message, each), within, kept

        pairs = zip(received, taus, strict=True)
        pushed = map_in_order(push, pairs, n_jobs)
        class_means, within, linear = zip(*pushed, strict=True)
        cells = Cells.of_clients(class_means, classes, sum(within))
        fitted = fit_mixed_effects(cells)
    if not fitted.converged:
        warn_user(
            "the search for the variance components did not converge; the model is "
            "that of the best ones found."
        )

    offsets = fitted.offsets(cells)
    deviations = cells.deviations(offsets)

    def scatter_around_all(numbered):
        index, message = numbered
        each = linear[index] or linear_map(message, taus[index], reference)
        own = cells.client == index
        between = (deviations[own].T * cells.counts[own]) @ deviations[own]
        return message.n_samples, moved_scatter(message, each) + between

    scatters = map_in_order(scatter_around_all, enumerate(received), n_jobs)
    covariance, shrinkage = within_covariance(scatters, shrinkage, cells.least_variance)
    model = MixedEffectsModel(
        **vars(fitted),
        classes=classes,
        covariance=(covariance + covariance.T) / 2,  # products are not quite symmetric
        shrinkage=shrinkage,
        priors=fitted.class_shares,
        reference_covariance=reference,
        tau=tau,
        by_rows=by_rows,
        by_client=False,
        clients=names,
        encoder=received.senders[0].encoder,
    )
    maps = {
        name: replace(each, offset=offset)
        for name, each, offset in zip(names, linear, offsets, strict=True)
        if each is not None
    }
    return MixedAlignment(model, dict(zip(names, class_means, strict=True)), maps)


def barycenter_of(covariances, weights, version, n_jobs, say):
    """Barycenter of clients; the ``version`` of the package is part of a cache key."""
    with ignored(ConvergenceWarning):
        options = {**SOLVER, "n_jobs": n_jobs, "progress": say}
        return bures_barycenter(covariances, weights, **options)[0]
