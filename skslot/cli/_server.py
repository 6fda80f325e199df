"""``skslot aggregate``: the reference and the models, from the files of all sites."""

import sys
from collections import defaultdict
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace

from .._methods import FILE_METHODS
from .._utils import client_order, count_table, ignored, plain_name, printable
from ._main import (
    add_command,
    announce,
    fraction_or,
    in_one_line,
    make_estimator,
    named_files,
    plain_warnings,
    positive_int,
    refuse_overwrite,
    refuse_twins,
    screen_of,
    show_progress,
    shows_progress,
    warn_of_spellings,
    writing,
)
from ._site import FOR_ALL_SITES, check_is_of_client, refuse_rows

MOST_CLASSES = 20


def add_commands(commands):
    """Add ``aggregate``."""
    command = add_command(commands, aggregate)
    command.add_argument(
        "messages", nargs="+", metavar="FILE.slot", help="One file of each site."
    )
    command.add_output("FILE.slot", "Reference for all sites.", required=False)
    command.share(
        "--model",
        required=False,
        help="Model for all sites; needs labels.",
    )
    command.add_path(
        "--site-models",
        "FOLDER",
        "Folder for one model per site, which includes its alignment; needs labels.",
    )
    command.share(
        "--method",
        help="Classifier to make from files with labels (default: mixed, or the one "
        "that the files were summarized for).",
    )
    command.share(
        "--tau",
        help="Alignment strength from 0 to 1, or auto, which needs the labels of all "
        "sites (default: auto for mixed, 0.4 for others).",
    )
    command.add_argument(
        "--priors",
        choices=("pooled", "client", "uniform"),
        help="Class probabilities, for mixed: of all sites, of each site, or equal "
        "(default: pooled).",
    )
    command.add_argument(
        "--covariance",
        choices=("total", "within"),
        help="Covariance of all samples or within classes, for fedcgs (default: "
        "total).",
    )
    command.add_flag("--skip-refused", "Continue without refused files.")
    command.share("--screen")
    command.add_argument(
        "--max-share",
        type=fraction_or(),
        metavar="SHARE",
        help="Maximum fraction of all samples that one site may contribute (default: "
        "no limit).",
    )
    command.add_argument(
        "--jobs",
        type=positive_int,
        default=-1,
        metavar="N",
        help="Threads, each with one file in memory (default: one per core).",
    )
    command.share("--dtype")


def aggregate(arguments):
    """At the server: make the reference and the models from the files of sites.

    --model writes one classifier for all sites, --site-models one for each site, which
    includes its alignment. -o writes the reference that all sites align to, which needs
    no labels. Files are streamed. If one is refused, all others are still checked,
    nothing is written and the exit code is 1. Two files of one client are always an
    error.

    example: skslot aggregate received/*.slot --model global.slot
    """
    from ..alignment import AlignmentWarning
    from ..exchange import load_messages, receive

    output, model, folder = arguments.output, arguments.model, arguments.site_models
    if output is model is folder is None:
        raise ValueError(
            "nothing to write: give -o FILE.slot, --model FILE.slot or --site-models "
            "FOLDER."
        )
    paths = _paths(arguments)
    targets = _targets(paths, folder)
    _refuse_outputs(arguments, targets.values(), paths)
    kinds = look_at(paths)
    estimator = _estimator(kinds, arguments)
    files = load_messages(kinds, on_error="skip")
    files.progress = _progress(files, arguments)
    received = receive(files)
    # a reference alone classifies nothing yet
    advice = ignored(AlignmentWarning) if model is folder is None else nullcontext()
    with plain_warnings(), advice, redirect_stdout(sys.stderr):
        fitted = estimator.server_aggregate(received)
        senders = received.senders
        warn_of_spellings(
            (c, each.client) for each in senders for c in each.class_counts
        )
    classifier = None if model is folder is None else fitted
    aligner = fitted if classifier is None else classifier.aligner_
    reference = aligner.reference_
    _print_facts(senders, reference, classifier, arguments.tau)
    print(f"what each client adds:\n{received.clients_report}")
    for_sites = {}
    if folder is not None:
        folder.mkdir(exist_ok=True)  # if that fails, nothing is written
        for_sites = {targets[each.path]: each.client for each in senders}
    with writing(arguments):
        if output is not None:
            if arguments.tau is not None and reference.tau is None:
                # the same at all sites
                reference = replace(reference, tau=arguments.tau)
            reference.save(output, arguments.dtype)
        if model is not None:
            classifier.shared_model().save(model, arguments.dtype)
        for target, client in for_sites.items():
            classifier.client_model(client).save(target, arguments.dtype)
    for path in (output, model):
        if path is not None:
            announce(path, "send it to all sites")
    for target, client in for_sites.items():
        announce(target, f"send it to client {printable(client)}")
    for path in sorted(set(targets.values()) - for_sites.keys()):
        if path.exists():
            print(
                f"not written: {printable(path)}, which is of an earlier run, as the "
                "site was left out or its file refused; do not send it"
            )


