"""Files that are written as a whole or not at all, alone or several together."""

import errno
import os
import re
import stat
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from uuid import uuid4

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# What the system says when there is no room for a file, or not for all of it.
NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}
# Where hard links are not to be had.
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
FOR_OWNER = 0o600

_together = ContextVar("_together", default=None)


@contextmanager
def atomic_output(path, private=False):
    """Binary file that becomes ``path`` when the block ends, and only if it ends well.

    Whoever reads ``path`` sees what was there before or all that was written, also
    when the process is killed in between. A file that is replaced keeps its mode; a new
    one can be read by its owner only if it is ``private``. Inside a block of
    :func:`outputs_together`, it appears when that ends.
    """
    with ExitStack() as stack:
        files = _together.get() or stack.enter_context(outputs_together())
        yield stack.enter_context(files.open(Path(path), private))


@contextmanager
def outputs_together(replace=True):
    """All files of :func:`atomic_output` in the block appear at its end, or none does.

    Without ``replace`` a file that exists is an error, also if another process has made
    it a moment ago.
    """
    files = _StagedFiles(replace)
    token = _together.set(files)
    try:
        yield files
        files.commit()
    finally:
        _together.reset(token)
        files.discard()


@contextmanager
def one_at_a_time(path):
    """The block waits until no other process is in one for this file.

    A file beside it, which stays, carries the lock. Windows has none.
    """
    lock_path = path.with_name(f"{path.name}.lock")
    lock = _for_owner(lock_path, os.O_CREAT | os.O_RDWR)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                raise OSError(f"{lock_path} cannot be locked: {error}") from error
        yield
    finally:
        os.close(lock)


@contextmanager
def naming(path, part=None):
    """Errors about a full disk, or about a ``part`` of the file, name the file."""
    try:
        yield
    except OSError as error:
        is_of_part = part is not None and str(error.filename) == str(part)
        if is_of_part or (error.filename is None and error.errno in NO_ROOM):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def refuse_other_than_files(path):
    """Refuse to replace a pipe, a device, a folder or a symbolic link by a file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise FileExistsError(
            f"{path} is a symbolic link, which is not followed: if the file that it "
            f"leads to is meant, name that, {os.path.realpath(path)}."
        )
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder; name a file.")
    if not stat.S_ISREG(mode):
        raise FileExistsError(
            f"{path} is no regular file but a pipe, a socket or a device, which "
            "nothing is written to; name a file."
        )


class _StagedFiles:
    """Files beside those that they will become."""

    def __init__(self, replace):
        self.replace = replace
        self.parts = {}
        self.locks = {}
        self.leftovers = {}

    @contextmanager
    def open(self, path, private):
        """Binary file beside ``path``, for its owner only until it is complete."""
        self._remove_leftovers(path)
        # beside the target, since a file can be moved at once only within a disk
        part = path.with_name(f".{path.name}.{uuid4().hex}.part")
        opener = _for_owner if private else None
        with naming(path, part):
            refuse_other_than_files(path)
            with open(part, "xb", opener=opener) as file:
                self.parts[part] = path
                mode = _mode_of(path if path.exists() else part)
                part.chmod(FOR_OWNER)
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.chmod(mode)

    def commit(self):
        """Give all files their names; if that fails, take away those that are new."""
        for path in self.parts.values():
            refuse_other_than_files(path)
        made = []
        try:
            for part, path in self.parts.items():
                with naming(path, part):
                    if self.replace:
                        os.replace(part, path)
                    else:
                        _move_to_new(part, path)
                        made.append(path)
        except BaseException:
            for path in made:
                path.unlink(missing_ok=True)
            raise

    def discard(self):
        """Remove what did not become a file."""
        for part in self.parts:
            part.unlink(missing_ok=True)
        for lock in self.locks.values():
            os.close(lock)

    def _remove_leftovers(self, path):
        """Remove what a process that was killed has left of this output."""
        if path.parent not in self.leftovers:
            self.leftovers[path.parent] = self._find_leftovers(path.parent)
        is_part = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{32}\.part")
        for name in filter(is_part.fullmatch, self.leftovers[path.parent]):
            path.with_name(name).unlink(missing_ok=True)

    def _find_leftovers(self, folder):
        """Names of files in a folder that nobody is at work on.

        Whoever writes into a folder holds a lock on it, which is shared: who gets it
        alone, even for a moment, is the only one.
        """
        names = []
        if fcntl is None:
            return names
        with suppress(OSError):  # a file system without locks
            lock = self.locks[folder] = os.open(folder, os.O_RDONLY)
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                names = os.listdir(folder)
            fcntl.flock(lock, fcntl.LOCK_SH)
        return names


def _for_owner(path, flags):
    return os.open(path, flags, FOR_OWNER)


def _mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def _move_to_new(part, path):
    """Move a file to a name that nothing has, also if others try the same."""
    try:
        try:
            os.link(part, path)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            # whoever comes second fails here
            os.close(_for_owner(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.replace(part, path)
    except FileExistsError as error:
        raise FileExistsError(
            f"{path} was written by another process in the meantime, and is kept; "
            "choose another name."
        ) from error
