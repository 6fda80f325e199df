"""Rules about the source that no linter knows."""

import ast
import re
from collections import defaultdict
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


PRIVATE = re.compile(r"_[a-z]\w*")


def homes_of_private_names(trees):
    """Packages that define each private function, method or attribute."""
    homes = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                homes[node.name].add(path.parts[0])
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                homes[node.attr].add(path.parts[0])
    return homes


def private_names_of_other_packages(trees):
    """What modules import from, or use on objects of, packages that are not theirs.

    ``trees`` are syntax trees by path in the package. An attribute belongs to another
    package if no class or function of the own package defines or sets it.
    """
    homes, found = homes_of_private_names(trees), set()
    for path, tree in trees.items():
        package = path.parts[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                module = (node.module or "").split(".")
                if module[0] == "skslot":
                    module = module[1:]
                elif node.level < len(path.parts):
                    continue
                if not module or module[0] in (package, "") or module[0][0] == "_":
                    continue
                is_inner = any(part.startswith("_") for part in module)
                found |= {
                    f"{path}: {module[0]}.{alias.name}"
                    for alias in node.names
                    if is_inner or alias.name.startswith("_")
                }
            elif isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
                owner = node.value.id if isinstance(node.value, ast.Name) else None
                is_own = owner in ("self", "cls") or package in homes[node.attr]
                if homes[node.attr] and not is_own:
                    found.add(f"{path}: .{node.attr}")
    return found


def test_packages_know_each_other_by_public_names():
    sources = PACKAGE.rglob("*.py")
    trees = {p.relative_to(PACKAGE): ast.parse(p.read_text()) for p in sources}
    assert private_names_of_other_packages(trees) == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from ..geometry import distance", None),
        ("from .._utils import _shorten", None),
        ("from ._base import _check", None),
        ("self._roots = 1", None),
        ("def f(self):\n    return self._roots", None),
        ("def f(other):\n    other._factor = other._factor", None),
        ("def f(other):\n    return other._replace()", None),
        ("from ..geometry._gaussians import distance", "geometry.distance"),
        ("from skslot.geometry import _root", "geometry._root"),
        ("def f():\n    from ..geometry import _root", "geometry._root"),
        ("def f(other):\n    return other._roots", "._roots"),
        ("def f(other):\n    return other.map._solve()", "._solve"),
    ],
)
def test_private_names_of_other_packages_are_found(source, found):
    geometry = "def distance(): ...\ndef _solve(self):\n    self._roots = 2"
    trees = {
        Path("geometry/_gaussians.py"): ast.parse(geometry),
        Path("alignment/_base.py"): ast.parse(source),
    }
    expected = set() if found is None else {f"alignment/_base.py: {found}"}
    assert private_names_of_other_packages(trees) == expected
