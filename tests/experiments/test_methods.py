"""The leaderboard of one-shot methods on a small feature set."""

import json
from dataclasses import replace

import numpy as np
import pytest

from skslot import FedCGSClassifier, FedCOFClassifier, FederatedOTAligner
from skslot._methods import METHODS, make_classifier
from skslot.classifiers import OneShotClassifier
from skslot.datasets import make_shifted_clients
from skslot.experiments import (
    FeatureSet,
    Leaderboard,
    _experiments,
    compare_methods,
)
from skslot.experiments._experiments import ALIGNERS, RunStore
from skslot.experiments._measures import measure
from skslot.experiments._results import Run
from skslot.utils import all_estimators

SUBSET = ["local", "pooled", "fedcof", "mixed"]


def small_data(n_features=4):
    data = make_shifted_clients(
        900, n_clients=3, n_features=n_features, n_classes=6, random_state=0
    )
    return FeatureSet("small", data.data, data.target, data.client_ids, min_samples=40)


DATA = small_data()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "runs.jsonl"
    return compare_methods(DATA, SUBSET, [None, 0.1], 2, results=path), path


def row_of(board, alpha, method, alignment="none"):
    (row,) = (
        row
        for row in board.to_frame().itertuples(index=False)
        if (row.alpha, row.method, row.alignment) == (alpha, method, alignment)
        or (alpha is None and np.isnan(row.alpha) and row.method == method)
    )
    return row


def parts(alpha, number, data=DATA):
    return (data.select(rows) for rows in data.partition(alpha, number))


def test_every_classifier_is_on_the_board():
    classifiers = {
        kind for _, kind in all_estimators() if issubclass(kind, OneShotClassifier)
    }
    assert classifiers <= {type(make_classifier(name)) for name in METHODS}


def test_fedcgs_always_runs_and_baselines_are_not_aligned(stored):
    board, _ = stored
    table = board.to_frame()
    pairs = set(zip(table["method"], table["alignment"], strict=True))
    names = ("local training", "rows pooled", "mixed effects")
    unaligned = {(name, "-") for name in names}
    assert pairs == {("FedCGS", "none")} | unaligned | {
        ("FedCOF", name) for name in ALIGNERS
    }


def test_a_row_is_what_the_estimator_does_on_these_partitions(stored):
    board, _ = stored
    means, worst, sent = [], [], []
    for number in (0, 1):
        train, test = parts(0.1, number)
        classifier = FedCOFClassifier(aligner=FederatedOTAligner(0.4))
        messages = [
            classifier.client_update(
                train.X[rows], train.y[rows], classes=np.unique(train.y), client=client
            )
            for client in train.clients
            for rows in [train.client_ids == client]
        ]
        classifier.server_aggregate([each.as_received("float32") for each in messages])
        right = classifier.predict(test.X, client_ids=test.client_ids) == test.y
        accuracy = [100 * right[test.client_ids == c].mean() for c in test.clients]
        means.append(np.mean(accuracy))
        worst.append(min(accuracy))
        sent += [message.nbytes() for message in messages]
    row = row_of(board, 0.1, "FedCOF", "SLOT 0.4")
    assert row.mean == pytest.approx(np.mean(means))
    assert row.error == pytest.approx(abs(means[0] - means[1]) / 2)
    assert row.worst == pytest.approx(np.mean(worst))
    assert row.sent == pytest.approx(np.mean(sent))
    assert row.seconds > 0


def test_differences_are_paired(stored):
    """Their error is over differences on the same partition."""
    board, _ = stored

    def means(method, alignment):
        runs = [Run(0.1, None, number, alignment, method) for number in (0, 1)]
        return np.array([np.mean(board.runs[run]["accuracy"]) for run in runs])

    differences = means("mixed", "-") - means("fedcgs", "none")
    row = row_of(board, 0.1, "mixed effects", "-")
    assert row.difference == pytest.approx(differences.mean())
    assert row.difference_error == pytest.approx(np.ptp(differences) / 2)
    base = row_of(board, 0.1, "FedCGS")
    assert (base.difference, base.difference_error) == (0, 0)


def test_local_training_sends_nothing_and_pooling_sends_rows(stored):
    board, _ = stored
    assert row_of(board, None, "local training", "-").sent == 0
    train, _ = parts(None, 0)
    rows = len(train.y) / len(train.clients)
    assert row_of(board, None, "rows pooled", "-").sent == pytest.approx(20 * rows)


def test_pooled_rows_know_classes_that_a_site_lacks(stored):
    board, _ = stored
    local = row_of(board, 0.1, "local training", "-")
    assert row_of(board, 0.1, "rows pooled", "-").mean > local.mean + 5


def test_best_methods_come_first(stored):
    board, _ = stored
    table = board.to_frame()
    keys = list(zip(table["alpha"].notna(), -table["mean"], strict=True))
    assert keys == sorted(keys)


def test_what_is_stored_is_not_run_again(stored):
    board, path = stored
    seen = []
    again = compare_methods(
        DATA, SUBSET, [None, 0.1], 2, results=path, progress=lambda *c: seen.append(c)
    )
    assert str(again) == str(board)
    assert seen == [(len(board.runs),) * 2]


def test_a_subset_of_what_is_stored_is_a_subset_of_the_table(stored):
    board, path = stored
    one = compare_methods(DATA, ["mixed"], [0.1], 2, results=path)
    assert one.to_frame()["method"].tolist() == ["mixed effects", "FedCGS"]
    assert row_of(one, 0.1, "mixed effects", "-") == row_of(
        board, 0.1, "mixed effects", "-"
    )


