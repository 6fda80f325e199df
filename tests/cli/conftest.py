"""Folders that commands run in."""

import numpy as np
import pytest
from four_sites import CLIENTS, SITES, X, Y, message_of


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
    for client in SITES:
        message_of(client).save(f"{client}.slot", min_samples=1)
    return tmp_path
