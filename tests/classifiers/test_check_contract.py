"""The public checks: they pass for all classifiers, and notice what breaks them."""

import numpy as np
import pytest

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
)
from skslot.classifiers import check_one_shot_classifier


@pytest.mark.parametrize(
    "classifier",
    [
        FedCGSClassifier(),
        FedCGSClassifier("within", wire_dtype="float16"),
        FedPFTClassifier(random_state=0),
        FedPFTClassifier(2, covariance_type="diag", random_state=0),
    ],
    ids=repr,
)
def test_classifiers_keep_the_contract(classifier):
    check_one_shot_classifier(classifier)


@pytest.mark.filterwarnings("ignore:The rows of client 'D' do not vary")
@pytest.mark.parametrize("make", [FedCGSClassifier, FedPFTClassifier])
def test_aligned_classifiers_keep_the_contract(make):
    options = {} if make is FedCGSClassifier else {"random_state": 0}
    check_one_shot_classifier(make(aligner=FederatedOTAligner(tau=0.1), **options))


def test_federated_averaging_of_one_exchange_keeps_the_contract():
    pytest.importorskip("skorch")
    check_one_shot_classifier(
        FedAvgClassifier(standardize=False, lr=0.1, max_epochs=20, random_state=0)
    )


class Forgetful(FedCGSClassifier):
    def server_aggregate(self, messages):
        return super().server_aggregate(list(messages)[:-2])


class Restless(FedCGSClassifier):
    def client_update(self, X, y, classes=None, client=None):
        self.last_client = client
        return super().client_update(X, y, classes, client)


class Wandering(FedCGSClassifier):
    def fit(self, X, y, client_ids=None):
        super().fit(X, y, client_ids)
        self.coef_ = self.coef_ + 1e-9 * np.arange(self.coef_.size).reshape(
            self.coef_.shape
        )
        return self


@pytest.mark.parametrize(
    ("broken", "match"),
    [
        (Forgetful(), "communication_ lacks client 'C'"),
        (Restless(), "client_update changes the classifier"),
        (Wandering(), "fit gives another classifier"),
    ],
)
def test_what_breaks_the_contract_is_noticed(broken, match):
    with pytest.raises(AssertionError, match=match):
        check_one_shot_classifier(broken)
