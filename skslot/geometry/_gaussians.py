"""Gaussians under the 2-Wasserstein distance: distance, maps and barycenter."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.linalg import LinAlgError, cholesky, eigh, eigvalsh, svd
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from .._utils import map_in_order, one_blas_thread, warn_user

SOLVERS = ("anderson", "fixed_point", "paper")
ANDERSON_DEPTH = 5  # steps that are combined
# Covariances often come from float32 or from a wire format: what is below this
# share of the largest entry (or eigenvalue) is rounding, not a mistake.
ROUNDING = 1e-6
# The same for what computations of ours in float64 leave of a zero.
LEAK = 1e-8


# -------------------------------------------------------------------------- distances


def bures_distance(first, second):
    """Bures distance between two covariance matrices.

    It is the 2-Wasserstein distance between two Gaussians with equal means,
    ``sqrt(tr(A + B - 2 (A^1/2 B A^1/2)^1/2))``.

    Parameters
    ----------
    first, second : array-like of shape (n_features, n_features)
        Symmetric positive semi-definite matrices; they may be singular.

    Returns
    -------
    distance : float
        The distance, in the unit of the features.

    See Also
    --------
    gaussian_wasserstein : Also counts the distance between the means.
    bures_barycenter : The covariance with the least mean squared distance.

    Notes
    -----
    Evaluated as the smallest Frobenius distance between square-root factors,
    ``min_U |F - G U|`` over orthogonal ``U`` [1]_, which unlike the trace
    formula does not cancel: matrices that agree to 1e-12 are found to be 1e-12
    apart and not 1e-6.

    References
    ----------
    .. [1] R. Bhatia, T. Jain, Y. Lim. "On the Bures-Wasserstein distance between
       positive definite matrices". Expositiones Mathematicae, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.geometry import bures_distance
    >>> bures_distance(np.diag([4.0, 9.0]), np.diag([1.0, 1.0]))  # hypot(1, 2)
    2.236...
    """
    first = check_covariance(first, "first")
    second = check_covariance(second, "second", n_features=len(first))
    first_root = _square_root_factor(first, "first")
    second_root = _square_root_factor(second, "second")
    left, _, right = svd(second_root.T @ first_root)
    return float(np.linalg.norm(first_root - second_root @ (left @ right)))


def gaussian_wasserstein(first_mean, first_covariance, second_mean, second_covariance):
    """2-Wasserstein distance between two Gaussians.

    Parameters
    ----------
    first_mean : array-like of shape (n_features,)
        Mean of the first Gaussian.
    first_covariance : array-like of shape (n_features, n_features)
        Covariance of the first Gaussian; it may be singular.
    second_mean : array-like of shape (n_features,)
        Mean of the second Gaussian.
    second_covariance : array-like of shape (n_features, n_features)
        Covariance of the second Gaussian; it may be singular.

    Returns
    -------
    distance : float
        The distance, in the unit of the features.

    See Also
    --------
    bures_distance : The part that comes from the covariances.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.geometry import gaussian_wasserstein
    >>> gaussian_wasserstein([0, 0], np.eye(2), [3, 0], np.diag([1, 25]))
    5.0
    """
    between_covariances = bures_distance(first_covariance, second_covariance)
    means = [np.asarray(mean, dtype=np.float64) for mean in (first_mean, second_mean)]
    for name, mean in zip(("first_mean", "second_mean"), means, strict=True):
        if mean.shape != (len(first_covariance),) or not np.isfinite(mean).all():
            raise ValueError(
                f"{name} must be {len(first_covariance)} finite numbers, like the "
                f"covariances; got shape {mean.shape}."
            )
    difference = means[0] - means[1]
    return float(np.hypot(np.linalg.norm(difference), between_covariances))


def _square_root_factor(covariance, name):
    """Some ``F`` with ``F @ F.T == covariance``, also for singular matrices."""
    try:
        return cholesky(covariance)
    except LinAlgError:
        eigenvalues, vectors = eigh(covariance)
        check_eigenvalues(eigenvalues, name)
        noise = len(covariance) * np.finfo(np.float64).eps * eigenvalues[-1]
        return vectors * np.sqrt(np.where(eigenvalues > noise, eigenvalues, 0.0))


def transport_matrix(source, target):
    """Linear part of the optimal map from one Gaussian to another.

    The unique symmetric positive (semi-)definite ``A`` with
    ``A @ source @ A == target``.

    Parameters
    ----------
    source : array-like of shape (n_features, n_features)
        Covariance to start from, positive definite.
    target : array-like of shape (n_features, n_features)
        Covariance to arrive at, positive semi-definite.

    Returns
    -------
    matrix : ndarray of shape (n_features, n_features)
        The map, exactly symmetric.

    See Also
    --------
    displacement_map : The affine map, applied with strength tau.

    Notes
    -----
    With ``source = L @ L.T`` the map is ``inv(L).T (L.T target L)^1/2 inv(L)``: one
    Cholesky factor and one eigendecomposition. Because ``A`` has no negative
    eigenvalue, it stretches but never reflects or rotates.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.geometry import transport_matrix
    >>> transport_matrix(np.diag([4.0, 1.0]), np.diag([1.0, 9.0]))
    array([[0.5, 0. ],
           [0. , 3. ]])
    """
    source = check_covariance(source, "source")
    target = check_covariance(target, "target", n_features=len(source))
    # In units of their own, so that no scale under- or overflows.
    source_unit, target_unit = np.trace(source), np.trace(target)
    if target_unit == 0:
        return np.zeros_like(source)
    with one_blas_thread():
        factor = _factor_of_source(source / source_unit if source_unit > 0 else source)
        eigenvalues, vectors = eigh(congruence(target / target_unit, factor))
        check_eigenvalues(eigenvalues, "target")
        vectors *= np.maximum(eigenvalues, 0.0) ** 0.25
        half = solve_triangular(
            factor, vectors, trans="T", lower=True, check_finite=False
        )
        matrix = half @ half.T
    matrix *= np.sqrt(target_unit) / np.sqrt(source_unit)
    return clear_leaks(matrix, is_uncorrelated(source) & is_uncorrelated(target))


def _factor_of_source(source):
    try:
        return cholesky(source)
    except LinAlgError:
        raise ValueError(
            "source is not positive definite, so no map leaves it; shrink it first, "
            "for example with FeatureMoments.covariance(shrinkage=...)."
        ) from None


def displacement_map(mean, matrix, target_mean, tau):
    """Affine map that goes the fraction ``tau`` of the way to the target.

    Parameters
    ----------
    mean : array-like of shape (n_features,)
        Mean of the source.
    matrix : array-like of shape (n_features, n_features)
        Linear part of the full map, see :func:`transport_matrix`.
    target_mean : array-like of shape (n_features,)
        Mean of the target.
    tau : float
        Strength: 0 is the identity, 1 the full optimal-transport map.

    Returns
    -------
    matrix_tau : ndarray of shape (n_features, n_features)
        ``(1 - tau) * I + tau * matrix``.
    offset : ndarray of shape (n_features,)
        ``tau * (target_mean - matrix @ mean)``. A row ``z`` is moved to
        ``matrix_tau @ z + offset``.

    See Also
    --------
    transport_matrix : Gives the linear part of the full map.

    Notes
    -----
    For Gaussians this is McCann's displacement interpolation: the moved source lies
    on the Wasserstein geodesic, at ``1 - tau`` times its distance from the target.

    Examples
    --------
    >>> from skslot.geometry import displacement_map
    >>> matrix, offset = displacement_map([1.0], [[3.0]], [5.0], tau=0.5)
    >>> matrix, offset
    (array([[2.]]), array([1.]))
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    offset = tau * (np.asarray(target_mean) - matrix @ np.asarray(mean))
    matrix_tau = tau * matrix
    matrix_tau.flat[:: len(matrix_tau) + 1] += 1.0 - tau
    return matrix_tau, offset


