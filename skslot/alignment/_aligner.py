"""FederatedOTAligner: fitting and transforming the rows of several clients."""

from numbers import Integral, Real

import numpy as np
from sklearn.base import (
    BaseEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, check_memory, validate_data

from .._base import ClientAwareMixin
from .._clients import (
    ClientGroups,
    assert_finite_by_client,
    check_client_ids,
    check_client_name,
    insert_client_column,
    order_clients,
)
from ..geometry._barycenter import SOLVERS
from ..statistics import FeatureMoments
from ..statistics._classes import merge_class_means
from ._fitted import FittedAlignmentMixin, align_rows
from ._step_methods import AlignmentStepsMixin
from ._steps import summarize


class FederatedOTAligner(
    AlignmentStepsMixin,
    FittedAlignmentMixin,
    ClientAwareMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    BaseEstimator,
):
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
        Strength of the alignment: 0 leaves features unchanged, 1 gives every client
        the mean and covariance of the reference. "auto" takes it from class counts and
        class means in closed form, see :doc:`/user_guide/choosing_tau`; it needs ``y``
        in ``fit``.
    shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1], default="ledoit_wolf"
        Weight of the identity in each client's covariance; scikit-learn's convention.
        The paper's lambda is one minus this.
    weights : {"samples", "uniform"}, default="samples"
        Whether clients count by their number of rows or all the same.
    unknown_client : {"error", "identity", "adapt"}, default="error"
        What ``transform`` does with rows of a client that was not fitted: refuse them,
        leave them unchanged, or estimate the client's map from its rows in this very
        call. "adapt" is transductive: a row's result depends on the other rows that
        come with it, so send all rows of the client at once. Prefer
        :meth:`add_client` when the client is there to stay.
    client_column : str or int, default=None
        Name or position of the column of X that holds the client ids. None means that
        ids are passed as ``client_ids``.
    keep_client_column : bool, default=False
        Whether the output keeps the column of ids, in its place, for a later step.
    solver : {"anderson", "fixed_point", "paper"}, default="anderson"
        Iteration for the barycenter, see :func:`skslot.geometry.bures_barycenter`.
    tol : float, default=1e-8
        Tolerance on the scale-free residual of the barycenter.
    max_iter : int, default=100
        Most passes of the solver over the clients.
    memory : str or object with the joblib.Memory interface, default=None
        Where to cache statistics, reference and maps. They do not depend on ``tau``, so
        a grid search over ``tau`` computes them once per fold.
    n_jobs : int, default=None
        Threads over clients for statistics and maps.

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
    >>> aligned[site == "A"].mean(axis=0) - aligned[site == "B"].mean(axis=0)
    array([...e-1..., ...e-1...])
    """

    # Requested here, so that no user has to call set_fit_request and friends.
    __metadata_request__fit = {"client_ids": True}
    __metadata_request__partial_fit = {"client_ids": True}
    __metadata_request__transform = {"client_ids": True}
    __metadata_request__inverse_transform = {"client_ids": True}

    _parameter_constraints: dict = {
        "tau": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "shrinkage": [
            StrOptions({"ledoit_wolf", "oas"}),
            Interval(Real, 0, 1, closed="both"),
        ],
        "weights": [StrOptions({"samples", "uniform"})],
        "unknown_client": [StrOptions({"error", "identity", "adapt"})],
        "client_column": [str, Integral, None],
        "keep_client_column": ["boolean"],
        "solver": [StrOptions(set(SOLVERS))],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "memory": [None, str, HasMethods("cache")],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        tau=0.4,
        *,
        shrinkage="ledoit_wolf",
        weights="samples",
        unknown_client="error",
        client_column=None,
        keep_client_column=False,
        solver="anderson",
        tol=1e-8,
        max_iter=100,
        memory=None,
        n_jobs=None,
    ):
        self.tau = tau
        self.shrinkage = shrinkage
        self.weights = weights
        self.unknown_client = unknown_client
        self.client_column = client_column
        self.keep_client_column = keep_client_column
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.memory = memory
        self.n_jobs = n_jobs

    # ------------------------------------------------------------------ fitting

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, client_ids=None):
        """Compute the reference of all clients and the map of each.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all clients, in any order.
        y : array-like of shape (n_samples,), default=None
            Labels, used only by ``tau="auto"``; ids go into ``client_ids``.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row. Without any ids all rows are one client, and alignment
            changes nothing.

        Returns
        -------
        self : FederatedOTAligner
            The fitted aligner.
        """
        self._refuse_one_id_for_all(client_ids)
        X, groups = self._read_rows(X, client_ids, y=y, reset=True)
        means_by_class = self._means_by_class(X, y, groups)
        run = self._cached(align_rows, ignore=["n_jobs"])
        self._moments, self._alignment = run(
            X, groups, **self._step_params(), n_jobs=self.n_jobs
        )
        self._joined = frozenset()
        self._class_means = means_by_class
        self._warn_about(self._alignment)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, client_ids=None):
        """Add rows, of known or of new clients.

        Exact: after any number of chunks the result is that of ``fit`` on all rows.
        The reference is recomputed when it is next needed, not on each chunk.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More rows.
        y : array-like of shape (n_samples,), default=None
            Labels, used only by ``tau="auto"``; ids go into ``client_ids``.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; a scalar says that all rows are of one client.

        Returns
        -------
        self : FederatedOTAligner
            The aligner with the rows added.
        """
        first = not self.__sklearn_is_fitted__()
        X, groups = self._read_rows(X, client_ids, y=y, reset=first, adding=True)
        moments = {} if first else dict(self._moments)
        if moments and (None in groups.clients) != (None in moments):
            raise ValueError(
                "either all rows come with a client or none: rows were fitted "
                f"{'without' if None in moments else 'with'} client_ids before."
            )
        for client, rows in zip(groups.clients, groups.rows, strict=True):
            added = FeatureMoments.from_rows(X[rows])
            moments[client] = moments[client] + added if client in moments else added
        known = {} if first else self._class_means
        for client, added in self._means_by_class(X, y, groups).items():
            known = {**known, client: merge_class_means(known.get(client, {}), added)}
        self._class_means = known
        self._moments = {client: moments[client] for client in order_clients(moments)}
        self._joined = frozenset() if first else self._joined
        self._alignment = None
        return self

    def fit_transform(self, X, y=None, client_ids=None):
        """Fit, and align the same rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all clients.
        y : array-like of shape (n_samples,), default=None
            Labels, used only by ``tau="auto"``.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row; handed to both ``fit`` and ``transform``.

        Returns
        -------
        X_aligned : ndarray of shape (n_samples, n_features)
            Aligned features.
        """
        return self.fit(X, y, client_ids).transform(X, client_ids)

    def add_client(self, X, client):
        """Give a client that joins later a map to the unchanged reference.

        Nobody else is affected, not even when more rows of this client come to
        ``partial_fit`` later: its own map is then estimated from all of them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled features of the new client, without the client column.
        client : object
            Its id.

        Returns
        -------
        self : FederatedOTAligner
            The aligner, which now knows the client.
        """
        check_is_fitted(self)
        check_client_name(client)
        check_client_ids([client], n_samples=1)
        if None in self._moments:
            raise ValueError(
                "the aligner was fitted without client_ids, so it has one nameless "
                "client; fit it with ids before others join."
            )
        if client in self._moments:
            raise ValueError(
                f"client {client!r} is known already; use partial_fit to add rows."
            )
        if self.client_column is None:
            validate_data(self, X, reset=False, skip_check_array=True)
        moments = FeatureMoments.from_rows(self._read_client(X, client))
        statistics = summarize(moments, self.shrinkage, client)
        self._warn_about_degenerate([statistics])
        self._alignment = self._aligned().with_client(statistics)
        self._moments = {**self._moments, client: moments}
        self._joined = self._joined | {client}
        return self

    # ------------------------------------------------------------- transforming

    def transform(self, X, client_ids=None):
        """Align rows, each by the map of its client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; a scalar says that all rows are of one client. May be
            left out only when a single client was fitted.

        Returns
        -------
        X_aligned : ndarray of shape (n_samples, n_features)
            Aligned features, in the precision of X.
        """
        check_is_fitted(self)
        rows, groups = self._read_rows(X, client_ids, reset=False)
        aligned = self._client_maps().move(rows, groups)
        if self.client_column is None or not self.keep_client_column:
            return aligned
        return insert_client_column(aligned, X, self.client_column)

    def inverse_transform(self, X, client_ids=None):
        """Move aligned rows back, each by the inverse map of its client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Aligned features, as ``transform`` returned them.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row. With ``client_column`` they are read from X if the
            column was kept, and must be given here if it was dropped.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            Features before alignment, without the client column.
        """
        check_is_fitted(self)
        if self.client_column is not None and self.keep_client_column:
            X, client_ids, _ = self._read_client_column(X, client_ids)
        else:
            X = self._check_features(X)
        n_features = len(self.reference_mean_)
        if X.shape[1] != n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but {n_features} were aligned."
            )
        groups = (
            self._groups_without_ids(len(X))
            if client_ids is None
            else ClientGroups.from_ids(client_ids, len(X))
        )
        assert_finite_by_client(X, groups, self)
        return self._client_maps().move_back(X, groups)

    def get_feature_names_out(self, input_features=None):
        """Names of the output columns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the input columns; by default those seen in ``fit``.

        Returns
        -------
        names : ndarray of str
            The input names, less the client column unless it is kept.
        """
        check_is_fitted(self)
        names = super().get_feature_names_out(input_features)
        if self.client_column is None or self.keep_client_column:
            return names
        return np.delete(names, self._client_position)

    # ------------------------------------------------------------------ helpers

    def _cached(self, function, ignore=None):
        if self.memory is None:
            return function
        return check_memory(self.memory).cache(function, ignore=ignore)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
