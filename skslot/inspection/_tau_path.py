"""Scores over the alignment strength."""

from itertools import cycle

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import check_cv, cross_validate
from sklearn.utils.validation import check_is_fitted

from ..alignment import FederatedOTAligner, MixedEffectsAligner
from ..base import (
    ClientGroups,
    client_column_of,
    clients_array,
    parameter_of_type,
    split_client_column,
)
from ..classifiers import MixedEffectsClassifier
from ..metrics import ClientScorer
from ..model_selection import CellHoldoutKFold
from ._drawing import (
    CLIENT_COLOURS,
    OTHERS,
    Display,
    as_drawn,
    axes_for,
    legend_outside,
)

OTHER_STYLES = "--", "-.", (0, (1, 3))


class TauPathDisplay(Display):
    """Score of each client, their mean and the worst, over ``tau``.

    Use :meth:`from_estimator`, or :meth:`from_search` after a search. The default
    ``tau`` of the aligner and the chosen one are marked. Estimators without a ``tau``
    can be compared, as horizontal lines.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    taus : list of float
        Alignment strengths, ascending.
    scores : ndarray of shape (n_taus, n_clients)
        Score of each client.
    clients : ndarray of shape (n_clients,)
        Client ids.
    chosen_tau : float or None
        The chosen strength, or None.
    metric : str, default="score"
        Name of the score.
    default_tau : float or None, default=0.4
        The default strength, or None if it is not a number.
    other_scores : dict of ndarray of shape (n_clients,), default=None
        Score of each client with other estimators, by name.

    Attributes
    ----------
    mean : ndarray of shape (n_taus,)
        Mean over clients.
    worst : ndarray of shape (n_taus,)
        Lowest score of a client.
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    skslot.model_selection.FederatedGridSearchCV : Chooses ``tau``.

    Examples
    --------
    >>> from skslot import FedCGSClassifier, FederatedOTAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.model_selection import paper_split
    >>> from skslot.inspection import TauPathDisplay
    >>> data = load_digit_scanners()
    >>> display = TauPathDisplay.from_estimator(
    ...     FedCGSClassifier("within", aligner=FederatedOTAligner()),
    ...     data.data,
    ...     data.target,
    ...     client_ids=data.client_ids,
    ...     taus=[0, 0.4],
    ...     cv=[paper_split(data.target, data.client_ids, 0.1, min_samples=20)],
    ... )
    >>> bool(display.mean[1] > display.mean[0])
    True
    """

    def __init__(
        self,
        taus,
        scores,
        clients,
        chosen_tau,
        metric="score",
        default_tau=0.4,
        other_scores=None,
    ):
        self.taus = taus
        self.scores = scores
        self.clients = clients
        self.chosen_tau = chosen_tau
        self.metric = metric
        self.default_tau = default_tau
        self.other_scores = other_scores

    @property
    def mean(self):
        """Mean over clients."""
        return self.scores.mean(axis=1)

    @property
    def worst(self):
        """Lowest score of a client."""
        return self.scores.min(axis=1)

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y,
        *,
        client_ids=None,
        taus=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
        cv=None,
        metric="accuracy",
        others=None,
        n_jobs=None,
        ax=None,
    ):
        """Fit and score the estimator for each ``tau``, and draw the scores.

        Parameters
        ----------
        estimator : estimator object
            A Pipeline with an aligner, a classifier with an ``aligner``, or a
            :class:`~skslot.MixedEffectsClassifier`. Its own ``tau`` is marked as chosen
            if it is a number. With mixed effects, offsets are removed at every
            ``tau``, including 0.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each sample, unless the ids are a column of X.
        taus : array-like of float, default=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
            Alignment strengths to try.
        cv : int, cross-validation generator or iterable, default=None
            Training and test samples, such as ``[(train, test)]``. None is
            ``CellHoldoutKFold()``, an int ``CellHoldoutKFold(n_splits)``. The score of
            a client is the mean over the folds that contain test samples of it.
        metric : str or callable, default="accuracy"
            Metric, see :class:`skslot.metrics.ClientScorer`.
        others : dict of estimators, default=None
            Estimators to compare with, by name. They are scored on the same samples.
        n_jobs : int, default=None
            Number of folds in parallel.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is made.

        Returns
        -------
        display : TauPathDisplay
            The scores, drawn.
        """
        column, ids = _ids(estimator, X, client_ids)
        clients = ClientGroups.from_ids(ids, len(y)).clients
        name, default = _tau_parameter(estimator)
        chosen = estimator.get_params()[name]
        taus = sorted({float(tau) for tau in taus})
        scorer = _EachClient(clients, metric, column)
        folds = check_cv(CellHoldoutKFold.of(cv, client_column=column))

        def scores_of(candidate):
            with config_context(enable_metadata_routing=True):
                results = cross_validate(
                    candidate,
                    X,
                    y,
                    cv=folds,
                    scoring=scorer,
                    params={} if column is not None else {"client_ids": ids},
                    n_jobs=n_jobs,
                    error_score="raise",
                )
            return scorer.mean_over_folds(results)

        candidates = [clone(estimator).set_params(**{name: tau}) for tau in taus]
        display = cls(
            taus,
            np.array([scores_of(candidate) for candidate in candidates]),
            clients_array(clients),
            None if isinstance(chosen, str) else float(chosen),
            metric if isinstance(metric, str) else getattr(metric, "__name__", "score"),
            None if isinstance(default, str) else float(default),
            {key: np.array(scores_of(other)) for key, other in (others or {}).items()},
        )
        return display.plot(ax=ax)

    @classmethod
    def from_search(
        cls, search, X, y, *, client_ids=None, metric="accuracy", others=None, ax=None
    ):
        """Score the estimator of a search on its folds, for each ``tau`` of its grid.

        The search itself keeps one score for all clients. Other parameters have their
        best values.

        Parameters
        ----------
        search : FederatedGridSearchCV
            Fitted search with ``tau`` in its grid.
        X : array-like of shape (n_samples, n_features)
            Features that the search was fitted on.
        y : array-like of shape (n_samples,)
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each sample, unless the ids are a column of X.
        metric : str or callable, default="accuracy"
            Metric, see :class:`skslot.metrics.ClientScorer`.
        others : dict of estimators, default=None
            Estimators to compare with, by name. They are scored on the same folds.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is made.

        Returns
        -------
        display : TauPathDisplay
            The scores, drawn.
        """
        check_is_fitted(search)
        name, _ = _tau_parameter(search.estimator)
        tried = [params.get(name) for params in search.cv_results_["params"]]
        if all(tau is None for tau in tried):
            raise ValueError("the search has no tau in its grid.")
        chosen = search.best_tau_
        if chosen is None:  # the search does not report a tau of mixed effects
            chosen = search.best_params_.get(name)
        if chosen is None:
            raise ValueError(
                f"the search chose {search.best_params_}, without a tau. Draw the path "
                "of its estimator by from_estimator, and pass the choice as others."
            )
        estimator = clone(search.estimator).set_params(**search.best_params_)
        return cls.from_estimator(
            estimator.set_params(**{name: chosen}),
            X,
            y,
            client_ids=client_ids,
            taus=[tau for tau in tried if tau not in (None, "auto")],
            cv=search.cv,
            metric=metric,
            others=others,
            ax=ax,
        )

    def plot(self, ax=None):
        figure, ((ax,),) = axes_for(ax, (1, 1), (6.4, 3.8))
        few = len(self.clients) <= len(CLIENT_COLOURS)
        for index, client in enumerate(self.clients):
            ax.plot(
                self.taus,
                self.scores[:, index],
                color=CLIENT_COLOURS[index] if few else OTHERS,
                linewidth=1.2,
                label=as_drawn(client) if few else None,
            )
        ax.plot(self.taus, self.mean, "k-o", linewidth=2.5, markersize=5, label="mean")
        ax.plot(self.taus, self.worst, "k:", linewidth=2, label="worst")
        others = (self.other_scores or {}).items()
        for (name, scores), style in zip(others, cycle(OTHER_STYLES), strict=False):
            label = f"mean, {as_drawn(name)}"
            ax.axhline(scores.mean(), color="k", ls=style, linewidth=1.5, label=label)
        self._mark(ax)
        ax.set(xlabel="tau (strength of the maps)", ylabel=as_drawn(self.metric))
        ax.spines[["top", "right"]].set_visible(False)
        legend_outside(ax, "client" if few else f"{len(self.clients)} clients in grey")
        self.figure_, self.ax_ = figure, ax
        return self

    def _mark(self, ax):
        """Mark the default tau and the chosen one, named above the axes."""
        default, marks = self.default_tau, {}
        if default is not None:
            marks[default] = f"default {default:g}"
        if self.chosen_tau is not None:
            text = f"chosen {self.chosen_tau:.2g}"
            is_default = self.chosen_tau == default
            marks[self.chosen_tau] = "default and " * is_default + text
        close = len(marks) == 2 and np.ptp(list(marks)) < 0.19
        for height, (tau, text) in enumerate(marks.items()):
            style = "-" if tau == self.chosen_tau else "--"
            ax.axvline(tau, color="#909090", linestyle=style, linewidth=1, zorder=0)
            ax.annotate(
                text,
                (tau, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 4 + 13 * close * height),
                textcoords="offset points",
                ha="center",
                fontsize="small",
            )


