"""Reports and pictures of mixed effects, which have offsets and no reference."""

from dataclasses import replace

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.geometry import gaussian_wasserstein
from skslot.inspection import (
    AlignmentDisplay,
    ClientDistanceDisplay,
    TauPathDisplay,
    alignment_report,
)
from skslot.model_selection import FederatedGridSearchCV

HEADS = "client rows classes tau offset W2 before W2 after bytes sent".split()


@pytest.fixture(scope="module")
def offsets_only(training):
    X, y, ids = training
    return MixedEffectsAligner().fit(X, y, client_ids=ids)


# -------------------------------------------------------------------- the report


def test_columns_are_those_of_the_classifier(mixed, training):
    _, y, ids = training
    report = alignment_report(mixed)
    clients, counts = np.unique(ids, return_counts=True)
    np.testing.assert_array_equal(report.clients, clients)
    np.testing.assert_array_equal(report.n_samples, counts)
    classes = [len(np.unique(y[ids == client])) for client in clients]
    np.testing.assert_array_equal(report.n_classes, classes)
    np.testing.assert_array_equal(report.tau, mixed.tau_)
    offsets = mixed.client_offsets_
    inverse = np.linalg.inv(mixed.covariance_)
    lengths = [np.sqrt(offset @ inverse @ offset) for offset in offsets]
    np.testing.assert_allclose(report.offsets, lengths)


def test_distances_are_means_over_the_other_clients(offsets_only, training):
    """An offset moves the mean of a client, and leaves its covariance."""
    X, _, ids = training
    report = alignment_report(offsets_only)
    moved = offsets_only.transform(X, client_ids=ids)
    clients = offsets_only.clients_
    for rows, found in ((X, report.before), (moved, report.after)):
        means = [rows[ids == client].mean(axis=0) for client in clients]
        gaussians = list(zip(means, offsets_only.covariances_, strict=True))
        distances = [
            np.mean([gaussian_wasserstein(*g, *h) for h in gaussians if h is not g])
            for g in gaussians
        ]
        np.testing.assert_allclose(found, distances)
    assert (report.after < report.before).all()


def test_text_names_the_variances_and_has_a_line_per_client(mixed):
    title, heads, *lines = repr(alignment_report(mixed)).splitlines()
    assert title.startswith("4 clients, 64 features; variance: class 3")
    assert heads.split() == HEADS
    assert [line.split()[0] for line in lines] == list(mixed.aligner_.clients_)
    assert all(len(line) <= 88 for line in lines)
    assert alignment_report(mixed).to_frame().shape == (4, 7)
    assert alignment_report(mixed)._repr_html_().count("<tr>") == 5


@pytest.mark.parametrize("classifier", [FedCGSClassifier, FedPFTClassifier])
@pytest.mark.parametrize("tau", [0, "auto"])
def test_other_classifiers_report_the_same(classifier, tau, training):
    X, y, ids = training
    model = classifier(aligner=MixedEffectsAligner(tau))
    report = alignment_report(model.fit(X, y, client_ids=ids))
    expected = alignment_report(MixedEffectsAligner(tau).fit(X, y, client_ids=ids))
    for name in ("n_samples", "n_classes", "tau", "offsets", "before", "after"):
        found = getattr(report, name)
        np.testing.assert_allclose(found, getattr(expected, name), rtol=0.02)


def test_site_that_joined_without_labels_has_no_classes_and_all_its_rows(digits):
    X, y, ids = digits
    rows = ids != "phone"
    model = MixedEffectsClassifier(0).fit(X[rows], y[rows], client_ids=ids[rows])
    model.add_client(X[~rows], "phone")
    report = alignment_report(model)
    assert report.clients[-1] == "phone"
    assert report.n_samples[-1] == np.sum(~rows)
    assert report.n_classes[-1] == 0


