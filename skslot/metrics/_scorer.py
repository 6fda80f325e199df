"""A scorer that knows which client a row comes from."""

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if

from .._clients import REMEDY, ClientGroups, split_client_column
from ._client_scores import score_cells, score_clients
from ._metric import as_scorer

AVERAGES = ("client", "cell", "worst", "pooled")


def make_client_scorer(metric="accuracy", average="client", *, client_column=None):
    """Make a scorer that scores each client and averages.

    Parameters
    ----------
    metric : str or callable, default="accuracy"
        Name of a scorer of scikit-learn, a scorer, or a function ``metric(y_true,
        y_pred)``.
    average : {"client", "cell", "worst", "pooled"}, default="client"
        Macro mean over clients; mean over (client, class) cells; lowest client; or the
        metric of all rows together.
    client_column : str or int, default=None
        Column of X that holds the ids, for estimators that read it too. None means
        that ids are passed as ``client_ids``.

    Returns
    -------
    scorer : ClientScorer
        For the ``scoring`` of GridSearchCV, cross_validate and the like.

    See Also
    --------
    client_scores : Scores of each client, from predictions.

    Examples
    --------
    >>> from sklearn import config_context
    >>> from sklearn.model_selection import cross_validate
    >>> from skslot import FedCGSClassifier, FederatedOTAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.metrics import make_client_scorer
    >>> data = load_digit_scanners()
    >>> with config_context(enable_metadata_routing=True):
    ...     result = cross_validate(
    ...         FedCGSClassifier(aligner=FederatedOTAligner()),
    ...         data.data,
    ...         data.target,
    ...         params={"client_ids": data.client_ids},
    ...         scoring=make_client_scorer(average="worst"),
    ...     )
    >>> bool(result["test_score"].mean() > 0.7)
    True
    """
    return ClientScorer(metric, average, client_column=client_column)


class ClientScorer(BaseEstimator):
    """Scorer that hands client ids to the estimator and averages over clients.

    Parameters
    ----------
    metric : str or callable, default="accuracy"
        Name of a scorer of scikit-learn, a scorer, or a function ``metric(y_true,
        y_pred)``.
    average : {"client", "cell", "worst", "pooled"}, default="client"
        Macro mean over clients; mean over (client, class) cells; lowest client; or the
        metric of all rows together.
    client_column : str or int, default=None
        Column of X that holds the ids. None means that ids are passed.

    See Also
    --------
    make_client_scorer : The usual way to make one.

    Notes
    -----
    A BaseEstimator, so that scikit-learn's metadata routing sees that it requests
    ``client_ids``.

    Examples
    --------
    >>> from skslot.metrics import ClientScorer
    >>> ClientScorer(average="cell")
    ClientScorer(average='cell')
    """

    __metadata_request__score = {"client_ids": True}

    _parameter_constraints: dict = {
        "metric": [str, callable],
        "average": [StrOptions(set(AVERAGES))],
        "client_column": [str, Integral, None],
    }

    def __init__(self, metric="accuracy", average="client", *, client_column=None):
        self.metric = metric
        self.average = average
        self.client_column = client_column

    def __call__(self, estimator, X, y, client_ids=None):
        """Score an estimator.

        Parameters
        ----------
        estimator : object
            A fitted classifier.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row, unless ``client_column`` is set.

        Returns
        -------
        score : float
            The score; greater is better.
        """
        return self.score(estimator, X, y, client_ids=client_ids)

    def score(self, estimator, X, y, client_ids=None):
        """Score an estimator; what calling the scorer does.

        Parameters
        ----------
        estimator : object
            A fitted classifier.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row, unless ``client_column`` is set.

        Returns
        -------
        score : float
            The score; greater is better.
        """
        self._validate_params()
        scorer, y = as_scorer(self.metric), np.asarray(y)
        groups = ClientGroups.from_ids(self._ids(X, client_ids), len(y))
        # predict of a search takes no ids, that of the estimator it found does
        estimator = getattr(estimator, "best_estimator_", estimator)
        answers = _LazyAnswers(estimator, X, client_ids)
        if self.average == "pooled":
            return float(scorer(answers, np.arange(len(y)), y))
        if self.average == "cell":
            return float(score_cells(scorer, answers, y, groups).mean())
        scores = score_clients(scorer, answers, y, groups)
        return float(scores.min() if self.average == "worst" else scores.mean())

    def _ids(self, X, client_ids):
        if self.client_column is not None:
            if client_ids is not None:
                raise ValueError(
                    "ids came both as client_ids and as client_column="
                    f"{self.client_column!r}; use one of the two."
                )
            return split_client_column(X, self.client_column)[1]
        if client_ids is None:
            raise ValueError(f"this scorer got no client_ids. {REMEDY}")
        return client_ids


def _has(method):
    return lambda self: hasattr(self.estimator, method)


class _LazyAnswers(ClassifierMixin, BaseEstimator):
    """What an estimator says about all rows, asked for by row positions.

    Each method of the estimator is called once for all rows and only when a metric
    wants it, with ids if the estimator takes any.
    """

    def __init__(self, estimator, X, client_ids):
        self.estimator = estimator
        self.X = X
        self.client_ids = client_ids
        self._known = {}

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
        if method not in self._known:
            ids = {} if self.client_ids is None else {"client_ids": self.client_ids}
            routing = get_routing_for_object(self.estimator)
            taken = routing.consumes(method, ids.keys())
            ids = {name: ids[name] for name in taken}
            self._known[method] = getattr(self.estimator, method)(self.X, **ids)
        return self._known[method]
