"""``skslot aggregate``: what the server makes of the files of all sites."""

from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path

from .._clients import client_order
from ._exchange import DEFAULT_TAU, add_dtype, add_output, announce, plain_warnings
from ._files import refuse_overwrite, refuse_twins
from ._options import fraction_or, show_progress
from ._senders import (
    labels_of,
    print_class_table,
    read_files,
    warn_of_spellings,
)


def add_commands(commands):
    """Add ``aggregate``."""
    aggregate = commands.add_parser(
        "aggregate",
        help="at the server: make the reference and the models from the files of sites",
        description="Make the reference that all sites align to from the files that "
        "skslot summarize wrote, and a classifier if these have labels: --model writes "
        "one for all sites, --site-models one for each, which includes its alignment. "
        "Files are read one at a time. If one is refused, all others are still "
        "checked, nothing is written and the exit code is 1; --skip-refused goes on "
        "without it. Two files of one client are always an error.",
        epilog="example: skslot aggregate received/*.slot -o reference.slot "
        "--model global.slot",
    )
    aggregate.add_argument(
        "messages", nargs="+", metavar="FILE.slot", help="one file of each site"
    )
    add_output(aggregate, "FILE.slot", "the reference, for all sites", required=False)
    aggregate.add_argument(
        "--model",
        type=Path,
        metavar="FILE.slot",
        help="one model for all sites, which align by themselves; needs files with "
        "labels, but not of all sites",
    )
    aggregate.add_argument(
        "--site-models",
        type=Path,
        metavar="FOLDER",
        help="where to write a model for each site, A.model.slot for A.slot, with its "
        "alignment folded in; needs labels as --model does",
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


def _aggregate(arguments):
    from ..exchange import AlignedModel, load_messages

    output, model, folder = arguments.output, arguments.model, arguments.site_models
    if output is model is folder is None:
        raise ValueError(
            "nothing to write: give -o FILE.slot, --model FILE.slot or --site-models "
            "FOLDER."
        )
    paths = _paths(arguments)
    targets = _targets(paths, folder)
    _refuse_outputs(arguments, targets.values(), paths)
    messages = load_messages(paths, on_error="skip", progress=_progress())
    senders = read_files(messages, arguments.skip_refused)
    # whatever files are called, clients come in the same order as in fit
    senders = dict(
        sorted(senders.items(), key=lambda item: client_order(item[1].client))
    )
    messages.paths = list(senders)
    with plain_warnings():
        warn_of_spellings(labels_of(senders.values()))
        reference, classifier = _fit(messages, senders, arguments)
    _print_facts(senders, reference, arguments)
    if folder is not None:
        folder.mkdir(exist_ok=True)  # if that fails, nothing is written
    if output is not None:
        reference.save(output, arguments.dtype)
        announce(output, "send it to all sites")
    if model is not None:
        tau = DEFAULT_TAU if reference.tau is None else reference.tau
        joint = AlignedModel.of(classifier.linear_model(), reference, tau)
        joint.save(model, arguments.dtype)
        announce(model, "send it to all sites")
    if folder is None:
        return
    for path, sender in senders.items():
        classifier.client_model(sender.client).save(targets[path], arguments.dtype)
        announce(targets[path], f"send it to client {sender.client}")


def _paths(arguments):
    """The files named; patterns are resolved here, as not all shells do it."""
    paths = []
    for name in arguments.messages:
        is_pattern = has_magic(name) and not Path(name).exists()
        paths += map(Path, sorted(glob(name)) if is_pattern else [name])
    # a pattern finds what was written last time among the files of sites
    outputs = [p for p in (arguments.output, arguments.model) if p is not None]
    old = {path.resolve() for path in outputs if _is_for_all_sites(path)}
    paths = [path for path in paths if path.resolve() not in old]
    if not paths:
        raise ValueError(f"no file matches {' '.join(arguments.messages)}.")
    return paths


def _is_for_all_sites(path):
    from ..exchange import AlignedModel, AlignmentReference, MessageError, load_message

    try:
        return isinstance(load_message(path), AlignedModel | AlignmentReference)
    except (OSError, MessageError):
        return False


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


def _fit(messages, senders, arguments):
    """The reference, and the classifier if a model is wanted."""
    from .. import FederatedOTAligner

    tau = DEFAULT_TAU if arguments.tau is None else arguments.tau
    aligner = FederatedOTAligner(tau)
    without = [path for path, sender in senders.items() if not sender.has_labels]
    if tau == "auto" and without:
        raise ValueError(
            f"--tau auto needs the labels of all sites, but {without[0]} was "
            "summarized without --labels."
        )
    if arguments.model is None and arguments.site_models is None:
        classifier, reference = None, aligner.server_aggregate(messages)
    else:
        classifier = _classifier(senders, aligner, arguments.covariance)
        reference = classifier.server_aggregate(messages).reference_
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
            "a model needs labels: at the sites, run skslot summarize with --labels."
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


def _print_facts(senders, reference, arguments):
    senders = senders.values()
    rows = sum(sender.n_samples for sender in senders)
    print(f"clients: {len(senders)}, rows: {rows}, features: {reference.n_features}")
    print_class_table([sender for sender in senders if sender.has_labels])
    without = [str(sender.client) for sender in senders if not sender.has_labels]
    has_model = arguments.model is not None or arguments.site_models is not None
    if has_model and without:
        print(f"clients without labels: {', '.join(without)}")
    if not has_model and not without:
        print("the files describe classes too: --model FILE.slot makes a classifier")
    if arguments.tau == "auto":
        print(f"tau: {reference.tau:.3f}")


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
