"""The clients of a fitted aligner as Gaussians, and how far these are apart."""

import numpy as np

from ..alignment import FederatedOTAligner
from ..geometry import gaussian_wasserstein


def check_aligner(estimator):
    """Refuse what is not an aligner, and say where one may be."""
    if not isinstance(estimator, FederatedOTAligner):
        raise TypeError(
            "estimator must be a fitted FederatedOTAligner, got a "
            f"{type(estimator).__name__}; in a Pipeline it is one of the named_steps."
        )


def client_gaussians(aligner):
    """(mean, covariance) of each client, as they are and as the aligner moves them."""
    before = [(s.mean, s.covariance) for s in aligner.statistics_]
    after = []
    for (mean, covariance), client_map in zip(before, aligner.maps_, strict=True):
        matrix, offset = client_map.affine
        after.append((matrix @ mean + offset, matrix @ covariance @ matrix.T))
    return before, after


def pairwise_distances(gaussians):
    """2-Wasserstein distance of any two of some Gaussians."""
    distances = np.zeros((len(gaussians), len(gaussians)))
    for i, first in enumerate(gaussians):
        for j, second in enumerate(gaussians[:i]):
            distances[i, j] = distances[j, i] = gaussian_wasserstein(*first, *second)
    return distances
