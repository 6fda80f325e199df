"""What clients send for the classifiers that need no training."""

from dataclasses import replace

import numpy as np

from ._base import Message
from ._checks import (
    check_counts,
    check_covariance,
    check_number,
    check_variances,
)
from ._errors import MessageError, short
from ._fields import array, client_field, encoder_field, fact, message_type
from ._messages import ClientStatistics
from ._packing import pack_triangle, unpack_triangle
from ._wire import WireArray, largest

# Shares of components, each rounded by the wire, add up to 1 but for this much.
WEIGHT_TOLERANCE = 0.01
# Rounding in variances of components, relative to the largest square of their means.
EM_ROUNDING = 1e-12


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
            self.encoder,
        )

    def _check_alignment(self, deep):
        """Refuse what alignment could not use; all of it may be absent."""
        triangle = self._wire_arrays()["covariance_triangle"]
        is_absent = not triangle.tensor.size
        if self.shrinkage.size:
            check_number("shrinkage", float(self.shrinkage[0]), 0, 1)
            if is_absent:
                raise MessageError("there is a shrinkage, but no covariance.")
        if deep and not is_absent:
            check_covariance("the covariance", triangle)


@message_type
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
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.

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

    classes: list = fact("labels")
    counts: np.ndarray = array("c", kinds="i", meaning="number of rows of each class")
    means: np.ndarray = array("c", "m", meaning="mean of each class")
    covariance_triangle: np.ndarray = array(
        "t", meaning="covariance of all rows, upper triangle"
    )
    shrinkage: np.ndarray = array(
        1,
        meaning="weight of the identity in the covariance, for alignment",
        optional=True,
        default_factory=lambda: np.empty(0),
    )
    client: object = client_field()
    encoder: str | None = encoder_field()

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
            statistics.encoder,
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

    def _check_values(self, sizes, deep):
        self._check_alignment(deep)


@message_type
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
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.

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

    classes: list = fact("labels of the classes held")
    covariance_type: str = fact("shape of the components")
    counts: np.ndarray = array("c", kinds="i", meaning="number of rows of each class")
    n_components: np.ndarray = array("c", kinds="i", meaning="components of each class")
    weights: np.ndarray = array("k", meaning="share of each component in its class")
    means: np.ndarray = array("k", "m", meaning="mean of each component")
    covariances: np.ndarray = array("k", "v", meaning="(co)variances of each component")
    covariance_triangle: np.ndarray = array(
        "t", meaning="covariance of all rows, upper triangle", optional=True
    )
    shrinkage: np.ndarray = array(
        1,
        meaning="weight of the identity in the covariance, for alignment",
        optional=True,
    )
    client: object = client_field()
    encoder: str | None = encoder_field()

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

    def _group_sizes(self):
        sizes = super()._group_sizes()
        owners = np.repeat(np.arange(len(self.classes)), self.n_components)
        for index, (owner, weight) in enumerate(zip(owners, self.weights, strict=True)):
            if self.n_components[owner] > 1:
                group = f"component {index} (class {short(self.classes[owner])})"
                sizes[group] = float(weight * self.counts[owner])
        return sizes

    def _check_values(self, sizes, deep):
        check_counts("counts", self.counts, least=1)
        check_counts("n_components", self.n_components, least=1)
        if self.n_components.sum(dtype=np.float64) != sizes["k"]:
            raise MessageError("n_components do not add up to the components sent.")
        starts = np.cumsum(self.n_components) - self.n_components
        shares = np.add.reduceat(self.weights, starts)
        if self.weights.min() < 0 or np.abs(shares - 1).max() > WEIGHT_TOLERANCE:
            raise MessageError("weights must be shares of each class, adding up to 1.")
        if sizes["v"] != _n_variances(self.covariance_type, sizes["m"]):
            raise MessageError(
                f"covariances has {sizes['v']} columns, which does not fit the "
                f"covariance_type {short(self.covariance_type)}."
            )
        if deep:
            self._check_components()
        self._check_alignment(deep)

    def _check_components(self):
        # EM subtracts products of means from each other, which leaves some rounding
        arrays = self._wire_arrays()
        means, covariances = arrays["means"], arrays["covariances"]
        tolerance = EM_ROUNDING * np.ldexp(largest(means.tensor), means.exponent) ** 2
        if self.covariance_type != "full":
            check_variances("covariances", covariances, tolerance)
            return
        for packed in covariances.tensor:
            one = WireArray(packed, covariances.exponent)
            check_covariance("a covariance", one, tolerance)


def _n_variances(covariance_type, n_features):
    """Numbers that describe the covariance of one component."""
    sizes = {"spherical": 1, "diag": n_features}
    sizes["full"] = n_features * (n_features + 1) // 2
    return sizes.get(covariance_type) if isinstance(covariance_type, str) else None
