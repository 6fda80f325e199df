"""Rows of three clients, and a count of what is computed from them."""

import numpy as np
import pytest


def draw_clients(
    seed=0, sizes=(40, 25, 60), clients=("berlin", "lima", "oslo"), n_features=4
):
    """Rows of clients with different means and covariances, in random order."""
    rng = np.random.default_rng(seed)
    blocks = []
    for size in sizes:
        mixing = np.eye(n_features) + 0.3 * rng.standard_normal((n_features,) * 2)
        rows = rng.standard_normal((size, n_features)) @ mixing
        blocks.append(rows * rng.uniform(0.5, 3) + 3 * rng.standard_normal(n_features))
    order = rng.permutation(sum(sizes))
    return np.vstack(blocks)[order], np.repeat(clients, sizes)[order]


@pytest.fixture
def make_clients():
    """Function that draws rows of clients and their ids."""
    return draw_clients


@pytest.fixture
def clients():
    return draw_clients()


@pytest.fixture
def count_references(count_calls):
    """List that grows by one whenever a reference is really computed."""
    with count_calls("bures_barycenter") as computed:
        yield computed
