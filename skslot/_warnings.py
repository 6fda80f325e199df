"""Warnings that point at the user's line, however deep below it they arise."""

import sys
import warnings
from contextlib import contextmanager
from operator import is_

# What may stand between the user's line and ours.
OURS = {"skslot", "sklearn", "joblib"}
# What was told, and to whom: Python forgets it whenever its filters change, which they
# do in each fit of scikit-learn.
TOLD = {}


def warn_user(message, category=UserWarning):
    """Emit a warning from the innermost frame that is the user's.

    That is the first one outside of skslot, scikit-learn, joblib and the standard
    library, which runs threads and processes. In a thread or a process that has no such
    frame, it is the caller's. Where Python would show it once, it is once.
    """
    caller = frame = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    frame = frame or caller
    place = frame.f_code.co_filename, frame.f_lineno
    module = frame.f_globals.get("__name__", "<string>")
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    action = _action(message, category, module, frame.f_lineno)
    once_in = {"default": place, "module": place[:1], "once": ()}.get(action)
    if once_in is not None:
        told, listeners = (message, category, action, *once_in), (registry, _record())
        if told in TOLD and all(map(is_, listeners, TOLD[told])):
            return
        TOLD[told] = listeners
    warnings.warn_explicit(message, category, *place, module, registry)


@contextmanager
def ignored(category):
    """Ignore warnings of a category, where the caller knows or says it better."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield


def is_in_fold():
    """Whether the caller fits a fold of scikit-learn's cross-validation."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "sklearn.model_selection._validation":
            return True
        frame = frame.f_back
    return False


def _action(message, category, module, line):
    """What the first filter that fits says is to be done about a warning."""
    filters = getattr(warnings, "_get_filters", lambda: warnings.filters)  # since 3.14
    for action, text, kind, where, number in filters():
        if (
            _fits(text, message)
            and issubclass(category, kind)
            and _fits(where, module)
            and number in (0, line)
        ):
            return action
    return warnings.defaultaction


def _record():
    """The list of a block that records warnings, and None outside of one."""
    if getattr(sys.flags, "context_aware_warnings", False):  # since Python 3.14
        return warnings._get_context().log
    return getattr(warnings._showwarnmsg_impl, "__self__", None)


def _fits(pattern, text):
    """Whether a filter is about a text; those of Python itself have plain ones."""
    if pattern is None or isinstance(pattern, str):
        return pattern in (None, text)
    return pattern.match(text) is not None


def _is_ours(frame):
    # by python -m, as workers of joblib are run, a module is called __main__
    spec = frame.f_globals.get("__spec__")
    name = frame.f_globals.get("__name__", "") if spec is None else spec.name
    package = name.partition(".")[0]
    return package in OURS or package in sys.stdlib_module_names
