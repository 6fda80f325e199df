"""Moving rows of many clients, known or not."""

import warnings
from dataclasses import dataclass

import numpy as np

from .._clients import shorten
from ..exchange import AlignmentReference
from ._maps import TransportMap
from ._steps import degeneracy_notes


@dataclass(frozen=True)
class ClientMaps:
    """The map of each fitted client, and the policy for all others.

    ``aligner`` is the FederatedOTAligner whose parameters say what happens to rows of
    an unknown client; its fitted state is not used.
    """

    maps: dict
    reference: AlignmentReference
    aligner: object

    def move(self, X, groups, move=TransportMap._move):
        """Move the rows of each client by its map."""
        maps = self._choose(X, groups)
        if len(maps) == 1:
            return move(maps[0], X)
        moved = np.empty_like(X)
        for client_map, rows in zip(maps, groups.rows, strict=True):
            moved[rows] = move(client_map, X[rows])
        return moved

    def _choose(self, X, groups):
        policy = self.aligner.unknown_client
        unknown = [client for client in groups.clients if client not in self.maps]
        if unknown and policy == "error":
            known = list(self.maps)
            raise ValueError(
                f"client {shorten(unknown)} was not seen in fit, which saw "
                f"{'no client_ids' if known == [None] else shorten(known)}. Fit with "
                "its rows, call add_client(X, client), or set unknown_client to "
                "'identity' or 'adapt'."
            )
        make = self._adapted if policy == "adapt" else self._identity
        return [
            self.maps[client] if client in self.maps else make(X[rows], client)
            for client, rows in zip(groups.clients, groups.rows, strict=True)
        ]

    def _identity(self, X, client):
        return TransportMap.identity(X.shape[1])

    def _adapted(self, X, client):
        statistics = self.aligner.client_update(X, client)
        for note in degeneracy_notes([statistics], self.aligner.shrinkage):
            warnings.warn(note, stacklevel=5)
        return self.aligner.client_map(statistics, self.reference)
