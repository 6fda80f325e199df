"""A record of what a site has released under differential privacy.

Guarantees add up over releases of the same rows, so none may happen unseen. The record
has a keyed fingerprint of all rows of a release together, which says nothing about a
row to anybody who lacks the others, and one of the file that they were read from, as
another plan makes other features of the same rows; it is for the user alone to read.
"""

import hashlib
import json
import os
import secrets
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from .._atomic import atomic_output, one_at_a_time, outputs_together


def record_path():
    """Where the record of this user is."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "skslot" / "releases.json"


@dataclass(frozen=True)
class Release:
    """One release: whose rows, which, and what was spent on them."""

    client: str
    rows: str
    epsilon: float
    delta: float
    date: str
    file: str = ""  # early records have none


@dataclass
class ReleaseRecord:
    """All releases of a user, and the key of the fingerprints of their rows."""

    path: Path
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    releases: list = field(default_factory=list)

    @classmethod
    @contextmanager
    def opened(cls):
        """The record, which no other process reads or writes before the block ends."""
        path = record_path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with one_at_a_time(path):
            yield cls._load(path)

    @classmethod
    def _load(cls, path):
        """Read the record, or begin one."""
        if not path.exists():
            return cls(path)
        try:
            found = json.loads(path.read_text())
            releases = [Release(**each) for each in found["releases"]]
            return cls(path, found["key"], releases)
        except (ValueError, TypeError, LookupError) as error:
            raise ValueError(
                f"{path}, the record of releases with differential privacy, is "
                "damaged; move it away if you know what was released before."
            ) from error

    def fingerprint(self, X):
        """Keyed fingerprint of a set of rows, whatever their order."""
        rows = np.ascontiguousarray(X, dtype=np.float64)
        key = bytes.fromhex(self.key)
        each = sorted(hashlib.blake2b(row, key=key).digest() for row in rows)
        return hashlib.blake2b(b"".join(each), key=key, digest_size=16).hexdigest()

    def fingerprint_of_file(self, table, client):
        """Keyed fingerprint of the file of a table, and of whose rows are used."""
        key = bytes.fromhex(self.key)
        with open(table.path, "rb") as file:
            digest = hashlib.file_digest(
                file, lambda: hashlib.blake2b(key=key, digest_size=16)
            )
        if table.client_ids is not None:
            digest.update(client.encode())
        return digest.hexdigest()

    def note(self, table, client, budget):
        """Write down a release of these rows, which is about to happen."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        spent = budget.epsilon, budget.delta
        file = self.fingerprint_of_file(table, client)
        rows = self.fingerprint(table.X)
        self.releases.append(Release(client, rows, *spent, now, file))
        content = {"key": self.key, "releases": [asdict(r) for r in self.releases]}
        # at once, whatever else is being written
        with outputs_together(), atomic_output(self.path, private=True) as file:
            file.write(json.dumps(content, indent=1).encode())


def refuse_second_release(record, table, client, again):
    """Refuse to release the same rows twice; say what was spent on others before."""
    rows = record.fingerprint(table.X)
    file = record.fingerprint_of_file(table, client)
    same = [r for r in record.releases if r.rows == rows or r.file == file]
    if same and not again:
        raise ValueError(
            f"client {client!r}: these rows were released before, last on "
            f"{same[-1].date[:10]}, with {_spent(same)}. What is spent adds up: send "
            "the file that was written then, or allow one more release with --again."
        )
    others = [r for r in record.releases if r.client == client and r not in same]
    if same:
        print(f"released again: before, {_spent(same)} were spent on these rows")
    if others:
        print(
            f"client {client} has released other rows before, with {_spent(others)}; "
            "for rows that are in several, what is spent adds up"
        )


def _spent(releases):
    """What some releases cost together."""
    epsilon = sum(each.epsilon for each in releases)
    delta = sum(each.delta for each in releases)
    return f"epsilon {epsilon:g} and delta {delta:g} in all"
