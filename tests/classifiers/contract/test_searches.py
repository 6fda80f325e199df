"""One-shot classifiers in searches, behind an aligner and with one inside."""

import numpy as np
import pytest
import sklearn
from one_shot_variants import ALIGNED, FRAME, IDS, X, Y, fitted, new
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline

from skslot import FederatedOTAligner

SEARCHED = {
    "cgs total": {"classify__covariance": ["total", "within"]},
    "pft spherical": {"classify__covariance_type": ["spherical", "full"]},
    "cgs within aligned": {"classify__aligner__tau": [0.0, 1.0]},
    "pft full aligned": {"classify__aligner__tau": [0.0, 1.0]},
}


CV = StratifiedKFold(2)


class IdsAsMetadata:
    routing = True
    table = X
    aligner: dict = {}
    classifier: dict = {}
    params = {"client_ids": IDS}


class IdsAsFrameColumn:
    routing = False
    table = FRAME.assign(site=IDS)
    aligner = {"client_column": "site", "keep_client_column": True}
    classifier = {"client_column": "site"}
    params: dict = {}


class IdsAsArrayColumn:
    routing = False
    table = np.column_stack([IDS.astype(object), X.astype(object)])
    aligner = {"client_column": 0, "keep_client_column": True}
    classifier = {"client_column": 0}
    params: dict = {}


@pytest.fixture(
    params=[IdsAsMetadata, IdsAsFrameColumn, IdsAsArrayColumn],
    ids=lambda route: route.__name__,
)
def route(request):
    with sklearn.config_context(enable_metadata_routing=request.param.routing):
        yield request.param


def score_by_hand(classifier, tau, train, test):
    aligner = FederatedOTAligner(tau).fit(X[train], client_ids=IDS[train])
    aligned = aligner.transform(X, client_ids=IDS)
    classifier = clone(classifier)
    classifier.fit(aligned[train], Y[train], client_ids=IDS[train])
    return classifier.score(aligned[test], Y[test], client_ids=IDS[test])


@pytest.mark.parametrize("variant", SEARCHED)
def test_grid_search_behind_an_aligner(variant, route):
    pipeline = Pipeline(
        [
            ("align", FederatedOTAligner(**route.aligner)),
            ("classify", new(variant, **route.classifier)),
        ]
    )
    grid = {"align__tau": [0.0, 0.8], **SEARCHED[variant]}
    search = GridSearchCV(pipeline, grid, cv=CV, error_score="raise")
    search.fit(route.table, Y, **route.params)
    results = search.cv_results_
    for index, params in enumerate(results["params"]):
        own = {k.split("__", 1)[1]: v for k, v in params.items() if "classify" in k}
        expected = [
            score_by_hand(new(variant, **own), params["align__tau"], train, test)
            for train, test in CV.split(X, Y)
        ]
        assert [results[f"split{k}_test_score"][index] for k in (0, 1)] == expected
    assert search.score(route.table, Y, **route.params) > 0.8


@pytest.mark.parametrize("variant", ALIGNED)
def test_grid_search_over_tau_alone(variant):
    """Without a Pipeline, by metadata routing and the default scoring."""
    grid = {"aligner__tau": [0.0, 0.5, 1.0]}
    search = GridSearchCV(new(variant), grid, cv=CV, error_score="raise")
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, Y, client_ids=IDS)
    for tau, actual in zip(
        grid["aligner__tau"], search.cv_results_["mean_test_score"], strict=True
    ):
        expected = [
            fitted(variant, train, aligner__tau=tau).score(
                X[test], Y[test], client_ids=IDS[test]
            )
            for train, test in CV.split(X, Y)
        ]
        assert actual == np.mean(expected)


@pytest.mark.parametrize(
    "variant", ["cgs within aligned", "cgs mixed effects", "ensemble vote aligned"]
)
def test_column_of_ids_works_with_every_scorer(variant):
    table = FRAME.assign(site=IDS)
    search = GridSearchCV(
        new(variant, client_column="site"),
        {"aligner__tau": [0.0, 1.0]},
        scoring=["balanced_accuracy", "neg_log_loss"],
        refit="neg_log_loss",
        cv=CV,
        error_score="raise",
    ).fit(table, Y)
    assert np.isfinite(search.cv_results_["mean_test_neg_log_loss"]).all()
    predicted = cross_val_predict(new(variant, client_column="site"), table, Y, cv=CV)
    for train, test in CV.split(X, Y):
        expected = fitted(variant, train).predict(X[test], client_ids=IDS[test])
        assert np.array_equal(predicted[test], expected)
