"""A few rows that stand for all rows of a class: choosing and mapping them."""

from dataclasses import replace

import numpy as np

from ..statistics import average_rows


def cluster_rows(X, n_clusters, min_samples, seed):
    """Clusters of rows, none of them smaller than ``min_samples``.

    Position of the cluster of each row. What k-means leaves too small joins the cluster
    whose mean is nearest, the smallest first.
    """
    n_clusters = min(n_clusters, len(X) // min_samples)
    if n_clusters > 1:
        n_clusters = min(n_clusters, len(np.unique(X, axis=0)))
    if n_clusters <= 1:
        return np.zeros(len(X), dtype=int)
    from sklearn.cluster import KMeans  # not for servers, which choose no rows

    # distances cancel far from zero, most of all in float32
    centred = (X - average_rows(X)).astype(X.dtype, copy=False)
    labels = KMeans(n_clusters, random_state=seed).fit(centred).labels_
    while True:
        _, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        smallest = sizes.argmin()
        if sizes[smallest] >= min_samples:
            return labels
        centres = average_by(X, labels)
        apart = np.square(centres - centres[smallest]).sum(axis=1)
        apart[smallest] = np.inf
        labels[labels == smallest] = apart.argmin()


def average_by(values, labels):
    """Mean of the rows of each label 0, 1, ..."""
    sums = np.zeros((labels.max() + 1, values.shape[1]))
    np.add.at(sums, labels, values)
    return sums / np.bincount(labels)[:, None]


def herd(X, n_rows):
    """Positions of rows whose mean is near that of all, the best one first."""
    centred = X - average_rows(X)
    chosen, total = [], np.zeros(X.shape[1])
    free = np.ones(len(X), dtype=bool)
    for _ in range(min(n_rows, len(X))):
        miss = np.square(total + centred).sum(axis=1)
        best = np.where(free, miss, np.inf).argmin()
        chosen.append(best)
        free[best] = False
        total += centred[best]
    return np.array(chosen)


def most_confident(X, shares, n_rows):
    """Positions of rows whose class is surest; of equals, those nearest to the mean."""
    apart = np.square(X - average_rows(X)).sum(axis=1)
    return np.lexsort((apart, -shares))[:n_rows]


def push_rows(message, matrix, offset):
    """ClassRows with the rows mapped by ``z -> matrix @ z + offset``."""
    rows = message.rows if matrix is None else message.rows @ matrix.T
    return replace(message, rows=rows + offset)
