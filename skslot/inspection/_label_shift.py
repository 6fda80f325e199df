"""Which client has which classes."""

import numpy as np

from ..model_selection import class_table
from ._drawing import axes_for, draw_heat_map


class LabelShiftDisplay:
    """Rows of each class at each client, as a heat map.

    Cells without a row are hatched: classes that a client never saw. Use
    :meth:`from_labels`.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    table : ClassTable
        The counts.

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
            Client of each row.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        display : LabelShiftDisplay
            The counts, drawn.
        """
        return cls(class_table(y, client_ids)).plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        display : LabelShiftDisplay
            This object.
        """
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
        ax.patch.set(hatch="////", edgecolor="#b0b0b0", facecolor="white")
        absent = f"{self.table.n_absent} of {counts.size} cells have no row"
        title = absent + " (hatched)" * (self.table.n_absent > 0)
        ax.set(xlabel="class", ylabel="client", title=title)
        figure.colorbar(image, ax=ax, label="rows")
        self.figure_, self.ax_ = figure, ax
        return self
