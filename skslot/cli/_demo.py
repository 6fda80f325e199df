"""``skslot demo``: what alignment does, on embedded data."""

from ._options import positive_int, show_progress


def add_commands(commands):
    """Add ``demo``."""
    demo = commands.add_parser(
        "demo",
        help="show what alignment does, on embedded data",
        description="Show what alignment does, on embedded data: no download, no "
        "extra package, a few seconds.",
        epilog="example: skslot demo --partitions 3",
    )
    demo.add_argument(
        "--partitions",
        type=positive_int,
        default=10,
        metavar="N",
        help="label-skewed partitions to average over (default: 10)",
    )
    demo.set_defaults(run=_demo)


def _demo(arguments):
    from ..experiments import run_demo  # scikit-learn takes a second: not for --help

    print(run_demo(arguments.partitions, progress=show_progress("partition")))
