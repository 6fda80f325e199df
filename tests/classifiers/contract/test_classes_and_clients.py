"""Classes that few clients hold, clients of few rows, labels of any kind."""

import numpy as np
import pytest
from one_shot_variants import (
    ALIGNED,
    ALL,
    EACH,
    IDS,
    ONE_CLASS,
    TEST,
    TRAIN,
    X,
    Y,
    fitted,
    ignore_degenerate,
    new,
    over,
)

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier


@over(ALL)
def test_classes_are_the_union_over_clients(variant):
    """Each client misses one of the classes."""
    absent = {"Bern": "a", "Oslo": "b", "Turin": "d"}
    kept = [row for row in TRAIN if absent[IDS[row]] != Y[row]]
    classifier = fitted(variant, np.array(kept))
    assert classifier.classes_.tolist() == ["a", "b", "c", "d"]
    probabilities = classifier.predict_proba(X[TEST], client_ids=IDS[TEST])
    assert np.isfinite(probabilities).all()
    assert classifier.score(X[TEST], Y[TEST], client_ids=IDS[TEST]) > 0.6


@over(ALL)
@ignore_degenerate
def test_clients_with_a_single_class(variant):
    """Two of the three clients hold one class only."""
    only = {"Bern": "a", "Oslo": "b"}
    kept = [row for row in TRAIN if only.get(IDS[row], Y[row]) == Y[row]]
    classifier = fitted(variant, np.array(kept))
    assert classifier.classes_.tolist() == ["a", "b", "c", "d"]
    assert np.isfinite(
        classifier.decision_function(X[TEST], client_ids=IDS[TEST])
    ).all()


@over(ALL)
@ignore_degenerate
def test_client_with_a_single_row(variant):
    oslo = np.flatnonzero(IDS[TRAIN] == "Oslo")
    rows = np.delete(TRAIN, oslo[1:])
    classifier = fitted(variant, rows)
    assert set(classifier.clients_report_.clients) == {"Bern", "Oslo", "Turin"}
    elsewhere = TEST[IDS[TEST] != "Oslo"]
    score = classifier.score(X[elsewhere], Y[elsewhere], client_ids=IDS[elsewhere])
    assert score > 0.8


@over([name for name in ALIGNED if "mixed" not in name])  # for which one is enough
def test_client_with_a_single_row_is_named_in_a_warning(variant):
    oslo = np.flatnonzero(IDS[TRAIN] == "Oslo")
    with pytest.warns(UserWarning, match="'Oslo'"):
        fitted(variant, np.delete(TRAIN, oslo[1:]))


@over(ONE_CLASS)
def test_one_row_of_each_class_in_all(variant):
    rows = np.array([np.flatnonzero(Y == label)[0] for label in "abcd"])
    classifier = fitted(variant, rows)
    assert classifier.predict(X[rows], client_ids=IDS[rows]).tolist() == list("abcd")


@over(ALL)
@ignore_degenerate
def test_rows_that_are_all_alike(variant):
    same, labels = np.full((12, 3), 0.1), np.array(list("aab") * 4)
    ids = np.arange(12) % 2
    classifier = new(variant).fit(same, labels, client_ids=ids)
    assert np.isfinite(classifier.predict_proba(same, client_ids=ids)).all()


@over(ALL)
def test_all_rows_of_one_class(variant):
    labels = np.full(len(TRAIN), "only")
    classifier = new(variant).fit(X[TRAIN], labels, client_ids=IDS[TRAIN])
    assert classifier.classes_.tolist() == ["only"]
    assert set(classifier.predict(X[TEST], client_ids=IDS[TEST])) == {"only"}
    assert np.array_equal(
        classifier.predict_proba(X[TEST], client_ids=IDS[TEST]), np.ones((len(TEST), 1))
    )


@over(EACH)
@pytest.mark.parametrize(
    "labels", [np.arange(4), np.array([7, -3, 5, 0]), np.array(list("dcba"), object)]
)
def test_labels_of_any_kind_are_predicted_as_given(variant, labels):
    codes = np.searchsorted(list("abcd"), Y)
    classifier = new(variant)
    classifier.fit(X[TRAIN], labels[codes[TRAIN]], client_ids=IDS[TRAIN])
    predicted = classifier.predict(X[TEST], client_ids=IDS[TEST])
    assert set(predicted) <= set(labels)
    assert np.mean(predicted == labels[codes[TEST]]) > 0.8
    assert np.array_equal(classifier.classes_, np.sort(labels))


