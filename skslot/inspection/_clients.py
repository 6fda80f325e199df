"""Displays of clients: their classes, their distances, their parts of the variance."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..alignment import MixedEffectsAligner
from ..model_selection import class_table
from ..trust import ClientsReport
from ._alignment import fitted_parts, variance_shares
from ._drawing import (
    CLIENT_COLOURS,
    INK_ON_COLOUR,
    Display,
    as_drawn,
    axes_for,
    draw_heat_map,
    legend_above,
)

# Legend of each distance, by its name in the report.
FIGURES = {"distance": "features", "class_distance": "farthest class mean"}
LEAST = 0.1  # left end of the axis, unless a client is nearer
# Dark, middle, light: distinct in black and white too. Both site parts have one hue.
COLOURS = {
    "class": "#00507d",
    "site": "#d55e00",
    "site by class": "#f0a45f",
    "within": "#e4e4e4",
}
DARK = {"class", "site"}
LEAST_INSIDE = 0.055  # smaller shares have no room for their number in the bar
GAP = 0.085  # between numbers that stand above the bar


class LabelShiftDisplay(Display):
    """Number of samples of each class at each client, as a heat map.

    Empty cells are hatched: classes that a client never saw. Use :meth:`from_labels`.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    table : ClassTable
        The counts, from :func:`skslot.model_selection.class_table`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    skslot.model_selection.class_table : The counts as text.

    Examples
    --------
    >>> from skslot.inspection import LabelShiftDisplay
    >>> display = LabelShiftDisplay.from_labels([0, 1, 1], ["A", "A", "B"])
    >>> display.table.counts
    array([[1, 1],
           [0, 1]])
    """

    def __init__(self, table):
        self.table = table

    @classmethod
    def from_labels(cls, y, client_ids, *, ax=None):
        """Count labels and draw the counts.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels.
        client_ids : array-like of shape (n_samples,)
            Client of each sample.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is made.

        Returns
        -------
        display : LabelShiftDisplay
            The counts, drawn.
        """
        return cls(class_table(y, client_ids)).plot(ax=ax)

    def plot(self, ax=None):
        counts = self.table.counts
        size = (
            2.2 + 0.5 * min(max(counts.shape[1], 6), 16),
            1.3 + 0.42 * min(max(len(counts), 3), 16),
        )
        figure, ((ax,),) = axes_for(ax, (1, 1), size)
        image = draw_heat_map(
            ax,
            np.ma.masked_equal(counts, 0),
            self.table.clients,
            self.table.classes,
            most=max(counts.max(), 1),
            cmap="YlGn",
            text="{:d}",
        )
        ax.patch.set(hatch="////", edgecolor="#b0b0b0", facecolor="none")
        title = f"{self.table.n_absent} of {counts.size} cells are empty"
        title += " (hatched)" * (self.table.n_absent > 0)
        ax.set(xlabel="class", ylabel="client", title=title)
        figure.colorbar(image, ax=ax, label="rows")
        self.figure_, self.ax_ = figure, ax
        return self


class ClientOutlierDisplay(Display):
    """Distance of each client from the others, and the limit for outliers.

    Shows the distances in ``clients_report_``: of features in ordinary distances
    between clients, of class means in standard deviations within a class. Ordinary
    clients are at about 1. Use :meth:`from_estimator` or :meth:`from_report`.

    Read more in the :doc:`User Guide </user_guide/trust>`.

    Parameters
    ----------
    report : ClientsReport
        Figures of each client.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    skslot.trust.ClientsReport : The distances as a table.
    ClientDistanceDisplay : Distances between any two clients.

    Examples
    --------
    >>> from skslot import FedCGSClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.inspection import ClientOutlierDisplay
    >>> data = load_digit_scanners()
    >>> classifier = FedCGSClassifier()
    >>> classifier = classifier.fit(data.data, data.target, client_ids=data.client_ids)
    >>> display = ClientOutlierDisplay.from_estimator(classifier)
    >>> display.ax_.get_xlabel()
    'distance from the other clients'
    """

    def __init__(self, report):
        self.report = report

    @classmethod
    def from_estimator(cls, estimator, *, most=30, ax=None):
        """Draw the clients of a fitted classifier or aligner.

        Parameters
        ----------
        estimator : estimator object
            Fitted classifier or aligner with a ``clients_report_``.
        most : int, default=30
            Maximum number of clients to draw. Of more clients, outliers and the
            farthest others are drawn.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is made.

        Returns
        -------
        display : ClientOutlierDisplay
            The distances, drawn.
        """
        check_is_fitted(estimator)
        return cls.from_report(estimator.clients_report_, most=most, ax=ax)

    @classmethod
    def from_report(cls, report, *, most=30, ax=None):
        """Draw the clients of a report.

        Parameters
        ----------
        report : ClientsReport
            Figures of each client.
        most : int, default=30
            Maximum number of clients to draw. Of more clients, outliers and the
            farthest others are drawn.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is made.

        Returns
        -------
        display : ClientOutlierDisplay
            The distances, drawn.
        """
        return cls(report.farthest(most)).plot(ax=ax)

    def plot(self, ax=None):
        findings = list(self.report)
        figure, ((ax,),) = axes_for(ax, (1, 1), (6.8, 1.4 + 0.28 * len(findings)))
        rows = np.arange(len(findings))
        values = np.array([[getattr(f, name) for name in FIGURES] for f in findings])
        for column, (words, marker) in enumerate(
            zip(FIGURES.values(), "os", strict=True)
        ):
            known = values[:, column] > 0
            if known.any():
                ax.plot(
                    values[known, column],
                    rows[known],
                    marker,
                    color=CLIENT_COLOURS[column],
                    label=words,
                )
        limit = ClientsReport.MOST_DISTANCE
        ax.axvline(limit, color="#808080", linestyle="--", label="limit for outliers")
        positive = values[values > 0]
        ax.set_xscale("log")
        ax.set_xlim(
            min(LEAST, positive.min(initial=LEAST) / 2),
            2 * max(limit, positive.max(initial=limit)),
        )
        ax.set_ylim(len(rows) - 0.5, -0.5)  # the first on top
        names = [
            as_drawn(each.client) + " (excluded)" * each.left_out for each in findings
        ]
        ax.set_yticks(rows, names)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", color="#808080", alpha=0.25)
        ax.set_axisbelow(True)
        ax.set_xlabel("distance from the other clients")
        ax.spines[["top", "right", "left"]].set_visible(False)
        legend_above(ax, 3)
        self.figure_, self.ax_ = figure, ax
        return self


class VarianceComponentsDisplay(Display):
    """Shares of class, site and their interaction in the variance of samples, as bars.

    A long *class* part makes classification easy. Mixed effects remove the *site* part.
    They cannot remove *site by class*, which differs between classes: sites learn it
    from labels of all classes, or from unlabelled samples. *Within* is the variance
    between samples of one class at one site. Use :meth:`from_estimator`, or
    :meth:`from_estimators` to compare data sets or blocks of features.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    shares : ndarray of shape (n_bars, 4)
        Shares of class, site, site by class and within; each row has the sum 1.
    names : list of str
        Name of each bar.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    skslot.MixedEffectsClassifier.summary : The shares in words.
    alignment_report : Report on each site.

    Examples
    --------
    >>> from skslot import MixedEffectsAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.inspection import VarianceComponentsDisplay
    >>> data = load_digit_scanners()
    >>> aligner = MixedEffectsAligner()
    >>> aligner = aligner.fit(data.data, data.target, client_ids=data.client_ids)
    >>> display = VarianceComponentsDisplay.from_estimator(aligner)
    >>> display.shares.round(2)
    array([[0.3 , 0.18, 0.06, 0.46]])
    """

    def __init__(self, shares, names):
        self.shares = shares
        self.names = names

    @classmethod
    def from_estimator(cls, estimator, *, name="", ax=None):
        """Draw the variance components of one estimator.

        Parameters
        ----------
        estimator : MixedEffectsAligner or MixedEffectsClassifier
            Fitted estimator, or another classifier that was fitted with such an
            aligner.
        name : str, default=""
            Name of the bar.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is made.

        Returns
        -------
        display : VarianceComponentsDisplay
            The shares, drawn.
        """
        return cls.from_estimators({name: estimator}, ax=ax)

    @classmethod
    def from_estimators(cls, estimators, *, ax=None):
        """Draw the variance components of several estimators, one bar each.

        Parameters
        ----------
        estimators : dict of MixedEffectsAligner or MixedEffectsClassifier
            Fitted estimators by name, such as the name of a data set or of a block of
            features.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is made.

        Returns
        -------
        display : VarianceComponentsDisplay
            The shares, drawn.
        """
        if not estimators:
            raise ValueError("estimators is empty; pass at least one, with a name.")
        shares = [list(_shares(each).values()) for each in estimators.values()]
        names = [str(name) for name in estimators]
        return cls(np.array(shares), names).plot(ax=ax)

    def plot(self, ax=None):
        figure, ((ax,),) = axes_for(ax, (1, 1), (6.8, 1.3 + 0.62 * len(self.names)))
        ends = np.cumsum(self.shares, axis=1)
        rows = np.arange(len(self.names))
        for column, (part, colour) in enumerate(COLOURS.items()):
            widths = self.shares[:, column]
            lefts = ends[:, column] - widths
            options = {"color": colour, "edgecolor": "white", "linewidth": 0.8}
            ax.barh(rows, widths, 0.56, left=lefts, label=part, **options)
        for row in rows:
            _write_shares(ax, row, self.shares[row], ends[row])
        ax.set_xlim(0, 1)
        ax.set_ylim(len(rows) - 0.5, -0.6)  # the first on top
        ax.set_xticks(np.linspace(0, 1, 6), [f"{x:.0%}" for x in np.linspace(0, 1, 6)])
        ax.set_yticks(rows, [as_drawn(name) for name in self.names])
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("share of the variance of samples")
        ax.spines[["top", "right", "left"]].set_visible(False)
        legend_above(ax, len(COLOURS), handlelength=1, columnspacing=1.4)
        self.figure_, self.ax_ = figure, ax
        return self


def _shares(estimator):
    _, aligner = fitted_parts(estimator)
    if not isinstance(aligner, MixedEffectsAligner):
        raise TypeError(
            f"a {type(aligner).__name__} has no variance components; pass a fitted "
            "MixedEffectsAligner or MixedEffectsClassifier."
        )
    return variance_shares(aligner)


def _write_shares(ax, row, shares, ends):
    """Write the shares into the parts of a bar, or above those that are narrow."""
    centres = ends - shares / 2
    narrow = shares < LEAST_INSIDE
    above = dict(zip(np.flatnonzero(narrow), _apart(centres[narrow]), strict=True))
    for column, part in enumerate(COLOURS):
        text = f"{shares[column]:.1%}" if column in above else f"{shares[column]:.0%}"
        options = {"ha": "center", "va": "center", "fontsize": "small"}
        if column not in above:
            colour = "white" if part in DARK else INK_ON_COLOUR
            ax.text(centres[column], row, text, color=colour, **options)
            continue
        ax.annotate(
            text,
            (centres[column], row - 0.29),
            (above[column], row - 0.43),
            arrowprops={"arrowstyle": "-", "color": "#707070", "linewidth": 0.7},
            **options,
        )


def _apart(positions):
    """Move ascending positions apart, within the bar, so that numbers are readable."""
    positions = np.clip(positions, GAP / 2, 1 - GAP / 2)
    steps = GAP * np.arange(len(positions))
    pushed = np.maximum.accumulate(positions - steps) + steps
    return pushed - max(pushed[-1] - (1 - GAP / 2), 0) if len(pushed) else pushed
