"""The Bures-Wasserstein barycenter of covariance matrices."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.linalg import LinAlgError, cholesky, eigh, eigvalsh
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from .._linalg import (
    check_covariance,
    check_eigenvalues,
    clear_leaks,
    congruence,
    is_uncorrelated,
)
from .._parallel import map_in_order, one_blas_thread
from .._warnings import warn_user

SOLVERS = ("anderson", "fixed_point", "paper")
ANDERSON_DEPTH = 5  # steps that are combined


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

    def _warn_unless_converged(self, tol):
        """Emit scikit-learn's ConvergenceWarning when the tolerance was missed."""
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
    if iter(covariances) is covariances:
        covariances = list(covariances)
    barycenter, result = solve_barycenter(
        lambda: covariances, weights, tol, max_iter, solver, n_jobs
    )
    result._warn_unless_converged(tol)
    return barycenter, result


def solve_barycenter(
    covariances, weights, tol, max_iter, solver, n_jobs=None, mean=None, say=None
):
    """Compute :func:`bures_barycenter` without warning.

    ``covariances()`` gives them, anew on each call. Whoever has read them before hands
    over their weighted ``mean`` and saves a pass; the weights then must add up to one.
    ``say`` is told how far each pass came.
    """
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {SOLVERS}, got {solver!r}.")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter!r}.")
    if mean is None:
        mean, weights = _weighted_mean(covariances, weights)
    with one_blas_thread():
        start = covariances, weights, mean
        return _iterate(*start, tol, max_iter, solver, n_jobs, say)


def _iterate(covariances, weights, mean, tol, max_iter, solver, n_jobs, say):
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
        if say is not None:
            say(f"pass {n_iter} of the solver: residual {residual:.1e}")
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
    for count, covariance in enumerate(covariances(), start=1):
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
        for index, covariance in enumerate(covariances()):
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

    pairs = zip(covariances(), root_weights, strict=True)
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
