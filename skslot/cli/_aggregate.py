"""``skslot aggregate``: what the server makes of the files of all sites."""

import sys
from collections import defaultdict
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path

from .._methods import FILE_METHODS, make_classifier
from .._utils import client_order, column_differences, count_table, ignored, printable
from ._arguments import (
    fraction_or,
    named_files,
    plain_name,
    positive_int,
    screen_of,
)
from ._outputs import announce, refuse_overwrite, refuse_twins, writing
from ._site_maps import DEFAULT_TAU, FOR_ALL_SITES, check_is_of_client, refuse_rows
from ._terminal import (
    ACTIONS,
    in_one_line,
    in_options,
    plain_warnings,
    show_progress,
    shows_progress,
    warn_of_spellings,
)

MOST_CLASSES = 20


def add_commands(commands):
    """Add ``aggregate``."""
    aggregate = commands.add_parser(
        "aggregate",
        help="at the server: make the reference and the models from the files of sites",
        description="Make a classifier from the files that skslot summarize wrote: "
        "--model writes one for all sites, --site-models one for each, which includes "
        "its alignment. -o writes the reference that all sites align to, which needs "
        "no labels. Files are read one by one, as threads are free. If one is refused, "
        "all others are still checked, nothing is written and the exit code is 1; "
        "--skip-refused goes on without it. Two files of one client are always an "
        "error.",
        epilog="example: skslot aggregate received/*.slot --model global.slot",
    )
    aggregate.add_argument(
        "messages", nargs="+", metavar="FILE.slot", help="one file of each site"
    )
    aggregate.add_output("FILE.slot", "the reference, for all sites", required=False)
    aggregate.add_argument(
        "--model",
        type=Path,
        metavar="FILE.slot",
        help="one model for all sites, which align by themselves; needs files with "
        "labels",
    )
    aggregate.add_argument(
        "--site-models",
        type=Path,
        metavar="FOLDER",
        help="where to write a model for each site, A.model.slot for A.slot, with its "
        "alignment folded in; needs labels as --model does",
    )
    aggregate.add_argument(
        "--method",
        choices=FILE_METHODS,
        help="classifier, among those that the files were summarized for (default: "
        "mixed, which needs the labels of all sites; else that of the files)",
    )
    aggregate.add_argument(
        "--tau",
        type=fraction_or("auto"),
        help="strength of the alignment, from 0 to 1, or auto, which needs the labels "
        "of all sites (default: auto for mixed, else 0.4)",
    )
    aggregate.add_argument(
        "--priors",
        choices=("pooled", "client", "uniform"),
        help="of mixed: class probabilities of all sites together, of each site if it "
        "keeps its label mix, or equal (default: pooled)",
    )
    aggregate.add_argument(
        "--covariance",
        choices=("total", "within"),
        help="of fedcgs: covariance of all rows or around class means (default: total)",
    )
    aggregate.add_argument(
        "--skip-refused",
        action="store_true",
        help="go on without files that are refused",
    )
    aggregate.add_argument(
        "--outliers",
        choices=tuple(ACTIONS),
        default="warn",
        help="what to do about sites whose numbers are so far from those of others "
        "that something must be wrong; the table that is printed shows how far each "
        "is (default: %(default)s)",
    )
    aggregate.add_argument(
        "--max-client-share",
        type=fraction_or(),
        metavar="SHARE",
        help="most that one site may count for among all rows, above 0 and up to 1 "
        "(default: no limit)",
    )
    aggregate.add_argument(
        "--jobs",
        type=positive_int,
        default=-1,
        metavar="N",
        help="threads, each of which has a file in memory; the result does not depend "
        "on them (default: as many as there are cores)",
    )
    aggregate.add_dtype()
    aggregate.set_defaults(run=_aggregate)


