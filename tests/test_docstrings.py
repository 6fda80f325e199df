"""Docstrings of everything public, by the rules of numpydoc."""

import importlib
import inspect
import pkgutil
from functools import cached_property

import pytest
from numpydoc.validate import validate

import skslot

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
    """Import paths of methods and properties that are defined in skslot."""
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
            yield f"{path}.{name}"


NAMES = sorted(public_names())
MEMBERS = {member for name in NAMES for member in public_members(name)}


def complaints(path, ignored):
    errors = validate(path)["errors"]
    return [f"{code}: {text}" for code, text in errors if code not in ignored]


@pytest.mark.parametrize("path", NAMES)
def test_docstring_of_class_or_function(path):
    assert complaints(path, IGNORED) == []


@pytest.mark.parametrize("path", sorted(MEMBERS))
def test_docstring_of_method_or_property(path):
    assert complaints(path, IGNORED_IN_MEMBERS) == []


@pytest.mark.parametrize(
    "path",
    [
        "skslot.alignment.FederatedOTAligner.fit",
        "skslot.alignment.FederatedOTAligner.reference_mean_",
        "skslot.alignment.TransportMap.identity",
        "skslot.alignment.TransportMap.affine",
        "skslot.statistics.FeatureMoments.merge",
    ],
)
def test_methods_and_properties_are_found(path):
    assert path in MEMBERS
