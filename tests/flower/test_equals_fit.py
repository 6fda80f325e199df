"""Apps give what ``fit`` gives, for every supported estimator."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FedCOFClassifier,
    FedCoresetClassifier,
    FedEnsembleClassifier,
    FederatedOTAligner,
    FedMergeClassifier,
    FedPFTClassifier,
    FedQDAClassifier,
    FedRidgeClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.exchange import (
    AlignedModel,
    AlignmentReference,
    LinearModel,
    MixedEffectsModel,
)
from skslot.flower import make_client_app, make_server_app

ALIGNER = FederatedOTAligner()
CLASSIFIERS = {
    "FedCGS": FedCGSClassifier(),
    "FedCGS, aligned, one upload": FedCGSClassifier(aligner=ALIGNER),
    "FedCGS after aligner": make_pipeline(ALIGNER, FedCGSClassifier()),
    "FedCGS after automatic tau": make_pipeline(
        FederatedOTAligner(tau="auto"), FedCGSClassifier()
    ),
    "FedPFT, aligned, one upload": FedPFTClassifier(
        covariance_type="full", aligner=ALIGNER, random_state=0
    ),
    "FedPFT after aligner": make_pipeline(ALIGNER, FedPFTClassifier(random_state=0)),
    "FedRidge, aligned, one upload": FedRidgeClassifier(aligner=ALIGNER),
    "FedCOF after aligner": make_pipeline(ALIGNER, FedCOFClassifier()),
    "FedCoreset, aligned, one upload": FedCoresetClassifier(
        min_samples=10, aligner=ALIGNER, random_state=0
    ),
    "FedMerge, aligned, one upload": FedMergeClassifier(aligner=ALIGNER),
    "FedEnsemble, aligned, one upload": FedEnsembleClassifier("stack", aligner=ALIGNER),
}


MIXED = {
    "mixed effects": MixedEffectsClassifier(),
    "mixed effects, offsets only": MixedEffectsClassifier(tau=0, priors="client"),
    "FedCGS, mixed aligner, one upload": FedCGSClassifier(
        aligner=MixedEffectsAligner(tau="auto")
    ),
    "FedPFT, mixed aligner, one upload": FedPFTClassifier(
        covariance_type="full", aligner=MixedEffectsAligner(), random_state=0
    ),
    "FedCGS after mixed aligner": make_pipeline(
        MixedEffectsAligner(), FedCGSClassifier()
    ),
    "FedPFT after mixed aligner": make_pipeline(
        MixedEffectsAligner(tau="auto"), FedPFTClassifier(random_state=0)
    ),
}


@pytest.fixture(autouse=True)
def _routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("tau", [0.4, "auto"])
def test_aligner(tau, federate, digits):
    X, y, site = digits
    aligner = FederatedOTAligner(tau=tau)
    report, folder, received = federate(aligner)
    aligner.fit(X, y, client_ids=site)
    reference = AlignmentReference.load(folder / "reference.slot")
    assert report.status == "completed"
    assert not (folder / "model.slot").exists()
    assert_allclose(reference.mean, aligner.reference_mean_, rtol=1e-12)
    assert_allclose(
        reference.covariance, aligner.reference_covariance_, rtol=0, atol=1e-12
    )
    for name, at_site in received.items():
        rows = X[site == name]
        own = aligner.client_update(rows, y=y[site == name], client=name)
        aligned = aligner.client_map(own, at_site).transform(rows)
        assert_allclose(aligned, aligner.transform(rows, client_ids=name), atol=1e-12)


@pytest.mark.parametrize("tau", [0, "auto"])
def test_mixed_effects_aligner(tau, federate, digits):
    X, y, site = digits
    aligner = MixedEffectsAligner(tau=tau)
    report, folder, received = federate(aligner)
    aligner.fit(X, y, client_ids=site)
    assert report.status == "completed"
    assert not (folder / "model.slot").exists()
    assert sorted(received) == sorted(set(site))
    for name, at_site in received.items():
        assert at_site == MixedEffectsModel.load(folder / "reference.slot")
        rows = X[site == name]
        own = aligner.client_update(rows, y=y[site == name], client=name)
        aligned = aligner.client_map(own, at_site).transform(rows)
        expected = aligner.transform(rows, client_ids=name)
        assert_allclose(aligned, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [*CLASSIFIERS, *MIXED])
def test_classifier(name, federate, digits, scores):
    X, y, site = digits
    estimator = sklearn.clone({**CLASSIFIERS, **MIXED}[name])
    report, folder, received = federate(estimator, client={"encoder": "pixels"})
    estimator.fit(X, y, client_ids=site)
    expected = estimator.decision_function(X, client_ids=site)
    unit = np.abs(expected).max()
    assert [record.status for record in report.clients] == ["done"] * 4
    assert sorted(received) == sorted(set(site))
    for client, model in received.items():
        rows = site == client
        assert isinstance(model, LinearModel)
        assert (model.client, model.encoder) == (client, "pixels")
        found = scores(model, X[rows])
        assert_allclose(found / unit, expected[rows] / unit, rtol=0, atol=1e-12)
    assert (folder / "reference.slot").exists() == ("ali" in name or "auto" in name)


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name != "FedCGS"])
def test_sites_that_align_by_themselves_get_the_same_from_the_model_of_all(
    name, federate, rows_of, scores
):
    _, folder, received = federate(CLASSIFIERS[name])
    model = AlignedModel.load(folder / "model.slot")
    aligner = FederatedOTAligner(tau=model.tau)
    for client, sent in received.items():
        X, _, _ = rows_of(client)
        own = aligner.client_update(X, client=client)
        aligned = aligner.client_map(own, model.reference).transform(X)
        expected = scores(sent, X)
        unit = np.abs(expected).max()
        found = scores(model.head, aligned)
        assert_allclose(found / unit, expected / unit, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["mixed effects", "mixed effects, offsets only"])
def test_sites_derive_their_classifier_from_the_model_of_mixed_effects(
    name, federate, rows_of, scores
):
    _, folder, received = federate(MIXED[name])
    model = MixedEffectsModel.load(folder / "model.slot")
    for client, sent in received.items():
        X, y, _ = rows_of(client)
        own = MIXED[name].client_update(X, y, client=client)
        at_site = MixedEffectsClassifier.from_model(model, own)
        expected = scores(sent, X)
        unit = np.abs(expected).max()
        found = at_site.decision_function(X)
        assert_allclose(found / unit, expected / unit, rtol=0, atol=1e-12)


@pytest.mark.parametrize("aligner", [None, ALIGNER, MixedEffectsAligner()])
def test_federated_averaging(aligner, federate, digits, scores):
    X, y, site = digits
    estimator = FedAvgClassifier(n_rounds=2, net__max_epochs=1, random_state=0)
    if aligner is not None:
        estimator = make_pipeline(aligner, estimator)
    report, _, received = federate(
        estimator, client={"classes": np.unique(y), "encoder": "a"}
    )
    estimator.fit(X, y, client_ids=site)
    expected = estimator.decision_function(X, client_ids=site)
    assert sorted(received) == sorted(set(site))
    for client, model in received.items():
        rows = site == client
        assert_allclose(scores(model, X[rows]), expected[rows], rtol=0, atol=1e-12)


def test_clients_stand_in_the_order_of_their_names(federate, sites):
    """Rows are drawn client by client, so another order gives another classifier."""
    estimator = FedPFTClassifier(random_state=0)
    forwards = federate(estimator, sites.tolist())[2]
    backwards = federate(estimator, sites[::-1].tolist())[2]
    assert forwards == backwards


def test_two_classes(federate, digits, scores):
    """A logistic regression then has a single row of weights."""
    X, y, site = digits
    estimator = FedPFTClassifier(random_state=0)
    is_small = y < 2

    def app(name):
        rows = is_small & (site == name)
        data = X[rows], y[rows], name
        return make_client_app(lambda context: data, estimator)

    _, folder, _ = federate(estimator, [app(name) for name in np.unique(site)])
    estimator.fit(X[is_small], y[is_small], client_ids=site[is_small])
    model = LinearModel.load(folder / "model.slot")
    expected = estimator.decision_function(X)
    assert_allclose(scores(model, X)[:, 0], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (StandardScaler(), "StandardScaler cannot run over Flower"),
        (make_pipeline(StandardScaler(), FedCGSClassifier()), "StandardScaler -> Fed"),
        (make_pipeline(FedCGSClassifier(), ALIGNER), "cannot run over Flower"),
        (make_pipeline(ALIGNER, ALIGNER), "cannot run over Flower"),
        (FederatedOTAligner(client_column=0), "client_column of FederatedOTAligner"),
        (FedAvgClassifier(net=print), "net=None"),
        (FedQDAClassifier(), "result of FedQDAClassifier .* no linear model"),
        (FedEnsembleClassifier(), "choose .* combine='stack'"),
        (FedRidgeClassifier(feature_map=RBFSampler()), "no linear model"),
        (make_pipeline(ALIGNER, FedCGSClassifier(aligner=ALIGNER)), "aligns twice"),
        (make_pipeline(ALIGNER, MixedEffectsClassifier()), "aligns twice"),
    ],
)
def test_unsupported_estimators_are_refused(estimator, match):
    with pytest.raises(ValueError, match=match):
        make_server_app(estimator)
    with pytest.raises(ValueError, match=match):
        make_client_app(lambda context: None, estimator, classes=[0, 1])


def test_federated_averaging_needs_classes():
    with pytest.raises(ValueError, match="needs classes="):
        make_client_app(lambda context: None, FedAvgClassifier())


def test_a_classifier_that_is_not_linear_cannot_be_sent(federate):
    from sklearn.tree import DecisionTreeClassifier

    estimator = FedPFTClassifier(estimator=DecisionTreeClassifier(), random_state=0)
    report, folder, _ = federate(estimator, fails=True)
    assert "DecisionTreeClassifier has no coef_" in report.reason
    assert not (folder / "model.slot").exists()