# ------------------------------------------------------------------ files


def _paths(arguments):
    """List the files named, except for outputs of an earlier run."""
    from .. import exchange

    paths = named_files(arguments.messages)
    # a pattern finds what was written last time among the files of sites
    outputs = {arguments.output, arguments.model} - {None}
    headers = exchange.load_messages(outputs).headers()
    ours = {getattr(exchange, name).kind for name in FOR_ALL_SITES}
    old = {p.resolve() for p, header in headers.items() if header.get("kind") in ours}
    paths = [path for path in paths if path.resolve() not in old]
    if not paths:
        raise ValueError(f"no file matches {' '.join(arguments.messages)}.")
    return paths


def _targets(paths, folder):
    """Name the file for the model of each site like the file that it sent."""
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
    folder = arguments.site_models
    outputs = [p for p in (arguments.output, arguments.model) if p is not None]
    if folder is not None and folder.is_dir():
        outputs += targets
    elif folder is not None:
        refuse_overwrite(folder)
    for path in outputs:
        refuse_overwrite(path, arguments.force, inputs)
    refuse_twins(outputs if folder is None else [*outputs, folder])


def look_at(paths):
    """Read the kind of message in each file, sorted by client like in ``fit``.

    Only the beginning of each file is read. Files that cannot be read there come last,
    and are refused when their turn comes.
    """
    from ..exchange import Message, load_messages

    headers = load_messages(paths).headers()
    clients = {path: headers[path].get("client") for path in paths}
    is_named = {path: isinstance(clients[path], str | int | float) for path in paths}
    known = [path for path in paths if is_named[path]]
    _refuse_duplicates({path: clients[path] for path in known})
    known.sort(key=lambda path: client_order(clients[path]))
    kinds = {}
    for path in [*known, *(path for path in paths if not is_named[path])]:
        kinds[path] = Message._kinds.get(headers[path].get("kind"))
        if kinds[path] is not None:
            check_is_of_client(path, kinds[path], clients[path])
    return kinds


def _refuse_duplicates(clients):
    """Refuse two files of one client, because only a person can choose the right one.

    A file that is refused anyway, because it is damaged, does not count.
    """
    files = defaultdict(list)
    for path, client in clients.items():
        files[plain_name(client) if isinstance(client, str) else client].append(path)
    for client, paths in files.items():
        if len(paths) > 1 and len(paths := list(filter(_can_be_read, paths))) > 1:
            raise ValueError(
                f"{' and '.join(map(str, paths))} are from the same client {client!r}; "
                "keep the right one."
            )


def _can_be_read(path):
    from ..exchange import MessageError, load_message

    try:
        return bool(load_message(path))
    except (MessageError, OSError):
        return False


def _progress(files, arguments):
    """Make a callback that counts files; the first pass has checked all of them."""
    number, show = 0, None

    def progress(done, total):
        nonlocal number, show
        if done == 1:
            number += 1
            show = show_progress(f"reading {number}, file", arguments)
        show(done, total)
        if done == total and number == 1:
            _report_refused(files, arguments.skip_refused)

    return progress


def _report_refused(files, skip_refused):
    for error in files.refused.values():
        print(f"skslot: refused: {in_one_line(error)}", file=sys.stderr)
    n_refused, n_all = len(files.refused), len(files.paths)
    if n_refused == n_all:
        raise ValueError("all files were refused.")
    if n_refused and not skip_refused:
        raise ValueError(
            f"{n_refused} of {n_all} files were refused, and nothing was written; ask "
            "for them again, or exclude them by --skip-refused."
        )


