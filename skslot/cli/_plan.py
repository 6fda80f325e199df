"""``skslot plan``: what all sites do to their tables, in a file."""

from pathlib import Path

import numpy as np

from .._utils import list_groups, spelled_alike, warn_user
from ._aggregate import in_words_of_commands
from ._arguments import add_command, named_files, number_or, screen_of
from ._outputs import announce, refuse_output
from ._site_maps import load_kind
from ._terminal import ACTIONS, plain_warnings, print_list


def add_commands(commands):
    """Add ``plan``."""
    command = add_command(commands, plan)
    command.add_argument(
        "features",
        type=Path,
        nargs="?",
        metavar="TABLE",
        help="table of one site: .csv, .parquet or .feather",
    )
    command.add_argument(
        "--labels", metavar="COLUMN", help="column with the labels, if there is one"
    )
    command.add_choice(command)
    command.add_argument(
        "--fill",
        type=number_or("median"),
        metavar="X",
        help="what stands for missing values in all columns of numbers: median, which "
        "each site has of its own, or a number (default: median in columns that miss "
        "some in TABLE; a gap elsewhere is refused)",
    )
    command.add_argument(
        "--plan",
        type=Path,
        metavar="FILE.toml",
        help="a plan to fill in: with TABLE and --client the medians of that site, "
        "with --scaling the means and scales of all sites",
    )
    command.add_client(default="none; the plan is for all sites")
    command.add_argument(
        "--scaling",
        nargs="+",
        metavar="FILE.slot",
        help="what skslot summarize --scaling wrote at each site",
    )
    command.add_argument(
        "--outliers",
        choices=tuple(ACTIONS),
        default="warn",
        help="with --scaling: what to do about sites whose numbers are so far from "
        "those of others that something must be wrong; the table that is printed shows "
        "how far each is (default: %(default)s)",
    )
    command.add_output("FILE.toml", "the plan")


def plan(arguments):
    """Write down how all sites make features of their tables.

    From the table of one site, a plan is drafted: which columns are features, what
    stands for missing values, which categories there are. Read it, correct it, and send
    the same file to all sites, which follow it by --plan. With --scaling the server
    fills in means and scales. With --client a site fills in its medians, if the plan
    asks for them, so that later rows are filled by those of now.

    example: skslot plan hospital.csv --labels diagnosis --id-column patient
    -o study.toml
    """
    refuse_output(arguments, suffix=".toml")
    has_table, has_plan = arguments.features is not None, arguments.plan is not None
    if has_plan and arguments.fill is not None:
        raise ValueError(
            f"--fill is for a draft: {arguments.plan} says what stands for missing "
            "values. To agree on something else, draft it again or edit it."
        )
    if has_table and not has_plan and arguments.scaling is None:
        made, what = _draft(arguments), "read it, correct it, send it to all sites"
    elif has_table and has_plan and arguments.client is not None:
        made, what = _at_site(arguments), f"the plan of client {arguments.client}"
    elif has_plan and arguments.scaling is not None and not has_table:
        made, what = _with_scaling(arguments), "send it to all sites"
    else:
        raise ValueError(
            "give TABLE to draft a plan, TABLE --plan FILE.toml --client NAME for that "
            "of a site, or --plan FILE.toml --scaling FILE.slot ... to standardize."
        )
    made.save(arguments.output)
    announce(arguments.output, what)


def _draft(arguments):
    from ..datasets import StudyPlan

    drafted = StudyPlan.draft(
        arguments.features,
        label=arguments.labels,
        ignore=arguments.ignore,
        id_column=arguments.id_column,
        client_column=arguments.client_column,
        features=arguments.feature_columns,
        fill=arguments.fill,
    )
    print_list(f"{len(drafted.feature_names)} features", drafted.feature_names)
    if drafted.label is None:
        print("no labels: name their column by --labels")
    else:
        print(f"labels: {drafted.label}: {', '.join(map(str, drafted.classes))}")
    filled = [column.name for column in drafted.columns if column.fill is not None]
    if filled:
        by_median = arguments.fill in (None, "median")
        by = "the median of each site" if by_median else f"{arguments.fill:g}"
        print_list(f"missing values, filled by {by}", filled)
    lumped = [each.feature_names[-1] for each in drafted.columns if each.has_other]
    if lumped:
        print_list("missing and unlisted categories have a column of their own", lumped)
    if any(column.fill is column.categories is None for column in drafted.columns):
        print(
            "other sites and new rows may miss more: --fill median fills in all numbers"
        )
    with plain_warnings():
        _warn_of_labels(drafted, arguments)
    return drafted


def _warn_of_labels(drafted, arguments):
    """Say what the table shows of labels and categories that sites would stumble on."""
    from ..datasets import load_features

    values = {column.name: column.categories or () for column in drafted.columns}
    for name, texts in {drafted.label: drafted.classes, **values}.items():
        for found in spelled_alike(texts):
            warn_user(
                f"{' and '.join(map(repr, found))} in column {name!r} are different to "
                "a computer; if they are the same, write them alike in the tables of "
                "all sites, and draft the plan again."
            )
    if drafted.label is None:
        return
    path, plan = arguments.features, drafted.at_site(arguments.features, None)
    rows = load_features(path, plan=plan, ignore=arguments.ignore).training_rows()
    classes, counts = np.unique(rows.y, return_counts=True)
    few = counts < drafted.min_samples
    if few.any():
        groups = dict(zip(classes[few].tolist(), counts[few].tolist(), strict=True))
        warn_user(
            f"{path}: {list_groups(groups)}: a site sends no class with fewer than "
            f"{drafted.min_samples}, the min_samples of the plan. Get more rows, join "
            "classes, or leave such rows out at each site by skslot summarize "
            "--drop-small-classes."
        )


def _at_site(arguments):
    from ..datasets import StudyPlan

    shared = StudyPlan.load(arguments.plan)
    table, client = arguments.features, arguments.client
    return shared.at_site(table, client, arguments.client_column)


def _with_scaling(arguments):
    from .. import FederatedScaler
    from ..datasets import StudyPlan
    from ..exchange import MessageError, load_messages, receive

    paths = named_files(arguments.scaling)
    if not paths:
        raise ValueError(f"no file matches {' '.join(arguments.scaling)}.")
    for path in paths:
        load_kind(path, ("ColumnStatistics",), "what skslot summarize --scaling")
    received = receive(load_messages(paths))
    try:
        with plain_warnings():
            scaler = FederatedScaler(screen=screen_of(arguments))
            answer = scaler.server_aggregate(received).statistics_
    except MessageError as error:
        raise in_words_of_commands(error) from error
    print(f"clients: {len(received.senders)}, rows: {answer.n_samples}")
    print(f"what each client adds:\n{received.clients_report}")
    return StudyPlan.load(arguments.plan).with_scaling(answer)
