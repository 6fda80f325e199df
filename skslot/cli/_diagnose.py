"""``skslot diagnose``: what the clients of a features file call for."""

from pathlib import Path

from ._arguments import FEATURES, add_command, columns_of
from ._terminal import show_progress

READING = """\
    from skslot.experiments import FeatureSet

    data = FeatureSet.from_file({}).training_rows()
    X, y, client_ids = data.X, data.y, data.client_ids"""


def add_commands(commands):
    """Add ``diagnose``."""
    command = add_command(commands, diagnose)
    command.add_argument(
        "features",
        type=Path,
        metavar="FEATURES",
        help=f"{FEATURES}; client says whose each row is. Of a data set with a split, "
        "the training rows are used",
    )
    command.add_columns(default=", and by default if there is one")
    command.add_argument(
        "--labels-at-use",
        choices=("shared", "as_now"),
        default="shared",
        help="labels that each client will meet when the model is used: as all clients "
        "together have them now, or in the mix that it has now; no data can tell "
        "(default: %(default)s)",
    )


def diagnose(arguments):
    """Say which estimator the clients of a features file call for.

    Rows, classes, empty cells, how labels and features differ between clients, who
    stands out, what accuracy to expect where, and a recommendation in three sentences,
    with code. Without labels there is none. Nothing is written and nothing is sent; it
    needs the rows of all clients in one file, such as those of a pilot study.

    example: skslot diagnose features.npz --labels-at-use as_now
    """
    from ..experiments import FeatureSet
    from ..inspection import diagnose

    columns = {name: value for name, value in columns_of(arguments).items() if value}
    data = FeatureSet.from_file(arguments.features, **columns).training_rows()
    found = diagnose(
        data.X,
        data.y,
        data.client_ids,
        labels_at_use=arguments.labels_at_use,
        progress=show_progress("models tried", arguments),
    )
    print(found)
    if found.code:
        options = (f"{name}={value!r}" for name, value in columns.items())
        reading = ", ".join([repr(str(arguments.features)), *options])
        print(f"\nX, y and client_ids are read by\n\n{READING.format(reading)}")
