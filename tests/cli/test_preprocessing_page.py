"""The page on preprocessing: its hospitals, in Python and by files, get the same."""

import re
import shutil
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, DocTestParser, DocTestRunner
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from four_sites import read_predictions
from pages import USER_GUIDE, check_printed, commands

from skslot.cli import main

PAGE = "preprocessing.rst"
SITES = "ABCD"


@pytest.fixture
def names():
    """What the Python on the page leaves behind, after it printed what it says."""
    examples = DocTestParser().get_doctest(page_text(), {}, PAGE, PAGE, 0)
    assert examples.examples.pop().source == "folder.cleanup()\n"  # not yet
    runner = DocTestRunner(verbose=False, optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)
    assert runner.run(examples, clear_globs=False).failed == 0
    names = examples.globs
    yield names
    names["folder"].cleanup()


def test_files_give_what_python_gives(names, monkeypatch, capsys):
    root = Path(names["folder"].name)
    (root / "server" / "received").mkdir(parents=True)
    for host, command, expected in commands(PAGE):
        is_everybodys = host in SITES and "-o study.toml" not in command
        for machine in (host, *SITES.replace(host, "")) if is_everybodys else (host,):
            monkeypatch.chdir(root / machine)
            assert main(re.sub(r"\bA\b", machine, command).split()) == 0
            printed = capsys.readouterr()
            assert printed.err == ""
            if machine == host:
                check_printed(command, expected, printed.out)
        mail(root)
    shown = re.search(r"code-block:: toml\n\n((?:   .*\n|\n)+)", page_text()).group(1)
    assert dedent(shown).strip() == (root / "A" / "study.toml").read_text().strip()
    is_new, table = names["is_new"], names["table"]
    model, later = names["model"], table[is_new]
    probabilities, predicted = model.predict_proba(later), names["predicted"]
    for site in SITES:
        rows = (later["site"] == site).to_numpy()
        labels, found = read_predictions(root / site / "predictions.csv")
        assert labels.tolist() == predicted[rows].tolist()
        np.testing.assert_allclose(found, probabilities[rows], atol=1e-4)


def test_what_is_refused_without_options_is_what_the_page_on_files_shows(
    names, monkeypatch, capsys
):
    monkeypatch.chdir(Path(names["folder"].name, "A"))
    page = (USER_GUIDE / "files.rst").read_text()
    shown = re.search(
        r"   A\$ skslot (.*)\n((?:   skslot: error.*\n)(?:   .+\n)+)", page
    )
    command, expected = shown.groups()
    assert main(command.split()) == 1
    assert capsys.readouterr().err.split() == expected.split()


def page_text():
    return (USER_GUIDE / PAGE).read_text()


def mail(root):
    """Bring to the server what the sites wrote, and back what is for them."""
    server = root / "server"
    for site in SITES:
        for source, target in [
            (root / "A" / "study.toml", root / site),
            (root / "A" / "study.toml", server),
            (root / site / f"{site}.scaling.slot", server / "received"),
            (root / site / f"{site}.slot", server / "received"),
            (server / "scaled.toml", root / site),
            (server / "global.slot", root / site),
        ]:
            if source.exists() and source.parent != target:
                shutil.copy(source, target)
