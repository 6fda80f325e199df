"""FederatedGridSearchCV: what it does by default, and what it chooses."""

import pickle
from copy import copy

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_validate,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.datasets import load_digit_scanners, make_shifted_clients
from skslot.metrics import ClientScorer
from skslot.model_selection import (
    CellHoldoutKFold,
    FederatedGridSearchCV,
    StratifiedClientKFold,
    dirichlet_label_shift,
)

TAUS = [0.0, 0.3, 0.6]
GRID = {"aligner__tau": TAUS}
FOLDS = StratifiedClientKFold(2)

pytestmark = pytest.mark.usefixtures("routing")

SHAPE = {"n_clients": 3, "n_classes": 3, "n_features": 4}
shifted = make_shifted_clients(
    240, **SHAPE, domain_shift=2, label_shift=0.5, random_state=0
)
X, Y, IDS = shifted.data, shifted.target, shifted.client_ids
FRAME = pd.DataFrame(X, columns=list("abcd")).assign(site=IDS)


def model(**params):
    return FedCGSClassifier(aligner=FederatedOTAligner(**params))


def search(grid=GRID, cv=FOLDS, **params):
    return FederatedGridSearchCV(model(), grid, cv=cv, **params)


@pytest.fixture(scope="module")
def fitted():
    with sklearn.config_context(enable_metadata_routing=True):
        return search().fit(X, Y, client_ids=IDS)


def test_summary_of_a_search_that_failed_says_that_it_is_not_fitted():
    failed = search({"aligner__shrinkage": ["unknown"]})
    with pytest.raises(ValueError, match="shrinkage"):
        failed.fit(X, Y, client_ids=IDS)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        failed.summary()


def scores_of(results):
    return {k: np.asarray(v) for k, v in results.items() if "test" in k or "param" in k}


# --------------------------------------------------------------- it is GridSearchCV


def test_defaults_are_folds_of_cells_and_a_score_of_cells():
    found = search(cv=None).fit(X, Y, client_ids=IDS)
    by_hand = GridSearchCV(
        model(),
        GRID,
        cv=CellHoldoutKFold(),
        scoring=ClientScorer(average="cell"),
        error_score="raise",
    ).fit(X, Y, client_ids=IDS)
    actual = scores_of(found.cv_results_)
    for name, values in scores_of(by_hand.cv_results_).items():
        assert np.array_equal(actual.pop(name), values), name
    assert all(name.endswith("test_accuracy") for name in actual)


def test_accuracy_of_the_same_folds_stands_beside_the_score(fitted):
    pooled = ClientScorer(average="pooled")
    by_hand = GridSearchCV(model(), GRID, cv=FOLDS, scoring=pooled)
    by_hand.fit(X, Y, client_ids=IDS)
    for kind in ("mean", "std", "split1"):
        expected = by_hand.cv_results_[f"{kind}_test_score"]
        assert np.array_equal(fitted.cv_results_[f"{kind}_test_accuracy"], expected)
    assert not fitted.multimetric_
    assert repr(fitted.scorer_) == repr(ClientScorer(average="cell"))


def test_accuracy_costs_no_prediction():
    class Counting(FedCGSClassifier):
        asked = 0

        def predict(self, X, client_ids=None):
            Counting.asked += 1
            return super().predict(X, client_ids)

    FederatedGridSearchCV(Counting(), {"ridge": [0.1, 1.0]}, cv=FOLDS).fit(
        X, Y, client_ids=IDS
    )
    assert Counting.asked == 2 * 2


@pytest.mark.parametrize("scoring", [ClientScorer(average="worst"), None])
def test_results_do_not_depend_on_the_prior(scoring):
    results = [
        search(scoring=scoring, tau_prior=prior).fit(X, Y, client_ids=IDS).cv_results_
        for prior in (0, 5)
    ]
    assert np.array_equal(results[0]["mean_test_score"], results[1]["mean_test_score"])


def test_parameters_are_unchanged_by_fit():
    unfitted = search(cv=None)
    before = unfitted.get_params(deep=False)
    unfitted.fit(X, Y, client_ids=IDS)
    after = unfitted.get_params(deep=False)
    assert before == after
    assert (after["scoring"], after["cv"], after["refit"]) == (None, None, True)


