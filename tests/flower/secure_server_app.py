"""The ServerApp of the example with secure aggregation, which searches its own memory.

Takes the place of ``scanners/server_app.py`` in a copy of the example. The numbers to
search for are in a file, times a factor modulo 2**64: as they are, they would be found.
"""

import json
from pathlib import Path

import numpy as np
from flwr.serverapp import ServerApp

from skslot import FedCGSClassifier
from skslot.flower import SecureAggregation, make_server_app

CLASSIFIER = FedCGSClassifier()
SETTINGS = SecureAggregation(clip_norm=100.0, max_samples=10_000)
PIECE = 2**18
# Odd, so that no two numbers become the same; twice applied, it does not lead back, so
# that what the search computes from the list is not among what is searched for.
FACTOR = 0x9E3779B97F4A7C15


def pieces_of_memory():
    """All that this process has written to, piece by piece."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps:
            region, mode = line.split()[:2]
            start, stop = (int(end, 16) for end in region.split("-"))
            if not mode.startswith("rw") or "[v" in line:
                continue
            for first in range(start, stop, PIECE):
                memory.seek(first)
                piece = memory.read(min(PIECE + 8, stop - first))
                if np.frombuffer(piece, np.uint8).any():
                    yield piece


def count_in_memory(disguised):
    """How many of these numbers are anywhere in the memory, by their names."""
    wanted = np.concatenate(list(disguised.values()))
    is_start = np.zeros(2**16, dtype=bool)  # a quick look at the first two bytes
    is_start[wanted & 0xFFFF] = True
    found = set()
    for piece in pieces_of_memory():
        for start in range(8):
            length = (len(piece) - start) // 8
            words = np.frombuffer(piece, "<u8", length, start)
            starts = np.frombuffer(piece, "<u2", 4 * length, start)[::4]
            may_be = is_start[starts * np.uint16(FACTOR & 0xFFFF)]
            candidates = words[may_be] * np.uint64(FACTOR)
            found |= set(candidates[np.isin(candidates, wanted)].tolist())
    lists = disguised.items()
    return {name: len(found & set(words.tolist())) for name, words in lists}


class SearchedGrid:
    """A grid that searches the memory before results are sent, as all is there then."""

    def __init__(self, grid, path):
        self.grid, self.path = grid, Path(path)
        # what is in the memory must be found
        self.control = np.random.default_rng().integers(2**63, size=100, dtype="<u8")

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, messages):
        messages = list(messages)
        report = self.path.with_suffix(".json")
        is_last = messages[0].metadata.message_type == "query.result"
        if is_last and not report.exists():
            control = self.control * np.uint64(FACTOR)
            with np.load(self.path) as disguised:
                found = count_in_memory({**disguised, "control": control})
            report.write_text(json.dumps(found))
        return self.grid.push_messages(messages)


inner = make_server_app(CLASSIFIER, secure_aggregation=SETTINGS)
app = ServerApp()


@app.main()
def main(grid, context):
    inner(SearchedGrid(grid, context.run_config["searched"]), context)
