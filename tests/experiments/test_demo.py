"""The demo: what it prints, that it repeats, and that alignment helps in it."""

import numpy as np
import pytest

from skslot.experiments import run_demo
from skslot.model_selection import class_table

TAUS = (0.0, 0.4, 1.0)


@pytest.fixture(scope="module")
def result():
    return run_demo(n_partitions=3, taus=TAUS)


def test_accuracies_are_of_each_partition_client_and_strength(result):
    assert result.accuracy.shape == (3, 4, 3)
    assert result.clients == ["fax", "flatbed", "microfilm", "phone"]
    assert ((result.accuracy > 0.1) & (result.accuracy <= 1)).all()


def test_accuracies_are_reproducible(result):
    again = run_demo(n_partitions=3, taus=TAUS)
    assert np.array_equal(again.accuracy, result.accuracy)
    assert str(again) == str(result)


def test_more_partitions_keep_the_first(result):
    fewer = run_demo(n_partitions=1, taus=TAUS)
    assert np.array_equal(fewer.accuracy[0], result.accuracy[0])


def test_aligned_is_better_than_plain(result):
    """In every partition, by five points at least on average."""
    plain, aligned, _ = result.accuracy.mean(axis=1).T
    assert (aligned > plain).all()
    assert aligned.mean() > plain.mean() + 0.05


def test_labels_are_skewed(result):
    assert result.example.n_absent >= 10
    assert result.example.counts.sum(axis=1).min() >= 20


def test_report_has_the_tables(result):
    lines = str(result).split("\n")
    assert str(result.example) in str(result)
    header = next(line for line in lines if line.startswith("site"))
    assert header.split() == ["site", "tau=0", "tau=0.4", "tau=1"]
    table = lines[lines.index(header) + 1 :]
    by_client = 100 * result.accuracy.mean(axis=0)
    for client, line, row in zip(result.clients, table, by_client, strict=False):
        assert line.split() == [client, *(f"{value:.1f}" for value in row)]
    mean = 100 * result.accuracy.mean(axis=(0, 1))
    assert table[4].split() == ["mean", *(f"{value:.1f}" for value in mean)]
    assert table[5].startswith("+/- s.e.")


def test_standard_error_is_over_partitions(result):
    mean = 100 * result.accuracy.mean(axis=1)
    expected = mean.std(axis=0, ddof=1) / np.sqrt(3)
    line = next(x for x in str(result).split("\n") if x.startswith("+/- s.e."))
    assert line.split()[2:] == [f"{value:.1f}" for value in expected]


def test_report_says_what_it_means(result):
    plain, aligned, full = 100 * result.accuracy.mean(axis=(0, 1))
    report = " ".join(str(result).split())
    assert f"Without alignment {plain:.1f} % of digits are recognised" in report
    assert f"At the default tau=0.4 it is {aligned:.1f} %" in report
    assert f"At tau=1 it is {full:.1f} %" in report
    assert f"one message of {result.communication.up / 1000:.1f} kB" in report


def test_message_holds_class_means_and_one_covariance_in_float32(result):
    """Ten classes of 64 features, and a header of at most 1.5 kB."""
    numbers = 10 + 10 * 64 + 64 * 65 // 2 + 1
    assert 4 * numbers < result.communication.up < 4 * numbers + 1500


def test_one_partition_has_no_standard_error():
    report = str(run_demo(n_partitions=1, taus=(0.0, 1.0)))
    assert "s.e." not in report
    assert "mean" in report


def test_progress_is_reported():
    calls = []
    run_demo(n_partitions=2, taus=(0.0,), progress=lambda *done: calls.append(done))
    assert calls == [(1, 2), (2, 2)]


def test_example_is_a_table_of_training_rows(result):
    assert type(result.example) is type(class_table([0], ["A"]))
    assert result.example.clients.tolist() == result.clients
