"""The messages that clients send."""

from dataclasses import replace
from functools import cached_property
from numbers import Integral

import numpy as np

from .._utils import largest, packed_diagonal, short, unpack_triangle
from ..statistics import (
    ColumnMoments,
    average_rows,
    floor_shrinkage,
    is_constant,
    merge_class_means,
    merge_column_moments,
    shrink_covariance,
    shrinkage_coefficient,
)
from ._message import (
    MAX_COUNT,
    WEIGHT_TOLERANCE,
    Message,
    check_choice,
    check_counts,
    check_covariance,
    check_number,
    check_scatter,
    check_variances,
)
from ._wire import MessageError

# How the rows of a core-set are chosen, and the methods that choose real samples.
CORESET_METHODS = ("kmeans", "herding", "confident")
REAL_ROWS = ("herding", "confident")
# Forms of the curvature of a head.
CURVATURES = ("none", "gram", "diag", "kfac")
# Rounding in variances of components, relative to the largest square of their means.
EM_ROUNDING = 1e-12


# Fields of several messages; each class needs one of its own.


def _counts():
    return Message.array("c", kinds="i", meaning="number of rows of each class")


def _covariance(optional=False):
    meaning = "covariance of all rows, upper triangle"
    return Message.array("m", "m", meaning=meaning, symmetric=True, optional=optional)


def _shrinkage(**options):
    meaning = "weight of the identity in the covariance, for alignment"
    return Message.array(1, meaning=meaning, optional=True, **options)


def _privacy():
    return Message.fact("guarantee of differential privacy", default=None)


class ClientStatistics(Message):
    """Number of samples, mean, covariance and shrinkage of the features of a client.

    It contains no sample and no label. Usually made by
    :meth:`skslot.FederatedOTAligner.client_update`.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    mean : ndarray of shape (n_features,)
        Mean of the samples.
    covariance : ndarray of shape (n_features, n_features)
        Sample covariance, without shrinkage. Its upper triangle is sent.
    shrinkage : float
        Weight of the identity in the shrunk covariance, in [0, 1].
    client : object, default=None
        Name of the client, for error messages.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.
    privacy : dict, default=None
        Guarantee of differential privacy, see :meth:`release`; None if there is none.

    See Also
    --------
    AlignmentReference : Answer of the server.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> rows = np.random.default_rng(0).normal(size=(50, 3))
    >>> statistics = FederatedOTAligner().client_update(rows, client="A")
    >>> statistics
    ClientStatistics(client='A', n_samples=50, n_features=3, shrinkage=...)
    >>> statistics.covariance.shape
    (3, 3)
    """

    kind = "client statistics"

    n_samples: int = Message.fact("number of rows")
    mean: np.ndarray = Message.array("m", meaning="mean of the rows")
    covariance: np.ndarray = Message.array(
        "m", "m", meaning="covariance of the rows, upper triangle", symmetric=True
    )
    shrinkage: float = Message.fact("weight of the identity in the covariance")
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)
    privacy: dict | None = _privacy()

    @classmethod
    def from_moments(cls, moments, shrinkage="ledoit_wolf", client=None):
        """Summarise samples by their moments.

        Parameters
        ----------
        moments : FeatureMoments
            Moments of the samples. The message keeps them, but they are not sent.
        shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1], default="ledoit_wolf"
            Weight of the identity. It is raised if the shrunk covariance would be
            nearly singular.
        client : object, default=None
            Name of the client.

        Returns
        -------
        statistics : ClientStatistics
            The message.
        """
        sample, coefficient = moments.sample_covariance(), moments.shrinkage(shrinkage)
        coefficient = floor_shrinkage(sample, coefficient)
        message = cls(moments.n_samples, moments.mean, sample, coefficient, client)
        vars(message)["moments"] = moments
        return message

    def summarised(self, shrinkage, added=None):
        """Summarise the samples again, which is possible where the message was made.

        Parameters
        ----------
        shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1]
            Shrinkage, as in :meth:`from_moments`.
        added : ClientStatistics or ClassStatistics, default=None
            Message on samples to add.

        Returns
        -------
        statistics : ClientStatistics
            The message on all samples.
        """
        moments = self.moments if added is None else self.moments + added.moments
        return self.from_moments(moments, shrinkage, self.client)

    @classmethod
    def release(cls, budget, X, client=None, shrinkage="oas"):
        """Make a message with a guarantee of differential privacy.

        Parameters
        ----------
        budget : PrivacyBudget
            The guarantee.
        X : array-like of shape (n_samples, n_features)
            Samples of the client.
        client : object, default=None
            Name of the client.
        shrinkage : "oas" or float in [0, 1], default="oas"
            Weight of the identity, computed from the noisy covariance.

        Returns
        -------
        statistics : ClientStatistics
            A new release of the samples.
        """
        found = budget.release(X)
        n_samples = int(found.counts[0])
        return cls(
            n_samples,
            found.means[0],
            found.covariance,
            shrinkage_coefficient(shrinkage, found.covariance, n_samples),
            client,
            privacy=budget.guarantee,
        )

    def __repr__(self):
        return (
            f"ClientStatistics(client={self.client!r}, n_samples={self.n_samples}, "
            f"n_features={self.n_features}, shrinkage={self.shrinkage:.3g})"
        )

    @property
    def shrunk_covariance(self):
        """Shrunk covariance, which alignment works with."""
        return shrink_covariance(self.covariance, self.shrinkage)

    @property
    def variances(self):
        """Variance of each feature, without shrinkage."""
        return self.covariance.diagonal()

    def client_statistics(self):
        """Return the part of the message that alignment needs.

        Returns
        -------
        statistics : ClientStatistics
            The message itself. Messages of classifiers contain more.
        """
        return self

    @cached_property
    def is_constant(self):
        """Whether no feature varies, so that only the mean can be aligned."""
        return bool(is_constant(self.variances, self.mean, self.n_samples).all())

    def _feature_moments(self):
        return self.mean, self.variances, {}

    def _group_sizes(self):
        return {"a client": self.n_samples}

    def _check_values(self, sizes, deep):
        check_number("n_samples", self.n_samples, 1, MAX_COUNT, Integral)
        check_number("shrinkage", self.shrinkage, 0, 1)
        check_covariance("the covariance", self.covariance, deep)


