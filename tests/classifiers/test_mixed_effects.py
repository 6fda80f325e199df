"""MixedEffectsClassifier: against the formulas, its invariances, and single sites."""

import copy
import pickle
import warnings
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_digits

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.classifiers._gaussian import factorise, head_of_means
from skslot.datasets import load_digit_scanners, make_shifted_clients
from skslot.exchange import LinearModel, MixedEffectsModel, load_message
from skslot.model_selection import dirichlet_label_shift
from skslot.statistics import (
    Cells,
    fit_mixed_effects,
    fit_unlabelled,
    shrinkage_coefficient,
    stack_class_means,
    within_covariance,
)

TAUS = [0, 0.5, "auto"]
PRIORS = ["pooled", "client", "uniform", (0.4, 0.3, 0.2, 0.1)]
SITES = ["Bern", "Oslo", "Turin"]

drawn = make_shifted_clients(
    n_samples=240,
    n_clients=3,
    n_classes=4,
    n_features=5,
    class_separation=4,
    label_shift=1,
    random_state=0,
)
X, Y = drawn.data, np.array(list("abcd"))[drawn.target]
IDS = np.array(SITES)[drawn.client_ids]
FRAME = pd.DataFrame(X, columns=list("vwxyz"))
BERN = IDS == "Bern"


def new(tau="auto", **params):
    return MixedEffectsClassifier(tau, **params)


def fitted(tau="auto", X=X, y=Y, ids=IDS, **params):
    return new(tau, **params).fit(X, y, client_ids=ids)


@cache
def fitted_once(tau="auto", priors="pooled", **params):
    """Shared, so not to be changed."""
    return fitted(tau, priors=priors, **params)


def scores(classifier, X=X, ids=IDS):
    return classifier.decision_function(X, client_ids=ids)


def messages_of(classifier, classes="abcd"):
    return [
        classifier.client_update(
            X[site == IDS], Y[site == IDS], classes=list(classes), client=site
        )
        for site in SITES
    ]


def over(values, name="tau"):
    return pytest.mark.parametrize(name, values)


# ------------------------------------------------------------- against the formulas


def by_the_book(X, y, ids, components, priors="pooled"):
    """Offsets and probabilities of all rows without linear maps, by plain loops."""
    client, label, interaction = components.values()
    sites, classes = np.unique(ids), np.unique(y)
    cells = [(k, c) for k in sites for c in classes if np.any((ids == k) & (y == c))]
    rows = {(k, c): X[(ids == k) & (y == c)] for k, c in cells}
    n = np.array([len(rows[cell]) for cell in cells])
    M = np.array([rows[cell].mean(axis=0) for cell in cells])
    same_site = np.array([[a[0] == b[0] for b in cells] for a in cells])
    same_class = np.array([[a[1] == b[1] for b in cells] for a in cells])
    V = client * same_site + label * same_class + np.diag(interaction + 1 / n)
    inverse = np.linalg.inv(V)
    mean = inverse.sum(axis=0) @ M / inverse.sum()
    members = np.array([[cell[0] == k for cell in cells] for k in sites])
    d = dict(zip(sites, client * members @ inverse @ (M - mean), strict=True))

    moved = {cell: m - d[cell[0]] for cell, m in zip(cells, M, strict=True)}
    weight = {cell: 1 / (interaction + 1 / len(rows[cell])) for cell in cells}
    share = {c: np.mean(y == c) for c in classes}
    mu, plain_mean = {}, {}
    for c in classes:
        held = [cell for cell in cells if cell[1] == c]
        mu[c] = np.average([moved[i] for i in held], 0, [weight[i] for i in held])
        sizes = [len(rows[i]) for i in held]
        plain_mean[c] = np.average([moved[i] for i in held], 0, sizes)

    N, m = X.shape
    scatter = {k: np.zeros((m, m)) for k in sites}
    for k, c in cells:
        apart = rows[k, c] - d[k] - plain_mean[c]
        scatter[k] += apart.T @ apart
    P = sum(scatter.values()) / N
    a = {k: np.mean(ids == k) for k in sites}
    squares = [a[k] ** 2 * np.sum((scatter[k] / (a[k] * N) - P) ** 2) for k in sites]
    target = np.sum(P**2) - np.trace(P) ** 2 / m
    between = sum(squares) / (1 - sum(v**2 for v in a.values())) / target
    s = min(1, max(shrinkage_coefficient("oas", P, N), between))
    sigma = (1 - s) * P + (s + 1e-6) * np.trace(P) / m * np.eye(m)

    probabilities = np.empty((N, len(classes)))
    for k in sites:
        lam = {c: interaction * weight[k, c] if (k, c) in rows else 0 for c in classes}
        cover = sum(share[c] * lam[c] for c in classes)
        own = ids == k
        found = []
        for c in classes:
            theta = mu[c]
            if (k, c) in rows:
                theta = mu[c] + cover * lam[c] * (moved[k, c] - mu[c])
            prior = share[c]
            if priors == "client":
                prior = (np.sum(own & (y == c)) + share[c]) / (np.sum(own) + 1)
            apart = X[own] - d[k] - theta
            distance = np.sum(apart @ np.linalg.inv(sigma) * apart, axis=1)
            found.append(np.log(prior) - distance / 2)
        probabilities[own] = softmax(np.array(found).T, axis=1)
    return np.array(list(d.values())), sigma, probabilities


