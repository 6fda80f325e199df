"""Which runs are accepted, and that nothing is left behind."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from skslot.flower import FederationReport, LocalFederation, submit_run
from skslot.flower._submit import _read_report

COMPLETED = "finished:completed"


def write(folder, *report):
    (folder / "report.json").write_text(FederationReport(*report).to_json())


def test_completed_run_with_its_own_report_is_accepted(tmp_path):
    write(tmp_path, "5", "completed")
    assert _read_report(tmp_path, "5", COMPLETED) == FederationReport("5", "completed")


@pytest.mark.parametrize(
    ("status", "report"),
    [
        ("finished:failed", ("5", "completed")),
        ("finished:stopped", ("5", "completed")),
        (COMPLETED, ("5", "aborted", "too few clients")),
        (COMPLETED, ("5", "running")),
        (COMPLETED, ("4", "completed")),
    ],
)
def test_any_other_run_is_an_error(status, report, tmp_path):
    write(tmp_path, *report)
    with pytest.raises(RuntimeError, match=f"run 5 ended as '{status}'"):
        _read_report(tmp_path, "5", status)


def test_run_without_a_report_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="without a report"):
        _read_report(tmp_path, "5", COMPLETED)


def test_run_that_cannot_be_started_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="`flwr run .* failed"):
        submit_run(tmp_path, output_dir=tmp_path, env={"FLWR_HOME": str(tmp_path)})


# A process in a group of its own that does not want to end, as those of Flower.
CHILD = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
PARENT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_processes_of_processes_are_ended(tmp_path):
    federation, other = (LocalFederation(tmp_path / name) for name in ("a", "b"))
    for each in (federation, other):
        each.folder.mkdir()
        each._start("parent", Path(sys.executable).name, "-c", PARENT)
    deadline = time.monotonic() + 60
    while "up" not in federation.log("parent") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(federation.processes()) == 2
    federation.close(patience=2.0)
    assert federation.processes() == []
    assert other.processes() != []  # only its own
    other.close(patience=2.0)
    assert other.processes() == []


def test_without_flower_the_error_names_the_extra():
    code = """
import sys
sys.modules["flwr"] = None
from skslot import FederatedOTAligner
from skslot.flower import make_client_app, make_server_app
for make in (lambda: make_client_app(None, FederatedOTAligner()),
             lambda: make_server_app(FederatedOTAligner())):
    try:
        make()
    except ImportError as error:
        print(error)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert all('pip install "skslot[flower]"' in line for line in lines)
