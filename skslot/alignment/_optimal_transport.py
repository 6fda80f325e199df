"""FederatedOTAligner: alignment towards a Wasserstein barycenter."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError, cholesky, eigh
from scipy.spatial.distance import pdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import mutual_info_score
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, check_memory

from .. import __version__
from .._docstrings import document
from .._sklearn_compat import Interval, StrOptions
from .._utils import Restartable, ignored, map_in_order, shorten, warn_user
from ..base import FEATURES, ClientGroups, assert_finite_by_client, check_classes_agreed
from ..exchange import (
    AlignmentReference,
    ClassStatistics,
    ClientStatistics,
    check_same_features,
)
from ..geometry import (
    BarycenterResult,
    bures_barycenter,
    displacement_map,
    transport_matrix,
)
from ..statistics import (
    FeatureMoments,
    average_rows,
    class_means,
    floor_shrinkage,
    noisy_shrinkage,
    shrink_covariance,
)
from ._base import ClientMap, SolvedAligner

SHRINKAGE_FLOOR = FeatureMoments.SHRINKAGE_FLOOR


@document
class FederatedOTAligner(SolvedAligner):
    """Align the features of several clients by optimal transport.

    Every client summarizes its features by a mean and a shrunk covariance. The
    reference is the Wasserstein barycenter of these Gaussians. Each client transforms
    its features by a closed-form affine map, which covers the fraction ``tau`` of the
    way to the reference (SLOT-Align [1]_). Aligned features of different clients differ
    less, so a classifier can be trained on all of them.

    Read more in the :doc:`User Guide </user_guide/alignment>`.

    Parameters
    ----------
    tau : float in [0, 1] or "auto", default=0.4
        Alignment strength. 0 leaves features unchanged, and the reference is only
        computed on request. 1 gives every client the mean and covariance of the
        reference. ``"auto"`` computes ``tau`` from class counts and class means in
        closed form, see :doc:`/user_guide/choosing_tau`, and requires ``y`` in ``fit``.
    shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1], default="ledoit_wolf"
        Weight of the identity in the covariance of each client, by scikit-learn's
        convention. The paper's lambda is one minus this number. With ``privacy``,
        ``"ledoit_wolf"`` is replaced by ``"oas"``, because fourth powers of samples are
        not released.
    weights : {"samples", "uniform"}, default="samples"
        Weights of the clients: proportional to the number of samples, or all equal.
    {unknown_client}
    {privacy}
    {client_column}
    {keep_client_column}
    {screen}
    solver : {"anderson", "fixed_point", "paper"}, default="anderson"
        Iteration for the barycenter, see :func:`skslot.geometry.bures_barycenter`.
    tol : float, default=1e-8
        Tolerance on the scale-free residual of the barycenter.
    max_iter : int, default=100
        Maximum number of iterations of the solver.
    {memory}
    {n_jobs}
    {verbose}

    Attributes
    ----------
    {clients_}
    tau_ : float
        Alignment strength that is used.
    weights_ : ndarray of shape (n_clients,)
        Weight of each client in the reference; 0 for clients added by
        :meth:`add_client`.
    {means_}
    covariances_ : ndarray of shape (n_clients, n_features, n_features)
        Shrunk covariance of each client.
    shrinkage_ : ndarray of shape (n_clients,)
        Shrinkage coefficient of each client.
    reference_mean_ : ndarray of shape (n_features,)
        Mean of the reference.
    reference_covariance_ : ndarray of shape (n_features, n_features)
        Covariance of the reference.
    n_iter_ : int
        Number of iterations of the barycenter solver.
    residual_ : float
        Scale-free residual of the barycenter.
    statistics_ : list of ClientStatistics
        Message of each client.
    reference_ : AlignmentReference
        Message of the server.
    maps_ : list of TransportMap
        Map of each client.
    {clients_report_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    skslot.statistics.FeatureMoments : Statistics of samples that do not fit in memory.
    skslot.geometry.bures_barycenter : The covariance of the reference.

    Notes
    -----
    Both ``fit`` and ``transform`` need the client of each sample. ``client_ids`` is
    requested by default, so a Pipeline passes it to both if metadata routing is
    enabled, without any ``set_fit_request`` call. For the same reason,
    ``fit_transform`` passes ``client_ids`` to both methods.

    The maps have positive eigenvalues: they stretch and shift features, but never
    rotate or reflect them. If a site stores images inverted, they stay inverted.

    References
    ----------
    .. [1] D. Berardini, V. P. Pastore, V. Murino. "Distribution Alignment for One-Shot
       Federated Learning via Optimal Transport". ICML, 2026.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (50, 2)), rng.normal(5, 3, (50, 2))])
    >>> site = np.repeat(["A", "B"], 50)
    >>> aligner = FederatedOTAligner(tau=1.0).fit(X, client_ids=site)
    >>> aligned = aligner.transform(X, client_ids=site)
    >>> means = [aligned[site == name].mean(axis=0) for name in "AB"]
    >>> bool(np.allclose(*means))
    True
    """

    _parameter_constraints: dict = {
        **SolvedAligner._parameter_constraints,
        "tau": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "shrinkage": [
            StrOptions({"ledoit_wolf", "oas"}),
            Interval(Real, 0, 1, closed="both"),
        ],
        "weights": [StrOptions({"samples", "uniform"})],
        "solver": [StrOptions({"anderson", "fixed_point", "paper"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        tau=0.4,
        *,
        shrinkage="ledoit_wolf",
        weights="samples",
        unknown_client="error",
        privacy=None,
        client_column=None,
        keep_client_column=False,
        screen="warn",
        solver="anderson",
        tol=1e-8,
        max_iter=100,
        memory=None,
        n_jobs=None,
        verbose=0,
    ):
        self.tau = tau
        self.shrinkage = shrinkage
        self.weights = weights
        self.unknown_client = unknown_client
        self.privacy = privacy
        self.client_column = client_column
        self.keep_client_column = keep_client_column
        self.screen = screen
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.memory = memory
        self.n_jobs = n_jobs
        self.verbose = verbose

    # ------------------------------------------------------- the steps, one by one

    def client_update(self, X, y=None, *, classes=None, client=None):
        """Run the client step: summarize the samples of one client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or FeatureMoments
            Samples, or their moments if they do not fit in memory.
        {y}
            Only used if ``tau="auto"``, which requires class counts and class means.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur. Required with ``privacy`` if ``y`` is used, and
            ignored without ``privacy``.
        {client}

        Returns
        -------
        statistics : ClientStatistics or ClassStatistics
            Message to the server. It describes classes if ``tau="auto"`` and ``y`` is
            given.
        """
        self._validate_params()
        if isinstance(X, FeatureMoments):
            if self.privacy is not None:
                raise ValueError(
                    "privacy needs the rows, to clip them; FeatureMoments are those of "
                    "rows as they are."
                )
            if y is not None:
                raise ValueError(
                    "y is of no use with FeatureMoments, which do not distinguish "
                    "classes; with tau='auto' pass rows, or use partial_fit."
                )
            message = ClientStatistics.from_moments(X, self.shrinkage, client)
        else:
            X = self._read_client(X, client)
            y = None if y is None else self._check_labels(y, X)
            if self.privacy is not None:
                shrinkage = noisy_shrinkage(self.shrinkage)
                if y is None or not self._needs_labels:
                    budget = self.privacy
                    return ClientStatistics.release(budget, X, client, shrinkage)
                check_classes_agreed(self, classes, client)
                return ClassStatistics.release(
                    self.privacy, X, y, classes, client, shrinkage
                )
            message = self._summarize(X, y if self._needs_labels else None, client)
        warn_about_message(message, self.shrinkage)
        return message

    def client_map(self, message, reference):
        """Compute the map of one client from the reference of the server.

        It needs no fitted estimator and has no side effects.

        Parameters
        ----------
        message : Message
            Message that the client sent.
        reference : AlignmentReference
            ``reference_`` of the server.

        Returns
        -------
        map : TransportMap
            Map that aligns features of this client without the estimator.
        """
        self._validate_params()
        if not isinstance(reference, AlignmentReference):
            raise TypeError(
                "reference must be the reference_ of the server, an "
                f"AlignmentReference, got a {type(reference).__name__}."
            )
        tau = reference.tau if self.tau == "auto" else self.tau
        if tau is None:
            raise ValueError(
                "The reference contains no tau because the server used a fixed value. "
                "Set tau explicitly."
            )
        check_same_features(reference, message)
        statistics = invertible(message.client_statistics())
        return full_map(statistics, reference).at(tau)

    # ------------------------------------------------------------ what was fitted

    @property
    def tau_(self):
        """Strength of the alignment that was fitted."""
        check_is_fitted(self)
        return 0.0 if self._moves_nothing else self._aligned().tau

    @property
    def weights_(self):
        """Weight of each client in the reference."""
        return self._aligned().weights

    @property
    def statistics_(self):
        """Message of each client."""
        sent = (
            self._joined.get(client) or self._received.sent_by(client)
            for client in self._aligned().clients
        )
        return [invertible(message.client_statistics()) for message in sent]

    @property
    def reference_(self):
        """Message of the server."""
        alignment = self._aligned()
        if not alignment.is_tau_automatic:
            return alignment.reference
        return replace(alignment.reference, tau=alignment.tau)

    @property
    def means_(self):
        """Mean of each client."""
        return np.array([each.mean for each in self._aligned().summaries.values()])

    @property
    def covariances_(self):
        """Shrunk covariance of each client."""
        return np.array([each.shrunk_covariance for each in self.statistics_])

    @property
    def shrinkage_(self):
        """Shrinkage coefficient of each client."""
        summaries = self._aligned().summaries.values()
        return np.array([each.shrinkage for each in summaries])

    @property
    def reference_mean_(self):
        """Mean of the reference."""
        return self._aligned().reference.mean

    @property
    def reference_covariance_(self):
        """Covariance of the reference."""
        return self._aligned().reference.covariance

    @property
    def n_iter_(self):
        """Passes of the barycenter solver."""
        return self._aligned().reference.n_iter

    @property
    def residual_(self):
        """Residual of the barycenter."""
        return self._aligned().reference.residual

    @property
    def notes_(self):
        """Sentences on clients whose covariance says little or nothing."""
        alignment = self._aligned()
        return degeneracy_notes(alignment.summaries.values(), alignment.shrinkage)

    # ------------------------------------------------------------------- helpers

    _why_labels = (
        "tau='auto' compares the class distributions of the clients; pass y, or set "
        "tau to a number."
    )

    @property
    def _needs_labels(self):
        return self.tau == "auto"

    @property
    def _stays_put(self):
        return self.tau == 0

    @property
    def _is_strength_fixed(self):
        return self.tau not in (0, "auto")

    def _validate_rows(self, X, y, client_ids, *, reset=True):
        X, labels, groups = super()._validate_rows(X, y, client_ids, reset=reset)
        if reset and self._is_strength_fixed and y is not None:
            # messages do not describe classes, so nobody else can look at them
            advise_on_classes(count_classes(y, groups))
        return X, labels, groups

    def server_aggregate(self, messages):
        super().server_aggregate(messages)
        if self._is_strength_fixed:
            senders = self._received.senders
            advise_on_classes([each.class_counts for each in senders])
            rows = [each.n_samples or np.inf for each in senders]
            named = dict(zip(self._received.names, rows, strict=True))
            advise_on_rows(named, senders[0].n_features)
        return self

    def _client_updates(self, X, y, groups):
        # the server step names all of these clients at once
        with ignored(DegenerateClientWarning):
            return super()._client_updates(X, y, groups)

    def _newcomer(self, X, y, client):
        shrinkage = self._aligned().shrinkage
        moments = FeatureMoments.from_rows(X)
        message = ClientStatistics.from_moments(moments, shrinkage, client)
        warn_about_message(message, shrinkage)
        return message

    def _solver(self, received):
        return partial(
            solve_transport,
            received,
            tau=self.tau,
            shrinkage=self.shrinkage,
            memory=self.memory,
            weights=self.weights,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
        )


@dataclass(frozen=True, eq=False)
class TransportMap(ClientMap):
    """Moves the features of one client towards the reference.

    All that a site needs at prediction time; made by
    :meth:`skslot.FederatedOTAligner.client_map`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the client.
    matrix : ndarray of shape (n_features, n_features)
        Linear part of the full optimal-transport map.
    target_mean : ndarray of shape (n_features,)
        Mean of the reference.
    tau : float
        Strength: 0 leaves rows as they are, 1 is the full map.

    See Also
    --------
    skslot.geometry.displacement_map : The formula.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.alignment import TransportMap
    >>> moved = TransportMap(np.zeros(1), np.eye(1), np.array([4.0]), tau=0.5)
    >>> moved.transform([[1.0]])
    array([[3.]])
    """

    mean: np.ndarray
    matrix: np.ndarray
    target_mean: np.ndarray
    tau: float

    def __repr__(self):
        return f"TransportMap(n_features={len(self.mean)}, tau={self.tau:g})"

    @classmethod
    def identity(cls, n_features):
        """Map that leaves rows as they are.

        Parameters
        ----------
        n_features : int
            Number of features.

        Returns
        -------
        map : TransportMap
            The map with ``tau=0``.
        """
        zero = np.zeros(n_features)
        return cls(zero, np.eye(n_features), zero, tau=0.0)

    def at(self, tau):
        """Give the map another strength.

        Parameters
        ----------
        tau : float
            Strength: 0 leaves rows as they are, 1 is the full map.

        Returns
        -------
        map : TransportMap
            A new map.
        """
        if not 0 <= tau <= 1:
            raise ValueError(f"tau must lie in [0, 1], got {tau!r}.")
        return replace(self, tau=float(tau))

    @property
    def n_features(self):
        """Number of features."""
        return len(self.mean)

    @property
    def _centre(self):
        return self.mean, self.mean + self.tau * (self.target_mean - self.mean)

    @cached_property
    def affine(self):
        """Matrix and offset: a row ``z`` goes to ``matrix @ z + offset``."""
        return displacement_map(self.mean, self.matrix, self.target_mean, self.tau)

    @property
    def _affine_or_none(self):
        return (None, None) if self.tau == 0 else self.affine


# ----------------------------------------------------------------- one client


class Summary(NamedTuple):
    """What is kept of a client while its message, which may be in a file, is not.

    If it ``is_constant``, its samples do not vary, and only their mean can be aligned.
    ``was_raised`` states that the shrinkage is the smallest that makes the covariance
    invertible.
    """

    client: object
    n_samples: int
    mean: np.ndarray
    total_variance: float
    is_constant: bool
    shrinkage: float
    was_raised: bool
    encoder: str | None

    @classmethod
    def of(cls, statistics, sent_shrinkage):
        """Summarise a client whose shrinkage was raised where necessary."""
        return cls(
            statistics.client,
            statistics.n_samples,
            statistics.mean,
            float(statistics.variances.sum()),
            statistics.is_constant,
            statistics.shrinkage,
            _is_floor(sent_shrinkage),
            statistics.encoder,
        )


def invertible(statistics):
    """Raise the shrinkage of a client until its covariance can be inverted.

    Sent in float16, a covariance may have negative eigenvalues.
    """
    shrinkage = floor_shrinkage(statistics.covariance, statistics.shrinkage)
    return replace(statistics, shrinkage=shrinkage)


class Survey(NamedTuple):
    """Result of a first pass over all clients: summaries, weights, mean covariance.

    The covariance is None if the samples of no client vary.
    """

    summaries: list
    weights: np.ndarray
    covariance: np.ndarray | None


def survey(statistics, weights, n_jobs):
    """Summarise all clients, one by one."""

    def look_at(sent):
        described = invertible(sent)
        summary = Summary.of(described, sent.shrinkage)
        return summary, None if summary.is_constant else described.shrunk_covariance

    summaries, counts, total = [], [], 0.0
    for summary, covariance in map_in_order(look_at, statistics, n_jobs):
        summaries.append(summary)
        counts.append(float(summary.n_samples) if weights == "samples" else 1.0)
        if covariance is not None:
            total = total + counts[-1] * covariance
    counts = np.array(counts)
    varying = counts[[not each.is_constant for each in summaries]]
    mean = total / varying.sum() if len(varying) else None
    return Survey(summaries, counts / counts.sum(), mean)


def solve_reference(found, statistics, n_jobs, say, solver, tol, max_iter):
    """Compute the reference of the clients that a survey has found.

    ``statistics`` is an iterable of the statistics of these clients. It is restarted in
    each iteration of the solver. Clients whose samples do not vary count in the mean
    and are excluded from the barycenter.
    """
    summaries, weights, start = found
    mean = average_rows(np.array([each.mean for each in summaries]), weights)
    varying = np.array([not each.is_constant for each in summaries])
    barycenter, n_iter, residual = np.zeros((len(mean), len(mean))), 0, 0.0
    if start is not None:
        covariances = Restartable(
            lambda: (
                shrink_covariance(sent.covariance, summary.shrinkage)
                for sent, summary in zip(statistics, summaries, strict=True)
                if not summary.is_constant
            )
        )
        # whoever asked for the reference warns, also if it came from a cache
        with ignored(ConvergenceWarning):
            barycenter, result = bures_barycenter(
                covariances,
                weights[varying] / weights[varying].sum(),
                tol=tol,
                max_iter=max_iter,
                solver=solver,
                n_jobs=n_jobs,
                mean=start,
                progress=say,
            )
        n_iter, residual = result.n_iter, result.residual
    encoder = summaries[-1].encoder
    return AlignmentReference(mean, barycenter, n_iter, residual, encoder=encoder)


def full_map(statistics, reference):
    """Map of a client that goes all the way to the reference."""
    if statistics.is_constant or not reference.covariance.any():
        matrix = np.eye(len(statistics.mean))
    else:
        target = _without_rounding(reference.covariance)
        matrix = transport_matrix(statistics.shrunk_covariance, target)
    return TransportMap(statistics.mean, matrix, reference.mean, 1.0)


def _without_rounding(covariance):
    """A covariance, less what the rounding of the wire left below zero."""
    try:
        cholesky(covariance)
    except LinAlgError:
        eigenvalues, vectors = eigh(covariance)
        return (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    return covariance


# ------------------------------------------------------------------ all clients


@dataclass(frozen=True)
class Alignment:
    """Reference, weights and maps of all clients for one ``tau``.

    ``summaries`` and ``maps`` are by client. Maps that are too many to keep are not in
    ``maps``.
    """

    summaries: dict
    weights: np.ndarray
    reference: AlignmentReference
    maps: dict
    tau: float
    is_tau_automatic: bool
    shrinkage: object

    @property
    def clients(self):
        """Ids of all clients."""
        return list(self.summaries)

    def make_map(self, message):
        """Make the map of any client, whether it took part in the fit or not."""
        statistics = invertible(message.client_statistics())
        return full_map(statistics, self.reference).at(self.tau)

    def with_client(self, message):
        """Add a client that has no weight in the reference."""
        sent, client = message.client_statistics(), message.client
        summary = Summary.of(invertible(sent), sent.shrinkage)
        return replace(
            self,
            summaries={**self.summaries, client: summary},
            weights=np.append(self.weights, 0.0),
            maps={**self.maps, client: self.make_map(message)},
        )

    def without_client(self, client):
        """Remove a client that has no weight in the reference."""
        kept = [each for each in self.clients if each != client]
        return replace(
            self,
            summaries={each: self.summaries[each] for each in kept},
            weights=np.delete(self.weights, self.clients.index(client)),
            maps={each: self.maps[each] for each in kept if each in self.maps},
        )


def solve_transport(
    received, *, tau, shrinkage, memory, weights, solver, tol, max_iter, n_jobs, say
):
    """Solve for the alignment of clients from their messages.

    All that does not depend on ``tau`` is cached by ``memory``.
    """
    solve, messages = solve_reference_and_maps, received
    if memory is not None:
        solve = check_memory(memory).cache(solve, ignore=["n_jobs", "say"])
        messages = list(received)
    summaries, cells, shares, reference, maps = solve(
        messages,
        memory is not None or received.in_memory,
        tau == "auto",
        weights,
        solver,
        tol,
        max_iter,
        __version__,
        n_jobs=n_jobs,
        say=say,
    )
    warn_about(summaries, shrinkage)
    converged = reference.residual <= tol
    result = BarycenterResult(reference.n_iter, reference.residual, converged)
    result.warn_unless_converged(tol)
    strength = tau
    if tau == "auto":
        strength = tau_of_cells(cells, [each.total_variance for each in summaries])
    strength, names = float(strength), received.names
    return Alignment(
        dict(zip(names, summaries, strict=True)),
        shares,
        reference,
        {name: each.at(strength) for name, each in zip(names, maps, strict=False)},
        strength,
        tau == "auto",
        shrinkage,
    )


def solve_reference_and_maps(
    messages,
    keep_maps,
    with_cells,
    weights,
    solver,
    tol,
    max_iter,
    version,
    n_jobs,
    say,
):
    """Summaries, classes and weights of clients, reference, and full maps if kept.

    Messages are read once, once per iteration of the solver, and once more for maps
    that are kept. ``version`` is part of the key of a cache, so that results of another
    version of the package are not found.
    """
    cells = []

    def first_pass():
        for message in messages:
            if with_cells:
                cells.append(_cells_of(message))
            yield message.client_statistics()

    def raised(sent, summary):
        return replace(sent, shrinkage=summary.shrinkage)

    statistics = Restartable(
        lambda: (message.client_statistics() for message in messages)
    )
    found = survey(first_pass(), weights, n_jobs)
    reference = solve_reference(found, statistics, n_jobs, say, solver, tol, max_iter)
    maps = []
    if keep_maps:
        make = partial(full_map, reference=reference)
        described = map(raised, statistics, found.summaries)
        maps = list(map_in_order(make, described, n_jobs))
    return found.summaries, cells, found.weights, reference, maps


def _cells_of(message):
    """Number of samples and mean of each class that a client holds."""
    if not message.describes_classes:
        raise ValueError(
            "tau='auto' needs class counts and means, but the message of client "
            f"{message.client!r} has none; pass y to client_update."
        )
    return message.cells()


# --------------------------------------------------------------------- warnings


class DegenerateClientWarning(UserWarning):
    """The covariance of a client contains little or no information."""


def warn_about(summaries, shrinkage):
    """Warn about clients whose covariance says little."""
    for note in degeneracy_notes(summaries, shrinkage):
        warn_user(note, DegenerateClientWarning)


def warn_about_message(message, shrinkage):
    """Warn about a client whose message was made here, so that its shrinkage holds."""
    statistics = message.client_statistics()
    warn_about([Summary.of(statistics, statistics.shrinkage)], shrinkage)


def degeneracy_notes(summaries, shrinkage):
    """Sentences on clients whose covariance says little or nothing, for a warning."""
    constant = [each.client for each in summaries if each.is_constant]
    floored = [
        each.client
        for each in summaries
        if each.was_raised and not each.is_constant and shrinkage != SHRINKAGE_FLOOR
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


# ------------------------------------------------------------------ advice


# Where a smaller share of (client, class) cells is empty, or a client has fewer rows
# per feature, a strength of 0.4 lost accuracy; the user guide has the measurements.
FEW_EMPTY_CELLS = 0.05
FEW_ROWS = 0.05


class AlignmentWarning(UserWarning):
    """A fixed strength of the alignment is likely to cost accuracy.

    :class:`~skslot.FederatedOTAligner` warns by it in ``fit``, also inside a
    classifier. When, and by what measurements, is in :ref:`when_not_to_align`.

    Attributes
    ----------
    reason : str
        First sentence of the text, without the remedy.

    See Also
    --------
    skslot.inspection.diagnose : Says what to do instead.

    Examples
    --------
    Where you know better:

    >>> import warnings
    >>> from skslot.alignment import AlignmentWarning
    >>> warnings.filterwarnings("ignore", category=AlignmentWarning)
    """


def advise_on_classes(class_counts):
    """Warn if clients hold the same classes, so that there is nothing to align.

    ``class_counts`` has the number of rows of each class, for each client.
    """
    held = [{c for c, count in each.items() if count > 0} for each in class_counts]
    held = [each for each in held if each]
    n_classes = len(set().union(*held))
    n_cells = len(held) * n_classes
    n_empty = n_cells - sum(map(len, held))
    if min(len(held), n_classes) > 1 and n_empty < FEW_EMPTY_CELLS * n_cells:
        _warn(
            f"{n_empty} of {n_cells} (client, class) cells are empty: clients have "
            "like classes, so that a classifier learns by itself how they differ"
        )


def advise_on_rows(n_samples, n_features):
    """Warn of clients, of those whose number of rows is given, with few of them."""
    few = {c: n for c, n in n_samples.items() if n < FEW_ROWS * n_features}
    if len(n_samples) > 1 and few:
        most = max(few.values()) / n_features
        _warn(
            f"client {shorten(few)} has {most:.1g} rows per feature or less, too few "
            "for a map"
        )


def _warn(why):
    reason = f"alignment is likely to cost accuracy: {why}"
    warning = AlignmentWarning(
        f"{reason}. Take MixedEffectsClassifier or tau='auto', search for tau by "
        "FederatedGridSearchCV, or ask skslot.inspection.diagnose."
    )
    warning.reason = reason
    warn_user(warning)


def count_classes(y, groups):
    """Rows of each class at each client; none if these are no labels."""
    n_rows = sum(len(rows) for _, rows in groups.items())
    try:
        y = np.asarray(y)
        classes, labels = np.unique(y, return_inverse=True)
    except (TypeError, ValueError):  # such as None among text
        return []
    is_continuous = y.dtype.kind == "f" and not np.array_equal(y, np.floor(y))
    if y.shape not in ((n_rows,), (n_rows, 1)) or is_continuous:
        return []
    labels = labels.ravel()
    return [
        dict(enumerate(np.bincount(labels[rows], minlength=len(classes)).tolist()))
        for rows in groups.rows
    ]


# ------------------------------------------------------------------ auto tau


# Chosen on PACS and four digit domains; see the user guide on choosing tau.
GAIN = 2.0
MOST = 0.7
PRECISION_FLOOR = 0.05


def automatic_tau(X, y, client_ids):
    """Compute the strength of the alignment that labels call for, in closed form.

    Strong when labels tell clients apart, when clients differ more than classes do, and
    when there are rows enough to estimate the maps; 0 without label shift. This is what
    ``FederatedOTAligner(tau="auto")`` uses.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Features.
    y : array-like of shape (n_samples,)
        Labels.
    client_ids : array-like of shape (n_samples,)
        Client of each row.

    Returns
    -------
    tau : float
        Strength, from 0 to 0.7.

    See Also
    --------
    FederatedOTAligner : Aligns with a strength.
    skslot.model_selection.FederatedGridSearchCV : Searches for the best strength.

    Examples
    --------
    >>> from skslot.alignment import automatic_tau
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.model_selection import dirichlet_label_shift
    >>> data = load_digit_scanners()
    >>> X, y, site = data.data, data.target, data.client_ids
    >>> round(automatic_tau(X, y, site), 2)
    0.0
    >>> rows = dirichlet_label_shift(y, site, alpha=0.1, random_state=0)
    >>> round(automatic_tau(X[rows], y[rows], site[rows]), 2)
    0.29
    """
    X = check_array(X, **{**FEATURES, "dtype": np.float64})
    y = column_or_1d(y)
    check_consistent_length(X, y)
    groups = ClientGroups.from_ids(client_ids, len(X))
    assert_finite_by_client(X, groups)
    return tau_of_cells(
        [class_means(X[rows], y[rows]) for rows in groups.rows],
        [X[rows].var(axis=0).sum() for rows in groups.rows],
    )


def tau_of_cells(cells, traces):
    """Strength for clients described by ``{label: (count, mean)}`` and total variance.

    Used for messages and for rows alike, so that both give the same number.
    """
    labels = list(dict.fromkeys(label for client in cells for label in client))
    n_features = len(next(iter(cells[0].values()))[1])
    counts = np.zeros((len(cells), len(labels)))
    means = np.zeros((*counts.shape, n_features))
    for row, client in enumerate(cells):
        for column, label in enumerate(labels):
            if label in client:
                counts[row, column], means[row, column] = client[label]
    within = _within_traces(counts, means, np.asarray(traces))
    share = _domain_share(counts, means, within)
    rows = counts.sum() / len(cells)
    reliability = rows / (rows + n_features)
    return float(min(MOST, GAIN * _label_shift(counts) * share * reliability))


def _label_shift(counts):
    """Mutual information of client and class, between 0 and 1."""
    size = min(len(counts), np.sum(counts.sum(axis=0) > 0))
    if size < 2:
        return 0.0
    information = mutual_info_score(None, None, contingency=counts)
    return max(float(information), 0.0) / np.log(size)


def _domain_share(counts, means, within):
    """Squared distance between clients, as a share of that and between classes."""
    noise = within[:, None] / np.maximum(counts, 1)
    between_clients = [
        _pair_distances(counts[:, c], means[:, c], noise[:, c])
        for c in range(counts.shape[1])
    ]
    between_classes = [
        _pair_distances(counts[k], means[k], noise[k]) for k in range(len(counts))
    ]
    domain, label = _weighted_mean(between_clients), _weighted_mean(between_classes)
    if domain is None or label is None or domain + label == 0:
        return 0.5
    return domain / (domain + label)


def _pair_distances(counts, means, noise):
    """Squared distances of all pairs of means, less noise, and their weights."""
    known = counts >= 2
    counts, means, noise = counts[known], means[known], noise[known]
    first, second = np.triu_indices(len(counts), 1)
    distances = pdist(means, "sqeuclidean")
    weights = 1 / (1 / counts[first] + 1 / counts[second] + PRECISION_FLOOR)
    return distances - noise[first] - noise[second], weights


def _weighted_mean(parts):
    values = np.concatenate([values for values, _ in parts])
    weights = np.concatenate([weights for _, weights in parts])
    if not len(values):
        return None
    return max(float(weights @ values / weights.sum()), 0.0)


def _within_traces(counts, means, traces):
    """Variance around class means, summed over features, of each client."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    centres = np.einsum("kc,kcm->km", shares, means)
    spread = np.square(means - centres[:, None]).sum(axis=2)
    return np.maximum(traces - (shares * spread).sum(axis=1), 0.0)
