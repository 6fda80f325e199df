"""The server's bookkeeping: who is asked, who answered, and whether to go on."""

from typing import NamedTuple

from .._clients import client_order
from ..exchange import MessageError
from ._agreement import find_misfits
from ._report import REASONS, ClientRecord


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
    (None: all that were asked at first) end the run.
    """

    def __init__(self, nodes, send, types, min_clients=None):
        self.records = {node: ClientRecord(str(node)) for node in sorted(nodes)}
        self.send, self.types = send, types
        self.min_clients = len(self.records) if min_clients is None else min_clients
        if not 1 <= self.min_clients <= len(self.records):
            raise RunAborted(
                f"min_clients is {min_clients}, but {len(self.records)} clients are "
                "there."
            )

    def ask(self, request, dtype):
        """Messages that can be used, in the order of the clients' names."""
        contents = _encode(request.contents, dtype)
        nodes = self._taking_part()
        answers = self._send(request.step, dict.fromkeys(nodes, contents))
        messages = {}
        for node, answer in answers.items():
            message = self._read(node, request.step, answer)
            if message is not None:
                messages[node] = message
        self._refuse_twins(messages)
        messages = self._fitting(request.step, messages)
        if len(messages) < self.min_clients:
            raise RunAborted(
                f"{len(messages)} of {len(self.records)} clients answered the step "
                f"{request.step!r} with what can be used, but min_clients is "
                f"{self.min_clients}."
            )
        return messages

    def deliver(self, result, dtype):
        """Send each client its result; a sentence on those who did not take it."""
        key = "reference" if result.model is None else "model"
        contents = {
            node: _encode({key: result.for_client(self.records[node].client)}, dtype)
            for node in self._taking_part()
        }
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
            message = self.types[step].from_bytes(answer.data)
        except MessageError as error:
            record.leave_out(step, "refused", str(error))
            return None
        if message.client is None:
            record.leave_out(step, "malformed")
            return None
        if record.client not in (None, message.client):
            record.leave_out(step, "renamed")
            return None
        record.client = message.client
        return message

    def _fitting(self, step, messages):
        """Messages that can be used together, in the order of the clients' names."""
        by_name = sorted(
            messages.items(), key=lambda item: client_order(item[1].client)
        )
        misfits = find_misfits(dict(by_name))
        for node, detail in misfits.items():
            self.records[node].leave_out(step, "misfit", detail)
        return [message for node, message in by_name if node not in misfits]

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
