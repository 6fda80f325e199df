"""How good predictions are at each client, as a table and as a scorer."""

import inspect
import warnings
from dataclasses import dataclass
from numbers import Integral
from types import SimpleNamespace

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer, make_scorer
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if

from .._docstrings import document
from .._sklearn_compat import StrOptions
from .._utils import text_table
from ..base import ClientGroups, clients_array, remedy, split_client_column

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
        Prints as a table; ``to_frame()`` is a pandas DataFrame with a row per client.
        It has these attributes:

        clients : ndarray of shape (n_clients,)
            Client ids.
        counts : ndarray of shape (n_clients,)
            Rows of each client.
        scores : ndarray of shape (n_clients,)
            Score of each client.
        mean : float
            Macro mean over clients.
        std : float
            Population standard deviation over clients, as the SLOT-Align paper reports
            it.
        worst : float
            Lowest score of a client.
        worst_client : object
            Client with the lowest score.
        cell_mean : float
            Mean score over all (client, class) cells that have rows: every class counts
            the same at every client. NaN where the metric is not defined for a single
            class.

    See Also
    --------
    ClientScorer : The same as a scorer for GridSearchCV.

    Examples
    --------
    >>> from skslot.metrics import client_scores
    >>> scores = client_scores([0, 1, 0, 1], [0, 1, 1, 1], ["A", "A", "B", "B"])
    >>> scores
    client     rows  score
    A             2  1.000
    B             2  0.500
    mean             0.750
    std              0.250
    worst (B)        0.500
    cells            0.750
    >>> scores.mean, scores.worst_client
    (0.75, 'B')
    """
    y_true, y_pred = column_or_1d(y_true), column_or_1d(y_pred)
    check_consistent_length(y_true, y_pred)
    groups = ClientGroups.from_ids(client_ids, len(y_true))
    classifier = SimpleNamespace(classes_=np.union1d(y_true, y_pred))
    answers = _Answers(classifier, known={"predict": y_pred})
    scorer = _as_scorer(metric)
    try:
        scores = score_clients(scorer, answers, y_true, groups)
    except AttributeError as error:
        raise ValueError(
            f"metric={metric!r} wants more than predicted labels, such as "
            "probabilities; use ClientScorer, which asks the estimator."
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            cell_mean = float(score_cells(scorer, answers, y_true, groups).mean())
    except ValueError:
        cell_mean = float("nan")
    counts = np.array([len(rows) for _, rows in groups.items()])
    return ClientScores(clients_array(groups.clients), counts, scores, cell_mean)


@dataclass(frozen=True, eq=False)
class ClientScores:
    """Score of each client, described in :func:`client_scores`."""

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
        """Return the rows and the score of each client as a pandas DataFrame."""
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
        rows = [("client", "rows", "score")]
        for client, count, score in zip(
            self.clients, self.counts, self.scores, strict=True
        ):
            rows.append((str(client), str(count), f"{score:.3f}"))
        rows += [(name, "", f"{score:.3f}") for name, score in summary.items()]
        return text_table(rows)


@document
class ClientScorer(BaseEstimator):
    """Scorer that scores each client and averages.

    Use it as the ``scoring`` of GridSearchCV, cross_validate and the like. Called as
    ``scorer(estimator, X, y, client_ids=None)``, it returns a float; greater is better.
    It passes the ids on to the estimator, and metadata routing passes ``client_ids`` to
    the scorer without a request.

    Parameters
    ----------
    metric : str or callable, default="accuracy"
        Name of a scorer of scikit-learn, a scorer, or a function ``metric(y_true,
        y_pred)``.
    average : {"client", "cell", "worst", "pooled"}, default="client"
        Macro mean over clients; mean over (client, class) cells; lowest client; or the
        metric of all rows together.
    {client_column}

    See Also
    --------
    client_scores : Scores of each client, from predictions.

    Examples
    --------
    >>> from sklearn import config_context
    >>> from sklearn.model_selection import cross_validate
    >>> from skslot import FedCGSClassifier, FederatedOTAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.metrics import ClientScorer
    >>> data = load_digit_scanners()
    >>> with config_context(enable_metadata_routing=True):
    ...     result = cross_validate(
    ...         FedCGSClassifier(aligner=FederatedOTAligner()),
    ...         data.data,
    ...         data.target,
    ...         params={"client_ids": data.client_ids},
    ...         scoring=ClientScorer(average="worst"),
    ...     )
    >>> bool(result["test_score"].mean() > 0.7)
    True
    """

    # A BaseEstimator, so that metadata routing sees that it requests client_ids.
    __metadata_request__score = {"client_ids": True}

    _parameter_constraints: dict = {
        "metric": [str, callable],
        "average": [StrOptions({"client", "cell", "worst", "pooled"})],
        "client_column": [str, Integral, None],
    }

    def __init__(self, metric="accuracy", average="client", *, client_column=None):
        self.metric = metric
        self.average = average
        self.client_column = client_column

    def __call__(self, estimator, X, y, client_ids=None):
        return self.score(estimator, X, y, client_ids=client_ids)

    def score(self, estimator, X, y, client_ids=None):
        """Score a fitted classifier, as calling the scorer does.

        Parameters
        ----------
        estimator : estimator object
            The fitted classifier.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row, unless they are a column of X.

        Returns
        -------
        score : float
            The average; greater is better.
        """
        return self._average(self.average, *self._read(estimator, X, y, client_ids))

    def score_by_client(self, estimator, X, y, client_ids=None):
        """Score a fitted classifier at each client, without an average.

        Parameters
        ----------
        estimator : estimator object
            The fitted classifier.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row, unless they are a column of X.

        Returns
        -------
        scores : dict
            Score of each client that has rows.
        """
        scorer, answers, y, groups = self._read(estimator, X, y, client_ids)
        scores = score_clients(scorer, answers, y, groups).tolist()
        return dict(zip(groups.clients, scores, strict=True))

    def _average(self, average, scorer, answers, y, groups):
        """Average scores of clients or cells, or score all rows together."""
        if average == "pooled":
            return float(scorer(answers, np.arange(len(y)), y))
        score = score_cells if average == "cell" else score_clients
        scores = score(scorer, answers, y, groups)
        return float(scores.min() if average == "worst" else scores.mean())

    def _read(self, estimator, X, y, client_ids):
        """Metric, predictions and labels of the rows, and whose they are."""
        self._validate_params()
        if self.client_column is not None:
            ids = split_client_column(X, self.client_column, client_ids)[1]
        elif client_ids is not None:
            ids = client_ids
        else:
            raise ValueError(f"this scorer got no client_ids. {remedy()}")
        # predict of a search takes no ids, that of the estimator it found does
        estimator = getattr(estimator, "best_estimator_", estimator)
        answers, y = _Answers(estimator, X, client_ids), np.asarray(y)
        return _as_scorer(self.metric), answers, y, ClientGroups.from_ids(ids, len(y))


def _as_scorer(metric):
    """Make a scorer ``(estimator, X, y) -> float`` of a name, a scorer or a metric."""
    if isinstance(metric, str):
        return _accuracy if metric == "accuracy" else get_scorer(metric)
    if not callable(metric):
        raise ValueError(
            "metric must be the name of a scorer, a scorer, or a function of y_true "
            f"and y_pred; got {metric!r}."
        )
    first = next(iter(inspect.signature(metric).parameters), None)
    return metric if first == "estimator" else make_scorer(metric)


def _accuracy(answers, rows, y):
    """What scikit-learn's scorer says, without its checks for each of many cells."""
    predicted = answers.predict(rows)
    kinds = {predicted.dtype.kind, y.dtype.kind}
    if len(kinds) == 1 and kinds <= set("biuUS"):
        return np.mean(predicted == y)
    return get_scorer("accuracy")(answers, rows, y)


