"""FedCoreset: clusters none of which is small, real rows only if allowed, any head."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from skslot import FedCoresetClassifier, FederatedOTAligner, MixedEffectsAligner
from skslot.classifiers._fedcoreset import cluster_rows, herd
from skslot.datasets import make_shifted_clients
from skslot.exchange import ClassRows, MessageError

pytestmark = pytest.mark.filterwarnings("ignore:No client_ids were passed")

shifted = make_shifted_clients(
    n_samples=360, n_clients=3, n_classes=4, n_features=5, random_state=0
)
X, Y, IDS = shifted.data, np.array(list("abcd"))[shifted.target], shifted.client_ids
EXACT = {"random_state": 0}


def fitted(X=X, Y=Y, ids=IDS, **params):
    return FedCoresetClassifier(**{**EXACT, **params}).fit(X, Y, client_ids=ids)


# -------------------------------------------------------------------- the rows


def test_centres_are_those_of_k_means():
    rows = X[(IDS == 0) & (Y == "a")]
    message = FedCoresetClassifier(n_per_class=3, min_samples=1, **EXACT).client_update(
        rows, np.full(len(rows), "a")
    )
    seed = FedCoresetClassifier(random_state=0)._draw_seed()
    means = KMeans(3, random_state=seed).fit(rows)
    order, expected = message.rows[:, 0].argsort(), means.cluster_centers_
    expected_order = expected[:, 0].argsort()
    np.testing.assert_allclose(message.rows[order], expected[expected_order])
    sizes = np.bincount(means.labels_)[expected_order]
    assert message.weights[order].tolist() == sizes.tolist()


@pytest.mark.parametrize("min_samples", [1, 3, 5, 20])
def test_no_cluster_is_smaller_than_allowed_and_no_row_is_lost(min_samples):
    rng = np.random.default_rng(0)
    rows = np.r_[rng.normal(size=(40, 2)), [[50, 50], [60, 60], [61, 60]]]
    labels = cluster_rows(rows, 10, min_samples, seed=0)
    sizes = np.bincount(labels)
    assert sizes.min() >= min_samples
    assert sizes.sum() == 43
    assert len(sizes) > 1 or min_samples == 20


def test_small_cluster_joins_the_nearest():
    rows = np.r_[np.zeros((20, 1)), np.full((20, 1), 10.0), [[13.0]]]
    rows += np.linspace(0, 1e-3, 41)[:, None]
    labels = cluster_rows(rows, 3, 5, seed=0)
    assert labels[-1] == labels[20] != labels[0]


def test_weighted_mean_of_a_class_is_its_mean():
    message = FedCoresetClassifier(n_per_class=4, **EXACT).client_update(X, Y)
    for position, label in enumerate("abcd"):
        own = message.owners == position
        mean = np.average(message.rows[own], axis=0, weights=message.weights[own])
        np.testing.assert_allclose(mean, X[label == Y].mean(axis=0), atol=1e-12)


def test_herding_chooses_as_the_long_way_does():
    """Greedily, the row that brings the mean of those chosen nearest to that of all."""
    rows = X[Y == "b"]
    chosen, left = [], list(range(len(rows)))
    for _ in range(6):
        miss = [
            np.linalg.norm(rows.mean(axis=0) - rows[[*chosen, each]].mean(axis=0))
            for each in left
        ]
        chosen.append(left.pop(int(np.argmin(miss))))
    assert herd(rows, 6).tolist() == chosen


def test_confident_rows_are_those_with_the_largest_probability():
    classifier = FedCoresetClassifier(
        "confident", n_per_class=3, allow_real_rows=True, **EXACT
    )
    message = classifier.client_update(X, Y)
    scale = X.std(axis=0)
    head = LogisticRegression(
        C=0.1, class_weight="balanced", solver="newton-cg", tol=1e-9
    ).fit(X / scale, Y)
    shares = head.predict_proba(X / scale)
    for position, label in enumerate("abcd"):
        own = np.flatnonzero(label == Y)
        best = own[np.argsort(-shares[own, position])[:3]]
        assert np.array_equal(message.rows[message.owners == position], X[best])


def test_real_rows_are_refused_unless_allowed():
    for method in ("herding", "confident"):
        with pytest.raises(
            ValueError, match="rows of client 'A' as they are.*allow_re"
        ):
            FedCoresetClassifier(method).client_update(X, Y, client="A")


def test_message_says_which_rows_are_real():
    classifier = FedCoresetClassifier("herding", allow_real_rows=True)
    message = classifier.client_update(X, Y, client="A")
    assert "real row 0 (class 'a') with 1 row" in message.describe()
    assert "rows but those that are alone in a group" in message.describe()
    with pytest.raises(MessageError, match="real row 0"):
        message.check_disclosure()
    means = FedCoresetClassifier(min_samples=10, random_state=0).client_update(X, Y)
    means.check_disclosure(10)
    assert "Every group of rows in it has at least 10" in means.describe()


def test_class_with_few_rows_sends_only_their_number():
    y = np.where(np.arange(len(Y)) < 4, "rare", Y)
    message = FedCoresetClassifier(random_state=0).client_update(X, y)
    position = message.classes.index("rare")
    assert (message.counts[position], message.n_rows[position]) == (4, 0)
    assert "rare" not in fitted(X, y, np.zeros(len(y))).classes_


def test_nobody_with_enough_rows_is_an_error():
    with pytest.raises(ValueError, match="no client has a class of min_samples=5 rows"):
        fitted(X[:3], Y[:3], IDS[:3])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_message_has_the_size_that_the_guide_says(dtype):
    classifier = FedCoresetClassifier(n_per_class=3, random_state=0)
    data = classifier.client_update(X, Y).to_bytes(dtype)
    header = 8 + int.from_bytes(data[:8], "little")
    numbers = 4 * 3 * (5 + 1)
    assert len(data) - header == numbers * np.dtype(dtype).itemsize + 2 * 4 * 4


# ------------------------------------------------------------------- the server


def test_head_is_trained_on_weighted_rows():
    classifier = fitted(n_per_class=3, estimator=LogisticRegression(tol=1e-10))
    messages = [
        classifier.client_update(X[each == IDS], Y[each == IDS], client=each)
        for each in (2, 0, 1)
    ]
    rows = np.vstack([m.rows for m in messages])
    labels = np.concatenate([np.array(m.classes)[m.owners] for m in messages])
    weights = np.concatenate([m.weights for m in messages])
    expected = LogisticRegression(tol=1e-10).fit(rows, labels, weights)
    np.testing.assert_allclose(
        classifier.predict_proba(X), expected.predict_proba(X), atol=1e-5
    )


def test_soft_labels_are_mean_probabilities_of_the_clusters():
    hard, soft = (
        FedCoresetClassifier(n_per_class=1, soft_labels=each, **EXACT)
        for each in (False, True)
    )
    message = soft.client_update(X, Y)
    np.testing.assert_allclose(message.soft_labels.sum(axis=1), 1)
    assert message.soft_labels.argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert not hard.client_update(X, Y).soft_labels.size
    assert fitted(soft_labels=True).score(X, Y) > 0.7


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize(
    "params",
    [{}, {"soft_labels": True}, {"method": "herding", "allow_real_rows": True}],
    ids=str,
)
def test_unit_of_the_features_does_not_matter(scale, params):
    expected = fitted(**params).predict_proba(X)
    actual = fitted(scale * X, **params).predict_proba(scale * X)
    np.testing.assert_allclose(actual, expected, atol=1e-9)


@pytest.mark.parametrize("estimator", [None, RandomForestClassifier(5)], ids=str)
def test_names_and_order_of_clients_do_not_matter(estimator):
    classifier = FedCoresetClassifier(estimator=estimator, **EXACT)
    sites = [(X[each == IDS], Y[each == IDS]) for each in (0, 1, 2)]
    first, second = (
        FedCoresetClassifier(estimator=estimator, **EXACT).server_aggregate(
            [
                classifier.client_update(*sites[each], client=name)
                for each, name in zip(order, names, strict=True)
            ]
        )
        for order, names in [((0, 1, 2), "ABC"), ((2, 0, 1), "BAC")]
    )
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize(
    ("aligner", "params"),
    [
        (MixedEffectsAligner(), {}),
        (MixedEffectsAligner(), {"soft_labels": True}),
        (MixedEffectsAligner(tau=0.5), {"n_per_class": 1}),
        (FederatedOTAligner(tau=0.7), {"n_per_class": 1}),
    ],
    ids=str,
)
def test_one_upload_equals_the_pipeline_where_it_is_exact(aligner, params):
    one = fitted(aligner=aligner, **params).predict_proba(X, client_ids=IDS)
    moved = aligner.fit_transform(X, Y, client_ids=IDS)
    two = fitted(moved, **params).predict_proba(moved)
    np.testing.assert_allclose(one, two, atol=1e-7)


def test_core_set_of_all_rows_is_training_on_all_rows():
    """However they are spread over clients."""
    everything = {"n_per_class": 1000, "method": "herding", "allow_real_rows": True}
    one, many = fitted(ids=np.zeros(len(X)), **everything), fitted(**everything)
    np.testing.assert_allclose(one.predict_proba(X), many.predict_proba(X), atol=1e-9)


def test_estimator_must_take_weights():
    with pytest.raises(
        ValueError, match="must take sample_weight.*KNeighbors.* does n"
    ):
        fitted(estimator=KNeighborsClassifier())
    with pytest.raises(ValueError, match="must take sample_weight"):
        fitted(estimator=make_pipeline(LogisticRegression()))


def test_features_that_do_not_vary_and_float32():
    rows = np.column_stack([X, np.full(len(X), 3.7), np.zeros(len(X))])
    for table in (rows, rows.astype(np.float32)):
        classifier = fitted(table)
        assert (classifier.estimator_.coef_[:, 5:] == 0).all()
        np.testing.assert_allclose(
            classifier.predict_proba(table), fitted().predict_proba(X), atol=1e-3
        )


def test_client_without_anything_to_send_is_no_trouble():
    ids = np.where(np.arange(len(X)) == 0, 9, IDS)
    classifier = fitted(ids=ids)
    assert isinstance(classifier.client_update(X[:1], Y[:1]), ClassRows)
    assert 9 in classifier.clients_report_.clients
    assert classifier.score(X, Y) > 0.7
