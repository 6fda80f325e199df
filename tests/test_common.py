"""scikit-learn's own checks, on every public estimator and in several settings."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skslot import FederatedOTAligner

ESTIMATORS = [
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
