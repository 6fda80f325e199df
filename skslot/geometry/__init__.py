"""Gaussians and covariance matrices under the 2-Wasserstein distance.

Pure functions of arrays: no estimator, no client, no label.
"""

from ._gaussians import (
    BarycenterResult,
    bures_barycenter,
    bures_distance,
    displacement_map,
    gaussian_wasserstein,
    transport_matrix,
)

__all__ = [
    "BarycenterResult",
    "bures_barycenter",
    "bures_distance",
    "displacement_map",
    "gaussian_wasserstein",
    "transport_matrix",
]
