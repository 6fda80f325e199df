"""Noise that tests can see through."""

from contextlib import contextmanager

import numpy as np
import pytest

from skslot.privacy._budget import noise_for_tests


@pytest.fixture
def seen():
    """Context manager: no noise is added, and a list has what it was to be added to."""

    @contextmanager
    def watch():
        vectors = []

        def source(numbers, scale):
            vectors.append(numbers)
            return numbers

        with noise_for_tests(source):
            yield vectors

    return watch


@pytest.fixture
def seeded():
    """Context manager: noise of the right size, from a seed."""

    @contextmanager
    def draw(seed=0):
        rng = np.random.default_rng(seed)
        with noise_for_tests(lambda v, scale: v + scale * rng.standard_normal(len(v))):
            yield

    return draw
