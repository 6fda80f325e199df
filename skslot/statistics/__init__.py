"""Moments, shrinkage, class means and random effects: pure functions of arrays."""

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
    noisy_shrinkage,
    shrink_covariance,
    shrinkage_coefficient,
)
from ._random_effects import (
    Cells,
    MixedEffects,
    SiteFit,
    VarianceComponents,
    WithinCovariance,
    fit_mixed_effects,
    fit_unlabelled,
)

__all__ = [
    "Cells",
    "ColumnMoments",
    "FeatureMoments",
    "MixedEffects",
    "SiteFit",
    "VarianceComponents",
    "WithinCovariance",
    "average_rows",
    "class_means",
    "column_moments",
    "fit_mixed_effects",
    "fit_unlabelled",
    "floor_shrinkage",
    "is_constant",
    "merge_class_means",
    "merge_column_moments",
    "noisy_shrinkage",
    "shrink_covariance",
    "shrinkage_coefficient",
]
