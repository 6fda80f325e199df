"""``skslot summarize``: the one file that a site sends."""

import numpy as np

from ._exchange import (
    add_dtype,
    add_features,
    add_output,
    add_shrinkage,
    announce,
    plain_warnings,
    read_table,
    refuse_output,
)
from ._options import client_name, positive_int
from ._senders import warn_of_spellings


def add_commands(commands):
    """Add ``summarize``."""
    summarize = commands.add_parser(
        "summarize",
        help="at a site: write the one file that it sends",
        description="Summarize the features of a site in one small file, to be sent to "
        "the server: means and covariances, no rows. Without labels the file serves "
        "alignment only, with labels a classifier too. Of a data set with a split, the "
        "training rows are used.",
        epilog="example: skslot summarize features.npz --client A --labels -o A.slot",
    )
    add_features(summarize)
    summarize.add_argument(
        "--client",
        required=True,
        type=client_name,
        metavar="NAME",
        help="name of the site; of a file with a column client, its rows are taken",
    )
    summarize.add_argument(
        "--method",
        choices=("fedcgs", "fedpft"),
        default="fedcgs",
        help="classifier that the labels are summarized for (default: %(default)s)",
    )
    summarize.add_argument(
        "--components",
        type=positive_int,
        default=1,
        metavar="N",
        help="of fedpft: Gaussians for each class (default: %(default)s)",
    )
    summarize.add_argument(
        "--min-samples",
        type=positive_int,
        default=10,
        metavar="N",
        help="fewest rows of the site and of each class; with fewer nothing is "
        "written, since the mean of one row is that row (default: %(default)s)",
    )
    summarize.add_argument(
        "--drop-small-classes",
        action="store_true",
        help="leave out the rows of classes with fewer rows than that",
    )
    add_shrinkage(summarize)
    add_dtype(summarize)
    add_output(summarize, "FILE.slot", "the file to send")
    summarize.set_defaults(run=_summarize)


def _summarize(arguments):
    refuse_output(arguments)
    all_rows = read_table(arguments).of_client(arguments.client)
    table = all_rows.training_rows()
    n_others = len(all_rows.X) - len(table.X)
    if n_others:
        print(f"left out: {n_others} rows that are not for training")
    if table.labels is not None and arguments.drop_small_classes:
        table = _without_small_classes(table, arguments.min_samples)
    if not len(table.X):
        raise ValueError(f"{table.path} has no rows left to summarize.")
    with plain_warnings():
        if table.labels is not None:
            labels = np.unique(table.labels).tolist()
            warn_of_spellings((label, arguments.client) for label in labels)
        message = _message(table, arguments).with_encoder(table.encoder)
        _check_disclosure(message, arguments.min_samples)
        message.save(arguments.output, arguments.dtype, arguments.min_samples)
    print(f"client {arguments.client}: {len(table.X)} rows, {_features(table)}")
    if table.labels is not None:
        classes, counts = np.unique(table.labels, return_counts=True)
        pairs = zip(classes.tolist(), counts, strict=True)
        print(f"rows of each class: {', '.join(f'{c}: {n}' for c, n in pairs)}")
    announce(arguments.output, "send it to the server; skslot inspect tells what is in")


def _check_disclosure(message, min_samples):
    """Refuse small groups in the words of the command line."""
    from ..exchange import MessageError

    try:
        message.check_disclosure(min_samples)
    except MessageError as error:
        text = str(error).replace("min_samples=", "--min-samples ")
        text = text.replace("lower min_samples", "lower --min-samples")
        raise ValueError(
            f"{text} --drop-small-classes leaves out the rows of small classes."
        ) from error


def _message(table, arguments):
    """The message of the estimators that the server will use."""
    from .. import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier

    aligner = FederatedOTAligner(shrinkage=arguments.shrinkage)
    if table.labels is None:
        return aligner.client_update(table.X, arguments.client)
    options = {"aligner": aligner, "wire_dtype": arguments.dtype}
    if arguments.method == "fedcgs":
        classifier = FedCGSClassifier(**options)
    else:
        classifier = FedPFTClassifier(arguments.components, random_state=0, **options)
    return classifier.client_update(table.X, table.labels, client=arguments.client)


def _without_small_classes(table, min_samples):
    classes, counts = np.unique(table.labels, return_counts=True)
    small = counts < min_samples
    for label, count in zip(classes[small].tolist(), counts[small], strict=True):
        print(f"left out: class {label!r}, rows: {count}")
    return table.select(~np.isin(table.labels, classes[small]))


def _features(table):
    """Features in words; those of a table by name, so that no column slips in."""
    text = f"{table.X.shape[1]} features"
    names = table.others.get("columns", np.empty(0)).tolist()
    if not names:
        return text
    more = ", ..." if len(names) > 20 else ""
    return f"{text}: {', '.join(names[:20])}{more}"
