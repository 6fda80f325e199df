"""Base of all federated estimators: client ids, grouping, and ``fit`` as two steps."""

from collections.abc import Hashable, Iterable
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import date, timedelta
from numbers import Integral

import numpy as np
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_random_state,
    column_or_1d,
    get_tags,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ._sklearn_compat import StrOptions, _fit_context
from ._utils import ignored, map_in_order, shorten, warn_user
from .trust import ClientScreen

__all__ = ["FederatedEstimator", "FederatedTransformer"]

# All features get the same memory layout, so that results do not depend on the layout
# of X, to the last bit. NaN and infinity are looked for later, client by client.
FEATURES = {
    "dtype": (np.float64, np.float32),
    "order": "C",
    "ensure_all_finite": False,
}


class FederatedEstimator(BaseEstimator):
    """Estimator whose ``fit`` runs two public steps.

    A subclass has two methods:

    - ``client_update(X, y=None, *, classes=None, client=None)`` summarises the samples
      of one client in a :class:`~skslot.exchange.Message`. It changes nothing.
    - ``server_aggregate(messages)`` fits the estimator to the messages of all clients
      and returns it.

    ``fit`` groups the samples by client, runs the first step for each client and the
    second step once. So a search in one process evaluates what sites and a server
    compute. Client ids are passed as ``client_ids`` or are a column of X, named by the
    parameter ``client_column``.

    See Also
    --------
    skslot.classifiers.OneShotClassifier : Base of classifiers.
    skslot.utils.check_estimator : Checks that an estimator keeps the contract.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedScaler
    >>> from skslot.base import FederatedEstimator
    >>> scaler = FederatedScaler()
    >>> isinstance(scaler, FederatedEstimator)
    True
    >>> X, site = np.array([[1.0], [3.0], [8.0]]), ["A", "A", "B"]
    >>> messages = [scaler.client_update(X[:2]), scaler.client_update(X[2:])]
    >>> scaler.server_aggregate(messages).mean_ == scaler.fit(X, client_ids=site).mean_
    array([ True])
    """

    __metadata_request__fit = {"client_ids": True}
    __metadata_request__partial_fit = {"client_ids": True}

    _parameter_constraints: dict = {
        "client_column": [str, Integral, None],
        "screen": [StrOptions({"warn", "exclude"}), ClientScreen, None],
    }

    # Values for estimators without these parameters.
    client_column = None
    screen = "warn"
    privacy = None
    n_jobs = None
    verbose = 0

    # Whether the client step needs y, and a sentence on why, for errors.
    _needs_labels = False
    _why_labels = ""
    # Whether the result depends on which samples belong to one client.
    _ids_matter = True

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, client_ids=None):
        """Run the client step for each client, then the server step.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all clients, in any order.
        y : array-like of shape (n_samples,), default=None
            Labels, if the estimator needs them. Client ids are not labels: pass them
            as ``client_ids``.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each sample. If None, all samples are treated as one client.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        if client_ids is not None and is_single_id(client_ids):
            raise ValueError(
                f"client_ids={client_ids!r} is one id for all rows, which tells fit "
                "nothing. Pass one id per row; if it is the name of a column of X, set "
                "client_column instead."
            )
        X, y, groups = self._validate_rows(X, y, client_ids)
        columns = vars(self).get("feature_names_in_")
        with one_random_state(self):
            self.server_aggregate(self._client_updates(X, y, groups))
        if columns is not None:  # messages contain no column names
            self.feature_names_in_ = columns
        return self

    def _client_updates(self, X, y, groups):
        """Return the message of each client, in the order of the clients."""
        classes = None if y is None else np.unique(y)

        def update(client_rows):
            client, rows = client_rows
            labels = None if y is None else y[rows]
            return self.client_update(X[rows], labels, classes=classes, client=client)

        pairs = zip(groups.clients, groups.rows, strict=True)
        messages = []
        for message in map_in_order(update, pairs, self.n_jobs):
            messages.append(message)
            done = f"{len(messages)}/{len(groups.clients)}"
            self._say(f"client {message.client!r} done ({done})")
        return messages

    # ------------------------------------------------------- samples and their clients

    def _validate_rows(self, X, y, client_ids, *, reset=True):
        """Check samples to learn from: features, labels and the samples of each client.

        Labels are None if the estimator does not need them. ``reset`` starts a new fit.
        """
        X, groups = self._read_rows(X, client_ids, reset=reset, adding=True)
        is_mistakable = reset and self._ids_matter and y is not None
        if groups.clients == [None] and is_mistakable:
            warn_user(
                "No client_ids were passed to fit, so all samples are treated as one "
                f"client. {remedy()}"
            )
        return X, self._check_labels(y, X) if self._needs_labels else None, groups

    def _read_rows(self, X, client_ids, *, reset, adding=False):
        """Check features, and find the samples of each client.

        ``reset`` starts a new fit. If samples are ``adding`` to a fit, those without
        ids are one client; otherwise :meth:`_groups_without_ids` decides.
        """
        if self.client_column is None:
            with naming_odd_columns(X, self.client_column):
                X = validate_data(self, X, reset=reset, **FEATURES)
        else:
            validate_data(self, X, reset=reset, skip_check_array=True)
            X, client_ids, _ = split_client_column(X, self.client_column, client_ids)
            X = self._check_features(X)
        if client_ids is not None:
            groups = ClientGroups.from_ids(client_ids, len(X))
        elif adding:
            groups = ClientGroups.single(None, len(X))
        else:
            groups = self._groups_without_ids(len(X))
        assert_finite_by_client(X, groups, self)
        return X, groups

    def _groups_without_ids(self, n_samples):
        """Group samples that came without ids after ``fit``."""
        return ClientGroups.single(None, n_samples)

    def _read_client(self, X, client, *, fitted=False):
        """Check the features of one client, whether or not they contain its id.

        With ``fitted``, they must also be the features of ``fit``.
        """
        check_client_name(client, needed=fitted)
        has_column = has_client_column(self, X)
        if fitted:
            like = self if has_column else without_client_column(self)
            validate_data(like, X, reset=False, skip_check_array=True)
        if client is not None and has_column:
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

    def _check_features(self, X):
        """Return features without ids in float32 or float64; they may contain NaN."""
        with naming_odd_columns(X, self.client_column):
            return check_array(X, estimator=self, **FEATURES)

    def _check_labels(self, y, X):
        """Return one label per sample of X, as a vector."""
        if y is None:
            name = type(self).__name__
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None. "
                f"{self._why_labels}".rstrip()
            )
        refuse_lost_labels(y, "y")
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_consistent_length(X, y)
        with ignored(UserWarning):  # few samples of each class, as a client may have
            check_classification_targets(y)
        return y

    def _say(self, text):
        """Print a line of progress if ``verbose`` is set."""
        if self.verbose:
            print(f"[{type(self).__name__}] {text}", flush=True)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.privacy is not None
        tags.target_tags.required = self._needs_labels
        return tags


class FederatedTransformer(OneToOneFeatureMixin, TransformerMixin, FederatedEstimator):
    """Federated estimator that transforms samples, one output for each feature.

    The parameter ``keep_client_column`` states whether the output contains the column
    of client ids.

    See Also
    --------
    FederatedEstimator : Base of all federated estimators.

    Examples
    --------
    >>> from skslot import FederatedOTAligner
    >>> from skslot.base import FederatedTransformer
    >>> issubclass(FederatedOTAligner, FederatedTransformer)
    True
    """

    __metadata_request__transform = {"client_ids": True}
    __metadata_request__inverse_transform = {"client_ids": True}

    _parameter_constraints: dict = {
        **FederatedEstimator._parameter_constraints,
        "keep_client_column": ["boolean"],
    }

    keep_client_column = False  # for transformers without this parameter

    def fit_transform(self, X, y=None, client_ids=None):
        """Fit, and transform the same samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all clients.
        y : array-like of shape (n_samples,), default=None
            Labels, if they are needed.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each sample, passed to both ``fit`` and ``transform``.

        Returns
        -------
        X_transformed : ndarray of shape (n_samples, n_features)
            Features as ``transform`` returns them.
        """
        return self.fit(X, y, client_ids).transform(X, client_ids)

    def get_feature_names_out(self, input_features=None):
        check_is_fitted(self)
        names = super().get_feature_names_out(input_features)
        if self.client_column is None or self.keep_client_column:
            return names
        has_names = input_features is not None or hasattr(self, "feature_names_in_")
        if isinstance(self.client_column, str) and not has_names:
            raise ValueError(
                "fitted from messages, which have no names of columns; pass "
                f"input_features, with {self.client_column!r} among them."
            )
        return delete_client_name(names, self.client_column)

    def _with_client_column(self, features, X):
        """Return transformed features, with the column of ids of X if it is kept."""
        if self.client_column is None or not self.keep_client_column:
            return features
        return insert_client_column(features, X, self.client_column)

    def _check_width(self, X):
        """Reject features of another number than in ``fit``; ids are not counted."""
        n_features = self.n_features_in_ - (self.client_column is not None)
        if X.shape[1] != n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but {n_features} were fitted."
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@contextmanager
def one_random_state(estimator):
    """Use one integer as ``random_state`` in all steps of a fit, and restore it."""
    random_state = getattr(estimator, "random_state", 0)
    if isinstance(random_state, Integral):
        yield
        return
    estimator.random_state = check_random_state(random_state).randint(2**31 - 1)
    try:
        yield
    finally:
        estimator.random_state = random_state


def refuse_without_noise(estimator, step):
    """Reject a step that uses exact statistics if noise is required."""
    if estimator.privacy is not None:
        raise ValueError(
            f"{step} learns from rows without noise, so that privacy would not "
            "hold; fit again with all rows. At the site of the rows, where nothing "
            "leaves, use an estimator with privacy=None."
        )


def check_classes_agreed(estimator, classes, client):
    """Reject missing ``classes`` if the labels of a client must not be disclosed."""
    if estimator.privacy is not None and classes is None:
        raise ValueError(
            f"client {client!r}: with privacy, pass classes=..., the labels that "
            "may occur, as all clients have agreed on them; which of them this "
            "client has is not to be told."
        )


def reasons_for_exclusion(estimator, clients):
    """State which of some clients were excluded from the fit, and why."""
    report = getattr(estimator, "clients_report_", None)
    excluded = {} if report is None else report.left_out
    return " ".join(
        f"client {client!r} was left out of the fit, as {excluded[client]}"
        for client in clients
        if client in excluded
    )


def rows_by_client(estimator, X, client_ids=None):
    """Validate the features of a fitted estimator and find the samples of each client.

    Parameters
    ----------
    estimator : FederatedEstimator
        Fitted estimator.
    X : array-like of shape (n_samples, n_features)
        Features, with the client column if the estimator has one.
    client_ids : array-like of shape (n_samples,), default=None
        Client of each sample.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Features without the client column.
    groups : ClientGroups
        The clients, and the positions of the samples of each.
    """
    check_is_fitted(estimator)
    return estimator._read_rows(X, client_ids, reset=False)


# ------------------------------------------------------------------ client ids


def only_client(clients, n_samples):
    """Group samples that came without ids: only possible with a single client."""
    if len(clients) > 1:
        raise ValueError(
            f"client_ids is missing, but {len(clients)} clients were fitted, each "
            f"with a map of its own. {remedy()}"
        )
    if not clients:
        raise ValueError("no client is known yet; call add_client(X, client).")
    return ClientGroups.single(clients[0], n_samples)


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

    def ids(self):
        """Client of each row, as an array."""
        codes = np.empty(sum(len(rows) for _, rows in self.items()), dtype=np.intp)
        for code, rows in enumerate(self.rows):
            codes[rows] = code
        return np.fromiter(self.clients, dtype=object)[codes]

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


def order_clients(clients):
    """Sorted where the ids can be compared, else as they come."""
    clients = list(clients)
    try:
        return sorted(clients)
    except TypeError:
        return clients


def clients_array(clients):
    """Ids as an array that prints well and holds them unchanged."""
    if {type(client) for client in clients} in ({str}, {int}):
        ids = np.array(clients)
        # large integers may become floats, and zero characters at the end get lost
        if ids.dtype.kind in "iuU" and ids.tolist() == clients:
            return ids
    return np.fromiter(clients, dtype=object)


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


def is_single_id(value):
    """Whether this is one id rather than many."""
    is_one_value = isinstance(value, str | bytes) or not isinstance(value, Iterable)
    return is_one_value or getattr(value, "ndim", 1) == 0


def _plain(client):
    """Python's own number or string, for readable messages."""
    numpy_types = np.number | np.bool_ | np.str_
    return client.item() if isinstance(client, numpy_types) else client


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


