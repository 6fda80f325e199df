"""What must hold for the values of a message, before anything is computed from them."""

from dataclasses import fields
from math import isfinite
from numbers import Integral, Real

import numpy as np

from ..privacy import PrivacyBudget
from ._errors import MessageError, short
from ._wire import is_array, is_symmetric, largest, scale_on_wire

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


def check_shapes(message):
    """Sizes by their letter; arrays that share a letter must agree on it.

    Letters come from the fields; a number in place of a letter is a size.
    """
    sizes = {}
    for field in filter(is_array, fields(message)):
        name, array = field.name, getattr(message, field.name)
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
        if is_symmetric(field):
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
        exponent = scale_on_wire(numbers, dtype)
        if exponent is not None:
            step = np.ldexp(float(np.finfo(dtype).smallest_subnormal), exponent)
            return ROUNDING[dtype], float(step)
    return ROUNDING["float64"], 0.0
