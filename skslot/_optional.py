"""Packages that are not always installed, imported when they are needed."""

from importlib import import_module
from importlib.util import find_spec

LEFT_OUT = '{} is left out: it needs pip install "skslot[torch]".'


def can_train_nets():
    """Whether what FedAvg needs is installed."""
    return all(find_spec(package) for package in ("torch", "skorch"))


def import_optional(module, extra, purpose):
    """Import a module that an extra of skslot installs.

    Without it, an ``ImportError`` says what needs it (``purpose``, which begins the
    sentence) and how it is installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{purpose} needs {package}, which is missing or broken ({error}). Install "
            f'it with: pip install "skslot[{extra}]"'
        ) from error
