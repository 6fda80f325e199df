"""Arrays and facts as bytes: exact, rounded, and refused when they are not ours."""

import json
import os
import pickle

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import save

from skslot.exchange._wire import FORMAT, WIRE_DTYPES, decode, encode

DTYPES = pytest.mark.parametrize("dtype", WIRE_DTYPES)


def round_trip(array, dtype):
    arrays, _ = decode(encode("test", {"array": array}, {}, dtype))
    return arrays["array"]


def relative_error(array, dtype):
    """Of the array as a whole, in the Euclidean norm."""
    unit = np.abs(array).max()
    return np.linalg.norm((round_trip(array, dtype) - array) / unit) / np.linalg.norm(
        array / unit
    )


# ------------------------------------------------------------------- round trips


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).standard_normal((7, 3)),
        np.array([1e308, 5e-324, -0.0, np.pi]),
        np.empty(0),
        np.empty((0, 4)),
        np.array(3.0),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12.0)[::2],
    ],
    ids=["normal", "extreme", "empty", "no rows", "scalar", "transposed", "strided"],
)
def test_float64_is_exact(array):
    actual = round_trip(array, "float64")
    assert actual.dtype == np.float64
    assert actual.shape == array.shape
    assert actual.tobytes() == np.ascontiguousarray(array).tobytes()


@DTYPES
def test_integers_are_exact_in_any_precision(dtype):
    counts = np.array([0, 1, 70_000, 2**31 - 1], dtype=np.int32)
    actual = round_trip(counts, dtype)
    assert actual.dtype == np.int32
    assert np.array_equal(actual, counts)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 2**-23), ("float16", 2**-10)])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_rounding_is_bounded(dtype, bound, scale):
    array = scale * np.random.default_rng(0).standard_normal((50, 20))
    assert 0 < relative_error(array, dtype) < bound


@pytest.mark.parametrize(
    "scale", [1e-300, 1e-30, 1e-9, 1e-5, 1e5, 70_000, 65_504, 1e9, 1e30, 1e300]
)
def test_float16_takes_values_of_any_size(scale):
    """Far outside of what float16 can hold, 6e-8 to 65504."""
    array = scale * np.random.default_rng(0).standard_normal((50, 20))
    assert relative_error(array, "float16") < 2**-10


@pytest.mark.parametrize(
    "scale",
    [1e-9, 1.0, 65_504, 65_505, 65_520, 2.0**16, 2.0**20 * (1 - 2.0**-13), 1e12],
)
def test_float16_of_a_single_value(scale):
    """Entry by entry, so that the largest cannot become infinite."""
    actual = round_trip(np.array([scale, -scale]), "float16")
    np.testing.assert_allclose(actual, [scale, -scale], rtol=2**-11)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_scaling_is_by_powers_of_two_so_that_sending_twice_changes_nothing(scale):
    array = scale * np.random.default_rng(0).standard_normal(100)
    once = round_trip(array, "float16")
    assert np.array_equal(round_trip(once, "float16"), once)


@DTYPES
def test_zeros_stay_zeros(dtype):
    assert np.array_equal(round_trip(np.zeros(3), dtype), np.zeros(3))


def test_each_array_has_its_own_scale():
    arrays = {"small": np.array([1e-9, 2e-9]), "large": np.array([1e9, 2e9])}
    actual, _ = decode(encode("test", arrays, {}, "float16"))
    for name, array in arrays.items():
        np.testing.assert_allclose(actual[name], array, rtol=2**-11)


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_size_follows_from_the_precision(dtype):
    small, large = (len(encode("test", {"a": np.ones(n)}, {}, dtype)) for n in (8, 808))
    assert large - small == pytest.approx(800 * np.dtype(dtype).itemsize, abs=8)


@pytest.mark.parametrize(
    "fact",
    [
        "text with ü and \N{SNOWMAN}",
        5,
        None,
        True,
        2.5,
        ["a", "b"],
        [1, 2],
        [],
        {"nested": [1]},
    ],
    ids=repr,
)
def test_facts_are_kept(fact):
    _, header = decode(encode("test", {}, {"fact": fact}, "float32"))
    assert header["fact"] == fact
    assert type(header["fact"]) is type(fact)
    assert header["kind"] == "test"


@pytest.mark.parametrize(
    ("fact", "plain"),
    [(np.int64(5), 5), (np.str_("a"), "a"), (np.bool_(True), True), (1 + 2j, "(1+2j)")],
)
def test_facts_that_json_does_not_know(fact, plain):
    _, header = decode(encode("test", {}, {"fact": fact}, "float32"))
    assert header["fact"] == plain


def test_bytes_are_reproducible():
    arrays = {"b": np.ones(3), "a": np.zeros(2)}
    first, second = (encode("test", arrays, {"client": 1}, "float32") for _ in range(2))
    assert first == second


@pytest.mark.parametrize("dtype", ["float8", "int32", None, np.float32])
def test_unknown_precision_raises(dtype):
    with pytest.raises(ValueError, match="dtype must be one of"):
        encode("test", {}, {}, dtype)


# --------------------------------------------------------------------- intruders

MESSAGE = encode("test", {"array": np.arange(100.0)}, {"client": "A"}, "float32")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0" * 8,
        b"\0" * 100,
        b"\xff" * 100,
        b"hello, this is some text and no message",
        b"PK\x03\x04" + b"\0" * 60,
        json.dumps({"kind": "test"}).encode(),
        save({"array": np.ones(3)}),
        save({"array": np.ones(3)}, metadata={"other": "{}"}),
        save({"array": np.ones(3)}, metadata={"skslot": "no JSON"}),
        save({"array": np.ones(3)}, metadata={"skslot": "[1, 2]"}),
        save({"array": np.ones(3)}, metadata={"skslot": "5"}),
        save({"array": np.ones(3)}, metadata={"skslot": "{}"}),
        "path/to/message.slot",
        None,
    ],
    ids=lambda data: repr(data)[:30],
)
def test_anything_else_is_refused(data):
    with pytest.raises(ValueError, match="these bytes are not a skslot message"):
        decode(data)


@pytest.mark.parametrize(
    "length", [1, 7, 8, 9, 50, len(MESSAGE) // 2, len(MESSAGE) - 1]
)
def test_truncated_message_is_refused(length):
    with pytest.raises(ValueError, match="these bytes are not a skslot message"):
        decode(MESSAGE[:length])


def test_message_with_something_behind_it_is_refused():
    with pytest.raises(ValueError, match="these bytes are not a skslot message"):
        decode(MESSAGE + b"\0")


def test_message_of_a_later_format_is_refused():
    later = {"format": "2", "kind": "test", "scales": {}}
    data = save({"array": np.ones(3)}, metadata={"skslot": json.dumps(later)})
    with pytest.raises(ValueError, match=f"format '2'.* reads format '{FORMAT}'"):
        decode(data)


class Intruder:
    """Pickled, it makes a directory when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickle_is_refused_and_not_run(tmp_path):
    target = str(tmp_path / "made by a pickle")
    data = pickle.dumps(Intruder(target))
    with pytest.raises(ValueError, match="these bytes are not a skslot message"):
        decode(data)
    assert not os.path.exists(target)
    pickle.loads(data)
    assert os.path.exists(target)


def test_objects_cannot_be_sent():
    with pytest.raises(SafetensorError, match="object"):
        encode("test", {"array": np.array([Intruder("x")])}, {}, "float32")
