"""Optimal-transport maps between Gaussians, whole or part of the way."""

import numpy as np
from scipy.linalg import LinAlgError

from ._linalg import (
    check_covariance,
    check_eigenvalues,
    cholesky,
    congruence,
    eigh,
    gram,
    solve_left_transposed,
)


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
    try:
        factor = cholesky(source / source_unit if source_unit > 0 else source)
    except LinAlgError:
        raise ValueError(
            "source is not positive definite, so no map leaves it; shrink it first, "
            "for example with FeatureMoments.covariance(shrinkage=...)."
        ) from None
    product = congruence(target / target_unit, factor)
    eigenvalues, vectors = eigh(product, overwrite=True)
    check_eigenvalues(eigenvalues, "target")
    vectors *= np.maximum(eigenvalues, 0.0) ** 0.25
    unit = np.sqrt(target_unit) / np.sqrt(source_unit)
    return unit * gram(solve_left_transposed(factor, vectors))


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
