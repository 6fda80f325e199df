"""FedRidge: ridge regression from any partition, AFL and Fed3R as special cases."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import (
    Nystroem,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skslot import FederatedOTAligner, FedRidgeClassifier, MixedEffectsAligner
from skslot.datasets import make_shifted_clients
from skslot.exchange import ClassStatistics

shifted = make_shifted_clients(
    n_samples=200, n_clients=3, n_classes=3, n_features=6, random_state=0
)
X, Y, IDS = shifted.data, shifted.target, shifted.client_ids
ONE_HOT = np.eye(3)[Y]
N, M = X.shape
SETTINGS = {
    "default": {},
    "no intercept": {"fit_intercept": False},
    "balanced": {"class_weight": "balanced"},
    "AFL": {"alpha": 0, "fit_intercept": False},
    "Fed3R": {
        "alpha": 0.01,
        "scale_alpha": False,
        "fit_intercept": "penalized",
        "normalize": True,
    },
}
RANDOM = RBFSampler(gamma=0.05, n_components=60, random_state=0)


def assert_same_head(classifier, coef, intercept, tolerance=1e-10):
    scale = np.abs(coef).max()
    np.testing.assert_allclose(classifier.coef_, coef, atol=tolerance * scale)
    np.testing.assert_allclose(classifier.intercept_, intercept, atol=tolerance)


# ------------------------------------------------------------------- partitions


@pytest.mark.parametrize("setting", SETTINGS)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(clients=st.lists(st.integers(0, 6), min_size=N, max_size=N))
def test_any_partition_gives_the_same_weights(setting, clients):
    classifier = FedRidgeClassifier(**SETTINGS[setting])
    classifier.fit(X, Y, client_ids=np.array(clients))
    expected = FedRidgeClassifier(**SETTINGS[setting]).fit(X, Y)
    assert_same_head(classifier, expected.coef_, expected.intercept_)


@pytest.mark.parametrize("setting", SETTINGS)
def test_one_row_per_client_gives_the_same_weights(setting):
    classifier = FedRidgeClassifier(**SETTINGS[setting])
    classifier.fit(X[:45], Y[:45], client_ids=np.arange(45))
    expected = FedRidgeClassifier(**SETTINGS[setting]).fit(X[:45], Y[:45])
    assert_same_head(classifier, expected.coef_, expected.intercept_)


def test_added_sums_give_the_same_weights():
    """The route of secure aggregation, where the server sees totals only."""
    classifier = FedRidgeClassifier()
    sums = [
        classifier.client_update(X[IDS == k], Y[IDS == k], classes=[0, 1, 2]).sums()
        for k in range(3)
    ]
    totals = reduce(lambda a, b: [s + t for s, t in zip(a, b, strict=True)], sums)
    classifier.server_aggregate([ClassStatistics.from_sums([0, 1, 2], *totals)])
    expected = FedRidgeClassifier().fit(X, Y, client_ids=IDS)
    assert_same_head(classifier, expected.coef_, expected.intercept_)


def test_names_of_clients_and_order_of_messages_do_not_matter():
    names = {0: "z", 1: "y", 2: "x"}
    renamed = np.array([names[client] for client in IDS])
    classifier = FedRidgeClassifier().fit(X, Y, client_ids=renamed)
    expected = FedRidgeClassifier().fit(X, Y, client_ids=IDS)
    assert_same_head(classifier, expected.coef_, expected.intercept_, 1e-12)


# ---------------------------------------------------------------- scikit-learn's


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 50.0])
def test_equals_the_ridge_regression_of_scikit_learn(alpha, fit_intercept):
    classifier = FedRidgeClassifier(
        alpha, scale_alpha=False, fit_intercept=fit_intercept
    ).fit(X, Y, client_ids=IDS)
    ridge = Ridge(alpha, fit_intercept=fit_intercept).fit(X, ONE_HOT)
    assert_same_head(classifier, ridge.coef_, ridge.intercept_)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_alpha_is_in_units_of_the_mean_variance(fit_intercept):
    classifier = FedRidgeClassifier(fit_intercept=fit_intercept)
    classifier.fit(X, Y, client_ids=IDS)
    square = X.var(axis=0) if fit_intercept else np.mean(X**2, axis=0)
    ridge = Ridge(0.1 * N * square.mean(), fit_intercept=fit_intercept)
    ridge.fit(X, ONE_HOT)
    assert_same_head(classifier, ridge.coef_, ridge.intercept_)


@pytest.mark.parametrize("fit_intercept", [True, False, "penalized"])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_unit_of_the_features_does_not_matter(scale, fit_intercept):
    expected, actual = (
        FedRidgeClassifier(fit_intercept=fit_intercept)
        .fit(rows, Y)
        .decision_function(rows)
        for rows in (X, X * scale)
    )
    np.testing.assert_allclose(actual, expected, atol=1e-10)


def test_penalized_intercept_is_the_weight_of_a_constant_feature():
    classifier = FedRidgeClassifier(
        7.0, scale_alpha=False, fit_intercept="penalized"
    ).fit(X, Y, client_ids=IDS)
    bordered = np.column_stack([X, np.ones(N)])
    weights = Ridge(7.0, fit_intercept=False).fit(bordered, ONE_HOT).coef_
    assert_same_head(classifier, weights[:, :-1], weights[:, -1])


@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0, 2: 0.5, 1: 1.0}])
def test_class_weights_are_sample_weights_if_classes_have_one_covariance(class_weight):
    noise = np.random.default_rng(0).standard_normal((40, 4))
    blocks = [noise, np.vstack([noise, noise]), noise]
    rows = np.vstack([block + 2 * np.eye(4)[c] for c, block in enumerate(blocks)])
    y = np.repeat([0, 1, 2], [40, 80, 40])
    weights = np.array([160 / 120, 160 / 240, 160 / 120])
    if class_weight != "balanced":
        weights = np.array([class_weight[c] for c in range(3)])
    classifier = FedRidgeClassifier(
        2.0, scale_alpha=False, class_weight=class_weight
    ).fit(rows, y, client_ids=np.arange(160) % 3)
    ridge = Ridge(2.0).fit(rows, np.eye(3)[y], sample_weight=weights[y])
    assert_same_head(classifier, ridge.coef_, ridge.intercept_)


def test_equal_class_weights_change_nothing():
    plain = FedRidgeClassifier().fit(X, Y)
    equal = FedRidgeClassifier(class_weight=dict.fromkeys(range(3), 5.0)).fit(X, Y)
    assert_same_head(equal, plain.coef_, plain.intercept_)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.inf, np.nan])
def test_bad_class_weights_raise(weight):
    with pytest.raises(ValueError, match="class_weight must have positive numbers"):
        FedRidgeClassifier(class_weight={0: 1, 1: weight, 2: 1}).fit(X, Y)


# ----------------------------------------------------------------- AFL and Fed3R


def aggregate_pairwise(first, second):
    """Absolute aggregation law: joint solution from two local ones."""
    (one, gram), (two, other) = first, second
    eye, joint = np.eye(len(gram)), np.linalg.inv(gram + other)
    ours, theirs = np.linalg.inv(gram) @ other, np.linalg.inv(other) @ gram
    own = eye - ours + ours @ joint @ other
    others = eye - theirs + theirs @ joint @ gram
    return own @ one + others @ two, gram + other


@pytest.mark.parametrize("n_clients", [1, 2, 3, 7])
def test_as_afl_equals_the_pairwise_aggregation_of_local_solutions(n_clients):
    """Clients send solutions with a penalty, which is removed in the end."""
    gamma, ids = 1.0, np.arange(N) % n_clients
    local = []
    for client in range(n_clients):
        rows = X[ids == client]
        gram = rows.T @ rows + gamma * np.eye(M)
        local.append((np.linalg.solve(gram, rows.T @ ONE_HOT[ids == client]), gram))
    weights, gram = reduce(aggregate_pairwise, local)
    clean = gram - n_clients * gamma * np.eye(M)
    weights = weights + n_clients * gamma * np.linalg.solve(clean, weights)
    classifier = FedRidgeClassifier.as_afl().fit(X, Y, client_ids=ids)
    assert_same_head(classifier, weights.T, 0.0)
    assert np.array_equal(classifier.predict(X), (X @ weights).argmax(axis=1))


def test_as_fed3r_is_the_formula_of_the_paper():
    gram, moments = 0.01 * np.eye(M + 1), np.zeros((M + 1, 3))
    for client in range(3):
        rows = np.column_stack([X, np.ones(N)])[IDS == client]
        gram += rows.T @ rows
        moments += rows.T @ ONE_HOT[IDS == client]
    weights = np.linalg.solve(gram, moments)
    weights /= np.linalg.norm(weights[:-1], axis=0)
    classifier = FedRidgeClassifier.as_fed3r().fit(X, Y, client_ids=IDS)
    assert_same_head(classifier, weights[:-1].T, weights[-1])


def test_presets_are_parameters_and_can_be_changed():
    afl = FedRidgeClassifier.as_afl(n_jobs=2)
    assert repr(afl) == "FedRidgeClassifier(alpha=0.0, fit_intercept=False, n_jobs=2)"
    fed3r = FedRidgeClassifier.as_fed3r(normalize=False, feature_map=RANDOM)
    assert not fed3r.normalize
    assert (fed3r.alpha, fed3r.fit_intercept) == (0.01, "penalized")
    assert fed3r.feature_map is RANDOM


def test_no_penalty_with_fewer_rows_than_features_raises():
    rows = np.random.default_rng(0).standard_normal((20, 21))
    with pytest.raises(ValueError, match="singular, so alpha=0 .* use a larger one"):
        FedRidgeClassifier.as_afl().fit(rows, np.arange(20) % 2)
    assert np.isfinite(FedRidgeClassifier().fit(rows, np.arange(20) % 2).coef_).all()


# --------------------------------------------------------------------- edge cases


def test_rows_that_do_not_vary_get_the_shares_of_classes():
    classifier = FedRidgeClassifier().fit(np.full((6, 3), 0.1), list("aabbbb"))
    assert not classifier.coef_.any()
    np.testing.assert_allclose(classifier.intercept_, [1 / 3, 2 / 3])
    for preset in (FedRidgeClassifier.as_fed3r(), FedRidgeClassifier.as_afl(alpha=1)):
        preset.fit(np.zeros((6, 3)), list("aabbbb"))
        assert np.isfinite(preset.coef_).all()


def test_constant_features_change_nothing_else():
    rows = np.insert(X, [0, 3], [5.0, 0.0], axis=1)
    wide = FedRidgeClassifier(1.0, scale_alpha=False).fit(rows, Y, client_ids=IDS)
    plain = FedRidgeClassifier(1.0, scale_alpha=False).fit(X, Y, client_ids=IDS)
    expected = plain.decision_function(X)
    np.testing.assert_allclose(wide.decision_function(rows), expected, atol=1e-9)


def test_float32_features_far_from_the_origin():
    rows = (X + 1000).astype(np.float32)
    expected = FedRidgeClassifier().fit(X, Y).decision_function(X)
    actual = FedRidgeClassifier().fit(rows, Y).decision_function(rows)
    np.testing.assert_allclose(actual, expected, atol=1e-3)


# ------------------------------------------------------------------- one upload


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("aligner", [FederatedOTAligner(), MixedEffectsAligner()])
def test_one_upload_equals_the_pipeline(setting, aligner):
    plain = FedRidgeClassifier(**SETTINGS[setting])
    one = FedRidgeClassifier(aligner=aligner, **SETTINGS[setting])
    one.fit(X, Y, client_ids=IDS)
    two = Pipeline([("align", aligner), ("classify", plain)])
    two.fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(
        one.decision_function(X, client_ids=IDS),
        two.decision_function(X, client_ids=IDS),
        atol=1e-8,
    )


def test_message_is_that_of_fedcgs():
    message = FedRidgeClassifier().client_update(X, Y, client="A")
    assert isinstance(message, ClassStatistics)
    numbers = 3 * M + M * (M + 1) // 2
    data = message.to_bytes("float32")
    header = int.from_bytes(data[:8], "little")
    assert len(data) - 8 - header == 4 * (numbers + 3)  # counts are integers


# ------------------------------------------------------------------- feature maps


@pytest.mark.parametrize(
    "feature_map",
    [
        RANDOM,
        SkewedChi2Sampler(skewedness=100, n_components=30, random_state=1),
        PolynomialCountSketch(n_components=40, random_state=2),
        PolynomialFeatures(2, include_bias=False),
        make_pipeline(PolynomialFeatures(2, include_bias=False), RANDOM),
    ],
    ids=lambda each: type(each).__name__,
)
def test_mapped_classifier_equals_ridge_on_mapped_rows(feature_map):
    """Every client makes the same map, from the number of features alone."""
    classifier = FedRidgeClassifier(
        2.0, scale_alpha=False, feature_map=feature_map
    ).fit(X, Y, client_ids=IDS)
    mapped = feature_map.fit(np.zeros((1, M))).transform(X)
    ridge = Ridge(2.0).fit(mapped, ONE_HOT)
    np.testing.assert_allclose(
        classifier.decision_function(X), ridge.predict(mapped), atol=1e-7
    )
    assert classifier.n_features_in_ == M


def test_map_draws_curves_that_lines_do_not():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 2))
    ring = (np.linalg.norm(rows, axis=1) > 1.2).astype(int)
    ids = np.arange(600) % 3
    curved = FedRidgeClassifier(0.001, feature_map=RBFSampler(random_state=0))
    straight = FedRidgeClassifier(0.001).fit(rows, ring, client_ids=ids)
    assert curved.fit(rows, ring, client_ids=ids).score(rows, ring) > 0.95
    assert straight.score(rows, ring) < 0.7


def test_mapped_classifier_is_no_linear_model():
    classifier = FedRidgeClassifier(feature_map=RANDOM).fit(X, Y, client_ids=IDS)
    for use in (classifier.linear_model, lambda: classifier.client_model(0)):
        with pytest.raises(ValueError, match="linear after the map only"):
            use()


def test_map_and_aligner_are_refused_together():
    classifier = FedRidgeClassifier(feature_map=RANDOM, aligner=FederatedOTAligner())
    for use in (
        lambda: classifier.fit(X, Y, client_ids=IDS),
        lambda: classifier.client_update(X, Y),
        lambda: classifier.server_aggregate([]),
    ):
        with pytest.raises(ValueError, match="before this classifier in a Pipeline"):
            use()


@pytest.mark.parametrize(
    ("feature_map", "match"),
    [
        (RBFSampler(), "random_state=None, so each client would draw"),
        (
            make_pipeline(RBFSampler(random_state=np.random.RandomState(0))),
            "rbfsampler__random_state=RandomState",
        ),
        (RBFSampler(gamma="scale", random_state=0), "RBFSampler depends on the rows"),
        (PCA(2, random_state=0), "PCA depends on the rows"),
        (StandardScaler(), "StandardScaler depends on the rows"),
        (Nystroem(n_components=2, random_state=0), "Nystroem depends on the rows"),
    ],
    ids=["unseeded", "generator", "scaled", "pca", "scaler", "nystroem"],
)
def test_maps_that_clients_cannot_share_are_refused(feature_map, match):
    with pytest.raises(ValueError, match=match):
        FedRidgeClassifier(feature_map=feature_map).fit(X, Y, client_ids=IDS)


def test_server_refuses_messages_of_different_maps():
    other = RBFSampler(gamma=0.05, n_components=60, random_state=1)
    messages = [
        FedRidgeClassifier(feature_map=each).client_update(X, Y, client=name)
        for each, name in [(RANDOM, "A"), (other, "B")]
    ]
    with pytest.raises(ValueError, match="client 'B' has features of the encoder"):
        FedRidgeClassifier(feature_map=RANDOM).server_aggregate(messages)


def test_messages_that_name_another_encoder_are_taken_as_they_are():
    """Then nobody knows the number of features before the map."""
    classifier = FedRidgeClassifier(feature_map=RANDOM)
    message = classifier.client_update(X, Y).with_encoder("resnet18@1")
    classifier.server_aggregate([message])
    assert not hasattr(classifier, "n_features_in_")
    expected = FedRidgeClassifier(feature_map=RANDOM).fit(X, Y)
    assert np.array_equal(classifier.predict_proba(X), expected.predict_proba(X))


def test_map_set_after_fit_waits_for_the_next_fit():
    classifier = FedRidgeClassifier(feature_map=RBFSampler(random_state=0)).fit(X, Y)
    expected = classifier.predict_proba(X)
    classifier.set_params(feature_map__random_state=1)
    assert np.array_equal(classifier.predict_proba(X), expected)
