"""What each client contributed to an alignment, in a table with warnings."""

from dataclasses import dataclass
from html import escape
from textwrap import fill

import numpy as np
from scipy.linalg import eigvalsh

from ..alignment._steps import degeneracy_notes
from ..geometry import gaussian_wasserstein
from ._gaussians import check_aligner, client_gaussians, pairwise_distances

HIGH_CONDITION = 1e4  # float16 messages and maps lose directions from here on
FAR = 3.0  # times as far from its nearest client as the others are from theirs


def _short(value):
    """A positive number to three digits."""
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
HEADS = [head for head, _ in COLUMNS.values()]


def alignment_report(aligner):
    """Report on the clients of a fitted aligner.

    Parameters
    ----------
    aligner : FederatedOTAligner
        A fitted aligner.

    Returns
    -------
    report : AlignmentReport
        Prints as a table with warnings; notebooks show it as HTML.

    See Also
    --------
    ClientDistanceDisplay : Distances between clients.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> from skslot.inspection import alignment_report
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, [1, 3], (90, 2)), rng.normal(4, 2, (90, 2))])
    >>> site = np.repeat(["A", "B"], 90)
    >>> aligner = FederatedOTAligner(tau=0.5).fit(X, client_ids=site)
    >>> alignment_report(aligner)
    2 clients, 2 features, tau = 0.5
    client  rows  shrinkage  condition  W2 before  W2 after  bytes sent
    A         90      0.051       7.02       2.67      1.34         508
    B         90      1.000       1.00       2.67      1.34         492
    """
    check_aligner(aligner)
    statistics = aligner.statistics_
    before, after = client_gaussians(aligner)
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
        n_bytes=np.array([s.nbytes for s in statistics]),
        warnings=_warnings(aligner, condition, pairwise_distances(before)),
    )


@dataclass(frozen=True, eq=False)
class AlignmentReport:
    """What each client contributed to an alignment; prints as a table.

    Parameters
    ----------
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
    before : ndarray of shape (n_clients,)
        Its 2-Wasserstein distance to the reference.
    after : ndarray of shape (n_clients,)
        The same after alignment.
    n_bytes : ndarray of shape (n_clients,)
        Size of its message to the server, in float32.
    warnings : list of str
        What may be wrong with some clients.

    See Also
    --------
    alignment_report : Makes one.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> from skslot.inspection import alignment_report
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> aligner = FederatedOTAligner().fit(X, client_ids=["A"] * 20 + ["B"] * 20)
    >>> report = alignment_report(aligner)
    >>> report.n_samples, report.warnings
    (array([20, 20]), [])
    """

    tau: float
    n_features: int
    clients: np.ndarray
    n_samples: np.ndarray
    shrinkage: np.ndarray
    condition: np.ndarray
    before: np.ndarray
    after: np.ndarray
    n_bytes: np.ndarray
    warnings: list

    def to_frame(self):
        """The table as a pandas DataFrame.

        Returns
        -------
        frame : pandas.DataFrame
            One row per client.
        """
        import pandas as pd

        columns = {name: getattr(self, name) for name in COLUMNS if name != "clients"}
        return pd.DataFrame(columns, index=pd.Index(self.clients, name="client"))

    @property
    def _title(self):
        return (
            f"{len(self.clients)} clients, {self.n_features} features, "
            f"tau = {self.tau:.2g}"
        )

    def _rows(self):
        """The cells of each line, as text."""
        columns = [
            [as_text(value) for value in getattr(self, name)]
            for name, (_, as_text) in COLUMNS.items()
        ]
        return list(zip(*columns, strict=True))

    def __repr__(self):
        table = [HEADS, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [self._title]
        for first, *others in table:
            cells = zip(others, widths[1:], strict=True)
            rest = "".join(f"  {cell:>{width}}" for cell, width in cells)
            lines.append(f"{first:<{widths[0]}}{rest}")
        lines += [
            fill(f"! {text}", 88, subsequent_indent="  ") for text in self.warnings
        ]
        return "\n".join(lines)

    def _repr_html_(self):
        heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
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


def _condition(covariance):
    eigenvalues = eigvalsh(covariance)
    return float(eigenvalues[-1] / eigenvalues[0]) if eigenvalues[0] > 0 else np.inf


def _warnings(aligner, condition, distances):
    """Sentences on clients to look at."""
    statistics, clients = aligner.statistics_, aligner.clients_.tolist()
    n_features = statistics[0].n_features
    few = [s.client for s in statistics if 1 < s.n_samples <= n_features]
    pairs = zip(clients, condition, strict=True)
    steep = [client for client, value in pairs if HIGH_CONDITION < value < np.inf]
    far = [clients[position] for position in _far_from_all(distances)]
    notes = degeneracy_notes(statistics, aligner.shrinkage)
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
    if far:
        notes.append(
            f"{_named(far)}: more than {FAR:g} times as far from the nearest other "
            "client as those are from each other. Check its encoder and its units; it "
            "also pulls the reference towards itself."
        )
    if aligner.residual_ > aligner.tol:
        notes.append(
            f"The reference has not converged: its residual is {aligner.residual_:.1g} "
            f"after {aligner.n_iter_} passes. Raise max_iter."
        )
    return notes


def _far_from_all(distances):
    """Clients whose nearest neighbour is much farther than is usual for the others."""
    n_clients = len(distances)
    if n_clients < 3:
        return []
    apart = distances + np.diag(np.full(n_clients, np.inf))
    far = []
    for k in range(n_clients):
        others = np.delete(np.delete(apart, k, axis=0), k, axis=1)
        if apart[k].min() > FAR * np.median(others.min(axis=1)):
            far.append(k)
    return far


def _named(clients):
    """Names of clients for the beginning of a sentence."""
    names = [repr(client) for client in clients[:5]]
    more = f" and {len(clients) - 5} more" if len(clients) > 5 else ""
    return f"Client{'s' * (len(clients) > 1)} {', '.join(names)}{more}"
