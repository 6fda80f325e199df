"""The ServerApp: asks the clients, runs the server steps and writes the result."""

import json
import time
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from sklearn.utils import get_tags

from .._atomic import atomic_output
from .._utils import client_order, printable
from ..classifiers import FedAvgClassifier
from ..exchange import (
    AlignedModel,
    AlignmentReference,
    ClassStatistics,
    ClientStatistics,
    FeatureSummary,
    HeadWeights,
    LinearModel,
    MessageError,
    find_misfits,
)
from ..trust import ClientScreen, ClientsReport, examine_clients
from ._common import RECORD, flower_modules, split_estimator

# Seconds between two looks for answers.
POLL = 1.0
# Flower's codes of errors that say more than that the app failed.
FLOWER_CODES = {3: "unavailable", 4: "unavailable", 5: "unavailable", 8: "crashed"}
# Seconds that a message outlives the wait for its answer: as long as it lives, the
# lack of an answer is not taken for an error of the site.
SLACK = 60.0

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


def make_server_app(
    estimator,
    n_clients=None,
    *,
    min_clients=None,
    timeout=600.0,
    wire_dtype="float64",
    output_dir="skslot-runs",
    screen=None,
):
    """Make the app that runs at the server.

    It waits for the clients, runs the exchanges of the estimator, and sends each client
    its result; if none takes it, the run is aborted. ``report.json`` and, once there is
    a result, ``reference.slot`` and ``model.slot`` are written to the folder
    ``run-<run id>`` in ``output_dir``.

    Parameters
    ----------
    estimator : estimator object
        The same as at the clients: an aligner, a classifier of :mod:`skslot`, or a
        Pipeline of the two.
    n_clients : int, default=None
        Number of nodes to wait for. All that are connected by then are asked. None
        means that the configuration of the run says it.
    min_clients : int, default=None
        Fewest clients that must answer in each exchange; the run is aborted with fewer.
        None means all that are asked. Who fails is left out of all that follows, and
        the report says why.
    timeout : float, default=600.0
        Seconds to wait for the clients to connect, and in each exchange to answer.
    wire_dtype : {"float64", "float32", "float16"}, default="float64"
        Precision of what is sent to the clients.
    output_dir : str or path-like, default="skslot-runs"
        Where to write; relative to the folder in which the SuperLink was started.
    screen : "none", "warn", "exclude" or ClientScreen, default=None
        How to handle clients whose statistics are implausible compared with all others,
        see :doc:`/user_guide/trust`. ``"warn"`` issues a warning, ``"exclude"`` drops
        the client, ``"none"`` disables the check. The report lists excluded clients,
        and ``min_clients`` counts the others. A :class:`~skslot.trust.ClientScreen`
        also limits the fraction of all samples that one client may contribute. If None,
        the ``screen`` of the estimator is used.

    Returns
    -------
    app : flwr.serverapp.ServerApp
        The app.

    See Also
    --------
    make_client_app : The other side.
    FederationReport : Reads ``report.json``.

    Notes
    -----
    Settings of a run come first: ``n-clients``, ``min-clients``, ``timeout``,
    ``output-dir``, ``screen`` and ``max-share`` in ``[tool.flwr.app.config]`` of the
    app, or given to ``flwr run``, override those given here. Flower accepts only those
    that the app lists. ``max-share`` sets ``max_share`` of the screen.

    Two nodes that give the same name end the run, whatever ``min_clients`` is. A client
    whose message does not fit the others (number of features, encoder, kind of labels,
    ...) is left out: what most clients sent counts, and of two values that equally many
    sent, that of the client whose name sorts first.

    Examples
    --------
    >>> from skslot import FedCGSClassifier, FederatedOTAligner
    >>> from skslot.flower import make_server_app
    >>> classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    >>> app = make_server_app(classifier, n_clients=4, min_clients=3)
    >>> type(app).__name__
    'ServerApp'
    """
    flower, _, serverapp = flower_modules()
    split_estimator(estimator)  # raises if the estimator cannot run over Flower
    app = serverapp.ServerApp()
    defaults = {
        "n-clients": n_clients,
        "min-clients": min_clients,
        "timeout": timeout,
        "output-dir": output_dir,
        "screen": screen,
        "max-share": None,
    }

    @app.main()
    def main(grid, context):
        run_config = context.run_config
        settings = {key: run_config.get(key, value) for key, value in defaults.items()}
        report = FederationReport(str(context.run_id))
        folder = Path(settings["output-dir"]) / f"run-{context.run_id}"
        folder.mkdir(parents=True, exist_ok=True)
        exchanges = None
        try:
            wait = settings["timeout"]
            aligner, classifier = split_estimator(estimator)
            for step in filter(None, (aligner, classifier)):
                options = settings["screen"], settings["max-share"]
                step.set_params(screen=choose_screen(step.screen, *options))
            nodes = wait_for_nodes(grid, settings["n-clients"], wait)
            send = partial(send_and_wait, grid, flower, wait)
            exchanges = Exchanges(nodes, send, settings["min-clients"], wire_dtype)
            report.clients = list(exchanges.records.values())
            results, result_of = run_steps(aligner, classifier, exchanges.ask)
            for name, message in results.items():
                message.save(folder / f"{name}.slot", wire_dtype)
            report.reason = exchanges.deliver(result_of)
            report.status = "completed"
        except BaseException as error:
            is_ours = isinstance(error, Exception)
            report.status = "aborted"
            report.reason = str(error) if is_ours else "the server was told to stop"
            raise
        finally:
            if exchanges is not None:
                report.findings = exchanges.clients_report.to_dicts()
            with atomic_output(folder / "report.json") as file:
                file.write(report.to_json().encode())
            print(report, flush=True)

    return app


