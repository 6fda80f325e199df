"""Arrays and facts as bytes: exact, rounded, and refused when they are not ours."""

import json
import os
import pickle
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save

import skslot
from skslot.exchange import MessageError
from skslot.exchange._wire import MAX_HEADER, WIRE_DTYPES, checksum, decode, encode

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
    ],
    ids=repr,
)
def test_facts_are_kept(fact):
    _, header = decode(encode("test", {}, {"fact": fact}, "float32"))
    assert header["fact"] == fact
    assert type(header["fact"]) is type(fact)
    assert header["kind"] == "test"


@pytest.mark.parametrize("fact", [1 + 2j, float("nan"), float("inf"), {1, 2}])
def test_facts_that_json_does_not_know_are_refused(fact):
    with pytest.raises(MessageError, match="cannot be written as JSON"):
        encode("test", {}, {"fact": fact}, "float32")


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
    later = {"format": "3", "kind": "test", "scales": {}}
    data = save({"array": np.ones(3)}, metadata={"skslot": json.dumps(later)})
    with pytest.raises(MessageError, match="format '3'.* reads format 1;"):
        decode(data)


def sealed(tensors, **changes):
    """Bytes of a changed message, with the checksum that belongs to it."""
    header = {
        "format": "1",
        "kind": "test",
        "dtype": "float64",
        "scales": {},
        **changes,
    }
    header["checksum"] = checksum(header, tensors)
    return save(tensors, metadata={"skslot": json.dumps(header)})


def test_every_bit_of_the_numbers_is_covered_by_the_checksum():
    header = 8 + int.from_bytes(MESSAGE[:8], "little")
    for position in range(header, len(MESSAGE)):
        damaged = bytearray(MESSAGE)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(MessageError, match="checksum is wrong"):
            decode(damaged)


@pytest.mark.parametrize("change", [{"client": "B"}, {"dtype": "float32"}, {"new": 1}])
def test_facts_are_covered_by_the_checksum(change):
    data = sealed({"array": np.ones(3)}, client="A")
    tensors, header = {"array": np.ones(3)}, decode(data)[1]
    changed = save(tensors, metadata={"skslot": json.dumps({**header, **change})})
    with pytest.raises(MessageError, match="checksum is wrong"):
        decode(changed)


def test_names_and_shapes_of_arrays_are_covered_by_the_checksum():
    header = json.dumps(decode(sealed({"a": np.ones((2, 3))}))[1])
    for tensors in ({"a": np.ones((3, 2))}, {"b": np.ones((2, 3))}):
        with pytest.raises(MessageError, match="checksum is wrong"):
            decode(save(tensors, metadata={"skslot": header}))


def test_header_says_what_it_is_about():
    header = decode(encode("test", {}, {"client": "A"}, "float32"))[1]
    assert header["skslot"] == skslot.__version__
    assert (header["format"], header["kind"], header["dtype"]) == (
        "1",
        "test",
        "float32",
    )
    assert len(header["checksum"]) == 64


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_anything_that_holds_bytes_is_read(make):
    assert np.array_equal(decode(make(MESSAGE))[0]["array"], np.arange(100.0))


@pytest.mark.parametrize(
    "scales",
    [[], None, {"array": 1.5}, {"array": True}, {"array": 2000}, {"other": 1}],
    ids=str,
)
def test_scales_that_make_no_sense_are_refused(scales):
    with pytest.raises(MessageError, match="scales do not belong"):
        decode(sealed({"array": np.ones(3)}, scales=scales))


def test_numbers_that_leave_float64_become_infinite_without_a_warning():
    arrays, _ = decode(sealed({"array": np.ones(3)}, scales={"array": 1100}))
    assert np.isinf(arrays["array"]).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", None, []])
def test_another_precision_than_announced_is_refused(dtype):
    with pytest.raises(MessageError, match="array' is float64, but the header says"):
        decode(sealed({"array": np.ones(3)}, dtype=dtype))


@pytest.mark.parametrize("nested", [[[[]]], {"a": {"b": {}}}, [[]] * 100])
def test_nested_header_is_refused(nested):
    with pytest.raises(MessageError, match="header is nested"):
        decode(sealed({}, client=nested))


def test_brackets_in_a_name_are_no_nesting():
    name = '[{"[[[[{{{{\\"'
    assert decode(sealed({}, client=name))[1]["client"] == name


def test_deeply_nested_header_does_not_exhaust_the_stack():
    text = '{"format": "1", "scales": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(MessageError, match="header is nested"):
        decode(save({}, metadata={"skslot": text}))


def test_large_header_is_refused_before_it_is_read():
    data = encode("test", {}, {"fact": "x" * MAX_HEADER}, "float32")
    with pytest.raises(MessageError, match="its header has .* bytes"):
        decode(data)
    with pytest.raises(MessageError, match="its header has .* bytes"):
        decode((2**62).to_bytes(8, "little") + b"{}")


@pytest.mark.parametrize("shape", [[2**62], [2**40, 2**40], [0, 2**62], [10**6]])
def test_absurd_shapes_take_no_memory(shape):
    data = sealed({"array": np.ones(3)})
    length = int.from_bytes(data[:8], "little")
    layout = json.loads(data[8 : 8 + length])
    layout["array"]["shape"] = shape
    text = json.dumps(layout).encode()
    bomb = len(text).to_bytes(8, "little") + text + data[8 + length :]
    tracemalloc.start()
    with pytest.raises(MessageError):
        decode(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


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
    with pytest.raises(MessageError, match="dtype object cannot be sent"):
        encode("test", {"array": np.array([Intruder("x")])}, {}, "float32")
