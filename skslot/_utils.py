"""Names, tables and lists as text."""

import sys
import unicodedata
import warnings
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock

import numpy as np
from joblib import effective_n_jobs
from scipy.linalg.lapack import dtpttr, dtrttp
from threadpoolctl import ThreadpoolController


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


def short(value, length=60):
    """Representation of what somebody sent, cut to a length."""
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 3]}..."


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


# ------------------------------------------------------------------ warnings


# What may stand between the user's line and ours.
OURS = {"skslot", "sklearn", "joblib"}


def warn_user(message, category=UserWarning):
    """Emit a warning from the innermost frame that is the user's.

    ``message`` is a text, or a warning that has fields.

    That is the first one outside of skslot, scikit-learn, joblib and the standard
    library, which runs threads and processes. In a thread or a process that has no such
    frame, it is the caller's.
    """
    caller = frame = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    frame = frame or caller
    warnings.warn_explicit(
        message,
        category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=frame.f_globals.get("__name__", "<string>"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def about(error, parameter):
    """Add the parameter that an error or a warning is about, as a field."""
    error.parameter = parameter
    return error


@contextmanager
def ignored(category):
    """Ignore warnings of a category, where the caller knows or says it better."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield


def _is_ours(frame):
    # by python -m, as workers of joblib are run, a module is called __main__
    spec = frame.f_globals.get("__spec__")
    name = frame.f_globals.get("__name__", "") if spec is None else spec.name
    package = name.partition(".")[0]
    return package in OURS or package in sys.stdlib_module_names


def warn_of_lost_classes(labels):
    """Say which classes have no rows at any client once noise was added, if any."""
    if labels:
        warn_user(
            f"classes {shorten(labels)} were agreed on, but noise left no rows of them "
            "at any client, so that they are not learned: raise epsilon or collect "
            "more rows of them."
        )


# ------------------------------------------------------------------ parallel


_lock = Lock()
_users, _limit = 0, None


@contextmanager
def one_blas_thread():
    """Give BLAS one thread, until all who asked for that are through.

    The number of threads is one for the whole process. Whoever restores the number that
    was found must be the last, or others would find one thread and leave it at that.
    """
    global _users, _limit
    with _lock:
        if _users == 0:
            _limit = _libraries().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()


@cache
def _libraries():
    return ThreadpoolController()


def map_in_order(function, items, n_jobs):
    """Results of a function of each item, in the order of the items.

    Items are read in the thread of the caller, and one more than there are threads are
    in memory at most. With one thread, that is one.
    """
    n_threads = effective_n_jobs(n_jobs)
    with one_blas_thread():
        if n_threads == 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            waiting = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(function, item))
                    del item
                    if len(waiting) > n_threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for each in waiting:
                    each.cancel()


class Restartable:
    """Iterable that begins anew on each loop."""

    def __init__(self, start):
        self.start = start

    def __iter__(self):
        return self.start()


# ------------------------------------------------------------------ arrays


def largest(array):
    """Largest absolute value, NaN if there is one, without a copy of the array."""
    return float(max(array.max(initial=0.0), -array.min(initial=0.0)))


def wire_exponent(size, dtype):
    """Power of two that brings a largest value into the range of a dtype."""
    if dtype == "float64":
        return 0
    least = {"float32": 2.0**-60, "float16": 2.0**-10}[dtype]
    if least <= size <= float(np.finfo(dtype).max) or not size:
        return 0
    return int(np.frexp(size)[1]) - 14


def pack_triangle(matrix):
    """Upper triangle, row by row, as a vector of length ``m (m + 1) / 2``."""
    packed, _ = dtrttp(matrix.T, uplo="L")
    return packed


def unpack_triangle(packed):
    """Full symmetric matrix from its packed upper triangle."""
    lower, _ = dtpttr(triangle_order(len(packed)), packed, uplo="L")
    full = lower + lower.T
    full[np.diag_indices_from(full)] *= 0.5
    return full


def triangle_order(length):
    """Order of the matrix whose packed triangle has this length."""
    order = (int(np.sqrt(8 * length + 1)) - 1) // 2
    if order * (order + 1) // 2 != length:
        raise ValueError(f"a packed triangle cannot have {length} entries.")
    return order


def packed_diagonal(order):
    """Positions of the diagonal in a packed triangle."""
    return np.r_[0, np.cumsum(np.arange(order, 1, -1))]


# ------------------------------------------------------------------ optional


LEFT_OUT = '{} is left out: it needs pip install "skslot[torch]".'


def can_train_nets():
    """Whether what FedAvg needs is installed."""
    return all(find_spec(package) for package in ("torch", "skorch"))


def import_optional(module, extra, purpose):
    """Import a module that an extra of skslot installs.

    Without it, an ``ImportError`` says what needs it (``purpose``, which begins the
    sentence) and how it is installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{purpose} needs {package}, which is missing or broken ({error}). Install "
            f'it with: pip install "skslot[{extra}]"'
        ) from error
