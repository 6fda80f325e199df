"""Runs of experiments, kept in a file so that an interrupted experiment goes on."""

import json
from dataclasses import asdict, fields
from pathlib import Path

from .. import __version__
from .._atomic import naming


class RunStore:
    """Runs that are done, by what determines their result.

    Experiments of several kinds may share a file: runs of one are of ``run_type``, a
    dataclass, and those of others are passed over. What was measured is a dict with
    ``accuracy`` among its keys.
    """

    def __init__(self, path, data, run_type):
        self.path = None if path is None else Path(path)
        self.origin = {"version": __version__, "data": data.fingerprint()}
        self.run_type = run_type
        self.done = {}
        text = ""
        if self.path is not None and self.path.exists():
            text = self.path.read_text(encoding="utf-8", errors="replace")
        # half a line may be all that is left of a first run that was killed
        known = [self._read(line) for line in text.splitlines()]
        if text and not any(known) and not text.startswith('{"origin": '):
            raise ValueError(
                f"{self.path} holds no runs of experiments; name another file for "
                "the results, nothing was added to this one."
            )
        if text and not text.endswith("\n"):
            self._append("\n")

    def _read(self, line):
        """Keep the run in a line, if it is ours; return whether there is one."""
        try:
            record = json.loads(line)
            origin, run = record.pop("origin"), record.pop("run")
            is_run = "accuracy" in record
        # half a line, of a run that was killed while it wrote, or no run at all
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        names = {field.name for field in fields(self.run_type)}
        if is_run and origin == self.origin and run.keys() == names:
            self.done[self.run_type(**run)] = record
        return is_run

    def add(self, run, measured):
        """Add a run that is done to the file."""
        if self.path is None:
            return
        record = {"origin": self.origin, "run": asdict(run), **measured}
        self._append(json.dumps(record) + "\n")

    def _append(self, text):
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(text)
