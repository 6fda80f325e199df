"""Rules about the source that no linter knows."""

import ast
from pathlib import Path

import pytest

import skslot

PACKAGE = Path(skslot.__file__).parent


def private_names_of_scikit_learn(source):
    """Private modules and names of scikit-learn that some code imports."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
    paths = [name.split(".") for name in imported]
    return [
        ".".join(path)
        for path in paths
        if path[0] == "sklearn" and any(part.startswith("_") for part in path)
    ]


def test_private_names_of_scikit_learn_are_imported_in_one_module():
    sources = sorted(PACKAGE.rglob("*.py"))
    assert len(sources) > 50
    found = {
        str(path.relative_to(PACKAGE)): private_names_of_scikit_learn(path.read_text())
        for path in sources
    }
    assert [name for name, private in found.items() if private] == [
        "_sklearn_compat.py"
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from sklearn.base import BaseEstimator", []),
        ("from sklearn.base import clone, _fit_context", ["sklearn.base._fit_context"]),
        ("from sklearn.utils._tags import Tags", ["sklearn.utils._tags.Tags"]),
        ("def f():\n    import sklearn._config", ["sklearn._config"]),
        ("from ._base import _private", []),
    ],
)
def test_private_imports_are_found_wherever_they_hide(source, found):
    assert private_names_of_scikit_learn(source) == found


def test_packages_know_each_other_by_public_names():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level >= 2 and node.module:
                package, _, module = node.module.partition(".")
                if module and not package.startswith("_"):
                    found |= {alias.name for alias in node.names}
    assert found == set()
