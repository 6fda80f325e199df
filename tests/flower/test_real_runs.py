"""Simulation and deployment by the commands of the guide."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skslot import FedCGSClassifier, FederatedOTAligner, FedRidgeClassifier
from skslot.exchange import AlignmentReference, LinearModel
from skslot.flower import FederationReport

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "flower"
GUIDE = HERE.parents[1] / "docs" / "user_guide" / "deployment.rst"
SITES = ["fax", "flatbed", "microfilm", "phone"]
FAULTS = {
    "flatbed": "raises",
    "microfilm": "sends NaN",
    "phone": "dies",
    "latecomer": "is silent",
}
SECRET = "patient 4711 of ward 3"

# Nothing is installed while a run starts, nobody is told about it, and no log waits for
# others of the same text.
ENVIRONMENT = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}
# Processes hand this variable on to those they start, which are found again by it.
MARK = "SKSLOT_FEDERATION"
# Ends a process with the one that has started it, even if that is killed.
END_WITH_US = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


class Federation:
    """Processes of Flower on this machine, all ended on leaving."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.port = free_port()
        self.mark = uuid.uuid4().hex
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in self.started:
            process.terminate()
        for process in self.started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        end_marked(self.mark)  # Ray puts some into groups of their own

    def environment(self, name="superlink"):
        """Variables for a process, which has a folder of its own."""
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        own = {"FLWR_HOME": str(home), MARK: self.mark}
        return {**os.environ, **ENVIRONMENT, **own}

    def start(self, name, *command):
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [*END_WITH_US, *command],
                env=self.environment(name),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        return process

    def start_superlink(self, command, configuration):
        """Start the SuperLink, and tell ``flwr`` how to reach it."""
        home = Path(self.environment()["FLWR_HOME"])
        (home / "config.toml").write_text(configuration)
        process = self.start("superlink", *command)
        wait_until(lambda: is_open(self.port) or process.poll() is not None)
        assert process.poll() is None, self.log("superlink")

    def start_simulation(self):
        """Replace the SuperLink that Flower starts for "local" and does not end."""
        link = ["flower-superlink", "--insecure", "--simulation"]
        self.start_superlink(
            [*link, "--port", str(self.port)],
            f'[superlink.local]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n',
        )

    def start_supernode(self, name, *command):
        """Start a SuperNode by its command, without the times that it would wait."""
        assert command[0] == "flower-supernode"
        attentive = [sys.executable, str(HERE / "attentive_supernode.py")]
        port = ["--host", "127.0.0.1", "--port", str(free_port())]
        return self.start(name, *attentive, *command[1:], *port)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def call(self, *command, cwd=None):
        """Output of a command."""
        done = subprocess.run(
            command,
            env=self.environment(),
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, superlink, *command, cwd=None):
        """Report of a run, which says the same as Flower does, and its folder."""
        shown = self.call(*command, cwd=cwd)
        run_id = re.search(r"Successfully started run (\d+)", shown)[1]
        query = ["flwr", "list", superlink, "--run-id", run_id, "--format", "json"]
        (run,) = json.loads(self.call(*query))["runs"]
        folder = self.folder / "skslot-runs" / f"run-{run_id}"
        report = FederationReport.from_json((folder / "report.json").read_text())
        ends = {"completed": "finished:completed", "aborted": "finished:failed"}
        assert (run["status"], report.run_id) == (ends[report.status], run_id)
        assert str(report) in shown
        return report, folder


def marked_processes(mark):
    """Ids of all processes with this mark; none where there is no /proc."""
    entry, found = f"{MARK}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended by now, or of somebody else
            if entry in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def end_marked(mark):
    """End all processes with this mark, and those that they start meanwhile."""
    deadline = time.monotonic() + 10
    while found := marked_processes(mark):
        assert time.monotonic() < deadline, found
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


HANDED_OUT = set()


def free_port():
    """A port that nobody uses, nor is about to: processes take a while to start."""
    port = None
    while port is None or port in HANDED_OUT:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    HANDED_OUT.add(port)
    return port


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def block_with(words, path=GUIDE, replaced=None):
    """The block of commands in a document that has these words in it."""
    text = path.read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    in_guide = r"^( *)\.\. code-block:: \w+\n\n((?:\1 {3}.*\n|\n)+)"
    blocks += [block for _, block in re.findall(in_guide, text, re.MULTILINE)]
    (block,) = [textwrap.dedent(block) for block in blocks if words in block]
    for old, new in (replaced or {}).items():
        assert old in block
        block = block.replace(old, str(new))
    return block


