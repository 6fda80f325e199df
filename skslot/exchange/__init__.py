"""What leaves a client, and what comes back: small frozen messages."""

from ._messages import AlignmentReference, ClientStatistics

__all__ = ["AlignmentReference", "ClientStatistics"]