@over(["pooled", "client"], "priors")
def test_predictions_are_those_of_the_formulas(priors):
    classifier = fitted_once(0, priors)
    components = classifier.variance_components_
    assert min(components.values()) > 0.01
    offsets, sigma, probabilities = by_the_book(X, Y, IDS, components, priors)
    np.testing.assert_allclose(classifier.client_offsets_, offsets, atol=1e-9)
    np.testing.assert_allclose(classifier.covariance_, sigma, atol=1e-9)
    actual = classifier.predict_proba(X, client_ids=IDS)
    np.testing.assert_allclose(actual, probabilities, atol=1e-9)


@over([0.3, "auto"])
def test_with_linear_maps_they_are_those_for_rows_that_were_moved(tau):
    classifier = fitted_once(tau)
    moved = X.copy()
    for site, each in zip(SITES, classifier.aligner_.maps_.values(), strict=True):
        assert each.tau > 0.1
        moved[site == IDS] = each.transform(X[site == IDS]) + each.offset
    expected = by_the_book(moved, Y, IDS, classifier.variance_components_)
    np.testing.assert_allclose(classifier.client_offsets_, expected[0], atol=1e-8)
    np.testing.assert_allclose(classifier.covariance_, expected[1], atol=1e-8)
    actual = classifier.predict_proba(X, client_ids=IDS)
    np.testing.assert_allclose(actual, expected[2], atol=1e-8)


@over(TAUS)
@over(PRIORS, "priors")
def test_folded_head_equals_the_map_and_then_the_head(tau, priors):
    classifier = fitted_once(tau, priors)
    inverse = np.linalg.inv(classifier.covariance_)
    for k, (site, each) in enumerate(
        zip(SITES, classifier.aligner_.maps_.values(), strict=True)
    ):
        rows = X[site == IDS]
        apart = each.transform(rows)[:, None] - classifier.cell_means_[k]
        distances = np.einsum("nci,ij,ncj->nc", apart, inverse, apart)
        prior = classifier.priors_
        if priors == "client":
            n = np.array([np.sum((site == IDS) & (Y == c)) for c in "abcd"])
            prior = (n + prior) / (n.sum() + 1)
        expected = softmax(np.log(prior) - distances / 2, axis=1)
        model = classifier.client_model(site)
        assert isinstance(model, LinearModel)
        assert model.client == site
        np.testing.assert_allclose(model.predict_proba(rows), expected, atol=1e-9)
        actual = classifier.predict_proba(rows, client_ids=site)
        np.testing.assert_allclose(actual, expected, atol=1e-9)


# ------------------------------------------------------------ what it is at the ends


@over(["auto", 0])
def test_single_client_is_linear_discriminant_analysis(tau):
    ids = np.full(len(X), "all")
    one = fitted(tau, ids=ids, shrinkage=0.0)
    within = one.covariance_ - 1e-6 * np.trace(one.covariance_) / 5 * np.eye(5)
    ridge = 1e-6 * np.trace(within) / 5
    other = FedCGSClassifier("within", ridge=ridge).fit(X, Y)
    np.testing.assert_allclose(scores(one, ids=ids), scores(other), atol=1e-7)
    default = FedCGSClassifier("within").fit(X, Y)
    shrunk = fitted(tau, ids=ids)
    np.testing.assert_allclose(scores(shrunk, ids=ids), scores(default), atol=1e-3)
    assert shrunk.variance_components_ == {"client": 0, "class": 0, "interaction": 0}
    assert not shrunk.client_offsets_.any()
    without_ids = shrunk.predict(X)
    assert np.array_equal(without_ids, shrunk.predict(X, client_ids="all"))


def test_without_effects_of_clients_it_is_fedcgs_within():
    pairs = [(k, c) for k in range(3) for c in range(4)]
    rows = {p: X[(drawn.client_ids == p[0]) & (drawn.target == p[1])] for p in pairs}
    rows = {pair: each for pair, each in rows.items() if len(each)}
    client, label = np.array(list(rows)).T
    counts = np.array([len(each) for each in rows.values()], float)
    means = np.array([each.mean(axis=0) for each in rows.values()])
    cells = Cells(client, label, counts, means, within=1.0)
    model = fit_mixed_effects(cells, np.zeros(3))
    scatters = []
    for k in range(3):
        offset = model.offset(*cells.of_client(k))
        assert not offset.any()
        own = model.own_means(*cells.of_client(k), offset)
        np.testing.assert_allclose(own, model.means, atol=1e-12)
        here = drawn.client_ids == k
        apart = X[here] - model.means[drawn.target[here]]
        scatters.append((here.sum(), apart.T @ apart))
    covariance, _ = within_covariance(scatters, 0.0)
    ridge = 1e-6 / (1 + 1e-6) * np.trace(covariance) / 5
    other = FedCGSClassifier("within", ridge=ridge).fit(X, Y)
    factor = factorise(covariance, model.means, model.class_counts.sum())
    coef, intercept = head_of_means(model.means, factor, np.log(model.class_shares))
    np.testing.assert_allclose(coef, other.coef_, atol=1e-9)
    np.testing.assert_allclose(intercept, other.intercept_, atol=1e-9)


def test_random_parts_of_one_pool_are_one_pool():
    digits = load_digits()
    rng = np.random.default_rng(0)
    train = rng.random(len(digits.data)) < 0.7
    rows, y = digits.data[train], digits.target[train]
    ids = rng.integers(4, size=len(y))
    classifier = fitted("auto", rows, y, ids)
    found = classifier.variance_components_
    assert found["client"] < 0.01
    assert found["interaction"] < 0.01
    assert found["class"] > 0.5
    assert classifier.tau_.max() < 0.01
    for k, offset in enumerate(classifier.client_offsets_):
        own = rows[ids == k]
        error = np.sqrt(own.var(axis=0).sum() / len(own))
        assert np.linalg.norm(offset) < error
    test, target = digits.data[~train], digits.target[~train]
    ids = rng.integers(4, size=len(target))
    plain = FedCGSClassifier().fit(rows, y).score(test, target)
    assert classifier.score(test, target, client_ids=ids) >= plain - 0.003
    assert "Sites hardly differ" in classifier.summary()


