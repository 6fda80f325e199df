"""The file workflow: sites and a server with nothing in common but files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from four_sites import CLIENTS, SITES, X, Y, read_predictions
from sklearn import clone, config_context
from sklearn.pipeline import make_pipeline

from skslot import (
    FedCGSClassifier,
    FedCOFClassifier,
    FedCoresetClassifier,
    FedEnsembleClassifier,
    FederatedOTAligner,
    FedMergeClassifier,
    FedPFTClassifier,
    FedRidgeClassifier,
    MixedEffectsClassifier,
)
from skslot.cli import main


def in_process(*command, cwd):
    """Run a command in a folder, in this process."""
    before = Path.cwd()
    os.chdir(cwd)
    try:
        assert main(list(command)) == 0
    finally:
        os.chdir(before)


def in_own_process(*command, cwd):
    """Run a command in a folder as users do."""
    result = subprocess.run(
        [sys.executable, "-m", "skslot", *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr


def in_some_processes(*command, cwd):
    """Run what a site and the server do as users do; other sites are like that one."""
    run = in_own_process if cwd.name in ("A", "server") else in_process
    run(*command, cwd=cwd)


def play(root, run, dtype, *options, method="", site_models=False):
    """Four sites and a server, each in a folder; what is sent is copied by hand."""
    for name in [*SITES, "server"]:
        (root / name).mkdir()
    for name in SITES:
        rows = CLIENTS == name
        np.savez(root / name / "features.npz", X=X[rows], y=Y[rows])
        command = f"summarize features.npz --labels --client {name} -o {name}.slot"
        command += f" --dtype {dtype} --min-samples 1"
        run(*command.split(), *options, cwd=root / name)
        shutil.copy(root / name / f"{name}.slot", root / "server")
    model = "--site-models ." if site_models else "--model global.slot"
    command = f"aggregate *.slot {model} {method} --dtype {dtype}"
    run(*command.split(), cwd=root / "server")
    labels, probabilities = np.empty_like(Y), np.empty((len(X), 4))
    for name in SITES:
        model = f"{name}.model.slot" if site_models else "global.slot"
        shutil.copy(root / "server" / model, root / name)
        command = f"predict features.npz --model {model} -o predictions.csv"
        command += "" if site_models else f" --statistics {name}.slot"
        run(*command.split(), cwd=root / name)
        predicted = read_predictions(root / name / "predictions.csv")
        rows = CLIENTS == name
        labels[rows], probabilities[rows] = predicted
    return labels, probabilities


def pipeline_predictions():
    pipeline = make_pipeline(FederatedOTAligner(tau=0.4), FedCGSClassifier())
    with config_context(enable_metadata_routing=True):
        pipeline.fit(X, Y, client_ids=CLIENTS)
        return (
            pipeline.predict(X, client_ids=CLIENTS),
            pipeline.predict_proba(X, client_ids=CLIENTS),
        )


def mixed_predictions(**options):
    classifier = MixedEffectsClassifier(**options).fit(X, Y, client_ids=CLIENTS)
    return (
        classifier.predict(X, client_ids=CLIENTS),
        classifier.predict_proba(X, client_ids=CLIENTS),
    )


@pytest.mark.parametrize(
    ("run", "method", "dtype"),
    [
        pytest.param(in_some_processes, "mixed", "float32", marks=pytest.mark.slow),
        (in_process, "mixed", "float64"),
        (in_process, "fedcgs", "float32"),
    ],
)
def test_sites_and_server_predict_as_one_process(tmp_path, run, method, dtype):
    method = "" if method == "mixed" else f"--method {method}"  # mixed is the default
    labels, probabilities = play(tmp_path, run, dtype, method=method)
    expected = pipeline_predictions() if method else mixed_predictions()
    assert np.array_equal(labels, expected[0])
    atol = 1e-6 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(probabilities, expected[1], rtol=0, atol=atol)


@pytest.mark.parametrize("site_models", [False, True])
def test_float64_files_give_the_numbers_of_one_process(tmp_path, site_models):
    labels, probabilities = play(
        tmp_path,
        in_process,
        "float64",
        method="--method fedcgs",
        site_models=site_models,
    )
    expected_labels, expected = pipeline_predictions()
    assert np.array_equal(labels, expected_labels)
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-12)
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(tau=0.4))
    classifier.fit(X, Y, client_ids=CLIENTS)
    for name in SITES:
        own = classifier.client_model(name)
        expected = own.predict_proba(X[CLIENTS == name])
        assert np.array_equal(probabilities[CLIENTS == name], expected)


@pytest.mark.parametrize("site_models", [False, True])
@pytest.mark.parametrize("tau", [0, 0.5, "auto"])
@pytest.mark.parametrize("priors", ["pooled", "client", "uniform"])
def test_options_of_mixed_effects_are_those_of_the_classifier(
    tmp_path, site_models, tau, priors
):
    method = f"--method mixed --tau {tau} --priors {priors}"
    labels, probabilities = play(
        tmp_path, in_process, "float64", method=method, site_models=site_models
    )
    expected_labels, expected = mixed_predictions(tau=tau, priors=priors)
    assert np.array_equal(labels, expected_labels)
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-12)


OTHERS = {
    "fedridge": FedRidgeClassifier(),
    "fedcof": FedCOFClassifier(),
    "fedcoreset": FedCoresetClassifier(min_samples=1, random_state=0),
    "fedmerge": FedMergeClassifier(),
    "fedensemble": FedEnsembleClassifier("stack"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_methods_by_files(tmp_path, name):
    labels, probabilities = play(
        tmp_path,
        in_process,
        "float64",
        *("--method", name),
        method=f"--method {name}",
    )
    classifier = clone(OTHERS[name]).set_params(aligner=FederatedOTAligner(tau=0.4))
    classifier.fit(X, Y, client_ids=CLIENTS)
    assert np.array_equal(labels, classifier.predict(X, client_ids=CLIENTS))
    np.testing.assert_allclose(
        probabilities, classifier.predict_proba(X, client_ids=CLIENTS), atol=1e-9
    )


def test_fedpft_by_files(tmp_path):
    labels, probabilities = play(
        tmp_path, in_process, "float64", "--method", "fedpft", "--components", "2"
    )
    aligner = FederatedOTAligner(tau=0.4)
    classifier = FedPFTClassifier(2, aligner=aligner, random_state=0).fit(
        X, Y, client_ids=CLIENTS
    )
    assert np.array_equal(labels, classifier.predict(X, client_ids=CLIENTS))
    np.testing.assert_allclose(
        probabilities, classifier.predict_proba(X, client_ids=CLIENTS), atol=1e-9
    )
