"""Means of classes, which merge like moments."""

import numpy as np


def class_means(X, y):
    """Number of rows and mean of each class in y, by label."""
    labels, counts = np.unique(y, return_counts=True)
    return {
        label: (int(count), X[y == label].mean(axis=0, dtype=np.float64))
        for label, count in zip(labels.tolist(), counts, strict=True)
    }


def merge_class_means(first, second):
    """Class means of the rows of both."""
    merged = dict(first)
    for label, (count, mean) in second.items():
        if label in merged:
            known, known_mean = merged[label]
            total = known + count
            mean = known_mean + (mean - known_mean) * (count / total)
            count = total
        merged[label] = count, mean
    return merged
