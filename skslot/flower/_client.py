"""The ClientApp: answers requests with the client steps of an estimator."""

import logging
import warnings
from contextlib import contextmanager
from functools import partial

from .._optional import import_optional
from ..exchange import Message, MessageError
from ._protocol import ClientSteps

# Name of the record in each message, and of what is kept between them.
RECORD = "skslot"

# What code of the user may raise; sys.exit() is no reason to say more.
FAILURES = (Exception, SystemExit)

logger = logging.getLogger("skslot.flower")


class Refusal(Exception):
    """Carries one of the fixed codes to the server, and nothing else."""


def make_client_app(
    load_data,
    estimator,
    *,
    classes=None,
    encoder=None,
    min_samples=Message.MIN_SAMPLES,
    wire_dtype="float64",
    receive=None,
    privacy=None,
):
    """Make the app that runs at each site.

    It answers the requests of :func:`make_server_app`, each as often as a run needs it
    and no more. When something fails, the exception goes to the log of the site, and
    one of a few fixed words to the server: the text of an exception may quote data.

    Parameters
    ----------
    load_data : callable
        Called as ``load_data(context)`` with Flower's context, whose ``node_config`` is
        what the site was started with. Returns ``X``, ``y`` (None for an aligner alone)
        and the name of the client.
    estimator : estimator object
        The same as at the server: an aligner, a classifier of :mod:`skslot`, or a
        Pipeline of the two.
    classes : array-like of shape (n_classes,), default=None
        Labels that may occur; by default those in ``y``. FedAvgClassifier and
        ``privacy`` need it.
    encoder : str, default=None
        Fingerprint of what made the features; clients with different ones are not
        combined.
    min_samples : int, default=10
        Fewest rows that may be summarised, of the client and of each of its classes.
    wire_dtype : {"float64", "float32", "float16"}, default="float64"
        Precision of the messages to the server.
    receive : callable, default=None
        Called as ``receive(message, context)`` with the result: a
        :class:`~skslot.exchange.LinearModel` with the alignment of this client folded
        in; of an aligner alone, what its ``client_map`` takes.
    privacy : PrivacyBudget, default=None
        Guarantee of differential privacy for the rows of this site, which the site
        chooses, not the server; by default that of the estimator. It needs ``classes``
        if there are labels, and an estimator that sends one message in a run. Every run
        is a release, and runs add up.

    Returns
    -------
    app : flwr.clientapp.ClientApp
        The app.

    See Also
    --------
    make_server_app : The other side.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> from skslot.flower import make_client_app
    >>> def load_data(context):
    ...     data = np.load(context.node_config["data"])
    ...     return data["X"], None, context.node_config["client"]
    >>> app = make_client_app(load_data, FederatedOTAligner())
    >>> type(app).__name__
    'ClientApp'
    """
    flower, clientapp, _ = flower_modules()
    steps = ClientSteps(estimator, classes, encoder, privacy)

    def summarize(step, contents, context):
        """Return the message on the samples of the client."""
        with refusing("load_failed", FAILURES, "load_data failed"):
            X, y, client = load_data(context)
            if client is None:
                raise ValueError("the name of the client is None")
        answer = steps.answer(step, contents, X, y, client)
        unsent = f"the answer to {step!r} is not sent"
        with refusing("too_few_rows", MessageError, unsent):
            answer.check_disclosure(min_samples)
        return answer

    def respond(step, message, context):
        try:
            allow_once_more(steps.allowed, step, context, flower.ConfigRecord)
            received = message.content.config_records.get(RECORD, {})
            unreadable = (KeyError, TypeError, MessageError)
            with refusing("bad_request", unreadable, "the request could not be read"):
                contents = {
                    name: steps.contents[name].from_bytes(data)
                    for name, data in received.items()
                }
            record = {"code": ""}
            if step == "result":
                with refusing("receive_failed", FAILURES, "receive failed"):
                    (result,) = contents.values()
                    if receive is not None:
                        receive(result, context)
            else:
                answer = summarize(step, contents, context)
                record["message"] = answer.to_bytes(wire_dtype)
        except Refusal as refusal:
            record = {"code": str(refusal)}
        except FAILURES:
            logger.exception("the answer to %r failed", step)
            record = {"code": "step_failed"}
        content = flower.RecordDict({RECORD: flower.ConfigRecord(record)})
        return flower.Message(content, reply_to=message)

    app = clientapp.ClientApp()
    for step in ("statistics", "summary", "scale", "training", "result"):
        app.query(step)(partial(respond, step))
    return app


def allow_once_more(allowed, step, context, new_record):
    """Count this request, unless the run has had as many as it needs."""
    if step not in allowed:
        raise Refusal("unknown_request")
    if RECORD not in context.state:
        context.state[RECORD] = new_record({})
    counts = context.state[RECORD]
    if counts.get(step, 0) >= allowed[step]:
        raise Refusal("asked_twice")
    counts[step] = counts.get(step, 0) + 1


@contextmanager
def refusing(code, errors, text):
    """Write errors to the log of the site, and tell the server the code alone."""
    try:
        yield
    except errors:
        logger.exception(text)
        raise Refusal(code) from None


def flower_modules():
    """The modules ``flwr.app``, ``flwr.clientapp`` and ``flwr.serverapp``."""
    names = ("flwr.app", "flwr.clientapp", "flwr.serverapp")
    with warnings.catch_warnings():
        # what it imports in turn uses deprecated names of each other
        warnings.simplefilter("ignore", DeprecationWarning)
        return [import_optional(name, "flower", "skslot.flower") for name in names]
