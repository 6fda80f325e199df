"""Heat maps: which client has which classes, and how far clients are apart."""

import numpy as np

from ..model_selection import class_table
from ._alignment_report import (
    client_gaussians,
    describe_strength,
    fitted_parts,
    pairwise_distances,
)
from ._drawing import INK_ON_COLOUR, Display, as_drawn, axes_for

MOST_NUMBERS = 20  # more rows or columns than this have no room for numbers


class LabelShiftDisplay(Display):
    """Rows of each class at each client, as a heat map.

    Cells without a row are hatched: classes that a client never saw. Use
    :meth:`from_labels`.

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
        counts = self.table.counts
        size = (
            2.2 + 0.5 * min(max(counts.shape[1], 6), 16),
            1.3 + 0.42 * min(max(len(counts), 3), 16),
        )
        figure, ((ax,),) = axes_for(ax, (1, 1), size)
        image = _draw_heat_map(
            ax,
            np.ma.masked_equal(counts, 0),
            self.table.clients,
            self.table.classes,
            most=max(counts.max(), 1),
            cmap="YlGn",
            text="{:d}",
        )
        ax.patch.set(hatch="////", edgecolor="#b0b0b0", facecolor="none")
        absent = f"{self.table.n_absent} of {counts.size} cells have no row"
        title = absent + " (hatched)" * (self.table.n_absent > 0)
        ax.set(xlabel="class", ylabel="client", title=title)
        figure.colorbar(image, ax=ax, label="rows")
        self.figure_, self.ax_ = figure, ax
        return self


class ClientDistanceDisplay(Display):
    """Distances between clients before and after alignment, as two heat maps.

    A client is taken for the Gaussian that it sent, with its mean and its shrunk
    covariance, and the distance is the 2-Wasserstein distance of two of them. Use
    :meth:`from_estimator`. Both maps have one colour scale.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    before : ndarray of shape (n_clients, n_clients)
        Distances of the features as they are.
    after : ndarray of shape (n_clients, n_clients) or None
        Distances of the aligned features; None draws one map, where nothing is moved.
    clients : ndarray of shape (n_clients,)
        Client ids.
    tau : float or ndarray of shape (n_clients,)
        Strength of the alignment; mixed effects have one per client.

    Attributes
    ----------
    axes_ : ndarray of shape (2,)
        The axes, one if there is no ``after``.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    alignment_report : Distances to the reference, among other things.
    skslot.geometry.gaussian_wasserstein : The distance.

    Examples
    --------
    >>> from skslot import FederatedOTAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.inspection import ClientDistanceDisplay
    >>> data = load_digit_scanners()
    >>> aligner = FederatedOTAligner().fit(data.data, client_ids=data.client_ids)
    >>> display = ClientDistanceDisplay.from_estimator(aligner)
    >>> bool(display.after.max() < display.before.max())
    True
    """

    def __init__(self, before, after, clients, tau):
        self.before = before
        self.after = after
        self.clients = clients
        self.tau = tau

    @classmethod
    def from_estimator(cls, estimator, *, ax=None):
        """Compute the distances and draw them.

        Parameters
        ----------
        estimator : FederatedOTAligner, MixedEffectsAligner or classifier
            A fitted aligner, or a fitted classifier that has one inside.
        ax : array-like of 2 matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        display : ClientDistanceDisplay
            The distances, drawn.
        """
        estimator, aligner = fitted_parts(estimator)
        before, after = client_gaussians(estimator, aligner)
        display = cls(
            pairwise_distances(before),
            pairwise_distances(after),
            aligner.clients_,
            aligner.tau_,
        )
        return display.plot(ax=ax)

    def plot(self, ax=None):
        panels = {"before alignment": self.before}
        if self.after is not None:
            panels[f"after, {describe_strength(self.tau)}"] = self.after
        figure, axes = axes_for(ax, (1, len(panels)), (4.0, 3.4))
        most = max(values.max() for values in panels.values()) or 1.0
        for axis, (title, values) in zip(axes[0], panels.items(), strict=True):
            image = _draw_heat_map(
                axis, values, self.clients, self.clients, most=most, cmap="PuBu"
            )
            axis.set(title=title, xlabel="client", ylabel="client")
        for axis in axes[0, 1:]:
            axis.set(ylabel=None)
            axis.tick_params(labelleft=False)
        figure.colorbar(image, ax=axes.ravel().tolist(), label="2-Wasserstein distance")
        self.figure_, self.axes_ = figure, axes[0]
        return self


def _draw_heat_map(ax, values, rows, columns, *, most, cmap, text="{:.3g}"):
    """Draw values from 0 to ``most``, with a number in each that is not masked."""
    values = np.ma.asarray(values)
    image = ax.imshow(values, cmap=cmap, vmin=0, vmax=most, aspect="auto")
    ax.set_xticks(range(len(columns)), [as_drawn(name) for name in columns])
    ax.set_yticks(range(len(rows)), [as_drawn(name) for name in rows])
    ax.tick_params(length=0)
    if sum(len(str(name)) for name in columns) > 28:
        ax.tick_params(axis="x", labelrotation=90)
    ax.spines[:].set_visible(False)
    if max(values.shape) > MOST_NUMBERS:
        return image
    for (row, column), value in np.ma.ndenumerate(values):
        red, green, blue, _ = image.cmap(image.norm(value))
        is_dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        ax.text(
            column,
            row,
            text.format(value),
            ha="center",
            va="center",
            fontsize="small",
            color="white" if is_dark else INK_ON_COLOUR,
        )
    return image
