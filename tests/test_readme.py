"""The README's code runs as it stands, and its commands are the real ones."""

import re
from pathlib import Path

import pytest
import sklearn

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_pipeline_example_is_short():
    (example,) = code_blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15


def test_the_pipeline_example_runs(capsys):
    (example,) = code_blocks("python")
    before = sklearn.get_config()
    try:
        exec(compile(example, "README.md", "exec"), {})
    finally:
        sklearn.set_config(**before)
    printed = capsys.readouterr().out
    assert "> " in printed
    assert "chosen tau 0.00" not in printed


def test_the_two_commands_are_there():
    assert code_blocks("bash") == [
        "pip install . && skslot demo\n",
        'pip install ".[all,tests]" && pytest -n auto\n',
    ]


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
