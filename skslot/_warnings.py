"""Warnings that point at the user's line, however deep below it they arise."""

import sys
import warnings
from contextlib import contextmanager

from ._text import shorten

# What may stand between the user's line and ours.
OURS = {"skslot", "sklearn", "joblib"}


def warn_user(message, category=UserWarning):
    """Emit a warning from the innermost frame that is the user's.

    That is the first one outside of skslot, scikit-learn, joblib and the standard
    library, which runs threads and processes. In a thread or a process that has no such
    frame, it is the caller's.
    """
    caller = frame = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    frame = frame or caller
    warnings.warn_explicit(
        message,
        category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=frame.f_globals.get("__name__", "<string>"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


@contextmanager
def ignored(category):
    """Ignore warnings of a category, where the caller knows or says it better."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield


def _is_ours(frame):
    # by python -m, as workers of joblib are run, a module is called __main__
    spec = frame.f_globals.get("__spec__")
    name = frame.f_globals.get("__name__", "") if spec is None else spec.name
    package = name.partition(".")[0]
    return package in OURS or package in sys.stdlib_module_names


def warn_of_lost_classes(labels):
    """Say which classes have no rows at any client once noise was added, if any."""
    if labels:
        warn_user(
            f"classes {shorten(labels)} were agreed on, but noise left no rows of them "
            "at any client, so that they are not learned: raise epsilon or collect "
            "more rows of them."
        )
