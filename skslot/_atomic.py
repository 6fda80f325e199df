"""Files that are written as a whole or not at all, alone or several together."""

import errno
import os
import stat
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from glob import escape
from pathlib import Path
from uuid import uuid4

try:
    import fcntl
except ImportError:  # Windows, where leftovers stay and nothing waits
    fcntl = None

# Errors of the system if there is no room for a file.
NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}
NEW = os.O_CREAT | os.O_EXCL | os.O_RDWR
FOR_OWNER = 0o600
SUFFIX = ".skslot.part"

_staged = ContextVar("_staged", default=None)


@contextmanager
def atomic_output(path, private=False):
    """Open a binary file that becomes ``path`` when the block ends without an error.

    A reader of ``path`` finds the old content or the new content, even if the process
    is killed. A file that is replaced keeps its mode. A new file can be read by its
    owner only if it is ``private``. In a block of :func:`outputs_together`, the file
    appears when that block ends.
    """
    path = Path(path)
    staged = _staged.get()
    with outputs_together() if staged is None else nullcontext(staged) as staged:
        with naming(path):
            refuse_other_than_files(path)
            _sweep(path)
            part = _stage(path, private, staged)
            mode = stat.S_IMODE(os.stat(path if path.exists() else part).st_mode)
            part.chmod(FOR_OWNER)
            with open(part, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.chmod(mode)


@contextmanager
def outputs_together(replace=True):
    """Make all files of :func:`atomic_output` in the block appear at its end, or none.

    Without ``replace``, a file that exists at the end is an error.
    """
    staged, made = {}, []
    token = _staged.set(staged)
    try:
        yield staged
        for path, _ in staged.values():
            refuse_other_than_files(path)
        for part, (path, _) in staged.items():
            with naming(path):
                if not replace:
                    _claim(path)
                    made.append(path)
                os.replace(part, path)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    finally:
        _staged.reset(token)
        for part, (_, lock) in staged.items():
            part.unlink(missing_ok=True)
            if lock is not None:
                os.close(lock)


@contextmanager
def one_at_a_time(path):
    """Wait until no other process is in such a block for this file.

    A lock file next to ``path`` stays there.
    """
    lock_path = path.with_name(f"{path.name}.lock")
    lock = os.open(lock_path, os.O_CREAT | os.O_RDWR, FOR_OWNER)
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def naming(path):
    """Name the output in errors about a full disk or about its temporary file."""
    try:
        yield
    except OSError as error:
        is_full = error.filename is None and error.errno in NO_ROOM
        if is_full or str(error.filename).endswith(SUFFIX):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def refuse_other_than_files(path):
    """Refuse to replace a pipe, a device, a folder or a symbolic link by a file."""
    path = Path(path)
    if path.is_symlink():
        raise FileExistsError(
            f"{path} is a symbolic link, which is not followed: to write to its "
            f"target, name that, {os.path.realpath(path)}."
        )
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file.")
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is no regular file but a pipe or a device.")


def _stage(path, private, staged):
    """Create and lock a temporary file in the folder of the output."""
    while True:
        part = path.with_name(f".{path.name}.{uuid4().hex}{SUFFIX}")
        lock = os.open(part, NEW, FOR_OWNER if private else 0o666)
        if fcntl is None:
            os.close(lock)
            lock = None
        else:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
        if part.exists():
            staged[part] = path, lock
            return part
        os.close(lock)  # another process has swept it before it was locked


def _sweep(path):
    """Remove temporary files of this output that a killed process has left."""
    if fcntl is None:
        return
    for part in path.parent.glob(f".{escape(path.name)}.*{SUFFIX}"):
        with suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def _claim(path):
    """Create a file that does not exist yet."""
    try:
        os.close(os.open(path, NEW, FOR_OWNER))
    except FileExistsError as error:
        raise FileExistsError(
            f"{path} was written by another process in the meantime, and is kept; "
            "choose another name."
        ) from error
