"""Who took part in a run, and who was left out and why."""

import json
from dataclasses import asdict, dataclass, field

# Everything that a client can say about its own failure, and what the server can see.
# Nothing else is ever said: the text of an exception may quote data.
REASONS = {
    "load_failed": "load_data failed; the log of the site says why",
    "step_failed": "the client step failed; the log of the site says why",
    "receive_failed": "the result could not be kept; the log of the site says why",
    "too_few_rows": "a group of rows is smaller than min_samples of the site",
    "bad_request": "the site could not read the request",
    "unknown_request": "the site was asked for what its estimator has no step for",
    "asked_twice": "the site was asked more often than a run needs",
    "app_failed": "the app could not be started at the site, or raised outside skslot",
    "crashed": "the process of the client ended without an answer",
    "unavailable": "the site could not be reached",
    "silent": "no answer came in time",
    "malformed": "the answer is none of skslot",
    "refused": "the message was refused",
    "misfit": "the message does not fit those of the other clients",
    "renamed": "the client answered under another name than before",
}


@dataclass
class ClientRecord:
    """What is known about one node."""

    node: str
    client: object = None
    status: str = "taking part"
    step: str | None = None
    code: str | None = None
    detail: str | None = None
    bytes_up: int = 0
    bytes_down: int = 0

    def leave_out(self, step, code, detail=None):
        """Note when and why the node was left out."""
        self.status, self.step = "left out", step
        self.code, self.detail = code, detail

    def __str__(self):
        name = f"node {self.node}" if self.client is None else f"client {self.client!r}"
        text = f"{name}: {self.status}"
        if self.code is None:
            return text
        detail = REASONS[self.code] if self.detail is None else self.detail
        where = "" if self.client is None else f" (node {self.node})"
        return f"{text}{where} at step {self.step!r}: {self.code}, {detail}"


@dataclass
class FederationReport:
    """What happened in one run; prints as a short report.

    Written by the ServerApp to ``report.json`` and returned by :func:`submit_run`.

    Parameters
    ----------
    run_id : str
        Id that Flower gave to the run.
    status : {"running", "completed", "aborted"}, default="running"
        How it ended.
    reason : str, default=None
        Why it was aborted, or who did not take the result although it completed.
    clients : list, default=[]
        One record for each node: ``node``, ``client`` (its name, None if it never said
        it), ``status`` ("taking part", "done" or "left out"), ``step``, ``code`` and
        ``detail`` (where and why it was left out), ``bytes_up`` and ``bytes_down``.

    See Also
    --------
    submit_run : Starts a run and returns its report.

    Examples
    --------
    >>> from skslot.flower import FederationReport
    >>> print(FederationReport("123", "aborted", "2 of 4 clients answered."))
    run 123: aborted, 2 of 4 clients answered.
    """

    run_id: str
    status: str = "running"
    reason: str | None = None
    clients: list = field(default_factory=list)

    def __str__(self):
        reason = "" if self.reason is None else f", {self.reason}"
        head = f"run {self.run_id}: {self.status}{reason}"
        return "\n".join([head, *(f"  {record}" for record in self.clients)])

    @property
    def left_out(self):
        """Records of the nodes that were left out."""
        return [record for record in self.clients if record.status == "left out"]

    def to_json(self):
        """The report as text.

        Returns
        -------
        text : str
            JSON.
        """
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text):
        """Read a report.

        Parameters
        ----------
        text : str
            What :meth:`to_json` returned.

        Returns
        -------
        report : FederationReport
            The report.
        """
        values = json.loads(text)
        values["clients"] = [ClientRecord(**record) for record in values["clients"]]
        return cls(**values)
