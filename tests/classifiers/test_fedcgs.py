"""FedCGS: the same model from any partition, LDA as a special case, one upload."""

import pickle
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load
from sklearn.covariance import oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import Pipeline

from skslot import FedCGSClassifier, FederatedOTAligner, MixedEffectsAligner
from skslot.datasets import make_shifted_clients
from skslot.exchange import ClassStatistics

COVARIANCES = pytest.mark.parametrize("covariance", ["total", "within"])
EVERY = pytest.mark.parametrize("covariance", ["total", "within", "identity"])

shifted = make_shifted_clients(
    n_samples=200, n_clients=3, n_classes=3, n_features=6, random_state=0
)
X, Y, IDS = shifted.data, shifted.target, shifted.client_ids


def two_step(classifier, aligner=None):
    """Aligner and classifier in a Pipeline, with an exchange for each."""
    aligner = FederatedOTAligner() if aligner is None else aligner
    return Pipeline([("align", aligner), ("classify", classifier)])


def assert_same_model(first, second, tolerance):
    scale = np.abs(second.coef_).max()
    np.testing.assert_allclose(first.coef_, second.coef_, atol=tolerance * scale)
    scale = np.abs(second.intercept_).max()
    np.testing.assert_allclose(
        first.intercept_, second.intercept_, atol=tolerance * scale
    )
    assert np.array_equal(first.classes_, second.classes_)


# ------------------------------------------------------------------- partitions


@EVERY
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    clients=st.lists(st.integers(0, 6), min_size=len(X), max_size=len(X)),
    offset=st.sampled_from([0.0, 1e3]),
)
def test_any_partition_gives_the_same_model(covariance, clients, offset):
    """To 1e-10, also far from the origin."""
    rows = X + offset
    expected = FedCGSClassifier(covariance).fit(rows, Y)
    actual = FedCGSClassifier(covariance).fit(rows, Y, client_ids=np.array(clients))
    assert_same_model(actual, expected, tolerance=1e-10)


@EVERY
def test_one_row_per_client_gives_the_same_model(covariance):
    expected = FedCGSClassifier(covariance).fit(X, Y)
    actual = FedCGSClassifier(covariance).fit(X, Y, client_ids=np.arange(len(X)))
    assert_same_model(actual, expected, tolerance=1e-10)


@EVERY
def test_added_sums_give_the_same_model(covariance):
    """The route of secure aggregation, where the server sees totals only."""
    classifier = FedCGSClassifier(covariance)
    sums = [
        classifier.client_update(X[IDS == k], Y[IDS == k], classes=[0, 1, 2]).sums()
        for k in range(3)
    ]
    totals = reduce(lambda a, b: [s + t for s, t in zip(a, b, strict=True)], sums)
    message = ClassStatistics.from_sums([0, 1, 2], *totals)
    actual = classifier.server_aggregate([message])
    expected = FedCGSClassifier(covariance).fit(X, Y, client_ids=IDS)
    assert_same_model(actual, expected, tolerance=1e-10)


# -------------------------------------------------------------------------- LDA


@pytest.mark.parametrize("counts", [(60, 60, 60), (20, 90, 50)])
def test_within_and_no_ridge_is_linear_discriminant_analysis(counts):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], counts)
    rows = rng.standard_normal((len(y), 5)) @ rng.standard_normal((5, 5))
    rows[:, :3] += 1.5 * np.eye(3)[y]
    classifier = FedCGSClassifier("within", ridge=0)
    classifier.fit(rows, y, client_ids=rng.integers(0, 4, len(y)))
    expected = LinearDiscriminantAnalysis(solver="lsqr").fit(rows, y)
    probabilities = expected.predict_proba(rows)
    np.testing.assert_allclose(classifier.predict_proba(rows), probabilities, atol=1e-8)
    assert np.array_equal(classifier.predict(rows), expected.predict(rows))


def test_predicts_as_the_default_solver_of_scikit_learn():
    """For classes of equal size; that solver divides by n_samples - n_classes."""
    y = np.arange(198) % 3
    rows = np.random.default_rng(0).standard_normal((198, 4)) + np.eye(4)[y]
    classifier = FedCGSClassifier("within", ridge=0).fit(rows, y)
    expected = LinearDiscriminantAnalysis().fit(rows, y).predict(rows)
    assert np.array_equal(classifier.predict(rows), expected)


