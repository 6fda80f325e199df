"""Names and labels that others chose, and what they must not do."""

import csv
import io
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from four_sites import CLIENTS, SITES, X, Y, message_of, run

from skslot import MixedEffectsClassifier
from skslot.cli import main
from skslot.exchange import load_message
from skslot.inspection import alignment_report
from skslot.model_selection import class_table

EVIL = "\x1b[2J\nwrote all.slot, 1 bytes: send it\r\x85\u202e!"
SEEN = r"\x1b[2J\nwrote all.slot, 1 bytes: send it\r\x85\u202e!"
LABELS = np.where(Y == "dog", EVIL, Y)


def assert_harmless(text):
    """Nothing but what can be seen, and no line of theirs."""
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.lstrip().startswith("wrote all.slot") for line in lines)


def printed_by(arguments, capsys, code=0):
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert_harmless(printed.out + printed.err)
    return printed.out + printed.err


@pytest.fixture
def evil_site(tmp_path, monkeypatch):
    """Files of sites with labels and a name that no one should trust."""
    monkeypatch.chdir(tmp_path)
    for site in SITES:
        rows = CLIENTS == site
        np.savez(f"{site}.npz", X=X[rows], y=LABELS[rows])
        name = EVIL if site == "A" else site
        command = ["summarize", f"{site}.npz", "--labels", "--client", name]
        assert main([*command, "-o", f"{site}.slot"]) == 0
    return tmp_path


def test_names_and_labels_are_printed_as_text(evil_site, capsys):
    command = ["summarize", "A.npz", "--labels", "--client", EVIL, "-o", "again.slot"]
    assert printed_by(command, capsys).count(SEEN) == 2
    files = [f"{site}.slot" for site in SITES]
    assert SEEN in printed_by(["aggregate", *files, "--model", "m.slot"], capsys)
    assert SEEN in printed_by(
        ["aggregate", *files, "--site-models", ".", "--method", "fedcgs"], capsys
    )
    assert SEEN[:10] in printed_by(["inspect", "A.slot"], capsys)
    predict = ["predict", "A.npz", "--model", "m.slot", "-o", "p.csv"]
    predict += ["--statistics", "A.slot", "--labels"]
    assert SEEN in printed_by(predict, capsys)
    adapt = ["adapt", "A.npz", "--model", "m.slot", "-o", "a.slot", "--client", EVIL]
    assert SEEN in printed_by([*adapt, "--statistics", "A.slot"], capsys)
    assert SEEN in printed_by([*adapt[:-1], "E", "--labels", "--force"], capsys)
    with open("p.csv", newline="", encoding="utf-8") as file:
        assert f"probability_{EVIL}" in next(csv.reader(file))


def test_errors_and_warnings_are_printed_as_text(evil_site, capsys):
    replace(load_message("B.slot"), client=EVIL).save("B.slot")
    error = printed_by(["aggregate", "A.slot", "B.slot", "-o", "r.slot"], capsys, 1)
    assert SEEN in error
    Path(f"{EVIL}.slot").write_bytes(b"damaged")
    assert SEEN.split(r"\n")[0] in printed_by(["inspect", f"{EVIL}.slot"], capsys, 1)
    printed_by(["aggregate", "?.slot", f"{EVIL}.slot", "-o", "r.slot"], capsys, 1)


def test_reports_and_tables_are_text(evil_site):
    clients = np.where(CLIENTS == "A", EVIL, CLIENTS)
    classifier = MixedEffectsClassifier().fit(X, LABELS, client_ids=clients)
    texts = [
        str(class_table(LABELS, clients)),
        repr(alignment_report(classifier)),
        repr(classifier.add_client(X, "new", LABELS)),
        classifier.summary(),
        load_message("A.slot").describe(),
    ]
    for text in texts:
        assert_harmless(text)
    assert SEEN in texts[0]


def test_terminals_without_a_character_show_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("u.npz", X=X, y=np.where(Y == "cat", "Katze \u732b", Y))
    command = "summarize u.npz --labels --client Z\u00fcrich -o u.slot"
    terminals = {}
    for name in ("stdout", "stderr"):
        terminals[name] = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, name, terminals[name])
    assert run(command) == 0
    assert run(command) == 1
    assert run("inspect Z\u00fcrich.slot") == 1
    printed, errors = (each.buffer.getvalue() for each in terminals.values())
    assert rb"client Z\xfcrich: 800 rows" in printed
    assert rb"Katze \u732b: " in printed
    assert rb"Z\xfcrich.slot: No such file" in errors
    assert {each.errors for each in terminals.values()} == {"strict"}
    assert load_message("u.slot").client == "Z\u00fcrich"


# ------------------------------------------------------------------ spreadsheets

FORMULAS = ["=1+1", "+1", "-cmd", "@SUM(A1)"]


@pytest.fixture
def formulas(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = CLIENTS == "A"
    labels = np.array(FORMULAS)[np.unique(Y, return_inverse=True)[1]]
    np.savez("A.npz", X=X[rows], y=labels[rows], note=np.full(rows.sum(), "=note"))
    for site in SITES:
        rows = CLIENTS == site
        np.savez("some.npz", X=X[rows], y=labels[rows])
        command = f"summarize some.npz --client {site} --labels -o {site}.slot"
        assert run(command) == 0
    assert run("aggregate ?.slot --model m.slot") == 0


@pytest.mark.parametrize(("option", "mark"), [("", ""), (" --safe-csv", "'")])
def test_labels_that_are_formulas_are_marked_if_asked(formulas, option, mark):
    command = "predict A.npz --model m.slot --statistics A.slot -o p.csv"
    assert run(command + option) == 0
    with open("p.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    predicted = {row["prediction"] for row in rows}
    assert predicted <= {f"{mark}{label}" for label in FORMULAS}
    assert len(predicted) > 1
    assert rows[0]["note"] == f"{mark}=note"
    assert rows[0]["row"] == "1"
    names = {f"probability_{label}" for label in FORMULAS}
    assert names <= rows[0].keys()


# -------------------------------------------------------------------- who may read


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_what_is_about_rows_is_for_its_owner(site, capsys):
    assert run("summarize features.npz --labels --client A -o A.slot") == 0
    for name in "BCD":
        message_of(name).save(f"{name}.slot", min_samples=1)
    assert run("aggregate ?.slot --model m.slot --site-models models") == 0
    predict = "predict features.npz --model m.slot --statistics A.slot -o p.csv"
    assert run(predict) == 0
    align = "align features.npz --reference m.slot --statistics A.slot --client A"
    assert run(f"{align} -o a.npz") == 0
    adapt = "adapt features.npz --model m.slot --statistics A.slot --client A"
    assert run(f"{adapt} -o own.slot") == 0
    written = "A.slot m.slot models/A.model.slot p.csv a.npz own.slot".split()
    modes = {name: os.stat(name).st_mode & 0o777 for name in written}
    assert set(modes.values()) == {0o600}
    os.chmod("p.csv", 0o644)
    assert run(f"{predict} --force") == 0
    assert os.stat("p.csv").st_mode & 0o777 == 0o644
