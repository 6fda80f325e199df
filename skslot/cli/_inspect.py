"""``skslot inspect``: a message in words."""

from pathlib import Path


def add_commands(commands):
    """Add ``inspect``."""
    inspect = commands.add_parser(
        "inspect",
        help="say in words what is in a file, and what is not",
        description="Say in words what is in a file that leaves a site or comes back, "
        "and what is not.",
        epilog="example: skslot inspect A.slot",
    )
    inspect.add_argument("message", type=Path, metavar="FILE.slot", help="the file")
    inspect.set_defaults(run=_inspect)


def _inspect(arguments):
    from ..exchange import load_message
    from ..exchange._wire import decode

    path = arguments.message
    message = load_message(path)
    data = path.read_bytes()
    header = decode(data)[1]
    version = header.get("skslot", "before the first release")
    print(
        f"{path}: {len(data):,} bytes in {header['dtype']}, format {header['format']}, "
        f"skslot {version}, checksum right"
    )
    print(message.describe())
