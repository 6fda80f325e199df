"""``skslot summarize`` with differential privacy, and its record of releases."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from four_sites import CLIENTS, NAMES, X, Y, error_of, run

from skslot.cli import _site
from skslot.cli._site import ReleaseRecord
from skslot.datasets import load_features
from skslot.exchange import ClassStatistics, ClientStatistics, load_message
from skslot.privacy import PrivacyBudget

NOISE = "skslot.privacy._budget.opendp_noise"

PRIVACY = "--epsilon 3 --delta 1e-5 --clip 5"
COMMAND = (
    f"summarize rows.npz --client A --labels --classes cat,dog,horse,owl {PRIVACY}"
)


@pytest.fixture(autouse=True)
def record(site, monkeypatch):
    """Where the record of releases will be; noise comes from a seed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(site / "state"))
    rows = CLIENTS == "A"
    np.savez("rows.npz", X=X[rows], y=Y[rows], fingerprint="r@1")
    rng = np.random.default_rng(0)
    with patch(NOISE, lambda v, scale: v + scale * rng.standard_normal(len(v))):
        yield site / "state" / "skslot" / "releases.json"


def test_the_file_carries_the_guarantee(capsys):
    assert run(f"{COMMAND} -o A.slot") == 0
    printed = capsys.readouterr().out
    assert "with differential privacy: epsilon 3, delta 1e-05, rows clipped" in printed
    message = ClassStatistics.load("A.slot")
    assert message.privacy["epsilon"] == 3
    assert message.shrinkage.size  # for alignment, from the same noisy numbers
    assert run("inspect A.slot") == 0
    printed = capsys.readouterr().out
    assert "privacy['clip_norm']" in printed
    assert "by a factor of 20.1 at most" in printed


def test_statistics_for_alignment_need_no_classes():
    assert run(f"summarize rows.npz --client A {PRIVACY} -o A.slot") == 0
    assert ClientStatistics.load("A.slot").privacy["delta"] == 1e-5


def test_the_agreed_classes_are_in_the_file_and_nothing_on_which_there_are():
    rows = (CLIENTS == "A") & (Y != "owl")
    np.savez("rows.npz", X=X[rows], y=Y[rows], fingerprint="r@1")
    assert run(f"{COMMAND} -o A.slot") == 0
    assert load_message("A.slot").classes == ["cat", "dog", "horse", "owl"]


@pytest.mark.parametrize(
    ("classes", "expected"), [("1,2,3", [1, 2, 3]), ("1,2,x", ["1", "2", "x"])]
)
def test_agreed_labels_are_numbers_if_all_are(classes, expected):
    np.savez("rows.npz", X=X[:60], y=np.resize(["1", "2"], 60), fingerprint="r@1")
    command = f"summarize rows.npz --client A --labels --classes {classes} {PRIVACY}"
    assert run(f"{command} -o A.slot") == 0
    assert load_message("A.slot").classes == expected


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (("--delta 1e-5", ""), "go together: give --delta too, for example"),
        (("--epsilon 3 --delta 1e-5", ""), "give --epsilon and --delta too"),
        (("--epsilon 3", "--epsilon 0"), "epsilon must be positive"),
        (("--clip 5", "--clip 0"), "clip_norm must be positive"),
        (("--classes cat,dog,horse,owl", ""), "--classes cat,dog"),
        (("cat,dog,horse,owl", "cat,dog"), "labels ['horse', 'owl'] that are not"),
        (("--labels", "--labels --method fedpft"), "--method fedpft has no guarantee"),
        (("--labels", "--labels --method fedcoreset"), "fedcoreset has no guarantee"),
        (("--labels", "--labels --method fedmerge"), "fedmerge has no guarantee"),
        (("--labels", "--labels --method fedensemble"), "has no guarantee of diff"),
        (
            ("--labels", "--labels --drop-small-classes"),
            "would reveal which classes are",
        ),
        (("rows.npz", "features.npz"), "does not name its encoder"),
        ((PRIVACY, "--again"), "--again is for releases with --epsilon only"),
    ],
)
def test_what_has_no_guarantee_is_refused(changes, error, capsys, record):
    assert error in error_of(COMMAND.replace(*changes) + " -o A.slot", capsys)
    assert not Path("A.slot").exists()
    assert not record.exists()


