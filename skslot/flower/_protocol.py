"""The exchanges of an estimator, without any network.

The server's side is a generator: it yields a :class:`Request` to all clients, is sent
their messages, and returns a :class:`Result`. The client's side is one function per
step. Both call the public steps of the estimators and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline

from ..alignment import FederatedOTAligner, MixedEffectsAligner
from ..classifiers import (
    FedAvgClassifier,
    FedEnsembleClassifier,
    FedQDAClassifier,
    MixedEffectsClassifier,
    OneShotClassifier,
)
from ..exchange import (
    AlignedModel,
    AlignmentReference,
    ClassStatistics,
    ClientStatistics,
    FeatureScale,
    FeatureSummary,
    HeadWeights,
    LinearModel,
    MixedEffectsModel,
)
from ..trust import ClientScreen

# What the server answers for each aligner.
ALIGNERS = {
    FederatedOTAligner: AlignmentReference,
    MixedEffectsAligner: MixedEffectsModel,
}


@dataclass(frozen=True)
class Request:
    """What all clients are asked for, and the messages that they need for it.

    ``screen`` sets how outliers among the answers are handled.
    """

    step: str
    contents: dict = field(default_factory=dict)
    screen: ClientScreen | str | None = "warn"


@dataclass(frozen=True)
class Result:
    """What the exchanges gave: for the server to keep, and for each client."""

    reference: AlignmentReference | MixedEffectsModel | None
    model: LinearModel | AlignedModel | MixedEffectsModel | None
    for_client: Callable


def split_estimator(estimator):
    """Aligner and classifier; one of them may be None.

    Supported are an aligner, a classifier, and a Pipeline of the two.
    """
    steps = [estimator]
    if isinstance(estimator, Pipeline):
        steps = [
            step for _, step in estimator.steps if step not in (None, "passthrough")
        ]
    kinds = [tuple(ALIGNERS), OneShotClassifier]
    found = [next((s for s in steps if isinstance(s, kind)), None) for kind in kinds]
    if [step for step in found if step is not None] != steps:
        names = " -> ".join(type(step).__name__ for step in steps)
        raise ValueError(
            f"estimator {names} cannot run over Flower: it must be an aligner or a "
            "classifier of skslot, or a Pipeline of the two. Encode and scale features "
            "in load_data."
        )
    for step in steps:
        if step.client_column is not None:
            raise ValueError(
                f"client_column of {type(step).__name__} must be None: over Flower, "
                "load_data returns the name of the client."
            )
    aligner, classifier = (None if step is None else clone(step) for step in found)
    aligns = isinstance(classifier, MixedEffectsClassifier)
    aligns = aligns or getattr(classifier, "aligner", None) is not None
    if aligner is not None and aligns:
        raise ValueError(
            "the Pipeline aligns twice, as its classifier does so too: leave out its "
            "aligner, or that of the classifier."
        )
    _refuse_other_than_linear(classifier)
    if isinstance(classifier, FedAvgClassifier) and classifier.net is not None:
        raise ValueError(
            "over Flower FedAvgClassifier must have net=None, as the result is sent "
            "as a linear model."
        )
    return aligner, classifier


def with_screen(estimator, screen=None, max_share=None):
    """A copy of the estimator that screens by these settings, as far as they are given.

    A name in ``screen`` sets the action only; ``"none"`` is what a configuration file
    can contain in place of None.
    """
    steps = [step for step in split_estimator(estimator) if step is not None]
    for step in steps:
        chosen = screen if isinstance(screen, ClientScreen) else step.screen
        chosen = ClientScreen.of(chosen)
        if isinstance(screen, str):
            chosen = replace(chosen, action=None if screen == "none" else screen)
        if max_share is not None:
            chosen = replace(chosen, max_share=max_share)
        step.set_params(screen=chosen)
    return steps[0] if len(steps) == 1 else make_pipeline(*steps)


def _refuse_other_than_linear(classifier):
    """Refuse a classifier before anything is sent, if its result could not be."""
    kept_apart = isinstance(classifier, FedEnsembleClassifier)
    kept_apart = kept_apart and classifier.combine != "stack"
    mapped = getattr(classifier, "feature_map", None) is not None
    if isinstance(classifier, FedQDAClassifier) or kept_apart or mapped:
        raise ValueError(
            f"the result of {type(classifier).__name__} with these parameters is no "
            "linear model, which is what clients get over Flower; choose another "
            "classifier, for FedEnsembleClassifier combine='stack'."
        )


# ------------------------------------------------------------------- the server


def server_steps(estimator):
    """Generator of requests; the messages of all clients are sent into it."""
    aligner, classifier = split_estimator(estimator)
    if aligner is None:
        yield from _learn(classifier, {})
        if getattr(classifier, "aligner", None) is None:
            return Result(None, classifier.shared_model(), classifier.client_model)
        aligner = classifier.aligner_
        joint = _joint(classifier.linear_model(), aligner.reference_, aligner.tau)
        return Result(aligner.reference_, joint, classifier.client_model)
    statistics = yield Request("statistics", screen=aligner.screen)
    reference = aligner.server_aggregate(statistics).reference_
    if classifier is None:
        return Result(reference, None, lambda client: reference)
    yield from _learn(classifier, {"reference": reference})
    head = classifier.linear_model()
    sent = {message.client: message for message in statistics}

    def for_client(client):
        client_map = aligner.client_map(sent[client], reference)
        return head.pulled_back(*client_map.affine, client)

    return Result(reference, _joint(head, reference, aligner.tau), for_client)


def _joint(head, reference, tau):
    """Classifier and reference in one message, if there is one that holds both."""
    if not isinstance(reference, AlignmentReference):
        return None
    return AlignedModel.of(head, reference, reference.tau if tau == "auto" else tau)


def _learn(classifier, contents):
    """Exchanges after which the classifier is fitted."""
    if not isinstance(classifier, FedAvgClassifier):
        request = Request("summary", contents, classifier.screen)
        classifier.server_aggregate((yield request))
        return
    summaries, heads = [], []
    if classifier.standardize:
        summaries = yield Request("scale", contents, classifier.screen)
        contents = {**contents, "scale": classifier.server_scale(summaries)}
    for _ in range(classifier.n_rounds):
        messages = yield Request("training", contents, classifier.screen)
        contents = {**contents, "start": classifier.server_average(messages)}
        heads += messages
    classifier.server_aggregate([*summaries, *heads])


# ------------------------------------------------------------------- the client


class ClientSteps:
    """What one client answers, by the name of the step."""

    def __init__(self, estimator, classes=None, encoder=None, privacy=None):
        self.aligner, self.classifier = split_estimator(estimator)
        self.classes, self.encoder = classes, encoder
        _set_privacy(self.aligner, self.classifier, classes, privacy)
        is_trained = isinstance(self.classifier, FedAvgClassifier)
        if is_trained and classes is None:
            raise ValueError(
                "FedAvgClassifier needs classes=, the labels of all clients, the same "
                "at each of them."
            )
        # What may stand in a request, by the name it has there.
        self.contents = {
            "scale": FeatureScale,
            "start": HeadWeights,
            "model": LinearModel,
        }
        # How often each step may be asked for in one run.
        self.allowed = {"result": 1}
        if self.aligner is not None:
            self.contents["reference"] = next(
                answer
                for kind, answer in ALIGNERS.items()
                if isinstance(self.aligner, kind)
            )
            self.allowed["statistics"] = 1
        if is_trained:
            self.allowed["training"] = self.classifier.n_rounds
            if self.classifier.standardize:
                self.allowed["scale"] = 1
        elif self.classifier is not None:
            self.allowed["summary"] = 1

    def answer(self, step, contents, X, y, client):
        """The message to the server."""
        if step == "statistics":
            message = self.aligner.client_update(
                X, y=y, classes=self.classes, client=client
            )
            return message.with_encoder(self.encoder)
        if self.aligner is not None:
            own = self.answer("statistics", contents, X, y, client)
            X = self.aligner.client_map(own, contents["reference"]).transform(X)
        if step == "scale":
            message = self.classifier.client_summary(X, client=client)
        else:
            names = ("scale", "start") if step == "training" else ()
            others = {name: contents.get(name) for name in names}
            message = self.classifier.client_update(
                X, y, classes=self.classes, client=client, **others
            )
        return message.with_encoder(self.encoder)


def _set_privacy(aligner, classifier, classes, privacy):
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
    has_labels = step is classifier or step._needs_labels
    if has_labels and classes is None:
        raise ValueError(
            "privacy needs classes=, the labels of all clients, the same at each of "
            "them: which of them a site has is not to be told."
        )


def answer_types(estimator):
    """Type of the message that each step is answered with."""
    aligner, classifier = split_estimator(estimator)
    needs_classes = isinstance(aligner, MixedEffectsAligner) or (
        aligner is not None and aligner.tau == "auto"
    )
    return {
        "statistics": ClassStatistics if needs_classes else ClientStatistics,
        "summary": getattr(classifier, "message_type", None),
        "scale": FeatureSummary,
        "training": HeadWeights,
    }
