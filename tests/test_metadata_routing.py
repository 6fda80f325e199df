"""Ids reach the aligner inside scikit-learn's meta-estimators, by both routes.

The same table of tests runs with ids as metadata (``client_ids``, routing switched on)
and with ids as a column of X (``client_column``, routing off). What comes out is always
compared with alignment and classification done by hand.
"""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ParameterGrid,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import StandardScaler

from skslot import FederatedOTAligner, MixedEffectsAligner, MixedEffectsClassifier
from skslot.datasets import load_digit_scanners, make_shifted_clients
from skslot.model_selection import FederatedGridSearchCV

FEATURES = ["a", "b", "c", "d"]
GRID = {"align__tau": [0.0, 1.0], "align__shrinkage": ["ledoit_wolf", 0.3]}
CV = StratifiedKFold(2)

shifted = make_shifted_clients(
    n_samples=240,
    n_clients=3,
    n_classes=3,
    n_features=4,
    domain_shift=2,
    random_state=0,
)
FRAME = pd.DataFrame(shifted.data, columns=FEATURES)
IDS, Y = shifted.client_ids, shifted.target
TRAIN, TEST = np.arange(160), np.arange(160, 240)


class IdsAsMetadata:
    """``client_ids=...`` with metadata routing."""

    routing = True
    aligner = FederatedOTAligner()
    X = FRAME

    @staticmethod
    def ids(rows):
        return {"client_ids": IDS[rows]}


class IdsAsColumn:
    """``client_column="site"`` without metadata routing."""

    routing = False
    aligner = FederatedOTAligner(client_column="site")
    X = FRAME.assign(site=IDS)

    @staticmethod
    def ids(rows):
        return {}


@pytest.fixture(params=[IdsAsMetadata, IdsAsColumn], ids=lambda r: r.__name__)
def route(request):
    with sklearn.config_context(enable_metadata_routing=request.param.routing):
        yield request.param


def pipeline_of(aligner):
    return Pipeline(
        [("align", clone(aligner)), ("classify", LinearDiscriminantAnalysis())]
    )


def align(fit_rows, rows, **params):
    """Aligned features of some rows, by an aligner used on its own."""
    aligner = FederatedOTAligner(**params)
    aligner.fit(FRAME.iloc[fit_rows], client_ids=IDS[fit_rows])
    return aligner.transform(FRAME.iloc[rows], client_ids=IDS[rows])


def classify(train, test, **params):
    """Classifier fitted on aligned rows, and the aligned test rows."""
    classifier = LinearDiscriminantAnalysis()
    classifier.fit(align(train, train, **params), Y[train])
    return classifier, align(train, test, **params)


def score(train, test, **params):
    classifier, aligned = classify(train, test, **params)
    return classifier.score(aligned, Y[test])


def cross_validation_scores(rows=None, **params):
    rows = np.arange(len(Y)) if rows is None else rows
    return [score(rows[a], rows[b], **params) for a, b in CV.split(rows, Y[rows])]


def aligner_params(params):
    return {name.removeprefix("align__"): value for name, value in params.items()}


def search_by_hand(rows):
    """Scores of each point of the grid, and the first of the best."""
    grid = [aligner_params(params) for params in ParameterGrid(GRID)]
    scores = [cross_validation_scores(rows, **params) for params in grid]
    return scores, grid[int(np.argmax(np.mean(scores, axis=1)))]


def test_alignment_matters_for_these_data():
    """Otherwise the comparisons below could not fail."""
    scores = {tau: np.mean(cross_validation_scores(tau=tau)) for tau in (0, 0.5, 1)}
    assert scores[1] > scores[0.5] > scores[0] + 0.05
    wrong_ids = FederatedOTAligner(tau=1).fit(FRAME, client_ids=IDS)
    right = wrong_ids.transform(FRAME, client_ids=IDS)
    wrong = wrong_ids.transform(FRAME, client_ids=(IDS + 1) % 3)
    assert np.linalg.norm(right - wrong) > 0.5 * np.linalg.norm(right)