def test_parameters_are_unchanged_by_a_failed_fit():
    unfitted = search(cv=None)
    with pytest.raises(ValueError, match="client_ids has"):
        unfitted.fit(X, Y, client_ids=IDS[1:])
    assert (unfitted.scoring, unfitted.cv, unfitted.refit) == (None, None, True)


def test_set_params_and_clone():
    changed = clone(search()).set_params(
        tau_prior=1.5, estimator__aligner__shrinkage=0.5
    )
    assert clone(changed).tau_prior == 1.5
    assert clone(changed).estimator.aligner.shrinkage == 0.5


def test_pickle(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert again.summary() == fitted.summary()
    assert np.array_equal(
        again.predict(X, client_ids=IDS), fitted.predict(X, client_ids=IDS)
    )


ANSWERS = "predict", "predict_proba", "predict_log_proba", "decision_function"
ANSWERS += ("transform",)


@pytest.mark.parametrize("method", ANSWERS[:-1])
def test_answers_are_those_of_the_best_estimator(fitted, method):
    found = getattr(fitted, method)(X, client_ids=IDS)
    expected = getattr(fitted.best_estimator_, method)(X, client_ids=IDS)
    assert np.array_equal(found, expected)


def test_best_estimator_is_fitted_on_all_rows(fitted):
    by_hand = model(tau=fitted.best_tau_).fit(X, Y, client_ids=IDS)
    found = fitted.predict_proba(X, client_ids=IDS)
    assert np.allclose(found, by_hand.predict_proba(X, client_ids=IDS), atol=1e-12)


def test_score_is_that_of_the_search(fitted):
    scorer = ClientScorer(average="cell")
    expected = scorer(fitted.best_estimator_, X, Y, client_ids=IDS)
    assert fitted.score(X, Y, client_ids=IDS) == expected


def test_answers_without_ids_are_refused(fitted):
    with pytest.raises(ValueError, match="client_ids is missing"):
        fitted.predict(X)


PIPELINE = make_pipeline(FederatedOTAligner(), LinearDiscriminantAnalysis())


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_ids_arrive_in_a_pipeline_also_without_routing(n_jobs):
    grid = {"federatedotaligner__tau": [0.0, 1.0]}
    on = FederatedGridSearchCV(PIPELINE, grid, cv=FOLDS).fit(X, Y, client_ids=IDS)
    with sklearn.config_context(enable_metadata_routing=False):
        off = FederatedGridSearchCV(PIPELINE, grid, cv=FOLDS, n_jobs=n_jobs)
        off.fit(X, Y, client_ids=IDS)
        assert not sklearn.get_config()["enable_metadata_routing"]
        scores = "mean_test_score"
        assert np.array_equal(off.cv_results_[scores], on.cv_results_[scores])
        score = off.score(X, Y, client_ids=IDS)
        found = {name: getattr(off, name)(X, client_ids=IDS) for name in ANSWERS}
    assert score == on.score(X, Y, client_ids=IDS)
    for name, values in found.items():
        expected = getattr(on.best_estimator_, name)(X, client_ids=IDS)
        assert np.array_equal(values, expected), name


def test_answers_without_ids_say_what_to_do_also_without_routing(fitted):
    with (
        sklearn.config_context(enable_metadata_routing=False),
        pytest.raises(ValueError, match="client_ids is missing.* or keep the ids as a"),
    ):
        fitted.predict(X)


def test_no_answers_without_refit():
    found = search(refit=False).fit(X, Y, client_ids=IDS)
    assert not hasattr(found, "predict")
    refitted = search().fit(X, Y, client_ids=IDS)
    assert found.best_params_ == refitted.best_params_
    assert found.best_score_ == refitted.best_score_
    assert found.summary() == refitted.summary()


@pytest.mark.skipif(
    not hasattr(GridSearchCV, "set_callbacks"), reason="came with scikit-learn 1.9"
)
@pytest.mark.filterwarnings("ignore:The estimator FedCGSClassifier does not support")
def test_callbacks_are_called():
    class Counting:
        began = 0

        def setup(self, *arguments, **named):
            pass

        def on_fit_task_begin(self, *arguments, **named):
            Counting.began += 1

        def on_fit_task_end(self, *arguments, **named):
            pass

        def teardown(self, *arguments, **named):
            pass

    search().set_callbacks(Counting()).fit(X, Y, client_ids=IDS)
    assert Counting.began >= len(TAUS) * FOLDS.n_splits


def test_verbose_shows_progress(capsys):
    search(verbose=3).fit(X, Y, client_ids=IDS)
    first, *fits = capsys.readouterr().out.splitlines()
    assert first == "Fitting 2 folds for each of 3 candidates, totalling 6 fits"
    assert len(fits) == 6
    assert "aligner__tau=0.3; accuracy: (test=" in fits[2]


def test_only_methods_that_the_estimator_has():
    class Bare(FedCGSClassifier):
        predict_proba = property()

    assert not hasattr(FederatedGridSearchCV(Bare(), {}), "predict_proba")
    assert hasattr(FederatedGridSearchCV(Bare(), {}), "predict")


def test_nested_in_cross_validate():
    found = cross_validate(
        search(),
        X,
        Y,
        params={"client_ids": IDS},
        cv=StratifiedKFold(2),
        scoring={"own": ClientScorer(average="cell")},
        return_estimator=True,
        error_score="raise",
    )
    folds = zip(StratifiedKFold(2).split(X, Y), found["estimator"], strict=True)
    expected = [inner.score(X[t], Y[t], client_ids=IDS[t]) for (_, t), inner in folds]
    assert found["test_own"] == pytest.approx(expected)


def test_nested_with_its_own_score():
    found = cross_validate(
        search(),
        X,
        Y,
        params={"client_ids": IDS},
        cv=StratifiedKFold(2),
        error_score="raise",
    )
    assert np.isfinite(found["test_score"]).all()


# ------------------------------------------------------------------------ the choice


@pytest.mark.parametrize("prior", [0, 0.3, 2, 100])
def test_choice_by_hand(prior):
    found = search(tau_prior=prior).fit(X, Y, client_ids=IDS)
    means = found.cv_results_["mean_test_score"]
    apart = np.array(TAUS) - found.tau_auto_
    assert found.best_index_ == np.argmax(means - prior * apart**2)
    assert found.best_tau_ == TAUS[found.best_index_]
    assert found.best_params_ == {"aligner__tau": found.best_tau_}
    assert found.best_score_ == means[found.best_index_]


def test_default_strength_of_the_prior():
    assert search().tau_prior == 0.3


def test_strong_prior_takes_the_tau_next_to_the_automatic_one(fitted):
    found = search(tau_prior=1e6).fit(X, Y, client_ids=IDS)
    nearest = np.abs(np.array(TAUS) - fitted.tau_auto_).argmin()
    assert found.best_index_ == nearest
    assert (
        found.best_index_ != search(tau_prior=0).fit(X, Y, client_ids=IDS).best_index_
    )


def test_no_prior_is_the_choice_of_plain_search():
    found = search(tau_prior=0).fit(X, Y, client_ids=IDS)
    plain = GridSearchCV(
        model(), GRID, cv=FOLDS, scoring=ClientScorer(average="cell")
    ).fit(X, Y, client_ids=IDS)
    assert found.best_params_ == plain.best_params_
    assert found.best_score_ == plain.best_score_


def test_automatic_tau_of_a_classifier_with_an_aligner(fitted):
    aligner = FederatedOTAligner(tau="auto").fit(X, Y, client_ids=IDS)
    assert fitted.tau_auto_ == pytest.approx(aligner.tau_, abs=1e-10)
    assert 0.05 < aligner.tau_ < 0.65


def test_automatic_tau_of_a_pipeline_is_that_after_the_steps_before():
    pipeline = make_pipeline(StandardScaler(), FederatedOTAligner(), FedCGSClassifier())
    found = FederatedGridSearchCV(pipeline, {"federatedotaligner__tau": TAUS}, cv=FOLDS)
    found.fit(X, Y, client_ids=IDS)
    aligner = FederatedOTAligner(tau="auto")
    aligner.fit(StandardScaler().fit_transform(X), Y, client_ids=IDS)
    assert found.tau_auto_ == pytest.approx(aligner.tau_, abs=1e-12)


def test_automatic_tau_of_a_classifier_inside_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), model())
    grid = {"fedcgsclassifier__aligner__tau": TAUS}
    found = FederatedGridSearchCV(pipeline, grid, cv=FOLDS).fit(X, Y, client_ids=IDS)
    aligner = FederatedOTAligner(tau="auto")
    aligner.fit(StandardScaler().fit_transform(X), Y, client_ids=IDS)
    assert found.tau_auto_ == pytest.approx(aligner.tau_, abs=1e-10)


