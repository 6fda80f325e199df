"""``skslot summarize``: the one file that a site sends."""

import numpy as np

from .._methods import FILE_METHODS, make_classifier
from .._utils import list_groups, printable
from ._arguments import add_command, positive_int, read_table
from ._outputs import announce, refuse_output, writing
from ._plans import settle
from ._releases import ReleaseRecord, refuse_second_release
from ._terminal import plain_warnings, print_list, warn_of_spellings

# Methods whose files are made of counts, sums and one second moment.
PRIVATE_METHODS = ("mixed", "fedcgs", "fedridge", "fedcof")
PRIVACY = {
    "epsilon": "most that one row may change the logarithm of the odds of any file",
    "delta": "probability with which it may change more, such as 1e-5",
    "clip": "norm that longer rows are cut down to",
}


def add_commands(commands):
    """Add ``summarize``."""
    command = add_command(commands, summarize)
    command.add_features()
    command.add_client()
    command.add_argument(
        "--method",
        choices=FILE_METHODS,
        help="classifier that the labels are summarized for; mixed, fedcgs, fedridge "
        "and fedcof take the same file (default: that of the plan, else mixed)",
    )
    command.add_count("--components", 1, "of fedpft: Gaussians for each class")
    command.add_argument(
        "--min-samples",
        type=positive_int,
        metavar="N",
        help="fewest rows of the site and of each class; with fewer nothing is "
        "written, since the mean of one row is that row. With --epsilon noise protects "
        "them (default: that of the plan, else 10)",
    )
    command.add_argument(
        "--drop-small-classes",
        action="store_true",
        help="leave out the rows of classes with fewer rows than that",
    )
    command.add_argument(
        "--classes",
        type=_labels,
        metavar="LABEL,...",
        help="labels that may occur, as all sites have agreed on them, separated by "
        "commas; others are refused (default: those in the file)",
    )
    command.add_shrinkage()
    command.add_dtype(None, "that of the plan, else float32")
    command.add_argument(
        "--scaling",
        action="store_true",
        help="send count, mean and spread of each feature instead, for a plan that "
        "standardizes them: skslot plan --scaling",
    )
    _add_privacy(command)
    command.add_output("FILE.slot", "the file to send")


def _add_privacy(command):
    group = command.add_argument_group(
        "differential privacy",
        "with noise, so that the file hardly depends on any one row; all three numbers "
        "are needed, and must be chosen without looking at the rows",
    )
    for name, text in PRIVACY.items():
        group.add_argument(f"--{name}", type=float, metavar="X", help=text)
    group.add_argument(
        "--again",
        action="store_true",
        help="release rows that were released before, which adds up",
    )


def summarize(arguments):
    """At a site: write the one file that it sends.

    It is small, with means and covariances of the features and no rows, and is sent to
    the server. Without labels the file serves alignment only, with labels a classifier
    too. Of a data set with a split, the training rows are used.

    example: skslot summarize features.npz --client A --labels -o A.slot
    """
    refuse_output(arguments)
    plan, budget = settle(arguments), _budget(arguments)
    if arguments.scaling:
        _check_scaling(plan, budget, arguments)
    if None not in (plan, budget):
        _follow_with_noise(plan, arguments)
    all_rows = read_table(arguments).of_client(arguments.client)
    table = all_rows.training_rows()
    n_others = len(all_rows.X) - len(table.X)
    if n_others:
        print(f"left out: {n_others} rows that are not for training")
    if table.y is not None and arguments.drop_small_classes:
        table = _without_small_classes(table, arguments.min_samples)
    if not len(table.X):
        raise ValueError(f"{table.path} has no rows left to summarize.")
    with plain_warnings(), writing(arguments):
        if table.y is not None:
            labels = np.unique(table.y).tolist()
            warn_of_spellings((label, arguments.client) for label in labels)
        if budget is None:
            message = _message(table, arguments)
        else:
            message = _release(table, arguments, budget)
        # three numbers per feature, to be joined exactly
        dtype = "float64" if arguments.scaling else arguments.dtype
        message.save(arguments.output, dtype, arguments.min_samples)
    client = printable(arguments.client)
    what = f"client {client}: {len(table.X)} rows, {table.X.shape[1]} features"
    if table.feature_names is None:
        print(what)
    else:  # so that no column slips in
        print_list(what, table.feature_names)
    if table.y is not None:
        classes, counts = np.unique(table.y, return_counts=True)
        pairs = zip(map(printable, classes.tolist()), counts, strict=True)
        print(f"rows of each class: {', '.join(f'{c}: {n}' for c, n in pairs)}")
    if budget is not None:
        print(
            f"with differential privacy: epsilon {budget.epsilon:g}, delta "
            f"{budget.delta:g}, rows clipped to norm {budget.clip_norm:g}; numbers of "
            "rows in the file are noisy"
        )
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


