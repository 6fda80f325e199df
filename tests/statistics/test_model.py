"""Offsets and class means, against the formulas of textbooks and plain loops."""

import numpy as np
import pytest

from skslot.statistics import Cells, fit_mixed_effects

COMPONENTS = CLIENT, _, INTERACTION = 0.7, 3.0, 0.4


def textbook(cells, components):
    """Mean and effects of clients and classes, by inverting the covariance (BLUP)."""
    client, label, interaction = components
    clients = np.eye(cells.n_clients)[cells.client]
    classes = np.eye(cells.n_classes)[cells.label]
    covariance = client * clients @ clients.T + label * classes @ classes.T
    inverse = np.linalg.inv(covariance + np.diag(interaction + 1 / cells.counts))
    mean = inverse.sum(axis=0) @ cells.means / inverse.sum()
    apart = inverse @ (cells.means - mean)
    return mean, client * clients.T @ apart, label * classes.T @ apart


@pytest.fixture(params=[0, 1, 2])
def cells(request, draw_cells):
    return draw_cells(request.param, held=0.5)


def test_offsets_and_class_effects_are_those_of_the_textbook(cells):
    """A joint solve, although ``offset`` sees the cells of one client only."""
    model = fit_mixed_effects(cells, COMPONENTS)
    mean, clients, classes = textbook(cells, COMPONENTS)
    np.testing.assert_allclose(model.offsets(cells), clients, atol=1e-10)
    np.testing.assert_allclose(model.effects, mean + classes, atol=1e-10)


def test_class_means_are_weighted_means_of_moved_cells(cells):
    model = fit_mixed_effects(cells, COMPONENTS)
    offsets = textbook(cells, COMPONENTS)[1]
    for label in range(cells.n_classes):
        total, weights = 0.0, 0.0
        for cell in np.flatnonzero(cells.label == label):
            weight = 1 / (INTERACTION + 1 / cells.counts[cell])
            total = total + weight * (cells.means[cell] - offsets[cells.client[cell]])
            weights += weight
        np.testing.assert_allclose(model.means[label], total / weights, atol=1e-10)


def test_class_means_are_not_predicted_class_effects():
    """Those are pulled to the mean of all classes, at a price if classes vary little.

    A class at one client only is where its cell is, without the offset.
    """
    means = np.array([[0.0], [1.0], [0.2], [9.0]])
    client, label = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 2])
    cells = Cells(client, label, np.full(4, 2.0), means, within=4.0)
    model = fit_mixed_effects(cells, (0.1, 0.1, 0.1))
    offset = model.offset(*cells.of_client(1))
    np.testing.assert_allclose(model.means[2], means[3] - offset)
    assert model.effects[2] < 0.5 * model.means[2]


def test_own_means_lie_between_those_of_all_and_of_the_client(cells):
    model = fit_mixed_effects(cells, COMPONENTS)
    shares = cells.class_counts / cells.class_counts.sum()
    for k in range(cells.n_clients):
        offset = model.offset(*cells.of_client(k))
        own = {
            y: (n, mean)
            for c, y, n, mean in zip(
                cells.client, cells.label, cells.counts, cells.means, strict=True
            )
            if c == k
        }
        posterior = {y: 0.4 / (0.4 + 1 / n) for y, (n, _) in own.items()}
        cover = sum(shares[y] * posterior[y] for y in own)
        expected = model.means.copy()
        for y, (_, mean) in own.items():
            expected[y] += cover * posterior[y] * (mean - offset - model.means[y])
        actual = model.own_means(*cells.of_client(k), offset)
        np.testing.assert_allclose(actual, expected, atol=1e-10)


def test_newcomer_is_compared_with_class_means_that_are_not_known_exactly(cells):
    model = fit_mixed_effects(cells, COMPONENTS)
    rng = np.random.default_rng(0)
    counts = np.array([3.5, 0.0, 10.0, 1.0, 0.0])
    means = np.where(counts[:, None] > 0, rng.normal(size=(5, 7)), 0.0)
    total, weights = 0.0, 1 / CLIENT
    for y in np.flatnonzero(counts):
        weight = 1 / (0.4 * (1 + 1 / cells.holders[y]) + 1 / counts[y])
        total = total + weight * (means[y] - model.means[y])
        weights += weight
    actual = model.offset_of_newcomer(counts, means)
    np.testing.assert_allclose(actual, total / weights, atol=1e-10)


def test_strength_is_the_share_that_clients_have():
    components = (1.0, 6.0, 3.0)
    cells = Cells(np.arange(2), np.zeros(2, int), np.ones(2), np.eye(2), within=0.0)
    assert fit_mixed_effects(cells, components).client_share == 0.4


def test_without_variances_of_clients_there_is_one_pool(cells):
    model = fit_mixed_effects(cells, (0.0, 0.0, 0.0))
    assert not model.offsets(cells).any()
    for label in range(cells.n_classes):
        rows = cells.label == label
        pooled = np.average(cells.means[rows], axis=0, weights=cells.counts[rows])
        np.testing.assert_allclose(model.means[label], pooled, rtol=1e-12)
        own = model.own_means(*cells.of_client(0), np.zeros(7))
        np.testing.assert_allclose(own[label], pooled, rtol=1e-12)


@pytest.mark.parametrize("variance", [0.1, 1.0, 1e4])
def test_client_that_moves_takes_its_offset_only_part_of_the_way(draw_cells, variance):
    cells = draw_cells(held=1.0)
    components = (variance, 3.0, 0.4)
    moved = cells.means + 5.0 * (cells.client == 1)[:, None]
    other = Cells(cells.client, cells.label, cells.counts, moved, cells.within)
    before = fit_mixed_effects(cells, components).offsets(cells)
    after = fit_mixed_effects(other, components).offsets(other)
    change = after[1] - before[1]
    assert ((change > 0) & (change < 5)).all()
    # relative to the others, who move the other way, all of it in the limit
    apart = change - (after - before)[[0, 2, 3]].mean(axis=0)
    assert (apart < 5).all()
    if variance == 1e4:
        np.testing.assert_allclose(apart, 5, rtol=1e-3)


def test_splitting_a_client_changes_the_others(draw_cells):
    """There is one more client to estimate their variance from."""
    cells = draw_cells(held=1.0)
    client = np.where((cells.client == 0) & (cells.label > 2), 4, cells.client)
    split = Cells(client, cells.label, cells.counts, cells.means, cells.within)
    before, after = (fit_mixed_effects(each).components for each in (cells, split))
    assert not np.allclose(before, after, rtol=0.01)


def test_general_linear_maps_of_features_matter(draw_cells):
    """One variance for all features: rotations keep it, other maps do not."""
    cells = draw_cells(held=1.0)
    stretched = cells.means * np.array([10.0, 1, 1, 1, 1, 1, 1])
    other = Cells(cells.client, cells.label, cells.counts, stretched, cells.within)
    before, after = (fit_mixed_effects(each).components for each in (cells, other))
    assert not np.allclose(before, after, rtol=0.1)


def test_cells_of_a_client_are_zero_where_it_has_none(draw_cells):
    cells = draw_cells(held=0.3)
    counts, means = cells.of_client(2)
    held = cells.label[cells.client == 2]
    assert np.array_equal(np.flatnonzero(counts), np.sort(held))
    assert not means[counts == 0].any()
    assert counts.sum() == cells.counts[cells.client == 2].sum()
    assert np.array_equal(cells.holders, np.bincount(cells.label))
