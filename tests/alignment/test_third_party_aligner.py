"""An aligner written with public names only works wherever ours do."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

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
)
from skslot.alignment import ClientMap, FederatedAligner
from skslot.datasets import make_shifted_clients
from skslot.exchange import ClientStatistics, FeatureScale, load_messages, receive
from skslot.statistics import FeatureMoments
from skslot.utils import check_estimator

DATA = make_shifted_clients(n_clients=3, n_classes=3, n_features=4, random_state=0)
X, Y = DATA.data, DATA.target
IDS = np.array(["Bern", "Oslo", "Turin"])[DATA.client_ids]
CLASSIFIERS = [
    FedCGSClassifier(),
    FedCOFClassifier(),
    FedCoresetClassifier(random_state=0),
    FedEnsembleClassifier(),
    FedMergeClassifier(),
    FedPFTClassifier(random_state=0),
    FedQDAClassifier(),
    FedRidgeClassifier(),
]


class MeanAligner(FederatedAligner):
    """Move the mean of each client a part of the way to the mean of all."""

    def __init__(self, part=1.0, *, unknown_client="error", client_column=None):
        self.part = part
        self.unknown_client = unknown_client
        self.client_column = client_column

    def client_update(self, X, y=None, *, classes=None, client=None):
        moments = FeatureMoments.from_rows(np.asarray(X, dtype=float))
        return ClientStatistics.from_moments(moments, client=client)

    def server_aggregate(self, messages):
        sent = list(receive(messages))
        mean = np.average(
            [each.mean for each in sent],
            axis=0,
            weights=[each.n_samples for each in sent],
        )
        self.reference_ = FeatureScale(mean, 1.0)
        self.maps_ = {
            each.client: self.client_map(each, self.reference_) for each in sent
        }
        self.n_features_in_ = len(mean) + (self.client_column is not None)
        return self

    def client_map(self, message, reference):
        return ClientMap(None, self.part * (reference.mean - message.mean))


def centred():
    """Features whose mean is the same at each client, computed the long way."""
    moved = X.copy()
    for client in np.unique(IDS):
        moved[IDS == client] += X.mean(axis=0) - X[IDS == client].mean(axis=0)
    return moved


def test_it_transforms_and_joins_clients_later():
    aligner = MeanAligner().fit(X, client_ids=IDS)
    np.testing.assert_allclose(aligner.transform(X, client_ids=IDS), centred())
    back = aligner.inverse_transform(centred(), client_ids=IDS)
    np.testing.assert_allclose(back, X)
    assert aligner.clients_.tolist() == ["Bern", "Oslo", "Turin"]
    with pytest.raises(ValueError, match=r"client \['Rome'\] was not seen in fit"):
        aligner.transform(X, client_ids="Rome")
    moved = aligner.add_client(X + 5, "Rome").transform(X + 5, client_ids="Rome")
    np.testing.assert_allclose(moved, X)


def test_unknown_clients_are_handled_by_the_policy():
    for policy, expected in {"identity": X + 5, "adapt": X}.items():
        aligner = MeanAligner(unknown_client=policy).fit(X, client_ids=IDS)
        moved = aligner.transform(X + 5, client_ids="Rome")
        np.testing.assert_allclose(moved, expected)


def test_it_works_in_a_pipeline_by_a_column_of_ids():
    codes = np.unique(IDS, return_inverse=True)[1]
    table = np.column_stack([X, codes])
    model = make_pipeline(MeanAligner(client_column=-1), LogisticRegression())
    expected = LogisticRegression().fit(centred(), Y).predict(centred())
    assert (model.fit(table, Y).predict(table) == expected).all()


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda c: type(c).__name__)
def test_a_classifier_with_it_predicts_as_on_aligned_features(classifier):
    inside = clone(classifier).set_params(aligner=MeanAligner())
    inside.fit(X, Y, client_ids=IDS)
    on_aligned = clone(classifier).fit(centred(), Y, client_ids=IDS)
    predicted = inside.predict_proba(X, client_ids=IDS)
    np.testing.assert_allclose(
        predicted, on_aligned.predict_proba(centred()), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda c: type(c).__name__)
def test_a_classifier_with_it_is_fitted_from_files(classifier, tmp_path):
    inside = clone(classifier).set_params(aligner=MeanAligner())
    paths = [tmp_path / f"{client}.slot" for client in np.unique(IDS)]
    for path in paths:
        rows = path.stem == IDS
        message = inside.client_update(X[rows], Y[rows], client=path.stem)
        message.save(path, "float64", min_samples=1)
    there = clone(inside).server_aggregate(load_messages(paths))
    inside.fit(X, Y, client_ids=IDS)
    scores = [each.decision_function(X, client_ids=IDS) for each in (inside, there)]
    np.testing.assert_allclose(*scores, rtol=1e-9)


def test_a_client_joins_a_classifier_later():
    classifier = FedCGSClassifier(aligner=MeanAligner()).fit(X, Y, client_ids=IDS)
    classifier.add_client(X + 5, "Rome")
    model = classifier.client_model("Rome")
    predicted = classifier.predict(X + 5, client_ids="Rome")
    assert (model.predict(X + 5) == predicted).all()


def test_it_keeps_our_contract():
    check_estimator(MeanAligner())


class Incomplete(TransformerMixin, BaseEstimator):
    """Has two of the four methods that a classifier asks for."""

    def server_aggregate(self, messages):
        return self

    def transform(self, X, client_ids=None):
        return X


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda c: type(c).__name__)
def test_what_is_missing_is_named(classifier):
    rows = X[:20], Y[:20]
    classifier = clone(classifier).set_params(aligner=Incomplete())
    for step in (classifier.fit, classifier.client_update):
        with pytest.raises(ValueError, match="lacks client_map, client_update"):
            step(*rows)
    with pytest.raises(ValueError, match="'aligner' parameter of .* must be"):
        classifier.set_params(aligner=LogisticRegression()).fit(*rows)


@pytest.mark.parametrize("parameter", [{"client_column": 0}, {"privacy": "any"}])
def test_what_belongs_to_the_classifier_is_not_set_on_its_aligner(parameter):
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(**parameter))
    with pytest.raises(ValueError, match=f"{next(iter(parameter))} is set on the alig"):
        classifier.fit(X, Y, client_ids=IDS)
