"""What several commands share: types of arguments, progress."""

import argparse
import sys
import time
import unicodedata


def positive_int(text):
    """A whole number of at least one."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return value


def natural_number(text):
    """A whole number of at least zero."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def client_name(text):
    """Type of an argument: the name of a site, the same however it was typed."""
    name = plain_name(text)
    if not name:
        raise argparse.ArgumentTypeError("the name of a site must not be empty")
    return name


def plain_name(text):
    """A name without spaces around it, in one of the ways to write its accents."""
    return unicodedata.normalize("NFC", text).strip()


def fraction_or(*names):
    """Type of an argument: a number from 0 to 1, or one of some names."""

    def convert(text):
        if text in names:
            return text
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            allowed = " or ".join(["a number from 0 to 1", *names])
            raise argparse.ArgumentTypeError(f"{text!r} is not {allowed}")
        return value

    return convert


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
