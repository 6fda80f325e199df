"""The exchanges of an estimator, without any network.

The server's side is a generator: it yields a :class:`Request` to all clients, is sent
their messages, and returns a :class:`Result`. The client's side is one function per
step. Both call the public steps of the estimators and nothing else.
"""

from dataclasses import dataclass, field, replace

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from ..alignment import FederatedOTAligner
from ..classifiers import FedAvgClassifier, FedCGSClassifier, FedPFTClassifier
from ..exchange import (
    AlignedModel,
    AlignmentReference,
    ClassMixtures,
    ClassStatistics,
    ClientStatistics,
    FeatureScale,
    FeatureSummary,
    HeadWeights,
    LinearModel,
)

CLASSIFIERS = (FedCGSClassifier, FedPFTClassifier, FedAvgClassifier)
# What may stand in a request, by the name it has there.
CONTENTS = {
    "reference": AlignmentReference,
    "scale": FeatureScale,
    "start": HeadWeights,
    "model": LinearModel,
}


@dataclass(frozen=True)
class Request:
    """What all clients are asked for, and the messages that they need for it."""

    step: str
    contents: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What the exchanges gave, and what each client is to receive of it."""

    reference: AlignmentReference | None = None
    model: LinearModel | None = None
    maps: dict = field(default_factory=dict)

    @property
    def for_all(self):
        """The model for all sites; with a reference, they align by themselves."""
        if self.model is None or self.reference is None:
            return self.model
        tau = next(iter(self.maps.values())).tau
        return AlignedModel.of(self.model, self.reference, tau)

    def for_client(self, client):
        """Message to one client; a model has the alignment of the client folded in."""
        if self.model is None:
            return self.reference
        if client not in self.maps:
            return replace(self.model, client=client)
        return self.model.pulled_back(*self.maps[client].affine, client)


def split_estimator(estimator):
    """Aligner and classifier; one of them may be None.

    Supported are an aligner, a classifier, and a Pipeline of the two.
    """
    steps = [estimator]
    if isinstance(estimator, Pipeline):
        steps = [
            step for _, step in estimator.steps if step not in (None, "passthrough")
        ]
    kinds = [FederatedOTAligner, CLASSIFIERS]
    found = [next((s for s in steps if isinstance(s, kind)), None) for kind in kinds]
    if [step for step in found if step is not None] != steps:
        names = " -> ".join(type(step).__name__ for step in steps)
        raise ValueError(
            f"estimator {names} cannot run over Flower: it must be a "
            "FederatedOTAligner, a FedCGS-, FedPFT- or FedAvgClassifier, or a Pipeline "
            "of the aligner and one of these. Encode and scale features in load_data."
        )
    for step in steps:
        if step.client_column is not None:
            raise ValueError(
                f"client_column of {type(step).__name__} must be None: over Flower, "
                "load_data returns the name of the client."
            )
    aligner, classifier = (None if step is None else clone(step) for step in found)
    if aligner is not None and getattr(classifier, "aligner", None) is not None:
        raise ValueError(
            "the Pipeline aligns twice: leave out its aligner, or that of the "
            "classifier."
        )
    if isinstance(classifier, FedAvgClassifier) and classifier.head is not None:
        raise ValueError(
            "over Flower FedAvgClassifier must have head=None, as the result is sent "
            "as a linear model."
        )
    return aligner, classifier


# ------------------------------------------------------------------- the server


def server_steps(estimator):
    """Generator of requests; the messages of all clients are sent into it."""
    aligner, classifier = split_estimator(estimator)
    contents, maps, reference = {}, {}, None
    if aligner is not None:
        statistics = yield Request("statistics")
        reference = aligner.server_aggregate(statistics)
        contents = {"reference": reference}
        maps = {s.client: aligner.client_map(s, reference) for s in statistics}
    if classifier is None:
        return Result(reference)
    if isinstance(classifier, FedAvgClassifier):
        messages = yield from _train(classifier, contents)
    else:
        messages = yield Request("summary", contents)
        classifier.server_aggregate(messages)
        if classifier.aligner is not None:
            inner, reference = classifier.aligner, classifier.reference_
            maps = {m.client: inner.client_map(m, reference) for m in messages}
    return Result(reference, classifier.linear_model(), maps)


def _train(classifier, contents):
    """Rounds of federated averaging; returns the messages of the last one."""
    summaries, heads = [], []
    if classifier.standardize:
        summaries = yield Request("scale", contents)
        contents = {**contents, "scale": classifier.server_scale(summaries)}
    for _ in range(classifier.n_rounds):
        messages = yield Request("training", contents)
        contents = {**contents, "start": classifier.server_average(messages)}
        heads += messages
    classifier.server_aggregate(heads, summaries)
    return messages


# ------------------------------------------------------------------- the client


class ClientSteps:
    """What one client answers, by the name of the step."""

    def __init__(self, estimator, classes=None, encoder=None):
        self.aligner, self.classifier = split_estimator(estimator)
        self.classes, self.encoder = classes, encoder
        is_trained = isinstance(self.classifier, FedAvgClassifier)
        if is_trained and classes is None:
            raise ValueError(
                "FedAvgClassifier needs classes=, the labels of all clients, the same "
                "at each of them."
            )
        # How often each step may be asked for in one run.
        self.allowed = {"result": 1}
        if self.aligner is not None:
            self.allowed["statistics"] = 1
        if is_trained:
            self.allowed["training"] = self.classifier.n_rounds
            if self.classifier.standardize:
                self.allowed["scale"] = 1
        elif self.classifier is not None:
            self.allowed["summary"] = 1

    def wire_dtype(self, step, default):
        """Precision of an answer: that of the classifier in its steps."""
        return default if step == "statistics" else self.classifier.wire_dtype

    def answer(self, step, contents, X, y, client):
        """The message to the server."""
        message = getattr(self, f"_{step}")(contents, X, y, client)
        return message.with_encoder(self.encoder)

    def _statistics(self, contents, X, y, client):
        return self.aligner.client_update(X, client, y=y)

    def _summary(self, contents, X, y, client):
        X = self._aligned(contents, X, y, client)
        return self.classifier.client_update(X, y, self.classes, client)

    def _scale(self, contents, X, y, client):
        X = self._aligned(contents, X, y, client)
        return self.classifier.client_summary(X, client)

    def _training(self, contents, X, y, client):
        X = self._aligned(contents, X, y, client)
        scale, start = contents.get("scale"), contents.get("start")
        return self.classifier.client_update(
            X, y, self.classes, client, scale=scale, start=start
        )

    def _aligned(self, contents, X, y, client):
        if self.aligner is None:
            return X
        own = self.answer("statistics", contents, X, y, client)
        return self.aligner.client_map(own, contents["reference"]).transform(X)


def answer_types(estimator):
    """Type of the message that each step is answered with."""
    aligner, classifier = split_estimator(estimator)
    needs_classes = aligner is not None and aligner.tau == "auto"
    return {
        "statistics": ClassStatistics if needs_classes else ClientStatistics,
        "summary": ClassMixtures
        if isinstance(classifier, FedPFTClassifier)
        else ClassStatistics,
        "scale": FeatureSummary,
        "training": HeadWeights,
    }
