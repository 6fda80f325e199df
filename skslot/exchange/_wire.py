"""Arrays and labels as bytes, by safetensors."""

import json

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

WIRE_DTYPES = ("float64", "float32", "float16")
FORMAT = "1"


def encode(kind, arrays, facts, dtype):
    """Bytes of named arrays and JSON-able facts; floats are cast to ``dtype``."""
    if dtype not in WIRE_DTYPES:
        raise ValueError(f"dtype must be one of {WIRE_DTYPES}, got {dtype!r}.")
    tensors, scales = {}, {}
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype.kind == "f":
            exponent = _exponent(array, dtype)
            if exponent:
                scales[name] = exponent
            array = np.ldexp(array, -exponent).astype(dtype)
        tensors[name] = np.asarray(array, order="C")
    header = {"format": FORMAT, "kind": kind, "dtype": dtype, "scales": scales, **facts}
    return save(tensors, metadata={"skslot": json.dumps(header, default=_plain)})


def decode(data):
    """Arrays, floats as float64, and the header of a message."""
    try:
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["skslot"])
        version, scales = header["format"], header["scales"]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"these bytes are not a skslot message: {error}") from error
    if version != FORMAT:
        raise ValueError(
            f"this message has format {version!r}, but this version of skslot reads "
            f"format {FORMAT!r}; all sites need the same version."
        )
    arrays = {
        name: np.ldexp(tensor.astype(np.float64), scales.get(name, 0))
        if tensor.dtype.kind == "f"
        else tensor
        for name, tensor in sorted(tensors.items())  # safetensors keeps no order
    }
    return arrays, header


def _exponent(array, dtype):
    """Power of two that brings the largest value into the range of the dtype."""
    if dtype == "float64" or not array.size:
        return 0
    least = {"float32": 2.0**-60, "float16": 2.0**-10}[dtype]
    largest = np.abs(array).max()
    if least <= largest <= np.finfo(dtype).max or not largest:
        return 0
    return int(np.frexp(largest)[1]) - 14


def _plain(value):
    """NumPy scalars as Python's, anything else by its name."""
    return value.item() if isinstance(value, np.generic) else str(value)