# ------------------------------------------------------------------ method


def _estimator(kinds, arguments):
    """Make the aligner, or the classifier that sites summarized their labels for."""
    from ..exchange import load_message

    known = {path: kind for path, kind in kinds.items() if kind is not None}
    if not arguments.skip_refused:
        for path in kinds:
            if path not in known:
                refuse_rows(path)
        if not known:
            load_message(next(iter(kinds)))  # the error states why it cannot be read
    labelled = {path: kind for path, kind in known.items() if kind.describes_classes}
    without = [path for path in known if path not in labelled]
    method = _method(labelled, arguments)
    _check_options(method, arguments)
    if method == "mixed" and without:
        raise ValueError(
            f"mixed effects need the labels of all sites, but {without[0]} was "
            "summarized without --labels: leave it out, and let the site join by "
            "skslot adapt, with the model of the others; or choose --method fedcgs."
        )
    if arguments.tau == "auto" and without:
        raise ValueError(
            f"--tau auto needs the labels of all sites, but {without[0]} was "
            "summarized without --labels."
        )
    return make_estimator(
        method,
        tau=arguments.tau,
        priors=arguments.priors,
        covariance=arguments.covariance,
        screen=screen_of(arguments),
        n_jobs=arguments.jobs,
        verbose=int(shows_progress(arguments)),
    )


def _method(labelled, arguments):
    """Choose the classifier; None if only the reference is asked for."""
    if arguments.model is arguments.site_models is None:
        return None
    if not labelled:
        raise ValueError(
            "a model needs labels: at the sites, run skslot summarize with --labels."
        )
    own = method_of(labelled)
    method = arguments.method or own
    if make_estimator(method).message_type is not make_estimator(own).message_type:
        raise ValueError(
            f"{next(iter(labelled))} was summarized for {own}, which --method {method} "
            "cannot read: leave --method out, or summarize with it at all sites."
        )
    return method


def method_of(labelled):
    """Find the first method that reads all files, by their kinds."""
    first = next(iter(labelled))
    for path, kind in labelled.items():
        if kind is not labelled[first]:
            raise ValueError(
                f"{path} and {first} were summarized for different methods; use the "
                "same --method at all sites."
            )
    return next(
        m for m in FILE_METHODS if make_estimator(m).message_type is labelled[first]
    )


def _check_options(method, arguments):
    """Refuse options that the method does not have."""
    if arguments.output is not None and "mixed" in (method, arguments.method):
        raise ValueError(
            "-o writes the reference of fedcgs, which mixed effects do not have: leave "
            "it out, as skslot align takes the model too, or choose --method fedcgs."
        )
    for option, owner in (("priors", "mixed"), ("covariance", "fedcgs")):
        if getattr(arguments, option) is not None and method != owner:
            raise ValueError(
                f"--{option} is an option of --method {owner}, which makes a model; "
                "leave it out."
            )


# ------------------------------------------------------------------ what is printed


def _print_facts(senders, reference, classifier, tau):
    rows = sum(sender.n_samples for sender in senders)
    print(f"clients: {len(senders)}, rows: {rows}, features: {reference.n_features}")
    if classifier is not None:
        print(f"model: {type(classifier).__name__}")
    _print_class_table([sender for sender in senders if sender.has_labels])
    without = [printable(sender.client) for sender in senders if not sender.has_labels]
    if classifier is not None and without:
        print(f"clients without labels: {', '.join(without)}")
    if classifier is None and not without:
        print("the files describe classes too: --model FILE.slot makes a classifier")
    if hasattr(classifier, "summary"):
        print(classifier.summary())
    elif tau == "auto":
        print(f"tau: {reference.tau:.3f}")


def _print_class_table(senders):
    """Print the rows of each class at each client, if they fit on a line."""
    labels = {label for sender in senders for label in sender.class_counts}
    if not labels:
        return
    if len(labels) > MOST_CLASSES:
        print(f"classes: {len(labels)}")
        return
    labels = sorted(labels, key=lambda label: (isinstance(label, str), label))
    counts = [[sender.class_counts.get(c, 0) for c in labels] for sender in senders]
    clients = [sender.client for sender in senders]
    print(f"rows of each class:\n{count_table(counts, clients, labels)}")
