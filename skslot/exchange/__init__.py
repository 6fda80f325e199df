"""What leaves a client, and what comes back: small frozen messages."""

from ._client_messages import (
    ClassMeans,
    ClassMixtures,
    ClassRows,
    ClassStatistics,
    ClientStatistics,
    ColumnStatistics,
    CurvedHead,
    FeatureSummary,
    HeadWeights,
)
from ._message import Message, feature_fingerprint, fingerprint_names
from ._mixed_effects import MixedEffectsModel
from ._receiving import (
    check_same_features,
    find_misfits,
    load_message,
    load_messages,
    receive,
)
from ._server_messages import (
    AlignedModel,
    AlignmentReference,
    FeatureScale,
    LinearModel,
)
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
    "find_misfits",
    "fingerprint_names",
    "load_message",
    "load_messages",
    "receive",
]
