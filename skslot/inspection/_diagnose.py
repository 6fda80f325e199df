"""Which estimator the samples of several clients call for."""

import tempfile
from dataclasses import dataclass, field
from html import escape
from numbers import Integral
from textwrap import fill, indent

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.utils import check_array

from .._sklearn_compat import StrOptions, validate_params
from .._utils import ignored, printable, shorten, text_table
from ..alignment import FederatedOTAligner
from ..base import (
    FEATURES,
    ClientGroups,
    assert_finite_by_client,
    clients_array,
    naming_odd_columns,
    number_clients,
    split_client_column,
)
from ..classifiers import FedCGSClassifier, FedQDAClassifier, MixedEffectsClassifier
from ..model_selection import CellHoldoutKFold, StratifiedClientKFold, class_table
from ..statistics import average_rows, is_constant
from ._alignment import NO_COMMON_CLASS, Report, html_table, variance_shares

MIXED, PLAIN = "mixed effects", "no alignment"
PER_CLASS, TRANSPORT = "covariance per class", "optimal transport, tau="
TRANSPORTS = {f"{TRANSPORT}{tau}": tau for tau in ("auto", 0.2, 0.4, 0.6)}
ROUGHLY = 1e-5  # residual of the reference; a smaller one does not change the accuracy
# Another model is recommended if it is better by a point and by two standard errors.
WORTH_IT = 0.01
SURE = 2.0
# The accuracy at a client is low if it is this far, and two standard errors, below the
# mean.
FAR_BELOW = 0.1
# Standard deviations of features that differ by more are of different units.
SCALES = 30.0
N_FOLDS = 3  # in which samples are held out
N_CELL_FOLDS = 4  # in which whole (client, class) cells are held out
# More features are replaced by this many principal components: the time of most models
# grows with the cube of them, and the best model hardly changes.
MOST_FEATURES = 128


# ------------------------------------------------------------------ diagnosis


