"""The command line, run as users run it."""

import subprocess
import sys

import pytest

import skslot
from skslot.cli import main


def test_demo_prints_the_table_and_its_meaning(capsys):
    assert main(["demo", "--partitions", "2"]) == 0
    printed = capsys.readouterr().out
    assert "tau=0.4" in printed
    assert "microfilm" in printed
    assert "Without alignment" in printed


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
