"""Ids of clients at prediction, as an argument and as a column."""

import warnings

import numpy as np
import polars as pl
import pytest
from one_shot_variants import (
    ALIGNED,
    ALL,
    EACH,
    FRAME,
    IDS,
    LINEAR,
    PLAIN,
    TEST,
    TRAIN,
    X,
    Y,
    assert_same,
    fitted,
    fitted_once,
    new,
    outputs,
    over,
    predict_aligned_rows,
)
from sklearn.utils import _safe_indexing

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier

# ------------------------------------------------------------------ ids at prediction


@over(PLAIN)
def test_ids_are_ignored_without_aligner(variant):
    classifier = fitted_once(variant)
    expected = outputs(classifier, client_ids=None)
    for ids in ("nobody", IDS[TEST], np.arange(len(TEST))):
        assert_same(outputs(classifier, client_ids=ids), expected)


@over(ALIGNED)
def test_ids_matter_with_aligner(variant):
    classifier = fitted_once(variant)
    wrong = outputs(classifier, client_ids=np.roll(IDS[TEST], 1))
    assert not np.allclose(wrong[1], outputs(classifier)[1], atol=0.01)


@over(ALIGNED)
def test_scalar_id_stands_for_all_rows(variant):
    classifier, rows = fitted_once(variant), TEST[IDS[TEST] == "Oslo"]
    actual = outputs(classifier, X[rows], "Oslo")
    assert_same(actual, outputs(classifier, X[rows], IDS[rows]))


@over(ALIGNED)
def test_missing_ids_raise_with_aligner(variant):
    classifier = fitted_once(variant)
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(
            ValueError, match="client_ids is missing.*3 clients were fitted"
        ):
            getattr(classifier, method)(X[TEST])
    with pytest.raises(ValueError, match="client_ids is missing"):
        classifier.score(X[TEST], Y[TEST])


@over(ALIGNED)
def test_unknown_client_raises(variant):
    classifier = fitted_once(variant)
    with pytest.raises(ValueError, match="client .*'Rome'.* was not seen in fit"):
        classifier.predict(X[TEST], client_ids="Rome")


@over(ALIGNED)
def test_unknown_client_is_left_where_it_is_on_request(variant):
    classifier = fitted(variant, aligner__unknown_client="identity")
    actual = classifier.predict(X[TEST], client_ids="Rome")
    assert np.array_equal(actual, predict_aligned_rows(classifier, X[TEST]))


@over(ALIGNED)
def test_unknown_client_is_adapted_on_request(variant):
    classifier = fitted(variant, aligner__unknown_client="adapt")
    actual = classifier.predict(X[TEST], client_ids="Rome")
    moved = classifier.aligner_.add_client(X[TEST], "Rome").transform(X[TEST], "Rome")
    assert np.array_equal(actual, predict_aligned_rows(classifier, moved))
    assert not np.allclose(moved, X[TEST], atol=0.1)


@over(ALIGNED)
def test_client_joins_with_a_frame_without_a_warning(variant):
    classifier = new(variant).fit(FRAME, Y, client_ids=IDS)
    classifier.add_client(FRAME.iloc[TEST], "Rome")
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.add_client(FRAME.iloc[TEST, ::-1], "Wien")


@over(ALIGNED)
def test_no_model_for_a_client_that_sent_no_message(variant):
    with pytest.raises(ValueError, match="client 'Rome' sent no message"):
        fitted_once(variant).client_model("Rome")


@over(LINEAR)
def test_model_of_a_client_predicts_without_ids(variant):
    classifier, rows = fitted_once(variant), TEST[IDS[TEST] == "Oslo"]
    own = classifier.client_model("Oslo")
    expected = classifier.predict_proba(X[rows], client_ids="Oslo")
    np.testing.assert_allclose(own.predict_proba(X[rows]), expected, atol=1e-9)
    assert np.array_equal(own.predict(X[rows]), classifier.predict(X[rows], "Oslo"))


