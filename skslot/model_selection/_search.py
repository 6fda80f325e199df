"""GridSearchCV with the defaults that federated data asks for."""

from copy import copy
from functools import partial
from numbers import Integral, Real
from textwrap import fill

import numpy as np
from scipy.stats import sem
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._sklearn_compat import Interval, _num_samples
from .._utils import ignored, text_table, warn_user
from ..alignment import (
    AlignmentWarning,
    FederatedOTAligner,
    MixedEffectsAligner,
    automatic_tau,
)
from ..base import client_column_of, parameter_of_type, split_client_column
from ..metrics import ClientScorer
from ._splitters import CellHoldoutKFold

SCORE = (
    "accuracy of each (client, class) cell of the rows held out, averaged, so that "
    "every class counts the same at every client; what search.score gives, too"
)


class _CellsAndRows(ClientScorer):
    """The default score and the accuracy, from the same predictions.

    The names in the results are those of a single score, and some more. In place of
    scores that fail, scikit-learn inserts a single number, the ``error_score``, which
    does not fit a dict.
    """

    error_score = "raise"

    def score(self, estimator, X, y, client_ids=None):
        averages = {"score": "cell", "accuracy": "pooled"}
        try:
            parts = self._read(estimator, X, y, client_ids)
            return {k: self._average(each, *parts) for k, each in averages.items()}
        except Exception as error:
            if self.error_score == "raise":
                raise
            warn_user(f"scoring failed, error_score is taken: {error!r}")
            return dict.fromkeys(averages, self.error_score)


def _routed(params):
    """With ids among the parameters, let everybody who asks for them have them."""
    return config_context(
        enable_metadata_routing=True if "client_ids" in params else None
    )


def _best_estimator_has(method):
    def has(self):
        estimator = getattr(self, "best_estimator_", self.estimator)
        return self.refit is not False and hasattr(estimator, method)

    return has


