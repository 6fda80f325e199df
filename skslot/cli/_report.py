"""``skslot report``: a page about clients, from their rows or from their messages."""

from pathlib import Path
from shlex import quote

from .._atomic import atomic_output
from .._utils import printable
from ._aggregate import has_labels, in_words_of_commands, look_at, method_of
from ._arguments import (
    FEATURES,
    add_command,
    columns_of,
    fraction_or,
    named_files,
    read_rows_of_sites,
    reading_code,
)
from ._outputs import refuse_output, writing
from ._site_maps import DEFAULT_TAU
from ._terminal import plain_warnings, show_progress

MESSAGES = ".slot"
MOST_FILES = 6  # in a command; more are written as a pattern
READING = """\
from skslot.experiments import FeatureSet

data = FeatureSet.from_file({}).training_rows()
X, y, client_ids = data.X, data.y, data.client_ids

"""


def add_commands(commands):
    """Add ``report``."""
    command = add_command(commands, report)
    command.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=f"{FEATURES}; client says whose each row is. Of a data set with a split, "
        "the training rows are used. Or the .slot files that skslot summarize wrote, "
        "one of each site",
    )
    command.add_rows_of_sites()
    command.add_output("FILE.html", "the page")
    command.add_argument(
        "--tau",
        type=fraction_or("auto"),
        help="strength of the alignment, from 0 to 1, or auto for the closed form "
        "(default: what skslot diagnose recommends, which takes longer; mixed effects "
        "for .slot files with labels of all sites; 0.4 without labels)",
    )


def report(arguments):
    """Write a page about clients, from a file of features or from messages.

    One HTML file with plain words and pictures, for the people who run the sites: each
    site, its classes, its distance from others, the variance, and the recommendation of
    skslot diagnose as code. From .slot files, the accuracy is unknown. Needs
    matplotlib: pip install "skslot[plot]".

    example: skslot report features.npz -o report.html
    """
    paths = named_files(arguments.files)
    refuse_output(arguments, *paths)
    if not paths:
        raise ValueError(f"no file matches {' '.join(arguments.files)}.")
    messages = [path for path in paths if path.suffix.lower() == MESSAGES]
    features = [path for path in paths if path not in messages]
    if messages and features:
        raise ValueError(
            f"{messages[0]} is what a site sent, {features[0]} has features: give the "
            "one or the other."
        )
    make = _page_of_messages if messages else _page_of_rows
    with plain_warnings():
        page = make(paths, arguments, show_progress("report, part", arguments))
    with writing(arguments), atomic_output(arguments.output) as file:
        file.write(page.encode())
    print(f"wrote {printable(arguments.output)}; open it in a browser")


def _page_of_rows(paths, arguments, progress):
    from ..inspection import client_report

    if len(paths) > 1:
        raise ValueError(
            f"{paths[0]} and {paths[1]}: a page is about one file of features. Join "
            "the rows of all sites in one file with a column client, or give the .slot "
            "files that skslot summarize writes."
        )
    (path,) = paths
    data, columns = read_rows_of_sites(arguments, path)
    if data.y is None and arguments.tau == "auto":
        raise ValueError(
            f"{path} has no labels, which --tau auto compares; name them by --labels, "
            "or give --tau a number."
        )
    # code that anybody can run who has the files, in whatever folder
    for name in {"labels_file", "plan"} & columns.keys():
        columns[name] = Path(columns[name]).name
    return client_report(
        data.X,
        data.y,
        data.client_ids,
        tau=arguments.tau,
        name=data.name,
        reading=READING.format(reading_code(path.name, columns)),
        progress=progress,
    )


def _page_of_messages(paths, arguments, progress):
    from ..exchange import MessageError, load_message, load_messages
    from ..inspection import message_report

    columns = {**columns_of(arguments), "plan": arguments.plan}
    given = [name for name, value in columns.items() if value]
    if given:
        raise ValueError(
            f"--{given[0].replace('_', '-')} is about columns of features, which "
            f"{paths[0]} does not have; leave it out."
        )
    if len(paths) < 2:
        load_message(paths[0])  # which says if it cannot be read
        raise ValueError(
            f"{paths[0]} is of one client only; there is nothing to compare. Name the "
            "files of all sites."
        )
    kinds = look_at(paths)
    without = [path for path, kind in kinds.items() if kind and not has_labels(kind)]
    if arguments.tau == "auto" and without:
        raise ValueError(
            f"--tau auto needs the labels of all sites, but {without[0]} was "
            "summarized without --labels."
        )
    command, note = _next_command(kinds, without, arguments.tau)
    try:
        return message_report(
            load_messages(kinds),
            tau=arguments.tau,
            command=command,
            note=note,
            progress=progress,
        )
    except MessageError as error:
        raise in_words_of_commands(error) from error


def _next_command(kinds, without, tau):
    """Return the command that makes a model of these files, and a note on it."""
    labelled = {path: kind for path, kind in kinds.items() if kind and has_labels(kind)}
    try:
        method = method_of(labelled) if labelled else None
    except ValueError as error:
        return None, printable(f"No model can be made of these files: {error}")
    names, options, note = [path.name for path in kinds], "--model model.slot", None
    if tau is None and method == "mixed" and without:
        names = [path.name for path in labelled]
        note = (
            f"{', '.join(printable(path.name) for path in without)} came without "
            "labels, which mixed effects need: this command makes a model of the other "
            "files, and a site without labels joins it by skslot adapt. --method "
            "fedcgs would use the files of all sites."
        )
    elif tau is not None or method != "mixed":
        options = options if method else "-o reference.slot"
        options += " --method fedcgs" * (method == "mixed")
        if tau is None:
            tau = DEFAULT_TAU if without else "auto"
        options += f" --tau {tau if tau == 'auto' else format(tau, '.4g')}"
    is_pattern = MOST_FILES < len(names) == len(kinds) and all(
        name.endswith(MESSAGES) for name in names
    )
    files = f"*{MESSAGES}" if is_pattern else " ".join(map(quote, names))
    return f"skslot aggregate {files} {options}\n", note
