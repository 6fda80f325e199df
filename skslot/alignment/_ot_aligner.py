"""FederatedOTAligner: alignment towards a Wasserstein barycenter."""

import pickle
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._clients import check_client_name
from .._sklearn_compat import Interval, StrOptions
from ..exchange import ClassStatistics, ClientStatistics
from ..geometry import BarycenterResult
from ..statistics import FeatureMoments, class_means
from ._advice import advise, count_classes
from ._auto_tau import tau_of_cells
from ._client_aligner import ClientAligner, weigh_cells
from ._maps import TransportMap
from ._optimal_transport import (
    degeneracy_notes,
    describe_message,
    describe_rows,
    digest_of,
    full_map_of_message,
    moments_by_client,
    pickled,
    solve_messages,
    solve_moments,
    warn_about,
)


class FederatedOTAligner(ClientAligner):
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
    outliers : {"warn", "leave_out", "ignore"}, default="warn"
        What to do about clients that stand out so far that something must be wrong, see
        :doc:`/user_guide/trust`: warn of them, go on without them, or nothing.
    max_client_share : float in (0, 1], default=None
        Most that one client may have of the rows of all: its counts are scaled down to
        that. None sets no limit.
    solver : {"anderson", "fixed_point", "paper"}, default="anderson"
        Iteration for the barycenter, see :func:`skslot.geometry.bures_barycenter`.
    tol : float, default=1e-8
        Tolerance on the scale-free residual of the barycenter.
    max_iter : int, default=100
        Most passes of the solver over the clients.
    memory : str or object with the joblib.Memory interface, default=None
        Where to cache statistics, reference and maps. They do not depend on ``tau``, so
        a grid search over ``tau`` computes them once per fold, and the statistics once
        for all other settings too.
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
        **ClientAligner._parameter_constraints,
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
        outliers="warn",
        max_client_share=None,
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
        self.outliers = outliers
        self.max_client_share = max_client_share
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.memory = memory
        self.n_jobs = n_jobs
        self.verbose = verbose

    # ------------------------------------------------------- the steps, one by one

    def client_update(self, X, y=None, *, classes=None, client=None):
        """Client step: summarise the rows of one client.

        Needs no fit, changes nothing, and is what ``fit`` does for each client.

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
        check_client_name(client)
        if self.privacy is not None:
            return self._private_message(X, y, classes, client)
        moments = X
        if not isinstance(X, FeatureMoments):
            X = self._read_client(X, client)
            moments = FeatureMoments.from_rows(X)
        gaussian = describe_rows(moments, self.shrinkage, client)
        warn_about([gaussian], self.shrinkage)
        message = gaussian.message()
        if y is None:
            return message
        if moments is X:
            raise ValueError(
                "y is of no use with FeatureMoments, which do not tell classes apart; "
                "with tau='auto' pass rows, or use partial_fit."
            )
        y = self._check_labels(y, X)
        if not self._needs_labels:
            return message
        means = class_means(X, y)
        return ClassStatistics(
            list(means),
            np.array([count for count, _ in means.values()], dtype=np.int32),
            np.array([mean for _, mean in means.values()]),
            message.covariance_triangle,
            np.array([message.shrinkage]),
            client,
        )

    def server_aggregate(self, messages):
        """Server step: the reference of all clients.

        Needs no fit, changes nothing, and is what ``fit`` does once.

        Parameters
        ----------
        messages : iterable of Message
            One message per client, of :meth:`client_update` or of a classifier. An
            iterable that can be restarted, such as one that reads files, is never held
            in memory as a whole.

        Returns
        -------
        reference : AlignmentReference
            The message to all clients.
        """
        self._validate_params()
        alignment = self._align_messages(self._receive(messages), keep_maps=False)
        return self._reference_to_send(alignment)

    def client_map(self, message, reference):
        """Client step, when the reference came back: the map of one client.

        Needs no fit, changes nothing, and is what ``fit`` does for each client.

        Parameters
        ----------
        message : Message
            What the client had sent.
        reference : AlignmentReference
            What the server answered.

        Returns
        -------
        map : TransportMap
            Aligns features of this client without the estimator.
        """
        self._validate_params()
        tau = reference.tau if self.tau == "auto" else self.tau
        if tau is None:
            raise ValueError(
                "tau='auto', but the reference says no tau: the server that made it "
                "had a number for tau."
            )
        # tau is no part of it, so that one cached map serves all
        make = self._cached(full_map_of_message)
        return make(message, replace(reference, tau=None)).at(tau)

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
        return self._fitted._reference_to_send(alignment)

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
        facts = self._aligned().facts.values()
        return degeneracy_notes(facts, self._fitted.shrinkage)

    # ------------------------------------------------------------------- helpers

    _map_type = TransportMap
    _labels_missing = (
        "tau='auto' needs y in fit, to compare label mixes; pass y, or give tau a "
        "number."
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

    def _advise_on_rows(self, X, y, groups):
        if self._is_strength_fixed:
            rows = {client: len(positions) for client, positions in groups.items()}
            counts = [] if y is None else count_classes(y, groups)
            advise(counts, rows, X.shape[1])

    def _advise_on_messages(self):
        if self._is_strength_fixed:
            senders, names = self._received.senders, self._received.names
            pairs = zip(names, senders, strict=True)
            rows = {name: each.n_samples or np.inf for name, each in pairs}
            counts = [each.class_counts for each in senders if each.has_labels]
            advise(counts, rows, senders[0].n_features)

    def _align_rows(self, X, groups, class_means, known):
        rows = {client: len(positions) for client, positions in groups.items()}
        factors = self._factors(rows)
        digest = None if self.memory is None else digest_of(X, groups)
        settings = factors, self.shrinkage, *self._solver()

        def describe():
            return moments_by_client(X, groups, self.n_jobs, known)

        def solve():
            moments = self._remembered(describe, digest)
            found = solve_moments(moments, (), self.n_jobs, self._say, *settings)
            return moments, found

        if self._moves_nothing:
            return self._remembered(describe, digest), None
        moments, alignment = self._remembered(solve, digest, *settings)
        cells = weigh_cells(class_means, factors)
        return moments, self._with_strength(alignment, cells, alignment.clients)

    def _remembered(self, make, *key):
        """What ``memory`` has for this key, or else is made."""
        if self.memory is None:
            return make()
        return pickle.loads(self._cached(pickled)(*key, make=make))

    def _align_moments(self, moments, class_means, joined):
        founders = [client for client in moments if client not in joined]
        factors = self._factors({each: moments[each].n_samples for each in founders})
        settings = self.n_jobs, self._say, factors, self.shrinkage, *self._solver()
        alignment = solve_moments(moments, joined, *settings)
        return self._with_strength(
            alignment, weigh_cells(class_means, factors), founders
        )

    def _align_messages(self, messages, keep_maps):
        if self.memory is not None:
            messages = list(messages)
        solve = self._cached(solve_messages)
        options = {"n_jobs": self.n_jobs, "say": self._say}
        kept = keep_maps, self._needs_labels
        alignment = solve(messages, *kept, *self._solver(), **options)
        class_means = alignment.class_means
        return self._with_strength(alignment, class_means, alignment.clients)

    def _with_strength(self, alignment, class_means, founders):
        """The alignment with the strength of its maps, after warnings about it."""
        facts, reference = alignment.facts, alignment.reference
        warn_about(facts.values(), self.shrinkage)
        converged = reference.residual <= self.tol
        result = BarycenterResult(reference.n_iter, reference.residual, converged)
        result._warn_unless_converged(self.tol)
        if not self._needs_labels:
            return alignment.at(self.tau)
        for client in founders:
            cells = class_means.get(client, {}).values()
            n_samples = sum(count for count, _ in cells)
            if not np.isclose(n_samples, facts[client].n_samples, rtol=1e-9, atol=0):
                raise ValueError(self._labels_missing)
        cells = [class_means[client] for client in founders]
        return alignment.at(
            tau_of_cells(cells, [facts[each].total_variance for each in founders])
        )

    def _part_for_alignment(self, moments):
        """Shrinkage that messages of classifiers carry for alignment."""
        return np.array([describe_rows(moments, self.shrinkage).shrinkage])

    @property
    def _noisy_shrinkage(self):
        """The same for noisy statistics, which have no fourth powers of rows."""
        return "oas" if self.shrinkage == "ledoit_wolf" else self.shrinkage

    def _private_message(self, X, y, classes, client):
        """The message of a client, made of noisy sums."""
        if isinstance(X, FeatureMoments):
            raise ValueError(
                "privacy needs the rows, to clip them; FeatureMoments are those of "
                "rows as they are."
            )
        X = self._read_client(X, client)
        if y is not None:
            y = self._check_labels(y, X)
        if y is None or not self._needs_labels:
            return ClientStatistics.release(
                self.privacy, X, client, self._noisy_shrinkage
            )
        self._check_classes_agreed(classes, client)
        return ClassStatistics.release(
            self.privacy, X, y, classes, client, self._noisy_shrinkage
        )

    def _with_client(self, alignment, client, moments, class_means):
        gaussian = describe_rows(moments, self.shrinkage, client)
        warn_about([gaussian], self.shrinkage)
        return alignment.with_client(gaussian)

    def _without_client(self, alignment, client):
        return alignment.without_client(client)

    def _make_map(self, client, message):
        return self._aligned().map_to_reference(self._gaussian_of(client, message))

    def _gaussian_of(self, client, message=None):
        """Gaussian of a client that was fitted; its message is read if not given."""
        if client in self._moments:
            return describe_rows(self._moments[client], self._fitted.shrinkage, client)
        message = message or self._received.sent_by(client)
        return describe_message(message, self._alignment.facts[client].shrinkage)

    def _reference_to_send(self, alignment):
        """The reference; with the strength, if the server has chosen it."""
        chosen = alignment.tau if self._needs_labels else None
        return replace(alignment.reference, tau=chosen)

    def _solver(self):
        return self.weights, self.solver, self.tol, self.max_iter
