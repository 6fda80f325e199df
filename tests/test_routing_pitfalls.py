"""Where scikit-learn hands ids on, and where it does not: an error, no wrong score."""

import re
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import RFE, SelectFromModel, SequentialFeatureSelector
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.semi_supervised import SelfTrainingClassifier

from skslot import FedCGSClassifier, FederatedOTAligner, MixedEffectsClassifier
from skslot.datasets import make_shifted_clients
from skslot.metrics import ClientScorer
from skslot.model_selection import FederatedGridSearchCV

shifted = make_shifted_clients(
    n_samples=240,
    n_clients=3,
    n_classes=3,
    n_features=4,
    domain_shift=2,
    random_state=0,
)
X, Y, IDS = shifted.data, shifted.target, shifted.client_ids
FRAME = pd.DataFrame(X, columns=list("abcd")).assign(site=IDS)
CV = StratifiedKFold(2)


def plain_function(estimator, X, y):
    return accuracy_score(y, estimator.predict(X))


BLIND = ["accuracy", make_scorer(accuracy_score), plain_function]
NAMES = ["name", "make_scorer", "function"]


def pipeline(**params):
    return make_pipeline(FederatedOTAligner(**params), LogisticRegression())


def classifier(**params):
    column = params.pop("client_column", None)
    return FedCGSClassifier(aligner=FederatedOTAligner(**params), client_column=column)


MODELS = pytest.mark.parametrize(
    ("make", "tau"),
    [(pipeline, "federatedotaligner__tau"), (classifier, "aligner__tau")],
    ids=["pipeline", "classifier"],
)


def scores_by_hand(model, tau, values):
    scores = np.empty((len(values), 2))
    with sklearn.config_context(enable_metadata_routing=True):
        for fold, (train, test) in enumerate(CV.split(X, Y)):
            for row, value in enumerate(values):
                model.set_params(**{tau: value})
                model.fit(X[train], Y[train], client_ids=IDS[train])
                predicted = model.predict(X[test], client_ids=IDS[test])
                scores[row, fold] = accuracy_score(Y[test], predicted)
    return scores.mean(axis=1)


@MODELS
def test_scoring_none_delivers_ids(routing, make, tau):
    search = GridSearchCV(make(), {tau: [0.0, 1.0]}, cv=CV, error_score="raise")
    search.fit(X, Y, client_ids=IDS)
    expected = scores_by_hand(make(), tau, [0.0, 1.0])
    assert search.cv_results_["mean_test_score"] == pytest.approx(expected)
    assert search.score(X, Y, client_ids=IDS) > 0.5


@MODELS
def test_client_scorer_delivers_ids(routing, make, tau):
    search = GridSearchCV(
        make(),
        {tau: [0.0, 1.0]},
        scoring=ClientScorer(average="pooled"),
        cv=CV,
        error_score="raise",
    ).fit(X, Y, client_ids=IDS)
    expected = scores_by_hand(make(), tau, [0.0, 1.0])
    assert search.cv_results_["mean_test_score"] == pytest.approx(expected)


@MODELS
@pytest.mark.parametrize("scoring", BLIND, ids=NAMES)
def test_blind_scorer_is_an_error_with_a_remedy(routing, make, tau, scoring):
    search = GridSearchCV(
        make(), {tau: [0.0, 1.0]}, scoring=scoring, cv=CV, error_score="raise"
    )
    with pytest.raises(ValueError, match="client_ids") as caught:
        search.fit(X, Y, client_ids=IDS)
    assert "ClientScorer" in str(caught.value)
    assert "client_column" in str(caught.value)


@MODELS
@pytest.mark.parametrize("scoring", BLIND, ids=NAMES)
def test_blind_scorer_never_gives_a_number(routing, make, tau, scoring):
    search = GridSearchCV(make(), {tau: [0.0, 1.0]}, scoring=scoring, cv=CV)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, Y, client_ids=IDS)
    assert np.isnan(search.cv_results_["mean_test_score"]).all()
    assert any("ClientScorer" in str(warning.message) for warning in caught)


@MODELS
def test_cross_val_predict_is_an_error_with_a_remedy(routing, make, tau):
    with pytest.raises(ValueError, match="client_ids") as caught:
        cross_val_predict(make(), X, Y, cv=CV, params={"client_ids": IDS})
    assert "client_column" in str(caught.value)


