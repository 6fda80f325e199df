"""Alignment of client features: optimal transport, and mixed effects."""

from ._advice import AlignmentWarning
from ._auto_tau import automatic_tau
from ._maps import MixedEffectsMap, TransportMap
from ._mixed_effects import MixedEffectsAligner
from ._optimal_transport import FederatedOTAligner

__all__ = [
    "AlignmentWarning",
    "FederatedOTAligner",
    "MixedEffectsAligner",
    "MixedEffectsMap",
    "TransportMap",
    "automatic_tau",
]
