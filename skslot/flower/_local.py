"""The processes of a federation on one machine: how they start and end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

from ._optional import flower_modules
from ._submit import flwr, script, settings, submit_run

# For all processes of Flower: nothing is installed while a run starts, nobody is told
# about it, and no log waits for others of the same text.
ENVIRONMENT = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# Environment variable by which processes of a federation are found again.
MARK = "SKSLOT_FEDERATION"


class LocalFederation:
    """A SuperLink and SuperNodes on this machine, which are ended with it.

    For tests and for trying an app out: a script that is killed, or ended by SIGTERM,
    leaves them behind. All ports are on 127.0.0.1, and nothing is
    written outside of ``folder``. Use it as a context manager: on leaving, every
    process that was started is ended, also those that Flower or Ray started in turn.

    Parameters
    ----------
    folder : str or path-like
        Where logs, results and Flower's own files go.
    simulation : int, default=0
        Number of simulated clients. 0 means that real nodes are started by
        :meth:`start_node`.
    certificates : str or path-like, default=None
        Folder with ``ca.crt``, ``server.pem`` and ``server.key``. Given, connections
        are encrypted, and nodes must be registered and have a key.
    timeout : float, default=120.0
        Seconds to wait for the SuperLink to start.

    Attributes
    ----------
    output_dir : pathlib.Path
        Folder that runs write to.

    See Also
    --------
    submit_run : Starts a run on a SuperLink that is there already.

    Examples
    --------
    >>> from skslot.flower import LocalFederation
    >>> with LocalFederation("/tmp/trial") as federation:  # doctest: +SKIP
    ...     for site in ("A", "B"):
    ...         federation.start_node(site, {"data": f"/data/{site}.npz"})
    ...     print(federation.run("examples/flower", {"n-clients": 2}))
    """

    def __init__(self, folder, *, simulation=0, certificates=None, timeout=120.0):
        self.folder = Path(folder).resolve()
        self.simulation = simulation
        self.certificates = None if certificates is None else Path(certificates)
        self.timeout = timeout
        self.output_dir = self.folder / "runs"
        self._processes = {}
        self._mark = uuid.uuid4().hex

    def __enter__(self):
        flower_modules()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = _free_port()
        try:
            self._start_superlink()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception):
        self.close()

    def run(self, app, run_config=None, timeout=600.0):
        """Start a run and wait for its result.

        Parameters
        ----------
        app : str or path-like
            Folder of the app.
        run_config : dict, default=None
            Settings of the run; ``output-dir`` is set already.
        timeout : float, default=600.0
            Seconds to wait.

        Returns
        -------
        report : FederationReport
            Who took part.
        """
        return submit_run(
            app,
            "local",
            output_dir=self.output_dir,
            run_config={"output-dir": str(self.output_dir), **(run_config or {})},
            federation_config=self._simulated(),
            timeout=timeout,
            env=self._environment("superlink"),
        )

    def start_node(self, name, config, private_key=None):
        """Start a SuperNode.

        Parameters
        ----------
        name : str
            For its log and its folder.
        config : dict
            What ``load_data`` finds in ``context.node_config``.
        private_key : str or path-like, default=None
            Key of the node, if connections are encrypted.

        Returns
        -------
        process : subprocess.Popen
            The process.
        """
        address = ["--superlink", f"127.0.0.1:{self._port}"]
        own = ["--host", "127.0.0.1", "--port", str(_free_port())]
        options = settings("--node-config", config)
        options += (
            ["--insecure"]
            if self.certificates is None
            else ["--root-certificates", str(self.certificates / "ca.crt")]
        )
        if private_key is not None:
            options += ["--auth-supernode-private-key", str(private_key)]
        return self._start(f"node-{name}", "flower-supernode", *address, *own, *options)

    def register(self, public_key):
        """Let a node with this key join.

        Parameters
        ----------
        public_key : str or path-like
            Public key of the node.

        Returns
        -------
        node : str
            Id of the node.
        """
        env = self._environment("superlink")
        answer = flwr("supernode", "register", str(public_key), "local", env=env)
        return str(answer["node-id"])

    def log(self, name="superlink"):
        """What a process has printed so far.

        Parameters
        ----------
        name : str, default="superlink"
            "superlink", or "node-" and the name of a node.

        Returns
        -------
        text : str
            Its log.
        """
        return (self.folder / f"{name}.log").read_text()

    def processes(self):
        """Ids of all processes that belong to this federation; only on Linux.

        Returns
        -------
        ids : list of int
            Those that were started here and those that they started.
        """
        mark = f"{MARK}={self._mark}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = mark in (path / "environ").read_bytes().split(b"\0")
            except OSError:  # ended by now, or of somebody else
                continue
            if is_ours:
                found.append(int(path.name))
        return found

    def close(self, patience=10.0):
        """End all processes.

        Parameters
        ----------
        patience : float, default=10.0
            Seconds that they have to end by themselves.
        """
        for process in self._processes.values():
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while self._alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in self._processes.values():
            _signal_group(process, signal.SIGKILL)
            process.wait()
        self._processes = {}
        self._kill_the_rest(time.monotonic() + patience)

    def _kill_the_rest(self, deadline):
        """Flower and Ray put some processes into groups of their own."""
        while found := self.processes():
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes {found} could not be ended.")
            for pid in found:
                _kill(pid)
            time.sleep(0.1)

    # ------------------------------------------------------------------ helpers

    def _start_superlink(self):
        security = {"insecure": True}
        options = ["--insecure"]
        if self.certificates is not None:
            ca = str(self.certificates / "ca.crt")
            security = {"root-certificates": ca}
            options = ["--ssl-ca-certfile", ca, "--enable-supernode-auth"]
            options += ["--ssl-certfile", str(self.certificates / "server.pem")]
            options += ["--ssl-keyfile", str(self.certificates / "server.key")]
        if self.simulation:
            options += ["--simulation"]
        connection = {"address": f"127.0.0.1:{self._port}", **security}
        home = self.folder / "superlink" / "flwr-home"
        home.mkdir(parents=True, exist_ok=True)
        lines = [f"{key} = {json.dumps(value)}" for key, value in connection.items()]
        text = "\n".join(
            ['[superlink]\ndefault = "local"', "[superlink.local]", *lines]
        )
        (home / "config.toml").write_text(text + "\n")
        address = ["--host", "127.0.0.1", "--port", str(self._port)]
        process = self._start("superlink", "flower-superlink", *address, *options)
        self._wait_for_port(process)

    def _wait_for_port(self, process):
        deadline = time.monotonic() + self.timeout
        while process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"the SuperLink did not start:\n{self.log()}")

    def _start(self, name, command, *arguments):
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [script(command), *arguments],
                env=self._environment(name),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes[name] = process
        return process

    def _environment(self, name):
        home = self.folder / name / "flwr-home"
        home.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {"FLWR_HOME": str(home), MARK: self._mark, "PATH": path}
        return {**os.environ, **ENVIRONMENT, **own}

    def _simulated(self):
        return {"num-supernodes": self.simulation} if self.simulation else None

    def _alive(self):
        return [p for p in self._processes.values() if p.poll() is None]


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _signal_group(process, number):
    if process.poll() is not None:  # its id may be that of somebody else by now
        return
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
