"""The messages of federated training."""

from numbers import Integral

import numpy as np

from ._message import MAX_COUNT, Message, check_number
from ._wire import MessageError

LARGEST = np.finfo(np.float64).max


class FeatureSummary(Message):
    """What one client sends for a common scale: size, mean and variance of its rows.

    Usually made by :meth:`skslot.FedAvgClassifier.client_summary`.

    Parameters
    ----------
    n_samples : int
        Number of rows.
    mean : ndarray of shape (n_features,)
        Their mean.
    variance : float
        Variance around that mean, averaged over features.
    client : object, default=None
        Name of the client.
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.

    See Also
    --------
    FeatureScale : What the server makes of these and sends back.

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

    def _group_sizes(self):
        return {"a client": self.n_samples}

    def _check_values(self, sizes, deep):
        check_number("n_samples", self.n_samples, 1, MAX_COUNT, Integral)
        check_number("variance", self.variance, 0, LARGEST)


class FeatureScale(Message):
    """What the server sends back: the origin and the unit of all features.

    Usually made by :meth:`skslot.FedAvgClassifier.server_scale`.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the rows of all clients.
    scale : float
        Root of their variance, averaged over features.
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.

    See Also
    --------
    FeatureSummary : What the clients sent.

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
        """Centre rows and divide them by the scale.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        X_scaled : ndarray of shape (n_samples, n_features)
            The rows to train on, in float32.
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


class HeadWeights(Message):
    """Weights of a head: of one client after local training, or their average.

    Usually made by :meth:`skslot.FedAvgClassifier.client_update` and
    :meth:`skslot.FedAvgClassifier.server_average`.

    Parameters
    ----------
    classes : list
        Labels, in the order of the outputs of the head.
    counts : ndarray of shape (n_classes,)
        Number of rows of each class; may be 0.
    weights : dict of str to ndarray
        The ``state_dict`` of the head.
    losses : ndarray of shape (2,)
        Mean cross-entropy over these rows before and after local training.
    n_features : int
        Number of features.
    n_rounds : int
        Rounds of training behind the weights.
    client : object, default=None
        Name of the client; None for the average.
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.

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
    counts: np.ndarray = Message.array(
        "c", kinds="i", meaning="number of rows of each class"
    )
    weights: dict = Message.named_arrays("weights of the head")
    losses: np.ndarray = Message.array(
        2, meaning="loss before and after local training"
    )
    n_features: int = Message.fact("number of features")
    n_rounds: int = Message.fact("rounds of training behind the weights")
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    @property
    def n_samples(self):
        """Number of rows."""
        return self.counts.sum(dtype=np.result_type(self.counts, np.int64)).item()

    def __repr__(self):
        shapes = {name: np.shape(array) for name, array in self.weights.items()}
        return (
            f"HeadWeights(client={self.client!r}, classes={self.classes}, "
            f"n_samples={self.n_samples}, n_rounds={self.n_rounds}, weights={shapes})"
        )

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
