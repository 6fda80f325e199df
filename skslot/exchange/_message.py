"""What a message is: its fields, checks on their values, and its description."""

import hashlib
import json
import re
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import isfinite
from numbers import Integral, Real

import numpy as np

from .._atomic import atomic_output
from .._utils import (
    largest,
    list_groups,
    pack_triangle,
    short,
    text_table,
    unpack_triangle,
    warn_user,
    wire_exponent,
)
from ..privacy import PrivacyBudget
from ..statistics import is_constant
from ..trust import ClientFacts
from ._wire import (
    MessageError,
    decode,
    encode,
    narrow,
    read_file,
    widen,
)

# Largest change of a number by the wire, relative to itself, with room for what was
# computed before; numbers near zero change by the step of their type.
ROUNDING = {"float64": 1e-9, "float32": 2.0**-22, "float16": 2.0**-10}

# Rounding of a variance that was found by subtracting squares of means from each other,
# relative to these squares.
CANCELLATION = 1e-13

# Sums of products of four numbers up to this do not overflow.
MAX_NUMBER = 2.0**200

# Integers above this are not exact in float64, and no client has as many rows.
MAX_COUNT = 2**53

# Shares that were rounded by the wire add up to 1 within this tolerance.
WEIGHT_TOLERANCE = 0.01

# Values compared at a time: checking a message must not take many times its memory.
PIECE = 2**11

# Largest rounding of a mean by float16 without a warning, in standard deviations.
COARSE = 0.1


# ---------------------------------------------------------------------- fields


def is_array(field):
    """Return whether a field of a message is an array of a known shape."""
    return "shape" in field.metadata


def is_named_arrays(field):
    """Return whether a field of a message is a dict of arrays."""
    return "named_arrays" in field.metadata


def is_symmetric(field):
    """Return whether a field of a message is a symmetric matrix."""
    return field.metadata.get("symmetric", False)


def wire_name(field):
    """Return the name of an array in a file, where symmetric matrices are triangles."""
    if not is_symmetric(field):
        return field.name
    return f"{field.name.removesuffix('_covariance')}_triangle"


# ---------------------------------------------------------------------- checks


def check_shapes(message):
    """Sizes by their letter; arrays that share a letter must agree on it.

    Letters come from the fields; a number in place of a letter is a size.
    """
    sizes = {}
    for each in filter(is_array, fields(message)):
        name, array = each.name, getattr(message, each.name)
        letters = each.metadata["shape"]
        if array.dtype.kind not in each.metadata["kinds"]:
            raise MessageError(f"{name} has the wrong dtype, {array.dtype}.")
        if each.metadata["optional"] and array.shape == (0,):
            continue
        if array.ndim != len(letters):
            raise MessageError(
                f"{name} must have {len(letters)} axes, not {array.ndim}."
            )
        for letter, size in zip(letters, array.shape, strict=True):
            known = letter if isinstance(letter, int) else sizes.get(letter, size)
            if size != known:
                raise MessageError(
                    f"{name} has the shape {array.shape}, which does not fit the rest."
                )
            sizes[letter] = size
        if is_symmetric(each):
            _check_symmetric(name, array)
    if sizes.get("m") == 0:
        raise MessageError("there are no features in it.")
    return sizes


def _check_symmetric(name, matrix):
    """Refuse a matrix whose triangles differ by more than rounding."""
    apart = np.abs(matrix - matrix.T).max(initial=0.0)
    if apart > ROUNDING["float64"] * largest(matrix):
        raise MessageError(f"{name} is not symmetric.")


