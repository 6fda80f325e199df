"""Features that do not vary, and means that do not blur them."""

import numpy as np


def average_rows(X, weights=None):
    """Average rows, exactly where a feature is constant.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows.
    weights : ndarray of shape (n_samples,), default=None
        Weight of each row. If None, all rows have the same weight.

    Returns
    -------
    mean : ndarray of shape (n_features,)
        Mean of the rows, in float64.

    See Also
    --------
    is_constant : Decides whether a variance is more than rounding.

    Notes
    -----
    The sum of a thousand times 3.7, divided by a thousand, may differ from 3.7 in the
    last bit. Whether it does depends on the order of summation, which depends on the
    CPU. The deviations from one of the rows are summed instead: those of a constant
    feature are exactly zero. With weights, it is the row with the largest one, as rows
    without weight may hold anything.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import average_rows
    >>> average_rows(np.array([[3.7, 1.0], [3.7, 2.0]]))
    array([3.7, 1.5])
    """
    if weights is None:
        origin = X[0].astype(np.float64)
        return origin + (X - origin).mean(axis=0)
    origin = X[np.argmax(weights)].astype(np.float64)
    return origin + weights @ (X - origin) / np.sum(weights)


def is_constant(variances, means, n_samples):
    """Find features whose variance is nothing but rounding.

    Parameters
    ----------
    variances : array-like of shape (n_features,)
        Variance of each feature.
    means : array-like of shape (n_features,)
        Mean of each feature. Only the magnitude matters.
    n_samples : int or array-like of shape (n_features,)
        Number of rows behind each variance.

    Returns
    -------
    constant : ndarray of shape (n_features,)
        True where the feature does not vary.

    See Also
    --------
    average_rows : Mean that is exact for constant features.

    Notes
    -----
    A sum of ``n`` numbers of size ``c`` is off by up to ``n * eps * c``, and so is
    every deviation from their mean. ``8 * eps * c`` is added for the steps that follow
    a sum, such as an affine map. scikit-learn's ``StandardScaler`` uses a similar rule.

    Examples
    --------
    >>> from skslot.statistics import is_constant
    >>> is_constant([1e-31, 1e-31], means=[3.7, 1e-15], n_samples=100)
    array([ True, False])
    """
    eps = np.finfo(np.float64).eps
    rounding = (np.asarray(n_samples) + 8) * eps * np.abs(means)
    # roots, as squares of numbers near the ends of float64 would leave it
    return np.sqrt(np.maximum(variances, 0.0)) <= rounding
