"""What all commands have in common."""

import re
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from four_sites import CLIENTS, NAMES, X, Y, error_of, run

from skslot.cli import main
from skslot.exchange import feature_fingerprint


@pytest.mark.parametrize(
    "command",
    [
        "summarize features.npz --client A -o old.slot",
        "aggregate A.slot -o old.slot",
        "align features.npz --client A --reference A.slot -o old.npz",
        "predict features.npz --model A.slot -o old.csv",
        "adapt features.npz --client A --model A.slot -o old.slot",
        "plan table.csv -o old.toml",
    ],
)
def test_nothing_is_overwritten(site, command, capsys):
    output = Path(command.split()[-1])
    output.write_text("old")
    assert "exists already" in error_of(command, capsys)
    assert output.read_text() == "old"


def test_debug_shows_where_it_failed(site):
    with pytest.raises(FileNotFoundError):
        run("inspect nowhere.slot --debug")


@pytest.mark.parametrize(
    "command",
    "diagnose plan summarize aggregate align predict adapt inspect".split(),
)
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"example: skslot {command} " in " ".join(capsys.readouterr().out.split())


# ---------------------------------------------------------- features, by one rule

READERS = {
    "summarize": "summarize {} --client A -o new.slot",
    "align": "align {} --client A --reference reference.slot -o new.npz",
    "predict": "predict {} --client A --model global.slot -o new.csv",
    "adapt": "adapt {} --client A --model global.slot -o new.slot",
    "report": "report {} -o new.html --tau 0.4",
    "bench": "bench skew --features {} --runs 1 --results runs.jsonl --csv new.csv",
}
ROWS = np.flatnonzero((CLIENTS == "A") | (CLIENTS == "B"))
SITE = CLIENTS[ROWS]
PARTS = np.where(np.arange(len(ROWS)) % 3 == 2, "test", "train")


@pytest.fixture(params=READERS)
def refuse(request, full_server, capsys):
    """Give features to a command that must not take them; its error."""

    def run_on(options="", **others):
        np.savez("both.npz", X=X[ROWS], y=Y[ROWS], **others)
        command = READERS[request.param].format(f"both.npz {options}".strip())
        error = error_of(command, capsys)
        assert not list(full_server.glob("new.*"))
        return error

    return run_on


def test_clients_of_some_rows_only_are_refused(refuse):
    """They were passed over, and the rows of both sites were sent as one."""
    error = refuse(client=SITE[:-1], split=PARTS)
    n_rows = len(ROWS)
    assert f"both.npz: client has {n_rows - 1} values, but there are {n_rows}" in error


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"client": SITE[:, None]}, "client has shape "),
        ({"client": SITE, "split": PARTS[1:]}, "split has "),
        ({"client": SITE, "Split": PARTS}, "has 'Split', which is nearly 'split'"),
        ({"Client": SITE}, "has 'Client', which is nearly 'client': .*--ignore Client"),
        ({"client": SITE, "split": np.full(len(ROWS), "all")}, r"is also \['all'\]"),
        (
            {"domain": (SITE == "B") + 1, "domains": ["A", "B"]},
            r"domain must be from 0 to 1, .* is also \[2\]",
        ),
    ],
)
def test_what_cannot_be_right_is_refused_by_all(refuse, others, expected):
    assert re.search(f"both.npz.*{expected}", refuse(**others))


def test_labels_that_are_missing_are_refused_by_all_that_use_them(refuse):
    kind = np.where(np.arange(len(ROWS)) == 4, "", Y[ROWS])
    error = refuse("--labels kind", client=SITE, kind=kind)
    assert f"1 of {len(ROWS)} rows have no label, the first is row 5" in error


@pytest.mark.parametrize("command", READERS)
def test_tables_give_what_arrays_give(server, command):
    """Also with labels and other columns that only the command line names."""
    if command == "report":
        pytest.importorskip("matplotlib").use("Agg")
    if command == "bench":
        pytest.importorskip("skorch")
    others = {"kind": Y[ROWS], "client": SITE, "split": PARTS, "visit": PARTS}
    encoder = {"columns": NAMES, "fingerprint": feature_fingerprint(NAMES)}
    np.savez("both.npz", X=X[ROWS], **others, **encoder)
    frame = pd.DataFrame(X[ROWS], columns=NAMES).assign(**others)
    frame.to_csv("both.csv", index=False)
    options = "--labels kind --ignore visit"
    for site in "AB":
        summarize = f"summarize both.npz {options} --client {site} --min-samples 1"
        assert run(f"{summarize} -o {site}.slot --force") == 0
    assert run("aggregate A.slot B.slot -o reference.slot") == 0
    assert run("aggregate A.slot B.slot --model global.slot") == 0
    made = []
    for name in ("both.npz", "both.csv"):
        line = READERS[command].format(f"{name} {options}")
        assert run(f"{line} --min-samples 1" if command == "summarize" else line) == 0
        (output,) = server.glob("new.*")
        made.append(output.read_bytes().replace(b"both.csv", b"both.npz"))
        if command == "align":
            with np.load(output) as file:
                made[-1] = {key: file[key].tolist() for key in file}
        output.unlink()
    assert made[0] == made[1]


@pytest.mark.usefixtures("words_only")
def test_code_of_the_report_reads_the_file_in_the_same_way(server):
    pytest.importorskip("matplotlib").use("Agg")
    frame = pd.DataFrame(X, columns=NAMES).assign(kind=Y, client=CLIENTS, patient=1)
    frame.to_csv("sites.csv", index=False)
    command = "report sites.csv --labels kind --ignore patient --tau 0.4 -o new.html"
    assert run(command) == 0
    page = unescape(Path("new.html").read_text(encoding="utf-8"))
    expected = "FeatureSet.from_file('sites.csv', labels='kind', ignore=['patient'])"
    assert expected in page
