"""What all pictures share: matplotlib when it is needed, colours, heat maps."""

import numpy as np

# Distinct for colour-blind readers as well. Clients and classes have colours of their
# own, so that nobody takes a client for the class of the same colour.
CLIENT_COLOURS = (  # Okabe and Ito, without yellow, which is faint on white
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
    "#000000",
)
CLASS_COLOURS = (  # Petroff
    "#3f90da",
    "#ffa90e",
    "#bd1f01",
    "#94a4a2",
    "#832db6",
    "#a96b59",
    "#e76300",
    "#b9ac70",
    "#717581",
    "#92dadd",
)
OTHERS = "#d0d0d0"
MOST_NUMBERS = 20  # more rows or columns than this have no room for numbers


def pyplot():
    """matplotlib.pyplot, or an error that names the extra."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib, which is missing. Install it with: "
            'pip install "skslot[plot]"'
        ) from error
    return plt


def axes_for(ax, shape, cell_size):
    """Figure and a 2-D array of axes: those given, or new ones."""
    plt = pyplot()
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


def place_legend(ax, title):
    """Legend to the right of the axes, where it covers nothing."""
    ax.legend(title=title, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def draw_heat_map(ax, values, rows, columns, *, most, cmap, text="{:.3g}"):
    """Heat map from 0 to ``most`` with a number in each cell that is not masked."""
    values = np.ma.asarray(values)
    ax.set_facecolor("white")
    image = ax.imshow(values, cmap=cmap, vmin=0, vmax=most, aspect="auto")
    ax.set_xticks(range(len(columns)), [str(name) for name in columns])
    ax.set_yticks(range(len(rows)), [str(name) for name in rows])
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
            color="white" if is_dark else "black",
        )
    return image