def test_experiments_of_both_kinds_share_a_file(tmp_path):
    path, of_paper = tmp_path / "runs.jsonl", Run(0.1, 1, 0, 0.0, "fedcgs")
    measured = {"accuracy": [50.0, 60.0, 70.0]}
    RunStore(path, DATA).add(of_paper, measured)
    board = compare_methods(DATA, ["fedcgs"], [0.1], 1, results=path)
    assert of_paper not in board.runs
    assert RunStore(path, DATA).done == {of_paper: measured, **board.runs}


@pytest.mark.slow
def test_processes_do_not_change_a_digit(stored):
    board, _ = stored
    side_by_side = compare_methods(DATA, ["fedcof"], [0.1], 2, n_jobs=2)
    for run, found in side_by_side.runs.items():
        for name in ("accuracy", "sent"):
            assert found[name] == board.runs[run][name]


def test_alignment_without_aligner_is_a_message_of_its_own():
    pytest.importorskip("skorch")
    train, test = parts(0.1, 0)
    plain, aligned = (
        measure(make_classifier("o-fedavg"), aligner, train, test)[1]
        for aligner in (None, FederatedOTAligner(0.4))
    )
    aligner = FederatedOTAligner(0.4).fit(train.X, client_ids=train.client_ids)
    extra = [message.nbytes() for message in aligner.statistics_]
    # a number in the header of the other message may have a digit more
    assert np.abs(np.subtract(aligned, plain) - extra).max() <= 16


def test_a_measured_classifier_is_left_as_it_is():
    classifier = FedCGSClassifier()
    measure(classifier, FederatedOTAligner(0.4), *parts(0.1, 0))
    assert classifier.aligner is None
    assert not hasattr(classifier, "classes_")


def test_a_method_that_cannot_learn_is_named_below_the_table():
    """AFL needs more rows than features."""
    wide = small_data(n_features=300)
    board = compare_methods(wide, ["afl"], [0.1], 1, alignments=["none"])
    assert board.to_frame()["method"].tolist() == ["FedCGS"]
    last = str(board).splitlines()[-1]
    assert last.startswith(
        "AFL with alignment none at alpha 0.1 failed on 1 of 1 partitions: "
    )
    assert "alpha=0" in last
    assert "error" in json.loads(board.to_json())["runs"][1]


def test_what_needs_torch_is_left_out_without_it(monkeypatch):
    monkeypatch.setattr(_experiments, "can_train_nets", lambda: False)
    monkeypatch.setattr(_experiments, "ONE_SHOT", ["fedcgs", "o-fedavg"])
    board = compare_methods(DATA, alphas=[0.1], n_runs=1, alignments=["none"])
    assert board.to_frame()["method"].tolist() == ["FedCGS"]
    left_out = 'O-FedAvg is left out: it needs pip install "skslot[torch]".'
    assert str(board).endswith(left_out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["FedSGD"]}, "methods must be among local, .*; got 'FedSGD'"),
        ({"alignments": ["most"]}, "alignments must be among none, .*; got 'most'"),
    ],
)
def test_unknown_names_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        compare_methods(DATA, **options)


def test_data_without_labels_is_refused():
    with pytest.raises(ValueError, match="small has no labels"):
        compare_methods(replace(DATA, y=None), ["fedcgs"], [0.1], 1)


def test_formats_agree(stored):
    board, _ = stored
    rows = list(board.to_frame().itertuples())
    facts = json.loads(board.to_json())
    assert [row["difference"] for row in facts["rows"]] == [r.difference for r in rows]
    assert len(facts["runs"]) == len(board.runs)
    header, *lines = (line.split(",") for line in board.to_csv().splitlines())
    assert len(lines) == len(rows)
    last = dict(zip(header, lines[-1], strict=True))
    assert (last["data"], last["method"]) == ("small", rows[-1].method)
    assert float(last["sent"]) == rows[-1].sent
    latex = board.to_latex()
    assert latex.count(r"\\") == len(rows) + 1
    assert r"\begin{tabular}{lllrrrrrr}" in latex
    assert f"{rows[-1].mean:.1f}" == str(board).splitlines()[-1].split()[-6]


def test_one_partition_has_no_error(stored):
    _, path = stored
    board = compare_methods(DATA, ["fedcgs"], [0.1], 1, results=path)
    assert board.to_frame()["difference_error"].isna().all()
    assert "nan" not in str(board).splitlines()[-1]


def test_picture_has_a_panel_for_each_label_shift(stored):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    board, _ = stored
    figure = board.plot()
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["alpha = none", "alpha = 0.1"]
    best = max(
        (r for r in board.to_frame().itertuples() if r.alpha == 0.1 and r.sent > 0),
        key=lambda row: (row.method != "rows pooled", row.mean),
    )
    front = figure.axes[1].lines[-1].get_ydata()
    assert front.max() == pytest.approx(best.mean)
    assert (np.diff(front) > 0).all()
    assert best.method in figure.axes[1].get_xlabel()
    texts = figure.axes[1].get_legend().get_texts()
    assert "rows pooled" in [text.get_text() for text in texts]
    matplotlib.pyplot.close("all")


def test_an_empty_board_has_a_title():
    assert "on nothing" in Leaderboard("methods", "nothing", [], 0, {}).title
