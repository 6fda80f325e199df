"""Shrinkage of a covariance towards a multiple of the identity."""

from numbers import Real

import numpy as np


def shrink(covariance, coefficient, out=None):
    """``(1 - coefficient) * C + coefficient * trace(C) / m * I``, maybe in place."""
    mean_eigenvalue = np.trace(covariance) / len(covariance)
    shrunk = np.multiply(covariance, 1.0 - coefficient, out=out)
    shrunk.flat[:: len(shrunk) + 1] += coefficient * mean_eigenvalue
    return shrunk


def shrinkage_coefficient(shrinkage, covariance, n_samples, quartic):
    """Coefficient asked for by the ``shrinkage`` option.

    ``quartic`` is the sum over rows of the fourth power of their distance from the
    mean, ``covariance`` the sample covariance.
    """
    if isinstance(shrinkage, Real) and not isinstance(shrinkage, bool):
        if not 0 <= shrinkage <= 1:
            raise ValueError(f"shrinkage must lie in [0, 1], got {shrinkage!r}.")
        return float(shrinkage)
    if shrinkage == "ledoit_wolf":
        return _ledoit_wolf(covariance, n_samples, quartic)
    if shrinkage == "oas":
        return _oas(covariance, n_samples)
    raise ValueError(
        "shrinkage must be 'ledoit_wolf', 'oas' or a number in [0, 1], got "
        f"{shrinkage!r}."
    )


def _ledoit_wolf(covariance, n_samples, quartic):
    n_features = len(covariance)
    mean_eigenvalue = np.trace(covariance) / n_features
    squared_norm = np.einsum("ij,ij->", covariance, covariance)
    dispersion = squared_norm - n_features * mean_eigenvalue**2
    noise = (quartic / n_samples - squared_norm) / n_samples
    if n_features == 1 or dispersion <= 0:  # a multiple of the identity already
        return 0.0
    return float(np.clip(noise / dispersion, 0.0, 1.0))


def _oas(covariance, n_samples):
    n_features = len(covariance)
    if n_features == 1:
        return 0.0
    mean_square = np.einsum("ij,ij->", covariance, covariance) / n_features**2
    squared_mean = (np.trace(covariance) / n_features) ** 2
    dispersion = (n_samples + 1) * (mean_square - squared_mean / n_features)
    if dispersion <= 0:
        return 1.0
    return float(min((mean_square + squared_mean) / dispersion, 1.0))
