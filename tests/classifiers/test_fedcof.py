"""FedCOF: a covariance from class means, in a message of the size of a head."""

import numpy as np
import pytest
from safetensors.numpy import load
from sklearn.pipeline import Pipeline

from skslot import (
    FedCGSClassifier,
    FedCOFClassifier,
    FederatedOTAligner,
    FedRidgeClassifier,
    MixedEffectsAligner,
)
from skslot.datasets import load_digit_scanners, make_shifted_clients
from skslot.exchange import ClassMeans, ClassStatistics
from skslot.model_selection import paper_split

shifted = make_shifted_clients(
    n_samples=300, n_clients=4, n_classes=3, n_features=6, random_state=0
)
X, Y, IDS = shifted.data, shifted.target, shifted.client_ids


def by_the_paper(X, y, ids, gamma):
    """Weights by the formulas of the paper, class by class and client by client."""
    classes, n_features = np.unique(y), X.shape[1]
    gram = len(X) * np.outer(X.mean(axis=0), X.mean(axis=0))
    moments = []
    for label in classes:
        of_class = y == label
        mean, clients = X[of_class].mean(axis=0), np.unique(ids[of_class])
        covariance = np.zeros((n_features, n_features))
        for client in clients:
            own = of_class & (ids == client)
            apart = X[own].mean(axis=0) - mean
            covariance += own.sum() * np.outer(apart, apart)
        covariance = covariance / max(len(clients) - 1, 1) + gamma * np.eye(n_features)
        gram += (of_class.sum() - 1) * covariance
        moments.append(of_class.sum() * mean)
    weights = np.linalg.solve(gram, np.array(moments).T).T
    return weights / np.linalg.norm(weights, axis=1, keepdims=True)


def exact(**params):
    return FedCOFClassifier(**params)


# ------------------------------------------------------------------- the formula


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_weights_are_those_of_the_paper(gamma):
    classifier = exact(gamma=gamma).fit(X, Y, client_ids=IDS)
    expected = by_the_paper(X, Y, IDS, gamma)
    np.testing.assert_allclose(classifier.coef_, expected, atol=1e-10)
    assert not classifier.intercept_.any()
    assert classifier.gamma_ == gamma


def test_class_of_a_single_client_adds_gamma_only():
    kept = (Y != 1) | (IDS == 2)
    classifier = exact(gamma=0.5).fit(X[kept], Y[kept], client_ids=IDS[kept])
    expected = by_the_paper(X[kept], Y[kept], IDS[kept], 0.5)
    np.testing.assert_allclose(classifier.coef_, expected, atol=1e-10)


def test_auto_is_a_share_of_the_variance_that_means_suggest():
    """Of the classes that several clients hold."""
    kept = (Y != 1) | (IDS == 2)
    rows, y, ids = X[kept], Y[kept], IDS[kept]
    classifier = exact().fit(rows, y, client_ids=ids)
    total, n_rows = 0.0, 0
    for label in (0, 2):
        of_class = y == label
        mean = rows[of_class].mean(axis=0)
        means = [rows[of_class & (ids == k)].mean(axis=0) for k in range(4)]
        sizes = np.array([np.sum(of_class & (ids == k)) for k in range(4)])
        variance = sizes @ np.mean((np.array(means) - mean) ** 2, axis=1) / 3
        total += (of_class.sum() - 1) * variance
        n_rows += of_class.sum() - 1
    np.testing.assert_allclose(classifier.gamma_, 0.1 * total / n_rows, rtol=1e-10)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_auto_makes_the_unit_of_features_irrelevant(scale):
    expected = exact().fit(X, Y, client_ids=IDS)
    scaled = exact().fit(X * scale, Y, client_ids=IDS)
    np.testing.assert_allclose(scaled.coef_, expected.coef_, atol=1e-9)
    assert np.array_equal(scaled.predict(X * scale), expected.predict(X))


def test_no_gamma_with_few_clients_raises():
    rows = np.random.default_rng(0).standard_normal((60, 30))
    with pytest.raises(ValueError, match="singular, so gamma=0 .* gamma='auto'"):
        FedCOFClassifier(0.0).fit(rows, np.arange(60) % 2, client_ids=np.arange(60) % 3)


# --------------------------------------------------------------------- partitions


def test_random_clients_show_the_covariance_of_the_rows():
    """Then the estimate is unbiased: with many clients it is that of all rows."""
    rng = np.random.default_rng(0)
    y = np.arange(40_000) % 2
    mixing = rng.standard_normal((5, 5))
    rows = rng.standard_normal((40_000, 5)) @ mixing + 3 + 2 * np.eye(5)[y]
    classifier = FedCOFClassifier(1e-6).fit(
        rows, y, client_ids=rng.integers(0, 2000, 40_000)
    )
    means = np.array([rows[y == c].mean(axis=0) for c in (0, 1)])
    mean = rows.mean(axis=0)
    gram = mixing.T @ mixing + np.outer(mean, mean)
    expected = np.linalg.solve(gram, means.T).T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.coef_, expected, atol=0.05)


def test_partition_matters():
    """Unlike that of FedCGS: what clients differ in is taken for noise."""
    by_domain = exact().fit(X, Y, client_ids=IDS)
    at_random = exact().fit(X, Y, client_ids=np.arange(len(X)) % 7)
    assert np.abs(by_domain.coef_ - at_random.coef_).max() > 0.1
    assert by_domain.gamma_ > 2 * at_random.gamma_


