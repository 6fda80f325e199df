"""What the commands of sites and of the server share."""

import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

from ._files import refuse_overwrite
from ._options import fraction_or

# Strength of the alignment when nobody says otherwise.
DEFAULT_TAU = 0.4

DTYPES = ("float64", "float32", "float16")


def add_features(command):
    """Arguments for a file of features."""
    group = command.add_argument_group("features")
    group.add_argument(
        "features",
        type=Path,
        metavar="FEATURES",
        help=".npz file with X (such as skslot encode writes), .npy file, or .csv or "
        ".parquet table with a column for each feature",
    )
    group.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column that is no feature, such as the number of a patient; may be "
        "repeated. client, path and split never are",
    )
    group.add_argument(
        "--encoder",
        metavar="TEXT",
        help="what made the features, if no fingerprint in the file says it; must be "
        "the same at all sites (default: that fingerprint, or the names of the "
        "columns)",
    )
    labels = group.add_mutually_exclusive_group()
    labels.add_argument(
        "--labels",
        nargs="?",
        const="y",
        metavar="COLUMN",
        help="column or array with the labels (y if no name is given)",
    )
    labels.add_argument(
        "--labels-file",
        type=Path,
        metavar="FILE",
        help="labels in a file of their own: .npy, or text with one per line",
    )


def read_table(arguments):
    """The file of features that :func:`add_features` asked for."""
    from ._tables import read_features

    return read_features(
        arguments.features,
        arguments.labels,
        arguments.labels_file,
        arguments.ignore,
        arguments.encoder,
    )


def add_output(command, metavar, text, required=True):
    """The output and the permission to overwrite it."""
    command.add_argument(
        "-o", "--output", type=Path, required=required, metavar=metavar, help=text
    )
    command.add_argument(
        "--force", action="store_true", help="overwrite what exists already"
    )


def add_dtype(command):
    """The precision of messages."""
    command.add_argument(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="precision of the numbers in the file (default: %(default)s)",
    )


def add_shrinkage(command):
    """The shrinkage of a client's covariance."""
    command.add_argument(
        "--shrinkage",
        type=fraction_or("ledoit_wolf", "oas"),
        default="ledoit_wolf",
        metavar="S",
        help="weight of the identity in the covariance: ledoit_wolf, oas or a number "
        "from 0 to 1 (default: %(default)s)",
    )


def refuse_output(arguments, *inputs):
    """Refuse an output that exists, or that is one of the inputs."""
    inputs = arguments.features, arguments.labels_file, *inputs
    refuse_overwrite(arguments.output, arguments.force, inputs)


def load_client_message(path):
    """The message of a client in a file; those of a server are refused."""
    from ..exchange import load_message

    message = load_message(path)
    check_is_of_client(path, type(message), getattr(message, "client", None))
    return message


def check_is_of_client(path, kind, client):
    """Refuse what no site sends for alignment."""
    from ..exchange import (
        ClassMixtures,
        ClassStatistics,
        ClientStatistics,
        MessageError,
    )

    if kind not in (ClientStatistics, ClassStatistics, ClassMixtures):
        raise MessageError(
            f"this is of the kind {kind.kind!r}, not what skslot summarize writes.",
            path=path,
        )
    if client is None:
        raise MessageError("the message does not say which client it is of.", path=path)


def check_same_encoder(table, message, path):
    """Refuse features that a reference or model was not made for."""
    n_features = table.X.shape[1]
    if n_features != message.n_features:
        raise ValueError(
            f"{table.path} has {n_features} features, but {path} is for "
            f"{message.n_features}."
        )
    if "+aligned:" in (table.encoder or "") and table.encoder != message.encoder:
        raise ValueError(
            f"{table.path} holds features that skslot align wrote: give those that are "
            f"not aligned yet, which {path} is for."
        )
    if table.encoder != message.encoder:
        raise ValueError(
            f"{table.path} has features of the encoder {table.encoder!r}, but {path} "
            f"is for {message.encoder!r}. A table must have the same columns in the "
            "same order as the one that was summarized; --ignore and --labels leave "
            "columns out, --encoder gives a name to what made the features."
        )


def announce(path, what):
    """Say that a file was written."""
    print(f"wrote {path}, {path.stat().st_size:,} bytes: {what}")


@contextmanager
def plain_warnings():
    """Warnings for users as lines without a place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _show_warning
        yield


def _show_warning(message, *_):
    text = " ".join(str(message).split())
    print(f"skslot: warning: {text}", file=sys.stderr)
