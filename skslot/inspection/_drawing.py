"""Shared by all displays: axes, colours, legends, heat maps."""

import numpy as np

from .._utils import import_optional, printable

# Distinct for colour-blind readers. Clients and classes have colours of their own, so
# that no client looks like a class. The first are by Okabe and Ito, without yellow,
# which is faint on white, and with grey for black, which is invisible on dark pages;
# the others are by Petroff.
CLIENT_COLOURS = "#0072b2 #e69f00 #009e73 #d55e00 #cc79a7 #56b4e9 #808080".split()
CLASS_COLOURS = (
    "#3f90da #ffa90e #bd1f01 #94a4a2 #832db6 #a96b59 #e76300 #b9ac70 #717581 #92dadd"
).split()
OTHERS = "#d0d0d0"
# Text on a light cell or bar. The report replaces pure black by the text colour of the
# page, which may be white.
INK_ON_COLOUR = "#101010"
MOST_LETTERS = 16
MOST_NUMBERS = 20  # more rows or columns than this have no room for numbers
NARROW = 5.0  # inches; on a narrower figure, legends are below the axes


class Display:
    """Picture of numbers that were computed before."""

    def plot(self, ax=None):
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of them, default=None
            Axes to draw on, one per panel. If None, a new figure is made.

        Returns
        -------
        display : Display
            This object.
        """


def axes_for(ax, shape, cell_size):
    """Return the figure and a 2-D array of axes: those given, or new ones."""
    plt = import_optional("matplotlib.pyplot", "plot", "a picture")
    if ax is not None:
        axes = np.asarray(ax, dtype=object)
        if axes.size != shape[0] * shape[1]:
            raise ValueError(
                f"ax must hold {shape[0]} x {shape[1]} axes, got {axes.size}."
            )
        axes = axes.reshape(shape)
        return axes[0, 0].figure, axes
    return plt.subplots(
        *shape,
        figsize=(shape[1] * cell_size[0], shape[0] * cell_size[1]),
        layout="constrained",
        squeeze=False,
    )


def is_narrow(ax):
    """Whether there is no room for a legend or a label next to the axes."""
    return ax.figure.bbox.width < NARROW * ax.figure.dpi


def as_drawn(name):
    """Return the name of a client or class for a picture, shortened in the middle.

    A ``$`` is escaped, because it would begin a formula.
    """
    text, half = printable(name), MOST_LETTERS // 2
    if len(text) > MOST_LETTERS:
        text = f"{text[:half]}…{text[-half:]}"
    return text.replace("$", r"\$")


def legend_outside(ax, title, below=-0.28):
    """Place the legend to the right of the axes; on a narrow figure, below them."""
    where = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    if is_narrow(ax):
        where = {"loc": "upper center", "bbox_to_anchor": (0.5, below), "ncols": 2}
    ax.legend(title=title, frameon=False, columnspacing=1, **where)


def legend_above(ax, n_columns, **options):
    """Place the legend above the axes; on a narrow figure, in two columns."""
    where = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": n_columns}
    if is_narrow(ax):  # from the right, because names of clients are on the left
        where = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 2}
    ax.legend(frameon=False, **where, **options)


def draw_heat_map(ax, values, rows, columns, *, most, cmap, text="{:.3g}"):
    """Draw values from 0 to ``most``, with a number in each that is not masked."""
    values = np.ma.asarray(values)
    image = ax.imshow(values, cmap=cmap, vmin=0, vmax=most, aspect="auto")
    ax.set_xticks(range(len(columns)), [as_drawn(name) for name in columns])
    ax.set_yticks(range(len(rows)), [as_drawn(name) for name in rows])
    ax.tick_params(length=0)
    if sum(len(str(name)) for name in columns) > (16 if is_narrow(ax) else 28):
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
