"""``skslot diagnose`` as users run it."""

import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skslot.cli import main
from skslot.datasets import make_shifted_clients

DATA = make_shifted_clients(
    150, n_clients=3, n_features=4, label_shift=0.3, random_state=0
)
SITES = np.array(["north", "south", "west"])[DATA.client_ids]


@pytest.fixture
def features(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("features.npz", X=DATA.data, y=DATA.target, client=SITES)
    return "features.npz"


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the command prints on these features."""
    out, err = StringIO(), StringIO()
    with chdir(tmp_path_factory.mktemp("features")):
        np.savez("features.npz", X=DATA.data, y=DATA.target, client=SITES)
        with redirect_stdout(out), redirect_stderr(err):
            assert main(["diagnose", "features.npz"]) == 0
    return SimpleNamespace(out=out.getvalue(), err=err.getvalue())


def run_code(text):
    """What the indented code defines; what reads the rows comes last."""
    code = "\n".join(line[4:] for line in text.splitlines() if line[:4].isspace())
    fitting, reading = code.split("from skslot.experiments")
    names = {}
    exec(f"from skslot.experiments{reading}\n{fitting}", names)
    return names


@pytest.mark.usefixtures("features")
def test_file_is_diagnosed_and_its_code_runs(printed):
    assert printed.err == ""
    for words in (
        "north",
        "cells are empty",
        "Recommended: ",
        "labels_at_use='as_now'",
    ):
        assert words in " ".join(printed.out.split())
    model = run_code(printed.out)["model"]
    assert model.score(DATA.data, DATA.target, client_ids=SITES) > 0.5


def test_assumption_is_an_option(features, capsys):
    assert main(["diagnose", features, "--labels-at-use", "as_now"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "if every client keeps its class distribution" in out
    with pytest.raises(SystemExit):
        main(["diagnose", features, "--labels-at-use", "balanced"])


@pytest.mark.usefixtures("features")
def test_table_with_a_label_column_of_any_name_gives_what_arrays_give(printed, capsys):
    table = pd.DataFrame(DATA.data, columns=list("abcd"))
    table = table.assign(client=SITES, sick=DATA.target, number=range(len(table)))
    table.to_csv("table.csv", index=False)
    options = ["--labels", "sick", "--ignore", "number"]
    assert main(["diagnose", "table.csv", *options]) == 0
    out = capsys.readouterr().out
    assert "4 features" in out
    assert run_code(out)["model"].n_features_in_ == 4
    assert out.partition("X, y and")[0] == printed.out.partition("X, y and")[0]


def test_file_without_labels_gets_no_code(features, capsys):
    np.savez("plain.npz", X=DATA.data, client=SITES)
    assert main(["diagnose", "plain.npz"]) == 0
    out = capsys.readouterr().out
    assert "Without labels" in " ".join(out.split())
    assert "from skslot" not in out


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"client": None}, "must say whose each row is"),
        ({"client": np.full(len(SITES), "north")}, "all rows are of one client"),
        ({"y": np.zeros(len(SITES), dtype=int)}, "all labels are 0"),
        ({"X": np.full_like(DATA.data, np.nan)}, "NaN"),
    ],
)
def test_wrong_files_are_refused_in_one_line(features, arrays, message, capsys):
    arrays = {"X": DATA.data, "y": DATA.target, "client": SITES} | arrays
    np.savez("wrong.npz", **{k: v for k, v in arrays.items() if v is not None})
    assert main(["diagnose", "wrong.npz"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_progress_is_shown_on_a_terminal_only(features, capsys, monkeypatch):
    few = np.flatnonzero((DATA.target < 2) & (SITES != "west"))
    np.savez(features, X=DATA.data[few], y=DATA.target[few], client=SITES[few])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["diagnose", features]) == 0
    assert "models tried" in capsys.readouterr().err
    assert main(["diagnose", features, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
