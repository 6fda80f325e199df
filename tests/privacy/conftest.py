"""Noise that tests can see through."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

NOISE = "skslot.privacy._budget.opendp_noise"


@pytest.fixture
def seen():
    """Context manager: no noise is added, and a list has what it was to be added to."""

    @contextmanager
    def watch():
        vectors = []

        def source(numbers, scale):
            vectors.append(numbers)
            return numbers

        with patch(NOISE, source):
            yield vectors

    return watch


@pytest.fixture
def seeded():
    """Context manager: noise of the right size, from a seed."""

    @contextmanager
    def draw(seed=0):
        rng = np.random.default_rng(seed)
        with patch(NOISE, lambda v, scale: v + scale * rng.standard_normal(len(v))):
            yield

    return draw
