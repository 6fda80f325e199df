"""MixedEffectsAligner: takes the effect of each client out of its features."""

from numbers import Real

import numpy as np
from sklearn.base import clone

from .._clients import check_client_name
from .._linalg import pack_triangle
from .._sklearn_compat import Interval, StrOptions
from .._warnings import warn_user
from ..effects import MixedEffects, VarianceComponents, fit_unlabelled
from ..exchange import (
    AlignmentReference,
    ClassStatistics,
    Message,
    MixedEffectsModel,
    check_same_features,
    receive,
)
from ..statistics import FeatureMoments, average_rows, class_means
from ._client_aligner import ClientAligner, check_named, weigh_cells
from ._maps import MixedEffectsMap
from ._mixed_effects import (
    MixedAlignment,
    check_classes_known,
    find_reference,
    reference_of_list,
    site_of_message,
    site_of_moments,
    solve_sites,
    within_covariance,
)
from ._optimal_transport import moments_by_client


class MixedEffectsAligner(ClientAligner):
    """Take out of the features what each client does to them, and nothing else.

    A random-effects model of the means of all (client, class) cells separates the
    offset of a client from the effect of its labels, by three variances that the data
    give themselves. ``transform`` then subtracts the offset of the client; labels are
    needed in ``fit`` only. There is no strength to choose.

    Read more in the :doc:`User Guide </user_guide/mixed_effects>`.

    Parameters
    ----------
    tau : float in [0, 1] or "auto", default=0
        Strength of a linear map besides: each client's covariance is moved this part
        of the way to the barycenter of all, as in :class:`FederatedOTAligner`, but
        around its own mean. "auto" takes it from the variances, for each client by its
        number of rows.
    unknown_client : {"error", "identity", "adapt"}, default="error"
        What ``transform`` does with rows of a client that was not fitted: refuse them,
        leave them unchanged, or estimate its offset from these very rows, as
        :meth:`add_client` does without labels. Prefer that when the client is there to
        stay.
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
    memory : str or object with the joblib.Memory interface, default=None
        Where to cache what linear maps lead to. It does not depend on ``tau``, so a
        grid search over ``tau`` computes it once per fold.
    n_jobs : int, default=None
        Threads over clients, for statistics and linear maps; -1 means as many as there
        are cores. The result does not depend on it. Messages in files are read as
        threads are free: one more of them than there are threads is in memory at most.
    verbose : int, default=0
        1 prints a line for each pass of the solver for linear maps.

    Attributes
    ----------
    clients_ : ndarray of shape (n_clients,)
        Client ids, sorted where they can be, then those from :meth:`add_client`;
        ``[None]`` when fitted without ids.
    classes_ : ndarray of shape (n_classes,)
        Labels that at least one client holds.
    variance_components_ : dict
        Variance of the "client", "class" and "interaction" effects, in units of the
        variance within a class at a client.
    client_offsets_ : ndarray of shape (n_clients, n_features)
        What is subtracted from the features of each client, after its linear map.
    class_means_ : ndarray of shape (n_classes, n_features)
        Mean of each class over clients, without their offsets.
    tau_ : ndarray of shape (n_clients,)
        Strength of the linear map of each client.
    converged_ : bool
        Whether the search for the variances did.
    reference_ : MixedEffectsModel
        The message of the server.
    maps_ : list of MixedEffectsMap
        The map of each client.
    statistics_ : list of ClassStatistics
        The message of each client; without labels for one that joined without.
    means_ : ndarray of shape (n_clients, n_features)
        Mean of each client.
    covariances_ : ndarray of shape (n_clients, n_features, n_features)
        Covariance of each client as linear maps take it, shrunk by "oas".
    clients_report_ : ClientsReport
        Share, distance and so on of each client, and who stands out.
    n_features_in_ : int
        Number of columns of X in ``fit``, with the client column if there is one.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, when all are strings.

    See Also
    --------
    MixedEffectsClassifier : A classifier from the same model, and the better choice
        where a linear one will do.
    FederatedOTAligner : Alignment that needs no labels.

    Notes
    -----
    The model takes effects as normal, with one variance for all features. If no two
    clients share a class, what a client does cannot be told from what its classes do;
    a weak prior then splits the difference, and a third of it is taken out.

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
        **ClientAligner._parameter_constraints,
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
        outliers="warn",
        max_client_share=None,
        memory=None,
        n_jobs=None,
        verbose=0,
    ):
        self.tau = tau
        self.unknown_client = unknown_client
        self.privacy = privacy
        self.client_column = client_column
        self.keep_client_column = keep_client_column
        self.outliers = outliers
        self.max_client_share = max_client_share
        self.memory = memory
        self.n_jobs = n_jobs
        self.verbose = verbose

    # ------------------------------------------------------- the steps, one by one

    def client_update(self, X, y=None, *, classes=None, client=None):
        """Client step: summarise the rows of one client.

        Needs no fit, changes nothing, and is what ``fit`` does for each client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of the client.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur; needed with ``privacy``. Ignored without: the message
            names the classes that the client holds.
        client : object, default=None
            Its name.

        Returns
        -------
        statistics : ClassStatistics
            The message to the server.
        """
        self._validate_params()
        check_client_name(client)
        X = self._read_client(X, client)
        y = self._check_labels(y, X)
        if self.privacy is not None:
            self._check_classes_agreed(classes, client)
            return ClassStatistics.release(self.privacy, X, y, classes, client)
        return _statistics(client, FeatureMoments.from_rows(X), class_means(X, y))

    def server_aggregate(self, messages):
        """Server step: the model of all clients.

        Needs no fit, changes nothing, and is what ``fit`` does once.

        Parameters
        ----------
        messages : iterable of Message
            One message per client, of :meth:`client_update` or of a classifier. An
            iterable that can be restarted, such as one that reads files, is never held
            in memory as a whole.

        Returns
        -------
        reference : MixedEffectsModel
            The message to all clients.
        """
        self._validate_params()
        messages = self._receive(messages)
        alignment = self._align_messages(messages, keep_maps=messages.in_memory)
        check_named(messages.senders)
        pooled = within_covariance(
            map(site_of_message, messages), alignment, self.n_jobs
        )
        return model_message(alignment, pooled.shrunk("clients")[0])

    def client_map(self, message, reference):
        """Client step, when the model came back: the map of one client.

        Needs no fit, changes nothing, and is what ``fit`` does for each client.

        Parameters
        ----------
        message : Message
            What the client had sent.
        reference : MixedEffectsModel
            What the server answered.

        Returns
        -------
        map : MixedEffectsMap
            Aligns features of this client without the estimator.
        """
        self._validate_params()
        site = self._known_site(reference, message)
        return _map_of_site(alignment_of_message(reference), site)

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
        return np.array([each.offset for each in self.maps_])

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
    def maps_(self):
        """Map of each client."""
        return [self._map_of(client) for client in self._aligned().clients]

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
        return np.array([site.gaussian().covariance for site in sites])

    # ------------------------------------------------------------------- helpers

    _map_type = MixedEffectsMap
    _needs_labels = True
    _labels_missing = (
        "MixedEffectsAligner needs y in fit, to tell what a client does to its "
        "features from what its labels do; pass y, or use FederatedOTAligner."
    )

    def _align_rows(self, X, groups, class_means, known):
        moments = moments_by_client(X, groups, self.n_jobs, known)
        return moments, self._align_moments(moments, class_means, {})

    def _align_moments(self, moments, class_means, joined):
        rows = {c: each.n_samples for c, each in moments.items() if c not in joined}
        cells = weigh_cells(class_means, self._factors(rows))
        sites = [
            site_of_moments(client, each, cells[client])
            for client, each in moments.items()
        ]
        founders = [site for site in sites if site.client not in joined]
        alignment = self._solve(lambda: founders, keep_maps=True)
        for site in sites:
            if site.client in joined:
                alignment = alignment.with_site(site)
        return alignment

    def _align_messages(self, messages, keep_maps):
        return self._solve(lambda: map(site_of_message, messages), keep_maps)

    def _solve(self, sites, keep_maps):
        alignment = solve_sites(
            sites, self.tau, keep_maps, self.n_jobs, self._find_reference
        )
        if not alignment.model.converged:
            warn_user(
                "the search for the variance components did not converge; the model is "
                "that of the best ones found."
            )
        return alignment

    def _find_reference(self, found, gaussians):
        """What linear maps lead to, which does not depend on their strength."""
        if self.memory is None:
            return find_reference(found, gaussians, self.n_jobs, self._say)
        solve = self._cached(reference_of_list)
        options = {"n_jobs": self.n_jobs, "say": self._say}
        return solve(found, list(gaussians()), **options)

    def _part_for_alignment(self, moments):
        """Shrinkage that messages of classifiers carry for alignment: none."""
        return np.empty(0)

    _noisy_shrinkage = None

    def _keep(self, *fitted):
        super()._keep(*fitted)
        self._covariance = None

    def _within(self, shrinkage="clients"):
        """Covariance within classes and its shrinkage."""
        n_jobs = self._fitted.n_jobs
        pooled = within_covariance(self._sites(), self._aligned(), n_jobs)
        return pooled.shrunk(shrinkage)

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
        if client not in self._moments:
            return self._received.sent_by(client)
        if self._joined.get(client) is not None:
            return self._site_of(client).gaussian().message()
        return _statistics(client, self._moments[client], self._class_means[client])

    def _site_of(self, client):
        """What is known of a client, in fit or since."""
        if client not in self._moments:
            return site_of_message(self._received.of_client(client))
        means, counted = self._class_means[client], self._aligned().sites[client]
        # as many rows as it counts for, which may be less than it has
        cells = {label: (counted[label][0], means[label][1]) for label in means}
        return site_of_moments(client, self._moments[client], cells)

    def _sites(self):
        """What was known of each client in fit."""
        if self._received is not None:
            yield from map(site_of_message, self._received)
        for client in self._aligned().founders:
            if client in self._moments:
                yield self._site_of(client)

    def _with_client(self, alignment, client, moments, class_means):
        return alignment.with_site(site_of_moments(client, moments, class_means))

    def _without_client(self, alignment, client):
        return alignment.without_client(client)

    def _describe_newcomer(self, X, y, client):
        """Class means of a newcomer; those of guesses, and how these came about."""
        alignment = self._aligned()
        if y is not None:
            means = class_means(X, self._check_labels(y, X))
            check_classes_known(means, alignment.labels, client)
            return means, None
        # linear maps do not depend on labels
        anything = {alignment.labels[0]: (len(X), average_rows(X))}
        site = site_of_moments(client, FeatureMoments.from_rows(X), anything)
        linear = alignment.linear_map(site)
        rows = linear._move(X.astype(np.float64, copy=False))
        fit = fit_unlabelled(alignment.model, self._covariance_within(), rows)
        means = linear._move_back(fit.means)
        cells = zip(alignment.labels, fit.counts.tolist(), means, strict=True)
        return {label: (count, mean) for label, count, mean in cells if count > 0}, fit

    def _adopt(self, message, statistics):
        """Take over the model of a server, at a site that knows itself at most."""
        alignment = alignment_of_message(message)
        if statistics is not None:
            alignment = alignment.with_site(self._known_site(message, statistics))
        self._keep(clone(self), alignment, {}, {})
        self._received = receive([] if statistics is None else [statistics], Message)
        self._covariance = message.covariance
        self.n_features_in_ = message.n_features
        return self

    def _known_site(self, message, statistics):
        """What a site had sent, after a check that it fits the model."""
        check_same_features(message, statistics)
        site = site_of_message(statistics)
        check_classes_known(site.cells, message.classes, site.client)
        return site

    def _make_map(self, client, message):
        message = message or self._received.of_client(client)
        return _map_of_site(self._aligned(), site_of_message(message))


def _map_of_site(alignment, site):
    return alignment.with_site(site).maps[site.client]


def _statistics(client, moments, means):
    """The message of a client."""
    return ClassStatistics(
        list(means),
        np.array([count for count, _ in means.values()], dtype=np.int32),
        np.array([mean for _, mean in means.values()]),
        pack_triangle(moments.sample_covariance()),
        client=client,
    )


def model_message(alignment, covariance, priors=None, by_client=False):
    """The message to all clients, from what was fitted."""
    model, reference = alignment.model, alignment.reference
    return MixedEffectsModel(
        alignment.labels,
        model.class_counts.astype(np.int64),
        model.holders.astype(np.int64),
        model.means,
        model.effects,
        pack_triangle(covariance),
        np.array(model.components),
        model.class_shares if priors is None else priors,
        np.empty(0) if reference is None else reference.covariance_triangle,
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
    if message.reference_triangle.size:
        reference = AlignmentReference(
            np.zeros(message.n_features), message.reference_triangle, 0, 0.0
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