@pytest.mark.parametrize("priors", [[0.7, 0.1, 0.2], [7, 1, 2], [1 / 3] * 3])
def test_priors_as_in_linear_discriminant_analysis(priors):
    """Classes with the same covariance: scikit-learn weighs those by the priors."""
    noise = np.random.default_rng(0).standard_normal((40, 4))
    blocks = {0: noise, 1: np.vstack([noise, noise]), 2: noise}
    rows = np.vstack([block + 1.5 * np.eye(4)[c] for c, block in blocks.items()])
    y = np.repeat([0, 1, 2], [40, 80, 40])
    classifier = FedCGSClassifier("within", ridge=0, priors=priors).fit(rows, y)
    normalised = np.array(priors) / np.sum(priors)
    np.testing.assert_allclose(classifier.priors_, normalised, rtol=1e-12)
    expected = LinearDiscriminantAnalysis(solver="lsqr", priors=normalised)
    np.testing.assert_allclose(
        classifier.predict_proba(rows),
        expected.fit(rows, y).predict_proba(rows),
        atol=1e-8,
    )


def test_total_covariance_is_the_formula_of_the_paper():
    classifier = FedCGSClassifier(ridge=0.5).fit(X, Y, client_ids=IDS)
    covariance = np.cov(X.T, bias=True) + 0.5 * np.eye(6)
    means = np.array([X[Y == c].mean(axis=0) for c in range(3)])
    weights = np.linalg.solve(covariance, means.T).T
    scores = X @ weights.T - 0.5 * np.sum(weights * means, axis=1)
    scores += np.log(np.bincount(Y) / len(Y))
    expected = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_proba(X), expected, atol=1e-10)


# ----------------------------------------------------------- nearest class mean


def test_identity_with_uniform_priors_is_the_nearest_centroid():
    rng = np.random.default_rng(0)
    rows, y = rng.standard_normal((300, 4)) * [1, 2, 3, 4], rng.integers(0, 5, 300)
    rows[:, 0] += y
    classifier = FedCGSClassifier("identity", priors="uniform")
    classifier.fit(rows, y, client_ids=np.arange(300) % 3)
    centroids = NearestCentroid().fit(rows, y)
    assert np.array_equal(classifier.predict(rows), centroids.predict(rows))
    assert 0.2 < classifier.score(rows, y) < 0.9


def test_identity_is_scaled_by_the_variance_within_classes():
    """So that priors weigh as much as they should, whatever the unit."""
    classifier = FedCGSClassifier("identity", ridge=0).fit(X[30:], Y[30:])
    means = np.array([X[30:][Y[30:] == c].mean(axis=0) for c in range(3)])
    variance = np.mean((X[30:] - means[Y[30:]]) ** 2)
    distances = np.sum((X[:, None] - means) ** 2, axis=2)
    scores = np.log(np.bincount(Y[30:]) / len(Y[30:])) - distances / (2 * variance)
    expected = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_proba(X), expected, atol=1e-10)
    scaled = FedCGSClassifier("identity", ridge=0).fit(1e6 * X[30:], Y[30:])
    np.testing.assert_allclose(scaled.predict_proba(1e6 * X), expected, atol=1e-10)


# ----------------------------------------------------------------------- priors


def test_empirical_priors_are_the_shares_in_all_rows():
    classifier = FedCGSClassifier().fit(X[30:], Y[30:], client_ids=IDS[30:])
    expected = np.bincount(Y[30:]) / len(Y[30:])
    np.testing.assert_allclose(classifier.priors_, expected, rtol=1e-12)


def test_uniform_priors_do_not_follow_the_counts():
    classifier = FedCGSClassifier(priors="uniform").fit(X[30:], Y[30:])
    assert classifier.priors_.tolist() == [1 / 3] * 3


@pytest.mark.parametrize(
    "priors",
    [[0.5, 0.5], [0.5, 0.5, 0.0], [0.5, 0.6, -0.1], [[1, 1, 1]], [1, 1, np.nan]],
)
def test_bad_priors_raise(priors):
    with pytest.raises(ValueError, match=r"3 positive numbers.*\[0, 1, 2\]"):
        FedCGSClassifier(priors=priors).fit(X, Y)


# ------------------------------------------------------------------------ ridge


@COVARIANCES
def test_auto_copes_with_fewer_rows_than_features(covariance):
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    rows = rng.standard_normal((30, 100))
    rows[:, :3] += 6 * np.eye(3)[y]
    classifier = FedCGSClassifier(covariance).fit(rows, y, client_ids=y)
    assert np.isfinite(classifier.coef_).all()
    test = rng.standard_normal((30, 100))
    test[:, :3] += 6 * np.eye(3)[y]
    assert classifier.score(test, y) > 0.8


