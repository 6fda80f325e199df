"""Base of aligners: rows of many clients, and a map for each client."""

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_memory

from .. import __version__
from .._clients import (
    GUARD_CONSTRAINTS,
    ClientGroups,
    ClientTransformerMixin,
    assert_finite_by_client,
    check_client_name,
    clients_array,
    order_clients,
    remedy,
    shorten,
    without,
)
from .._sklearn_compat import HasMethods, StrOptions, _fit_context
from ..exchange import Message, receive
from ..privacy import PrivacyBudget
from ..statistics import FeatureMoments, class_means, merge_class_means
from ..trust import ClientFacts, cap_shares, guard_clients
from ._maps import move_rows
from ._optimal_transport import moments_by_client


class ClientAligner(ClientTransformerMixin, BaseEstimator):
    """An aligner: learns a map for each client, and moves rows by them.

    A subclass computes an *alignment*: an object that has the ids of its ``clients``
    and a dict of ``maps``, each a ``ClientMap`` of ``_map_type``. It has six methods
    for that:

    - ``_align_rows(X, groups, class_means, known)``: from rows; also returns the
      moments of each client, which are those in ``known`` if that has any,
    - ``_align_moments(moments, class_means, joined)``: from the moments of each
      client; those in ``joined`` came later and have no say,
    - ``_align_messages(messages, keep_maps)``: from what the clients sent,
    - ``_make_map(client, message)``: a map that was not kept, from the message of the
      client, which is read again if it is None,
    - ``_with_client(alignment, client, moments, class_means)`` and
      ``_without_client(alignment, client)``: the same with one client more or less.

    ``_needs_labels`` says whether class means are needed, and ``_labels_missing`` what
    is wrong without them; ``_moves_nothing`` says that rows stay as they are, so that
    there is nothing to compute until somebody asks for it. These methods are called on
    ``_fitted``, a copy with the parameters of the last fit, so that parameters that are
    set later change nothing.
    """

    _parameter_constraints: dict = {
        "unknown_client": [StrOptions({"error", "identity", "adapt"})],
        "privacy": [PrivacyBudget, None],
        "client_column": [str, Integral, None],
        "keep_client_column": ["boolean"],
        **GUARD_CONSTRAINTS,
        "memory": [None, str, HasMethods("cache")],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    _moves_nothing = False

    # ------------------------------------------------------------------ fitting

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, client_ids=None):
        """Learn the map of each client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all clients, in any order.
        y : array-like of shape (n_samples,), default=None
            Labels, if they are needed; ids go into ``client_ids``.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row. Without any ids all rows are one client, and alignment
            changes nothing.

        Returns
        -------
        self : object
            The fitted aligner.
        """
        self._refuse_one_id_for_all(client_ids)
        X, groups = self._read_rows(X, client_ids, y=y, reset=True)
        self._advise_on_rows(X, y, groups)
        if self.privacy is not None:
            messages = self._release(X, y, groups)
            return self._fit_received(self._receive(messages), keep_maps=True)
        fitted = clone(self)
        means = fitted._means_by_class(X, y, groups)
        described, report = {}, None
        if self.outliers == "leave_out":
            described = moments_by_client(X, groups, self.n_jobs)
            report = fitted._look_at(described, means)
            groups = groups.without(report.left_out)
        moments, alignment = fitted._align_rows(X, groups, means, described)
        # those left out may get more rows, and be judged by all of them
        moments = {**described, **moments}
        self._keep(fitted, alignment, moments, means)
        self._report = report or fitted._look_at(moments, means)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, client_ids=None):
        """Add rows, of known or of new clients.

        Exact: after any number of chunks the result is that of ``fit`` on all rows. The
        maps are computed when they are next needed, not on each chunk.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More rows.
        y : array-like of shape (n_samples,), default=None
            Labels, if they are needed; ids go into ``client_ids``.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; a scalar says that all rows are of one client.

        Returns
        -------
        self : object
            The aligner with the rows added.
        """
        self._refuse_without_noise("partial_fit")
        first = not self.__sklearn_is_fitted__()
        if not first and self._received is not None:
            raise ValueError(
                "this aligner was fitted from messages, to which no rows can be added; "
                "let the client send a message on all of its rows."
            )
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
        means = {} if first else dict(self._class_means)
        for client, added in self._means_by_class(X, y, groups).items():
            means[client] = merge_class_means(means.get(client, {}), added)
        moments = {client: moments[client] for client in order_clients(moments)}
        later = () if first else (self._joined, self._aside)
        self._keep(clone(self), None, moments, means, *later)
        return self

    def fit_messages(self, messages):
        """Learn the map of each client from what the clients sent.

        As ``fit``, at a server that has no rows.

        Parameters
        ----------
        messages : iterable of Message
            One message per client, of :meth:`client_update` or of a classifier.

        Returns
        -------
        self : object
            The fitted aligner.
        """
        self._validate_params()
        self._fit_received(self._receive(messages), keep_maps=True)
        self._advise_on_messages()
        self._forget_names()
        return self

    def add_client(self, X, client, y=None):
        """Give a client that joins later a map of its own.

        Nobody else is affected, not even when more rows of this client come to
        ``partial_fit`` later: its own map is then estimated from all of them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the new client, with or without the client column.
        client : object
            Its id.
        y : array-like of shape (n_samples,), default=None
            Labels of its rows, if there are any; alignment by optimal transport makes
            no use of them.

        Returns
        -------
        self : object
            The aligner, which now knows the client.
        """
        check_is_fitted(self)
        self._refuse_without_noise("add_client")
        check_client_name(client, needed=True)
        alignment = self._aligned()
        if None in alignment.clients:
            raise ValueError(
                "the aligner was fitted without client_ids, so it has one nameless "
                "client; fit it with ids before others join."
            )
        if client in alignment.clients:
            raise ValueError(
                f"client {client!r} is known already; use partial_fit to add rows."
            )
        X = self._read_joining_client(X, client)
        moments = FeatureMoments.from_rows(X)
        means, found = self._describe_newcomer(X, y, client)
        self._alignment = self._fitted._with_client(alignment, client, moments, means)
        if client in self._moments:
            before = self._moments[client], self._class_means.get(client, {})
            self._aside = {**self._aside, client: before}
        self._moments = {**self._moments, client: moments}
        self._class_means = {**self._class_means, client: means}
        self._joined = {**self._joined, client: found}
        return self

    def remove_client(self, client):
        """Undo :meth:`add_client`.

        Parameters
        ----------
        client : object
            The id of a client that joined later.

        Returns
        -------
        self : object
            The aligner, which does not know the client any more.
        """
        check_is_fitted(self)
        if client not in self._joined:
            raise ValueError(
                f"client {client!r} is not among those that joined later, "
                f"{shorten(self._joined)}; others can only be left out of a new fit."
            )
        self._alignment = self._fitted._without_client(self._aligned(), client)
        for name in ("_moments", "_class_means", "_joined"):
            setattr(self, name, without(getattr(self, name), client))
        if client in self._aside:
            moments, means = self._aside[client]
            self._moments = {**self._moments, client: moments}
            self._class_means = {**self._class_means, client: means}
            self._aside = without(self._aside, client)
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
        return self._with_client_column(self._move(rows, groups), X)

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
            X, client_ids = self._read_client_column(X, client_ids)
        else:
            X = self._check_features(X)
        self._check_width(X)
        groups = (
            self._groups_without_ids(len(X))
            if client_ids is None
            else ClientGroups.from_ids(client_ids, len(X))
        )
        assert_finite_by_client(X, groups, self)
        unknown = self._unknown_among(groups)
        if unknown and self.unknown_client == "adapt":
            raise ValueError(
                f"client {shorten(unknown)} was not seen in fit, and maps estimated "
                "in transform are not kept. Call add_client(X, client) before it."
            )
        return self._move(X, groups, back=True)

    @property
    def clients_(self):
        """Client ids."""
        check_is_fitted(self)
        return clients_array(self._clients())

    @property
    def clients_report_(self):
        """What stands out among the clients."""
        self._aligned()
        return self._report

    # ------------------------------------------------------------------ helpers

    def _receive(self, messages):
        guard = {name: getattr(self, name) for name in GUARD_CONSTRAINTS}
        return receive(messages, Message, **guard)

    def _look_at(self, moments, means):
        """What stands out among clients, from the moments of each and class means."""
        facts = [
            ClientFacts.from_moments(
                client,
                each.n_samples,
                each.mean,
                each.sample_covariance().diagonal(),
                means.get(client),
            )
            for client, each in moments.items()
        ]
        return guard_clients(facts, self.outliers)

    def _factors(self, n_samples):
        """What part of its rows each client counts for, from the numbers of these."""
        if self.max_client_share is None:
            return dict.fromkeys(n_samples, 1)
        rows = np.array(list(n_samples.values()))
        factors = cap_shares(rows, self.max_client_share) / rows
        return dict(zip(n_samples, factors.tolist(), strict=True))

    def _keep(self, fitted, alignment, moments, means, joined=None, aside=None):
        """Keep what was fitted; without an alignment, it is computed when needed.

        ``joined`` has what was found out about each client that joined later, and
        ``aside`` moments and class means of fit of those who had been left out of it.
        """
        self._fitted, self._alignment = fitted, alignment
        self._moments, self._class_means = moments, means
        self._joined, self._aside, self._received = joined or {}, aside or {}, None
        self._report = None

    def _fit_received(self, received, keep_maps):
        """Fit to messages; if there are too many to keep maps, these are made anew."""
        fitted, alignment = clone(self), None
        # files need not be there later
        if not (fitted._moves_nothing and received.in_memory):
            alignment = fitted._align_messages(received, keep_maps)
        senders = received.senders
        check_named(senders)
        self._keep(fitted, alignment, {}, {})
        self._received, self._report = received, received.clients_report
        has_column = self.client_column is not None
        self.n_features_in_ = senders[0].n_features + has_column
        return self

    def _advise_on_rows(self, X, y, groups):
        """Warn if the alignment is likely to do harm; most aligners take care of it."""

    def _advise_on_messages(self):
        """The same for an aligner that was fitted to messages."""

    def _release(self, X, y, groups):
        """Message of each client, with noise; the labels in y are public."""
        pairs = list(zip(groups.clients, groups.rows, strict=True))
        if not self._needs_labels:
            return [self.client_update(X[rows], client=name) for name, rows in pairs]
        y = self._check_labels(y, X)
        check_classification_targets(y)
        classes = np.unique(y)
        return [
            self.client_update(X[rows], y[rows], classes=classes, client=name)
            for name, rows in pairs
        ]

    def _aligned(self):
        """The alignment, computed now if rows were added since or none was needed."""
        check_is_fitted(self)
        if self._alignment is None and self._received is not None:
            self._alignment = self._fitted._align_messages(
                self._received, keep_maps=self._received.in_memory
            )
        elif self._alignment is None:
            founders = {c: m for c, m in self._moments.items() if c not in self._joined}
            if self._report is None:
                self._report = self._fitted._look_at(founders, self._class_means)
            left_out = self._report.left_out
            moments = {c: m for c, m in self._moments.items() if c not in left_out}
            self._alignment = self._fitted._align_moments(
                moments, self._class_means, self._joined
            )
        return self._alignment

    @property
    def _is_idle(self):
        """Whether rows stay as they are, and nobody has asked for maps yet."""
        return self._fitted._moves_nothing and self._alignment is None

    def _means_by_class(self, X, y, groups):
        """Class means of each client, if they are needed."""
        if not self._needs_labels:
            return {}
        y = self._check_labels(y, X)
        check_classification_targets(y)
        pairs = zip(groups.clients, groups.rows, strict=True)
        return {client: class_means(X[rows], y[rows]) for client, rows in pairs}

    @property
    def _n_features(self):
        """Number of features, without the column of ids."""
        return self.n_features_in_ - (self.client_column is not None)

    def _clients(self):
        if self._alignment is not None:
            return self._alignment.clients
        if self._received is not None:
            return self._received.names
        if self._fitted.outliers == "leave_out":
            return self._aligned().clients
        return list(self._moments)

    def _left_out(self, clients):
        """Words on those of some clients that were left out; none if there are none."""
        left_out = {} if self._report is None else self._report.left_out
        reasons = [
            f"client {client!r} was left out of the fit, as {left_out[client]}"
            for client in clients
            if client in left_out
        ]
        return " ".join(reasons)

    def _unknown_among(self, groups):
        known = set(self._clients())
        return [client for client in groups.clients if client not in known]

    def _move(self, X, groups, back=False):
        """Move the rows of each client by its map; strangers as the policy says."""
        return move_rows(X, groups, self._maps_for(X, groups), back)

    def _maps_for(self, X, groups):
        """Map of each client whose rows are there."""
        strangers = self._maps_of_strangers(X, groups)
        return [strangers.get(each) or self._map_of(each) for each in groups.clients]

    def _maps_of_strangers(self, X, groups):
        """Map of each client that was not fitted, if the policy gives it one."""
        unknown = self._unknown_among(groups)
        if unknown and self.unknown_client == "error":
            known = self._clients()
            what = self._left_out(unknown) or (
                f"client {shorten(unknown)} was not seen in fit, which saw "
                f"{'no client_ids' if known == [None] else shorten(known)}."
            )
            raise ValueError(
                f"{what} Fit with its rows, call add_client(X, client), or set "
                "unknown_client to 'identity' or 'adapt'."
            )
        return {
            client: self._map_of_stranger(X[rows], client)
            for client, rows in zip(groups.clients, groups.rows, strict=True)
            if client in unknown
        }

    @property
    def _keeps_maps(self):
        """Whether the maps of all clients are in memory, or need none."""
        if self._is_idle:
            return True
        alignment = self._aligned()
        return len(alignment.maps) == len(alignment.clients)

    def _map_of(self, client, message=None):
        """Map of a client that was fitted, made anew if it was not kept."""
        if self._is_idle:
            return self._map_type.identity(self._n_features)
        maps = self._aligned().maps
        return maps[client] if client in maps else self._make_map(client, message)

    def _map_of_stranger(self, X, client):
        if self.unknown_client == "identity" or self._is_idle:
            return self._map_type.identity(X.shape[1])
        moments = FeatureMoments.from_rows(X)
        means, _ = self._describe_newcomer(X, None, client)
        adapted = self._fitted._with_client(self._aligned(), client, moments, means)
        return adapted.maps[client]

    def _describe_newcomer(self, X, y, client):
        """Class means of a client that joins later, and what else was found out."""
        return {}, None

    def _groups_without_ids(self, n_samples):
        clients = self._clients()
        if len(clients) > 1:
            raise ValueError(
                f"client_ids is missing, but {len(clients)} clients were fitted, each "
                f"with a map of its own. {remedy()}"
            )
        if not clients:
            raise ValueError("no client is known yet; call add_client(X, client).")
        return ClientGroups.single(clients[0], n_samples)

    def _cached(self, function):
        """The function, whose results ``memory`` keeps; keywords do not change them."""
        memory = check_memory(self.memory)
        run = memory.cache(run_unwritten, ignore=["options"])
        return lambda *arguments, **options: run(
            function, Unwritten(arguments), Unwritten(options), __version__
        )

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_fitted")


class Unwritten:
    """Arguments of a cached call: joblib hashes them, and writes nothing of them down.

    It writes the ``repr`` of all arguments beside a result, for arrays a part of the
    rows, which nobody expects to find on a disk.
    """

    def __init__(self, arguments):
        self.arguments = arguments

    def __repr__(self):
        return "not written"


def run_unwritten(function, unwritten, options, version):
    """What is cached in place of the function, for each version of it."""
    return function(*unwritten.arguments, **options.arguments)


def check_named(senders):
    """Refuse several messages without names, as each client gets its own map."""
    if len(senders) > 1 and senders[0].client is None:
        raise ValueError(
            f"{len(senders)} messages came without names; give each client a name of "
            "its own in client_update(..., client=...), as each gets its own map."
        )


def weigh_cells(class_means, factors):
    """Class means of clients that count for a part of their rows."""
    return {
        client: {
            label: (count * factors.get(client, 1), mean)
            for label, (count, mean) in cells.items()
        }
        for client, cells in class_means.items()
    }