def _aggregate(arguments):
    from ..alignment import AlignmentWarning
    from ..exchange import MessageError, load_messages, receive

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
    estimator = _estimator(kinds, arguments).set_params(screen=screen_of(arguments))
    files = load_messages(kinds, on_error="skip")
    # once the first pass is through, all files have been checked
    files.progress = _progress(
        lambda: _report_refused(files, arguments.skip_refused), arguments
    )
    received = receive(files)
    try:
        # a reference alone classifies nothing yet
        advice = ignored(AlignmentWarning) if model is folder is None else nullcontext()
        with plain_warnings(), advice, redirect_stdout(sys.stderr):
            fitted = estimator.server_aggregate(received)
            _warn_of_spellings(received.senders)
    except MessageError as error:
        raise in_words_of_commands(error) from error
    classifier = None if model is folder is None else fitted
    aligner = fitted if classifier is None else classifier.aligner_
    reference = aligner.reference_
    _print_facts(received.senders, reference, classifier, arguments.tau)
    print(f"what each client adds:\n{received.clients_report}")
    for_sites = {}
    if folder is not None:
        folder.mkdir(exist_ok=True)  # if that fails, nothing is written
        for_sites = {targets[each.path]: each.client for each in received.senders}
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
    _tell_of_old_models(set(targets.values()) - for_sites.keys())


def _tell_of_old_models(not_written):
    """Models of sites that were refused or left out now may be there from before."""
    for path in sorted(not_written):
        if path.exists():
            print(
                f"not written: {printable(path)}, which is of an earlier run, as the "
                "site was left out or its file refused; do not send it"
            )


def _paths(arguments):
    """The files named, but for what this command wrote."""
    paths = named_files(arguments.messages)
    # a pattern finds what was written last time among the files of sites
    outputs = [p for p in (arguments.output, arguments.model) if p is not None]
    old = {path.resolve() for path in outputs if _is_for_all_sites(path)}
    paths = [path for path in paths if path.resolve() not in old]
    if not paths:
        raise ValueError(f"no file matches {' '.join(arguments.messages)}.")
    return paths


def _is_for_all_sites(path):
    from .. import exchange

    kind = exchange.load_messages([path]).headers()[path].get("kind")
    return kind in {getattr(exchange, name).kind for name in FOR_ALL_SITES}


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
    """Kind of message in each file, in the order in which ``fit`` has the clients.

    Read off the beginning of each file. What cannot be read there stands last, and is
    refused when its turn comes.
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
    """Whichever of two files is the right one, a person must say.

    One that is refused anyway, because it is damaged, is no second one.
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


def _estimator(kinds, arguments):
    """The aligner, or the classifier that sites summarized their labels for."""
    from .. import FederatedOTAligner, MixedEffectsClassifier
    from ..exchange import load_message

    known = {path: kind for path, kind in kinds.items() if kind is not None}
    if not arguments.skip_refused:
        for path in kinds:
            if path not in known:
                refuse_rows(path)
        if not known:
            load_message(next(iter(kinds)))  # which says why it cannot be read
    labelled = {path: kind for path, kind in known.items() if has_labels(kind)}
    without = [path for path in known if path not in labelled]
    method = _method(labelled, arguments)
    _check_options(method, arguments)
    if method == "mixed" and without:
        raise ValueError(
            f"mixed effects need the labels of all sites, but {without[0]} was "
            "summarized without --labels: leave it out, and let the site join by "
            "skslot adapt, with the model of the others; or choose --method fedcgs."
        )
    how = {"n_jobs": arguments.jobs, "verbose": int(shows_progress(arguments))}
    if method == "mixed":
        tau = "auto" if arguments.tau is None else arguments.tau
        priors = arguments.priors or "pooled"
        return MixedEffectsClassifier(tau, priors=priors, **how)
    tau = DEFAULT_TAU if arguments.tau is None else arguments.tau
    if tau == "auto" and without:
        raise ValueError(
            f"--tau auto needs the labels of all sites, but {without[0]} was "
            "summarized without --labels."
        )
    aligner = FederatedOTAligner(tau, **how)
    if method is None:
        return aligner
    given = {} if arguments.covariance is None else {"covariance": arguments.covariance}
    return make_classifier(method, aligner=aligner, n_jobs=arguments.jobs, **given)


def _method(labelled, arguments):
    """Name of the classifier to make; None if only the reference is asked for."""
    if arguments.model is arguments.site_models is None:
        return None
    if not labelled:
        raise ValueError(
            "a model needs labels: at the sites, run skslot summarize with --labels."
        )
    own = method_of(labelled)
    method = arguments.method or own
    if _message_of(method) is not _message_of(own):
        raise ValueError(
            f"{next(iter(labelled))} was summarized for {own}, which --method {method} "
            "cannot read: leave --method out, or summarize with it at all sites."
        )
    return method