@EVERY
def test_auto_copes_with_constant_columns(covariance):
    rows = np.insert(X, [0, 3], [5.0, 0.0], axis=1)
    classifier = FedCGSClassifier(covariance).fit(rows, Y, client_ids=IDS)
    plain = FedCGSClassifier(covariance).fit(X, Y, client_ids=IDS)
    assert np.isfinite(classifier.coef_).all()
    assert np.mean(classifier.predict(rows) == plain.predict(X)) > 0.97


@COVARIANCES
def test_auto_is_oracle_approximating_shrinkage_and_a_millionth(covariance):
    centred = X - (
        X.mean(axis=0)
        if covariance == "total"
        else np.array([X[Y == c].mean(axis=0) for c in range(3)])[Y]
    )
    expected = oas(centred, assume_centered=True)[0]
    expected += 1e-6 * X.var(axis=0).mean() * np.eye(6)
    actual = FedCGSClassifier(covariance).fit(X, Y, client_ids=IDS)
    means = np.array([X[Y == c].mean(axis=0) for c in range(3)])
    weights = np.linalg.solve(expected, (means - means.mean(axis=0)).T).T
    np.testing.assert_allclose(actual.coef_, weights, rtol=1e-9)


@COVARIANCES
def test_auto_hardly_changes_a_well_posed_model(covariance):
    rows = np.random.default_rng(0).standard_normal((5000, 3)) * [1, 2, 3]
    y = np.arange(5000) % 2
    rows[:, 0] += y
    auto, none = (
        FedCGSClassifier(covariance, ridge=r).fit(rows, y) for r in ("auto", 0)
    )
    np.testing.assert_allclose(
        auto.predict_proba(rows), none.predict_proba(rows), atol=0.01
    )


def test_auto_separates_classes_without_spread():
    """One row per class has no covariance within classes: the nearest mean wins."""
    rows = np.random.default_rng(0).standard_normal((4, 5))
    classifier = FedCGSClassifier("within").fit(rows, list("abcd"))
    assert classifier.predict(rows + 0.01).tolist() == list("abcd")