@over([(None, 0.02), (0.1, 0.10), (0.01, 0.10)], "case")
def test_points_gained_on_digits_of_four_scanners(case):
    alpha, least = case
    data = load_digit_scanners()
    gains = []
    for seed in (100, 101):
        rng = np.random.default_rng(seed)
        test = rng.random(len(data.target)) < 0.3
        train = np.flatnonzero(~test)
        if alpha is None:
            train = rng.choice(train, len(train) // 3, replace=False)
        else:
            y, ids = data.target[train], data.client_ids[train]
            train = train[dirichlet_label_shift(y, ids, alpha, random_state=seed)]
        rows = [part[train] for part in (data.data, data.target, data.client_ids)]
        accuracy = []
        for classifier in (new(), FedCGSClassifier()):
            classifier.fit(*rows)
            parts = [test & (data.client_ids == site) for site in np.unique(rows[2])]
            accuracy.append(
                np.mean(
                    [
                        classifier.score(
                            data.data[part],
                            data.target[part],
                            client_ids=data.client_ids[part],
                        )
                        for part in parts
                    ]
                )
            )
        gains.append(accuracy[0] - accuracy[1])
    assert np.mean(gains) >= least


# ------------------------------------------------------------------- invariances


@over(TAUS)
def test_order_of_rows_does_not_matter(tau):
    order = np.random.default_rng(0).permutation(len(X))
    other = fitted(tau, X[order], Y[order], IDS[order])
    np.testing.assert_allclose(scores(other), scores(fitted_once(tau)), atol=1e-9)


@over(TAUS)
def test_order_and_names_of_clients_do_not_matter(tau):
    names = np.array(["z", "a", "m"])[drawn.client_ids]
    other = fitted(tau, ids=names)
    np.testing.assert_allclose(
        scores(other, ids=names), scores(fitted_once(tau)), atol=1e-9
    )
    order = [other.aligner_.clients_.tolist().index(name) for name in "zam"]
    np.testing.assert_allclose(
        other.client_offsets_[order], fitted_once(tau).client_offsets_, atol=1e-9
    )


@over(TAUS)
def test_rotation_scale_and_origin_of_features_do_not_matter(tau):
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    other = 0.1 * X @ rotation.T + rng.normal(size=5)
    moved, first = fitted(tau, other), fitted_once(tau)
    tolerance = 1e-9 if tau == 0 else 1e-6  # what the solver of the reference reaches
    np.testing.assert_allclose(scores(moved, other), scores(first), atol=tolerance)
    assert np.array_equal(
        moved.predict(other, client_ids=IDS), first.predict(X, client_ids=IDS)
    )
    np.testing.assert_allclose(
        moved.client_offsets_,
        0.1 * first.client_offsets_ @ rotation.T,
        rtol=0,
        atol=tolerance,
    )


@over(TAUS)
def test_server_step_on_messages_equals_fit(tau):
    messages = messages_of(new(tau))
    assert all(type(m).__name__ == "ClassStatistics" for m in messages)
    other = new(tau).server_aggregate(iter(messages[::-1]))
    np.testing.assert_allclose(scores(other), scores(fitted_once(tau)), atol=1e-9)
    assert messages[0] == FedCGSClassifier().client_update(
        X[BERN], Y[BERN], classes=list("abcd"), client="Bern"
    )


# ----------------------------------------------------------------------- priors


def test_priors():
    counts = np.array([np.mean(Y == c) for c in "abcd"])
    np.testing.assert_allclose(fitted_once().priors_, counts)
    np.testing.assert_allclose(fitted_once("auto", "client").priors_, counts)
    assert fitted_once("auto", "uniform").priors_.tolist() == [0.25] * 4
    given = fitted(priors=[4, 3, 2, 1])
    np.testing.assert_allclose(given.priors_, [0.4, 0.3, 0.2, 0.1])
    assert np.array_equal(scores(given), scores(fitted(priors=np.arange(4, 0, -1))))


@over([[1, 2], [1, 2, 3, -1], [1, 2, 3, np.nan], [0, 1, 1, 1]], "priors")
def test_wrong_priors_are_refused(priors):
    with pytest.raises(ValueError, match="priors must be 4 positive numbers.*'d'"):
        fitted(priors=priors)


@over(
    [
        {"tau": 2},
        {"tau": "strong"},
        {"priors": "empirical"},
        {"shrinkage": "ledoit_wolf"},
        {"shrinkage": -0.1},
        {"unknown_client": "guess"},
    ],
    "params",
)
def test_wrong_parameters_are_refused(params):
    with pytest.raises(ValueError, match=f"'{next(iter(params))}' parameter"):
        fitted(**params)


def test_shrinkage_of_clients_is_at_least_that_of_rows():
    by_rows, by_clients = fitted_once(0, shrinkage="oas"), fitted_once(0)
    assert by_clients.shrinkage_ > by_rows.shrinkage_ > 0
    assert fitted_once(0, shrinkage=0.7).shrinkage_ == 0.7


# ------------------------------------------------------------------- edge cases


def check_sensible(classifier, X=X, ids=IDS):
    probabilities = classifier.predict_proba(X, client_ids=ids)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert all(np.isfinite(v) for v in classifier.variance_components_.values())
    assert np.isfinite(classifier.client_offsets_).all()
    assert classifier.converged_
    return classifier


ONE_EACH = np.array(
    [np.flatnonzero((IDS == k) & (Y == c))[0] for k in SITES for c in "abcd"]
)


@over(TAUS)
def test_one_class_is_predicted_always(tau):
    classifier = check_sensible(fitted(tau, y=np.full(len(X), "a")))
    assert set(classifier.predict(X, client_ids=IDS)) == {"a"}


@over(TAUS)
def test_all_cells_of_one_row(tau):
    rows = X[ONE_EACH], Y[ONE_EACH], IDS[ONE_EACH]
    classifier = check_sensible(fitted(tau, *rows))
    assert classifier.score(X, Y, client_ids=IDS) > 0.7


def test_one_client_with_one_row_of_each_class():
    """Rows do not vary within classes, but the classes differ."""
    rows = X[ONE_EACH[:4]], Y[ONE_EACH[:4]], IDS[ONE_EACH[:4]]
    classifier = check_sensible(fitted("auto", *rows), *rows[::2])
    assert classifier.score(*rows[:2]) == 1


@over(TAUS)
def test_rows_that_do_not_vary_within_classes(tau):
    rows = np.eye(5)[drawn.target] + 3.0 * drawn.client_ids[:, None]
    classifier = check_sensible(fitted(tau, rows), rows)
    assert classifier.score(rows, Y, client_ids=IDS) == 1
    classifier.adapt_client(rows[BERN], "Bern")
    check_sensible(classifier, rows)
    assert classifier.score(rows, Y, client_ids=IDS) == 1


@over(TAUS)
def test_constant_client_keeps_its_covariance_and_gets_an_offset(tau):
    rows = X.copy()
    rows[IDS == "Turin"] = 2.0
    with pytest.warns(UserWarning, match=r"rows of client \['Turin'\] do not vary"):
        classifier = fitted(tau, rows)
    check_sensible(classifier, rows)
    matrix = classifier.aligner_.maps_["Turin"].affine[0]
    assert matrix is None or np.allclose(matrix, np.eye(5))
    assert classifier.client_offsets_[2].any()
    others = IDS != "Turin"
    assert classifier.score(rows[others], Y[others], client_ids=IDS[others]) > 0.8


@over(TAUS)
def test_client_of_one_row(tau):
    keep = (IDS != "Turin") | (np.arange(len(X)) == np.flatnonzero(IDS == "Turin")[0])
    classifier = check_sensible(fitted(tau, X[keep], Y[keep], IDS[keep]))
    assert classifier.score(X, Y, client_ids=IDS) > 0.8


@over(TAUS)
def test_constant_features(tau):
    rows = X.copy()
    rows[:, 2] = 7.0
    classifier = check_sensible(fitted(tau, rows), rows)
    assert classifier.score(rows, Y, client_ids=IDS) > 0.7


@pytest.mark.filterwarnings("ignore:the rows of client .* do not vary at all")
@over(TAUS)
@over(["pooled", "client"], "priors")
@over([3.0, 3.3, 0.0], "value")
def test_if_nothing_varies_priors_decide(tau, priors, value):
    rows = np.full_like(X, value)
    classifier = check_sensible(fitted(tau, rows, priors=priors), rows)
    expected = classifier.priors_
    if priors == "client":
        n = np.array([np.sum(BERN & (Y == c)) for c in "abcd"])
        expected = (n + expected) / (n.sum() + 1)
    actual = classifier.predict_proba(rows[:3], client_ids="Bern")
    np.testing.assert_allclose(actual, [expected] * 3)


@pytest.mark.filterwarnings("ignore:the rows of client .* do not vary at all")
def test_nothing_varies_so_that_nothing_can_be_guessed():
    classifier = fitted(0, np.full_like(X, 3.0))
    with pytest.raises(ValueError, match="Pass labels"):
        classifier.adapt_client(X[:50], "Bern")
    with pytest.raises(ValueError, match="Pass labels"):
        classifier.add_client(X[:50], "Rome")


def test_class_that_nobody_holds_is_dropped():
    messages = messages_of(new(), classes="abcdz")
    assert messages[0].classes == list("abcdz")
    classifier = new().server_aggregate(messages)
    assert classifier.classes_.tolist() == list("abcd")
    np.testing.assert_allclose(scores(classifier), scores(fitted_once()), atol=1e-9)


def test_class_at_one_client_lies_where_its_cell_is():
    keep = (Y != "d") | BERN
    classifier = check_sensible(fitted(0, X[keep], Y[keep], IDS[keep]))
    cell = X[BERN & (Y == "d")].mean(axis=0) - classifier.client_offsets_[0]
    np.testing.assert_allclose(classifier.class_means_[3], cell, atol=1e-9)


def test_what_cannot_be_told_apart_is_the_same_every_time():
    """No two clients share a class."""
    rng = np.random.default_rng(0)
    rows = np.flatnonzero(drawn.client_ids == drawn.target)
    args = X[rows], Y[rows], IDS[rows]
    classifier = check_sensible(fitted(0, *args))
    found = list(classifier.variance_components_.values())
    np.testing.assert_allclose(found, found[0], rtol=1e-3)
    means = np.array([X[rows][IDS[rows] == site].mean(axis=0) for site in SITES])
    deviations = means - means.mean(axis=0)
    # a third, but for the noise of the means
    ratio = np.vdot(classifier.client_offsets_, deviations) / np.sum(deviations**2)
    assert 0.31 < ratio < 1 / 3
    assert np.array_equal(scores(fitted(0, *args)), scores(classifier))
    order = rng.permutation(len(rows))
    other = fitted(0, *(part[order] for part in args))
    np.testing.assert_allclose(scores(other), scores(classifier), atol=1e-9)
    text = classifier.summary()
    assert "No other site has a class of ['Bern', 'Oslo', 'Turin']" in text
    assert "No other site" not in fitted_once().summary()


def test_many_features_and_few_rows():
    rng = np.random.default_rng(0)
    y, ids = np.resize(list("abc"), 24), np.repeat(SITES, 8)
    rows = (
        rng.normal(size=(24, 600))
        + 2 * rng.normal(size=(3, 600))[np.unique(y, return_inverse=True)[1]]
    )
    classifier = check_sensible(fitted(0, rows, y, ids), rows, ids)
    assert classifier.score(rows, y, client_ids=ids) == 1
    aligner = MixedEffectsAligner().fit(np.tile(rows, 4)[:, :2000], y, client_ids=ids)
    assert np.isfinite(aligner.client_offsets_).all()


# ------------------------------------------------------- rows, labels and precision


@over([("float64", 1e-12), ("float32", 1e-3), ("float16", 0.5)], "wire")
@over(TAUS)
def test_precision_of_messages(wire, tau):
    dtype, tolerance = wire
    classifier = new(tau)
    messages = messages_of(classifier)
    classifier.server_aggregate([each.as_received(dtype) for each in messages])
    np.testing.assert_allclose(
        scores(classifier), scores(fitted_once(tau)), rtol=0, atol=tolerance
    )


def test_float16_far_from_zero_is_sensible():
    classifier = new()
    classifier.server_aggregate(
        classifier.client_update(
            X[IDS == site] + 1000, Y[IDS == site], client=site
        ).as_received("float16")
        for site in SITES
    )
    check_sensible(classifier, X + 1000)


@over(TAUS)
def test_float32_rows(tau):
    rows = X.astype(np.float32)
    classifier = fitted(tau, rows)
    np.testing.assert_allclose(
        scores(classifier, rows), scores(fitted_once(tau)), rtol=0, atol=1e-3
    )


def test_read_only_rows():
    rows = X.copy()
    rows.flags.writeable = False
    classifier = fitted("auto", rows)
    classifier.adapt_client(rows[BERN], "Bern")
    assert np.array_equal(rows, X)


@over([drawn.target, drawn.target > 1, Y.astype(object)], "y")
def test_labels_of_any_kind(y):
    classifier = fitted(y=y)
    assert classifier.classes_.tolist() == sorted(set(y.tolist()))
    assert classifier.score(X, y, client_ids=IDS) > 0.8
    site = MixedEffectsClassifier.from_model(
        load_message(classifier.shared_model().to_bytes()),
        classifier.client_update(X[BERN], y[BERN], client="Bern"),
    )
    assert site.predict(X[:3]).tolist() == classifier.predict(X[:3], "Bern").tolist()


@over([pd.DataFrame, pl.from_pandas], "make")
def test_column_of_ids_equals_ids(make):
    table, features = make(FRAME.assign(site=IDS)), make(FRAME)
    classifier = new(client_column="site").fit(table, Y)
    expected = scores(fitted_once())
    assert np.array_equal(classifier.decision_function(table), expected)
    classifier.add_client(features, "Rome")
    classifier.add_client(features, "Wien", Y)
    classifier.adapt_client(make(FRAME[IDS == "Oslo"]), "Oslo")
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.adapt_client(make(FRAME.assign(other=1.0)), "Oslo")


@over([pd.DataFrame, pl.from_pandas, np.asarray], "make")
def test_rows_of_one_site_may_have_the_column_of_ids(make):
    table = FRAME.assign(site=IDS)
    column = "site" if make is not np.asarray else 5
    classifier = new(client_column=column).fit(make(table), Y)
    plain = fitted()
    ours = IDS == "Oslo"
    found = classifier.adapt_client(make(table[ours]), "Oslo")
    assert found == plain.adapt_client(X[ours], "Oslo")
    classifier.add_client(make(table.assign(site="Rome")), "Rome", Y)
    plain.add_client(X, "Rome", Y)
    for client in ("Oslo", "Rome"):
        assert classifier.client_model(client) == plain.client_model(client)
    message = classifier.client_update(make(table[ours]), Y[ours], client="Oslo")
    assert message == plain.client_update(X[ours], Y[ours], client="Oslo")
    with pytest.raises(ValueError, match="rows are of client .'Bern'.* of 'Wien'"):
        classifier.add_client(make(table.assign(site="Bern")), "Wien")
    with pytest.raises(ValueError, match="client .'Bern', 'Turin'., but .* 'Oslo'"):
        classifier.adapt_client(make(table), "Oslo")


def test_frames_keep_their_names_at_single_sites():
    classifier = fitted(X=FRAME)
    classifier.add_client(FRAME, "Rome")
    classifier.add_client(FRAME, "Wien", Y)
    classifier.adapt_client(FRAME, "Bern")
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.adapt_client(FRAME[list("zyxwv")], "Bern")


def test_bad_rows_are_refused():
    with pytest.raises(TypeError, match="Sparse data was passed"):
        fitted(X=csr_array(X))
    spoilt = X.copy()
    spoilt[np.flatnonzero(IDS == "Oslo")[2], 3] = np.nan
    words = r"client \['Oslo'\]: Input X contains NaN\. Fill or drop them .* plan\.$"
    with pytest.raises(ValueError, match=words):
        fitted(X=spoilt)
    with pytest.raises(ValueError, match="client \\['Oslo'\\]: Input X contains NaN"):
        fitted().adapt_client(spoilt[IDS == "Oslo"], "Oslo")
    with pytest.raises(ValueError, match="client_ids has 239 entries"):
        fitted(ids=IDS[1:])
    with pytest.raises(ValueError, match="requires y to be passed"):
        new().fit(X, None, client_ids=IDS)
    with pytest.raises(ValueError, match="requires y to be passed"):
        new().client_update(X, client="Bern")
    with pytest.raises(ValueError, match="client_ids is missing, but 3 clients"):
        fitted_once().predict(X)


def test_message_without_labels_names_client_and_remedy():
    rows = X[IDS == "Turin"]
    sent = FederatedOTAligner().client_update(rows, client="Turin")
    with pytest.raises(ValueError, match="client 'Turin' sent a ClientStatistics.*y"):
        new().server_aggregate([*messages_of(new())[:2], sent])


def test_messages_without_names_are_refused():
    sent = [new().client_update(X[site == IDS], Y[site == IDS]) for site in SITES]
    with pytest.raises(ValueError, match="3 messages came without names"):
        new().server_aggregate(sent)


@over([clone, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))], "duplicate")
def test_copies(duplicate):
    classifier = fitted()
    classifier.adapt_client(X[BERN], "Bern")
    other = duplicate(classifier)
    assert repr(other) == repr(classifier)
    if duplicate is clone:
        assert not hasattr(other, "classes_")
    else:
        assert np.array_equal(scores(other), scores(classifier))


