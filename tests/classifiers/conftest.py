"""What tests of several classifiers need."""

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from skslot.datasets import load_digit_scanners
from skslot.model_selection import dirichlet_label_shift


@pytest.fixture(scope="session")
def skewed_digits():
    """Digits at four scanners: skewed training rows, test rows that are not."""
    data = load_digit_scanners()
    train, test = train_test_split(
        np.arange(len(data.target)), test_size=0.4, random_state=0
    )
    kept = dirichlet_label_shift(
        data.target[train], data.client_ids[train], 0.3, min_samples=30, random_state=0
    )
    return data.data, data.target, data.client_ids, train[kept], test
