"""Starting a run, and telling whether it completed."""

import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from ._optional import flower_modules
from ._report import FederationReport

POLL = 1.0


def submit_run(
    app,
    superlink=None,
    *,
    output_dir,
    run_config=None,
    federation_config=None,
    timeout=3600.0,
    env=None,
):
    """Start a run and wait for its result.

    ``flwr run`` succeeds when a run was started, whatever becomes of it. This function
    returns only if Flower says that the run completed and the report in ``output_dir``
    has its id and says so too.

    Parameters
    ----------
    app : str or path-like
        Folder of the app.
    superlink : str, default=None
        Name of the connection in Flower's configuration; its default one if None.
    output_dir : str or path-like
        Folder that the ServerApp writes to, as seen from here.
    run_config : dict, default=None
        Settings of the run that differ from those in ``pyproject.toml`` of the app:
        booleans, numbers and text without double quotes.
    federation_config : dict, default=None
        Settings of a simulation, such as ``{"num-supernodes": 4}``.
    timeout : float, default=3600.0
        Seconds to wait.
    env : dict, default=None
        Environment variables for ``flwr``; by default those of this process.

    Returns
    -------
    report : FederationReport
        Who took part.

    See Also
    --------
    LocalFederation : SuperLink and SuperNodes on one machine, to submit runs to.

    Examples
    --------
    >>> from skslot.flower import submit_run
    >>> report = submit_run(
    ...     "examples/flower", "hospital-network", output_dir="skslot-runs"
    ... )  # doctest: +SKIP
    """
    flower_modules()
    link = [] if superlink is None else [superlink]
    options = [
        *config_option("--run-config", run_config),
        *config_option("--federation-config", federation_config),
    ]
    run_id = str(flwr("run", str(app), *link, *options, env=env)["run-id"])
    folder = Path(output_dir) / f"run-{run_id}"
    deadline = time.monotonic() + timeout
    status = ""
    while not status.startswith("finished"):
        if time.monotonic() > deadline:
            flwr("stop", run_id, *link, env=env)
            raise RuntimeError(f"run {run_id} was stopped after {timeout:g} s.")
        _wait_for_file(folder / "report.json")
        status = _run_status(run_id, link, env)
    return _read_report(folder, run_id, status)


def config_option(option, values):
    """Arguments that give values to a command of Flower, in TOML."""
    if not values:
        return []
    return [option, " ".join(f"{name}={_toml(name, v)}" for name, v in values.items())]


def _toml(name, value):
    """A value as the parser of Flower reads it, which knows no escaped quotes."""
    is_plain = isinstance(value, bool | int | float | str)
    text = json.dumps(value, ensure_ascii=False) if is_plain else ""
    try:
        is_read = tomllib.loads(f"x={text}") == {"x": value}
    except ValueError:
        is_read = False
    if not is_read or '"' in text[1:-1]:
        raise ValueError(
            f"setting {name!r} is {value!r}, which cannot be handed to Flower: only "
            "booleans, numbers and text without double quotes can."
        )
    return text


def _wait_for_file(path, timeout=30.0):
    """Wait for the report, as asking Flower takes a process and a second each time."""
    time.sleep(POLL)
    deadline = time.monotonic() + timeout
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(POLL)


def _run_status(run_id, link, env):
    (run,) = flwr("list", *link, "--run-id", run_id, env=env)["runs"]
    return run["status"]


def _read_report(folder, run_id, status):
    path = folder / "report.json"
    if not path.exists():
        raise RuntimeError(
            f"run {run_id} ended as {status!r} without a report in {folder}; the log "
            "of the SuperLink says why."
        )
    report = FederationReport.from_json(path.read_text())
    found = status, report.status, report.run_id
    if found != ("finished:completed", "completed", run_id):
        raise RuntimeError(f"run {run_id} ended as {status!r}.\n{report}")
    return report


def flwr(*arguments, env=None):
    """Answer of the command line of Flower, which is JSON."""
    command = [installed_command("flwr"), *arguments, "--format", "json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    if done.returncode or not answer.get("success"):
        raise RuntimeError(
            f"`{' '.join(['flwr', *arguments])}` failed:\n{done.stdout}{done.stderr}"
        )
    return answer


def installed_command(name):
    """Path of a command that was installed with this interpreter."""
    return str(Path(sys.executable).parent / name)
