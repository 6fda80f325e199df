"""Random effects of clients and classes on features: pure functions of arrays."""

from ._components import Cells, VarianceComponents
from ._covariance import WithinCovariance
from ._model import MixedEffects, fit_mixed_effects
from ._unlabelled import SiteFit, fit_unlabelled

__all__ = [
    "Cells",
    "MixedEffects",
    "SiteFit",
    "VarianceComponents",
    "WithinCovariance",
    "fit_mixed_effects",
    "fit_unlabelled",
]
