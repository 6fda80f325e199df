"""Mistakes at the command line that must not cost data or go unnoticed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from skslot.cli import main
from skslot.datasets import make_shifted_clients
from skslot.exchange import load_message

DATA = make_shifted_clients(
    240, n_clients=2, n_classes=2, n_features=3, random_state=0, label_shift=None
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the features and the files of clients A and B."""
    monkeypatch.chdir(tmp_path)
    for client in "AB":
        send(client)
    return tmp_path


def send(client, labels=(0, 1)):
    """Write features of a client with labels of some kind, and its file."""
    rows = DATA.client_ids == "AB".index(client)
    y = np.array(labels)[DATA.target[rows]]
    np.savez(f"{client}.npz", X=DATA.data[rows], y=y)
    command = f"summarize {client}.npz --labels --client {client} -o {client}.slot"
    assert run(f"{command} --force") == 0


def run(command):
    return main(command.split())


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# ------------------------------------------------------------- inputs are kept


@pytest.mark.parametrize(
    "command",
    [
        "aggregate A.slot B.slot -o A.slot",
        "aggregate ?.slot -o ./B.slot --site-models models",
        "aggregate A.slot A.model.slot --site-models .",
        "aggregate A.slot B.slot -o models/B.model.slot --site-models models",
        "summarize A.npz --client A -o A.npz",
        "summarize A.npz --labels-file y.npy --client A -o y.npy",
        "align A.npz --client A --reference r.slot -o A.npz",
        "align A.npz --client A --reference r.npz -o r.npz",
        "predict A.npz --model A.model.slot -o A.npz",
        "predict A.npz --model A.model.slot -o A.model.slot",
        "predict A.npz --model r.slot --statistics A.slot -o A.slot",
        "aggregate A.slot B.slot --model B.slot",
    ],
)
def test_no_input_is_overwritten(folder, command, capsys):
    assert (
        run("aggregate A.slot B.slot -o r.slot --site-models models --method fedcgs")
        == 0
    )
    Path("A.model.slot").write_bytes(Path("models/A.model.slot").read_bytes())
    Path("r.npz").write_bytes(Path("r.slot").read_bytes())
    np.save("y.npy", np.ones(5))
    before = contents(folder)
    for force in "", " --force":
        assert run(command + force) == 1
        assert contents(folder) == before
    error = capsys.readouterr().err.splitlines()[-1]
    assert "is read as an input" in error or "cannot be two outputs" in error


def test_the_reference_of_last_time_is_no_input(folder, capsys):
    assert run("aggregate *.slot -o r.slot") == 0
    assert run("aggregate *.slot -o r.slot") == 1
    assert "r.slot exists already" in capsys.readouterr().err
    before = Path("r.slot").read_bytes()
    assert run("aggregate *.slot -o r.slot --force") == 0
    assert Path("r.slot").read_bytes() == before


def test_no_reference_without_a_place_for_models(folder, monkeypatch, capsys):
    def fail(path, **options):
        raise PermissionError(f"{path} cannot be made")

    monkeypatch.setattr(Path, "mkdir", fail)
    assert (
        run("aggregate A.slot B.slot -o r.slot --site-models models --method fedcgs")
        == 1
    )
    assert "models cannot be made" in capsys.readouterr().err
    assert not Path("r.slot").exists()


# -------------------------------------------------------------------- features


def test_spaces_around_names_of_columns_do_not_matter(folder):
    table = "\n".join(f"{i // 2},{i % 7},B" for i in range(20))
    Path("plain.csv").write_text(f"age,dose,client\n{table}\n")
    Path("spaces.csv").write_text(f"age, dose ,client\n{table}\n")
    for name in "plain", "spaces":
        assert run(f"summarize {name}.csv --client B -o {name}.slot") == 0
    assert load_message("plain.slot") == load_message("spaces.slot")