class _ClassMessage(Message):
    """Message with counts and means of classes."""

    describes_classes = True
    # for messages without a covariance
    variances = None
    covariance = np.empty(0)

    @property
    def class_means(self):
        """Mean of each class."""
        return self.means

    @property
    def mean(self):
        """Mean of all samples."""
        return average_rows(self.class_means, self.counts)

    def cells(self):
        """Return the number of samples and the mean of each class of the client.

        Returns
        -------
        cells : dict
            Pairs of a number and a mean, by label.
        """
        rows = zip(self.classes, self.counts.tolist(), self.class_means, strict=True)
        return {label: (count, mean) for label, count, mean in rows if count > 0}

    def _feature_moments(self):
        if not self.class_means.size:
            return None, None, {}
        return self.mean, self.variances, self.cells()


class _AlignableMessage(_ClassMessage):
    """Message on classes that may contain the statistics for alignment too."""

    @property
    def variances(self):
        """Variance of each feature; None without a covariance."""
        return self.covariance.diagonal() if self.covariance.size else None

    def client_statistics(self):
        """Return the part of the message that alignment needs.

        Returns
        -------
        statistics : ClientStatistics
            Statistics of all samples, whatever their class.
        """
        if not self.shrinkage.size:
            raise ValueError(
                f"client {self.client!r} sent nothing for alignment; its classifier "
                "needs the aligner too."
            )
        return self._part(ClientStatistics, shrinkage=float(self.shrinkage[0]))

    def scatter(self):
        """Compute the scatter of the samples around the means of their classes.

        Returns
        -------
        scatter : ndarray of shape (n_features, n_features)
            Sum of the outer products of the deviations.
        """
        apart = np.sqrt(self.counts)[:, None] * (self.class_means - self.mean)
        return self.n_samples * self.covariance - apart.T @ apart

    def _traits(self):
        part = "present" if self.shrinkage.size else "absent"
        return {**super()._traits(), "part for alignment": part}

    def _check_alignment(self, deep):
        """Refuse statistics that alignment cannot use. All of them may be absent."""
        is_absent = not self.covariance.size
        if self.shrinkage.size:
            check_number("shrinkage", float(self.shrinkage[0]), 0, 1)
            if is_absent:
                raise MessageError("there is a shrinkage, but no covariance.")
        if is_absent:
            return
        if not self.class_means.size:
            raise MessageError("there is a covariance, but no means.")
        check_covariance("the covariance", self.covariance, deep)
        self._check_spread(deep)

    def _check_spread(self, deep):
        """Refuse class means that the covariance of all samples rules out."""
        shares = self.counts / self.n_samples
        check_scatter("class means", self.covariance, shares, self.means, deep)


class ClassMeans(_ClassMessage):
    """Number of samples and mean of each class of a client, for FedCOF.

    The smallest message on classes: 4 C (m + 1) bytes of numbers in float32 for C
    classes of m features. It contains no covariance, so aligners cannot use it. Usually
    made by :meth:`skslot.FedCOFClassifier.client_update`.

    Parameters
    ----------
    classes : list
        Labels of the classes of the client.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class.
    client : object, default=None
        Name of the client.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.
    privacy : dict, default=None
        Guarantee of differential privacy, see :meth:`release`; None if there is none.

    See Also
    --------
    ClassStatistics : Message with a covariance, for FedCGS and for alignment.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FedCOFClassifier
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0]])
    >>> FedCOFClassifier().client_update(X, ["a", "a", "b"]).means
    array([[1., 1.],
           [5., 5.]])
    """

    kind = "class means"

    classes: list = Message.fact("labels of the classes held")
    counts: np.ndarray = _counts()
    means: np.ndarray = Message.array("c", "m", meaning="mean of each class")
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)
    privacy: dict | None = _privacy()

    @classmethod
    def release(cls, budget, X, y, classes, client=None):
        """Make a message with a guarantee of differential privacy.

        Parameters
        ----------
        budget : PrivacyBudget
            The guarantee. All of it is spent on counts and means.
        X : array-like of shape (n_samples, n_features)
            Samples of the client.
        y : array-like of shape (n_samples,)
            Labels of the samples.
        classes : array-like of shape (n_classes,)
            Agreed labels that may occur. Classes whose noisy count is below one
            are excluded.
        client : object, default=None
            Name of the client.

        Returns
        -------
        message : ClassMeans
            A new release of the samples.
        """
        found = budget.release(X, y, classes, with_covariance=False)
        held = found.counts > 0
        return cls(
            np.asarray(classes)[held].tolist(),
            found.counts[held],
            found.means[held],
            client,
            privacy=budget.guarantee,
        )

    def _check_values(self, sizes, deep):
        check_counts("counts", self.counts, least=1)


