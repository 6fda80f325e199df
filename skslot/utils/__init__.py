"""For people who add estimators: what there is, and the contract they keep."""

from ._discovery import all_estimators
from ._estimator_checks import check_estimator, parametrize_with_checks

__all__ = ["all_estimators", "check_estimator", "parametrize_with_checks"]
