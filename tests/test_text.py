"""Tables as text."""

import numpy as np
import pytest

from skslot._utils import count_table, text_table


def test_columns_are_as_wide_as_their_longest_cell():
    text = text_table([["site", "rows"], ["north", "5"], ["w", "12345"]])
    assert text == "site    rows\nnorth      5\nw      12345"


@pytest.mark.parametrize(
    ("align", "second"), [("lrl", "x        1  a     b"), ("r", "   x     1     a  b")]
)
def test_last_letter_is_for_the_columns_that_follow(align, second):
    rows = [["name", "long", "cell", "z"], ["x", "1", "a", "b"]]
    text = text_table(rows, align)
    assert text.split("\n")[1] == second


def test_short_rows_end_early_and_nothing_trails():
    rows = [["a", "bbb"], [], ["c"], ["dd", ""]]
    assert text_table(rows).split("\n") == ["a   bbb", "", "c", "dd"]


def test_columns_of_large_counts_stay_apart():
    text = count_table([[123_456, 1_234_567], [0, 5]], ["A", "B"], [0, 1])
    first, second = text.split("\n")[1:]
    assert first.split() == ["A", "123456", "1234567", "1358023"]
    assert second.split() == ["B", ".", "5", "5"]


def test_counts_have_sums_and_dots():
    text = count_table(np.array([[1, 0], [20, 3]]), ["A", "B"], ["cat", "dog"])
    assert [line.split() for line in text.split("\n")] == [
        ["cat", "dog", "rows"],
        ["A", "1", ".", "1"],
        ["B", "20", "3", "23"],
    ]
    assert len({len(line) for line in text.split("\n")}) == 1
