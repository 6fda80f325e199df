"""What both apps need: Flower itself, and the estimators that can run over it."""

import warnings

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from .._utils import import_optional
from ..alignment import FederatedOTAligner, MixedEffectsAligner
from ..classifiers import (
    FedAvgClassifier,
    FedEnsembleClassifier,
    FedQDAClassifier,
    MixedEffectsClassifier,
    OneShotClassifier,
)

# Name of the record in each message, and of what is kept between them.
RECORD = "skslot"
ALIGNERS = (FederatedOTAligner, MixedEffectsAligner)


def flower_modules():
    """Import ``flwr.app``, ``flwr.clientapp`` and ``flwr.serverapp``."""
    names = ("flwr.app", "flwr.clientapp", "flwr.serverapp")
    with warnings.catch_warnings():
        # what it imports in turn uses deprecated names of each other
        warnings.simplefilter("ignore", DeprecationWarning)
        return [import_optional(name, "flower", "skslot.flower") for name in names]


def split_estimator(estimator):
    """Return copies of the aligner and the classifier; one of them may be None.

    Supported are an aligner, a classifier, and a Pipeline of the two. The result goes
    to the clients as a linear model, so other classifiers are refused before anything
    is sent.
    """
    steps = [estimator]
    if isinstance(estimator, Pipeline):
        steps = [
            step for _, step in estimator.steps if step not in (None, "passthrough")
        ]
    kinds = [ALIGNERS, OneShotClassifier]
    found = [next((s for s in steps if isinstance(s, kind)), None) for kind in kinds]
    if [step for step in found if step is not None] != steps:
        names = " -> ".join(type(step).__name__ for step in steps)
        raise ValueError(
            f"estimator {names} cannot run over Flower: it must be an aligner or a "
            "classifier of skslot, or a Pipeline of the two. Encode and scale features "
            "in load_data."
        )
    for step in steps:
        if step.client_column is not None:
            raise ValueError(
                f"client_column of {type(step).__name__} must be None: over Flower, "
                "load_data returns the name of the client."
            )
    aligner, classifier = (None if step is None else clone(step) for step in found)
    aligns = isinstance(classifier, MixedEffectsClassifier)
    aligns = aligns or getattr(classifier, "aligner", None) is not None
    if aligner is not None and aligns:
        raise ValueError(
            "the Pipeline aligns twice, as its classifier does so too: leave out its "
            "aligner, or that of the classifier."
        )
    kept_apart = isinstance(classifier, FedEnsembleClassifier)
    kept_apart = kept_apart and classifier.combine != "stack"
    mapped = getattr(classifier, "feature_map", None) is not None
    if isinstance(classifier, FedQDAClassifier) or kept_apart or mapped:
        raise ValueError(
            f"the result of {type(classifier).__name__} with these parameters is no "
            "linear model, which is what clients get over Flower; choose another "
            "classifier, for FedEnsembleClassifier combine='stack'."
        )
    if isinstance(classifier, FedAvgClassifier) and classifier.net is not None:
        raise ValueError(
            "over Flower FedAvgClassifier must have net=None, as the result is sent "
            "as a linear model."
        )
    return aligner, classifier
