"""Output files: never half-written, never overwritten by accident."""

import os
import stat

import numpy as np
import pytest

from skslot._atomic import atomic_output
from skslot.cli._main import refuse_overwrite, write_npz_atomically


def test_new_file_is_not_refused(tmp_path):
    refuse_overwrite(tmp_path / "new.npz")
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_refused_unless_forced(tmp_path):
    path = tmp_path / "old.npz"
    path.write_text("old")
    with pytest.raises(FileExistsError, match="old.npz exists already.*--force"):
        refuse_overwrite(path)
    refuse_overwrite(path, force=True)
    assert path.read_text() == "old"


def test_folders_are_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        refuse_overwrite(tmp_path, force=True)
    with pytest.raises(FileNotFoundError, match="nowhere for a.npz does not exist"):
        refuse_overwrite(tmp_path / "nowhere" / "a.npz")


@pytest.mark.parametrize("force", [True, False])
def test_inputs_are_never_overwritten(tmp_path, monkeypatch, force):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "in.npz"
    path.write_text("in")
    with pytest.raises(ValueError, match="is read as an input"):
        refuse_overwrite("in.npz", force, [None, tmp_path / "gone", path])


def test_folders_without_the_right_to_write_are_named(tmp_path, monkeypatch):
    # whoever runs the tests may be allowed to write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(PermissionError, match=f"{tmp_path.name} for a.npz.*choose"):
        refuse_overwrite(tmp_path / "a.npz", force=True)


def test_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    with atomic_output(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")

    def fail():
        with atomic_output(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_file_has_the_usual_permissions(tmp_path):
    usual, path = tmp_path / "usual", tmp_path / "out.bin"
    usual.touch()
    with atomic_output(path) as file:
        file.write(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


def test_arrays_are_read_back_without_pickle(tmp_path):
    path = tmp_path / "a.npz"
    write_npz_atomically(path, {"X": np.eye(2, dtype=np.float32), "path": ["ä", "b c"]})
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays["X"].dtype == np.float32
        assert arrays["path"].tolist() == ["ä", "b c"]


def test_python_objects_are_refused(tmp_path):
    with pytest.raises(ValueError, match="y holds Python objects"):
        write_npz_atomically(tmp_path / "a.npz", {"y": np.array(["a", None])})
    assert list(tmp_path.iterdir()) == []