def _budget(arguments):
    """The guarantee that was asked for, or None."""
    from ..privacy import PrivacyBudget

    numbers = {f"--{name}": getattr(arguments, name) for name in PRIVACY}
    missing = [flag for flag, number in numbers.items() if number is None]
    if len(missing) == len(numbers):
        if arguments.again:
            raise ValueError(
                "--again is for releases with --epsilon only; leave it out."
            )
        return None
    if missing:
        raise ValueError(
            f"{', '.join(numbers)} go together: give {' and '.join(missing)} too, for "
            "example --epsilon 3 --delta 1e-5 --clip 1."
        )
    return PrivacyBudget(*numbers.values())


def _release(table, arguments, budget):
    """Message with noise, and a note of it before the file is there."""
    _check_release(table, arguments)
    with ReleaseRecord.opened() as record:
        refuse_second_release(record, table, arguments.client, arguments.again)
        message = _message(table, arguments, budget)
        record.note(table, arguments.client, budget)
    return message


def _check_release(table, arguments):
    """Refuse what has no guarantee of privacy, and what would give one away."""
    if table.encoder is None:
        raise ValueError(
            f"{table.path} does not say what made its features, so that nobody can "
            "tell whether that saw these rows; name it with --encoder."
        )
    if table.y is None:
        return
    if arguments.method not in PRIVATE_METHODS:
        raise ValueError(
            f"--method {arguments.method} has no guarantee of differential privacy: "
            "its file is not made of counts, sums and second moments alone. Choose "
            f"one of {', '.join(PRIVATE_METHODS)}."
        )
    if arguments.drop_small_classes:
        raise ValueError(
            "--drop-small-classes would tell which classes are small; with --epsilon "
            "leave it out, noise protects them."
        )
    if arguments.classes is None:
        raise ValueError(
            "with --epsilon, give the labels that may occur, as all sites have agreed "
            "on them: --classes cat,dog. Which of them this site has is not told."
        )


def _message(table, arguments, budget=None):
    """What the site sends, unless it would describe groups that are too small."""
    message = _update(table, arguments, budget).with_encoder(table.encoder)
    _check_disclosure(message, arguments.min_samples)
    return message


def _update(table, arguments, budget):
    """The message of the estimators that the server will use."""
    from .. import FederatedOTAligner, FederatedScaler

    if arguments.scaling:
        return FederatedScaler().client_update(table.X, client=arguments.client)
    aligner = FederatedOTAligner(shrinkage=arguments.shrinkage)
    if table.y is None:
        aligner.set_params(privacy=budget)
        return aligner.client_update(table.X, client=arguments.client)
    # with the part for alignment, the message of FedCGS serves mixed effects too
    method = "fedcgs" if arguments.method == "mixed" else arguments.method
    settings = {
        "fedpft": {"n_components": arguments.components},
        "fedcoreset": {"min_samples": arguments.min_samples},
    }
    classifier = make_classifier(method, aligner=aligner, **settings.get(method, {}))
    if budget is not None:
        classifier.set_params(privacy=budget)
    classes, y = arguments.classes, table.y
    if classes is not None and classes.dtype.kind == "U":
        y = y.astype(str)  # whole numbers here, but not at all sites
    return classifier.client_update(
        table.X, y, classes=classes, client=arguments.client
    )


def _labels(text):
    """Labels that are separated by commas: whole numbers if all are."""
    labels = [label.strip() for label in text.split(",")]
    if all(label.lstrip("-").isdecimal() for label in labels):
        return np.array(labels, dtype=np.int64)
    return np.array(labels)


def _follow_with_noise(plan, arguments):
    """Take the classes of a plan; refuse one by which rows depend on each other."""
    medians = [column.name for column in plan.columns if column.fill == "median"]
    if medians:
        raise ValueError(
            f"{arguments.plan} fills {', '.join(medians)} with medians of the site, "
            "so that one row changes others and --epsilon would promise too much: "
            "agree on numbers for fill in the plan."
        )
    if plan.scaling is not None:
        raise ValueError(
            f"{arguments.plan} has means and scales that were computed from rows, so "
            "that one row changes others and --epsilon would promise too much: agree "
            "on means and scales without looking at the rows."
        )
    if plan.classes and arguments.classes is None:
        arguments.classes = np.array(plan.classes)


def _check_scaling(plan, budget, arguments):
    """Refuse to prepare what no plan can take, or has already."""
    if budget is not None:
        raise ValueError(
            "--scaling has no guarantee of differential privacy: leave --epsilon out, "
            "in the plan too, or agree on means and scales without looking at rows."
        )
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
