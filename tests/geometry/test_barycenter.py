"""The Bures-Wasserstein barycenter of covariance matrices."""

import re
import tracemalloc

import mpmath
import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.exceptions import ConvergenceWarning

from skslot.geometry import bures_barycenter, bures_distance, transport_matrix

try:
    from pyriemann.geometry.mean import mean_wasserstein
except ImportError:  # before 0.12
    from pyriemann.utils.mean import mean_wasserstein

property_test = settings(max_examples=40, deadline=None, derandomize=True)
SOLVERS = ["anderson", "fixed_point", "paper"]


def random_covariances(seed, n_matrices, n_features, condition=100.0):
    """Symmetric matrices with eigenvalues from 1 down to 1 / condition."""
    rng = np.random.default_rng(seed)
    matrices = []
    for _ in range(n_matrices):
        rotation = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
        matrix = (rotation * np.geomspace(1, 1 / condition, n_features)) @ rotation.T
        matrices.append((matrix + matrix.T) / 2)
    return np.array(matrices)


def relative_error(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def independent_residual(barycenter, covariances, weights=None):
    """``|sum_k w_k T_k - I| / sqrt(m)``, from the maps."""
    maps = [transport_matrix(barycenter, covariance) for covariance in covariances]
    deviation = np.average(maps, axis=0, weights=weights) - np.eye(len(barycenter))
    return np.linalg.norm(deviation) / np.sqrt(len(barycenter))


def mp_root(matrix):
    eigenvalues, vectors = mpmath.eigsy((matrix + matrix.T) / 2)
    roots = [mpmath.sqrt(eigenvalue) for eigenvalue in eigenvalues]
    return vectors * mpmath.diag(roots) * vectors.T


def mp_barycenter(covariances, weights):
    """Fixed-point iteration of Alvarez-Esteban et al. with 50 digits."""
    with mpmath.workdps(50):
        covariances = [mpmath.matrix(matrix.tolist()) for matrix in covariances]
        weights = [mpmath.mpf(float(weight)) for weight in weights]
        total = mpmath.fsum(weights)
        size = covariances[0].rows
        barycenter = mpmath.eye(size)
        for _ in range(200):
            root = mp_root(barycenter)
            mean = mpmath.zeros(size)
            for covariance, weight in zip(covariances, weights, strict=True):
                mean += weight / total * mp_root(root * covariance * root)
            half = mpmath.inverse(root) * mean
            previous, barycenter = barycenter, half * half.T
            if mpmath.mnorm(barycenter - previous, "f") < mpmath.mpf(10) ** -20:
                return np.array(barycenter.tolist(), dtype=np.float64)
        raise AssertionError("the reference did not converge")


@st.composite
def problems(draw, n_features=3):
    """Covariances with a condition number up to about 1000, and their weights."""
    n_matrices = draw(st.integers(2, 4))
    entries = st.floats(-2, 2, allow_subnormal=False)
    shape = (n_matrices, n_features, n_features)
    factors = draw(arrays(np.float64, shape, elements=entries))
    weights = draw(arrays(np.float64, n_matrices, elements=st.floats(0.1, 10)))
    return factors @ factors.swapaxes(1, 2) + 0.05 * np.eye(n_features), weights


class Restartable:
    """Makes its matrices anew on each iteration; counts how many it has made."""

    def __init__(self, n_matrices, n_features):
        self.n_matrices = n_matrices
        self.n_features = n_features
        self.n_made = 0

    def __iter__(self):
        for seed in range(self.n_matrices):
            self.n_made += 1
            rng = np.random.default_rng(seed)
            factor = rng.standard_normal((self.n_features, self.n_features))
            factor *= np.exp(rng.standard_normal(self.n_features))
            matrix = factor.T @ factor
            matrix[np.diag_indices_from(matrix)] += 1.0
            del factor
            yield matrix


# Against other implementations


@pytest.fixture(scope="module", params=[[1, 1, 1, 1], [1, 2, 3, 4]])
def known(request):
    """Covariances, weights, and their barycenter to 20 digits."""
    covariances = random_covariances(0, 4, 5, condition=10)
    return covariances, request.param, mp_barycenter(covariances, request.param)


@pytest.mark.parametrize("solver", SOLVERS)
def test_agrees_with_50_digits(known, solver):
    covariances, weights, expected = known
    barycenter, _ = bures_barycenter(
        covariances, weights, tol=1e-13, max_iter=500, solver=solver
    )
    assert relative_error(barycenter, expected) <= 1e-12


@pytest.mark.parametrize(
    ("n_matrices", "n_features"), [(2, 2), (5, 8), (20, 16), (4, 32)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_pot(n_matrices, n_features, weighted, capsys):
    covariances = random_covariances(1, n_matrices, n_features)
    weights = np.arange(1.0, n_matrices + 1) if weighted else np.ones(n_matrices)
    weights /= weights.sum()
    _, expected = ot.gaussian.bures_wasserstein_barycenter(
        np.zeros((n_matrices, n_features)),
        covariances,
        weights=weights,
        num_iter=5000,
        eps=1e-13,
    )
    assert capsys.readouterr().out == ""  # POT prints when it did not converge
    barycenter, _ = bures_barycenter(covariances, weights, tol=1e-12)
    assert relative_error(barycenter, expected) <= 1e-8


@pytest.mark.parametrize(
    ("n_matrices", "n_features"), [(2, 2), (5, 8), (20, 16), (4, 32)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_pyriemann(n_matrices, n_features, weighted):
    covariances = random_covariances(2, n_matrices, n_features)
    weights = np.arange(1.0, n_matrices + 1) if weighted else None
    expected = mean_wasserstein(
        covariances, tol=1e-12, maxiter=500, sample_weight=weights
    )
    barycenter, _ = bures_barycenter(covariances, weights, tol=1e-12)
    assert relative_error(barycenter, expected) <= 1e-8


# Solvers


@pytest.mark.parametrize("solver", SOLVERS[1:])
def test_solvers_reach_the_same_limit(solver):
    covariances, weights = random_covariances(3, 5, 12), [1, 2, 3, 4, 5]
    expected, _ = bures_barycenter(covariances, weights, tol=1e-12)
    barycenter, result = bures_barycenter(
        covariances, weights, tol=1e-12, max_iter=2000, solver=solver
    )
    assert result.converged
    assert relative_error(barycenter, expected) <= 1e-10


def test_solvers_rank_by_number_of_passes():
    covariances = random_covariances(4, 4, 16, condition=1e4)
    anderson, fixed_point, paper = (
        bures_barycenter(covariances, max_iter=5000, solver=solver)[1].n_iter
        for solver in SOLVERS
    )
    assert anderson <= 0.75 * fixed_point
    assert fixed_point <= 0.25 * paper


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_scale_changes_neither_the_passes_nor_the_relative_answer(factor, solver):
    covariances = random_covariances(5, 5, 8, condition=10)
    expected, result = bures_barycenter(covariances, max_iter=500, solver=solver)
    barycenter, scaled = bures_barycenter(
        factor * covariances, max_iter=500, solver=solver
    )
    assert scaled.n_iter == result.n_iter
    assert relative_error(barycenter / factor, expected) <= 1e-12


@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-8, 1e-12])
@pytest.mark.parametrize("solver", SOLVERS)
def test_residual_describes_the_returned_matrix(solver, tol):
    covariances, weights = random_covariances(6, 4, 6, condition=10), [4, 3, 2, 1]
    barycenter, result = bures_barycenter(
        covariances, weights, tol=tol, max_iter=500, solver=solver
    )
    assert result.converged
    assert result.residual <= tol
    expected = independent_residual(barycenter, covariances, weights)
    assert result.residual == pytest.approx(expected, rel=1e-6, abs=1e-14)


def test_result_holds_plain_python_numbers():
    _, result = bures_barycenter(random_covariances(7, 3, 4))
    assert type(result.n_iter) is int
    assert type(result.residual) is float
    assert type(result.converged) is bool


# Identities


@property_test
@given(problems())
def test_mean_of_the_maps_is_the_identity(problem):
    covariances, weights = problem
    barycenter, _ = bures_barycenter(covariances, weights, tol=1e-11)
    maps = [transport_matrix(barycenter, covariance) for covariance in covariances]
    mean = np.average(maps, axis=0, weights=weights)
    np.testing.assert_allclose(mean, np.eye(3), atol=1e-9)


@property_test
@given(problems())
def test_mean_of_the_inverse_maps_is_the_identity(problem):
    covariances, weights = problem
    barycenter, _ = bures_barycenter(covariances, weights, tol=1e-11)
    maps = [transport_matrix(covariance, barycenter) for covariance in covariances]
    mean = np.average(np.linalg.inv(maps), axis=0, weights=weights)
    np.testing.assert_allclose(mean, np.eye(3), atol=1e-8)


@property_test
@given(problems(), st.floats(0, 1))
def test_partial_alignment_keeps_the_barycenter(problem, tau):
    covariances, weights = problem
    barycenter, _ = bures_barycenter(covariances, weights, tol=1e-11)
    moved = []
    for covariance in covariances:
        matrix = (1 - tau) * np.eye(3) + tau * transport_matrix(covariance, barycenter)
        moved.append(matrix @ covariance @ matrix)
    moved = np.array(moved)
    moved = (moved + moved.swapaxes(1, 2)) / 2
    after, _ = bures_barycenter(moved, weights, tol=1e-11)
    assert relative_error(after, barycenter) <= 1e-8


@property_test
@given(
    problems(),
    arrays(np.float64, (3, 3), elements=st.floats(-1, 1)),
    st.sampled_from([1e-4, 1e-2, 0.3]),
)
def test_no_matrix_has_a_smaller_mean_squared_distance(problem, direction, size):
    covariances, weights = problem
    barycenter, _ = bures_barycenter(covariances, weights, tol=1e-11)

    def mean_squared_distance(matrix):
        distances = [bures_distance(matrix, covariance) for covariance in covariances]
        return np.average(np.square(distances), weights=weights)

    change = np.eye(3) + size * direction
    other = change @ barycenter @ change.T
    least = mean_squared_distance(barycenter)
    assert least <= mean_squared_distance((other + other.T) / 2) + 1e-12


@property_test
@given(problems(), st.integers(0, 2**32 - 1))
def test_barycenter_follows_a_rotation(problem, seed):
    covariances, weights = problem
    normal = np.random.default_rng(seed).standard_normal((3, 3))
    rotation = np.linalg.qr(normal)[0]
    barycenter, _ = bures_barycenter(covariances, weights, tol=1e-11)
    rotated, _ = bures_barycenter(
        rotation @ covariances @ rotation.T, weights, tol=1e-11
    )
    assert relative_error(rotated, rotation @ barycenter @ rotation.T) <= 1e-8


@property_test
@given(problems(), st.randoms(use_true_random=False))
def test_order_of_the_matrices_does_not_matter(problem, random):
    covariances, weights = problem
    order = list(range(len(weights)))
    random.shuffle(order)
    barycenter, _ = bures_barycenter(covariances, weights, tol=1e-11)
    shuffled, _ = bures_barycenter(covariances[order], weights[order], tol=1e-11)
    assert relative_error(shuffled, barycenter) <= 1e-8


@property_test
@given(problems())
def test_barycenter_is_exactly_symmetric_and_positive_definite(problem):
    barycenter, _ = bures_barycenter(*problem)
    np.testing.assert_array_equal(barycenter, barycenter.T)
    assert np.linalg.eigvalsh(barycenter)[0] > 0


@pytest.mark.parametrize("n_features", [1, 2, 10])
@pytest.mark.parametrize("solver", ["anderson", "fixed_point"])
def test_commuting_matrices_average_by_their_roots_in_two_passes(solver, n_features):
    rng = np.random.default_rng(8)
    rotation = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
    roots = rng.uniform(0.2, 2, size=(4, n_features))
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    barycenter, result = bures_barycenter(
        (rotation * roots[:, None] ** 2) @ rotation.T, weights, solver=solver
    )
    expected = (rotation * (weights @ roots) ** 2) @ rotation.T
    assert result.n_iter == 2
    assert relative_error(barycenter, expected) <= 1e-13


# Weights


def test_weights_need_not_sum_to_one():
    covariances = random_covariances(9, 3, 5)
    expected, _ = bures_barycenter(covariances, [0.125, 0.25, 0.625])
    barycenter, _ = bures_barycenter(covariances, [1, 2, 5])
    np.testing.assert_array_equal(barycenter, expected)


def test_no_weights_are_equal_weights():
    covariances = random_covariances(10, 3, 5)
    expected, _ = bures_barycenter(covariances, [7, 7, 7])
    barycenter, _ = bures_barycenter(covariances)
    assert relative_error(barycenter, expected) <= 1e-13


def test_repeated_matrix_counts_like_a_double_weight():
    covariances = random_covariances(11, 3, 5)
    expected, _ = bures_barycenter(covariances, [1, 2, 1], tol=1e-12)
    barycenter, _ = bures_barycenter(covariances[[0, 1, 1, 2]], tol=1e-12)
    assert relative_error(barycenter, expected) <= 1e-11


@pytest.mark.parametrize("ignored", [np.zeros((5, 5)), 1e6 * np.eye(5)])
def test_zero_weight_leaves_the_matrix_out(ignored):
    covariances = random_covariances(12, 3, 5)
    expected, alone = bures_barycenter(covariances, [1, 2, 3])
    barycenter, result = bures_barycenter(
        [covariances[0], ignored, *covariances[1:]], [1, 0, 2, 3]
    )
    assert result.n_iter == alone.n_iter
    assert relative_error(barycenter, expected) <= 1e-13


# Hard and unusual input


@pytest.mark.parametrize("n_features", [4, 32])
def test_condition_number_1e8_converges(n_features):
    covariances = random_covariances(13, 5, n_features, condition=1e8)
    barycenter, result = bures_barycenter(covariances)
    assert result.converged
    assert result.residual <= 1e-8
    assert np.isfinite(barycenter).all()
    assert np.linalg.eigvalsh(barycenter)[0] > 0
    # Rounding alone is worth 1e-16 times the condition number.
    assert independent_residual(barycenter, covariances) <= 1e-7


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_matrices", [1, 5])
def test_identical_matrices_are_their_own_barycenter_at_once(n_matrices, solver):
    covariance = random_covariances(14, 1, 6)[0]
    barycenter, result = bures_barycenter([covariance] * n_matrices, solver=solver)
    assert result.n_iter == 1
    assert relative_error(barycenter, covariance) <= 1e-14


def test_thousand_matrices_of_64_features():
    covariances = random_covariances(15, 1000, 64, condition=10)
    barycenter, result = bures_barycenter(covariances, tol=1e-6)
    assert result.converged
    assert result.n_iter <= 10
    assert independent_residual(barycenter, covariances) <= 1e-6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("condition", "tolerance"), [(1e6, 1e-11), (1e8, 1e-6), (1e10, 1e-4)]
)
def test_ill_conditioned_barycenter_is_accurate(condition, tolerance):
    """Aligned matrices: the barycenter is as ill-conditioned as they are."""
    rng = np.random.default_rng(25)
    rotation = np.linalg.qr(rng.standard_normal((16, 16)))[0]
    roots = np.geomspace(1, condition**-0.5, 16) * rng.uniform(0.5, 1.5, (4, 16))
    covariances = (rotation * roots[:, None] ** 2) @ rotation.T
    barycenter, _ = bures_barycenter((covariances + covariances.swapaxes(1, 2)) / 2)
    expected = (rotation * roots.mean(axis=0) ** 2) @ rotation.T
    assert relative_error(barycenter, expected) <= tolerance


# A zero eigenvalue is known up to rounding, 1e-16, and enters through its square root:
# with singular matrices the residual need not come below 1e-7.


def test_singular_matrices_of_full_joint_rank_have_a_barycenter():
    rng = np.random.default_rng(16)
    factors = rng.standard_normal((6, 6, 5))
    covariances = factors @ factors.swapaxes(1, 2)
    assert (np.linalg.matrix_rank(covariances) == 5).all()
    barycenter, result = bures_barycenter(covariances, tol=1e-6)
    assert result.converged
    assert np.linalg.eigvalsh(barycenter)[0] > 1e-3
    assert independent_residual(barycenter, covariances) <= 2e-6


def test_features_constant_at_one_client_each_have_a_barycenter():
    barycenter, result = bures_barycenter([np.diag([4.0, 0, 1]), np.diag([0.0, 4, 1])])
    assert result.converged
    np.testing.assert_allclose(barycenter, np.eye(3), atol=1e-14)


def test_one_regular_matrix_among_singular_ones_is_enough():
    rng = np.random.default_rng(17)
    factors = rng.standard_normal((4, 6, 1))
    covariances = [*(factors @ factors.swapaxes(1, 2)), np.eye(6)]
    barycenter, result = bures_barycenter(covariances, tol=1e-6)
    assert result.converged
    # It has a fifth of the weight; in two directions it stands alone.
    assert np.linalg.eigvalsh(barycenter)[0] >= 1 / 25 - 1e-6


def test_singular_barycenter_is_reported():
    """Between two lines lies a line, although the mean of the two is regular."""
    angle = np.deg2rad(30)
    lines = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    covariances = [np.outer(line, line) for line in lines]
    with pytest.warns(ConvergenceWarning, match="shrink the covariances"):
        barycenter, result = bures_barycenter(covariances)
    assert not result.converged
    middle = lines.mean(axis=0)
    np.testing.assert_allclose(barycenter, np.outer(middle, middle), atol=1e-2)


def test_generator_gives_the_same_as_the_list():
    covariances = list(random_covariances(17, 4, 6))
    expected, _ = bures_barycenter(covariances, [1, 2, 3, 4])
    barycenter, _ = bures_barycenter((c for c in covariances), [1, 2, 3, 4])
    np.testing.assert_array_equal(barycenter, expected)


def test_restartable_iterable_gives_the_same_as_the_list():
    covariances = Restartable(4, 6)
    expected, _ = bures_barycenter(list(covariances))
    barycenter, _ = bures_barycenter(covariances)
    np.testing.assert_array_equal(barycenter, expected)


def test_restartable_iterable_is_read_once_per_pass_and_once_to_begin():
    covariances = Restartable(4, 6)
    _, result = bures_barycenter(covariances)
    assert covariances.n_made == 4 * (result.n_iter + 1)


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_barycenter_is_computed_in_double_precision(dtype):
    covariances = np.array([[[2, 1], [1, 3]], [[5, 2], [2, 1]], [[4, 0], [0, 9]]])
    expected, _ = bures_barycenter(covariances.astype(np.float64))
    barycenter, _ = bures_barycenter(covariances.astype(dtype))
    assert barycenter.dtype == np.float64
    np.testing.assert_array_equal(barycenter, expected)


def test_asymmetry_from_float32_rounding_is_accepted():
    exact = random_covariances(18, 3, 64)
    eigenvalues, vectors = np.linalg.eigh(exact)
    vectors, eigenvalues = vectors.astype(np.float32), eigenvalues.astype(np.float32)
    rounded = (vectors * eigenvalues[:, None]) @ vectors.swapaxes(1, 2)
    assert (rounded != rounded.swapaxes(1, 2)).any()
    expected, _ = bures_barycenter(exact)
    barycenter, _ = bures_barycenter(rounded)
    assert relative_error(barycenter, expected) <= 1e-5


def test_negative_eigenvalues_from_float32_rounding_are_accepted():
    rng = np.random.default_rng(19)
    rows = rng.standard_normal((3, 30, 64)).astype(np.float32)
    covariances = [sample.T @ sample / len(sample) for sample in rows]
    assert np.linalg.eigvalsh(np.array(covariances, dtype=np.float64)).min() < 0
    barycenter, _ = bures_barycenter([*covariances, np.eye(64)])
    assert np.linalg.eigvalsh(barycenter)[0] > 0


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_input_is_left_alone(order, solver):
    covariances = [
        np.array(covariance, order=order)
        for covariance in random_covariances(20, 3, 5, condition=10)
    ]
    weights = np.array([1.0, 2.0, 3.0])
    copies = [array.copy() for array in [*covariances, weights]]
    expected, _ = bures_barycenter(covariances, weights, max_iter=500, solver=solver)
    for array, copy in zip([*covariances, weights], copies, strict=True):
        np.testing.assert_array_equal(array, copy)
        array.setflags(write=False)
    barycenter, _ = bures_barycenter(covariances, weights, max_iter=500, solver=solver)
    np.testing.assert_array_equal(barycenter, expected)


def test_single_matrix_is_copied():
    covariance = np.diag([1.0, 2.0])
    barycenter, _ = bures_barycenter([covariance])
    assert not np.shares_memory(barycenter, covariance)


# Refusals


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones(3), r"must be a square matrix, got shape \(3,\)"),
        (np.ones((3, 2)), r"must be a square matrix, got shape \(3, 2\)"),
        (np.eye(4), "is 4 x 4, expected 3 x 3"),
        (np.diag([1.0, np.nan, 1.0]), "contains NaN or infinity"),
        (np.diag([1.0, np.inf, 1.0]), "contains NaN or infinity"),
        (np.eye(3) + np.triu(np.full((3, 3), 1e-3), 1), "is not symmetric"),
        (np.diag([1.0, -0.1, 1.0]), "is not positive semi-definite.* negative"),
        (np.diag([1.0, -50.0, 1.0]), "is not positive semi-definite.* negative"),
        (-50 * np.eye(3), "is not positive semi-definite.* negative"),
    ],
)
def test_bad_matrix_is_named_by_its_index(bad, message):
    with pytest.raises(ValueError, match=rf"^covariances\[2\] {message}"):
        bures_barycenter([np.eye(3), 2 * np.eye(3), bad, 3 * np.eye(3)])