class ClassStatistics(_AlignableMessage):
    """Class counts, class means and covariance of a client.

    They suffice for alignment and for a Gaussian classifier, because an affine map acts
    on them in closed form. Usually made by
    :meth:`skslot.FedCGSClassifier.client_update`.

    Parameters
    ----------
    classes : list
        Labels, in the order of ``counts`` and ``means``.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class; may be 0.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class; zero for a class without samples.
    covariance : ndarray of shape (n_features, n_features)
        Sample covariance of all samples, without shrinkage. Its upper triangle is sent.
    shrinkage : ndarray of shape (1,) or (0,)
        Shrinkage coefficient for alignment; empty when there is none.
    client : object, default=None
        Name of the client.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.
    privacy : dict, default=None
        Guarantee of differential privacy, see :meth:`release`; None if there is none.

    See Also
    --------
    ClientStatistics : The part that alignment needs.

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

    classes: list = Message.fact("labels")
    counts: np.ndarray = _counts()
    means: np.ndarray = Message.array("c", "m", meaning="mean of each class")
    covariance: np.ndarray = _covariance()
    shrinkage: np.ndarray = _shrinkage(default_factory=lambda: np.empty(0))
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)
    privacy: dict | None = _privacy()

    @classmethod
    def from_moments(cls, moments, class_means, shrinkage=None, client=None):
        """Summarise samples by their moments and the means of their classes.

        Parameters
        ----------
        moments : FeatureMoments
            Moments of the samples. The message keeps them, but they are not sent.
        class_means : dict
            Number of samples and their mean by label, as
            :func:`skslot.statistics.class_means` returns them.
        shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1], default=None
            Shrinkage for alignment, see :class:`ClientStatistics`; None leaves it out.
        client : object, default=None
            Name of the client.

        Returns
        -------
        message : ClassStatistics
            The message.
        """
        sample, coefficient = moments.sample_covariance(), []
        if shrinkage is not None:
            coefficient = [floor_shrinkage(sample, moments.shrinkage(shrinkage))]
        message = cls(
            list(class_means),
            np.array([count for count, _ in class_means.values()], dtype=np.int32),
            np.array([mean for _, mean in class_means.values()]),
            sample,
            np.array(coefficient, dtype=np.float64),
            client,
        )
        vars(message)["moments"] = moments
        return message

    def summarised(self, shrinkage=None, added=None):
        """Summarise the samples again, which is possible where the message was made.

        Parameters
        ----------
        shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1], default=None
            Shrinkage, as in :meth:`from_moments`.
        added : ClassStatistics, default=None
            Message on samples to add.

        Returns
        -------
        message : ClassStatistics
            The message on all samples.
        """
        moments, cells = self.moments, self.cells()
        if added is not None:
            moments = moments + added.moments
            if not added.describes_classes:  # nor does the message on all samples
                return ClientStatistics.from_moments(moments, shrinkage, self.client)
            cells = merge_class_means(cells, added.cells())
        return self.from_moments(moments, cells, shrinkage, self.client)

    def sums(self):
        """Compute sums over samples, which add up over clients.

        Secure aggregation uses this form, because the server needs only the totals.

        Returns
        -------
        counts : ndarray of shape (n_classes,)
            Number of samples of each class.
        class_sums : ndarray of shape (n_classes, n_features)
            Sum of the samples of each class.
        second_moment : ndarray of shape (n_features, n_features)
            Sum of ``z z^T`` over all samples ``z``.
        """
        mean = self.mean
        second_moment = self.n_samples * (self.covariance + np.outer(mean, mean))
        return self.counts, self.counts[:, None] * self.means, second_moment

    @classmethod
    def from_sums(cls, classes, counts, class_sums, second_moment, tolerance=None):
        """Make the message of the pooled samples from sums over clients.

        Parameters
        ----------
        classes : list
            Labels.
        counts : ndarray of shape (n_classes,)
            Number of samples of each class.
        class_sums : ndarray of shape (n_classes, n_features)
            Sum of the samples of each class.
        second_moment : ndarray of shape (n_features, n_features)
            Sum of ``z z^T`` over all samples ``z``.
        tolerance : float or array-like of shape (n_features,), default=None
            How far below zero rounding may leave the sum of squares of a feature about
            its class means. Beyond that, a :class:`MessageError` is raised. None allows
            for messages in half precision.

        Returns
        -------
        statistics : ClassStatistics
            Message of one client with all samples.
        """
        counts = np.asarray(counts)
        mean = np.sum(class_sums, axis=0) / counts.sum()
        means = class_sums / np.maximum(counts, 1)[:, None]
        within = second_moment - (means.T * counts) @ means
        squares = within.diagonal().copy()
        if tolerance is None:
            half = np.finfo(np.float16).eps
            tolerance = half * np.maximum(np.diagonal(second_moment), 0.0)
        worst = np.argmin(squares + tolerance)
        if squares[worst] < -np.broadcast_to(tolerance, squares.shape)[worst]:
            raise MessageError(
                f"the sum of squares of feature {worst} about its class means is "
                f"{squares[worst]:.3g}, which no rows can have: some of the sums are "
                "wrong."
            )
        # where rows do not vary, rounding must not leave less than nothing
        np.fill_diagonal(within, np.maximum(squares, 0.0))
        between = ((means - mean).T * counts) @ (means - mean)
        covariance = (within + between) / counts.sum()
        return cls(list(classes), counts, means, (covariance + covariance.T) / 2)

    @classmethod
    def release(cls, budget, X, y, classes, client=None, shrinkage=None):
        """Make a message with a guarantee of differential privacy.

        Parameters
        ----------
        budget : PrivacyBudget
            The guarantee.
        X : array-like of shape (n_samples, n_features)
            Samples of the client.
        y : array-like of shape (n_samples,)
            Labels of the samples.
        classes : array-like of shape (n_classes,)
            Agreed labels that may occur.
        client : object, default=None
            Name of the client.
        shrinkage : "oas" or float in [0, 1], default=None
            Shrinkage for alignment, computed from the noisy covariance; None leaves it
            out.

        Returns
        -------
        message : ClassStatistics
            A new release of the samples.
        """
        found = budget.release(X, y, classes)
        coefficient = []
        if shrinkage is not None:
            n_samples = found.counts.sum()
            coefficient.append(
                shrinkage_coefficient(shrinkage, found.covariance, n_samples)
            )
        return cls(
            np.asarray(classes).tolist(),
            found.counts,
            found.means,
            found.covariance,
            np.array(coefficient, dtype=np.float64),
            client,
            privacy=budget.guarantee,
        )

    def pushed(self, matrix, offset):
        """Return the message of samples after ``z -> matrix @ z + offset``.

        Parameters
        ----------
        matrix : ndarray of shape (n_features, n_features) or None
            Linear part of the map; None for a shift.
        offset : ndarray of shape (n_features,)
            Offset of the map.

        Returns
        -------
        statistics : ClassStatistics
            Statistics of the mapped samples.
        """
        means, covariance = self.means, self.covariance
        if matrix is not None:
            means, covariance = means @ matrix.T, _congruent(matrix, covariance)
        means = np.where(self.counts[:, None] > 0, means + offset, 0.0)
        return replace(self, means=means, covariance=covariance)

    def _check_values(self, sizes, deep):
        self._check_alignment(deep)


class ClassMixtures(_AlignableMessage):
    """Gaussian mixture for each class of a client, for FedPFT.

    The components of all classes follow each other. Usually made by
    :meth:`skslot.FedPFTClassifier.client_update`.

    Parameters
    ----------
    classes : list
        Labels of the classes of the client.
    covariance_type : {"spherical", "diag", "full", "lowrank"}
        Shape of the components.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    n_components : ndarray of shape (n_classes,)
        Number of components of each class.
    weights : ndarray of shape (n_components_in_all,)
        Share of each component in its class.
    means : ndarray of shape (n_components_in_all, n_features)
        Mean of each component.
    covariances : ndarray of shape (n_components_in_all, n_numbers)
        Covariance of each component: one variance, the variances of all features, the
        packed upper triangle, or loadings on all features followed by the remaining
        standard deviation of a feature.
    covariance : ndarray of shape (n_features, n_features) or (0,)
        Sample covariance of all samples, for alignment; empty when there is none.
    shrinkage : ndarray of shape (1,) or (0,)
        Shrinkage coefficient for alignment.
    client : object, default=None
        Name of the client.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

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
    # Most numbers that a server draws from a mixture: 8 GB in float64.
    MOST_NUMBERS = 2**30

    classes: list = Message.fact("labels of the classes held")
    covariance_type: str = Message.fact("shape of the components")
    counts: np.ndarray = _counts()
    n_components: np.ndarray = Message.array(
        "c", kinds="i", meaning="components of each class"
    )
    weights: np.ndarray = Message.array(
        "k", meaning="share of each component in its class"
    )
    means: np.ndarray = Message.array("k", "m", meaning="mean of each component")
    covariances: np.ndarray = Message.array(
        "k", "v", meaning="covariance of each component"
    )
    covariance: np.ndarray = _covariance(optional=True)
    shrinkage: np.ndarray = _shrinkage()
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    @property
    def n_numbers(self):
        """Number of parameters of the mixtures, as counted in the literature."""
        return self.weights.size + self.means.size + self.covariances.size

    @property
    def class_means(self):
        """Mean of each class."""
        starts = np.cumsum(self.n_components) - self.n_components
        return np.add.reduceat(self.weights[:, None] * self.means, starts, axis=0)

    @property
    def component_rows(self):
        """Number of samples of each component, whose shares are rounded by the wire."""
        starts = np.cumsum(self.n_components) - self.n_components
        rows = self.counts / np.add.reduceat(self.weights, starts)
        return np.repeat(rows, self.n_components) * self.weights

    @property
    def component_variances(self):
        """Variance within each component, averaged over features."""
        return self._variances_within().mean(axis=1)

    def _variances_within(self):
        """Variance of each feature, or one for all, within each component."""
        flat = self.covariances
        if self.covariance_type == "full":
            return flat[:, packed_diagonal(self.n_features)]
        if self.covariance_type != "lowrank":
            return flat
        loadings = flat[:, :-1].reshape(len(flat), -1, self.n_features)
        return np.square(loadings).sum(axis=1) + np.square(flat[:, -1:])

    @property
    def variances(self):
        """Variance of each feature."""
        if self.covariance.size:
            return super().variances
        rows = self.weights * np.repeat(self.counts, self.n_components)
        squares = self._variances_within() + np.square(self.means - self.mean)
        return rows @ squares / rows.sum()

    def _traits(self):
        return {**super()._traits(), "covariance_type": self.covariance_type}

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
        if self.n_samples * self.n_features > self.MOST_NUMBERS:
            raise MessageError(
                f"it claims {self.n_samples} rows of {self.n_features} features, and a "
                f"server draws at most {self.MOST_NUMBERS} numbers. If that is right, "
                "describe a sample of the rows."
            )
        if self.n_components.sum(dtype=np.float64) != sizes["k"]:
            raise MessageError("n_components do not add up to the components sent.")
        starts = np.cumsum(self.n_components) - self.n_components
        shares = np.add.reduceat(self.weights, starts)
        if self.weights.min() < 0 or np.abs(shares - 1).max() > WEIGHT_TOLERANCE:
            raise MessageError("weights must be shares of each class, adding up to 1.")
        if sizes["v"] not in _numbers_in(self.covariance_type, sizes["m"]):
            raise MessageError(
                f"covariances has {sizes['v']} columns, which does not fit the "
                f"covariance_type {short(self.covariance_type)}."
            )
        self._check_components(deep)
        self._check_alignment(deep)

    def _check_components(self, deep):
        # EM subtracts products of means from each other, which leaves some rounding
        tolerance = EM_ROUNDING * largest(self.means) ** 2
        if self.covariance_type == "lowrank":
            check_variances("covariances", self.covariances[:, -1])
        elif self.covariance_type != "full":
            check_variances("covariances", self.covariances, tolerance)
        else:
            for packed in self.covariances:
                matrix = unpack_triangle(packed)
                check_covariance("a covariance", matrix, deep, tolerance)

    def _check_spread(self, deep):
        """Refuse components that the covariance of all samples rules out.

        Means of components lie no further apart than samples. The rest is the spread
        within components: fitting a mixture keeps the sum of all variances.
        """
        shares = self.component_rows / self.n_samples
        slack = 1 - WEIGHT_TOLERANCE  # shares were rounded
        total, between, tolerance = check_scatter(
            "means of components", self.covariance, slack * shares, self.means, deep
        )
        within = shares @ self.component_variances * self.n_features
        sum_of_both = between / slack + within
        if abs(sum_of_both - total) > tolerance + 2 * WEIGHT_TOLERANCE * total:
            raise MessageError(
                f"variances of components add up to {sum_of_both:.3g}, those of the "
                f"covariance of all rows to {total:.3g}, so no rows can have both."
            )


