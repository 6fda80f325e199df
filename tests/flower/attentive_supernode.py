"""A SuperNode that notices at once that a process of it died, not after a minute.

The process says by a file that it is about to die. The clock by which Flower waits for
signs of life jumps then.
"""

import os
from datetime import timedelta
from pathlib import Path

from flwr.supercore.corestate import in_memory_corestate
from flwr.supernode.cli import flower_supernode

OBITUARY = Path(os.environ["FLWR_HOME"]) / "died"
now = in_memory_corestate.now


def now_or_later():
    return now() + timedelta(hours=1) * OBITUARY.exists()


in_memory_corestate.now = now_or_later
flower_supernode()
