"""One-shot federated classifiers."""

from ._base import Communication
from ._contract import check_one_shot_classifier
from ._fedavg import FedAvgClassifier
from ._fedcgs import FedCGSClassifier
from ._fedpft import FedPFTClassifier

__all__ = [
    "Communication",
    "FedAvgClassifier",
    "FedCGSClassifier",
    "FedPFTClassifier",
    "check_one_shot_classifier",
]
