"""The distance between covariances and between Gaussians."""

import mpmath
import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skslot.geometry import bures_distance, gaussian_wasserstein

property_test = settings(max_examples=50, deadline=None, derandomize=True)


def random_covariance(rng, n_features, condition=100.0):
    """Symmetric matrix with eigenvalues from 1 down to 1 / condition."""
    rotation = random_rotation(rng, n_features)
    covariance = (rotation * np.geomspace(1, 1 / condition, n_features)) @ rotation.T
    return (covariance + covariance.T) / 2


def random_rotation(rng, n_features):
    return np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]


def covariances(n_features=3, ridge=0.05):
    """Covariances with a condition number up to about 1000."""
    entries = st.floats(-2, 2, allow_subnormal=False)
    factors = arrays(np.float64, (n_features, n_features), elements=entries)
    return factors.map(lambda factor: factor @ factor.T + ridge * np.eye(n_features))


def singular_covariances(n_features=3):
    """Covariances of any rank, zero included."""
    entries = st.integers(-3, 3).map(float)
    factors = st.integers(1, n_features).flatmap(
        lambda rank: arrays(np.float64, (n_features, rank), elements=entries)
    )
    return factors.map(lambda factor: factor @ factor.T)


def mp_root(matrix):
    eigenvalues, vectors = mpmath.eigsy(matrix)
    roots = [mpmath.sqrt(max(eigenvalue, 0)) for eigenvalue in eigenvalues]
    return vectors * mpmath.diag(roots) * vectors.T


def mp_bures_distance(first, second):
    """The trace formula with 50 digits, where its cancellation does no harm."""
    with mpmath.workdps(50):
        first, second = mpmath.matrix(first.tolist()), mpmath.matrix(second.tolist())
        root = mp_root(first)
        middle = root * second * root
        cross = mp_root((middle + middle.T) / 2)
        trace = sum(
            first[i, i] + second[i, i] - 2 * cross[i, i] for i in range(first.rows)
        )
        return float(mpmath.sqrt(trace))


@pytest.mark.parametrize("condition", [1e1, 1e4, 1e8])
def test_distance_agrees_with_50_digits(condition):
    rng = np.random.default_rng(0)
    first, second = (random_covariance(rng, 5, condition) for _ in range(2))
    expected = mp_bures_distance(first, second)
    assert bures_distance(first, second) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gap", [1e-4, 1e-8, 1e-12])
def test_distance_of_nearly_equal_matrices_does_not_cancel(gap):
    rng = np.random.default_rng(1)
    first = random_covariance(rng, 5)
    second = first + gap * random_covariance(rng, 5)
    expected = mp_bures_distance(first, second)
    # The trace formula in double precision is off by 1e-8.
    assert bures_distance(first, second) == pytest.approx(
        expected, rel=1e-12, abs=1e-14
    )


def test_distance_of_nearly_equal_singular_matrices_does_not_cancel():
    factor = np.random.default_rng(9).standard_normal((6, 2))
    distance = bures_distance(factor @ factor.T, (1 + 1e-10) ** 2 * factor @ factor.T)
    assert distance == pytest.approx(1e-10 * np.linalg.norm(factor), rel=1e-4)


@pytest.mark.parametrize("n_features", [1, 2, 16, 64])
def test_distance_agrees_with_pot(n_features):
    rng = np.random.default_rng(2)
    first, second = (
        (1 + shift) * random_covariance(rng, n_features) for shift in range(2)
    )
    means = rng.standard_normal((2, n_features))
    expected = ot.gaussian.bures_wasserstein_distance(*means, first, second)
    distance = gaussian_wasserstein(means[0], first, means[1], second)
    assert distance == pytest.approx(expected, rel=1e-8)
    expected = ot.gaussian.bures_wasserstein_distance(means[0], means[0], first, second)
    assert bures_distance(first, second) == pytest.approx(expected, rel=1e-8)


def test_distance_of_commuting_matrices_is_that_of_their_roots():
    rng = np.random.default_rng(3)
    rotation = random_rotation(rng, 6)
    roots = rng.uniform(0.1, 3, size=(2, 6))
    first, second = ((rotation * root**2) @ rotation.T for root in roots)
    expected = np.linalg.norm(roots[0] - roots[1])
    assert bures_distance(first, second) == pytest.approx(expected, rel=1e-12)


@property_test
@given(covariances())
def test_distance_to_itself_is_zero(covariance):
    assert bures_distance(covariance, covariance) <= 1e-13


@property_test
@given(singular_covariances())
def test_distance_to_itself_is_zero_for_singular_matrices(covariance):
    assert bures_distance(covariance, covariance) <= 1e-13


@property_test
@given(covariances(), covariances())
def test_distance_is_bounded_on_both_sides_by_the_difference(first, second):
    """So it is zero for equal matrices only."""
    difference = np.linalg.norm(first - second, ord="nuc")
    lower = difference / (np.sqrt(np.trace(first)) + np.sqrt(np.trace(second)))
    eigenvalues, vectors = np.linalg.eigh([first, second])
    roots = (vectors * np.sqrt(eigenvalues)[:, None]) @ vectors.swapaxes(1, 2)
    upper = np.linalg.norm(roots[0] - roots[1])
    assert lower - 1e-13 <= bures_distance(first, second) <= upper + 1e-13


@property_test
@given(covariances(), covariances())
def test_distance_is_symmetric(first, second):
    distance = bures_distance(first, second)
    assert bures_distance(second, first) == pytest.approx(distance, abs=1e-13)


