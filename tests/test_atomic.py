"""What becomes of outputs when others, the disk or a kill are in the way."""

import errno
import os
import signal
import stat
import subprocess
import sys

import pytest

from skslot import _atomic
from skslot._atomic import atomic_output, outputs_together

FOLDER = os.path.dirname(_atomic.__file__)
posix = pytest.mark.skipif(os.name == "nt", reason="files of POSIX")


def write(path, content=b"new", **options):
    with atomic_output(path, **options) as file:
        file.write(content)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def in_child(code, *arguments, **options):
    """Run code on the module alone, as the package takes its time to import."""
    code = f"import sys\nsys.path.append({FOLDER!r})\n{code}"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **options)


# ------------------------------------------------- what is there and is no file


@posix
def test_pipes_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="pipe is no regular file"):
        write(tmp_path / "pipe")
    assert stat.S_ISFIFO(os.lstat(tmp_path / "pipe").st_mode)
    assert len(list(tmp_path.iterdir())) == 1


@posix
def test_devices_are_not_replaced():
    with pytest.raises(FileExistsError, match="/dev/null is no regular file"):
        write("/dev/null")


@posix
@pytest.mark.parametrize("dangling", [True, False])
def test_links_are_not_followed_and_their_target_is_named(tmp_path, dangling):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to("target")
    if not dangling:
        target.write_bytes(b"old")
    with pytest.raises(FileExistsError, match=f"name that, {target.resolve()}"):
        write(link)
    assert link.is_symlink()
    assert target.exists() != dangling
    write(os.path.realpath(link))
    assert link.is_symlink()
    assert link.read_bytes() == b"new"


@posix
def test_a_pipe_that_appears_meanwhile_is_kept(tmp_path):
    path = tmp_path / "out"

    def write_while_it_appears():
        with atomic_output(path):
            os.mkfifo(path)

    with pytest.raises(FileExistsError, match="no regular file"):
        write_while_it_appears()
    assert stat.S_ISFIFO(os.lstat(path).st_mode)


# --------------------------------------------------------- exclusive, or together


def write_new(*paths):
    """Write files that do not exist, while somebody else makes the last of them."""
    with outputs_together(replace=False):
        for path in paths:
            write(path)
        path.write_bytes(b"theirs")


def test_a_file_that_appears_meanwhile_is_kept(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(FileExistsError, match="out was written by another process"):
        write_new(path)
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_those_that_have_their_name_lose_it_if_another_cannot(tmp_path):
    with pytest.raises(FileExistsError, match="b was written by another process"):
        write_new(tmp_path / "a", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("links", [True, False])
def test_one_of_many_processes_wins(tmp_path, links):
    code = """
import os, sys
from _atomic import atomic_output, outputs_together

def no_links(*_):
    raise OSError(95, "no hard links here")

os.link = os.link if sys.argv[2] == "True" else no_links
with outputs_together(replace=False):
    with atomic_output(sys.argv[1]) as file:
        file.write(sys.argv[3].encode())
        print("ready", flush=True)
        sys.stdin.readline()
"""
    path = tmp_path / "out"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    rivals = [in_child(code, path, links, name, **pipes) for name in "abc"]
    for rival in rivals:
        assert rival.stdout.readline() == "ready\n"
    for rival in rivals:
        rival.stdin.write("\n")
        rival.stdin.flush()
    for rival in rivals:
        rival.communicate()
    codes = [rival.returncode for rival in rivals]
    winners = [name for name, code in zip("abc", codes, strict=True) if code == 0]
    assert [path.read_text()] == winners
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_appears_before_all_is_written(tmp_path):
    with outputs_together():
        write(tmp_path / "a")
        write(tmp_path / "b")
        assert all(path.suffix == ".part" for path in tmp_path.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("replace", [True, False])
def test_all_or_none(tmp_path, replace):
    def fail():
        with outputs_together(replace):
            write(tmp_path / "a")
            with atomic_output(tmp_path / "b") as file:
                file.write(b"half")
                raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left.*b'$"):
        fail()
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_full_disk_is_an_error_that_names_the_output(tmp_path):
    code = """
import resource, sys
from _atomic import atomic_output

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with atomic_output(sys.argv[1]) as file:
    file.write(bytes(100_000))
"""
    with in_child(code, tmp_path / "out", stderr=subprocess.PIPE) as child:
        errors = child.stderr.read()
    assert errors.splitlines()[-1].endswith(f"File too large: '{tmp_path / 'out'}'")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------- modes


@posix
@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_mode_of_an_older_file_is_kept(tmp_path, mode, private):
    path = tmp_path / "out"
    path.touch()
    path.chmod(mode)
    write(path, private=private)
    assert mode_of(path) == mode
    assert path.read_bytes() == b"new"


@posix
def test_private_files_and_those_in_the_making_are_for_their_owner(tmp_path):
    with atomic_output(tmp_path / "shared"):
        (part,) = tmp_path.iterdir()
        assert mode_of(part) == 0o600
    write(tmp_path / "private", private=True)
    assert mode_of(tmp_path / "private") == 0o600
    (tmp_path / "usual").touch()
    assert mode_of(tmp_path / "shared") == mode_of(tmp_path / "usual")


# ------------------------------------------------------------- after a kill

HANG = """
import sys
from _atomic import atomic_output

with atomic_output(sys.argv[1]) as file:
    print("ready", flush=True)
    sys.stdin.readline()
"""


@posix
def test_what_a_kill_leaves_is_removed_by_the_next_run_of_this_output(tmp_path):
    for name in ("out", "other"):
        with in_child(HANG, tmp_path / name, stdout=subprocess.PIPE) as child:
            assert child.stdout.readline() == "ready\n"
            child.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / ".out.part").touch()  # of somebody else
    write(tmp_path / "out")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[1:] == [".out.part", "out"]
    assert names[0].startswith(".other.")


@posix
def test_what_is_being_written_is_left_alone(tmp_path):
    with in_child(HANG, tmp_path / "out", stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == "ready\n"
        write(tmp_path / "out")
        assert len(list(tmp_path.iterdir())) == 2
        child.communicate("\n")
    assert child.returncode == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
