"""One-shot federated learning by optimal-transport alignment of features."""

from importlib import import_module as _import_module

__version__ = "0.1.0.dev0"

# Estimators and sub-packages are imported when they are first used, so that `import
# skslot` costs nothing and one of them does not bring in what only another needs.
_HOMES = {
    "FedAvgClassifier": "skslot.classifiers",
    "FedCGSClassifier": "skslot.classifiers",
    "FedCOFClassifier": "skslot.classifiers",
    "FedCoresetClassifier": "skslot.classifiers",
    "FedEnsembleClassifier": "skslot.classifiers",
    "FedMergeClassifier": "skslot.classifiers",
    "FedPFTClassifier": "skslot.classifiers",
    "FedQDAClassifier": "skslot.classifiers",
    "FedRidgeClassifier": "skslot.classifiers",
    "FederatedOTAligner": "skslot.alignment",
    "FederatedScaler": "skslot.preprocessing",
    "FrozenEncoder": "skslot.encoders",
    "MixedEffectsAligner": "skslot.alignment",
    "MixedEffectsClassifier": "skslot.classifiers",
}
_SUBPACKAGES = {
    "alignment",
    "classifiers",
    "cli",
    "datasets",
    "encoders",
    "exchange",
    "experiments",
    "flower",
    "geometry",
    "inspection",
    "metrics",
    "model_selection",
    "preprocessing",
    "privacy",
    "statistics",
    "trust",
    "utils",
}

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
    "FederatedOTAligner",
    "FederatedScaler",
    "FrozenEncoder",
    "MixedEffectsAligner",
    "MixedEffectsClassifier",
    "__version__",
]


def __getattr__(name):
    if name in _HOMES:
        found = globals()[name] = getattr(_import_module(_HOMES[name]), name)
        return found
    if name in _SUBPACKAGES:
        return _import_module(f"skslot.{name}")
    raise AttributeError(f"module 'skslot' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_HOMES, *_SUBPACKAGES})
