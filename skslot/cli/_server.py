"""``skslot aggregate``: what the server makes of the files of all sites."""

import sys
import unicodedata
import warnings
from collections import defaultdict
from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ._exchange import (
    add_dtype,
    add_output,
    announce,
    check_is_of_client,
    plain_warnings,
)
from ._files import refuse_overwrite
from ._options import fraction_or, plain_name, show_progress

MOST_CLASSES = 20


def add_commands(commands):
    """Add ``aggregate``."""
    aggregate = commands.add_parser(
        "aggregate",
        help="at the server: make the reference and the models from the files of sites",
        description="Make the reference that all sites align to from the files that "
        "skslot summarize wrote, and with --models also a classifier for each site "
        "that includes its alignment. Files are read one at a time. If one is refused, "
        "all others are still checked, nothing is written and the exit code is 1; "
        "--skip-refused goes on without it. Two files of one client are always an "
        "error.",
        epilog="example: skslot aggregate received/*.slot -o reference.slot "
        "--models models",
    )
    aggregate.add_argument(
        "messages", nargs="+", metavar="FILE.slot", help="one file of each site"
    )
    add_output(aggregate, "FILE.slot", "the reference, for all sites", required=False)
    aggregate.add_argument(
        "--models",
        type=Path,
        metavar="FOLDER",
        help="where to write a model for each site, A.model.slot for A.slot; needs "
        "files with labels. A site that sent none gets a model too",
    )
    aggregate.add_argument(
        "--tau",
        type=fraction_or("auto"),
        help="strength of the alignment, from 0 to 1, or auto for the closed form, "
        "which needs labels (default: 0.4)",
    )
    aggregate.add_argument(
        "--covariance",
        choices=("total", "within"),
        default="total",
        help="of fedcgs: covariance of all rows or around class means "
        "(default: %(default)s)",
    )
    aggregate.add_argument(
        "--skip-refused",
        action="store_true",
        help="go on without files that are refused",
    )
    add_dtype(aggregate)
    aggregate.set_defaults(run=_aggregate)


class _Sender(NamedTuple):
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


def _aggregate(arguments):
    from ..exchange import load_messages

    output, folder = arguments.output, arguments.models
    if output is None and folder is None:
        raise ValueError(
            "nothing to write: give -o FILE.slot, --models FOLDER or both."
        )
    paths = _paths(arguments)
    targets = _targets(paths, folder)
    _refuse_outputs(arguments, targets.values(), paths)
    messages = load_messages(paths, on_error="skip", progress=_progress())
    senders = _read_senders(messages, arguments.skip_refused)
    with plain_warnings():
        _warn_of_spellings(senders.values())
        reference, classifier = _fit(messages, senders, arguments)
    _print_facts(senders, reference, arguments)
    if folder is not None:
        folder.mkdir(exist_ok=True)  # if that fails, nothing is written
    if output is not None:
        reference.save(output, arguments.dtype)
        announce(output, "send it to all sites")
    if folder is None:
        return
    for path, message in zip(senders, messages, strict=True):
        model = _model_for(message, classifier)
        model.save(targets[path], arguments.dtype)
        announce(targets[path], f"send it to client {message.client}")


def _paths(arguments):
    """The files named; patterns are resolved here, as not all shells do it."""
    paths = []
    for name in arguments.messages:
        is_pattern = has_magic(name) and not Path(name).exists()
        paths += map(Path, sorted(glob(name)) if is_pattern else [name])
    if arguments.output is not None and _is_reference(arguments.output):
        # a pattern finds the reference of last time among the files of sites
        old = arguments.output.resolve()
        paths = [path for path in paths if path.resolve() != old]
    if not paths:
        raise ValueError(f"no file matches {' '.join(arguments.messages)}.")
    return paths


def _is_reference(path):
    from ..exchange import AlignmentReference, MessageError

    try:
        AlignmentReference.load(path)
    except (OSError, MessageError):
        return False
    return True


def _targets(paths, folder):
    """File for the model of each site, named like the file that it sent."""
    if folder is None:
        return {}
    targets = {path: folder / f"{path.stem}.model.slot" for path in paths}
    if len(set(targets.values())) < len(paths):
        raise ValueError(
            "some files have the same name in different folders, and so would their "
            "models; rename them."
        )
    return targets


def _refuse_outputs(arguments, targets, inputs):
    output, folder, force = arguments.output, arguments.models, arguments.force
    if output is not None:
        refuse_overwrite(output, force, inputs)
    if folder is None:
        return
    if not folder.is_dir():
        refuse_overwrite(folder)
        return
    for target in targets:
        refuse_overwrite(target, force, inputs)
        if output is not None and output.resolve() == target.resolve():
            raise ValueError(f"{output} cannot be both the reference and a model.")