# --------------------------------------------------------------------- Pipeline


@pytest.fixture
def fitted(route):
    model = pipeline_of(route.aligner)
    return model.fit(route.X.iloc[TRAIN], Y[TRAIN], **route.ids(TRAIN))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_pipeline_predicts_from_aligned_rows(route, fitted, method):
    classifier, aligned = classify(TRAIN, TEST)
    actual = getattr(fitted, method)(route.X.iloc[TEST], **route.ids(TEST))
    assert np.array_equal(actual, getattr(classifier, method)(aligned))


def test_pipeline_scores_aligned_rows(route, fitted):
    actual = fitted.score(route.X.iloc[TEST], Y[TEST], **route.ids(TEST))
    assert actual == score(TRAIN, TEST)


def test_pipeline_transforms_rows(route):
    model = Pipeline([("align", clone(route.aligner)), ("scale", StandardScaler())])
    actual = model.fit_transform(route.X, **route.ids(slice(None)))
    everything = np.arange(len(Y))
    expected = StandardScaler().fit_transform(align(everything, everything))
    assert np.array_equal(actual, expected)
    again = model.transform(route.X, **route.ids(slice(None)))
    np.testing.assert_allclose(again, expected, rtol=1e-12, atol=1e-12)


def test_pipeline_without_ids_raises(fitted):
    with pytest.raises(ValueError, match="client_ids is missing|feature names should"):
        fitted.predict(FRAME.iloc[TEST])


def test_kept_column_serves_the_next_aligner():
    X = FRAME.assign(site=IDS)
    model = Pipeline(
        [
            (
                "first",
                FederatedOTAligner(client_column="site", keep_client_column=True),
            ),
            ("second", FederatedOTAligner(tau=1, client_column="site")),
        ]
    )
    first = FederatedOTAligner().fit_transform(FRAME, client_ids=IDS)
    expected = FederatedOTAligner(tau=1).fit_transform(first, client_ids=IDS)
    assert np.array_equal(model.fit_transform(X), expected)


# ------------------------------------------------------------- cross-validation


def test_cross_validate(route):
    everything = slice(None)
    results = cross_validate(
        pipeline_of(route.aligner),
        route.X,
        Y,
        cv=CV,
        params=route.ids(everything),
        error_score="raise",
    )
    assert results["test_score"].tolist() == cross_validation_scores()


def test_cross_val_score(route):
    scores = cross_val_score(
        pipeline_of(route.aligner), route.X, Y, cv=CV, params=route.ids(slice(None))
    )
    assert scores.tolist() == cross_validation_scores()


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "neg_log_loss"])
def test_ids_as_column_work_with_every_scorer(scoring):
    model = pipeline_of(IdsAsColumn.aligner)
    actual = cross_val_score(model, IdsAsColumn.X, Y, cv=CV, scoring=scoring)
    scorer = sklearn.metrics.get_scorer(scoring)
    expected = []
    for train, test in CV.split(Y, Y):
        classifier, aligned = classify(train, test)
        expected.append(scorer(classifier, aligned, Y[test]))
    assert actual.tolist() == expected


def test_ids_as_column_work_with_cross_val_predict():
    model = pipeline_of(IdsAsColumn.aligner)
    actual = cross_val_predict(model, IdsAsColumn.X, Y, cv=CV)
    for train, test in CV.split(Y, Y):
        classifier, aligned = classify(train, test)
        assert np.array_equal(actual[test], classifier.predict(aligned))


# ----------------------------------------------------------------------- search


def search_of(route, **params):
    return GridSearchCV(
        pipeline_of(route.aligner), GRID, cv=CV, error_score="raise", **params
    )