class ClassRows(_AlignableMessage):
    """A few weighted rows for each class of a client: a core-set.

    The rows of all classes follow each other. Usually made by
    :meth:`skslot.FedCoresetClassifier.client_update`.

    Parameters
    ----------
    classes : list
        Labels of the classes of the client.
    method : {"kmeans", "herding", "confident"}
        How rows were chosen. With "kmeans", each row is the mean of several samples.
        With the other methods, rows are samples of the client.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    n_rows : ndarray of shape (n_classes,)
        Number of rows of each class; may be 0.
    rows : ndarray of shape (n_rows_in_all, n_features)
        The rows.
    weights : ndarray of shape (n_rows_in_all,)
        Number of samples that each row represents.
    soft_labels : ndarray of shape (n_rows_in_all, n_classes) or (0,)
        Probability of each class; empty if labels are hard.
    means : ndarray of shape (n_classes, n_features) or (0,)
        Mean of each class, for alignment; empty when there is none.
    covariance : ndarray of shape (n_features, n_features) or (0,)
        Sample covariance of all samples, for alignment.
    shrinkage : ndarray of shape (1,) or (0,)
        Shrinkage coefficient for alignment.
    client : object, default=None
        Name of the client.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

    See Also
    --------
    ClassMixtures : Distributions instead of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FedCoresetClassifier
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0]])
    >>> classifier = FedCoresetClassifier(n_per_class=1, min_samples=2)
    >>> message = classifier.client_update(X, ["a", "a", "b"])
    >>> message.rows  # that of "b" would be a row of the client
    array([[1., 1.]])
    >>> message.weights
    array([2.])
    """

    kind = "class rows"

    classes: list = Message.fact("labels of the classes held")
    method: str = Message.fact("how rows were chosen")
    counts: np.ndarray = _counts()
    n_rows: np.ndarray = Message.array(
        "c", kinds="i", meaning="rows that are sent of each class"
    )
    rows: np.ndarray = Message.array("k", "m", meaning="rows that stand for others")
    weights: np.ndarray = Message.array("k", meaning="rows that each stands for")
    soft_labels: np.ndarray = Message.array(
        "k", "c", meaning="probability of each class", optional=True
    )
    means: np.ndarray = Message.array(
        "c", "m", meaning="mean of each class, for alignment", optional=True
    )
    covariance: np.ndarray = _covariance(optional=True)
    shrinkage: np.ndarray = _shrinkage()
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    @property
    def owners(self):
        """Position of the class of each row."""
        return np.repeat(np.arange(len(self.classes)), self.n_rows)

    def weighted(self, factor):
        """Return the message of a client that counts as a part of its samples.

        Parameters
        ----------
        factor : float
            Factor on the numbers of samples.

        Returns
        -------
        message : ClassRows
            The message with smaller numbers of samples.
        """
        return replace(super().weighted(factor), weights=self.weights * factor)

    def _feature_moments(self):
        weights, rows = self.weights, self.rows
        if self.means.size or not len(rows):
            return super()._feature_moments()
        mean = weights @ rows / weights.sum()
        variances = weights @ np.square(rows - mean) / weights.sum()
        cells = {}
        for position, label in enumerate(self.classes):
            own = self.owners == position
            if own.any():
                weight = weights[own].sum()
                cells[label] = weight, weights[own] @ rows[own] / weight
        return mean, variances, cells

    def _group_sizes(self):
        sizes = super()._group_sizes()
        is_real = self.method in REAL_ROWS
        stands_for = np.ones_like(self.weights) if is_real else self.weights
        for index, size in enumerate(stands_for.tolist()):
            label = short(self.classes[self.owners[index]])
            sizes[f"{'real ' * is_real}row {index} (class {label})"] = size
        return sizes

    def _check_values(self, sizes, deep):
        check_choice("method", self.method, CORESET_METHODS)
        check_counts("counts", self.counts, least=1)
        check_counts("n_rows", self.n_rows)
        if self.n_rows.sum(dtype=np.float64) != sizes["k"]:
            raise MessageError("n_rows do not add up to the rows sent.")
        if self.weights.min(initial=1.0) <= 0:
            raise MessageError("weights must be positive.")
        sums = np.bincount(self.owners, self.weights, len(self.counts))
        apart = np.abs(sums - self.counts)[self.n_rows > 0]
        if np.any(apart > WEIGHT_TOLERANCE * self.counts[self.n_rows > 0]):
            raise MessageError(
                "rows of a class do not stand for as many rows as there are of it."
            )
        if self.soft_labels.size:
            sums = self.soft_labels.sum(axis=1)
            if self.soft_labels.min() < 0 or np.abs(sums - 1).max() > WEIGHT_TOLERANCE:
                raise MessageError("soft_labels must be shares, adding up to 1.")
        self._check_alignment(deep)