# ---------------------------------------------------- client ids as a column of X


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


def client_column_of(estimator):
    """Column of X from which an estimator or a part of it reads ids, None if none."""
    params = estimator.get_params().items()
    columns = (v for name, v in params if name.rpartition("__")[2] == "client_column")
    return next((column for column in columns if column is not None), None)


def parameter_of_type(estimator, kinds):
    """Name of the first parameter that is of a type, nested or not; None if none is."""
    params = estimator.get_params().items()
    return next((name for name, value in params if isinstance(value, kinds)), None)


def has_client_column(estimator, X):
    """Tell whether samples of one client contain the column of ids.

    A position is only meaningful once the number of columns in ``fit`` is known.
    """
    column = estimator.client_column
    if isinstance(column, str):
        return column in getattr(X, "columns", ())
    if column is None or not hasattr(estimator, "n_features_in_"):
        return False
    return np.shape(X)[1:] == (estimator.n_features_in_,)


def without_client_column(estimator):
    """Copy a fitted estimator, as if X had had no column of ids."""
    copied = copy(estimator)
    if estimator.client_column is not None:
        copied.n_features_in_ = estimator.n_features_in_ - 1
        if hasattr(estimator, "feature_names_in_"):
            names = estimator.feature_names_in_
            copied.feature_names_in_ = delete_client_name(
                names, estimator.client_column
            )
    return copied


