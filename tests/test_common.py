"""scikit-learn's checks and ours, on every estimator that there is."""

from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.kernel_approximation import RBFSampler
from sklearn.utils import estimator_checks as sklearn_checks

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FederatedScaler,
    MixedEffectsAligner,
)
from skslot.trust import ClientsReport
from skslot.utils import all_estimators, check_estimator, parametrize_with_checks

# What to check of each, beside the defaults; a new estimator needs no entry. Settings
# differ in message, formula or solver. Parameters that have nothing to do with each
# other, such as the aligner and the kind of covariance, are changed together.
SETTINGS = {
    "FedAvgClassifier": [
        {},
        {
            "n_rounds": 2,
            "net__max_epochs": 5,
            "averaging": "samples",
            "local_softmax": "held",
        },
    ],
    "FedCGSClassifier": [
        {},
        {"covariance": "identity", "aligner": MixedEffectsAligner()},
        {"covariance": "within", "aligner": FederatedOTAligner(tau=0.1)},
    ],
    "FedCOFClassifier": [
        {},
        {"aligner": FederatedOTAligner(tau=0.1)},
    ],
    "FedCoresetClassifier": [
        {"random_state": 0},
        {"method": "herding", "allow_real_rows": True, "min_samples": 1},
        {
            "n_per_class": 2,
            "soft_labels": True,
            "aligner": FederatedOTAligner(),
            "random_state": 0,
            "min_samples": 1,
        },
    ],
    "FedEnsembleClassifier": [
        {},
        {"combine": "vote", "n_jobs": 2},
        {"combine": "stack", "aligner": FederatedOTAligner()},
    ],
    "FedMergeClassifier": [
        {},
        {"curvature": "diag", "aligner": FederatedOTAligner()},
        {"curvature": "kfac", "local_softmax": "held"},
    ],
    "FedPFTClassifier": [
        {"random_state": 0},
        {"n_components": 2, "covariance_type": "diag", "random_state": 0, "n_jobs": 2},
        {"covariance_type": "full", "aligner": FederatedOTAligner(), "random_state": 0},
        {"covariance_type": "lowrank", "draws": 20, "random_state": 0},
        {"pool": "class", "random_state": 0},
    ],
    "FedQDAClassifier": [
        {},
        {"covariance_type": "diag", "aligner": FederatedOTAligner(tau=0.1)},
    ],
    "FedRidgeClassifier": [
        {},
        {"feature_map": RBFSampler(gamma=0.1, n_components=50, random_state=0)},
        {
            "normalize": True,
            "fit_intercept": "penalized",
            "class_weight": "balanced",
            "aligner": FederatedOTAligner(tau=0.1),
        },
    ],
    "MixedEffectsClassifier": [
        {},
        {"tau": 0, "priors": "client", "shrinkage": "oas", "unknown_client": "adapt"},
        {"tau": 1, "priors": "uniform", "shrinkage": 0.1, "n_jobs": 2},
    ],
    "MixedEffectsAligner": [
        {},
        {"tau": "auto", "unknown_client": "adapt", "n_jobs": 2},
        {"tau": 1, "unknown_client": "identity"},
    ],
    "FederatedOTAligner": [
        {},
        {"tau": 0},
        {"tau": 1, "shrinkage": "oas", "weights": "uniform", "unknown_client": "adapt"},
        {"shrinkage": 0.1, "solver": "fixed_point", "unknown_client": "identity"},
    ],
    "FederatedScaler": [{}, {"with_mean": False}, {"with_std": False}],
}
# Those that cannot be made without arguments, and where they are checked.
ELSEWHERE = {
    "FederatedGridSearchCV": "model_selection/test_search.py",
    "FrozenEncoder": "encoders/test_encoder.py",
}
NEEDS_TORCH = {"FedAvgClassifier"}
FOUND = [
    cls(**params)
    for name, cls in all_estimators()
    if name not in ELSEWHERE and (name not in NEEDS_TORCH or find_spec("skorch"))
    for params in SETTINGS.get(name, [{}])
]


