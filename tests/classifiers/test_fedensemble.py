"""FedEnsemble: heads kept apart, four ways to combine them, a single one distilled."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.svm import LinearSVC

from skslot import FedEnsembleClassifier, FederatedOTAligner, MixedEffectsAligner
from skslot.classifiers._fedensemble import STACK_RIDGE
from skslot.datasets import make_shifted_clients

pytestmark = pytest.mark.filterwarnings("ignore:No client_ids were passed")

shifted = make_shifted_clients(
    n_samples=360, n_clients=3, n_classes=4, n_features=5, random_state=0
)
X, Y, IDS = shifted.data, np.array(list("abcd"))[shifted.target], shifted.client_ids
# client 2 lacks class d, client 1 lacks a and b
HELD = ~((IDS == 2) & (Y == "d")) & ~((IDS == 1) & np.isin(Y, ["a", "b"]))
XS, YS, SITES = X[HELD], Y[HELD], IDS[HELD]
ALL = pytest.mark.parametrize("combine", ["mean", "weighted", "vote", "stack"])


def fitted(combine="mean", X=XS, Y=YS, ids=SITES, **params):
    return FedEnsembleClassifier(combine, **params).fit(X, Y, client_ids=ids)


def probabilities(classifier):
    """Of each client, for all four classes: none for those that it does not hold."""
    tables = []
    for head in classifier.heads_:
        table = np.zeros((len(X), 4))
        own = softmax(X @ head.coef.T + head.intercept, axis=1)
        table[:, np.isin(list("abcd"), head.classes)] = own
        tables.append(table)
    return np.array(tables)


# ----------------------------------------------------------------------- combining


def test_mean_is_the_mean_probability_and_absent_classes_have_none():
    classifier = fitted("mean")
    expected = probabilities(classifier).mean(axis=0)
    np.testing.assert_allclose(classifier.predict_proba(X), expected, atol=1e-12)


def test_weighted_averages_each_class_over_its_holders():
    classifier = fitted("weighted")
    counts = np.array([[np.sum(YS[SITES == k] == c) for c in "abcd"] for k in range(3)])
    weights = counts / counts.sum(axis=0)
    expected = (weights[:, None] * probabilities(classifier)).sum(axis=0)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_proba(X), expected, atol=1e-12)


@pytest.mark.parametrize("consistent", [True, False])
def test_vote_counts_heads_and_the_mean_breaks_ties(consistent):
    classifier = fitted("vote", consistent=consistent)
    tables = probabilities(classifier)
    votes = np.zeros((len(X), 4))
    for table in tables:
        for row, shares in enumerate(table):
            if not consistent or shares.max() > 0.5:
                votes[row, shares.argmax()] += 1
    expected = (votes + tables.mean(axis=0)) / (votes.sum(axis=1) + 1)[:, None]
    np.testing.assert_allclose(classifier.predict_proba(X), expected, atol=1e-12)
    winners = classifier.predict(X) == np.array(list("abcd"))[votes.argmax(axis=1)]
    clear = np.sort(votes, axis=1)[:, -1] > np.sort(votes, axis=1)[:, -2]
    assert winners[clear].all()


def test_stack_is_ridge_regression_on_the_scores_of_all_rows():
    """Which nobody has to send: class means and covariances are enough."""
    classifier = fitted("stack")
    scores = np.hstack([XS @ h.coef.T + h.intercept for h in classifier.heads_])
    scaled = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    expected = Ridge(alpha=STACK_RIDGE * len(scores)).fit(
        scaled, YS[:, None] == list("abcd")
    )
    np.testing.assert_allclose(
        XS @ classifier.coef_.T + classifier.intercept_,
        expected.predict(scaled),
        atol=1e-9,
    )


def test_client_with_a_single_class_does_not_decide():
    """Its probability of that class would be 1, whatever the row."""
    rows = (IDS != 2) | (Y == "a")
    for combine in ("mean", "weighted", "vote", "stack"):
        classifier = fitted(combine, X[rows], Y[rows], IDS[rows])
        assert classifier.score(X[IDS != 2], Y[IDS != 2]) > 0.8


@ALL
def test_clients_with_one_class_each_cannot_be_combined(combine):
    with pytest.warns(UserWarning, match="every client holds a single class"):
        classifier = fitted(combine, X, Y, np.searchsorted(list("abcd"), Y))
    assert classifier.classes_.tolist() == list("abcd")
    assert np.isfinite(classifier.predict_log_proba(X)).all()


@ALL
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_unit_of_the_features_does_not_matter(combine, scale):
    expected = fitted(combine).predict_proba(X)
    actual = fitted(combine, scale * XS).predict_proba(scale * X)
    np.testing.assert_allclose(actual, expected, atol=1e-9)


@ALL
def test_names_and_order_of_clients_do_not_matter(combine):
    renamed = np.array(["z", "m", "a"])[SITES]
    np.testing.assert_allclose(
        fitted(combine, ids=renamed).predict_proba(X),
        fitted(combine).predict_proba(X),
        atol=1e-10,
    )


@ALL
def test_one_client_is_its_head(combine):
    rows = IDS == 0
    classifier = fitted(combine, X[rows], Y[rows], IDS[rows])
    head = classifier.heads_[0]
    if combine != "stack":
        assert np.array_equal(classifier.predict(X), head.predict(X))
    assert classifier.score(X[rows], Y[rows]) > 0.9


def test_another_fit_forgets_the_weights_of_the_stack():
    classifier = fitted("stack").set_params(combine="mean")
    assert np.array_equal(classifier.predict(X), fitted("stack").predict(X))
    classifier.fit(XS, YS, client_ids=SITES)
    assert not hasattr(classifier, "coef_")
    assert np.array_equal(classifier.predict(X), fitted("mean").predict(X))


# ----------------------------------------------------------------------- alignment


@ALL
def test_one_upload_equals_the_pipeline_with_shifts(combine):
    aligner = MixedEffectsAligner()
    one = fitted(combine, aligner=aligner).predict_proba(XS, client_ids=SITES)
    moved = aligner.fit_transform(XS, YS, client_ids=SITES)
    two = fitted(combine, moved).predict_proba(moved)
    np.testing.assert_allclose(one, two, atol=1e-9)


def test_aligned_heads_say_of_mapped_rows_what_they_said_of_rows():
    plain, aligned = fitted(), fitted(aligner=FederatedOTAligner(tau=0.6))
    moved = aligned.aligner_.transform(XS, client_ids=SITES)
    for client, before, after in zip(
        range(3), plain.heads_, aligned.heads_, strict=True
    ):
        rows = SITES == client
        np.testing.assert_allclose(
            moved[rows] @ after.coef.T + after.intercept,
            XS[rows] @ before.coef.T + before.intercept,
            atol=1e-8,
        )


# --------------------------------------------------------------------- estimators


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), LinearSVC(), RidgeClassifier(fit_intercept=False)],
    ids=str,
)
def test_any_linear_classifier_can_be_the_local_head(estimator):
    classifier = fitted(estimator=estimator, random_state=0)
    assert classifier.score(XS, YS) > 0.6
    rows = SITES == 1  # two classes, for which scikit-learn has one row of weights
    local = estimator.fit(XS[rows], YS[rows])
    assert np.array_equal(classifier.heads_[1].predict(X), local.predict(X))


def test_estimator_that_is_not_linear_is_refused():
    with pytest.raises(ValueError, match="must be linear: RandomForest.* has no coef_"):
        fitted(estimator=RandomForestClassifier(2))
    with pytest.raises(ValueError, match="must be a classifier, got Ridge"):
        fitted(estimator=Ridge())


# ------------------------------------------------------------------------- models


def test_only_the_stack_is_a_linear_model():
    model = fitted("stack").linear_model()
    assert np.array_equal(model.predict(X), fitted("stack").predict(X))
    for combine in ("mean", "weighted", "vote"):
        with pytest.raises(
            ValueError, match=f"{combine}.* is no linear model.*distill"
        ):
            fitted(combine).linear_model()


def test_distilled_head_agrees_with_the_ensemble():
    classifier = fitted("weighted")
    head = classifier.distill(X)
    assert np.mean(head.predict(X) == classifier.predict(X)) > 0.8
    forest = RandomForestClassifier(20, max_depth=4)
    one, two = (
        fitted("weighted", random_state=0).distill(X, forest).predict_proba(X)
        for _ in range(2)
    )
    assert np.array_equal(one, two)
    assert not hasattr(forest, "classes_")


def test_distilled_head_learns_the_probabilities():
    """As scikit-learn does from each row once for each class, weighed by them."""
    classifier = fitted("mean")
    shares = classifier.predict_proba(X)
    head = classifier.distill(X, LogisticRegression(tol=1e-9))
    expected = LogisticRegression(tol=1e-9).fit(
        np.repeat(X, 4, axis=0), np.tile(list("abcd"), len(X)), shares.ravel()
    )
    np.testing.assert_allclose(
        head.predict_proba(X), expected.predict_proba(X), atol=1e-4
    )


def test_default_distilled_head_is_a_logistic_regression_of_standardised_rows():
    classifier = fitted("mean")
    shares = classifier.predict_proba(X).ravel()
    rows, labels = np.repeat(X, 4, axis=0), np.tile(list("abcd"), len(X))
    scaled = (rows - X.mean(axis=0)) / X.std(axis=0)
    expected = LogisticRegression(C=0.1, solver="newton-cholesky", tol=1e-10)
    np.testing.assert_allclose(
        classifier.distill(X).predict_proba(rows),
        expected.fit(scaled, labels, shares).predict_proba(scaled),
        atol=1e-8,
    )


def test_distilling_rows_of_another_width_is_refused():
    with pytest.raises(ValueError, match="X_public has 4 features, .* are for 5"):
        fitted().distill(X[:, :4])


# -------------------------------------------------------------------------- edges


@pytest.mark.parametrize(
    ("combine", "numbers"), [("mean", 4 * 6), ("stack", 4 * 6 + 4 * 5 + 15)]
)
def test_message_has_the_size_that_the_guide_says(combine, numbers):
    data = FedEnsembleClassifier(combine).client_update(X, Y).to_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    assert len(data) - header == 4 * numbers + 4 * 4


def test_stack_refuses_heads_that_came_without_moments():
    message = FedEnsembleClassifier("mean").client_update(X, Y)
    with pytest.raises(ValueError, match="combine='stack'"):
        FedEnsembleClassifier("stack").server_aggregate([message])


@ALL
def test_features_that_do_not_vary_and_float32(combine):
    rows = np.column_stack([XS, np.full(len(XS), 3.7), np.zeros(len(XS))])
    for table in (rows, rows.astype(np.float32)):
        actual = fitted(combine, table).predict_proba(table)
        np.testing.assert_allclose(actual, fitted(combine).predict_proba(XS), atol=1e-4)
