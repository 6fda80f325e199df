"""Folders that commands run in."""

import shutil

import numpy as np
import pytest
from four_sites import CLIENTS, X, Y, run, save_messages


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with the features of client A, which commands run in."""
    monkeypatch.chdir(tmp_path)
    rows = CLIENTS == "A"
    np.savez("features.npz", X=X[rows], y=Y[rows], path=np.arange(rows.sum()))
    return tmp_path


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder with the files of four clients, with labels."""
    monkeypatch.chdir(tmp_path)
    save_messages(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def _aggregated(tmp_path_factory):
    """What a server makes of the files of four clients."""
    folder = tmp_path_factory.mktemp("aggregated")
    save_messages(folder)
    assert run(f"aggregate {folder}/?.slot -o {folder}/reference.slot") == 0
    assert run(f"aggregate {folder}/?.slot --model {folder}/global.slot") == 0
    return folder


@pytest.fixture
def full_server(_aggregated, tmp_path, monkeypatch):
    """The same as ``server``, with a reference and a model."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(_aggregated, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def words_only(monkeypatch):
    """Pictures on pages are drawn and not written, which is what takes longest.

    For tests of words, on rows that other tests have pictures of.
    """

    def close(figure):
        import matplotlib.pyplot as plt

        plt.close(figure)
        return "data:,"

    monkeypatch.setattr("skslot.inspection._report._as_source", close)
