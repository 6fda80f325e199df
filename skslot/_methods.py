"""Methods by name, for the command line and the experiments."""

from importlib import import_module
from operator import attrgetter


class Method:
    """Name of a method in tables, and how its classifier is made."""

    def __init__(self, label, maker, **params):
        self.label = label
        self.maker = maker
        self.params = params


METHODS = {
    "mixed": Method("mixed effects", "MixedEffectsClassifier"),
    "fedcgs": Method("FedCGS", "FedCGSClassifier"),
    "fedcgs-within": Method("FedCGS within", "FedCGSClassifier", covariance="within"),
    "nearest-mean": Method(
        "nearest mean", "FedCGSClassifier", covariance="identity", priors="uniform"
    ),
    "fedridge": Method("FedRidge", "FedRidgeClassifier"),
    "afl": Method("AFL", "FedRidgeClassifier.as_afl"),
    "fed3r": Method("Fed3R", "FedRidgeClassifier.as_fed3r"),
    "fedcof": Method("FedCOF", "FedCOFClassifier"),
    "fedqda": Method("FedQDA", "FedQDAClassifier"),
    "naive-bayes": Method("naive Bayes", "FedQDAClassifier", covariance_type="diag"),
    "fedpft": Method("FedPFT", "FedPFTClassifier", random_state=0),
    "fedpft-diag": Method(
        "FedPFT diag", "FedPFTClassifier", covariance_type="diag", random_state=0
    ),
    "fedpft-lowrank": Method(
        "FedPFT lowrank", "FedPFTClassifier", covariance_type="lowrank", random_state=0
    ),
    "fedpft-100": Method(
        "FedPFT 100 draws", "FedPFTClassifier", draws=100, random_state=0
    ),
    "ccvr": Method(
        "CCVR",
        "FedPFTClassifier",
        covariance_type="full",
        pool="class",
        random_state=0,
    ),
    "fedcoreset": Method("FedCoreset", "FedCoresetClassifier", random_state=0),
    "herding": Method(
        "FedCoreset herding",
        "FedCoresetClassifier",
        method="herding",
        allow_real_rows=True,
        random_state=0,
    ),
    "head-average": Method("head average", "FedMergeClassifier", curvature="none"),
    "fedmerge": Method("RegMean", "FedMergeClassifier", curvature="gram"),
    "fisher": Method("Fisher merging", "FedMergeClassifier", curvature="diag"),
    "fedlpa": Method("FedLPA", "FedMergeClassifier", curvature="kfac"),
    "ensemble": Method("ensemble", "FedEnsembleClassifier", combine="mean"),
    "weighted": Method(
        "ensemble weighted", "FedEnsembleClassifier", combine="weighted"
    ),
    "vote": Method("ensemble vote", "FedEnsembleClassifier", combine="vote"),
    "fedensemble": Method("ensemble stack", "FedEnsembleClassifier", combine="stack"),
    "o-fedavg": Method("O-FedAvg", "FedAvgClassifier", random_state=0),
    "fedavg": Method("FedAvg", "FedAvgClassifier", n_rounds=10, random_state=0),
}
# Methods of the commands that work on message files. For each message type, the first
# of its methods is the default.
FILE_METHODS = (
    "mixed",
    "fedcgs",
    "fedridge",
    "fedcof",
    "fedpft",
    "fedcoreset",
    "fedmerge",
    "fedensemble",
)


def make_classifier(name, **params):
    """Make the classifier of a method; `params` override its parameters."""
    method = METHODS[name]
    classifiers = import_module(".classifiers", __package__)
    return attrgetter(method.maker)(classifiers)(**{**method.params, **params})
