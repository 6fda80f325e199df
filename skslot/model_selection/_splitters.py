"""Cross-validators for samples of several clients."""

from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import LeaveOneGroupOut
from sklearn.utils import check_random_state, column_or_1d

from .._docstrings import document
from .._sklearn_compat import Interval, StrOptions, _num_samples
from .._utils import warn_user
from ..base import number_clients, split_client_column


class _ClientSplitter(BaseEstimator):
    """Cross-validator that gets ids as client_ids, as groups or as a column of X.

    A subclass has ``_test_folds(y, clients)``, a list of arrays of test rows, where
    ``clients`` has the number of the client of each row.
    """

    __metadata_request__split = {"client_ids": True, "groups": True}

    def split(self, X, y=None, groups=None, client_ids=None):
        """Generate training and test rows of each fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features; only read for the client column, if there is one.
        y : array-like of shape (n_samples,), default=None
            Labels.
        groups : array-like of shape (n_samples,), default=None
            Client of each sample, for callers that only support groups.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row.

        Yields
        ------
        train : ndarray
            Positions of the training rows.
        test : ndarray
            Positions of the test rows.
        """
        self._validate_params()
        n_samples = _num_samples(X)
        ids = self._ids(X, groups, client_ids)
        y = np.zeros(n_samples, dtype=int) if y is None else column_or_1d(y)
        _, clients = number_clients(ids, n_samples)
        for test in self._test_folds(y, clients):
            yield np.setdiff1d(np.arange(n_samples), test), np.sort(test)

    def get_n_splits(self, X=None, y=None, groups=None, client_ids=None):
        """Return the number of folds.

        Parameters
        ----------
        X, y, groups, client_ids : array-like, default=None
            As in ``split``; only LeaveOneClientOut reads them.

        Returns
        -------
        n_splits : int
            Number of folds.
        """
        return self.n_splits

    def _ids(self, X, groups, client_ids):
        given = [ids for ids in (client_ids, groups) if ids is not None]
        if self.client_column is not None:
            given.append(split_client_column(X, self.client_column)[1])
        if len(given) != 1:
            raise ValueError(
                f"{type(self).__name__} needs the client of each row, by one route: "
                "client_ids (with metadata routing on), groups, or client_column. Got "
                f"{len(given)} of them."
            )
        return given[0]


@document
class StratifiedClientKFold(_ClientSplitter):
    """K-fold cross-validation, stratified by client and class.

    Every fold contains nearly the same fraction of each (client, class) cell. Cells
    with fewer samples than folds are spread over some of the folds. If a client has a
    single sample, it is always used for training.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=False
        Whether to shuffle the rows of each cell first.
    random_state : int, RandomState instance or None, default=None
        Used when ``shuffle=True``.
    {client_column}

    See Also
    --------
    CellHoldoutKFold : Also tests classes that a client has never seen.
    LeaveOneClientOut : Tests clients that were never seen.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.model_selection import StratifiedClientKFold
    >>> y, site = np.array([0, 0, 1, 1]), np.array(["A", "A", "B", "B"])
    >>> for train, test in StratifiedClientKFold(2).split(y, y, client_ids=site):
    ...     print(train, test)
    [1 3] [0 2]
    [0 2] [1 3]
    """

    _parameter_constraints: dict = {
        "n_splits": [Interval(Integral, 2, None, closed="left")],
        "shuffle": ["boolean"],
        "random_state": ["random_state"],
        "client_column": [str, Integral, None],
    }

    def __init__(
        self, n_splits=5, *, shuffle=False, random_state=None, client_column=None
    ):
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state
        self.client_column = client_column

    def _test_folds(self, y, clients):
        rng = check_random_state(self.random_state) if self.shuffle else None
        return _stratified_folds(y, clients, self.n_splits, rng)


@document
class LeaveOneClientOut(_ClientSplitter):
    """Each client in turn is the test set, as a site that was never seen.

    An aligner needs ``unknown_client="adapt"`` (or "identity") to predict there.

    Parameters
    ----------
    {client_column}

    See Also
    --------
    StratifiedClientKFold : All clients are in all folds.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.model_selection import LeaveOneClientOut
    >>> site = np.array(["A", "A", "B", "C"])
    >>> for train, test in LeaveOneClientOut().split(site, client_ids=site):
    ...     print(train, test)
    [2 3] [0 1]
    [0 1 3] [2]
    [0 1 2] [3]
    """

    _parameter_constraints: dict = {"client_column": [str, Integral, None]}

    def __init__(self, *, client_column=None):
        self.client_column = client_column

    def get_n_splits(self, X=None, y=None, groups=None, client_ids=None):
        ids = self._ids(X, groups, client_ids)
        return len(number_clients(ids, _num_samples(ids))[0])

    def _test_folds(self, y, clients):
        if not clients.any():
            raise ValueError("LeaveOneClientOut needs at least two clients.")
        return [test for _, test in LeaveOneGroupOut().split(y, groups=clients)]


