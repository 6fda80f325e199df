"""Messages that say too much about single rows."""

from numbers import Integral

from ._errors import MessageError, short

# The threshold of many research data centres for counts, means and variances.
MIN_SAMPLES = 10


def small_groups(message, min_samples):
    """Groups of rows that are summarised although there are few, with their size."""
    is_number = isinstance(min_samples, Integral) and not isinstance(min_samples, bool)
    if not is_number or min_samples < 1:
        raise ValueError(
            f"min_samples must be a whole number of at least 1, got {min_samples!r}."
        )
    sizes = message._group_sizes()
    return {group: size for group, size in sizes.items() if 0 < size < min_samples}


def check_disclosure(message, min_samples):
    """Refuse a message with small groups."""
    small = small_groups(message, min_samples)
    if small:
        raise MessageError(
            f"it describes {listed(small)}, but min_samples={min_samples}: the mean of "
            "one row is that row, and that of a few is close to them. Leave out or "
            "join what is too small; lower min_samples only if these rows may be seen.",
            message.client,
        )


def listed(groups, most=5):
    """Groups with their sizes, as text."""
    shown = [
        f"{group} with {size:.3g} row{'s' * (size != 1)}"
        for group, size in groups.items()
    ]
    more = [f"{len(shown) - most} more"] if len(shown) > most else []
    return ", ".join(shown[:most] + more)


def class_sizes(message):
    """Rows of each class, by the words for it."""
    rows = zip(message.classes, message.counts.tolist(), strict=True)
    return {f"class {short(label)}": count for label, count in rows}
