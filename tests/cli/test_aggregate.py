"""``skslot aggregate``: the reference and the models of a server."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from four_sites import (
    CLIENTS,
    NAMES,
    SITES,
    X,
    Y,
    error_of,
    message_of,
    read_predictions,
    run,
    write_table,
)

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    MixedEffectsClassifier,
)
from skslot.cli._server import look_at
from skslot.exchange import (
    AlignedModel,
    AlignmentReference,
    LinearModel,
    MixedEffectsModel,
    load_message,
)


def test_reference_is_that_of_the_aligner(server, capsys):
    assert run("aggregate *.slot -o reference.slot --dtype float64") == 0
    messages = [load_message(f"{name}.slot") for name in SITES]
    expected = FederatedOTAligner().server_aggregate(messages).reference_
    assert AlignmentReference.load("reference.slot") == expected
    printed = capsys.readouterr().out
    assert f"clients: 4, rows: {len(X)}, features: 6\n" in printed
    assert "--model FILE.slot makes a classifier" in printed


def test_tau_of_the_server_travels_with_the_reference(server, capsys):
    assert run("aggregate *.slot -o fixed.slot --tau 0.7") == 0
    assert load_message("fixed.slot").tau == 0.7
    assert run("aggregate A.slot B.slot C.slot D.slot -o auto.slot --tau auto") == 0
    assert f"tau: {load_message('auto.slot').tau:.3f}" in capsys.readouterr().out


def test_a_strength_that_is_likely_to_hurt_is_warned_of_in_options(server, capsys):
    command = "aggregate *.slot --method fedcgs --model global.slot --force"
    assert run(command) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert "0 of 16 (client, class) cells are empty" in warning
    assert "--tau auto" in warning
    assert run(f"{command} --tau auto") == 0
    assert not capsys.readouterr().err


def test_auto_tau_needs_labels(server, capsys):
    message_of("B", labels=False).save("B.slot")
    error = error_of("aggregate *.slot -o reference.slot --tau auto", capsys)
    assert "B.slot was summarized without --labels" in error


def test_site_without_labels_gets_a_model_too(server, capsys):
    message_of("D", labels=False).save("D.slot")
    command = "aggregate *.slot --site-models models --method fedcgs --dtype float64"
    assert run(command) == 0
    assert "clients without labels: D\n" in capsys.readouterr().out
    messages = [load_message(f"{name}.slot") for name in SITES]
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    expected = classifier.server_aggregate(messages).client_model("D")
    assert np.array_equal(LinearModel.load("models/D.model.slot").coef, expected.coef)
    assert sorted(path.name for path in Path("models").iterdir()) == [
        f"{name}.model.slot" for name in SITES
    ]


def test_reference_is_the_same_with_and_without_a_model(server):
    message_of("D", labels=False).save("D.slot")
    assert run("aggregate ?.slot -o alone.slot") == 0
    both = "aggregate ?.slot -o beside.slot --model global.slot"
    assert run(f"{both} --method fedcgs") == 0
    alone = AlignmentReference.load("alone.slot")
    assert alone == AlignmentReference.load("beside.slot")
    assert np.array_equal(AlignedModel.load("global.slot").mean, alone.mean)


def test_names_of_files_do_not_matter(server):
    rows = {name: CLIENTS == name for name in SITES}
    classifier = FedPFTClassifier(aligner=FederatedOTAligner())
    for name, file in zip(SITES, "dcba", strict=True):
        message = classifier.client_update(X[rows[name]], Y[rows[name]], client=name)
        message.save(f"{file}.slot", "float64", min_samples=1)
    assert run("aggregate a.slot b.slot c.slot d.slot --model one.slot") == 0
    assert run("aggregate d.slot c.slot b.slot a.slot --model two.slot") == 0
    assert load_message("one.slot") == load_message("two.slot")


def test_server_writes_one_model_for_all(server, capsys):
    sent = "aggregate A.slot B.slot C.slot D.slot"
    command = f"{sent} --method fedcgs --model global.slot"
    assert run(f"{command} --tau 0.7 --dtype float64") == 0
    assert "wrote global.slot" in capsys.readouterr().out
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(tau=0.7))
    classifier.server_aggregate([load_message(f"{name}.slot") for name in SITES])
    model = AlignedModel.load("global.slot")
    assert np.array_equal(model.coef, classifier.coef_)
    assert model.tau == 0.7
    assert model.reference == replace(classifier.aligner_.reference_, tau=0.7)
    command = "aggregate *.slot --model global.slot --method fedcgs"
    assert run(command) == 1
    assert "global.slot exists already" in capsys.readouterr().err
    assert run(f"{command} --force") == 0
    assert AlignedModel.load("global.slot").tau == 0.4


@pytest.mark.parametrize("options", ["", "--tau 0 --priors client"])
def test_files_of_all_sites_make_mixed_effects_by_default(server, options, capsys):
    command = "aggregate ?.slot --model global.slot --site-models models"
    assert run(f"{command} {options} --dtype float64") == 0
    given = {"tau": 0, "priors": "client"} if options else {}
    classifier = MixedEffectsClassifier(**given)
    classifier.server_aggregate([load_message(f"{name}.slot") for name in SITES])
    assert MixedEffectsModel.load("global.slot") == classifier.shared_model()
    for name in SITES:
        found = LinearModel.load(f"models/{name}.model.slot")
        assert found == classifier.client_model(name)
    printed = capsys.readouterr().out
    for sentence in classifier.summary().splitlines()[:5]:
        assert sentence in printed
    assert ("set priors to 'client'" in printed) == (not options)


def test_site_without_labels_cannot_take_part_in_mixed_effects(server, capsys):
    message_of("D", labels=False).save("D.slot")
    for output in ("--model global.slot", "--site-models models"):
        error = error_of(f"aggregate ?.slot {output}", capsys)
        assert "need the labels of all sites, but D.slot was summarized" in error
        assert "join by skslot adapt" in error
        assert "--method fedcgs" in error
    assert not Path("models").exists()


def test_damaged_file_is_not_taken_for_one_without_labels(server, capsys):
    Path("A.slot").write_bytes(b"half a fi")
    for output in ("--model g.slot", "-o r.slot --tau auto"):
        assert run(f"aggregate A.slot B.slot C.slot {output}") == 1
        assert "refused: A.slot: these bytes are not" in capsys.readouterr().err
        assert run(f"aggregate A.slot B.slot C.slot {output} --skip-refused") == 0
        capsys.readouterr()
    assert MixedEffectsModel.load("g.slot").clients == ["B", "C"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--model g.slot -o r.slot", "-o writes the reference of fedcgs.*skslot align"),
        ("--site-models m -o r.slot --method mixed", "or choose --method fedcgs"),
        ("-o r.slot --method mixed", "-o writes the reference of fedcgs"),
        ("--model g.slot --covariance within", "--covariance is .* --method fedcgs"),
        ("-o r.slot --covariance within", "--covariance is .* --method fedcgs"),
        ("--model g.slot --method fedcgs --priors client", "--priors is .* mixed"),
    ],
)
def test_options_of_another_method_are_refused(server, options, expected, capsys):
    assert re.search(expected, error_of(f"aggregate ?.slot {options}", capsys))
    assert not Path("g.slot").exists()
    assert not Path("r.slot").exists()


def test_method_of_files_of_fedpft_cannot_be_chosen(site, capsys):
    command = "summarize features.npz --client A --labels --method fedpft -o A.slot"
    assert run(command) == 0
    capsys.readouterr()
    error = error_of("aggregate A.slot --model g.slot --method mixed", capsys)
    assert "A.slot was summarized for fedpft, which --method" in error
    assert "leave --method out" in error


def test_old_model_of_all_sites_is_not_read_again(server):
    assert run("aggregate *.slot --model global.slot") == 0
    assert run("aggregate *.slot --model global.slot --force") == 0


def test_models_of_a_single_class_and_of_two(site):
    methods = [("fedpft", ["a"]), ("fedpft", "ab"), ("mixed", ["a"]), ("mixed", "ab")]
    for method, labels in methods:
        y = np.resize(list(labels), 60)
        np.savez("two.npz", X=X[:60] + 3 * (y == "b")[:, None], y=y)
        command = f"summarize two.npz --client A --labels --method {method} -o A.slot"
        assert run(f"{command} --force") == 0
        assert run("aggregate A.slot --site-models models --force") == 0
        command = "predict two.npz --model models/A.model.slot -o two.csv --force"
        assert run(command) == 0
        predicted, probabilities = read_predictions("two.csv")
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        assert np.mean(predicted == y) > 0.9


def test_refused_files_are_named_and_nothing_is_written(server, capsys):
    Path("A.slot").write_bytes(b"half a fi")
    Path("C.slot").unlink()
    command = "aggregate A.slot B.slot C.slot D.slot -o reference.slot"
    assert run(command) == 1
    first, second, last = capsys.readouterr().err.splitlines()
    assert first.startswith("skslot: refused: A.slot: these bytes are not")
    assert second.startswith("skslot: refused: ")
    assert "C.slot" in second
    assert "error: 2 of 4 files were refused, and nothing was written" in last
    assert not Path("reference.slot").exists()
    assert run(f"{command} --skip-refused") == 0
    assert "refused: A.slot" in capsys.readouterr().err
    messages = [load_message(f"{name}.slot") for name in "BD"]
    expected = FederatedOTAligner().server_aggregate(messages).reference_
    np.testing.assert_allclose(
        AlignmentReference.load("reference.slot").mean, expected.mean, rtol=1e-6
    )


@pytest.mark.parametrize("labels", [True, False])
def test_two_files_of_one_client_are_never_skipped(server, labels, capsys):
    message_of("A", labels).save("again.slot", min_samples=1)
    error = error_of("aggregate *.slot -o r.slot --skip-refused", capsys)
    assert "A.slot and again.slot are from the same client 'A'" in error


def test_damaged_file_is_no_second_one_of_its_client(server, capsys):
    data = Path("A.slot").read_bytes()
    Path("again.slot").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert run("aggregate *.slot -o r.slot --skip-refused") == 0
    printed = capsys.readouterr()
    assert "refused: again.slot: the checksum is wrong" in printed.err
    assert "clients: 4" in printed.out
    assert run("aggregate A.slot again.slot -o s.slot") == 1
    printed = capsys.readouterr().err
    assert "1 of 2 files were refused, and nothing was written" in printed


def test_other_files_of_a_server_are_refused(server, capsys):
    assert run("aggregate *.slot -o reference.slot") == 0
    error = error_of("aggregate *.slot -o new.slot", capsys)
    assert "reference.slot: this is of the kind 'alignment reference'" in error
    assert run("aggregate *.slot -o reference.slot --force") == 0


def test_different_encoders_name_both_files(server, capsys):
    message_of("C").with_encoder("v2").save("C.slot", min_samples=1)
    error = error_of("aggregate *.slot -o reference.slot", capsys)
    assert "encoder is 'v2' in C.slot and None in A.slot" in error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("A.slot", "nothing to write: give -o"),
        ("none*.slot -o r.slot", "no file matches none"),
        ("nowhere.slot -o r.slot --skip-refused", "all files were refused"),
        (
            "A.slot A.slot -o r.slot",
            "error: A.slot is named twice, directly or by a pat",
        ),
        ("A.slot other/A.slot --site-models models", "same name in different folders"),
        ("A.slot --site-models nowhere/models", "does not exist"),
        ("A.slot --site-models B.slot", "exists already"),
        ("A.slot -o r.slot --model ./r.slot", "r.slot cannot be two outputs"),
        ("A.slot -o new --site-models new", "new cannot be two outputs"),
    ],
)
def test_wrong_arguments_of_the_server(server, options, expected, capsys):
    assert run(f"aggregate {options}") == 1
    assert re.search(expected, capsys.readouterr().err)


def test_labels_are_needed_for_models_and_of_one_method(server, capsys):
    message_of("A", labels=False).save("A.slot")
    assert "needs labels" in error_of("aggregate A.slot --site-models models", capsys)
    rows = CLIENTS == "A"
    classifier = FedPFTClassifier(aligner=FederatedOTAligner())
    message = classifier.client_update(X[rows], Y[rows], client="A")
    message.save("A.slot", min_samples=1)
    error = error_of("aggregate *.slot --site-models models", capsys)
    assert "B.slot and A.slot were summarized for different methods" in error
    assert not Path("models").exists()


def test_labels_of_several_kinds_are_refused_at_the_server(server, capsys):
    rows = CLIENTS == "A"
    np.savez("A.npz", X=X[rows], y=np.unique(Y[rows], return_inverse=True)[1])
    command = "summarize A.npz --client A --labels --min-samples 1 -o A.slot --force"
    assert run(command) == 0
    capsys.readouterr()
    error = error_of("aggregate *.slot -o r.slot", capsys)
    assert (
        "labels is 'text' in B.slot and 'numbers' in A.slot. Write labels alike"
        in error
    )


def test_reordered_columns_at_the_server(site, capsys):
    for client, columns in [("A", NAMES), ("B", NAMES[::-1])]:
        write_table(f"{client}.csv", client, columns)
        command = f"summarize {client}.csv --labels diagnosis --client {client}"
        assert run(f"{command} --min-samples 1 -o {client}.slot") == 0
    capsys.readouterr()
    error = error_of("aggregate A.slot B.slot -o r.slot", capsys)
    assert "B.slot has the columns of A.slot in another order" in error


def test_clients_that_are_numbers_come_in_their_order(site):
    """As in fit: 10 after 2."""
    names = np.array([1, 2, 10])
    ids = np.repeat(names, [60, 50, 40])
    rows, y = X[:150], np.resize(["x", "y"], 150)
    aligner = FederatedOTAligner()
    classifier = FedPFTClassifier(aligner=aligner, random_state=0).fit(
        rows, y, client_ids=ids
    )
    for client in names.tolist():
        message = classifier.client_update(
            rows[ids == client], y[ids == client], client=client
        )
        message.save(f"{client}.slot", "float64")
    assert run("aggregate 10.slot 1.slot 2.slot --model g.slot --dtype float64") == 0
    assert np.array_equal(load_message("g.slot").coef, classifier.estimator_.coef_)


def test_files_are_not_compared_with_each_other(monkeypatch):
    """So that 10,000 of them take no longer than they must."""
    compared = []

    class CountedPath(type(Path())):
        __hash__ = Path.__hash__

        def __eq__(self, other):
            compared.append(other)
            return super().__eq__(other)

    paths = [CountedPath(f"{n}.slot") for n in range(200)]
    facts = {"kind": "class statistics"}
    headers = {path: {"client": path.stem, **facts} for path in paths}
    files = type("Files", (), {"headers": lambda self: headers})
    monkeypatch.setattr("skslot.exchange.load_messages", lambda paths: files())
    assert len(look_at(paths)) == 200
    assert len(compared) < 1000


def test_advice_against_alignment_can_be_followed_without_all_labels(server, capsys):
    """--tau auto is refused there."""
    message_of("D", labels=False).save("D.slot")
    assert run("aggregate ?.slot --method fedcgs --model model.slot") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "If all sites sent labels, use --tau auto or mixed effects" in line


def test_advice_against_alignment_is_in_the_words_of_commands(server, capsys):
    assert run("aggregate ?.slot --method fedcgs --model model.slot") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("skslot: warning: alignment is likely to cost accuracy: ")
    assert line.endswith("or run skslot diagnose.")
    for name in ("MixedEffectsClassifier", "FederatedGridSearchCV", "skslot."):
        assert name not in line
