"""``skslot report``: a page on clients, from their features or from their messages."""

from pathlib import Path

from .._atomic import atomic_output
from .._utils import ignored, printable, warn_user
from ._data import columns_of, read_rows_of_sites, reading_code
from ._main import (
    FEATURES,
    add_command,
    named_files,
    plain_warnings,
    refuse_output,
    show_progress,
    writing,
)

MESSAGES = ".slot"


def add_commands(commands):
    """Add ``report``."""
    command = add_command(commands, report)
    command.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=f"{FEATURES} of all sites, or one .slot file per site.",
    )
    command.add_columns()
    command.share("--plan")
    command.add_output("FILE.html", "The page.")
    command.share(
        "--tau",
        help="Alignment strength from 0 to 1, or auto (default: the recommendation of "
        "skslot diagnose; mixed effects for .slot files; 0.4 without labels).",
    )


def report(arguments):
    """Write a page with pictures on the clients of a features file, or of messages.

    One HTML page: how each site does and why, in plain words, what each client
    contributes, where the differences between rows come from, how far clients are apart
    before and after alignment, what skslot diagnose recommends, and the pipeline as
    code. Without labels, the page says nothing of classes and tau; from
    .slot files alone, nothing of accuracy. It needs no other file. Needs matplotlib:
    pip install "skslot[plot]".

    example: skslot report features.npz -o report.html
    """
    from ..alignment import AlignmentWarning

    paths = named_files(arguments.files)
    refuse_output(arguments, *paths)
    progress = _Progress(show_progress("report, part", arguments))
    are_messages = set(map(_is_message, paths))
    if len(are_messages) > 1:
        raise ValueError(
            f"{_first(paths, True)} is what a site sent, {_first(paths, False)} has "
            "features: a page is on the one or the other."
        )
    make = _page_of_messages if are_messages.pop() else _page_of_rows
    # the page says when not to align
    with plain_warnings(), ignored(AlignmentWarning):
        page = make(paths, arguments, progress)
    with writing(arguments), atomic_output(arguments.output) as file:
        file.write(page.encode())
    print(f"wrote {printable(arguments.output)}; open it in a browser")


def _first(paths, are_messages):
    return next(path for path in paths if _is_message(path) is are_messages)


def _is_message(path):
    return path.suffix.lower() == MESSAGES


def _page_of_rows(paths, arguments, progress):
    from ._findings import findings_of_rows
    from ._page import render_page

    if len(paths) > 1:
        raise ValueError(
            f"{paths[0]} and {paths[1]}: a page is on one file of features. Join the "
            "rows of all sites to one file in which client says whose each row is; or "
            "name the .slot files that skslot summarize makes of each."
        )
    (path,) = paths
    data, columns = read_rows_of_sites(arguments, path)
    if data.y is None and arguments.tau == "auto":
        raise ValueError(
            f"{path} has no labels, which --tau auto compares; name them by --labels, "
            "or give --tau a number."
        )
    progress.total = 5
    findings = findings_of_rows(data, arguments.tau, progress.begin, progress.tried)
    # code that anybody can run who has the files, wherever they lie
    for name in {"labels_file", "plan"} & columns.keys():
        columns[name] = Path(columns[name]).name
    reading = reading_code(path.name, columns)
    return _rendered(findings, reading, render_page, progress)


def _page_of_messages(paths, arguments, progress):
    from ._findings import findings_of_messages
    from ._page import render_page

    columns = {**columns_of(arguments), "plan": arguments.plan}
    given = [name for name, value in columns.items() if value]
    if given:
        raise ValueError(
            f"--{given[0].replace('_', '-')} is about columns of features, which "
            f"{paths[0]} has none of; leave it out."
        )
    progress.total = 3
    findings = findings_of_messages(paths, arguments.tau, progress.begin)
    return _rendered(findings, None, render_page, progress)


def _rendered(findings, reading, render_page, progress):
    progress.begin("measuring distances")
    _ = findings.report
    progress.begin("drawing")
    page = render_page(findings, reading)
    progress.end()
    for client, reason in findings.clients_report.outliers.items():
        warn_user(f"client {client!r} stands out: {reason} The page says more.")
    return page


class _Progress:
    """Counts the parts of the work; ``total`` of them come."""

    def __init__(self, show):
        self.show, self.total, self.done = show, 1, -1

    def begin(self, part):
        """Say what comes next."""
        self.done += 1
        self.show(min(self.done, self.total - 1), self.total, part)

    def tried(self, done, total):
        """Say that a model was tried, one of some that are parts of the work too."""
        if done == 1:
            self.total += total
        self.begin("trying models")

    def end(self):
        """Say that all is done."""
        self.show(self.total, self.total)
