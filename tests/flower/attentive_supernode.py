"""A SuperNode that looks for messages often, and notices at once that a process died.

Flower looks every three seconds, and takes a minute to give up a process. This one says
by a file that it is about to die; the clock by which Flower waits for signs of life
jumps then.
"""

import os
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

from flwr.supercore.corestate import in_memory_corestate
from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

OBITUARY = Path(os.environ["FLWR_HOME"]) / "died"
now = in_memory_corestate.now


def now_or_later():
    return now() + timedelta(hours=1) * OBITUARY.exists()


in_memory_corestate.now = now_or_later
start_client_internal.time = SimpleNamespace(sleep=lambda s: time.sleep(min(s, 1)))
flower_supernode()
