"""``skslot inspect``: a message in words."""

from pathlib import Path

from .._utils import printable
from ._arguments import add_command
from ._site_maps import refuse_rows


def add_commands(commands):
    """Add ``inspect``."""
    command = add_command(commands, inspect)
    command.add_argument("message", type=Path, metavar="FILE.slot", help="the file")


def inspect(arguments):
    """Say in words what is in a file, and what is not.

    For files that leave a site and for those that come back.

    example: skslot inspect A.slot
    """
    from ..exchange import load_messages

    path = arguments.message
    refuse_rows(path)
    files = load_messages([path])
    (message,), header = files, files.headers()[path]
    print(
        f"{printable(path)}: {path.stat().st_size:,} bytes in {header['dtype']}, "
        f"format {header['format']}, skslot {printable(header['skslot'])}, checksum "
        "right"
    )
    print(message.describe())
