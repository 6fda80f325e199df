"""Aligners: transformers that move the features of each client towards the others."""

from ._base import ClientMap, FederatedAligner
from ._mixed_effects import MixedEffectsAligner, MixedEffectsMap
from ._optimal_transport import (
    AlignmentWarning,
    FederatedOTAligner,
    TransportMap,
    automatic_tau,
)

__all__ = [
    "AlignmentWarning",
    "ClientMap",
    "FederatedAligner",
    "FederatedOTAligner",
    "MixedEffectsAligner",
    "MixedEffectsMap",
    "TransportMap",
    "automatic_tau",
]