@pytest.mark.parametrize("grid", [{"aligner__shrinkage": [0.1, 0.5]}, {}])
def test_grid_without_tau(grid):
    found = search(grid).fit(X, Y, client_ids=IDS)
    assert (found.tau_auto_, found.best_tau_) == (None, None)
    assert found.best_index_ == found.cv_results_["mean_test_score"].argmax()
    assert "tau" not in found.summary()


def test_estimator_without_aligner():
    found = FederatedGridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=FOLDS)
    found.fit(X, Y, client_ids=IDS)
    assert found.tau_auto_ is None
    assert found.predict(X).shape == Y.shape


def test_auto_in_the_grid_is_not_held_against_a_candidate():
    found = search({"aligner__tau": [0.0, "auto"]}, tau_prior=1e6)
    found.fit(X, Y, client_ids=IDS)
    assert found.best_params_ == {"aligner__tau": "auto"}
    assert found.best_tau_ == found.tau_auto_
    assert found.best_estimator_.aligner_.tau_ == pytest.approx(found.tau_auto_)


def test_grids_some_without_tau_use_the_tau_of_the_estimator():
    grids = [{"aligner__tau": [0.9, 1.0]}, {"aligner__shrinkage": [0.5]}]
    found = FederatedGridSearchCV(model(tau=0.1), grids, cv=FOLDS, tau_prior=1e6)
    found.fit(X, Y, client_ids=IDS)
    assert found.best_params_ == {"aligner__shrinkage": 0.5}
    assert found.best_tau_ == 0.1


