"""Settings that all sites and the server agree on, and the data of each site."""

import numpy as np

from skslot import FedRidgeClassifier
from skslot.datasets import load_digit_scanners
from skslot.exchange import ClassStatistics

MODEL = FedRidgeClassifier()
CLASSES = list(range(10))
N_SITES = 4

# Bounds that hold at every site. Choose them without looking at the data.
MAX_SAMPLES = 1000
MAX_VALUE = 16.0  # of a pixel

# Largest possible counts, class sums and second moments of one site.
BOUNDS = (MAX_SAMPLES, MAX_SAMPLES * MAX_VALUE, MAX_SAMPLES * MAX_VALUE**2)

# SecAgg+ adds integers modulo 2**32, so N_SITES * QUANTIZATION has to stay below that.
QUANTIZATION = 2**29


def load_site(context):
    """Return the samples and labels of one site of the simulation."""
    data = load_digit_scanners()
    name = np.unique(data.client_ids)[context.node_config["partition-id"]]
    rows = data.client_ids == name
    return data.data[rows], data.target[rows]


def scale_sums(message):
    """Divide the sums of one site by their bounds, so that SecAgg+ clips nothing."""
    parts = zip(message.sums(), BOUNDS, strict=True)
    scaled = [part / bound for part, bound in parts]
    if any(np.abs(part).max() > 1.0 for part in scaled):
        raise ValueError("The data exceeds MAX_SAMPLES or MAX_VALUE.")
    return scaled


def pool_sums(scaled_means, n_sites):
    """Build the message of all sites together from the means of their scaled sums."""
    counts, class_sums, second_moment = (
        n_sites * bound * mean for mean, bound in zip(scaled_means, BOUNDS, strict=True)
    )
    second_moment = (second_moment + second_moment.T) / 2  # rounded independently
    counts = np.rint(counts).astype(int)
    return ClassStatistics.from_sums(CLASSES, counts, class_sums, second_moment)
