"""Cross-validators that know clients."""

import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _num_samples

from .._clients import ClientGroups, split_client_column
from ._cells import assign_cells, stratified_folds


class _ClientSplitter(BaseEstimator):
    """Cross-validator that gets ids as client_ids, as groups or as a column of X.

    A subclass has ``_test_folds(y, groups)``, a list of arrays of test rows.
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
            Client of each row, for callers that only know groups.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row.

        Yields
        ------
        train : ndarray
            Positions of the training rows.
        test : ndarray
            Positions of the test rows.
        """
        everyone = np.arange(_num_samples(X))
        for test in self._folds(X, y, groups, client_ids):
            yield np.setdiff1d(everyone, test), np.sort(test)

    def _folds(self, X, y, groups, client_ids):
        self._validate_params()
        n_samples = _num_samples(X)
        ids = self._ids(X, groups, client_ids)
        y = np.zeros(n_samples, dtype=int) if y is None else column_or_1d(y)
        return self._test_folds(y, ClientGroups.from_ids(ids, n_samples))

    def _ids(self, X, groups, client_ids):
        column = None
        if self.client_column is not None:
            column = split_client_column(X, self.client_column)[1]
        given = [ids for ids in (client_ids, groups, column) if ids is not None]
        if len(given) != 1:
            raise ValueError(
                f"{type(self).__name__} needs the client of each row, by one route: "
                "client_ids (with metadata routing on), groups, or client_column. Got "
                f"{len(given)} of them."
            )
        return given[0]


class StratifiedClientKFold(_ClientSplitter):
    """K-fold cross-validation, stratified by client and class.

    Every fold has nearly the same share of each (client, class) cell. Cells with fewer
    rows than folds are spread over some of the folds. The row of a client that has no
    other is always in training.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=False
        Whether to shuffle the rows of each cell first.
    random_state : int, RandomState instance or None, default=None
        Used when ``shuffle=True``.
    client_column : str or int, default=None
        Column of X that holds the ids. None means that they are passed.

    See Also
    --------
    CellHoldoutKFold : Also asks for classes that a client has never seen.
    LeaveOneClientOut : Asks for clients that were never seen.

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

    def get_n_splits(self, X=None, y=None, groups=None, client_ids=None):
        """Number of folds.

        Parameters
        ----------
        X, y, groups, client_ids : object, default=None
            Ignored.

        Returns
        -------
        n_splits : int
            Number of folds.
        """
        return self.n_splits

    def _test_folds(self, y, groups):
        rng = check_random_state(self.random_state) if self.shuffle else None
        return stratified_folds(y, groups, self.n_splits, rng)


class LeaveOneClientOut(_ClientSplitter):
    """Each client in turn is the test set, as a site that was never seen.

    An aligner needs ``unknown_client="adapt"`` (or "identity") to predict there.

    Parameters
    ----------
    client_column : str or int, default=None
        Column of X that holds the ids. None means that they are passed.

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
        """Number of clients.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), default=None
            Features, needed with ``client_column``.
        y : object, default=None
            Ignored.
        groups : array-like of shape (n_samples,), default=None
            Client of each row.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row.

        Returns
        -------
        n_splits : int
            Number of clients.
        """
        ids = self._ids(X, groups, client_ids)
        return len(ClientGroups.from_ids(ids, _num_samples(ids)).clients)

    def _test_folds(self, y, groups):
        if len(groups.clients) < 2:
            raise ValueError("LeaveOneClientOut needs at least two clients.")
        return [np.arange(len(y))[rows] for rows in groups.rows]


class CellHoldoutKFold(_ClientSplitter):
    """Cross-validation that also asks for classes a client has never seen.

    Under label shift, ordinary folds repeat the training data: a class is found where
    it always was, so a classifier that recognises the site scores well, and alignment
    seems to hurt. At deployment a site meets classes that it had no row of. Here some
    folds hold out whole (client, class) cells, in the proportion in which cells are
    absent from the data; the other folds are ordinary stratified ones.

    Read more in the :doc:`User Guide </user_guide/choosing_tau>`.

    Parameters
    ----------
    n_splits : int, default=10
        Number of folds.
    unseen : "auto" or float in [0, 1], default="auto"
        Share of folds that hold out cells. "auto" is the share of (client, class) cells
        without a row. 0 is plain stratified cross-validation: right if every site keeps
        the label mix that it has.
    min_cell : int, default=4
        A cell is only held out if its class keeps this many rows at another client.
    min_client : int, default=10
        A cell is only held out if its client keeps this many rows.
    shuffle : bool, default=False
        Whether to shuffle rows and cells first.
    random_state : int, RandomState instance or None, default=None
        Used when ``shuffle=True``.
    client_column : str or int, default=None
        Column of X that holds the ids. None means that they are passed.

    See Also
    --------
    StratifiedClientKFold : What it is when no cell is absent.

    Notes
    -----
    The assumption behind ``unseen="auto"``: labels at deployment are not skewed as they
    are in training.

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
        "n_splits": [Interval(Integral, 2, None, closed="left")],
        "unseen": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both")],
        "min_cell": [Interval(Integral, 1, None, closed="left")],
        "min_client": [Interval(Integral, 1, None, closed="left")],
        "shuffle": ["boolean"],
        "random_state": ["random_state"],
        "client_column": [str, Integral, None],
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
        self.n_splits = n_splits
        self.unseen = unseen
        self.min_cell = min_cell
        self.min_client = min_client
        self.shuffle = shuffle
        self.random_state = random_state
        self.client_column = client_column

    def get_n_splits(self, X=None, y=None, groups=None, client_ids=None):
        """Number of folds.

        Parameters
        ----------
        X, y, groups, client_ids : object, default=None
            Ignored.

        Returns
        -------
        n_splits : int
            Number of folds.
        """
        return self.n_splits

    def _test_folds(self, y, groups):
        rng = check_random_state(self.random_state) if self.shuffle else None
        classes, codes = np.unique(y, return_inverse=True)
        rows = [np.arange(len(y))[group] for group in groups.rows]
        cells = [[r[codes[r] == c] for c in range(len(classes))] for r in rows]
        counts = np.array([[len(cell) for cell in row] for row in cells])
        share = np.mean(counts == 0) if self.unseen == "auto" else self.unseen
        n_held = round(self.n_splits * share)
        ordinary = stratified_folds(y, groups, self.n_splits, rng)
        held = assign_cells(counts, n_held, self.min_cell, self.min_client, rng)
        if len(held) < n_held:
            warnings.warn(
                f"only {len(held)} of {n_held} folds can hold out cells whose class "
                f"keeps {self.min_cell} rows at another client and whose client keeps "
                f"{self.min_client} rows; the others are ordinary stratified folds. "
                "Lower min_cell or min_client, or use fewer folds.",
                stacklevel=4,
            )
        return ordinary[: self.n_splits - len(held)] + [
            np.concatenate([cells[client][label] for client, label in fold])
            for fold in held
        ]