def test_directions_in_which_clients_differ_are_penalised():
    """Two features tell the classes apart equally well, but one moves with the site."""
    rng = np.random.default_rng(0)
    y, ids = np.tile([0, 1], 400), np.repeat(np.arange(4), 200)
    rows = rng.standard_normal((800, 3)) + 10 + 3 * np.array([[1, 0, 0], [0, 1, 1]])[y]
    rows[:, 1] += 5 * (ids - 1.5)
    classifier = FedCOFClassifier().fit(rows, y, client_ids=ids)
    difference = classifier.coef_[1] - classifier.coef_[0]
    assert difference[2] > 5 * np.abs(difference[1])


def test_names_of_clients_and_order_of_messages_do_not_matter():
    renamed = np.array(list("zyxw"))[IDS]
    expected = exact().fit(X, Y, client_ids=IDS)
    actual = exact().fit(X, Y, client_ids=renamed)
    np.testing.assert_allclose(actual.coef_, expected.coef_, atol=1e-12)


@pytest.mark.parametrize(("alpha", "helps"), [(0.05, True), (None, False)])
def test_helps_if_labels_differ_between_domains_and_costs_if_not(alpha, helps):
    data = load_digit_scanners()
    X, y, ids = data.data, data.target, data.client_ids
    train, test = paper_split(y, ids, alpha, random_state=0)
    means, covariance = (
        make().fit(X[train], y[train], client_ids=ids[train]).score(X[test], y[test])
        for make in (FedCOFClassifier, FedCGSClassifier)
    )
    assert means > covariance + 0.05 if helps else means < covariance - 0.05


# --------------------------------------------------------------------- edge cases


@pytest.mark.filterwarnings("ignore:No client_ids were passed")
def test_one_client_is_still_a_classifier():
    classifier = exact().fit(X, Y)
    assert classifier.score(X, Y) > 0.6


def test_one_row_per_class():
    rows = np.random.default_rng(0).standard_normal((4, 5))
    classifier = exact().fit(rows, list("abcd"), client_ids=[0, 0, 1, 1])
    assert classifier.predict(rows).tolist() == list("abcd")


def test_one_row_per_client():
    classifier = exact().fit(X, Y, client_ids=np.arange(len(X)))
    ridge = FedRidgeClassifier.as_fed3r().fit(X, Y)
    assert classifier.score(X, Y) > ridge.score(X, Y) - 0.1


def test_rows_of_zeros_and_constant_features():
    zeros = FedCOFClassifier().fit(
        np.zeros((6, 3)), list("aab" * 2), client_ids=[1] * 6
    )
    assert not zeros.coef_.any()
    assert zeros.gamma_ == 1
    rows = np.insert(X, [0, 3], [5.0, 0.0], axis=1)
    wide = exact(gamma=1.0).fit(rows, Y, client_ids=IDS)
    np.testing.assert_allclose(wide.coef_, by_the_paper(rows, Y, IDS, 1.0), atol=1e-10)


def test_float32_features_and_text_labels():
    labels = np.array(["x", "y", "z"])[Y]
    classifier = FedCOFClassifier().fit(X.astype(np.float32), labels, client_ids=IDS)
    expected = exact().fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(classifier.coef_, expected.coef_, atol=1e-4)
    assert set(classifier.predict(X)) <= {"x", "y", "z"}


# ----------------------------------------------------------------------- messages


def test_message_takes_four_bytes_per_number_and_count():
    m, n_classes = 512, 10
    rows = np.random.default_rng(0).standard_normal((40, m))
    message = FedCOFClassifier().client_update(rows, np.arange(40) % n_classes)
    assert isinstance(message, ClassMeans)
    data = message.to_bytes("float32")
    arrays = load(data)
    assert sum(a.nbytes for a in arrays.values()) == 4 * n_classes * (m + 1)
    header = int.from_bytes(data[:8], "little")
    assert len(data) - 8 - header == 4 * n_classes * (m + 1) == 20_520


def test_message_names_the_classes_that_the_client_holds():
    message = FedCOFClassifier().client_update(
        X[Y == 1], Y[Y == 1], classes=[0, 1, 2], client="A"
    )
    assert (message.classes, message.counts.tolist()) == ([1], [np.sum(Y == 1)])


def test_aligner_needs_a_covariance():
    classifier = FedCOFClassifier(aligner=FederatedOTAligner())
    message = classifier.client_update(X, Y, client="A")
    assert isinstance(message, ClassStatistics)
    means = FedCOFClassifier().client_update(X, Y, client="A")
    with pytest.raises(TypeError, match="must be ClassStatistics.* got a ClassMeans"):
        classifier.server_aggregate([means])
    with pytest.raises(TypeError, match="must be ClassMeans, got a ClassStatistics"):
        FedCOFClassifier().server_aggregate([message])


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize(
    "aligner",
    [FederatedOTAligner(), FederatedOTAligner(tau="auto"), MixedEffectsAligner()],
)
def test_one_upload_equals_the_pipeline(aligner):
    one = exact(aligner=aligner).fit(X, Y, client_ids=IDS)
    two = Pipeline([("align", aligner), ("classify", exact())])
    two.fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(
        one.decision_function(X, client_ids=IDS),
        two.decision_function(X, client_ids=IDS),
        atol=1e-8,
    )