def test_the_same_rows_are_not_released_twice_unseen(capsys):
    assert run(f"{COMMAND} -o A.slot") == 0
    order = np.random.default_rng(0).permutation(np.sum(CLIENTS == "A"))
    with np.load("rows.npz") as rows:
        np.savez("other.npz", X=rows["X"][order], fingerprint="r@1")
    second = f"summarize other.npz --client B {PRIVACY} -o B.slot"
    error = error_of(second, capsys)
    assert "these rows were released before, last on 20" in error
    assert "epsilon 3 and delta 1e-05 in all" in error
    assert "--again" in error
    assert not Path("B.slot").exists()
    assert run(f"{second} --again") == 0
    assert "before, epsilon 3 and delta 1e-05 in all were" in capsys.readouterr().out
    error = error_of(f"{COMMAND} -o C.slot", capsys)
    assert "epsilon 6 and delta 2e-05 in all" in error


def test_other_rows_of_a_client_are_released_with_a_word_about_it(capsys):
    assert run(f"{COMMAND} -o A.slot") == 0
    with np.load("rows.npz") as rows:
        np.savez("rows.npz", **{**rows, "X": rows["X"] + 1})
    assert "other rows" not in capsys.readouterr().out
    assert run(f"{COMMAND} -o B.slot") == 0
    assert "client A has released other rows before, with" in capsys.readouterr().out


def test_the_same_file_under_other_rules_is_the_same_rows(capsys):
    frame = pd.DataFrame(X, columns=NAMES).assign(client=CLIENTS)
    frame.to_csv("rows.csv", index=False)
    first = f"summarize rows.csv --client A {PRIVACY} -o A.slot"
    assert run(first) == 0
    other = first.replace("-o A", "--features age weight -o B")
    assert "these rows were released before" in error_of(other, capsys)
    of_b = other.replace("--client A", "--client B")
    assert run(of_b) == 0  # which has other rows in the file


def test_records_of_earlier_versions_are_read(record, capsys):
    assert run(f"{COMMAND} -o A.slot") == 0
    content = json.loads(record.read_text())
    del content["releases"][0]["file"]
    record.write_text(json.dumps(content))
    assert "these rows were released before" in error_of(f"{COMMAND} -o B.slot", capsys)


def test_the_record_tells_nothing_about_rows(record):
    assert run(f"{COMMAND} -o A.slot") == 0
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    content = json.loads(record.read_text())
    assert content.keys() == {"key", "releases"}
    (release,) = content["releases"]
    assert release.keys() == {"client", "rows", "epsilon", "delta", "date", "file"}
    assert len(release["rows"]) == len(release["file"]) == 32
    record.unlink()  # another key, another fingerprint
    assert run(f"{COMMAND} -o B.slot") == 0
    (later,) = json.loads(record.read_text())["releases"]
    assert later["rows"] != release["rows"]
    assert later["file"] != release["file"]


def test_releases_at_the_same_time_are_all_noted(record):
    def release(k):
        with ReleaseRecord.opened() as opened:
            table = replace(load_features("rows.npz"), X=X[k : k + 9])
            opened.note(table, f"site {k}", PrivacyBudget(3.0, 1e-5, 5.0))
            return opened.key

    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(release, range(8)))
    content = json.loads(record.read_text())
    assert set(keys) == {content["key"]}
    assert {each["client"] for each in content["releases"]} == {
        f"site {k}" for k in range(8)
    }


def test_nobody_else_releases_between_the_check_and_the_note(record, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    update, lock = _site._message, record.with_name("releases.json.lock")

    def update_while_locked(*arguments):
        with open(lock) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return update(*arguments)

    monkeypatch.setattr(_site, "_message", update_while_locked)
    assert run(f"{COMMAND} -o A.slot") == 0
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_without_a_record_nothing_is_released(record, capsys):
    record.parent.mkdir(parents=True)
    for content in ("{", "[]", '{"key": "00", "releases": [{"client": "A"}]}'):
        record.write_text(content)
        assert "is damaged; move it away" in error_of(f"{COMMAND} -o A.slot", capsys)
    assert not Path("A.slot").exists()


def test_files_without_noise_are_not_recorded(record):
    command = "summarize rows.npz --client A --labels --min-samples 1 -o A.slot"
    assert run(f"{command} --classes cat,dog,horse,owl") == 0
    assert load_message("A.slot").privacy is None
    assert not record.exists()
