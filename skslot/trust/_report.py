"""What was found of the clients of a server step."""

from dataclasses import asdict, dataclass, replace
from math import isnan, nan

from .._text import shorten, text_table


@dataclass(frozen=True)
class ClientFinding:
    """What was found of one client; see :class:`ClientsReport`.

    Parameters
    ----------
    client : object
        Name of the client.
    n_samples : float
        Number of rows that it says it has.
    share : float
        Share of these in the rows of all clients.
    distance : float, default=nan
        2-Wasserstein distance from the other clients, in ordinary distances between
        clients.
    trace_ratio : float, default=nan
        Variance of its features in units of the median over clients.
    class_distance : float, default=nan
        Distance of that class mean which is farthest from where others have it, in
        standard deviations within a class.
    head_ratio : float, default=nan
        Norm of the weights that it trained, in units of the median over clients.
    reason : str, default=None
        Why the client stands out, None if it does not.
    left_out : bool, default=False
        Whether it was left out for that.

    See Also
    --------
    ClientsReport : The findings of all clients.

    Examples
    --------
    >>> from skslot.trust import ClientFinding
    >>> ClientFinding("A", 50, 0.5, distance=0.7).stands_out
    False
    """

    client: object
    n_samples: float
    share: float
    distance: float = nan
    trace_ratio: float = nan
    class_distance: float = nan
    head_ratio: float = nan
    reason: str | None = None
    left_out: bool = False

    @property
    def stands_out(self):
        """Whether there is a reason to look at the client."""
        return self.reason is not None


# Most clients that are listed, unless more stand out.
MOST_LINES = 20
COLUMNS = {
    "distance": "distance",
    "trace_ratio": "trace",
    "class_distance": "class means",
    "head_ratio": "head",
}


