"""The paper's numbers add up, but for those that are noted."""

import numpy as np
import pytest

from skslot.experiments import paper_results

ROWS = list(paper_results().itertuples(index=False))
ROUNDING = 0.0101  # means of numbers of two digits, printed with two digits


def check(row, field, recomputed):
    printed, noted = getattr(row, field), row.recomputed.get(field)
    if noted is None:
        assert abs(printed - recomputed) <= ROUNDING
    else:
        assert abs(noted - recomputed) <= ROUNDING
        assert abs(printed - recomputed) > ROUNDING


@pytest.mark.parametrize("row", [row for row in ROWS if row.accuracy], ids=str)
def test_means_and_stds_are_those_of_the_domains(row):
    values = np.array(list(row.accuracy.values()))
    assert len(values) == row.n_clients
    check(row, "mean", values.mean())
    check(row, "std", values.std())


@pytest.mark.parametrize(
    "row", [row for row in ROWS if not np.isnan(row.gain)], ids=str
)
def test_gains_are_differences_of_means(row):
    (plain,) = (
        other
        for other in ROWS
        if other.tau == 0
        and (other.experiment, other.dataset, other.method, str(other.alpha))
        == (row.experiment, row.dataset, row.method, str(row.alpha))
        and other.backbone == row.backbone
    )
    check(row, "gain", row.mean - plain.mean)


def test_every_note_is_checked():
    """Means and deviations where the domains are known, gains where there is one."""
    noted = [(row, field) for row in ROWS for field in row.recomputed]
    assert len(noted) == 13
    for row, field in noted:
        known = not np.isnan(row.gain) if field == "gain" else row.accuracy
        assert known


def test_all_tables_are_there():
    count = {name: len(paper_results(name)) for name in {r.experiment for r in ROWS}}
    assert count == {
        "main": 21,
        "skew": 36,
        "domain-only": 7,
        "tau": 18,
        "backbones": 14,
        "scalability": 6,
    }


def test_ablation_repeats_the_main_table():
    """Table of tau at 0 and 0.4 is the Office-Home part of the main table."""
    main = paper_results("main", "Office-Home").set_index(["method", "tau"])["mean"]
    for row in paper_results("tau").itertuples():
        if row.tau in (0.0, 0.4):
            assert main[row.method, row.tau] == row.mean
