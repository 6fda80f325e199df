"""What aligners have in common: a map for each client, and how samples are mapped."""

from collections.abc import Mapping
from numbers import Integral

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils.validation import check_array, check_is_fitted

from .._docstrings import document
from .._sklearn_compat import HasMethods, StrOptions, _fit_context
from .._utils import shorten
from ..base import (
    ClientGroups,
    FederatedTransformer,
    assert_finite_by_client,
    check_client_name,
    clients_array,
    only_client,
    order_clients,
    reasons_for_exclusion,
    refuse_without_noise,
    split_client_column,
)
from ..exchange import ClassStatistics, ClientStatistics, Message, receive
from ..privacy import PrivacyBudget
from ..statistics import FeatureMoments, class_means

# Rows that are moved at once.
TILE_ROWS = 1024


class ClientMap:
    """Affine map of the samples of one client.

    Parameters
    ----------
    matrix : ndarray of shape (n_features, n_features) or None
        Symmetric, positive definite matrix. None leaves out the multiplication.
    offset : ndarray of shape (n_features,)
        Offset. A sample ``z`` is mapped to ``matrix @ z + offset``.

    See Also
    --------
    FederatedAligner : Base of aligners, which have a map for each client.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.alignment import ClientMap
    >>> ClientMap(None, np.array([1.0, 0.0])).transform([[2.0, 3.0]])
    array([[3., 3.]])
    """

    def __init__(self, matrix, offset):
        self.affine = matrix, offset

    @property
    def n_features(self):
        """Number of features."""
        return len(self.affine[1])

    @property
    def _centre(self):
        """A point and its image, such as the mean of the client.

        Samples are mapped around it, to lose no digits far from zero.
        """
        return np.zeros(self.n_features), self.affine[1]

    def transform(self, X):
        """Align samples of this client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of this client. float32 stays float32.

        Returns
        -------
        X_aligned : ndarray of shape (n_samples, n_features)
            Aligned features; always a copy.
        """
        return self._move(self._check(X))

    def _move(self, X, out=None, rows=slice(None)):
        """Align some rows of samples that were checked before.

        ``rows`` is a slice or an array of positions. The result is written into these
        rows of ``out``, a new array by default.
        """
        matrix, offset = self._affine_or_none
        out = np.empty_like(X, order="C") if out is None else out
        is_slice = isinstance(rows, slice)  # gives views, to be written to directly
        if matrix is None:
            shift = 0 if offset is None else offset.astype(X.dtype, copy=False)
            if is_slice:
                np.add(X[rows], shift, out=out[rows])
            else:
                out[rows] = X[rows] + shift
            return out
        # Around the mean, which a constant feature does not leave: it stays constant,
        # and float32 keeps its digits for what varies. Tiles stay in the cache.
        mean, moved_mean = self._centre
        centre = mean.astype(X.dtype)
        target = moved_mean + matrix @ (centre - mean)
        target, matrix = target.astype(X.dtype), matrix.astype(X.dtype, copy=False)
        source, moved = (X[rows], out[rows]) if is_slice else (X, out)
        positions = range(len(source)) if is_slice else rows
        work = np.empty((min(len(positions), TILE_ROWS), X.shape[1]), X.dtype)
        for start in range(0, len(positions), TILE_ROWS):
            tile = positions[start : start + TILE_ROWS]
            n_rows = len(tile)
            if is_slice:
                tile = slice(start, start + n_rows)
                product = np.subtract(source[tile], centre, out=work[:n_rows])
                product = np.matmul(product, matrix, out=moved[tile])
                product += target
            else:
                centred = source[tile]
                centred -= centre
                product = np.matmul(centred, matrix, out=work[:n_rows])
                product += target
                moved[tile] = product
        return out

    def inverse_transform(self, X):
        """Undo ``transform``.

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

    def _move_back(self, X, out=None, rows=slice(None)):
        """Undo ``_move``."""
        matrix, offset = self._affine_or_none
        out = np.empty_like(X, order="C") if out is None else out
        if matrix is None:
            shift = 0 if offset is None else offset.astype(X.dtype, copy=False)
            out[rows] = X[rows] - shift
        else:
            out[rows] = cho_solve(cho_factor(matrix), (X[rows] - offset).T).T
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


def move_rows(X, groups, maps, back=False):
    """Move the rows of each client by its map, or back."""
    moved = np.empty_like(X, order="C")
    for each, rows in zip(maps, groups.rows, strict=True):
        (each._move_back if back else each._move)(X, moved, rows)
    return moved


class ClientMaps(Mapping):
    """Maps by client. A map that is not kept in memory is made from its message."""

    def __init__(self, alignment, received):
        self._alignment, self._received = alignment, received
        self._clients = dict.fromkeys(alignment.clients)

    def __getitem__(self, client):
        if client not in self:
            raise KeyError(client)
        kept = self._alignment.maps
        if client in kept:
            return kept[client]
        return self._alignment.make_map(self._received.of_client(client))

    def __iter__(self):
        return iter(self._clients)

    def __len__(self):
        return len(self._clients)

    def __contains__(self, client):  # without making a map
        return client in self._clients

    def __repr__(self):
        return f"<maps of clients {shorten(self)}>"


@document
class FederatedAligner(FederatedTransformer):
    """Base of aligners, which transform the samples of each client by its own map.

    A subclass has the two steps of a :class:`~skslot.base.FederatedEstimator` and a
    third one, which a client runs when it has received the reference:

    - ``client_update(X, y=None, *, classes=None, client=None)`` returns a message.
    - ``server_aggregate(messages)`` sets ``reference_``, the message to all clients;
      ``maps_``, a mapping from each client to its :class:`ClientMap`; and
      ``n_features_in_``. It returns the aligner.
    - ``client_map(message, reference)`` returns the map of one client.

    The base class provides ``fit``, ``transform``, ``inverse_transform``,
    ``add_client`` and ``clients_``. A subclass may have the parameters that
    :class:`~skslot.FederatedOTAligner` has, such as ``unknown_client``.

    As the parameter ``aligner`` of a classifier, an aligner receives the messages of
    the classifier. Each contains ``n_samples``, ``mean`` and ``covariance`` of all
    samples of a client. If the aligner has a parameter ``shrinkage``, the message also
    contains the shrinkage coefficient, see ``message.client_statistics()``.

    See Also
    --------
    FederatedOTAligner : Alignment to a Wasserstein barycenter.
    MixedEffectsAligner : Alignment by a random-effects model.
    skslot.utils.check_estimator : Checks that an aligner keeps this contract.

    Examples
    --------
    An aligner that moves the mean of each client to the mean of all:

    >>> import numpy as np
    >>> from skslot.alignment import ClientMap, FederatedAligner
    >>> from skslot.exchange import ClientStatistics, FeatureScale, receive
    >>> from skslot.statistics import FeatureMoments
    >>> class MeanAligner(FederatedAligner):
    ...     def client_update(self, X, y=None, *, classes=None, client=None):
    ...         moments = FeatureMoments.from_rows(X)
    ...         return ClientStatistics.from_moments(moments, client=client)
    ...
    ...     def server_aggregate(self, messages):
    ...         sent = list(receive(messages))
    ...         mean = np.mean([message.mean for message in sent], axis=0)
    ...         self.reference_ = FeatureScale(mean, 1.0)
    ...         self.maps_ = {
    ...             message.client: self.client_map(message, self.reference_)
    ...             for message in sent
    ...         }
    ...         self.n_features_in_ = len(mean)
    ...         return self
    ...
    ...     def client_map(self, message, reference):
    ...         return ClientMap(None, reference.mean - message.mean)
    >>> X, site = np.array([[1.0], [3.0], [8.0]]), ["A", "A", "B"]
    >>> MeanAligner().fit_transform(X, client_ids=site).ravel()
    array([4., 6., 5.])
    """

    _parameter_constraints: dict = {
        "unknown_client": [StrOptions({"error", "identity", "adapt"})],
        "privacy": [PrivacyBudget, None],
        **FederatedTransformer._parameter_constraints,
        "memory": [None, str, HasMethods("cache")],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    # Values for aligners without these parameters.
    unknown_client = "error"
    shrinkage = None
    # Whether samples stay as they are, so that no map is needed.
    _moves_nothing = False

    @property
    def clients_(self):
        """Client ids."""
        check_is_fitted(self)
        return clients_array(self._clients())

    def transform(self, X, client_ids=None):
        """Align samples, each by the map of its client.

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
        aligned = move_rows(rows, groups, self._maps_for(rows, groups))
        return self._with_client_column(aligned, X)

    def inverse_transform(self, X, client_ids=None):
        """Undo ``transform``, by the inverse map of each client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Aligned features returned by ``transform``.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each sample. With ``client_column`` they are read from X if the
            column was kept, and must be passed here if it was dropped.

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
        return move_rows(X, groups, self._maps_for(X, groups, back=True), back=True)

    def add_client(self, X, client, y=None):
        """Compute the map of a client that joins after ``fit``.

        All other clients keep their maps, even if more samples of the new client are
        passed to ``partial_fit`` later. The map of the new client is then estimated
        from all its samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of the new client, with or without the client column.
        client : object
            Id of the new client.
        y : array-like of shape (n_samples,), default=None
            Labels of the samples, if available. Alignment by optimal transport does not
            use them.

        Returns
        -------
        self : object
            Updated aligner.
        """
        check_is_fitted(self)
        refuse_without_noise(self, "add_client")
        check_client_name(client, needed=True)
        clients = self._clients()
        if None in clients:
            raise ValueError(
                "the aligner was fitted without client_ids, so it has one nameless "
                "client; fit it with ids before others join."
            )
        if client in clients:
            raise ValueError(
                f"client {client!r} is known already; use partial_fit to add rows."
            )
        self._join(self._read_client(X, client, fitted=True), client, y)
        return self

    def _join(self, X, client, y):
        """Add the map of a client that did not take part in ``fit``."""
        message = self.client_update(X, y, client=client)
        new = self.client_map(message, self.reference_)
        self.maps_ = {**self.maps_, client: new}

    def _clients(self):
        return list(self.maps_)

    def _maps_for(self, X, groups, back=False):
        """Find the map of each client; ``unknown_client`` decides on unknown ones."""
        known = self._clients()
        fitted = set(known)
        unknown = [each for each in groups.clients if each not in fitted]
        if unknown and self.unknown_client == "error":
            what = reasons_for_exclusion(self, unknown) or (
                f"client {shorten(unknown)} was not seen in fit, which saw "
                f"{'no client_ids' if known == [None] else shorten(known)}."
            )
            raise ValueError(
                f"{what} Fit with its rows, call add_client(X, client), or set "
                "unknown_client to 'identity' or 'adapt'."
            )
        if unknown and self.unknown_client == "adapt" and back:
            raise ValueError(
                f"client {shorten(unknown)} was not seen in fit, and maps estimated "
                "in transform are not kept. Call add_client(X, client) before it."
            )
        identity = ClientMap(None, np.zeros(X.shape[1]))
        if self._moves_nothing:
            return [identity] * len(groups.clients)
        maps, found = self.maps_, []
        for client, rows in zip(groups.clients, groups.rows, strict=True):
            if client not in unknown:
                found.append(maps[client])
            elif self.unknown_client == "identity":
                found.append(identity)
            else:
                found.append(self._estimate_map(X[rows], client))
        return found

    def _estimate_map(self, X, client):
        """Map of a client that was not fitted, from its samples."""
        return self.client_map(self.client_update(X, client=client), self.reference_)

    def _groups_without_ids(self, n_samples):
        return only_client(self._clients(), n_samples)


@document
class SolvedAligner(FederatedAligner):
    """Aligner whose maps are the solution of a problem that all messages define.

    A subclass has

    - ``_solver(received)``, a function of ``n_jobs`` and ``say`` that solves with the
      present parameters. The solution is immutable. It has ``clients``, a dict of
      ``maps`` (without those that are too many to keep), ``make_map(message)``,
      ``with_client(message)`` and ``without_client(client)``;
    - ``_newcomer(X, y, client)``, the description of a client that joins later.

    The solution is computed when it is first needed: not on each chunk of
    ``partial_fit``, and not at all if ``_stays_put``, as with ``tau=0``.
    """

    def server_aggregate(self, messages):
        """Run the server step: fit the aligner to the messages of all clients.

        Parameters
        ----------
        messages : iterable of Message
            One message per client, from :meth:`client_update` or from a classifier. An
            iterable that can be restarted, such as one that reads files, is never held
            in memory as a whole.

        Returns
        -------
        self : object
            Fitted aligner. Its ``reference_`` is the message to all clients.
        """
        self._validate_params()
        received = receive(messages, Message, screen=self.screen)
        alignment = None
        # files need not be there later
        if not (self._stays_put and received.in_memory):
            solve = self._solver(received)
            alignment = solve(n_jobs=self.n_jobs, say=self._say)
        senders = received.senders
        if len(senders) > 1 and senders[0].client is None:
            raise ValueError(
                f"{len(senders)} messages came without names; give each client a name "
                "of its own in client_update(..., client=...), as each gets its own "
                "map."
            )
        self._keep(received, {}, alignment)
        self.n_features_in_ = senders[0].n_features + (self.client_column is not None)
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, client_ids=None):
        """Update the aligner with samples of known or new clients.

        The result equals ``fit`` on all samples. Maps are computed when they are next
        needed, not on each call.

        Parameters
        ----------
        {X}
        {y}
        {client_ids}

        Returns
        -------
        self : object
            Updated aligner.
        """
        refuse_without_noise(self, "partial_fit")
        self._validate_params()
        first = not self.__sklearn_is_fitted__()
        known, joined = ({}, {}) if first else self._known_by_moments()
        X, y, groups = self._validate_rows(X, y, client_ids, reset=first)
        if known and (None in groups.clients) != (None in known):
            raise ValueError(
                "either all rows come with a client or none: rows were fitted "
                f"{'without' if None in known else 'with'} client_ids before."
            )
        for client, rows in zip(groups.clients, groups.rows, strict=True):
            added = self._summarize(X[rows], None if y is None else y[rows], client)
            where = joined if client in joined else known
            before = where.get(client)
            where[client] = added if before is None else self._merge(before, added)
        messages = [known[client] for client in order_clients(known)]
        self._keep(receive(messages, Message, screen=self.screen), joined)
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
            The aligner without the client.
        """
        check_is_fitted(self)
        check_client_name(client, needed=True)
        if client not in self._joined:
            raise ValueError(
                f"client {client!r} is not among those that joined later, "
                f"{shorten(self._joined)}; others can only be left out of a new fit."
            )
        self._alignment = self._aligned().without_client(client)
        self._joined = {c: m for c, m in self._joined.items() if c != client}
        return self

    @property
    def maps_(self):
        """Map of each client, by its id."""
        return ClientMaps(self._aligned(), self._received)

    @property
    def clients_report_(self):
        """Report of the screening of clients."""
        check_is_fitted(self)
        if self._received.messages == []:  # a site that took over a model
            return None
        return self._received.clients_report

    def _keep(self, received, joined, alignment=None):
        """Keep messages, and how to solve for the alignment when it is needed."""
        self._received, self._joined, self._alignment = received, joined, alignment
        self._solve, self._moves_nothing = self._solver(received), self._stays_put

    def _aligned(self):
        """The alignment, computed now if that was not necessary before."""
        check_is_fitted(self)
        if self._alignment is None:
            alignment = self._solve(n_jobs=self.n_jobs, say=self._say)
            for message in self._joined.values():
                alignment = alignment.with_client(message)
            self._alignment = alignment
        return self._alignment

    @property
    def _stays_put(self):
        """Whether the present parameters leave samples as they are."""
        return False

    def _known_by_moments(self):
        """Messages that samples can be added to, and those of clients that joined."""
        messages = self._received.messages if self._received.in_memory else []
        if not messages or any(message.moments is None for message in messages):
            raise ValueError(
                "this aligner was fitted from messages, to which no rows can be added; "
                "let the client send a message on all of its rows."
            )
        if self._needs_labels and not all(each.describes_classes for each in messages):
            raise ValueError(
                "the parameters now need the labels of all samples, but labels of "
                "earlier samples were not kept. Call fit with all samples."
            )
        known = {message.client: message for message in messages}
        joined = dict(self._joined)
        fitted = self._solve.keywords.get("shrinkage")
        if self.shrinkage is not None and fitted != self.shrinkage:
            # set since: it applies to all samples, not only to those that are added
            for part in (known, joined):
                for client, message in part.items():
                    part[client] = message.summarised(self.shrinkage)
        return known, joined

    def _summarize(self, X, y, client):
        """Message on validated samples."""
        moments = FeatureMoments.from_rows(X)
        if y is None:
            return ClientStatistics.from_moments(moments, self.shrinkage, client)
        cells = class_means(X, y)
        return ClassStatistics.from_moments(moments, cells, self.shrinkage, client)

    def _merge(self, message, added):
        """Message on the samples of two messages."""
        return message.summarised(self.shrinkage, added)

    def _join(self, X, client, y):
        alignment = self._aligned()
        message = self._newcomer(X, y, client)
        self._alignment = alignment.with_client(message)
        self._joined = {**self._joined, client: message}

    def _estimate_map(self, X, client):
        return self._aligned().make_map(self._newcomer(X, None, client))

    def _clients(self):
        if self._alignment is not None:
            return self._alignment.clients
        return [*self._received.names, *self._joined]

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_solve")