@validate_params(
    {
        "X": "no_validation",
        "y": ["array-like", None],
        "client_ids": ["array-like", None],
        "client_column": [str, Integral, None],
        "labels_at_use": [StrOptions({"shared", "as_now"})],
        "random_state": ["random_state"],
        "progress": [callable, None],
    },
    prefer_skip_nested_validation=True,
)
def diagnose(
    X,
    y=None,
    client_ids=None,
    *,
    client_column=None,
    labels_at_use="shared",
    random_state=0,
    progress=None,
):
    """Describe the clients and recommend an estimator for them.

    Some models are tried on samples that are held out, some of them as whole (client,
    class) cells. Mixed effects are recommended unless another model is better by one
    point and by two standard errors.

    Read more in the :doc:`User Guide </user_guide/diagnose>`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Features, with or without the client column.
    y : array-like of shape (n_samples,), default=None
        Labels. If None, no estimator is recommended.
    client_ids : array-like of shape (n_samples,), default=None
        Client of each sample, unless the ids are a column of X.
    client_column : str or int, default=None
        Name or position of the column of X that holds the client ids.
    labels_at_use : {"shared", "as_now"}, default="shared"
        Class distribution that each client will see when the model is used: the pooled
        one of all clients, or its present one. The data cannot answer this, and the
        recommendation depends on it.
    random_state : int, RandomState instance or None, default=0
        Determines which samples are held out.
    progress : callable, default=None
        Called with the number of models fitted so far and the number of all models.

    Returns
    -------
    diagnosis : Diagnosis
        Prints as a text, which notebooks show as HTML; ``to_frame()`` returns a pandas
        DataFrame with a row per client. Attributes:

        clients : ndarray of shape (n_clients,)
            Client ids.
        n_features : int
            Number of features.
        n_samples, rows_per_feature : ndarray of shape (n_clients,)
            Number of samples of each client, and per feature.
        table : ClassTable or None
            Number of samples of each class at each client, see
            :func:`~skslot.model_selection.class_table`. None without labels, like all
            attributes about labels.
        label_shift : ndarray of shape (n_clients,)
            Total variation distance between the class distribution of each client and
            the pooled one: the share of its samples that would need another label.
        shares : dict
            Shares of "class", "site", "site by class" and "within" in the variance
            between samples, by mixed effects.
        clients_report : ClientsReport
            Outliers among the clients, see :doc:`/user_guide/trust`.
        scores : dict
            For each model, the mean expected accuracy over clients, its difference to
            mixed effects, and the standard error of the difference. Contains only the
            best ``tau``.
        accuracies : dict
            For each model and each ``tau``, the expected accuracy at each client.
        chosen : str
            Name of the recommended model in ``scores``.
        accuracy, error : ndarray of shape (n_clients,)
            Expected accuracy of the recommended estimator at each client, and its
            standard error; NaN if there are too few samples.
        weak : list
            Clients with an accuracy far below the mean.
        labels_at_use : str
            The assumption.
        estimator : estimator object or None
            The recommended estimator, not fitted.
        code : str
            Code that fits the estimator; empty without labels.
        recommendation : str
            Three sentences with the reasons.
        warnings : list of str
            Possible problems.

    See Also
    --------
    alignment_report : Report on the clients of a fitted estimator.
    client_report : The diagnosis with pictures, as a page.
    skslot.model_selection.FederatedGridSearchCV : Searches for parameters.

    Examples
    --------
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.inspection import diagnose
    >>> from skslot.model_selection import dirichlet_label_shift
    >>> data = load_digit_scanners()
    >>> rows = dirichlet_label_shift(data.target, data.client_ids, 0.1, random_state=0)
    >>> X, y, site = data.data[rows], data.target[rows], data.client_ids[rows]
    >>> diagnosis = diagnose(X, y, site)
    >>> diagnosis.estimator
    MixedEffectsClassifier()
    >>> diagnosis.table.n_absent
    18
    >>> model = diagnosis.estimator.fit(X, y, client_ids=site)
    """
    X, client_ids = read_rows(X, client_ids, client_column)
    clients, codes = number_clients(client_ids, len(X))
    if len(clients) < 2:
        raise ValueError(
            f"all rows are of one client, {clients[0]!r}: there is no other to compare "
            "with. Pass the rows of all clients."
        )
    assert_finite_by_client(X, ClientGroups.from_codes(clients, codes))
    facts = {
        "clients": clients_array(clients),
        "n_features": X.shape[1],
        "n_samples": np.bincount(codes),
        "labels_at_use": labels_at_use,
    }
    scale_notes = _notes_on_scales(X)
    if y is None:
        with ignored(UserWarning):  # the diagnosis has its own
            looked = FederatedOTAligner(tau=0).fit(X, client_ids=client_ids)
        report = looked.clients_report_
        return Diagnosis(**facts, clients_report=report, more_warnings=scale_notes)
    with ignored(UserWarning):
        looked = MixedEffectsClassifier(tau=0).fit(X, y, client_ids=client_ids)
    y = np.ravel(y)
    table = class_table(y, client_ids)
    if len(table.classes) < 2:
        raise ValueError(
            f"all labels are {table.classes.tolist()[0]!r}: there is nothing to learn. "
            "Pass rows of at least two classes."
        )
    keeps_labels = labels_at_use == "as_now"
    trials = Trials.prepare(X, y, codes, keeps_labels, random_state)
    hits = _try_models(trials, keeps_labels, progress)
    scores = {
        name: (
            trials.mean_accuracy(each)[0],
            *trials.mean_accuracy(each - hits[MIXED]),
        )
        for name, each in hits.items()
    }
    best = max(TRANSPORTS, key=lambda name: scores[name][0])
    scores = {k: v for k, v in scores.items() if k not in TRANSPORTS or k == best}
    chosen = _choose(scores)
    _, error = trials.accuracy(hits[chosen])
    estimator = offered_models(keeps_labels)[chosen]
    if client_column is not None:
        estimator.set_params(client_column=client_column)
    return Diagnosis(
        **facts,
        clients_report=looked.clients_report_,
        table=table,
        shares=variance_shares(looked.aligner_),
        scores=scores,
        chosen=chosen,
        accuracies={name: trials.accuracy(each)[0] for name, each in hits.items()},
        error=error,
        estimator=estimator,
        more_warnings=scale_notes,
    )


