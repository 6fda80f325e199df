"""One-shot federated learning by optimal-transport alignment of features."""

from .alignment import FederatedOTAligner
from .classifiers import FedAvgClassifier, FedCGSClassifier, FedPFTClassifier

__version__ = "0.1.0.dev0"

__all__ = [
    "FedAvgClassifier",
    "FedCGSClassifier",
    "FedPFTClassifier",
    "FederatedOTAligner",
    "__version__",
]
