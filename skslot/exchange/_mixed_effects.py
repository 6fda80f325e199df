"""What the server sends back for mixed effects: one model for all clients."""

import numpy as np

from ._message import (
    MAX_COUNT,
    WEIGHT_TOLERANCE,
    Message,
    check_counts,
    check_covariance,
    check_name,
    check_number,
)
from ._wire import MessageError


class MixedEffectsModel(Message):
    """One message for all clients: how classes look, and how clients differ from it.

    A client derives its own map and its own classifier from it and from the statistics
    that it had sent; so can one that joins later. Usually made by
    :meth:`skslot.MixedEffectsClassifier.shared_model`.

    Parameters
    ----------
    classes : list
        Labels.
    class_counts : ndarray of shape (n_classes,)
        Rows of each class at all clients.
    holders : ndarray of shape (n_classes,)
        Number of clients that hold each class.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class over clients, without their offsets.
    effects : ndarray of shape (n_classes, n_features)
        Mean of each class as the model predicts it, which offsets are relative to.
    covariance : ndarray of shape (n_features, n_features)
        Covariance within classes. Its upper triangle is sent.
    components : ndarray of shape (3,)
        Variance of client, class and interaction effects, in units of that within
        classes.
    priors : ndarray of shape (n_classes,)
        Class probabilities.
    reference_covariance : ndarray of shape (n_features, n_features) or (0,)
        Covariance that linear maps lead to; empty without maps.
    strength : float
        Strength of the linear maps.
    by_rows : bool
        Whether it is less for clients with few rows, as with ``tau="auto"``.
    by_client : bool
        Whether class probabilities are those of each client.
    clients : list
        Names of the clients that the model was learned from.
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.

    See Also
    --------
    ClassStatistics : What the clients sent.
    LinearModel : What a client makes of it.

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

    classes: list = Message.fact("labels")
    class_counts: np.ndarray = Message.array(
        "c", kinds="i", meaning="rows of each class at all clients"
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
    covariance: np.ndarray = Message.array(
        "m", "m", meaning="covariance within classes, upper triangle", symmetric=True
    )
    components: np.ndarray = Message.array(
        3, meaning="variance of client, class and interaction effects"
    )
    priors: np.ndarray = Message.array("c", meaning="class probabilities")
    reference_covariance: np.ndarray = Message.array(
        "m",
        "m",
        meaning="covariance that linear maps lead to, upper triangle",
        symmetric=True,
        optional=True,
    )
    strength: float = Message.fact("strength of the linear maps")
    by_rows: bool = Message.fact("whether it is less for clients with few rows")
    by_client: bool = Message.fact("whether class probabilities are those of a client")
    clients: list = Message.fact("clients that the model was learned from")
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
        for name in ("class_counts", "holders"):
            check_counts(name, getattr(self, name), least=1)
        check_number("strength", self.strength, 0, 1)
        for name in ("by_rows", "by_client"):
            if not isinstance(getattr(self, name), bool):
                raise MessageError(f"{name} must be true or false.")
        if len(self.classes) != sizes["c"]:
            raise MessageError("there are not as many classes as rows of means.")
        if self.components.min() < 0:
            raise MessageError("components must not be negative.")
        if self.priors.min() <= 0 or abs(self.priors.sum() - 1) > WEIGHT_TOLERANCE:
            raise MessageError("priors must be positive and add up to 1.")
        if self.holders.max() > len(self.clients):
            raise MessageError("a class is held by more clients than there are.")
        if (self.class_counts < self.holders).any():
            raise MessageError("a class has fewer rows than clients that hold it.")
        if self.class_counts.sum(dtype=np.float64) > MAX_COUNT:
            raise MessageError("class_counts add up to more rows than there can be.")
        check_covariance("the covariance", self.covariance, deep)
        if self.reference_covariance.size:
            check_covariance("the reference", self.reference_covariance, deep)
