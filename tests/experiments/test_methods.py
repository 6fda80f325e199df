"""The leaderboard of one-shot methods on a small feature set."""

import json
from dataclasses import replace

import numpy as np
import pytest

from skslot import FedCGSClassifier, FedCOFClassifier, FederatedOTAligner
from skslot.classifiers import OneShotClassifier
from skslot.datasets import make_shifted_clients
from skslot.experiments import (
    FeatureSet,
    Leaderboard,
    compare_methods,
)
from skslot.experiments import _methods as methods_module
from skslot.experiments._methods import ALIGNERS, METHODS, MethodRun, measure
from skslot.experiments._paper_tables import Run
from skslot.experiments._store import RunStore
from skslot.utils import all_estimators

SUBSET = ["local training", "rows pooled", "FedCOF", "mixed effects"]


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
        for row in board.rows()
        if (row.alpha, row.method, row.alignment) == (alpha, method, alignment)
    )
    return row


def parts(alpha, number, data=DATA):
    return (data.select(rows) for rows in data.partition(alpha, number))


def test_every_classifier_is_on_the_board():
    classifiers = {
        kind for _, kind in all_estimators() if issubclass(kind, OneShotClassifier)
    }
    assert classifiers <= {type(method) for method in METHODS.values()}


def test_fedcgs_always_runs_and_baselines_are_not_aligned(stored):
    board, _ = stored
    pairs = {(row.method, row.alignment) for row in board.rows()}
    unaligned = {(name, "-") for name in SUBSET if name != "FedCOF"}
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
        runs = [MethodRun(0.1, number, method, alignment) for number in (0, 1)]
        return np.array([np.mean(board.runs[run]["accuracy"]) for run in runs])

    differences = means("mixed effects", "-") - means("FedCGS", "none")
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
    keys = [(row.alpha is not None, -row.mean) for row in board.rows()]
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
    one = compare_methods(DATA, ["mixed effects"], [0.1], 2, results=path)
    assert [row.method for row in one.rows()] == ["mixed effects", "FedCGS"]
    assert one.rows()[0] == row_of(board, 0.1, "mixed effects", "-")


def test_experiments_of_both_kinds_share_a_file(tmp_path):
    path, of_paper = tmp_path / "runs.jsonl", Run(0.1, 1, 0, 0.4, "FedCGS", 0)
    RunStore(path, DATA, Run).add(of_paper, {"accuracy": [50.0, 60.0, 70.0]})
    board = compare_methods(DATA, ["FedCGS"], [0.1], 1, results=path)
    assert RunStore(path, DATA, Run).done == {
        of_paper: {"accuracy": [50.0, 60.0, 70.0]}
    }
    assert RunStore(path, DATA, MethodRun).done == board.runs


@pytest.mark.slow
def test_processes_do_not_change_a_digit(stored):
    board, _ = stored
    side_by_side = compare_methods(DATA, ["FedCOF"], [0.1], 2, n_jobs=2)
    for row in side_by_side.rows():
        same = row_of(board, 0.1, row.method, row.alignment)
        assert (row.accuracy, row.sent) == (same.accuracy, same.sent)


def test_alignment_without_aligner_is_a_message_of_its_own():
    pytest.importorskip("skorch")
    train, test = parts(0.1, 0)
    plain, aligned = (
        measure(METHODS["O-FedAvg"], aligner, train, test)[1]
        for aligner in (None, FederatedOTAligner(0.4))
    )
    aligner = FederatedOTAligner(0.4).fit(train.X, client_ids=train.client_ids)
    extra = [message.nbytes() for message in aligner.statistics_]
    # a number in the header of the other message may have a digit more
    assert np.abs(np.subtract(aligned, plain) - extra).max() <= 16


def test_methods_are_left_as_they_are():
    """The table of methods is shared by all runs of a process."""
    before = {name: repr(method) for name, method in METHODS.items()}
    measure(METHODS["FedCGS"], FederatedOTAligner(0.4), *parts(0.1, 0))
    assert METHODS["FedCGS"].aligner is None
    assert isinstance(METHODS["FedCGS"], FedCGSClassifier)
    assert {name: repr(method) for name, method in METHODS.items()} == before


def test_a_method_that_cannot_learn_is_named_below_the_table():
    """AFL needs more rows than features."""
    wide = small_data(n_features=300)
    board = compare_methods(wide, ["AFL"], [0.1], 1, alignments=["none"])
    assert [row.method for row in board.rows()] == ["FedCGS"]
    last = str(board).splitlines()[-1]
    assert last.startswith(
        "AFL with alignment none at alpha 0.1 failed on 1 of 1 partitions: "
    )
    assert "alpha=0" in last
    assert "error" in json.loads(board.to_json())["runs"][1]


def test_what_needs_torch_is_left_out_without_it(monkeypatch):
    monkeypatch.setattr(methods_module, "can_train_nets", lambda: False)
    monkeypatch.setattr(
        methods_module,
        "METHODS",
        {name: METHODS[name] for name in ("FedCGS", "O-FedAvg")},
    )
    board = compare_methods(DATA, alphas=[0.1], n_runs=1, alignments=["none"])
    assert [row.method for row in board.rows()] == ["FedCGS"]
    left_out = 'O-FedAvg is left out: it needs pip install "skslot[torch]".'
    assert str(board).endswith(left_out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["FedSGD"]}, "methods must be among local .*; got 'FedSGD'"),
        ({"alignments": ["most"]}, "alignments must be among none, .*; got 'most'"),
    ],
)
def test_unknown_names_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        compare_methods(DATA, **options)


def test_data_without_labels_is_refused():
    with pytest.raises(ValueError, match="small has no labels"):
        compare_methods(replace(DATA, y=None), ["FedCGS"], [0.1], 1)


def test_formats_agree(stored):
    board, _ = stored
    rows = board.rows()
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
    texts = [line.split()[-6:] for line in str(board).splitlines()[-len(rows) :]]
    assert f"{rows[-1].mean:.1f}" == texts[-1][0]


def test_one_partition_has_no_error(stored):
    _, path = stored
    board = compare_methods(DATA, ["FedCGS"], [0.1], 1, results=path)
    assert all(row.difference_error is None for row in board.rows())
    assert "None" not in str(board)


def test_picture_has_a_panel_for_each_label_shift(stored):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    board, _ = stored
    figure = board.plot()
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["alpha = none", "alpha = 0.1"]
    best = max(
        (row for row in board.rows() if row.alpha == 0.1 and row.sent > 0),
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
    assert "on nothing" in Leaderboard("nothing", [], 0, {}).title