@MODELS
def test_predict_of_a_plain_search_is_an_error_with_a_remedy(routing, make, tau):
    search = GridSearchCV(make(), {tau: [0.5]}, cv=CV).fit(X, Y, client_ids=IDS)
    with pytest.raises(ValueError, match=r"best_estimator_\.predict"):
        search.predict(X)


@MODELS
@pytest.mark.parametrize("scoring", [None, *BLIND], ids=["none", *NAMES])
def test_ids_as_a_column_work_with_every_scorer(make, tau, scoring):
    search = GridSearchCV(
        make(client_column="site"),
        {tau: [0.0, 1.0]},
        scoring=scoring,
        cv=CV,
        error_score="raise",
    ).fit(FRAME, Y)
    expected = scores_by_hand(make(), tau, [0.0, 1.0])
    assert search.cv_results_["mean_test_score"] == pytest.approx(expected)


@MODELS
def test_ids_as_a_column_work_with_cross_val_predict(make, tau):
    model = make(client_column="site").set_params(**{tau: 1.0})
    predicted = cross_val_predict(model, FRAME, Y, cv=CV)
    expected = scores_by_hand(make(), tau, [1.0])
    assert accuracy_score(Y, predicted) == pytest.approx(expected[0])


@pytest.mark.parametrize("scoring", [None, ClientScorer()], ids=["none", "client"])
@pytest.mark.parametrize("wrong", [IDS[:-1], np.append(IDS, 0)], ids=["short", "long"])
@MODELS
def test_ids_of_wrong_length_are_refused(routing, make, tau, wrong, scoring):
    with pytest.raises(ValueError, match=f"client_ids has {len(wrong)} entries"):
        cross_val_score(
            make(),
            X,
            Y,
            params={"client_ids": wrong},
            scoring=scoring,
            cv=CV,
            error_score="raise",
        )


# -------------------------------------------------------- the table in the docs


def fit_and_predict(wrap):
    return lambda model, X, **ids: wrap(model).fit(X, BINARY, **ids).predict(X)


def select(wrap):
    return lambda model, X, **ids: wrap(model).fit(X, BINARY, **ids).transform(X)


def validate(function, **options):
    return lambda model, X, **ids: function(
        model, X, BINARY, cv=CV, params=ids, error_score="raise", **options
    )


def two(model):
    return [("one", model), ("two", clone(model))]


def search_and_predict(model, X, **ids):
    search = GridSearchCV(model, {}, cv=CV, error_score="raise").fit(X, BINARY, **ids)
    return search.best_estimator_.predict(X, **ids)


def search_by_cells(model, X, **ids):
    search = FederatedGridSearchCV(model, {}, cv=2).fit(X, BINARY, **ids)
    return search.predict(X, **ids)


def curve_of_tau(model, X, **ids):
    (tau,) = (name for name in model.get_params() if name.endswith("tau"))
    options = {"param_name": tau, "param_range": [0.0, 0.5]}
    return validate(validation_curve, **options)(model, X, **ids)


BINARY = (Y == 1).astype(int)
UNLABELLED = np.where(np.arange(len(Y)) % 5, BINARY, -1)
WRAPPERS = {
    "FederatedGridSearchCV": search_by_cells,
    "GridSearchCV": search_and_predict,
    "cross_validate": validate(cross_validate),
    "cross_val_score": validate(cross_val_score),
    "learning_curve": validate(learning_curve, shuffle=True, random_state=0),
    "validation_curve": curve_of_tau,
    'scoring="accuracy"': validate(cross_val_score, scoring="accuracy"),
    "make_scorer": validate(cross_val_score, scoring=make_scorer(accuracy_score)),
    "cross_val_predict": lambda model, X, **ids: cross_val_predict(
        model, X, BINARY, cv=CV, params=ids
    ),
    "permutation_importance": lambda model, X, **ids: permutation_importance(
        model.fit(X, BINARY, **ids), X, BINARY, n_repeats=1
    ),
    "CalibratedClassifierCV": fit_and_predict(partial(CalibratedClassifierCV, cv=2)),
    "VotingClassifier": fit_and_predict(lambda model: VotingClassifier(two(model))),
    "StackingClassifier": fit_and_predict(
        lambda model: StackingClassifier(two(model), cv=2)
    ),
    "OneVsRestClassifier": fit_and_predict(OneVsRestClassifier),
    "TunedThresholdClassifierCV": fit_and_predict(
        partial(TunedThresholdClassifierCV, cv=2)
    ),
    "FixedThresholdClassifier": fit_and_predict(FixedThresholdClassifier),
    "BaggingClassifier": fit_and_predict(
        lambda model: BaggingClassifier(model, n_estimators=2, random_state=0)
    ),
    "OneVsOneClassifier": fit_and_predict(OneVsOneClassifier),
    "SelfTrainingClassifier": lambda model, X, **ids: (
        SelfTrainingClassifier(model, max_iter=1).fit(X, UNLABELLED, **ids).predict(X)
    ),
    "SequentialFeatureSelector": select(
        lambda model: SequentialFeatureSelector(model, n_features_to_select=1, cv=2)
    ),
    "SelectFromModel": select(SelectFromModel),
    "RFE": select(RFE),
    "AdaBoostClassifier": fit_and_predict(AdaBoostClassifier),
}
# One takes no ids, the other passes on those of all rows where it fits some.
SPEAK_FOR_THEMSELVES = "AdaBoostClassifier", "SelfTrainingClassifier"


