"""FederatedOTAligner: alignment towards a Wasserstein barycenter."""

from dataclasses import dataclass, replace
from functools import partial
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
from .._sklearn_compat import Interval, StrOptions
from .._utils import Restartable, ignored, map_in_order, shorten, warn_user
from ..base import FEATURES, ClientGroups, assert_finite_by_client, check_classes_agreed
from ..exchange import (
    AlignmentReference,
    ClassStatistics,
    ClientStatistics,
    check_same_features,
)
from ..geometry import BarycenterResult, bures_barycenter, transport_matrix
from ..statistics import (
    FeatureMoments,
    average_rows,
    class_means,
    floor_shrinkage,
    is_constant,
    shrink_covariance,
)
from ._base import (
    FederatedAligner,
    TransportMap,
    advise_on_classes,
    advise_on_rows,
    count_classes,
    merge_cells,
)

SHRINKAGE_FLOOR = FeatureMoments.SHRINKAGE_FLOOR


class FederatedOTAligner(FederatedAligner):
    """Align the features of several clients by optimal transport.

    Every client summarises its features by a mean and a shrunk covariance. The
    reference is the Wasserstein barycenter of these Gaussians, and each client moves
    its features the fraction ``tau`` of the way to it, by its own closed-form affine
    map (SLOT-Align [1]_). A classifier trained on the aligned features of all clients
    meets less difference between them.

    Read more in the :doc:`User Guide </user_guide/alignment>`.

    Parameters
    ----------
    tau : float in [0, 1] or "auto", default=0.4
        Strength of the alignment: 0 leaves features unchanged, and a reference is only
        computed when it is asked for; 1 gives every client the mean and covariance of
        the reference. "auto" takes it from class counts and class means in closed form,
        see :doc:`/user_guide/choosing_tau`; it needs ``y`` in ``fit``.
    shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1], default="ledoit_wolf"
        Weight of the identity in each client's covariance; scikit-learn's convention.
        The paper's lambda is one minus this. With ``privacy``, "ledoit_wolf" is "oas":
        fourth powers of rows are not released.
    weights : {"samples", "uniform"}, default="samples"
        Whether clients count by their number of rows or all the same.
    unknown_client : {"error", "identity", "adapt"}, default="error"
        What ``transform`` does with rows of a client that was not fitted: refuse them,
        leave them unchanged, or estimate the client's map from its rows in this very
        call. "adapt" is transductive: a row's result depends on the other rows that
        come with it, so send all rows of the client at once. Prefer
        :meth:`add_client` when the client is there to stay.
    privacy : PrivacyBudget, default=None
        Guarantee of differential privacy for the rows of each client: its message is
        then made of noisy sums alone, ``client_update`` needs ``classes``, and in
        ``fit`` the labels in ``y`` are taken as public. See
        :class:`~skslot.privacy.PrivacyBudget`.
    client_column : str or int, default=None
        Name or position of the column of X that holds the client ids. None means that
        ids are passed as ``client_ids``.
    keep_client_column : bool, default=False
        Whether the output keeps the column of ids, in its place, for a later step.
    screen : None, "warn", "exclude" or ClientScreen, default="warn"
        How to handle clients whose statistics are implausible compared with all others,
        see :doc:`/user_guide/trust`. ``"warn"`` issues a warning, ``"exclude"`` drops
        the client, ``None`` disables the check. A :class:`~skslot.trust.ClientScreen`
        also limits the fraction of all samples that one client may contribute.
    solver : {"anderson", "fixed_point", "paper"}, default="anderson"
        Iteration for the barycenter, see :func:`skslot.geometry.bures_barycenter`.
    tol : float, default=1e-8
        Tolerance on the scale-free residual of the barycenter.
    max_iter : int, default=100
        Most passes of the solver over the clients.
    memory : str or object with the joblib.Memory interface, default=None
        Where to cache the reference and the maps. They do not depend on ``tau``, so a
        grid search over ``tau`` computes them once per fold.
    n_jobs : int, default=None
        Threads over clients, for statistics, passes of the solver and maps; -1 means as
        many as there are cores. The result does not depend on it, as BLAS always gets
        one thread and clients are added up in order. Messages in files are read as
        threads are free: one more of them than there are threads is in memory at most.
    verbose : int, default=0
        1 prints a line for each pass of the solver.

    Attributes
    ----------
    clients_ : ndarray of shape (n_clients,)
        Client ids, sorted where they can be, then those from :meth:`add_client`;
        ``[None]`` when fitted without ids.
    tau_ : float
        Strength of the alignment that is used.
    weights_ : ndarray of shape (n_clients,)
        Weight of each client in the reference; 0 for those from :meth:`add_client`.
    means_ : ndarray of shape (n_clients, n_features)
        Mean of each client.
    covariances_ : ndarray of shape (n_clients, n_features, n_features)
        Shrunk covariance of each client.
    shrinkage_ : ndarray of shape (n_clients,)
        Shrinkage coefficient of each client.
    reference_mean_ : ndarray of shape (n_features,)
        Mean of the reference.
    reference_covariance_ : ndarray of shape (n_features, n_features)
        Covariance of the reference.
    n_iter_ : int
        Passes of the barycenter solver.
    residual_ : float
        Its scale-free residual.
    statistics_ : list of ClientStatistics
        The message of each client.
    reference_ : AlignmentReference
        The message of the server.
    maps_ : list of TransportMap
        The map of each client.
    clients_report_ : ClientsReport
        Share, distance and so on of each client, and who stands out.
    n_features_in_ : int
        Number of columns of X in ``fit``, with the client column if there is one.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, when all are strings.

    See Also
    --------
    skslot.statistics.FeatureMoments : Statistics from rows that do not fit in memory.
    skslot.geometry.bures_barycenter : The covariance of the reference.

    Notes
    -----
    Both ``fit`` and ``transform`` need to know which client a row comes from.
    ``client_ids`` is requested by default, so with metadata routing switched on a
    Pipeline delivers it to both without any ``set_fit_request`` call. For the same
    reason ``fit_transform`` hands ``client_ids`` to both of its halves.

    The maps have positive eigenvalues: they stretch and move, but never rotate or
    reflect. A site that stores images inverted stays inverted.

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
        **FederatedAligner._parameter_constraints,
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
        """Client step: summarise the rows of one client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or FeatureMoments
            Rows of the client, or their moments when they do not fit in memory.
        y : array-like of shape (n_samples,), default=None
            Labels of the rows. With ``tau="auto"`` the server needs to know the counts
            and means of the classes.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur; needed with ``privacy`` if labels are. Ignored
            without: the message names the classes that the client holds.
        client : object, default=None
            Its name, for error messages.

        Returns
        -------
        statistics : ClientStatistics or ClassStatistics
            The message to the server; it describes classes if ``tau="auto"`` and ``y``
            is given.
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
                return self._release(X, y, classes, client)
            message = self._summarize(X, y if self._needs_labels else None, client)
        warn_about_message(message, self.shrinkage)
        return message

    def client_map(self, message, reference):
        """Client step, when the reference came back: the map of one client.

        Needs no fit, and changes nothing.

        Parameters
        ----------
        message : Message
            What the client had sent.
        reference : AlignmentReference
            The ``reference_`` of the server.

        Returns
        -------
        map : TransportMap
            Aligns features of this client without the estimator.
        """
        self._validate_params()
        tau = reference.tau if self.tau == "auto" else self.tau
        if tau is None:
            raise ValueError(
                "The reference contains no tau because the server used a fixed value. "
                "Set tau explicitly."
            )
        check_same_features(reference, message)
        return full_map(describe_message(message), reference).at(tau)

    # ------------------------------------------------------------ what was fitted

    @property
    def tau_(self):
        """Strength of the alignment that was fitted."""
        check_is_fitted(self)
        return 0.0 if self._is_idle else self._aligned().tau

    @property
    def weights_(self):
        """Weight of each client in the reference."""
        return self._aligned().weights

    @property
    def statistics_(self):
        """Message of each client."""
        clients = self._aligned().clients
        return [self._gaussian_of(client).message() for client in clients]

    @property
    def reference_(self):
        """Message of the server."""
        alignment = self._aligned()
        if not alignment.is_tau_automatic:
            return alignment.reference
        return replace(alignment.reference, tau=alignment.tau)

    @property
    def maps_(self):
        """Map of each client."""
        return [self._map_of(client) for client in self._aligned().clients]

    @property
    def means_(self):
        """Mean of each client."""
        facts = self._aligned().facts
        return np.array([each.mean for each in facts.values()])

    @property
    def covariances_(self):
        """Shrunk covariance of each client."""
        clients = self._aligned().clients
        return np.array([self._gaussian_of(client).covariance for client in clients])

    @property
    def shrinkage_(self):
        """Shrinkage coefficient of each client."""
        facts = self._aligned().facts
        return np.array([each.shrinkage for each in facts.values()])

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
        return degeneracy_notes(alignment.facts.values(), alignment.shrinkage)

    # ------------------------------------------------------------------- helpers

    _map_type = TransportMap
    _why_labels = (
        "tau='auto' compares the class distributions of the clients; pass y, or set "
        "tau to a number."
    )

    @property
    def _needs_labels(self):
        return self.tau == "auto"

    @property
    def _moves_nothing(self):
        return self.tau == 0

    @property
    def _is_strength_fixed(self):
        return not (self._moves_nothing or self._needs_labels)

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

    def _summarize(self, X, y, client):
        cells = None if y is None else class_means(X, y)
        return self._describe(FeatureMoments.from_rows(X), cells, client)

    def _merge(self, message, added):
        if isinstance(message, ClientStatistics):
            moments, cells = message.moments + added.moments, None
        else:
            moments, cells = merge_cells(message, added)
        return self._describe(moments, cells, message.client)

    def _describe(self, moments, cells, client):
        if cells is None:
            return ClientStatistics.from_moments(moments, self.shrinkage, client)
        return ClassStatistics.from_moments(moments, cells, self.shrinkage, client)

    def _known_by_moments(self):
        known = super()._known_by_moments()
        if self._solve.keywords["shrinkage"] == self.shrinkage:
            return known
        # the parameter was set since: it holds for all rows, not for added ones alone
        return {
            client: self._describe(
                message.moments,
                None if isinstance(message, ClientStatistics) else message.cells(),
                client,
            )
            for client, message in known.items()
        }

    def _release(self, X, y, classes, client):
        """Message of a client, made of noisy sums."""
        shrinkage = self._noisy_shrinkage
        if y is None or not self._needs_labels:
            return ClientStatistics.release(self.privacy, X, client, shrinkage)
        check_classes_agreed(self, classes, client)
        return ClassStatistics.release(self.privacy, X, y, classes, client, shrinkage)

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

    def _gaussian_of(self, client):
        """What a client sent or would send."""
        if client in self._joined:
            return describe_message(self._joined[client])
        return describe_message(self._received.sent_by(client))

    def _part_for_alignment(self, moments):
        """Shrinkage that messages of classifiers carry for alignment."""
        coefficient = moments.shrinkage(self.shrinkage)
        return np.array([floor_shrinkage(moments.sample_covariance(), coefficient)])

    @property
    def _noisy_shrinkage(self):
        """The same for noisy statistics, which have no fourth powers of rows."""
        return "oas" if self.shrinkage == "ledoit_wolf" else self.shrinkage


