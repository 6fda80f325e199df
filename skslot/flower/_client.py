"""The ClientApp: answers requests with the client steps of an estimator."""

import logging
from contextlib import contextmanager
from functools import partial

from sklearn.utils import get_tags

from ..classifiers import FedAvgClassifier
from ..exchange import (
    AlignmentReference,
    FeatureScale,
    HeadWeights,
    LinearModel,
    Message,
    MessageError,
    MixedEffectsModel,
    load_message,
)
from ._common import RECORD, flower_modules, split_estimator

# What a request may contain, by the name it has there.
CONTENTS = {
    "reference": (AlignmentReference, MixedEffectsModel),
    "scale": FeatureScale,
    "start": HeadWeights,
    "model": LinearModel,
}

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
    aligner, classifier = split_estimator(estimator)
    set_privacy(aligner, classifier, classes, privacy)
    allowed = allowed_requests(aligner, classifier)
    if "training" in allowed and classes is None:
        raise ValueError(
            "FedAvgClassifier needs classes=, the labels of all clients, the same at "
            "each of them."
        )

    def run_step(step, contents, X, y, client):
        """Return the message of a client step."""
        options = {"classes": classes, "client": client}
        if aligner is not None:
            own = aligner.client_update(X, y, **options).with_encoder(encoder)
            if step == "statistics":
                return own
            X = aligner.client_map(own, contents["reference"]).transform(X)
        if step == "scale":
            message = classifier.client_summary(X, client=client)
        else:
            if step == "training":
                options |= {name: contents.get(name) for name in ("scale", "start")}
            message = classifier.client_update(X, y, **options)
        return message.with_encoder(encoder)

    def summarize(step, contents, context):
        """Return the message on the samples of the client, if it may be sent."""
        with refusing("load_failed", FAILURES, "load_data failed"):
            X, y, client = load_data(context)
            if client is None:
                raise ValueError("the name of the client is None")
        message = run_step(step, contents, X, y, client)
        unsent = f"the answer to {step!r} is not sent"
        with refusing("too_few_rows", MessageError, unsent):
            message.check_disclosure(min_samples)
        return message

    def respond(step, message, context):
        try:
            allow_once_more(allowed, step, context, flower.ConfigRecord)
            received = message.content.config_records.get(RECORD, {})
            unreadable = (KeyError, TypeError, MessageError)
            with refusing("bad_request", unreadable, "the request could not be read"):
                contents = {n: read_content(n, data) for n, data in received.items()}
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


def allowed_requests(aligner, classifier):
    """Return how often each step may be asked for in one run."""
    allowed = {"result": 1}
    if aligner is not None:
        allowed["statistics"] = 1
    if isinstance(classifier, FedAvgClassifier):
        allowed["training"] = classifier.n_rounds
        if classifier.standardize:
            allowed["scale"] = 1
    elif classifier is not None:
        allowed["summary"] = 1
    return allowed


def set_privacy(aligner, classifier, classes, privacy):
    """Set the guarantee that a site asks for, unless one message could not give it."""
    steps = [step for step in (aligner, classifier) if step is not None]
    if privacy is None and all(step.privacy is None for step in steps):
        return
    if len(steps) > 1:
        raise ValueError(
            "a Pipeline sends two messages on the same rows, and the second is on rows "
            "that were moved by the first; with privacy, give the classifier its "
            "aligner as a parameter, so that one message serves both."
        )
    (step,) = steps
    if "privacy" not in step.get_params(deep=False):
        raise ValueError(
            f"{type(step).__name__} has no guarantee of differential privacy to give: "
            "its messages are not made of counts, sums and second moments alone. Use "
            "MixedEffectsClassifier, FedCGSClassifier, FedRidgeClassifier or "
            "FedCOFClassifier."
        )
    if privacy is not None:
        step.set_params(privacy=privacy)
    if classes is None and get_tags(step).target_tags.required:
        raise ValueError(
            "privacy needs classes=, the labels of all clients, the same at each of "
            "them: which of them a site has is not to be told."
        )


def read_content(name, data):
    """Read one of the messages in a request."""
    if not isinstance(data, bytes):
        raise TypeError(f"{name} is a {type(data).__name__}, not bytes.")
    message = load_message(data)
    if not isinstance(message, CONTENTS[name]):
        raise TypeError(f"{name} is a {type(message).__name__}.")
    return message


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
    """Write errors to the log of the site, and send the server the code alone."""
    try:
        yield
    except errors:
        logger.exception(text)
        raise Refusal(code) from None
