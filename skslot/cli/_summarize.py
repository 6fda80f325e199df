"""``skslot summarize``: the one file that a site sends."""

import numpy as np

from .._text import list_groups
from ._arguments import add_command, positive_int, read_table
from ._methods import METHODS, make_classifier
from ._outputs import announce, refuse_output
from ._plans import settle
from ._terminal import plain_warnings, warn_of_spellings


def add_commands(commands):
    """Add ``summarize``."""
    command = add_command(commands, summarize)
    command.add_features()
    command.add_client()
    command.add_argument(
        "--method",
        choices=METHODS,
        help="classifier that the labels are summarized for; mixed, fedcgs, fedridge "
        "and fedcof take the same file (default: that of the plan, else mixed)",
    )
    command.add_count("--components", 1, "of fedpft: Gaussians for each class")
    command.add_argument(
        "--min-samples",
        type=positive_int,
        metavar="N",
        help="fewest rows of the site and of each class; with fewer nothing is "
        "written, since the mean of one row is that row (default: that of the plan, "
        "else 10)",
    )
    command.add_argument(
        "--drop-small-classes",
        action="store_true",
        help="leave out the rows of classes with fewer rows than that",
    )
    command.add_shrinkage()
    command.add_dtype(None, "that of the plan, else float32")
    command.add_argument(
        "--scaling",
        action="store_true",
        help="send count, mean and spread of each feature instead, for a plan that "
        "standardizes them: skslot plan --scaling",
    )
    command.add_output("FILE.slot", "the file to send")


def summarize(arguments):
    """At a site: write the one file that it sends.

    It is small, with means and covariances of the features and no rows, and is sent to
    the server. Without labels the file serves alignment only, with labels a classifier
    too. Of a data set with a split, the training rows are used.

    example: skslot summarize features.npz --client A --labels -o A.slot
    """
    refuse_output(arguments)
    plan = settle(arguments)
    if arguments.scaling:
        _check_scaling(plan, arguments)
    all_rows = read_table(arguments).of_client(arguments.client)
    table = all_rows.training_rows()
    n_others = len(all_rows.X) - len(table.X)
    if n_others:
        print(f"left out: {n_others} rows that are not for training")
    if table.y is not None and arguments.drop_small_classes:
        table = _without_small_classes(table, arguments.min_samples)
    if not len(table.X):
        raise ValueError(f"{table.path} has no rows left to summarize.")
    with plain_warnings():
        if table.y is not None:
            labels = np.unique(table.y).tolist()
            warn_of_spellings((label, arguments.client) for label in labels)
        message = _message(table, arguments).with_encoder(table.encoder)
        _check_disclosure(message, arguments.min_samples)
        # three numbers per feature, to be joined exactly
        dtype = "float64" if arguments.scaling else arguments.dtype
        message.save(arguments.output, dtype, arguments.min_samples)
    print(f"client {arguments.client}: {len(table.X)} rows, {_features(table)}")
    if table.y is not None:
        classes, counts = np.unique(table.y, return_counts=True)
        pairs = zip(classes.tolist(), counts, strict=True)
        print(f"rows of each class: {', '.join(f'{c}: {n}' for c, n in pairs)}")
    announce(arguments.output, "send it to the server; skslot inspect tells what is in")


def _check_disclosure(message, min_samples):
    """Refuse small groups in the words of the command line."""
    from ..exchange import MessageError

    try:
        message.check_disclosure(min_samples)
    except MessageError as error:
        raise ValueError(
            f"client {message.client!r}: the file would describe "
            f"{list_groups(error.small_groups)}, but --min-samples {min_samples}: the "
            "mean of one row is that row, and that of a few is close to them. "
            "--drop-small-classes leaves out the rows of small classes; lower "
            "--min-samples only if these rows may be seen."
        ) from error


def _message(table, arguments):
    """The message of the estimators that the server will use."""
    from .. import FederatedOTAligner, FederatedScaler

    if arguments.scaling:
        return FederatedScaler().client_update(table.X, client=arguments.client)
    aligner = FederatedOTAligner(shrinkage=arguments.shrinkage)
    if table.y is None:
        return aligner.client_update(table.X, client=arguments.client)
    # with the part for alignment, the message of FedCGS serves mixed effects too
    method = "fedcgs" if arguments.method == "mixed" else arguments.method
    settings = {
        "fedpft": {"n_components": arguments.components},
        "fedcoreset": {"min_samples": arguments.min_samples},
    }
    classifier = make_classifier(
        method, aligner, wire_dtype=arguments.dtype, **settings.get(method, {})
    )
    return classifier.client_update(table.X, table.y, client=arguments.client)


def _check_scaling(plan, arguments):
    """Refuse to prepare what no plan can take, or has already."""
    if plan is None:
        raise ValueError("--scaling is for a plan: name it by --plan FILE.toml.")
    if any(column.scale is not None for column in plan.columns):
        raise ValueError(
            f"{arguments.plan} has means and scales already: leave --scaling out."
        )
    arguments.labels = arguments.labels_file = None


def _without_small_classes(table, min_samples):
    classes, counts = np.unique(table.y, return_counts=True)
    small = counts < min_samples
    for label, count in zip(classes[small].tolist(), counts[small], strict=True):
        print(f"left out: class {label!r}, rows: {count}")
    return table.select(~np.isin(table.y, classes[small]))


def _features(table):
    """Features in words; those of a table by name, so that no column slips in."""
    text = f"{table.X.shape[1]} features"
    names = table.feature_names
    if names is None:
        return text
    more = ", ..." if len(names) > 20 else ""
    return f"{text}: {', '.join(names[:20])}{more}"
