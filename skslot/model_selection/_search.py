"""GridSearchCV with the defaults that federated data asks for."""

from functools import partial
from inspect import signature
from numbers import Integral, Real

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._clients import split_client_column
from .._sklearn_compat import Interval, _num_samples
from .._text import text_table
from .._warnings import ignored
from ..alignment import (
    AlignmentWarning,
    FederatedOTAligner,
    MixedEffectsAligner,
    automatic_tau,
)
from ..metrics import make_client_scorer
from ._splitters import CellHoldoutKFold

GRID_SEARCH_PARAMS = tuple(signature(GridSearchCV).parameters)


def _best_estimator_has(method):
    def has(self):
        return hasattr(getattr(self, "best_estimator_", self.estimator), method)

    return has


class FederatedGridSearchCV(GridSearchCV):
    """Grid search that is not fooled by label shift.

    A thin subclass of :class:`~sklearn.model_selection.GridSearchCV` with other
    defaults: folds that also hold out whole (client, class) cells, a score that counts
    every such cell the same, errors that are raised, and a choice that prefers a
    ``tau`` close to the automatic one. Everything in it also works by hand. Its
    ``fit``, ``predict``, ``predict_proba`` and ``decision_function`` take
    ``client_ids``, unless they are a column of X.

    Read more in the :doc:`User Guide </user_guide/choosing_tau>`.

    Parameters
    ----------
    estimator : estimator object
        A Pipeline with a :class:`~skslot.FederatedOTAligner`, or a classifier with an
        ``aligner``. Others can be searched as well, without a preference for a ``tau``.
    param_grid : dict or list of dict
        Parameters to search, such as ``{"aligner__tau": [0, 0.2, 0.4]}``.
    scoring : str, callable, list, tuple or dict, default=None
        None is ``make_client_scorer(average="cell")``.
    cv : int, cross-validation generator or iterable, default=None
        None means ``CellHoldoutKFold()``, an int ``CellHoldoutKFold(n_splits)``.
    tau_prior : float, default=0.3
        How strongly a ``tau`` close to the automatic one is preferred: the choice is
        the largest mean score minus ``tau_prior * (tau - tau_auto) ** 2``. 0 takes the
        largest mean score. This is about the ``tau`` of optimal transport; that of
        mixed effects means something else, and is chosen by score alone.
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
        The automatic ``tau`` for all rows; None when the grid has no ``tau`` of a
        :class:`~skslot.FederatedOTAligner`.
    best_tau_ : float or None
        The ``tau`` that was chosen; the automatic one if that was "auto". None when the
        grid has no such ``tau``, or the best candidate has another aligner.
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
        if "client_ids" in params and not get_config()["enable_metadata_routing"]:
            raise ValueError(
                "client_ids only reach the folds and the scorer by metadata routing; "
                "switch it on with sklearn.set_config(enable_metadata_routing=True)."
            )
        self._validate_params()
        self.tau_auto_ = self._automatic_tau(X, y, params)
        with ignored(AlignmentWarning):  # the search is what it advises
            search = self._with_defaults().fit(X, y, **params)
        vars(self).update({k: v for k, v in vars(search).items() if k[-1] == "_"})
        self.best_tau_ = None
        if hasattr(self, "best_index_"):  # not with several scores and refit=False
            metric = self._metric_to_choose_by()
            if metric is not None:
                means = self.cv_results_[f"mean_test_{metric}"]
                self.best_score_ = means[self.best_index_]
            if self.tau_auto_ is not None:
                best = float(self._taus(self.cv_results_)[self.best_index_])
                self.best_tau_ = None if np.isnan(best) else best
        return self

    @available_if(_best_estimator_has("predict"))
    def predict(self, X, **params):
        check_is_fitted(self)
        return self.best_estimator_.predict(X, **params)

    @available_if(_best_estimator_has("predict_proba"))
    def predict_proba(self, X, **params):
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X, **params)

    @available_if(_best_estimator_has("decision_function"))
    def decision_function(self, X, **params):
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X, **params)

    def get_metadata_routing(self):
        return self._with_defaults().get_metadata_routing()

    def summary(self):
        """Return the results as a table.

        Returns
        -------
        table : str
            Mean score of each candidate, the automatic tau, and what was chosen.
        """
        check_is_fitted(self)
        metric, chosen_by = "score", self._metric_to_choose_by()
        if self.multimetric_:
            is_name = isinstance(self.refit, str)
            metric = self.refit if is_name else next(iter(self.scorer_))
        means, stds = (self.cv_results_[f"{k}_test_{metric}"] for k in ("mean", "std"))
        best = getattr(self, "best_index_", None)
        rows = [["", "mean score", "+/-", "parameters"]]
        for index, params in enumerate(self.cv_results_["params"]):
            mark = ">" if index == best else ""
            text = ", ".join(f"{name}={value!r}" for name, value in params.items())
            rows.append([mark, f"{means[index]:.3f}", f"{stds[index]:.3f}", text])
        table = text_table(rows, "lrrl")
        if self.best_tau_ is None:
            return table
        taus = f"automatic tau {self.tau_auto_:.2f}, chosen tau {self.best_tau_:.2f}"
        rule = f": mean score - {self.tau_prior:g} * (tau - automatic)^2 is largest"
        return f"{table}\n{taus}{rule if chosen_by is not None else ''}"

    def _with_defaults(self):
        """The GridSearchCV that runs, with our defaults in the place of None."""
        metric, column = self._metric_to_choose_by(), self.client_column
        if column is None:
            column = client_column_of(self.estimator)
        params = {name: getattr(self, name) for name in GRID_SEARCH_PARAMS}
        params["cv"] = folds_of(self.cv, column)
        if self.scoring is None:
            params["scoring"] = make_client_scorer(average="cell", client_column=column)
        if metric is not None:
            params["refit"] = partial(self._choose, metric)
        return GridSearchCV(**params)

    def _metric_to_choose_by(self):
        """Name of the score in the results, or None if the choice is not ours."""
        one = self.scoring is None or isinstance(self.scoring, str)
        if one or callable(self.scoring):
            return "score" if self.refit is True else None
        is_name = isinstance(self.refit, str) and self.refit in self.scoring
        return self.refit if is_name else None

    def _choose(self, metric, results):
        """Position of the candidate with the best score close to the automatic tau."""
        scores = results[f"mean_test_{metric}"]
        if self.tau_auto_ is not None:
            apart = np.nan_to_num(self._taus(results) - self.tau_auto_)
            scores = scores - self.tau_prior * np.square(apart)
        return int(np.nanargmax(scores))

    def _taus(self, results):
        """Strength of each candidate: 0 without aligner, NaN with mixed effects."""
        path = aligner_path(self.estimator)
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
        path = aligner_path(self.estimator)
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


def aligner_path(estimator, kinds=FederatedOTAligner):
    """Name of the aligner among the parameters of an estimator, None without one."""
    params = estimator.get_params().items()
    return next((n for n, v in params if isinstance(v, kinds)), None)


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