# ------------------------------------------------------------------------- the column


@over(ALL)
def test_ids_as_a_column(variant):
    table = FRAME.assign(site=IDS)
    classifier = new(variant, client_column="site").fit(table.iloc[TRAIN], Y[TRAIN])
    actual = outputs(classifier, table.iloc[TEST], None)
    assert_same(actual, outputs(fitted_once(variant)))
    assert classifier.n_features_in_ == 6


@over(["cgs total", "cgs mixed effects"])  # tables are read before methods see them
@pytest.mark.parametrize(
    ("table", "column"),
    [
        (FRAME.assign(site=IDS)[["v", "site", "w", "x", "y", "z"]], "site"),
        (FRAME.assign(site=IDS), -1),
        (pl.DataFrame({**FRAME.to_dict("list"), "site": IDS.tolist()}), "site"),
        (np.column_stack([IDS.astype(object), X.astype(object)]), 0),
        (np.insert(X, 2, np.searchsorted(["Bern", "Oslo", "Turin"], IDS), axis=1), 2),
    ],
    ids=["pandas, second", "pandas, by position", "polars", "ndarray", "numbers"],
)
def test_ids_as_a_column_of_any_table(variant, table, column):
    train, test = (_safe_indexing(table, rows) for rows in (TRAIN, TEST))
    classifier = new(variant, client_column=column).fit(train, Y[TRAIN])
    assert_same(outputs(classifier, test, None), outputs(fitted_once(variant)))
    assert classifier.n_features_in_ == 6


@over(EACH)
def test_ids_both_as_column_and_argument_raise(variant):
    classifier = new(variant, client_column=0)
    with pytest.raises(ValueError, match="ids came both"):
        classifier.fit(X, Y, client_ids=IDS)


@over(EACH)
def test_ids_are_requested_by_default(variant):
    routing = new(variant).get_metadata_routing()
    methods = "fit predict predict_proba predict_log_proba decision_function score"
    for method in methods.split():
        assert getattr(routing, method).requests["client_ids"] is True


@pytest.mark.parametrize(
    ("classifier", "warns"),
    [
        (FedCGSClassifier(), False),
        (FedCGSClassifier(aligner=FederatedOTAligner()), True),
        (FedPFTClassifier(random_state=0), True),
    ],
)
def test_missing_ids_are_worth_a_warning_where_they_matter(classifier, warns):
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.tile([0, 1], 10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier.fit(X, y)
    assert any("No client_ids were passed" in str(w.message) for w in caught) == warns


def test_client_joins_an_aligned_classifier_later():
    rng = np.random.default_rng(0)
    X, y, ids = rng.normal(size=(60, 3)), np.tile([0, 1], 30), np.repeat(["A", "B"], 30)
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(unknown_client="adapt"))
    classifier.fit(X, y, client_ids=ids)
    new = rng.normal(5, 2, size=(40, 3))
    adapted = classifier.predict_proba(new, client_ids="C")
    before = classifier.predict_proba(X, client_ids=ids)
    classifier.add_client(new, "C")
    added = classifier.predict_proba(new, client_ids="C")
    np.testing.assert_allclose(added, adapted, rtol=1e-10)
    assert np.array_equal(classifier.predict_proba(X, client_ids=ids), before)
    model = classifier.client_model("C")
    assert np.array_equal(model.predict(new), classifier.predict(new, client_ids="C"))
    with pytest.raises(ValueError, match="'C' is known already"):
        classifier.add_client(new, "C")
    with pytest.raises(ValueError, match="nothing to add"):
        FedCGSClassifier().fit(X, y).add_client(new, "C")


def test_column_of_the_inner_aligner_is_refused():
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(client_column=2))
    with pytest.raises(ValueError, match="client_column is set on the aligner inside"):
        classifier.fit(np.zeros((4, 3)), [0, 1, 0, 1])
