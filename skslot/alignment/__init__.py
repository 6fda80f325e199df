"""Alignment of client features: optimal transport, and mixed effects."""

from ._base import AlignmentWarning, MixedEffectsMap, TransportMap
from ._mixed_effects import MixedEffectsAligner
from ._optimal_transport import FederatedOTAligner, automatic_tau

__all__ = [
    "AlignmentWarning",
    "FederatedOTAligner",
    "MixedEffectsAligner",
    "MixedEffectsMap",
    "TransportMap",
    "automatic_tau",
]
