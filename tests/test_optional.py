"""What a user reads when a package of an extra is missing."""

import math
import sys

import pytest

from skslot._utils import import_optional


def test_module_is_imported_when_it_is_there():
    assert import_optional("math", "plot", "a picture") is math


def test_error_names_purpose_package_and_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError,
        match=r'^a picture needs matplotlib, .*: pip install "skslot\[plot\]"$',
    ) as failure:
        import_optional("matplotlib.pyplot", "plot", "a picture")
    assert isinstance(failure.value.__cause__, ImportError)