def command_with(words, replaced):
    """Arguments of the last command of the block in the guide with these words."""
    block = block_with(words, replaced=replaced)
    return shlex.split(block.replace("\\\n", " ").strip().splitlines()[-1])


@pytest.fixture
def make_sites(tmp_path):
    """Folder with one folder per site, as the example makes it."""
    folder = tmp_path / "sites"
    command = [sys.executable, EXAMPLE / "make_sites.py", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def check_result(run_folder, sites, digits, scores, names=SITES):
    """Reference and predictions are those of ``fit`` in this process."""
    X, y, site = digits
    rows = np.isin(site, names)
    model = FedCGSClassifier(aligner=FederatedOTAligner(tau=0.4))
    model.fit(X[rows], y[rows], client_ids=site[rows])
    reference = AlignmentReference.load(run_folder / "reference.slot")
    expected = model.aligner_.reference_
    assert_allclose(reference.mean, expected.mean, rtol=0, atol=1e-12)
    assert_allclose(reference.covariance, expected.covariance, rtol=0, atol=1e-12)
    for name in names:
        own = X[site == name]
        found = scores(LinearModel.load(sites / name / "model.slot"), own)
        wanted = model.decision_function(own, client_ids=name)
        unit = np.abs(wanted).max()
        assert_allclose(found / unit, wanted / unit, rtol=0, atol=1e-12)
        assert (found.argmax(1) == wanted.argmax(1)).all()


def test_guide_and_readme_simulate_in_the_same_way():
    of_guide = block_with("simulation-data")
    of_readme = block_with("simulation-data", EXAMPLE / "README.md")
    here = of_guide.replace("examples/flower/", "").replace("examples/flower", ".")
    assert here.strip() in of_readme


@pytest.mark.slow
def test_simulation(tmp_path, digits, scores):
    sites = tmp_path / "sites"
    commands = block_with("simulation-data", replaced={"/tmp/sites": sites})
    with Federation(tmp_path) as federation:
        federation.start_simulation()
        shell = ["sh", "-euc", commands]
        report, folder = federation.run("local", *shell, cwd=HERE.parents[1])
    assert [record.status for record in report.clients] == ["done"] * 4
    check_result(folder, sites, digits, scores)
    assert marked_processes(federation.mark) == []


@pytest.fixture
def app(tmp_path):
    """Copy of the example whose clients may be faulty, and whose server knows it."""
    folder = tmp_path / "app"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(EXAMPLE, folder, ignore=ignored)
    for name in ("client_app.py", "server_app.py"):
        shutil.copy(HERE / f"faulty_{name}", folder / "scanners" / name)
    with open(folder / "pyproject.toml", "a") as file:
        file.write('faults = false\nsilent = ""\n')
    return folder


@pytest.fixture
def certificates(tmp_path):
    """Folder with certificates and keys, made by the script of the example."""
    folder = tmp_path / "certificates"
    names = [*SITES, "latecomer", "stranger"]
    script = EXAMPLE / "make_certificates.sh"
    command = ["sh", script, folder, "IP:127.0.0.1", *names]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_deployment(make_sites, certificates, app, digits, scores):
    """Two good sites, then one of them and one with each fault, all over TLS."""
    with Federation(certificates) as federation:
        nodes = {}
        address = {"learn.example.org:8000": f"127.0.0.1:{federation.port}"}

        def register(name):
            command = command_with("flwr supernode register", {"fax": name})
            answer = federation.call(*command, "--format", "json")
            nodes[name] = str(json.loads(answer)["node-id"])

        def start(name):
            config = f'folder="{make_sites / name}" fault="{FAULTS.get(name, "")}"'
            own = {"fax.key": f"{name}.key", 'folder="/data/fax"': config}
            command = command_with("flower-supernode --", {**address, **own})
            return federation.start_supernode(name, *command)

        def run(settings):
            command = command_with("flwr run my_app", {"my_app": app})
            return federation.run("hospitals", *command, "--run-config", settings)

        own = {"0.0.0.0": "127.0.0.1", "8000": federation.port}
        connection = {**address, "/etc/skslot": certificates}
        federation.start_superlink(
            command_with("flower-superlink --", own),
            block_with("[superlink.hospitals]", replaced=connection),
        )
        good = SITES[:2]
        for name in good:
            register(name)
            start(name)
        stranger = start("stranger")
        report, folder = run("n-clients=2 min-clients=2")
        assert report.left_out == []
        assert {record.client: record.node for record in report.clients} == nodes
        check_result(folder, make_sites, digits, scores, good)
        for name in good:  # the count of requests is kept from process to process
            assert (make_sites / name / "asked.txt").read_text() == "{'summary': 1}"
        check_stranger(stranger, federation)

        for name in FAULTS.keys() - nodes.keys():
            register(name)
            start(name)
        settings = f'faults=true silent="{nodes["latecomer"]}"'
        with ThreadPoolExecutor() as pool:
            faulty = pool.submit(run, f"n-clients=5 min-clients=1 {settings}")
            wait_until(lambda: all("SuperNode ID" in federation.log(n) for n in nodes))
            report, _ = run("n-clients=6 timeout=0.0")
        assert report.status == "aborted"
        assert "5 of 6 nodes" in report.reason

        report, folder = faulty.result()
        check_faults(report, nodes)
        check_secrecy(report, federation)
        check_result(folder, make_sites, digits, scores, ["fax"])
    assert marked_processes(federation.mark) == []


def check_stranger(stranger, federation):
    """A node whose key was not registered is turned away."""
    assert stranger.poll() is not None
    assert "Failed to activate SuperNode" in federation.log("stranger")
    assert "No SuperNode found with the given public key" in federation.log("superlink")


def check_faults(report, nodes):
    """Each fault is attributed to its node."""
    assert report.status == "completed"
    codes = {record.node: record.code for record in report.left_out}
    assert codes == {
        nodes["flatbed"]: "load_failed",
        nodes["microfilm"]: "refused",
        nodes["phone"]: "crashed",
        nodes["latecomer"]: "silent",
    }
    done = [record.client for record in report.clients if record.status == "done"]
    assert done == ["fax"]


def check_secrecy(report, federation):
    """The text of an exception is at the site and nowhere else."""
    assert SECRET in federation.log("flatbed")
    assert SECRET not in federation.log("superlink")
    assert SECRET not in report.to_json()
    of_server = [
        federation.folder / name for name in ("homes/superlink", "skslot-runs")
    ]
    for path in (path for folder in of_server for path in folder.rglob("*")):
        # the app itself, which the server has too, is where the text comes from
        if path.is_file() and path.suffix != ".py":
            assert SECRET.encode() not in path.read_bytes(), path


SECAGG = EXAMPLE / "secagg"


@pytest.mark.slow
def test_secure_aggregation_by_flower(tmp_path, digits, scores):
    """The sums of SecAgg+ give the classifier of ``fit``, up to quantisation."""
    X, y, _ = digits
    commands = block_with("flwr run", SECAGG / "README.md")
    with Federation(tmp_path) as federation:
        federation.start_simulation()
        shown = federation.call("sh", "-euc", commands, cwd=SECAGG)
    (path,) = tmp_path.glob("skslot-runs/run-*/model.slot")
    model, expected = LinearModel.load(path), FedRidgeClassifier().fit(X, y)
    unit = np.abs(expected.coef_).max()
    # 29 bits are off by 3e-6, 22 bits would be by 3e-4
    assert_allclose(model.coef / unit, expected.coef_ / unit, rtol=0, atol=1e-5)
    found = np.array(model.classes)[scores(model, X).argmax(axis=1)]
    assert np.mean(found == expected.predict(X)) >= 0.99
    assert f"samples in the sums: {len(X)}" in shown
    assert f"accuracy of SecAgg+: {np.mean(found == y):.4f}" in shown
    assert f"accuracy of fit: {expected.score(X, y):.4f}" in shown


# A process in a group of its own that does not want to end, as those of Ray.
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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_processes_of_processes_are_ended_and_no_others(tmp_path):
    with Federation(tmp_path) as other:
        other.start("other", sys.executable, "-c", PARENT)
        with Federation(tmp_path) as federation:
            federation.start("parent", sys.executable, "-c", PARENT)
            wait_until(lambda: "up" in federation.log("parent"))
            assert len(marked_processes(federation.mark)) == 2
        assert marked_processes(federation.mark) == []
        assert marked_processes(other.mark) != []
    assert marked_processes(other.mark) == []


SCRIPT = f"""
import sys, time
sys.path.insert(0, {str(HERE)!r})
from test_real_runs import Federation
federation = Federation(sys.argv[1])
port = str(federation.port)
federation.start("superlink", "flower-superlink", "--insecure", "--port", port)
print(federation.mark, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.skipif(not END_WITH_US, reason="needs setpriv")
def test_tests_that_are_killed_leave_no_process(tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as script:
        mark = script.stdout.readline().strip()
        try:  # it starts a process of its own
            wait_until(lambda: len(marked_processes(mark)) == 2)
        finally:
            script.kill()
    try:
        wait_until(lambda: marked_processes(mark) == [])
    finally:
        end_marked(mark)
