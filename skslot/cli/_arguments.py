"""Arguments of commands: their types, and options that several commands share."""

import argparse
import inspect
from collections import Counter
from glob import glob, has_magic
from math import isfinite
from pathlib import Path

from .._utils import plain_name, warn_user
from ._plans import plan_of_all_sites, site_plan
from ._terminal import ACTIONS, plain_warnings

FEATURES = (
    ".npz file with X (such as skslot encode writes), .npy file, or a table with a "
    "column for each feature: .csv, or .parquet and .feather (pip install "
    '"skslot[tables]")'
)
COLUMNS = ("labels", "labels_file", "ignore", "id_column", "client_column")


def add_command(commands, run):
    """Add a command of the name of the function that runs it.

    The docstring of the function is the help: what the list of commands says, more
    about it, and at the end an example.
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
    """The name of a site, the same however it was typed."""
    name = plain_name(text)
    if not name:
        raise argparse.ArgumentTypeError("the name of a site must not be empty")
    return name


def fraction_or(*names):
    """Type of an argument: a number from 0 to 1, or one of some names."""
    return _number_or(names, "a number from 0 to 1", lambda value: 0 <= value <= 1)


def screen_of(arguments):
    """The ``screen`` parameter that --outliers and --max-client-share set."""
    from ..trust import ClientScreen

    max_share = getattr(arguments, "max_client_share", None)
    return ClientScreen(ACTIONS[arguments.outliers], max_share)


def number_or(*names):
    """Type of an argument: a number, or one of some names."""
    return _number_or(names, "a number", isfinite)


def _number_or(names, what, is_right):
    def convert(text):
        if text in names:
            return text
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not is_right(value):
            allowed = " or ".join([what, *names])
            raise argparse.ArgumentTypeError(f"{text!r} is not {allowed}")
        return value

    return convert


class Command(argparse.ArgumentParser):
    """Parser of one command, with the options that several commands share."""

    def add_count(self, flag, default, text):
        """A number of something, at least one."""
        text += " (default: %(default)s)"
        self.add_argument(
            flag, type=positive_int, default=default, metavar="N", help=text
        )

    def add_features(self):
        """The file of features of a site."""
        group = self.add_argument_group("features")
        group.add_argument("features", type=Path, metavar="FILE", help=FEATURES)
        self.add_columns(group)
        group.add_argument(
            "--encoder",
            metavar="TEXT",
            help="what made the features, if no fingerprint in the file says it; must "
            "be the same at all sites (default: that fingerprint, or the names of the "
            "columns)",
        )
        self.add_plan(group)

    def add_rows_of_sites(self):
        """Which columns of a file with the rows of all sites are what."""
        self.add_columns(default=", and by default if there is one")
        self.add_plan(self)

    def add_plan(self, group):
        """The plan that a table is read by."""
        group.add_argument(
            "--plan",
            type=Path,
            metavar="FILE.toml",
            help="what skslot plan wrote: which columns of a table are features, and "
            "what is made of them; the same at all sites",
        )

    def add_columns(self, group=None, default="", features="--features"):
        """Which columns of a file are features, and what the others are."""
        group = self if group is None else group
        self.add_choice(group, features)
        labels = group.add_mutually_exclusive_group()
        labels.add_argument(
            "--labels",
            nargs="?",
            const="y",
            metavar="COLUMN",
            help=f"column or array with the labels (y if no name is given{default})",
        )
        labels.add_argument(
            "--labels-file",
            metavar="FILE",
            help="labels in a file of their own: .npy, or text with one per line",
        )

    def add_choice(self, group, features="--features"):
        """Which columns of a table are features, and which are none."""
        group.add_argument(
            features,
            dest="feature_columns",
            action="extend",
            nargs="+",
            metavar="COLUMN",
            help="columns of a table that are features, in this order: names, or "
            "patterns in quotes such as 'f*' (default: all that are nothing else). "
            "One that looks like an identifier, like labels or like the name of a site "
            "is refused unless it is named here",
        )
        group.add_argument(
            "--id-column",
            action="append",
            default=[],
            metavar="COLUMN",
            help="column that identifies rows, such as the number of a patient: no "
            "feature, never sent, and written beside predictions; may be repeated",
        )
        group.add_argument(
            "--client-column",
            metavar="COLUMN",
            help="column or array that says which site each row is of (default: "
            "client, if there is one)",
        )
        group.add_argument(
            "--ignore",
            action="append",
            default=[],
            metavar="COLUMN",
            help="another column that is no feature; may be repeated. y, client, path "
            "and split never are, and --ignore makes them say nothing",
        )

    def add_model(self, text):
        """The model that the server made."""
        self.add_argument(
            "--model",
            type=Path,
            required=True,
            metavar="FILE.slot",
            help=f"what skslot aggregate wrote: {text}",
        )

    def add_client(self, default=None):
        """The name of the site, which must be given unless there is a default."""
        self.add_argument(
            "--client",
            required=default is None,
            type=client_name,
            metavar="NAME",
            help="name of the site; of a file with a column client, or that of "
            "--client-column, its rows are taken"
            + ("" if default is None else f" (default: {default})"),
        )

    def add_output(self, metavar, text, required=True):
        """The output and the permission to overwrite it."""
        self.add_argument(
            "-o", "--output", type=Path, required=required, metavar=metavar, help=text
        )
        self.add_force()

    def add_force(self):
        """The permission to overwrite outputs."""
        self.add_argument(
            "--force", action="store_true", help="overwrite what exists already"
        )

    def add_dtype(self, default="float32", text="%(default)s"):
        """The precision of messages."""
        self.add_argument(
            "--dtype",
            choices=("float64", "float32", "float16"),
            default=default,
            help=f"precision of the numbers in the file (default: {text})",
        )

    def add_shrinkage(self, group=None):
        """The shrinkage of a client's covariance."""
        (self if group is None else group).add_argument(
            "--shrinkage",
            type=fraction_or("ledoit_wolf", "oas"),
            default="ledoit_wolf",
            metavar="S",
            help="weight of the identity in the covariance: ledoit_wolf, oas or a "
            "number from 0 to 1 (default: %(default)s)",
        )

    def add_statistics(self):
        """What the map of the site is estimated from."""
        group = self.add_mutually_exclusive_group()
        group.add_argument(
            "--statistics",
            type=Path,
            metavar="FILE.slot",
            help="what this site had sent; the map is then the one of that time "
            "(default: it is estimated from the rows in the file of features)",
        )
        self.add_shrinkage(group)