def test_single_matrix_without_a_list_is_refused():
    with pytest.raises(ValueError, match=r"covariances\[0\] must be a square matrix"):
        bures_barycenter(np.eye(3))


@pytest.mark.parametrize("empty", [[], (), np.empty((0, 3, 3)), iter([])])
def test_no_matrices_are_refused(empty):
    with pytest.raises(ValueError, match="covariances is empty"):
        bures_barycenter(empty)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], "weights has 2 entries, but there are more covariances"),
        ([1, 2, 3, 4], "weights has 4 entries, but there are only 3 covariances"),
        ([], "weights must not all be zero"),
        ([0, 0, 0], "weights must not all be zero"),
        ([1, -1, 1], "weights must be .* >= 0"),
        ([1, np.nan, 1], "weights must be .* finite"),
        ([1, np.inf, 1], "weights must be .* finite"),
        ([[1, 1, 1]], "weights must be a vector"),
        (1.0, "weights must be a vector"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        bures_barycenter([np.eye(2)] * 3, weights)


@pytest.mark.parametrize(
    ("covariances", "weights"),
    [
        ([np.diag([1.0, 0.0]), np.diag([2.0, 0.0])], None),
        ([np.diag([1.0, 0.0]), np.eye(2)], [1, 0]),
        ([np.zeros((2, 2))], None),
    ],
)
def test_singular_mean_is_refused_with_a_remedy(covariances, weights):
    with pytest.raises(ValueError, match="weighted mean .* is singular.*shrink"):
        bures_barycenter(covariances, weights)


@pytest.mark.parametrize("order", ["C", "F"])
def test_refused_input_is_left_alone(order):
    rng = np.random.default_rng(26)
    factors = rng.standard_normal((2, 4, 1))
    covariances = [np.array(factor @ factor.T, order=order) for factor in factors]
    copies = [covariance.copy() for covariance in covariances]
    with pytest.raises(ValueError, match="is singular"):
        bures_barycenter(covariances)
    np.testing.assert_array_equal(covariances, copies)


def test_unknown_solver_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="solver must be .*'anderson'.* got 'newton'"):
        bures_barycenter([np.eye(2)], solver="newton")


