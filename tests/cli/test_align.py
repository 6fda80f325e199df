"""``skslot align``: features of a site, moved towards the reference."""

import re

import numpy as np
import pytest
from four_sites import CLIENTS, SITES, X, Y, error_of, message_of, run

from skslot import FederatedOTAligner, MixedEffectsAligner, MixedEffectsClassifier
from skslot.exchange import MixedEffectsModel


@pytest.fixture
def reference(site):
    """The reference of all, beside the features of A."""
    messages = [message_of(client, labels=False) for client in SITES]
    reference = FederatedOTAligner().server_aggregate(messages).reference_
    reference.save("reference.slot", "float64")
    return reference


def aligned(reference, tau=0.4, rows=CLIENTS == "A"):
    aligner = FederatedOTAligner(tau)
    client_map = aligner.client_map(message_of("A", labels=False), reference)
    return client_map.transform(X[rows])


@pytest.mark.parametrize(("option", "tau"), [("", 0.4), ("--tau 1", 1.0)])
def test_aligned_features_keep_what_stood_beside_them(reference, option, tau):
    command = "align features.npz --reference reference.slot --client A -o out.npz"
    assert run(f"{command} {option}") == 0
    with np.load("out.npz") as file:
        assert set(file) == {"X", "y", "path", "fingerprint"}
        assert np.array_equal(file["X"], aligned(reference, tau))
        assert np.array_equal(file["y"], Y[CLIENTS == "A"])
        assert str(file["fingerprint"]).startswith("features+aligned:")


def test_later_rows_are_moved_by_the_map_of_what_was_sent(reference):
    message_of("A").save("A.slot", "float64", min_samples=1)
    rows = np.flatnonzero(CLIENTS == "A")[:3]
    np.save("new.npy", X[rows])
    command = "align new.npy --reference reference.slot --client A -o out.npz"
    assert run(f"{command} --statistics A.slot") == 0
    with np.load("out.npz") as file:
        np.testing.assert_allclose(file["X"], aligned(reference, rows=rows))


def test_aligned_features_are_not_aligned_again(reference, capsys):
    command = "align {} --reference reference.slot --client A -o {}"
    assert run(command.format("features.npz", "once.npz")) == 0
    error = error_of(command.format("once.npz", "twice.npz"), capsys)
    assert "its features were written by skslot align" in error


def test_float32_stays_float32(reference):
    np.savez("f.npz", X=X[CLIENTS == "A"].astype(np.float32))
    command = "align f.npz --reference reference.slot --client A -o out.npz"
    assert run(command) == 0
    with np.load("out.npz") as file:
        assert file["X"].dtype == np.float32


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            "features.npz --reference A.slot -o o.npz",
            "A.slot: .* not a reference, which skslot aggregate -o",
        ),
        ("features.npz --reference reference.slot -o o.csv", "must end in .npz"),
        ("narrow.npy --reference reference.slot -o o.npz", "2 features.* has 6"),
        (
            "features.npz --encoder v2 --reference reference.slot -o o.npz",
            "encoder is 'v2', and that of reference.slot is None",
        ),
        (
            "features.npz --reference reference.slot --statistics B.slot -o o.npz",
            "B.slot is from client 'B', not from 'A'",
        ),
        (
            "features.npz --reference reference.slot --statistics reference.slot "
            "-o o.npz",
            "reference.slot: this is of the kind 'alignment reference'",
        ),
    ],
)
def test_wrong_arguments_of_align(reference, options, expected, capsys):
    for client in "AB":
        message_of(client, labels=False).save(f"{client}.slot")
    np.save("narrow.npy", X[:, :2])
    assert re.search(expected, error_of(f"align {options} --client A", capsys))


# ------------------------------------------------------------- mixed effects


@pytest.fixture
def mixed_model(site):
    """The model of A, B and C, beside the features of A."""
    for client in SITES:
        message_of(client).save(f"{client}.slot", "float64", min_samples=1)
    command = "aggregate A.slot B.slot C.slot --model global.slot --dtype float64"
    assert run(command) == 0
    return MixedEffectsModel.load("global.slot")


def test_known_site_is_moved_by_what_it_had_sent(mixed_model, capsys):
    command = "align features.npz --reference global.slot --client A -o out.npz"
    assert run(f"{command} --statistics A.slot") == 0
    fitted = MixedEffectsAligner(tau="auto")
    fitted.server_aggregate([message_of(client) for client in "ABC"])
    rows = X[CLIENTS == "A"]
    with np.load("out.npz") as file:
        expected = fitted.transform(rows, client_ids="A")
        np.testing.assert_allclose(file["X"], expected, rtol=0, atol=1e-12)
        assert np.array_equal(file["y"], Y[CLIENTS == "A"])
    assert f"aligned with tau = {fitted.tau_[0]:g}" in capsys.readouterr().out


def test_site_that_sent_nothing_is_moved_by_its_rows(mixed_model, capsys):
    rows = X[CLIENTS == "D"]
    np.save("D.npy", rows)
    assert run("align D.npy --reference global.slot --client D -o out.npz") == 0
    assert "alignment estimated from" in capsys.readouterr().out
    classifier = MixedEffectsClassifier.from_model(mixed_model)
    classifier.add_client(rows, "D")
    expected = classifier.aligner_.transform(rows, client_ids="D")
    with np.load("out.npz") as file:
        np.testing.assert_allclose(file["X"], expected, rtol=0, atol=1e-12)


def test_sites_aligned_by_one_model_go_together(mixed_model, capsys):
    """Although the linear map of each has a strength of its own."""
    for client in "AB":
        np.savez(f"{client}.npz", X=X[CLIENTS == client], y=Y[CLIENTS == client])
        command = f"align {client}.npz --reference global.slot --client {client}"
        assert run(f"{command} --statistics {client}.slot -o {client}-al.npz") == 0
        command = f"summarize {client}-al.npz --client {client} --labels"
        assert run(f"{command} --min-samples 1 -o {client}-al.slot") == 0
    assert run("aggregate A-al.slot B-al.slot --model second.slot") == 0
    capsys.readouterr()
    command = "align A-al.npz --reference global.slot --client A -o twice.npz"
    assert "written by skslot align" in error_of(command, capsys)


def test_strength_of_mixed_effects_is_that_of_the_model(mixed_model, capsys):
    capsys.readouterr()
    command = "align features.npz --reference global.slot --client A -o out.npz"
    error = error_of(f"{command} --tau 0.3", capsys)
    assert "global.slot is a model of mixed effects" in error
