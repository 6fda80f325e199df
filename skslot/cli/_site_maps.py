"""The map of a site: by what it had sent, or else by the rows at hand."""

import warnings
from pathlib import Path

import numpy as np

from ._exchange import add_shrinkage, load_client_message, plain_warnings

# Rows that a map can be estimated from: one by one they would all go to the same place.
FEWEST_ROWS = 10
# How far the spread of rows may be from that of statistics, as a factor.
MOST_SPREAD = 4.0


def add_statistics(command):
    """What the map of the site is estimated from."""
    statistics = command.add_mutually_exclusive_group()
    statistics.add_argument(
        "--statistics",
        type=Path,
        metavar="FILE.slot",
        help="what this site had sent; the map is then the one of that time (default: "
        "it is estimated from the rows in the file of features)",
    )
    add_shrinkage(statistics)


def sent_statistics(arguments):
    """What the site had sent, if it is given."""
    if arguments.statistics is None:
        return None
    sent = load_client_message(arguments.statistics)
    if arguments.client not in (None, str(sent.client)):
        raise ValueError(
            f"{arguments.statistics} is from client {sent.client!r}, not from "
            f"{arguments.client!r}."
        )
    return sent


def client_map(table, sent, reference, tau, arguments):
    """The map of a site, from its statistics to the reference."""
    from .. import FederatedOTAligner

    aligner = FederatedOTAligner(tau, shrinkage=arguments.shrinkage)
    with plain_warnings():
        if sent is None:
            rows = _rows_to_estimate_from(table)
            message = aligner.client_update(rows, arguments.client)
            sent = message.with_encoder(table.encoder)
        else:
            _warn_of_other_rows(table, sent, arguments.statistics)
        return aligner.client_map(sent, reference)


def _rows_to_estimate_from(table):
    """Rows of one site, enough of them to tell how it differs from the others."""
    clients = [] if table.clients is None else np.unique(table.clients)
    if len(clients) > 1:
        some = ", ".join(clients[:10])
        raise ValueError(
            f"{table.path} has rows of several clients ({some}), each with an "
            "alignment of its own: choose one by --client."
        )
    rows = table.training_rows().X
    if len(rows) < FEWEST_ROWS:
        raise ValueError(
            f"{table.path} has {len(rows)} rows to estimate the alignment from, which "
            f"takes at least {FEWEST_ROWS}: hand over, by --statistics FILE.slot, what "
            "this site had sent, or what skslot summarize makes of more of its rows."
        )
    print(
        f"alignment estimated from {len(rows)} rows of {table.path}; --statistics "
        "FILE.slot takes that of what this site had sent"
    )
    return rows


def _warn_of_other_rows(table, sent, path):
    """Rows far from what the statistics describe are often of another encoder."""
    if len(table.X) < FEWEST_ROWS:
        return
    statistics = sent.client_statistics()
    if statistics.n_features != table.X.shape[1] or statistics.is_constant:
        return
    squares = np.square(table.X - statistics.mean).sum(axis=1)
    spread = squares.mean() / statistics.variances.sum()
    if not 1 / MOST_SPREAD <= spread <= MOST_SPREAD:
        warnings.warn(
            f"the rows of {table.path} spread around the mean in {path} {spread:.2g} "
            "times as much as those that it describes: are they of the same site, made "
            "in the same way?",
            stacklevel=2,
        )
