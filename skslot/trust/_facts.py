"""What is kept of a client to compare it with others."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..statistics import is_constant

# Class means are kept as this many numbers each, so that a thousand clients with many
# classes fit in memory. Distances between them change by about a tenth by that.
SKETCH = 32


@dataclass(frozen=True)
class ClientFacts:
    """What a server compares one client with others by.

    All but the first two may be missing: not every message says it.

    Parameters
    ----------
    client : object
        Name of the client.
    n_samples : float
        Number of its rows.
    mean : ndarray of shape (n_features,), default=None
        Their mean.
    variances : ndarray of shape (n_features,), default=None
        Variance of each feature.
    classes : tuple, default=()
        Labels of the classes that it holds.
    sketches : ndarray of shape (n_classes, n_numbers), default=None
        A few numbers that stand for the mean of each class, see :meth:`from_moments`.
    offsets : ndarray of shape (n_classes,), default=None
        Distance of the mean of each class from that of the client.
    within : float, default=None
        Variance around class means, summed over features.
    head_norms : tuple of float, default=None
        Norms of the weights and of the intercepts of a head that the client trained.
    n_values : ndarray of shape (n_features,), default=None
        Values of each feature that are not missing. If it is given, features are those
        of a table as they were recorded, each with a unit of its own, and are compared
        one by one as well.
    feature_names : list of str, default=None
        What the columns of a table are called. If only these are given, something may
        have been made of columns, and each is compared by its unit alone.

    See Also
    --------
    examine_clients : Compares clients.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.trust import ClientFacts
    >>> means = {"cat": (2, np.array([0.0, 1.0])), "dog": (2, np.array([2.0, 1.0]))}
    >>> mean, variances = np.array([1.0, 1.0]), np.array([2.0, 1.0])
    >>> facts = ClientFacts.from_moments("A", 4, mean, variances, means)
    >>> facts.within, facts.trace
    (2.0, 3.0)
    """

    client: object
    n_samples: float
    mean: np.ndarray | None = None
    variances: np.ndarray | None = None
    classes: tuple = ()
    sketches: np.ndarray | None = None
    offsets: np.ndarray | None = None
    within: float | None = None
    head_norms: tuple | None = None
    n_values: np.ndarray | None = None
    feature_names: list | None = None

    @classmethod
    def from_moments(
        cls,
        client,
        n_samples,
        mean=None,
        variances=None,
        class_means=None,
        head=(),
        feature_names=None,
    ):
        """Facts from the moments of a client, its class means and its head.

        Parameters
        ----------
        client : object
            Name of the client.
        n_samples : float
            Number of rows.
        mean : ndarray of shape (n_features,), default=None
            Their mean.
        variances : ndarray of shape (n_features,), default=None
            Variance of each feature.
        class_means : dict, default=None
            For each label the number of rows and their mean, as
            :func:`skslot.statistics.class_means` has them.
        head : iterable of ndarray, default=()
            Weights of a head; vectors are taken as intercepts.
        feature_names : list of str, default=None
            What the features are called, if they are the columns of a table.

        Returns
        -------
        facts : ClientFacts
            What is kept; of each class mean no more than 32 numbers.
        """
        names = _checked_names(feature_names, mean)
        norms = _norms(head)
        if variances is not None:
            variances = _without_rounding(variances, mean, n_samples)
        if mean is None or not class_means:
            others = {"head_norms": norms, "feature_names": names}
            return cls(client, n_samples, mean, variances, **others)
        counts = np.array([count for count, _ in class_means.values()], np.float64)
        apart = np.array([each for _, each in class_means.values()]) - mean
        squares = np.square(apart).sum(axis=1)
        within = None
        if variances is not None:
            between = counts @ squares / counts.sum()
            within = max(float(np.sum(variances) - between), 0.0)
        described = tuple(class_means), sketch(apart + mean), np.sqrt(squares)
        described += within, norms, None, names
        return cls(client, n_samples, mean, variances, *described)

    @classmethod
    def from_columns(cls, client, n_samples, moments, feature_names=None):
        """Facts from the moments of the columns of a table.

        Parameters
        ----------
        client : object
            Name of the client.
        n_samples : float
            Number of rows.
        moments : ColumnMoments
            Number of values of each column, their means, and sums of squared distances
            from these, as :func:`skslot.statistics.column_moments` has them.
        feature_names : list of str, default=None
            What the columns are called.

        Returns
        -------
        facts : ClientFacts
            What is kept.
        """
        counts, means, squares = moments
        variances = squares / np.maximum(counts, 1)
        variances = _without_rounding(variances, means, counts)
        names = _checked_names(feature_names, means)
        others = {"n_values": counts, "feature_names": names}
        return cls(client, n_samples, means, variances, **others)

    def name_of(self, column):
        """What a feature is called, in words.

        Parameters
        ----------
        column : int
            Its position.

        Returns
        -------
        text : str
            Its name, or its number, from 1 on.
        """
        if self.feature_names is None:
            return f"feature {column + 1}"
        return f"column {self.feature_names[column]!r}"

    @property
    def is_of_table(self):
        """Whether features are columns of a table, each with a unit of its own."""
        if self.mean is None or self.variances is None:
            return False
        return self.n_values is not None or self.feature_names is not None

    @property
    def trace(self):
        """Variance, summed over features; 0 if it is not known."""
        return 0.0 if self.variances is None else float(np.sum(self.variances))

    @property
    def length(self):
        """Root of the mean squared length of a row."""
        return float(np.sqrt(np.sum(np.square(self.mean)) + self.trace))


def _checked_names(names, mean):
    """Names of features; None if there are others, as in a forged message."""
    is_right = names is not None and mean is not None and len(names) == len(mean)
    return names if is_right else None


def _without_rounding(variances, mean, n_samples):
    """Variances, zero where a feature does not vary but for rounding."""
    return np.where(is_constant(variances, mean, n_samples), 0.0, variances)


def _norms(head):
    """Norms of matrices and of vectors, each taken together; None without any."""
    squares = {True: 0.0, False: 0.0}
    for array in head:
        squares[np.ndim(array) > 1] += float(np.sum(np.square(array, dtype=np.float64)))
    norms = np.sqrt(squares[True]), np.sqrt(squares[False])
    return tuple(map(float, norms)) if any(norms) else None


def sketch(means):
    """Projections of vectors on a few random directions, which keep distances."""
    n_features = means.shape[1]
    return means if n_features <= SKETCH else means @ _directions(n_features)


@lru_cache(maxsize=4)
def _directions(n_features):
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(n_features, SKETCH))
    return signs / np.sqrt(SKETCH)
