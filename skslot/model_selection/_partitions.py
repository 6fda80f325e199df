"""The paper's partitions: its split, label shift, finer clients, and their counts."""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d

from .._sklearn_compat import Interval, _num_samples, validate_params
from .._utils import count_table, shorten
from ..base import ClientGroups, clients_array, number_clients

MOST_DRAWS = 1000
SPLITS = ("train", "test")


def paper_split(
    y,
    client_ids,
    alpha,
    *,
    split=None,
    test_size=0.3,
    min_samples=10,
    random_state=0,
):
    """Split into skewed training rows and test rows that are not skewed.

    The protocol of the SLOT-Align paper: test rows are set aside, then
    :func:`dirichlet_label_shift` makes the label mixes of the training rows differ.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    client_ids : array-like of shape (n_samples,)
        Client of each row.
    alpha : float or None
        Concentration of the label shift; None for no label shift.
    split : array-like of shape (n_samples,), default=None
        "train" or "test" for each row, in upper or lower case, if the data set has an
        official split.
    test_size : float, default=0.3
        Share of each (client, class) cell for testing, without an official split.
    min_samples : int, default=10
        Fewest training rows of a client.
    random_state : int, default=0
        Number of the partition.

    Returns
    -------
    train : ndarray
        Positions of the training rows.
    test : ndarray
        Positions of the test rows.

    See Also
    --------
    dirichlet_label_shift : The label shift.
    CellHoldoutKFold : Splits training rows, to choose parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.model_selection import paper_split
    >>> y, site = np.tile([0, 1], 50), np.repeat(["A", "B"], 50)
    >>> train, test = paper_split(y, site, alpha=None)
    >>> len(train), len(test)
    (70, 30)
    """
    y, client_ids = np.asarray(y), np.asarray(client_ids)
    if split is None:
        _, client = np.unique(client_ids.astype(str), return_inverse=True)
        classes, label = np.unique(y, return_inverse=True)
        cells = client * len(classes) + label
        alone = np.bincount(cells)[cells] == 1  # cannot be split, so it is trained on
        train, test = train_test_split(
            np.flatnonzero(~alone),
            test_size=test_size,
            stratify=cells[~alone],
            random_state=random_state,
        )
        train = np.concatenate([train, np.flatnonzero(alone)])
    else:
        split = np.char.lower(np.char.strip(np.asarray(split).astype(str)))
        others = np.setdiff1d(split, SPLITS)
        if len(others):
            raise ValueError(
                "split must be 'train' or 'test' for each row, but is also "
                f"{shorten(others.tolist())}; rename these, or leave their rows out."
            )
        train, test = (np.flatnonzero(split == name) for name in SPLITS)
    if alpha is not None:
        kept = dirichlet_label_shift(
            y[train],
            client_ids[train],
            alpha,
            min_samples=min_samples,
            random_state=random_state,
        )
        train = train[kept]
    return train, test


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
    """Choose the rows that clients keep, such that their label mixes differ.

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
    paper_split : Sets test rows aside first.
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
    table, cells = _count_cells(y, client_ids)
    counts = table.counts
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    for _ in range(MOST_DRAWS):
        # one column of shares per class, each summing to one over the clients
        shares = rng.dirichlet(np.full(len(counts), alpha), size=counts.shape[1]).T
        keep = np.rint(shares * counts).astype(int)
        if (keep.sum(axis=1) >= min_samples).all():
            break
    else:
        raise ValueError(
            f"in {MOST_DRAWS} draws with alpha={alpha}, no partition left every client "
            f"at least min_samples={min_samples} rows. Lower min_samples or raise "
            "alpha."
        )
    rows_of = np.split(np.argsort(cells, kind="stable"), np.cumsum(counts)[:-1])
    pairs = zip(rows_of, keep.ravel(), strict=True)
    kept = [rng.choice(rows, n_rows, replace=False) for rows, n_rows in pairs]
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

    The finer partition of the SLOT-Align paper: twice the clients with ``n_parts=2``,
    as many domains as before. The rows of a client are dealt out to its
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
    dirichlet_label_shift : Makes the label mixes of clients differ; names the paper.

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
    for name, (_, rows) in zip(names, groups.items(), strict=True):
        rows = rng.permutation(rows)
        if len(rows) < n_parts:
            raise ValueError(
                f"client {name!r} has {len(rows)} rows, too few for n_parts={n_parts}. "
                "Lower n_parts, or leave this client out."
            )
        rows = rows[np.argsort(labels[rows], kind="stable")]
        for part in range(n_parts):
            new_ids[rows[part::n_parts]] = f"{name}/{part + 1}"
    return new_ids.astype(str)


def class_table(y, client_ids, sample_weight=None):
    """Count the rows of each class at each client.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    client_ids : array-like of shape (n_samples,)
        Client of each row.
    sample_weight : array-like of int of shape (n_samples,), default=None
        How many rows each row stands for; one each by default.

    Returns
    -------
    table : ClassTable
        Prints as a table; ``to_frame()`` is a pandas DataFrame with clients as rows and
        classes as columns. It has these attributes:

        counts : ndarray of shape (n_clients, n_classes)
            The counts.
        clients : ndarray of shape (n_clients,)
            Client ids.
        classes : ndarray of shape (n_classes,)
            Labels.
        n_absent : int
            Number of (client, class) cells without a row.

    See Also
    --------
    dirichlet_label_shift : Makes label mixes differ.

    Examples
    --------
    >>> from skslot.model_selection import class_table
    >>> table = class_table(["cat", "dog", "cat"], ["A", "A", "B"])
    >>> table
           cat  dog  rows
    A        1    1     2
    B        1    .     1
    >>> table.n_absent
    1
    """
    return _count_cells(y, client_ids, sample_weight)[0]


@dataclass(frozen=True, eq=False)
class ClassTable:
    """Rows of each class at each client, described in :func:`class_table`."""

    counts: np.ndarray
    clients: np.ndarray
    classes: np.ndarray

    @property
    def n_absent(self):
        """Number of (client, class) cells without a row."""
        return int((self.counts == 0).sum())

    def to_frame(self):
        """Return the counts as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.counts, index=self.clients, columns=self.classes)

    def __repr__(self):
        return count_table(self.counts, self.clients, self.classes)


def _count_cells(y, client_ids, sample_weight=None):
    """Count the rows of each (client, class) cell, and number the cell of each row."""
    y = column_or_1d(y)
    clients, client_codes = number_clients(client_ids, len(y))
    classes, labels = np.unique(y, return_inverse=True)
    shape = len(clients), len(classes)
    cells = np.ravel_multi_index((client_codes, labels), shape)
    counts = np.bincount(cells, sample_weight, minlength=np.prod(shape))
    counts = counts.astype(np.intp).reshape(shape)
    return ClassTable(counts, clients_array(clients), classes), cells
