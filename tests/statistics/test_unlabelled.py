"""Rows without labels, against expectation maximisation in plain loops."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skslot.statistics import fit_mixed_effects, fit_unlabelled

COMPONENTS = 2.0, 6.0, 0.3


@pytest.fixture
def problem(draw_cells):
    """A model, its covariance within classes, and rows of a site that is elsewhere."""
    cells = draw_cells(3, components=COMPONENTS, n_features=4)
    rng = np.random.default_rng(5)
    mixing = rng.normal(size=(4, 4))
    covariance = np.eye(4) + 0.2 * mixing @ mixing.T
    model = fit_mixed_effects(cells, COMPONENTS)
    labels = rng.choice(5, 60, p=[0.4, 0.3, 0.2, 0.1, 0.0])
    rows = model.means[labels] + rng.multivariate_normal(np.ones(4), covariance, 60)
    return model, covariance, rows, cells


def guess(rows, means, covariance, mix):
    """Probability of each class for each row."""
    likelihood = np.array(
        [multivariate_normal.pdf(rows, mean, covariance) for mean in means]
    ).T
    joint = likelihood * mix
    return joint / joint.sum(axis=1, keepdims=True)


def next_mix(guesses, shares):
    return (guesses.sum(axis=0) + 10 * shares) / (len(guesses) + 10)


def offset_alone(model, covariance, rows, n_passes):
    """Offset of a site without labels."""
    client, _, interaction = COMPONENTS
    d, mix = np.zeros(rows.shape[1]), model.class_shares
    for _ in range(n_passes):
        guesses = guess(rows, model.means + d, covariance, mix)
        total, weights = 0.0, 1 / client
        for y in range(len(model.means)):
            n = guesses[:, y].sum()
            weight = 1 / (interaction * (1 + 1 / model.holders[y]) + 1 / n)
            mean = guesses[:, y] @ rows / n
            total, weights = total + weight * (mean - model.means[y]), weights + weight
        d, mix = total / weights, next_mix(guesses, model.class_shares)
    return d, guesses


def offset_and_means(model, covariance, rows, cells, k, n_passes):
    """Offset and class means of a site that has labels too."""
    client, _, interaction = COMPONENTS
    counts, means = cells.of_client(k)
    d = model.offset(counts, means)
    own, mix = model.own_means(counts, means, d), model.class_shares
    for _ in range(n_passes):
        guesses = guess(rows, own + d, covariance, mix)
        soft = 0.3 * guesses
        n = counts + soft.sum(axis=0)
        M = (counts[:, None] * means + soft.T @ rows) / n[:, None]
        weights = 1 / (interaction + 1 / n)
        d = weights @ (M - model.means) / (1 / client + weights.sum())
        posterior = interaction / (interaction + 1 / n)
        cover = model.class_shares @ posterior
        own = model.means + cover * posterior[:, None] * (M - d - model.means)
        mix = next_mix(guesses, model.class_shares)
    return d, own, guesses


def test_offset_of_a_site_without_labels(problem):
    model, covariance, rows, _ = problem
    fit = fit_unlabelled(model, covariance, rows)
    assert 1 < fit.n_passes < 50
    offset, guesses = offset_alone(model, covariance, rows, fit.n_passes)
    np.testing.assert_allclose(fit.offset, offset, atol=1e-9)
    np.testing.assert_allclose(fit.class_means, model.means, atol=1e-9)
    np.testing.assert_allclose(fit.label_mix, guesses.mean(axis=0), atol=1e-9)
    assert fit.certainty == pytest.approx(guesses.max(axis=1).mean())
    np.testing.assert_allclose(fit.counts, guesses.sum(axis=0), atol=1e-7)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_offset_and_class_means_of_a_site_with_labels(problem, k):
    model, covariance, rows, cells = problem
    fit = fit_unlabelled(model, covariance, rows, *cells.of_client(k))
    assert 1 < fit.n_passes <= 30
    offset, own, guesses = offset_and_means(*problem[:3], cells, k, fit.n_passes)
    np.testing.assert_allclose(fit.offset, offset, atol=1e-9)
    np.testing.assert_allclose(fit.class_means, own, atol=1e-9)
    np.testing.assert_allclose(fit.label_mix, guesses.mean(axis=0), atol=1e-9)


def test_report_of_how_far_the_site_is(problem):
    model, covariance, rows, _ = problem
    fit = fit_unlabelled(model, covariance, rows)
    inverse = np.linalg.inv(covariance)
    assert fit.moved == pytest.approx(np.sqrt(fit.offset @ inverse @ fit.offset))
    _, guesses = offset_alone(model, covariance, rows, fit.n_passes)
    apart = rows[:, None] - fit.offset - model.means
    squares = np.einsum("nci,ij,ncj->nc", apart, inverse, apart)
    assert fit.distance == pytest.approx((guesses * squares).sum() / rows.size)
    assert 0.5 < fit.distance < 1.5
    far = fit_unlabelled(model, covariance, 10 * rows)
    assert far.distance > 3


def test_true_offset_and_label_mix_are_found(problem):
    model, covariance, _, _ = problem
    rng = np.random.default_rng(0)
    labels = rng.choice(5, 2000, p=[0.5, 0.2, 0.2, 0.1, 0.0])
    noise = rng.multivariate_normal(np.zeros(4), covariance, 2000)
    rows = model.means[labels] + [1.0, -1.0, 0.5, 0.0] + noise
    fit = fit_unlabelled(model, covariance, rows)
    np.testing.assert_allclose(fit.offset, [1.0, -1.0, 0.5, 0.0], atol=0.3)
    true = np.bincount(labels, minlength=5) / 2000
    np.testing.assert_allclose(fit.label_mix, true, atol=0.02)


def test_order_of_rows_does_not_matter(problem):
    model, covariance, rows, _ = problem
    first = fit_unlabelled(model, covariance, rows)
    second = fit_unlabelled(model, covariance, rows[::-1])
    np.testing.assert_allclose(first.offset, second.offset, atol=1e-12)


@pytest.mark.parametrize("n_rows", [1, 2])
def test_few_rows_move_a_site_little(problem, n_rows):
    model, covariance, rows, cells = problem
    few = fit_unlabelled(model, covariance, rows[:n_rows])
    assert np.isfinite(few.offset).all()
    counts, means = cells.of_client(0)
    fit = fit_unlabelled(model, covariance, rows[:n_rows], counts, means)
    np.testing.assert_allclose(fit.offset, model.offset(counts, means), atol=0.5)


def test_rows_far_away_are_no_overflow(problem):
    model, covariance, rows, _ = problem
    fit = fit_unlabelled(model, covariance, rows + 1e6)
    assert np.isfinite(fit.offset).all()
    assert np.isfinite(fit.label_mix).all()


def test_classes_whose_rows_do_not_vary_cannot_be_guessed(problem):
    model, covariance, rows, _ = problem
    with pytest.raises(ValueError, match="do not vary within classes.*Pass labels"):
        fit_unlabelled(model, 0 * covariance, rows)
