"""How good predictions are at each client."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils import check_consistent_length, column_or_1d

from .._clients import ClientGroups, clients_array
from ._metric import as_scorer

# What balanced accuracy warns of; where clients lack classes, that is no news.
CLASSES_LACK = "y_pred contains classes not in y_true|A single label was found"


def client_scores(y_true, y_pred, client_ids, metric="accuracy"):
    """Score predictions at each client.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels.
    y_pred : array-like of shape (n_samples,)
        Predicted labels.
    client_ids : array-like of shape (n_samples,)
        Client of each row.
    metric : str or callable, default="accuracy"
        Name of a scorer of scikit-learn that works on predicted labels, or a function
        ``metric(y_true, y_pred)``.

    Returns
    -------
    scores : ClientScores
        Score of each client, with mean, spread and worst; prints as a table.

    See Also
    --------
    make_client_scorer : The same as a scorer for GridSearchCV.

    Examples
    --------
    >>> from skslot.metrics import client_scores
    >>> client_scores([0, 1, 0, 1], [0, 1, 1, 1], ["A", "A", "B", "B"])
    client       rows     score
    A               2     1.000
    B               2     0.500
    mean                  0.750
    std                   0.250
    worst (B)             0.500
    cells                 0.750
    """
    y_true, y_pred = column_or_1d(y_true), column_or_1d(y_pred)
    check_consistent_length(y_true, y_pred)
    groups = ClientGroups.from_ids(client_ids, len(y_true))
    answers = _Answers(y_pred, np.union1d(y_true, y_pred))
    scorer = as_scorer(metric)
    try:
        scores = score_clients(scorer, answers, y_true, groups)
    except AttributeError as error:
        raise ValueError(
            f"metric={metric!r} wants more than predicted labels, such as "
            "probabilities; use make_client_scorer, which asks the estimator."
        ) from error
    return ClientScores(
        clients_array(groups.clients),
        np.array([len(rows) for rows in _positions(groups, len(y_true))]),
        scores,
        _mean_or_nan(scorer, answers, y_true, groups),
    )


@dataclass(frozen=True, eq=False)
class ClientScores:
    """Score of each client, with what to make of them together.

    Parameters
    ----------
    clients : ndarray of shape (n_clients,)
        Client ids.
    counts : ndarray of shape (n_clients,)
        Rows of each client.
    scores : ndarray of shape (n_clients,)
        Score of each client.
    cell_mean : float
        Mean score over all (client, class) cells that have rows: every class counts the
        same at every client. NaN where the metric is not defined for a single class.

    Attributes
    ----------
    mean : float
        Macro mean over clients.
    std : float
        Population standard deviation over clients, as the SLOT-Align paper reports it.
    worst : float
        Lowest score.
    worst_client : object
        Client with the lowest score.

    See Also
    --------
    client_scores : Makes one.

    Examples
    --------
    >>> from skslot.metrics import client_scores
    >>> scores = client_scores([0, 1, 0, 1], [0, 1, 1, 1], ["A", "A", "B", "B"])
    >>> scores.mean, scores.worst_client
    (0.75, 'B')
    """

    clients: np.ndarray
    counts: np.ndarray
    scores: np.ndarray
    cell_mean: float

    @property
    def mean(self):
        """Macro mean over clients."""
        return float(self.scores.mean())

    @property
    def std(self):
        """Population standard deviation over clients."""
        return float(self.scores.std())

    @property
    def worst(self):
        """Lowest score."""
        return float(self.scores.min())

    @property
    def worst_client(self):
        """Client with the lowest score."""
        return self.clients.tolist()[int(self.scores.argmin())]

    def to_frame(self):
        """Rows and score of each client as a pandas DataFrame.

        Returns
        -------
        frame : pandas.DataFrame
            One row per client.
        """
        import pandas as pd

        columns = {"rows": self.counts, "score": self.scores}
        return pd.DataFrame(columns, index=pd.Index(self.clients, name="client"))

    def __repr__(self):
        summary = {
            "mean": self.mean,
            "std": self.std,
            f"worst ({self.worst_client})": self.worst,
            "cells": self.cell_mean,
        }
        names = [str(client) for client in self.clients]
        width = max(map(len, ["client", *names, *summary]))
        lines = [f"{'client':<{width}}{'rows':>8}{'score':>10}"]
        for name, count, score in zip(names, self.counts, self.scores, strict=True):
            lines.append(f"{name:<{width}}{count:>8}{score:>10.3f}")
        lines += [f"{name:<{width}}{score:>18.3f}" for name, score in summary.items()]
        return "\n".join(lines)


class _Answers(ClassifierMixin, BaseEstimator):
    """Predicted labels behind the face of a classifier; X is row positions."""

    def __init__(self, labels, classes):
        self.labels = labels
        self.classes_ = classes

    def predict(self, rows):
        return self.labels[rows]


def score_clients(scorer, answers, y, groups):
    """Score of each client; ``answers`` predicts for row positions."""
    pairs = zip(groups.clients, _positions(groups, len(y)), strict=True)
    return np.array(
        [_score(scorer, answers, rows, y, f"client {name!r}") for name, rows in pairs]
    )


def score_cells(scorer, answers, y, groups):
    """Score of each (client, class) cell that has rows."""
    scores = []
    for client, rows in zip(groups.clients, _positions(groups, len(y)), strict=True):
        for label in np.unique(y[rows]).tolist():
            cell = rows[y[rows] == label]
            name = f"class {label!r} of client {client!r}"
            scores.append(_score(scorer, answers, cell, y, name))
    return np.array(scores)


def _score(scorer, answers, rows, y, whose):
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", CLASSES_LACK)
            return float(scorer(answers, rows, y[rows]))
    except ValueError as error:
        raise ValueError(f"cannot score the rows of {whose}: {error}") from error


def _mean_or_nan(scorer, answers, y, groups):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        try:
            return float(score_cells(scorer, answers, y, groups).mean())
        except ValueError:
            return float("nan")


def _positions(groups, n_samples):
    positions = np.arange(n_samples)
    return [positions[rows] for rows in groups.rows]
