"""TauPathDisplay: the scores are those that one gets by hand."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.inspection import TauPathDisplay
from skslot.metrics import client_scores
from skslot.model_selection import CellHoldoutKFold, FederatedGridSearchCV

TAUS = [0.0, 0.5, 1.0]


@pytest.fixture
def model():
    return FedCGSClassifier("within", aligner=FederatedOTAligner())


@pytest.fixture
def pipeline():
    steps = [("align", FederatedOTAligner()), ("classify", FedCGSClassifier("within"))]
    return Pipeline(steps)


def by_hand(model, digits, train, test):
    """Scores of clients on the test rows, for each tau."""
    X, y, ids = digits
    tables = []
    for tau in TAUS:
        model.set_params(aligner__tau=tau)
        model.fit(X[train], y[train], client_ids=ids[train])
        predicted = model.predict(X[test], client_ids=ids[test])
        tables.append(client_scores(y[test], predicted, ids[test]))
    return tables


def test_scores_are_those_by_hand(digits, partition, model):
    X, y, ids = digits
    display = TauPathDisplay.from_estimator(
        model, X, y, client_ids=ids, taus=TAUS[::-1], cv=iter([partition])
    )
    tables = by_hand(model, digits, *partition)
    assert display.taus == TAUS
    np.testing.assert_array_equal(display.scores, [t.scores for t in tables])
    np.testing.assert_allclose(display.mean, [t.mean for t in tables])
    np.testing.assert_array_equal(display.worst, [t.worst for t in tables])
    np.testing.assert_array_equal(display.clients, tables[0].clients)


def test_pipeline_gives_the_same_and_routing_stays_off(
    digits, partition, model, pipeline
):
    X, y, ids = digits
    options = {"client_ids": ids, "taus": TAUS, "cv": [partition]}
    display = TauPathDisplay.from_estimator(pipeline, X, y, **options)
    expected = TauPathDisplay.from_estimator(model, X, y, **options)
    np.testing.assert_allclose(display.scores, expected.scores, atol=0.01)
    assert not sklearn.get_config()["enable_metadata_routing"]


def test_folds_are_averaged_where_a_client_has_rows(digits, model):
    """A fold without rows of a client leaves its score as it is."""
    X, y, ids = digits
    fax, rows = np.flatnonzero(ids == "fax"), np.arange(len(y))
    folds = [(rows[::2], rows[1::2]), (rows[::2], np.setdiff1d(rows[1::2], fax))]
    display = TauPathDisplay.from_estimator(
        model, X, y, client_ids=ids, taus=TAUS, cv=folds
    )
    tables = by_hand(model, digits, *folds[0])
    np.testing.assert_allclose(display.scores, [t.scores for t in tables])


def test_client_that_no_fold_tests_is_named(digits, model):
    X, y, ids = digits
    folds = [(np.arange(len(y)), np.flatnonzero(ids != "fax"))]
    with pytest.raises(ValueError, match="no fold tests on rows of client 'fax'"):
        TauPathDisplay.from_estimator(model, X, y, client_ids=ids, cv=folds)


def test_ids_as_a_column(digits, partition, model):
    X, y, ids = digits
    names, codes = np.unique(ids, return_inverse=True)
    with_ids = np.column_stack([X, codes])
    aligner = FederatedOTAligner(client_column=-1)
    column_model = Pipeline(
        [("align", aligner), ("classify", LogisticRegression(max_iter=50, tol=1))]
    )
    options = {"taus": [0.4], "cv": [partition]}
    display = TauPathDisplay.from_estimator(column_model, with_ids, y, **options)
    routed = column_model.set_params(align__client_column=None)
    expected = TauPathDisplay.from_estimator(routed, X, y, client_ids=ids, **options)
    np.testing.assert_array_equal(display.scores, expected.scores)
    assert display.clients.tolist() == [0, 1, 2, 3]


def test_marks_and_labels(digits, partition, model):
    X, y, ids = digits
    model.set_params(aligner__tau=0.8)
    options = {"client_ids": ids, "taus": [0, 1], "cv": [partition]}
    display = TauPathDisplay.from_estimator(model, X, y, **options)
    assert display.chosen_tau == 0.8
    marks = [text.get_text() for text in display.ax_.texts]
    assert marks == ["default 0.4", "chosen 0.8"]
    assert display.ax_.get_xlabel().startswith("tau")
    assert display.ax_.get_ylabel() == "accuracy"
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert legend == [*display.clients, "mean", "worst"]


def test_automatic_strength_is_not_marked(digits, partition, model):
    X, y, ids = digits
    model.set_params(aligner__tau="auto")
    options = {"client_ids": ids, "taus": [0], "cv": [partition]}
    display = TauPathDisplay.from_estimator(model, X, y, **options)
    assert display.chosen_tau is None
    assert [text.get_text() for text in display.ax_.texts] == ["default 0.4"]


def test_many_clients_are_grey():
    clients = np.arange(9)
    display = TauPathDisplay([0.0, 1.0], np.ones((2, 9)), clients, 0.4).plot()
    assert display.ax_.get_legend().get_title().get_text() == "9 clients in grey"
    assert [text.get_text() for text in display.ax_.texts] == ["default and chosen 0.4"]


def test_plot_takes_axes_and_returns_the_display():
    figure, ax = plt.subplots()
    display = TauPathDisplay([0.0, 1.0], np.eye(2), np.array(["A", "B"]), None)
    assert display.plot(ax=ax) is display
    assert display.figure_ is figure


def test_search_is_drawn_with_its_folds_and_choice(training, pipeline):
    X, y, ids = training
    folds = CellHoldoutKFold(3)
    search = FederatedGridSearchCV(pipeline, {"align__tau": [0, 0.4, "auto"]}, cv=folds)
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, y, client_ids=ids)
    display = TauPathDisplay.from_search(search, X, y, client_ids=ids)
    assert display.taus == [0.0, 0.4]
    assert display.chosen_tau == search.best_tau_
    expected = TauPathDisplay.from_estimator(
        pipeline, X, y, client_ids=ids, taus=[0, 0.4], cv=folds
    )
    np.testing.assert_array_equal(display.scores, expected.scores)


def test_number_of_folds_of_a_search_is_read_as_the_search_does(training, pipeline):
    X, y, ids = training
    search = FederatedGridSearchCV(pipeline, {"align__tau": [0.4]}, cv=2)
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, y, client_ids=ids)
    display = TauPathDisplay.from_search(search, X, y, client_ids=ids)
    expected = TauPathDisplay.from_estimator(
        pipeline, X, y, client_ids=ids, taus=[0.4], cv=CellHoldoutKFold(2)
    )
    np.testing.assert_array_equal(display.scores, expected.scores)


def test_what_cannot_be_drawn_is_explained(training, model):
    X, y, ids = training
    with pytest.raises(ValueError, match="client_ids is missing"):
        TauPathDisplay.from_estimator(model, X, y)
    with pytest.raises(ValueError, match="no FederatedOTAligner among its parameters"):
        TauPathDisplay.from_estimator(FedCGSClassifier(), X, y, client_ids=ids)
    search = FederatedGridSearchCV(model, {"ridge": [0.1]}, cv=2)
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, y, client_ids=ids)
    with pytest.raises(ValueError, match="no tau in its grid"):
        TauPathDisplay.from_search(search, X, y, client_ids=ids)
