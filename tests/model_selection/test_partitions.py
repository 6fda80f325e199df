"""Label shift by dropping rows, finer clients, and the table that shows both."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skslot.datasets import load_digit_scanners
from skslot.model_selection import (
    class_table,
    dirichlet_label_shift,
    split_clients,
)

N_CLIENTS, N_CLASSES, PER_CELL = 4, 6, 100
IDS = np.repeat(["A", "B", "C", "D"], N_CLASSES * PER_CELL)
Y = np.tile(np.repeat(np.arange(N_CLASSES), PER_CELL), N_CLIENTS)
ALPHAS = pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.1, 1.0, 100.0, 1e6])


def shares(rows, y=Y, ids=IDS):
    """Share of its rows of each class that each client kept."""
    before = class_table(y, ids).counts
    after = pd.crosstab(ids[rows], y[rows]).reindex(
        index=np.unique(ids), columns=np.unique(y), fill_value=0
    )
    return after.to_numpy() / before


@ALPHAS
def test_rows_are_distinct_positions_in_ascending_order(alpha):
    rows = dirichlet_label_shift(Y, IDS, alpha, min_samples=0, random_state=0)
    assert rows.dtype.kind == "i"
    assert (np.diff(rows) > 0).all()
    assert rows[0] >= 0
    assert rows[-1] < len(Y)


@ALPHAS
def test_shares_of_each_class_sum_to_one_over_clients(alpha):
    """Up to rounding to whole rows, half a row of 100 for each client."""
    rows = dirichlet_label_shift(Y, IDS, alpha, min_samples=0, random_state=0)
    np.testing.assert_allclose(shares(rows).sum(axis=0), 1, atol=0.5 * 4 / PER_CELL)


def test_shares_are_of_the_rows_a_client_has():
    """Retention and not re-allocation: a client twice as large keeps twice as many."""
    ids = np.repeat(["small", "large"], [300, 600])
    y = np.zeros(900, dtype=int)
    for seed in range(10):
        rows = dirichlet_label_shift(y, ids, 1.0, random_state=seed)
        np.testing.assert_allclose(shares(rows, y, ids).sum(), 1, atol=0.01)


def test_large_alpha_keeps_equal_shares():
    """Of every cell, one part in as many as there are clients."""
    rows = dirichlet_label_shift(Y, IDS, 1e6, random_state=0)
    np.testing.assert_allclose(shares(rows), 1 / N_CLIENTS, atol=0.011)


def test_small_alpha_leaves_each_class_to_one_client():
    rows = dirichlet_label_shift(Y, IDS, 0.01, min_samples=0, random_state=0)
    kept = shares(rows)
    assert (kept.max(axis=0) > 0.9).sum() >= N_CLASSES - 1
    assert (kept == 0).sum() >= (N_CLIENTS - 1) * N_CLASSES - 2


def test_smaller_alpha_leaves_more_cells_empty():
    absent = [
        np.mean(
            [
                (
                    shares(dirichlet_label_shift(Y, IDS, alpha, random_state=s)) == 0
                ).sum()
                for s in range(10)
            ]
        )
        for alpha in (0.05, 0.3, 10)
    ]
    assert absent[0] > absent[1] + 2 > absent[2] + 4


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [0.01, 1e-3, 1e-8, 1e-300])
def test_tiny_alpha_gives_no_nan(alpha, seed):
    """numpy's legacy Dirichlet divides 0 by 0 here."""
    rows = dirichlet_label_shift(Y, IDS, alpha, min_samples=0, random_state=seed)
    assert len(rows) == pytest.approx(N_CLASSES * PER_CELL, abs=N_CLASSES * N_CLIENTS)


def test_kept_rows_are_a_random_choice():
    """And not the first of each cell."""
    rows = dirichlet_label_shift(Y, IDS, 1e6, random_state=0)
    within = rows[rows < PER_CELL]
    assert len(within) == PER_CELL / N_CLIENTS
    assert within.max() > PER_CELL / 2


