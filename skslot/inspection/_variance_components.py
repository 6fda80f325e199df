"""Where the differences between rows come from, as stacked bars."""

import numpy as np

from ..alignment import MixedEffectsAligner
from ._alignment_report import fitted_parts, variance_shares
from ._drawing import INK_ON_COLOUR, Display, as_drawn, axes_for

# Dark, middle, light: apart in black and white too. What a site does is of one hue.
COLOURS = {
    "class": "#00507d",
    "site": "#d55e00",
    "site by class": "#f0a45f",
    "within": "#e4e4e4",
}
DARK = {"class", "site"}
LEAST_INSIDE = 0.055  # smaller shares have no room for their number in the bar
GAP = 0.085  # between numbers that stand above the bar


class VarianceComponentsDisplay(Display):
    """Shares of class, site and their interaction in the variance of rows, as bars.

    A long *class* part makes classification easy. The *site* part is what mixed effects
    take out. *Site by class* is what they cannot, as it differs from class to class:
    sites with labels of all classes learn it, and others from unlabelled rows. *Within*
    is what tells rows of one class at one site apart. Use :meth:`from_estimator`, or
    :meth:`from_estimators` to compare data sets or blocks of features.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    shares : ndarray of shape (n_bars, 4)
        Shares of class, site, site by class and within; each row has the sum 1.
    names : list of str
        What each bar is of.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    skslot.MixedEffectsClassifier.summary : The same in words.
    alignment_report : Each site by itself.

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
            Fitted; or another classifier that was fitted with such an aligner.
        name : str, default=""
            What the bar is of.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

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
            Fitted, by the name of their bar, such as that of a data set or of a block
            of features.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

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
        ax.set_xlabel("share of the variance of rows")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 1),
            ncols=len(COLOURS),
            frameon=False,
            handlelength=1,
            columnspacing=1.4,
        )
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
    """Ascending positions moved as little as keeps them readable, within the bar."""
    positions = np.clip(positions, GAP / 2, 1 - GAP / 2)
    steps = GAP * np.arange(len(positions))
    pushed = np.maximum.accumulate(positions - steps) + steps
    return pushed - max(pushed[-1] - (1 - GAP / 2), 0) if len(pushed) else pushed
