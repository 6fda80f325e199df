"""Splitting as the paper does."""

import numpy as np
import pytest

from skslot.model_selection import class_table, paper_split

Y, SITE = np.tile(np.arange(5), 200), np.repeat(["A", "B"], 500)


def test_test_rows_are_not_skewed_and_training_rows_are():
    train, test = paper_split(Y, SITE, 0.1, random_state=3)
    assert (class_table(Y[test], SITE[test]).counts == 30).all()
    assert class_table(Y[train], SITE[train]).counts.std() > 15
    assert not set(train) & set(test)


def test_no_label_shift_keeps_all_training_rows():
    train, test = paper_split(Y, SITE, None)
    assert sorted([*train, *test]) == list(range(len(Y)))


def test_partitions_differ_and_repeat():
    first, again = (paper_split(Y, SITE, 0.1, random_state=0)[0] for _ in range(2))
    other = paper_split(Y, SITE, 0.1, random_state=1)[0]
    assert first.tolist() == again.tolist() != other.tolist()


def test_a_row_alone_in_its_cell_is_trained_on():
    y, site = np.tile([0, 1], 50), np.repeat(["A", "B"], 50)
    y[3] = 2
    train, test = paper_split(y, site, alpha=None)
    assert 3 in train
    assert sorted([*train, *test]) == list(range(100))


def test_spelling_of_an_official_split_does_not_matter():
    split = np.array(["train", "Train", " TRAIN ", "test", "Test"] * 200)
    train, test = paper_split(Y, SITE, None, split=split)
    assert len(train) == 600
    assert len(test) == 400


def test_rows_in_neither_part_of_a_split_are_refused():
    split = np.array(["train", "test", "val", "training"] * 250)
    with pytest.raises(ValueError, match=r"is also \['training', 'val'\]; rename"):
        paper_split(Y, SITE, None, split=split)
