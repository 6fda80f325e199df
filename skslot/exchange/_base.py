"""What all messages have in common."""

from dataclasses import fields, replace

import numpy as np

from ._wire import decode, encode


class Message:
    """Frozen record of arrays and facts, equal when all its fields are equal.

    A subclass is a dataclass with a ``kind``; fields named in ``array_fields`` travel
    as arrays, the others as JSON.
    """

    kind = ""
    array_fields = ()

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
        shown = ", ".join(f"{name}={_short(value)}" for name, value in values.items())
        return f"{type(self).__name__}({shown})"

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
        return encode(self.kind, self._arrays(), self._facts(), dtype)

    @classmethod
    def from_bytes(cls, data):
        """Read a message of this kind.

        Parameters
        ----------
        data : bytes
            What :meth:`to_bytes` returned.

        Returns
        -------
        message : Message
            The message, its numbers in float64.
        """
        arrays, header = decode(data)
        if header.get("kind") != cls.kind:
            raise ValueError(
                f"expected a message of kind {cls.kind!r}, got {header.get('kind')!r}."
            )
        values = cls._values(arrays, header)
        missing = [field.name for field in fields(cls) if field.name not in values]
        if missing:
            raise ValueError(f"this message of kind {cls.kind!r} lacks {missing}.")
        return cls(**{field.name: values[field.name] for field in fields(cls)})

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
        received = self.from_bytes(self.to_bytes(dtype))
        # Names and labels need not survive JSON to be used in this process.
        labels = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name in ("client", "classes")
        }
        return replace(received, **labels)

    def _arrays(self):
        return {name: getattr(self, name) for name in self.array_fields}

    def _facts(self):
        names = (f.name for f in fields(self) if f.name not in self.array_fields)
        values = {name: getattr(self, name) for name in names}
        return {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in values.items()
        }

    @classmethod
    def _values(cls, arrays, header):
        """Values of the fields, from what was decoded."""
        return {**header, **arrays}


def _equal(left, right):
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return bool(left == right)


def _short(value):
    return f"<array of {value.shape}>" if isinstance(value, np.ndarray) else repr(value)
