"""The steps of the guide and the script of the example make the same files."""

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "user_guide" / "deployment.rst").read_text()
SCRIPT = ROOT / "examples" / "flower" / "make_certificates.sh"
ADDRESS = "DNS:learn.example.org"


def run(*command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def part_of_guide(start, end):
    return GUIDE[GUIDE.index(start) : GUIDE.index(end)]


@pytest.fixture
def by_guide(tmp_path):
    """Folder after the first two steps of the guide, run as they stand there."""
    steps = part_of_guide("1. *Once, at the server*", "3. *By a way")
    blocks = re.findall(r"code-block:: bash\n\n((?: {6}.*\n|\n)+)", steps)
    assert len(blocks) == 2
    folder = tmp_path / "guide"
    folder.mkdir()
    for block in blocks:
        run("sh", "-euc", textwrap.dedent(block), folder=folder)
    return folder


@pytest.fixture
def by_script(tmp_path):
    """Folder after the script, for the same address and site."""
    folder = tmp_path / "script"
    run("sh", SCRIPT, folder, ADDRESS, "fax", folder=tmp_path)
    return folder


def test_guide_and_script_make_the_same_files(by_guide, by_script):
    assert sorted(os.listdir(by_guide)) == sorted(os.listdir(by_script))


def test_files_that_the_guide_names_are_there(by_guide):
    steps = part_of_guide("3. *By a way", "6. *At the server*")
    named = set(re.findall(r"\b(?:ca|server|fax)\.[a-z.]*[a-z]", steps))
    assert named == {"ca.crt", "server.pem", "server.key", "fax.key", "fax.key.pub"}
    assert named <= set(os.listdir(by_guide))


@pytest.mark.parametrize("way", ["by_guide", "by_script"])
def test_certificate_is_signed_and_names_the_address(way, request):
    folder = request.getfixturevalue(way)
    found = run(
        *("openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname"),
        *("learn.example.org", "server.pem"),
        folder=folder,
    )
    assert found == "server.pem: OK\n"
