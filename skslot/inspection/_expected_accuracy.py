"""Accuracy to expect of a classifier at each client, from rows that it did not see."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA

from .._utils import ignored
from ..model_selection import CellHoldoutKFold, StratifiedClientKFold

N_FOLDS = 3  # in which rows are held out
N_CELL_FOLDS = 4  # in which whole (client, class) cells are
# More features than this are replaced by as many principal components: the time of most
# models grows with the cube of them, and which of them is best hardly changes.
MOST_FEATURES = 128


@dataclass(frozen=True, eq=False)
class Trials:
    """Rows to try classifiers on, and how much each right answer counts.

    The accuracy at a client is a weighted mean of right answers: on rows of classes
    that the client has, held out in ordinary folds, and on whole (client, class) cells
    that were held out, which stand for the classes that it lacks.

    ``folds`` and ``cell_folds`` are pairs of training and test rows. ``row_weights``
    has the weight of each row in the accuracy of its client, and ``cell_weights`` a
    line per client and a column per cell that is held out; ``held_cell`` has the number
    of that cell for each row, -1 without one.
    """

    X: np.ndarray
    y: np.ndarray
    clients: np.ndarray
    folds: list
    cell_folds: list
    row_weights: np.ndarray
    cell_weights: np.ndarray
    held_cell: np.ndarray

    @classmethod
    def prepare(cls, X, y, clients, keeps_labels, random_state):
        """Choose rows of clients, numbered from 0, that keep their label mixes or not.

        If they do not, labels are expected to come as all clients together have them.
        """
        if X.shape[1] > MOST_FEATURES:
            n_components = min(MOST_FEATURES, len(X))
            X = PCA(n_components, svd_solver="covariance_eigh").fit_transform(X)
        classes, labels = np.unique(y, return_inverse=True)
        shape = clients.max() + 1, len(classes)
        cells = np.ravel_multi_index((clients, labels), shape)
        counts = np.bincount(cells, minlength=np.prod(shape)).reshape(shape)
        folds = _ordinary_folds(y, clients, random_state)
        cell_folds = []
        if not keeps_labels and (counts == 0).any():
            cell_folds = _cell_folds(y, clients, cells, random_state)
        tested, held = _rows_tested(folds), np.unique(cells[_rows_tested(cell_folds)])
        n_tested = np.bincount(cells[tested], minlength=counts.size).reshape(shape)
        shares = _label_mix(n_tested if keeps_labels else counts.sum(axis=0))
        weights = np.where(n_tested > 0, shares / np.maximum(n_tested, 1), 0.0)
        row_weights, held_cell = np.zeros(len(y)), np.full(len(y), -1)
        row_weights[tested] = weights.ravel()[cells[tested]]
        is_held = np.isin(cells, held)
        held_cell[is_held] = np.searchsorted(held, cells[is_held])
        lacking = np.where(n_tested > 0, 0.0, shares).sum(axis=1)
        whose = held // len(classes)
        return cls(
            X,
            y,
            clients,
            folds,
            cell_folds,
            row_weights,
            lacking[:, None] * _stand_ins(whose, len(counts)),
            held_cell,
        )

    @property
    def n_fits(self):
        """Number of times that each classifier is fitted."""
        return len(self.folds) + len(self.cell_folds)

    @property
    def is_known(self):
        """Whether there are rows for all that the accuracy of a client is made of."""
        n_clients = len(self.cell_weights)
        weights = np.bincount(self.clients, self.row_weights, n_clients)
        return (weights > 0) & np.isclose(weights + self.cell_weights.sum(axis=1), 1)

    def run(self, classifier, step=lambda: None):
        """Right answers of a classifier; ``step`` is called after each fit."""
        on_rows, on_cells = np.zeros((2, len(self.y)))
        for folds, right in ((self.folds, on_rows), (self.cell_folds, on_cells)):
            for train, test in folds:
                right[test] = self._is_right(classifier, train, test)
                step()
        is_held = self.held_cell >= 0
        cell, n_cells = self.held_cell[is_held], self.cell_weights.shape[1]
        n_rows = np.bincount(cell, minlength=n_cells)
        return Answers(on_rows, np.bincount(cell, on_cells[is_held], n_cells) / n_rows)

    def _is_right(self, classifier, train, test):
        with ignored(UserWarning):  # of clients that are small in some fold
            model = clone(classifier).fit(
                self.X[train], self.y[train], client_ids=self.clients[train]
            )
        predicted = model.predict(self.X[test], client_ids=self.clients[test])
        return predicted == self.y[test]

    def accuracy(self, answers):
        """Accuracy at each client, and its standard error; NaN if not known."""
        found = np.full((2, len(self.cell_weights)), np.nan)
        for client in np.flatnonzero(self.is_known):
            weights = np.where(self.clients == client, self.row_weights, 0.0)
            found[:, client] = _weigh(answers, weights, self.cell_weights[client])
        return found

    def mean_accuracy(self, answers):
        """Mean of the accuracy over clients, and its standard error."""
        known = self.is_known
        if not known.any():
            return np.nan, np.inf
        row_weights = np.where(known[self.clients], self.row_weights, 0.0)
        cell_weights = self.cell_weights[known].sum(axis=0)
        n_known = known.sum()
        return _weigh(answers, row_weights / n_known, cell_weights / n_known)


@dataclass(frozen=True, eq=False)
class Answers:
    """How right answers are: those on rows, and on cells as a whole."""

    rows: np.ndarray
    cells: np.ndarray

    def __sub__(self, other):
        return Answers(self.rows - other.rows, self.cells - other.cells)


def _ordinary_folds(y, clients, random_state):
    folds = StratifiedClientKFold(N_FOLDS, shuffle=True, random_state=random_state)
    try:
        return list(folds.split(y, y, client_ids=clients))
    except ValueError:  # too few rows
        return []


def _cell_folds(y, clients, cells, random_state):
    """Folds that hold out cells, without the ordinary ones that complete them."""
    folds = CellHoldoutKFold(
        N_CELL_FOLDS, unseen=1.0, shuffle=True, random_state=random_state
    )
    with ignored(UserWarning):  # there may be few, or none
        try:
            pairs = list(folds.split(y, y, client_ids=clients))
        except ValueError:  # too few rows
            return []
    return [
        (train, test)
        for train, test in pairs
        if not np.isin(cells[test], cells[train]).any()
    ]


def _rows_tested(folds):
    return np.concatenate([np.empty(0, dtype=int), *(test for _, test in folds)])


def _label_mix(counts):
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)


def _stand_ins(whose, n_clients):
    """Shares of held-out cells in what a client lacks: its own, or else all."""
    own = (whose == np.arange(n_clients)[:, None]).astype(float)
    own[~own.any(axis=1)] = 1.0
    return own / np.maximum(own.sum(axis=1, keepdims=True), 1)


def _weigh(answers, row_weights, cell_weights):
    """Weighted mean of answers, and its standard error.

    Cells stand for others and vary as a whole: one alone does not say how much.
    """
    mean = row_weights @ answers.rows + cell_weights @ answers.cells
    variance = _variance(row_weights, answers.rows)
    n_cells = np.count_nonzero(cell_weights)
    if n_cells == 1:
        variance = np.inf
    elif n_cells:
        spread = _variance(cell_weights, answers.cells)
        variance += spread * n_cells / (n_cells - 1)
    return float(mean), float(np.sqrt(variance))


def _variance(weights, values):
    """Variance of a weighted sum of independent values."""
    total = weights.sum()
    centre = weights @ values / total if total else 0.0
    return np.square(weights * (values - centre)).sum()
