"""The messages that servers send back."""

from dataclasses import replace
from numbers import Integral

import numpy as np
from scipy.special import softmax

from ._message import MAX_COUNT, Message, check_covariance, check_number, check_weights
from ._receiving import check_same_features
from ._wire import MessageError

LARGEST = np.finfo(np.float64).max


class AlignmentReference(Message):
    """Gaussian that all clients are aligned to.

    The ``reference_`` of a fitted :class:`skslot.FederatedOTAligner`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Weighted mean of the clients' means.
    covariance : ndarray of shape (n_features, n_features)
        Bures-Wasserstein barycenter of the clients' shrunk covariances. Its upper
        triangle is sent.
    n_iter : int
        Number of iterations of the barycenter.
    residual : float
        Scale-free residual of the barycenter.
    tau : float, default=None
        Alignment strength, if the server chose it (``tau="auto"``).
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

    See Also
    --------
    ClientStatistics : Message of a client.
    skslot.geometry.bures_barycenter : Compute the covariance.

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
    """Refuse a reference that no server can have computed."""
    check_number("n_iter", message.n_iter, 0, MAX_COUNT, Integral)
    check_number("residual", message.residual, 0, LARGEST)
    check_covariance("the covariance", message.covariance, deep)


class LinearModel(Message):
    """Linear classifier.

    Parameters
    ----------
    classes : list
        Labels.
    coef : ndarray of shape (n_classes, n_features)
        One row of weights per class, or a single one for two classes.
    intercept : ndarray of shape (n_classes,)
        One intercept per row of ``coef``.
    client : object, default=None
        Client of the model, if the model includes the alignment of that client.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

    See Also
    --------
    ClassStatistics : Message of a client.
    AlignedModel : Model and reference for all clients.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.exchange import LinearModel
    >>> model = LinearModel(["a", "b"], np.array([[1.0, -1.0]]), np.zeros(1))
    >>> model.predict(np.array([[0.0, 2.0], [3.0, 1.0]]))
    array(['a', 'b'], dtype='<U1')
    """

    kind = "linear model"

    classes: list = Message.fact("labels")
    coef: np.ndarray = Message.array("r", "m", meaning="weights of each class")
    intercept: np.ndarray = Message.array("r", meaning="intercept of each class")
    client: object = Message.fact("the client it is for", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    def predict_proba(self, X):
        """Predict the probability of each class.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Features.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            One column per entry of ``classes``.
        """
        scores = X @ self.coef.T + self.intercept
        if len(self.classes) == 2 and scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        return softmax(scores, axis=1)

    def predict(self, X):
        """Predict the most likely class of each sample.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Features.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Predicted labels.
        """
        return np.array(self.classes)[self.predict_proba(X).argmax(axis=1)]

    def pulled_back(self, matrix, offset, client):
        """Return the model for samples before ``z -> matrix @ z + offset``.

        Parameters
        ----------
        matrix : ndarray of shape (n_features, n_features) or None
            Linear part of the map; None for a shift.
        offset : ndarray of shape (n_features,)
            Offset of the map.
        client : object
            Client of the map.

        Returns
        -------
        model : LinearModel
            Model for samples that are not aligned.
        """
        intercept = self.intercept + self.coef @ offset
        coef = self.coef if matrix is None else self.coef @ matrix
        return replace(self, coef=coef, intercept=intercept, client=client)

    def _check_values(self, sizes, deep):
        check_weights(self.classes, sizes["r"])


class AlignedModel(Message):
    """Linear classifier for aligned features, and the reference of the alignment.

    Every client derives the map of its features from its own statistics and the
    reference. So does a client that joins later.

    Parameters
    ----------
    classes : list
        Labels.
    coef : ndarray of shape (n_classes, n_features)
        One row of weights per class, or a single one for two classes.
    intercept : ndarray of shape (n_classes,)
        One intercept per row of ``coef``.
    mean : ndarray of shape (n_features,)
        Mean of the reference.
    covariance : ndarray of shape (n_features, n_features)
        Covariance of the reference. Its upper triangle is sent.
    n_iter : int
        Number of iterations of the reference.
    residual : float
        Residual of the reference.
    tau : float
        Alignment strength.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

    See Also
    --------
    LinearModel : Classifier for one client that includes the alignment.
    AlignmentReference : Reference alone.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FedCGSClassifier, FederatedOTAligner
    >>> from skslot.exchange import AlignedModel, LinearModel
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 3)), np.tile(["a", "b"], 30)
    >>> aligner = FederatedOTAligner(tau=0.4)
    >>> classifier = FedCGSClassifier(aligner=aligner)
    >>> classifier = classifier.fit(X, y, np.repeat(["A", "B"], 30))
    >>> head = LinearModel(["a", "b"], classifier.coef_, classifier.intercept_)
    >>> message = AlignedModel.of(head, classifier.aligner_.reference_, tau=0.4)

    At any site, known to the server or not:

    >>> site = aligner.client_update(rng.normal(1.0, 2.0, size=(40, 3)), client="C")
    >>> client_map = aligner.client_map(site, message.reference)
    >>> message.head.pulled_back(*client_map.affine, client="C")
    LinearModel(classes=['a', 'b'], coef=<array of (2, 3)>, ... client='C')
    """

    kind = "aligned model"

    classes: list = Message.fact("labels")
    coef: np.ndarray = Message.array("r", "m", meaning="weights of each class")
    intercept: np.ndarray = Message.array("r", meaning="intercept of each class")
    mean: np.ndarray = Message.array("m", meaning="mean of the reference")
    covariance: np.ndarray = Message.array(
        "m", "m", meaning="covariance of the reference, upper triangle", symmetric=True
    )
    n_iter: int = Message.fact("passes of the solver of the reference")
    residual: float = Message.fact("its residual")
    tau: float = Message.fact("strength of the alignment")
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    @classmethod
    def of(cls, head, reference, tau):
        """Make the message from its parts.

        Parameters
        ----------
        head : LinearModel
            Classifier for aligned features.
        reference : AlignmentReference
            Reference of the alignment.
        tau : float
            Alignment strength.

        Returns
        -------
        model : AlignedModel
            The message.
        """
        if head.client is not None:
            raise ValueError(
                f"head is for client {head.client!r}, whose alignment it includes."
            )
        encoder = head.encoder or reference.encoder
        check_same_features(reference, head.with_encoder(encoder))
        if reference.tau not in (None, tau):
            raise ValueError(f"tau is {tau}, but the reference says {reference.tau}.")
        weights = {"coef": head.coef, "intercept": head.intercept}
        return reference._part(cls, classes=head.classes, **weights, tau=tau)

    @property
    def head(self):
        """Classifier for aligned features."""
        return self._part(LinearModel)

    @property
    def reference(self):
        """Reference of the alignment."""
        return self._part(AlignmentReference)

    def _check_values(self, sizes, deep):
        check_weights(self.classes, sizes["r"])
        check_number("tau", self.tau, 0, 1)
        check_reference(self, deep)


class FeatureScale(Message):
    """Common origin and unit of all features.

    Usually made by :meth:`skslot.FedAvgClassifier.server_scale`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the samples of all clients.
    scale : float
        Square root of the variance, averaged over features.
    encoder : str, default=None
        Fingerprint of the encoder, see :meth:`with_encoder`.

    See Also
    --------
    FeatureSummary : Message of a client.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.exchange import FeatureScale
    >>> FeatureScale(np.array([1.0, 2.0]), 0.5).apply(np.array([[1.0, 3.0]]))
    array([[0., 2.]], dtype=float32)
    """

    kind = "feature scale"

    mean: np.ndarray = Message.array("m", meaning="mean of the rows of all clients")
    scale: float = Message.fact("root of their variance, averaged over features")
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    def apply(self, X):
        """Centre samples and divide them by the scale.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        X_scaled : ndarray of shape (n_samples, n_features)
            Samples to train on, in float32.
        """
        with np.errstate(over="ignore"):
            # in float64, as offsets may be much larger than the spread
            scaled = ((X - self.mean) / self.scale).astype(np.float32)
        if not np.isfinite(scaled).all():
            raise MessageError(
                "mean and scale do not fit these rows: scaled, they are infinite."
            )
        return scaled

    def _check_values(self, sizes, deep):
        check_number("scale", self.scale, np.finfo(np.float64).tiny, LARGEST)
