"""Simulation and deployment with real processes; slow, and never skipped."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.exchange import AlignmentReference, LinearModel
from skslot.flower import LocalFederation

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "flower"
SITES = ["fax", "flatbed", "microfilm", "phone"]
FAULTS = {
    "flatbed": "raises",
    "microfilm": "sends NaN",
    "phone": "dies",
    "latecomer": "is silent",
}
SECRET = "patient 4711 of ward 3"


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
    expected = model.reference_
    assert_allclose(reference.mean, expected.mean, rtol=0, atol=1e-12)
    assert_allclose(reference.covariance, expected.covariance, rtol=0, atol=1e-12)
    for name in names:
        own = X[site == name]
        found = scores(LinearModel.load(sites / name / "model.slot"), own)
        wanted = model.decision_function(own, client_ids=name)
        unit = np.abs(wanted).max()
        assert_allclose(found / unit, wanted / unit, rtol=0, atol=1e-12)
        assert (found.argmax(1) == wanted.argmax(1)).all()


def test_simulation(make_sites, tmp_path, digits, scores):
    with LocalFederation(tmp_path / "federation", simulation=4) as federation:
        report = federation.run(EXAMPLE, {"simulation-data": str(make_sites)})
    assert [record.status for record in report.clients] == ["done"] * 4
    run_folder = federation.output_dir / f"run-{report.run_id}"
    check_result(run_folder, make_sites, digits, scores)
    assert federation.processes() == []


@pytest.fixture
def app(tmp_path):
    """Copy of the example whose clients may be faulty."""
    folder = tmp_path / "app"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(EXAMPLE, folder, ignore=ignored)
    shutil.copy(HERE / "faulty_client_app.py", folder / "scanners" / "client_app.py")
    with open(folder / "pyproject.toml", "a") as file:
        file.write("faults = false\n")
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


def test_deployment(make_sites, certificates, app, tmp_path, digits, scores):
    """Four good sites, then the same with faults and one more, all over TLS."""
    with LocalFederation(
        tmp_path / "federation", certificates=certificates
    ) as federation:
        nodes = {}

        def start(name):
            nodes[name] = federation.register(certificates / f"{name}.key.pub")
            config = {"folder": str(make_sites / name), "fault": FAULTS.get(name, "")}
            federation.start_node(name, config, certificates / f"{name}.key")

        for name in SITES:
            start(name)
        stranger = federation.start_node("stranger", {}, certificates / "stranger.key")
        report = federation.run(app, {"n-clients": 4})
        assert report.left_out == []
        assert {record.client: record.node for record in report.clients} == nodes
        run_folder = federation.output_dir / f"run-{report.run_id}"
        check_result(run_folder, make_sites, digits, scores)
        for name in SITES:  # the count of requests is kept from process to process
            assert (make_sites / name / "asked.txt").read_text() == "{'summary': 1}"
        check_stranger(stranger, federation)

        start("latecomer")
        settings = {"n-clients": 5, "min-clients": 1, "faults": True, "timeout": 120.0}
        report = federation.run(app, settings)
        check_faults(report, nodes)
        check_secrecy(report, federation)
        run_folder = federation.output_dir / f"run-{report.run_id}"
        check_result(run_folder, make_sites, digits, scores, ["fax"])

        with pytest.raises(RuntimeError, match="(?s)finished:failed.*5 of 6 nodes"):
            federation.run(app, {"n-clients": 6, "timeout": 0.0})
    assert federation.processes() == []


def check_stranger(stranger, federation):
    """A node whose key was not registered is turned away."""
    assert stranger.poll() is not None
    assert "Failed to activate SuperNode" in federation.log("node-stranger")
    assert "No SuperNode found with the given public key" in federation.log("superlink")


def check_faults(report, nodes):
    """Each fault is attributed to its node."""
    codes = {record.node: record.code for record in report.left_out}
    # Flower takes a minute to notice that a process died: on time or not
    assert codes.pop(nodes["phone"]) in ("crashed", "silent")
    assert codes == {
        nodes["flatbed"]: "load_failed",
        nodes["microfilm"]: "refused",
        nodes["latecomer"]: "silent",
    }
    done = [record.client for record in report.clients if record.status == "done"]
    assert done == ["fax"]


def check_secrecy(report, federation):
    """The text of an exception is at the site and nowhere else."""
    assert SECRET in federation.log("node-flatbed")
    assert SECRET not in federation.log("superlink")
    assert SECRET not in report.to_json()
    of_server = (federation.folder / "superlink", federation.output_dir)
    for path in (path for folder in of_server for path in folder.rglob("*")):
        # the app itself, which the server has too, is where the text comes from
        if path.is_file() and path.suffix != ".py":
            assert SECRET.encode() not in path.read_bytes(), path
