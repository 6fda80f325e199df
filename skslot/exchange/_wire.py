"""The bytes of messages: layout, precision, checksum, and files."""

import hashlib
import json
import os
import re
import stat

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from .. import __version__
from .._utils import largest, short, wire_exponent


class MessageError(ValueError):
    """A message was refused: damaged, inconsistent, or not fit to be sent.

    Parameters
    ----------
    reason : str
        Reason of the refusal.
    client : object, default=None
        Client of the message, if known.
    path : str or path-like, default=None
        File of the message, if any.
    disagreement : tuple, default=None
        If it does not fit another message: the ``trait`` in which they differ, the
        ``value``, the ``other_value``, and the facts on the ``other`` client.
    small_groups : dict, default=None
        Number of samples of each group that is too small.

    See Also
    --------
    load_messages : Read the other files.

    Examples
    --------
    >>> from skslot.exchange import MessageError, load_message
    >>> try:
    ...     load_message(b"no message")
    ... except MessageError as error:
    ...     print(error)
    these bytes are not a skslot message, or not all of it; ...
    """

    def __init__(
        self, reason, client=None, path=None, disagreement=None, small_groups=None
    ):
        super().__init__(reason, client, path, disagreement, small_groups)
        self.reason = reason
        self.client = client
        self.path = path
        self.disagreement = disagreement
        self.small_groups = small_groups

    def __str__(self):
        where = [] if self.path is None else [str(self.path)]
        where += [] if self.client is None else [f"client {short(self.client)}"]
        return ": ".join([*where, self.reason])


# ------------------------------------------------------------------ wire


WIRE_DTYPES = ("float64", "float32", "float16")
FORMAT = "1"

# JSON takes many times its size once it is read, so that it must not be large, and
# has no more objects and lists than itself, its scales, its classes and its clients.
MAX_HEADER = 2**20
MAX_CONTAINERS = 4
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
# Largest file that is read: 32,000 features in float32.
MAX_BYTES = 2**31
NO_MESSAGE = (
    "these bytes are not a skslot message, or not all of it; if it was one, send it "
    "again ({})."
)
# Largest exponent of a scale, which covers float64 with its denormal numbers.
MAX_EXPONENT = 1100


def encode(kind, arrays, facts, dtype):
    """Return the bytes of named arrays and JSON-able facts, in a precision."""
    _check_dtype(dtype)
    tensors, scales = {}, {}
    for name, array in arrays.items():
        tensors[name], exponent = narrow(array, dtype)
        if exponent:
            scales[name] = exponent
    try:
        json.dumps(facts, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MessageError(f"it cannot be written as JSON: {error}.") from error
    header = {"format": FORMAT, "skslot": __version__, "kind": kind, "dtype": dtype}
    header |= {"scales": scales, **facts}
    header["checksum"] = checksum(header, tensors)
    return save(tensors, metadata={"skslot": json.dumps(header)})


def decode(data):
    """Return the arrays of a message in float64, and its header."""
    try:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"{type(data).__name__} is not bytes")
        data = bytes(data)  # no copy if they are bytes already
        _check_length(data[:8])
        tensors = load(data)  # looks at the header before Python's JSON does
        header = read_header(data[:8], lambda length: data[8 : 8 + length])
        version, scales = header["format"], header["scales"]
        expected = checksum(header, tensors)
    except (SafetensorError, ValueError, LookupError, TypeError) as e:
        raise MessageError(NO_MESSAGE.format(str(e)[:200])) from e
    if version != FORMAT:
        raise MessageError(
            f"this message has format {short(version)}, but this version of skslot "
            f"reads format {FORMAT}; update skslot where it is read."
        )
    if header.get("checksum") != expected:
        raise MessageError(
            "the checksum is wrong: the message was damaged or changed on its way; "
            "send it again."
        )
    _check_scales(scales, tensors)
    _check_dtypes(tensors, header.get("dtype"))
    arrays = {
        name: widen(tensors[name], scales.get(name, 0))
        for name in sorted(tensors)  # safetensors keeps no order
    }
    return arrays, header


