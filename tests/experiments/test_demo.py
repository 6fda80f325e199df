"""The demo: what it prints, that it repeats, and that alignment helps in it."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from skslot import FederatedOTAligner
from skslot.experiments import FeatureSet, run_demo

TAUS = (0.0, 0.4)
HAS_TORCH = find_spec("torch") is not None
STEPS = []


@pytest.fixture(scope="module")
def result():
    STEPS.clear()
    return run_demo(3, TAUS, progress=lambda *done: STEPS.append(done))


def line_of(result, start):
    lines = str(result).split("\n")
    return next(line for line in lines if line.startswith(start))


def test_all_methods_run_that_can(result):
    assert result.methods == ["FedCGS", "FedPFT"] + ["O-FedAvg"] * HAS_TORCH
    assert result.clients == ["fax", "flatbed", "microfilm", "phone"]
    assert result.accuracy.shape == result.sent.shape == (3, len(result.methods), 2, 4)
    assert ((result.accuracy > 0.1) & (result.accuracy <= 1)).all()


def test_more_partitions_keep_the_first(result):
    fewer = run_demo(1, TAUS)
    assert np.array_equal(fewer.accuracy[0], result.accuracy[0])
    assert np.array_equal(fewer.sent[0], result.sent[0])
    assert np.array_equal(fewer.mixed_accuracy[0], result.mixed_accuracy[0])


@pytest.mark.parametrize("method", [0, 1])
def test_aligned_is_better_than_plain(result, method):
    """In every partition, and by three points at least on average."""
    plain, aligned = result.accuracy[:, method].mean(axis=2).T
    assert (aligned > plain).all()
    assert aligned.mean() > plain.mean() + 0.03


def test_mixed_effects_are_better_than_the_aligned_methods_of_one_message(result):
    """In every partition, from the bytes that FedCGS sends."""
    mixed = result.mixed_accuracy.mean(axis=1)
    assert (mixed > result.accuracy[:, 0, 1].mean(axis=1)).all()
    assert (result.mixed_sent < result.sent[:, 0, 1] + 100).all()


def test_labels_are_skewed(result):
    assert result.example.clients.tolist() == result.clients
    assert result.example.n_absent >= 10
    assert result.example.counts.sum(axis=1).min() >= 20


def test_progress_is_reported(result):
    assert STEPS == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_message_holds_class_means_and_one_covariance_in_float32(result):
    """Ten classes of 64 features, and a header of at most 1.5 kB."""
    numbers = 10 + 10 * 64 + 64 * 65 // 2 + 1
    sent = result.sent[:, 0]
    assert ((4 * numbers - 4 <= sent) & (sent < 4 * numbers + 1500)).all()


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_fedavg_sends_statistics_besides(result):
    data = FeatureSet.embedded()
    rows, _ = data.partition(0.1, 0)
    statistics = [
        FederatedOTAligner().client_update(
            data.X[rows][data.client_ids[rows] == c], client=c
        )
        for c in data.clients
    ]
    extra = np.diff(result.sent[0, 2], axis=0)[0]
    assert extra.tolist() == [message.nbytes() for message in statistics]


def test_report_has_the_tables(result):
    assert str(result.example) in str(result)
    names = [*result.clients, "mean", "s.e.", "kB", "sent"]
    assert any(line.split() == names for line in str(result).split("\n"))
    for row, method in enumerate(result.methods):
        for column, tau in enumerate(TAUS):
            percent = 100 * result.accuracy[:, row, column]
            means = percent.mean(axis=1)
            expected = [
                *percent.mean(axis=0),
                means.mean(),
                means.std(ddof=1) / np.sqrt(3),
                result.sent[:, row, column].mean() / 1000,
            ]
            cells = [method, f"tau={tau:g}", *(f"{number:.1f}" for number in expected)]
            assert cells in [line.split() for line in str(result).split("\n")]


def test_report_has_mixed_effects_in_a_line_of_its_own(result):
    percent = 100 * result.mixed_accuracy
    line = line_of(result, "mixed effects")
    sites = [f"{number:.1f}" for number in percent.mean(axis=0)]
    assert line.split()[2:6] == sites
    assert f"Mixed effects reach {percent.mean():.1f} %" in " ".join(
        str(result).split()
    )


def test_report_says_how_tau_was_chosen(result):
    scores = result.search.cv_results_["mean_test_score"]
    assert line_of(result, "tau  ").split() == ["tau", "0", "0.4"]
    numbers = [f"{score:.3f}" for score in scores]
    assert line_of(result, "score").split() == ["score", *numbers, "chosen:", "0.4"]


def test_report_says_what_it_means(result):
    report = " ".join(str(result).split())
    percent = 100 * result.accuracy.mean(axis=0)
    gains = percent[:, 1] - percent[:, 0]
    for method, gain in zip(result.methods, gains.mean(axis=1), strict=True):
        assert f"{gain:+.1f} with {method}" in report
    before, after = percent[0, :, result.clients.index("phone")]
    assert f"most at phone (FedCGS: {before:.1f} to {after:.1f} %)" in report


def test_report_says_what_is_missing(result):
    without = replace(
        result,
        methods=["FedCGS", "FedPFT"],
        accuracy=result.accuracy[:, :2],
        sent=result.sent[:, :2],
    )
    assert 'pip install "skslot[torch]"' in str(without)
    assert ("skslot[torch]" in str(result)) != HAS_TORCH


def test_one_partition_has_no_standard_error(result):
    one = replace(
        result,
        accuracy=result.accuracy[:1],
        sent=result.sent[:1],
        mixed_accuracy=result.mixed_accuracy[:1],
        mixed_sent=result.mixed_sent[:1],
    )
    assert line_of(one, "FedCGS").split()[-2] == "-"
    assert line_of(one, "mixed effects").split()[-2] == "-"


def test_picture_shows_the_training_rows(result):
    pytest.importorskip("matplotlib").use("Agg")
    display = result.plot()
    assert display.taus == [0.0, 0.4, 1.0]
    assert len(display.y) == result.example.counts.sum()
