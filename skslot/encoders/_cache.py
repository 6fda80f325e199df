"""Features on disk: one SQLite file for each feature space."""

import os
import sqlite3
import zlib
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._utils import warn_user

KEYS_PER_QUERY = 500  # SQLite takes 999 in its oldest builds
# The queries are fixed, so a general error means that the schema is not ours.
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
# Error codes of SQLite for read-only files and folders.
REFUSED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
TABLE = "CREATE TABLE IF NOT EXISTS features (image BLOB PRIMARY KEY, row BLOB)"

# Of this process, by file: clones of an encoder share them.
_counts = {}


class CacheInfo(NamedTuple):
    """Result of ``FrozenEncoder.cache_info``, whose docstring describes it."""

    hits: int
    misses: int
    n_images: int
    n_bytes: int
    path: Path


class FeatureCache:
    """Rows of features by the digest of the image; open inside a ``with`` block.

    Every ``put`` is one transaction in write-ahead mode: it is there in full or not at
    all, whatever happens to the process, and other processes may write in between.
    """

    def __init__(self, folder, fingerprint):
        self.path = Path(folder).absolute() / f"{fingerprint}.sqlite"

    def __enter__(self):
        self._connection = None
        return self

    def __exit__(self, *_):
        self._close()

    def get(self, keys):
        """Return the intact rows by key."""
        found, n_damaged = {}, 0
        for start in range(0, len(keys), KEYS_PER_QUERY):
            some = keys[start : start + KEYS_PER_QUERY]
            marks = ",".join("?" * len(some))
            query = f"SELECT image, row FROM features WHERE image IN ({marks})"
            for key, packed in self._run(query, some):
                row = _unpack(key, packed)
                if row is None:
                    n_damaged += 1
                else:
                    found[key] = row
        if n_damaged:
            warn_user(
                f"{n_damaged} rows of the feature cache {self.path} are damaged; their "
                "images are encoded again.",
            )
        return found

    def put(self, keys, rows):
        """Store rows, each under its key."""
        values = [np.ascontiguousarray(row, dtype="<f4").tobytes() for row in rows]
        packed = [(key, _sealed(key, v)) for key, v in zip(keys, values, strict=True)]
        self._run("REPLACE INTO features VALUES (?, ?)", packed, many=True)

    def count(self, hits, misses):
        """Add to the counters of this process."""
        before = _counts.get(self.path, (0, 0))
        _counts[self.path] = before[0] + hits, before[1] + misses

    def info(self):
        """Return the counters, and the number and size of rows on disk."""
        n_images = 0
        if self.path.exists():
            ((n_images,),) = self._run("SELECT COUNT(*) FROM features")
        self._close()  # which writes everything into one file
        n_bytes = sum(file.stat().st_size for file in self._files() if file.exists())
        hits, misses = _counts.get(self.path, (0, 0))
        return CacheInfo(hits, misses, n_images, n_bytes, self.path)

    def clear(self):
        """Drop all rows, and the counters of this process."""
        _counts.pop(self.path, None)
        if self.path.exists():
            self._run("DELETE FROM features")
            self._run("VACUUM")

    def _run(self, query, values=(), many=False):
        """Run a query, on a new file if the old one is damaged."""
        try:
            try:
                return self._execute(query, values, many)
            # the message of SQLite may quote text that is damaged itself
            except (sqlite3.Error, UnicodeDecodeError) as error:
                if isinstance(error, sqlite3.Error) and _code(error) not in DAMAGED:
                    raise
                self._put_aside(error)
            return self._execute(query, values, many)
        except (sqlite3.Error, OSError) as error:
            raise OSError(
                f"the feature cache {self.path} cannot be used ({error}). Set "
                "cache_dir to a folder on a local disk that you may write to and that "
                "has space, or to None."
            ) from error

    def _execute(self, query, values, many):
        with self._open() as connection:  # one transaction
            execute = connection.executemany if many else connection.execute
            return execute(query, values).fetchall()

    def _open(self):
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._open_for_writing()
            except sqlite3.Error as error:
                if _code(error) not in REFUSED or not self.path.is_file():
                    raise
                self._open_for_reading()
        return self._connection

    def _open_for_writing(self):
        # for the owner only; SQLite creates its other files with the same permissions
        with suppress(FileExistsError, PermissionError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._connection = sqlite3.connect(self.path, timeout=60)
        self._inode = self.path.stat().st_ino
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(TABLE)

    def _open_for_reading(self):
        """Open a finished cache in a folder where SQLite cannot put its own files."""
        self._close()
        uri = f"{self.path.as_uri()}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(uri, uri=True)
        self._inode = self.path.stat().st_ino

    def _close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _put_aside(self, error):
        self._close()
        if self.path.stat().st_ino != self._inode:
            return  # another process has done it already
        names = (Path(f"{self.path}.damaged-{i}") for i in count(1))
        aside = next(name for name in names if not name.exists())
        self.path.rename(aside)
        for file in self._files():
            file.unlink(missing_ok=True)
        warn_user(
            f"the feature cache {self.path} is damaged ({error}). It was renamed to "
            f"{aside.name} and is built anew; images are encoded again.",
        )

    def _files(self):
        return [Path(f"{self.path}{end}") for end in ("", "-wal", "-shm")]


def _code(error):
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _sealed(key, values):
    """Prefix the bytes of a row with a checksum of key and values."""
    return zlib.crc32(values, zlib.crc32(key)).to_bytes(4, "little") + values


def _unpack(key, packed):
    """Return the row, or None if key or row are damaged."""
    if not (isinstance(key, bytes) and isinstance(packed, bytes) and len(packed) > 4):
        return None
    values = packed[4:]
    is_intact = _sealed(key, values) == packed
    return np.frombuffer(values, dtype="<f4") if is_intact else None
