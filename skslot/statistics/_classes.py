"""Means of classes, which merge like moments."""

import numpy as np

from ._constant import average_rows


def class_means(X, y):
    """Count and average the rows of each class.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows.
    y : ndarray of shape (n_samples,)
        Their labels.

    Returns
    -------
    means : dict
        For each label the number of rows and their mean, in float64.

    See Also
    --------
    merge_class_means : Joins those of two sets of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import class_means
    >>> class_means(np.array([[0.0], [2.0], [5.0]]), np.array(["a", "a", "b"]))
    {'a': (2, array([1.])), 'b': (1, array([5.]))}
    """
    labels, counts = np.unique(y, return_counts=True)
    return {
        label: (int(count), average_rows(X[y == label]))
        for label, count in zip(labels.tolist(), counts, strict=True)
    }


def merge_class_means(first, second):
    """Join the class means of two sets of rows.

    Parameters
    ----------
    first : dict
        What :func:`class_means` returned.
    second : dict
        The same for other rows.

    Returns
    -------
    means : dict
        Counts and means of the rows of both.

    See Also
    --------
    class_means : Makes them.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import merge_class_means
    >>> merge_class_means({"a": (3, np.zeros(1))}, {"a": (1, np.array([4.0]))})
    {'a': (4, array([1.]))}
    """
    merged = dict(first)
    for label, (count, mean) in second.items():
        if label in merged:
            known, known_mean = merged[label]
            total = known + count
            mean = known_mean + (mean - known_mean) * (count / total)
            count = total
        merged[label] = count, mean
    return merged