@document
class CellHoldoutKFold(StratifiedClientKFold):
    """Cross-validation that also tests classes a client has never seen.

    Under label shift, ordinary folds repeat the training data: each site has the same
    classes, so a classifier that recognizes the site scores well, and alignment seems
    to hurt. At deployment, sites meet classes of which they had no samples. Here, some
    folds hold out whole (client, class) cells. Their fraction is the fraction of cells
    that are absent from the data. The other folds are stratified.

    Read more in the :doc:`User Guide </user_guide/choosing_tau>`.

    Parameters
    ----------
    n_splits : int, default=10
        Number of folds.
    unseen : "auto" or float in [0, 1], default="auto"
        Fraction of folds that hold out cells. ``"auto"`` is the fraction of (client,
        class) cells without samples. 0 is stratified cross-validation, which is right
        if every site keeps its class distribution.
    min_cell : int, default=4
        Minimum number of samples of the class that remain at another client when a cell
        is held out.
    min_client : int, default=10
        Minimum number of samples that remain at the client when a cell is held out.
    shuffle : bool, default=False
        Whether to shuffle samples and cells first.
    random_state : int, RandomState instance or None, default=None
        Used when ``shuffle=True``.
    {client_column}

    See Also
    --------
    StratifiedClientKFold : Equivalent if no cell is absent.

    Notes
    -----
    ``unseen="auto"`` assumes that labels at deployment are not skewed as in training.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.model_selection import CellHoldoutKFold
    >>> y = np.repeat([0, 1, 0, 1, 2], 10)
    >>> site = np.repeat(["A", "A", "B", "B", "B"], 10)
    >>> cv = CellHoldoutKFold(n_splits=6)  # one cell of six is absent: (A, 2)
    >>> for train, test in cv.split(y, y, client_ids=site):
    ...     print(len(train), len(test))
    41 9
    41 9
    42 8
    42 8
    42 8
    30 20
    """

    _parameter_constraints: dict = {
        **StratifiedClientKFold._parameter_constraints,
        "unseen": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both")],
        "min_cell": [Interval(Integral, 1, None, closed="left")],
        "min_client": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_splits=10,
        *,
        unseen="auto",
        min_cell=4,
        min_client=10,
        shuffle=False,
        random_state=None,
        client_column=None,
    ):
        super().__init__(
            n_splits,
            shuffle=shuffle,
            random_state=random_state,
            client_column=client_column,
        )
        self.unseen = unseen
        self.min_cell = min_cell
        self.min_client = min_client

    @classmethod
    def of(cls, cv, *, client_column=None):
        """Convert a value of a ``cv`` parameter, as scikit-learn's ``check_cv`` does.

        Parameters
        ----------
        cv : None, int, cross-validation generator or iterable
            Value to convert. None means all defaults, an int is ``n_splits``, and
            others are returned unchanged.
        client_column : str or int, default=None
            Column of X that holds the ids, for None and an int.

        Returns
        -------
        cv : CellHoldoutKFold or object
            The cross-validator.
        """
        if cv is None:
            return cls(client_column=client_column)
        return cls(cv, client_column=client_column) if isinstance(cv, Integral) else cv

    def _test_folds(self, y, clients):
        rng = check_random_state(self.random_state) if self.shuffle else None
        classes, labels = np.unique(y, return_inverse=True)
        counts = np.zeros((clients.max() + 1, len(classes)), dtype=int)
        np.add.at(counts, (clients, labels), 1)
        share = np.mean(counts == 0) if self.unseen == "auto" else self.unseen
        n_held = round(self.n_splits * share)
        ordinary = _stratified_folds(y, clients, self.n_splits, rng)
        held = _assign_cells(counts, n_held, self.min_cell, self.min_client, rng)
        if len(held) < n_held:
            warn_user(
                f"only {len(held)} of {n_held} folds can hold out cells whose class "
                f"keeps {self.min_cell} rows at another client and whose client keeps "
                f"{self.min_client} rows; the others are ordinary stratified folds. "
                "Lower min_cell or min_client, or use fewer folds.",
            )
        return ordinary[: self.n_splits - len(held)] + [
            np.flatnonzero(cells[clients, labels]) for cells in held
        ]


def _stratified_folds(y, clients, n_splits, rng=None):
    """Deal out the rows of each cell evenly: an array of test rows for each fold."""
    if n_splits > len(y):
        raise ValueError(
            f"n_splits={n_splits} is more than the {len(y)} rows there are."
        )
    _, labels = np.unique(y, return_inverse=True)
    order = np.arange(len(y)) if rng is None else rng.permutation(len(y))
    order = order[np.lexsort((labels[order], clients[order]))]
    # a client with one row would be unknown when that row is tested: keep it to train
    order = order[np.bincount(clients)[clients[order]] > 1]
    if n_splits > len(order):
        raise ValueError(
            f"n_splits={n_splits} folds need as many rows to test, but only "
            f"{len(order)} of {len(y)} are of clients with more than one row, and the "
            "row of a client that has no other is always in training. Use fewer folds, "
            "or LeaveOneClientOut."
        )
    # dealing out like cards, cell after cell, also balances the folds in size
    return [order[fold::n_splits] for fold in range(n_splits)]


def _assign_cells(counts, n_folds, min_cell, min_client, rng=None):
    """Choose cells to hold out in each fold: a mask of ``counts`` for each.

    ``counts`` has a row per client and a column per class. In every fold, the class of
    each held-out cell keeps ``min_cell`` rows at another client, and a client gives up
    one cell at most and keeps ``min_client`` rows. Cells for which no fold allows it
    are not held out, and folds without any are left out.
    """
    folds = [np.zeros(counts.shape, dtype=bool) for _ in range(n_folds)]
    cells = np.argwhere(counts > 0)
    # diagonally, so that clients do not all begin with the same class
    diagonal = (cells[:, 1] - cells[:, 0]) % counts.shape[1]
    cells = cells[np.lexsort((cells[:, 0], diagonal))]
    if rng is not None:
        cells = rng.permutation(cells)
    for client, label in cells:
        free = [held for held in folds if not held[client].any()]
        for held in sorted(free, key=lambda held: counts[held].sum()):
            held[client, label] = True
            kept = np.where(held, 0, counts)
            clients, labels = np.nonzero(held)
            few_rows = kept.sum(axis=1)[clients] < min_client
            few_of_class = kept.max(axis=0)[labels] < min_cell
            if not few_rows.any() and not few_of_class.any():
                break
            held[client, label] = False
    return [held for held in folds if held.any()]