@pytest.mark.parametrize("seed", range(20))
@COVARIANCES
def test_no_ridge_on_collinear_features_raises(covariance, seed):
    """Rounding makes half of these just about invertible, which must not pass."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((60, 4)) + 10 * rng.standard_normal()
    rows = np.column_stack([rows, rows @ rng.standard_normal(4)])
    with pytest.raises(ValueError, match="covariance is singular.*ridge='auto'"):
        FedCGSClassifier(covariance, ridge=0).fit(rows, np.arange(60) % 3)


@pytest.mark.parametrize("seed", range(10))
def test_no_ridge_with_fewer_rows_than_features_raises(seed):
    rows = np.random.default_rng(seed).standard_normal((20, 21))
    with pytest.raises(ValueError, match="covariance is singular"):
        FedCGSClassifier(ridge=0).fit(rows, np.arange(20) % 3)


def test_no_ridge_with_a_constant_column_raises():
    with pytest.raises(ValueError, match="covariance is singular"):
        FedCGSClassifier(ridge=0).fit(np.insert(X, 0, 1.0, axis=1), Y)


def test_no_ridge_allows_features_on_very_different_scales():
    scales = 10.0 ** np.array([-9, -5, -1, 3, 6, 9])
    scaled = FedCGSClassifier("within", ridge=0).fit(X * scales, Y)
    expected = FedCGSClassifier("within", ridge=0).fit(X, Y)
    np.testing.assert_allclose(
        scaled.predict_proba(X * scales), expected.predict_proba(X), atol=1e-8
    )


@pytest.mark.parametrize("ridge", [-1.0, "none", None])
def test_bad_ridge_raises(ridge):
    with pytest.raises(ValueError, match="'ridge' parameter"):
        FedCGSClassifier(ridge=ridge).fit(X, Y)


# ---------------------------------------------------------------------- float32


def test_float32_features_at_1280_dimensions():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    rows = rng.standard_normal((400, 1280), dtype=np.float32)
    rows[:, :4] += 12 * np.eye(4, dtype=np.float32)[y]
    classifier = FedCGSClassifier().fit(rows, y, client_ids=y % 2)
    assert classifier.coef_.dtype == np.float64
    assert classifier.score(rows, y) == 1.0
    wide = FedCGSClassifier().fit(rows.astype(np.float64), y, client_ids=y % 2)
    np.testing.assert_allclose(
        classifier.predict_proba(rows),
        wide.predict_proba(rows.astype(np.float64)),
        atol=1e-4,
    )


@pytest.mark.parametrize("offset", [0, 100, 1000])
@COVARIANCES
def test_float32_features_far_from_the_origin(covariance, offset):
    """Scores must not drown in what all classes have in common."""
    rows = (X + offset).astype(np.float32)
    classifier = FedCGSClassifier(covariance).fit(rows, Y)
    expected = FedCGSClassifier(covariance).fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(classifier.predict_proba(rows), expected, atol=0.01)


# ------------------------------------------------------------------- one upload


@pytest.mark.usefixtures("routing")
@COVARIANCES
@pytest.mark.parametrize("ridge", ["auto", 0.1])
def test_one_upload_equals_the_pipeline(covariance, ridge, skewed_digits):
    """To 1e-8 in probabilities and, relative to the largest, in scores."""
    X, y, ids, train, test = skewed_digits
    plain = FedCGSClassifier(covariance, ridge=ridge)
    one = FedCGSClassifier(covariance, ridge=ridge, aligner=FederatedOTAligner())
    one.fit(X[train], y[train], client_ids=ids[train])
    two = two_step(plain).fit(X[train], y[train], client_ids=ids[train])
    np.testing.assert_allclose(
        one.predict_proba(X[test], client_ids=ids[test]),
        two.predict_proba(X[test], client_ids=ids[test]),
        atol=1e-8,
    )
    scores = two.decision_function(X[test], client_ids=ids[test])
    np.testing.assert_allclose(
        one.decision_function(X[test], client_ids=ids[test]),
        scores,
        atol=1e-8 * np.abs(scores).max(),
    )
    plain.fit(X[train], y[train], client_ids=ids[train])
    aligned = one.score(X[test], y[test], client_ids=ids[test])
    assert aligned > plain.score(X[test], y[test])


@pytest.mark.usefixtures("routing")
@EVERY
def test_one_upload_takes_all_settings_of_the_aligner(covariance):
    aligner = FederatedOTAligner(0.9, shrinkage="oas", weights="uniform")
    one = FedCGSClassifier(covariance, aligner=aligner).fit(X, Y, client_ids=IDS)
    two = two_step(FedCGSClassifier(covariance), aligner).fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(
        one.predict_proba(X, client_ids=IDS),
        two.predict_proba(X, client_ids=IDS),
        atol=1e-8,
    )


@COVARIANCES
def test_zero_strength_equals_no_aligner(covariance):
    aligner = FederatedOTAligner(tau=0)
    aligned = FedCGSClassifier(covariance, aligner=aligner).fit(X, Y, client_ids=IDS)
    plain = FedCGSClassifier(covariance).fit(X, Y, client_ids=IDS)
    assert_same_model(aligned, plain, tolerance=1e-12)


@COVARIANCES
def test_model_of_a_client_has_the_alignment_folded_in(covariance):
    classifier = FedCGSClassifier(covariance, aligner=FederatedOTAligner())
    classifier.fit(X, Y, client_ids=IDS)
    for client in range(3):
        own, rows = classifier.client_model(client), X[IDS == client]
        np.testing.assert_allclose(
            rows @ own.coef.T + own.intercept,
            classifier.decision_function(rows, client_ids=client),
            atol=1e-10,
        )
        assert np.array_equal(own.predict(rows), classifier.predict(rows, client))


def test_shared_model_is_the_head_and_what_it_is_aligned_to():
    plain = FedCGSClassifier().fit(X, Y, client_ids=IDS)
    assert plain.shared_model() == plain.linear_model()
    for tau in (0.3, "auto"):
        aligned = FedCGSClassifier(aligner=FederatedOTAligner(tau))
        shared = aligned.fit(X, Y, client_ids=IDS).shared_model()
        assert shared.head == aligned.linear_model()
        assert shared.tau == aligned.aligner_.tau_
        assert np.array_equal(shared.mean, aligned.aligner_.reference_mean_)


def test_no_message_holds_a_head_and_a_mixed_effects_aligner():
    classifier = FedCGSClassifier(aligner=MixedEffectsAligner())
    classifier.fit(X, Y, client_ids=IDS)
    with pytest.raises(
        ValueError, match=r"MixedEffectsAligner.*client_model\(client\)"
    ):
        classifier.shared_model()


def test_model_of_a_client_holds_nothing_of_the_others():
    """It is what the server sends: maps and means of other clients stay behind."""
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    classifier.fit(X, Y, client_ids=IDS)
    own = classifier.client_model(0)
    arrays = [v for v in vars(own).values() if isinstance(v, np.ndarray)]
    assert max(array.size for array in arrays) == own.coef.size
    assert own.client == 0


def test_folded_model_is_the_map_and_then_the_head():
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    classifier.fit(X, Y, client_ids=IDS)
    head, rows = classifier.linear_model(), X[IDS == 1]
    moved = classifier.aligner_.transform(rows, client_ids=1)
    np.testing.assert_allclose(
        classifier.client_model(1).predict_proba(rows),
        head.predict_proba(moved),
        atol=1e-12,
    )


# --------------------------------------------------------------------- the wire


def fit_received(classifier, X, y, client_ids, dtype):
    """Fit to messages that were sent with a precision."""
    rows = {client: client_ids == client for client in np.unique(client_ids)}
    return classifier.server_aggregate(
        classifier.client_update(X[own], y[own], client=client).as_received(dtype)
        for client, own in rows.items()
    )


@COVARIANCES
@pytest.mark.parametrize("aligner", [None, FederatedOTAligner()], ids=["", "aligned"])
def test_float32_wire_gives_the_same_predictions(covariance, aligner, skewed_digits):
    X, y, ids, train, test = skewed_digits
    classifier = FedCGSClassifier(covariance, aligner=aligner)
    predicted = [
        fit_received(classifier, X[train], y[train], ids[train], dtype).predict(
            X[test], client_ids=ids[test]
        )
        for dtype in ("float64", "float32")
    ]
    assert np.array_equal(*predicted)


@COVARIANCES
@pytest.mark.parametrize("aligner", [None, FederatedOTAligner()], ids=["", "aligned"])
def test_float16_wire_costs_hardly_any_accuracy(covariance, aligner, skewed_digits):
    """At most 0.5 points on 719 test rows, which is three rows."""
    X, y, ids, train, test = skewed_digits
    classifier = FedCGSClassifier(covariance, aligner=aligner)
    exact, rounded = (
        fit_received(classifier, X[train], y[train], ids[train], dtype).score(
            X[test], y[test], client_ids=ids[test]
        )
        for dtype in ("float64", "float16")
    )
    assert abs(exact - rounded) < 0.005


def test_float16_wire_of_an_ill_conditioned_covariance():
    """Rounding leaves negative eigenvalues, which the ridge must lift."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 6000)
    rows = rng.standard_normal((6000, 40)) * np.logspace(0, -3, 40)
    rows[:, :5] += 3 * np.eye(5)[y]
    rows = rows @ np.linalg.qr(rng.standard_normal((40, 40)))[0]
    classifier, ids = FedCGSClassifier("within"), np.zeros(len(y))
    exact, rounded = (
        fit_received(classifier, rows, y, ids, dtype).score(rows, y)
        for dtype in ("float64", "float16")
    )
    assert exact > 0.95
    assert abs(exact - rounded) < 0.02


