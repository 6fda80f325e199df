"""What tests of several folders need."""

# ruff: noqa: E402
import os

# Workers share the cores: several threads in each take twice the time, as they wait for
# each other. Libraries read this as they are imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from contextlib import contextmanager

import joblib
import pytest
import sklearn


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process per core, and one more for slow tests, which mostly wait."""
    return joblib.cpu_count() + (config.option.markexpr == "slow")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for tests only: a file that cannot be imported fails, and is not skipped.

    Doctests would come first and pass over it, as they do over missing extras.
    """
    found = yield
    return [each for each in found if type(each) is pytest.Module]


@pytest.fixture
def routing():
    """Metadata routing, on for one test."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def count_calls():
    """Context manager with a list of the functions of skslot that were called.

    Only of those that are named, wherever they live: nothing is patched, so that code
    may move.
    """

    @contextmanager
    def counting(*names):
        called = []

        def profile(frame, event, argument):
            name = frame.f_code.co_name
            module = frame.f_globals.get("__name__", "")
            if event == "call" and name in names and module.startswith("skslot"):
                called.append(name)

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            yield called
        finally:
            sys.setprofile(before)

    return counting