def test_progress_is_printed(capsys):
    fitted(verbose=1)
    assert "client 'Oslo' done (2/3)" in capsys.readouterr().out


def test_threads_and_memory_change_nothing(tmp_path, count_calls):
    for tau in (0.2, 0.6, "auto"):
        with count_calls("bures_barycenter") as called:
            classifier = fitted(tau, memory=str(tmp_path), n_jobs=2)
        assert len(called) == (1 if tau == 0.2 else 0)
        assert np.array_equal(scores(classifier), scores(fitted(tau)))
    with count_calls("bures_barycenter", "full_map") as called:
        fitted(0)
    assert called == []


# -------------------------------------------------------------------- one by one


class OneByOne:
    """Messages that are read again on each loop, which are counted."""

    def __init__(self, messages):
        self.messages, self.n_loops = messages, 0

    def __iter__(self):
        self.n_loops += 1
        yield from self.messages


@over(TAUS)
def test_messages_are_read_as_often_as_said(tau):
    messages = OneByOne(messages_of(new(tau)))
    classifier = new(tau).server_aggregate(messages)
    if tau == 0:
        assert messages.n_loops <= 2
    else:
        assert not classifier.aligner_._aligned().maps
    expected = new(tau).server_aggregate(messages.messages)
    assert np.array_equal(scores(classifier), scores(expected))
    assert classifier.shared_model() == expected.shared_model()


