"""``skslot report``: a page on the clients of a features file."""

from pathlib import Path

from .._atomic import atomic_output
from .._text import printable
from .._warnings import ignored
from ._arguments import FEATURES, add_command, columns_of, fraction_or
from ._outputs import refuse_output, writing
from ._terminal import show_progress


def add_commands(commands):
    """Add ``report``."""
    command = add_command(commands, report)
    command.add_argument(
        "features",
        type=Path,
        metavar="FEATURES",
        help=f"{FEATURES}; client says whose each row is. Of a data set with a split, "
        "the training rows are used",
    )
    command.add_columns(default=", and by default if there is one")
    command.add_output("FILE.html", "the page")
    command.add_argument(
        "--tau",
        type=fraction_or("auto"),
        help="strength of the alignment, from 0 to 1, or auto for the closed form "
        "(default: search for the best and compare it with mixed effects, which takes "
        "longer; 0.4 without labels)",
    )


def report(arguments):
    """Write a page with pictures on the clients of a features file.

    One HTML page: what each client contributes, where the differences between rows come
    from, how far clients are apart before and after alignment, whether to take mixed
    effects or which tau, and the pipeline as code. Without labels, the page says
    nothing of classes and tau. It needs no other file. Needs matplotlib:
    pip install "skslot[plot]".

    example: skslot report features.npz -o report.html
    """
    from ..alignment import AlignmentWarning
    from ..experiments import FeatureSet
    from ._page import render_page

    refuse_output(arguments)
    columns = {name: value for name, value in columns_of(arguments).items() if value}
    data = FeatureSet.from_file(arguments.features, **columns).training_rows()
    if data.y is None and arguments.tau == "auto":
        raise ValueError(
            f"{arguments.features} has no labels, which --tau auto compares; name them "
            "by --labels, or give --tau a number."
        )
    options = (f"{name}={value!r}" for name, value in columns.items())
    reading = ", ".join([repr(str(arguments.features)), *options])
    progress = show_progress("report, part", arguments)
    with ignored(AlignmentWarning):  # the page says when not to align
        page = render_page(data, reading, tau=arguments.tau, progress=progress)
    with writing(arguments), atomic_output(arguments.output) as file:
        file.write(page.encode())
    print(f"wrote {printable(arguments.output)}; open it in a browser")
