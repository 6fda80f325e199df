"""What one client knows about its own features: moments, shrinkage, class means."""

from ._classes import class_means, merge_class_means
from ._moments import FeatureMoments, shrink_covariance, shrinkage_coefficient

__all__ = [
    "FeatureMoments",
    "class_means",
    "merge_class_means",
    "shrink_covariance",
    "shrinkage_coefficient",
]
