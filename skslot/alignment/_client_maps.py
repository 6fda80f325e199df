"""Moving rows of many clients, known or not."""

from dataclasses import dataclass

import numpy as np

from .._clients import shorten
from ..exchange import AlignmentReference
from ._maps import TransportMap


@dataclass(frozen=True)
class ClientMaps:
    """The map of each fitted client, and the policy for all others.

    ``aligner`` is the FederatedOTAligner whose parameters say what happens to rows of
    an unknown client; its fitted state is not used.
    """

    maps: dict
    reference: AlignmentReference
    aligner: object

    def unknown_among(self, groups):
        """Clients without a map."""
        return [client for client in groups.clients if client not in self.maps]

    def move(self, X, groups, move=TransportMap._move):
        """Move the rows of each client by its map."""
        maps = self.choose(X, groups)
        if len(maps) == 1:
            return move(maps[0], X)
        moved = np.empty_like(X, order="C")
        for client_map, rows in zip(maps, groups.rows, strict=True):
            if isinstance(rows, slice):  # a view, to be written to without a copy
                move(client_map, X[rows], out=moved[rows])
            else:
                moved[rows] = move(client_map, X[rows])
        return moved

    def move_back(self, X, groups):
        """Undo :meth:`move`."""
        unknown = self.unknown_among(groups)
        if unknown and self.aligner.unknown_client == "adapt":
            raise ValueError(
                f"client {shorten(unknown)} was not seen in fit, and maps estimated "
                "in transform are not kept. Call add_client(X, client) before it."
            )
        return self.move(X, groups, TransportMap._move_back)

    def choose(self, X, groups):
        policy = self.aligner.unknown_client
        unknown = self.unknown_among(groups)
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
        return self.aligner.client_map(statistics, self.reference)