# ------------------------------------------------------------------------- barycenter


@dataclass(frozen=True)
class BarycenterResult:
    """How the computation of a barycenter ended.

    Parameters
    ----------
    n_iter : int
        Passes over the covariances, the last of which confirms the result.
    residual : float
        Scale-free distance from the fixed point, ``|sum_k w_k T_k - I| / sqrt(m)``
        in Frobenius norm, with ``T_k`` the optimal map from the barycenter to
        covariance ``k``. Zero at the exact barycenter.
    converged : bool
        Whether the residual came down to the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.geometry import bures_barycenter
    >>> _, result = bures_barycenter([np.eye(2), 4 * np.eye(2)])
    >>> result.converged
    True
    """

    n_iter: int
    residual: float
    converged: bool

    def warn_unless_converged(self, tol):
        """Issue scikit-learn's ConvergenceWarning if the tolerance was missed.

        Parameters
        ----------
        tol : float
            The tolerance, for the text of the warning.
        """
        if not self.converged:
            warn_user(
                f"the Bures-Wasserstein barycenter has residual {self.residual:.1e} "
                f"after {self.n_iter} passes, tol={tol:.1e} was asked for. Raise "
                "max_iter or tol, or shrink the covariances more; of the solvers, "
                "'anderson' is the fastest.",
                ConvergenceWarning,
            )