@pytest.mark.parametrize("alpha", [0.1, 10])
def test_same_seed_same_rows(alpha):
    first, second, other = (
        dirichlet_label_shift(Y, IDS, alpha, random_state=seed) for seed in (3, 3, 4)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_random_state_instance_and_none():
    first, second = (
        dirichlet_label_shift(Y, IDS, 0.5, random_state=np.random.RandomState(0))
        for _ in range(2)
    )
    assert np.array_equal(first, second)
    one, two = (dirichlet_label_shift(Y, IDS, 0.5) for _ in range(2))
    assert not np.array_equal(one, two)


@pytest.mark.parametrize("min_samples", [1, 20, 60])
def test_every_client_keeps_the_minimum(min_samples):
    for seed in range(10):
        rows = dirichlet_label_shift(
            Y, IDS, 0.1, min_samples=min_samples, random_state=seed
        )
        kept = pd.Series(IDS[rows]).value_counts().reindex(list("ABCD"), fill_value=0)
        assert kept.min() >= min_samples


def test_default_leaves_no_client_without_rows():
    for seed in range(20):
        rows = dirichlet_label_shift(Y, IDS, 0.05, random_state=seed)
        assert set(IDS[rows]) == set("ABCD")


def test_minimum_that_cannot_be_reached_raises():
    with pytest.raises(ValueError, match="min_samples=601.*Lower min_samples or raise"):
        dirichlet_label_shift(Y, IDS, 1.0, min_samples=601, random_state=0)


@pytest.mark.parametrize("alpha", [0, -1.0, np.nan, None, "0.1"])
def test_bad_alpha_raises(alpha):
    with pytest.raises(ValueError, match="'alpha' parameter"):
        dirichlet_label_shift(Y, IDS, alpha)


@pytest.mark.parametrize("min_samples", [-1, 0.5, None])
def test_bad_minimum_raises(min_samples):
    with pytest.raises(ValueError, match="'min_samples' parameter"):
        dirichlet_label_shift(Y, IDS, 1.0, min_samples=min_samples)


def test_ids_of_the_wrong_length_raise():
    with pytest.raises(ValueError, match="client_ids has 2399 entries"):
        dirichlet_label_shift(Y, IDS[:-1], 1.0)
    with pytest.raises(ValueError, match="client_ids has 2399 entries"):
        class_table(Y, IDS[:-1])


def test_missing_ids_raise():
    ids = IDS.astype(object)
    ids[5] = None
    with pytest.raises(ValueError, match="missing .* for 1 rows"):
        dirichlet_label_shift(Y, ids, 1.0)


@pytest.mark.parametrize("as_", [list, np.array, pd.Series], ids=lambda a: a.__name__)
def test_input_of_any_kind(as_):
    labels = np.array(list("abcdef"))[Y]
    rows = dirichlet_label_shift(as_(labels), as_(IDS), 0.5, random_state=0)
    assert np.array_equal(rows, dirichlet_label_shift(Y, IDS, 0.5, random_state=0))


def test_order_of_rows_does_not_matter_for_the_counts():
    order = np.random.default_rng(0).permutation(len(Y))
    plain = dirichlet_label_shift(Y, IDS, 0.3, random_state=0)
    mixed = dirichlet_label_shift(Y[order], IDS[order], 0.3, random_state=0)
    assert np.array_equal(shares(plain), shares(mixed, Y[order], IDS[order]))


def test_one_client_keeps_everything():
    rows = dirichlet_label_shift(Y, np.zeros(len(Y)), 0.1, random_state=0)
    assert np.array_equal(rows, np.arange(len(Y)))


# ---------------------------------------------------------------- finer clients


@st.composite
def rows_to_split(draw):
    """Ids and labels in any order, every client with a row for each part."""
    n_parts = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(n_parts, 12), min_size=1, max_size=4))
    ids = np.repeat(np.arange(len(sizes)), sizes)
    ids = np.array(draw(st.permutations(ids.tolist())))
    n = len(ids)
    y = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    return ids, y, n_parts


@settings(max_examples=50, deadline=None)
@given(rows_to_split(), st.integers(0, 99))
def test_parts_lie_within_a_client_and_are_of_even_size(rows, seed):
    ids, y, n_parts = rows
    new = split_clients(ids, n_parts, y=y, random_state=seed)
    by_client = pd.crosstab(ids, new)
    assert ((by_client > 0).sum(axis=1) == n_parts).all()
    assert ((by_client > 0).sum(axis=0) == 1).all()
    sizes = by_client.to_numpy().max(axis=0).reshape(-1, n_parts)
    assert np.ptp(sizes, axis=1).max() <= 1


