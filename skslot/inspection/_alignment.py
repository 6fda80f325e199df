"""Features before and after alignment, in two dimensions."""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.utils import check_consistent_length, column_or_1d

from .._utils import shorten
from ..alignment import MixedEffectsAligner
from ..base import clients_array, rows_by_client
from ._alignment_report import fitted_parts, with_own_offsets
from ._drawing import (
    CLASS_COLOURS,
    CLIENT_COLOURS,
    OTHERS,
    as_drawn,
    axes_for,
    place_legend,
)

COLOURS = {"client": CLIENT_COLOURS, "class": CLASS_COLOURS}


class AlignmentDisplay:
    """Features in two dimensions, for several strengths of the alignment.

    One column per ``tau``, one row coloured by client and one by class: the figures of
    the appendix of the SLOT-Align paper. Use :meth:`from_estimator`. All panels show
    the same two directions, the principal components of the features before alignment,
    at the same scale.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    projections : ndarray of shape (n_taus, n_samples, 2)
        Where each row is, for each strength.
    taus : list of float
        The strengths.
    client_ids : ndarray of shape (n_samples,)
        Client of each row.
    y : ndarray of shape (n_samples,) or None
        Labels.
    explained_variance_ratio : ndarray of shape (2,)
        Share of each direction in the variance before alignment.
    titles : list of str, default=None
        Title of each column; by default its strength.

    Attributes
    ----------
    axes_ : ndarray of shape (n_colourings, n_taus)
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    ClientDistanceDisplay : The same in numbers, in all dimensions.

    Examples
    --------
    >>> from skslot import FederatedOTAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.inspection import AlignmentDisplay
    >>> data = load_digit_scanners()
    >>> aligner = FederatedOTAligner().fit(data.data, client_ids=data.client_ids)
    >>> display = AlignmentDisplay.from_estimator(
    ...     aligner, data.data, data.target, client_ids=data.client_ids
    ... )
    >>> display.taus
    [0.0, 0.4, 1.0]
    """

    def __init__(
        self, projections, taus, client_ids, y, explained_variance_ratio, titles=None
    ):
        self.projections = projections
        self.taus = taus
        self.client_ids = client_ids
        self.y = y
        self.explained_variance_ratio = explained_variance_ratio
        self.titles = titles

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        client_ids=None,
        *,
        taus=None,
        color_by=None,
        ax=None,
    ):
        """Align rows with several strengths, project them, and draw them.

        Parameters
        ----------
        estimator : FederatedOTAligner, MixedEffectsAligner or classifier
            A fitted aligner, or a fitted classifier that has one inside. It is not
            fitted again: its maps serve all strengths.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,), default=None
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row, unless they are a column of X.
        taus : array-like of float, default=None
            Strengths to show; by default 0, that of the aligner, and 1. For mixed
            effects, whose strengths are those of the fit, this is how much of the way
            rows are moved, by default 0 and 1: before and after.
        color_by : {"client", "class"} or list of these, default=None
            What colours mean, one row of panels each; by default both, if there are
            labels.
        ax : array-like of matplotlib Axes, default=None
            Where to draw, one for each panel; a new figure by default.

        Returns
        -------
        display : AlignmentDisplay
            The projections, drawn.
        """
        estimator, aligner = fitted_parts(estimator)
        rows, groups = rows_by_client(estimator, X, client_ids)
        if y is not None:
            y = column_or_1d(y)
            check_consistent_length(rows, y)
        if min(rows.shape) < 2:
            raise ValueError(
                "two principal components need at least two rows and two features; X "
                f"has {rows.shape[0]} rows and {rows.shape[1]} features."
            )
        is_mixed = isinstance(aligner, MixedEffectsAligner)
        if taus is None:
            taus = [0.0, 1.0] if is_mixed else [0.0, aligner.tau_, 1.0]
        taus = sorted({float(tau) for tau in taus})
        pca = PCA(n_components=2, random_state=0).fit(rows)
        maps = aligner.maps_
        unknown = [client for client in groups.clients if client not in maps]
        if unknown:
            raise ValueError(
                f"client {shorten(unknown)} was not seen in fit. Call "
                "add_client(X, client) before its samples are drawn."
            )
        maps = [maps[client] for client in groups.clients]
        maps = with_own_offsets(estimator, groups.clients, maps)
        display = cls(
            np.array([pca.transform(_moved(rows, groups, maps, t)) for t in taus]),
            taus,
            clients_array(groups.ids().tolist()),
            y,
            pca.explained_variance_ratio_,
            [_part_of_the_way(tau) for tau in taus] if is_mixed else None,
        )
        return display.plot(color_by=color_by, ax=ax)

    def plot(self, *, color_by=None, ax=None):
        """Draw the projections.

        Parameters
        ----------
        color_by : {"client", "class"} or list of these, default=None
            What colours mean, one row of panels each; by default both, if there are
            labels.
        ax : array-like of matplotlib Axes, default=None
            Where to draw, one for each panel; a new figure by default.

        Returns
        -------
        display : AlignmentDisplay
            This object.
        """
        names = self._colourings(color_by)
        figure, axes = axes_for(ax, (len(names), len(self.taus)), (2.6, 2.6))
        for name, line in zip(names, axes, strict=True):
            labels = self.client_ids if name == "client" else self.y
            colours, legend = _coloured(labels, COLOURS[name])
            for axis, points in zip(line, self.projections, strict=True):
                _scatter(axis, points, colours, legend)
                self._frame(axis)
            place_legend(line[-1], name)
        titles = self.titles or [
            f"tau = {tau:.2g}" + " (before)" * (tau == 0) for tau in self.taus
        ]
        for axis, title in zip(axes[0], titles, strict=True):
            axis.set_title(title)
        shares = [f"{share:.0%}" for share in self.explained_variance_ratio]
        axes[-1, 0].set_xlabel(f"component 1 ({shares[0]})")
        for axis in axes[:, 0]:
            axis.set_ylabel(f"component 2 ({shares[1]})")
        self.figure_, self.axes_ = figure, axes
        return self

    def _colourings(self, color_by):
        if color_by is None:
            return ["client"] if self.y is None else ["client", "class"]
        names = [color_by] if isinstance(color_by, str) else list(color_by)
        if not names or set(names) - set(COLOURS):
            raise ValueError(
                f"color_by must be 'client', 'class' or a list of these, got "
                f"{color_by!r}."
            )
        if "class" in names and self.y is None:
            raise ValueError("color_by='class' needs labels; pass y.")
        return names

    def _frame(self, axis):
        """Set the same limits everywhere, without ticks: only distances count."""
        low = self.projections.min(axis=(0, 1))
        high = self.projections.max(axis=(0, 1))
        margin = 0.04 * (high - low) + 1e-12
        xlim, ylim = np.transpose([low - margin, high + margin])
        axis.set(xlim=xlim, ylim=ylim, xticks=[], yticks=[])
        axis.spines[:].set_color("#c0c0c0")


