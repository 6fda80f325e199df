"""Run one script after the other, each in a process in which libraries are at hand.

To import them anew costs most scripts more than all else. Each line of the input has,
in JSON, a script, the folder to run it in, and files for what it prints and for its
errors. A copy of this process runs it as ``python`` does; the exit code is printed.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path

SECONDS = 600

for library in sys.argv[1:]:
    with suppress(ImportError):
        importlib.import_module(library)

for line in sys.stdin:
    script, folder, *outputs = json.loads(line)
    pid = os.fork()
    if pid == 0:
        signal.alarm(SECONDS)
        for number, output in enumerate(outputs, start=1):
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), number)
        os.chdir(folder)
        sys.argv[:] = [script]
        sys.path[0] = str(Path(script).parent)
        warnings.simplefilter("error", UserWarning)
        runpy.run_path(script, run_name="__main__")
        break
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
