"""One-shot federated classifiers."""

from ._base import OneShotClassifier
from ._fedavg import FedAvgClassifier
from ._fedcgs import FedCGSClassifier
from ._fedcof import FedCOFClassifier
from ._fedcoreset import FedCoresetClassifier
from ._fedensemble import FedEnsembleClassifier
from ._fedmerge import FedMergeClassifier
from ._fedpft import FedPFTClassifier
from ._fedqda import FedQDAClassifier
from ._fedridge import FedRidgeClassifier
from ._mixed_effects import MixedEffectsClassifier

__all__ = [
    "FedAvgClassifier",
    "FedCGSClassifier",
    "FedCOFClassifier",
    "FedCoresetClassifier",
    "FedEnsembleClassifier",
    "FedMergeClassifier",
    "FedPFTClassifier",
    "FedQDAClassifier",
    "FedRidgeClassifier",
    "MixedEffectsClassifier",
    "OneShotClassifier",
]
