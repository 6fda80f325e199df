"""diagnose: its figures are the plain ones, and its advice follows from them."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skslot import FedCGSClassifier, FedQDAClassifier, MixedEffectsClassifier
from skslot.datasets import load_digit_scanners
from skslot.inspection import diagnose
from skslot.inspection._diagnose import Hits, Trials, _choose
from skslot.model_selection import dirichlet_label_shift

DATA = load_digit_scanners()
X, Y, SITE = DATA.data, DATA.target, DATA.client_ids
ROWS = dirichlet_label_shift(Y, SITE, 0.1, min_samples=20, random_state=0)
SKEWED = X[ROWS], Y[ROWS], SITE[ROWS]


def small(n_clients=3, n_classes=3, n_rows=12, n_features=4, seed=0):
    """Rows of all cells, with a class effect and a client effect."""
    rng = np.random.default_rng(seed)
    ids, y = (a.ravel() for a in np.mgrid[:n_clients, :n_classes])
    ids, y = np.repeat(ids, n_rows), np.repeat(y, n_rows)
    rows = rng.normal(size=(len(y), n_features))
    rows += 3 * rng.normal(size=(n_classes, n_features))[y]
    return rows + rng.normal(size=(n_clients, n_features))[ids], y, ids


@pytest.fixture(scope="module")
def skewed():
    return diagnose(*SKEWED)


@pytest.fixture(scope="module")
def plain():
    return diagnose(*small())


# ------------------------------------------------------------------------- figures


def test_label_shift_is_the_total_variation_distance():
    rows, y, ids = small(2, 2)
    kept = np.r_[0:9, 12:15, 24:27, 36:45]  # 9 and 3 of A, 3 and 9 of B
    found = diagnose(rows[kept], y[kept], ids[kept])
    np.testing.assert_allclose(found.label_shift, [0.25, 0.25])


def test_counts_are_those_of_the_class_table(skewed):
    assert skewed.table.n_absent == 18
    _, counts = np.unique(SITE[ROWS], return_counts=True)
    np.testing.assert_array_equal(skewed.n_samples, counts)
    np.testing.assert_allclose(skewed.rows_per_feature, skewed.n_samples / 64)
    assert skewed.n_features == 64


def test_shares_are_those_of_mixed_effects(skewed):
    model = MixedEffectsClassifier(tau=0).fit(*SKEWED)
    parts = model.variance_components_
    whole = 1 + sum(parts.values())
    assert skewed.shares["site"] == pytest.approx(parts["client"] / whole)
    assert sum(skewed.shares.values()) == pytest.approx(1)


def test_expected_accuracy_is_close_to_that_on_rows_that_were_never_seen(skewed):
    unseen = np.setdiff1d(np.arange(len(Y)), ROWS)
    model = clone(skewed.estimator).fit(*SKEWED)
    truth = [
        model.score(X[here], Y[here], client_ids=SITE[here])
        for here in (unseen[SITE[unseen] == each] for each in skewed.clients)
    ]
    assert np.mean(skewed.accuracy) == pytest.approx(np.mean(truth), abs=0.06)


def test_without_empty_cells_expected_accuracy_is_cross_validated_by_hand():
    rows, y, ids = small()
    trials = Trials.prepare(rows, y, ids, False, 0)
    assert not trials.cell_folds
    model = FedCGSClassifier("within")
    right = np.empty(len(y))
    for train, test in trials.folds:
        fitted = clone(model).fit(rows[train], y[train], client_ids=ids[train])
        right[test] = fitted.predict(rows[test]) == y[test]
    accuracy, _ = trials.accuracy(trials.run(model))
    np.testing.assert_allclose(accuracy, [right[ids == k].mean() for k in range(3)])


def test_classes_that_a_client_lacks_are_judged_by_cells_that_were_held_out():
    rows, y, ids = small()
    kept = ~((ids == 0) & (y == 0))
    rows, y, ids = rows[kept], y[kept], ids[kept]
    trials = Trials.prepare(rows, y, ids, False, 0)
    assert trials.cell_folds
    for train, test in trials.cell_folds:
        pairs = [set(zip(ids[part], y[part], strict=True)) for part in (train, test)]
        assert not pairs[0] & pairs[1]
    share = np.mean(y == 0)
    np.testing.assert_allclose(trials.cell_weights.sum(axis=1), [share, 0, 0])
    assert trials.is_known.all()
    never = Hits(np.ones(len(y)), np.zeros(trials.cell_weights.shape[1]))
    np.testing.assert_allclose(trials.accuracy(never)[0], [1 - share, 1, 1])


def test_clients_that_keep_their_labels_are_judged_by_their_own_mix():
    rows, y, ids = small()
    kept = ~((ids == 0) & (y == 0))
    trials = Trials.prepare(rows[kept], y[kept], ids[kept], True, 0)
    assert not trials.cell_folds
    np.testing.assert_allclose(trials.row_weights[ids[kept] == 0], 1 / 24)


def test_error_of_a_mean_of_coin_tosses_is_the_usual_one():
    rows, y, ids = small(2, 2, n_rows=50)
    trials = Trials.prepare(rows, y, ids, False, 0)
    tosses = np.random.default_rng(0).random(len(y)) < 0.7
    mean, error = trials.mean_accuracy(Hits(tosses.astype(float), np.empty(0)))
    assert mean == pytest.approx(tosses.mean())
    assert error == pytest.approx(np.sqrt(mean * (1 - mean) / len(y)), rel=1e-6)


def test_one_cell_alone_does_not_say_how_sure_one_can_be():
    trials = Trials.prepare(*small(2, 2), False, 0)
    one = Trials(
        **{
            **vars(trials),
            "cell_weights": np.array([[0.5], [0.0]]),
            "row_weights": trials.row_weights / 2,
        }
    )
    answers = Hits(np.ones(len(one.y)), np.ones(1))
    assert one.mean_accuracy(answers)[1] == np.inf


# -------------------------------------------------------------------------- advice


@pytest.mark.parametrize(
    ("ahead", "error", "chosen"),
    [
        (0.03, 0.01, "other"),
        (0.03, 0.02, "mixed effects"),
        (0.009, 0.001, "mixed effects"),
        (-0.1, 0.01, "mixed effects"),
        (0.3, np.inf, "mixed effects"),
        (np.nan, np.inf, "mixed effects"),
    ],
)
def test_another_model_must_be_better_by_a_point_and_beyond_doubt(ahead, error, chosen):
    scores = {"mixed effects": (0.8, 0.0, 0.0), "other": (0.8 + ahead, ahead, error)}
    assert _choose(scores) == chosen


@pytest.mark.parametrize(
    ("ahead", "error", "is_named"),
    [(0.01, 0.02, False), (0.03, np.inf, True), (0.03, 0.02, True), (np.nan, 1, False)],
)
def test_a_model_that_may_be_better_is_named(skewed, ahead, error, is_named):
    scores = {**skewed.scores, "other": (0.9, ahead, error)}
    notes = " ".join(replace(skewed, scores=scores).warnings)
    assert ("of other is +3.0 +/- " in notes) is is_named


def test_label_shift_calls_for_mixed_effects(skewed):
    assert repr(skewed.estimator) == "MixedEffectsClassifier()"
    assert skewed.scores["no alignment"][1] < -0.1
    assert "Recommended: mixed effects" in skewed.recommendation


def test_like_label_mixes_of_digits_call_for_a_covariance_per_class():
    found = diagnose(X, Y, SITE)
    assert isinstance(found.estimator, FedQDAClassifier)
    assert "points above mixed effects" in found.recommendation


def test_clients_that_keep_their_labels_get_their_own_priors():
    found = diagnose(*SKEWED, labels_at_use="as_now")
    offered = MixedEffectsClassifier(priors="client")
    assert found.scores["mixed effects"][0] > 0.8
    if found.chosen == "mixed effects":
        assert found.estimator.priors == offered.priors
    assert "every client keeps its class distribution" in repr(found)
    assert "labels_at_use='shared'" in repr(found)


def test_mixed_effects_are_left_where_sites_stretch_features():
    """An offset cannot undo that; see the user guide on mixed effects."""
    stretch = np.exp(np.random.default_rng(0).normal(0, 2, (4, 64)))
    _, site = np.unique(SITE, return_inverse=True)
    found = diagnose(X * stretch[site], Y, SITE)
    assert found.chosen != "mixed effects"


def test_recommendation_has_three_sentences_with_figures(skewed):
    for found in (skewed, diagnose(X[ROWS], client_ids=SITE[ROWS])):
        sentences = re.split(r"\. (?=[A-Z])", found.recommendation)
        assert len(sentences) == 3
        assert re.search(r"\d", sentences[0])
    assert "18 of 40" in skewed.recommendation
    assert "labels_at_use='as_now'" in repr(skewed)


def test_estimator_is_not_fitted_and_its_code_runs(skewed):
    names = dict(zip(("X", "y", "client_ids"), SKEWED, strict=True))
    exec(skewed.code, names)
    assert repr(names["model"]) == repr(skewed.estimator)
    assert not hasattr(skewed.estimator, "classes_")


def test_client_that_will_do_badly_is_named():
    rows, y, ids = small(4, 3, n_rows=60, n_features=6)
    rng = np.random.default_rng(0)
    y = np.where(ids == 2, rng.permutation(y), y)  # its labels mean nothing
    found = diagnose(rows, y, ids)
    assert found.weak == [2]
    assert any("[2]: the accuracy is" in note for note in found.warnings)


def test_client_that_stands_out_is_named():
    rows, y, ids = small(4)
    found = diagnose(np.where((ids == 1)[:, None], 1000 * rows, rows), y, ids)
    assert list(found.clients_report.outliers) == [1]
    assert any("Client 1 stands out" in note for note in found.warnings)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda X: X * np.r_[1000.0, np.ones(X.shape[1] - 1)], "different units"),
        (
            lambda X: np.tile(X, (1, 40)),
            "at most 128 principal components of the 160",
        ),
        (lambda X: np.tile(X, (1, 20)), "fewer rows than features"),
    ],
)
def test_what_else_to_look_at_is_said(plain, change, note):
    rows, y, ids = small()
    assert not any(note in text for text in plain.warnings)
    assert any(note in text for text in diagnose(change(rows), y, ids).warnings)


def test_clients_without_a_common_class_are_named():
    rows, y, ids = small()
    found = diagnose(rows, 10 * ids + y, ids)
    assert any("no class in common" in note for note in found.warnings)
    assert found.estimator is not None


# -------------------------------------------------------------------- how it is used


def test_prints_frames_and_html(skewed):
    text = repr(skewed)
    assert text.startswith("4 clients, ")
    assert "18 of 40 (client, class) cells are empty" in text
    assert max(map(len, text.splitlines())) <= 100
    assert ">  mixed effects" in text
    frame = skewed.to_frame()
    assert frame.index.tolist() == sorted(set(SITE))
    assert frame.loc["fax", "accuracy"] == skewed.accuracy[0]
    html = skewed._repr_html_()
    assert html.count("<table>") == 2
    assert "<pre><code>from skslot import MixedEffectsClassifier" in html


def test_names_cannot_break_the_page_or_the_terminal(plain):
    rows, y, ids = small()
    found = diagnose(rows, y, np.array(["<b>a", "b\nc", "c\x1b[31m"])[ids])
    assert "<b>" not in found._repr_html_()
    assert "\x1b" not in repr(found)
    assert len(repr(found).splitlines()) == len(repr(plain).splitlines())


def test_ids_may_be_a_column(plain):
    rows, y, ids = small()
    table = pd.DataFrame(rows, columns=list("abcd")).assign(site=ids)
    found = diagnose(table, y, client_column="site")
    np.testing.assert_array_equal(found.accuracy, plain.accuracy)
    assert found.estimator.client_column == "site"
    found.estimator.fit(table, y)
    assert "client_ids" not in found.code


def test_ids_may_be_the_first_column(plain):
    rows, y, ids = small()
    found = diagnose(np.column_stack([ids, rows]), y, client_column=0)
    np.testing.assert_array_equal(found.accuracy, plain.accuracy)
    assert "client_ids" not in found.code
    assert "client_column=0" in found.code


def test_without_labels_nothing_is_recommended():
    rows, _, ids = small()
    found = diagnose(rows, client_ids=ids)
    assert found.estimator is None
    assert found.code == ""
    assert found.weak == []
    assert "Without labels" in repr(found)
    assert list(found.to_frame()) == ["n_samples", "rows_per_feature"]
    assert "<table>" in found._repr_html_()


def test_float32_and_text_labels(plain):
    rows, y, ids = small()
    found = diagnose(rows.astype(np.float32), np.array(["u", "v", "w"])[y], ids)
    np.testing.assert_allclose(found.accuracy, plain.accuracy, atol=0.03)
    assert found.table.classes.tolist() == ["u", "v", "w"]


def test_progress_counts_all_fits_and_changes_nothing(plain):
    seen = []
    found = diagnose(*small(), progress=lambda done, total: seen.append((done, total)))
    assert found.scores == plain.scores
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][0] == seen[-1][1]


def test_clients_of_one_row_have_no_accuracy():
    rows, y, ids = small()
    kept = (ids != 1) | (np.arange(len(y)) == np.flatnonzero(ids == 1)[0])
    found = diagnose(rows[kept], y[kept], ids[kept])
    assert np.isnan(found.accuracy).tolist() == [False, True, False]
    assert any("[1]: no rows could be held out" in note for note in found.warnings)


def test_a_handful_of_rows_is_told_to_be_too_few():
    rows, y, ids = small(2, 2, n_rows=1)
    found = diagnose(rows, y, ids)
    assert found.chosen == "mixed effects"
    assert "Recommended: mixed effects" in found.recommendation
    one_each = diagnose(rows[[0, 3]], y[[0, 3]], ids[[0, 3]])
    assert "too few rows" in one_each.recommendation
    assert "?" in repr(one_each)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, ids: (X, y, None), "pass client_ids"),
        (lambda X, y, ids: (X, y, np.zeros(len(y))), "all rows are of one client"),
        (lambda X, y, ids: (X, np.zeros(len(y)), ids), "all labels are 0.0"),
        (lambda X, y, ids: (X, y[:-1], ids), "inconsistent numbers of samples"),
        (lambda X, y, ids: (X, y, ids[:-1]), "client_ids has 107 entries"),
        (lambda X, y, ids: (X, np.linspace(0, 1, len(y)), ids), "Unknown label type"),
        (
            lambda X, y, ids: (np.where((ids == 1)[:, None], np.nan, X), y, ids),
            r"Rows of client \[1\]: Input X contains NaN\. Fill or drop them",
        ),
        (lambda X, y, ids: (X[:0], y[:0], ids[:0]), "0 sample"),
    ],
)
def test_wrong_input_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        diagnose(*change(*small()))


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["f", "m"], r"column 'odd' of X has text, 'f', .*OneHotEncoder.*skslot plan"),
        (pd.Timestamp("2026-01-01"), "column 'odd' of X has dates .*count days"),
        (pd.Timestamp("2026-01-01", tz="UTC"), "column 'odd' of X has dates"),
        (pd.Timedelta("3h"), "column 'odd' of X has dates or times"),
    ],
)
def test_columns_that_are_no_numbers_are_named(values, words, by_column):
    X, y, ids = small()
    table = pd.DataFrame(X, columns=[f"f{k}" for k in range(X.shape[1])])
    is_list = isinstance(values, list)
    table["odd"] = np.resize(values, len(table)) if is_list else values
    where = {"client_ids": ids}
    if by_column:
        table["site"], where = ids, {"client_column": "site"}
    with pytest.raises(ValueError, match=words):
        diagnose(table, y, **where)


def test_wrong_assumption_is_refused():
    with pytest.raises(ValueError, match="labels_at_use"):
        diagnose(*small(), labels_at_use="balanced")
