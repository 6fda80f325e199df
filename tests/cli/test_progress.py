"""What is shown while a command runs: on terminals only, and not with --quiet."""

import sys
import warnings
from argparse import Namespace

import numpy as np
import pytest

from skslot import FederatedOTAligner, MixedEffectsAligner
from skslot.cli import main
from skslot.cli._main import plain_warnings, show_progress


@pytest.fixture
def on_terminal(capsys, monkeypatch):
    """Run something as if at a terminal; what it printed and showed."""

    def run(function, *arguments):
        # pytest has another stream while fixtures are made
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        capsys.readouterr()
        assert not function(*arguments)
        return capsys.readouterr()

    return run


@pytest.fixture
def _no_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)


@pytest.fixture
def sites(tmp_path):
    """Files of two sites."""
    rng = np.random.default_rng(0)
    for index, client in enumerate("AB"):
        rows = {"X": rng.normal(index, 1 + index, (40, 3)), "y": np.arange(40) % 2}
        np.savez(tmp_path / f"{client}.npz", **rows)
        site = ["--client", client, "-o", str(tmp_path / f"{client}.slot"), "--labels"]
        assert main(["summarize", str(tmp_path / f"{client}.npz"), *site]) == 0
    return [str(tmp_path / f"{client}.slot") for client in "AB"]


def count_to_three(quiet=False):
    show = show_progress("file", Namespace(quiet=quiet))
    for done in range(4):
        show(done, 3, "next")


def test_bar_where_tqdm_is_installed(on_terminal):
    pytest.importorskip("tqdm")
    shown = on_terminal(count_to_three).err
    assert "file: 100%" in shown
    assert "3/3" in shown


@pytest.mark.usefixtures("_no_tqdm")
def test_lines_elsewhere(on_terminal):
    lines = on_terminal(count_to_three).err.splitlines()
    assert lines == ["file 0 of 3, next", "file 3 of 3, next"]


def test_nothing_with_quiet(on_terminal):
    assert on_terminal(count_to_three, True) == ("", "")


def test_nothing_without_a_terminal(capsys):
    count_to_three()
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("_no_tqdm")
@pytest.mark.parametrize("options", [["--tau", "1"], ["--method", "fedcgs"]])
def test_aggregate_shows_readings_and_residuals(on_terminal, sites, tmp_path, options):
    output = ["--model", str(tmp_path / "m.slot")]
    printed, shown = on_terminal(main, ["aggregate", *sites, *output, *options])
    assert "reading 1, file 2 of 2" in shown
    assert "pass 1 of the solver: residual" in shown
    assert "solver" not in printed


def test_aggregate_is_quiet_if_asked_to(on_terminal, sites, tmp_path):
    output = ["-o", str(tmp_path / "r.slot"), "--quiet"]
    assert on_terminal(main, ["aggregate", *sites, *output]).err == ""


@pytest.mark.usefixtures("_no_tqdm", "words_only")
def test_report_says_what_it_is_doing(on_terminal, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("skslot.cli._main.SECONDS_BETWEEN_LINES", -1)
    rng = np.random.default_rng(0)
    rows = {"X": rng.normal(size=(80, 3)), "y": np.arange(80) % 2}
    np.savez(tmp_path / "rows.npz", client=np.repeat(["A", "B"], 40), **rows)
    page = str(tmp_path / "page.html")
    printed = on_terminal(main, ["report", str(tmp_path / "rows.npz"), "-o", page])
    shown = printed.err.splitlines()
    assert "report, part 0 of 4, trying models, 1 of 21" in shown
    assert shown[-1] == "report, part 4 of 4"
    counts = [int(line.split()[2]) for line in shown]
    assert counts == sorted(counts)


@pytest.mark.parametrize("aligner", [FederatedOTAligner(1), MixedEffectsAligner(1)])
def test_verbose_aligner_prints_clients_and_iterations(aligner, capsys):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), np.arange(80) % 2
    ids = np.repeat(["A", "B"], 40)
    aligner.fit(X, y, client_ids=ids)
    assert capsys.readouterr().out == ""
    aligner.set_params(verbose=1).fit(X, y, client_ids=ids)
    name = type(aligner).__name__
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"[{name}] client 'A' done (1/2)",
        f"[{name}] client 'B' done (2/2)",
    ]
    assert lines[2].startswith(f"[{name}] pass 1 of the solver: residual ")


def test_what_libraries_deprecate_is_not_for_users(capsys):
    with plain_warnings():
        warnings.simplefilter("always")
        warnings.warn("old name", DeprecationWarning, stacklevel=1)
        warnings.warn("few rows", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "skslot: warning: few rows\n"
