"""How far each client is from the others, and from what is still ordinary."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..trust import ClientsReport
from ._drawing import CLIENT_COLOURS, Display, as_drawn, axes_for

# What is drawn, by the name that it has in the report.
FIGURES = {"distance": "features", "class_distance": "farthest class mean"}
LEAST = 0.1  # where the axis begins, unless somebody is nearer


class ClientOutlierDisplay(Display):
    """Distance of each client from the others, and the limit above which it stands out.

    Distances are those of ``clients_report_``: of features in ordinary distances
    between clients, of class means in standard deviations within a class. Honest
    clients are at about 1. Use :meth:`from_estimator` or :meth:`from_report`.

    Read more in the :doc:`User Guide </user_guide/trust>`.

    Parameters
    ----------
    report : ClientsReport
        What was found of each client.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    skslot.trust.ClientsReport : The same as a table.
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
            Fitted; it has a ``clients_report_``.
        most : int, default=30
            Most clients to draw; of more, those that stand out and the farthest are.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

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
            What was found of each client.
        most : int, default=30
            Most clients to draw; of more, those that stand out and the farthest are.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

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
        ax.axvline(limit, color="#808080", linestyle="--", label="stands out beyond")
        positive = values[values > 0]
        ax.set_xscale("log")
        ax.set_xlim(
            min(LEAST, positive.min(initial=LEAST) / 2),
            2 * max(limit, positive.max(initial=limit)),
        )
        ax.set_ylim(len(rows) - 0.5, -0.5)  # the first on top
        names = [
            as_drawn(each.client) + " (left out)" * each.left_out for each in findings
        ]
        ax.set_yticks(rows, names)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", color="#808080", alpha=0.25)
        ax.set_axisbelow(True)
        ax.set_xlabel("distance from the other clients")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
        self.figure_, self.ax_ = figure, ax
        return self
