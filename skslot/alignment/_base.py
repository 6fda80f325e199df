"""Maps of clients, and moving rows of many."""

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils.validation import check_array, check_is_fitted

from .._docstrings import document
from .._sklearn_compat import HasMethods, StrOptions, _fit_context
from .._utils import shorten, warn_user
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
from ..geometry import displacement_map
from ..privacy import PrivacyBudget
from ..statistics import merge_class_means

# Rows that are moved at once.
TILE_ROWS = 1024


class ClientMap:
    """Moves the rows of one client by an affine map.

    A subclass has ``n_features`` and ``affine``, a matrix and an offset: a row ``z``
    goes to ``matrix @ z + offset``. The matrix is symmetric and positive definite, or
    None where rows are only shifted; the offset is None too where they stay. It also
    has the ``mean`` of the client and what the map makes of it, ``moved_mean``.
    """

    def transform(self, X):
        """Move rows towards those of the other clients.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of this client. float32 stays float32.

        Returns
        -------
        X_aligned : ndarray of shape (n_samples, n_features)
            Moved features; always a copy.
        """
        return self._move(self._check(X))

    def _move(self, X, out=None, overwrite=False):
        """Align rows that were checked before, into ``out`` if it is given.

        ``overwrite`` allows to use X as work space.
        """
        matrix, offset = self._affine_or_none
        out = np.empty_like(X, order="C") if out is None else out
        if offset is None:
            out[:] = X
            return out
        if matrix is None:
            return np.add(X, offset.astype(X.dtype, copy=False), out=out)
        # Around the mean, which a constant feature does not leave: it stays constant,
        # and float32 keeps its digits for what varies. Tiles stay in the cache.
        centre = self.mean.astype(X.dtype)
        target = self.moved_mean + matrix @ (centre - self.mean)
        target, matrix = target.astype(X.dtype), matrix.astype(X.dtype, copy=False)
        n_rows = 0 if overwrite else min(len(X), TILE_ROWS)
        buffer = np.empty((n_rows, X.shape[1]), X.dtype)
        for start in range(0, len(X), TILE_ROWS):
            rows, moved = X[start : start + TILE_ROWS], out[start : start + TILE_ROWS]
            work = rows if overwrite else buffer[: len(rows)]
            centred = np.subtract(rows, centre, out=work)
            np.matmul(centred, matrix, out=moved)
            moved += target
        return out

    def inverse_transform(self, X):
        """Move aligned rows back to where they came from.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Aligned features of this client.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            Features before alignment.
        """
        return self._move_back(self._check(X))

    def _move_back(self, X, out=None, overwrite=False):
        """Undo ``_move``, for rows that were checked before."""
        matrix, offset = self._affine_or_none
        out = np.empty_like(X, order="C") if out is None else out
        if offset is None:
            out[:] = X
        elif matrix is None:
            np.subtract(X, offset.astype(X.dtype, copy=False), out=out)
        else:
            out[:] = cho_solve(cho_factor(matrix), (X - offset).T).T
        return out

    @property
    def _affine_or_none(self):
        return self.affine

    def _check(self, X):
        X = check_array(X, dtype=(np.float64, np.float32), order="C")
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but this map was made for "
                f"{self.n_features}."
            )
        return X


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
    def moved_mean(self):
        """Where the mean of the client goes."""
        return self.mean + self.tau * (self.target_mean - self.mean)

    @cached_property
    def affine(self):
        """Matrix and offset: a row ``z`` goes to ``matrix @ z + offset``."""
        return displacement_map(self.mean, self.matrix, self.target_mean, self.tau)

    @property
    def _affine_or_none(self):
        return (None, None) if self.tau == 0 else self.affine


@dataclass(frozen=True, eq=False)
class MixedEffectsMap(ClientMap):
    """Takes the effect of one client out of its features.

    Made by :meth:`skslot.MixedEffectsAligner.client_map`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the client.
    matrix : ndarray of shape (n_features, n_features) or None
        Linear part of the full optimal-transport map; None without one.
    offset : ndarray of shape (n_features,)
        Offset of the client, which is subtracted.
    tau : float
        Strength of the linear part: 0 leaves it out, 1 is the full map. It stretches
        rows around their mean, which it does not move.

    See Also
    --------
    TransportMap : A map that moves the mean towards that of all clients.

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
        """Map that leaves rows as they are.

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
        """Go only a part of the way.

        Parameters
        ----------
        share : float
            0 leaves rows as they are, 1 is the whole map.

        Returns
        -------
        map : MixedEffectsMap
            A new map.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {share!r}.")
        return replace(self, offset=share * self.offset, tau=share * self.tau)

    @property
    def moved_mean(self):
        """Where the mean of the client goes."""
        return self.mean - self.offset

    @cached_property
    def affine(self):
        """Matrix, None for the identity, and offset, which is added."""
        if self.matrix is None:
            return None, -self.offset
        matrix = self.tau * self.matrix
        matrix[np.diag_indices_from(matrix)] += 1.0 - self.tau
        return matrix, self.mean - matrix @ self.mean - self.offset


def move_rows(X, groups, maps, back=False):
    """Move the rows of each client by its map, or back."""
    moves = [each._move_back if back else each._move for each in maps]
    if len(moves) == 1:
        return moves[0](X)
    moved = np.empty_like(X, order="C")
    for move, rows in zip(moves, groups.rows, strict=True):
        if isinstance(rows, slice):  # a view, to be written to without a copy
            move(X[rows], out=moved[rows])
        else:  # copies of a few rows stay in the cache
            for start in range(0, len(rows), TILE_ROWS):
                part = rows[start : start + TILE_ROWS]
                moved[part] = move(X[part], overwrite=True)
    return moved


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
    remedy : str
        What to do instead, with which the text of each warning ends.

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

    remedy = (
        "Take MixedEffectsClassifier or tau='auto', search for tau by "
        "FederatedGridSearchCV, or ask skslot.inspection.diagnose."
    )


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


def _warn(reason):
    warn_user(
        f"alignment is likely to cost accuracy: {reason}. {AlignmentWarning.remedy}",
        AlignmentWarning,
    )


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


# ------------------------------------------------------------------ base


@document
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
        {X}
        {y}
        {client_ids}

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
        {X}
        {client_ids}

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
