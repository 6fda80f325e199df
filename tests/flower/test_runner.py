"""Which runs are accepted, and that nothing is left behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from skslot.flower import FederationReport, LocalFederation, submit_run
from skslot.flower import _local as local
from skslot.flower._processes import marked_processes
from skslot.flower._submit import _read_report, config_option

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


@pytest.mark.parametrize("value", [True, 3, 2.5, "", "a b=c", "Zoë's 📠", "C:\\d\ne"])
def test_settings_arrive_as_they_are(value):
    from flwr.common.config import parse_config_args

    values = {"first": 1, "value": value, "last": "x"}
    _, text = config_option("--run-config", values)
    assert parse_config_args([text]) == values


@pytest.mark.parametrize(
    "value", ['the "best"', None, [1, 2], float("nan"), "\x7f", np.int64(3)]
)
def test_settings_that_flower_cannot_read_are_refused(value, tmp_path):
    with pytest.raises(ValueError, match="setting 'note' is .* cannot be handed"):
        submit_run(tmp_path, output_dir=tmp_path, run_config={"note": value})


@pytest.mark.parametrize(
    ("options", "waits"),
    [({}, 600.0), ({"timeout": 5.0}, 5.0), ({"run_config": {"timeout": 2000.0}}, 2000)],
)
def test_a_run_is_given_longer_than_the_server(options, waits, tmp_path, monkeypatch):
    """Else it would be stopped just before the server says what is wrong."""
    calls = []
    monkeypatch.setattr(local, "submit_run", lambda *args, **kw: calls.append(kw))
    LocalFederation(tmp_path).run(tmp_path, **options)
    (call,) = calls
    assert call["run_config"]["timeout"] == waits
    assert call["timeout"] > 5 * waits + 60


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


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="needs /proc"
)


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert condition()


@needs_proc
def test_processes_of_processes_are_ended(tmp_path):
    federation, other = (LocalFederation(tmp_path / name) for name in ("a", "b"))
    for each in (federation, other):
        each.folder.mkdir()
        each._start("parent", Path(sys.executable).name, "-c", PARENT)
    wait_until(lambda: "up" in federation.log("parent"))
    assert len(federation.processes()) == 2
    federation.close(patience=2.0)
    assert federation.processes() == []
    assert other.processes() != []  # only its own
    other.close(patience=2.0)
    assert other.processes() == []


SCRIPT = f"""
import sys, time
from pathlib import Path
from skslot.flower import LocalFederation
federation = LocalFederation(sys.argv[1])
federation._start("parent", Path(sys.executable).name, "-c", {PARENT!r})
print(federation._mark, flush=True)
time.sleep(600)
"""


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_script_that_is_killed_leaves_no_process(number, tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as script:
        mark = script.stdout.readline().strip()
        log = tmp_path / "parent.log"
        wait_until(lambda: "up" in log.read_text())
        assert len(marked_processes(mark)) == 2
        script.send_signal(number)
        script.wait()
        wait_until(lambda: marked_processes(mark) == [])


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
