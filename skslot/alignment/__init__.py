"""Alignment of client features: optimal transport, and mixed effects."""

from ._auto_tau import automatic_tau
from ._maps import MixedEffectsMap, TransportMap
from ._mixed_aligner import MixedEffectsAligner
from ._ot_aligner import FederatedOTAligner

__all__ = [
    "FederatedOTAligner",
    "MixedEffectsAligner",
    "MixedEffectsMap",
    "TransportMap",
    "automatic_tau",
]
