"""Alignment inside a classifier, from the same single message."""

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from .._clients import REMEDY, ClientGroups, shorten
from ..alignment._client_maps import ClientMaps
from ..alignment._steps import degeneracy_notes, summarize
from ..exchange import ClientStatistics
from ..exchange._packing import pack_triangle


class MappedMessages:
    """Messages, each with the map of its client; without aligner that is None.

    Maps are made anew on each loop: all of them may be more than fits in memory.
    """

    def __init__(self, messages, aligner=None, reference=None):
        self.messages = messages
        self.aligner = aligner
        self.reference = reference

    def __iter__(self):
        for message in self.messages:
            if self.aligner is None:
                yield message, None
            else:
                yield message, self.aligner.client_map(message, self.reference)


class AlignedClassifierMixin:
    """For classifiers with an ``aligner`` parameter, whose messages hold enough for it.

    The messages, of ``_message_type``, have a ``client_statistics()`` method. Clients
    without labels send only those: they count in the reference and get a map too.
    ``_align`` sets the reference and gives the map of each client; ``_keep`` keeps for
    each client what predictions need of its map.
    """

    def _alignment_fields(self, moments):
        """Packed covariance, and its shrinkage for alignment; empty without one."""
        if self.aligner is None:
            return pack_triangle(moments.sample_covariance()), np.empty(0)
        statistics = summarize(moments, self.aligner.shrinkage)
        return statistics.covariance_triangle, np.array([statistics.shrinkage])

    def _warn_if_wire_is_coarse(self, X, client):
        """float16 has eleven bits: far from zero they are spent on the offset."""
        if self.wire_dtype != "float16":
            return
        rounding = np.abs(X.mean(axis=0, dtype=np.float64)) / 2**11
        deviation = X.std(axis=0, dtype=np.float64)
        varies = deviation > 1e-9 * rounding  # more than rounding does
        coarse = int(np.sum((rounding > 0.1 * deviation) & varies))
        if coarse:
            warnings.warn(
                f"float16 rounds the mean of {coarse} features of client {client!r} by "
                "more than a tenth of their standard deviation; use "
                "wire_dtype='float32', or centre the features.",
                stacklevel=4,
            )

    def _allowed_messages(self):
        without_labels = () if self.aligner is None else (ClientStatistics,)
        return *super()._allowed_messages(), *without_labels

    def _read_senders(self, messages):
        senders = super()._read_senders(messages)
        if self.aligner is not None and len(senders) > 1 and senders[0].client is None:
            raise ValueError(
                f"{len(senders)} messages came without names; give each client a name "
                "of its own in client_update(..., client=...), as each gets its own "
                "map."
            )
        return senders

    def _align(self, messages):
        """Set the reference; messages with the map of each client."""
        if self.aligner is None:
            for name in ("reference_", "_client_maps"):  # of an earlier fit
                vars(self).pop(name, None)
            return MappedMessages(messages)
        facts = [_Facts.of(message) for message in messages]
        for note in degeneracy_notes(facts, self.aligner.shrinkage):
            warnings.warn(note, stacklevel=5)
        self.reference_ = self.aligner.server_aggregate(messages)
        return MappedMessages(messages, self.aligner, self.reference_)

    def _keep(self, kept):
        """Keep the map of each client, or what stands for it, by the client's name."""
        # rows that come to this object later need not name their encoder
        reference = self.reference_.with_encoder(None)
        self._client_maps = ClientMaps(kept, reference, clone(self.aligner))

    def _what_to_keep(self, client, client_map):
        """All that predictions for a client need of its map."""
        return client_map

    def add_client(self, X, client):
        """Give a client that joins later a map to the unchanged reference.

        Only with ``aligner``. The classifier and all other clients stay as they are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled features of the new client.
        client : object
            Its id.

        Returns
        -------
        self : object
            The classifier, which now knows the client.
        """
        check_is_fitted(self)
        if self.aligner is None:
            raise ValueError(
                "without aligner all clients get the same classifier: there is nothing "
                "to add."
            )
        known = self._fitted_maps().maps
        if client in known:
            raise ValueError(f"client {client!r} is known already.")
        statistics = self.aligner.client_update(X, client)
        added = self.aligner.client_map(statistics, self._client_maps.reference)
        kept = {**known, client: self._what_to_keep(client, added)}
        self._client_maps = replace(self._client_maps, maps=kept)
        return self

    def _fitted_maps(self):
        if not hasattr(self, "_client_maps"):
            raise ValueError("aligner was set after fit; fit the classifier again.")
        return self._client_maps

    def _read_training_rows(self, X, y, client_ids):
        if self.aligner is not None and self.aligner.client_column is not None:
            raise ValueError(
                "client_column is set on the aligner inside the classifier, which sees "
                "no column; set it on the classifier instead."
            )
        return super()._read_training_rows(X, y, client_ids)

    def _kept_of(self, client):
        """What is kept of a client; None without aligner."""
        check_is_fitted(self)
        if self.aligner is None:
            return None
        if client not in self._client_maps.maps:
            known = shorten(self._client_maps.maps)
            raise ValueError(f"client {client!r} sent no message; {known} did.")
        return self._client_maps.maps[client]

    def _groups_without_ids(self, n_samples):
        if self.aligner is None:
            return ClientGroups.single(None, n_samples)
        known = list(self._fitted_maps().maps)
        if len(known) > 1:
            raise ValueError(
                f"client_ids is missing, but this classifier aligns {len(known)} "
                f"clients, each by a map of its own. {REMEDY}"
            )
        return ClientGroups.single(known[0], n_samples)


class _Facts(NamedTuple):
    """What notes on a client need, without its covariance."""

    client: object
    is_constant: bool
    shrinkage: float

    @classmethod
    def of(cls, message):
        sent = message.client_statistics()
        return cls(sent.client, sent.is_constant, sent.shrinkage)
