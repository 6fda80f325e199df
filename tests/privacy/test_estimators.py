"""Estimators with a budget: one noisy message, and no way around it."""

import pickle
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils import estimator_checks as sklearn_checks
from sklearn.utils import get_tags

from skslot import (
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
from skslot.datasets import load_digit_scanners
from skslot.exchange import ClassMeans, ClassStatistics, ClientStatistics
from skslot.privacy import PrivacyBudget
from skslot.statistics import FeatureMoments
from skslot.utils import parametrize_with_checks

NOISE = "skslot.privacy._budget.opendp_noise"

data = load_digit_scanners()
X, Y, IDS = data.data, data.target, data.client_ids
CLASSES = np.arange(10)
BUDGET = PrivacyBudget(8.0, 1e-5, clip_norm=40.0)
CLASSIFIERS = [
    FedCGSClassifier(privacy=BUDGET),
    FedCGSClassifier(privacy=BUDGET, aligner=FederatedOTAligner(0.1)),
    FedCGSClassifier(privacy=BUDGET, aligner=MixedEffectsAligner()),
    FedRidgeClassifier(privacy=BUDGET),
    FedCOFClassifier(privacy=BUDGET),
    FedCOFClassifier(privacy=BUDGET, aligner=FederatedOTAligner(0.1)),
    MixedEffectsClassifier(privacy=BUDGET),
]
ALIGNERS = [
    FederatedOTAligner(privacy=BUDGET),
    FederatedOTAligner("auto", shrinkage=0.1, privacy=BUDGET),
    MixedEffectsAligner(privacy=BUDGET),
]
ALL = CLASSIFIERS + ALIGNERS
NO_GUARANTEE = [
    FedPFTClassifier,
    FedQDAClassifier,
    FedCoresetClassifier,
    FedMergeClassifier,
    FedEnsembleClassifier,
]
FAX = IDS == "fax"


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=repr)
def test_fit_is_the_two_steps(classifier, seeded):
    with seeded():
        fitted = clone(classifier).fit(X, Y, client_ids=IDS)
    with seeded():
        messages = [
            classifier.client_update(
                X[IDS == site], Y[IDS == site], classes=CLASSES, client=site
            )
            for site in np.unique(IDS).tolist()
        ]
    assert all(message.privacy == BUDGET.guarantee for message in messages)
    by_hand = clone(classifier).server_aggregate(messages)
    first, second = (c.predict_proba(X, client_ids=IDS) for c in (fitted, by_hand))
    assert np.array_equal(first, second)
    assert fitted.score(X, Y, client_ids=IDS) > 0.6


@pytest.mark.parametrize("aligner", ALIGNERS, ids=repr)
def test_aligners_see_noisy_messages_only(aligner, seeded):
    with seeded():
        fitted = clone(aligner).fit(X, Y, client_ids=IDS)
    with seeded():
        messages = [
            aligner.client_update(
                X[IDS == site], Y[IDS == site], classes=CLASSES, client=site
            )
            for site in np.unique(IDS).tolist()
        ]
    by_hand = clone(aligner).server_aggregate(messages)
    moved = fitted.transform(X, client_ids=IDS)
    assert np.array_equal(moved, by_hand.transform(X, client_ids=IDS))
    assert [m.privacy for m in fitted.statistics_] == [BUDGET.guarantee] * 4
    assert [m.n_samples for m in fitted.statistics_] == [m.n_samples for m in messages]


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_nothing_of_the_rows_is_kept(estimator, seeded):
    """A fitted estimator can be sent: it has no number that noise did not touch."""
    with seeded():
        estimator = clone(estimator).fit(X, Y, client_ids=IDS)
    content = pickle.dumps(estimator)
    for rows in (X[FAX], X[FAX & (Y == 3)]):
        assert rows.mean(axis=0).tobytes() not in content
        assert rows.mean(axis=0)[10:12].tobytes() not in content
    assert not getattr(estimator, "_moments", None)


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_no_two_messages_are_the_same(estimator):
    pytest.importorskip("opendp")
    first, second = (
        estimator.client_update(X[FAX], Y[FAX], classes=CLASSES) for _ in range(2)
    )
    assert first != second
    assert get_tags(estimator).non_deterministic


