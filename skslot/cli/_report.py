"""``skslot report``: a page on the clients of a features file."""

from pathlib import Path

from .._atomic import atomic_output
from ._files import refuse_overwrite
from ._options import fraction_or


def add_commands(commands):
    """Add ``report``."""
    report = commands.add_parser(
        "report",
        help="write a page with pictures on the clients of a features file",
        description="Write one HTML page on the clients of a features file: what each "
        "contributes, how far they are apart before and after alignment, which tau to "
        "take, and the pipeline as code. Without labels, the page says nothing of "
        "classes and tau. It needs no other file. Needs matplotlib: "
        'pip install "skslot[plot]".',
        epilog="example: skslot report features.npz -o report.html",
    )
    report.add_argument(
        "features",
        type=Path,
        metavar="FEATURES.npz",
        help="features with X, client and, if there are labels, y, such as skslot "
        "encode writes; of a data set with a split, the training rows are used",
    )
    report.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE.html",
        help="the page",
    )
    report.add_argument(
        "--tau",
        type=fraction_or("auto"),
        help="strength of the alignment, from 0 to 1, or auto for the closed form "
        "(default: search for the best, which takes longer; 0.4 without labels)",
    )
    report.add_argument(
        "--force", action="store_true", help="overwrite FILE.html if it exists"
    )
    report.set_defaults(run=_report)


def _report(arguments):
    from ..experiments import FeatureSet
    from ._page import render_page

    refuse_overwrite(arguments.output, arguments.force, [arguments.features])
    data = FeatureSet.from_file(arguments.features).training_rows()
    if data.y is None and arguments.tau == "auto":
        raise ValueError(
            f"{arguments.features} has no labels, which --tau auto compares; add them "
            "as an array y, or give --tau a number."
        )
    page = render_page(data, arguments.features, tau=arguments.tau)
    with atomic_output(arguments.output) as file:
        file.write(page.encode())
    print(f"wrote {arguments.output}; open it in a browser")
