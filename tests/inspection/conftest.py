"""Skewed digits, an aligner fitted on them, and figures that are closed again."""

import pytest

from skslot import FederatedOTAligner, MixedEffectsClassifier
from skslot.datasets import load_digit_scanners
from skslot.model_selection import paper_split

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def _closed_figures():
    matplotlib.use("Agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="session")
def digits():
    data = load_digit_scanners()
    return data.data, data.target, data.client_ids


@pytest.fixture(scope="session")
def partition(digits):
    _, y, ids = digits
    return paper_split(y, ids, 0.1, test_size=0.5, min_samples=20)


@pytest.fixture(scope="session")
def training(digits, partition):
    return [array[partition[0]] for array in digits]


@pytest.fixture(scope="session")
def aligner(training):
    X, _, ids = training
    return FederatedOTAligner(tau=0.3).fit(X, client_ids=ids)


@pytest.fixture(scope="session")
def mixed(training):
    X, y, ids = training
    return MixedEffectsClassifier().fit(X, y, client_ids=ids)
