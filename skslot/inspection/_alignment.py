"""What alignment does to clients: a report, their distances, their features."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from textwrap import fill

import numpy as np
from scipy.linalg import eigvalsh
from sklearn.decomposition import PCA
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._utils import printable, shorten, text_table
from ..alignment import FederatedOTAligner, MixedEffectsAligner
from ..base import clients_array, rows_by_client
from ..geometry import gaussian_wasserstein
from ._drawing import (
    CLASS_COLOURS,
    CLIENT_COLOURS,
    OTHERS,
    Display,
    as_drawn,
    axes_for,
    draw_heat_map,
    is_narrow,
    legend_outside,
)

HIGH_CONDITION = 1e4  # float16 messages and maps lose directions from here on


# ------------------------------------------------------------------ fitted estimators


def fitted_parts(estimator):
    """Return the fitted estimator, which a search may hold, and its aligner."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    aligner = getattr(estimator, "aligner_", estimator)
    if not isinstance(aligner, (FederatedOTAligner, MixedEffectsAligner)):
        raise TypeError(
            "estimator must be a fitted FederatedOTAligner or MixedEffectsAligner, or "
            "a classifier that was fitted with one as aligner, got a "
            f"{type(estimator).__name__}; in a Pipeline it is one of the named_steps."
        )
    check_is_fitted(aligner)
    return estimator, aligner


def variance_shares(aligner):
    """Return the share of each kind of effect in the variance of samples."""
    components = aligner.variance_components_
    parts = {
        "class": components["class"],
        "site": components["client"],
        "site by class": components["interaction"],
        "within": 1.0,
    }
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def describe_strength(tau):
    """Describe the alignment strength, which mixed effects have one of per client."""
    if np.ndim(tau) == 0:
        return f"tau = {tau:.2g}"
    low, high = f"{tau.min():.2g}", f"{tau.max():.2g}"
    if tau.max() == 0:
        return "offsets only"
    return f"offsets, tau = {low}" + f" to {high}" * (low != high)


def _maps_of(estimator, aligner, clients):
    """Return the map of each client, with the offset that ``adapt_client`` learned."""
    unknown = [client for client in clients if client not in aligner.maps_]
    if unknown:
        raise ValueError(
            f"client {shorten(unknown)} was not seen in fit. Call "
            "add_client(X, client) before its samples are drawn."
        )
    maps = [aligner.maps_[client] for client in clients]
    if estimator is aligner or not hasattr(estimator, "client_offsets_"):
        return maps
    offsets = dict(
        zip(aligner.clients_.tolist(), estimator.client_offsets_, strict=True)
    )
    pairs = zip(clients, maps, strict=True)
    return [replace(each, offset=offsets[client]) for client, each in pairs]


class ClientDistances:
    """Distances between the clients of a fitted aligner, each computed once.

    A client is described by the Gaussian that it sent, before and after alignment.
    """

    def __init__(self, estimator):
        self.estimator, self.aligner = fitted_parts(estimator)

    @cached_property
    def gaussians(self):
        """Pairs of mean and covariance of each client, before and after alignment."""
        aligner = self.aligner
        before = list(zip(aligner.means_, aligner.covariances_, strict=True))
        maps = _maps_of(self.estimator, aligner, aligner.clients_.tolist())
        after = []
        for (mean, covariance), client_map in zip(before, maps, strict=True):
            matrix, offset = client_map.affine
            if matrix is not None:
                mean, covariance = matrix @ mean, matrix @ covariance @ matrix.T
            after.append((mean + offset, covariance))
        return before, after

    @cached_property
    def before(self):
        """Distance between any two clients before alignment."""
        return _pairwise_distances(self.gaussians[0])

    @cached_property
    def after(self):
        """Distance between any two clients after alignment."""
        return _pairwise_distances(self.gaussians[1])


def _pairwise_distances(gaussians):
    distances = np.zeros((len(gaussians), len(gaussians)))
    for i, first in enumerate(gaussians):
        for j, second in enumerate(gaussians[:i]):
            distances[i, j] = distances[j, i] = gaussian_wasserstein(*first, *second)
    return distances


# ------------------------------------------------------------------ report


def _three_digits(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


# Heading and format of each attribute of a report that has a value per client.
COLUMNS = {
    "clients": ("client", str),
    "n_samples": ("rows", "{:,}".format),
    "n_classes": ("classes", str),
    "shrinkage": ("shrinkage", "{:.3f}".format),
    "condition": ("condition", _three_digits),
    "tau": ("tau", "{:.2f}".format),
    "offsets": ("offset", "{:.2f}".format),
    "before": ("W2 before", _three_digits),
    "after": ("W2 after", _three_digits),
    "n_bytes": ("bytes sent", "{:,}".format),
}


class Report:
    """Table with a row per client, as text, as HTML and as a DataFrame.

    A subclass has ``columns``, like ``COLUMNS``, a ``title`` and ``warnings``.
    """

    def to_frame(self):
        """Return the table as a pandas DataFrame."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in self.columns}
        return pd.DataFrame(columns).set_index("clients").rename_axis("client")

    def rows(self):
        """Return the headings and the cells of each row, as text."""
        columns = [
            [heading, *map(as_text, getattr(self, name))]
            for name, (heading, as_text) in self.columns.items()
        ]
        return list(zip(*columns, strict=True))

    def __repr__(self):
        notes = (f"! {printable(text)}" for text in self.warnings)
        notes = (fill(note, 88, subsequent_indent="  ") for note in notes)
        return "\n".join([self.title, text_table(self.rows()), *notes])

    def _repr_html_(self):
        notes = "".join(f"<li>{escape(text)}</li>" for text in self.warnings)
        table = html_table(self.rows()[1:], self.rows()[0])
        return f"<p>{escape(self.title)}</p>{table}<ul>{notes}</ul>"


def html_table(rows, heads=()):
    """Lay out rows of text cells as an HTML table; the first cell is a heading."""
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    lines = [f"<tr>{heads}</tr>"] if heads else []
    for name, *cells in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    return f"<table>{''.join(lines)}</table>"


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentReport(Report):
    """Report on the clients of an aligner, described in :func:`alignment_report`."""

    tau: object
    n_features: int
    clients: np.ndarray
    n_samples: np.ndarray
    before: np.ndarray
    after: np.ndarray
    n_bytes: np.ndarray
    distances: ClientDistances
    warnings: list
    shrinkage: np.ndarray | None = None
    condition: np.ndarray | None = None
    n_classes: np.ndarray | None = None
    offsets: np.ndarray | None = None
    shares: dict | None = None

    @property
    def columns(self):
        """Columns of the table: attributes with a value per client."""
        return {k: each for k, each in COLUMNS.items() if np.ndim(getattr(self, k))}

    @property
    def title(self):
        """Line above the table."""
        text = f"{len(self.clients)} clients, {self.n_features} features"
        if self.shares is None:
            return f"{text}, {describe_strength(self.tau)}"
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return f"{text}; variance: {shares}"


def alignment_report(estimator):
    """Report on the clients of a fitted aligner.

    Parameters
    ----------
    estimator : FederatedOTAligner, MixedEffectsAligner or classifier
        Fitted aligner, or fitted classifier that contains one.

    Returns
    -------
    report : AlignmentReport
        Prints as a table with warnings, which notebooks show as HTML; ``to_frame()``
        returns a pandas DataFrame with a row per client. Attributes:

        tau : float or ndarray of shape (n_clients,)
            Alignment strength; mixed effects have one per client.
        n_features : int
            Number of features.
        clients : ndarray of shape (n_clients,)
            Client ids.
        n_samples : ndarray of shape (n_clients,)
            Number of samples of each client.
        before, after : ndarray of shape (n_clients,)
            2-Wasserstein distance of each client before and after alignment: to the
            reference, or for mixed effects, which have no common reference, the mean
            distance to the other clients.
        n_bytes : ndarray of shape (n_clients,)
            Size of the message of each client in float32.
        distances : object
            ``distances.before`` and ``distances.after``, of shape (n_clients,
            n_clients), are distances between any two clients. They are computed when
            they are first used.
        warnings : list of str
            Possible problems of some clients.
        shrinkage : ndarray of shape (n_clients,) or None
            Weight of the identity in each covariance; None for mixed effects.
        condition : ndarray of shape (n_clients,) or None
            Condition number of each shrunk covariance; None for mixed effects.
        n_classes : ndarray of shape (n_clients,) or None
            Number of classes of each client, 0 for one that joined without labels; for
            mixed effects only.
        offsets : ndarray of shape (n_clients,) or None
            Length of the offset of each client, in standard deviations within a class;
            for mixed effects only.
        shares : dict or None
            Shares of class, site, site by class and within in the variance of samples;
            for mixed effects only.

    See Also
    --------
    ClientDistanceDisplay : Distances between clients.
    VarianceComponentsDisplay : Shares of the variance, as bars.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> from skslot.inspection import alignment_report
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, [1, 3], (90, 2)), rng.normal(4, 2, (90, 2))])
    >>> site = np.repeat(["A", "B"], 90)
    >>> aligner = FederatedOTAligner(tau=0.5).fit(X, client_ids=site)
    >>> report = alignment_report(aligner)
    >>> report
    2 clients, 2 features, tau = 0.5
    client  rows  shrinkage  condition  W2 before  W2 after  bytes sent
    A         90      0.051       7.02       2.67      1.34         508
    B         90      1.000       1.00       2.67      1.34         492
    >>> report.warnings
    []
    """
    distances = ClientDistances(estimator)
    estimator, aligner = distances.estimator, distances.aligner
    statistics = aligner.statistics_
    is_mixed = isinstance(aligner, MixedEffectsAligner)
    describe = _describe_mixed_effects if is_mixed else _describe_transport
    facts, notes = describe(distances)
    outliers = estimator.clients_report_.outliers
    notes += [f"Client {each!r} stands out: {why}" for each, why in outliers.items()]
    if is_mixed and not aligner.converged_:
        notes.append(
            "The search for the variances has not converged; the best values found are "
            "used."
        )
    if not is_mixed and aligner.residual_ > aligner.tol:
        notes.append(
            f"The reference has not converged: its residual is {aligner.residual_:.1g} "
            f"after {aligner.n_iter_} iterations. Raise max_iter."
        )
    return AlignmentReport(
        tau=aligner.tau_,
        n_features=statistics[0].n_features,
        clients=aligner.clients_,
        n_samples=np.array([each.n_samples for each in statistics]),
        n_bytes=np.array([each.nbytes() for each in statistics]),
        distances=distances,
        warnings=notes,
        **facts,
    )


def _describe_transport(distances):
    """Return facts on each client of a FederatedOTAligner, and warnings."""
    aligner = distances.aligner
    before, after = distances.gaussians
    end = aligner.reference_mean_, aligner.reference_covariance_
    condition = np.array([_condition(covariance) for _, covariance in before])
    facts = {
        "before": np.array([gaussian_wasserstein(*start, *end) for start in before]),
        "after": np.array([gaussian_wasserstein(*start, *end) for start in after]),
        "shrinkage": aligner.shrinkage_,
        "condition": condition,
    }
    notes, n_features = aligner.notes_, len(aligner.reference_mean_)
    few = [s.client for s in aligner.statistics_ if 1 < s.n_samples <= n_features]
    if few:
        notes.append(
            f"Client {shorten(few)}: no more rows than the {n_features} features. The "
            "covariance depends on its shrinkage, and the map is coarse; more rows or "
            "fewer features improve it."
        )
    is_steep = (condition > HIGH_CONDITION) & np.isfinite(condition)
    if is_steep.any():
        notes.append(
            f"Client {shorten(aligner.clients_[is_steep].tolist())}: the condition "
            f"number is above {HIGH_CONDITION:g}. Some directions hardly vary, and the "
            "map may magnify their noise. Send messages in float32, not float16; a "
            "larger shrinkage helps."
        )
    return facts, notes


def _describe_mixed_effects(distances):
    """Return facts on each client of a MixedEffectsAligner, and warnings."""
    estimator, aligner = distances.estimator, distances.aligner
    owner = estimator if hasattr(estimator, "client_offsets_") else aligner
    offsets, covariance = owner.client_offsets_.T, aligner.reference_.covariance
    whitened = np.linalg.lstsq(covariance, offsets, rcond=None)[0]
    cells, n_others = aligner.cells_, max(len(aligner.clients_) - 1, 1)
    facts = {
        "before": distances.before.sum(axis=1) / n_others,
        "after": distances.after.sum(axis=1) / n_others,
        "n_classes": np.array([len(held) for held in cells.values()]),
        "offsets": np.sqrt(np.sum(offsets * whitened, axis=0)),
        "shares": variance_shares(aligner),
    }
    holders = Counter(label for held in cells.values() for label in held)
    alone = [
        client
        for client, held in cells.items()
        if held and all(holders[label] == 1 for label in held)
    ]
    notes = []
    if alone and len(cells) > 1:
        notes.append(NO_COMMON_CLASS.format(shorten(alone)))
    return facts, notes


NO_COMMON_CLASS = (
    "Client {}: no class in common with another client, so the effects of client and "
    "class cannot be separated. A few labelled rows of a shared class suffice."
)


def _condition(covariance):
    eigenvalues = eigvalsh(covariance)
    least, largest = eigenvalues[0], eigenvalues[-1]
    is_singular = least <= len(covariance) * np.finfo(np.float64).eps * largest
    return np.inf if is_singular else float(largest / least)


# ------------------------------------------------------------------ displays


class ClientDistanceDisplay(Display):
    """Distances between clients before and after alignment, as two heat maps.

    Each client is described by the Gaussian with the mean and the shrunk covariance
    that it sent. The distance is the 2-Wasserstein distance between two Gaussians. Use
    :meth:`from_estimator`. Both maps have one colour scale.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    before : ndarray of shape (n_clients, n_clients)
        Distances before alignment.
    after : ndarray of shape (n_clients, n_clients) or None
        Distances after alignment; None draws one map, for clients that stay in place.
    clients : ndarray of shape (n_clients,)
        Client ids.
    tau : float or ndarray of shape (n_clients,)
        Alignment strength; mixed effects have one per client.

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
        """Compute the distances between the clients of an aligner and draw them.

        Parameters
        ----------
        estimator : FederatedOTAligner, MixedEffectsAligner or classifier
            Fitted aligner, or fitted classifier that contains one.
        ax : array-like of 2 matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is made.

        Returns
        -------
        display : ClientDistanceDisplay
            The distances, drawn.
        """
        distances = ClientDistances(estimator)
        clients, tau = distances.aligner.clients_, distances.aligner.tau_
        return cls(distances.before, distances.after, clients, tau).plot(ax=ax)

    def plot(self, ax=None):
        panels = {"before alignment": self.before}
        if self.after is not None:
            panels[f"after, {describe_strength(self.tau)}"] = self.after
        figure, axes = axes_for(ax, (1, len(panels)), (4.0, 3.4))
        most = max(values.max() for values in panels.values()) or 1.0
        for axis, (title, values) in zip(axes[0], panels.items(), strict=True):
            image = draw_heat_map(
                axis, values, self.clients, self.clients, most=most, cmap="PuBu"
            )
            axis.set_title(title)
            if not is_narrow(axis):
                axis.set(xlabel="client", ylabel="client" if axis is axes[0, 0] else "")
                axis.tick_params(labelleft=axis is axes[0, 0])
        figure.colorbar(image, ax=axes.ravel().tolist(), label="2-Wasserstein distance")
        self.figure_, self.axes_ = figure, axes[0]
        return self


