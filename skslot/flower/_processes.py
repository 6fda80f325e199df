"""Processes that are found again by a mark in their environment, and ended.

Run as a script with a mark, it waits for the end of its input, and then ends them.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

# Environment variable that holds the mark; processes hand it on to those they start.
MARK = "SKSLOT_FEDERATION"


def marked_processes(mark):
    """Ids of all processes with this mark; none where there is no /proc."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_marked = entry in (path / "environ").read_bytes().split(b"\0")
        except OSError:  # ended by now, or of somebody else
            continue
        if is_marked:
            found.append(int(path.name))
    return found


def kill_marked(mark, patience=10.0):
    """End all processes with this mark, and those that they start meanwhile."""
    deadline = time.monotonic() + patience
    while found := marked_processes(mark):
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {found} could not be ended.")
        for pid in found:
            _send(os.kill, pid, signal.SIGKILL)
        time.sleep(0.1)


def signal_group(process, number):
    """Send a signal to a process and those of its group."""
    if process.poll() is None:  # else its id may be that of somebody else by now
        _send(os.killpg, process.pid, number)


def start_watcher(mark):
    """Process that ends those with this mark once this one closes its input, or dies.

    Whatever this process dies of: the system then closes the other end of the pipe.
    """
    return subprocess.Popen(
        [sys.executable, "-P", __file__, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _send(kill, pid, number):
    try:
        kill(pid, number)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    # a process that the other one has forked may hold the pipe open after its end
    parent, is_open = os.getppid(), True
    while is_open and os.getppid() == parent:
        is_open = not select.select([sys.stdin], [], [], 0.5)[0]
    kill_marked(sys.argv[1])
