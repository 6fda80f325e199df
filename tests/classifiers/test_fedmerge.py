"""FedMerge: local heads, and merging by each curvature, against the long way."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from skslot import FederatedOTAligner, FedMergeClassifier, MixedEffectsAligner
from skslot.datasets import make_shifted_clients

pytestmark = pytest.mark.filterwarnings("ignore:No client_ids were passed")

shifted = make_shifted_clients(
    n_samples=360, n_clients=3, n_classes=4, n_features=5, random_state=0
)
X, Y, IDS = shifted.data, np.array(list("abcd"))[shifted.target], shifted.client_ids
CURVATURES = ["none", "gram", "diag", "kfac"]
ALL = pytest.mark.parametrize("curvature", CURVATURES)


def merge(curvature="gram", **params):
    return FedMergeClassifier(curvature, **params)


def fitted(curvature="gram", X=X, Y=Y, ids=IDS, **params):
    return merge(curvature, **params).fit(X, Y, client_ids=ids)


def messages_of(classifier, X=X, Y=Y, ids=IDS):
    return [
        classifier.client_update(X[ids == each], Y[ids == each], client=each)
        for each in np.unique(ids).tolist()
    ]


def centred(scores):
    return scores - scores.mean(axis=1, keepdims=True)


# ------------------------------------------------------------------ local training


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("balanced", [True, False])
def test_local_head_is_the_logistic_regression_of_scikit_learn(n_classes, balanced):
    rows = np.isin(Y, list("abcd")[:n_classes]) & (IDS == 0)
    softmax_of = "balanced" if balanced else "held"
    message = merge(l2=3.0, local_softmax=softmax_of).client_update(X[rows], Y[rows])
    scaled = (X - X[rows].mean(axis=0)) / X[rows].std(axis=0)
    # scikit-learn has one row of weights for two classes, penalised twice as much
    expected = LogisticRegression(
        C=(2 if n_classes == 2 else 1) / 3,
        class_weight="balanced" if balanced else None,
        solver="newton-cg",
        tol=1e-10,
    ).fit(scaled[rows], Y[rows])
    np.testing.assert_allclose(
        softmax(X @ message.coef.T + message.intercept, axis=1),
        expected.predict_proba(scaled),
        atol=1e-7,
    )


# ------------------------------------------------------------------------- merging


def test_none_is_the_average_of_heads():
    classifier = fitted("none")
    messages = messages_of(classifier)
    np.testing.assert_allclose(
        classifier.coef_, np.mean([m.coef for m in messages], axis=0), atol=1e-12
    )
    np.testing.assert_allclose(
        classifier.intercept_, np.mean([m.intercept for m in messages], axis=0)
    )


@pytest.mark.parametrize("off_diagonal", [0.0, 0.5, 0.9])
def test_gram_is_regmean_from_the_rows(off_diagonal):
    """Off-diagonal products times a factor, rows about the mean of client means."""
    classifier = fitted("gram", off_diagonal=off_diagonal)
    origin = np.mean([X[each == IDS].mean(axis=0) for each in (0, 1, 2)], axis=0)
    grams, products = 0, 0
    for message in messages_of(classifier):
        rows = X[message.client == IDS] - origin
        rows = np.column_stack([rows, np.ones(len(rows))])
        gram = rows.T @ rows / len(rows)
        gram = off_diagonal * gram + (1 - off_diagonal) * np.diag(np.diag(gram))
        weights = np.column_stack(
            [message.coef, message.intercept + message.coef @ origin]
        )
        grams = grams + gram
        products = products + weights @ gram
    expected = np.linalg.solve(grams, products.T).T
    np.testing.assert_allclose(classifier.coef_, expected[:, :-1], atol=1e-8)
    np.testing.assert_allclose(
        classifier.intercept_, expected[:, -1] - expected[:, :-1] @ origin, atol=1e-8
    )


def probabilities(message, rows):
    return softmax(rows @ message.coef.T + message.intercept, axis=1)


def test_diag_weighs_each_weight_by_its_fisher_information():
    classifier = fitted("diag")
    origin = np.mean([X[each == IDS].mean(axis=0) for each in (0, 1, 2)], axis=0)
    total, products = 0, 0
    for message in messages_of(classifier):
        rows = X[message.client == IDS]
        shares = probabilities(message, rows)
        spread = (shares * (1 - shares)).T / len(rows)
        apart = rows.mean(axis=0) - origin
        fisher = spread @ (rows - rows.mean(axis=0)) ** 2
        fisher = fisher + spread.sum(axis=1, keepdims=True) * apart**2
        total, products = total + fisher, products + fisher * message.coef
    np.testing.assert_allclose(classifier.coef_, products / total, rtol=1e-9)


def test_kfac_solves_the_normal_equations():
    """The sum over clients of B_k (W - W_k) A_k is zero."""
    classifier = fitted("kfac")
    origin = np.mean([X[each == IDS].mean(axis=0) for each in (0, 1, 2)], axis=0)
    merged = np.column_stack(
        [classifier.coef_, classifier.intercept_ + classifier.coef_ @ origin]
    )
    total, size = 0, 0
    for message in messages_of(classifier):
        rows = X[message.client == IDS]
        shares = probabilities(message, rows)
        by_class = np.diag(shares.mean(axis=0)) - shares.T @ shares / len(rows)
        rows = np.column_stack([rows - origin, np.ones(len(rows))])
        gram = rows.T @ rows / len(rows)
        gram = 0.9 * gram + 0.1 * np.diag(np.diag(gram))
        weights = np.column_stack(
            [message.coef, message.intercept + message.coef @ origin]
        )
        total = total + by_class @ (merged - weights) @ gram
        size = size + np.abs(by_class @ weights @ gram)
    assert np.abs(total).max() < 1e-8 * size.max()


@ALL
def test_equal_heads_merge_to_themselves(curvature):
    rows = IDS == 0
    twice = np.tile(X[rows], (2, 1)), np.tile(Y[rows], 2)
    ids = np.repeat(["A", "B"], rows.sum())
    one = fitted(curvature, X[rows], Y[rows], IDS[rows])
    two = fitted(curvature, *twice, ids)
    np.testing.assert_allclose(two.predict_proba(X), one.predict_proba(X), atol=1e-8)


@ALL
def test_class_is_merged_from_its_holders_only(curvature):
    """Client 0 is the only one that has class d; the others do not pull it to zero."""
    rows = (Y != "d") | (IDS == 0)
    classifier = fitted(curvature, X[rows], Y[rows], IDS[rows])
    holder = messages_of(classifier, X[rows], Y[rows], IDS[rows])[0]
    if curvature != "kfac":  # whose heads are free to shift all classes of a client
        np.testing.assert_allclose(classifier.coef_[3], holder.coef[3], atol=1e-8)
    assert classifier.score(X[IDS == 0], Y[IDS == 0]) > 0.8


@ALL
def test_client_with_a_single_class_changes_nothing_but_the_origin(curvature):
    """It has nothing to tell its class from."""
    rows = (IDS != 2) | (Y == "a")
    classifier = fitted(curvature, X[rows], Y[rows], IDS[rows])
    without = fitted(curvature, X[IDS != 2], Y[IDS != 2], IDS[IDS != 2])
    if curvature == "none":
        np.testing.assert_allclose(classifier.coef_, without.coef_, atol=1e-12)
    assert np.mean(classifier.predict(X) == without.predict(X)) > 0.95


@ALL
def test_clients_with_one_class_each_cannot_be_merged(curvature):
    """But nothing breaks: all classes score the same."""
    ids = np.searchsorted(list("abcd"), Y)
    with pytest.warns(UserWarning, match="every client holds a single class"):
        classifier = fitted(curvature, X, Y, ids)
    assert classifier.classes_.tolist() == list("abcd")
    np.testing.assert_allclose(classifier.predict_proba(X), 0.25)


@ALL
def test_clients_weigh_the_same(curvature):
    """Rows that are all there twice do not make a client count more."""
    double = np.r_[np.arange(len(X)), np.flatnonzero(IDS == 0)]
    # twice the rows want twice the penalty, so that the head stays
    halves = [
        merge(curvature, l2=10 * (1 + (each == 0))).client_update(
            X[double][IDS[double] == each], Y[double][IDS[double] == each], client=each
        )
        for each in (0, 1, 2)
    ]
    merged = merge(curvature).server_aggregate(halves)
    np.testing.assert_allclose(
        merged.predict_proba(X), fitted(curvature).predict_proba(X), atol=1e-7
    )


@ALL
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_unit_of_the_features_does_not_matter(curvature, scale):
    expected = fitted(curvature).predict_proba(X)
    actual = fitted(curvature, scale * X).predict_proba(scale * X)
    np.testing.assert_allclose(actual, expected, atol=1e-9)


@ALL
def test_origin_of_the_features_does_not_matter(curvature):
    expected = fitted(curvature).predict_proba(X)
    actual = fitted(curvature, X + 100.0).predict_proba(X + 100.0)
    np.testing.assert_allclose(actual, expected, atol=1e-8)


@ALL
def test_names_and_order_of_clients_do_not_matter(curvature):
    messages = messages_of(merge(curvature))
    renamed = [replace(m, client=n) for m, n in zip(messages, "CAB", strict=True)]
    np.testing.assert_allclose(
        merge(curvature).server_aggregate(renamed[::-1]).predict_proba(X),
        merge(curvature).server_aggregate(messages).predict_proba(X),
        atol=1e-8,
    )


# ----------------------------------------------------------------------- alignment


@ALL
def test_one_upload_equals_the_pipeline_with_shifts(curvature):
    aligner = MixedEffectsAligner()
    one = fitted(curvature, aligner=aligner).predict_proba(X, client_ids=IDS)
    moved = aligner.fit_transform(X, Y, client_ids=IDS)
    two = fitted(curvature, moved).predict_proba(moved)
    np.testing.assert_allclose(one, two, atol=1e-8)


@pytest.mark.parametrize("curvature", ["none", "gram", "kfac"])
def test_heads_and_moments_are_mapped_exactly(curvature):
    """With maps, the same heads on mapped rows give the same merged head."""
    aligner = FederatedOTAligner(tau=0.6)
    classifier = fitted(curvature, aligner=aligner)
    maps = {each: classifier.aligner_.maps_[each] for each in (0, 1, 2)}
    moved = []
    for message in messages_of(classifier):
        matrix, offset = maps[message.client].affine
        rows = X[message.client == IDS]
        fresh = merge(curvature).client_update(
            rows @ matrix.T + offset, Y[message.client == IDS], client=message.client
        )
        coef = message.coef @ np.linalg.inv(matrix)
        intercept = message.intercept - coef @ offset
        facts = {"coef": coef, "intercept": intercept}
        moved.append(replace(fresh, **facts, class_curvature=message.class_curvature))
    expected = merge(curvature).server_aggregate(moved)
    np.testing.assert_allclose(
        centred(X @ classifier.coef_.T + classifier.intercept_),
        centred(X @ expected.coef_.T + expected.intercept_),
        atol=1e-6,
    )


def test_mapped_diagonal_is_the_diagonal_of_the_mapped_form():
    message = merge("diag", aligner=FederatedOTAligner()).client_update(X, Y)
    rng = np.random.default_rng(0)
    matrix = np.eye(5) + 0.1 * rng.standard_normal((5, 5))
    pushed = message.pushed(matrix, np.ones(5))
    for before, after in zip(message.fisher, pushed.fisher, strict=True):
        form = matrix @ np.diag(before[:-1]) @ matrix.T
        np.testing.assert_allclose(after, [*np.diag(form), before[-1]])


# ------------------------------------------------------------------------ edges


@pytest.mark.parametrize(
    ("curvature", "numbers"),
    [
        ("none", 4 * 6),
        ("gram", 4 * 6 + 4 * 5 + 15),
        ("diag", 4 * 6 + 4 * 6 + 4 * 5),
        ("kfac", 4 * 6 + 4 * 4 + 4 * 5 + 15),
    ],
)
def test_message_has_the_size_that_the_guide_says(curvature, numbers):
    data = FedMergeClassifier(curvature).client_update(X, Y).to_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    assert len(data) - header == 4 * numbers + 4 * 4


def test_messages_of_another_curvature_are_refused():
    messages = [
        merge(each).client_update(X, Y, client=each) for each in ("gram", "none")
    ]
    with pytest.raises(ValueError, match="another curvature"):
        merge().server_aggregate(messages)
    with pytest.raises(ValueError, match="curvature='gram'.*'none'"):
        merge().server_aggregate(messages[1:])


@ALL
def test_features_that_do_not_vary_and_few_rows(curvature):
    rows = np.column_stack([X, np.full(len(X), 3.7), np.zeros(len(X))])
    few = np.r_[np.flatnonzero(IDS == 0)[:9], np.flatnonzero(IDS == 1)[:9]]
    for table in (rows, rows.astype(np.float32)):
        classifier = fitted(curvature, table[few], Y[few], IDS[few])
        assert np.isfinite(classifier.coef_).all()
        np.testing.assert_allclose(classifier.coef_[:, 5:], 0, atol=1e-12)


def test_all_off_diagonals_are_allowed_even_with_few_rows():
    few = np.flatnonzero(IDS == 0)[:4]
    classifier = fitted("gram", X[few], Y[few], IDS[few], off_diagonal=1.0)
    assert np.isfinite(classifier.predict_proba(X)).all()
