"""What tests of several folders need."""

import pytest
import sklearn


@pytest.fixture
def routing():
    """Metadata routing, on for one test."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield
