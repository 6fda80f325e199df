"""What each client contributed to an alignment, in a table with warnings."""

from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from textwrap import fill

import numpy as np
from scipy.linalg import eigvalsh
from sklearn.utils.validation import check_is_fitted

from .._utils import printable, text_table
from ..alignment import FederatedOTAligner, MixedEffectsAligner
from ..geometry import gaussian_wasserstein

HIGH_CONDITION = 1e4  # float16 messages and maps lose directions from here on


def _short(value):
    """Write a positive number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


# Attributes of a report that have a value per client: head, and number as text.
COLUMNS = {
    "clients": ("client", str),
    "n_samples": ("rows", "{:,}".format),
    "shrinkage": ("shrinkage", "{:.3f}".format),
    "condition": ("condition", _short),
    "before": ("W2 before", _short),
    "after": ("W2 after", _short),
    "n_bytes": ("bytes sent", "{:,}".format),
}
COLUMNS_OF_MIXED_EFFECTS = {
    "clients": COLUMNS["clients"],
    "n_samples": COLUMNS["n_samples"],
    "n_classes": ("classes", str),
    "tau": ("tau", "{:.2f}".format),
    "offsets": ("offset", "{:.2f}".format),
    "before": COLUMNS["before"],
    "after": COLUMNS["after"],
    "n_bytes": COLUMNS["n_bytes"],
}


def alignment_report(estimator):
    """Report on the clients of a fitted aligner.

    Parameters
    ----------
    estimator : FederatedOTAligner, MixedEffectsAligner or classifier
        A fitted aligner, or a fitted classifier that has one inside.

    Returns
    -------
    report : AlignmentReport or MixedEffectsReport
        Prints as a table with warnings, which notebooks show as HTML; ``to_frame()`` is
        a pandas DataFrame with a row per client. It has these attributes:

        tau : float
            Strength of the alignment.
        n_features : int
            Number of features.
        clients : ndarray of shape (n_clients,)
            Client ids.
        n_samples : ndarray of shape (n_clients,)
            Rows of each client.
        shrinkage : ndarray of shape (n_clients,)
            Weight of the identity in its covariance.
        condition : ndarray of shape (n_clients,)
            Condition number of its shrunk covariance.
        before, after : ndarray of shape (n_clients,)
            Its 2-Wasserstein distance to the reference, before and after alignment.
        n_bytes : ndarray of shape (n_clients,)
            Size of its message to the server, in float32.
        distances : object
            Its ``before`` and ``after``, of shape (n_clients, n_clients), are distances
            between any two clients, measured when they are first asked for.
        warnings : list of str
            What may be wrong with some clients.

        Mixed effects have no common reference. Their report has ``tau`` per client, no
        ``shrinkage`` and no ``condition``; ``before`` and ``after`` are mean distances
        to the other clients; and there are two attributes more:

        n_classes : ndarray of shape (n_clients,)
            Number of classes that the client sent; 0 for one that joined without
            labels.
        offsets : ndarray of shape (n_clients,)
            Length of its offset, in standard deviations within a class.

    See Also
    --------
    ClientDistanceDisplay : Distances between clients.
    VarianceComponentsDisplay : What mixed effects say of all clients together.

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
    measured = MeasuredClients(estimator)
    aligner = measured.aligner
    if isinstance(aligner, MixedEffectsAligner):
        return _report_of_mixed_effects(measured)
    statistics = aligner.statistics_
    before, after = measured.gaussians
    reference = aligner.reference_mean_, aligner.reference_covariance_
    condition = np.array([_condition(covariance) for _, covariance in before])
    return AlignmentReport(
        tau=aligner.tau_,
        n_features=len(aligner.reference_mean_),
        clients=aligner.clients_,
        n_samples=np.array([s.n_samples for s in statistics]),
        shrinkage=aligner.shrinkage_,
        condition=condition,
        before=np.array([gaussian_wasserstein(*g, *reference) for g in before]),
        after=np.array([gaussian_wasserstein(*g, *reference) for g in after]),
        n_bytes=np.array([s.nbytes() for s in statistics]),
        distances=measured,
        warnings=_warnings(measured, condition),
    )


