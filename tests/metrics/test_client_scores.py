"""Scores per client against computations by hand."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, get_scorer, make_scorer

from skslot.metrics import client_scores

Y = np.array([0, 0, 0, 1, 0, 1, 1, 1, 2, 2])
PREDICTED = np.array([0, 0, 1, 1, 1, 1, 1, 0, 2, 0])
IDS = np.array(["A", "A", "A", "A", "B", "B", "B", "B", "B", "B"])
AT_A, AT_B = IDS == "A", IDS == "B"


@pytest.fixture
def scores():
    return client_scores(Y, PREDICTED, IDS)


def test_accuracy_of_each_client(scores):
    assert scores.clients.tolist() == ["A", "B"]
    assert scores.counts.tolist() == [4, 6]
    assert scores.scores == pytest.approx([3 / 4, 3 / 6])


def test_mean_gives_each_client_the_same_weight(scores):
    assert scores.mean == pytest.approx((3 / 4 + 3 / 6) / 2)


def test_std_is_that_of_the_population(scores):
    assert scores.std == pytest.approx(1 / 8)


def test_worst_client(scores):
    assert (scores.worst, scores.worst_client) == (0.5, "B")


def test_cell_mean_gives_each_client_and_class_the_same_weight(scores):
    assert scores.cell_mean == pytest.approx(np.mean([2 / 3, 1, 0, 2 / 3, 1 / 2]))


def macro_f1(y_true, y_pred):
    return f1_score(y_true, y_pred, average="macro")


@pytest.mark.parametrize(
    ("metric", "by_hand"),
    [
        ("f1_macro", macro_f1),
        ("balanced_accuracy", balanced_accuracy_score),
        (macro_f1, macro_f1),
        (get_scorer("f1_macro"), macro_f1),
        (make_scorer(macro_f1), macro_f1),
        (lambda y_true, y_pred: np.mean(y_true - y_pred), lambda a, b: np.mean(a - b)),
    ],
)
def test_other_metrics(metric, by_hand):
    scores = client_scores(Y, PREDICTED, IDS, metric).scores
    expected = [by_hand(Y[rows], PREDICTED[rows]) for rows in (AT_A, AT_B)]
    assert scores == pytest.approx(expected)


def test_loss_comes_with_the_sign_of_its_scorer():
    scorer = make_scorer(lambda a, b: np.mean(a != b), greater_is_better=False)
    scores = client_scores(Y, PREDICTED, IDS, scorer)
    assert scores.worst == pytest.approx(-0.5)
    assert scores.worst_client == "B"


def test_repr_shows_every_number(scores):
    lines = [line.split() for line in repr(scores).splitlines()]
    assert lines == [
        ["client", "rows", "score"],
        ["A", "4", "0.750"],
        ["B", "6", "0.500"],
        ["mean", "0.625"],
        ["std", "0.125"],
        ["worst", "(B)", "0.500"],
        ["cells", "0.567"],
    ]


def test_repr_is_aligned_for_long_names():
    lines = repr(client_scores(Y, PREDICTED, np.where(AT_A, "A" * 30, "B"))).split("\n")
    assert len({len(line) for line in lines}) == 1


def test_to_frame(scores):
    frame = scores.to_frame()
    expected = pd.DataFrame(
        {"rows": [4, 6], "score": [0.75, 0.5]},
        index=pd.Index(["A", "B"], name="client", dtype=object),
    )
    pd.testing.assert_frame_equal(frame, expected, check_index_type=False)


@pytest.mark.parametrize(
    "ids", [[1, 2, 1, 2], [2, "a", 2, "a"], [(0, 1), 3, (0, 1), 3]]
)
def test_ids_keep_their_types(ids):
    scores = client_scores([0, 0, 1, 1], [0, 1, 1, 1], ids)
    assert set(scores.clients.tolist()) == set(ids)
    assert scores.worst_client == ids[1]
    assert str(ids[0]) in repr(scores)


def test_labels_may_be_text():
    scores = client_scores(["x", "y"], ["x", "x"], ["A", "B"])
    assert scores.scores.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("y_true", "y_pred", "ids", "message"),
    [
        (Y[1:], PREDICTED, IDS, "inconsistent numbers of samples"),
        (Y, PREDICTED[1:], IDS, "inconsistent numbers of samples"),
        (Y, PREDICTED, IDS[1:], "client_ids has 9 entries, but X has 10 rows"),
    ],
)
def test_wrong_lengths(y_true, y_pred, ids, message):
    with pytest.raises(ValueError, match=message):
        client_scores(y_true, y_pred, ids)


def test_metric_that_fails_for_one_class_has_no_cell_mean():
    def needs_two(y_true, y_pred):
        if len(np.unique(y_true)) < 2:
            raise ValueError("two classes, please")
        return 0.25

    scores = client_scores(Y, PREDICTED, IDS, needs_two)
    assert scores.mean == 0.25
    assert np.isnan(scores.cell_mean)


@pytest.mark.parametrize(
    "metric", ["balanced_accuracy", "f1_macro", "precision_macro", "recall_macro"]
)
def test_no_warning_about_cells(metric):
    y = np.repeat([0, 1, 2], 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client_scores(y, np.roll(y, 1), np.tile(["A", "B"], 6), metric)


def test_no_warning_about_a_client_without_some_classes():
    scores = client_scores(
        [0, 0, 0, 1], [0, 1, 0, 1], list("AABB"), "balanced_accuracy"
    )
    assert scores.scores.tolist() == [0.5, 1.0]


def test_metric_that_fails_at_a_client_names_the_client():
    def fails(y_true, y_pred):
        raise ValueError("no way")

    with pytest.raises(ValueError, match=r"client 'A'.*no way"):
        client_scores(Y, PREDICTED, IDS, fails)


@pytest.mark.parametrize("metric", ["neg_log_loss", "roc_auc_ovr"])
def test_metric_that_needs_probabilities_points_to_the_scorer(metric):
    with pytest.raises(ValueError, match="ClientScorer"):
        client_scores(Y, PREDICTED, IDS, metric)


@pytest.mark.parametrize("metric", ["no such metric", 3])
def test_unknown_metric(metric):
    with pytest.raises(ValueError, match="metric|scoring"):
        client_scores(Y, PREDICTED, IDS, metric)
