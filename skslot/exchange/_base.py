"""What all messages have in common."""

from dataclasses import fields, replace

import numpy as np

from ._checks import (
    check_labels,
    check_name,
    check_numbers,
    check_rows_of_classes,
    check_shapes,
)
from ._description import describe
from ._disclosure import MIN_SAMPLES, check_disclosure, class_sizes
from ._errors import MessageError, short
from ._fields import is_array, is_named_arrays
from ._storage import read_file, write_file
from ._wire import WireArray, decode, encode, to_wire


class Message:
    """Frozen record of arrays and facts, equal when all its fields are equal.

    A subclass is decorated by ``message_type`` and has a ``kind``; its fields are made
    by the functions beside it. It checks its own values in ``_check_values``; those of
    ``classes`` and ``counts``, the number of rows of each, are checked for it.
    """

    kind = ""

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return all(
            _equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        )

    __hash__ = None

    def __repr__(self):
        """All fields, arrays by their shape: statistics do not belong into logs."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if values.get("encoder") is None:
            values.pop("encoder", None)
        shown = ", ".join(f"{name}={_short(value)}" for name, value in values.items())
        return f"{type(self).__name__}({shown})"

    # -------------------------------------------------------------- as bytes

    @property
    def nbytes(self):
        """Bytes of the message as it is sent by default, in float32."""
        return self._nbytes("float32")

    def to_bytes(self, dtype="float32"):
        """Serialise the message.

        Parameters
        ----------
        dtype : {"float64", "float32", "float16"}, default="float32"
            Precision of the numbers in it.

        Returns
        -------
        data : bytes
            The message; safetensors underneath.
        """
        self._check_names()
        self._check()
        return self._encode(dtype)

    @classmethod
    def from_bytes(cls, data):
        """Read a message of this kind and check it.

        Parameters
        ----------
        data : bytes, bytearray or memoryview
            What :meth:`to_bytes` returned.

        Returns
        -------
        message : Message
            The message, its numbers in float64.
        """
        return cls._from_decoded(*decode(data))

    def as_received(self, dtype):
        """The message as it arrives when sent with this precision.

        Parameters
        ----------
        dtype : {"float64", "float32", "float16"}
            Precision on the wire.

        Returns
        -------
        message : Message
            The same but for rounding; float64 is exact.
        """
        rounded = {
            name: to_wire(array, dtype).decode()
            for name, array in sorted(self._arrays().items())
        }
        return replace(self, **self._fields_of(rounded))

    def rounding_error(self, dtype):
        """What a precision loses.

        Parameters
        ----------
        dtype : {"float64", "float32", "float16"}
            Precision on the wire.

        Returns
        -------
        error : float
            Largest change of a number, relative to the largest number in its array.
        """
        errors = [0.0]
        for sent in self._arrays().values():
            largest = np.abs(sent).max(initial=0.0) if sent.dtype.kind == "f" else 0.0
            if largest > 0:
                received = to_wire(sent, dtype).decode()
                errors.append(np.abs(received - sent).max() / largest)
        return float(max(errors))

    # -------------------------------------------------------------- as files

    def save(self, path, dtype="float32", min_samples=MIN_SAMPLES):
        """Write the message to a file, unless it says too much about single rows.

        The file appears as a whole or not at all; an older one is replaced.

        Parameters
        ----------
        path : str or path-like
            Where to write it.
        dtype : {"float64", "float32", "float16"}, default="float32"
            Precision of the numbers in it.
        min_samples : int, default=10
            Fewest rows that a client and each of its classes must have, see
            :meth:`check_disclosure`.
        """
        try:
            self._check(deep=True)
            self.check_disclosure(min_samples)
            data = self.to_bytes(dtype)
        except MessageError as error:
            raise MessageError(error.reason, error.client, path) from None
        write_file(path, data)

    @classmethod
    def load(cls, path):
        """Read a message of this kind from a file and check it.

        Parameters
        ----------
        path : str or path-like
            What :meth:`save` wrote.

        Returns
        -------
        message : Message
            The message, its numbers in float64.
        """
        return read_file(path, cls.from_bytes)

    # ------------------------------------------------------- what is in it

    def describe(self, min_samples=MIN_SAMPLES):
        """Say in words what is in the message, and what is not.

        Parameters
        ----------
        min_samples : int, default=10
            Classes with fewer rows are named, see :meth:`check_disclosure`.

        Returns
        -------
        text : str
            A table to print.
        """
        return describe(self, min_samples)

    def check_disclosure(self, min_samples=MIN_SAMPLES):
        """Refuse a message that summarises too few rows.

        The mean of one row is that row, and that of a few is not far from it. Saving
        does this; messages that stay in a process are not checked.

        Parameters
        ----------
        min_samples : int, default=10
            Fewest rows of a client, of each class it holds and of each component of a
            mixture. 1 allows everything.
        """
        check_disclosure(self, min_samples)

    def with_encoder(self, fingerprint):
        """The same message, with a note on what made the features.

        Servers refuse messages whose fingerprints differ.

        Parameters
        ----------
        fingerprint : str or None
            Any text that is the same at all sites with the same encoder, such as its
            name and version, or :func:`feature_fingerprint` for the columns of a table.

        Returns
        -------
        message : Message
            The message to send.
        """
        return replace(self, encoder=fingerprint)

    # --------------------------------------------------------------- helpers

    def _wire_arrays(self):
        """Arrays as they came or were made, by the names that they travel under."""
        arrays = {}
        for field in fields(self):
            value = vars(self)[field.name]
            if is_array(field):
                arrays[field.name] = _as_wire(value)
            elif is_named_arrays(field):
                for name, array in value.items():
                    arrays[f"{field.name}/{name}"] = _as_wire(array)
        return arrays

    def _arrays(self):
        """Arrays in float64, by the names that they travel under."""
        return {name: array.decode() for name, array in self._wire_arrays().items()}

    @classmethod
    def _fields_of(cls, arrays):
        """Values of fields, from arrays by the names that they travel under."""
        values = dict(arrays)
        for field in filter(is_named_arrays, fields(cls)):
            prefix = f"{field.name}/"
            names = [name for name in arrays if name.startswith(prefix)]
            values[field.name] = {
                name.removeprefix(prefix): values.pop(name) for name in names
            }
        return values

    @classmethod
    def _from_format_1(cls, arrays):
        """Arrays as they travel, from those of format 1."""
        return arrays

    def _facts(self):
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if not is_array(field) and not is_named_arrays(field)
        }

    def _group_sizes(self):
        """Number of rows in each group that is summarised, by the words for it."""
        return class_sizes(self) if hasattr(self, "counts") else {}

    def _nbytes(self, dtype):
        """Bytes on the wire, also if names in it could not be sent."""
        return len(self._encode(dtype))

    def _encode(self, dtype):
        facts = {name: _plain(value) for name, value in self._facts().items()}
        facts["n_features"] = int(self.n_features)
        return encode(self.kind, self._arrays(), facts, dtype)

    @classmethod
    def _from_decoded(cls, arrays, header):
        client = header.get("client")
        try:
            message = cls._build(arrays, header)
            message._check_names()
            message._check(deep=True)
            if header.get("n_features", message.n_features) != message.n_features:
                raise MessageError("the header announces another number of features.")
        except MessageError as error:
            raise MessageError(error.reason, client) from None
        return message

    @classmethod
    def _build(cls, arrays, header):
        """The message, its values not yet checked."""
        if header.get("kind") != cls.kind:
            raise MessageError(
                f"expected a message of kind {cls.kind!r}, got "
                f"{short(header.get('kind'))}."
            )
        if header["format"] == "1":
            header = {**header, "encoder": None}
            arrays = cls._from_format_1(arrays)
        values = {**header, **cls._fields_of(arrays)}
        missing = [f.name for f in fields(cls) if f.name not in values]
        if missing:
            raise MessageError(f"this message of kind {cls.kind!r} lacks {missing}.")
        message = cls(**{f.name: values[f.name] for f in fields(cls)})
        strangers = arrays.keys() - message._wire_arrays().keys()
        if strangers:
            raise MessageError(f"arrays {short(sorted(strangers))} do not belong.")
        return message

    def _check(self, deep=False):
        """Refuse values that cannot be; eigenvalues are looked at only if ``deep``."""
        try:
            for name, array in self._wire_arrays().items():
                check_numbers(name, array)
            sizes = check_shapes(self)
            if hasattr(self, "counts"):
                check_rows_of_classes(self.classes, self.counts)
            self._check_values(sizes, deep)
        except MessageError as error:
            raise MessageError(error.reason, getattr(self, "client", None)) from None

    def _check_names(self):
        """Refuse names that would not arrive as they are."""
        check_name("client", getattr(self, "client", None))
        if hasattr(self, "classes"):
            check_labels(self.classes)
        if not isinstance(self.encoder, str | None):
            raise MessageError(f"encoder must be text, got {short(self.encoder)}.")

    def _check_values(self, sizes, deep):
        """Refuse values that cannot be, in arrays of the right shapes."""


def _plain(value):
    """Lists and scalars of NumPy as Python's; text for what cannot be sent."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _equal(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            _equal(left[name], right[name]) for name in left
        )
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return bool(left == right)


def _as_wire(value):
    return value if isinstance(value, WireArray) else WireArray(value)


def _short(value):
    return f"<array of {value.shape}>" if isinstance(value, np.ndarray) else repr(value)