def check_numbers(name, array):
    """Refuse NaN, infinity and what would become it, and what is no array."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        raise MessageError(f"{name} is no array of numbers.")
    if isinstance(array, np.ma.MaskedArray):
        raise MessageError(f"{name} is a masked array; fill in what is missing.")
    if array.dtype.kind != "f":
        return
    size = largest(array)
    if not np.isfinite(size):
        raise MessageError(f"{name} contains NaN or infinity.")
    if size > MAX_NUMBER:
        raise MessageError(
            f"{name} contains a number of {size:.0e}; above {MAX_NUMBER:.0e} nothing "
            "can be computed."
        )


def check_number(name, value, least, most, kind=Real):
    """Refuse what is no number of this kind between two bounds."""
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    # bounds of NumPy would turn a whole number of any length into one of theirs
    if not is_number or not float(least) <= value <= float(most):
        what = "a whole number" if kind is Integral else "a number"
        raise MessageError(
            f"{name} must be {what} from {least:g} to {most:g}, got {short(value)}."
        )


def check_choice(name, value, choices):
    """Refuse what is not one of several words."""
    if not isinstance(value, str) or value not in choices:
        raise MessageError(
            f"{name} must be one of {', '.join(map(repr, choices))}, got "
            f"{short(value)}."
        )


def check_counts(name, counts, least=0):
    """Refuse counts of which one is too small."""
    if counts.size and counts.min() < least:
        raise MessageError(f"{name} must be at least {least}, got {counts.min()}.")


def check_rows_of_classes(classes, counts):
    """Refuse another number of counts than of labels, or no rows at all."""
    check_counts("counts", counts)
    if len(classes) != len(counts):
        raise MessageError(f"{len(classes)} classes have {len(counts)} counts.")
    if not 1 <= counts.sum(dtype=np.float64) <= MAX_COUNT:
        raise MessageError("counts must add up to at least one row.")


def check_weights(classes, n_rows):
    """Refuse weights of another number of classes; a single row tells two apart."""
    if len(classes) != n_rows and (len(classes), n_rows) != (2, 1):
        raise MessageError(f"{len(classes)} classes have {n_rows} rows of weights.")


def check_name(name, value):
    """Refuse names that do not come back from JSON as they were."""
    value = value.item() if isinstance(value, np.generic) else value
    too_large = isinstance(value, int) and abs(value) >= 2**63
    no_number = isinstance(value, float) and not isfinite(value)
    if too_large or no_number or not isinstance(value, str | int | float | None):
        raise MessageError(
            f"{name} {short(value)} cannot be sent: only text, numbers and booleans "
            "can. Give it a name of that kind, such as str(...)."
        )
    check_text(name, value)


def check_text(name, value):
    """Refuse text with half a character in it, which no file and no terminal takes."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise MessageError(
                f"{name} {short(value)} is no text: it has half a character in it."
            ) from None


def check_privacy(guarantee):
    """Refuse a guarantee of differential privacy that no budget gives."""
    if guarantee is None:
        return
    try:
        numbers = {name: guarantee[name] for name in ("epsilon", "delta", "clip_norm")}
        known = PrivacyBudget(**numbers).guarantee == guarantee
    except (TypeError, ValueError, LookupError):
        known = False
    if not known:
        raise MessageError(f"privacy is no guarantee: {short(guarantee)}.")


def check_labels(classes):
    """Refuse labels that are repeated, of mixed kinds, or not fit to be sent."""
    if not isinstance(classes, list) or not classes:
        raise MessageError(f"classes must be a list of labels, got {short(classes)}.")
    for label in classes:
        check_name("label", label)
    if None in classes or len({kind_of_label(label) for label in classes}) > 1:
        raise MessageError(
            f"labels must be all text, all numbers or all booleans: {short(classes)}."
        )
    for label in classes:  # an array of NumPy would change these
        if isinstance(label, str) and label.endswith("\0"):
            raise MessageError(f"label {short(label)} ends in a zero character.")
        if isinstance(label, float) and not label.is_integer():
            raise MessageError(
                f"label {label} is a fraction, which no classifier of scikit-learn "
                "takes for a class; send it as text."
            )
        if isinstance(label, int) and abs(label) > MAX_COUNT:
            raise MessageError(
                f"label {label} is too large to be told from its neighbours among "
                "decimal numbers; send it as text."
            )
    check_unique(classes)


def check_unique(classes):
    """Refuse labels that are repeated."""
    if len(set(classes)) < len(classes):
        raise MessageError(f"classes must name each label once: {short(classes)}.")


def kind_of_label(label):
    """Kinds that must not be mixed: True equals 1, and would be the same class."""
    if isinstance(label, str):
        return "text"
    return "booleans" if isinstance(label, bool | np.bool_) else "numbers"


def check_variances(name, array, tolerance=0.0):
    """Refuse negative variances; rounding by the wire does not change the sign."""
    if array.min(initial=0.0) < -tolerance:
        raise MessageError(f"{name} contains a negative variance.")