@dataclass(frozen=True)
class ClientsReport:
    """What a server step found of its clients; prints as a table.

    The attribute ``clients_report_`` of all classifiers, aligners and scalers.

    Parameters
    ----------
    findings : list of ClientFinding
        What was found of each client.

    See Also
    --------
    examine_clients : Makes it.
    skslot.inspection.ClientOutlierDisplay : Draws it.

    Notes
    -----
    Of more than 20 clients, those that stand out and the farthest others are printed.
    Columns of the table that no client has a number for are left out. ``share`` is the
    part of the client in all rows, ``distance`` how far its features are from those of
    others, ``trace`` their variance against the median, ``class means`` the farthest
    class mean, ``head`` the size of its weights. Distances above 10, weights above 100
    and more than 1000 times the rows of all others together stand out.

    Examples
    --------
    >>> from skslot import FedCGSClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> X, y, site = data.data, data.target, data.client_ids
    >>> classifier = FedCGSClassifier().fit(X, y, client_ids=site)
    >>> print(classifier.clients_report_)
    client     rows  share  distance  trace  class means
    fax         449  25.0%      0.72   1.35         0.93
    flatbed     450  25.0%      0.57   1.87         0.96
    microfilm   449  25.0%      0.40   0.65         0.59
    phone       449  25.0%      0.49   0.39         0.76
    no client stands out
    >>> classifier.clients_report_.outliers
    {}
    """

    # A client stands out above this. Features of one encoder are of one order of
    # magnitude: another unit changes them by a factor of ten or more, and what honest
    # sites do to them stays within a few of these distances.
    MOST_DISTANCE = 10.0

    findings: list

    def __iter__(self):
        return iter(self.findings)

    def __getitem__(self, client):
        for finding in self.findings:
            if finding.client == client:
                return finding
        raise KeyError(client)

    @property
    def clients(self):
        """Names of all clients."""
        return [each.client for each in self.findings]

    @property
    def outliers(self):
        """Why clients stand out, by name."""
        return {each.client: each.reason for each in self.findings if each.stands_out}

    @property
    def left_out(self):
        """Why clients were left out, by name."""
        return {each.client: each.reason for each in self.findings if each.left_out}

    @property
    def has_majority(self):
        """Whether two clients or more, and more than half of all, do not stand out."""
        n_clients = len(self.findings)
        return n_clients - len(self.outliers) >= max(2, n_clients // 2 + 1)

    def without_outliers(self):
        """The same after all that stand out were left out.

        It is an error if fewer than two clients, or no majority, would remain.

        Returns
        -------
        report : ClientsReport
            The report in which ``left_out`` of these is set.
        """
        found = self.outliers
        if found and not self.has_majority:
            client, reason = next(iter(found.items()))
            n_clients = len(self.findings)
            raise ValueError(
                f"screen='exclude' would leave {n_clients - len(found)} of "
                f"{n_clients} clients, which are no measure of the others: client "
                f"{shorten(found)} would go, {client!r} because {reason} Look at all "
                "of them, or set screen='warn'."
            )
        return ClientsReport(
            [replace(each, left_out=each.stands_out) for each in self.findings]
        )

    def farthest(self, most):
        """Those that stand out and, if there is room, those that are farthest.

        Parameters
        ----------
        most : int
            Most clients to keep, unless more stand out.

        Returns
        -------
        report : ClientsReport
            The report on these alone, in the order of this one.
        """
        ordered = sorted(self.findings, key=_farthest, reverse=True)
        chosen = {id(each) for each in ordered[: max(most, len(self.outliers))]}
        return ClientsReport([each for each in self.findings if id(each) in chosen])

    def merged(self, later):
        """This report, and what a later exchange with the same clients adds to it.

        Parameters
        ----------
        later : ClientsReport
            Report of the later exchange, in which some clients may be missing.

        Returns
        -------
        report : ClientsReport
            The later figure where there are two, except for shares, and all reasons.
        """
        merged = {each.client: each for each in self.findings}
        for new in later.findings:
            old = merged.get(new.client, new)
            figures = {
                name: getattr(old if isnan(getattr(new, name)) else new, name)
                for name in COLUMNS
            }
            reasons = dict.fromkeys(filter(None, (old.reason, new.reason)))
            merged[new.client] = replace(
                old,
                **figures,
                reason="; ".join(reasons) or None,
                left_out=old.left_out or new.left_out,
            )
        return ClientsReport(list(merged.values()))

    def to_dicts(self):
        """The findings as plain data, such as for JSON or a data frame.

        Returns
        -------
        rows : list of dict
            One for each client; numbers that are not known are None.
        """
        return [
            {name: _plain(value) for name, value in asdict(each).items()}
            for each in self.findings
        ]

    @classmethod
    def from_dicts(cls, rows):
        """Read what :meth:`to_dicts` returned.

        Parameters
        ----------
        rows : list of dict
            One for each client.

        Returns
        -------
        report : ClientsReport
            The report.
        """
        numbers = tuple(COLUMNS)
        return cls(
            [
                ClientFinding(
                    **{
                        name: nan if value is None and name in numbers else value
                        for name, value in row.items()
                    }
                )
                for row in rows
            ]
        )

    def __str__(self):
        shown = [
            name
            for name in COLUMNS
            if any(not isnan(getattr(each, name)) for each in self.findings)
        ]
        rows = [["client", "rows", "share", *(COLUMNS[name] for name in shown)]]
        listed = self.farthest(MOST_LINES).findings
        for each in listed:
            numbers = (_short(getattr(each, name)) for name in shown)
            name = str(each.client)
            name = name if name.isprintable() else repr(name)
            name += " (left out)" * each.left_out
            rows.append([name, f"{each.n_samples:.0f}", f"{each.share:.1%}", *numbers])
        lines = [
            f"client {client!r} stands out: {reason}"
            for client, reason in self.outliers.items()
        ]
        n_others = len(self.findings) - len(listed)
        more = [f"and {n_others} clients that are nearer to the others"] * bool(
            n_others
        )
        lines = lines or ["no client stands out"]
        return "\n".join([text_table(rows), *more, *lines])


def _farthest(finding):
    """What clients are listed by: those that stand out first, then by distance."""
    distances = finding.distance, finding.class_distance
    return finding.stands_out, max((d for d in distances if not isnan(d)), default=0.0)


def _short(value):
    if isnan(value):
        return "-"
    return f"{value:.2f}" if value < 1000 else f"{value:.1e}"


def _plain(value):
    is_nan = isinstance(value, float) and isnan(value)
    return None if is_nan else value
