"""The page on the file workflow: its commands run and print what it says."""

import re
import shutil

import numpy as np
from pages import check_printed, commands

from skslot.cli import main
from skslot.datasets import load_digit_scanners

SITES = "ABCD"


def test_commands_of_the_page(tmp_path, monkeypatch, capsys):
    (tmp_path / "server" / "received").mkdir(parents=True)
    data = load_digit_scanners()
    for site, scanner in zip(SITES, np.unique(data.client_ids), strict=True):
        rows = data.client_ids == scanner
        (tmp_path / site).mkdir()
        X, y = data.data[rows], data.target[rows]
        np.savez(tmp_path / site / "features.npz", X=X[:-100], y=y[:-100])
        np.savez(tmp_path / site / "new.npz", X=X[-100:])
    ran = []
    for host, command, expected in commands("files.rst"):
        others = SITES[1:] if command.startswith("summarize") else ""
        for machine in host, *others:
            monkeypatch.chdir(tmp_path / machine)
            mine = re.sub(r"\bA\b", machine, command) if others else command
            assert main(mine.split()) == 0
            printed = capsys.readouterr()
            assert printed.err == ""
            if machine == host:
                ran.append(command.split()[0])
                check_printed(command, expected, printed.out)
        mail(tmp_path)
    expected = "summarize inspect aggregate aggregate predict adapt predict align "
    expected += "aggregate align"
    assert ran == expected.split()


def mail(root):
    """Bring to the server what the sites wrote, and back what is for them."""
    server = root / "server"
    for site in SITES:
        for source, target in [
            (root / site / f"{site}.slot", server / "received"),
            (server / "reference.slot", root / site),
            (server / "global.slot", root / site),
        ]:
            if source.exists():
                shutil.copy(source, target)
