"""Docstrings of everything public, by the rules of numpydoc."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections import Counter
from functools import cached_property
from pkgutil import resolve_name
from textwrap import dedent

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import skslot
from skslot._docstrings import SHARED, document
from skslot.base import FederatedEstimator
from skslot.utils import all_estimators

# What this project does otherwise on purpose.
IGNORED = {
    "GL01",  # text starts on the line after the quotes
    "ES01",  # no extended summary
    "RT02",  # named return values are preferred
    "SA01",  # no See Also
    "SS05",  # takes any first word with a final s, such as "Moments", for a verb
}
# The example of a class shows its methods and properties.
IGNORED_IN_MEMBERS = IGNORED | {"EX01"}


def public_names():
    """Import paths of public classes and functions."""
    for info in pkgutil.iter_modules(skslot.__path__):
        if info.ispkg and not info.name.startswith("_"):
            module = importlib.import_module(f"skslot.{info.name}")
            yield from (f"{module.__name__}.{name}" for name in module.__all__)


def leaves_docstring_to_base(item, name):
    """Whether a member has no docstring of its own, but that of a base class."""
    docs = [vars(base)[name].__doc__ for base in item.__mro__ if name in vars(base)]
    return not docs[0] and any(docs)


def public_members(path):
    """Import paths of methods and properties that are defined in skslot, by origin."""
    module, name = path.rsplit(".", 1)
    item = getattr(importlib.import_module(module), name)
    if not inspect.isclass(item):
        return
    for name, member in inspect.getmembers_static(item):
        owner = next(base for base in item.__mro__ if name in vars(base))
        is_property = isinstance(member, property | cached_property)
        if (
            not name.startswith("_")
            and not leaves_docstring_to_base(item, name)
            and owner.__module__.startswith("skslot")
            and (is_property or callable(getattr(item, name)))
        ):
            yield (owner, name), f"{path}.{name}"


NAMES = sorted(public_names())
# one path for each: subclasses inherit docstrings
MEMBERS = dict(member for name in reversed(NAMES) for member in public_members(name))


def complaints(path, ignored):
    errors = validate(path)["errors"]
    return [f"{code}: {text}" for code, text in errors if code not in ignored]


@pytest.mark.parametrize("path", NAMES)
def test_docstring_of_class_or_function(path):
    assert complaints(path, IGNORED) == []


@pytest.mark.parametrize("path", sorted(MEMBERS.values()))
def test_docstring_of_method_or_property(path):
    assert complaints(path, IGNORED_IN_MEMBERS) == []


@pytest.mark.parametrize(
    "path",
    [
        "skslot.alignment.FederatedOTAligner.client_map",
        "skslot.alignment.FederatedOTAligner.reference_mean_",
        "skslot.alignment.TransportMap.identity",
        "skslot.alignment.TransportMap.affine",
        "skslot.statistics.FeatureMoments.merge",
    ],
)
def test_methods_and_properties_are_found(path):
    assert path in MEMBERS.values()


# ------------------------------------------------------ what estimators share


ESTIMATORS = [estimator for _, estimator in all_estimators()]


def entries(docstring):
    """Parameters and attributes in a docstring: name to (type, description)."""
    parsed = NumpyDocString(docstring)
    listed = parsed["Parameters"] + parsed["Attributes"]
    return {name: (kind, " ".join(description)) for name, kind, description in listed}


def written_docstrings(estimator):
    """Docstrings of a class and its methods as they are in the source."""
    tree = ast.parse(dedent(inspect.getsource(estimator))).body[0]
    members = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    return [text for each in (tree, *members) if (text := ast.get_docstring(each))]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_shared_entries_are_inserted(estimator):
    named = set(re.findall(r"^\{(\w+)\}$", written_docstrings(estimator)[0], re.M))
    shown = entries(inspect.getdoc(estimator))
    for name in named:
        kind, description = entries(f"A.\n\nParameters\n----------\n{SHARED[name]}")[
            name
        ]
        assert shown[name][0] == kind
        assert shown[name][1].startswith(description)
    assert named or not issubclass(estimator, FederatedEstimator)


def test_no_docstring_shows_a_placeholder():
    for path in [*NAMES, *MEMBERS.values()]:
        assert not re.search(r"^ *\{\w+\}$", resolve_name(path).__doc__ or "", re.M)


def test_no_entry_is_written_for_two_estimators():
    written = [
        (name, *entry)
        for estimator in ESTIMATORS
        for name, entry in entries(written_docstrings(estimator)[0]).items()
        if not name.startswith("{")
    ]
    assert [entry for entry, times in Counter(written).items() if times > 1] == []


def test_classes_without_docstrings_are_left_as_they_are():
    """As with python -OO."""

    class Bare:
        def method(self):
            pass

    assert document(Bare).__doc__ is None