def _report_of_mixed_effects(measured):
    estimator, aligner = measured.estimator, measured.aligner
    statistics = aligner.statistics_
    before, after = measured.before, measured.after
    n_others = max(len(before) - 1, 1)
    owner = estimator if hasattr(estimator, "client_offsets_") else aligner
    offsets = owner.client_offsets_.T
    covariance = aligner.reference_.covariance
    squares = np.sum(
        offsets * np.linalg.lstsq(covariance, offsets, rcond=None)[0], axis=0
    )
    return MixedEffectsReport(
        tau=aligner.tau_,
        n_features=len(covariance),
        shares=variance_shares(aligner),
        clients=aligner.clients_,
        n_samples=np.array([s.n_samples for s in statistics]),
        n_classes=np.array([len(_classes_of(s)) for s in statistics]),
        offsets=np.sqrt(squares),
        before=before.sum(axis=1) / n_others,
        after=after.sum(axis=1) / n_others,
        n_bytes=np.array([s.nbytes() for s in statistics]),
        distances=measured,
        warnings=_warnings_of_mixed_effects(measured),
    )


def variance_shares(aligner):
    """Share of each kind of effect in the variance of rows, as the model has it."""
    components = aligner.variance_components_
    parts = {
        "class": components["class"],
        "site": components["client"],
        "site by class": components["interaction"],
        "within": 1.0,
    }
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def _classes_of(message):
    """Classes that a client has rows of; none in messages without labels."""
    return [label for label, count in message.label_counts().items() if count]


class Report:
    """A table with a line per client, as text, as HTML and as a DataFrame.

    A subclass has ``_columns``, as ``COLUMNS`` is, and ``_title``.
    """

    def to_frame(self):
        """Return the table as a pandas DataFrame."""
        import pandas as pd

        names = [name for name in self._columns if name != "clients"]
        columns = {name: getattr(self, name) for name in names}
        return pd.DataFrame(columns, index=pd.Index(self.clients, name="client"))

    @property
    def _heads(self):
        return [head for head, _ in self._columns.values()]

    def _rows(self):
        """Write the cells of each line."""
        columns = [
            [as_text(value) for value in getattr(self, name)]
            for name, (_, as_text) in self._columns.items()
        ]
        return list(zip(*columns, strict=True))

    def __repr__(self):
        lines = [self._title, text_table([self._heads, *self._rows()])]
        notes = (f"! {printable(text)}" for text in self.warnings)
        lines += [fill(note, 88, subsequent_indent="  ") for note in notes]
        return "\n".join(lines)

    def _repr_html_(self):
        heads = "".join(f'<th scope="col">{head}</th>' for head in self._heads)
        lines = []
        for first, *others in self._rows():
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
            lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
        notes = "".join(f"<li>{escape(text)}</li>" for text in self.warnings)
        return (
            '<div class="skslot-report"><table>'
            f"<caption>{escape(self._title)}</caption>"
            f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
            + (f"<ul>{notes}</ul>" if notes else "")
            + "</div>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentReport(Report):
    """What each client contributed, described in :func:`alignment_report`."""

    tau: float
    n_features: int
    clients: np.ndarray
    n_samples: np.ndarray
    shrinkage: np.ndarray
    condition: np.ndarray
    before: np.ndarray
    after: np.ndarray
    n_bytes: np.ndarray
    distances: object
    warnings: list

    _columns = COLUMNS

    @property
    def _title(self):
        return (
            f"{len(self.clients)} clients, {self.n_features} features, "
            f"{describe_strength(self.tau)}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class MixedEffectsReport(Report):
    """The same of mixed effects, described in :func:`alignment_report`."""

    tau: np.ndarray
    n_features: int
    shares: dict
    clients: np.ndarray
    n_samples: np.ndarray
    n_classes: np.ndarray
    offsets: np.ndarray
    before: np.ndarray
    after: np.ndarray
    n_bytes: np.ndarray
    distances: object
    warnings: list

    _columns = COLUMNS_OF_MIXED_EFFECTS

    @property
    def _title(self):
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return (
            f"{len(self.clients)} clients, {self.n_features} features; variance: "
            f"{shares}"
        )


def describe_strength(tau):
    """Write the strength of an alignment, one for all or one per client."""
    if np.ndim(tau) == 0:
        return f"tau = {tau:.2g}"
    low, high = f"{tau.min():.2g}", f"{tau.max():.2g}"
    if tau.max() == 0:
        return "offsets only"
    return f"offsets, tau = {low}" + f" to {high}" * (low != high)


def _condition(covariance):
    eigenvalues = eigvalsh(covariance)
    least, largest = eigenvalues[0], eigenvalues[-1]
    is_singular = least <= len(covariance) * np.finfo(np.float64).eps * largest
    return np.inf if is_singular else float(largest / least)


def _warnings(measured, condition):
    """Write sentences about clients to look at."""
    aligner = measured.aligner
    statistics, clients = aligner.statistics_, aligner.clients_.tolist()
    n_features = statistics[0].n_features
    few = [s.client for s in statistics if 1 < s.n_samples <= n_features]
    pairs = zip(clients, condition, strict=True)
    steep = [client for client, value in pairs if HIGH_CONDITION < value < np.inf]
    notes = aligner.notes_
    if few:
        notes.append(
            f"{_named(few)}: no more rows than the {n_features} features, so that the "
            "covariance rests on its shrinkage. The map is a coarse one; more rows or "
            "fewer features make it better."
        )
    if steep:
        notes.append(
            f"{_named(steep)}: the condition number is above {HIGH_CONDITION:g}, so "
            "some directions hardly vary and the map may magnify their noise. Send "
            "messages in float32, not float16; a larger shrinkage helps."
        )
    notes += measured.outliers
    if aligner.residual_ > aligner.tol:
        notes.append(
            f"The reference has not converged: its residual is {aligner.residual_:.1g} "
            f"after {aligner.n_iter_} passes. Raise max_iter."
        )
    return notes


def _warnings_of_mixed_effects(measured):
    """Write sentences about clients to look at."""
    aligner = measured.aligner
    clients = aligner.clients_.tolist()
    held = {s.client: _classes_of(s) for s in aligner.statistics_}
    alone = [
        client
        for client in clients
        if held[client]
        and not any(set(held[client]) & set(held[c]) for c in clients if c != client)
    ]
    notes = []
    if alone and len(clients) > 1:
        notes.append(
            f"{_named(alone)}: no class in common with another client, so that what "
            "the site does to its features cannot be told from what its classes do. A "
            "few labelled rows of a shared class would tell."
        )
    notes += measured.outliers
    if not aligner.converged_:
        notes.append(
            "The search for the variances has not converged; the best ones that it "
            "found are used."
        )
    return notes


def _named(clients):
    """Write the names of clients, for the beginning of a sentence."""
    names = [repr(client) for client in clients[:5]]
    more = f" and {len(clients) - 5} more" if len(clients) > 5 else ""
    return f"Client{'s' * (len(clients) > 1)} {', '.join(names)}{more}"


def fitted_parts(estimator):
    """Find the fitted estimator, which a search may hold, and the aligner in it."""
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


def with_own_offsets(estimator, clients, maps):
    """Maps with the offsets that a classifier uses, some learned by adapt_client."""
    if not (hasattr(estimator, "aligner_") and hasattr(estimator, "client_offsets_")):
        return maps
    clients_known = estimator.aligner_.clients_.tolist()
    known = dict(zip(clients_known, estimator.client_offsets_, strict=True))
    return [
        replace(each, offset=known.get(client, each.offset))
        for client, each in zip(clients, maps, strict=True)
    ]


class MeasuredClients:
    """Distances between the clients of a fitted aligner, each measured once."""

    def __init__(self, estimator):
        self.estimator, self.aligner = fitted_parts(estimator)

    @cached_property
    def gaussians(self):
        """(mean, covariance) of each client, as they are and as they are moved."""
        return _client_gaussians(self.estimator, self.aligner)

    @property
    def outliers(self):
        """Sentences on the clients that stand out, see skslot.trust."""
        found = self.estimator.clients_report_.outliers
        return [f"Client {each!r} stands out: {found[each]}" for each in found]

    @cached_property
    def before(self):
        """Distance of any two clients as they are."""
        return pairwise_distances(self.gaussians[0])

    @cached_property
    def after(self):
        """Distance of any two clients as they are moved."""
        return pairwise_distances(self.gaussians[1])


def _client_gaussians(estimator, aligner):
    """(mean, covariance) of each client, as they are and as they are moved."""
    before = list(zip(aligner.means_, aligner.covariances_, strict=True))
    maps = with_own_offsets(
        estimator, aligner.clients_.tolist(), aligner.maps_.values()
    )
    after = []
    for (mean, covariance), client_map in zip(before, maps, strict=True):
        matrix, offset = client_map.affine
        if matrix is not None:
            mean, covariance = matrix @ mean, matrix @ covariance @ matrix.T
        after.append((mean + offset, covariance))
    return before, after


def pairwise_distances(gaussians):
    """Compute the 2-Wasserstein distance of any two of some Gaussians."""
    distances = np.zeros((len(gaussians), len(gaussians)))
    for i, first in enumerate(gaussians):
        for j, second in enumerate(gaussians[:i]):
            distances[i, j] = distances[j, i] = gaussian_wasserstein(*first, *second)
    return distances
