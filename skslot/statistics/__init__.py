"""What one client knows about its own features: moments, shrinkage, class means."""

from ._moments import (
    ColumnMoments,
    FeatureMoments,
    average_rows,
    class_means,
    column_moments,
    floor_shrinkage,
    is_constant,
    merge_class_means,
    merge_column_moments,
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
