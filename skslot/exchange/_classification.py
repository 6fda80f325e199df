"""The messages of the classifiers."""

from dataclasses import dataclass, field, replace

import numpy as np

from ._base import Message
from ._messages import ClientStatistics
from ._packing import pack_triangle, unpack_triangle


class _AlignableMessage(Message):
    """A message on classes from which that of the aligner can be derived."""

    @property
    def n_samples(self):
        """Number of rows."""
        return int(self.counts.sum())

    @property
    def mean(self):
        """Mean of all rows."""
        return self.counts @ self.class_means / self.n_samples

    def client_statistics(self):
        """The part of the message that alignment needs.

        Returns
        -------
        statistics : ClientStatistics
            Statistics of all rows, whatever their class.
        """
        if not self.shrinkage.size:
            raise ValueError(
                f"client {self.client!r} sent nothing for alignment; its classifier "
                "needs the aligner too."
            )
        return ClientStatistics(
            self.n_samples,
            self.mean,
            self.covariance_triangle,
            float(self.shrinkage[0]),
            self.client,
        )


@dataclass(frozen=True, eq=False, repr=False)
class ClassStatistics(_AlignableMessage):
    """What one client sends for a Gaussian classifier, aligned or not.

    Class counts, class means and the centred covariance of all rows: enough for
    alignment and classification at once, because an affine map acts on them in closed
    form. Usually made by :meth:`skslot.FedCGSClassifier.client_update`.

    Parameters
    ----------
    classes : list
        Labels, in the order of ``counts`` and ``means``.
    counts : ndarray of shape (n_classes,)
        Number of rows of each class; may be 0.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class; zero where there is no row.
    covariance_triangle : ndarray of shape (n_features * (n_features + 1) / 2,)
        Upper triangle of the sample covariance of all rows, row by row.
    shrinkage : ndarray of shape (1,) or (0,)
        Shrinkage coefficient for alignment; empty when there is none.
    client : object, default=None
        Name of the client.

    See Also
    --------
    ClientStatistics : The part of it that alignment needs.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FedCGSClassifier
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0]])
    >>> message = FedCGSClassifier().client_update(X, ["a", "a", "b"])
    >>> message.counts
    array([2, 1], dtype=int32)
    >>> message.means
    array([[1., 1.],
           [5., 5.]])
    """

    kind = "class statistics"
    array_fields = ("counts", "means", "covariance_triangle", "shrinkage")

    classes: list
    counts: np.ndarray
    means: np.ndarray
    covariance_triangle: np.ndarray
    shrinkage: np.ndarray = field(default_factory=lambda: np.empty(0))
    client: object = None

    @classmethod
    def from_class_means(cls, means, statistics):
        """Message from class means and the statistics of all rows.

        Parameters
        ----------
        means : dict
            For each label the number of rows and their mean.
        statistics : ClientStatistics
            Statistics of all rows of the client.

        Returns
        -------
        message : ClassStatistics
            The message.
        """
        counts = [count for count, _ in means.values()]
        return cls(
            list(means),
            np.array(counts, dtype=np.int32),
            np.array([mean for _, mean in means.values()]),
            statistics.covariance_triangle,
            np.array([statistics.shrinkage]),
            statistics.client,
        )

    @property
    def class_means(self):
        """Mean of each class."""
        return self.means

    @property
    def covariance(self):
        """Sample covariance of all rows, without shrinkage."""
        return unpack_triangle(self.covariance_triangle)

    @property
    def n_features(self):
        """Number of features."""
        return self.means.shape[1]

    def sums(self):
        """The same as sums over rows, which add up over clients.

        This is the form for secure aggregation: the server needs only the totals.

        Returns
        -------
        counts : ndarray of shape (n_classes,)
            Rows of each class.
        class_sums : ndarray of shape (n_classes, n_features)
            Sum of the rows of each class.
        second_moment : ndarray of shape (n_features, n_features)
            Sum of ``z z^T`` over all rows ``z``.
        """
        mean = self.mean
        second_moment = self.n_samples * (self.covariance + np.outer(mean, mean))
        return self.counts, self.counts[:, None] * self.means, second_moment

    @classmethod
    def from_sums(cls, classes, counts, class_sums, second_moment):
        """Message of the pooled rows, from sums that were added up over clients.

        Parameters
        ----------
        classes : list
            Labels.
        counts : ndarray of shape (n_classes,)
            Rows of each class.
        class_sums : ndarray of shape (n_classes, n_features)
            Sum of the rows of each class.
        second_moment : ndarray of shape (n_features, n_features)
            Sum of ``z z^T`` over all rows ``z``.

        Returns
        -------
        statistics : ClassStatistics
            As if one client had had all the rows.
        """
        counts = np.asarray(counts)
        mean = np.sum(class_sums, axis=0) / counts.sum()
        covariance = second_moment / counts.sum() - np.outer(mean, mean)
        means = class_sums / np.maximum(counts, 1)[:, None]
        return cls(list(classes), counts, means, pack_triangle(covariance))

    def pushed(self, matrix, offset):
        """The message of the same rows after ``z -> matrix @ z + offset``.

        Parameters
        ----------
        matrix : ndarray of shape (n_features, n_features)
            Linear part of the map.
        offset : ndarray of shape (n_features,)
            The rest of it.

        Returns
        -------
        statistics : ClassStatistics
            Statistics of the mapped rows.
        """
        means = np.where(self.counts[:, None] > 0, self.means @ matrix.T + offset, 0.0)
        covariance = matrix @ self.covariance @ matrix.T
        return replace(
            self,
            means=means,
            covariance_triangle=pack_triangle((covariance + covariance.T) / 2),
        )