def choose_screen(own, screen=None, max_share=None):
    """Return the screen of a run: that of the estimator, as far as none is set.

    A name in ``screen`` sets the action only; ``"none"`` is what a configuration file
    can contain in place of None.
    """
    chosen = ClientScreen.of(screen if isinstance(screen, ClientScreen) else own)
    if isinstance(screen, str):
        chosen = replace(chosen, action=None if screen == "none" else screen)
    return chosen if max_share is None else replace(chosen, max_share=max_share)


# ------------------------------------------------------------------ the estimator


def run_steps(aligner, classifier, ask):
    """Run the server steps; one of the two estimators may be None.

    ``ask(step, kind, screen, **contents)`` sends contents to all clients and returns
    their messages. Returns the messages for the server to keep, by their names, and a
    function that returns the message to each client.
    """
    contents = {}
    if aligner is not None:
        needs_labels = get_tags(aligner).target_tags.required
        kind = ClassStatistics if needs_labels else ClientStatistics
        statistics = ask("statistics", kind, aligner.screen)
        contents["reference"] = aligner.server_aggregate(statistics).reference_
        if classifier is None:
            return contents, lambda client: contents["reference"]
    if isinstance(classifier, FedAvgClassifier):
        average_in_rounds(classifier, ask, contents)
    else:
        kind, screen = classifier.message_type, classifier.screen
        classifier.server_aggregate(ask("summary", kind, screen, **contents))
    if aligner is not None:
        head = classifier.linear_model()
        sent = {message.client: message for message in statistics}

        def result_of(client):
            client_map = aligner.client_map(sent[client], contents["reference"])
            return head.pulled_back(*client_map.affine, client)

        return with_joint_model(head, contents["reference"], aligner.tau), result_of
    if getattr(classifier, "aligner", None) is None:
        return {"model": classifier.shared_model()}, classifier.client_model
    head, inner = classifier.linear_model(), classifier.aligner_
    results = with_joint_model(head, inner.reference_, inner.tau)
    return results, classifier.client_model


def average_in_rounds(classifier, ask, contents):
    """Fit a FedAvgClassifier, which asks the clients several times."""
    messages, screen = [], classifier.screen
    if classifier.standardize:
        messages = ask("scale", FeatureSummary, screen, **contents)
        contents = {**contents, "scale": classifier.server_scale(messages)}
    for _ in range(classifier.n_rounds):
        heads = ask("training", HeadWeights, screen, **contents)
        contents = {**contents, "start": classifier.server_average(heads)}
        messages = messages + heads
    classifier.server_aggregate(messages)


def with_joint_model(head, reference, tau):
    """Return the reference and, if one message can hold both, the model with it."""
    results = {"reference": reference}
    if isinstance(reference, AlignmentReference):
        tau = reference.tau if tau == "auto" else tau
        results["model"] = AlignedModel.of(head, reference, tau)
    return results


# -------------------------------------------------------------------- the clients


class RunAborted(RuntimeError):
    """The policy of the run does not allow it to go on."""