def check_covariance(name, matrix, deep, tolerance=0.0):
    """Refuse a symmetric matrix that no rows can have as covariance.

    Variances must not be negative and, if ``deep``, no eigenvalue by more than rounding
    can have done, see :func:`rounding_norm`, and by a tolerance.
    """
    check_variances(name, matrix.diagonal(), tolerance)
    if deep and not is_semidefinite(matrix, tolerance + rounding_norm(matrix)):
        raise MessageError(
            f"{name} is not positive semi-definite, so no rows can have it."
        )


def check_scatter(name, covariance, shares, points, deep):
    """Refuse groups of rows whose means are further apart than all rows are.

    The covariance of all rows is that of the means of groups, which have these shares
    of the rows, plus what is within groups. So it dominates the former, but for what
    rounding of either can have done: on the diagonal, and if ``deep`` in all
    directions. Returns the traces of both, and how far rounding can have moved them.
    """
    mean = shares @ points / shares.sum()
    roots = np.sqrt(shares)[:, None]
    apart = roots * (points - mean)
    moved = np.sqrt(np.square(roots * rounding_errors(points)).sum(axis=0))
    between = np.square(apart).sum(axis=0)
    tolerance = 2 * np.sqrt(between) * moved + moved**2 + CANCELLATION * mean**2
    variances = covariance.diagonal()
    is_more = between > variances + rounding_errors(variances) + tolerance
    length, error = np.sqrt(between.sum()), np.sqrt(np.square(moved).sum())
    tolerance = 2 * length * error + error**2 + CANCELLATION * (mean @ mean)
    if deep and not is_more.any():
        shift = tolerance + rounding_norm(covariance)
        is_more = not is_semidefinite(covariance - apart.T @ apart, shift)
    if np.any(is_more):
        raise MessageError(
            f"{name} are further apart than the covariance of all rows allows, so no "
            "rows can have both."
        )
    tolerance += rounding_errors(variances).sum()
    return variances.sum(), between.sum(), tolerance


def is_semidefinite(matrix, tolerance):
    """Whether no eigenvalue is below minus the tolerance, but for rounding."""
    if not largest(matrix):
        return True
    shifted = matrix.copy()
    shifted[np.diag_indices_from(shifted)] += tolerance
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return False
    return True


def rounding_norm(matrix):
    """Bound on the spectral norm of what rounding changed a symmetric matrix by.

    The Frobenius norm of bounds for each entry as it is. Unlike the order times a bound
    for the largest entry, it does not grow with the number of features, but with the
    norm of the matrix.
    """
    size = largest(matrix)
    # relative to the largest entry, as squares of very small numbers would vanish
    return size * float(np.linalg.norm(rounding_errors(matrix) / size)) if size else 0.0


def rounding_errors(array):
    """Bound on what rounding changed each number of an array by."""
    share, step = _rounding(array)
    return np.maximum(share * np.abs(array), step)


def _rounding(numbers):
    """Rounding of the narrowest wire that numbers may have come by: share and step.

    It may not be the last: what came in float16 is often kept in float32.
    """
    if not largest(numbers):
        return 0.0, 0.0
    for dtype in ("float16", "float32"):
        exponent = _scale_on_wire(numbers, dtype)
        if exponent is not None:
            step = np.ldexp(float(np.finfo(dtype).smallest_subnormal), exponent)
            return ROUNDING[dtype], float(step)
    return ROUNDING["float64"], 0.0


def _scale_on_wire(array, dtype):
    """Exponent by which an array may have been sent in this precision, None if not."""
    size = largest(array)
    # the largest number may have been rounded up to a power of two
    exponents = [wire_exponent(s, dtype) for s in (size, np.nextafter(size, 0.0))]
    return next((each for each in exponents if _fits(array, each, dtype)), None)


def _fits(array, exponent, dtype):
    """Whether a scaled array stays as it is in this precision."""
    numbers = array.reshape(-1)
    for start in range(0, len(numbers), PIECE):
        scaled = np.ldexp(numbers[start : start + PIECE], -exponent)
        if not np.array_equal(scaled.astype(dtype), scaled):
            return False
    return True


# ------------------------------------------------------------------ disclosure


# The threshold of many research data centres for counts, means and variances.
MIN_SAMPLES = 10

NOT_INCLUDED = "Not in it: {}, their labels one by one, ids of persons, file names. "

NO_NOISE = "No noise is added: what can be computed from these numbers is revealed."

