"""What is done about clients that stand out."""

from .._warnings import warn_user
from ._examine import examine_clients

REMEDY = (
    "If that is as it should be, set outliers='ignore'; outliers='leave_out' goes on "
    "without."
)


def guard_clients(facts, outliers="warn"):
    """Examine clients, and do about those that stand out what was asked for.

    Parameters
    ----------
    facts : list of ClientFacts
        What is known of each client.
    outliers : {"warn", "leave_out", "ignore"}, default="warn"
        Warn of clients that stand out, mark them as left out and warn of that, or only
        report them. It is an error to leave out so many that fewer than two, or no
        majority, remain.

    Returns
    -------
    report : ClientsReport
        What was found.

    See Also
    --------
    examine_clients : Without consequences.

    Examples
    --------
    >>> from skslot.trust import ClientFacts, guard_clients
    >>> rows = {"A": 50, "B": 40, "C": 60, "D": 10**8}
    >>> facts = [ClientFacts(name, count) for name, count in rows.items()]
    >>> print(guard_clients(facts, "ignore"))
    client       rows   share
    A              50    0.0%
    B              40    0.0%
    C              60    0.0%
    D       100000000  100.0%
    client 'D' stands out: it says that it has 1e+08 rows, 670,000 times as many as ...
    """
    report = examine_clients(facts)
    found = report.outliers
    if not found or outliers == "ignore":
        return report
    if outliers == "leave_out":
        report = report.without_outliers()
        said, remedy = "was left out", ""
    else:
        said, remedy = "stands out", REMEDY
    for client, reason in found.items():
        warn_user(f"{_named(client)} {said}: {reason} {remedy}".rstrip())
    return report


def _named(client):
    return "the client" if client is None else f"client {client!r}"
