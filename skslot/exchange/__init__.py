"""What leaves a client, and what comes back: small frozen messages."""

from ._classification import ClassMixtures, ClassStatistics, LinearModel
from ._messages import AlignmentReference, ClientStatistics

__all__ = [
    "AlignmentReference",
    "ClassMixtures",
    "ClassStatistics",
    "ClientStatistics",
    "LinearModel",
]
