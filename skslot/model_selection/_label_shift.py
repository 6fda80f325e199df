"""The paper's label shift, finer clients, and a table that shows both."""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, validate_params
from sklearn.utils.validation import _num_samples

from .._clients import ClientGroups, clients_array, shorten

MOST_DRAWS = 1000


@validate_params(
    {
        "y": ["array-like"],
        "client_ids": ["array-like"],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "min_samples": [Interval(Integral, 0, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def dirichlet_label_shift(y, client_ids, alpha, *, min_samples=1, random_state=None):
    """Rows that clients keep when their label mix is made to differ.

    The protocol of the SLOT-Align paper [1]_: for each class, shares of the clients are
    drawn from a symmetric Dirichlet distribution, and each client keeps that share of
    its own rows of the class. Rows are dropped, never moved to another client. Apply it
    to training rows only: test rows are not skewed.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    client_ids : array-like of shape (n_samples,)
        Client of each row.
    alpha : float
        Concentration. 100 keeps nearly equal shares, 0.1 leaves most classes to one or
        two clients, 0.01 nearly each class to one client.
    min_samples : int, default=1
        Fewest rows of a client. Shares are drawn anew until every client has them.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same rows on every call.

    Returns
    -------
    rows : ndarray of shape (n_kept,)
        Positions of the rows kept, ascending.

    See Also
    --------
    split_clients : Makes several clients of each, to begin with.
    class_table : Shows what each client holds.

    References
    ----------
    .. [1] D. Berardini, V. P. Pastore, V. Murino. "Distribution Alignment for One-Shot
       Federated Learning via Optimal Transport". ICML, 2026.

    Examples
    --------
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.model_selection import class_table, dirichlet_label_shift
    >>> data = load_digit_scanners()
    >>> rows = dirichlet_label_shift(data.target, data.client_ids, 0.1, random_state=0)
    >>> class_table(data.target[rows], data.client_ids[rows]).n_absent > 10
    True
    """
    y = column_or_1d(y)
    groups = ClientGroups.from_ids(client_ids, len(y))
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    classes, codes = np.unique(y, return_inverse=True)
    counts = _count(groups, codes, len(classes))
    for _ in range(MOST_DRAWS):
        # one column of shares per class, each summing to one over the clients
        shares = rng.dirichlet(np.full(len(counts), alpha), size=len(classes)).T
        keep = np.rint(shares * counts).astype(int)
        if (keep.sum(axis=1) >= min_samples).all():
            break
    else:
        raise ValueError(
            f"in {MOST_DRAWS} draws with alpha={alpha}, no partition left every client "
            f"at least min_samples={min_samples} rows. Lower min_samples or raise "
            "alpha."
        )
    kept = []
    for client, rows in enumerate(groups.rows):
        rows = np.arange(len(y))[rows]
        for label in range(len(classes)):
            cell = rows[codes[rows] == label]
            kept.append(rng.choice(cell, keep[client, label], replace=False))
    return np.sort(np.concatenate(kept))


@validate_params(
    {
        "client_ids": ["array-like"],
        "n_parts": [Interval(Integral, 1, None, closed="left")],
        "y": ["array-like", None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def split_clients(client_ids, n_parts, *, y=None, random_state=None):
    """Split each client at random into several of the same domain.

    The finer partition of the SLOT-Align paper [1]_: twice the clients with
    ``n_parts=2``, as many domains as before. The rows of a client are dealt out to its
    parts, whose sizes differ by one at most. Split before test rows are set aside, so
    that each new client has both, and before :func:`dirichlet_label_shift`.

    Parameters
    ----------
    client_ids : array-like of shape (n_samples,)
        Client of each row.
    n_parts : int
        Number of clients to make of each.
    y : array-like of shape (n_samples,), default=None
        Labels. If given, the rows of each class are dealt out evenly as well.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same parts on every call.

    Returns
    -------
    new_ids : ndarray of str of shape (n_samples,)
        The id, a slash and the number of the part: "photo/1", "photo/2".

    See Also
    --------
    dirichlet_label_shift : Makes the label mixes of clients differ.

    References
    ----------
    .. [1] D. Berardini, V. P. Pastore, V. Murino. "Distribution Alignment for One-Shot
       Federated Learning via Optimal Transport". ICML, 2026.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.model_selection import class_table, split_clients
    >>> y, domain = np.tile([0, 1], 6), np.repeat(["photo", "sketch"], [8, 4])
    >>> class_table(y, split_clients(domain, 2, y=y, random_state=0))
                  0    1  rows
    photo/1       2    2     4
    photo/2       2    2     4
    sketch/1      1    1     2
    sketch/2      1    1     2
    """
    n_samples = _num_samples(client_ids)
    groups = ClientGroups.from_ids(client_ids, n_samples)
    labels = np.zeros(n_samples) if y is None else column_or_1d(y)
    check_consistent_length(client_ids, labels)
    names = [str(client) for client in groups.clients]
    if len(set(names)) < len(names):
        raise ValueError(
            f"client_ids {shorten(groups.clients)} are not all different as text, so "
            "the names of their parts would not be either; rename them."
        )
    rng = check_random_state(random_state)
    new_ids = np.empty(n_samples, dtype=object)
    for name, rows in zip(names, groups.rows, strict=True):
        rows = rng.permutation(np.arange(n_samples)[rows])
        if len(rows) < n_parts:
            raise ValueError(
                f"client {name!r} has {len(rows)} rows, too few for n_parts={n_parts}. "
                "Lower n_parts, or leave this client out."
            )
        rows = rows[np.argsort(labels[rows], kind="stable")]
        for part in range(n_parts):
            new_ids[rows[part::n_parts]] = f"{name}/{part + 1}"
    return new_ids.astype(str)


def class_table(y, client_ids):
    """Count the rows of each class at each client.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    client_ids : array-like of shape (n_samples,)
        Client of each row.

    Returns
    -------
    table : ClassTable
        The counts; prints as a table.

    See Also
    --------
    dirichlet_label_shift : Makes label mixes differ.

    Examples
    --------
    >>> from skslot.model_selection import class_table
    >>> class_table(["cat", "dog", "cat"], ["A", "A", "B"])
           cat  dog  rows
    A        1    1     2
    B        1    .     1
    """
    y = column_or_1d(y)
    groups = ClientGroups.from_ids(client_ids, len(y))
    classes, codes = np.unique(y, return_inverse=True)
    counts = _count(groups, codes, len(classes))
    return ClassTable(counts, clients_array(groups.clients), classes)


@dataclass(frozen=True, eq=False)
class ClassTable:
    """Number of rows of each class at each client.

    Parameters
    ----------
    counts : ndarray of shape (n_clients, n_classes)
        The counts.
    clients : ndarray of shape (n_clients,)
        Client ids.
    classes : ndarray of shape (n_classes,)
        Labels.

    See Also
    --------
    class_table : Makes one.

    Examples
    --------
    >>> from skslot.model_selection import class_table
    >>> class_table([0, 1, 1], ["A", "A", "B"]).n_absent
    1
    """

    counts: np.ndarray
    clients: np.ndarray
    classes: np.ndarray

    @property
    def n_absent(self):
        """Number of (client, class) cells without a row."""
        return int((self.counts == 0).sum())

    def to_frame(self):
        """The counts as a pandas DataFrame.

        Returns
        -------
        frame : pandas.DataFrame
            Clients as rows, classes as columns.
        """
        import pandas as pd

        return pd.DataFrame(self.counts, index=self.clients, columns=self.classes)

    def __repr__(self):
        names = [str(client) for client in self.clients]
        heads = [*(str(label) for label in self.classes), "rows"]
        left = max(5, *map(len, names))
        lines = [" " * left, *(f"{name:<{left}}" for name in names)]
        table = np.column_stack([self.counts, self.counts.sum(axis=1)])
        for head, column in zip(heads, table.T, strict=True):
            cells = [head, *(str(count) if count else "." for count in column)]
            width = max(5, 2 + max(map(len, cells)))
            lines = [
                line + f"{cell:>{width}}"
                for line, cell in zip(lines, cells, strict=True)
            ]
        return "\n".join(lines)


def _count(groups, codes, n_classes):
    return np.array([np.bincount(codes[r], minlength=n_classes) for r in groups.rows])
