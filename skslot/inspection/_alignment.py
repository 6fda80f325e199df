"""Features before and after alignment, in two dimensions."""

from copy import copy

import numpy as np
from sklearn.decomposition import PCA
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._clients import clients_array
from ._drawing import CLASS_COLOURS, CLIENT_COLOURS, OTHERS, axes_for, place_legend
from ._gaussians import check_aligner

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

    def __init__(self, projections, taus, client_ids, y, explained_variance_ratio):
        self.projections = projections
        self.taus = taus
        self.client_ids = client_ids
        self.y = y
        self.explained_variance_ratio = explained_variance_ratio

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
        estimator : FederatedOTAligner
            A fitted aligner. It is not fitted again: its maps serve all strengths.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,), default=None
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row, unless they are a column of X.
        taus : array-like of float, default=None
            Strengths to show; by default 0, that of the aligner, and 1.
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
        check_aligner(estimator)
        check_is_fitted(estimator)
        rows, groups = estimator._read_rows(X, client_ids, reset=False)
        if y is not None:
            y = column_or_1d(y)
            check_consistent_length(rows, y)
        if min(rows.shape) < 2:
            raise ValueError(
                "two principal components need at least two rows and two features; X "
                f"has {rows.shape[0]} rows and {rows.shape[1]} features."
            )
        taus = [0.0, estimator.tau_, 1.0] if taus is None else taus
        taus = sorted({float(tau) for tau in taus})
        pca = PCA(n_components=2, random_state=0).fit(rows)
        projections = [
            pca.transform(_at(estimator, tau).move(rows, groups)) for tau in taus
        ]
        ids = np.empty(len(rows), dtype=object)
        for client, positions in zip(groups.clients, groups.rows, strict=True):
            ids[positions] = client
        display = cls(
            np.array(projections),
            taus,
            clients_array(ids.tolist()),
            y,
            pca.explained_variance_ratio_,
        )
        return display.plot(color_by=color_by, ax=ax)

    def plot(self, *, color_by=None, ax=None):
        """Draw.

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
            groups = _grouped(self.client_ids if name == "client" else self.y, name)
            for axis, points in zip(line, self.projections, strict=True):
                _scatter(axis, points, groups)
                self._frame(axis)
            place_legend(line[-1], name)
        for axis, tau in zip(axes[0], self.taus, strict=True):
            axis.set_title(f"tau = {tau:.2g}" + " (before)" * (tau == 0))
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
        """The same limits everywhere, without ticks: only distances have a meaning."""
        low = self.projections.min(axis=(0, 1))
        high = self.projections.max(axis=(0, 1))
        margin = 0.04 * (high - low) + 1e-12
        axis.set(
            xlim=(low[0] - margin[0], high[0] + margin[0]),
            ylim=(low[1] - margin[1], high[1] + margin[1]),
            xticks=[],
            yticks=[],
        )
        axis.spines[:].set_color("#c0c0c0")


def _at(aligner, tau):
    """Maps of a fitted aligner with another strength."""
    return copy(aligner).set_params(tau=tau)._client_maps()


def _grouped(labels, name):
    """(label, positions, colour), the largest groups in colour, all others in grey."""
    colours = COLOURS[name]
    values, codes, counts = np.unique(
        np.asarray([str(label) for label in labels])
        if labels.dtype == object
        else labels,
        return_inverse=True,
        return_counts=True,
    )
    shown = np.sort(np.argsort(-counts, kind="stable")[: len(colours)])
    groups = [
        (str(values[code]), np.flatnonzero(codes == code), colour)
        for code, colour in zip(shown, colours, strict=False)
    ]
    others = np.flatnonzero(~np.isin(codes, shown))
    if len(others):
        label = f"{len(values) - len(shown)} others"
        groups.insert(0, (label, others, OTHERS))
    return groups


def _scatter(axis, points, groups):
    """Points in an order of their own, so that no group covers another."""
    n_points = sum(len(positions) for _, positions, _ in groups)
    size = float(np.clip(6000 / n_points, 1.5, 14))
    positions = np.concatenate([positions for _, positions, _ in groups])
    colours = np.repeat(
        [colour for *_, colour in groups], [len(p) for _, p, _ in groups]
    )
    order = np.random.default_rng(0).permutation(n_points)
    axis.scatter(
        *points[positions[order]].T,
        c=colours[order].tolist(),
        s=size,
        linewidths=0,
        alpha=0.7,
        rasterized=True,
    )
    for label, _, colour in groups:
        axis.scatter([], [], c=colour, s=50, linewidths=0, label=label)
