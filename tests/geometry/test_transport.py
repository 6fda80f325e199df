"""Optimal-transport maps between Gaussians, whole or part of the way."""

import mpmath
import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skslot.geometry import displacement_map, gaussian_wasserstein, transport_matrix

property_test = settings(max_examples=50, deadline=None, derandomize=True)
strengths = st.floats(0, 1)
means = arrays(np.float64, 3, elements=st.floats(-10, 10))


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


def mp_power(matrix, exponent):
    eigenvalues, vectors = mpmath.eigsy((matrix + matrix.T) / 2)
    powers = [mpmath.power(eigenvalue, exponent) for eigenvalue in eigenvalues]
    return vectors * mpmath.diag(powers) * vectors.T


def mp_transport_matrix(source, target):
    """``S^-1/2 (S^1/2 T S^1/2)^1/2 S^-1/2`` with 50 digits."""
    with mpmath.workdps(50):
        source, target = mpmath.matrix(source.tolist()), mpmath.matrix(target.tolist())
        half = mpmath.mpf(1) / 2
        root, inverse_root = mp_power(source, half), mp_power(source, -half)
        result = inverse_root * mp_power(root * target * root, half) * inverse_root
        return np.array(result.tolist(), dtype=np.float64)


def relative_error(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def pushed(mean, covariance, matrix, offset):
    """Mean and covariance after ``z -> matrix @ z + offset``."""
    covariance = matrix @ covariance @ matrix.T
    return matrix @ mean + offset, (covariance + covariance.T) / 2


@pytest.mark.parametrize(
    ("condition", "tolerance"), [(1e1, 1e-13), (1e2, 1e-12), (1e6, 1e-8)]
)
def test_matrix_agrees_with_50_digits(condition, tolerance):
    rng = np.random.default_rng(0)
    source, target = (random_covariance(rng, 5, condition) for _ in range(2))
    expected = mp_transport_matrix(source, target)
    assert relative_error(transport_matrix(source, target), expected) <= tolerance


@pytest.mark.parametrize("n_features", [1, 2, 5, 16, 67])
def test_map_agrees_with_pot(n_features):
    rng = np.random.default_rng(1)
    source, target = (random_covariance(rng, n_features) for _ in range(2))
    mean, target_mean = rng.standard_normal((2, n_features))
    expected_matrix, expected_offset = ot.gaussian.bures_wasserstein_mapping(
        mean, target_mean, source, target
    )
    matrix = transport_matrix(source, target)
    assert relative_error(matrix, expected_matrix) <= 1e-8
    _, offset = displacement_map(mean, matrix, target_mean, tau=1)
    assert relative_error(offset, expected_offset) <= 1e-8


@property_test
@given(covariances(), covariances())
def test_matrix_carries_source_to_target(source, target):
    matrix = transport_matrix(source, target)
    assert relative_error(matrix @ source @ matrix, target) <= 1e-11


@property_test
@given(covariances(), covariances())
def test_matrix_is_symmetric_positive_definite(source, target):
    matrix = transport_matrix(source, target)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix)[0] > 0


@property_test
@given(covariances())
def test_matrix_to_itself_is_the_identity(source):
    rounding = 1e-14 * np.linalg.cond(source)
    matrix = transport_matrix(source, source)
    np.testing.assert_allclose(matrix, np.eye(3), rtol=0, atol=rounding)


@property_test
@given(covariances(), covariances())
def test_matrix_back_is_the_inverse(source, target):
    there, back = transport_matrix(source, target), transport_matrix(target, source)
    np.testing.assert_allclose(there @ back, np.eye(3), atol=1e-10)


@property_test
@given(covariances(), covariances(), st.integers(0, 2**32 - 1))
def test_matrix_follows_a_rotation(source, target, seed):
    rotation = random_rotation(np.random.default_rng(seed), 3)
    rotated = transport_matrix(
        rotation @ source @ rotation.T, rotation @ target @ rotation.T
    )
    expected = rotation @ transport_matrix(source, target) @ rotation.T
    assert relative_error(rotated, expected) <= 1e-11


@pytest.mark.parametrize(("first", "second"), [(1e-8, 1e8), (1e8, 1e8), (1e-60, 1e60)])
def test_matrix_scales_with_the_standard_deviations(first, second):
    rng = np.random.default_rng(2)
    source, target = (random_covariance(rng, 4) for _ in range(2))
    expected = np.sqrt(second / first) * transport_matrix(source, target)
    matrix = transport_matrix(first * source, second * target)
    assert relative_error(matrix, expected) <= 1e-12


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_singular_target_is_reached(rank):
    rng = np.random.default_rng(3)
    source = random_covariance(rng, 4)
    factor = rng.standard_normal((4, rank))
    target = factor @ factor.T
    matrix = transport_matrix(source, target)
    # Rounding of a zero eigenvalue enters through its square root.
    np.testing.assert_allclose(matrix @ source @ matrix, target, atol=1e-7)
    assert np.linalg.matrix_rank(matrix, tol=1e-6) == rank