class CurvedHead(_AlignableMessage):
    """Linear classifier of a client, and the curvature of its loss.

    It has one row of weights for each class of the client. Usually made by
    :meth:`skslot.FedMergeClassifier.client_update` or
    :meth:`skslot.FedEnsembleClassifier.client_update`.

    Parameters
    ----------
    classes : list
        Labels of the classes of the client.
    curvature : {"none", "gram", "diag", "kfac"}
        Form of the curvature of the loss: absent, the covariance of the features, the
        diagonal, or two factors.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    coef : ndarray of shape (n_classes, n_features)
        Weights of each class.
    intercept : ndarray of shape (n_classes,)
        Intercept of each class.
    class_curvature : ndarray of shape (n_classes, n_classes) or (0,)
        Mean of ``diag(p) - p p^T`` over samples, where ``p`` are the probabilities of
        the classes; only with "kfac".
    fisher : ndarray of shape (n_classes, n_features + 1) or (0,)
        Diagonal of the curvature, for the weights of centred rows and, in the last
        column, the intercept; only with "diag".
    means : ndarray of shape (n_classes, n_features) or (0,)
        Mean of each class; empty if neither curvature nor alignment needs it.
    covariance : ndarray of shape (n_features, n_features) or (0,)
        Sample covariance of all samples; empty likewise.
    shrinkage : ndarray of shape (1,) or (0,)
        Shrinkage coefficient for alignment.
    client : object, default=None
        Name of the client.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

    See Also
    --------
    LinearModel : Linear classifier alone.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FedMergeClassifier
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0]])
    >>> message = FedMergeClassifier("none").client_update(X, ["a", "a", "b"])
    >>> message.coef.shape, message.intercept.shape
    ((2, 2), (2,))
    """

    kind = "curved head"

    classes: list = Message.fact("labels of the classes held")
    curvature: str = Message.fact("what is said about the curvature of the loss")
    counts: np.ndarray = _counts()
    coef: np.ndarray = Message.array("c", "m", meaning="weights of each class")
    intercept: np.ndarray = Message.array("c", meaning="intercept of each class")
    class_curvature: np.ndarray = Message.array(
        "c", "c", meaning="curvature by pairs of classes", optional=True
    )
    fisher: np.ndarray = Message.array(
        "c", "w", meaning="curvature by weights, and intercept", optional=True
    )
    means: np.ndarray = Message.array(
        "c", "m", meaning="mean of each class", optional=True
    )
    covariance: np.ndarray = _covariance(optional=True)
    shrinkage: np.ndarray = _shrinkage()
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    def pushed(self, matrix, offset):
        """Return the head for samples after ``z -> matrix @ z + offset``.

        Scores do not change. Means and covariance describe the mapped samples. Of a
        mapped diagonal curvature, the diagonal is kept.

        Parameters
        ----------
        matrix : ndarray of shape (n_features, n_features) or None
            Linear part of the map, which can be inverted; None for a shift.
        offset : ndarray of shape (n_features,)
            Offset of the map.

        Returns
        -------
        head : CurvedHead
            Head for the mapped samples.
        """
        coef = self.coef
        parts = {"means": self.means}
        if matrix is not None:
            coef = np.linalg.solve(matrix.T, coef.T).T
            if self.means.size:
                parts["means"] = self.means @ matrix.T
            if self.covariance.size:
                parts["covariance"] = _congruent(matrix, self.covariance)
            if self.fisher.size:
                weights, last = self.fisher[:, :-1], self.fisher[:, -1:]
                parts["fisher"] = np.hstack([weights @ np.square(matrix).T, last])
        if self.means.size:
            parts["means"] = parts["means"] + offset
        intercept = self.intercept - coef @ offset
        return replace(self, coef=coef, intercept=intercept, **parts)

    def _head(self):
        return [self.coef, self.intercept]

    def _traits(self):
        return {**super()._traits(), "curvature": self.curvature}

    def _check_values(self, sizes, deep):
        check_choice("curvature", self.curvature, CURVATURES)
        check_counts("counts", self.counts, least=1)
        needed = {"class_curvature": "kfac", "fisher": "diag"}
        for name, curvature in needed.items():
            if bool(getattr(self, name).size) != (self.curvature == curvature):
                raise MessageError(
                    f"{name} belongs to the curvature {curvature!r}, and this is "
                    f"{self.curvature!r}."
                )
        if self.curvature in ("gram", "kfac") and not self.covariance.size:
            raise MessageError(f"a curvature {self.curvature!r} needs a covariance.")
        if self.curvature == "diag" and not self.means.size:
            raise MessageError("a curvature 'diag' needs means.")
        if self.fisher.size:
            if sizes["w"] != sizes["m"] + 1:
                raise MessageError("fisher needs a column for the intercept.")
            check_variances("fisher", self.fisher)
        if self.class_curvature.size:
            _check_class_curvature(self.class_curvature)
        self._check_alignment(deep)


