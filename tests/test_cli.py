"""The command line, run as users run it."""

import subprocess
import sys

import pytest

import skslot
from skslot.cli import main
from skslot.cli._study import save_picture
from skslot.experiments import run_demo


def test_demo_prints_the_tables_and_saves_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("matplotlib").use("Agg")
    assert main(["demo", "--partitions", "1"]) == 0
    printed = capsys.readouterr().out
    assert "tau=0.4" in printed
    assert "microfilm" in printed
    assert "What to see" in printed
    assert "Picture: skslot-demo.png" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["skslot-demo.png"]
    assert (tmp_path / "skslot-demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def result():
    return run_demo(1, taus=(0.4,))


def test_demo_keeps_a_file_that_exists(result, tmp_path):
    (tmp_path / "mine.png").write_text("precious")
    assert "mine.png exists already" in save_picture(result, tmp_path / "mine.png")
    assert (tmp_path / "mine.png").read_text() == "precious"


def test_demo_needs_no_matplotlib(result, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    said = save_picture(result, tmp_path / "a.png")
    assert said.startswith("No picture: ")
    assert 'pip install "skslot[plot]"' in said
    assert list(tmp_path.iterdir()) == []


def test_demo_goes_without_a_picture_that_cannot_be_written(result, tmp_path):
    said = save_picture(result, tmp_path / "nowhere" / "a.png")
    assert said.startswith("No picture: the folder ")


def test_version_from_a_new_process():
    command = [sys.executable, "-m", "skslot", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"skslot {skslot.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["demo", "--partitions", "0"], ["nonsense"]])
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: skslot" in capsys.readouterr().err