def test_what_unlabelled_rows_taught_a_site_counts(mixed, training, digits):
    X, _, ids = digits
    model = clone(mixed).fit(*training[:2], client_ids=training[2])
    before = alignment_report(model)
    model.adapt_client(X[ids == "fax"], "fax")
    after = alignment_report(model)
    changed = before.offsets != after.offsets
    assert model.aligner_.clients_[changed].tolist() == ["fax"]
    display = AlignmentDisplay.from_estimator(model, X, None, ids)
    basis = PCA(2, random_state=0).fit(X)
    fax = ids == "fax"
    linear = replace(model.aligner_.maps_["fax"], offset=np.zeros(X.shape[1]))
    moved = linear.transform(X[fax]) - model.client_offsets_[0]
    np.testing.assert_allclose(display.projections[1][fax], basis.transform(moved))


def test_site_that_shares_no_class_is_named():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 0, 1, 2], 30)
    ids = np.repeat(["A", "A", "B", "B", "C"], 30)
    X = rng.normal(size=(150, 3))
    model = MixedEffectsAligner().fit(X, y, client_ids=ids)
    (warning,) = alignment_report(model).warnings
    assert warning.startswith("Client ['C']: no class in common with another client")


def test_site_far_from_all_others_is_named():
    rng = np.random.default_rng(0)
    y, ids = np.tile([0, 1], 120), np.repeat(list("ABCD"), 60)
    X = rng.normal(size=(240, 3)) + y[:, None] + 30 * (ids == "D")[:, None]
    warnings = alignment_report(
        MixedEffectsAligner(screen=None).fit(X, y, client_ids=ids)
    ).warnings
    assert [w[:22] for w in warnings] == ["Client 'D' stands out:"]


@pytest.mark.filterwarnings("ignore:No client_ids were passed")
def test_single_client_is_at_no_distance(training):
    X, y, _ = training
    report = alignment_report(MixedEffectsAligner().fit(X, y))
    assert (report.before, report.after, report.offsets) == (0, 0, 0)
    assert report.warnings == []


# ------------------------------------------------------------------ the pictures


@pytest.mark.parametrize(
    ("tau", "title"),
    [
        (0, "after, offsets only"),
        (0.3, "after, offsets, tau = 0.3"),
        ("auto", "after, offsets, tau = 0.14 to 0.24"),
    ],
)
def test_distances_are_those_of_the_report(tau, title, training):
    X, y, ids = training
    aligner = MixedEffectsAligner(tau).fit(X, y, client_ids=ids)
    display = ClientDistanceDisplay.from_estimator(aligner)
    report = alignment_report(aligner)
    np.testing.assert_allclose(display.before.sum(axis=1) / 3, report.before)
    np.testing.assert_allclose(display.after.sum(axis=1) / 3, report.after)
    assert display.axes_[1].get_title() == title


@pytest.mark.parametrize("tau", [0, 0.5])
def test_points_are_before_and_after_the_move(tau, training):
    X, y, ids = training
    aligner = MixedEffectsAligner(tau).fit(X, y, client_ids=ids)
    display = AlignmentDisplay.from_estimator(aligner, X, y, ids)
    basis = PCA(2, random_state=0).fit(X)
    moved = aligner.transform(X, client_ids=ids)
    for rows, points in zip((X, moved), display.projections, strict=True):
        np.testing.assert_allclose(points, basis.transform(rows), atol=1e-8)
    titles = [axis.get_title() for axis in display.axes_[0]]
    assert titles == ["before", "after"]


def test_points_may_go_half_of_the_way(offsets_only, training):
    shares = [0, 0.5, 1]
    display = AlignmentDisplay.from_estimator(offsets_only, *training, taus=shares)
    start, middle, end = display.projections
    np.testing.assert_allclose(middle, (start + end) / 2)
    assert display.axes_[0, 1].get_title() == "50% of the way"
    with pytest.raises(ValueError, match="share must lie in"):
        AlignmentDisplay.from_estimator(offsets_only, *training, taus=[2])


def test_a_search_is_drawn_by_what_it_found(training):
    X, y, ids = training
    search = FederatedGridSearchCV(MixedEffectsClassifier(tau=0), {"tau": [0]}, cv=2)
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, y, client_ids=ids)
    found = AlignmentDisplay.from_estimator(search, X, y, ids)
    expected = AlignmentDisplay.from_estimator(search.best_estimator_, X, y, ids)
    np.testing.assert_array_equal(found.projections, expected.projections)


