"""Names, tables and lists as text."""

import unicodedata
from collections import defaultdict

import numpy as np


def printable(value):
    """Text of a name or label that others chose, as part of one line on a terminal.

    Line breaks would forge lines, and control characters do what they like to the
    terminal: all that cannot be seen is written as Python writes it.
    """
    return "".join(
        char if char.isprintable() else repr(char)[1:-1] for char in str(value)
    )


def quoted(name):
    """A name as an argument of a command."""
    return name if name.isidentifier() else f'"{name}"'


def spelled_alike(texts):
    """Groups of different texts that a person would take for the same."""
    spellings = defaultdict(list)
    for text in dict.fromkeys(texts):
        spellings[plain_spelling(text)].append(text)
    return [found for found in spellings.values() if len(found) > 1]


def plain_spelling(text):
    """A text without what people write now in one way and now in another."""
    plain = unicodedata.normalize("NFKC", str(text)).casefold()
    return "".join(plain.split())


def text_table(rows, align="lr"):
    """Lay out rows of text cells in columns, two spaces apart.

    ``align`` has "l" or "r" for each column; its last letter is for all columns that
    follow. A row may be shorter than the longest; an empty one is an empty line.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    n_columns = max(map(len, rows))
    align += align[-1] * (n_columns - len(align))
    widths = [
        max(len(row[column]) for row in rows if column < len(row))
        for column in range(n_columns)
    ]
    just = {"l": str.ljust, "r": str.rjust}
    return "\n".join(
        "  ".join(
            just[side](cell, width)
            for cell, side, width in zip(row, align, widths, strict=False)
        ).rstrip()
        for row in rows
    )


def count_table(counts, row_names, column_names):
    """Lay out counts with their names and the sum of each row; a dot stands for 0."""
    table = np.column_stack([counts, np.sum(counts, axis=1)])
    rows = [["", *map(str, column_names), "rows"]]
    for name, line in zip(row_names, table.tolist(), strict=True):
        rows.append([str(name), *(str(count or ".") for count in line)])
    # columns of a few digits have one width, which reads better down the page
    return text_table([[f"{row[0]:5}", *(f"{c:>3}" for c in row[1:])] for row in rows])


def list_groups(groups, most=5):
    """List groups of rows with their sizes."""
    shown = [
        f"{printable(group)} with {size:.3g} row{'s' * (size != 1)}"
        for group, size in groups.items()
    ]
    more = [f"{len(shown) - most} more"] if len(shown) > most else []
    return ", ".join(shown[:most] + more)


def shorten(values, most=10):
    """List of values for an error message."""
    values = list(values)
    shown = ", ".join(repr(value) for value in values[:most])
    rest = f", ... ({len(values)} in all)" if len(values) > most else ""
    return f"[{shown}{rest}]"


def column_differences(names, others, whose):
    """How columns differ from those of another file or client.

    None if they do not, or if somebody does not say what they are called.
    """
    if None in (names, others) or names == others:
        return None
    extra = [name for name in names if name not in others]
    missing = [name for name in others if name not in names]
    parts = [f"has columns {shorten(extra)} that {whose} has not"] if extra else []
    parts += [f"lacks columns {shorten(missing)} of {whose}"] if missing else []
    same = f"has the columns of {whose} in another order, {shorten(names)}"
    return " and ".join(parts) or same


def plain_name(text):
    """A name without spaces around it, in one of the ways to write its accents."""
    return unicodedata.normalize("NFC", text).strip()


def client_order(client):
    """Key that sorts clients as ``fit`` does, numbers before text if there are both."""
    return isinstance(client, str), client


def number_unnamed(clients):
    """Names of clients; if there are several without a name, their positions."""
    return [
        position if client is None and len(clients) > 1 else client
        for position, client in enumerate(clients)
    ]
