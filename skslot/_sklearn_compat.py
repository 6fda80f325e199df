"""The one door to private names of scikit-learn, so that a new version breaks one file.

They are what its own estimators declare and check parameters with. Public names are
imported from scikit-learn directly.
"""

# ruff: noqa: F401
from sklearn.base import _fit_context
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
    validate_parameter_constraints,
    validate_params,
)
from sklearn.utils.validation import _num_samples