def has_labels(kind):
    """Whether messages of a kind describe classes, which a model needs."""
    return kind.describes_classes


def method_of(labelled):
    """Method that all files are for, by their kinds; an error if they differ."""
    first = next(iter(labelled))
    for path, kind in labelled.items():
        if kind is not labelled[first]:
            raise ValueError(
                f"{path} and {first} were summarized for different methods; use the "
                "same --method at all sites."
            )
    return next(name for name in FILE_METHODS if _message_of(name) is labelled[first])


def _message_of(method):
    """Type of the messages that a method reads, with the part for alignment."""
    if method == "mixed":
        return make_classifier("mixed").message_type
    from .. import FederatedOTAligner

    return make_classifier(method, aligner=FederatedOTAligner()).message_type


def _check_options(method, arguments):
    """Refuse options that the method would make no use of."""
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


def _report_refused(files, skip_refused):
    for error in files.refused.values():
        print(f"skslot: refused: {in_one_line(error)}", file=sys.stderr)
    n_refused, n_all = len(files.refused), len(files.paths)
    if n_refused == n_all:
        raise ValueError("all files were refused.")
    if n_refused and not skip_refused:
        raise ValueError(
            f"{n_refused} of {n_all} files were refused, and nothing was written; ask "
            "for them again, or go on without them by --skip-refused."
        )


def in_words_of_commands(error):
    """Files that do not go together, with what to do about it at the command line."""
    found = error.disagreement
    if found is None:
        return error
    values = found.value, found.other_value
    remedy = "All sites must use the same encoder."
    if found.trait == "encoder" and None in values:
        remedy = "If it is the same, say so by skslot summarize --encoder TEXT."
    if found.trait == "encoder" and any(str(v).startswith("plan:") for v in values):
        return ValueError(
            f"{error.path} and {found.other.path} were not made by the same plan"
            f"{_in_columns(error, found)}. Send one plan to all sites, and let them "
            "run skslot summarize --plan again."
        )
    if found.trait == "encoder" and all(str(v).startswith("columns:") for v in values):
        return ValueError(
            f"the tables of {error.path} and {found.other.path} have different "
            f"columns{_in_columns(error, found)}; summarize one of them again. "
            "--features chooses columns, in their order, --ignore and --id-column "
            "leave some out."
        )
    if found.trait == "kind of labels":
        remedy = "Write them alike at all sites and summarize again."
    return ValueError(
        f"{found.trait} is {values[0]!r} in {error.path} and {values[1]!r} in "
        f"{found.other.path}. {remedy}"
    )


def _in_columns(error, found):
    """How a file differs from another one in its columns, if both say so."""
    from ..exchange import fingerprint_names

    names = map(fingerprint_names, (found.value, found.other_value))
    differences = column_differences(*names, found.other.path)
    return "" if differences is None else f": {error.path} {differences}"


def _print_facts(senders, reference, classifier, tau):
    rows = sum(sender.n_samples for sender in senders)
    print(f"clients: {len(senders)}, rows: {rows}, features: {reference.n_features}")
    _print_class_table([sender for sender in senders if sender.has_labels])
    without = [printable(sender.client) for sender in senders if not sender.has_labels]
    if classifier is not None and without:
        print(f"clients without labels: {', '.join(without)}")
    if classifier is None and not without:
        print("the files describe classes too: --model FILE.slot makes a classifier")
    if hasattr(classifier, "summary"):
        print(_in_options_of_commands(classifier.summary()))
    elif tau == "auto":
        print(f"tau: {reference.tau:.3f}")


def _in_options_of_commands(summary):
    """What the classifier says about sites, with what can be done here."""
    text = in_options(summary).replace("adapt_client", "skslot adapt")
    return text.replace("\n\n", "\n")


def _print_class_table(senders):
    """Rows of each class at each client, as long as that fits on a line."""
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


def _warn_of_spellings(senders):
    pairs = [(label, each.client) for each in senders for label in each.class_counts]
    warn_of_spellings(pairs)


def _progress(after_first_pass, arguments):
    """Callback that counts files, and the passes over them."""
    number, show = 0, None

    def progress(done, total):
        nonlocal number, show
        if done == 1:
            number += 1
            show = show_progress(f"reading {number}, file", arguments)
        show(done, total)
        if done == total and number == 1:
            after_first_pass()

    return progress