def bures_barycenter(
    covariances,
    weights=None,
    *,
    tol=1e-8,
    max_iter=100,
    solver="anderson",
    n_jobs=None,
    mean=None,
    progress=None,
):
    """Barycenter of covariance matrices under the Bures-Wasserstein distance.

    The positive definite ``S`` that minimises
    ``sum_k w_k bures_distance(S, covariances[k]) ** 2``, unique as soon as one
    matrix with a positive weight is positive definite.

    Parameters
    ----------
    covariances : array-like of shape (n_matrices, n_features, n_features) or iterable
        Positive semi-definite matrices with a positive definite weighted mean. An
        iterable that can be restarted (each ``iter(covariances)`` begins anew) is
        read once per pass and never held in memory as a whole; a generator is
        collected into a list first.
    weights : array-like of shape (n_matrices,), default=None
        Non-negative weights, normalised to sum to one. None means equal weights.
    tol : float, default=1e-8
        Tolerance on the scale-free residual of :class:`BarycenterResult`.
    max_iter : int, default=100
        Most passes over the covariances.
    solver : {"anderson", "fixed_point", "paper"}, default="anderson"
        "fixed_point" is the iteration of Alvarez-Esteban et al. [1]_; "anderson"
        accelerates it and needs about half the passes. "paper" is the plain
        iteration of the SLOT-Align paper, kept to reproduce it: same limit, but
        hundreds of passes when the matrices are ill-conditioned.
    n_jobs : int, default=None
        Threads over the matrices of a pass, each with one thread of BLAS. The result
        does not depend on it.
    mean : ndarray of shape (n_features, n_features), default=None
        Weighted arithmetic mean of the covariances, if it is known. It saves one pass
        over them, and they are not checked. Requires ``weights`` that sum to one.
    progress : callable, default=None
        Called with a line of text after each pass.

    Returns
    -------
    barycenter : ndarray of shape (n_features, n_features)
        The barycenter, exactly symmetric.
    result : BarycenterResult
        Number of passes, residual and whether it converged.

    Warns
    -----
    ConvergenceWarning
        If the residual is still above ``tol`` after ``max_iter`` passes.

    See Also
    --------
    bures_distance : The distance whose weighted squares are minimised.
    transport_matrix : The map from a covariance to the barycenter.

    Notes
    -----
    Each pass costs one symmetric eigendecomposition per matrix. Memory is one matrix
    of ``covariances`` plus about 20 matrices of that size, whatever their number; each
    further thread takes about nine more.

    References
    ----------
    .. [1] P. C. Alvarez-Esteban, E. del Barrio, J. A. Cuesta-Albertos, C. Matran.
       "A fixed-point approach to barycenters in Wasserstein space". Journal of
       Mathematical Analysis and Applications, 2016.

    Examples
    --------
    Commuting matrices average by their square roots:

    >>> import numpy as np
    >>> from skslot.geometry import bures_barycenter
    >>> barycenter, result = bures_barycenter([np.diag([1, 4]), np.diag([9, 4])])
    >>> barycenter.round(6)
    array([[4., 0.],
           [0., 4.]])
    >>> result.n_iter
    2
    """
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {SOLVERS}, got {solver!r}.")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter!r}.")
    if iter(covariances) is covariances:
        covariances = list(covariances)
    if mean is None:
        mean, weights = _weighted_mean(covariances, weights)
    with one_blas_thread():
        barycenter, result = _iterate(
            covariances, weights, mean, tol, max_iter, solver, n_jobs, progress
        )
    result.warn_unless_converged(tol)
    return barycenter, result