# ----------------------------------------------------------------- one client


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
            self.sample,
            self.shrinkage,
            self.client,
            self.encoder,
            self.privacy,
        )


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
    sample = sent.covariance
    if shrinkage is None:
        shrinkage = floor_shrinkage(sample, sent.shrinkage)
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
        covariances = Restartable(
            lambda: (
                each.covariance
                for each, is_varying in zip(gaussians(), varying, strict=True)
                if is_varying
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
    encoder = facts[-1].encoder
    return AlignmentReference(mean, barycenter, n_iter, residual, encoder=encoder)


def full_map(gaussian, reference):
    """Map of a client that goes all the way to the reference."""
    if gaussian.is_constant or not reference.covariance.any():
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


# ------------------------------------------------------------------ all clients


@dataclass(frozen=True)
class Alignment:
    """Reference, weights and maps of all clients, at one strength.

    ``facts`` and ``maps`` are by client; maps that are too many to keep are not there.
    """

    facts: dict
    weights: np.ndarray
    reference: AlignmentReference
    maps: dict
    tau: float
    is_tau_automatic: bool
    shrinkage: object

    @property
    def clients(self):
        """Ids of all clients."""
        return list(self.facts)

    def make_map(self, message):
        """Map of any client, whether it took part or not."""
        return full_map(describe_message(message), self.reference).at(self.tau)

    def with_client(self, message):
        """The same with one more client, which has no weight in the reference."""
        facts = describe_message(message).facts
        return replace(
            self,
            facts={**self.facts, message.client: facts},
            weights=np.append(self.weights, 0.0),
            maps={**self.maps, message.client: self.make_map(message)},
        )

    def without_client(self, client):
        """The same without a client that has no weight in the reference."""
        return replace(
            self,
            facts={c: each for c, each in self.facts.items() if c != client},
            weights=np.delete(self.weights, self.clients.index(client)),
            maps={c: each for c, each in self.maps.items() if c != client},
        )


def solve_transport(
    received, *, tau, shrinkage, memory, weights, solver, tol, max_iter, n_jobs, say
):
    """Solve for the alignment of clients from their messages.

    All that does not depend on ``tau`` is cached by ``memory``.
    """
    settings = weights, solver, tol, max_iter, __version__
    options = {"n_jobs": n_jobs, "say": say}
    if memory is None:
        found = solve_reference_and_maps(
            received, received.in_memory, tau == "auto", *settings, **options
        )
    else:
        solve = check_memory(memory).cache(
            solve_reference_and_maps, ignore=["n_jobs", "say"]
        )
        messages = list(received)
        found = solve(messages, True, tau == "auto", *settings, **options)
    facts, cells, shares, reference, maps = found
    warn_about(facts, shrinkage)
    converged = reference.residual <= tol
    result = BarycenterResult(reference.n_iter, reference.residual, converged)
    result.warn_unless_converged(tol)
    if tau == "auto":
        strength = tau_of_cells(cells, [each.total_variance for each in facts])
    else:
        strength = float(tau)
    names = received.names
    return Alignment(
        dict(zip(names, facts, strict=True)),
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
    """Facts, classes and weights of clients, their reference, and full maps if kept.

    Messages are read once, once per pass of the solver, and once more to keep maps. The
    ``version`` of the package makes results of another one unknown to a cache.
    """
    cells = []

    def first_look():
        for message in messages:
            if with_cells:
                cells.append(_cells_of(message))
            yield message

    def gaussians():
        for message, known in zip(messages, found.facts, strict=True):
            yield describe_message(message, known.shrinkage)

    found = survey(map_in_order(describe_message, first_look(), n_jobs), weights)
    reference = solve_reference(found, gaussians, n_jobs, say, solver, tol, max_iter)
    maps = []
    if keep_maps:
        make = partial(full_map, reference=reference)
        maps = list(map_in_order(make, gaussians(), n_jobs))
    return found.facts, cells, found.weights, reference, maps


def _cells_of(message):
    """Number of rows and mean of each class that a client holds."""
    if not hasattr(message, "class_means"):
        raise ValueError(
            "tau='auto' needs class counts and means, but the message of client "
            f"{message.client!r} has none; pass y to client_update."
        )
    return message.cells()


# --------------------------------------------------------------------- warnings


class DegenerateClientWarning(UserWarning):
    """The covariance of a client contains little or no information."""


def warn_about(facts, shrinkage):
    """Warn about clients whose covariance says little."""
    for note in degeneracy_notes(facts, shrinkage):
        warn_user(note, DegenerateClientWarning)


def warn_about_message(message, shrinkage):
    """Warn about a client whose message was made here, so that its shrinkage holds."""
    known = message.client_statistics().shrinkage
    warn_about([describe_message(message, known)], shrinkage)


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