def test_candidate_without_aligner_counts_as_tau_zero():
    grids = [{"aligner__tau": [1.0]}, {"aligner": [None]}]
    found = search(grids, tau_prior=1e6).fit(X, Y, client_ids=IDS)
    assert found.best_params_ == {"aligner": None}
    assert found.best_tau_ == 0


def test_several_scores_choose_by_the_named_one():
    scoring = {a: ClientScorer(average=a) for a in ("cell", "worst")}
    found = search(scoring=scoring, refit="worst").fit(X, Y, client_ids=IDS)
    means = found.cv_results_["mean_test_worst"]
    apart = np.array(TAUS) - found.tau_auto_
    assert found.best_index_ == np.argmax(means - 0.3 * apart**2)
    assert found.best_score_ == means[found.best_index_]
    assert f"{means[0]:.3f}" in found.summary()
    assert found.score(X, Y, client_ids=IDS) == scoring["worst"](
        found.best_estimator_, X, Y, client_ids=IDS
    )


def test_several_scores_without_refit():
    scoring = {a: ClientScorer(average=a) for a in ("cell", "worst")}
    found = search(scoring=scoring, refit=False).fit(X, Y, client_ids=IDS)
    assert not hasattr(found, "best_estimator_")
    assert ">" not in found.summary()


def test_own_choice_replaces_the_prior():
    found = search(refit=lambda results: 2, tau_prior=1e6).fit(X, Y, client_ids=IDS)
    assert (found.best_index_, found.best_tau_) == (2, 0.6)
    assert "largest" not in found.summary()


def test_summary(fitted):
    table = fitted.summary().splitlines()
    assert table[0].split() == ["mean", "score", "+/-", "accuracy", "parameters"]
    for row, tau in enumerate(TAUS):
        line = table[1 + row]
        assert f"aligner__tau={tau}" in line
        for column in ("mean_test_score", "std_test_score", "mean_test_accuracy"):
            assert f"{fitted.cv_results_[column][row]:.3f}" in line
        assert line.startswith(">") == (row == fitted.best_index_)
    assert max(map(len, table)) <= 88


def test_summary_explains_itself(fitted):
    text = " ".join(fitted.summary().split())
    assert "mean score: accuracy of each (client, class) cell" in text
    assert "what search.score gives" in text
    assert "accuracy: share of the same rows that are right" in text
    assert "+/-: standard deviation of the score over 2 folds" in text
    assert ">: largest mean score - 0.3 * (tau - automatic)^2; a tau close to" in text
    taus = fitted.tau_auto_, fitted.best_tau_
    assert text.endswith("tau: automatic {:.2f}, chosen {:.2f}".format(*taus))