# Of a model, whose clients may have added some.
NO_MORE_NOISE = (
    "It adds no noise to what it was made of: what can be computed from these numbers "
    "is revealed."
)

GUARANTEE = (
    "Noise is added: whether any one row is among those of the client changes the "
    "probability of any such message by a factor of {factor:.3g} at most, but for a "
    "probability of {delta:g} (differential privacy with epsilon {epsilon:g} and delta "
    "{delta:g}, for {adjacency}, rows clipped to norm {clip_norm:g}). Not covered: "
    "that the client takes part, which labels may occur, persons with several rows, "
    "and repeated releases of the same rows, whose epsilons and deltas add up. Numbers "
    "of rows are noisy too."
)


# ------------------------------------------------------------------ message


# Facts that messages did not have at first, and that are not written if they are None.
LATER_FACTS = ("privacy",)


class Message:
    """Base of all messages: a frozen record of arrays and facts.

    A subclass sets its ``kind`` and its fields, which makes it a frozen dataclass, and
    files of that kind can be read. Fields are made by :meth:`array`,
    :meth:`named_arrays` and :meth:`fact`. Every message has a field ``encoder``, and
    the message of a client has a field ``client``. One of the arrays has the size "m",
    the number of features; if none has, ``n_features`` is a fact. The base class
    writes, reads, compares and checks messages, including the values of ``classes`` and
    ``counts``, the number of samples of each class. A subclass checks everything else
    in ``_check_values(sizes, deep)``.

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

    # Values of fields that a kind of messages does not have.
    client = encoder = privacy = classes = counts = n_values = None
    n_rounds = 0
    # Moments of the samples, kept where the message was made; they are not sent.
    moments = None
    # Whether messages of this kind contain counts and means of classes.
    describes_classes = False

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

    @cached_property
    def n_samples(self):
        """Number of samples; None in messages of a server."""
        if self.counts is None:
            return None
        return self.counts.sum(dtype=np.result_type(self.counts, np.int64)).item()

    def label_counts(self):
        """Return the number of samples of each class.

        Returns
        -------
        counts : dict
            Number of samples by label. Empty if the message contains no counts.
        """
        if self.counts is None:
            return {}
        return dict(zip(self.classes, self.counts.tolist(), strict=True))

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        mine, others = self._arrays(), other._arrays()
        return (
            self._header_facts() == other._header_facts()
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
        return len(self._encoded(dtype))

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
            self._warn_if_coarse()
        return self._encoded(dtype)

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
        """Return the content of each part of the message.

        Returns
        -------
        contents : dict
            Each part in a few words, such as its shape and precision, by its meaning.
        """
        return {meaning: content for _, content, meaning in self._entries()}

    def describe(self, min_samples=MIN_SAMPLES):
        """Describe the content of the message in words.

        Parameters
        ----------
        min_samples : int, default=10
            Classes with fewer samples are named, see :meth:`check_disclosure`.

        Returns
        -------
        text : str
            A table to print.
        """
        lines = [f"{type(self).__name__}: {self.kind}, {self.nbytes():,} bytes", ""]
        entries = [("name", "content", "meaning"), *self._entries()]
        lines.append(text_table(entries, "l"))
        small = self._small_groups(min_samples)
        alone = any(size <= 1 for size in small.values())
        absent = "rows but those that are alone in a group" if alone else "rows"
        noise = NO_MORE_NOISE if self.n_samples is None else NO_NOISE
        if self.privacy is not None:
            factor = np.exp(min(self.privacy["epsilon"], 700.0))
            noise = GUARANTEE.format(factor=factor, **self.privacy)
        lines += ["", NOT_INCLUDED.format(absent) + noise]
        if small:
            lines.append(
                f"Fewer than {min_samples} rows, and therefore close to them: "
                f"{list_groups(small)}."
            )
        elif self.privacy is None and self._group_sizes():
            lines.append(f"Every group of rows in it has at least {min_samples}.")
        losses = (f"{d} {self.rounding_error(d):.0e}" for d in ("float32", "float16"))
        lines.append(f"Loss by rounding, of the largest number: {', '.join(losses)}.")
        return "\n".join(lines)

    def check_disclosure(self, min_samples=MIN_SAMPLES):
        """Refuse a message that summarises too few samples.

        The mean of one sample is that sample, and the mean of a few is close to each of
        them. :meth:`save` calls this method; messages that stay in a process are not
        checked. Messages with a guarantee of differential privacy pass: noise protects
        each sample, and the numbers of samples are noisy too.

        Parameters
        ----------
        min_samples : int, default=10
            Minimum number of samples of the client, and of each class, mixture
            component or sample of a core-set that summarises others. The default is the
            threshold of many research data centres. With 1, everything may be sent.
        """
        small = self._small_groups(min_samples)
        if small:
            raise MessageError(
                f"it describes {list_groups(small)}, but min_samples={min_samples}: "
                "the mean of one row is that row, and that of a few is close to them. "
                "Leave out or join what is too small; lower min_samples only if these "
                "rows may be seen.",
                self.client,
                small_groups=small,
            )

    def _small_groups(self, min_samples):
        """Groups of samples that are summarised although there are few, by size."""
        is_number = isinstance(min_samples, Integral)
        if not is_number or isinstance(min_samples, bool) or min_samples < 1:
            raise ValueError(
                f"min_samples must be a whole number of at least 1, got "
                f"{min_samples!r}."
            )
        if self.privacy is not None:
            return {}  # noise protects each row, and sizes are noisy themselves
        sizes = self._group_sizes().items()
        return {group: size for group, size in sizes if 0 < size < min_samples}

    def _entries(self):
        """Name, content and meaning of each part of the message."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.name == "privacy":
                continue  # the absence of noise is stated below the table
            meaning, is_packed = each.metadata["meaning"], is_symmetric(each)
            parts = value.items() if isinstance(value, dict) else [("", value)]
            for name, part in parts:
                full_name = f"{each.name}[{name!r}]" if name else each.name
                yield full_name, _content(part, is_packed), meaning

    # ------------------------------------------------ among other messages

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

    def weighted(self, factor):
        """Return the message of a client that counts as a part of its samples.

        Parameters
        ----------
        factor : float
            Factor on the numbers of samples.

        Returns
        -------
        message : Message
            The message with smaller numbers of samples.
        """
        if factor == 1:
            return self
        if self.counts is not None:
            return replace(self, counts=self.counts * factor)
        return replace(self, n_samples=self.n_samples * factor)

    def client_statistics(self):
        """Return the part of the message that alignment needs.

        Returns
        -------
        statistics : ClientStatistics
            Statistics of all samples of the client.
        """
        raise TypeError(
            f"a {type(self).__name__} contains no statistics of the features of a "
            "client, which alignment needs."
        )

    def facts(self, path=None):
        """Return what is kept of the message when many are compared.

        Parameters
        ----------
        path : path-like, default=None
            File of the message.

        Returns
        -------
        facts : ClientFacts
            A record that is much smaller than the message.
        """
        mean, variances, cells = self._feature_moments()
        # noise has the same unit in all columns
        is_private = self.privacy is not None
        return ClientFacts.from_moments(
            self.client,
            self.n_samples,
            mean,
            variances,
            cells,
            self._head(),
            self.n_values,
            None if is_private else fingerprint_names(self.encoder),
            kind=type(self),
            class_counts=self.label_counts(),
            traits=self._traits(),
            path=path,
            is_private=is_private,
        )

    def _feature_moments(self):
        """Mean and variances of features, and count and mean of classes, if known."""
        return None, None, {}

    def _head(self):
        """Arrays of a linear classifier or a network that the client trained."""
        return ()

    def _warn_if_coarse(self):
        """Warn if float16 rounds means by much of the deviation of their features.

        float16 has eleven significant bits, which an offset far from zero uses up.
        """
        mean, variances, _ = self._feature_moments()
        if mean is None or variances is None:
            return
        n_samples = self.n_samples if self.n_values is None else self.n_values
        varies = ~is_constant(variances, mean, n_samples)
        deviations = np.sqrt(np.maximum(variances, 0.0))
        coarse = np.sum(varies & (np.abs(mean) / 2**11 > COARSE * deviations))
        if coarse:
            warn_user(
                f"float16 rounds the mean of {coarse} features of client "
                f"{self.client!r} by more than a tenth of their standard deviation; "
                "use dtype='float32', or centre the features."
            )

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

    def _header_facts(self):
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if not is_array(field) and not is_named_arrays(field)
        }

    def _part(self, kind, **others):
        """Message of another kind with the values of this one, and others."""
        names = {each.name for each in fields(kind)} - others.keys()
        return kind(**{name: getattr(self, name) for name in names}, **others)

    def _group_sizes(self):
        """Number of samples in each group that is summarised, by the words for it."""
        sizes = self.label_counts().items()
        return {f"class {short(label)}": count for label, count in sizes}

    def _traits(self):
        """What messages of one exchange must agree on, by the words for it."""
        traits = {"number of features": self.n_features, "encoder": self.encoder}
        if self.classes is not None:
            kinds = {kind_of_label(label) for label in self.classes}
            traits["kind of labels"] = " and ".join(sorted(kinds))
        return traits

    def _encoded(self, dtype):
        """Bytes of the message, whose values are not checked."""
        return encode(self.kind, self._wire_arrays(), self._json_facts(), dtype)

    def _json_facts(self):
        facts = {
            name: _plain(value)
            for name, value in self._header_facts().items()
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
            if self.counts is not None:
                check_rows_of_classes(self.classes, self.counts)
                check_unique(self.classes)
            self._check_values(sizes, deep)
        except MessageError as error:
            raise MessageError(error.reason, self.client) from None

    def _check_names(self):
        """Refuse names that would not arrive as they are."""
        check_name("client", self.client)
        if any(each.name == "classes" for each in fields(self)):
            check_labels(self.classes)
        if not isinstance(self.encoder, str | None):
            raise MessageError(f"encoder must be text, got {short(self.encoder)}.")
        check_text("encoder", self.encoder)
        check_privacy(self.privacy)

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


def _content(value, is_packed):
    if not isinstance(value, np.ndarray):
        return short(value, 32)
    if value.ndim == 1 and value.dtype.kind in "iu":
        return short(value.tolist(), 32)
    if is_packed and value.size:  # only one triangle is sent
        return f"{len(value) * (len(value) + 1) // 2} numbers"
    return "empty" if not value.size else " x ".join(map(str, value.shape)) + " numbers"


# ---------------------------------------------------------------- fingerprints


# Characters of names of columns in a header, which has at most a million.
MOST_NAMES = 100_000
WITH_NAMES = re.compile(r"(?:columns|plan):[0-9a-f]{16} (\[.*\])")


def feature_fingerprint(names, plan=None):
    """Compute a fingerprint of the columns of a table, for messages on its rows.

    Sites whose columns differ in name, number or order get different fingerprints. A
    fingerprint contains the names unless there are very many, so that errors can list
    the differences.

    Parameters
    ----------
    names : iterable of str
        Names of the feature columns, in their order.
    plan : str, default=None
        Description of the preprocessing, which must be the same at all sites too.

    Returns
    -------
    fingerprint : str
        Text to pass to :meth:`Message.with_encoder`.

    See Also
    --------
    fingerprint_names : Read the names.

    Examples
    --------
    >>> from skslot.exchange import feature_fingerprint
    >>> feature_fingerprint(["age", "weight"])
    'columns:f4f5b7f73149a985 ["age", "weight"]'
    """
    text = json.dumps([str(name) for name in names])
    digest = hashlib.sha256((text if plan is None else plan).encode()).hexdigest()[:16]
    shown = f" {text}" if len(text) <= MOST_NAMES else ""
    return f"{'columns' if plan is None else 'plan'}:{digest}{shown}"


def fingerprint_names(fingerprint):
    """Read the names of columns from a fingerprint.

    Parameters
    ----------
    fingerprint : str or None
        The ``encoder`` of a message.

    Returns
    -------
    names : list of str or None
        Names of the features in their order. None if the fingerprint contains none.

    See Also
    --------
    feature_fingerprint : Compute the fingerprint.

    Examples
    --------
    >>> from skslot.exchange import feature_fingerprint, fingerprint_names
    >>> fingerprint_names(feature_fingerprint(["age", "weight"]))
    ['age', 'weight']
    >>> fingerprint_names("resnet18") is None
    True
    """
    found = WITH_NAMES.fullmatch(fingerprint or "")
    try:
        names = json.loads(found.group(1)) if found else None
    except (ValueError, RecursionError):  # somebody else wrote it
        return None
    is_list = isinstance(names, list) and all(isinstance(n, str) for n in names)
    return names if is_list else None
