"""Folds by client and by (client, class) cell."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.datasets import make_shifted_clients
from skslot.metrics import ClientScorer
from skslot.model_selection import (
    CellHoldoutKFold,
    LeaveOneClientOut,
    StratifiedClientKFold,
)

SPLITTERS = [StratifiedClientKFold(3), CellHoldoutKFold(4), LeaveOneClientOut()]
FULL = [[12, 15, 9], [10, 11, 13], [20, 7, 8]]
# (0, 2) and (1, 0) are absent: u = 2 / 9
SKEWED = [[12, 15, 0], [0, 21, 13], [20, 7, 8]]

tables = st.lists(
    st.lists(st.integers(0, 14), min_size=3, max_size=3), min_size=2, max_size=4
).filter(lambda table: sum(map(sum, table)) >= 12 and all(map(sum, table)))


def rows_of(table):
    """Labels and ids of the rows of a table, in no order."""
    table = np.asarray(table)
    clients, labels = np.indices(table.shape)
    order = np.random.default_rng(0).permutation(table.sum())
    y = np.repeat(labels.ravel(), table.ravel())[order]
    return y, np.repeat(clients.ravel(), table.ravel())[order]


def counts_of(rows, y, ids, shape):
    counts = np.zeros(shape, dtype=int)
    np.add.at(counts, (ids[rows], y[rows]), 1)
    return counts


def split(cv, table):
    y, ids = rows_of(table)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only .* folds can hold out")
        folds = list(cv.split(y, y, client_ids=ids))
    shape = np.shape(table)
    return [tuple(counts_of(rows, y, ids, shape) for rows in fold) for fold in folds]


def held_out(folds, table):
    """Masks of the cells that are wholly in the test rows, of folds that are such."""
    n_held = [test for _, test in folds if ((test == 0) | (test == table)).all()]
    return [test > 0 for test in n_held]


def same_folds(first, second):
    pairs = zip(first, second, strict=True)
    return all(
        np.array_equal(a, b)
        for one, other in pairs
        for a, b in zip(one, other, strict=True)
    )


# ------------------------------------------------------------ StratifiedClientKFold


@given(table=tables, n_splits=st.integers(2, 6), shuffle=st.booleans())
@settings(max_examples=50, deadline=None)
def test_stratified_folds_share_each_cell_evenly(table, n_splits, shuffle):
    cv = StratifiedClientKFold(
        n_splits, shuffle=shuffle, random_state=0 if shuffle else None
    )
    tests = np.array([test for _, test in split(cv, table)])
    assert np.ptp(tests, axis=0).max() <= 1
    assert np.ptp(tests.sum(axis=(1, 2))) <= 1


@given(table=tables, n_splits=st.integers(2, 6))
@example(table=[[0, 0, 1], [0, 0, 11]], n_splits=2)
@settings(max_examples=50, deadline=None)
def test_stratified_folds_are_a_partition(table, n_splits):
    """Of all rows, but for those of clients that have no other to be trained on."""
    y, ids = rows_of(table)
    folds = list(StratifiedClientKFold(n_splits).split(y, y, client_ids=ids))
    together = np.concatenate([test for _, test in folds])
    _, client, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    assert np.array_equal(np.sort(together), np.flatnonzero(sizes[client] > 1))
    for train, test in folds:
        assert np.array_equal(np.sort(np.append(train, test)), np.arange(len(y)))


def test_cell_with_fewer_rows_than_folds_is_in_some_of_them():
    tests = [
        test[0, 0] for _, test in split(StratifiedClientKFold(5), [[2, 9], [8, 9]])
    ]
    assert sorted(tests) == [0, 0, 0, 1, 1]


def test_more_folds_than_rows():
    with pytest.raises(ValueError, match="n_splits=5 is more than the 4 rows"):
        list(
            StratifiedClientKFold(5).split(np.zeros(4), [0, 0, 1, 1], client_ids="AABB")
        )


@pytest.mark.parametrize("kind", [StratifiedClientKFold, CellHoldoutKFold])
def test_shuffled_folds_are_reproducible(kind):
    y, ids = rows_of(SKEWED)
    first, again, other, plain = (
        list(cv.split(y, y, client_ids=ids))
        for cv in (
            kind(4, shuffle=True, random_state=0),
            kind(4, shuffle=True, random_state=0),
            kind(4, shuffle=True, random_state=1),
            kind(4),
        )
    )
    assert same_folds(first, again)
    assert not same_folds(first, other)
    assert not same_folds(first, plain)


def test_stratified_folds_without_labels_are_stratified_by_client():
    ids = np.repeat(["A", "B"], [8, 4])
    for _, test in StratifiedClientKFold(4).split(ids, client_ids=ids):
        assert ids[test].tolist() == ["A", "A", "B"]


# ---------------------------------------------------------------- LeaveOneClientOut


def test_each_client_is_left_out_once():
    y, ids = rows_of(SKEWED)
    folds = list(LeaveOneClientOut().split(y, y, client_ids=ids))
    assert [set(ids[test]) for _, test in folds] == [{0}, {1}, {2}]
    for client, (train, test) in enumerate(folds):
        assert np.array_equal(test, np.flatnonzero(ids == client))
        assert np.array_equal(train, np.flatnonzero(ids != client))


def test_one_client_cannot_be_left_out():
    with pytest.raises(ValueError, match="at least two clients"):
        list(LeaveOneClientOut().split([1, 2], client_ids=["A", "A"]))


def test_unseen_site_is_scored_by_an_adapting_aligner():
    data = make_shifted_clients(150, n_clients=3, n_features=4, random_state=0)
    aligner = FederatedOTAligner(unknown_client="adapt")
    with sklearn.config_context(enable_metadata_routing=True):
        scores = cross_val_score(
            FedCGSClassifier(aligner=aligner),
            data.data,
            data.target,
            params={"client_ids": data.client_ids},
            cv=LeaveOneClientOut(),
            error_score="raise",
        )
    assert len(scores) == 3
    assert np.isfinite(scores).all()


# ----------------------------------------------------------------- CellHoldoutKFold


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("table", "unseen"), [(FULL, "auto"), (SKEWED, 0), (SKEWED, 0.0)]
)
def test_without_cells_to_hold_out_it_is_stratified(table, unseen, shuffle):
    y, ids = rows_of(table)
    how = {"shuffle": shuffle, "random_state": 0 if shuffle else None}
    found = CellHoldoutKFold(5, unseen=unseen, **how).split(y, y, client_ids=ids)
    plain = StratifiedClientKFold(5, **how).split(y, y, client_ids=ids)
    assert same_folds(list(found), list(plain))


@pytest.mark.parametrize(
    ("n_splits", "unseen", "n_held"),
    [
        (9, "auto", 2),
        (5, "auto", 1),
        (10, "auto", 2),
        (4, 0.5, 2),
        (4, 1, 4),
        (4, 1.0, 4),
    ],
)
def test_number_of_folds_that_hold_out_cells(n_splits, unseen, n_held):
    cv = CellHoldoutKFold(n_splits, unseen=unseen, min_client=5)
    folds = split(cv, SKEWED)
    assert len(folds) == n_splits
    assert len(held_out(folds, np.array(SKEWED))) == n_held


def test_folds_that_hold_out_cells_train_on_none_of_their_rows():
    table = np.array(SKEWED)
    for train, test in split(CellHoldoutKFold(4, unseen=1, min_client=5), table):
        assert np.array_equal(train[test > 0], np.zeros((test > 0).sum()))
        assert np.array_equal(train[test == 0], table[test == 0])


def test_ordinary_folds_are_those_of_stratified_ones():
    y, ids = rows_of(SKEWED)
    found = list(CellHoldoutKFold(9).split(y, y, client_ids=ids))
    plain = list(StratifiedClientKFold(9).split(y, y, client_ids=ids))
    assert same_folds(found[:7], plain[:7])


@given(
    table=tables,
    n_splits=st.integers(2, 6),
    min_cell=st.integers(1, 6),
    min_client=st.integers(1, 15),
    seed=st.one_of(st.none(), st.integers(0, 9)),
)
@settings(max_examples=150, deadline=None)
def test_what_a_held_out_cell_leaves_behind(
    table, n_splits, min_cell, min_client, seed
):
    table = np.array(table)
    cv = CellHoldoutKFold(
        n_splits,
        unseen=1,
        min_cell=min_cell,
        min_client=min_client,
        shuffle=seed is not None,
        random_state=seed,
    )
    y, ids = rows_of(table)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folds = list(cv.split(y, y, client_ids=ids))
    n_held = n_splits
    for warning in caught:
        n_held = int(str(warning.message).split()[1])
    assert len(folds) == n_splits
    for train, test in folds[n_splits - n_held :]:
        kept = counts_of(train, y, ids, table.shape)
        held = counts_of(test, y, ids, table.shape)
        assert ((held == 0) | (kept == 0)).all()  # whole cells
        assert held.sum() > 0
        assert (held > 0).sum(axis=1).max() == 1  # one of a client
        clients, labels = np.nonzero(held)
        assert (kept.max(axis=0)[labels] >= min_cell).all()
        assert (kept.sum(axis=1)[clients] >= min_client).all()


@given(table=tables, seed=st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_no_cell_is_held_out_twice(table, seed):
    table = np.array(table)
    cv = CellHoldoutKFold(
        4, unseen=1, min_cell=1, min_client=1, shuffle=True, random_state=seed
    )
    y, ids = rows_of(table)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folds = list(cv.split(y, y, client_ids=ids))
    n_held = int(str(caught[0].message).split()[1]) if caught else 4
    held = [counts_of(test, y, ids, table.shape) > 0 for _, test in folds[4 - n_held :]]
    assert np.sum(held, axis=0).max(initial=0) <= 1


def test_warning_when_cells_cannot_be_held_out():
    y, ids = rows_of([[20, 0], [0, 20]])
    with pytest.warns(UserWarning, match="only 0 of 2 folds can hold out cells"):
        folds = list(CellHoldoutKFold(4).split(y, y, client_ids=ids))
    plain = StratifiedClientKFold(4).split(y, y, client_ids=ids)
    assert same_folds(folds, list(plain))


def test_no_warning_when_cells_can_be_held_out():
    y, ids = rows_of(SKEWED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(CellHoldoutKFold(9).split(y, y, client_ids=ids))


@pytest.mark.parametrize(
    "params",
    [
        {"unseen": 1.5},
        {"unseen": -0.1},
        {"unseen": "some"},
        {"n_splits": 1},
        {"min_cell": 0},
        {"min_client": 0},
        {"shuffle": "yes"},
    ],
)
def test_wrong_parameters(params):
    y, ids = rows_of(SKEWED)
    with pytest.raises(ValueError, match=next(iter(params))):
        list(CellHoldoutKFold(**params).split(y, y, client_ids=ids))


# ------------------------------------------------------------------------ all of them


@pytest.mark.parametrize("cv", SPLITTERS, ids=lambda cv: type(cv).__name__)
def test_three_routes_of_ids_are_the_same(cv):
    y, ids = rows_of(SKEWED)
    frame = pd.DataFrame({"x": np.zeros(len(y)), "site": ids})
    column = clone(cv).set_params(client_column="site")
    position = clone(cv).set_params(client_column=-1)
    by_ids = list(cv.split(frame, y, client_ids=ids))
    assert same_folds(by_ids, list(cv.split(frame, y, groups=ids)))
    assert same_folds(by_ids, list(cv.split(frame, y, ids)))
    assert same_folds(by_ids, list(column.split(frame, y)))
    assert same_folds(by_ids, list(position.split(frame.to_numpy(), y)))


@pytest.mark.parametrize("cv", SPLITTERS, ids=lambda cv: type(cv).__name__)
@pytest.mark.parametrize(
    ("column", "routes", "n_routes"),
    [
        (None, [], 0),
        (None, ["client_ids", "groups"], 2),
        ("site", ["client_ids"], 2),
        ("site", ["groups"], 2),
        ("site", ["groups", "client_ids"], 3),
    ],
)
def test_exactly_one_route_of_ids(cv, column, routes, n_routes):
    y, ids = rows_of(SKEWED)
    frame = pd.DataFrame({"x": np.zeros(len(y)), "site": ids})
    cv = clone(cv).set_params(client_column=column)
    with pytest.raises(ValueError, match=f"by one route.*Got {n_routes} of them"):
        list(cv.split(frame, y, **dict.fromkeys(routes, ids)))


@pytest.mark.parametrize("cv", SPLITTERS, ids=lambda cv: type(cv).__name__)
def test_wrong_number_of_ids(cv):
    y, ids = rows_of(SKEWED)
    with pytest.raises(ValueError, match="client_ids has"):
        list(cv.split(y, y, client_ids=ids[1:]))


@pytest.mark.parametrize(("cv", "expected"), [*zip(SPLITTERS, [3, 4, 3], strict=True)])
def test_number_of_splits(cv, expected):
    y, ids = rows_of(SKEWED)
    assert cv.get_n_splits(y, y, client_ids=ids) == expected
    assert cv.get_n_splits(y, y, groups=ids) == expected
    assert len(list(cv.split(y, y, client_ids=ids))) == expected


def test_number_of_clients_of_a_column():
    frame = pd.DataFrame({"x": [0, 0, 0], "site": ["A", "B", "B"]})
    assert LeaveOneClientOut(client_column="site").get_n_splits(frame) == 2


@pytest.mark.parametrize("cv", SPLITTERS, ids=lambda cv: type(cv).__name__)
def test_search_by_every_route(cv):
    y, ids = rows_of(SKEWED)
    X = np.random.default_rng(0).normal(size=(len(y), 3)) + y[:, None]
    frame = pd.DataFrame(X, columns=list("abc")).assign(site=ids)
    folds = list(cv.split(X, y, client_ids=ids))
    grid = {"C": [0.01, 1.0]}

    def scores(X, cv, routing=False, **params):
        with sklearn.config_context(enable_metadata_routing=routing):
            search = GridSearchCV(
                LogisticRegression(), grid, cv=cv, error_score="raise"
            )
            return search.fit(X, y, **params).cv_results_["mean_test_score"]

    expected = scores(X, folds)
    assert scores(X, cv, routing=True, client_ids=ids) == pytest.approx(expected)
    assert scores(X, cv, routing=True, groups=ids) == pytest.approx(expected)
    assert scores(X, cv, groups=ids) == pytest.approx(expected)
    column = clone(cv).set_params(client_column="site")
    assert scores(frame, column) == pytest.approx(scores(frame, folds))


def test_search_of_an_aligner_with_scorer_and_folds():
    y, ids = rows_of(SKEWED)
    X = np.random.default_rng(0).normal(size=(len(y), 3)) + y[:, None]
    cv = CellHoldoutKFold(4)
    search = GridSearchCV(
        FedCGSClassifier(aligner=FederatedOTAligner()),
        {"aligner__tau": [0.0, 0.5]},
        cv=cv,
        scoring=ClientScorer(average="cell"),
        error_score="raise",
    )
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, y, client_ids=ids)
    assert search.n_splits_ == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
