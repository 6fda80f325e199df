"""Entry of the command line: which commands there are, and how they fail."""

import argparse
import sys
from functools import cache
from importlib import import_module

from .. import __version__
from ._arguments import Command
from ._terminal import (
    any_characters,
    give_up_printing,
    in_one_line,
    is_about_printing,
)

# One module each, in the order of the help.
COMMANDS = (
    "demo encode bench report diagnose plan summarize aggregate align predict adapt "
    "inspect"
).split()
# Options that may be repeated.
ONE_NAME_EACH = ("ignore", "id_column")


def main(argv=None):
    """Run the command line.

    Parameters
    ----------
    argv : list of str, default=None
        Arguments; those of the process by default.

    Returns
    -------
    code : int
        Exit code, 0 on success.

    Examples
    --------
    >>> from skslot.cli import main
    >>> main(["demo", "--partitions", "0"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    with any_characters():
        arguments = _parse(argv)
        try:
            arguments.run(arguments)
            sys.stdout.flush()
        except (ValueError, OSError, ImportError, MemoryError) as error:
            if is_about_printing(error):
                give_up_printing()
            if arguments.debug:
                raise
            print(f"skslot: error: {in_one_line(error)}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("skslot: interrupted", file=sys.stderr)
            return 130
        return 0


def _parse(argv):
    """Arguments; names that are too many get a word on how to give several."""
    parser = _parser()
    arguments, strangers = parser.parse_known_args(argv)
    are_names = any(not each.startswith("-") for each in strangers)
    used = [name for name in ONE_NAME_EACH if getattr(arguments, name, None)]
    if are_names and used:
        option = f"--{used[0].replace('_', '-')}"
        how = f"takes one name and may be repeated: {option} a {option} b"
        strangers += [f"({option} {how})"]
    if strangers:
        parser.error(f"unrecognized arguments: {' '.join(strangers)}")
    return arguments


@cache
def _parser():
    parser = argparse.ArgumentParser(
        prog="skslot",
        description="One-shot federated learning by optimal-transport alignment.",
    )
    parser.add_argument("--version", action="version", version=f"skslot {__version__}")
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", parser_class=Command
    )
    for name in COMMANDS:
        import_module(f"._{name}", __package__).add_commands(commands)
    for command in commands.choices.values():
        command.add_argument(
            "--quiet", action="store_true", help="show no progress on the terminal"
        )
        command.add_argument(
            "--debug", action="store_true", help="show the traceback of an error"
        )
    return parser
