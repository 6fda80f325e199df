"""One-shot federated learning by optimal-transport alignment of features."""

from importlib import import_module as _import_module

__version__ = "0.1.0.dev0"

# Estimators are imported when they are first used, so that `import skslot` costs
# nothing and one of them does not bring in what only another needs.
_HOMES = {
    "FedAvgClassifier": "skslot.classifiers",
    "FedCGSClassifier": "skslot.classifiers",
    "FedPFTClassifier": "skslot.classifiers",
    "FederatedOTAligner": "skslot.alignment",
    "FrozenEncoder": "skslot.encoders",
}

__all__ = [
    "FedAvgClassifier",
    "FedCGSClassifier",
    "FedPFTClassifier",
    "FederatedOTAligner",
    "FrozenEncoder",
    "__version__",
]


def __getattr__(name):
    if name in _HOMES:
        return getattr(_import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'skslot' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_HOMES])
