"""A site that gives a guarantee of its own over Flower."""

from unittest.mock import patch

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.exchange import ClassStatistics, ClientStatistics
from skslot.flower import make_client_app
from skslot.privacy import PrivacyBudget

NOISE = "skslot.privacy._budget.opendp_noise"

BUDGET = PrivacyBudget(8.0, 1e-5, clip_norm=40.0)
CLASSES = range(10)


@pytest.fixture(autouse=True)
def _noise():
    rng = np.random.default_rng(0)
    with patch(NOISE, lambda v, scale: v + scale * rng.standard_normal(len(v))):
        yield


@pytest.mark.parametrize(
    ("estimator", "step", "kind"),
    [
        (FedCGSClassifier(aligner=FederatedOTAligner()), "summary", ClassStatistics),
        (MixedEffectsClassifier(), "summary", ClassStatistics),
        (MixedEffectsAligner(), "statistics", ClassStatistics),
        (FederatedOTAligner(), "statistics", ClientStatistics),
    ],
)
@pytest.mark.parametrize("by_estimator", [False, True])
def test_the_message_of_a_site_carries_its_guarantee(
    estimator, step, kind, by_estimator, rows_of, request_of, context
):
    estimator.set_params(privacy=BUDGET if by_estimator else None)
    app = make_client_app(
        lambda context: rows_of("fax"),
        estimator,
        classes=CLASSES,
        privacy=None if by_estimator else BUDGET,
    )
    reply = app(request_of(f"query.{step}"), context)
    message = kind.from_bytes(reply.content["skslot"]["message"])
    assert message.privacy == BUDGET.guarantee
    assert not np.allclose(message.mean, rows_of("fax")[0].mean(axis=0), atol=1e-4)
    second = app(request_of(f"query.{step}"), context)
    assert dict(second.content["skslot"]) == {"code": "asked_twice"}


def test_a_run_with_privacy_gives_each_site_a_classifier(federate, rows_of):
    client = {"classes": CLASSES, "privacy": BUDGET}
    report, _, received = federate(MixedEffectsClassifier(tau=0), client=client)
    assert report.status == "completed"
    for site, model in received.items():
        X, y, _ = rows_of(site)
        labels = np.argmax(X @ model.coef.T + model.intercept, axis=1)
        assert np.mean(labels == y) > 0.6


@pytest.mark.parametrize("privacy", [None, BUDGET])
def test_two_messages_on_the_same_rows_are_refused(privacy):
    for pipeline in (
        make_pipeline(FederatedOTAligner(privacy=BUDGET), FedCGSClassifier()),
        make_pipeline(FederatedOTAligner(), FedCGSClassifier(privacy=BUDGET)),
    ):
        with pytest.raises(ValueError, match="a Pipeline sends two messages"):
            make_client_app(None, pipeline, classes=CLASSES, privacy=privacy)


def test_classifiers_without_a_guarantee_are_refused():
    with pytest.raises(ValueError, match="FedPFTClassifier has no guarantee of"):
        make_client_app(None, FedPFTClassifier(), classes=CLASSES, privacy=BUDGET)


@pytest.mark.parametrize("estimator", [FedCGSClassifier(), MixedEffectsAligner()])
def test_classes_must_be_agreed_on(estimator):
    with pytest.raises(ValueError, match="privacy needs classes="):
        make_client_app(None, estimator, privacy=BUDGET)