# The checks pass y and no ids, which is worth a warning by design.
@pytest.mark.filterwarnings("ignore:No client_ids were passed:UserWarning")
@sklearn_checks.parametrize_with_checks(FOUND)
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def one_exchange(estimator):
    """Our checks are for one exchange, and for features that they can tell apart."""
    if "FedAvg" not in type(estimator).__name__:
        return estimator
    params = {"net__lr": 0.1, "net__max_epochs": 20, "random_state": 0}
    return estimator.set_params(standardize=False, n_rounds=1, **params)


# One of the clients has a single row.
@pytest.mark.filterwarnings("ignore:The rows of client .* do not vary")
@parametrize_with_checks(
    [
        *map(
            one_exchange, [type(each)(**each.get_params(deep=False)) for each in FOUND]
        ),
        FederatedOTAligner(tau="auto"),
    ]
)
def test_estimator_keeps_the_contract_of_this_package(estimator, check):
    check(estimator)


def test_every_estimator_is_checked():
    names = {name for name, _ in all_estimators()}
    assert names >= SETTINGS.keys() | ELSEWHERE.keys()
    assert {"FedAvgClassifier", "FedCGSClassifier", "FedPFTClassifier"} <= {
        name for name, _ in all_estimators("classifier")
    }
    with pytest.raises(ValueError, match="type_filter must be"):
        all_estimators("cluster")


# --------------------------------------------- the checks notice what breaks them


class Forgetful(FedCGSClassifier):
    def _aggregate(self, messages, seed):
        return super()._aggregate(list(messages)[:-2], seed)


class Blind(FedCGSClassifier):
    def _aggregate(self, messages, seed):
        super()._aggregate(messages, seed)
        self.clients_report_ = ClientsReport([])
        return self


class Restless(FedCGSClassifier):
    def client_update(self, X, y=None, *, classes=None, client=None):
        self.last_client = client
        return super().client_update(X, y, classes=classes, client=client)


class Wandering(FedCGSClassifier):
    def fit(self, X, y, client_ids=None):
        super().fit(X, y, client_ids)
        self.coef_ = self.coef_ + 1e-9 * np.arange(self.coef_.size).reshape(
            self.coef_.shape
        )
        return self


class Positional(FedCGSClassifier):
    def client_update(self, X, y=None, classes=None, client=None):
        return super().client_update(X, y, classes=classes, client=client)


class Fickle(FederatedOTAligner):
    def transform(self, X, client_ids=None):
        return super().transform(X, client_ids) + self.tau


class Trusting(FederatedOTAligner):
    def transform(self, X, client_ids=None):
        try:
            return super().transform(X, client_ids)
        except ValueError:
            return X


class Selfish(FederatedScaler):
    def _client_updates(self, X, y, groups):
        return super()._client_updates(X, y, groups)[:1]


@pytest.mark.filterwarnings("ignore:The rows of client .* do not vary")
@pytest.mark.parametrize(
    ("broken", "match"),
    [
        (Forgetful(), r"clients_report_ is on \['A', 'B'\]"),
        (Blind(), r"clients_report_ is on \[\]"),
        (Restless(), "client_update changes the estimator"),
        (Wandering(), "fit gives another classifier"),
        (Positional(), "classes of client_update can be passed by position"),
        (Fickle(), "fit moves the rows of client 'A' elsewhere"),
        (Trusting(), "are transformed"),
        (Selfish(), "server_aggregate gives another transformer than fit"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_breaks_the_contract_is_noticed(broken, match):
    with pytest.raises(AssertionError, match=match):
        check_estimator(broken)


def test_other_estimators_have_no_contract():
    with pytest.raises(TypeError, match="object is neither a one-shot classifier"):
        check_estimator(object())
