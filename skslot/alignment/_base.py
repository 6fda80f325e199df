"""Base of aligners: a map for each client, fitted to messages."""

from numbers import Integral

from sklearn.utils.validation import check_is_fitted

from .._sklearn_compat import HasMethods, StrOptions, _fit_context
from .._text import shorten
from ..base import (
    ClientGroups,
    FederatedTransformer,
    assert_finite_by_client,
    check_client_name,
    clients_array,
    order_clients,
    refuse_without_noise,
    remedy,
    split_client_column,
)
from ..exchange import Message, receive
from ..privacy import PrivacyBudget
from ..statistics import merge_class_means
from ._maps import move_rows


class FederatedAligner(FederatedTransformer):
    """An aligner: fits a map for each client, and transforms samples by these maps.

    A subclass has the two steps of a :class:`~skslot.base.FederatedEstimator` and

    - ``_summarize(X, y, client)``, the message of ``client_update`` on checked rows,
    - ``_merge(message, added)``, the message on the rows of both,
    - ``_newcomer(X, y, client)``, a description of a client that joins later,
    - ``_solver(received)``, a function of ``n_jobs`` and ``say`` that solves for the
      *alignment* with the parameters as they are now. An alignment is immutable. It has
      the ids of its ``clients``, a dict of ``maps``, unless there are too many to keep,
      and methods ``with_client(newcomer)``, which adds a client that did not take part,
      and ``make_map(message)``.

    ``_map_type`` is the type of the maps. ``_needs_labels`` states whether ``y`` is
    needed in ``fit``, and ``_labels_missing`` is the error without it.
    ``_moves_nothing`` states that samples stay as they are, so that nothing is solved
    until it is asked for.
    """

    _parameter_constraints: dict = {
        "unknown_client": [StrOptions({"error", "identity", "adapt"})],
        "privacy": [PrivacyBudget, None],
        **FederatedTransformer._parameter_constraints,
        "memory": [None, str, HasMethods("cache")],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    _moves_nothing = False

    # ------------------------------------------------------------------ fitting

    def server_aggregate(self, messages):
        """Server step: fit the aligner to the messages of all clients.

        Parameters
        ----------
        messages : iterable of Message
            One message per client, of :meth:`client_update` or of a classifier. An
            iterable that can be restarted, such as one that reads files, is never held
            in memory as a whole.

        Returns
        -------
        self : object
            The fitted aligner. Its ``reference_`` is the message to all clients.
        """
        self._validate_params()
        received = self._receive(messages)
        alignment = None
        # files need not be there later
        if not (self._moves_nothing and received.in_memory):
            solve = self._solver(received)
            alignment = solve(n_jobs=self.n_jobs, say=self._say)
        senders = received.senders
        if len(senders) > 1 and senders[0].client is None:
            raise ValueError(
                f"{len(senders)} messages came without names; give each client a name "
                "of its own in client_update(..., client=...), as each gets its own "
                "map."
            )
        self._keep(received)
        self._alignment = alignment
        self.n_features_in_ = senders[0].n_features + (self.client_column is not None)
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
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
        refuse_without_noise(self, "partial_fit")
        first = not self.__sklearn_is_fitted__()
        known = {} if first else self._known_by_moments()
        X, y, groups = self._validate_rows(X, y, client_ids, reset=first)
        if known and (None in groups.clients) != (None in known):
            raise ValueError(
                "either all rows come with a client or none: rows were fitted "
                f"{'without' if None in known else 'with'} client_ids before."
            )
        joined = {} if first else dict(self._joined)
        for client, rows in zip(groups.clients, groups.rows, strict=True):
            added = self._summarize(X[rows], None if y is None else y[rows], client)
            where = joined if client in joined else known
            before = where.get(client)
            where[client] = added if before is None else self._merge(before, added)
        messages = [known[client] for client in order_clients(known)]
        self._keep(self._receive(messages), joined)
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
        refuse_without_noise(self, "add_client")
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
        message = self._newcomer(self._read_client(X, client, fitted=True), y, client)
        self._alignment = alignment.with_client(message)
        self._joined = {**self._joined, client: message}
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
        self._alignment = self._aligned().without_client(client)
        self._joined = {c: m for c, m in self._joined.items() if c != client}
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
            X, client_ids, _ = split_client_column(X, self.client_column, client_ids)
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

    # ------------------------------------------------------------------ helpers

    def _receive(self, messages):
        return receive(messages, Message, screen=self.screen)

    def _keep(self, received, joined=None):
        """Keep messages, and how to solve for the alignment when it is needed."""
        self._received, self._joined = received, joined or {}
        self._solve, self._stays = self._solver(received), self._moves_nothing
        self._alignment = None

    def _aligned(self):
        """The alignment, computed now if rows were added since or none was needed."""
        check_is_fitted(self)
        if self._alignment is None:
            alignment = self._solve(n_jobs=self.n_jobs, say=self._say)
            for message in self._joined.values():
                alignment = alignment.with_client(message)
            self._alignment = alignment
        return self._alignment

    def _known_by_moments(self):
        """Messages that rows can be added to, by client."""
        messages = self._received.messages if self._received.in_memory else []
        moments = [getattr(message, "moments", None) for message in messages]
        if not moments or any(each is None for each in moments):
            raise ValueError(
                "this aligner was fitted from messages, to which no rows can be added; "
                "let the client send a message on all of its rows."
            )
        return {message.client: message for message in messages}

    @property
    def clients_report_(self):
        """What stands out among the clients."""
        check_is_fitted(self)
        return self._received.clients_report

    @property
    def _is_idle(self):
        """Whether rows stay as they are, and nobody has asked for maps yet."""
        return self._stays and self._alignment is None

    @property
    def _n_features(self):
        """Number of features, without the column of ids."""
        return self.n_features_in_ - (self.client_column is not None)

    def _clients(self):
        if self._alignment is not None:
            return self._alignment.clients
        return [*self._received.names, *self._joined]

    def _left_out(self, clients):
        """Words on those of some clients that were left out; none if there are none."""
        # a site that took over the model of a server may have no messages
        report = self._received.clients_report if self._received.messages else None
        left_out = {} if report is None else report.left_out
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
        alignment = self._aligned()
        if client in alignment.maps:
            return alignment.maps[client]
        if self._stays:  # files may be gone
            return self._map_type.identity(self._n_features)
        return alignment.make_map(message or self._received.of_client(client))

    def _map_of_stranger(self, X, client):
        if self.unknown_client == "identity" or self._is_idle:
            return self._map_type.identity(X.shape[1])
        return self._aligned().make_map(self._newcomer(X, None, client))

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

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_solve")


def merge_cells(message, added):
    """Moments and class means of the rows of two messages that were made here."""
    cells = merge_class_means(message.cells(), added.cells())
    return message.moments + added.moments, cells