def _iterate(covariances, weights, mean, tol, max_iter, solver, n_jobs, progress):
    """Passes over the covariances, from their mean to their barycenter."""
    n_features = len(mean)
    scale = np.trace(mean) / n_features
    factor = _factor_of_mean(mean, scale, covariances)
    uncorrelated = is_uncorrelated(mean)
    del mean
    # (S_k / scale)^1/2 = S_k^1/2 / scale^1/2: scale the weights, not the matrices.
    root_weights = weights / np.sqrt(scale)
    accelerator = _AndersonMixer() if solver == "anderson" else None
    residual, best = np.inf, np.inf
    for n_iter in range(1, max_iter + 1):
        # With L the factor and H the mean root, the mean of the maps is L^-T H L^-1.
        half_map = _solve_transposed(
            factor, _mean_root(covariances, root_weights, factor, n_jobs)
        )
        deviation = _solve_transposed(factor, half_map.T)
        deviation[np.diag_indices_from(deviation)] -= 1.0
        previous, residual = residual, np.linalg.norm(deviation) / np.sqrt(n_features)
        if progress is not None:
            progress(f"pass {n_iter} of the solver: residual {residual:.1e}")
        if residual < best:
            best, best_factor = residual, factor
        if residual <= tol or n_iter == max_iter:
            break
        if accelerator and residual > previous:
            accelerator.forget()
        try:
            factor = _step(factor, half_map, deviation, solver, accelerator)
        except LinAlgError:  # singular to working precision: this is as far as it goes
            break
        del half_map, deviation  # not needed while the next roots are computed
    result = BarycenterResult(n_iter, float(best), bool(best <= tol))
    barycenter = best_factor @ best_factor.T
    barycenter *= scale
    return clear_leaks(barycenter, uncorrelated), result


def _weighted_mean(covariances, weights):
    """Check everything that can be checked in one pass; average on the way."""
    if weights is not None:
        weights = np.asarray(weights, dtype=np.float64)
        if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError("weights must be a vector of finite numbers >= 0.")
        if not weights.sum() > 0:
            raise ValueError("weights must not all be zero.")
    mean, count = None, 0
    for count, covariance in enumerate(covariances, start=1):
        if weights is not None and count > len(weights):
            break
        covariance = check_covariance(
            covariance, f"covariances[{count - 1}]", None if mean is None else len(mean)
        )
        if mean is None:
            mean = np.zeros_like(covariance)
        mean += covariance if weights is None else weights[count - 1] * covariance
    if mean is None:
        raise ValueError("covariances is empty.")
    if weights is None:
        weights = np.ones(count)
    if count != len(weights):
        raise ValueError(
            f"weights has {len(weights)} entries, but there are "
            f"{'more' if count > len(weights) else f'only {count}'} covariances."
        )
    return mean / weights.sum(), weights / weights.sum()


def _factor_of_mean(mean, scale, covariances):
    """Cholesky factor of the starting point, or the reason why there is none."""
    try:
        if not 0 < scale < np.inf:
            raise LinAlgError
        return cholesky(mean / scale)
    except LinAlgError:
        for index, covariance in enumerate(covariances):
            eigenvalues = eigvalsh(np.asarray(covariance, dtype=np.float64))
            check_eigenvalues(eigenvalues, f"covariances[{index}]")
        raise ValueError(
            "the weighted mean of covariances is singular, so the barycenter is not "
            "unique; shrink the covariances first, for example with "
            "FeatureMoments.covariance(shrinkage=...)."
        ) from None


def _mean_root(covariances, root_weights, factor, n_jobs):
    """Weighted mean of ``(factor.T @ covariance @ factor) ** 0.5``."""

    def weighted_root(numbered):
        index, (covariance, weight) = numbered
        covariance = np.asarray(covariance, dtype=np.float64)
        eigenvalues, vectors = eigh(congruence(covariance, factor))
        check_eigenvalues(eigenvalues, f"covariances[{index}]")
        # weight * M^1/2 = (Q * (weight h)^1/2)(...)^T, with h^2 the eigenvalues of M
        vectors *= np.sqrt(weight * np.sqrt(np.maximum(eigenvalues, 0.0)))
        return vectors @ vectors.T

    pairs = zip(covariances, root_weights, strict=True)
    weighted = (each for each in enumerate(pairs) if each[1][1] > 0)
    mean_root = np.zeros_like(factor)
    for root in map_in_order(weighted_root, weighted, n_jobs):
        mean_root += root
        del root  # one matrix less while the next root is computed
    return mean_root


def _solve_transposed(factor, matrix):
    """Compute ``inv(factor.T) @ matrix`` for a lower triangular factor."""
    return solve_triangular(factor, matrix, trans="T", lower=True, check_finite=False)


def _step(factor, half_map, deviation, solver, accelerator):
    """Cholesky factor of the next iterate."""
    if solver == "paper":
        iterate = factor @ factor.T
        eigenvalues, vectors = eigh(iterate)
        vectors *= np.maximum(eigenvalues, 0.0) ** 0.25
        root = vectors @ vectors.T
        return cholesky(iterate + root @ deviation @ root)
    # The mean map takes L L^T to L^-T H L^-1 L L^T L^-T H L^-1 = (L^-T H)(L^-T H)^T.
    pushed = half_map @ half_map.T
    if accelerator:
        try:
            return cholesky(accelerator.extrapolate(pushed, deviation))
        except LinAlgError:
            accelerator.forget()
    return cholesky(pushed)