def narrow(array, dtype):
    """Return an array in the precision of the wire, and the exponent of its scale.

    Numbers are divided by a power of two if they do not fit the range of the dtype.
    """
    _check_dtype(dtype)
    if array.dtype.kind not in "fiub":
        raise MessageError(f"arrays of dtype {array.dtype} cannot be sent.")
    if array.dtype.kind != "f":
        return np.asarray(array, order="C"), 0
    exponent = wire_exponent(largest(array), dtype)
    if exponent:
        array = np.ldexp(array, -exponent)
    return array.astype(dtype, order="C", copy=False), exponent


def widen(tensor, exponent):
    """Return the numbers of the wire in float64; integers stay integers."""
    if tensor.dtype.kind != "f":
        return tensor
    array = tensor.astype(np.float64, copy=False)
    if not exponent:
        return array
    with np.errstate(over="ignore"):  # what is infinite is refused later
        return np.ldexp(array, exponent)


def checksum(header, tensors):
    """SHA-256 of everything in a message, in a fixed order."""
    facts = {name: fact for name, fact in header.items() if name != "checksum"}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        layout = json.dumps([name, tensor.dtype.str, tensor.shape])
        digest.update(layout.encode())
        digest.update(tensor.reshape(-1).view(np.uint8))
    return digest.hexdigest()


def read_header(first, read):
    """Header of a message, from its first eight bytes and what ``read`` gives next."""
    text = json.loads(read(_check_length(first)))["__metadata__"]["skslot"]
    structure = STRING.sub("", text)
    if structure.count("{") + structure.count("[") > MAX_CONTAINERS:
        raise ValueError("its header is nested")
    return json.loads(text, parse_constant=_refuse_constant)


def _check_length(first):
    length = int.from_bytes(first, "little")
    if length > MAX_HEADER:
        raise ValueError(f"its header has {length} bytes, at most {MAX_HEADER} do.")
    return length


def _check_dtype(dtype):
    if dtype not in WIRE_DTYPES:
        raise ValueError(f"dtype must be one of {WIRE_DTYPES}, got {dtype!r}.")


def _check_scales(scales, tensors):
    for name, exponent in scales.items() if isinstance(scales, dict) else [(None, 0)]:
        is_number = type(exponent) is int and abs(exponent) <= MAX_EXPONENT
        if name not in tensors or not is_number:
            raise MessageError("its scales do not belong to its arrays.")


def _check_dtypes(tensors, dtype):
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and (
            dtype not in WIRE_DTYPES or tensor.dtype != dtype
        ):
            raise MessageError(
                f"{short(name)} is {tensor.dtype}, but the header says {short(dtype)}."
            )
        if tensor.dtype.kind not in "fiub":
            raise MessageError(f"{short(name)} has the dtype {tensor.dtype}.")


def _refuse_constant(name):
    raise ValueError(f"{name} in the header")


def read_file(path, read):
    """Read the bytes of a file with a function; errors name the file.

    The file is refused unless its length matches its header and is within the limit.
    """
    try:
        with open_regular(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise MessageError("the file is empty; send it again.")
            _check_size(file)
            file.seek(0)
            data = file.read()
        return read(data)
    except MessageError as error:
        raise MessageError(error.reason, error.client, path) from error


def open_regular(path):
    """Open a regular file; reading a pipe might never begin or end."""
    file = open(path, "rb", opener=_open_at_once)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise MessageError("it is no regular file; copy what is in it to one first.")
    return file


def _open_at_once(path, flags):
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_size(file):
    """Refuse a file whose length is not the one in its header, or too much."""
    size = os.fstat(file.fileno()).st_size
    try:
        length = _check_length(file.read(8))
        layout = json.loads(file.read(length))
        layout.pop("__metadata__", None)
        stops = [entry["data_offsets"][1] for entry in layout.values()]
        expected = 8 + length + max(stops, default=0)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        raise MessageError(NO_MESSAGE.format(str(e)[:200])) from e
    if size != expected:
        reason = f"it has {size} bytes, and its header announces {short(expected)}"
        raise MessageError(NO_MESSAGE.format(reason))
    if size > MAX_BYTES:
        raise MessageError(
            f"it has {size / 2**30:.1f} GiB, and at most {MAX_BYTES / 2**30:.0f} are "
            "read; send it with less precision or fewer features."
        )
