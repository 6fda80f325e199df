"""What is done about clients that stand out."""

from .._warnings import warn_user
from ._examine import examine_clients

REMEDY = "If this is expected, set screen=None; screen='exclude' drops the client."


def guard_clients(facts, action="warn"):
    """Examine clients and apply an action to outliers.

    Parameters
    ----------
    facts : list of ClientFacts
        What is known of each client.
    action : None, "warn" or "exclude", default="warn"
        How to handle outliers. ``"warn"`` issues a warning, ``"exclude"`` marks them as
        excluded and issues a warning, ``None`` only reports them. It is an error to
        exclude so many that fewer than two clients, or no majority, remain.

    Returns
    -------
    report : ClientsReport
        What was found.

    See Also
    --------
    examine_clients : Examine clients without an action.
    ClientScreen : Action and limit as a parameter of estimators.

    Examples
    --------
    >>> from skslot.trust import ClientFacts, guard_clients
    >>> rows = {"A": 50, "B": 40, "C": 60, "D": 10**8}
    >>> facts = [ClientFacts(name, count) for name, count in rows.items()]
    >>> print(guard_clients(facts, None))
    client       rows   share
    A              50    0.0%
    B              40    0.0%
    C              60    0.0%
    D       100000000  100.0%
    client 'D' stands out: it says that it has 1e+08 rows, 670,000 times as many as ...
    """
    report = examine_clients(facts)
    found = report.outliers
    if not found or action is None:
        return report
    if action == "exclude":
        report = report.without_outliers()
        said, remedy = "was left out", ""
    else:
        said, remedy = "stands out", REMEDY
    for client, reason in found.items():
        warn_user(f"{_named(client)} {said}: {reason} {remedy}".rstrip())
    return report


def _named(client):
    return "the client" if client is None else f"client {client!r}"
