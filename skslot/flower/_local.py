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
from ._processes import (
    MARK,
    kill_marked,
    marked_processes,
    signal_group,
    start_watcher,
)
from ._submit import config_option, flwr, installed_command, submit_run

# For all processes of Flower: nothing is installed while a run starts, nobody is told
# about it, and no log waits for others of the same text.
ENVIRONMENT = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# Seconds for the SuperLink to start.
START_OF_SUPERLINK = 120.0
# Seconds after which a run is stopped that did not end by itself: as many waits of the
# server, whose report would be lost otherwise, and what Flower needs to start.
WAITS_OF_THE_SERVER = 10
START_OF_RUN = 300.0


class LocalFederation:
    """A SuperLink and SuperNodes on this machine, which are ended with it.

    For tests and for trying an app out. All ports are on 127.0.0.1, and nothing is
    written outside of ``folder``. Use it as a context manager: on leaving, every
    process that was started is ended, also those that Flower or Ray started in turn. On
    Linux this holds for a script that is killed too.

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

    def __init__(self, folder, *, simulation=0, certificates=None):
        self.folder = Path(folder).resolve()
        self.simulation = simulation
        self.certificates = None if certificates is None else Path(certificates)
        self.output_dir = self.folder / "runs"
        self._processes = {}
        self._mark = uuid.uuid4().hex
        self._watcher = None

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
            Settings of the run; ``output-dir`` and ``timeout`` are set already, so the
            app must list them.
        timeout : float, default=600.0
            Seconds that the server waits for nodes, and for each answer. The whole run
            may take ten times as long and five minutes more.

        Returns
        -------
        report : FederationReport
            Who took part.
        """
        own = {"output-dir": str(self.output_dir), "timeout": timeout}
        run_config = {**own, **(run_config or {})}
        simulated = {"num-supernodes": self.simulation} if self.simulation else None
        return submit_run(
            app,
            "local",
            output_dir=self.output_dir,
            run_config=run_config,
            federation_config=simulated,
            timeout=WAITS_OF_THE_SERVER * run_config["timeout"] + START_OF_RUN,
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
        options = config_option("--node-config", config)
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
        return marked_processes(self._mark)

    def close(self, patience=10.0):
        """End all processes.

        Parameters
        ----------
        patience : float, default=10.0
            Seconds that they have to end by themselves.
        """
        for process in self._processes.values():
            signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while self._alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in self._processes.values():
            signal_group(process, signal.SIGKILL)
            process.wait()
        self._processes = {}
        # Flower and Ray put some processes into groups of their own
        kill_marked(self._mark, patience)
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.communicate()
            self._watcher = None

    # ------------------------------------------------------------------ helpers

    def _start_superlink(self):
        security, options = {"insecure": True}, ["--insecure"]
        if self.certificates is not None:
            ca = str(self.certificates / "ca.crt")
            security = {"root-certificates": ca}
            options = ["--ssl-ca-certfile", ca, "--enable-supernode-auth"]
            options += ["--ssl-certfile", str(self.certificates / "server.pem")]
            options += ["--ssl-keyfile", str(self.certificates / "server.key")]
        if self.simulation:
            options += ["--simulation"]
        self._write_connection({"address": f"127.0.0.1:{self._port}", **security})
        address = ["--host", "127.0.0.1", "--port", str(self._port)]
        process = self._start("superlink", "flower-superlink", *address, *options)
        self._wait_for_port(process)

    def _write_connection(self, connection):
        """Tell the command line of Flower how to reach the SuperLink."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in connection.items()]
        head = ["[superlink]", 'default = "local"', "[superlink.local]"]
        path = self._flower_home("superlink") / "config.toml"
        path.write_text("\n".join([*head, *lines, ""]))

    def _wait_for_port(self, process):
        deadline = time.monotonic() + START_OF_SUPERLINK
        while process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"the SuperLink did not start:\n{self.log()}")

    def _start(self, name, command, *arguments):
        if self._watcher is None:
            self._watcher = start_watcher(self._mark)
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [installed_command(command), *arguments],
                env=self._environment(name),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes[name] = process
        return process

    def _flower_home(self, name):
        home = self.folder / name / "flwr-home"
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _environment(self, name):
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        home = str(self._flower_home(name))
        own = {"FLWR_HOME": home, MARK: self._mark, "PATH": path}
        return {**os.environ, **ENVIRONMENT, **own}

    def _alive(self):
        return [p for p in self._processes.values() if p.poll() is None]


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
