"""The gallery runs as it stands, without data of one's own and without a display."""

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
GALLERY = sorted(EXAMPLES.glob("plot_*.py"))


def imported(path):
    """Packages that an example imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def test_there_is_a_gallery():
    assert GALLERY


@pytest.mark.slow
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    missing = [name for name in set(imported(path)) if not find_spec(name)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    # no folder with data of one's own
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SKSLOT_")}
    single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(path)],
        cwd=tmp_path,
        env={**kept, **single, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert not list(tmp_path.iterdir()), "an example leaves files behind"


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_example_is_written_for_the_gallery(path):
    """A title, cells, a figure, and at the end a sentence on what it shows."""
    text = path.read_text(encoding="utf-8")
    title = text.splitlines()[1:4]
    assert set(title[0]) == set(title[2]) == {"="}
    assert len(title[0]) == len(title[2]) >= len(title[1])
    assert "plt.show()" in text
    last_cell = text.rpartition("\n# %%\n")[2].rstrip()
    assert last_cell.splitlines()[-1].startswith("# ")
