"""GridSearchCV with the defaults that federated data asks for."""

from contextlib import contextmanager
from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils._param_validation import Interval
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..alignment import FederatedOTAligner
from ..metrics import ClientScorer
from ._splitters import CellHoldoutKFold


def _best_estimator_has(method):
    def check(self):
        if hasattr(self, "best_estimator_"):
            return hasattr(self.best_estimator_, method)
        return hasattr(self.estimator, method)

    return check


class FederatedGridSearchCV(GridSearchCV):
    """Grid search that is not fooled by label shift.

    A thin subclass of :class:`~sklearn.model_selection.GridSearchCV` with other
    defaults: folds that also hold out whole (client, class) cells, a score that counts
    every such cell the same, errors that are raised, and a choice that prefers a
    ``tau`` close to the automatic one. Everything in it also works by hand.

    Read more in the :doc:`User Guide </user_guide/choosing_tau>`.

    Parameters
    ----------
    estimator : estimator object
        A Pipeline with a :class:`~skslot.FederatedOTAligner`, or a classifier with an
        ``aligner``.
    param_grid : dict or list of dict
        Parameters to search, such as ``{"aligner__tau": [0, 0.2, 0.4]}``.
    scoring : str, callable, list, tuple or dict, default=None
        None is ``ClientScorer(average="cell")``.
    cv : int, cross-validation generator or iterable, default=None
        None is ``CellHoldoutKFold()``, a number that with so many folds.
    tau_prior : float, default=0.3
        How strongly a ``tau`` close to the automatic one is preferred: the choice is
        the largest mean score minus ``tau_prior * (tau - tau_auto) ** 2``. 0 takes the
        largest mean score.
    refit : bool, str or callable, default=True
        As in GridSearchCV; with several scores, the name of the one to choose by. A
        callable replaces the choice described above.
    client_column : str or int, default=None
        Column of X that holds the ids, for the default ``scoring`` and ``cv``. None
        takes the ``client_column`` of the estimator; if that is None too, ids are
        passed as ``client_ids``, with metadata routing on.
    n_jobs : int, default=None
        Jobs in parallel.
    verbose : int, default=0
        As in GridSearchCV.
    pre_dispatch : int or str, default="2*n_jobs"
        As in GridSearchCV.
    error_score : "raise" or number, default="raise"
        As in GridSearchCV, but errors are raised by default.
    return_train_score : bool, default=False
        As in GridSearchCV.

    Attributes
    ----------
    tau_auto_ : float or None
        The automatic ``tau`` for all rows; None when the grid has no ``tau``.
    best_tau_ : float or None
        The ``tau`` that was chosen; the automatic one if that was "auto".
    cv_results_ : dict of numpy (masked) ndarrays
        As in GridSearchCV.
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
    skslot.metrics.make_client_scorer : The score.

    Examples
    --------
    >>> from sklearn import config_context
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
    >>> with config_context(enable_metadata_routing=True):
    ...     search.fit(
    ...         data.data[rows], data.target[rows], client_ids=data.client_ids[rows]
    ...     )
    FederatedGridSearchCV(...)
    >>> search.best_tau_ > 0
    True
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
        """Search, then fit the best candidate on all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels.
        **params : dict
            ``client_ids`` and whatever else is routed.

        Returns
        -------
        self : FederatedGridSearchCV
            The fitted search.
        """
        if "client_ids" in params and not get_config()["enable_metadata_routing"]:
            raise ValueError(
                "client_ids only reach the folds and the scorer by metadata routing; "
                "switch it on with sklearn.set_config(enable_metadata_routing=True)."
            )
        self.tau_auto_ = self._automatic_tau(X, y, params)
        with self._defaults_in_place():
            super().fit(X, y, **params)
        self.best_tau_ = None
        if hasattr(self, "best_index_"):  # not with several scores and refit=False
            if self._metric_to_choose_by() is not None:
                self.best_score_ = self._mean_scores()[self.best_index_]
            if self.tau_auto_ is not None:
                self.best_tau_ = float(self._taus(self.cv_results_)[self.best_index_])
        return self

    @available_if(_best_estimator_has("predict"))
    def predict(self, X, **params):
        """Predict with the best estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        **params : dict
            ``client_ids``, unless they are a column of X.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Predicted labels.
        """
        check_is_fitted(self)
        return self.best_estimator_.predict(X, **params)

    @available_if(_best_estimator_has("predict_proba"))
    def predict_proba(self, X, **params):
        """Probabilities from the best estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        **params : dict
            ``client_ids``, unless they are a column of X.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            One column per entry of ``classes_``.
        """
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X, **params)

    @available_if(_best_estimator_has("decision_function"))
    def decision_function(self, X, **params):
        """Scores from the best estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        **params : dict
            ``client_ids``, unless they are a column of X.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes) or (n_samples,)
            Decision function.
        """
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X, **params)

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        routing : MetadataRouter
            What is routed where, with the default scorer and folds.
        """
        with self._defaults_in_place():
            return super().get_metadata_routing()

    def summary(self):
        """Table of the results.

        Returns
        -------
        table : str
            Mean score of each candidate, the automatic tau, and what was chosen.
        """
        check_is_fitted(self)
        means = self._mean_scores()
        stds = self.cv_results_[f"std_test_{self._metric_shown()}"]
        best = getattr(self, "best_index_", None)
        lines = [f"{'':2}{'mean score':>10}{'+/-':>7}  parameters"]
        for index, params in enumerate(self.cv_results_["params"]):
            mark = ">" if index == best else " "
            text = ", ".join(f"{name}={value!r}" for name, value in params.items())
            lines.append(f"{mark:2}{means[index]:>10.3f}{stds[index]:>7.3f}  {text}")
        if self.best_tau_ is not None:
            taus = (
                f"automatic tau {self.tau_auto_:.2f}, chosen tau {self.best_tau_:.2f}"
            )
            rule = f"mean score - {self.tau_prior:g} * (tau - automatic)^2 is largest"
            is_ours = self._metric_to_choose_by() is not None
            lines.append(f"{taus}: {rule}" if is_ours else taus)
        return "\n".join(lines)

    @contextmanager
    def _defaults_in_place(self):
        """Stand the defaults in for None while GridSearchCV looks at the parameters."""
        given = self.scoring, self.cv, self.refit
        metric, column = self._metric_to_choose_by(), self._id_column()
        if self.scoring is None:
            self.scoring = ClientScorer(average="cell", client_column=column)
        self.cv = folds_of(self.cv, column)
        if metric is not None:
            self.refit = partial(self._choose, metric)
        try:
            yield
        finally:
            self.scoring, self.cv, self.refit = given

    def _id_column(self):
        """Column of X with the ids: as given, or as the estimator has it."""
        if self.client_column is not None:
            return self.client_column
        return client_column_of(self.estimator)

    def _metric_to_choose_by(self):
        """Name of the score in the results, or None if the choice is not ours."""
        one = self.scoring is None or isinstance(self.scoring, str)
        if one or callable(self.scoring):
            return "score" if self.refit is True else None
        is_name = isinstance(self.refit, str) and self.refit in self.scoring
        return self.refit if is_name else None

    def _metric_shown(self):
        if not self.multimetric_:
            return "score"
        return self.refit if isinstance(self.refit, str) else next(iter(self.scorer_))

    def _mean_scores(self):
        return self.cv_results_[f"mean_test_{self._metric_shown()}"]

    def _choose(self, metric, results):
        """Position of the candidate with the best score close to the automatic tau."""
        scores = results[f"mean_test_{metric}"]
        if self.tau_auto_ is not None:
            apart = self._taus(results) - self.tau_auto_
            scores = scores - self.tau_prior * np.square(apart)
        return int(np.nanargmax(scores))

    def _taus(self, results):
        """Strength that each candidate aligns with; 0 if it has no aligner."""
        path = aligner_path(self.estimator)
        own = self.estimator.get_params()[path]
        taus = []
        for params in results["params"]:
            tau = getattr(params.get(path, own), "tau", 0.0)
            tau = params.get(f"{path}__tau", tau)
            taus.append(self.tau_auto_ if tau == "auto" else tau)
        return np.array(taus, dtype=float)

    def _automatic_tau(self, X, y, params):
        """What tau="auto" is for all rows, if tau is searched at all."""
        path = aligner_path(self.estimator)
        name = f"{path}__tau"
        grids = (
            [self.param_grid] if isinstance(self.param_grid, dict) else self.param_grid
        )
        if not any(name in grid for grid in grids):
            return None
        estimator = clone(self.estimator).set_params(**{name: "auto"})
        taken = get_routing_for_object(estimator).consumes("fit", params)
        estimator.fit(X, y, **{key: params[key] for key in taken})
        aligner = estimator.get_params()[path]
        if aligner.__sklearn_is_fitted__():
            return aligner.tau_
        # inside a classifier the aligner is only a setting: its server step was run
        owner = path.rpartition("__")[0]
        return (estimator.get_params()[owner] if owner else estimator).reference_.tau


def aligner_path(estimator):
    """Name of the aligner among the parameters of an estimator, None without one."""
    params = estimator.get_params().items()
    return next((n for n, v in params if isinstance(v, FederatedOTAligner)), None)


def client_column_of(estimator):
    """Column of X from which an estimator or a part of it reads ids, None if none."""
    params = estimator.get_params().items()
    columns = (v for name, v in params if name.rpartition("__")[2] == "client_column")
    return next((column for column in columns if column is not None), None)


def folds_of(cv, client_column):
    """Folds that hold out cells for None and for a number; others as they are."""
    if cv is None:
        return CellHoldoutKFold(client_column=client_column)
    if isinstance(cv, Integral):
        return CellHoldoutKFold(cv, client_column=client_column)
    return cv