@pytest.mark.parametrize("max_iter", [0, -1])
def test_at_least_one_pass_is_needed(max_iter):
    with pytest.raises(
        ValueError, match=f"max_iter must be at least 1, got {max_iter}"
    ):
        bures_barycenter([np.eye(2)], max_iter=max_iter)


# When it does not converge


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("max_iter", [1, 2])
def test_missed_tolerance_warns_with_the_residual_and_prints_nothing(
    max_iter, solver, capfd
):
    covariances = random_covariances(21, 3, 4)
    with pytest.warns(ConvergenceWarning) as record:
        _, result = bures_barycenter(covariances, max_iter=max_iter, solver=solver)
    assert not result.converged
    assert result.n_iter == max_iter
    (warning,) = record
    residual = re.escape(f"residual {result.residual:.1e} after {max_iter} passes")
    assert re.search(f"{residual}.*tol=1.0e-08", str(warning.message))
    assert warning.filename == __file__
    assert capfd.readouterr() == ("", "")


def test_first_iterate_is_the_weighted_mean():
    covariances, weights = random_covariances(22, 3, 4), [1, 2, 3]
    with pytest.warns(ConvergenceWarning, match="after 1 passes"):
        barycenter, result = bures_barycenter(covariances, weights, max_iter=1)
    expected = np.average(covariances, axis=0, weights=weights)
    assert relative_error(barycenter, expected) <= 1e-14
    expected = independent_residual(expected, covariances, weights)
    assert result.residual == pytest.approx(expected, rel=1e-10)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", SOLVERS)
