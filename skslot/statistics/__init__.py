"""What one client knows about its own features: moments, shrinkage, class means."""

from ._classes import class_means, merge_class_means
from ._columns import ColumnMoments, column_moments, merge_column_moments
from ._constant import average_rows, is_constant
from ._moments import (
    FeatureMoments,
    floor_shrinkage,
    shrink_covariance,
    shrinkage_coefficient,
)

__all__ = [
    "ColumnMoments",
    "FeatureMoments",
    "average_rows",
    "class_means",
    "column_moments",
    "floor_shrinkage",
    "is_constant",
    "merge_class_means",
    "merge_column_moments",
    "shrink_covariance",
    "shrinkage_coefficient",
]
