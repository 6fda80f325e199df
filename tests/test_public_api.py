"""The public doors: what is behind them, and what opening them loads."""

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys

import pytest

import skslot

MODULES = ["skslot"] + [
    f"skslot.{info.name}"
    for info in pkgutil.iter_modules(skslot.__path__)
    if info.ispkg and not info.name.startswith("_")
]
HEAVY = "torch open_clip flwr matplotlib pandas polars skorch opendp".split()


@pytest.mark.parametrize("module", MODULES)
def test_every_listed_name_exists(module):
    module = importlib.import_module(module)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("module", MODULES)
def test_listed_names_are_sorted_and_unique(module):
    names = importlib.import_module(module).__all__
    assert names == sorted(set(names))


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_listed(module):
    module = importlib.import_module(module)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public <= set(module.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_star_import_gives_the_listed_names(module):
    namespace = {}
    exec(f"from {module} import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(
        importlib.import_module(module).__all__
    )


@pytest.mark.parametrize("module", MODULES[1:])
def test_implementation_files_are_private(module):
    package = importlib.import_module(module)
    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    assert [name for name in names if not name.startswith("_")] == []


@pytest.mark.parametrize("module", MODULES)
def test_public_objects_have_one_home(module):
    """Classes and functions are defined below the module that offers them."""
    package = importlib.import_module(module)
    for name in package.__all__:
        home = getattr(getattr(package, name), "__module__", module)
        assert home.startswith(module), name


@pytest.mark.parametrize("module", MODULES)
def test_module_says_what_it_is_for(module):
    assert importlib.import_module(module).__doc__


def test_version_is_a_string():
    assert isinstance(skslot.__version__, str)


def test_import_loads_no_optional_dependency():
    """Beyond those that scikit-learn itself loads when they are installed."""
    code = f"""
import json, sys, sklearn.base
before = set(sys.modules)
import {", ".join(MODULES)}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    loaded = json.loads(result.stdout)
    assert "skslot.alignment" in loaded
    assert [name for name in HEAVY if name in loaded] == []
    assert result.stderr == ""


def test_import_of_the_package_loads_no_estimator():
    code = "import sys, skslot; print('sklearn' in sys.modules, dir(skslot))"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("False")
    assert "FederatedOTAligner" in result.stdout


def test_a_server_loads_no_estimator_of_scikit_learn():
    """They take 15 MB and half a second, and most servers make none."""
    code = """
import sys
from skslot import FedCGSClassifier, FederatedOTAligner, MixedEffectsClassifier
print([name for name in ("cluster", "linear_model", "mixture", "neighbors")
       if f"sklearn.{name}" in sys.modules])
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_subpackages_are_attributes_that_are_loaded_when_asked_for():
    """Flower too, without loading flwr: the test above says that no import does."""
    names = [module.removeprefix("skslot.") for module in MODULES[1:]]
    code = f"""
import sys, skslot
print([name for name in sys.modules if name.startswith("skslot.")])
print(set({names}) - set(dir(skslot)))
print([getattr(skslot, name).__name__ for name in {names}] == {MODULES[1:]})
print("flwr" in sys.modules)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["[]", "set()", "True", "False"]


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'FedNothing'"):
        _ = skslot.FedNothing