@pytest.mark.parametrize(
    ("estimator", "kind"),
    [
        (FedCGSClassifier(), ClassStatistics),
        (FedCOFClassifier(), ClassMeans),
        (FedCOFClassifier(aligner=FederatedOTAligner()), ClassStatistics),
        (FederatedOTAligner(), ClientStatistics),
        (FederatedOTAligner("auto"), ClassStatistics),
    ],
)
def test_messages_have_noisy_numbers_of_rows(estimator, kind, seeded):
    estimator.set_params(privacy=PrivacyBudget(0.1, 1e-5, 40.0))
    with seeded():
        message = estimator.client_update(X[FAX], Y[FAX], classes=CLASSES, client="fax")
    assert type(message) is kind
    assert message.n_samples != FAX.sum()
    received = kind.from_bytes(message.to_bytes("float64"))
    assert received == message


def test_the_part_for_alignment_keeps_the_guarantee(seeded):
    with seeded():
        message = CLASSIFIERS[1].client_update(X[FAX], Y[FAX], classes=CLASSES)
    assert message.client_statistics().privacy == BUDGET.guarantee
    assert 0 < message.shrinkage[0] <= 1


def test_classes_without_rows_may_get_some_and_classes_with_rows_lose_them(seeded):
    budget = PrivacyBudget(0.01, 1e-5, 1.0)
    with seeded():
        message = ClassMeans.release(budget, X[:20], Y[:20], range(100), "A")
    assert set(message.classes) - set(Y[:20].tolist())
    assert len(message.classes) < 100


@pytest.mark.parametrize(
    "estimator",
    [CLASSIFIERS[0], CLASSIFIERS[3], CLASSIFIERS[-1], ALIGNERS[-1]],
    ids=repr,
)
def test_classes_that_noise_leaves_no_rows_of_are_named(estimator, seen):
    rows = Y < 8
    with seen():  # no noise: as if it had taken the few rows of 8 and 9
        messages = [
            estimator.client_update(
                X[rows & here], Y[rows & here], classes=CLASSES, client=site
            )
            for site in ("fax", "flatbed")
            for here in [site == IDS]
        ]
    match = r"classes \[8, 9\] were agreed on, but noise left no rows .* raise epsilon"
    with pytest.warns(UserWarning, match=match):
        fitted = clone(estimator).server_aggregate(messages)
    assert fitted.classes_.tolist() == list(range(8))


@pytest.mark.parametrize("classifier", [CLASSIFIERS[0], CLASSIFIERS[4]], ids=repr)
def test_fit_names_the_classes_that_noise_takes(classifier):
    def take_last_class(numbers, scale):
        numbers = numbers.copy()
        numbers[len(CLASSES) - 1] = 0  # counts come first
        return numbers

    match = r"classes \[9\] were agreed on, but noise left no rows of them"
    with patch(NOISE, take_last_class), pytest.warns(UserWarning, match=match) as w:
        fitted = clone(classifier).fit(X, Y, client_ids=IDS)
    assert len(w) == 1
    assert fitted.classes_.tolist() == list(range(9))


def test_agreed_classes_that_one_client_has_rows_of_are_learned(seen):
    with seen():
        messages = [
            CLASSIFIERS[0].client_update(X[here], Y[here], classes=CLASSES, client=site)
            for site, here in (("fax", FAX & (Y < 8)), ("flatbed", IDS == "flatbed"))
        ]
    fitted = clone(CLASSIFIERS[0]).server_aggregate(messages)
    assert fitted.classes_.tolist() == CLASSES.tolist()


@pytest.mark.parametrize("estimator", [*CLASSIFIERS, *ALIGNERS[1:]], ids=repr)
def test_classes_must_be_agreed_on(estimator):
    with pytest.raises(ValueError, match="client 'fax': with privacy, pass classes="):
        estimator.client_update(X[FAX], Y[FAX], client="fax")


def test_statistics_for_alignment_need_no_classes(seeded):
    with seeded():
        message = ALIGNERS[0].client_update(X[FAX], client="fax")
    assert message.shrinkage > 0


@pytest.mark.parametrize("aligner", ALIGNERS, ids=repr)
def test_rows_cannot_be_added_without_noise(aligner, seeded):
    with pytest.raises(ValueError, match="partial_fit learns from rows without noise"):
        aligner.partial_fit(X, Y, client_ids=IDS)
    with seeded():
        fitted = clone(aligner).fit(X, Y, client_ids=IDS)
    for step in ("partial_fit", "add_client"):
        with pytest.raises(ValueError, match=f"{step} learns from rows without noise"):
            getattr(fitted, step)(X[FAX], "new")


