"""Bytes in files: written as a whole or not at all, read with the path in errors."""

import os
from pathlib import Path
from uuid import uuid4

from ._errors import MessageError


def write_file(path, data):
    """Write bytes so that nobody ever sees half of them."""
    path = Path(path)
    # beside the target, since a file can be moved at once only within a disk
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_file(path, read):
    """What ``read`` makes of the bytes of a file; errors name the file."""
    try:
        return read(Path(path).read_bytes())
    except MessageError as error:
        raise MessageError(error.reason, error.client, path) from error
