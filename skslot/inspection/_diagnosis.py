"""A diagnosis in words: a table of clients, models that were tried, and advice."""

from dataclasses import dataclass, field
from html import escape
from textwrap import fill, indent

import numpy as np

from .._utils import printable, shorten, text_table
from ..classifiers import FedQDAClassifier
from ._alignment_report import Report
from ._expected_accuracy import MOST_FEATURES

MIXED = "mixed effects"
# A client does badly if it is so far below the mean, and by two standard errors.
FAR_BELOW = 0.1
SURE = 2.0
WIDTH = 88


def _percent(value):
    return "?" if np.isnan(value) else f"{value:.0%}"


COLUMNS = {
    "clients": ("client", str),
    "n_samples": ("rows", "{:,}".format),
    "rows_per_feature": ("rows/feature", "{:.2g}".format),
    "n_classes": ("classes", str),
    "label_shift": ("label shift", _percent),
    "accuracy": ("accuracy", _percent),
    "error": ("+/-", _percent),
}
WITHOUT_LABELS = {name: COLUMNS[name] for name in list(COLUMNS)[:3]}
ASSUMED = {
    "shared": "every client will meet the classes as all together have them",
    "as_now": "every client keeps the label mix that it has",
}
OTHERWISE = {
    "shared": "if each keeps its own label mix, say labels_at_use='as_now'",
    "as_now": "if all will meet all classes, say labels_at_use='shared'",
}


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Report):
    """What clients are like and what to do, described in :func:`diagnose`."""

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
        """Rows of each client, divided by the number of features."""
        return self.n_samples / self.n_features

    @property
    def n_classes(self):
        """Number of classes that each client has rows of."""
        return (self.table.counts > 0).sum(axis=1)

    @property
    def label_shift(self):
        """Distance of the label mix of each client from that of all."""
        counts = self.table.counts
        mixes = counts / counts.sum(axis=1, keepdims=True)
        return np.abs(mixes - counts.sum(axis=0) / counts.sum()).sum(axis=1) / 2

    @property
    def accuracy(self):
        """Accuracy of the recommended estimator to expect at each client."""
        return None if self.accuracies is None else self.accuracies[self.chosen]

    @property
    def weak(self):
        """Clients where the accuracy is far below the mean."""
        if self.accuracy is None or np.isnan(self.accuracy).all():
            return []
        below = np.nanmean(self.accuracy) - self.accuracy
        is_weak = below > np.maximum(FAR_BELOW, SURE * self.error)
        return self.clients[is_weak].tolist()

    @property
    def code(self):
        """The recommended estimator as code."""
        if self.estimator is None:
            return ""
        used = type(self.estimator).__name__
        if getattr(self.estimator, "aligner", None) is not None:
            used += f", {type(self.estimator.aligner).__name__}"
        is_column = self.estimator.client_column is not None
        ids = "" if is_column else ", client_ids=client_ids"
        return (
            f"from skslot import {used}\n\n"
            f"model = {' '.join(repr(self.estimator).split())}\n"
            f"model.fit(X, y{ids})\n"
        )

    @property
    def recommendation(self):
        """Three sentences with the reasons."""
        if self.table is None:
            return " ".join(_advice_without_labels(self))
        return " ".join([_on_labels(self), _on_sites(self), _on_models(self)])

    @property
    def warnings(self):
        """What else to look at."""
        return [*_notes(self), *self.more_warnings]

    # ------------------------------------------------------------------- as text

    @property
    def _columns(self):
        return WITHOUT_LABELS if self.table is None else COLUMNS

    @property
    def _title(self):
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

    def _models(self):
        """Lines of the table of models."""
        if self.scores is None:
            return []
        rows = [["", "model", "accuracy", f"against {MIXED}"]]
        for name, (mean, ahead, error) in self.scores.items():
            apart = "" if name == MIXED else _difference(ahead, error)
            mark = ">" if name == self.chosen else ""
            shown = "?" if np.isnan(mean) else f"{mean:.1%}"
            rows.append([mark, name, shown, apart])
        return rows

    def __repr__(self):
        parts = [f"{self._title}\n{text_table([self._heads, *self._rows()])}"]
        if self.scores is not None:
            parts.append(
                f"Accuracy to expect, if {ASSUMED[self.labels_at_use]}:\n"
                f"{text_table(self._models(), 'llr')}"
            )
        parts.append(fill(printable(self.recommendation), WIDTH))
        if self.code:
            parts.append(indent(self.code.rstrip(), 4 * " "))
        notes = (f"! {printable(text)}" for text in self.warnings)
        parts += ["\n".join(fill(n, WIDTH, subsequent_indent="  ") for n in notes)]
        return "\n\n".join(filter(None, parts))

    def _repr_html_(self):
        models = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._models()
        )
        return (
            super()._repr_html_()
            + (f"<table>{models}</table>" if models else "")
            + f"<p>{escape(self.recommendation)}</p>"
            + (f"<pre><code>{escape(self.code)}</code></pre>" if self.code else "")
        )