def _congruent(matrix, covariance):
    """Compute the covariance after a linear map, exactly symmetric."""
    pushed = matrix @ covariance @ matrix.T
    return (pushed + pushed.T) / 2


def _check_class_curvature(matrix):
    """Refuse a matrix that is not a mean of ``diag(p) - p p^T`` up to rounding."""
    tolerance = WEIGHT_TOLERANCE * np.abs(matrix).max()
    off_diagonal = matrix - np.diag(matrix.diagonal())
    if (
        not np.array_equal(matrix, matrix.T)
        or np.abs(matrix).max() > 1
        or off_diagonal.max() > tolerance
        or np.abs(matrix.sum(axis=0)).max() > tolerance
    ):
        raise MessageError("class_curvature is not one of probabilities.")


def _numbers_in(covariance_type, n_features):
    """Possible numbers of parameters of the covariance of one component."""
    if covariance_type == "lowrank":  # any number of loadings
        return range(n_features + 1, n_features**2 + 2, n_features)
    sizes = {"spherical": 1, "diag": n_features}
    sizes["full"] = n_features * (n_features + 1) // 2
    known = isinstance(covariance_type, str) and covariance_type in sizes
    return (sizes[covariance_type],) if known else ()


class FeatureSummary(Message):
    """Number of samples, mean and variance of a client, for a common scale.

    Usually made by :meth:`skslot.FedAvgClassifier.client_summary`.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    mean : ndarray of shape (n_features,)
        Mean of the samples.
    variance : float
        Variance around that mean, averaged over features.
    client : object, default=None
        Name of the client.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

    See Also
    --------
    FeatureScale : Answer of the server.

    Examples
    --------
    >>> from skslot import FedAvgClassifier
    >>> FedAvgClassifier().client_summary([[1.0, 2.0], [3.0, 2.0]], client="A")
    FeatureSummary(n_samples=2, mean=<array of (2,)>, variance=0.5, client='A')
    """

    kind = "feature summary"

    n_samples: int = Message.fact("number of rows")
    mean: np.ndarray = Message.array("m", meaning="mean of the rows")
    variance: float = Message.fact("variance of the rows, averaged over features")
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    def _feature_moments(self):
        return self.mean, np.full(len(self.mean), self.variance), {}

    def _group_sizes(self):
        return {"a client": self.n_samples}

    def _check_values(self, sizes, deep):
        check_number("n_samples", self.n_samples, 1, MAX_COUNT, Integral)
        check_number("variance", self.variance, 0, np.finfo(np.float64).max)