def _read_senders(messages, skip_refused):
    """First pass over all files: who sent what in which, when it fits together."""
    facts = [_Sender.of(message) for message in messages]
    accepted = [path for path in messages.paths if path not in messages.refused]
    senders = dict(zip(accepted, facts, strict=True))
    _refuse_duplicates(senders, messages.refused)
    _report_refused(messages, skip_refused)
    for path, sender in senders.items():
        check_is_of_client(path, sender.kind, sender.client)
        _check_same_features(senders, path)
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
        raise ValueError(f"{path} and {first}: {text}") from error


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
        text = " ".join(str(error).split())
        print(f"skslot: refused: {text}", file=sys.stderr)
    n_refused, n_all = len(messages.refused), len(messages.paths)
    if n_refused == n_all:
        raise ValueError("all files were refused.")
    if n_refused and not skip_refused:
        raise ValueError(
            f"{n_refused} of {n_all} files were refused, and nothing was written; ask "
            "for them again, or go on without them by --skip-refused."
        )


def _fit(messages, senders, arguments):
    """The reference, and the classifier if models are wanted."""
    from .. import FederatedOTAligner

    tau = 0.4 if arguments.tau is None else arguments.tau
    aligner = FederatedOTAligner(tau)
    if arguments.models is not None:
        classifier = _classifier(senders, aligner, arguments.covariance)
        wanted = classifier._message_type
        classifier.server_aggregate(m for m in messages if isinstance(m, wanted))
        reference = classifier.reference_
    else:
        without = [path for path, sender in senders.items() if not sender.has_labels]
        if tau == "auto" and without:
            raise ValueError(
                f"--tau auto needs the labels of all sites, but {without[0]} was "
                "summarized without --labels."
            )
        classifier, reference = None, aligner.server_aggregate(messages)
    if arguments.tau is not None and reference.tau is None:
        reference = replace(reference, tau=arguments.tau)  # the same at all sites
    return reference, classifier


def _classifier(senders, aligner, covariance):
    """The classifier that sites summarized their labels for, not fitted yet."""
    from .. import FedCGSClassifier, FedPFTClassifier
    from ..exchange import ClassStatistics

    kinds = {path: s.kind for path, s in senders.items() if s.has_labels}
    if not kinds:
        raise ValueError(
            "--models needs labels: at the sites, run skslot summarize with --labels."
        )
    first = next(iter(kinds))
    for path, kind in kinds.items():
        if kind is not kinds[first]:
            raise ValueError(
                f"{path} and {first} were summarized for different methods; use the "
                "same --method at all sites."
            )
    if kinds[first] is ClassStatistics:
        return FedCGSClassifier(covariance, aligner=aligner)
    return FedPFTClassifier(aligner=aligner, random_state=0)


def _model_for(message, classifier):
    """Linear model with the alignment of one client folded in."""
    from ..exchange import LinearModel

    # a client that sent no labels is moved to the reference of the others
    client_map = classifier.aligner.client_map(message, classifier.reference_)
    matrix, offset = client_map.affine
    head = getattr(classifier, "estimator_", classifier)
    if hasattr(head, "coef_"):
        coef, intercept = head.coef_, head.intercept_
    else:  # there is a single class
        coef, intercept = np.zeros((1, message.n_features)), np.zeros(1)
    return LinearModel(
        classifier.classes_.tolist(),
        coef @ matrix,
        intercept + coef @ offset,
        message.client,
        message.encoder,
    )


def _print_facts(senders, reference, arguments):
    senders = senders.values()
    rows = sum(sender.n_samples for sender in senders)
    print(f"clients: {len(senders)}, rows: {rows}, features: {reference.n_features}")
    _print_class_table([sender for sender in senders if sender.has_labels])
    without = [str(sender.client) for sender in senders if not sender.has_labels]
    if arguments.models is not None and without:
        print(f"clients without labels: {', '.join(without)}")
    if arguments.models is None and not without:
        print("the files describe classes too: --models FOLDER makes classifiers")
    if arguments.tau == "auto":
        print(f"tau: {reference.tau:.3f}")


def _print_class_table(senders):
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


def _warn_of_spellings(senders):
    """Labels that a person would take for the same are different classes."""
    spellings = defaultdict(dict)
    for sender in senders:
        for label in sender.class_counts:
            plain = unicodedata.normalize("NFKC", str(label)).strip().casefold()
            spellings[plain].setdefault(label, sender.client)
    for found in spellings.values():
        if len(found) > 1:
            texts = (f"{label!r} (client {client})" for label, client in found.items())
            warnings.warn(
                f"{' and '.join(texts)} are different classes; if they are the same, "
                "write the label alike at all sites and summarize again.",
                stacklevel=2,
            )


def _progress():
    """Callback that counts files, and the passes over them."""
    number, show = 0, None

    def progress(done, total):
        nonlocal number, show
        if done == 1:
            number += 1
            show = show_progress(f"pass {number}, file")
        show(done, total)

    return progress