def delete_client_name(names, client_column):
    """Return column names without that of the client ids."""
    names = np.asarray(names, dtype=object)
    return np.delete(names, _column_position(client_column, names.tolist(), len(names)))


# ------------------------------------------------------------- features and labels


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
    if issparse(X):  # has numbers only, and is refused as such
        return None
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


def refuse_lost_labels(labels, name):
    """Refuse labels that would not come back from predictions as they are."""
    kind = np.asarray(labels).dtype.kind
    if kind == "u" and np.max(labels, initial=0) > np.iinfo(np.int64).max:
        raise ValueError(
            f"{name} has labels that are too large for a signed integer. Write them as "
            f"text first, such as {name}.astype(str)."
        )
    if kind in "mM":
        raise ValueError(
            f"{name} has dates or durations, which are no labels; write them as text "
            f"first, such as {name}.astype(str)."
        )
    is_cut = isinstance(labels, np.ndarray) and kind == "U"
    if kind not in "OU" or is_cut:
        return
    for row, label in enumerate(np.ravel(np.asarray(labels, dtype=object))):
        is_nan = isinstance(label, float) and np.isnan(label)
        if label is None or is_nan:
            what = "contains NaN" if is_nan else "is missing (None)"
            raise ValueError(
                f"{name} {what} in row {row}. Every row needs a label; drop those "
                "without, or give them a label of their own."
            )
        if isinstance(label, str) and label.endswith("\0"):
            raise ValueError(
                f"label {label!r} in {name} ends in a zero character, which arrays of "
                "text cut off; write it without."
            )
