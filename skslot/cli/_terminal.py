"""What users see on the terminal: progress, warnings and errors in one line each."""

import errno
import os
import re
import sys
import textwrap
import time
import warnings
from contextlib import contextmanager, suppress

from .._utils import printable, spelled_alike

# What the system says of a pipe or a disk that takes no more.
NO_TAKERS = {errno.EPIPE, errno.ENOSPC, errno.EFBIG}
# Parameters of estimators that are options of commands, as texts for users have them.
PARAMETER = re.compile(r"\b(priors|tau)='(\w+)'")
SCREEN = re.compile(r"\bscreen=(None|'warn'|'exclude')")
# What --outliers may be, and the action of a ClientScreen that each stands for.
ACTIONS = {"warn": "warn", "leave_out": "exclude", "ignore": None}


# What a command can do where alignment is likely to cost accuracy.
INSTEAD_OF_ALIGNMENT = (
    "Where all sites sent labels, give --tau auto, or take mixed effects, the default "
    "of skslot summarize and aggregate; or ask skslot diagnose."
)


@contextmanager
def any_characters():
    """Terminals that lack a character show it as Python writes it."""
    streams = [s for s in (sys.stdout, sys.stderr) if hasattr(s, "reconfigure")]
    before = [stream.errors for stream in streams]
    for stream in streams:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            with suppress(OSError):  # it takes no more, which was said already
                stream.reconfigure(errors=errors)


def give_up_printing():
    """Let what is still to be printed go nowhere, once it cannot be printed."""
    with suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def is_about_printing(error):
    """Whether an error is of the standard output: those of files name them."""
    is_unnamed = isinstance(error, OSError) and error.filename is None
    return is_unnamed and error.errno in NO_TAKERS


SECONDS_BETWEEN_LINES = 2


def shows_progress(arguments):
    """Whether there is a terminal to show progress on, and nobody wants quiet."""
    return sys.stderr.isatty() and not arguments.quiet


def show_progress(unit, arguments):
    """Callback ``(done, total)`` that counts on a terminal and is silent elsewhere.

    A bar where tqdm is installed, else a line for each count that comes some seconds
    after the one before. A third argument is what is done next.
    """
    if not shows_progress(arguments):
        return lambda done, total, now="": None
    try:
        from tqdm import tqdm
    except ImportError:
        return _lines_of_progress(unit)
    bar = None

    def show(done, total, now=""):
        nonlocal bar
        if bar is None:
            bar = tqdm(total=total, desc=unit, file=sys.stderr, initial=done)
        bar.set_postfix_str(now, refresh=False)
        bar.update(done - bar.n)
        bar.refresh()
        if done == total:
            bar.close()

    return show


def _lines_of_progress(unit):
    last = float("-inf")

    def show(done, total, now=""):
        nonlocal last
        if time.monotonic() - last > SECONDS_BETWEEN_LINES or done == total:
            last = time.monotonic()
            text = f"{unit} {done} of {total}{now and ', '}{now}"
            print(text, file=sys.stderr, flush=True)

    return show


def in_one_line(error):
    """An error in words: a file that cannot be opened is named first."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}."
    elif is_about_printing(error):
        text = f"the standard output: {error.strerror}."
    elif isinstance(error, MemoryError):
        text = f"not enough memory. {text} Fewer rows or features take less."
    return printable(in_options(" ".join(text.split())))


def in_options(text):
    """What is to be set, as options of a command in place of Python's parameters."""
    text = PARAMETER.sub(r"--\1 \2", text)
    options = {repr(action): option for option, action in ACTIONS.items()}
    text = SCREEN.sub(lambda found: f"--outliers {options[found[1]]}", text)
    text = re.sub(r"\bmax_share=", "--max-client-share ", text)
    text = re.sub(r"\bmax_share\b", "--max-client-share", text)
    return text.replace("set --", "give --")


def print_list(what, names):
    """Print all of some names, on as many lines as they need."""
    text = f"{what}: {', '.join(map(printable, names))}"
    print(
        textwrap.fill(
            text,
            width=88,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


@contextmanager
def plain_warnings():
    """Warnings for users as lines without a place in the code, once each."""
    shown = set()

    def show(message, category, *_):
        if issubclass(category, DeprecationWarning):  # not for users
            return
        text = in_one_line(message)
        if category.__module__.startswith("skslot.alignment"):
            from ..alignment import AlignmentWarning

            text = text.replace(
                in_options(AlignmentWarning.remedy), INSTEAD_OF_ALIGNMENT
            )
        line = f"skslot: warning: {text}"
        if line not in shown:
            shown.add(line)
            print(line, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def warn_of_spellings(labels):
    """Labels that a person would take for the same are different classes.

    ``labels`` has pairs of a label and the client that it is of.
    """
    clients = {}
    for label, client in labels:
        clients.setdefault(label, client)
    for found in spelled_alike(clients):
        texts = (f"{label!r} (client {clients[label]})" for label in found)
        warnings.warn(
            f"{' and '.join(texts)} are different classes; if they are the same, write "
            "the label alike at all sites and summarize again.",
            stacklevel=2,
        )
