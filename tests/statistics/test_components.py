"""Variance components: the criterion, its gradient, and what is found."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from skslot.statistics import Cells, fit_mixed_effects
from skslot.statistics._random_effects import (
    BOUNDS,
    PRIOR_DEVIATION,
    restricted_likelihood,
)


def scaled(cells):
    """Centred means in units of the deviation within cells."""
    return (cells.means - cells.centre()) / np.sqrt(cells.within_variance())


def criterion_of(cells, reduce=False):
    """Function of the logarithms; ``reduce`` keeps only what determines ``Y @ Y.T``."""
    Y = scaled(cells)
    columns = np.linalg.qr(Y.T, mode="r").T if reduce else Y
    return lambda logs: restricted_likelihood(logs, cells, columns, Y.shape[1])


def covariance_of(cells, components):
    """Covariance of all cells in one feature, as the model has it."""
    client, label, interaction = components
    same_client = cells.client[:, None] == cells.client
    same_class = cells.label[:, None] == cells.label
    own = np.diag(interaction + 1 / cells.counts)
    return client * same_client + label * same_class + own


def likelihood_by_inversion(cells, Y, components):
    """Twice the negative logarithm per feature, but for a constant."""
    covariance, ones = covariance_of(cells, components), np.ones(len(Y))
    inverse = np.linalg.inv(covariance)
    weight = ones @ inverse @ ones
    projection = inverse - np.outer(inverse @ ones, ones @ inverse) / weight
    fit = np.trace(Y.T @ projection @ Y) / Y.shape[1]
    return np.linalg.slogdet(covariance)[1] + np.log(weight) + fit


def prior(components, n_features):
    logs = np.log(components)
    return np.square(logs - logs.mean()).sum() / (PRIOR_DEVIATION**2 * n_features)


POINTS = [(1.0, 4.0, 0.5), (1e-6, 3.0, 2.0), (50.0, 1e-3, 1e-5), (1e-8, 1e-8, 1e-8)]


@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize("n_features", [1, 3, 80])
@pytest.mark.parametrize("components", POINTS)
def test_criterion_is_the_restricted_likelihood(
    draw_cells, n_features, components, reduce
):
    cells = draw_cells(n_features=n_features)
    Y = scaled(cells)
    value, _ = criterion_of(cells, reduce)(np.log(components))
    expected = likelihood_by_inversion(cells, Y, components)
    expected += prior(components, n_features)
    assert 2 * value == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("n_features", [3, 80])
@pytest.mark.parametrize("components", POINTS[:3])
def test_gradient_is_that_of_central_differences(draw_cells, n_features, components):
    cells = draw_cells(n_features=n_features)
    criterion = criterion_of(cells)
    logs, step = np.log(components), 1e-3
    differences = []
    for direction in np.eye(3):
        near, far = (
            (criterion(logs + h * direction)[0] - criterion(logs - h * direction)[0])
            / (2 * h)
            for h in (step, 2 * step)
        )
        differences.append((4 * near - far) / 3)  # without the error of order two
    gradient = criterion(logs)[1]
    np.testing.assert_allclose(
        gradient, differences, rtol=0, atol=1e-8 * np.abs(gradient).max()
    )


@pytest.mark.parametrize("n_features", [100, 400])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "components", [(1.0, 4.0, 0.5), (0.2, 0.5, 0.1), (8.0, 1.0, 2.0)]
)
def test_components_are_recovered(draw_cells, n_features, seed, components):
    cells = draw_cells(
        seed, n_features=n_features, components=components, held=1.0, most_rows=60
    )
    found = fit_mixed_effects(cells).components
    assert np.abs(np.divide(found, components) - 1).max() < 0.3


@pytest.mark.parametrize("seed", range(4))
def test_all_starts_lead_to_one_optimum(draw_cells, seed):
    cells = draw_cells(seed, held=0.6)
    criterion = criterion_of(cells)
    found = np.log(fit_mixed_effects(cells).components)
    starts = np.log([[1e-6] * 3, [1e3] * 3, *(10.0 ** (5 * np.eye(3) - 3)), [1, 1, 1]])
    for start in starts:
        best = minimize(
            criterion,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[np.log(BOUNDS)] * 3,
            options={"ftol": 1e-15, "gtol": 1e-10},
        )
        assert criterion(found)[0] <= best.fun + 1e-8
        np.testing.assert_allclose(np.exp(best.x), np.exp(found), rtol=1e-3, atol=1e-6)


def test_no_client_effect_is_found_where_there_is_none(draw_cells):
    cells = draw_cells(n_features=200, components=(0, 4.0, 0), held=1.0, most_rows=60)
    client, label, interaction = fit_mixed_effects(cells).components
    assert max(client, interaction) < 0.01
    assert label == pytest.approx(4, rel=0.3)


@pytest.mark.parametrize("counts", [1.0, 200.0])
@pytest.mark.parametrize("n_clients", [2, 5])
def test_what_cannot_be_told_apart_is_split_in_three(counts, n_clients):
    """No two clients share a class."""
    rng = np.random.default_rng(0)
    each = np.arange(n_clients)
    means = rng.normal(scale=3, size=(n_clients, 40))
    cells = Cells(each, each, np.full(n_clients, counts), means, within=0.0)
    cells = replace(cells, within=40 * max(counts - 1, 0) * n_clients)
    model = fit_mixed_effects(cells)
    np.testing.assert_allclose(model.components, model.components[0], rtol=1e-4)
    if counts > 1:
        offsets = [model.offset(*cells.of_client(k)) for k in each]
        np.testing.assert_allclose(offsets, (means - means.mean(0)) / 3, rtol=0.02)
    again = fit_mixed_effects(cells)
    assert np.array_equal(again.components, model.components)
    assert np.array_equal(again.means, model.means)


def test_single_client_has_no_components(draw_cells):
    cells = draw_cells(n_clients=1)
    model = fit_mixed_effects(cells)
    assert not model.components.any()
    assert model.client_share == 0
    assert not model.offset(*cells.of_client(0)).any()
    assert np.array_equal(model.means, cells.means)


def test_cells_that_are_all_equal_have_no_components():
    client, label = np.divmod(np.arange(6), 3)
    cells = Cells(client, label, np.full(6, 4.0), np.ones((6, 2)), within=0.0)
    model = fit_mixed_effects(cells)
    assert not model.components.any()
    assert np.array_equal(model.means, np.ones((3, 2)))


def test_variance_within_is_that_between_if_all_cells_have_one_row(draw_cells):
    cells = draw_cells(most_rows=1)
    centred = cells.means - cells.centre()
    assert cells.within_variance() == pytest.approx(np.mean(centred**2))
    components = fit_mixed_effects(cells).components
    assert all(np.isfinite(components))


def test_within_variance_has_a_degree_of_freedom_less_for_each_cell(draw_cells):
    cells = draw_cells(n_features=3)
    freedom = 3 * (cells.counts.sum() - len(cells.counts))
    assert cells.within_variance() == pytest.approx(cells.within / freedom)


# ------------------------------------------------------------------- invariances


def reordered(cells, client_order, label_order, cell_order):
    return Cells(
        client_order[cells.client][cell_order],
        label_order[cells.label][cell_order],
        cells.counts[cell_order],
        cells.means[cell_order],
        cells.within,
    )


@settings(max_examples=30, deadline=None)
@example(seed=5, n_clients=2, n_classes=1, n_features=1, held=0.1)
@given(
    seed=st.integers(0, 10**6),
    n_clients=st.integers(2, 6),
    n_classes=st.integers(1, 5),
    n_features=st.integers(1, 30),
    held=st.sampled_from([0.1, 0.5, 1.0]),
)
def test_order_scale_rotation_and_origin_do_not_matter(
    draw_cells, seed, n_clients, n_classes, n_features, held
):
    cells = draw_cells(seed, n_clients, n_classes, n_features, held=held)
    rng = np.random.default_rng(seed)
    clients, labels = rng.permutation(n_clients), rng.permutation(n_classes)
    order = rng.permutation(len(cells.counts))
    scale = 10 ** rng.uniform(-3, 3)
    rotation = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0]
    shift = 10 * rng.normal(size=n_features)
    other = reordered(cells, clients, labels, order)
    means = scale * other.means @ rotation.T + shift
    other = replace(other, means=means, within=scale**2 * other.within)
    first, second = fit_mixed_effects(cells), fit_mixed_effects(other)
    np.testing.assert_allclose(
        second.components, first.components, rtol=1e-6, atol=1e-7
    )
    expected = scale * first.means @ rotation.T + shift
    # as components that the data leave open agree to 1e-6 only
    tolerance = 1e-7 * scale * (1 + np.abs(cells.means).max())
    np.testing.assert_allclose(second.means[labels], expected, rtol=0, atol=tolerance)
    for k in range(n_clients):
        offset = first.offset(*cells.of_client(k))
        moved = second.offset(*other.of_client(clients[k]))
        np.testing.assert_allclose(
            moved, scale * rotation @ offset, rtol=0, atol=tolerance
        )