@pytest.mark.parametrize("source", [np.zeros((3, 3)), np.diag([1, 1, 0]), -np.eye(3)])
def test_singular_source_is_refused_with_a_remedy(source):
    with pytest.raises(ValueError, match="source is not positive definite.*shrink it"):
        transport_matrix(source, np.eye(3))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones(3), r"square matrix, got shape \(3,\)"),
        (np.ones((3, 2)), r"square matrix, got shape \(3, 2\)"),
        (np.diag([1.0, np.nan, 1.0]), "NaN or infinity"),
        (np.diag([1.0, np.inf, 1.0]), "NaN or infinity"),
        (np.triu(np.ones((3, 3))), "not symmetric"),
    ],
)
def test_matrix_names_the_bad_argument(bad, message):
    with pytest.raises(ValueError, match=f"^source .*{message}"):
        transport_matrix(bad, np.eye(3))
    with pytest.raises(ValueError, match=f"^target .*{message}"):
        transport_matrix(np.eye(3), bad)


def test_target_with_a_negative_eigenvalue_is_refused():
    with pytest.raises(ValueError, match="target is not positive semi-definite"):
        transport_matrix(np.eye(3), np.diag([1.0, 1.0, -0.1]))


def test_target_of_another_size_is_refused():
    with pytest.raises(ValueError, match="target is 3 x 3, expected 2 x 2"):
        transport_matrix(np.eye(2), np.eye(3))


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_matrix_is_computed_in_double_precision(dtype):
    source, target = np.array([[2, 1], [1, 3]]), np.array([[5, 2], [2, 1]])
    expected = transport_matrix(source.astype(float), target.astype(float))
    matrix = transport_matrix(source.astype(dtype), target.astype(dtype))
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, expected)


@pytest.mark.parametrize("order", ["C", "F"])
def test_matrix_leaves_its_input_alone(order):
    rng = np.random.default_rng(4)
    matrices = [np.array(random_covariance(rng, 4), order=order) for _ in range(2)]
    copies = [matrix.copy() for matrix in matrices]
    transport_matrix(*matrices)
    np.testing.assert_array_equal(matrices, copies)
    for matrix in matrices:
        matrix.setflags(write=False)
    transport_matrix(*matrices)


@property_test
@given(means, covariances(), means, covariances())
def test_strength_zero_is_exactly_the_identity(mean, source, target_mean, target):
    matrix = transport_matrix(source, target)
    matrix_tau, offset = displacement_map(mean, matrix, target_mean, tau=0)
    np.testing.assert_array_equal(matrix_tau, np.eye(3))
    np.testing.assert_array_equal(offset, np.zeros(3))


@property_test
@given(means, covariances(), means, covariances())
def test_strength_one_carries_the_mean_to_the_target_mean(
    mean, source, target_mean, target
):
    matrix = transport_matrix(source, target)
    matrix_tau, offset = displacement_map(mean, matrix, target_mean, tau=1)
    np.testing.assert_array_equal(matrix_tau, matrix)
    rounding = 1e-14 * (1 + np.linalg.norm(matrix) * np.linalg.norm(mean))
    np.testing.assert_allclose(matrix_tau @ mean + offset, target_mean, atol=rounding)


@property_test
@given(means, covariances(), means, covariances(), means, strengths)
def test_row_moves_straight_towards_its_image(
    mean, source, target_mean, target, row, tau
):
    matrix = transport_matrix(source, target)
    matrix_tau, offset = displacement_map(mean, matrix, target_mean, tau)
    image = target_mean + matrix @ (row - mean)
    expected = (1 - tau) * row + tau * image
    np.testing.assert_allclose(matrix_tau @ row + offset, expected, atol=1e-10)


@property_test
@given(means, covariances(), means, covariances(), strengths)
def test_moved_gaussian_lies_on_the_geodesic(mean, source, target_mean, target, tau):
    matrix = transport_matrix(source, target)
    matrix_tau, offset = displacement_map(mean, matrix, target_mean, tau)
    moved_mean, moved = pushed(mean, source, matrix_tau, offset)
    whole = gaussian_wasserstein(mean, source, target_mean, target)
    ahead = gaussian_wasserstein(moved_mean, moved, target_mean, target)
    behind = gaussian_wasserstein(mean, source, moved_mean, moved)
    assert ahead == pytest.approx((1 - tau) * whole, rel=1e-10, abs=1e-10)
    assert behind == pytest.approx(tau * whole, rel=1e-10, abs=1e-10)


def test_displacement_accepts_lists_and_leaves_arrays_alone():
    mean, target_mean = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    for array in (mean, target_mean, matrix):
        array.setflags(write=False)
    from_arrays = displacement_map(mean, matrix, target_mean, 0.5)
    from_lists = displacement_map([1, 2], matrix.tolist(), [3, 5], 0.5)
    for array, other in zip(from_arrays, from_lists, strict=True):
        np.testing.assert_array_equal(array, other)
    assert not np.shares_memory(displacement_map(mean, matrix, mean, 1)[0], matrix)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_scales_neither_under_nor_overflow(scale):
    matrix = transport_matrix(scale * np.diag([4.0, 1.0]), scale * np.eye(2))
    np.testing.assert_allclose(matrix, np.diag([0.5, 1.0]), rtol=1e-12)