def test_summary_tells_of_a_row_that_is_better_beyond_chance(fitted):
    """In the same folds, and not where the chosen row is the best or nearly so."""
    found = copy(fitted)
    nearest = np.abs(np.array(TAUS) - found.tau_auto_).argmin()
    best = (nearest + 1) % len(TAUS)
    for ahead, is_told in (([0.1, 0.2], True), ([-0.1, 0.2], False), ([0, 0], False)):
        folds = np.full((2, len(TAUS)), 0.5)
        folds[:, best] += ahead
        found.cv_results_ = {
            "params": fitted.cv_results_["params"],
            "mean_test_score": folds.mean(axis=0),
            "std_test_score": folds.std(axis=0),
            "mean_test_accuracy": folds.mean(axis=0),
            "split0_test_score": folds[0],
            "split1_test_score": folds[1],
        }
        found.best_index_ = nearest
        text = " ".join(found.summary().split())
        words = f"aligner__tau={TAUS[best]} is larger by 0.150 +/- 0.050 (standard"
        assert (words in text) is is_told
        assert ("!" in text) is is_told


def test_summary_says_so_where_the_largest_score_was_chosen():
    found = search(tau_prior=0).fit(X, Y, client_ids=IDS)
    assert ">: largest mean score\n" in found.summary()


def test_summary_of_another_score_has_no_accuracy():
    scorer = ClientScorer(average="worst")
    found = search(scoring=scorer).fit(X, Y, client_ids=IDS)
    header, *_ = found.summary().splitlines()
    assert header.split() == ["mean", "score", "+/-", "parameters"]
    assert "accuracy" not in found.summary()


def test_scores_that_all_fail_choose_as_plain_search_does():
    found = search(scoring="accuracy", error_score=np.nan, refit=False)
    with pytest.warns(UserWarning, match="(?s)Scoring failed|non-finite"):
        found.fit(X, Y, client_ids=IDS)
    assert found.best_index_ == 0
    assert np.isnan(found.best_score_)


# -------------------------------------------------------------------------- the ids


@pytest.mark.parametrize("scoring", [None, "accuracy"])
def test_ids_as_a_column_need_no_routing(scoring):
    cv = CellHoldoutKFold(4)
    column = FedCGSClassifier(aligner=FederatedOTAligner(), client_column="site")
    with sklearn.config_context(enable_metadata_routing=False):
        found = FederatedGridSearchCV(
            column,
            GRID,
            scoring=scoring,
            cv=clone(cv).set_params(client_column="site"),
            client_column="site",
        ).fit(FRAME, Y)
        predicted = found.predict(FRAME)
    scorer = ClientScorer(average="cell" if scoring is None else "pooled")
    routed = search(cv=cv, scoring=scorer).fit(X, Y, client_ids=IDS)
    assert found.tau_auto_ == pytest.approx(routed.tau_auto_, abs=1e-10)
    means = routed.cv_results_["mean_test_score"]
    assert found.cv_results_["mean_test_score"] == pytest.approx(means)
    assert found.best_index_ == routed.best_index_
    assert np.array_equal(predicted, routed.predict(X, client_ids=IDS))


def test_default_folds_read_the_column():
    column = FedCGSClassifier(aligner=FederatedOTAligner(), client_column="site")
    with sklearn.config_context(enable_metadata_routing=False):
        found = FederatedGridSearchCV(column, GRID, client_column="site").fit(FRAME, Y)
    assert found.n_splits_ == 10
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


def test_prior_counts_with_a_scorer_given_by_name():
    column = FedCGSClassifier(aligner=FederatedOTAligner(), client_column="site")
    cv = StratifiedClientKFold(2, client_column="site")
    found = FederatedGridSearchCV(
        column, GRID, scoring="accuracy", cv=cv, tau_prior=1e6
    ).fit(FRAME, Y)
    assert found.best_index_ == np.abs(np.array(TAUS) - found.tau_auto_).argmin()


def test_errors_are_raised():
    with pytest.raises(ValueError, match="ClientScorer"):
        search(scoring="accuracy").fit(X, Y, client_ids=IDS)