def read_rows(X, client_ids, client_column=None):
    """Return the checked features and the client of each sample."""
    if client_column is not None:
        X, client_ids, _ = split_client_column(X, client_column, client_ids)
    elif client_ids is None:
        raise ValueError(
            "client_ids is missing: pass client_ids, one per row, or name the column "
            "of X that holds them by client_column."
        )
    with naming_odd_columns(X, client_column):
        return check_array(X, **{**FEATURES, "dtype": np.float64}), client_ids


def offered_models(keeps_labels, memory=None):
    """Return the models to choose from, by name; mixed effects first."""
    priors = {"priors": "client"} if keeps_labels else {}
    rough = {} if memory is None else {"memory": memory, "tol": ROUGHLY}
    aligned = {
        name: FedCGSClassifier("within", aligner=FederatedOTAligner(tau, **rough))
        for name, tau in TRANSPORTS.items()
    }
    return {
        MIXED: MixedEffectsClassifier(**priors),
        PLAIN: FedCGSClassifier("within"),
        **aligned,
        PER_CLASS: FedQDAClassifier(),
    }


def _try_models(trials, keeps_labels, progress):
    """Return the hits of each model."""
    with tempfile.TemporaryDirectory() as memory:
        models, done = offered_models(keeps_labels, memory), 0

        def step():
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, len(models) * trials.n_fits)

        return {name: trials.run(each, step) for name, each in models.items()}


def _choose(scores):
    """Choose mixed effects, unless another model is surely better."""
    better = {
        name: mean
        for name, (mean, ahead, error) in scores.items()
        if ahead > max(WORTH_IT, SURE * error)
    }
    return max(better, key=better.get, default=MIXED)


def _notes_on_scales(X):
    mean = average_rows(X)
    variances = np.square(X - mean).mean(axis=0)
    deviations = np.sqrt(variances[~is_constant(variances, mean, len(X))])
    if not len(deviations) or deviations.max() <= SCALES * np.median(deviations):
        return []
    ratio = deviations.max() / np.median(deviations)
    return [
        f"One feature varies {ratio:.0f} times as much as the median feature, so that "
        "features of different units hide each other. Scale them first, for example by "
        "FederatedScaler."
    ]


# ------------------------------------------------------------------ as text


def _percent(value):
    return "?" if np.isnan(value) else f"{value:.0%}"


# Heading and format of each attribute of a diagnosis that has a value per client.
COLUMNS = {
    "clients": ("client", str),
    "n_samples": ("rows", "{:,}".format),
    "rows_per_feature": ("rows/feature", "{:.2g}".format),
    "n_classes": ("classes", str),
    "label_shift": ("label shift", _percent),
    "accuracy": ("accuracy", _percent),
    "error": ("+/-", _percent),
}
ASSUMED = {
    "shared": "every client will see the pooled class distribution",
    "as_now": "every client keeps its class distribution",
}
OTHERWISE = {
    "shared": "If each keeps its own, use labels_at_use='as_now'.",
    "as_now": "If all will see the pooled one, use labels_at_use='shared'.",
}