@over(ALL)
def test_binary_decision_function_is_one_dimensional(variant):
    pair = TRAIN[np.isin(Y[TRAIN], ["a", "b"])]
    classifier = fitted(variant, pair)
    decision = classifier.decision_function(X[TEST], client_ids=IDS[TEST])
    assert decision.shape == (len(TEST),)
    predicted = classifier.predict(X[TEST], client_ids=IDS[TEST])
    assert np.array_equal(predicted == "b", decision > 0)


@over(EACH)
@pytest.mark.parametrize("ids", [[7, 1, 3], [b"x", "y", 3], [0.5, (1, 2), True]])
def test_ids_of_any_kind(variant, ids):
    names = np.fromiter(ids, dtype=object)[np.searchsorted(np.unique(IDS), IDS)]
    classifier = new(variant).fit(X[TRAIN], Y[TRAIN], client_ids=names[TRAIN])
    assert set(classifier.clients_report_.clients) == set(ids)
    assert classifier.score(X[TEST], Y[TEST], client_ids=names[TEST]) > 0.8


@over(ALL)
def test_class_held_by_nobody_is_never_predicted(variant):
    classifier = new(variant)
    classes = ["a", "aa", "b", "c", "d", "e"]
    messages = [
        classifier.client_update(
            X[IDS == client], Y[IDS == client], classes=classes, client=client
        )
        for client in np.unique(IDS)
    ]
    classifier.server_aggregate(messages)
    assert classifier.classes_.tolist() == ["a", "b", "c", "d"]
    probabilities = classifier.predict_proba(X, client_ids=IDS)
    assert probabilities.shape == (len(X), 4)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)


@over(ALL)
def test_order_of_classes_by_hand_does_not_matter(variant):
    classifier = new(variant)
    messages = [
        classifier.client_update(
            X[IDS == c], Y[IDS == c], classes=list("cadb"), client=c
        )
        for c in np.unique(IDS).tolist()
    ]
    actual = classifier.server_aggregate(messages).predict_proba(X, client_ids=IDS)
    expected = fitted(variant, np.arange(len(X))).predict_proba(X, client_ids=IDS)
    np.testing.assert_allclose(actual, expected, atol=1e-10)


@pytest.mark.parametrize("make", [FedCGSClassifier, FedPFTClassifier])
def test_clients_without_labels_count_in_the_reference(make):
    rng = np.random.default_rng(0)
    sites = {name: rng.normal(i, 1 + i, (60, 3)) for i, name in enumerate("ABC")}
    y, aligner = np.tile(["x", "y"], 30), FederatedOTAligner(tau=0.5)
    options = {} if make is FedCGSClassifier else {"random_state": 0}
    classifier = make(aligner=aligner, **options)
    messages = [classifier.client_update(sites[n], y, client=n) for n in "AB"]
    messages.append(aligner.client_update(sites["C"], client="C"))
    classifier.server_aggregate(messages)
    expected = aligner.server_aggregate(messages).reference_
    assert classifier.aligner_.reference_ == expected
    assert classifier.clients_report_.clients == ["A", "B", "C"]
    expected = classifier.client_model("C").predict_proba(sites["C"])
    actual = classifier.predict_proba(sites["C"], client_ids="C")
    np.testing.assert_allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize("make", [FedCGSClassifier, FedPFTClassifier])
def test_someone_must_have_labels(make):
    aligner = FederatedOTAligner()
    message = aligner.client_update(
        np.random.default_rng(0).normal(size=(60, 3)), client="A"
    )
    with pytest.raises(ValueError, match="no client sent labels"):
        make(aligner=aligner).server_aggregate([message])
    with pytest.raises(TypeError, match="got a ClientStatistics"):
        make().server_aggregate([message])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("make", [FedCGSClassifier, FedPFTClassifier])
def test_singular_clients_are_named_whatever_the_precision(make, dtype):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(32, 6)), np.tile(["x", "y"], 16)
    ids = np.repeat(["A", "B"], [30, 2])
    classifier = make(aligner=FederatedOTAligner(shrinkage=0))
    messages = [
        classifier.client_update(X[ids == c], y[ids == c], client=c).as_received(dtype)
        for c in ("A", "B")
    ]
    with pytest.warns(UserWarning, match="covariance of client 'B' is singular"):
        classifier.server_aggregate(messages)