class FederatedGridSearchCV(GridSearchCV):
    """Grid search that is not fooled by label shift.

    A thin subclass of :class:`~sklearn.model_selection.GridSearchCV` with other
    defaults: folds that also hold out whole (client, class) cells, a score that counts
    every such cell the same, errors that are raised, and a choice that prefers a
    ``tau`` close to the automatic one. Everything in it also works by hand. ``fit``,
    ``score``, ``predict`` and its other methods take ``client_ids``, unless they are a
    column of X, and need no metadata routing for it: they switch it on for themselves.

    Read more in the :doc:`User Guide </user_guide/choosing_tau>`.

    Parameters
    ----------
    estimator : estimator object
        A Pipeline with a :class:`~skslot.FederatedOTAligner`, or a classifier with an
        ``aligner``. Others can be searched as well, without a preference for a ``tau``.
    param_grid : dict or list of dict
        Parameters to search, such as ``{"aligner__tau": [0, 0.2, 0.4]}``.
    scoring : str, callable, list, tuple or dict, default=None
        None is ``ClientScorer(average="cell")``, which is also what ``score``
        gives; ``cv_results_`` then has the plain accuracy on the same rows beside it.
    cv : int, cross-validation generator or iterable, default=None
        None means ``CellHoldoutKFold()``, an int ``CellHoldoutKFold(n_splits)``.
    tau_prior : float, default=0.3
        How strongly a ``tau`` close to the automatic one is preferred: the choice is
        the largest mean score minus ``tau_prior * (tau - tau_auto) ** 2``. 0 takes the
        largest mean score. This is about the ``tau`` of optimal transport; that of
        mixed effects means something else, and is chosen by score alone.
    refit : bool, str or callable, default=True
        As in GridSearchCV; with several scores, the name of the one to choose by. A
        callable replaces the choice described above, and False only leaves out the fit.
    client_column : str or int, default=None
        Column of X that holds the ids, for the default ``scoring`` and ``cv``. None
        takes the ``client_column`` of the estimator; if that is None too, ids are
        passed as ``client_ids``.
    n_jobs : int, default=None
        Jobs in parallel.
    verbose : int, default=0
        1 prints how many fits there will be, 2 the time of each as it is done, 3 its
        scores too.
    pre_dispatch : int or str, default="2*n_jobs"
        As in GridSearchCV.
    error_score : "raise" or number, default="raise"
        As in GridSearchCV, but errors are raised by default.
    return_train_score : bool, default=False
        As in GridSearchCV.

    Attributes
    ----------
    tau_auto_ : float or None
        The automatic ``tau`` for all rows; None when the grid has no ``tau`` of a
        :class:`~skslot.FederatedOTAligner`.
    best_tau_ : float or None
        The ``tau`` that was chosen; the automatic one if that was "auto". None when the
        grid has no such ``tau``, or the best candidate has another aligner.
    cv_results_ : dict of numpy (masked) ndarrays
        As in GridSearchCV. With the default ``scoring`` there is also
        ``"mean_test_accuracy"``, the share of the rows held out that are right, with
        its standard deviation, its rank and the folds.
    best_estimator_ : estimator
        The estimator with the best parameters, fitted on all rows.
    best_params_ : dict
        The best parameters.
    best_index_ : int
        Their position in ``cv_results_``.
    best_score_ : float
        Their mean score, without the preference for a ``tau``; not with a callable
        ``refit``.

    See Also
    --------
    CellHoldoutKFold : The folds.
    skslot.metrics.ClientScorer : The score.

    Examples
    --------
    >>> from skslot import FedCGSClassifier, FederatedOTAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.model_selection import (
    ...     FederatedGridSearchCV,
    ...     dirichlet_label_shift,
    ... )
    >>> data = load_digit_scanners()
    >>> rows = dirichlet_label_shift(data.target, data.client_ids, 0.1, random_state=0)
    >>> search = FederatedGridSearchCV(
    ...     FedCGSClassifier(aligner=FederatedOTAligner()),
    ...     {"aligner__tau": [0, 0.2, 0.4, 0.6]},
    ... )
    >>> X, y, site = data.data[rows], data.target[rows], data.client_ids[rows]
    >>> search.fit(X, y, client_ids=site)
    FederatedGridSearchCV(...)
    >>> search.best_tau_ > 0
    True
    >>> search.predict(X[:3], client_ids=site[:3]).shape
    (3,)
    """

    _parameter_constraints: dict = {
        **GridSearchCV._parameter_constraints,
        "tau_prior": [Interval(Real, 0, None, closed="left")],
        "client_column": [str, Integral, None],
    }

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        scoring=None,
        cv=None,
        tau_prior=0.3,
        refit=True,
        client_column=None,
        n_jobs=None,
        verbose=0,
        pre_dispatch="2*n_jobs",
        error_score="raise",
        return_train_score=False,
    ):
        super().__init__(
            estimator,
            param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.tau_prior = tau_prior
        self.client_column = client_column

    def fit(self, X, y=None, **params):
        self._validate_params()
        with _routed(params), ignored(AlignmentWarning):  # which advises a search
            self.tau_auto_ = self._automatic_tau(X, y, params)
            search = self._with_defaults()
            GridSearchCV.fit(search, X, y, **params)
        vars(self).update({k: v for k, v in vars(search).items() if k[-1] == "_"})
        if self.scoring is None:  # the accuracy beside it is for who looks at it
            self.multimetric_ = False
            self.scorer_ = ClientScorer(**self.scorer_.get_params())
        metric = self._metric_to_choose_by()
        if metric is not None:
            self.best_index_ = self._choose(metric, self.cv_results_)
            self.best_params_ = self.cv_results_["params"][self.best_index_]
            self.best_score_ = self.cv_results_[f"mean_test_{metric}"][self.best_index_]
        self.best_tau_ = None
        # there may be no choice with several scores, and no tau
        if hasattr(self, "best_index_") and self.tau_auto_ is not None:
            best = float(self._taus(self.cv_results_)[self.best_index_])
            self.best_tau_ = None if np.isnan(best) else best
        return self

    def score(self, X, y=None, **params):
        with _routed(params):
            return super().score(X, y, **params)

    @available_if(_best_estimator_has("predict"))
    def predict(self, X, **params):
        return self._ask("predict", X, params)

    @available_if(_best_estimator_has("predict_proba"))
    def predict_proba(self, X, **params):
        return self._ask("predict_proba", X, params)

    @available_if(_best_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X, **params):
        return self._ask("predict_log_proba", X, params)

    @available_if(_best_estimator_has("decision_function"))
    def decision_function(self, X, **params):
        return self._ask("decision_function", X, params)

    @available_if(_best_estimator_has("transform"))
    def transform(self, X, **params):
        return self._ask("transform", X, params)

    def _ask(self, method, X, params):
        check_is_fitted(self)
        with _routed(params):
            return getattr(self.best_estimator_, method)(X, **params)

    def get_metadata_routing(self):
        return GridSearchCV.get_metadata_routing(self._with_defaults())

    def summary(self):
        """Return the results as a table.

        Returns
        -------
        table : str
            Mean score of each candidate, its standard deviation over the folds and what
            was chosen, with the meaning of all of it. For the default ``scoring`` also
            the accuracy on the same rows, and the automatic tau if there is one. A line
            says so if another candidate has a larger mean score by more than a standard
            error of the difference.
        """
        check_is_fitted(self, "cv_results_")
        metric = "score"
        if self.multimetric_:
            is_name = isinstance(self.refit, str)
            metric = self.refit if is_name else next(iter(self.scorer_))
        columns = {f"mean {metric}": "mean_test_" + metric, "+/-": "std_test_" + metric}
        if self.scoring is None:
            columns["accuracy"] = "mean_test_accuracy"
        best = getattr(self, "best_index_", None)
        rows = [["", *columns, "parameters"]]
        for index, params in enumerate(self.cv_results_["params"]):
            numbers = [f"{self.cv_results_[k][index]:.3f}" for k in columns.values()]
            text = ", ".join(f"{name}={value!r}" for name, value in params.items())
            rows.append([">" if index == best else "", *numbers, text])
        table = text_table(rows, "l" + "r" * len(columns) + "l")
        legend = [f"{sign}: {meaning}" for sign, meaning in self._legend(metric)]
        lines = [fill(line, 88, subsequent_indent="   ") for line in legend]
        return "\n".join([table, *lines])

    def _legend(self, metric):
        """What the columns of the table and the mark in it mean."""
        if self.scoring is None:
            yield f"mean {metric}", SCORE
            yield "accuracy", "share of the same rows that are right"
        yield "+/-", f"standard deviation of the {metric} over {self.n_splits_} folds"
        if self._metric_to_choose_by() is not None:
            yield ">", self._reason(self._metric_to_choose_by())
            yield from self._doubts(self._metric_to_choose_by())
        if self.best_tau_ is not None:
            yield "tau", f"automatic {self.tau_auto_:.2f}, chosen {self.best_tau_:.2f}"

    def _reason(self, metric):
        """Why the marked row was chosen."""
        if self.tau_auto_ is None or not self.tau_prior:
            return f"largest mean {metric}"
        return (
            f"largest mean {metric} - {self.tau_prior:g} * (tau - automatic)^2; a tau "
            f"close to the automatic one is preferred, so another mean {metric} may be "
            "larger"
        )

    def _doubts(self, metric):
        """That another row is better than the chosen one by more than chance."""
        results, chosen = self.cv_results_, self.best_index_
        means = results[f"mean_test_{metric}"]
        best = int(np.argmax(np.where(np.isnan(means), -np.inf, means)))
        folds = [results[f"split{k}_test_{metric}"] for k in range(self.n_splits_)]
        ahead = np.array([fold[best] - fold[chosen] for fold in folds])
        if len(ahead) < 2 or not ahead.mean() > sem(ahead):
            return
        params = results["params"][best]
        text = ", ".join(f"{name}={value!r}" for name, value in params.items())
        yield (
            "!",
            f"the mean {metric} of {text} is larger by {ahead.mean():.3f} +/- "
            f"{sem(ahead):.3f} (standard error over the folds) than that of the chosen "
            "row; tau_prior=0 would choose it",
        )

    def _with_defaults(self):
        """The search that runs, with our defaults in the place of None.

        A copy, which has what was set beside parameters, such as callbacks.
        """
        metric, column = self._metric_to_choose_by(), self.client_column
        if column is None:
            column = client_column_of(self.estimator)
        search = copy(self)
        search.cv = CellHoldoutKFold.of(self.cv, client_column=column)
        if self.scoring is None:
            search.scoring = _CellsAndRows(average="cell", client_column=column)
            search.scoring.error_score = self.error_score
        if metric is not None and self.refit:
            search.refit = partial(self._choose, metric)
        return search

    def _metric_to_choose_by(self):
        """Name of the score in the results, or None if the choice is not ours."""
        if callable(self.refit):
            return None
        if self.scoring is None and self.refit == "accuracy":
            return "accuracy"
        if self.scoring is None or isinstance(self.scoring, str):
            return "score"
        if callable(self.scoring):  # which may have several, with names of its own
            return "score" if self.refit is True else None
        is_name = isinstance(self.refit, str) and self.refit in self.scoring
        return self.refit if is_name else None

    def _choose(self, metric, results):
        """Position of the candidate with the best score close to the automatic tau."""
        scores = results[f"mean_test_{metric}"]
        if self.tau_auto_ is not None:
            apart = np.nan_to_num(self._taus(results) - self.tau_auto_)
            scores = scores - self.tau_prior * np.square(apart)
        return int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))

    def _taus(self, results):
        """Strength of each candidate: 0 without aligner, NaN with mixed effects."""
        path = parameter_of_type(self.estimator, FederatedOTAligner)
        own = self.estimator.get_params()[path]
        taus = []
        for params in results["params"]:
            aligner = params.get(path, own)
            tau = params.get(f"{path}__tau", getattr(aligner, "tau", 0.0))
            if isinstance(aligner, MixedEffectsAligner):
                tau = np.nan
            taus.append(self.tau_auto_ if tau == "auto" else tau)
        return np.array(taus, dtype=float)

    def _automatic_tau(self, X, y, params):
        """What tau="auto" is for all rows, if tau is searched at all."""
        path = parameter_of_type(self.estimator, FederatedOTAligner)
        candidates = ParameterGrid(self.param_grid)
        if not any(f"{path}__tau" in candidate for candidate in candidates):
            return None
        rows, reader = rows_at(path, clone(self.estimator), X, y, params)
        ids = params.get("client_ids")
        if reader.client_column is not None:
            rows, ids, _ = split_client_column(rows, reader.client_column)
        if ids is None:  # as in fit, all rows are of one client; folds may refuse that
            ids = np.zeros(_num_samples(rows), dtype=int)
        return automatic_tau(rows, y, ids)


def rows_at(path, estimator, X, y, params):
    """Rows as they reach the part of an estimator at ``path``, and who reads their ids.

    Steps of a Pipeline before that part are fitted; the part itself, and what comes
    after it, is not.
    """
    name, _, rest = path.partition("__")
    if isinstance(estimator, Pipeline):
        names = [step for step, _ in estimator.steps]
        before = estimator[: names.index(name)]
        if len(before):
            taken = get_routing_for_object(before).consumes("fit_transform", params)
            X = before.fit_transform(X, y, **{key: params[key] for key in taken})
    part = estimator.get_params()[name]
    if rest:
        return rows_at(rest, part, X, y, params)
    # an aligner inside a classifier leaves ids to that
    return X, estimator if hasattr(estimator, "client_column") else part