def _has(method):
    return lambda self: hasattr(self.estimator, method)


class _Answers(ClassifierMixin, BaseEstimator):
    """Predictions for all rows behind the face of a classifier; X is row positions.

    Each method of the estimator is called once for all rows and only when a metric
    wants it, with ids if the estimator takes any. ``known`` has what it would answer.
    """

    def __init__(self, estimator, X=None, client_ids=None, known=None):
        self.estimator = estimator
        self.X = X
        self.client_ids = client_ids
        self.known = {} if known is None else known

    @property
    def classes_(self):
        return self.estimator.classes_

    def predict(self, rows):
        return self._ask("predict")[rows]

    @available_if(_has("predict_proba"))
    def predict_proba(self, rows):
        return self._ask("predict_proba")[rows]

    @available_if(_has("decision_function"))
    def decision_function(self, rows):
        return self._ask("decision_function")[rows]

    def _ask(self, method):
        if method not in self.known:
            ids = {} if self.client_ids is None else {"client_ids": self.client_ids}
            taken = get_routing_for_object(self.estimator).consumes(method, ids)
            ids = {name: ids[name] for name in taken}
            self.known[method] = getattr(self.estimator, method)(self.X, **ids)
        return self.known[method]


def score_clients(scorer, answers, y, groups):
    """Score each client; ``answers`` predicts for row positions."""
    scores = []
    for client, rows in groups.items():
        scores.append(_score(scorer, answers, rows, y, f"client {client!r}"))
    return np.array(scores)


def score_cells(scorer, answers, y, groups):
    """Score each (client, class) cell that has rows."""
    scores = []
    for client, rows in groups.items():
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
