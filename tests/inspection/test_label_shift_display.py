"""LabelShiftDisplay: counts, and cells without rows."""

import matplotlib.pyplot as plt
import numpy as np

from skslot.inspection import LabelShiftDisplay
from skslot.model_selection import class_table


def test_counts_are_drawn_and_absent_cells_hatched(training):
    _, y, ids = training
    display = LabelShiftDisplay.from_labels(y, ids)
    table = class_table(y, ids)
    drawn = display.ax_.images[0].get_array()
    np.testing.assert_array_equal(drawn.mask, table.counts == 0)
    np.testing.assert_array_equal(drawn.filled(0), table.counts)
    texts = {text.get_position(): text.get_text() for text in display.ax_.texts}
    assert texts == {
        (column, row): str(count)
        for (row, column), count in np.ndenumerate(table.counts)
        if count
    }
    assert display.ax_.patch.get_hatch()
    title = f"{table.n_absent} of 40 cells are empty (hatched)"
    assert display.ax_.get_title() == title


def test_no_cell_absent():
    display = LabelShiftDisplay.from_labels([0, 1, 0, 1], ["A", "A", "B", "B"])
    assert [text.get_text() for text in display.ax_.texts] == ["1"] * 4
    assert display.ax_.get_title().startswith("0 of 4 cells")


def test_plot_takes_axes_and_names_them():
    figure, ax = plt.subplots()
    display = LabelShiftDisplay.from_labels(["cat", "dog"], ["A", "B"], ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("class", "client")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["cat", "dog"]
    assert display.plot() is display