def test_best_iterate_is_returned_when_a_later_one_is_worse(solver):
    """At the level of rounding the residual goes up and down; the best one stays."""
    covariances = random_covariances(24, 3, 4, condition=4)
    runs = [
        bures_barycenter(covariances, tol=0, max_iter=max_iter, solver=solver)
        for max_iter in range(50, 70)
    ]
    n_kept = 0
    for (before, earlier), (after, later) in zip(runs[:-1], runs[1:], strict=True):
        assert later.residual <= earlier.residual <= 1e-14
        if later.residual == earlier.residual:
            np.testing.assert_array_equal(after, before)
            n_kept += 1
    assert n_kept > 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(5))
def test_unreachable_tolerance_does_no_harm(seed):
    """Residuals that no longer change make Anderson's equations singular."""
    diagonals = np.random.default_rng(seed).uniform(0.5, 2, size=(3, 2))
    barycenter, _ = bures_barycenter([np.diag(d) for d in diagonals], tol=0)
    expected = np.diag(np.sqrt(diagonals).mean(axis=0) ** 2)
    assert relative_error(barycenter, expected) <= 1e-14


# Memory


@pytest.mark.parametrize(
    ("solver", "most"), [("anderson", 25), ("fixed_point", 15), ("paper", 15)]
)
def test_memory_does_not_grow_with_the_number_of_matrices(solver, most):
    n_features = 128

    def peak_in_matrices(n_matrices):
        covariances = Restartable(n_matrices, n_features)
        tracemalloc.start()
        try:
            # Ten passes, whatever the input: all of Anderson's history is in use.
            with pytest.warns(ConvergenceWarning, match="after 10 passes"):
                bures_barycenter(covariances, tol=0, max_iter=10, solver=solver)
            return tracemalloc.get_traced_memory()[1] / (8 * n_features**2)
        finally:
            tracemalloc.stop()

    few, many = peak_in_matrices(5), peak_in_matrices(30)
    assert abs(many - few) <= 1
    assert many <= most