def code_of(estimator, has_labels=True):
    """Return code that makes an estimator and fits it."""
    names = type(estimator).__name__
    if getattr(estimator, "aligner", None) is not None:
        names += f", {type(estimator.aligner).__name__}"
    is_column = estimator.client_column is not None
    arguments = ["X", *["y"] * has_labels, *["client_ids=client_ids"] * (not is_column)]
    return (
        f"from skslot import {names}\n\n"
        f"model = {' '.join(repr(estimator).split())}\n"
        f"model.fit({', '.join(arguments)})\n"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Report):
    """Description of the clients and a recommendation, see :func:`diagnose`."""

    clients: np.ndarray
    n_features: int
    n_samples: np.ndarray
    labels_at_use: str
    clients_report: object
    table: object = None
    shares: dict | None = None
    scores: dict | None = None
    chosen: str | None = None
    accuracies: dict | None = None
    error: np.ndarray | None = None
    estimator: object = None
    more_warnings: list = field(default_factory=list)

    @property
    def rows_per_feature(self):
        """Number of samples of each client, divided by the number of features."""
        return self.n_samples / self.n_features

    @property
    def n_classes(self):
        """Number of classes of each client."""
        return (self.table.counts > 0).sum(axis=1)

    @property
    def label_shift(self):
        """Distance of the class distribution of each client from the pooled one."""
        counts = self.table.counts
        shares = counts / counts.sum(axis=1, keepdims=True)
        return np.abs(shares - counts.sum(axis=0) / counts.sum()).sum(axis=1) / 2

    @property
    def accuracy(self):
        """Expected accuracy of the recommended estimator at each client."""
        return None if self.accuracies is None else self.accuracies[self.chosen]

    @property
    def weak(self):
        """Clients with an accuracy far below the mean."""
        if self.accuracy is None or np.isnan(self.accuracy).all():
            return []
        below = np.nanmean(self.accuracy) - self.accuracy
        is_weak = below > np.maximum(FAR_BELOW, SURE * self.error)
        return self.clients[is_weak].tolist()

    @property
    def code(self):
        """Code that fits the recommended estimator."""
        return "" if self.estimator is None else code_of(self.estimator)

    @property
    def recommendation(self):
        """Three sentences with the reasons."""
        outliers = self.clients_report.outliers
        who = f"{shorten(outliers)} stands out" if outliers else "none stands out"
        few, many = self.rows_per_feature.min(), self.rows_per_feature.max()
        rows = f"Clients have {few:.2g} to {many:.2g} rows per feature, and {who}."
        if self.table is None:
            return (
                f"{rows} Without labels, the effect of alignment on the accuracy is "
                "unknown. Leave the features unchanged, and diagnose again with some "
                "labels."
            )
        return f"{self._on_labels()} {rows} {self._on_models()}"

    def _on_labels(self):
        site = self.shares["site"] + self.shares["site by class"]
        return (
            f"The client explains {site:.0%} of the variance between rows, and the "
            f"class {self.shares['class']:.0%}; {self.table.n_absent} of "
            f"{self.table.counts.size} (client, class) cells are empty, and "
            f"{self.label_shift.mean():.0%} of the rows of a client would need another "
            "label to match the pooled class distribution."
        )

    def _on_models(self):
        mean, ahead, error = self.scores[self.chosen]
        if np.isnan(mean):
            return (
                f"Recommended: {self.chosen}, the safest choice if there are too few "
                "rows to compare models."
            )
        text = f"Recommended: {self.chosen}, with an expected accuracy of {mean:.1%}"
        if self.chosen != MIXED:
            points = f"{100 * ahead:.1f} +/- {100 * error:.1f} points"
            return f"{text}, {points} above mixed effects."
        *others, last = (
            f"{score:.1%} ({name})"
            for name, (score, _, _) in self.scores.items()
            if name != MIXED
        )
        return f"{text}, compared with {', '.join(others)} and {last}."

    @property
    def warnings(self):
        """Possible problems."""
        notes = [
            f"Client {client!r} stands out: {reason}"
            for client, reason in self.clients_report.outliers.items()
        ]
        few = self.clients[self.rows_per_feature < 1].tolist()
        if few:
            notes.append(
                f"Client {shorten(few)}: fewer rows than features. Estimates of how "
                "such a client differs are coarse; more rows or fewer features help."
            )
        if self.table is not None:
            notes += self._notes_on_labels()
        return [*notes, *self.more_warnings]

    def _notes_on_labels(self):
        """Warnings that need labels."""
        notes, held = [], self.table.counts > 0
        shares_a_class = held[:, held.sum(axis=0) > 1].any(axis=1)
        if not shares_a_class.all():
            alone = self.table.clients[~shares_a_class].tolist()
            notes.append(NO_COMMON_CLASS.format(shorten(alone)))
        if self.weak:
            notes.append(
                f"Client {shorten(self.weak)}: the accuracy is more than "
                f"{100 * FAR_BELOW:.0f} points below the mean. Check how its features "
                "and labels were made, or adapt the model to its unlabelled rows by "
                "MixedEffectsClassifier.adapt_client."
            )
        for name, (_, ahead, error) in self.scores.items():
            if self.chosen == MIXED and ahead > min(error, 2 * WORTH_IT):
                notes.append(
                    f"The mean accuracy of {name} is {_difference(name, ahead, error)} "
                    f"points above {MIXED}, which is not enough to be sure."
                )
        aligner = getattr(self.estimator, "aligner", None)
        if isinstance(getattr(aligner, "tau", None), float):
            notes.append(
                "If fit warns that alignment is likely to cost accuracy, prefer this "
                "diagnosis: the warning is a rule of thumb."
            )
        if isinstance(self.estimator, FedQDAClassifier):
            notes.append(
                "FedQDAClassifier sends one covariance per class, mixed effects one in "
                "total."
            )
        unknown = self.clients[np.isnan(self.accuracy)].tolist()
        if unknown:
            notes.append(
                f"Client {shorten(unknown)}: no rows could be held out to estimate the "
                "accuracy."
            )
        if self.n_features > MOST_FEATURES:
            notes.append(
                f"Models were compared on at most {MOST_FEATURES} principal components "
                f"of the {self.n_features} features."
            )
        return notes

    @property
    def columns(self):
        """Columns of the table."""
        known = list(COLUMNS)[: 3 if self.table is None else None]
        return {name: COLUMNS[name] for name in known}

    @property
    def title(self):
        """Lines above the table."""
        text = (
            f"{len(self.clients)} clients, {self.n_samples.sum():,} rows, "
            f"{self.n_features} features"
        )
        if self.table is None:
            return f"{text}, no labels"
        n_classes, n_cells = len(self.table.classes), self.table.counts.size
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return (
            f"{text}, {n_classes} classes; {self.table.n_absent} of {n_cells} (client, "
            f"class) cells are empty\nvariance: {shares}"
        )

    def models(self):
        """Return the headings and rows of the table of models, as text."""
        if self.scores is None:
            return []
        rows = [["model", "accuracy", f"against {MIXED}"]]
        for name, (mean, ahead, error) in self.scores.items():
            shown = "?" if np.isnan(mean) else f"{mean:.1%}"
            rows.append([name, shown, _difference(name, ahead, error)])
        return rows

    def __repr__(self):
        table, _, notes = super().__repr__().partition("\n! ")
        parts = [table]
        if self.scores is not None:
            models = [[">" * (row[0] == self.chosen), *row] for row in self.models()]
            parts.append(
                f"Expected accuracy if {ASSUMED[self.labels_at_use]}:\n"
                f"{text_table(models, 'llr')}\n"
                f"{OTHERWISE[self.labels_at_use]}"
            )
        parts.append(fill(printable(self.recommendation), 88))
        if self.code:
            parts.append(indent(self.code.rstrip(), 4 * " "))
        if notes:
            parts.append(f"! {notes}")
        return "\n\n".join(parts)

    def _repr_html_(self):
        heads, *models = self.models() or [[]]
        return (
            super()._repr_html_()
            + (html_table(models, heads) if models else "")
            + f"<p>{escape(self.recommendation)}</p>"
            + (f"<pre><code>{escape(self.code)}</code></pre>" if self.code else "")
        )