class _AndersonMixer:
    """Anderson acceleration of a fixed-point iteration on matrices.

    Combines the last images so that their combined residual is smallest. The residual
    is the deviation of the mean map from the identity, which has no scale: directions
    with small variance count as much as those with large variance.
    """

    def __init__(self):
        self.forget()

    def forget(self):
        self.last = None
        self.image_steps = deque(maxlen=ANDERSON_DEPTH)
        self.residual_steps = deque(maxlen=ANDERSON_DEPTH)

    def extrapolate(self, image, residual):
        mixed = image.copy()
        if self.last is not None:
            self.image_steps.append(image - self.last[0])
            self.residual_steps.append((residual - self.last[1]).ravel(order="K"))
            coefficients = self._least_squares(residual.ravel(order="K"))
            for coefficient, step in zip(coefficients, self.image_steps, strict=True):
                mixed -= coefficient * step
        self.last = image, residual
        return mixed

    def _least_squares(self, residual):
        """Coefficients of the residual steps, from the normal equations.

        Unit columns keep these accurate enough, and unlike a solver of the stacked
        system they need no copy of the steps, which are as large as the covariances.
        """
        steps = self.residual_steps
        sizes = np.array([np.linalg.norm(step) or 1.0 for step in steps])
        products = np.array([[left @ right for right in steps] for left in steps])
        target = np.array([step @ residual for step in steps]) / sizes
        unit_products = products / np.outer(sizes, sizes)
        return np.linalg.lstsq(unit_products, target, rcond=1e-12)[0] / sizes


# ---------------------------------------------------------------- checks and products


def check_covariance(matrix, name, n_features=None):
    """Return ``matrix`` as float64 after checking that it can be a covariance."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}.")
    if n_features is not None and len(matrix) != n_features:
        raise ValueError(
            f"{name} is {len(matrix)} x {len(matrix)}, expected "
            f"{n_features} x {n_features} like the others."
        )
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} contains NaN or infinity.")
    if np.abs(matrix - matrix.T).max() > ROUNDING * np.abs(matrix).max():
        raise ValueError(f"{name} is not symmetric.")
    return matrix


def check_eigenvalues(eigenvalues, name):
    """Refuse a spectrum that no covariance can have."""
    if eigenvalues[0] < -ROUNDING * max(eigenvalues[-1], -eigenvalues[0] * ROUNDING):
        raise ValueError(
            f"{name} is not positive semi-definite: its smallest eigenvalue is "
            f"negative, at {eigenvalues[0] / np.abs(eigenvalues).max():.1e} of the "
            "largest in magnitude."
        )


def is_uncorrelated(covariance):
    """Find features that have no covariance with any other feature."""
    return np.count_nonzero(covariance, axis=0) <= (covariance.diagonal() != 0)


def clear_leaks(matrix, uncorrelated):
    """Zero, in place, what rounding leaks from and to uncorrelated features.

    Barycenters and maps keep them apart from all others, but eigenvectors do so only to
    rounding. A constant feature would begin to vary by 1e-17 that way, and whoever
    divides by its deviation would see noise. Only entries that are rounding are zeroed,
    as covariances may also cancel each other in a mean.
    """
    scale = np.sqrt(np.abs(matrix.diagonal()))
    for index in np.flatnonzero(uncorrelated):
        others = np.abs(matrix[index])
        others[index] = 0.0
        if (others <= LEAK * scale[index] * scale).all():
            diagonal = matrix[index, index]
            matrix[index] = matrix[:, index] = 0.0
            matrix[index, index] = diagonal
    return matrix


def congruence(matrix, factor):
    """Compute the lower triangle of ``factor.T @ matrix @ factor``.

    ``matrix`` is symmetric and ``factor`` lower triangular. Entries above the diagonal
    of the result are not meaningful; ``np.linalg.eigh`` ignores them.
    """
    # The factor is zero above its diagonal, so the trailing blocks of the result only
    # need the trailing blocks of the arguments. With four blocks of columns, this takes
    # about 60 % of the time of two full products; more blocks are not faster.
    product, size = np.zeros_like(factor), -(-len(factor) // 4)
    for start in range(0, len(factor), size):
        rest, columns = slice(start, None), slice(start, start + size)
        pushed = matrix[rest, rest] @ factor[rest, columns]
        product[rest, columns] = factor[rest, rest].T @ pushed
    return product
