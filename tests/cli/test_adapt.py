"""``skslot adapt``: a site learns from rows without labels."""

import re
from pathlib import Path

import numpy as np
import pytest
from four_sites import CLIENTS, SITES, X, Y, error_of, message_of, run

from skslot import MixedEffectsClassifier
from skslot.exchange import LinearModel, MixedEffectsModel

ROWS = X[CLIENTS == "D"]
LABELS = Y[CLIENTS == "D"]
ADAPT = "adapt rows.npz --model global.slot --client"


@pytest.fixture
def model(tmp_path, monkeypatch, capsys):
    """The model of A, B and C, beside the rows of D and what all have summarized."""
    monkeypatch.chdir(tmp_path)
    for client in SITES:
        message_of(client).save(f"{client}.slot", "float64", min_samples=1)
    command = "aggregate A.slot B.slot C.slot --model global.slot --dtype float64"
    assert run(command) == 0
    np.savez("rows.npz", X=ROWS)
    capsys.readouterr()
    return MixedEffectsModel.load("global.slot")


@pytest.fixture
def fitted():
    """The same in one process."""
    sent = [message_of(client) for client in "ABC"]
    return MixedEffectsClassifier().server_aggregate(sent)


def assert_model(path, expected):
    """The model in a file is another one, in float64."""
    found = LinearModel.load(path)
    assert (found.client, found.classes) == (expected.client, expected.classes)
    for name in ("coef", "intercept"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_known_site_refines_its_own_model(model, fitted, capsys):
    np.savez("rows.npz", X=X[CLIENTS == "A"])
    command = f"{ADAPT} A --statistics A.slot -o A-model.slot --dtype float64"
    assert run(command) == 0
    report = fitted.adapt_client(X[CLIENTS == "A"], "A")
    assert_model("A-model.slot", fitted.client_model("A"))
    printed = capsys.readouterr()
    assert str(report) in printed.out
    assert "wrote A-model.slot" in printed.out
    assert "nothing leaves the site" in printed.out


def test_site_that_sent_nothing_joins_by_its_rows(model, fitted, capsys):
    assert run(f"{ADAPT} D -o D-model.slot --dtype float64") == 0
    report = fitted.add_client(ROWS, "D")
    assert_model("D-model.slot", fitted.client_model("D"))
    assert str(report) in capsys.readouterr().out


def test_site_joins_by_a_few_labelled_rows(model, fitted, capsys):
    few = np.concatenate([np.flatnonzero(LABELS == c)[:2] for c in np.unique(LABELS)])
    np.savez("rows.npz", X=ROWS[few], y=LABELS[few])
    assert run(f"{ADAPT} D --labels -o D-model.slot --dtype float64") == 0
    report = fitted.add_client(ROWS[few], "D", LABELS[few])
    assert_model("D-model.slot", fitted.client_model("D"))
    printed = capsys.readouterr().out
    assert str(report) in printed
    assert "ignored" not in printed


def test_adapted_model_predicts_without_anything_else(model, capsys):
    np.savez("rows.npz", X=ROWS, y=LABELS)
    command = "predict rows.npz --labels -o {}.csv --model "
    assert run(f"{ADAPT} D -o D-model.slot") == 0
    assert run(command.format("own") + "D-model.slot") == 0
    assert run(command.format("all") + "global.slot") == 0
    found = re.findall(r"accuracy: (.*)%", capsys.readouterr().out)
    assert found[0] == found[1]  # predict lets an unknown site join in the same way


def test_training_rows_are_learned_from(model, fitted):
    is_test = np.arange(len(ROWS)) % 3 == 0
    np.savez("rows.npz", X=ROWS, split=np.where(is_test, "test", "train"))
    assert run(f"{ADAPT} D -o D-model.slot --dtype float64") == 0
    fitted.add_client(ROWS[~is_test], "D")
    assert_model("D-model.slot", fitted.client_model("D"))


def test_labels_that_are_not_used_are_named(model, capsys):
    np.savez("rows.npz", X=ROWS, y=LABELS)
    assert run(f"{ADAPT} D -o one.slot") == 0
    assert "y of rows.npz is ignored; --labels uses it" in capsys.readouterr().out
    assert run(f"{ADAPT} D --labels --statistics D.slot -o two.slot") == 0
    assert "labels of rows.npz are ignored: D.slot has" in capsys.readouterr().out


def test_rows_that_say_little_are_warned_of_once(model, capsys):
    np.savez("rows.npz", X=ROWS[:15])
    assert run(f"{ADAPT} D -o D-model.slot") == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("skslot: warning: client 'D' gave 15 rows")
    assert "gave 15 rows" not in printed.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("few.npz --model global.slot", "few.npz has 5 rows .* at least 10"),
        ("few.npz --model global.slot --statistics D.slot", "at least 10"),
        ("rows.npz --model linear.slot", "kind 'linear model', not a model of mixed"),
        (
            "rows.npz --model aligned.slot",
            "aligned.slot: .* not a model of mixed effects",
        ),
        ("rows.npz --model D.slot", "kind 'class statistics', not a model of mixed"),
        (
            "rows.npz --encoder v2 --model global.slot",
            "encoder is 'v2', and that of global.slot",
        ),
        ("narrow.npy --model global.slot", "2 features.* has 6"),
        ("rows.npz --model global.slot --statistics A.slot", "is from client 'A', not"),
        ("rows.npz --model global.slot --statistics bare.slot", "without --labels"),
        ("rows.npz --model global.slot --statistics other.slot", "encoder 'v2'"),
        ("new.npz --labels --model global.slot", "rows of .'zebra'., classes that no"),
        ("of.npz --model global.slot", "of.npz has no row of client 'D'"),
        ("rows.npz --model nowhere.slot", "nowhere.slot: No such file"),
    ],
)
def test_wrong_arguments_of_adapt(model, options, expected, capsys):
    np.savez("few.npz", X=ROWS[:5])
    np.save("narrow.npy", X[:, :2])
    np.savez("new.npz", X=ROWS, y=np.full(len(ROWS), "zebra"))
    np.savez("of.npz", X=ROWS, client=np.full(len(ROWS), "E"))
    message_of("D", labels=False).save("bare.slot")
    message_of("D").with_encoder("v2").save("other.slot", min_samples=1)
    LinearModel(model.classes, model.means, model.priors).save("linear.slot")
    others = "aggregate A.slot B.slot --method fedcgs --model aligned.slot"
    assert run(others) == 0
    capsys.readouterr()
    error = error_of(f"adapt {options} --client D -o out.slot", capsys)
    assert re.search(expected, error)
    assert not Path("out.slot").exists()


def test_statistics_of_a_site_that_the_model_does_not_know_are_said(model, capsys):
    command = "predict rows.npz --model global.slot --statistics {}.slot -o {}.csv"
    assert run(command.format("D", "D")) == 0
    text = "the model was learned from A, B, C, and not from client D\n"
    assert text in capsys.readouterr().out
    assert run(command.format("A", "A")) == 0
    assert "learned from" not in capsys.readouterr().out


@pytest.mark.parametrize("source", ["rows.npz", "global.slot", "D.slot"])
def test_no_input_of_adapt_is_overwritten(model, source, capsys):
    before = Path(source).read_bytes()
    error = error_of(f"{ADAPT} D --statistics D.slot -o {source} --force", capsys)
    assert f"{source} is read as an input" in error
    assert Path(source).read_bytes() == before