class _EachClient(ClientScorer):
    """Scorer that returns the score of each client, NaN without samples."""

    def __init__(self, clients, metric, client_column):
        super().__init__(metric, client_column=client_column)
        self.clients = clients

    def score(self, estimator, X, y, client_ids=None):
        known = self.score_by_client(estimator, X, y, client_ids)
        return {str(k): known.get(c, np.nan) for k, c in enumerate(self.clients)}

    def mean_over_folds(self, results):
        """Average the scores of each client over the folds with samples of it."""
        folds = [results[f"test_{k}"] for k in range(len(self.clients))]
        for client, scores in zip(self.clients, folds, strict=True):
            if np.isnan(scores).all():
                raise ValueError(
                    f"no fold tests on rows of client {client!r}; pass another cv."
                )
        return [np.nanmean(scores) for scores in folds]


def _tau_parameter(estimator):
    """Return the name and the default of the parameter ``tau`` of an estimator."""
    if isinstance(estimator, MixedEffectsClassifier):
        return "tau", type(estimator)().tau
    kinds = FederatedOTAligner, MixedEffectsAligner, MixedEffectsClassifier
    path = parameter_of_type(estimator, kinds)
    if path is None:
        raise ValueError(
            "estimator has no FederatedOTAligner among its parameters, nor mixed "
            "effects, so there is no tau to vary; put one into the Pipeline."
        )
    return f"{path}__tau", type(estimator.get_params()[path])().tau


def _ids(estimator, X, client_ids):
    """Return the column of X that holds the ids, or None, and the ids."""
    if client_ids is not None:
        return None, client_ids
    column = client_column_of(estimator)
    if column is None:
        raise ValueError(
            "client_ids is missing: pass one id per row, or keep them as a column of X "
            "and set client_column in the estimator."
        )
    return column, split_client_column(X, column)[1]