def test_encoder_does_not_overrule_the_file(folder, capsys):
    assert run("aggregate A.slot B.slot -o r.slot") == 0
    align = "align {} --client A --reference r.slot -o {}"
    assert run(align.format("A.npz", "aligned.npz")) == 0
    for command in (
        "summarize aligned.npz --client A -o x.slot",
        align.format("aligned.npz", "twice.npz"),
    ):
        assert run(f"{command} --encoder v1") == 1
        error = capsys.readouterr().err
        assert "aligned.npz says" in error
        assert "+aligned:" in error
        assert "--encoder v1 contradicts" in error
    with np.load("aligned.npz") as file:
        same = str(file["fingerprint"])
    command = f"summarize aligned.npz --client A -o x.slot --encoder {same}"
    assert run(command) == 0


def test_encoder_is_advised_in_words_of_the_command_line(folder, capsys):
    command = "summarize B.npz --labels --client B -o B.slot --force --encoder v1"
    assert run(command) == 0
    assert run("aggregate A.slot B.slot -o r.slot") == 1
    error = capsys.readouterr().err
    assert "the same --encoder" in error
    assert "with_encoder" not in error


# ---------------------------------------------------------------------- clients


def test_names_of_clients_are_the_same_however_typed(folder):
    np.savez("u.npz", X=DATA.data, client=np.array(["Zu\u0308rich "] * 240))
    main(["summarize", "u.npz", "--client", " Z\u00fcrich", "-o", "u.slot"])
    assert load_message("u.slot").client == "Z\u00fcrich"


def test_spaces_in_a_name_make_no_second_client(folder, capsys):
    message = replace(load_message("A.slot"), client=" A ")
    message.save("again.slot")
    assert run("aggregate *.slot -o r.slot --skip-refused") == 1
    error = capsys.readouterr().err
    assert "A.slot and again.slot are from the same client 'A'" in error


@pytest.mark.parametrize("name", ["", "  "])
def test_clients_have_a_name(folder, name, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["summarize", "A.npz", "--client", name, "-o", "x.slot"])
    assert exit_.value.code == 2
    assert "--client: the name of a site must not be empty" in capsys.readouterr().err


# ----------------------------------------------------------------------- labels


def test_spellings_of_a_label_are_seen(folder, capsys):
    send("A", ["Cat", "dog"])
    send("B", ["cat ", "dog"])
    capsys.readouterr()
    assert (
        run("aggregate A.slot B.slot -o r.slot --site-models models --method fedcgs")
        == 0
    )
    printed = capsys.readouterr()
    assert printed.err.startswith(
        "skslot: warning: 'Cat' (client A) and 'cat ' (client B) are different classes"
    )
    assert printed.err.count("\n") == 1
    n_cats = [int(load_message(f"{client}.slot").counts[0]) for client in "AB"]
    head, first, second = printed.out.split("rows of each class:\n")[1].splitlines()[:3]
    assert head.split() == ["Cat", "cat", "dog", "rows"]
    assert first.split()[:3] == ["A", str(n_cats[0]), "."]
    assert second.split()[:3] == ["B", ".", str(n_cats[1])]


def test_many_classes_are_counted(folder, capsys, monkeypatch):
    monkeypatch.setattr("skslot.cli._server.MOST_CLASSES", 1)
    assert run("aggregate A.slot B.slot -o r.slot") == 0
    printed = capsys.readouterr()
    assert "\nclasses: 2\n" in printed.out
    assert printed.err == ""


def test_booleans_are_no_numbers(folder, capsys):
    send("A", [False, True])
    assert run("aggregate A.slot B.slot --site-models models") == 1
    error = capsys.readouterr().err
    assert "kind of labels is 'numbers' in B.slot and 'booleans' in A.slot" in error
    assert not Path("models").exists()


def test_labels_that_the_model_does_not_know_are_counted(folder, capsys):
    send("A", ["x", "y"])
    assert run("aggregate A.slot --site-models models") == 0
    rows = np.arange(12)
    np.savez("new.npz", X=DATA.data[rows], y=["x"] * 5 + ["X"] * 4 + ["01"] * 3)
    command = "predict new.npz --labels --model models/A.model.slot -o out.csv"
    assert run(command) == 0
    printed = capsys.readouterr().out
    assert "rows with a label that is not in the model: 7 ('01', 'X')" in printed
