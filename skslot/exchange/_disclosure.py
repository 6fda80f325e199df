"""What a message gives away: in words, and whether it is too much."""

from dataclasses import fields
from numbers import Integral

import numpy as np

from .._text import list_groups, text_table
from ._errors import MessageError, short

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


def small_groups(message, min_samples):
    """Groups of rows that are summarised although there are few, with their size."""
    is_number = isinstance(min_samples, Integral) and not isinstance(min_samples, bool)
    if not is_number or min_samples < 1:
        raise ValueError(
            f"min_samples must be a whole number of at least 1, got {min_samples!r}."
        )
    if getattr(message, "privacy", None) is not None:
        return {}  # noise protects each row, and sizes of groups are noisy themselves
    sizes = message._group_sizes()
    return {group: size for group, size in sizes.items() if 0 < size < min_samples}


def check_disclosure(message, min_samples):
    """Refuse a message with small groups."""
    small = small_groups(message, min_samples)
    if small:
        raise MessageError(
            f"it describes {list_groups(small)}, but min_samples={min_samples}: the "
            "mean of one row is that row, and that of a few is close to them. Leave "
            "out or join what is too small; lower min_samples only if these rows may "
            "be seen.",
            message.client,
            small_groups=small,
        )


def describe(message, min_samples):
    """Table of what is in a message, what is not, and what gives rows away."""
    name, size = type(message).__name__, message.nbytes()
    lines = [f"{name}: {message.kind}, {size:,} bytes", ""]
    lines.append(text_table([("name", "content", "meaning"), *entries(message)], "l"))
    guarantee = getattr(message, "privacy", None)
    small = small_groups(message, min_samples)
    alone = any(size <= 1 for size in small.values())
    absent = "rows but those that are alone in a group" if alone else "rows"
    noise = NO_NOISE if hasattr(message, "privacy") else NO_MORE_NOISE
    if guarantee is not None:
        noise = _in_words(guarantee)
    lines += ["", NOT_INCLUDED.format(absent) + noise]
    if small:
        lines.append(
            f"Fewer than {min_samples} rows, and therefore close to them: "
            f"{list_groups(small)}."
        )
    elif guarantee is None and message._group_sizes():
        lines.append(f"Every group of rows in it has at least {min_samples}.")
    losses = (f"{d} {message.rounding_error(d):.0e}" for d in ("float32", "float16"))
    lines.append(f"Loss by rounding, of the largest number: {', '.join(losses)}.")
    return "\n".join(lines)


def _in_words(guarantee):
    """What a guarantee of differential privacy says, and what it does not cover."""
    return GUARANTEE.format(
        factor=np.exp(min(guarantee["epsilon"], 700.0)), **guarantee
    )


def entries(message):
    """List what is in a message: name, content and meaning of each part."""
    for field in fields(message):
        value = getattr(message, field.name)
        if value is None and field.name == "privacy":
            continue  # that no noise is added is said below
        for name, part in value.items() if isinstance(value, dict) else [("", value)]:
            full_name = f"{field.name}[{name!r}]" if name else field.name
            content = _content(part, field.metadata.get("symmetric", False))
            yield full_name, content, field.metadata["meaning"]


def _content(value, is_symmetric=False):
    if not isinstance(value, np.ndarray):
        return short(value, 32)
    if value.ndim == 1 and value.dtype.kind in "iu":
        return short(value.tolist(), 32)
    if is_symmetric and value.size:  # only one triangle is sent
        return f"{len(value) * (len(value) + 1) // 2} numbers"
    return "empty" if not value.size else " x ".join(map(str, value.shape)) + " numbers"
