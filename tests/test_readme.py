"""The README's code runs as it stands, and its commands are the real ones."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import sklearn

from skslot.cli import main
from skslot.datasets import load_digit_scanners

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_examples_are_short():
    for example in code_blocks("python"):
        assert len([line for line in example.splitlines() if line.strip()]) <= 15


def test_the_examples_run_one_after_the_other(capsys):
    before, names = sklearn.get_config(), {}
    try:
        for example in code_blocks("python"):
            exec(compile(example, "README.md", "exec"), names)
    finally:
        sklearn.set_config(**before)
    printed = capsys.readouterr().out
    assert "Differences between rows come from" in printed
    assert "> " in printed
    assert "chosen tau 0.00" not in printed


def test_the_commands_for_real_sites_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = load_digit_scanners()
    rows = data.client_ids == "fax"
    np.savez("features.npz", X=data.data[rows], y=data.target[rows])
    for line in code_blocks("console")[0].splitlines():
        command = line.split("$ skslot ")[1].split()
        assert main(command) == 0
        if command[0] == "summarize":
            Path("received").mkdir()
            shutil.copy("A.slot", "received")
    assert Path("predictions.csv").read_text().count("\n") == rows.sum() + 1


def test_the_commands_for_tables_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, n_rows = np.random.default_rng(0), 60
    table = ["patient,age,sex,diagnosis"]
    for k in range(n_rows):
        age = "" if k % 7 == 0 else f"{rng.normal(50 + 20 * (k % 2), 5):.1f}"
        table.append(f"p{k},{age},{'fm'[k % 3 > 0]},{('healthy', 'ill')[k % 2]}")
    Path("hospital.csv").write_text("\n".join(table))
    Path("new.csv").write_text("\n".join(table[:9]))
    for line in code_blocks("console")[1].splitlines():
        command = line.split("$ skslot ")[1].split()
        assert main(command) == 0
        if command[0] == "summarize":
            Path("received").mkdir()
            shutil.copy("A.slot", "received")
    assert Path("predictions.csv").read_text().count("\n") == 9


def test_the_two_commands_are_there():
    assert code_blocks("bash") == [
        "pip install . && skslot demo\n",
        'pip install ".[all,tests]" && pytest -n auto\n',
    ]


def test_the_test_command_is_the_target_of_the_makefile():
    recipe = re.search(r"^test:.*\n\t(.*)", (ROOT / "Makefile").read_text(), re.M)[1]
    assert code_blocks("bash")[1] == f'pip install ".[all,tests]" && {recipe}\n'


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link.partition("#")[0]).exists()
