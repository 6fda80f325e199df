"""What a message is: a frozen record that can be checked, sent and explained."""

from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from .._atomic import atomic_output
from .._linalg import pack_triangle, unpack_triangle
from ._checks import (
    check_labels,
    check_name,
    check_numbers,
    check_privacy,
    check_rows_of_classes,
    check_shapes,
    check_text,
    check_unique,
    kind_of_label,
)
from ._disclosure import MIN_SAMPLES, check_disclosure, describe, entries
from ._errors import MessageError, short
from ._facts import warn_if_coarse
from ._wire import (
    decode,
    encode,
    encoded_size,
    is_array,
    is_named_arrays,
    is_symmetric,
    narrow,
    read_file,
    widen,
    wire_name,
)

# Facts that messages did not have at first, and that are not written if they are None.
LATER_FACTS = ("privacy",)


class Message:
    """Base of all messages: a frozen record of arrays and facts.

    A subclass names its ``kind`` and its fields; that makes it a frozen dataclass, and
    files of that kind can be read. Fields are made by :meth:`array`,
    :meth:`named_arrays` and :meth:`fact`; a message has a field ``encoder``, and that
    of a client a field ``client``. One of its arrays has the size "m", the number of
    features; if none has, ``n_features`` is a fact. The base class writes, reads,
    compares and checks it. Values of ``classes`` and ``counts``, the number of rows of
    each, are checked too; what else must hold, a subclass checks in
    ``_check_values(sizes, deep)``.

    See Also
    --------
    skslot.classifiers.OneShotClassifier : Base of classifiers, which send messages.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.exchange import Message
    >>> class RowMean(Message):
    ...     kind = "row mean"
    ...     mean: np.ndarray = Message.array("m", meaning="mean of the rows")
    ...     client: object = Message.fact("name of the client", default=None)
    ...     encoder: str | None = Message.fact("what made the features", default=None)
    >>> message = RowMean(np.array([1.0, 2.0]), client="A")
    >>> RowMean.from_bytes(message.to_bytes()) == message
    True
    """

    kind = None
    MIN_SAMPLES = MIN_SAMPLES
    # Message classes by their kind; every subclass with a kind enters itself.
    _kinds = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True, eq=False, repr=False)(cls)
        if cls.kind is None:
            return
        known = Message._kinds.setdefault(cls.kind, cls)
        if known.__qualname__ != cls.__qualname__:
            raise TypeError(
                f"kind {cls.kind!r} is taken by {known.__qualname__}; give "
                f"{cls.__qualname__} another one."
            )
        Message._kinds[cls.kind] = cls  # the same class, defined again

    # ---------------------------------------------------------------- its fields

    @staticmethod
    def array(*shape, meaning, kinds="f", optional=False, symmetric=False, **options):
        """Make a field that travels as an array.

        Parameters
        ----------
        *shape : str or int
            Size of each axis. Letters stand for sizes, and arrays that share a letter
            must agree on it: "m" is the number of features, "c" of classes.
        meaning : str
            What the numbers are, for :meth:`describe`.
        kinds : str, default="f"
            Kinds of dtype that are allowed: "f" for floats, "i" for integers.
        optional : bool, default=False
            Whether the array may be empty instead.
        symmetric : bool, default=False
            Whether it is a symmetric matrix. Only its upper triangle is sent, row by
            row, as ``covariance_triangle`` for a field ``covariance``.
        **options : dict
            Options of :func:`dataclasses.field`, such as ``default_factory``.

        Returns
        -------
        field : dataclasses.Field
            The field.
        """
        metadata = {
            "shape": shape,
            "meaning": meaning,
            "kinds": kinds,
            "optional": optional,
            "symmetric": symmetric,
        }
        return field(metadata=metadata, **options)

    @staticmethod
    def named_arrays(meaning):
        """Make a field that is a dict of arrays of any shape.

        Parameters
        ----------
        meaning : str
            What the numbers are, for :meth:`describe`.

        Returns
        -------
        field : dataclasses.Field
            The field.
        """
        return field(metadata={"named_arrays": True, "meaning": meaning})

    @staticmethod
    def fact(meaning, **options):
        """Make a field that travels as JSON.

        That is text, a number, a list of labels, or a dict of texts and numbers.

        Parameters
        ----------
        meaning : str
            What it says, for :meth:`describe`.
        **options : dict
            Options of :func:`dataclasses.field`, such as ``default``.

        Returns
        -------
        field : dataclasses.Field
            The field.
        """
        return field(metadata={"meaning": meaning}, **options)

    # ------------------------------------------------------------- as an object

    # cached, and so no obstacle to a field of that name
    @cached_property
    def n_features(self):
        """Number of features."""
        for each in fields(self):
            shape = each.metadata.get("shape", ())
            if "m" in shape:
                return getattr(self, each.name).shape[shape.index("m")]
        raise TypeError(f"{type(self).__name__} needs an array of size 'm'.")

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        mine, others = self._arrays(), other._arrays()
        return (
            self._facts() == other._facts()
            and mine.keys() == others.keys()
            and all(np.array_equal(mine[name], others[name]) for name in mine)
        )

    __hash__ = None

    def __repr__(self):
        """All fields, arrays by their shape: statistics do not belong into logs."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("encoder", *LATER_FACTS):
            if values.get(name) is None:
                values.pop(name, None)
        shown = ", ".join(f"{name}={_short(value)}" for name, value in values.items())
        return f"{type(self).__name__}({shown})"

    # -------------------------------------------------------------- as bytes

    def nbytes(self, dtype="float32"):
        """Count the bytes of the serialised message.

        Parameters
        ----------
        dtype : {"float64", "float32", "float16"}, default="float32"
            Precision of the numbers in it.

        Returns
        -------
        n_bytes : int
            Length of what :meth:`to_bytes` returns.
        """
        return encoded_size(self.kind, self._wire_arrays(), self._json_facts(), dtype)

    def to_bytes(self, dtype="float32"):
        """Serialise the message.

        Warn if float16 is too coarse for the means of the features.

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
        if dtype == "float16":
            warn_if_coarse(self)
        return encode(self.kind, self._wire_arrays(), self._json_facts(), dtype)

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
            name: widen(*narrow(array, dtype))
            for name, array in sorted(self._wire_arrays().items())
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
        for sent in self._wire_arrays().values():
            largest = np.abs(sent).max(initial=0.0) if sent.dtype.kind == "f" else 0.0
            if largest > 0:
                received = widen(*narrow(sent, dtype))
                errors.append(np.abs(received - sent).max() / largest)
        return float(max(errors))

    # -------------------------------------------------------------- as files

    def save(self, path, dtype="float32", min_samples=MIN_SAMPLES):
        """Write the message to a file, unless it says too much about single rows.

        The file appears as a whole or not at all, for its owner only; an older one is
        replaced and keeps its mode. A symbolic link is not followed.

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
            small = error.small_groups
            raise MessageError(
                error.reason, error.client, path, small_groups=small
            ) from None
        with atomic_output(path, private=True) as file:
            file.write(data)

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

    def contents(self):
        """Say what is in each part of the message.

        Returns
        -------
        contents : dict
            Each part in a few words, such as its shape and precision, by its meaning.
        """
        return {meaning: content for _, content, meaning in entries(self)}

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
        does this; messages that stay in a process are not checked. Those with a
        guarantee of differential privacy pass: their noise protects each row, and
        numbers of rows are noisy too.

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

    def _arrays(self):
        """All arrays by name; an array in a dict is named ``field/name``."""
        arrays = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if is_array(each):
                arrays[each.name] = value
            elif is_named_arrays(each):
                for name, array in value.items():
                    arrays[f"{each.name}/{name}"] = array
        return arrays

    def _wire_arrays(self):
        """All arrays as they are sent: symmetric matrices as packed triangles."""
        arrays = self._arrays()
        for each in filter(is_symmetric, fields(self)):
            matrix = arrays.pop(each.name)
            packed = pack_triangle(matrix) if matrix.size else matrix
            arrays[wire_name(each)] = packed
        return arrays

    @classmethod
    def _fields_of(cls, arrays):
        """Values of fields, from arrays as they are sent."""
        values, rest = {}, dict(arrays)
        for each in fields(cls):
            if is_named_arrays(each):
                prefix = f"{each.name}/"
                names = [name for name in arrays if name.startswith(prefix)]
                values[each.name] = {
                    name.removeprefix(prefix): rest.pop(name) for name in names
                }
            elif is_array(each) and wire_name(each) in rest:
                array = rest.pop(wire_name(each))
                if is_symmetric(each) and array.size:
                    array = _unpacked(wire_name(each), array)
                values[each.name] = array
        if rest:
            raise MessageError(f"arrays {short(sorted(rest))} do not belong.")
        return values

    def _facts(self):
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if not is_array(field) and not is_named_arrays(field)
        }

    def _part(self, kind, **others):
        """The message of another kind that has the same values in it, and others."""
        names = {each.name for each in fields(kind)} - others.keys()
        values = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return kind(**values, **others)

    def _group_sizes(self):
        """Number of rows in each group that is summarised, by the words for it."""
        if not hasattr(self, "counts"):
            return {}
        rows = zip(self.classes, self.counts.tolist(), strict=True)
        return {f"class {short(label)}": count for label, count in rows}

    def _traits(self):
        """What messages of one exchange must agree on, by the words for it."""
        traits = {"number of features": self.n_features, "encoder": self.encoder}
        if hasattr(self, "classes"):
            kinds = {kind_of_label(label) for label in self.classes}
            traits["kind of labels"] = " and ".join(sorted(kinds))
        return traits

    def _json_facts(self):
        facts = {
            name: _plain(value)
            for name, value in self._facts().items()
            if value is not None or name not in LATER_FACTS
        }
        return {**facts, "n_features": int(self.n_features)}

    @classmethod
    def _from_decoded(cls, arrays, header):
        client = header.get("client")
        try:
            message = cls._build(arrays, header)
            message._check_names()
            message._check(deep=True)
            for name, what in {"n_features": "features", "n_samples": "rows"}.items():
                found = getattr(message, name, None)
                if header.get(name, found) != found:
                    raise MessageError(
                        f"the header announces another number of {what}."
                    )
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
        values = {**dict.fromkeys(LATER_FACTS), **header, **cls._fields_of(arrays)}
        missing = [f.name for f in fields(cls) if f.name not in values]
        if missing:
            raise MessageError(f"this message of kind {cls.kind!r} lacks {missing}.")
        message = cls(**{f.name: values[f.name] for f in fields(cls)})
        for array in message._arrays().values():  # what was checked stays as it is
            array.flags.writeable = False
        return message

    def _check(self, deep=False):
        """Refuse values that cannot be; eigenvalues are looked at only if ``deep``."""
        try:
            for name, array in self._arrays().items():
                check_numbers(name, array)
            sizes = check_shapes(self)
            if hasattr(self, "counts"):
                check_rows_of_classes(self.classes, self.counts)
                check_unique(self.classes)
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
        check_text("encoder", self.encoder)
        check_privacy(getattr(self, "privacy", None))

    def _check_values(self, sizes, deep):
        """Refuse values that cannot be, in arrays of the right shapes."""


def _plain(value):
    """Lists and scalars of NumPy as Python's; text for what cannot be sent."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value if isinstance(value, str | int | float | None) else str(value)


def _unpacked(name, packed):
    """Full symmetric matrix from a triangle that somebody sent."""
    if packed.ndim != 1 or packed.dtype.kind != "f":
        raise MessageError(
            f"{name} must be a vector of floats, not {packed.dtype} of shape "
            f"{packed.shape}."
        )
    try:
        return unpack_triangle(packed)
    except ValueError:
        raise MessageError(
            f"a triangle of {len(packed)} numbers fits no number of features."
        ) from None


def _short(value):
    return f"<array of {value.shape}>" if isinstance(value, np.ndarray) else repr(value)