def _difference(name, ahead, error):
    """Write the points ahead of mixed effects, with the error where it is known."""
    if name == MIXED:
        return ""
    if np.isnan(ahead):
        return "?"
    around = f" +/- {100 * error:.1f}" if np.isfinite(error) else " +/- ?"
    return f"{100 * ahead:+.1f}{around}"


# ------------------------------------------------------------------ expected accuracy


@dataclass(frozen=True, eq=False)
class Trials:
    """Samples to try classifiers on, with the weight of each hit.

    The accuracy at a client is a weighted mean of hits. Samples of classes that the
    client has are held out in ordinary folds. Classes that it lacks are represented by
    whole (client, class) cells that are held out.

    ``folds`` and ``cell_folds`` are pairs of training and test rows. ``row_weights``
    contains the weight of each row in the accuracy of its client. ``cell_weights`` has
    a row per client and a column per cell that is held out. ``held_cell`` contains the
    number of this cell for each row, or -1.
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
        """Choose the folds and weights for clients that are numbered from 0.

        Unless clients keep their class distributions, each sees the pooled one.
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
        shares = _shares(n_tested if keeps_labels else counts.sum(axis=0))
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
        """Whether the accuracy of each client can be estimated."""
        n_clients = len(self.cell_weights)
        weights = np.bincount(self.clients, self.row_weights, n_clients)
        return (weights > 0) & np.isclose(weights + self.cell_weights.sum(axis=1), 1)

    def run(self, classifier, step=lambda: None):
        """Return the hits of a classifier; ``step`` is called after each fit."""
        on_rows, on_cells = np.zeros((2, len(self.y)))
        for folds, right in ((self.folds, on_rows), (self.cell_folds, on_cells)):
            for train, test in folds:
                right[test] = self._is_right(classifier, train, test)
                step()
        is_held = self.held_cell >= 0
        cell, n_cells = self.held_cell[is_held], self.cell_weights.shape[1]
        n_rows = np.bincount(cell, minlength=n_cells)
        return Hits(on_rows, np.bincount(cell, on_cells[is_held], n_cells) / n_rows)

    def _is_right(self, classifier, train, test):
        with ignored(UserWarning):  # of clients that are small in some fold
            model = clone(classifier).fit(
                self.X[train], self.y[train], client_ids=self.clients[train]
            )
        predicted = model.predict(self.X[test], client_ids=self.clients[test])
        return predicted == self.y[test]

    def accuracy(self, hits):
        """Return the accuracy at each client and its standard error, or NaN."""
        found = np.full((2, len(self.cell_weights)), np.nan)
        for client in np.flatnonzero(self.is_known):
            weights = np.where(self.clients == client, self.row_weights, 0.0)
            found[:, client] = _weigh(hits, weights, self.cell_weights[client])
        return found

    def mean_accuracy(self, hits):
        """Return the mean accuracy over clients and its standard error."""
        known = self.is_known
        if not known.any():
            return np.nan, np.inf
        row_weights = np.where(known[self.clients], self.row_weights, 0.0)
        cell_weights = self.cell_weights[known].sum(axis=0)
        n_known = known.sum()
        return _weigh(hits, row_weights / n_known, cell_weights / n_known)