def _part_of_the_way(share):
    return {0.0: "before", 1.0: "after"}.get(share, f"{share:.0%} of the way")


def _coloured(labels, colours):
    """Colour of each row and each label, the largest in colour, others in grey."""
    if labels.dtype == object:
        labels = np.array([str(label) for label in labels])
    values, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    shown = np.sort(np.argsort(-counts, kind="stable")[: len(colours)])
    palette = np.full(len(values), OTHERS)
    palette[shown] = colours[: len(shown)]
    legend = {as_drawn(values[code]): palette[code] for code in shown}
    if len(values) > len(shown):
        legend = {f"{len(values) - len(shown)} others": OTHERS, **legend}
    return palette[codes], legend


def _moved(X, groups, maps, tau):
    """Rows moved by the maps of their clients, with another strength."""
    moved = np.empty_like(X)
    for client_map, rows in zip(maps, groups.rows, strict=True):
        moved[rows] = client_map.at(tau).transform(X[rows])
    return moved


def _scatter(axis, points, colours, legend):
    """Draw points in random order, so that no group covers another."""
    order = np.random.default_rng(0).permutation(len(points))
    axis.scatter(
        *points[order].T,
        c=colours[order].tolist(),
        s=float(np.clip(6000 / len(points), 1.5, 14)),
        linewidths=0,
        alpha=0.7,
        rasterized=True,
    )
    for label, colour in legend.items():
        axis.scatter([], [], c=colour, s=50, linewidths=0, label=label)