class HeadWeights(Message):
    """Weights of a head after local training at a client, or averaged.

    Usually made by :meth:`skslot.FedAvgClassifier.client_update` and
    :meth:`skslot.FedAvgClassifier.server_average`.

    Parameters
    ----------
    classes : list
        Labels, in the order of the outputs of the head.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class; may be 0.
    weights : dict of str to ndarray
        The ``state_dict`` of the head.
    losses : ndarray of shape (2,)
        Mean cross-entropy before and after local training.
    n_features : int
        Number of features.
    n_rounds : int
        Rounds of training behind the weights.
    client : object, default=None
        Name of the client; None for the average.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

    See Also
    --------
    LinearModel : A linear head with the scale folded in.

    Examples
    --------
    >>> from skslot import FedAvgClassifier
    >>> classifier = FedAvgClassifier(standardize=False)
    >>> classifier.client_update([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    HeadWeights(client=None, classes=['a', 'b'], n_samples=2, n_rounds=1,
                weights={'weight': (2, 2), 'bias': (2,)})
    """

    kind = "head weights"

    classes: list = Message.fact("labels")
    counts: np.ndarray = _counts()
    weights: dict = Message.named_arrays("weights of the head")
    losses: np.ndarray = Message.array(
        2, meaning="loss before and after local training"
    )
    n_features: int = Message.fact("number of features")
    n_rounds: int = Message.fact("rounds of training behind the weights")
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    def __repr__(self):
        shapes = {name: np.shape(array) for name, array in self.weights.items()}
        return (
            f"HeadWeights(client={self.client!r}, classes={self.classes}, "
            f"n_samples={self.n_samples}, n_rounds={self.n_rounds}, weights={shapes})"
        )

    def _head(self):
        return self.weights.values()

    def _traits(self):
        traits = super()._traits()
        del traits["kind of labels"]  # the same in the same list of classes
        head = {
            name: ("numbers" if array.dtype.kind == "f" else "integers", array.shape)
            for name, array in self.weights.items()
        }
        return {
            **traits,
            "list of classes": tuple(self.classes),
            "round of training": self.n_rounds,
            "head": tuple(sorted(head.items())),
        }

    def _check_values(self, sizes, deep):
        check_number("n_features", self.n_features, 1, MAX_COUNT, Integral)
        check_number("n_rounds", self.n_rounds, 1, MAX_COUNT, Integral)


