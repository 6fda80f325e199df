"""The pages switch metadata routing on, as a user would; put it back after each."""

import sys

import pytest
import sklearn

collect_ignore = ["conf.py"]  # Sphinx reads it, and the tests do without Sphinx


@pytest.fixture(autouse=True)
def _restore_sklearn_config():
    before = sklearn.get_config()
    yield
    sklearn.set_config(**before)


@pytest.fixture(autouse=True)
def _close_figures():
    """Also those that docstrings left open, of which matplotlib allows twenty."""
    _close_all()
    yield
    _close_all()


def _close_all():
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