@settings(max_examples=50, deadline=None)
@given(rows_to_split(), st.integers(0, 99))
def test_classes_are_dealt_out_evenly_when_labels_are_given(rows, seed):
    ids, y, n_parts = rows
    new = split_clients(ids, n_parts, y=y, random_state=seed)
    counts = class_table(y, new).counts.reshape(-1, n_parts, len(np.unique(y)))
    assert np.ptp(counts, axis=1).max() <= 1


def test_without_labels_classes_fall_as_they_may():
    counts = class_table(Y, split_clients(IDS, 2, random_state=0)).counts
    assert np.ptp(counts.reshape(N_CLIENTS, 2, N_CLASSES), axis=1).max() > 1


def test_parts_are_a_random_choice():
    first, same, other = (split_clients(IDS, 2, y=Y, random_state=s) for s in (0, 0, 1))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
    in_order = np.char.add(IDS, np.tile(["/1", "/2"], len(IDS) // 2))
    assert 0.4 < np.mean(first == in_order) < 0.6


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([3, 10, 3, 10], ["10/1", "10/2", "3/1", "3/2"]),
        (["b", "a", "b", "a"], ["a/1", "a/2", "b/1", "b/2"]),
        (pd.Series(["b", "a", "b", "a"]), ["a/1", "a/2", "b/1", "b/2"]),
        ([1, "a", 1, "a"], ["1/1", "1/2", "a/1", "a/2"]),
    ],
)
def test_new_ids_are_the_id_and_the_part(ids, expected):
    new = split_clients(ids, 2, random_state=0)
    assert new.dtype.kind == "U"
    assert np.unique(new).tolist() == expected


def test_the_paper_s_finer_partition():
    """Each of four domains is two clients, whose label mixes then differ."""
    data = load_digit_scanners()
    ids = split_clients(data.client_ids, 2, y=data.target, random_state=0)
    rows = dirichlet_label_shift(data.target, ids, 0.1, random_state=0)
    table = class_table(data.target[rows], ids[rows])
    assert len(table.clients) == 8
    assert table.n_absent > 30


def test_a_client_with_too_few_rows_is_named():
    ids = ["A"] * 5 + ["B"] * 2
    with pytest.raises(ValueError, match="client 'B' has 2 rows, .* n_parts=3. Lower"):
        split_clients(ids, 3)


def test_ids_that_look_alike_are_refused():
    with pytest.raises(ValueError, match="not all different as text"):
        split_clients([1, 1, "1", "1"], 2)


@pytest.mark.parametrize("n_parts", [0, -1, 1.5, None])
def test_bad_number_of_parts_raises(n_parts):
    with pytest.raises(ValueError, match="'n_parts' parameter"):
        split_clients(IDS, n_parts)


def test_labels_of_the_wrong_length_raise():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        split_clients(IDS, 2, y=Y[:-1])


# ------------------------------------------------------------------------- table


def test_table_counts_rows_of_each_class_at_each_client():
    table = class_table(["cat", "dog", "cat", "cat"], ["B", "B", "A", "B"])
    assert table.clients.tolist() == ["A", "B"]
    assert table.classes.tolist() == ["cat", "dog"]
    assert table.counts.tolist() == [[1, 0], [2, 1]]
    assert table.n_absent == 1


def test_table_prints_with_dots_for_absent_classes():
    table = class_table(["cat", "dog", "cat", "cat"], ["B", "B", "A", "B"])
    lines = repr(table).split("\n")
    assert [line.split() for line in lines] == [
        ["cat", "dog", "rows"],
        ["A", "1", ".", "1"],
        ["B", "2", "1", "3"],
    ]
    assert len({len(line) for line in lines}) == 1


def test_long_names_do_not_shift_the_columns():
    table = class_table(["a very long label", "b"], ["a very long name", "C"])
    assert len({len(line) for line in repr(table).split("\n")}) == 1


def test_table_as_a_frame():
    data = load_digit_scanners()
    frame = class_table(data.target, data.client_ids).to_frame()
    expected = pd.crosstab(data.client_ids, data.target)
    assert np.array_equal(frame, expected)
    assert frame.index.tolist() == expected.index.tolist()
    assert frame.columns.tolist() == list(range(10))


def test_table_of_full_data_has_no_absent_class():
    assert class_table(Y, IDS).n_absent == 0


def test_a_row_of_a_class_table_may_stand_for_many():
    weighted = class_table(["cat", "dog", "cat"], ["A", "A", "B"], [2, 1, 0])
    assert weighted.counts.tolist() == [[2, 1], [0, 0]]
    assert weighted.n_absent == 2
