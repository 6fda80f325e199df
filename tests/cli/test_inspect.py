"""``skslot inspect``: what is in a file."""

from pathlib import Path

import numpy as np
import pytest
from four_sites import error_of, run, write_table


def test_inspect_says_what_is_in_a_file_and_what_is_not(server, capsys):
    assert run("inspect A.slot") == 0
    printed = capsys.readouterr().out
    n_bytes = Path("A.slot").stat().st_size
    assert printed.startswith(f"A.slot: {n_bytes:,} bytes in float32, format 1, skslot")
    assert "mean of each class" in printed
    assert "Not in it: rows" in printed


@pytest.mark.parametrize("name", ["joined.csv", "features.npz"])
def test_rows_are_no_message(server, name, capsys):
    write_table("joined.csv")
    np.savez("features.npz", X=np.eye(20))
    error = error_of(f"inspect {name}", capsys)
    assert f"{name} is no message of skslot, which are the .slot files" in error
    assert "Tables and other features are for skslot plan" in error
    command = f"predict joined.csv --ignore diagnosis --model {name} -o out.csv"
    assert "is no message of skslot" in error_of(command, capsys)
    for files in (name, f"A.slot {name}"):
        command = f"aggregate {files} --model global.slot"
        assert f"{name} is no message of skslot" in error_of(command, capsys)


def test_text_is_no_message(server, capsys):
    Path("notes.slot").write_text("not for computers")
    error = error_of("inspect notes.slot", capsys)
    assert "these bytes are not a skslot message, or not all of it" in error
    assert "header" in error


def test_inspect_refuses_damage(server, capsys):
    data = bytearray(Path("A.slot").read_bytes())
    data[-1] ^= 1
    Path("A.slot").write_bytes(data)
    assert "A.slot: the checksum is wrong" in error_of("inspect A.slot", capsys)
