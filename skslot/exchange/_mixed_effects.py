"""The mixed-effects model: what a server estimates, and what it sends to clients."""

import numpy as np

from ..statistics import MixedEffects
from ._message import (
    MAX_COUNT,
    WEIGHT_TOLERANCE,
    Message,
    check_covariance,
    check_name,
    check_number,
)
from ._wire import MessageError


class MixedEffectsModel(Message, MixedEffects):
    """Mixed-effects model of all clients, for each of them.

    A client derives its own map and its own classifier from it and from its own
    statistics. So does a client that joins later. Usually the ``reference_`` of a
    :class:`skslot.MixedEffectsAligner`, or made by
    :meth:`skslot.MixedEffectsClassifier.shared_model`.

    Parameters
    ----------
    class_counts : ndarray of shape (n_classes,)
        Number of samples of each class at all clients. Fractional if clients were
        down-weighted.
    holders : ndarray of shape (n_classes,)
        Number of clients that hold each class.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class over clients, without their offsets.
    effects : ndarray of shape (n_classes, n_features)
        Mean of each class as the model predicts it. Offsets are relative to it.
    components : ndarray of shape (3,)
        Variances of client, class and interaction effects, in units of the variance
        within classes.
    converged : bool
        Whether the search for the components converged.
    classes : list
        Labels.
    covariance : ndarray of shape (n_features, n_features)
        Shrunk covariance within classes. Its upper triangle is sent.
    shrinkage : float
        Weight of the identity in the covariance.
    priors : ndarray of shape (n_classes,)
        Class probabilities.
    reference_covariance : ndarray of shape (n_features, n_features) or (0,)
        Covariance that linear maps lead to. Empty without linear maps.
    tau : float
        Strength of the linear maps.
    by_rows : bool
        Whether the strength is lower for clients with few samples, as with
        ``tau="auto"``.
    by_client : bool
        Whether each client uses its own class probabilities.
    clients : list
        Names of the clients that the model was fitted to.
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.

    See Also
    --------
    ClassStatistics : Message of a client, which the model is fitted to.
    LinearModel : Classifier that a client derives from the model.

    Examples
    --------
    >>> from skslot import MixedEffectsClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = MixedEffectsClassifier(tau=0)
    >>> classifier = classifier.fit(data.data, data.target, data.client_ids)
    >>> message = classifier.shared_model()
    >>> message.clients
    ['fax', 'flatbed', 'microfilm', 'phone']
    """

    kind = "mixed-effects model"

    class_counts: np.ndarray = Message.array(
        "c", meaning="number of samples of each class at all clients"
    )
    holders: np.ndarray = Message.array(
        "c", kinds="i", meaning="number of clients that hold each class"
    )
    means: np.ndarray = Message.array(
        "c", "m", meaning="mean of each class over clients"
    )
    effects: np.ndarray = Message.array(
        "c", "m", meaning="mean of each class as the model predicts it"
    )
    components: np.ndarray = Message.array(
        3, meaning="variance of client, class and interaction effects"
    )
    converged: bool = Message.fact("whether the search for the variances converged")
    classes: list = Message.fact("labels")
    covariance: np.ndarray = Message.array(
        "m", "m", meaning="covariance within classes, upper triangle", symmetric=True
    )
    shrinkage: float = Message.fact("weight of the identity in the covariance")
    priors: np.ndarray = Message.array("c", meaning="class probabilities")
    reference_covariance: np.ndarray = Message.array(
        "m",
        "m",
        meaning="covariance that linear maps lead to, upper triangle",
        symmetric=True,
        optional=True,
    )
    tau: float = Message.fact("strength of the linear maps")
    by_rows: bool = Message.fact("whether it is lower for clients with few samples")
    by_client: bool = Message.fact("whether each client uses its own priors")
    clients: list = Message.fact("clients that the model was fitted to")
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    def __repr__(self):
        return (
            f"MixedEffectsModel(classes={self.classes}, n_features={self.n_features}, "
            f"clients={self.clients})"
        )

    def _check_names(self):
        super()._check_names()
        if not isinstance(self.clients, list):
            raise MessageError("clients must be a list of names.")
        for client in self.clients:
            check_name("client", client)
        if len(set(self.clients)) < len(self.clients):
            raise MessageError("clients must name each client once.")

    def _check_values(self, sizes, deep):
        for name in ("class_counts", "holders", "priors"):
            if getattr(self, name).min() <= 0:
                raise MessageError(f"{name} must be positive.")
        for name in ("tau", "shrinkage"):
            check_number(name, getattr(self, name), 0, 1)
        for name in ("converged", "by_rows", "by_client"):
            if not isinstance(getattr(self, name), bool):
                raise MessageError(f"{name} must be true or false.")
        if len(self.classes) != sizes["c"]:
            raise MessageError("there are not as many classes as rows of means.")
        if self.components.min() < 0:
            raise MessageError("components must not be negative.")
        if abs(self.priors.sum() - 1) > WEIGHT_TOLERANCE:
            raise MessageError("priors must add up to 1.")
        if self.holders.max() > len(self.clients):
            raise MessageError("a class is held by more clients than there are.")
        if self.class_counts.sum() > MAX_COUNT:
            raise MessageError("class_counts add up to more rows than there can be.")
        check_covariance("the covariance", self.covariance, deep)
        if self.reference_covariance.size:
            check_covariance("the reference", self.reference_covariance, deep)