# ------------------------------------------------------------------ scores over tau


def accuracies(model, digits, partition):
    """Accuracy of each client on test rows."""
    X, y, ids = digits
    train, test = partition
    model = clone(model).fit(X[train], y[train], client_ids=ids[train])
    hits = model.predict(X[test], client_ids=ids[test]) == y[test]
    return [hits[ids[test] == client].mean() for client in np.unique(ids)]


def test_path_of_a_mixed_effects_classifier(digits, partition):
    X, y, ids = digits
    display = TauPathDisplay.from_estimator(
        MixedEffectsClassifier(), X, y, client_ids=ids, taus=[0, 0.5], cv=[partition]
    )
    for tau, scores in zip(display.taus, display.scores, strict=True):
        expected = accuracies(MixedEffectsClassifier(tau), digits, partition)
        np.testing.assert_allclose(scores, expected)
    assert (display.chosen_tau, display.default_tau) == (None, None)
    assert not display.ax_.texts


def test_path_of_a_mixed_effects_aligner_in_a_pipeline(digits, partition):
    X, y, ids = digits
    steps = [("align", MixedEffectsAligner(0.2)), ("classify", FedCGSClassifier())]
    display = TauPathDisplay.from_estimator(
        Pipeline(steps), X, y, client_ids=ids, taus=[0, 0.2], cv=[partition]
    )
    model = FedCGSClassifier(aligner=MixedEffectsAligner(0))
    expected = accuracies(model, digits, partition)
    np.testing.assert_allclose(display.scores[0], expected, atol=0.02)
    assert [text.get_text() for text in display.ax_.texts] == [
        "default 0",
        "chosen 0.2",
    ]


def test_others_are_scored_on_the_same_rows_and_drawn_as_lines(digits, partition):
    X, y, ids = digits
    others = {"mixed effects": MixedEffectsClassifier(), "plain": FedCGSClassifier()}
    display = TauPathDisplay.from_estimator(
        FedCGSClassifier(aligner=FederatedOTAligner()),
        X,
        y,
        client_ids=ids,
        taus=[0],
        cv=[partition],
        others=others,
    )
    for name, model in others.items():
        expected = accuracies(model, digits, partition)
        np.testing.assert_allclose(display.other_scores[name], expected)
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert legend[-2:] == ["mean, mixed effects", "mean, plain"]
    styles = {line.get_linestyle() for line in display.ax_.lines[-4:-2]}
    assert len(styles) == 2


@pytest.mark.usefixtures("routing")
def test_search_over_tau_of_mixed_effects_goes_by_score_and_is_drawn(training):
    X, y, ids = training
    taus = [0, 0.9, "auto"]
    search = FederatedGridSearchCV(MixedEffectsClassifier(), {"tau": taus}, cv=2)
    search.fit(X, y, client_ids=ids)
    assert search.best_index_ == search.cv_results_["mean_test_score"].argmax()
    assert (search.tau_auto_, search.best_tau_) == (None, None)
    display = TauPathDisplay.from_search(search, X, y, client_ids=ids)
    assert display.taus == [0.0, 0.9]
    best = search.best_params_["tau"]
    assert display.chosen_tau == (None if best == "auto" else best)


@pytest.mark.usefixtures("routing")
def test_preference_for_the_automatic_tau_leaves_mixed_effects_alone(training):
    """Its tau means something else: a strong preference must not rule it out."""
    X, y, ids = training
    grid = [
        {"aligner__tau": [0.0, 1.0]},
        {"aligner": [MixedEffectsAligner(), MixedEffectsAligner("auto")]},
    ]
    model = FedCGSClassifier(aligner=FederatedOTAligner())
    search = FederatedGridSearchCV(model, grid, cv=2, tau_prior=100)
    search.fit(X, y, client_ids=ids)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_index_ == 2 + scores[2:].argmax()
    assert search.tau_auto_ > 0
    assert search.best_tau_ is None
    assert "chosen tau" not in search.summary()
    with pytest.raises(ValueError, match="the search chose .* without a tau"):
        TauPathDisplay.from_search(search, X, y, client_ids=ids)
