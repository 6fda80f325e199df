"""What all pictures share: matplotlib when it is needed, axes, colours, legends."""

import numpy as np

from .._utils import import_optional, printable

# Distinct for colour-blind readers as well. Clients and classes have colours of their
# own, so that nobody takes a client for the class of the same colour.
# The first are of Okabe and Ito, without yellow, which is faint on white, and with grey
# for black, which cannot be seen on dark pages; the others of Petroff.
CLIENT_COLOURS = "#0072b2 #e69f00 #009e73 #d55e00 #cc79a7 #56b4e9 #808080".split()
CLASS_COLOURS = (
    "#3f90da #ffa90e #bd1f01 #94a4a2 #832db6 #a96b59 #e76300 #b9ac70 #717581 #92dadd"
).split()
OTHERS = "#d0d0d0"
# Text on a light cell or bar. Black is for what stands on the page itself, whatever
# colour that has.
INK_ON_COLOUR = "#101010"
MOST_LETTERS = 16


class Display:
    """Picture of numbers that were computed before."""

    def plot(self, ax=None):
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of them, default=None
            Where to draw, one for each panel; a new figure by default.

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
    figure, axes = plt.subplots(
        *shape,
        figsize=(shape[1] * cell_size[0], shape[0] * cell_size[1]),
        layout="constrained",
        squeeze=False,
    )
    return figure, axes


def as_drawn(name):
    """Name of a client or class for a picture, in which no ``$`` begins a formula.

    Of a long one, beginning and end: it would leave no room for what is drawn.
    """
    text, half = printable(name), MOST_LETTERS // 2
    if len(text) > MOST_LETTERS:
        text = f"{text[:half]}…{text[-half:]}"
    return text.replace("$", r"\$")


def place_legend(ax, title):
    """Place the legend to the right of the axes, where it covers nothing."""
    ax.legend(title=title, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
