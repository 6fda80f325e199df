"""Bytes in files: written as a whole or not at all, read with the path in errors."""

from pathlib import Path

from .._atomic import atomic_output
from ._errors import MessageError


def write_file(path, data):
    """Write bytes so that nobody ever sees half of them."""
    with atomic_output(path) as file:
        file.write(data)


def read_file(path, read):
    """What ``read`` makes of the bytes of a file; errors name the file."""
    try:
        return read(Path(path).read_bytes())
    except MessageError as error:
        raise MessageError(error.reason, error.client, path) from error