@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_grid_search(route, n_jobs):
    search = search_of(route, n_jobs=n_jobs)
    search.fit(route.X.iloc[TRAIN], Y[TRAIN], **route.ids(TRAIN))
    scores, best = search_by_hand(TRAIN)
    splits = [search.cv_results_[f"split{split}_test_score"] for split in range(2)]
    assert np.array_equal(np.transpose(splits), scores)
    assert aligner_params(search.best_params_) == best
    test_score = search.score(route.X.iloc[TEST], Y[TEST], **route.ids(TEST))
    assert test_score == score(TRAIN, TEST, **best)
    model = search.best_estimator_  # scikit-learn's search.predict takes no metadata
    actual = model.predict(route.X.iloc[TEST], **route.ids(TEST))
    classifier, aligned = classify(TRAIN, TEST, **best)
    assert np.array_equal(actual, classifier.predict(aligned))


def test_nested_search(route):
    outer = KFold(2, shuffle=True, random_state=0)
    results = cross_validate(
        search_of(route),
        route.X,
        Y,
        cv=outer,
        params=route.ids(slice(None)),
        error_score="raise",
    )
    expected = [
        score(train, test, **search_by_hand(train)[1]) for train, test in outer.split(Y)
    ]
    assert results["test_score"].tolist() == expected


def test_search_with_memory_computes_one_reference_per_fold(
    route, tmp_path, count_calls
):
    taus = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    plain = GridSearchCV(pipeline_of(route.aligner), {"align__tau": taus}, cv=CV)
    with count_calls("solve_reference") as called:
        plain.fit(route.X, Y, **route.ids(slice(None)))
    # that of tau=0 moves nothing, and solves for nothing
    moves = plain.best_params_["align__tau"] > 0
    assert len(called) == 2 * 5 + moves
    cached = clone(plain).set_params(estimator__align__memory=str(tmp_path))
    with count_calls("solve_reference") as called:
        cached.fit(route.X, Y, **route.ids(slice(None)))
    assert len(called) == 2 + moves
    scores = "mean_test_score"
    assert np.array_equal(cached.cv_results_[scores], plain.cv_results_[scores])


def test_grid_search_over_the_embedded_data(tmp_path):
    scanners = load_digit_scanners()
    X, y, ids = scanners.data, scanners.target, scanners.client_ids
    model = pipeline_of(FederatedOTAligner(memory=str(tmp_path)))
    grid = {**GRID, "align__tau": [0.0, 0.5, 1.0]}
    search = GridSearchCV(model, grid, cv=CV, error_score="raise")
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, y, client_ids=ids)
    assert search.best_params_["align__tau"] > 0
    expected = []
    for train, test in CV.split(X, y):
        aligner = FederatedOTAligner(**aligner_params(search.best_params_))
        aligned = aligner.fit_transform(X[train], client_ids=ids[train])
        classifier = LinearDiscriminantAnalysis().fit(aligned, y[train])
        aligned = aligner.transform(X[test], client_ids=ids[test])
        expected.append(classifier.score(aligned, y[test]))
    assert search.best_score_ == np.mean(expected)


# ----------------------------------------------- scorers that do not hand ids on


@pytest.mark.parametrize(
    "scoring", ["accuracy", sklearn.metrics.make_scorer(sklearn.metrics.accuracy_score)]
)
def test_scorer_that_loses_ids_raises(scoring):
    search = search_of(IdsAsMetadata, scoring=scoring)
    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.raises(ValueError, match="client_ids is missing.*scoring='accuracy'"),
    ):
        search.fit(FRAME, Y, client_ids=IDS)


def test_scorer_that_loses_ids_never_gives_a_number():
    search = GridSearchCV(
        pipeline_of(IdsAsMetadata.aligner), GRID, cv=CV, scoring="accuracy", refit=False
    )
    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.warns(UserWarning, match="(?s)Scoring failed|scores are non-finite"),
    ):
        search.fit(FRAME, Y, client_ids=IDS)
    assert np.isnan(search.cv_results_["mean_test_score"]).all()


