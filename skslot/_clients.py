"""Which row belongs to which client: reading, checking and grouping ids."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from sklearn.utils import assert_all_finite, check_array

REMEDY = (
    "Pass client_ids=... with one id per row. Inside a Pipeline switch metadata "
    "routing on with sklearn.set_config(enable_metadata_routing=True) and pass "
    "client_ids to fit, predict and score. A search with scoring='accuracy' or "
    "make_scorer(...) does not hand ids on: use scoring=None or "
    "skslot.metrics.make_client_scorer(), and predict with "
    "search.best_estimator_.predict(X, client_ids=...). Or keep the ids as a column of "
    "X and set client_column=..., which works with every scorer."
)


def check_client_ids(client_ids, n_samples):
    """One id per row as a 1-D array; a scalar is repeated."""
    if is_single_id(client_ids):
        ids = np.empty(n_samples, dtype=object)
        ids[:] = client_ids
    elif hasattr(client_ids, "dtype") or hasattr(client_ids, "__array__"):
        ids = np.asarray(client_ids)
    else:
        ids = np.fromiter(client_ids, dtype=object)  # np.array would turn 1 into "1"
    if ids.ndim == 2 and ids.shape[1] == 1:
        ids = ids[:, 0]
    if ids.ndim != 1:
        raise ValueError(
            f"client_ids must hold one id per row, got an array of shape {ids.shape}."
        )
    if len(ids) != n_samples:
        raise ValueError(
            f"client_ids has {len(ids)} entries, but X has {n_samples} rows. Pass one "
            "id per row; cross-validation splits the ids along with X only when their "
            "lengths agree."
        )
    missing = _missing_rows(ids)
    if len(missing):
        raise ValueError(
            f"client_ids is missing (None or NaN) for {len(missing)} rows, the first "
            f"is row {missing[0]}. Every row needs the client it belongs to; drop "
            "those rows or give them an id of their own."
        )
    return ids


@dataclass(frozen=True)
class ClientGroups:
    """The distinct clients of some rows, and the rows of each.

    ``rows[k]`` is a slice where the rows of ``clients[k]`` are adjacent, which saves a
    copy, and an index array otherwise.
    """

    clients: list
    rows: list

    @classmethod
    def from_ids(cls, client_ids, n_samples):
        """Group rows by ids, after checking these."""
        clients, codes = _factorize(check_client_ids(client_ids, n_samples))
        return cls(clients, _rows_of_codes(codes, len(clients)))

    @classmethod
    def single(cls, client, n_samples):
        """All rows are of one client."""
        return cls([client], [slice(0, n_samples)])


def _rows_of_codes(codes, n_codes):
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(n_codes + 1))
    groups = []
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        rows = order[start:stop]
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            rows = slice(int(rows[0]), int(rows[-1]) + 1)
        groups.append(rows)
    return groups


def split_client_column(X, client_column):
    """Take the column of ids out of X: (the other columns, ids, its position)."""
    names = list(X.columns) if hasattr(X, "columns") else None
    if names is None:
        X = check_array(X, dtype=None, ensure_all_finite=False)
    position = _column_position(client_column, names, X.shape[1])
    if X.shape[1] == 1:
        raise ValueError("X has no features, only the client column.")
    if names is None:
        return np.delete(X, position, axis=1), X[:, position], position
    others = names[:position] + names[position + 1 :]
    return X[others], X[names[position]], position


def insert_client_column(features, like, client_column):
    """Put the ids of ``like`` back among the features, in their place."""
    others, ids, position = split_client_column(like, client_column)
    if hasattr(like, "iloc"):
        frame = type(like)(features, index=like.index, columns=others.columns)
        frame.insert(position, ids.name, ids)
        return frame
    if hasattr(like, "insert_column"):  # polars
        frame = type(like)(features, schema=others.columns, orient="row")
        return frame.insert_column(position, ids)
    ids = np.asarray(ids)
    numeric = ids.dtype.kind in "biuf"
    dtype = np.result_type(features, ids) if numeric else object
    return np.insert(features.astype(dtype), position, ids, axis=1)


def assert_finite_by_client(X, groups, estimator):
    """Refuse NaN and infinity like scikit-learn, and say whose rows they are."""
    try:
        assert_all_finite(X, estimator_name=type(estimator).__name__, input_name="X")
    except ValueError as error:
        pairs = zip(groups.clients, groups.rows, strict=True)
        whose = [client for client, rows in pairs if not np.isfinite(X[rows]).all()]
        if whose == [None]:
            raise
        raise ValueError(f"Rows of client {shorten(whose)}: {error}") from None


def _column_position(client_column, names, n_columns):
    if isinstance(client_column, str):
        if names is None:
            raise ValueError(
                f"client_column={client_column!r} is a name, but X has no column "
                "names; pass a DataFrame or the integer position of the column."
            )
        if client_column not in names:
            raise ValueError(
                f"client_column={client_column!r} is not a column of X; the columns "
                f"are {shorten(names)}."
            )
        return names.index(client_column)
    if not -n_columns <= client_column < n_columns:
        raise ValueError(
            f"client_column={client_column!r} is out of range: X has {n_columns} "
            "columns."
        )
    return client_column % n_columns


def check_client_name(client):
    """Refuse labels or rows where the name of a client is due."""
    if not is_single_id(client) and not isinstance(client, tuple):
        raise ValueError(
            f"client must be the name of one client, got a {type(client).__name__}; "
            "labels are passed as y=..."
        )


def shorten(values, most=10):
    """List of values for an error message."""
    values = list(values)
    shown = ", ".join(repr(value) for value in values[:most])
    rest = f", ... ({len(values)} in all)" if len(values) > most else ""
    return f"[{shown}{rest}]"


def order_clients(clients):
    """Sorted where the ids can be compared, else as they come."""
    clients = list(clients)
    try:
        return sorted(clients)
    except TypeError:
        return clients


def client_order(client):
    """Key that sorts clients as ``fit`` does, numbers before text if there are both."""
    return isinstance(client, str), client


def clients_array(clients):
    """Ids as an array that prints well and holds them unchanged."""
    kinds = {type(client) for client in clients}
    if kinds in ({str}, {int}):
        return np.array(clients)
    return np.fromiter(clients, dtype=object)


def _factorize(ids):
    if ids.dtype.kind in "biufUS":
        clients, codes = np.unique(ids, return_inverse=True)
        return clients.tolist(), codes
    values = list(ids)
    unhashable = next((v for v in values if not isinstance(v, Hashable)), None)
    if unhashable is not None:
        raise ValueError(
            f"client_ids must be hashable, such as strings or integers; got a "
            f"{type(unhashable).__name__}."
        )
    clients = order_clients(_plain(client) for client in dict.fromkeys(values))
    code_of = {client: code for code, client in enumerate(clients)}
    return clients, np.fromiter((code_of[v] for v in values), np.intp, len(values))


def _plain(client):
    """Python's own number or string, for readable messages."""
    numpy_types = np.number | np.bool_ | np.str_
    return client.item() if isinstance(client, numpy_types) else client


def is_single_id(value):
    """Whether this is one id rather than many."""
    is_one_value = isinstance(value, str | bytes) or not isinstance(value, Iterable)
    return is_one_value or getattr(value, "ndim", 1) == 0


def _missing_rows(ids):
    if ids.dtype.kind in "biuUS":  # neither integers nor text can be missing
        return []
    if ids.dtype.kind in "fMm":
        return np.flatnonzero(np.isnan(ids))
    return [row for row, value in enumerate(ids.tolist()) if _is_nan(value)]


def _is_nan(value):
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True
    except ValueError:  # an array; refused later on, as it cannot be hashed
        return False