def read_table(arguments, learns=True, made_for=None):
    """The file of features that ``add_features`` asked for.

    If the site ``learns`` from its rows, these also say what a plan leaves open. Of a
    message that the features are ``made_for``, all that it names are features.
    """
    from ..datasets import load_features
    from ..exchange import fingerprint_names

    columns = columns_of(arguments)
    columns["labels"] = arguments.labels or False  # sent only if somebody asks for it
    if made_for is not None:
        _refuse_table_without_plan(arguments, made_for)
        columns["known_features"] = fingerprint_names(made_for.encoder) or ()
    if arguments.plan is not None:
        columns["plan"] = site_plan(arguments, learns)
        if arguments.labels is not None:
            columns["labels"] = columns["plan"].label or arguments.labels
    return load_features(arguments.features, encoder=arguments.encoder, **columns)


def _refuse_table_without_plan(arguments, made_for):
    """Ask for the plan at once, before columns are questioned that it settles."""
    is_table = Path(arguments.features).suffix.lower() not in {".npz", ".npy"}
    by_plan = str(made_for.encoder).startswith("plan:")
    if is_table and by_plan and arguments.plan is None:
        path = getattr(arguments, "model", None) or arguments.reference
        raise ValueError(
            f"{arguments.features} does not fit {path}: hand over the plan that it was "
            "made by, by --plan FILE.toml."
        )


def read_rows_of_sites(arguments, path):
    """The file that ``add_rows_of_sites`` asked for, its rows to learn from.

    Returns them and the arguments that read the file in Python.
    """
    from ..experiments import FeatureSet

    columns = {name: value for name, value in columns_of(arguments).items() if value}
    if arguments.plan is not None:
        _warn_of_noise(plan_of_all_sites(arguments), arguments)
        columns.pop("labels", None)  # which it names
        columns["plan"] = str(arguments.plan)
    return FeatureSet.from_file(path, **columns).training_rows(), columns


def _warn_of_noise(plan, arguments):
    """Say that what sites send by a plan is worse than the rows it is made of."""
    if plan.epsilon is None:
        return
    with plain_warnings():
        warn_user(
            f"{arguments.plan} has sites cut rows down to norm {plan.clip:g} and add "
            f"noise (epsilon {plan.epsilon:g}), which is not done here: expect less "
            "accuracy of what they send than is said of these rows."
        )


def reading_code(path, columns):
    """Arguments of ``FeatureSet.from_file``, as code."""
    options = (f"{name}={value!r}" for name, value in columns.items())
    return ", ".join([repr(str(path)), *options])


def named_files(names):
    """The files named; patterns are resolved here, as not all shells do it."""
    paths = []
    for name in names:
        is_pattern = has_magic(name) and not Path(name).exists()
        paths += map(Path, sorted(glob(name)) if is_pattern else [name])
    for path, count in Counter(paths).items():
        if count > 1:
            raise ValueError(f"{path} is named twice, by itself or by a pattern.")
    return paths


def columns_of(arguments):
    """What ``add_columns`` asked for, as arguments of the reader."""
    columns = {name: getattr(arguments, name) for name in COLUMNS}
    return {**columns, "features": arguments.feature_columns}
