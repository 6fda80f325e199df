"""Files that are written as a whole or not at all."""

import os
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def atomic_output(path):
    """Binary file that becomes ``path`` when the block ends, and only if it ends well.

    Whoever reads ``path`` sees what was there before or all that was written, also
    when the process is killed in between.
    """
    path = Path(path)
    # beside the target, since a file can be moved at once only within a disk
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
