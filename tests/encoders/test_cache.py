"""The feature cache: what it keeps, counts, survives and refuses."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from skslot import FrozenEncoder
from skslot.encoders._cache import FeatureCache


@pytest.fixture
def encoder(colours, tmp_path):
    return FrozenEncoder(colours, batch_size=5, cache_dir=tmp_path / "cache")


def test_every_image_is_encoded_once(encoder, colours, paths):
    first = encoder.transform(paths)
    assert colours.n_seen == 12
    assert np.array_equal(encoder.transform(paths[::-1]), first[::-1])
    assert colours.n_seen == 12
    plain = FrozenEncoder(colours, batch_size=5).transform(paths)
    assert np.array_equal(plain, first)


def test_duplicates_and_copies_are_encoded_once(encoder, colours, paths, tmp_path):
    copy = tmp_path / "copy.png"
    copy.write_bytes((tmp_path / "3.png").read_bytes())
    features = encoder.transform([paths[3], paths[4], paths[3], copy])
    assert colours.n_seen == 2
    assert np.array_equal(features[0], features[2])
    assert np.array_equal(features[0], features[3])


def test_changed_file_is_encoded_again(encoder, colours, paths, tmp_path):
    before = encoder.transform(paths[:1])
    (tmp_path / "0.png").write_bytes((tmp_path / "1.png").read_bytes())
    assert not np.array_equal(encoder.transform(paths[:1]), before)
    assert colours.n_seen == 2


def test_arrays_and_rows_are_cached_as_well(encoder, colours, pixels):
    encoder.transform(pixels)
    encoder.transform(pixels[::2])
    assert colours.n_seen == 12
    rows = pixels.reshape(12, -1)
    encoder.set_params(image_shape=(10, 8, 3)).transform(rows)
    assert colours.n_seen == 12


def test_info_counts_hits_misses_and_size(encoder, paths):
    assert encoder.cache_info()[:4] == (0, 0, 0, 0)
    encoder.transform(paths[:8] + paths[:2])
    encoder.transform(paths)
    info = encoder.cache_info()
    assert info._fields == ("hits", "misses", "n_images", "n_bytes", "path")
    assert info[:3] == (10, 12, 12)
    assert info.n_bytes == info.path.stat().st_size
    assert info.path.name.removesuffix(".sqlite").isalnum()


def test_clear(encoder, colours, paths):
    encoder.transform(paths)
    encoder.cache_clear()
    assert encoder.cache_info()[:3] == (0, 0, 0)
    encoder.transform(paths)
    assert colours.n_seen == 24


def test_clear_of_a_cache_that_is_not_there(encoder):
    encoder.cache_clear()
    assert not encoder.cache_info().path.exists()


def test_no_cache_dir(colours):
    with pytest.raises(ValueError, match="set cache_dir"):
        FrozenEncoder(colours).cache_info()


def test_normalized_features_share_the_cache(encoder, colours, paths):
    raw = encoder.transform(paths)
    scaled = encoder.set_params(normalize=True).transform(paths)
    assert colours.n_seen == 12
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(scaled, raw / lengths, rtol=1e-6)


def test_other_weights_do_not_share_the_cache(encoder, colours, paths):
    before = encoder.transform(paths)
    colours.weights.data *= 2
    np.testing.assert_allclose(encoder.transform(paths), 2 * before, rtol=1e-6)


def test_code_that_changed_is_noticed_by_the_length(encoder, colours, paths):
    encoder.transform(paths[:6])
    forward = colours.forward
    colours.forward = lambda images: forward(images)[:, :3]
    with pytest.raises(ValueError, match=r"another length.* call cache_clear\(\)"):
        encoder.transform(paths)
    encoder.cache_clear()
    assert encoder.transform(paths).shape == (12, 3)


# ------------------------------------------------------------------ damage


def test_file_that_is_no_database(encoder, colours, paths):
    before = encoder.transform(paths)
    path = encoder.cache_info().path
    path.write_bytes(b"garbage" * 1000)
    with pytest.warns(UserWarning, match="is damaged .* renamed to .*damaged-1"):
        again = encoder.transform(paths)
    assert np.array_equal(again, before)
    assert colours.n_seen == 24
    assert path.with_name(path.name + ".damaged-1").read_bytes().startswith(b"garbage")
    encoder.transform(paths)
    assert colours.n_seen == 24
    path.write_bytes(b"garbage" * 1000)
    with pytest.warns(UserWarning, match="damaged-2"):
        encoder.cache_info()


def test_table_of_somebody_else(encoder, paths):
    before = encoder.transform(paths)
    path = encoder.cache_info().path
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE features (other)")
    connection.close()
    with pytest.warns(UserWarning, match="is damaged"):
        assert np.array_equal(encoder.transform(paths), before)


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_never_change_features(encoder, paths, seed):
    before = encoder.transform(paths)
    path = encoder.cache_info().path
    rng = np.random.default_rng(seed)
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8).copy()
    content[rng.integers(len(content), size=200)] ^= 0xFF
    path.write_bytes(content.tobytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.array_equal(encoder.transform(paths), before)
    assert np.array_equal(encoder.transform(paths), before)


def test_damaged_row_is_encoded_again(encoder, colours, paths):
    before = encoder.transform(paths)
    connection = sqlite3.connect(encoder.cache_info().path)
    with connection:
        connection.execute("UPDATE features SET row = zeroblob(24) WHERE rowid = 2")
        connection.execute("UPDATE features SET row = NULL WHERE rowid = 3")
    connection.close()
    with pytest.warns(UserWarning, match="2 rows of the feature cache .* are damaged"):
        assert np.array_equal(encoder.transform(paths), before)
    assert colours.n_seen == 14


def test_folder_in_place_of_the_file(encoder, paths):
    encoder.transform(paths)
    path = encoder.cache_info().path
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match=f"{path} cannot be used .* Set cache_dir"):
        encoder.transform(paths)
    assert path.is_dir()


def test_file_in_place_of_the_folder(encoder, paths, tmp_path):
    (tmp_path / "cache").touch()
    with pytest.raises(OSError, match=r"cannot be used .* Set cache_dir"):
        encoder.transform(paths)


def test_full_disk(tmp_path):
    with FeatureCache(tmp_path, "a") as cache:
        cache.put([b"k"], np.ones((1, 3)))
        cache._open().execute("PRAGMA max_page_count=3")
        with pytest.raises(OSError, match=r"is full\). Set cache_dir .* has space"):
            cache.put([b"l"], np.ones((1, 10_000)))
        assert list(cache.get([b"k", b"l"])) == [b"k"]


def test_file_that_another_process_has_renewed_is_left_alone(tmp_path):
    with FeatureCache(tmp_path, "a") as cache:
        cache.put([b"k"], np.ones((1, 3)))
        cache.path.rename(tmp_path / "aside")
        with FeatureCache(tmp_path, "a") as other:
            other.put([b"k"], np.zeros((1, 3)))
        cache._put_aside(sqlite3.DatabaseError("malformed"))
        assert np.array_equal(cache.get([b"k"])[b"k"], np.zeros(3))


# ------------------------------------------------------------------ permissions


@pytest.fixture
def as_visitor():
    """A folder, and a function that takes the right to write to it away."""
    if not hasattr(os, "geteuid"):
        pytest.skip("permissions work otherwise here")
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:

        def enter():
            os.chmod(name, 0o555)
            if user == 0:  # who may write everywhere
                os.seteuid(65534)

        yield Path(name), enter
        os.seteuid(user)
        os.chmod(name, 0o755)


@pytest.mark.parametrize("below", [".", "new/folder"])
def test_folder_without_write_permission(as_visitor, colours, pixels, below):
    folder, enter = as_visitor
    enter()
    encoder = FrozenEncoder(colours, cache_dir=folder / below)
    with pytest.raises(OSError, match=f"{folder}.* cannot be used .* Set cache_dir"):
        encoder.transform(pixels)
    assert colours.n_seen == 0


def test_warm_cache_without_write_permission(as_visitor, colours, pixels):
    folder, enter = as_visitor
    encoder = FrozenEncoder(colours, cache_dir=folder)
    before = encoder.transform(pixels)
    encoder.cache_info().path.chmod(0o644)  # the owner shares it
    enter()
    assert np.array_equal(encoder.transform(pixels), before)
    assert encoder.cache_info().n_images == 12
    assert colours.n_seen == 12
    with pytest.raises(OSError, match=r"readonly database\). Set cache_dir"):
        encoder.transform(255 - pixels)
    with pytest.raises(OSError, match=r"readonly database\). Set cache_dir"):
        encoder.cache_clear()
    assert np.array_equal(encoder.transform(pixels), before)


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_cache_is_for_its_owner_unless_shared(tmp_path):
    with FeatureCache(tmp_path, "space") as cache:
        cache.put([b"a"], np.ones((1, 4)))
        files = list(tmp_path.iterdir())
        assert len(files) == 3  # while it is open, with those of SQLite
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    cache.path.chmod(0o640)
    with cache:
        cache.put([b"b"], np.ones((1, 4)))
    assert cache.path.stat().st_mode & 0o777 == 0o640


# ------------------------------------------------------------------ processes

KILLED = """
import os, signal, sys
import numpy as np
from skslot.encoders._cache import FeatureCache
with FeatureCache(sys.argv[1], "space") as cache:
    for i in range(50):
        cache.put([bytes([i])], np.full((1, 4), i))
    print("written", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_kill_loses_nothing_that_was_written(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == -signal.SIGKILL
    with FeatureCache(tmp_path, "space") as cache:
        found = cache.get([bytes([i]) for i in range(60)])
    assert sorted(found) == [bytes([i]) for i in range(50)]
    assert all((row == key[0]).all() for key, row in found.items())


WRITER = """
import sys
import numpy as np
from skslot.encoders._cache import FeatureCache
first = int(sys.argv[2])
with FeatureCache(sys.argv[1], "space") as cache:
    for i in range(first, first + 30):
        cache.put([bytes([i, j]) for j in range(5)], np.full((5, 4), i))
"""


@pytest.mark.slow
def test_several_processes_write_at_once(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, str(first)]) for first in (0, 20)]
    assert [writer.wait() for writer in writers] == [0, 0]
    with FeatureCache(tmp_path, "space") as cache:
        found = cache.get([bytes([i, j]) for i in range(80) for j in range(5)])
    assert len(found) == 50 * 5
    assert all((row == key[0]).all() for key, row in found.items())


def test_more_keys_than_a_query_takes(tmp_path):
    keys = [i.to_bytes(4, "big") for i in range(1203)]
    with FeatureCache(tmp_path, "space") as cache:
        cache.put(keys, np.arange(1203)[:, np.newaxis])
        assert [row[0] for row in cache.get(keys).values()] == list(range(1203))