# ---------------------------------------------------------------------- own site


@over(TAUS)
@over(PRIORS, "priors")
@over(SITES, "site")
def test_site_makes_the_model_that_the_server_would(tau, priors, site):
    classifier = fitted_once(tau, priors)
    message = classifier.client_update(X[site == IDS], Y[site == IDS], client=site)
    there = MixedEffectsClassifier.from_model(classifier.shared_model(), message)
    here, made = classifier.client_model(site), there.client_model(site)
    np.testing.assert_allclose(made.coef, here.coef, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(made.intercept, here.intercept, rtol=1e-12, atol=1e-12)
    assert np.array_equal(there.predict(X), classifier.predict(X, client_ids=site))


@over([("float32", 1e-3), ("float16", 0.5)], "wire")
@over(TAUS)
def test_so_does_it_from_bytes(tau, wire):
    dtype, tolerance = wire
    classifier = fitted_once(tau)
    model = MixedEffectsModel.from_bytes(classifier.shared_model().to_bytes(dtype))
    message = classifier.client_update(X[BERN], Y[BERN], client="Bern")
    message = load_message(message.to_bytes(dtype))
    there = MixedEffectsClassifier.from_model(model, message)
    np.testing.assert_allclose(
        scores(there, ids="Bern"), scores(classifier, ids="Bern"), atol=tolerance
    )


@over(TAUS)
def test_site_adapts_as_it_would_at_the_server(tau):
    classifier = fitted(tau)
    message = classifier.client_update(X[BERN], Y[BERN], client="Bern")
    there = MixedEffectsClassifier.from_model(classifier.shared_model(), message)
    here = classifier.adapt_client(X[::3], "Bern")
    report = there.adapt_client(X[::3], "Bern")
    assert report.label_mix == here.label_mix
    assert report.n_passes == here.n_passes
    np.testing.assert_allclose(
        scores(there, ids="Bern"), scores(classifier, ids="Bern"), atol=1e-9
    )


def test_site_that_sent_nothing_joins():
    classifier = fitted()
    there = MixedEffectsClassifier.from_model(classifier.shared_model())
    there.add_client(X[BERN], "Rome", Y[BERN])
    classifier.add_client(X[BERN], "Rome", Y[BERN])
    np.testing.assert_allclose(
        scores(there, ids="Rome"), scores(classifier, ids="Rome"), atol=1e-9
    )


def test_site_that_sent_nothing_and_did_not_join_is_unknown():
    there = MixedEffectsClassifier.from_model(fitted_once().shared_model())
    with pytest.raises(ValueError, match=r"client \['Rome'\] was not seen in fit"):
        there.predict(X[BERN], client_ids="Rome")


def test_no_rows_can_be_added_to_the_model_of_a_server():
    classifier = fitted_once()
    message = classifier.client_update(X[BERN], Y[BERN], client="Bern")
    there = MixedEffectsClassifier.from_model(classifier.shared_model(), message)
    assert there.tau == "auto"
    assert there.aligner_.statistics_ == [message]
    with pytest.raises(ValueError, match="to which no rows can be added"):
        there.aligner_.partial_fit(X, Y, client_ids=IDS)


def test_site_with_other_features_or_classes_is_refused():
    model = fitted_once().shared_model()
    other = new().client_update(X[:, :4], Y, client="Bern")
    with pytest.raises(ValueError, match="has 4 features, the model 5"):
        MixedEffectsClassifier.from_model(model, other)
    other = new().client_update(X[:2], ["a", "zebra"], client="Bern")
    with pytest.raises(ValueError, match="'Bern' has rows of \\['zebra'\\]"):
        MixedEffectsClassifier.from_model(model, other)


# --------------------------------------------------------- rows without any labels


@over(TAUS)
def test_adapting_is_expectation_maximisation_on_moved_rows(tau):
    classifier = fitted(tau)
    before = {site: scores(classifier, ids=site) for site in SITES}
    linear = classifier.aligner_.maps_["Bern"]
    rows = linear.transform(X[::2]) + linear.offset
    cells = stack_class_means(classifier.aligner_.cells_["Bern"], list("abcd"))
    model = classifier.shared_model()
    expected = fit_unlabelled(model, classifier.covariance_, rows, *cells)
    report = classifier.adapt_client(X[::2], "Bern")
    np.testing.assert_allclose(
        classifier.client_offsets_[0], expected.offset, atol=1e-9
    )
    np.testing.assert_allclose(
        classifier.cell_means_[0], expected.class_means, atol=1e-9
    )
    assert (report.n_samples, report.n_passes) == (120, expected.n_passes)
    assert report.certainty == pytest.approx(expected.certainty)
    assert sum(report.label_mix.values()) == pytest.approx(1, abs=0.01)
    # nobody else is affected
    assert np.array_equal(scores(classifier, ids="Oslo"), before["Oslo"])
    after = scores(classifier, ids="Bern")
    assert not np.allclose(after, before["Bern"])
    model = classifier.client_model("Bern")
    np.testing.assert_allclose(X @ model.coef.T + model.intercept, after, atol=1e-9)
    # again begins anew, and it can be undone
    classifier.adapt_client(X[1::2], "Bern")
    classifier.adapt_client(X[::2], "Bern")
    assert np.array_equal(scores(classifier, ids="Bern"), after)
    assert classifier.reset_client("Bern") is classifier
    assert np.array_equal(scores(classifier, ids="Bern"), before["Bern"])
    with pytest.raises(ValueError, match="'Bern' was neither adapted nor added later"):
        classifier.reset_client("Bern")


def test_adapting_helps_where_sites_lack_classes(skewed_digits):
    X, y, ids, train, test = skewed_digits
    classifier = fitted("auto", X[train], y[train], ids[train])
    before = classifier.score(X[test], y[test], client_ids=ids[test])
    rng = np.random.default_rng(0)
    for site in np.unique(ids).tolist():
        spare = np.setdiff1d(np.flatnonzero(ids == site), np.r_[train, test])
        rows = rng.choice(spare, min(200, len(spare)), replace=False)
        report = classifier.adapt_client(X[rows], site)
        assert report.warnings == ()
    after = classifier.score(X[test], y[test], client_ids=ids[test])
    assert after > before


def test_unlabelled_rows_that_should_not_be_trusted_are_named():
    classifier = fitted()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        report = classifier.adapt_client(X[(Y == "a") & BERN][:20] + 30, "Bern")
    texts = [str(each.message) for each in warned]
    assert all("client 'Bern'" in text for text in texts)
    assert any("rows without labels, which say little" in text for text in texts)
    assert any("times as far" in text for text in texts)
    assert any("seem to be of" in text for text in texts)
    assert tuple(texts) == report.warnings
    assert all(f"! {text}" in repr(report) for text in texts)


def test_unknown_clients_cannot_adapt():
    classifier = fitted_once()
    with pytest.raises(ValueError, match="'Rome' was not seen in fit.*add_client"):
        classifier.adapt_client(X, "Rome")
    with pytest.raises(ValueError, match="'Rome' was not seen in fit"):
        classifier.reset_client("Rome")
    with pytest.raises(ValueError, match="expecting 5 features"):
        classifier.adapt_client(X[:, :3], "Bern")


# ------------------------------------------------------------- clients that join


@over(TAUS)
@over([True, False], "with_labels")
def test_newcomer_leaves_the_others_alone(tau, with_labels):
    others = ~BERN
    classifier = fitted(tau, X[others], Y[others], IDS[others])
    before = scores(classifier, X[others], IDS[others])
    model = classifier.shared_model()
    report = classifier.add_client(X[BERN], "Bern", Y[BERN] if with_labels else None)
    assert np.array_equal(scores(classifier, X[others], IDS[others]), before)
    assert classifier.shared_model() == model
    assert report.client == "Bern"
    assert report.n_samples == BERN.sum()
    plain = fitted(tau, X[others], Y[others], IDS[others], unknown_client="identity")
    assert classifier.score(X[BERN], Y[BERN], client_ids="Bern") >= plain.score(
        X[BERN], Y[BERN], client_ids="Bern"
    )
    classifier.reset_client("Bern")
    with pytest.raises(ValueError, match="was not seen in fit"):
        classifier.predict(X, client_ids="Bern")
    with pytest.raises(ValueError, match="client 'Bern' sent no message"):
        classifier.client_model("Bern")


def test_offset_of_a_newcomer_with_labels_is_the_closed_form():
    others = ~BERN
    classifier = fitted(0, X[others], Y[others], IDS[others])
    client, _, interaction = classifier.variance_components_.values()
    total, weights = 0.0, 1 / client
    for c, mean in zip("abcd", classifier.class_means_, strict=True):
        rows = X[BERN & (Y == c)]
        holders = len(set(IDS[others & (Y == c)]))
        if len(rows):
            weight = 1 / (interaction * (1 + 1 / holders) + 1 / len(rows))
            total, weights = total + weight * (rows.mean(0) - mean), weights + weight
    report = classifier.add_client(X[BERN], "Bern", Y[BERN])
    np.testing.assert_allclose(classifier.client_offsets_[-1], total / weights)
    assert "labels: a: " in repr(report)


def test_unknown_client_adapts_as_if_added():
    others = ~BERN
    rows = X[others], Y[others], IDS[others]
    classifier = fitted("auto", *rows)
    classifier.add_client(X[BERN], "Bern")
    adapts = fitted("auto", *rows, unknown_client="adapt")
    np.testing.assert_allclose(
        scores(adapts, X[BERN], "Bern"), scores(classifier, X[BERN], "Bern"), atol=1e-9
    )


@over(["identity", "adapt"], "policy")
@over(["pooled", "client"], "priors")
def test_unknown_clients_do_not_change_predictions_for_known_ones(policy, priors):
    others = ~BERN
    rows = X[others], Y[others], IDS[others]
    classifier = fitted("auto", *rows, unknown_client=policy, priors=priors)
    expected = scores(classifier, X[others], IDS[others])
    together = scores(classifier)
    np.testing.assert_allclose(together[others], expected, atol=1e-12)
    alone = scores(classifier, X[BERN], "Bern")
    np.testing.assert_allclose(together[BERN], alone, atol=1e-12)


def test_newcomer_that_left_can_come_again_with_other_rows():
    classifier = fitted()
    classifier.add_client(X[BERN], "Rome")
    first = scores(classifier, ids="Rome")
    classifier.aligner_.remove_client("Rome")
    classifier.add_client(X[BERN] + 1, "Rome")
    assert not np.allclose(scores(classifier, ids="Rome"), first)


def test_newcomer_can_adapt_too():
    classifier = fitted()
    classifier.add_client(X[BERN][:40], "Rome", Y[BERN][:40])
    before = scores(classifier, ids="Rome")
    classifier.adapt_client(X[BERN], "Rome")
    assert not np.allclose(scores(classifier, ids="Rome"), before)
    classifier.reset_client("Rome")
    assert np.array_equal(scores(classifier, ids="Rome"), before)
    classifier.reset_client("Rome")
    assert "Rome" not in classifier.aligner_.clients_


def test_bad_newcomers_are_refused():
    classifier = fitted()
    with pytest.raises(ValueError, match="'Bern' is known already; adapt_client"):
        classifier.add_client(X, "Bern")
    with pytest.raises(ValueError, match="'Rome' has rows of \\['zebra'\\]"):
        classifier.add_client(X[:2], "Rome", ["a", "zebra"])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier.add_client(X[:2], "Rome", ["a"])
    assert list(classifier.aligner_.clients_) == SITES


# ------------------------------------------------------------------------- words


def test_summary_says_how_much_is_class_and_how_much_is_site():
    text = fitted_once().summary()
    found = fitted_once().variance_components_
    share = found["class"] / (1 + sum(found.values()))
    assert f"{share:.1%}  what class a row is of" in text
    assert "same label mix at all sites" in text
    assert "linear maps, of strength" in text
    assert "label mix that each site had" in fitted_once("auto", "client").summary()
    assert "linear maps" not in fitted_once(0).summary()
    far = fitted(X=X + 20.0 * drawn.client_ids[:, None])
    assert "Sites differ more than classes do" in far.summary()


def test_summary_of_one_client_or_one_class_says_that_nothing_is_told_apart():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    one_client = MixedEffectsClassifier().fit(X, y, client_ids=np.full(20, "A"))
    assert "There is one client" in one_client.summary()
    one_class = MixedEffectsClassifier().fit(X, np.zeros(20), client_ids=y)
    assert "There is one class" in one_class.summary()


def test_site_that_knows_nobody_says_what_to_do():
    rng = np.random.default_rng(0)
    X, y, ids = rng.normal(size=(40, 3)), np.arange(40) % 2, np.arange(40) // 20
    model = MixedEffectsClassifier().fit(X, y, client_ids=ids).shared_model()
    site = MixedEffectsClassifier.from_model(model)
    assert "Differences between rows" in site.summary()
    with pytest.raises(ValueError, match="no client is known yet; call add_client"):
        site.predict(X)
    with pytest.raises(TypeError, match="model must be a MixedEffectsModel, got a int"):
        MixedEffectsClassifier.from_model(3)


def test_rows_where_the_name_of_a_client_is_due_are_refused():
    rng = np.random.default_rng(0)
    X, y, ids = rng.normal(size=(40, 3)), np.arange(40) % 2, np.arange(40) // 20
    classifier = MixedEffectsClassifier().fit(X, y, client_ids=ids)
    for method in (classifier.adapt_client, classifier.add_client):
        with pytest.raises(ValueError, match="client must be the name of one client"):
            method(X, y)
