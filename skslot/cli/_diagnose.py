"""``skslot diagnose``: what the clients of a features file call for."""

from pathlib import Path

from ._arguments import FEATURES, add_command, read_rows_of_sites, reading_code
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
    command.add_rows_of_sites()
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
    needs the rows of all clients in one file, such as those of a pilot study. With
    --plan, each client fills missing values by its own medians, as sites do.

    example: skslot diagnose features.npz --labels-at-use as_now
    """
    from ..inspection import diagnose

    data, columns = read_rows_of_sites(arguments, arguments.features)
    found = diagnose(
        data.X,
        data.y,
        data.client_ids,
        labels_at_use=arguments.labels_at_use,
        progress=show_progress("models tried", arguments),
    )
    print(found)
    if found.code:
        reading = reading_code(arguments.features, columns)
        print(f"\nX, y and client_ids are read by\n\n{READING.format(reading)}")
