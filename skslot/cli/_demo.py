"""``skslot demo``: what alignment does, on embedded data."""

from pathlib import Path
from textwrap import fill

from .._atomic import atomic_output, outputs_together
from .._utils import printable
from ._arguments import add_command
from ._outputs import refuse_overwrite
from ._terminal import in_one_line, show_progress


def add_commands(commands):
    """Add ``demo``."""
    command = add_command(commands, demo)
    command.add_count("--partitions", 5, "label-skewed partitions to average over")
    command.add_argument(
        "--picture",
        type=Path,
        default=Path("skslot-demo.png"),
        metavar="FILE.png",
        help="where to draw the features, if matplotlib is installed; a file that "
        "exists is kept (default: %(default)s)",
    )


def demo(arguments):
    """Show what alignment does, on embedded data.

    No download, no extra package, less than a minute.

    example: skslot demo --partitions 3
    """
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    from ..experiments import run_demo  # scikit-learn takes a second: not for --help

    with threadpool_limits(1):  # threads are slower than none on matrices this small
        result = run_demo(
            arguments.partitions, progress=show_progress("step", arguments)
        )
    print(result)
    print(f"\n{_save_picture(result, arguments.picture)}")


def _save_picture(result, path):
    """Draw, if that can be done; words that say what became of it."""
    name = printable(path)
    if path.exists():
        return f"No picture: {name} exists already; name another file with --picture."
    try:
        refuse_overwrite(path)
        figure = result.plot().figure_
        with outputs_together(replace=False), atomic_output(path) as file:
            figure.savefig(file, format=path.suffix[1:] or "png", dpi=150)
    except (ImportError, OSError) as error:
        return f"No picture: {in_one_line(error)}"
    text = (
        f"Picture: {name}, the training features in two dimensions. From left to right "
        "sites come together (top); at tau=1 digits do so too (bottom), which is too "
        "much."
    )
    return fill(text, width=88, break_long_words=False)
