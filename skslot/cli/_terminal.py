"""What users see on the terminal: progress, warnings and errors in one line each."""

import sys
import time
import unicodedata
import warnings
from collections import defaultdict
from contextlib import contextmanager


def show_progress(unit):
    """Callback ``(done, total)`` that counts on a terminal and is silent elsewhere.

    It tells the time left once something was done since the first call.
    """
    first = None

    def show(done, total):
        nonlocal first
        now = time.monotonic()
        first = first or (now, done)
        if not sys.stderr.isatty():
            return
        text = f"\r{unit} {done} of {total}"
        if first[1] < done < total:
            seconds = (now - first[0]) / (done - first[1]) * (total - done)
            text += f", about {seconds / 60:.0f} min {seconds % 60:.0f} s left"
        end = "\n" if done == total else ""
        print(f"{text:<60}", end=end, file=sys.stderr, flush=True)

    return show


def in_one_line(error):
    """An error in words: a file that cannot be opened is named first."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}."
    return " ".join(str(error).split())


@contextmanager
def plain_warnings():
    """Warnings for users as lines without a place in the code."""

    def show(message, *_):
        print(f"skslot: warning: {in_one_line(message)}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def warn_of_spellings(labels):
    """Labels that a person would take for the same are different classes.

    ``labels`` has pairs of a label and the client that it is of.
    """
    spellings = defaultdict(dict)
    for label, client in labels:
        plain = unicodedata.normalize("NFKC", str(label)).strip().casefold()
        spellings[plain].setdefault(label, client)
    for found in spellings.values():
        if len(found) > 1:
            texts = (f"{label!r} (client {client})" for label, client in found.items())
            warnings.warn(
                f"{' and '.join(texts)} are different classes; if they are the same, "
                "write the label alike at all sites and summarize again.",
                stacklevel=2,
            )