@dataclass(frozen=True, eq=False)
class Hits:
    """Hits of a classifier on rows, and the share of hits in each cell."""

    rows: np.ndarray
    cells: np.ndarray

    def __sub__(self, other):
        return Hits(self.rows - other.rows, self.cells - other.cells)


def _ordinary_folds(y, clients, random_state):
    folds = StratifiedClientKFold(N_FOLDS, shuffle=True, random_state=random_state)
    try:
        return list(folds.split(y, y, client_ids=clients))
    except ValueError:  # too few rows
        return []


def _cell_folds(y, clients, cells, random_state):
    """Return the folds that hold out whole cells."""
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


def _shares(counts):
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)


def _stand_ins(whose, n_clients):
    """Return the weight of each held-out cell for a client: its own cells, or all."""
    own = (whose == np.arange(n_clients)[:, None]).astype(float)
    own[~own.any(axis=1)] = 1.0
    return own / np.maximum(own.sum(axis=1, keepdims=True), 1)


def _weigh(hits, row_weights, cell_weights):
    """Return the weighted mean of hits and its standard error.

    Cells vary as a whole, so that a single cell gives no standard error.
    """
    mean = row_weights @ hits.rows + cell_weights @ hits.cells
    variance = _variance(row_weights, hits.rows)
    n_cells = np.count_nonzero(cell_weights)
    if n_cells == 1:
        variance = np.inf
    elif n_cells:
        spread = _variance(cell_weights, hits.cells)
        variance += spread * n_cells / (n_cells - 1)
    return float(mean), float(np.sqrt(variance))


def _variance(weights, values):
    """Return the variance of a weighted sum of independent values."""
    total = weights.sum()
    centre = weights @ values / total if total else 0.0
    return np.square(weights * (values - centre)).sum()
