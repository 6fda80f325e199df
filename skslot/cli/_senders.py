"""The files of sites at the server: who sent what, and whether it fits together."""

import sys
import unicodedata
import warnings
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ._exchange import check_is_of_client
from ._options import in_one_line, plain_name

MOST_CLASSES = 20


class SentFile(NamedTuple):
    """What is kept of a file, so that files need not stay in memory."""

    kind: type
    client: object
    n_samples: int
    n_features: int
    encoder: str | None
    class_counts: dict

    @classmethod
    def of(cls, message):
        """Facts about the message; those of a server have no client and no rows."""
        client, rows = (getattr(message, n, None) for n in ("client", "n_samples"))
        counts = getattr(message, "counts", None)
        return cls(
            type(message),
            client,
            rows,
            message.n_features,
            message.encoder,
            {} if counts is None else dict(zip(message.classes, counts, strict=True)),
        )

    @property
    def has_labels(self):
        """Whether the message describes classes."""
        return hasattr(self.kind, "class_means")


def read_files(messages, skip_refused):
    """First pass over all files: who sent what in which, when it fits together."""
    facts = [SentFile.of(message) for message in messages]
    accepted = [path for path in messages.paths if path not in messages.refused]
    senders = dict(zip(accepted, facts, strict=True))
    _refuse_duplicates(senders, messages.refused)
    _report_refused(messages, skip_refused)
    for path, sender in senders.items():
        check_is_of_client(path, sender.kind, sender.client)
        _check_same_features(senders, path)
    _check_kinds_of_labels(senders)
    return senders


def _check_same_features(senders, path):
    """Refuse a file on other features than the first one; errors name both."""
    from ..exchange import MessageError
    from ..exchange._features import check_pair

    first = next(iter(senders))
    try:
        check_pair(senders[first], senders[path])
    except MessageError as error:
        text = str(error).replace(
            "message.with_encoder(...)", "skslot summarize --encoder TEXT"
        )
        encoders = str(senders[first].encoder), str(senders[path].encoder)
        if all(encoder.startswith("columns:") for encoder in encoders):
            text = (
                "their tables have different columns, or the same in another order; "
                "summarize one of them again. skslot summarize prints the columns that "
                "are features."
            )
        raise ValueError(f"{path} and {first}: {text}") from error


def _check_kinds_of_labels(senders):
    """Refuse labels that are text at one site and numbers at another."""
    from ..exchange._checks import kind_of_label

    kinds = {}
    for path, sender in senders.items():
        for label in sender.class_counts:
            kinds.setdefault(kind_of_label(label), (path, label))
    if len(kinds) > 1:
        places = (
            f"{kind} in {path} ({label!r})" for kind, (path, label) in kinds.items()
        )
        raise ValueError(
            f"labels are {' and '.join(places)}; write them alike at all sites and "
            "summarize again."
        )


def _refuse_duplicates(senders, refused):
    """Whichever of two files is the right one, it is not for us to choose."""
    files = defaultdict(list)
    for path, sender in senders.items():
        client = sender.client
        files[plain_name(client) if isinstance(client, str) else client].append(path)
    for path, error in refused.items():
        client = getattr(error, "client", None)
        if isinstance(client, str) and plain_name(client) in files:
            files[plain_name(client)].append(path)
    for client, paths in files.items():
        if client is not None and len(paths) > 1:
            raise ValueError(
                f"{' and '.join(map(str, paths))} are from the same client {client!r}; "
                "keep the right one."
            )


def _report_refused(messages, skip_refused):
    for error in messages.refused.values():
        print(f"skslot: refused: {in_one_line(error)}", file=sys.stderr)
    n_refused, n_all = len(messages.refused), len(messages.paths)
    if n_refused == n_all:
        raise ValueError("all files were refused.")
    if n_refused and not skip_refused:
        raise ValueError(
            f"{n_refused} of {n_all} files were refused, and nothing was written; ask "
            "for them again, or go on without them by --skip-refused."
        )


def print_class_table(senders):
    """Rows of each class at each client, as long as that fits on a line."""
    from ..model_selection import ClassTable

    labels = {label for sender in senders for label in sender.class_counts}
    if not labels:
        return
    if len(labels) > MOST_CLASSES:
        print(f"classes: {len(labels)}")
        return
    labels = sorted(labels, key=lambda label: (isinstance(label, str), label))
    counts = [[sender.class_counts.get(c, 0) for c in labels] for sender in senders]
    clients = [sender.client for sender in senders]
    print(f"rows of each class:\n{ClassTable(np.array(counts), clients, labels)}")


def warn_of_spellings(labels):
    """Labels that a person would take for the same are different classes.

    ``labels`` has pairs of a label and the client that it is of.
    """
    spellings = defaultdict(dict)
    for label, client in labels:
        plain = unicodedata.normalize("NFKC", str(label)).strip().casefold()
        spellings[plain].setdefault(label, client)
    for found in spellings.values():
        if len(found) > 1:
            texts = (f"{label!r} (client {client})" for label, client in found.items())
            warnings.warn(
                f"{' and '.join(texts)} are different classes; if they are the same, "
                "write the label alike at all sites and summarize again.",
                stacklevel=2,
            )


def labels_of(senders):
    """Labels, each with the client that it is of."""
    return [(label, each.client) for each in senders for label in each.class_counts]
