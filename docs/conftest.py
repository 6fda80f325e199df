"""The pages switch metadata routing on, as a user would; put it back after each."""

import pytest
import sklearn


@pytest.fixture(autouse=True)
def _restore_sklearn_config():
    before = sklearn.get_config()
    yield
    sklearn.set_config(**before)
