"""Moments, shrinkage, class means and random effects: pure functions of arrays."""

from ._moments import (
    ColumnMoments,
    FeatureMoments,
    average_rows,
    class_means,
    column_moments,
    floor_shrinkage,
    is_constant,
    lift_eigenvalues,
    merge_class_means,
    merge_column_moments,
    noisy_shrinkage,
    shrink_covariance,
    shrinkage_coefficient,
    stack_class_means,
)
from ._random_effects import (
    Cells,
    MixedEffects,
    SiteFit,
    fit_mixed_effects,
    fit_unlabelled,
    within_covariance,
)

__all__ = [
    "Cells",
    "ColumnMoments",
    "FeatureMoments",
    "MixedEffects",
    "SiteFit",
    "average_rows",
    "class_means",
    "column_moments",
    "fit_mixed_effects",
    "fit_unlabelled",
    "floor_shrinkage",
    "is_constant",
    "lift_eigenvalues",
    "merge_class_means",
    "merge_column_moments",
    "noisy_shrinkage",
    "shrink_covariance",
    "shrinkage_coefficient",
    "stack_class_means",
    "within_covariance",
]
