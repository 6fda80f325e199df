"""``skslot inspect``: what is in a file."""

from pathlib import Path

from four_sites import error_of, run


def test_inspect_says_what_is_in_a_file_and_what_is_not(server, capsys):
    assert run("inspect A.slot") == 0
    printed = capsys.readouterr().out
    n_bytes = Path("A.slot").stat().st_size
    assert printed.startswith(f"A.slot: {n_bytes:,} bytes in float32, format 1, skslot")
    assert "mean of each class" in printed
    assert "Not in it: rows" in printed


def test_inspect_refuses_damage(server, capsys):
    data = bytearray(Path("A.slot").read_bytes())
    data[-1] ^= 1
    Path("A.slot").write_bytes(data)
    assert "A.slot: the checksum is wrong" in error_of("inspect A.slot", capsys)
