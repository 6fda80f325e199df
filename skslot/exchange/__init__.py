"""What leaves a client, and what comes back: small frozen messages."""

from ._classification import ClassMixtures, ClassStatistics, LinearModel
from ._messages import AlignmentReference, ClientStatistics
from ._training import FeatureScale, FeatureSummary, HeadWeights

__all__ = [
    "AlignmentReference",
    "ClassMixtures",
    "ClassStatistics",
    "ClientStatistics",
    "FeatureScale",
    "FeatureSummary",
    "HeadWeights",
    "LinearModel",
]
