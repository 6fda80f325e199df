"""The ServerApp: asks the clients, runs the server steps and writes the result."""

import time
from pathlib import Path

from .._atomic import atomic_output
from ._client import RECORD, flower_modules
from ._exchanges import Answer, Exchanges, FederationReport, RunAborted, group_replies
from ._protocol import answer_types, server_steps, split_estimator, with_screen

# Seconds between two looks for answers.
POLL = 1.0
# Flower's codes of errors that say more than that the app failed.
FLOWER_CODES = {3: "unavailable", 4: "unavailable", 5: "unavailable", 8: "crashed"}
# Seconds that a message outlives the wait for its answer: as long as it lives, the
# lack of an answer is not taken for an error of the site.
SLACK = 60.0


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
            screened = with_screen(estimator, settings["screen"], settings["max-share"])
            nodes = wait_for_nodes(grid, settings["n-clients"], wait)
            send = make_sender(grid, wait, flower)
            least = settings["min-clients"]
            exchanges = Exchanges(nodes, send, answer_types(estimator), least)
            report.clients = list(exchanges.records.values())
            result = run_exchanges(screened, exchanges, wire_dtype)
            for name in ("reference", "model"):
                message = getattr(result, name)
                if message is not None:
                    message.save(folder / f"{name}.slot", wire_dtype)
            report.reason = exchanges.deliver(result, wire_dtype)
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


def run_exchanges(estimator, exchanges, dtype):
    """Result of all exchanges that the estimator needs."""
    steps = server_steps(estimator)
    messages = None
    while True:
        try:
            request = steps.send(messages)
        except StopIteration as end:
            return end.value
        messages = exchanges.ask(request, dtype)


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


def make_sender(grid, timeout, flower):
    """Function that sends bytes to nodes and returns their answers."""

    def send(step, contents):
        sent = {}
        for node, content in contents.items():
            record = flower.RecordDict({RECORD: flower.ConfigRecord(content)})
            ttl = timeout + SLACK
            message = flower.Message(record, node, f"query.{step}", ttl=ttl)
            ids = list(grid.push_messages([message]))
            if any(ids):  # not for a node that is no longer there
                sent[ids[0]] = node
        return group_replies(sent, pull_replies(grid, set(sent), timeout))

    return send


def pull_replies(grid, waiting, timeout):
    """Pairs of the id that is replied to and the answer, until all are there."""
    deadline = time.monotonic() + timeout
    while waiting and time.monotonic() < deadline:
        for reply in grid.pull_messages(waiting):
            message_id = reply.metadata.reply_to_message_id
            waiting = waiting - {message_id}
            yield message_id, read_reply(reply)
        if waiting:
            time.sleep(POLL)


def read_reply(reply):
    """Message or code in a reply, whatever else may be in it."""
    if reply.has_error():  # its reason is text of the client, and is not read
        return Answer(code=FLOWER_CODES.get(reply.error.code, "app_failed"))
    record = reply.content.config_records.get(RECORD, {})
    code, data = record.get("code"), record.get("message")
    if code != "":
        return Answer(code=code if isinstance(code, str) else "malformed")
    return Answer(data=data if isinstance(data, bytes) else None)
