"""Labels, names and numbers at the edge: refused with a clear error, or right."""

import datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FedEnsembleClassifier,
    FederatedOTAligner,
    FederatedScaler,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.model_selection import CellHoldoutKFold, StratifiedClientKFold
from skslot.statistics import FeatureMoments, shrinkage_coefficient

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.standard_normal((60, 3)) * [1, 2, 5], columns=list("abc"))
Y = np.arange(60) % 2
IDS = np.repeat(["A", "B", "C"], 20)

LABELS = {
    "nanoseconds": (np.array(["2020", "2021"], "datetime64[ns]")[Y], "y has dates"),
    "days": (np.array(["2020", "2021"], "datetime64[D]")[Y], "y has dates"),
    "durations": (np.array([1, 2], "timedelta64[s]")[Y], "y has dates"),
    "pandas": (pd.Series(pd.to_datetime(["2020", "2021"])[Y]), "y has dates"),
    "zero at the end": ([["x", "x\0"][k] for k in Y], r"'x\\x00' in y ends in a zero"),
    "objects": (np.array(["x", "x\0"], object)[Y], r"'x\\x00' in y ends in a zero"),
    "None": (np.array(["x", None], object)[Y], r"y is missing \(None\) in row 1"),
    "list with None": ([["x", None][k] for k in Y], r"y is missing \(None\) in row 1"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_that_would_be_lost_are_refused_everywhere(kind):
    y, match = LABELS[kind]
    rows = X.to_numpy()
    auto = FederatedOTAligner("auto")
    known = MixedEffectsClassifier().fit(rows, Y, client_ids=IDS)
    for step in (
        lambda: FedCGSClassifier().fit(rows, y, client_ids=IDS),
        lambda: FedCGSClassifier().client_update(rows, y),
        lambda: auto.fit(rows, y, client_ids=IDS),
        lambda: auto.partial_fit(rows, y, client_ids=IDS),
        lambda: auto.client_update(rows, y),
        lambda: known.add_client(rows, "new", y),
    ):
        with pytest.raises(ValueError, match=match):
            step()


def test_classes_that_would_be_lost_are_refused():
    with pytest.raises(ValueError, match="in classes ends in a zero character"):
        FedCGSClassifier().client_update(X, ["x"] * 60, classes=["x", "x\0"])


# ------------------------------------------------------------- clients that join

ESTIMATORS = {
    "FedCGS": lambda **p: FedCGSClassifier(aligner=FederatedOTAligner(), **p),
    "mixed effects": MixedEffectsClassifier,
    "aligner": FederatedOTAligner,
    "mixed aligner": MixedEffectsAligner,
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("client_column", [None, "site"])
@pytest.mark.filterwarnings("ignore:.*rows")
def test_client_that_joins_has_the_columns_of_fit(name, client_column):
    estimator = ESTIMATORS[name](client_column=client_column)
    if client_column is None:
        estimator.fit(X, Y, client_ids=IDS)
    else:
        estimator.fit(X.assign(site=IDS)[["a", "site", "b", "c"]], Y)
    for wrong in (X[["b", "a", "c"]], X.rename(columns={"a": "z"})):
        with pytest.raises(ValueError, match="feature names should match"):
            estimator.add_client(wrong, "new")
    with pytest.raises(ValueError, match="2 features|feature names should match"):
        estimator.add_client(X[["a", "b"]], "new")
    if hasattr(estimator, "adapt_client"):
        with pytest.raises(ValueError, match="feature names should match"):
            estimator.adapt_client(X[["b", "a", "c"]], "A")
    estimator.add_client(X, "new")


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("client", [None, np.nan, pd.NA, np.datetime64("NaT")], ids=str)
def test_client_that_joins_has_a_name(name, client):
    estimator = ESTIMATORS[name]().fit(X, Y, client_ids=IDS)
    with pytest.raises(ValueError, match="client is missing"):
        estimator.add_client(X, client)


def test_structured_ids_are_refused_with_a_remedy():
    ids = np.zeros(60, dtype=[("country", "U2"), ("site", int)])
    ids["site"] = np.arange(60) // 20
    with pytest.raises(ValueError, match="structured array.*list of tuples"):
        FederatedOTAligner().fit(X, client_ids=ids)
    assert len(FederatedOTAligner().fit(X, client_ids=ids.tolist()).clients_) == 3


def test_dates_as_ids_still_work():
    ids = [datetime.date(2020, 1, 1 + row // 20) for row in range(60)]
    assert len(FederatedOTAligner().fit(X, client_ids=ids).clients_) == 3


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize("scale", [1e-40, 1e-85, 1e-120])
def test_shrinkage_does_not_depend_on_the_unit(scale):
    rows = X.to_numpy()
    expected = FeatureMoments.from_rows(rows)
    moments = FeatureMoments.from_rows(scale * rows)
    parts = sum(FeatureMoments.from_rows(scale * part) for part in np.split(rows, 20))
    for shrinkage in ("ledoit_wolf", "oas"):
        coefficient = expected.covariance(shrinkage)[1]
        assert 0 < coefficient < 1
        for each in (moments, parts):
            assert each.covariance(shrinkage)[1] == pytest.approx(coefficient, rel=1e-9)
    sample = moments.sample_covariance()
    coefficient = expected.covariance("oas")[1]
    assert shrinkage_coefficient("oas", sample, 60) == pytest.approx(coefficient)


def test_tiny_rows_merge_with_ordinary_ones():
    rows = np.vstack([1e-85 * X[:30], X[30:], np.zeros((5, 3))])
    moments = FeatureMoments.from_rows(1e-85 * X[:30].to_numpy())
    moments = moments + FeatureMoments.from_rows(np.zeros((5, 3)))
    moments = moments + FeatureMoments.from_rows(X[30:].to_numpy())
    expected = FeatureMoments.from_rows(rows).covariance()[1]
    assert moments.covariance()[1] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [1e90, 1e200])
def test_rows_that_cannot_be_merged_leave_everything_as_it_was(size):
    rows = X.to_numpy()
    aligner = FederatedOTAligner().partial_fit(rows, client_ids=IDS)
    before = aligner.transform(rows, client_ids=IDS)
    with pytest.raises(ValueError, match="too far apart .*; no row was added"):
        aligner.partial_fit(np.full((5, 3), size), client_ids="A")
    np.testing.assert_array_equal(aligner.transform(rows, client_ids=IDS), before)
    aligner.partial_fit(rows, client_ids=IDS).transform(rows, client_ids=IDS)


@pytest.mark.parametrize("scale", [1e-40, 1e200])
def test_ensembles_do_not_depend_on_the_unit(scale):
    rows = X.to_numpy() + Y[:, None]
    classifier = FedEnsembleClassifier()
    expected = classifier.fit(rows, Y, client_ids=IDS).predict(rows)
    found = classifier.fit(scale * rows, Y, client_ids=IDS).predict(scale * rows)
    assert len(set(expected)) == 2
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("splitter", [StratifiedClientKFold, CellHoldoutKFold])
def test_folds_are_never_empty(splitter):
    ids = np.r_[np.zeros(3), np.arange(1, 10)]
    with pytest.raises(ValueError, match="only 3 of 12 are of clients with more than"):
        list(splitter(5).split(ids, Y[:12], client_ids=ids))
    folds = list(StratifiedClientKFold(3).split(ids, Y[:12], client_ids=ids))
    assert all(len(test) for _, test in folds)


@pytest.mark.parametrize(
    "estimator",
    [
        FederatedOTAligner(),
        MixedEffectsAligner(),
        FederatedScaler(),
        FedCGSClassifier(),
        FedAvgClassifier(standardize=False, random_state=0),
    ],
    ids=str,
)
def test_messages_have_no_names_of_columns(estimator):
    if isinstance(estimator, FedAvgClassifier):
        pytest.importorskip("skorch")
    estimator.fit(X, Y, client_ids=IDS)
    assert estimator.feature_names_in_.tolist() == ["a", "b", "c"]
    rows = X.to_numpy()[:, :2]
    messages = [
        clone(estimator).client_update(
            rows[IDS == c], Y[IDS == c], classes=[0, 1], client=c
        )
        for c in "ABC"
    ]
    is_classifier = hasattr(estimator, "predict")
    estimator.server_aggregate(messages)
    assert not hasattr(estimator, "feature_names_in_")
    use = estimator.predict if is_classifier else estimator.transform
    assert len(use(rows, client_ids=IDS)) == len(rows)


@pytest.mark.parametrize("column", [1, -3, "site"])
def test_names_out_after_messages_lack_the_column_of_ids(column):
    rows, names = X.to_numpy(), ["a", "site", "b", "c"]
    aligner = FederatedOTAligner(client_column=column)
    messages = [FederatedOTAligner().client_update(rows[:30], client="A")]
    aligner.server_aggregate(messages)
    assert aligner.get_feature_names_out(names).tolist() == ["a", "b", "c"]
    if column == "site":
        with pytest.raises(ValueError, match="pass input_features, with 'site'"):
            aligner.get_feature_names_out()
    else:
        assert aligner.get_feature_names_out().tolist() == ["x0", "x2", "x3"]


# ------------------------------------------------------------- columns of text


@pytest.mark.parametrize("kind", ["object", "category", "string", "array"])
@pytest.mark.parametrize(
    "estimator",
    [
        FedCGSClassifier(),
        FedCGSClassifier(aligner=FederatedOTAligner()),
        MixedEffectsClassifier(),
        FederatedOTAligner(),
        MixedEffectsAligner(),
        FederatedScaler(),
    ],
    ids=str,
)
def test_forgotten_client_column_is_named(estimator, kind):
    table = X.assign(b=X["b"].astype(str).astype(object), site=IDS)  # numbers as text
    if kind == "array":
        table, column = table.to_numpy(), 3
    else:
        table["site"], column = table["site"].astype(kind), "site"
    match = rf"column {column!r} of X has text, 'A'.*set client_column={column!r}"
    with pytest.raises(ValueError, match=match):
        clone(estimator).fit(table, Y)
    with pytest.raises(ValueError, match=match):
        clone(estimator).client_update(table, Y, client="A")


def test_other_text_than_that_of_clients_is_named():
    table = X.assign(site=IDS, sex=np.array(["f", "m"])[Y])
    scaler = FederatedScaler(client_column="site")
    with pytest.raises(ValueError, match="'sex' of X has text, 'f'") as caught:
        scaler.fit(table)
    assert "client_column" not in str(caught.value)
    scaler.fit(table.drop(columns="sex"))
    with pytest.raises(ValueError, match="'a' of X has text, 'low'"):
        scaler.transform(X.assign(site=IDS, a="low")[["a", "b", "c", "site"]])