@property_test
@given(covariances(), covariances(), covariances())
def test_distance_satisfies_the_triangle_inequality(first, second, third):
    detour = bures_distance(first, second) + bures_distance(second, third)
    assert bures_distance(first, third) <= detour + 1e-13


@property_test
@given(singular_covariances(), singular_covariances(), singular_covariances())
def test_distance_axioms_hold_for_singular_matrices(first, second, third):
    there, back = bures_distance(first, second), bures_distance(second, first)
    # Rounding of a zero eigenvalue enters through its square root.
    assert there == pytest.approx(back, abs=1e-6)
    assert bures_distance(first, third) <= there + bures_distance(second, third) + 1e-6


@property_test
@given(covariances(), covariances(), st.integers(0, 2**32 - 1))
def test_distance_is_invariant_under_rotation(first, second, seed):
    rotation = random_rotation(np.random.default_rng(seed), len(first))
    rotated = [rotation @ matrix @ rotation.T for matrix in (first, second)]
    expected = bures_distance(first, second)
    assert bures_distance(*rotated) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("factor", [1e-100, 1e-8, 1e8, 1e100])
def test_distance_scales_like_a_standard_deviation(factor):
    rng = np.random.default_rng(4)
    first, second = (random_covariance(rng, 5) for _ in range(2))
    expected = np.sqrt(factor) * bures_distance(first, second)
    distance = bures_distance(factor * first, factor * second)
    assert distance == pytest.approx(expected, rel=1e-12)


def test_distance_from_zero_is_the_root_of_the_trace():
    covariance = random_covariance(np.random.default_rng(5), 5)
    distance = bures_distance(np.zeros((5, 5)), covariance)
    assert distance == pytest.approx(np.sqrt(np.trace(covariance)), rel=1e-14)


def test_distance_between_lines_is_that_of_their_closest_ends():
    first, second = np.random.default_rng(8).standard_normal((2, 20))
    distance = bures_distance(np.outer(first, first), np.outer(second, second))
    ends = [np.linalg.norm(first - second), np.linalg.norm(first + second)]
    assert distance == pytest.approx(min(ends), rel=1e-13)


@property_test
@given(arrays(np.float64, (2, 3), elements=st.floats(-10, 10)), covariances())
def test_gaussians_with_equal_covariances_are_as_far_apart_as_their_means(
    means, covariance
):
    distance = gaussian_wasserstein(means[0], covariance, means[1], covariance)
    expected = np.linalg.norm(means[0] - means[1])
    assert distance == pytest.approx(expected, rel=1e-13, abs=1e-13)


def test_squared_distances_of_means_and_covariances_add():
    rng = np.random.default_rng(6)
    first, second = (random_covariance(rng, 4) for _ in range(2))
    means = rng.standard_normal((2, 4))
    expected = np.sum((means[0] - means[1]) ** 2) + bures_distance(first, second) ** 2
    distance = gaussian_wasserstein(means[0], first, means[1], second)
    assert distance**2 == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_distance_is_a_python_float_for_any_number_type(dtype):
    distance = bures_distance(np.diag([4, 9]).astype(dtype), np.eye(2, dtype=dtype))
    assert type(distance) is float
    assert distance == pytest.approx(np.sqrt(5), rel=1e-15)


@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_distance_leaves_its_input_alone(order, rank):
    factors = np.random.default_rng(7).standard_normal((2, 4, rank))
    matrices = [np.array(factor @ factor.T, order=order) for factor in factors]
    copies = [matrix.copy() for matrix in matrices]
    expected = bures_distance(*matrices)
    np.testing.assert_array_equal(matrices, copies)
    for matrix in matrices:
        matrix.setflags(write=False)
    assert bures_distance(*matrices) == expected


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones(3), r"square matrix, got shape \(3,\)"),
        (np.ones((3, 2)), r"square matrix, got shape \(3, 2\)"),
        (np.ones((2, 3, 3)), "square matrix"),
        (np.ones((0, 0)), "square matrix"),
        (np.diag([1.0, np.nan, 1.0]), "NaN or infinity"),
        (np.diag([1.0, np.inf, 1.0]), "NaN or infinity"),
        (np.triu(np.ones((3, 3))), "not symmetric"),
        (np.diag([1.0, -0.1, 1.0]), "not positive semi-definite"),
        (-np.eye(3), "not positive semi-definite"),
    ],
)
def test_distance_names_the_bad_argument(bad, message):
    with pytest.raises(ValueError, match=f"^first .*{message}"):
        bures_distance(bad, np.eye(3))
    with pytest.raises(ValueError, match=f"^second .*{message}"):
        bures_distance(np.eye(3), bad)


def test_distance_refuses_matrices_of_different_size():
    with pytest.raises(ValueError, match="second is 3 x 3, expected 2 x 2"):
        bures_distance(np.eye(2), np.eye(3))


@pytest.mark.parametrize(
    ("mean", "message"),
    [
        ([0.0, 0.0, 0.0], r"first_mean must be 2 finite.*shape \(3,\)"),
        ([[0.0, 0.0]], r"first_mean must be 2 finite.*shape \(1, 2\)"),
        ([0.0, np.nan], "first_mean must be 2 finite numbers"),
    ],
)
def test_gaussian_distance_refuses_bad_means(mean, message):
    with pytest.raises(ValueError, match=message):
        gaussian_wasserstein(mean, np.eye(2), np.zeros_like(mean), np.eye(2))