def _difference(ahead, error):
    """Points ahead of mixed effects, with the error where it is known."""
    if np.isnan(ahead):
        return "?"
    around = f" +/- {100 * error:.1f}" if np.isfinite(error) else " +/- ?"
    return f"{100 * ahead:+.1f}{around}"


# ----------------------------------------------------------------------- sentences


def _on_labels(diagnosis):
    table = diagnosis.table
    return (
        f"{table.n_absent} of {table.counts.size} (client, class) cells are empty, and "
        f"{diagnosis.label_shift.mean():.0%} of the rows of a client would need "
        "another label for its mix to be that of all; this takes it that "
        f"{ASSUMED[diagnosis.labels_at_use]}, and "
        f"{OTHERWISE[diagnosis.labels_at_use]}."
    )


def _on_sites(diagnosis):
    shares = diagnosis.shares
    site = shares["site"] + shares["site by class"]
    compared = "less" if site < shares["class"] else "more"
    outliers = diagnosis.clients_report.outliers
    who = f"{shorten(outliers)} stands out" if outliers else "none stands out"
    fewest, most = diagnosis.rows_per_feature.min(), diagnosis.rows_per_feature.max()
    return (
        f"What client a row is of makes {site:.0%} of the variance between rows, "
        f"{compared} than its class with {shares['class']:.0%}; clients have from "
        f"{fewest:.2g} to {most:.2g} rows per feature, and {who}."
    )


def _on_models(diagnosis):
    scores, chosen = diagnosis.scores, diagnosis.chosen
    name = " ".join(repr(diagnosis.estimator).split())
    mean = scores[chosen][0]
    if np.isnan(mean):
        return (
            f"Take {name}, the safest choice where nothing can be tried: there are too "
            "few rows here to compare it with others."
        )
    if chosen == MIXED:
        *others, last = (
            f"{score:.1%} ({other})"
            for other, (score, _, _) in scores.items()
            if other != MIXED
        )
        against = f"{', '.join(others)} and {last}"
        return f"Take {name}: expect {mean:.1%} right answers, against {against}."
    _, ahead, error = scores[chosen]
    return (
        f"Take {name}: expect {mean:.1%} right answers, {100 * ahead:.1f} +/- "
        f"{100 * error:.1f} points more than by mixed effects."
    )


def _advice_without_labels(diagnosis):
    few = diagnosis.rows_per_feature.min()
    outliers = diagnosis.clients_report.outliers
    who = f"{shorten(outliers)} stands out" if outliers else "none stands out"
    yield (
        f"{len(diagnosis.clients)} clients have {few:.2g} rows per feature or more, "
        f"and {who}."
    )
    yield "Whether alignment helps or costs accuracy cannot be told without labels."
    yield (
        "Diagnose again with labels of some rows; until then leave features as they "
        "are."
    )


def _notes(diagnosis):
    """Sentences on clients to look at, and on what the figures rest on."""
    for client, reason in diagnosis.clients_report.outliers.items():
        yield f"Client {client!r} stands out: {reason}"
    few = diagnosis.clients[diagnosis.rows_per_feature < 1].tolist()
    if few:
        yield (
            f"Client {shorten(few)}: fewer rows than features. What is learned of how "
            "such a client differs is coarse; more rows, or fewer features, help."
        )
    if diagnosis.table is None:
        return
    alone = _alone(diagnosis.table)
    if alone:
        yield (
            f"Client {shorten(alone)} has no class in common with another: what it "
            "does to its features cannot be told from what its classes do. A few "
            "labelled rows of a shared class would tell."
        )
    if diagnosis.weak:
        yield (
            f"Client {shorten(diagnosis.weak)} will do badly, more than "
            f"{100 * FAR_BELOW:.0f} points below the mean: look at how its features "
            "and labels were made, or let it learn from unlabelled rows by "
            "MixedEffectsClassifier.adapt_client."
        )
    aligner = getattr(diagnosis.estimator, "aligner", None)
    if isinstance(getattr(aligner, "tau", None), float):
        yield (
            "If fit warns that alignment is likely to cost accuracy, that is a rule of "
            "thumb; the rows held out here say otherwise."
        )
    if isinstance(diagnosis.estimator, FedQDAClassifier):
        yield (
            "FedQDAClassifier sends a covariance for each class, mixed effects one in "
            "all."
        )
    if np.isnan(diagnosis.accuracy).any():
        unknown = diagnosis.clients[np.isnan(diagnosis.accuracy)].tolist()
        yield (
            f"Client {shorten(unknown)}: no rows could be held out that tell how it "
            "will do."
        )
    if diagnosis.n_features > MOST_FEATURES:
        yield (
            f"Models were compared on principal components, {MOST_FEATURES} at most, "
            f"of the {diagnosis.n_features} features."
        )


def _alone(table):
    held = table.counts > 0
    shared = held[:, held.sum(axis=0) > 1].any(axis=1)
    return table.clients[~shared].tolist()