@pytest.mark.filterwarnings("ignore:No client_ids were passed")
def test_without_ids():
    with pytest.raises(ValueError, match="needs the client of each row"):
        search(cv=None).fit(X, Y)


@pytest.mark.parametrize("prior", [-1, "strong", None])
def test_wrong_prior(prior):
    with pytest.raises(ValueError, match="tau_prior"):
        search(tau_prior=prior).fit(X, Y, client_ids=IDS)


# ----------------------------------------------------------------------- what for


def test_better_than_plain_search_under_label_shift():
    data = load_digit_scanners()
    X, y, ids = data.data, data.target, data.client_ids
    cells = [f"{site} {label}" for site, label in zip(ids, y, strict=True)]
    gains = []
    for seed in range(3):
        train, test = train_test_split(
            np.arange(len(y)), test_size=0.5, stratify=cells, random_state=seed
        )
        kept = dirichlet_label_shift(y[train], ids[train], 0.1, random_state=seed)
        train = train[kept]
        grid = {"aligner__tau": [0.0, 0.4]}
        federated = FederatedGridSearchCV(model(), grid, cv=CellHoldoutKFold(6))
        plain = GridSearchCV(model(), grid, cv=StratifiedKFold(3), error_score="raise")
        federated.fit(X[train], y[train], client_ids=ids[train])
        plain.fit(X[train], y[train], client_ids=ids[train])
        assert plain.best_params_["aligner__tau"] == 0
        assert federated.best_tau_ > 0
        better, worse = (
            found.best_estimator_.score(X[test], y[test], client_ids=ids[test])
            for found in (federated, plain)
        )
        gains.append(better - worse)
    assert np.mean(gains) > 0.05


def test_memory_computes_the_alignment_once_per_fold_and_shrinkage(
    tmp_path, count_calls
):
    pipeline = make_pipeline(
        FederatedOTAligner(memory=str(tmp_path)), FedCGSClassifier()
    )
    grid = {
        "federatedotaligner__tau": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
        "federatedotaligner__shrinkage": [0.1, 0.5],
    }
    search = GridSearchCV(pipeline, grid, cv=FOLDS, error_score="raise")
    with count_calls("solve_reference") as called:
        search.fit(X, Y, client_ids=IDS)
    # folds times shrinkages, and the refit unless it moves nothing
    moves = search.best_params_["federatedotaligner__tau"] > 0
    assert len(called) == 2 * 2 + moves


class FailsAt(FedCGSClassifier):
    """Cannot predict with one of the strengths."""

    def predict(self, X, client_ids=None):
        if self.aligner.tau == 0.4:
            raise RuntimeError("no")
        return super().predict(X, client_ids)


@pytest.mark.parametrize("taus", [[0.0, 0.4], [0.4, 0.0]])
def test_a_candidate_that_cannot_be_scored_gets_the_error_score(taus):
    data = load_digit_scanners()
    X, y, ids = data.data[::4], data.target[::4], data.client_ids[::4]
    search = FederatedGridSearchCV(
        FailsAt(aligner=FederatedOTAligner()),
        {"aligner__tau": taus},
        error_score=np.nan,
        cv=2,
    )
    with (
        pytest.warns(UserWarning, match="scoring failed"),
        pytest.warns(UserWarning, match="test scores are non-finite"),
    ):
        search.fit(X, y, client_ids=ids)
    for name in ("score", "accuracy"):
        means = search.cv_results_[f"mean_test_{name}"]
        assert np.isnan(means).tolist() == [tau == 0.4 for tau in taus]
    assert search.best_params_ == {"aligner__tau": 0.0}


def test_accuracy_can_be_what_is_chosen_by():
    data = load_digit_scanners()
    X, y, ids = data.data[::4], data.target[::4], data.client_ids[::4]
    grid = {"aligner__tau": [0.0, 0.5, 1.0]}
    model = FedCGSClassifier(aligner=FederatedOTAligner())
    search = FederatedGridSearchCV(model, grid, refit="accuracy", cv=2, tau_prior=0)
    search.fit(X, y, client_ids=ids)
    means = search.cv_results_["mean_test_accuracy"]
    assert search.best_score_ == means.max() == means[search.best_index_]