@dataclass(frozen=True, eq=False, repr=False)
class LinearModel(Message):
    """What the server sends back: a linear classifier.

    Parameters
    ----------
    classes : list
        Labels.
    coef : ndarray of shape (n_classes, n_features)
        One row of weights per class, or a single one for two classes.
    intercept : ndarray of shape (n_classes,)
        One intercept per row of ``coef``.
    client : object, default=None
        The client it is for, when it includes that client's alignment.

    See Also
    --------
    ClassStatistics : What the clients sent.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.exchange import LinearModel
    >>> len(LinearModel(["a", "b"], np.ones((1, 512)), np.ones(1)).to_bytes()) > 2052
    True
    """

    kind = "linear model"
    array_fields = ("coef", "intercept")

    classes: list
    coef: np.ndarray
    intercept: np.ndarray
    client: object = None


@dataclass(frozen=True, eq=False, repr=False)
class ClassMixtures(_AlignableMessage):
    """What one client sends for FedPFT: a Gaussian mixture for each class it holds.

    Components of all classes stand one after the other. Usually made by
    :meth:`skslot.FedPFTClassifier.client_update`.

    Parameters
    ----------
    classes : list
        Labels of the classes held.
    covariance_type : {"spherical", "diag", "full"}
        Shape of the components.
    counts : ndarray of shape (n_classes,)
        Number of rows of each class.
    n_components : ndarray of shape (n_classes,)
        Number of components of each class.
    weights : ndarray of shape (n_components_in_all,)
        Share of each component in its class.
    means : ndarray of shape (n_components_in_all, n_features)
        Mean of each component.
    covariances : ndarray of shape (n_components_in_all, n_numbers)
        One variance, the variances of all features, or the packed upper triangle of the
        covariance of each component.
    covariance_triangle : ndarray of shape (n_features * (n_features + 1) / 2,) or (0,)
        Sample covariance of all rows, for alignment; empty when there is none.
    shrinkage : ndarray of shape (1,) or (0,)
        Shrinkage coefficient for alignment.
    client : object, default=None
        Name of the client.

    See Also
    --------
    ClassStatistics : The message of FedCGS.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FedPFTClassifier
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0]])
    >>> message = FedPFTClassifier().client_update(X, ["a", "a", "b"])
    >>> message.means
    array([[1., 1.],
           [5., 5.]])
    >>> message.n_numbers  # K (m + 2) for each class
    8
    """

    kind = "class mixtures"
    array_fields = (
        "counts",
        "n_components",
        "weights",
        "means",
        "covariances",
        "covariance_triangle",
        "shrinkage",
    )

    classes: list
    covariance_type: str
    counts: np.ndarray
    n_components: np.ndarray
    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    covariance_triangle: np.ndarray
    shrinkage: np.ndarray
    client: object = None

    @property
    def n_features(self):
        """Number of features."""
        return self.means.shape[1]

    @property
    def n_numbers(self):
        """Numbers that describe the mixtures, as counted in the literature."""
        return self.weights.size + self.means.size + self.covariances.size

    @property
    def class_means(self):
        """Mean of each class."""
        starts = np.cumsum(self.n_components) - self.n_components
        return np.add.reduceat(self.weights[:, None] * self.means, starts, axis=0)
