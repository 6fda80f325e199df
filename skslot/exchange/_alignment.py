"""The messages of the alignment round."""

from functools import cached_property
from numbers import Integral

import numpy as np

from ..statistics import (
    floor_shrinkage,
    is_constant,
    shrink_covariance,
    shrinkage_coefficient,
)
from ._message import MAX_COUNT, Message, check_covariance, check_number


class ClientStatistics(Message):
    """What one client sends: size, mean, covariance and shrinkage of its features.

    No row and no label is in it. Usually made by
    :meth:`skslot.FederatedOTAligner.client_update`.

    Parameters
    ----------
    n_samples : int
        Number of rows that were summarised.
    mean : ndarray of shape (n_features,)
        Their mean.
    covariance : ndarray of shape (n_features, n_features)
        Their sample covariance, without shrinkage. Its upper triangle is sent.
    shrinkage : float
        Weight of the identity in the shrunk covariance, in [0, 1].
    client : object, default=None
        Name of the client, for error messages.
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.
    privacy : dict, default=None
        Guarantee of differential privacy, see :meth:`release`; None if there is none.

    See Also
    --------
    AlignmentReference : What the server makes of these and sends back.

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
    privacy: dict | None = Message.fact(
        "guarantee of differential privacy", default=None
    )

    # Moments of the rows, kept where the message was made: more rows can be added.
    # They are not sent.
    moments = None

    @classmethod
    def from_moments(cls, moments, shrinkage="ledoit_wolf", client=None):
        """Summarise rows by their moments.

        Parameters
        ----------
        moments : FeatureMoments
            Moments of the rows. The message keeps them, but they are not sent.
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

    @classmethod
    def release(cls, budget, X, client=None, shrinkage="oas"):
        """Message with a guarantee of differential privacy.

        Parameters
        ----------
        budget : PrivacyBudget
            The guarantee.
        X : array-like of shape (n_samples, n_features)
            Rows of the client.
        client : object, default=None
            Its name.
        shrinkage : "oas" or float in [0, 1], default="oas"
            Weight of the identity, computed from the noisy covariance.

        Returns
        -------
        statistics : ClientStatistics
            A new release of these rows.
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
        """The part of the message that alignment needs: all of it.

        Returns
        -------
        statistics : ClientStatistics
            The message itself; those of classifiers have more in them.
        """
        return self

    @cached_property
    def is_constant(self):
        """Whether the rows do not vary, so that only their mean can be aligned."""
        return bool(is_constant(self.variances, self.mean, self.n_samples).all())

    def _group_sizes(self):
        return {"a client": self.n_samples}

    def _check_values(self, sizes, deep):
        check_number("n_samples", self.n_samples, 1, MAX_COUNT, Integral)
        check_number("shrinkage", self.shrinkage, 0, 1)
        check_covariance("the covariance", self.covariance, deep)


class AlignmentReference(Message):
    """What the server sends back: the Gaussian that all clients are moved towards.

    The ``reference_`` of a fitted :class:`skslot.FederatedOTAligner`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Weighted mean of the clients' means.
    covariance : ndarray of shape (n_features, n_features)
        Bures-Wasserstein barycenter of the clients' shrunk covariances. Its upper
        triangle is sent.
    n_iter : int
        Passes that the barycenter took.
    residual : float
        Its scale-free residual.
    tau : float, default=None
        Strength of the alignment, when the server chose it (``tau="auto"``).
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.

    See Also
    --------
    ClientStatistics : What the clients sent.
    skslot.geometry.bures_barycenter : Computes the covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> rng, aligner = np.random.default_rng(0), FederatedOTAligner()
    >>> sites = [rng.normal(size=(50, 3)), rng.normal(2, 3, size=(60, 3))]
    >>> messages = [aligner.client_update(X, client=i) for i, X in enumerate(sites)]
    >>> aligner.server_aggregate(messages).reference_
    AlignmentReference(n_features=3, n_iter=..., residual=...)
    """

    kind = "alignment reference"

    mean: np.ndarray = Message.array("m", meaning="mean of the reference")
    covariance: np.ndarray = Message.array(
        "m", "m", meaning="covariance of the reference, upper triangle", symmetric=True
    )
    n_iter: int = Message.fact("passes of the solver")
    residual: float = Message.fact("its residual")
    tau: float | None = Message.fact("strength of the alignment", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    def __repr__(self):
        return (
            f"AlignmentReference(n_features={len(self.mean)}, n_iter={self.n_iter}, "
            f"residual={self.residual:.1e})"
        )

    def _check_values(self, sizes, deep):
        if self.tau is not None:
            check_number("tau", self.tau, 0, 1)
        check_reference(self, deep)


def check_reference(message, deep):
    """Refuse what no server can have found."""
    check_number("n_iter", message.n_iter, 0, MAX_COUNT, Integral)
    check_number("residual", message.residual, 0, np.finfo(np.float64).max)
    check_covariance("the covariance", message.covariance, deep)
