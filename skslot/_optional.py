"""Packages that are not always installed, imported when they are needed."""

from importlib import import_module


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
