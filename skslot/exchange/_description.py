"""Messages in words."""

from dataclasses import fields

import numpy as np

from ._disclosure import listed, small_groups
from ._errors import short

NOT_INCLUDED = (
    "Not in it: {}, their labels one by one, ids of persons, file names. No noise is "
    "added: what can be computed from these numbers is revealed."
)


def describe(message, min_samples):
    """Table of what is in a message, what is not, and what gives rows away."""
    lines = [f"{type(message).__name__}: {message.kind}, {message.nbytes:,} bytes", ""]
    lines += _table([("name", "content", "meaning"), *_entries(message)])
    small = small_groups(message, min_samples)
    alone = any(size <= 1 for size in small.values())
    absent = "rows but those that are alone in a group" if alone else "rows"
    lines += ["", NOT_INCLUDED.format(absent)]
    if small:
        lines.append(
            f"Fewer than {min_samples} rows, and therefore close to them: "
            f"{listed(small)}."
        )
    elif message._group_sizes():
        lines.append(f"Every group of rows in it has at least {min_samples}.")
    losses = (f"{d} {message.rounding_error(d):.0e}" for d in ("float32", "float16"))
    lines.append(f"Loss by rounding, of the largest number: {', '.join(losses)}.")
    return "\n".join(lines)


def _entries(message):
    for field in fields(message):
        value = getattr(message, field.name)
        for name, part in value.items() if isinstance(value, dict) else [("", value)]:
            full_name = f"{field.name}[{name!r}]" if name else field.name
            yield full_name, _content(part), field.metadata["meaning"]


def _content(value):
    if not isinstance(value, np.ndarray):
        return short(value, 32)
    if value.ndim == 1 and value.dtype.kind in "iu":
        return short(value.tolist(), 32)
    return "empty" if not value.size else " x ".join(map(str, value.shape)) + " numbers"


def _table(rows):
    rows = [tuple(row) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [
        f"{name:<{widths[0]}}  {content:<{widths[1]}}  {meaning}"
        for name, content, meaning in rows
    ]
