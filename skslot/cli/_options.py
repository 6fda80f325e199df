"""What several commands share: types of arguments, progress."""

import argparse
import sys


def positive_int(text):
    """A whole number of at least one."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return value


def show_progress(unit):
    """Callback ``(done, total)`` that counts on a terminal and is silent elsewhere."""

    def show(done, total):
        if sys.stderr.isatty():
            end = "\n" if done == total else ""
            print(f"\r{unit} {done} of {total}", end=end, file=sys.stderr, flush=True)

    return show
