"""Where scikit-learn hands ids on, and where it does not: an error, no wrong score."""

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.datasets import make_shifted_clients
from skslot.metrics import make_client_scorer

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
        scoring=make_client_scorer(average="pooled"),
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
    assert "make_client_scorer" in str(caught.value)
    assert "client_column" in str(caught.value)


@MODELS
@pytest.mark.parametrize("scoring", BLIND, ids=NAMES)
def test_blind_scorer_never_gives_a_number(routing, make, tau, scoring):
    search = GridSearchCV(make(), {tau: [0.0, 1.0]}, scoring=scoring, cv=CV)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, Y, client_ids=IDS)
    assert np.isnan(search.cv_results_["mean_test_score"]).all()
    assert any("make_client_scorer" in str(warning.message) for warning in caught)


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


@pytest.mark.parametrize(
    "scoring", [None, make_client_scorer()], ids=["none", "client"]
)
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


def test_import_changes_nothing_global():
    code = (
        "import sklearn, warnings, numpy\n"
        "before = sklearn.get_config(), numpy.geterr(), list(warnings.filters)\n"
        "import skslot, skslot.metrics, skslot.model_selection, skslot.datasets\n"
        "after = sklearn.get_config(), numpy.geterr(), list(warnings.filters)\n"
        "assert before == after\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
