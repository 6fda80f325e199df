"""Disks, pipes and memory that do not suffice: one line that says which."""

import gc
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from four_sites import error_of, run

from skslot import FederatedOTAligner
from skslot.experiments._experiments import RunStore
from skslot.experiments._results import Run

resource = pytest.importorskip("resource", reason="files and limits of POSIX")

SUMMARIZE = "summarize features.npz --client A -o A.slot"


@pytest.fixture
def full_disk():
    """Let files get no larger than this: the same to us as a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(n_bytes):
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_a_reference_is_not_written_without_its_model(server, full_disk, capsys):
    before = names(server)
    command = "aggregate ?.slot --method fedcgs --tau auto -o r.slot --model m.slot"
    assert run(command) == 0
    n_bytes = Path("r.slot").stat().st_size
    assert Path("m.slot").stat().st_size > n_bytes
    Path("r.slot").unlink()
    Path("m.slot").unlink()
    full_disk(n_bytes)
    capsys.readouterr()
    assert error_of(command, capsys) == "skslot: error: m.slot: File too large.\n"
    assert names(server) == before


# Old versions of NumPy leave an archive that could not be written to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "command",
    [
        "summarize features.npz --client A -o out.slot",
        "align features.npz --client A --reference r.slot -o out.npz",
        "predict features.npz --client A --model m.slot -o out.csv",
        "adapt features.npz --client A --model m.slot -o out.slot",
    ],
)
def test_a_full_disk_is_one_line_with_the_name(site, command, full_disk, capsys):
    assert run("summarize features.npz --client A --labels -o A.slot") == 0
    assert run("aggregate A.slot -o r.slot") == 0
    assert run("aggregate A.slot --model m.slot") == 0
    before = names(site)
    capsys.readouterr()
    full_disk(100)
    output = command.split()[-1]
    assert error_of(command, capsys) == f"skslot: error: {output}: File too large.\n"
    assert names(site) == before
    gc.collect()


def test_results_of_experiments_are_named_too(tmp_path, full_disk):
    data = SimpleNamespace(fingerprint=lambda: "small")
    store = RunStore(tmp_path / "runs.jsonl", data)
    run = Run(0.1, None, 0, "none", "fedcgs")
    full_disk(10)
    with pytest.raises(OSError, match="File too large: .*runs.jsonl"):
        store.add(run, {"accuracy": [50.0]})


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_what_cannot_be_printed_is_one_line(site, monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        error = error_of(SUMMARIZE, capsys)
    assert error == "skslot: error: the standard output: No space left on device.\n"


def test_a_pipe_that_nobody_reads_is_one_line(site, monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        error = error_of(SUMMARIZE, capsys)
    assert error == "skslot: error: the standard output: Broken pipe.\n"


@pytest.mark.parametrize("force", ["", " --force"])
def test_outputs_replace_neither_pipes_nor_links(site, force, capsys):
    os.mkfifo("pipe.slot")
    Path("link.slot").symlink_to("elsewhere.slot")
    command = SUMMARIZE.removesuffix("A.slot")
    assert "no regular file" in error_of(f"{command}pipe.slot{force}", capsys)
    error = error_of(f"{command}link.slot{force}", capsys)
    assert f"name that, {site.resolve() / 'elsewhere.slot'}." in error
    assert stat.S_ISFIFO(os.lstat("pipe.slot").st_mode)
    assert not Path("elsewhere.slot").exists()


def test_what_appears_during_the_work_is_kept(site, monkeypatch, capsys):
    update = FederatedOTAligner.client_update

    def meanwhile(*arguments, **options):
        Path("A.slot").write_text("theirs")
        return update(*arguments, **options)

    monkeypatch.setattr(FederatedOTAligner, "client_update", meanwhile)
    error = error_of(SUMMARIZE, capsys)
    assert "A.slot was written by another process in the meantime" in error
    assert Path("A.slot").read_text() == "theirs"


def test_too_little_memory_is_one_line(site, monkeypatch, capsys):
    def fill(*_, **__):
        np.empty(10**15)

    monkeypatch.setattr("skslot.datasets.load_features", fill)
    error = error_of(SUMMARIZE, capsys)
    assert "not enough memory. Unable to allocate" in error
