"""Alignment of client features towards a common reference."""

from ._aligner import FederatedOTAligner
from ._maps import TransportMap

__all__ = ["FederatedOTAligner", "TransportMap"]
