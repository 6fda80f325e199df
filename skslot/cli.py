"""The ``skslot`` command: thin, one function per command."""

import argparse
import sys

from . import __version__


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
    """
    arguments = _parser().parse_args(argv)
    return arguments.run(arguments)


def _parser():
    parser = argparse.ArgumentParser(
        prog="skslot",
        description="One-shot federated learning by optimal-transport alignment.",
    )
    parser.add_argument("--version", action="version", version=f"skslot {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="show what alignment does, on embedded data",
        description="Show what alignment does, on embedded data: no download, no "
        "extra package, a few seconds.",
        epilog="example: skslot demo --partitions 3",
    )
    demo.add_argument(
        "--partitions",
        type=_positive_int,
        default=10,
        metavar="N",
        help="label-skewed partitions to average over (default: 10)",
    )
    demo.set_defaults(run=_demo)
    return parser


def _demo(arguments):
    from .experiments import run_demo  # scikit-learn takes a second: not for --help

    print(run_demo(arguments.partitions, progress=_show_progress))
    return 0


def _show_progress(done, total):
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\rpartition {done} of {total}", end=end, file=sys.stderr, flush=True)


def _positive_int(text):
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return value
