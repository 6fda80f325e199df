"""What must hold for the values of a message, before anything is computed from them."""

from dataclasses import fields
from math import isfinite
from numbers import Integral, Real

import numpy as np

from .._linalg import is_semidefinite, packed_diagonal, triangle_order
from ..privacy import PrivacyBudget
from ._errors import MessageError, short
from ._wire import WireArray, came_by, is_array, largest

# Largest change of an entry by the wire, relative to the largest entry of its array.
ROUNDING = {"float64": 1e-9, "float32": 2.0**-22, "float16": 2.0**-10}

# Sums of products of four numbers up to this do not overflow.
MAX_NUMBER = 2.0**200

# Integers above this are not exact in float64, and no client has as many rows.
MAX_COUNT = 2**53


def check_shapes(message):
    """Sizes by their letter; arrays that share a letter must agree on it.

    Letters come from the fields; a number in place of a letter is a size, "t" that of
    a packed triangle of order "m".
    """
    sizes, arrays = {}, message._wire_arrays()
    for field in filter(is_array, fields(message)):
        name, array = field.name, arrays[field.name].tensor
        letters = field.metadata["shape"]
        if array.dtype.kind not in field.metadata["kinds"]:
            raise MessageError(f"{name} has the wrong dtype, {array.dtype}.")
        if field.metadata["optional"] and array.shape == (0,):
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
    length, n_features = sizes.get("t"), sizes.get("m")
    if n_features == 0:
        raise MessageError("there are no features in it.")
    if None not in (length, n_features) and 2 * length != n_features * (n_features + 1):
        raise MessageError(
            f"a triangle of {length} numbers does not fit {n_features} features."
        )
    return sizes


def check_numbers(name, array):
    """Refuse NaN, infinity and what would become it, and what is no array."""
    tensor, exponent = array
    if not isinstance(tensor, np.ndarray) or tensor.dtype.kind not in "fiub":
        raise MessageError(f"{name} is no array of numbers.")
    if tensor.dtype.kind != "f":
        return
    with np.errstate(over="ignore"):
        size = np.ldexp(largest(tensor), exponent)
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
    if not is_number or not least <= value <= most:
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
        if isinstance(label, int) and abs(label) > MAX_COUNT:
            raise MessageError(
                f"label {label} is too large to be told from its neighbours among "
                "decimal numbers; send it as text."
            )
    if len(set(classes)) < len(classes):
        raise MessageError(f"classes must name each label once: {short(classes)}.")


def kind_of_label(label):
    """Kinds that must not be mixed: True equals 1, and would be the same class."""
    if isinstance(label, str):
        return "text"
    return "booleans" if isinstance(label, bool | np.bool_) else "numbers"


def check_variances(name, array, tolerance=0.0):
    """Refuse negative variances; rounding by the wire does not change the sign."""
    least = np.ldexp(float(array.tensor.min(initial=0.0)), array.exponent)
    if least < -tolerance:
        raise MessageError(f"{name} contains a negative variance.")


def check_covariance(name, array, tolerance=0.0):
    """Refuse a packed matrix that no rows can have as covariance.

    Rounding moves each entry by at most its share of the largest, hence each eigenvalue
    by at most as much times the number of features.
    """
    packed, exponent = array
    order, size = triangle_order(len(packed)), largest(packed)
    check_variances(
        name, WireArray(packed[packed_diagonal(order)], exponent), tolerance
    )
    tolerance = np.ldexp(tolerance, -exponent) + _rounding(packed) * order * size
    if size > 0 and not is_semidefinite(packed, tolerance):
        raise MessageError(
            f"{name} is not positive semi-definite, so no rows can have it."
        )


def _rounding(numbers):
    """Rounding of the narrowest wire that these numbers may have come by.

    It may not be the last: what came in float16 is often kept in float32.
    """
    for dtype in ("float16", "float32"):
        if numbers.dtype == dtype or came_by(numbers, dtype):
            return ROUNDING[dtype]
    return ROUNDING["float64"]
