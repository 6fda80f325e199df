"""What to cite is the same in the file for machines and on the page."""

import re
from pathlib import Path

import pytest

import skslot

ROOT = Path(__file__).parents[1]
FILE = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "citing.rst").read_text(encoding="utf-8")


def test_both_name_this_version():
    assert f"\nversion: {skslot.__version__}\n" in FILE
    assert f"version = {{{skslot.__version__}}}" in PAGE


@pytest.mark.parametrize("field", ["title", "family-names", "given-names"])
def test_the_page_has_what_the_file_says_about_the_paper(field):
    paper = FILE.partition("preferred-citation:")[2]
    values = re.findall(rf"(?<![\w-]){field}: (.*)", paper)
    assert values
    for value in values:
        assert value in " ".join(PAGE.split())
