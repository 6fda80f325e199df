"""Pictures inside a page: for wide and narrow screens, for light and dark ones."""

from base64 import b64encode
from dataclasses import replace
from html import escape
from io import StringIO

import numpy as np

from ..inspection import LabelShiftDisplay

NARROW = 3.7  # inches: what fits a telephone at the size of the text
# What is black belongs to the page, and has the colour of its text.
STYLE = (
    "<style>svg{color:#1b1b1b;fill:currentColor}"
    "@media (prefers-color-scheme:dark){svg{color:#e8e8e8}}</style>"
)


def picture(display, narrow, alt, caption):
    """A drawn display on the page, with a text for those who do not see it.

    ``narrow(display)`` draws it again for narrow screens.
    """
    wide = _as_source(display.figure_)
    slim = _as_source(narrow(display).figure_)
    return (
        f'<figure><picture><source media="(max-width: 40rem)" srcset="{slim}">'
        f'<img alt="{escape(alt)}" src="{wide}"></picture>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _as_source(figure):
    """A figure as the address of an image that holds all of it."""
    import matplotlib.pyplot as plt  # which the display has used
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    figure.patch.set_visible(False)
    for axis in figure.axes:
        axis.patch.set_facecolor("none")
    file = StringIO()
    figure.set_dpi(150)  # of points, which are a picture in the picture
    with plt.rc_context({"svg.hashsalt": "skslot"}):  # the same page on every call
        # what savefig does, which would draw all of it a first time for the layout
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    plt.close(figure)
    text = file.getvalue()
    root_end = text.index(">", text.index("<svg")) + 1
    text = text[:root_end] + STYLE + text[root_end:]
    text = text.replace("#000000", "currentColor")
    return f"data:image/svg+xml;base64,{b64encode(text.encode()).decode()}"


# ------------------------------------------------- displays drawn for narrow screens


def _axes(n_rows, n_columns, height):
    import matplotlib.pyplot as plt

    size = NARROW, height
    return plt.subplots(
        n_rows, n_columns, figsize=size, layout="constrained", squeeze=False
    )[1]


def _legend_below(axis, title=None, lines=0):
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(
        handles,
        labels,
        title=title,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.02 if lines == 0 else -0.28),
        ncols=2,
        fontsize="small",
        frameon=False,
        handlelength=1.2 if lines == 0 else 2.5,  # dashes must be told apart
        columnspacing=1,
    )


def narrow_bar(display):
    """Shares of the variance, with their legend in two lines."""
    ((axis,),) = _axes(1, 1, 2.1)
    display.plot(ax=axis)
    _legend_above(axis)
    axis.set_xticks(axis.get_xticks()[::5], ["0%", "100%"])
    return display


def narrow_dots(display):
    """Distances of clients, with their legend in two lines."""
    n_clients = len(list(display.report))
    ((axis,),) = _axes(1, 1, 1.6 + 0.28 * n_clients)
    display.plot(ax=axis)
    _legend_above(axis)
    return display


def _legend_above(axis):
    # from the right, as names of clients stand on the left
    axis.legend(
        loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=9
    )


def narrow_lines(display):
    """Scores over tau, with their legend below."""
    ((axis,),) = _axes(1, 1, 4.4)
    display.plot(ax=axis)
    _legend_below(axis, lines=1)
    return display


def narrow_classes(display):
    """Rows of classes at clients, the more numerous of both from top to bottom."""
    table = display.table
    counts = table.counts
    turned = counts.shape[1] > len(counts)
    if turned:
        turned_names = {"clients": table.classes, "classes": table.clients}
        table = replace(table, counts=counts.T, **turned_names)
    n_rows = len(table.counts)
    ((axis,),) = _axes(1, 1, 1.5 + 0.3 * min(max(n_rows, 3), 30))
    drawn = LabelShiftDisplay(table).plot(ax=axis)
    if turned:
        axis.set(xlabel="client", ylabel="class")
    _turn_long_names(axis, table.classes)
    axis.set_title(axis.get_title(), fontsize=10)
    return drawn


def untitled_classes(display):
    """The same, without what the title says of empty cells."""
    return untitled(narrow_classes(display))


def untitled(display):
    """A display without its title."""
    display.ax_.set_title("")
    return display


def narrow_distances(display):
    """Distances before alignment above those after it."""
    n_panels = 1 if display.after is None else 2
    axes = _axes(n_panels, 1, 3.1 * n_panels).ravel()
    display.plot(ax=axes)
    for axis in axes:
        axis.tick_params(labelleft=True)
        axis.set(xlabel=None, ylabel=None)
        axis.set_title(axis.get_title().replace(", tau", ",\ntau"), fontsize=9)
        _turn_long_names(axis, display.clients)
    return display


def _turn_long_names(axis, names):
    if sum(len(str(name)) for name in names) > 16:
        axis.tick_params(axis="x", labelrotation=90)


def narrow_points(display):
    """Rows by client beside rows by class, and strengths below each other."""
    n_colourings, n_taus = display.axes_.shape
    longest = np.max([len(np.unique(display.client_ids)), 1])
    if display.y is not None:
        longest = max(longest, min(len(np.unique(display.y)), 11))
    lines = -(-longest // 2) + 1
    axes = _axes(n_taus, n_colourings, n_taus * 3.4 / n_colourings + 0.2 * lines)
    display.plot(ax=axes.T)
    names = ["client", "class"][:n_colourings]
    for name, column in zip(names, axes.T, strict=True):
        _legend_below(column[-1], name)
        for axis in column:
            axis.set(xlabel=None, ylabel=None)
    return display
