"""Count, mean and spread of each column, with missing values, which merge exactly."""

from typing import NamedTuple

import numpy as np


class ColumnMoments(NamedTuple):
    """Moments of each column of some rows, of the values that are not missing.

    Parameters
    ----------
    counts : ndarray of shape (n_features,)
        Number of values.
    means : ndarray of shape (n_features,)
        Their mean; 0 where there are none.
    squares : ndarray of shape (n_features,)
        Sum of their squared distances from that mean.

    See Also
    --------
    column_moments : Computes them from rows.
    FeatureMoments : Moments of columns together, for rows without missing values.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import ColumnMoments, merge_column_moments
    >>> here = ColumnMoments(np.array([2]), np.array([1.0]), np.array([2.0]))
    >>> there = ColumnMoments(np.array([2]), np.array([3.0]), np.array([0.0]))
    >>> merge_column_moments(here, there)
    ColumnMoments(counts=array([4]), means=array([2.]), squares=array([6.]))
    """

    counts: np.ndarray
    means: np.ndarray
    squares: np.ndarray


def column_moments(X):
    """Compute the moments of each column, in float64.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows of floats; NaN is a missing value.

    Returns
    -------
    moments : ColumnMoments
        Their moments.

    See Also
    --------
    merge_column_moments : Joins those of two sets of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import column_moments
    >>> column_moments(np.array([[0.0, 1.0], [2.0, np.nan]]))
    ColumnMoments(counts=array([2, 1]), means=array([1., 1.]), squares=array([2., 0.]))
    """
    is_there = ~np.isnan(X)
    counts = is_there.sum(axis=0)
    divisors = np.maximum(counts, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        centres = np.sum(X, axis=0, where=is_there, dtype=np.float64) / divisors
        apart = np.where(is_there, X - centres, 0.0)
        # what rounding has left of the mean: the sums above may be long
        rests = apart.sum(axis=0) / divisors
        squares = np.einsum("ij,ij->j", apart, apart) - counts * rests**2
    return ColumnMoments(counts, centres + rests, np.maximum(squares, 0.0))


def merge_column_moments(first, second):
    """Join the column moments of two sets of rows.

    Parameters
    ----------
    first : ColumnMoments
        What :func:`column_moments` returned.
    second : ColumnMoments
        The same for other rows.

    Returns
    -------
    moments : ColumnMoments
        Those of the rows of both.

    See Also
    --------
    column_moments : Makes them.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import column_moments, merge_column_moments
    >>> rows = np.array([[0.0], [2.0], [7.0]])
    >>> here, there = column_moments(rows[:1]), column_moments(rows[1:])
    >>> merge_column_moments(here, there).means
    array([3.])
    """
    counts = first.counts + second.counts
    shares = second.counts / np.maximum(counts, 1)
    apart = second.means - first.means
    between = apart**2 * (first.counts * shares)
    squares = first.squares + second.squares + between
    return ColumnMoments(counts, first.means + shares * apart, squares)
