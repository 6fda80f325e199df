"""Alignment inside a classifier, from the same single message."""

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from .._parallel import map_in_order
from .._sklearn_compat import HasMethods
from .._text import shorten
from ..base import refuse_without_noise
from ..exchange import AlignedModel, AlignmentReference, ClientStatistics


class ClientModelsMixin:
    """For classifiers that have a fitted ``aligner_``: each client has its own map."""

    @property
    def _is_aligned(self):
        return hasattr(self, "aligner_")

    def client_model(self, client):
        if not self._is_aligned:
            return super().client_model(client)
        clients = self.aligner_._clients()
        if client not in clients:
            raise ValueError(
                self.aligner_._left_out([client])
                or f"client {client!r} sent no message; {shorten(clients)} did."
            )
        return self._folded_model(client)

    def _folded_model(self, client):
        """The classifier for rows of a client that was fitted, as they are."""
        return self._fold(self.aligner_._map_of(client), client)

    def _fold(self, client_map, client):
        return self.linear_model().pulled_back(*client_map.affine, client)

    def _groups_without_ids(self, n_samples):
        if self._is_aligned:
            return self.aligner_._groups_without_ids(n_samples)
        return super()._groups_without_ids(n_samples)


class FoldedHeadsMixin(ClientModelsMixin):
    """For linear ones of these: the map of each client is folded into a head."""

    def _prepare_models(self, messages):
        self._heads = {}
        if self._is_aligned and not self.aligner_._keeps_maps:
            heads = map_in_order(self._head_for_sender, messages, self.n_jobs)
            self._heads = {head.client: head for head in heads}

    def _head_for_sender(self, message):
        client_map = self.aligner_._map_of(message.client, message)
        return self._fold(client_map, message.client)

    def _folded_model(self, client):
        if client not in self._heads:
            self._heads[client] = super()._folded_model(client)
        return self._heads[client]

    def _scores_by_client(self, X, groups):
        if not self._is_aligned:
            return self._scores(X)
        scores = np.empty((len(X), len(self.classes_)))
        strangers = self.aligner_._maps_of_strangers(X, groups)
        folded = {c: self._fold(each, c) for c, each in strangers.items()}
        for client, rows in zip(groups.clients, groups.rows, strict=True):
            model = folded.get(client) or self._folded_model(client)
            scores[rows] = X[rows] @ model.coef.T + model.intercept
        return scores


class AlignedClassifierMixin(ClientModelsMixin):
    """For classifiers with an ``aligner`` parameter, whose messages hold enough for it.

    The messages, of ``message_type``, have a ``client_statistics()`` method. Clients
    without labels send only those: they count in the reference and get a map too.
    ``_fit_aligner`` sets ``aligner_``, which is there only if the classifier was fitted
    with one.
    """

    _aligner_constraint = [HasMethods(["server_aggregate", "add_client"]), None]

    def add_client(self, X, client):
        """Give a client that joins later a map to the unchanged reference.

        Only with ``aligner``. The classifier and all other clients stay as they are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled features of the new client, with or without the client column.
        client : object
            Its id.

        Returns
        -------
        self : object
            The classifier, which now knows the client.
        """
        check_is_fitted(self)
        refuse_without_noise(self, "add_client")
        if not self._is_aligned:
            raise ValueError(
                "without aligner all clients get the same classifier: there is nothing "
                "to add."
            )
        X = self._read_client(X, client, fitted=True)
        self.aligner_.add_client(X, client)
        return self

    def shared_model(self):
        if not self._is_aligned:
            return super().shared_model()
        aligner = self.aligner_
        if not isinstance(aligner.reference_, AlignmentReference):
            raise ValueError(
                f"no message holds this classifier and what {type(aligner).__name__} "
                "aligns to; send client_model(client) to each client."
            )
        return AlignedModel.of(self.linear_model(), aligner.reference_, aligner.tau_)

    def _scores_by_client(self, X, groups):
        return self._scores(self._align(X, groups))

    def _align(self, X, groups):
        """Align samples, if the classifier was fitted with an aligner."""
        if not self._is_aligned:
            return X
        if groups.clients == [None]:
            return self.aligner_.transform(X)
        codes = np.empty(len(X), dtype=np.intp)
        for code, rows in enumerate(groups.rows):
            codes[rows] = code
        ids = np.fromiter(groups.clients, dtype=object)[codes]
        return self.aligner_.transform(X, client_ids=ids)

    def _fit_aligner(self, messages):
        """Fit ``aligner_`` to the messages, if there is an aligner."""
        vars(self).pop("aligner_", None)  # of an earlier fit
        if self.aligner is None:
            return
        aligner = clone(self.aligner).server_aggregate(messages.for_aligner())
        if not any(sender.has_labels for sender in messages.senders):
            raise ValueError("no client sent labels: there is nothing to learn from.")
        self.aligner_ = aligner

    def _aligned_messages(self, messages, push):
        """Messages with labels, of aligned rows: ``push`` moves one by a map."""

        def aligned(message):
            client_map = self._map_of_sender(message)
            return message if client_map is None else push(message, *client_map.affine)

        return map_in_order(aligned, self._labelled(messages), self.n_jobs)

    def _with_maps(self, messages):
        """Messages with labels, and the maps of their clients, None if not aligned."""
        for message in self._labelled(messages):
            yield message, self._map_of_sender(message)

    def _labelled(self, messages):
        return (each for each in messages if isinstance(each, self.message_type))

    def _map_of_sender(self, message):
        if self._is_aligned:
            return self.aligner_._map_of(message.client, message)
        return None

    def _part_for_alignment(self, moments):
        """Sample covariance, and its shrinkage for alignment; empty without one."""
        covariance = moments.sample_covariance()
        if self.aligner is None:
            return covariance, np.empty(0)
        return covariance, self.aligner._part_for_alignment(moments)

    @property
    def _noisy_shrinkage(self):
        """How the shrinkage for alignment is taken from noisy statistics, if at all."""
        return None if self.aligner is None else self.aligner._noisy_shrinkage

    def _validate_params(self):
        super()._validate_params()
        if getattr(self.aligner, "privacy", None) is not None:
            raise ValueError(
                "privacy is set on the aligner inside the classifier, which sends "
                "nothing itself; set it on the classifier, whose one message serves "
                "both. Classifiers without this parameter have no guarantee to give."
            )

    def _allowed_messages(self):
        without_labels = () if self.aligner is None else (ClientStatistics,)
        return *super()._allowed_messages(), *without_labels

    def _validate_rows(self, X, y, client_ids, *, reset=True):
        if self.aligner is not None and self.aligner.client_column is not None:
            raise ValueError(
                "client_column is set on the aligner inside the classifier, which sees "
                "no column; set it on the classifier instead."
            )
        return super()._validate_rows(X, y, client_ids, reset=reset)