class Exchanges:
    """Asks all clients that still take part, one request after the other.

    ``send(step, contents)`` takes the bytes for each node and returns the answer of
    each: bytes of a message, or text with the code of a failure. Whoever fails is left
    out of all that follows; less than ``min_clients`` (None: all that were asked at
    first) end the run. ``clients_report`` has the outliers found so far.
    """

    def __init__(self, nodes, send, min_clients, wire_dtype):
        self.records = {node: ClientRecord(str(node)) for node in sorted(nodes)}
        self.send, self.wire_dtype = send, wire_dtype
        self.clients_report = ClientsReport([])
        self.min_clients = len(self.records) if min_clients is None else min_clients
        if not 1 <= self.min_clients <= len(self.records):
            raise RunAborted(
                f"min_clients is {min_clients}, but {len(self.records)} clients are "
                "there."
            )

    def ask(self, step, kind, screen, **contents):
        """Return the messages that can be used, in the order of the clients' names.

        Clients are sent ``contents`` and answer with messages of a ``kind``. ``screen``
        sets how outliers among them are handled.
        """
        messages, contents = {}, self._encode(contents)
        answers = self._send(step, dict.fromkeys(self._taking_part(), contents))
        for node, answer in answers.items():
            message = self._read(node, step, kind, answer)
            if message is not None:
                messages[node] = message
        self._refuse_twins(messages)
        messages = self._fitting(step, messages)
        self._check_enough(step, messages)
        messages = self._without_outliers(step, screen, messages)
        self._check_enough(step, messages)
        return messages

    def deliver(self, result_of):
        """Send each client its result; return a sentence on those who did not take it.

        ``result_of(client)`` is the message to a client.
        """
        contents = {}
        for node in self._taking_part():
            message = result_of(self.records[node].client)
            name = "model" if isinstance(message, LinearModel) else "reference"
            contents[node] = self._encode({name: message})
        missed = 0
        for node, answer in self._send("result", contents).items():
            if isinstance(answer, bytes):
                self.records[node].status = "done"
            else:
                self.records[node].leave_out("result", answer)
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

    def _without_outliers(self, step, screen, messages):
        """Report outliers, and exclude them if the screen does."""
        report = examine_clients(messages)
        if ClientScreen.of(screen).action == "exclude":
            report = report.without_outliers()
        self.clients_report = self.clients_report.merged(report)
        for record in self.records.values():
            if record.client in report.left_out:
                reason = report.left_out[record.client]
                record.leave_out(step, "outlier", reason)
        return [each for each in messages if each.client not in report.left_out]

    def _taking_part(self):
        return [node for node, r in self.records.items() if r.status != "left out"]

    def _send(self, step, contents):
        for node, content in contents.items():
            self.records[node].bytes_down += sum(map(len, content.values()))
        answers = self.send(step, contents)
        return {node: answers.get(node, "unavailable") for node in contents}

    def _encode(self, contents):
        return {name: each.to_bytes(self.wire_dtype) for name, each in contents.items()}

    def _read(self, node, step, kind, answer):
        """Return the message of a node; None if there is none that can be used."""
        record = self.records[node]
        if not isinstance(answer, bytes) or not answer:
            record.leave_out(step, answer or "malformed")
            return None
        record.bytes_up += len(answer)
        try:
            message = kind.from_bytes(answer)
        except MessageError as error:
            record.leave_out(step, "refused", str(error))
            return None
        if message.client is None:
            record.leave_out(step, "malformed")
        elif record.client not in (None, message.client):
            record.leave_out(step, "renamed")
        else:
            record.client = message.client
            return message
        return None

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


def wait_for_nodes(grid, n_clients, timeout):
    """Ids of the connected nodes, once there are enough of them."""
    if n_clients is None:
        raise ValueError(
            "how many clients to wait for was not said: pass n_clients to "
            "make_server_app, or set n-clients in the configuration of the run."
        )
    deadline = time.monotonic() + timeout
    while len(nodes := set(grid.get_node_ids())) < n_clients:
        if time.monotonic() > deadline:
            raise RunAborted(
                f"{len(nodes)} of {n_clients} nodes connected within {timeout:g} s."
            )
        time.sleep(POLL)
    return nodes


def send_and_wait(grid, flower, timeout, step, contents):
    """Send bytes to nodes and return their answers.

    An answer is the bytes of a message, empty if none was asked for, or the code of a
    failure. Who a reply says it is from does not count, only what it replies to.
    """
    sent, answers = {}, {}
    for node, content in contents.items():
        record = flower.RecordDict({RECORD: flower.ConfigRecord(content)})
        message = flower.Message(record, node, f"query.{step}", ttl=timeout + SLACK)
        ids = list(grid.push_messages([message]))
        if any(ids):  # not for a node that is no longer there
            sent[ids[0]] = node
            answers[node] = "silent"
    waiting, deadline = set(sent), time.monotonic() + timeout
    while waiting and time.monotonic() < deadline:
        for reply in grid.pull_messages(waiting):
            message_id = reply.metadata.reply_to_message_id
            if message_id in sent:
                is_second = message_id not in waiting
                answer = "malformed" if is_second else read_reply(reply)
                answers[sent[message_id]] = answer
                waiting = waiting - {message_id}
        if waiting:
            time.sleep(POLL)
    return answers


def read_reply(reply):
    """Return the message or the code in a reply, whatever else may be in it."""
    if reply.has_error():  # its reason is text of the client, and is not read
        return FLOWER_CODES.get(reply.error.code, "app_failed")
    record = reply.content.config_records.get(RECORD, {})
    code, data = record.get("code"), record.get("message")
    if code == "":
        return data if isinstance(data, bytes) else b""
    return code if isinstance(code, str) and code in REASONS else "malformed"
