"""Client scorers against computations by hand, and in scikit-learn's searches."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, make_scorer, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.datasets import make_shifted_clients
from skslot.metrics import ClientScorer

shifted = make_shifted_clients(
    240, n_clients=3, n_classes=3, n_features=4, domain_shift=2, random_state=0
)
# uneven, so that averages differ
KEPT = (shifted.client_ids > 0) | (shifted.target > 0) | (np.arange(240) % 3 == 0)
X, Y, IDS = shifted.data[KEPT], shifted.target[KEPT], shifted.client_ids[KEPT]
FRAME = pd.DataFrame(X, columns=list("abcd")).assign(site=IDS)
CV = StratifiedKFold(2)
GRID = {"federatedotaligner__tau": [0.0, 1.0]}
AVERAGES = ["client", "cell", "worst", "pooled"]


@pytest.fixture
def pipeline(routing):
    return make_pipeline(FederatedOTAligner(), LogisticRegression())


@pytest.fixture
def fitted(pipeline):
    return pipeline.fit(X[::2], Y[::2], client_ids=IDS[::2])


def average_by_hand(correct, average):
    clients = [correct[client == IDS].mean() for client in np.unique(IDS)]
    cells = [
        correct[(client == IDS) & (label == Y)].mean()
        for client in np.unique(IDS)
        for label in np.unique(Y)
    ]
    return {
        "client": np.mean(clients),
        "cell": np.mean(cells),
        "worst": min(clients),
        "pooled": correct.mean(),
    }[average]


class Marks(ClassifierMixin, BaseEstimator):
    """Predicts 0, 1, 0, 1, ... and counts how often it is asked."""

    def __init__(self):
        self.classes_, self.calls, self.ids = np.unique(Y), [], None

    def _answer(self, method, X):
        self.calls.append(method)
        return np.eye(3)[np.arange(len(X)) % 2] * 0.8 + 0.2 / 3

    def predict(self, X, client_ids=None):
        self.ids = client_ids
        return self.classes_[self._answer("predict", X).argmax(axis=1)]

    def predict_proba(self, X, client_ids=None):
        return self._answer("predict_proba", X)


@pytest.mark.parametrize("average", AVERAGES)
def test_averages(fitted, average):
    correct = fitted.predict(X, client_ids=IDS) == Y
    score = ClientScorer("accuracy", average)(fitted, X, Y, client_ids=IDS)
    assert score == pytest.approx(average_by_hand(correct, average), abs=1e-12)


def test_averages_differ_on_uneven_clients(fitted):
    scores = {ClientScorer(average=a)(fitted, X, Y, client_ids=IDS) for a in AVERAGES}
    assert len(scores) == len(AVERAGES)


@pytest.mark.parametrize(
    "metric",
    [
        "accuracy",
        accuracy_score,
        make_scorer(accuracy_score),
        lambda y_true, y_pred: np.mean(y_true == y_pred),
    ],
)
def test_metric_in_every_form(fitted, metric):
    correct = fitted.predict(X, client_ids=IDS) == Y
    score = ClientScorer(metric, "worst")(fitted, X, Y, client_ids=IDS)
    assert score == pytest.approx(average_by_hand(correct, "worst"))


@pytest.mark.parametrize(
    ("metric", "by_hand"),
    [
        ("neg_log_loss", lambda y, p: -log_loss(y, p)),
        ("roc_auc_ovr", lambda y, p: roc_auc_score(y, p, multi_class="ovr")),
    ],
)
@pytest.mark.parametrize("average", ["pooled", "client"])
def test_metrics_of_probabilities(fitted, metric, by_hand, average):
    proba = fitted.predict_proba(X, client_ids=IDS)
    groups = (
        [slice(None)] if average == "pooled" else [c == IDS for c in np.unique(IDS)]
    )
    expected = np.mean([by_hand(Y[rows], proba[rows]) for rows in groups])
    score = ClientScorer(metric, average)(fitted, X, Y, client_ids=IDS)
    assert score == pytest.approx(expected)


def test_metric_of_decisions():
    two = Y < 2
    model = FedCGSClassifier(aligner=FederatedOTAligner())
    model.fit(X[two], Y[two], client_ids=IDS[two])
    expected = roc_auc_score(
        Y[two], model.decision_function(X[two], client_ids=IDS[two])
    )
    scorer = ClientScorer("roc_auc", "pooled")
    assert scorer(model, X[two], Y[two], client_ids=IDS[two]) == pytest.approx(expected)


def test_metric_that_cannot_score_a_cell_says_which(fitted):
    scorer = ClientScorer("neg_log_loss", "cell")
    with pytest.raises(
        ValueError, match="cannot score the rows of class 0 of client 0"
    ):
        scorer(fitted, X, Y, client_ids=IDS)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize(
    ("metric", "method"), [("accuracy", "predict"), ("neg_log_loss", "predict_proba")]
)
def test_the_estimator_is_asked_once(average, metric, method):
    if (metric, average) == ("neg_log_loss", "cell"):
        metric = make_scorer(
            lambda y, p: -p[:, 0].mean(), response_method="predict_proba"
        )
    model = Marks()
    ClientScorer(metric, average)(model, X, Y, client_ids=IDS)
    assert model.calls == [method]


def test_ids_arrive_whole_and_in_order():
    model = Marks()
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_predict_request(client_ids=True)
        ClientScorer()(model, X, Y, client_ids=IDS)
    assert model.ids is IDS


@pytest.mark.parametrize("average", AVERAGES)
def test_grid_search_equals_folds_by_hand(pipeline, average):
    scorer = ClientScorer(average=average)
    search = GridSearchCV(pipeline, GRID, scoring=scorer, cv=CV, error_score="raise")
    search.fit(X, Y, client_ids=IDS)
    for fold, (train, test) in enumerate(CV.split(X, Y)):
        for candidate, params in enumerate(search.cv_results_["params"]):
            model = clone(pipeline).set_params(**params)
            model.fit(X[train], Y[train], client_ids=IDS[train])
            by_hand = scorer(model, X[test], Y[test], client_ids=IDS[test])
            found = search.cv_results_[f"split{fold}_test_score"][candidate]
            assert found == pytest.approx(by_hand, abs=1e-12)


def test_multimetric_search(pipeline):
    scoring = {average: ClientScorer(average=average) for average in AVERAGES}
    search = GridSearchCV(
        pipeline, GRID, scoring=scoring, refit="worst", cv=CV, error_score="raise"
    ).fit(X, Y, client_ids=IDS)
    for average, scorer in scoring.items():
        alone = GridSearchCV(pipeline, GRID, scoring=scorer, cv=CV, error_score="raise")
        expected = alone.fit(X, Y, client_ids=IDS).cv_results_["mean_test_score"]
        assert search.cv_results_[f"mean_test_{average}"] == pytest.approx(expected)
    assert search.best_index_ == search.cv_results_["mean_test_worst"].argmax()


def test_score_of_a_fitted_search(pipeline):
    scorer = ClientScorer(average="worst")
    search = GridSearchCV(pipeline, GRID, scoring=scorer, cv=CV, error_score="raise")
    search.fit(X, Y, client_ids=IDS)
    expected = scorer(search.best_estimator_, X, Y, client_ids=IDS)
    assert search.score(X, Y, client_ids=IDS) == expected


@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_cross_validate(pipeline, n_jobs):
    found = cross_validate(
        pipeline,
        X,
        Y,
        params={"client_ids": IDS},
        scoring={"worst": ClientScorer(average="worst")},
        cv=CV,
        n_jobs=n_jobs,
        error_score="raise",
    )["test_worst"]
    expected = []
    for train, test in CV.split(X, Y):
        model = clone(pipeline).fit(X[train], Y[train], client_ids=IDS[train])
        correct = model.predict(X[test], client_ids=IDS[test]) == Y[test]
        expected.append(min(correct[IDS[test] == c].mean() for c in np.unique(IDS)))
    assert found == pytest.approx(expected)


def test_halving_grid_search(pipeline):
    search = HalvingGridSearchCV(
        pipeline,
        GRID,
        scoring=ClientScorer(average="cell"),
        cv=CV,
        factor=2,
        min_resources=120,
        random_state=0,
        error_score="raise",
    ).fit(X, Y, client_ids=IDS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_score_ > 0.5


def test_nested_search(pipeline):
    inner = GridSearchCV(
        pipeline, GRID, scoring=ClientScorer(), cv=CV, error_score="raise"
    )
    found = cross_validate(
        inner,
        X,
        Y,
        params={"client_ids": IDS},
        scoring=ClientScorer(average="cell"),
        cv=CV,
        return_estimator=True,
        error_score="raise",
    )
    folds = zip(CV.split(X, Y), found["estimator"], strict=True)
    expected = [
        ClientScorer(average="cell")(
            search.best_estimator_, X[test], Y[test], client_ids=IDS[test]
        )
        for (_, test), search in folds
    ]
    assert found["test_score"] == pytest.approx(expected)


def test_estimator_with_an_aligner_of_its_own(routing):
    scores = cross_val_score(
        FedCGSClassifier(aligner=FederatedOTAligner()),
        X,
        Y,
        params={"client_ids": IDS},
        scoring=ClientScorer(),
        cv=CV,
        error_score="raise",
    )
    assert scores.min() > 0.5


def test_estimator_that_takes_no_ids(routing):
    plain = make_pipeline(StandardScaler(), LogisticRegression())
    scores = cross_val_score(
        plain,
        X,
        Y,
        params={"client_ids": IDS},
        scoring=ClientScorer(average="worst"),
        cv=CV,
        error_score="raise",
    )
    train, test = next(CV.split(X, Y))
    correct = clone(plain).fit(X[train], Y[train]).predict(X[test]) == Y[test]
    by_hand = min(correct[IDS[test] == client].mean() for client in np.unique(IDS))
    assert scores[0] == pytest.approx(by_hand)


@pytest.mark.parametrize("average", AVERAGES)
def test_column_route_equals_routing(pipeline, average):
    routed = cross_val_score(
        pipeline,
        X,
        Y,
        params={"client_ids": IDS},
        scoring=ClientScorer(average=average),
        cv=CV,
        error_score="raise",
    )
    with sklearn.config_context(enable_metadata_routing=False):
        columns = cross_val_score(
            make_pipeline(
                FederatedOTAligner(client_column="site"), LogisticRegression()
            ),
            FRAME,
            Y,
            scoring=ClientScorer(average=average, client_column="site"),
            cv=CV,
            error_score="raise",
        )
    assert columns == pytest.approx(routed, abs=1e-12)


def test_multimetric_search_with_ids_as_a_column():
    scoring = {
        "worst": ClientScorer(average="worst", client_column="site"),
        "plain": "accuracy",
    }
    search = GridSearchCV(
        make_pipeline(FederatedOTAligner(client_column="site"), LogisticRegression()),
        GRID,
        scoring=scoring,
        refit="worst",
        cv=CV,
        error_score="raise",
    ).fit(FRAME, Y)
    worst, plain = (search.cv_results_[f"mean_test_{name}"] for name in scoring)
    assert (worst < plain).all()


@pytest.mark.parametrize("average", AVERAGES)
def test_without_ids_nothing_is_scored(fitted, average):
    with pytest.raises(ValueError, match=r"no client_ids.*ClientScorer"):
        ClientScorer(average=average)(fitted, X, Y)


def test_both_routes_at_once(fitted):
    with pytest.raises(ValueError, match="use one of the two"):
        ClientScorer(client_column="site")(fitted, FRAME, Y, client_ids=IDS)


def test_wrong_number_of_ids(fitted):
    with pytest.raises(ValueError, match="client_ids has .* entries"):
        ClientScorer()(fitted, X, Y, client_ids=IDS[1:])


def test_aligner_without_routing_is_an_error_and_not_a_score(fitted):
    scorer = ClientScorer()
    with (
        sklearn.config_context(enable_metadata_routing=False),
        pytest.raises(ValueError, match="client_ids"),
    ):
        scorer(fitted, X, Y, client_ids=IDS)


@pytest.mark.parametrize(
    "params", [{"average": "median"}, {"client_column": 1.5}, {"metric": 3}]
)
def test_wrong_parameters(fitted, params):
    with pytest.raises(ValueError, match=next(iter(params))):
        ClientScorer(**params)(fitted, X, Y, client_ids=IDS)


@pytest.mark.parametrize("copy", [clone, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_score_the_same(fitted, copy):
    scorer = ClientScorer("f1_macro", "worst")
    again = copy(scorer)
    assert isinstance(again, ClientScorer)
    assert again(fitted, X, Y, client_ids=IDS) == scorer(fitted, X, Y, client_ids=IDS)


def test_repr_says_what_is_not_default():
    assert repr(ClientScorer(average="worst")) == "ClientScorer(average='worst')"


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [([0, 1, 2], int), (list("abc"), str), (list("abc"), object), ([0, 1, 2], float)],
)
def test_accuracy_by_name_is_that_of_scikit_learn(labels, dtype):
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(120, 2)), np.arange(120) % 4
    y = np.array(labels, dtype=dtype)[rng.integers(3, size=120)]
    classifier = DummyClassifier(strategy="stratified", random_state=0).fit(X, y)
    for average in AVERAGES:
        named, given = (
            ClientScorer(metric, average=average)(classifier, X, y, ids)
            for metric in ("accuracy", accuracy_score)
        )
        assert named == given
