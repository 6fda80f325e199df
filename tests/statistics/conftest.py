"""Cells of clients and classes, drawn from the model."""

import numpy as np
import pytest

from skslot.statistics import Cells


def draw(
    seed=0,
    n_clients=4,
    n_classes=5,
    n_features=7,
    components=(1.0, 4.0, 0.5),
    held=0.8,
    most_rows=40,
):
    """Cells drawn from the model; each client and each class has one at least."""
    rng = np.random.default_rng(seed)
    is_held = rng.random((n_clients, n_classes)) < held
    is_held[:, rng.integers(n_classes)] = True
    is_held[rng.integers(n_clients)] = True
    client, label = np.nonzero(is_held)
    counts = rng.integers(1, most_rows + 1, len(client)).astype(float)

    def effects(size, variance):
        return np.sqrt(variance) * rng.normal(size=(size, n_features))

    d, c = effects(n_clients, components[0]), effects(n_classes, components[1])
    means = 3 + d[client] + c[label] + effects(len(client), components[2])
    means += effects(len(client), 1) / np.sqrt(counts)[:, None]
    freedom = n_features * (counts.sum() - len(counts))
    within = rng.chisquare(freedom) if freedom else 0.0
    return Cells(client, label, counts, means, within)


@pytest.fixture(scope="session")
def draw_cells():
    """Function that draws cells."""
    return draw
