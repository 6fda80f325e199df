"""Classifiers by the names that the commands have for them."""

# Those whose result is a linear model, which is what files hold.
METHODS = (
    "mixed",
    "fedcgs",
    "fedridge",
    "fedcof",
    "fedpft",
    "fedcoreset",
    "fedmerge",
    "fedensemble",
)
# Method that files are taken for when nobody says otherwise, by the class of message.
DEFAULTS = {
    "ClassStatistics": "mixed",
    "ClassMixtures": "fedpft",
    "ClassRows": "fedcoreset",
    "CurvedHead": "fedmerge",
}


def make_classifier(method, aligner, **settings):
    """The classifier of a method; ``settings`` are parameters that it has."""
    from .. import (
        FedCGSClassifier,
        FedCOFClassifier,
        FedCoresetClassifier,
        FedEnsembleClassifier,
        FedMergeClassifier,
        FedPFTClassifier,
        FedRidgeClassifier,
    )

    makers = {
        "fedcgs": FedCGSClassifier(),
        "fedridge": FedRidgeClassifier(),
        "fedcof": FedCOFClassifier(),
        "fedpft": FedPFTClassifier(random_state=0),
        "fedcoreset": FedCoresetClassifier(random_state=0),
        "fedmerge": FedMergeClassifier(),
        "fedensemble": FedEnsembleClassifier("stack"),
    }
    return makers[method].set_params(aligner=aligner, **settings)


def message_of(method):
    """Name of the class of message that a method reads."""
    if method == "mixed":
        return "ClassStatistics"
    from .. import FederatedOTAligner

    return make_classifier(method, FederatedOTAligner()).message_type.__name__
