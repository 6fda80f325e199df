"""scikit-learn's own checks, on every public estimator and in several settings."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import skslot
from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    FrozenEncoder,
)

# classifiers/test_fedavg.py and encoders/test_encoder.py
CHECKED_WHERE_TORCH_IS_NEEDED = {FedAvgClassifier, FrozenEncoder}
ESTIMATORS = [
    FedCGSClassifier(),
    FedPFTClassifier(),
    FederatedOTAligner(),
    FederatedOTAligner(tau=0),
    FederatedOTAligner(tau=1, shrinkage="oas", weights="uniform"),
    FederatedOTAligner(shrinkage=0.1, solver="fixed_point", unknown_client="identity"),
    FederatedOTAligner(unknown_client="adapt", n_jobs=2),
]


# The checks pass y and no ids, which is worth a warning by design.
@pytest.mark.filterwarnings("ignore:fitted without client_ids:UserWarning")
@parametrize_with_checks(ESTIMATORS)
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_every_public_estimator_is_checked():
    public = {getattr(skslot, name) for name in skslot.__all__}
    estimators = {item for item in public if hasattr(item, "get_params")}
    checked = {type(estimator) for estimator in ESTIMATORS}
    assert estimators == checked | CHECKED_WHERE_TORCH_IS_NEEDED
