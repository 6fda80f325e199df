"""``fit`` of every estimator is its two public steps, and nothing else."""

import numpy as np
import pytest
from sklearn.base import clone

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
)
from skslot.base import FederatedEstimator
from skslot.datasets import make_shifted_clients
from skslot.utils import all_estimators

DATA = make_shifted_clients(n_clients=3, n_classes=3, n_features=4, random_state=0)
# FedAvg trains in rounds and has a test of its own.
ESTIMATORS = [
    estimator
    for name, estimator in all_estimators()
    if issubclass(estimator, FederatedEstimator) and name != "FedAvgClassifier"
]
pytestmark = pytest.mark.filterwarnings("ignore")  # of few rows


def counting(estimator_class):
    """A subclass that notes how its steps are called, and an instance of it."""

    class Counting(estimator_class):
        def client_update(self, X, y=None, *, client=None, **options):
            called.append(client)
            return super().client_update(X, y, client=client, **options)

        def server_aggregate(self, messages):
            called.append("server")
            return super().server_aggregate(messages)

    called = []
    Counting.__init__ = estimator_class.__init__  # scikit-learn reads its parameters
    return called, Counting()


def test_every_estimator_is_looked_at():
    assert len(ESTIMATORS) >= 12


@pytest.mark.parametrize("estimator_class", ESTIMATORS)
def test_fit_calls_the_client_step_once_per_client_and_the_server_step_once(
    estimator_class,
):
    called, estimator = counting(estimator_class)
    estimator.fit(DATA.data, DATA.target, client_ids=DATA.client_ids)
    clients = np.unique(DATA.client_ids).tolist()
    assert called == [*clients, "server"]


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("n_rounds", [1, 3])
def test_fedavg_calls_the_client_step_once_per_client_and_round(n_rounds, standardize):
    pytest.importorskip("skorch")
    called, classifier = counting(FedAvgClassifier)
    classifier.set_params(n_rounds=n_rounds, standardize=standardize)
    classifier.set_params(net__max_epochs=1, net__lr=1e-3, random_state=0)
    classifier.fit(DATA.data, DATA.target, client_ids=DATA.client_ids)
    clients = np.unique(DATA.client_ids).tolist()
    assert called == [*n_rounds * clients, "server"]


def test_an_aligner_inside_a_classifier_takes_one_server_step():
    called, aligner = counting(FederatedOTAligner)
    classifier = FedCGSClassifier(aligner=aligner)
    classifier.fit(DATA.data, DATA.target, client_ids=DATA.client_ids)
    assert called == ["server"]


@pytest.mark.parametrize("random_state", [None, 3, np.random.RandomState(0)])
def test_random_state_is_one_number_for_all_steps_and_stays_as_it_is(random_state):
    seeds = []

    class Drawing(FedPFTClassifier):
        def _draw_seed(self):
            seeds.append(super()._draw_seed())
            return seeds[-1]

    Drawing.__init__ = FedPFTClassifier.__init__
    drawing = clone(Drawing(random_state=random_state))
    kept = drawing.random_state
    drawing.fit(DATA.data, DATA.target, client_ids=DATA.client_ids)
    assert len(seeds) == 4
    assert len(set(seeds)) == 1
    assert drawing.random_state is kept