def test_search_that_predicts_without_ids_raises():
    search = search_of(IdsAsMetadata)
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(FRAME, Y, client_ids=IDS)
        with pytest.raises(ValueError, match="client_ids is missing"):
            search.predict(FRAME)


def test_cross_val_predict_that_loses_ids_raises():
    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.raises(ValueError, match="client_ids is missing"),
    ):
        cross_val_predict(
            pipeline_of(IdsAsMetadata.aligner), FRAME, Y, params={"client_ids": IDS}
        )


def test_ids_without_routing_are_refused_by_the_pipeline():
    with pytest.raises(ValueError, match="client_ids"):
        pipeline_of(IdsAsMetadata.aligner).fit(FRAME, Y, client_ids=IDS)


# ------------------------------------------- FeatureUnion and ColumnTransformer


def test_feature_union(route):
    union = FeatureUnion(
        [
            ("none", clone(route.aligner).set_params(tau=0)),
            ("full", clone(route.aligner).set_params(tau=1)),
        ]
    )
    union.fit(route.X.iloc[TRAIN], **route.ids(TRAIN))
    actual = union.transform(route.X.iloc[TEST], **route.ids(TEST))
    expected = [FRAME.iloc[TEST], align(TRAIN, TEST, tau=1)]
    assert np.array_equal(actual, np.hstack(expected))
    fitted = union.fit_transform(route.X.iloc[TRAIN], **route.ids(TRAIN))
    expected = [FRAME.iloc[TRAIN], align(TRAIN, TRAIN, tau=1)]
    assert np.array_equal(fitted, np.hstack(expected))


def test_feature_union_in_a_pipeline(route):
    union = FeatureUnion([("full", clone(route.aligner).set_params(tau=1))])
    model = Pipeline([("union", union), ("classify", LinearDiscriminantAnalysis())])
    model.fit(route.X.iloc[TRAIN], Y[TRAIN], **route.ids(TRAIN))
    actual = model.score(route.X.iloc[TEST], Y[TEST], **route.ids(TEST))
    assert actual == score(TRAIN, TEST, tau=1)


def test_column_transformer(route):
    columns = ["a", "c", "site"] if "site" in route.X else ["a", "c"]
    transformer = ColumnTransformer(
        [("align", clone(route.aligner), columns), ("keep", "passthrough", ["b"])]
    )
    transformer.fit(route.X.iloc[TRAIN], **route.ids(TRAIN))
    actual = transformer.transform(route.X.iloc[TEST], **route.ids(TEST))
    aligner = FederatedOTAligner().fit(
        FRAME.iloc[TRAIN][["a", "c"]], client_ids=IDS[TRAIN]
    )
    aligned = aligner.transform(FRAME.iloc[TEST][["a", "c"]], client_ids=IDS[TEST])
    assert np.array_equal(actual, np.c_[aligned, FRAME.iloc[TEST]["b"]])
    names = transformer.get_feature_names_out().tolist()
    assert names == ["align__a", "align__c", "keep__b"]


def test_column_transformer_in_a_pipeline(route):
    columns = list(route.X.columns)
    transformer = ColumnTransformer([("align", clone(route.aligner), columns)])
    model = Pipeline([("columns", transformer), ("lda", LinearDiscriminantAnalysis())])
    model.fit(route.X.iloc[TRAIN], Y[TRAIN], **route.ids(TRAIN))
    actual = model.score(route.X.iloc[TEST], Y[TEST], **route.ids(TEST))
    assert actual == score(TRAIN, TEST)


# ------------------------------------------------------------- mixed effects


def mixed_pipeline(route, **params):
    column = route.aligner.client_column
    return Pipeline(
        [
            ("align", MixedEffectsAligner(client_column=column, **params)),
            ("classify", LinearDiscriminantAnalysis()),
        ]
    )