@pytest.mark.parametrize(
    ("classifier", "steps"),
    [
        (CLASSIFIERS[1], ["add_client"]),
        (CLASSIFIERS[-1], ["add_client", "adapt_client"]),
    ],
)
def test_clients_cannot_join_without_noise(classifier, steps, seeded):
    with seeded():
        fitted = clone(classifier).fit(X, Y, client_ids=IDS)
    for step in steps:
        with pytest.raises(ValueError, match=f"{step} learns from rows without noise"):
            getattr(fitted, step)(X[FAX], "fax")


def test_moments_of_rows_that_were_not_clipped_are_refused():
    with pytest.raises(ValueError, match="privacy needs the rows, to clip them"):
        ALIGNERS[0].client_update(FeatureMoments.from_rows(X))


@pytest.mark.parametrize(
    "make",
    [FedCGSClassifier, FedCOFClassifier, *NO_GUARANTEE],
    ids=lambda c: c.__name__,
)
def test_the_aligner_inside_a_classifier_has_no_budget_of_its_own(make):
    classifier = make(aligner=FederatedOTAligner(privacy=BUDGET))
    for step in (classifier.client_update, classifier.fit):
        with pytest.raises(ValueError, match="privacy is set on the aligner inside"):
            step(X, Y)


@pytest.mark.parametrize("make", NO_GUARANTEE, ids=lambda cls: cls.__name__)
def test_classifiers_without_a_guarantee_take_no_budget(make):
    with pytest.raises(ValueError, match="Invalid parameter 'privacy'"):
        make().set_params(privacy=BUDGET)


@pytest.mark.parametrize("privacy", [3.0, "3", {"epsilon": 3}])
@pytest.mark.parametrize("estimator", [FedCGSClassifier(), FederatedOTAligner()])
def test_a_budget_is_a_budget(estimator, privacy):
    with pytest.raises(ValueError, match="'privacy' parameter of .*PrivacyBudget"):
        clone(estimator).set_params(privacy=privacy).fit(X, Y, client_ids=IDS)


# With the smallest of them, noise leaves no rows of some classes.
@pytest.mark.filterwarnings("ignore:classes .* were agreed on:UserWarning")
def test_budgets_can_be_searched_over(seeded):
    budgets = [PrivacyBudget(0.01, 1e-5, 40.0), PrivacyBudget(100.0, 1e-5, 40.0), None]
    with seeded():
        search = GridSearchCV(FedCGSClassifier(), {"privacy": budgets}, cv=2).fit(X, Y)
    scores = search.cv_results_["mean_test_score"]
    assert scores[0] < scores[1] <= scores[2] + 0.01
    assert search.best_params_["privacy"] in budgets


def test_a_search_releases_each_row_as_often_as_its_page_says(seen):
    classifier, ridges = FedCGSClassifier(privacy=BUDGET), [0.1, 1.0, 10.0, 100.0]
    with seen() as vectors:
        GridSearchCV(classifier, {"ridge": ridges}, cv=5).fit(X, Y)
    assert len(vectors) == 4 * 5 + 1
    # counts come first, all times the same number; the last fit has all rows
    n_rows = [vector[: len(CLASSES)].sum() for vector in vectors]
    np.testing.assert_allclose(sum(n_rows) / n_rows[-1], 4 * (5 - 1) + 1)


EXACT = PrivacyBudget(1e9, 0.5, 50.0)
REFUSED = dict.fromkeys(
    ["check_fit_score_takes_y", "check_n_features_in_after_fitting"],
    "partial_fit would learn from rows without noise",
)


# The checks pass y and no ids, which is worth a warning by design.
@pytest.mark.filterwarnings("ignore:No client_ids were passed:UserWarning")
@sklearn_checks.parametrize_with_checks(
    [FedCGSClassifier("within", privacy=EXACT), FederatedOTAligner(privacy=EXACT)],
    expected_failed_checks=lambda each: REFUSED if hasattr(each, "transform") else {},
)
def test_checks_of_scikit_learn_pass_but_for_what_noise_makes_differ(
    estimator, check, seen
):
    with seen():
        check(estimator)


# One of the clients has a single row.
@pytest.mark.filterwarnings("ignore:the search for the variance comp:UserWarning")
@parametrize_with_checks(
    [
        FedCGSClassifier("within", privacy=EXACT),
        FedCGSClassifier(aligner=FederatedOTAligner(0.1), privacy=EXACT),
        FedCOFClassifier(privacy=EXACT),
        MixedEffectsClassifier(tau=0, privacy=EXACT),
    ]
)
def test_contract_holds_but_for_what_noise_makes_differ(estimator, check, seen):
    with seen():  # no noise: the same message again, as the checks ask for
        check(estimator)
