"""Caching of statistics, reference and maps."""

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skslot import FederatedOTAligner, MixedEffectsAligner


@pytest.mark.parametrize("make", [str, joblib.Memory], ids=["str", "joblib"])
def test_memory_computes_the_reference_once_for_all_tau(
    clients, make, tmp_path, count_references
):
    X, ids = clients
    memory = make(tmp_path)
    if make is joblib.Memory:
        memory.verbose = 0
    for tau in (0.0, 0.2, 0.4, 1.0):
        aligner = FederatedOTAligner(tau, memory=memory)
        aligned = aligner.fit_transform(X, client_ids=ids)
        count = len(count_references)
        expected = FederatedOTAligner(tau).fit_transform(X, client_ids=ids)
        del count_references[count:]
        assert np.array_equal(aligned, expected)
    assert len(count_references) == 1


@pytest.mark.parametrize(
    "params",
    [
        {"shrinkage": "oas"},
        {"weights": "uniform"},
        {"solver": "fixed_point"},
        {"tol": 1e-4},
        {"max_iter": 99},
    ],
    ids=str,
)
def test_memory_tells_apart_what_the_reference_depends_on(
    clients, params, tmp_path, count_references
):
    X, ids = clients
    aligner = FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    aligner.set_params(**params).fit(X, client_ids=ids)
    assert len(count_references) == 2
    expected = FederatedOTAligner(**params).fit(X, client_ids=ids)
    assert aligner.reference_ == expected.reference_


@pytest.mark.parametrize("changed", ["rows", "ids", "names"])
def test_memory_tells_data_apart(clients, changed, tmp_path, count_references):
    X, ids = clients
    FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    if changed == "rows":
        X = X + 1
    elif changed == "ids":
        ids = np.roll(ids, 1)
    else:
        ids = np.char.add(ids, "!")
    aligner = FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    assert len(count_references) == 2
    assert list(aligner.clients_) == sorted(set(ids))


def test_memory_keeps_nothing_of_another_version(
    clients, tmp_path, count_references, monkeypatch
):
    X, ids = clients
    FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    monkeypatch.setattr("skslot.alignment._optimal_transport.__version__", "9.9")
    FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    assert len(count_references) == 2


@pytest.mark.parametrize("changed", [{"n_jobs": 2}, {"unknown_client": "identity"}])
def test_memory_overlooks_what_does_not_matter(
    clients, changed, tmp_path, count_references
):
    X, ids = clients
    aligner = FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    clone(aligner).set_params(**changed).fit(X, client_ids=ids)
    assert len(count_references) == 1


def test_memory_overlooks_the_memory_layout(clients, tmp_path, count_references):
    X, ids = clients
    for rows in (X, np.asfortranarray(X), pd.DataFrame(X)):
        FederatedOTAligner(memory=str(tmp_path)).fit(rows, client_ids=ids)
    assert len(count_references) == 1


def test_warnings_come_again_from_the_cache(clients, tmp_path, count_references):
    X, ids = clients
    ids[0] = "tiny"
    for _ in range(2):
        with pytest.warns(UserWarning, match="rows of client 'tiny' do not vary"):
            FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    assert len(count_references) == 1


def test_cached_fit_can_be_continued(clients, tmp_path):
    X, ids = clients
    memory = joblib.Memory(tmp_path, mmap_mode="r", verbose=0)
    for _ in range(2):  # the second time the arrays are read-only memory maps
        aligner = FederatedOTAligner(memory=memory).fit(X[:60], client_ids=ids[:60])
        aligner.partial_fit(X[60:], client_ids=ids[60:])
        aligner.add_client(X + 1, "new")
    expected = FederatedOTAligner().fit(X, client_ids=ids)
    aligned = aligner.transform(X, client_ids=ids)
    np.testing.assert_allclose(
        aligned, expected.transform(X, client_ids=ids), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("aligner", [FederatedOTAligner(), MixedEffectsAligner(0.5)])
def test_nothing_of_rows_is_kept(clients, aligner, tmp_path, capsys):
    """joblib writes down the repr of all arguments, and prints it if it is verbose."""
    X, ids = clients
    aligner.set_params(memory=joblib.Memory(tmp_path, verbose=50))
    aligner.fit(X, np.arange(len(X)) % 2, client_ids=ids)
    written = [path.read_text() for path in tmp_path.rglob("metadata.json")]
    assert written
    for text in (*written, capsys.readouterr().out):
        assert not any(f"{value:.6f}" in text for value in X[:, 0])
