"""Which row belongs to which client: reading, checking and grouping ids."""

import unicodedata
from collections.abc import Hashable, Iterable
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
from sklearn import get_config
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
    get_tags,
)
from sklearn.utils.validation import validate_data

from ._warnings import warn_user

# One memory layout for all, so that results do not depend on that of X, to the last
# bit. Whether X is finite is checked when it is known whose rows are not.
FEATURES = {
    "dtype": (np.float64, np.float32),
    "order": "C",
    "ensure_all_finite": False,
}


class ClientAwareMixin:
    """Reads rows together with their clients, by either of two routes.

    Ids are passed as ``client_ids`` or are the column ``client_column`` of X. The
    estimator has a ``client_column`` parameter and, if it can do without ids once it
    is fitted, overrides ``_groups_without_ids``. One whose messages can have a
    guarantee of differential privacy has a ``privacy`` parameter, and one that says
    what it does a ``verbose`` parameter.
    """

    privacy = None

    def _read_rows(self, X, client_ids, *, reset, adding=False, y=None):
        """Features and the rows of each client, checked.

        ``reset`` forgets earlier rows, ``adding`` is for rows to learn from either way.
        """
        if self.client_column is None:
            with naming_odd_columns(X, self.client_column):
                X = validate_data(self, X, reset=reset, **FEATURES)
        else:
            validate_data(self, X, reset=reset, skip_check_array=True)
            X, client_ids = self._read_client_column(X, client_ids)
        if client_ids is not None:
            groups = ClientGroups.from_ids(client_ids, len(X))
        elif reset or adding:
            groups = ClientGroups.single(None, len(X))
            if reset and y is not None:
                warn_user(
                    "fitted without client_ids: y was not taken as ids, all rows are "
                    f"one client. {remedy()}"
                )
        else:
            groups = self._groups_without_ids(len(X))
        assert_finite_by_client(X, groups, self)
        return X, groups

    def _refuse_one_id_for_all(self, client_ids):
        """In ``fit`` a single id is most likely the name of a column."""
        if client_ids is not None and is_single_id(client_ids):
            raise ValueError(
                f"client_ids={client_ids!r} is one id for all rows, which tells fit "
                "nothing. Pass one id per row; if it is the name of a column of X, set "
                "client_column instead."
            )

    def _forget_names(self):
        """Forget names of columns of an earlier fit: messages have none."""
        vars(self).pop("feature_names_in_", None)

    def _read_client_column(self, X, client_ids):
        """Features without ids, and the ids that were among them."""
        X, ids, _ = split_client_column(X, self.client_column, client_ids)
        return self._check_features(X), ids

    def _read_client(self, X, client):
        """Features of one client, checked; a column of ids may be among them."""
        if client is not None and self._has_client_column(X):
            X, ids, _ = split_client_column(X, self.client_column)
            found, _ = number_clients(ids, len(X))
            others = [each for each in found if each != client]
            if others:
                raise ValueError(
                    f"client_column={self.client_column!r} says that rows are of "
                    f"client {shorten(others)}, but they are given as those of "
                    f"{client!r}; pass the rows of one client, under its name."
                )
        X = self._check_features(X)
        assert_finite_by_client(X, ClientGroups.single(client, len(X)), self)
        return X

    def _read_joining_client(self, X, client):
        """Features of one client, checked against those of fit; both may have ids."""
        fitted = self
        if self.client_column is not None and not self._has_client_column(X):
            fitted = copy(self)
            fitted.n_features_in_ = self.n_features_in_ - 1
            if hasattr(self, "feature_names_in_"):
                fitted.feature_names_in_ = self._without_client_column(
                    self.feature_names_in_
                )
        validate_data(fitted, X, reset=False, skip_check_array=True)
        return self._read_client(X, client)

    def _without_client_column(self, names):
        """Names of columns but for that of ids."""
        column, names = self.client_column, np.asarray(names, dtype=object)
        return np.delete(names, _column_position(column, names.tolist(), len(names)))

    def _has_client_column(self, X):
        """Whether rows of one client come with the column of ids, which they need not.

        A position says so only to who knows how many columns there were in ``fit``.
        """
        if isinstance(self.client_column, str):
            return self.client_column in getattr(X, "columns", ())
        if self.client_column is None or not hasattr(self, "n_features_in_"):
            return False
        return np.shape(X)[1:] == (self.n_features_in_,)

    def _check_labels(self, y, X):
        """One label per row of X, as a vector; ``_labels_missing`` says what lacks."""
        if y is None:
            raise ValueError(self._labels_missing)
        refuse_lost_labels(y, "y")
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_consistent_length(X, y)
        return y

    def _check_classes_agreed(self, classes, client):
        """Refuse to read off labels which there are, if that is not to be told."""
        if self.privacy is not None and classes is None:
            raise ValueError(
                f"client {client!r}: with privacy, pass classes=..., the labels that "
                "may occur, as all clients have agreed on them; which of them this "
                "client has is not to be told."
            )

    def _refuse_without_noise(self, step):
        """Refuse a step that learns from rows as they are, if noise is asked for."""
        if self.privacy is not None:
            raise ValueError(
                f"{step} learns from rows without noise, so that privacy would not "
                "hold; fit again with all rows. At the site of the rows, where nothing "
                "leaves, use an estimator with privacy=None."
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.privacy is not None
        return tags

    def _say(self, text):
        """Print what was done, if somebody wants to know."""
        if self.verbose:
            print(f"[{type(self).__name__}] {text}", flush=True)

    def _check_features(self, X):
        """Features without ids, in float32 or float64; not yet checked for NaN."""
        with naming_odd_columns(X, self.client_column):
            return check_array(X, estimator=self, **FEATURES)


@contextmanager
def naming_odd_columns(X, client_column):
    """Block that checks features; if some are text or dates, the error says which."""
    try:
        yield
    except (ValueError, TypeError) as error:
        is_known = isinstance(error, TypeError) or "could not convert" in str(error)
        found = _first_odd(X) if is_known else None
        if found is None:
            raise
        column, text = found
        where, what = f"column {column!r} of X", "dates or times, which are no features"
        remedy = "leave it out or count days from a fixed date"
        if text is not None:
            what = f"text, {text!r}, which is no feature"
            remedy = (
                "leave it out or make numbers of it, alike at all clients (by "
                "OneHotEncoder with agreed categories; for tables in files by skslot "
                "plan)"
            )
        if client_column is None and text is not None:
            remedy = (
                "if it says which client each row is of, set "
                f"client_column={column!r}; else {remedy}"
            )
        elif client_column is not None and not hasattr(X, "columns"):
            where = "a column of X beside that of clients"  # which moved its position
        raise ValueError(f"{where} has {what}: {remedy}.") from error


def _first_odd(X):
    """First column with text, and the text, or with dates and None; None without."""
    is_frame = hasattr(X, "columns")
    rows = X if is_frame else np.asarray(X, dtype=object)
    if len(rows.shape) != 2:
        return None
    for column in list(X.columns) if is_frame else range(rows.shape[1]):
        values = np.asarray(rows[column] if is_frame else rows[:, column])
        for value in [] if values.dtype.kind in "biufc" else values:
            if isinstance(value, np.datetime64 | np.timedelta64 | date | timedelta):
                return column, None
            if isinstance(value, str) and not _is_number(value):
                return column, str(value)
    return None


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def remedy():
    """Say how ids arrive: with metadata routing on, who loses them nevertheless."""
    if not get_config()["enable_metadata_routing"]:
        return (
            "Pass client_ids=... with one id per row, or keep the ids as a column of X "
            "and set client_column=..., which also works inside a Pipeline, a search "
            "and other wrappers. These pass client_ids on only with metadata routing, "
            "which sklearn.set_config(enable_metadata_routing=True) switches on."
        )
    return (
        "Pass client_ids=... with one id per row, to predict and score as well. If you "
        "did, a wrapper does not pass them on, although metadata routing is on: "
        "CalibratedClassifierCV, VotingClassifier, permutation_importance and "
        "cross_val_predict do not, nor does a search with scoring='accuracy' or "
        "make_scorer(...). Keep the ids as a column of X and set client_column=..., "
        "which needs no passing on. In a search, scoring=None and "
        "skslot.metrics.ClientScorer() get client_ids too, and so does "
        "search.best_estimator_.predict(X, client_ids=...)."
    )


def refuse_lost_labels(labels, name):
    """Refuse labels that would not come back from predictions as they are."""
    kind = np.asarray(labels).dtype.kind
    if kind in "mM":
        raise ValueError(
            f"{name} has dates or durations, which are no labels; write them as text "
            f"first, such as {name}.astype(str)."
        )
    is_cut = isinstance(labels, np.ndarray) and kind == "U"
    if kind not in "OU" or is_cut:
        return
    for row, label in enumerate(np.ravel(np.asarray(labels, dtype=object))):
        if label is None:
            raise ValueError(
                f"{name} is missing (None) in row {row}. Every row needs a label; drop "
                "those without, or give them a label of their own."
            )
        if isinstance(label, str) and label.endswith("\0"):
            raise ValueError(
                f"label {label!r} in {name} ends in a zero character, which arrays of "
                "text cut off; write it without."
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
    if ids.dtype.kind == "V":
        raise ValueError(
            f"client_ids is a structured array, of dtype {ids.dtype}; pass one of its "
            "fields, or a list of tuples as in client_ids.tolist()."
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
        return cls.from_codes(*number_clients(client_ids, n_samples))

    @classmethod
    def from_codes(cls, clients, codes):
        """Group rows by the positions of their clients in a list of these."""
        ends = np.cumsum(np.bincount(codes, minlength=len(clients)))
        parts = np.split(np.argsort(codes, kind="stable"), ends)[:-1]
        return cls(clients, [_slice_if_adjacent(rows) for rows in parts])

    @classmethod
    def single(cls, client, n_samples):
        """All rows are of one client."""
        return cls([client], [slice(0, n_samples)])

    def without(self, clients):
        """The same without some clients."""
        pairs = zip(self.clients, self.rows, strict=True)
        kept = [(client, rows) for client, rows in pairs if client not in clients]
        return ClientGroups(*map(list, zip(*kept, strict=True))) if clients else self

    def items(self):
        """Pairs of a client and the positions of its rows."""
        return zip(self.clients, (np.r_[rows] for rows in self.rows), strict=True)


def _slice_if_adjacent(rows):
    if rows[-1] - rows[0] == len(rows) - 1:
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def client_column_of(estimator):
    """Column of X from which an estimator or a part of it reads ids, None if none."""
    params = estimator.get_params().items()
    columns = (v for name, v in params if name.rpartition("__")[2] == "client_column")
    return next((column for column in columns if column is not None), None)


def parameter_of_type(estimator, kinds):
    """Name of the first parameter that is of a type, nested or not; None if none is."""
    params = estimator.get_params().items()
    return next((name for name, value in params if isinstance(value, kinds)), None)


def split_client_column(X, client_column, client_ids=None):
    """Take the column of ids out of X: (the other columns, ids, its position).

    ``client_ids`` are those that were passed as well, which is refused.
    """
    if client_ids is not None:
        raise ValueError(
            f"ids came both as client_ids and as client_column={client_column!r}; use "
            "one of the two."
        )
    names = list(X.columns) if hasattr(X, "columns") else None
    if names is None:
        X = check_array(X, dtype=None, ensure_all_finite=False)
    position = _column_position(client_column, names, X.shape[1])
    if X.shape[1] == 1:
        raise ValueError("X has no features, only the client column.")
    ids = X[:, position] if names is None else X[names[position]]
    refuse_fractions(ids, client_column)
    if names is None:
        return np.delete(X, position, axis=1), ids, position
    others = names[:position] + names[position + 1 :]
    return X[others], ids, position


def refuse_fractions(ids, client_column):
    """Refuse numbers that name nobody: the column is another than it was meant to be.

    Wrappers that select columns, such as RFE, move the last one.
    """
    ids = np.asarray(ids)
    if ids.dtype.kind != "f":
        return
    wrong = ids[np.isfinite(ids) & (ids != np.round(ids))]
    if len(wrong):
        raise ValueError(
            f"client_column={client_column!r} holds numbers such as {wrong[0]:.4g}, "
            "which are no ids. Is it the right column? A wrapper that selects columns, "
            "such as RFE, moves it: give ids there as client_ids, with metadata "
            "routing on."
        )


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


def assert_finite_by_client(X, groups, estimator=None):
    """Refuse NaN and infinity like scikit-learn, and say whose rows they are.

    NaN is let through if the tags of the estimator say so.
    """
    allow_nan, wrong = False, {"input_name": "X"}
    if estimator is not None:
        allow_nan = get_tags(estimator).input_tags.allow_nan
        wrong["estimator_name"] = type(estimator).__name__
    try:
        assert_all_finite(X, allow_nan=allow_nan, **wrong)
    except ValueError as error:
        is_bad = np.isinf if allow_nan else lambda rows: ~np.isfinite(rows)
        pairs = zip(groups.clients, groups.rows, strict=True)
        whose = [client for client, rows in pairs if is_bad(X[rows]).any()]
        if whose == [None]:
            raise
        what = str(error).splitlines()[0]
        if "NaN" in what:
            what += (
                " Fill or drop them first, as each client can do by itself: by its own "
                "medians, by a number that all agree on, or by skslot plan."
            )
        raise ValueError(f"Rows of client {shorten(whose)}: {what}") from None


def _column_position(client_column, names, n_columns):
    if isinstance(client_column, str):
        if names is None:
            raise ValueError(
                f"client_column={client_column!r} is a name, but X has no column "
                "names; pass a DataFrame or the integer position of the column. Some "
                "steps and wrappers, such as BaggingClassifier, make arrays of tables."
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


def check_client_name(client, needed=False):
    """Refuse labels or rows where the name of a client is due, and a missing one."""
    if client is None and not needed:
        return
    if is_single_id(client) and _is_nan(client):
        raise ValueError(
            f"client is missing: {client!r} names nobody. Give the client a name."
        )
    try:
        hash(client)
    except TypeError:
        raise ValueError(
            f"client must be the name of one client, got a {type(client).__name__}; "
            "labels are passed as y=..."
        ) from None


def plain_name(text):
    """A name without spaces around it, in one of the ways to write its accents."""
    return unicodedata.normalize("NFC", text).strip()


def warn_of_lost_classes(labels):
    """Say which classes have no rows at any client once noise was added, if any."""
    if labels:
        warn_user(
            f"classes {shorten(labels)} were agreed on, but noise left no rows of them "
            "at any client, so that they are not learned: raise epsilon or collect "
            "more rows of them."
        )


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


def number_unnamed(clients):
    """Names of clients; if there are several without a name, their positions."""
    return [
        position if client is None and len(clients) > 1 else client
        for position, client in enumerate(clients)
    ]


def without(by_client, client):
    """A dict by client, without one of them."""
    return {each: value for each, value in by_client.items() if each != client}


def clients_array(clients):
    """Ids as an array that prints well and holds them unchanged."""
    kinds = {type(client) for client in clients}
    if kinds in ({str}, {int}):
        return np.array(clients)
    return np.fromiter(clients, dtype=object)


def number_clients(client_ids, n_samples):
    """List the distinct clients, and the position of each row's client in the list."""
    ids = check_client_ids(client_ids, n_samples)
    if ids.dtype.kind in "biufUS":
        # rows of a client tend to come together, and one of each run is enough to sort
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])[:n_samples])
        clients, codes = np.unique(ids[starts], return_inverse=True)
        return clients.tolist(), np.repeat(codes, np.diff(starts, append=n_samples))
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
    if ids.dtype.kind in "biufUSMm":
        return np.flatnonzero(ids != ids)  # NaN and NaT are not equal to themselves
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
