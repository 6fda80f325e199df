"""The ``skslot`` command: parser, shared options, errors, progress and output files.

The parser is argparse's: click would be one more dependency, and declare each option in
as many lines.
"""

import argparse
import errno
import inspect
import os
import sys
import textwrap
import time
import warnings
from collections import Counter
from contextlib import contextmanager, suppress
from functools import cache
from glob import glob, has_magic
from importlib import import_module
from math import isfinite
from pathlib import Path

import numpy as np

from .. import __version__
from .._atomic import atomic_output, outputs_together, refuse_other_than_files
from .._methods import FILE_METHODS, make_classifier
from .._utils import column_differences, plain_name, printable, short, spelled_alike

# Each has a function add_commands, in the order of the help.
MODULES = ("_study", "_data", "_site", "_server")
# Settings of the aligner in a classifier.
OF_ALIGNER = ("tau", "shrinkage", "n_jobs", "verbose")


def main(argv=None):
    """Run the command line.

    Parameters
    ----------
    argv : list of str, default=None
        Arguments. If None, the arguments of the process.

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
            if _is_about_printing(error):
                # nothing else can be printed either
                with suppress(OSError), open(os.devnull, "wb") as nowhere:
                    os.dup2(nowhere.fileno(), sys.stdout.fileno())
            if arguments.debug:
                raise
            print(f"skslot: error: {in_one_line(error)}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("skslot: interrupted", file=sys.stderr)
            return 130
        return 0


def make_estimator(method, **settings):
    """Make the classifier that ``--method`` names, or the aligner if it is None.

    Settings that are None, or that are not parameters of the classifier, have no
    effect.
    """
    from .. import FederatedOTAligner

    if method is None:
        return _configured(FederatedOTAligner(), settings)
    inner = {name: settings[name] for name in OF_ALIGNER if name in settings}
    aligner = _configured(FederatedOTAligner(), inner)
    settings = settings | {"aligner": aligner, "shrinkage": None}
    return _configured(make_classifier(method), settings)


def _configured(estimator, settings):
    known = estimator.get_params(deep=False)
    settings = {name: value for name, value in settings.items() if name in known}
    given = {name: value for name, value in settings.items() if value is not None}
    return estimator.set_params(**given)


# ------------------------------------------------------------------ types of options


def whole_number(text):
    """Convert a whole number of at least zero."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def positive_int(text):
    """Convert a whole number of at least one."""
    if whole_number(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def client_name(text):
    """Convert the name of a site, however its accents were typed."""
    name = plain_name(text)
    if not name:
        raise argparse.ArgumentTypeError("the name of a site must not be empty")
    return name


def number_or(*names, least=float("-inf"), most=float("inf")):
    """Make the type of an option that is a finite number or one of some names."""

    def convert(text):
        if text in names:
            return text
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (isfinite(value) and least <= value <= most):
            interval = "" if most == float("inf") else f" from {least} to {most}"
            allowed = " or ".join([f"a number{interval}", *names])
            raise argparse.ArgumentTypeError(f"{text!r} is not {allowed}")
        return value

    return convert


def fraction_or(*names):
    """Make the type of an option that is a number from 0 to 1 or one of some names."""
    return number_or(*names, least=0, most=1)


# ------------------------------------------------------------------ shared options

FEATURES = (
    "features as .npz, .npy or .csv, or as .parquet or .feather (pip install "
    '"skslot[tables]")'
)
REPEATABLE = ("ignore", "id_column")


def _path(metavar, text, **settings):
    return {"type": Path, "metavar": metavar, "help": text, **settings}


def _column(text, **settings):
    return {"metavar": "COLUMN", "help": text, **settings}


def _flag(text):
    return {"action": "store_true", "help": text}


SHARED = {
    "features": _path("FILE", f"File with {FEATURES}."),
    "--features": _column(
        "Feature columns of a table, in this order: names or quoted patterns (default: "
        "all columns without another role).",
        dest="feature_columns",
        action="extend",
        nargs="+",
    ),
    "--id-column": _column(
        "Column that identifies rows (repeatable). It is never sent, and written next "
        "to predictions.",
        action="append",
        default=[],
    ),
    "--client-column": _column(
        "Column or array with the site of each row (default: client, if there is one)."
    ),
    "--ignore": _column("Exclude a column (repeatable).", action="append", default=[]),
    "--encoder": {
        "metavar": "TEXT",
        "help": "Name of what made the features, the same at all sites (default: the "
        "fingerprint in the file, or the names of the columns).",
    },
    "--plan": _path("FILE.toml", "Plan of the study, which defines the features."),
    "--model": _path("FILE.slot", "Model of all sites.", required=True),
    "--client": {
        "type": client_name,
        "metavar": "NAME",
        "help": "Name of the site; only its rows are used if the file names sites.",
    },
    "--statistics": _path(
        "FILE.slot",
        "Message that this site had sent (default: estimate the alignment from the "
        "rows).",
    ),
    "--shrinkage": {
        "type": fraction_or("ledoit_wolf", "oas"),
        "default": "ledoit_wolf",
        "metavar": "S",
        "help": "Weight of the identity in the covariance: ledoit_wolf, oas or a "
        "number from 0 to 1 (default: %(default)s).",
    },
    "--method": {"choices": FILE_METHODS},
    "--tau": {"type": fraction_or("auto"), "metavar": "TAU"},
    "--screen": {
        "choices": ("warn", "exclude", "none"),
        "default": "warn",
        "help": "How to handle sites whose statistics are implausible compared with "
        "all others (default: %(default)s).",
    },
    "--dtype": {
        "choices": ("float64", "float32", "float16"),
        "default": "float32",
        "help": "Precision of the numbers in the file (default: %(default)s).",
    },
    "--min-samples": {"type": positive_int, "metavar": "N"},
    "--force": _flag("Overwrite existing files."),
    "--quiet": _flag("Show no progress."),
    "--debug": _flag("Show the traceback of an error."),
}


class Command(argparse.ArgumentParser):
    """Parser of one command."""

    def share(self, *flags, **changes):
        """Add options that several commands have, with changes to all of them."""
        for flag in flags:
            self.add_argument(flag, **SHARED[flag] | changes)

    def add_path(self, flag, metavar, text, **settings):
        """Add an option that is a file or a folder."""
        self.add_argument(flag, **_path(metavar, text, **settings))

    def add_flag(self, flag, text):
        """Add an option without a value."""
        self.add_argument(flag, **_flag(text))

    def add_choice(self, flag, choices, text):
        """Add an option with a few values, the first of which is the default."""
        text += " (default: %(default)s)."
        self.add_argument(flag, choices=choices, default=choices[0], help=text)

    def add_columns(self, features="--features", labels="y, if there is one"):
        """Add the options on columns: the name of one, and the default of another."""
        self.add_argument(features, **SHARED["--features"])
        self.share("--id-column", "--client-column", "--ignore")
        text = f"Column or array with labels; y without a name (default: {labels})."
        group = self.add_mutually_exclusive_group()
        group.add_argument("--labels", nargs="?", const="y", **_column(text))
        group.add_argument(
            "--labels-file",
            metavar="FILE",
            help="Separate file with labels: .npy, or text with one label per line.",
        )

    def add_either(self, *flags):
        """Add shared options that exclude each other."""
        group = self.add_mutually_exclusive_group()
        for flag in flags:
            group.add_argument(flag, **SHARED[flag])

    def add_output(self, metavar, text, required=True):
        """Add the option for the output, and the option to overwrite it."""
        self.add_argument("-o", "--output", required=required, **_path(metavar, text))
        self.share("--force")

    def add_count(self, flag, default, text):
        """Add an option that is a whole number of at least one."""
        text += " (default: %(default)s)."
        self.add_argument(
            flag, type=positive_int, default=default, metavar="N", help=text
        )


def add_command(commands, run):
    """Add a command named after the function that runs it.

    The docstring of the function is the help: a summary, paragraphs and an example.
    """
    summary, *more, example = inspect.getdoc(run).split("\n\n")
    command = commands.add_parser(
        run.__name__,
        help=summary[0].lower() + summary[1:].rstrip("."),
        description=" ".join([summary, *more]),
        epilog=example,
    )
    command.set_defaults(run=run)
    return command


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
    for name in MODULES:
        import_module(f".{name}", __package__).add_commands(commands)
    for command in commands.choices.values():
        command.share("--quiet", "--debug")
    return parser


def _parse(argv):
    """Parse the arguments; a second name after a repeatable option gets a hint."""
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown and not all(each.startswith("-") for each in unknown):
        for name in REPEATABLE:
            if getattr(arguments, name, None):
                option = option_of(name)
                how = f"takes one name and may be repeated: {option} a {option} b"
                unknown.append(f"({option} {how})")
                break
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return arguments


def option_of(parameter):
    """Return the option that sets a parameter."""
    return f"--{parameter.replace('_', '-')}"


def named_files(names):
    """List the files named; patterns are resolved here, as not all shells do it."""
    paths = []
    for name in names:
        is_pattern = has_magic(name) and not Path(name).exists()
        paths += map(Path, sorted(glob(name)) if is_pattern else [name])
    for path, count in Counter(paths).items():
        if count > 1:
            raise ValueError(f"{path} is named twice, directly or by a pattern.")
    if not paths:
        raise ValueError(f"no file matches {' '.join(names)}.")
    return paths


def screen_of(arguments):
    """Return the parameter that --screen and --max-share set."""
    from ..trust import ClientScreen

    action = None if arguments.screen == "none" else arguments.screen
    return ClientScreen(action, getattr(arguments, "max_share", None))


# ------------------------------------------------------------------ errors, warnings

# Errors of the system if a pipe or a disk takes no more.
NO_TAKERS = {errno.EPIPE, errno.ENOSPC, errno.EFBIG}
# What to do about messages that disagree in a trait.
REMEDIES = {
    "encoder": "Summarize all with the same columns (--features, --ignore, "
    "--id-column), the same --encoder, or the same --plan.",
    "kind of labels": "Write labels alike at all sites and summarize again.",
}
INSTEAD_OF_ALIGNMENT = (
    "If all sites sent labels, use --tau auto or mixed effects, the default of skslot "
    "summarize and aggregate; or run skslot diagnose."
)


def in_one_line(error):
    """Describe an error or a warning, with the options that resolve it."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}."
    elif _is_about_printing(error):
        text = f"the standard output: {error.strerror}."
    elif isinstance(error, MemoryError):
        text = f"not enough memory. {text} Fewer rows or features take less."
    elif getattr(error, "parameter", None):
        text += f" (option {option_of(error.parameter)})"
    elif getattr(error, "small_groups", None):
        text += " (options --drop-small-classes and --min-samples)"
    elif getattr(error, "disagreement", None) and error.path is not None:
        text = _disagreement(error.path, *error.disagreement)
    return printable(" ".join(text.split()))


def _disagreement(path, trait, value, other_value, other):
    """Describe how two files differ that should agree."""
    from ..exchange import fingerprint_names

    values = f"{short(value)} in {path} and {short(other_value)} in {other.path}"
    text = f"{trait} is {values}"
    if trait == "encoder":
        names = map(fingerprint_names, (value, other_value))
        differences = column_differences(*names, other.path)
        text = text if differences is None else f"{path} {differences}"
    return f"{text}. {REMEDIES.get(trait, '')}"


def _is_about_printing(error):
    """Whether an error is about the standard output; errors on files name them."""
    is_unnamed = isinstance(error, OSError) and error.filename is None
    return is_unnamed and error.errno in NO_TAKERS


@contextmanager
def plain_warnings():
    """Print each warning once, in one line without a place in the code."""
    from ..alignment import AlignmentWarning

    shown = set()

    def show(message, category, *_):
        if issubclass(category, DeprecationWarning):  # not for users
            return
        text = in_one_line(message)
        if isinstance(message, AlignmentWarning):
            text = f"{message.reason}. {INSTEAD_OF_ALIGNMENT}"
        line = f"skslot: warning: {text}"
        if line not in shown:
            shown.add(line)
            print(line, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def warn_of_spellings(labels):
    """Warn about different labels that look like the same class.

    ``labels`` are pairs of a label and its client.
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


# ------------------------------------------------------------------ terminal


@contextmanager
def any_characters():
    """Print characters that the terminal lacks as Python writes them."""
    streams = [s for s in (sys.stdout, sys.stderr) if hasattr(s, "reconfigure")]
    before = [stream.errors for stream in streams]
    for stream in streams:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            with suppress(OSError):  # it takes no more, which was reported already
                stream.reconfigure(errors=errors)


SECONDS_BETWEEN_LINES = 2


def shows_progress(arguments):
    """Whether there is a terminal to show progress on, without --quiet."""
    return sys.stderr.isatty() and not arguments.quiet


def show_progress(unit, arguments):
    """Make a callback ``(done, total, now="")`` that counts on a terminal.

    It shows a bar if tqdm is installed, and otherwise a line every few seconds.
    ``now`` is what is done next.
    """
    if not shows_progress(arguments):
        return lambda done, total, now="": None
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    bar, last = None, float("-inf")

    def show_bar(done, total, now=""):
        nonlocal bar
        if bar is None:
            bar = tqdm(total=total, desc=unit, file=sys.stderr, initial=done)
        bar.set_postfix_str(now, refresh=False)
        bar.update(done - bar.n)
        bar.refresh()
        if done == total:
            bar.close()

    def show_line(done, total, now=""):
        nonlocal last
        if time.monotonic() - last > SECONDS_BETWEEN_LINES or done == total:
            last = time.monotonic()
            text = f"{unit} {done} of {total}{now and ', '}{now}"
            print(text, file=sys.stderr, flush=True)

    return show_line if tqdm is None else show_bar


def print_list(what, names):
    """Print all names, on as many lines as they need."""
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


# ------------------------------------------------------------------ output files


def refuse_overwrite(path, force=False, inputs=()):
    """Refuse a path that cannot be written or, without ``force``, exists.

    Inputs are never overwritten: ``inputs`` are paths, or None for those that were not
    given. Commands call this function before the work.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"the folder {path.parent} for {path.name} does not exist; create it first."
        )
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(
            f"the folder {path.parent} for {path.name} cannot be written to; choose "
            "another one, or ask for the right to write there."
        )
    for source in inputs:
        both_exist = source is not None and path.exists() and Path(source).exists()
        if both_exist and path.samefile(source):
            raise ValueError(
                f"{path} is read as an input and would be overwritten; choose another "
                "name for the output."
            )
    refuse_other_than_files(path)
    if path.exists() and not force:
        raise FileExistsError(
            f"{path} exists already; choose another name, or overwrite it with --force."
        )


def refuse_output(arguments, *inputs, suffix=None):
    """Refuse an output that exists, is one of the inputs, or has another suffix."""
    output = arguments.output
    if suffix is not None and output.suffix != suffix:
        raise ValueError(
            f"the name of the output must end in {suffix}, not {output.name}."
        )
    names = ("features", "labels_file", "plan", "model", "statistics", "reference")
    inputs += tuple(getattr(arguments, name, None) for name in names)
    refuse_overwrite(output, arguments.force, inputs)


def refuse_twins(outputs):
    """Refuse two outputs that are the same file."""
    places = [path.resolve() for path in outputs]
    for path, place in zip(outputs, places, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"{path} cannot be two outputs at once.")


def writing(arguments):
    """Open a block that writes all outputs of a command, or none.

    Without ``--force``, a file that exists at the end of the block is an error, even if
    it did not exist when :func:`refuse_overwrite` looked.
    """
    return outputs_together(replace=arguments.force)


def write_npz_atomically(path, arrays):
    """Write a dict of arrays that can be read without pickle."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, which are not written.")
    with atomic_output(path, private=True) as file:
        np.savez(file, **arrays)


def announce(path, what):
    """Print that a file was written."""
    print(f"wrote {printable(path)}, {path.stat().st_size:,} bytes: {what}")
