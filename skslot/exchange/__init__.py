"""What leaves a client, and what comes back: small frozen messages."""

from ._alignment import AlignmentReference, ClientStatistics
from ._classification import (
    ClassMeans,
    ClassMixtures,
    ClassRows,
    ClassStatistics,
    CurvedHead,
)
from ._facts import feature_fingerprint, fingerprint_names
from ._message import Message
from ._mixed_effects import MixedEffectsModel
from ._models import AlignedModel, LinearModel
from ._preprocessing import ColumnStatistics
from ._receiving import check_same_features, load_message, load_messages, receive
from ._training import FeatureScale, FeatureSummary, HeadWeights
from ._wire import MessageError

__all__ = [
    "AlignedModel",
    "AlignmentReference",
    "ClassMeans",
    "ClassMixtures",
    "ClassRows",
    "ClassStatistics",
    "ClientStatistics",
    "ColumnStatistics",
    "CurvedHead",
    "FeatureScale",
    "FeatureSummary",
    "HeadWeights",
    "LinearModel",
    "Message",
    "MessageError",
    "MixedEffectsModel",
    "check_same_features",
    "feature_fingerprint",
    "fingerprint_names",
    "load_message",
    "load_messages",
    "receive",
]