COLOURS = {"client": CLIENT_COLOURS, "class": CLASS_COLOURS}


class AlignmentDisplay:
    """Features in two dimensions, for several alignment strengths.

    One column per ``tau``, one row coloured by client and one by class: the figures of
    the appendix of the SLOT-Align paper. Use :meth:`from_estimator`. All panels show
    the same two directions, the principal components of the features before alignment,
    at the same scale.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    projections : ndarray of shape (n_taus, n_samples, 2)
        Position of each sample, for each alignment strength.
    taus : list of float
        Alignment strengths.
    client_ids : ndarray of shape (n_samples,)
        Client of each sample.
    y : ndarray of shape (n_samples,) or None
        Labels.
    explained_variance_ratio : ndarray of shape (2,)
        Share of each direction in the variance before alignment.
    titles : list of str, default=None
        Title of each column. If None, the alignment strength.

    Attributes
    ----------
    axes_ : ndarray of shape (n_colourings, n_taus)
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    ClientDistanceDisplay : Distances between clients in all dimensions.

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
        """Align samples with several strengths, project them, and draw them.

        Parameters
        ----------
        estimator : FederatedOTAligner, MixedEffectsAligner or classifier
            Fitted aligner, or fitted classifier that contains one. It is not fitted
            again, because its maps can be evaluated at any strength.
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,), default=None
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each sample, unless the ids are a column of X.
        taus : array-like of float, default=None
            Alignment strengths to show. If None, 0, the strength of the aligner, and 1.
            For mixed effects, the fraction of the fitted transformation that is
            applied, and if None, 0 and 1.
        color_by : {"client", "class"} or list of these, default=None
            Meaning of the colours, with one row of panels each. If None, both, or only
            "client" without labels.
        ax : array-like of matplotlib Axes, default=None
            Axes to draw on, one per panel. If None, a new figure is made.

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
        maps = _maps_of(estimator, aligner, groups.clients)
        aligned = [_aligned(rows, groups, maps, tau) for tau in taus]
        display = cls(
            np.array([pca.transform(each) for each in aligned]),
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
            Meaning of the colours, with one row of panels each. If None, both, or only
            "client" without labels.
        ax : array-like of matplotlib Axes, default=None
            Axes to draw on, one per panel. If None, a new figure is made.

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
            legend_outside(line[-1], name, below=-0.02)
        titles = self.titles or [
            f"tau = {tau:.2g}" + " (before)" * (tau == 0) for tau in self.taus
        ]
        for axis, title in zip(axes[0], titles, strict=True):
            axis.set_title(title)
        if not is_narrow(axes[0, 0]):
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
        """Set the limits shared by all panels, without ticks: only distances count."""
        low = self.projections.min(axis=(0, 1))
        high = self.projections.max(axis=(0, 1))
        margin = 0.04 * (high - low) + 1e-12
        xlim, ylim = np.transpose([low - margin, high + margin])
        axis.set(xlim=xlim, ylim=ylim, xticks=[], yticks=[])
        axis.spines[:].set_color("#c0c0c0")


def _part_of_the_way(share):
    return {0.0: "before", 1.0: "after"}.get(share, f"{share:.0%} of the way")


def _coloured(labels, colours):
    """Return the colour of each sample and label; small groups are grey."""
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


def _aligned(X, groups, maps, tau):
    """Transform the samples of each client by its map, with another strength."""
    aligned = np.empty_like(X)
    for client_map, rows in zip(maps, groups.rows, strict=True):
        aligned[rows] = client_map.at(tau).transform(X[rows])
    return aligned


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