def rows_of_the_table():
    """Name, what is said of client_ids and what of client_column."""
    page = Path(__file__).parents[1] / "docs" / "user_guide" / "pitfalls.rst"
    table = page.read_text().split(".. list-table::")[1].split("\n\nThe selectors")[0]
    rows = re.findall(r"\* - (.*)\n +- (.*)\n +- (.*)", table)[1:]
    return [(re.findall("``(.*?)``", name)[0], *said) for name, *said in rows]


def mixed(client_column=None):
    return MixedEffectsClassifier(client_column=client_column)


TABLE = pytest.mark.parametrize(
    ("name", "by_ids", "by_column"), rows_of_the_table(), ids=lambda text: text
)
KINDS = pytest.mark.parametrize("make", [pipeline, classifier, mixed])


def test_the_table_has_all_that_was_tried():
    assert [name for name, *_ in rows_of_the_table()] == list(WRAPPERS)


@TABLE
@KINDS
def test_wrappers_pass_ids_on_or_an_error_says_that_they_do_not(
    routing, name, by_ids, by_column, make
):
    if make is pipeline and "of a classifier" in by_ids:
        return
    if by_ids.startswith("yes"):
        WRAPPERS[name](make(), X, client_ids=IDS)
        return
    with pytest.raises((TypeError, ValueError), match="client_ids") as raised:
        WRAPPERS[name](make(), X, client_ids=IDS)
    if name not in SPEAK_FOR_THEMSELVES:
        assert "a wrapper does not pass them on" in str(raised.value)
        assert "client_column=..., which needs no passing on" in str(raised.value)
        assert "set_config" not in str(raised.value)


@TABLE
@KINDS
def test_wrappers_work_with_a_column_as_the_table_says(name, by_ids, by_column, make):
    names = np.array(["north", "south", "west"], dtype=object)
    named = FRAME.assign(site=names[IDS])
    if by_column == "yes":
        WRAPPERS[name](make(client_column="site"), named)
        return
    with pytest.raises((TypeError, ValueError, IndexError)):
        WRAPPERS[name](make(client_column="site"), named)
    if by_column.startswith("by position"):
        WRAPPERS[name](
            make(client_column=-1), FRAME if "numbers" in by_column else named
        )


@KINDS
def test_features_are_not_taken_for_ids(make):
    moved = np.column_stack([X, IDS])
    make(client_column=-1).fit(moved, Y)
    with pytest.raises(ValueError, match=r"client_column=0 holds numbers such as .*\."):
        make(client_column=0).fit(moved, Y)


@KINDS
def test_a_forgotten_client_column_is_named(make):
    named = FRAME.assign(site=np.array(["north", "south", "west"])[IDS])
    with pytest.raises(ValueError, match="'south'.*set client_column='site'"):
        make().fit(named, Y)
    with pytest.raises(ValueError, match="column 'a' of X has text, 'old'"):
        make(client_column="site").fit(named.assign(a="old"), Y)


def test_import_changes_nothing_global():
    code = (
        "import sklearn, warnings, numpy\n"
        "before = sklearn.get_config(), numpy.geterr(), list(warnings.filters)\n"
        "import skslot, skslot.metrics, skslot.model_selection, skslot.datasets\n"
        "after = sklearn.get_config(), numpy.geterr(), list(warnings.filters)\n"
        "assert before == after\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