@pytest.mark.parametrize(
    ("dtype", "size"), [("float64", 8), ("float32", 4), ("float16", 2)]
)
def test_size_of_the_message(dtype, size):
    """65 classes of 512 features: 658,696 bytes in float32, and a header."""
    rng = np.random.default_rng(0)
    rows, y = rng.standard_normal((130, 512)), np.arange(130) % 65
    message = FedCGSClassifier(aligner=FederatedOTAligner()).client_update(rows, y)
    data = message.to_bytes(dtype)
    payload = sum(tensor.nbytes for tensor in load(data).values())
    assert payload == 65 * 4 + size * (65 * 512 + 512 * 513 // 2 + 1)
    assert payload == len(data) - 8 - int.from_bytes(data[:8], "little")
    if dtype == "float32":
        assert payload == 658_696
    assert len(data) - payload < 1200


def test_pickle_of_the_message():
    message = FedCGSClassifier().client_update(X, Y, client="A")
    assert pickle.loads(pickle.dumps(message)) == message


def test_server_with_aligner_refuses_messages_made_without():
    message = FedCGSClassifier().client_update([[0.0], [1.0]], [0, 1], client="Oslo")
    server = FedCGSClassifier(aligner=FederatedOTAligner())
    with pytest.raises(ValueError, match="'Oslo' sent nothing for alignment"):
        server.server_aggregate([message])


def test_memory_of_the_aligner_serves_all_taus(tmp_path, count_calls):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.tile([0, 1], 30)
    ids = np.repeat(["A", "B"], 30)
    coefs = []
    with count_calls("bures_barycenter", "transport_matrix") as called:
        for tau in (0.2, 0.6):
            aligner = FederatedOTAligner(tau=tau, memory=str(tmp_path))
            classifier = FedCGSClassifier(aligner=aligner).fit(X, y, client_ids=ids)
            coefs.append(classifier.coef_)
    assert sorted(called) == [
        "bures_barycenter",
        "transport_matrix",
        "transport_matrix",
    ]
    assert not np.allclose(*coefs)
