"""The server's bookkeeping: who is asked, who answered, and whether to go on."""

import json
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from .._text import client_order, printable
from ..exchange import LinearModel, Message, MessageError, receive
from ..exchange._receiving import find_misfits
from ..trust import ClientScreen, ClientsReport

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
    "outlier": "the numbers of the client are too far from those of others",
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
        return f"{text}{where} at step {self.step!r}: {self.code}, {printable(detail)}"


@dataclass
class FederationReport:
    """What happened in one run; prints as a short report.

    The server app prints it at the end of a run and writes it to ``report.json``.

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
    findings : list of dict, default=[]
        Share, distance and so on of each client, as
        :meth:`skslot.trust.ClientsReport.to_dicts` has them.

    See Also
    --------
    make_server_app : Makes the app that writes the report.

    Examples
    --------
    >>> from skslot.flower import FederationReport
    >>> text = FederationReport("123", "aborted", "2 of 4 answered.").to_json()
    >>> report = FederationReport.from_json(text)  # in earnest: of report.json
    >>> print(report)
    run 123: aborted, 2 of 4 answered.
    >>> report.left_out
    []
    """

    run_id: str
    status: str = "running"
    reason: str | None = None
    clients: list = field(default_factory=list)
    findings: list = field(default_factory=list)

    def __str__(self):
        reason = "" if self.reason is None else f", {printable(self.reason)}"
        lines = [f"run {self.run_id}: {self.status}{reason}"]
        lines += [f"  {record}" for record in self.clients]
        if self.findings:
            table = str(ClientsReport.from_dicts(self.findings))
            lines += [f"  {line}" for line in table.splitlines()]
        return "\n".join(lines)

    @property
    def left_out(self):
        """Records of the nodes that were left out."""
        return [record for record in self.clients if record.status == "left out"]

    def to_json(self):
        """Write the report as text.

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


class Answer(NamedTuple):
    """What one node sent back: a message, or the code of a failure."""

    data: bytes | None = None
    code: str | None = None


class RunAborted(RuntimeError):
    """The policy of the run does not allow it to go on."""


def group_replies(sent, replies):
    """Answer of each node, from the ids of the messages that were sent.

    ``sent`` maps ids to nodes, ``replies`` are pairs of the id that is replied to and
    the answer. Who a reply says it is from does not count.
    """
    answers = {}
    for message_id, answer in replies:
        node = sent.get(message_id)
        if node is not None:
            answers[node] = Answer(code="malformed") if node in answers else answer
    return {node: answers.get(node, Answer(code="silent")) for node in sent.values()}


class Exchanges:
    """Asks all clients that still take part, one request after the other.

    ``send(step, contents)`` takes the bytes for each node and returns the answer of
    each. Whoever fails is left out of all that follows; less than ``min_clients``
    (None: all that were asked at first) end the run. ``clients_report`` is what stood
    out so far.
    """

    def __init__(self, nodes, send, types, min_clients=None):
        self.records = {node: ClientRecord(str(node)) for node in sorted(nodes)}
        self.send, self.types = send, types
        self.clients_report = ClientsReport([])
        self.min_clients = len(self.records) if min_clients is None else min_clients
        if not 1 <= self.min_clients <= len(self.records):
            raise RunAborted(
                f"min_clients is {min_clients}, but {len(self.records)} clients are "
                "there."
            )

    def ask(self, request, dtype):
        """Messages that can be used, in the order of the clients' names."""
        step, contents = request.step, _encode(request.contents, dtype)
        messages = {}
        answers = self._send(step, dict.fromkeys(self._taking_part(), contents))
        for node, answer in answers.items():
            message = self._read(node, step, answer)
            if message is not None and self._recognise(node, step, message):
                messages[node] = message
        self._refuse_twins(messages)
        messages = self._fitting(step, messages)
        self._check_enough(step, messages)
        messages = self._without_outliers(request, messages)
        self._check_enough(step, messages)
        return messages

    def deliver(self, result, dtype):
        """Send each client its result; a sentence on those who did not take it."""
        contents = {}
        for node in self._taking_part():
            message = result.for_client(self.records[node].client)
            name = "model" if isinstance(message, LinearModel) else "reference"
            contents[node] = _encode({name: message}, dtype)
        missed = 0
        for node, answer in self._send("result", contents).items():
            if answer.code is None:
                self.records[node].status = "done"
            else:
                self.records[node].leave_out("result", _known(answer.code))
                missed += 1
        if missed == len(contents):
            raise RunAborted("no client took the result, which only the server has.")
        if missed:
            return f"{missed} of {len(contents)} clients did not take the result."
        return None

    def _check_enough(self, step, messages):
        if len(messages) < self.min_clients:
            raise RunAborted(
                f"{len(messages)} of {len(self.records)} clients answered the step "
                f"{step!r} with what can be used, but min_clients is "
                f"{self.min_clients}."
            )

    def _without_outliers(self, request, messages):
        """Report outliers, and exclude them if the request says so."""
        report = receive(messages, Message, screen=None).clients_report
        if ClientScreen.of(request.screen).action == "exclude":
            report = report.without_outliers()
        self.clients_report = self.clients_report.merged(report)
        for record in self.records.values():
            if record.client in report.left_out:
                reason = report.left_out[record.client]
                record.leave_out(request.step, "outlier", reason)
        return [each for each in messages if each.client not in report.left_out]

    def _taking_part(self):
        return [node for node, r in self.records.items() if r.status != "left out"]

    def _send(self, step, contents):
        for node, content in contents.items():
            self.records[node].bytes_down += sum(map(len, content.values()))
        answers = self.send(step, contents)
        return {
            node: answers.get(node, Answer(code="unavailable")) for node in contents
        }

    def _read(self, node, step, answer):
        record = self.records[node]
        if answer.code is not None or answer.data is None:
            record.leave_out(step, _known(answer.code or "malformed"))
            return None
        record.bytes_up += len(answer.data)
        try:
            return self.types[step].from_bytes(answer.data)
        except MessageError as error:
            record.leave_out(step, "refused", str(error))
            return None

    def _recognise(self, node, step, message):
        """Whether a message has a name, and that of the client at this node."""
        record = self.records[node]
        if message.client is None:
            record.leave_out(step, "malformed")
        elif record.client not in (None, message.client):
            record.leave_out(step, "renamed")
        else:
            record.client = message.client
            return True
        return False

    def _fitting(self, step, messages):
        """Messages that can be used together, in the order of the clients' names."""
        nodes = sorted(messages, key=lambda node: client_order(messages[node].client))
        misfits = find_misfits({node: messages[node] for node in nodes})
        for node, detail in misfits.items():
            self.records[node].leave_out(step, "misfit", detail)
        return [messages[node] for node in nodes if node not in misfits]

    def _refuse_twins(self, messages):
        nodes_of = {}
        for node, message in messages.items():
            nodes_of.setdefault(message.client, []).append(node)
        for client, nodes in nodes_of.items():
            if len(nodes) > 1:
                raise RunAborted(
                    f"nodes {nodes} all say that they are client {client!r}. Give each "
                    "site a name and data of its own."
                )


def _encode(contents, dtype):
    return {name: message.to_bytes(dtype) for name, message in contents.items()}


def _known(code):
    return code if code in REASONS else "malformed"