class ColumnStatistics(Message):
    """Number of values, mean and sum of squares of each feature.

    A client sends them to standardize features. The server sends back the statistics of
    all clients together. Usually made by
    :meth:`skslot.FederatedScaler.client_update` and
    :meth:`skslot.FederatedScaler.server_aggregate`.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    n_values : ndarray of shape (n_features,)
        Number of values of each feature that are not missing.
    means : ndarray of shape (n_features,)
        Mean of the values; 0 if there are none.
    squares : ndarray of shape (n_features,)
        Sum of the squared distances from the mean.
    client : object, default=None
        Name of the client; None for all clients together.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

    See Also
    --------
    skslot.FederatedScaler : Make and use these messages.

    Notes
    -----
    The message has three numbers per feature, so float64 costs very little. Save it by
    ``message.save(path, "float64")`` for an exact result.

    Examples
    --------
    >>> from skslot import FederatedScaler
    >>> FederatedScaler().client_update([[1.0, 2.0], [3.0, float("nan")]], client="A")
    ColumnStatistics(client='A', n_samples=2, n_features=2, n_missing=1)
    """

    kind = "column statistics"

    n_samples: int = Message.fact("number of rows")
    n_values: np.ndarray = Message.array(
        "m", kinds="i", meaning="values of each feature that are not missing"
    )
    means: np.ndarray = Message.array("m", meaning="mean of these values")
    squares: np.ndarray = Message.array(
        "m", meaning="sum of their squared distances from the mean"
    )
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    def __repr__(self):
        n_missing = self.n_samples * self.n_features - int(self.n_values.sum())
        return (
            f"ColumnStatistics(client={self.client!r}, n_samples={self.n_samples}, "
            f"n_features={self.n_features}, n_missing={n_missing})"
        )

    @classmethod
    def joined(cls, messages):
        """Merge messages of several clients.

        Parameters
        ----------
        messages : iterable of ColumnStatistics
            At least one, on the same features.

        Returns
        -------
        statistics : ColumnStatistics
            Message of one client with all samples, up to rounding.
        """
        n_samples, moments = 0, None
        for message in messages:
            n_samples += message.n_samples
            check_number("n_samples of all clients", n_samples, 1, MAX_COUNT, Integral)
            added, encoder = message.moments, message.encoder
            moments = added if moments is None else merge_column_moments(moments, added)
        return cls(n_samples, *moments, encoder=encoder)

    @property
    def moments(self):
        """Moments of the columns."""
        counts = self.n_values.astype(np.int64)
        return ColumnMoments(counts, self.means, self.squares)

    def _feature_moments(self):
        return self.means, self.squares / np.maximum(self.n_values, 1), {}

    def _group_sizes(self):
        counts = self.n_values.tolist()
        features = {f"feature {k}": n for k, n in enumerate(counts, start=1)}
        with_gaps = {name: n for name, n in features.items() if n < self.n_samples}
        return {"a client": self.n_samples, **with_gaps}

    def _check_values(self, sizes, deep):
        check_number("n_samples", self.n_samples, 1, MAX_COUNT, Integral)
        check_counts("n_values", self.n_values)
        if self.n_values.max() > self.n_samples:
            raise MessageError(
                f"n_values must be at most n_samples={self.n_samples}, got "
                f"{self.n_values.max()}."
            )
        check_variances("squares", self.squares)
        absent = self.n_values == 0
        if self.means[absent].any() or self.squares[absent].any():
            raise MessageError("a feature without values has a mean or squares.")
