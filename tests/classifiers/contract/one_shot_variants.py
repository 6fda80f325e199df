"""Classifiers and rows that the tests of this folder share."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler

from skslot import (
    FedCGSClassifier,
    FedCOFClassifier,
    FedCoresetClassifier,
    FedEnsembleClassifier,
    FederatedOTAligner,
    FedMergeClassifier,
    FedPFTClassifier,
    FedQDAClassifier,
    FedRidgeClassifier,
    MixedEffectsAligner,
)
from skslot.datasets import make_shifted_clients

# Variants that can fail differently: each classifier with and without an aligner, once
# for each kind of message (such as mixtures per client, merged, or of low rank), of
# model (linear, quadratic, of mapped features, voting, trained by the server) and of
# aligner. Settings that only change a formula are tested with their method.
PLAIN = {
    "cgs total": FedCGSClassifier(),
    "pft spherical": FedPFTClassifier(random_state=0),
    "pft lowrank": FedPFTClassifier(
        covariance_type="lowrank", n_loadings=2, draws=20, random_state=0
    ),
    "pft merged": FedPFTClassifier(pool="class", random_state=0),
    "ridge": FedRidgeClassifier(),
    "ridge mapped": FedRidgeClassifier(
        0.01, feature_map=RBFSampler(gamma=0.02, n_components=80, random_state=0)
    ),
    "cof": FedCOFClassifier(),
    "qda full": FedQDAClassifier(),
    "coreset": FedCoresetClassifier(n_per_class=2, min_samples=1, random_state=0),
    "merge gram": FedMergeClassifier(),
    "ensemble stack": FedEnsembleClassifier("stack"),
}
ALIGNED = {
    "cgs within aligned": FedCGSClassifier("within", aligner=FederatedOTAligner(tau=1)),
    "cgs mixed effects": FedCGSClassifier(aligner=MixedEffectsAligner()),
    "pft full aligned": FedPFTClassifier(
        covariance_type="full", aligner=FederatedOTAligner(), random_state=0
    ),
    "ridge aligned": FedRidgeClassifier(aligner=FederatedOTAligner()),
    "cof aligned": FedCOFClassifier(aligner=FederatedOTAligner()),
    "qda diag aligned": FedQDAClassifier("diag", aligner=FederatedOTAligner()),
    "coreset aligned": FedCoresetClassifier(
        soft_labels=True, min_samples=1, aligner=FederatedOTAligner(), random_state=0
    ),
    "merge diag aligned": FedMergeClassifier("diag", aligner=FederatedOTAligner()),
    "ensemble vote aligned": FedEnsembleClassifier(
        "vote", aligner=FederatedOTAligner()
    ),
}
ALL = PLAIN | ALIGNED
# Each class of classifiers, and each of the two aligners, once: for what their base
# class does, unless one of them overrides it.
EACH = [
    "cgs total",
    "cgs within aligned",
    "cgs mixed effects",
    "pft spherical",
    "ridge",
    "cof",
    "qda full",
    "coreset",
    "merge gram",
    "ensemble stack",
]
# Those whose head is one linear model, and those that learn from a client with one
# class: heads of clients can only tell apart what a client holds.
NOT_LINEAR = "qda", "mapped", "ensemble vote"
LINEAR = [name for name in ALL if not any(word in name for word in NOT_LINEAR)]
ONE_CLASS = [name for name in PLAIN if name.split()[0] not in ("merge", "ensemble")]

shifted = make_shifted_clients(
    n_samples=240, n_clients=3, n_classes=4, n_features=5, random_state=0
)
TEST, TRAIN = np.arange(0, 240, 3), np.setdiff1d(np.arange(240), np.arange(0, 240, 3))
X, Y, IDS = shifted.data, np.array(list("abcd"))[shifted.target], shifted.client_ids
IDS = np.array(["Bern", "Oslo", "Turin"])[IDS]
FRAME = pd.DataFrame(X, columns=list("vwxyz"))


def over(variants):
    return pytest.mark.parametrize("variant", list(variants), ids=str)


def new(variant, **params):
    return clone(ALL[variant]).set_params(**params)


@cache
def fitted_once(variant):
    """Fitted on the training rows; shared, so not to be changed."""
    return fitted(variant)


def fitted(variant, rows=TRAIN, **params):
    return new(variant, **params).fit(X[rows], Y[rows], client_ids=IDS[rows])


def outputs(classifier, X=X[TEST], client_ids=IDS[TEST]):
    """All that a classifier says about some rows."""
    return [
        classifier.predict(X, client_ids=client_ids),
        classifier.predict_proba(X, client_ids=client_ids),
        classifier.predict_log_proba(X, client_ids=client_ids),
        classifier.decision_function(X, client_ids=client_ids),
    ]


def assert_same(first, second):
    for left, right in zip(first, second, strict=True):
        assert np.array_equal(left, right)


def messages_of(classifier, rows=TRAIN, ids=IDS):
    classes = np.unique(Y[rows])
    return [
        classifier.client_update(
            X[rows][ids[rows] == client],
            Y[rows][ids[rows] == client],
            classes=classes,
            client=client,
        )
        for client in np.unique(ids[rows]).tolist()
    ]


def predict_aligned_rows(classifier, X):
    """What the head of a classifier predicts, without any map before it."""
    if hasattr(classifier, "estimator_"):
        return classifier.estimator_.predict(X)
    return classifier.classes_[classifier._scores(X).argmax(axis=1)]


ignore_degenerate = pytest.mark.filterwarnings(
    "ignore:The (rows|covariance) of client:UserWarning"
)
