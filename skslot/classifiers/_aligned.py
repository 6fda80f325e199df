"""Alignment inside a classifier, from the same single message."""

import warnings
from dataclasses import replace

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from .._clients import REMEDY, ClientGroups, shorten
from ..alignment._client_maps import ClientMaps
from ..alignment._steps import degeneracy_notes, statistics_of, summarize
from ._base import check_kind


class AlignedClassifierMixin:
    """For classifiers with an ``aligner`` parameter, whose messages hold enough for it.

    The messages, of ``_message_type``, have a ``client_statistics()`` method.
    ``_align_messages`` gives the map of each client, and afterwards rows to predict are
    moved by it.
    """

    def _alignment_shrinkage(self, moments):
        """Shrinkage coefficient for alignment; empty when there is none."""
        if self.aligner is None:
            return np.empty(0)
        return np.array([summarize(moments, self.aligner.shrinkage).shrinkage])

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

    def _check_messages(self, messages):
        """A list of messages that can be combined."""
        messages = check_kind(messages, self._message_type)
        names = [message.client for message in messages]
        nameless = names.count(None)
        twice = {name for name in names if name is not None and names.count(name) > 1}
        if twice or 0 < nameless < len(names) or (nameless > 1 and self.aligner):
            raise ValueError(
                f"messages came from clients {shorten(names)}; give each client a name "
                "of its own in client_update(..., client=...)."
            )
        kinds = {_kind_of_label(label) for m in messages for label in m.classes}
        if len(kinds) > 1:
            first, *others = sorted(kinds, reverse=True)
            raise ValueError(
                f"some clients sent labels as {first}, others as "
                f"{' or '.join(others)}: { {m.client: m.classes for m in messages} }."
            )
        return messages

    def _align_messages(self, messages):
        """Map of each client, or None for each when there is no aligner."""
        if self.aligner is None:
            vars(self).pop("reference_", None)
            return [None] * len(messages)
        statistics = [statistics_of(message) for message in messages]
        for note in degeneracy_notes(statistics, self.aligner.shrinkage):
            warnings.warn(note, stacklevel=4)
        self.reference_ = self.aligner.server_aggregate(messages)
        maps = [self.aligner.client_map(s, self.reference_) for s in statistics]
        by_client = dict(zip((s.client for s in statistics), maps, strict=True))
        # rows that come to this object later need not name their encoder
        reference = self.reference_.with_encoder(None)
        self._client_maps = ClientMaps(by_client, reference, clone(self.aligner))
        return maps

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
        self._client_maps = replace(self._client_maps, maps={**known, client: added})
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

    def _map_of(self, client):
        check_is_fitted(self)
        if self.aligner is None:
            return None
        if client not in self._client_maps.maps:
            known = shorten(self._client_maps.maps)
            raise ValueError(f"client {client!r} sent no message; {known} did.")
        return self._client_maps.maps[client]

    def _features(self, X, groups):
        return X if self.aligner is None else self._fitted_maps().move(X, groups)

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


def names_of(messages):
    """Clients of the messages; those without a name are numbered."""
    return [
        index if message.client is None and len(messages) > 1 else message.client
        for index, message in enumerate(messages)
    ]


def _kind_of_label(label):
    """Kinds that must not be mixed: True equals 1, and would be the same class."""
    if isinstance(label, str):
        return "text"
    return "booleans" if isinstance(label, bool | np.bool_) else "numbers"
