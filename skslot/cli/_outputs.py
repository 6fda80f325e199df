"""Output files: never half-written, never overwritten by accident."""

import os
from pathlib import Path

import numpy as np

from .._atomic import atomic_output, outputs_together, refuse_other_than_files
from .._utils import printable


def refuse_overwrite(path, force=False, inputs=()):
    """Raise an error if ``path`` cannot be written or, without ``force``, exists.

    What is read is never overwritten: ``inputs`` are paths, or None for those that were
    not given. To be called before the work, not after it.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"the folder {path.parent} for {path.name} does not exist; create it first."
        )
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(
            f"the folder {path.parent} for {path.name} cannot be written to; choose "
            "another one, or ask for the right to write there."
        )
    for source in inputs:
        both_exist = source is not None and path.exists() and Path(source).exists()
        if both_exist and path.samefile(source):
            raise ValueError(
                f"{path} is read as an input and would be overwritten; choose another "
                "name for the output."
            )
    refuse_other_than_files(path)
    if path.exists() and not force:
        raise FileExistsError(
            f"{path} exists already; choose another name, or overwrite it with --force."
        )


def refuse_output(arguments, *inputs, suffix=None):
    """Refuse an output that exists, is one of the inputs, or has another suffix."""
    output = arguments.output
    if suffix is not None and output.suffix != suffix:
        raise ValueError(
            f"the name of the output must end in {suffix}, not {output.name}."
        )
    names = ("features", "labels_file", "plan")
    inputs += tuple(getattr(arguments, name, None) for name in names)
    refuse_overwrite(output, arguments.force, inputs)


def refuse_twins(outputs):
    """Raise an error if two outputs are the same file."""
    places = [path.resolve() for path in outputs]
    for path, place in zip(outputs, places, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"{path} cannot be two outputs at once.")


def writing(arguments):
    """Block that writes the outputs of a command: all of them, or none.

    What exists by its end is kept unless there is ``--force``, also what another
    process has written since :func:`refuse_overwrite` looked.
    """
    return outputs_together(replace=arguments.force)


def write_npz_atomically(path, arrays):
    """Write a dict of arrays that can be read without pickle, all of them or none."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, which are not written.")
    with atomic_output(path, private=True) as file:
        np.savez(file, **arrays)


def announce(path, what):
    """Say that a file was written."""
    print(f"wrote {printable(path)}, {path.stat().st_size:,} bytes: {what}")
