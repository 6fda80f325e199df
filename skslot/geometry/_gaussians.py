"""Distances between Gaussians, and optimal maps, whole or part of the way."""

import numpy as np
from numpy.linalg import LinAlgError, cholesky, eigh, svd
from scipy.linalg import solve_triangular

from .._linalg import (
    check_covariance,
    check_eigenvalues,
    clear_leaks,
    congruence,
    is_uncorrelated,
)
from .._parallel import one_blas_thread


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
