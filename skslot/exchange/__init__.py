"""What leaves a client, and what comes back: small frozen messages."""

from ._classification import ClassMixtures, ClassStatistics
from ._errors import MessageError
from ._features import feature_fingerprint
from ._files import MessageFiles, load_message, load_messages
from ._messages import AlignmentReference, ClientStatistics
from ._models import AlignedModel, LinearModel
from ._training import FeatureScale, FeatureSummary, HeadWeights

__all__ = [
    "AlignedModel",
    "AlignmentReference",
    "ClassMixtures",
    "ClassStatistics",
    "ClientStatistics",
    "FeatureScale",
    "FeatureSummary",
    "HeadWeights",
    "LinearModel",
    "MessageError",
    "MessageFiles",
    "feature_fingerprint",
    "load_message",
    "load_messages",
]