def mixed_classifier(route, **params):
    return MixedEffectsClassifier(client_column=route.aligner.client_column, **params)


def score_of_pipeline(train, test, **params):
    aligner = MixedEffectsAligner(**params)
    aligner.fit(FRAME.iloc[train], Y[train], client_ids=IDS[train])
    moved = [aligner.transform(FRAME.iloc[r], client_ids=IDS[r]) for r in (train, test)]
    classifier = LinearDiscriminantAnalysis().fit(moved[0], Y[train])
    return classifier.score(moved[1], Y[test])


def score_of_classifier(train, test, **params):
    classifier = MixedEffectsClassifier(**params)
    classifier.fit(FRAME.iloc[train], Y[train], client_ids=IDS[train])
    return classifier.score(FRAME.iloc[test], Y[test], client_ids=IDS[test])


MIXED = [
    (mixed_pipeline, score_of_pipeline, "align__tau"),
    (mixed_classifier, score_of_classifier, "tau"),
]
MIXED_TAUS = [0, 0.5, "auto"]


@pytest.mark.parametrize(("make", "by_hand", "_"), MIXED)
@pytest.mark.parametrize("tau", MIXED_TAUS)
def test_mixed_effects_get_ids_and_labels(route, make, by_hand, _, tau):
    assert score_of_pipeline(TRAIN, TEST) > LinearDiscriminantAnalysis().fit(
        FRAME.iloc[TRAIN], Y[TRAIN]
    ).score(FRAME.iloc[TEST], Y[TEST])
    model = make(route, tau=tau).fit(route.X.iloc[TRAIN], Y[TRAIN], **route.ids(TRAIN))
    actual = model.score(route.X.iloc[TEST], Y[TEST], **route.ids(TEST))
    assert actual == by_hand(TRAIN, TEST, tau=tau)
    with pytest.raises(ValueError, match="client_ids is missing|feature names should"):
        model.predict(FRAME.iloc[TEST])


@pytest.mark.parametrize(("make", "by_hand", "name"), MIXED)
def test_strength_of_mixed_effects_is_searched(route, make, by_hand, name):
    search = GridSearchCV(
        make(route), {name: MIXED_TAUS}, cv=CV, scoring=None, error_score="raise"
    )
    search.fit(route.X, Y, **route.ids(slice(None)))
    expected = [
        np.mean([by_hand(*split, tau=tau) for split in CV.split(Y, Y)])
        for tau in MIXED_TAUS
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected)


@pytest.mark.parametrize(("make", "_", "name"), MIXED)
def test_federated_search_takes_mixed_effects(route, make, _, name):
    search = FederatedGridSearchCV(make(route), {name: MIXED_TAUS})
    search.fit(route.X, Y, **route.ids(slice(None)))
    assert search.best_params_[name] in MIXED_TAUS
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_tau_ is None  # the rule for tau is that of optimal transport
    predicted = search.predict(route.X, **route.ids(slice(None)))
    assert np.mean(predicted == Y) > 0.7


# ----------------------------------------------------------------- requests


@pytest.mark.parametrize("aligner", [FederatedOTAligner(), MixedEffectsAligner()])
@pytest.mark.parametrize(
    "method", ["fit", "partial_fit", "transform", "inverse_transform"]
)
def test_ids_are_requested_by_default(aligner, method):
    requests = aligner.get_metadata_routing()
    assert getattr(requests, method).requests == {"client_ids": True}


def test_importing_skslot_changes_no_global_setting():
    code = """
import warnings, numpy as np, sklearn
before = sklearn.get_config(), np.geterr(), list(warnings.filters)
state = str(np.random.get_state())
import skslot, skslot.datasets, skslot.exchange, skslot.geometry, skslot.statistics
after = sklearn.get_config(), np.geterr(), list(warnings.filters)
assert before == after, (before, after)
assert state == str(np.random.get_state())
"""
    subprocess.run([sys.executable, "-c", code], check=True)
