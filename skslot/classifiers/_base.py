"""The contract of all classifiers: a client step and a server step."""

from copy import copy
from dataclasses import replace
from numbers import Integral

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._docstrings import document
from .._sklearn_compat import HasMethods, InvalidParameterError
from .._utils import map_in_order, shorten
from ..base import (
    FederatedEstimator,
    check_classes_agreed,
    check_client_name,
    only_client,
    reasons_for_exclusion,
    refuse_lost_labels,
    refuse_without_noise,
)
from ..exchange import (
    AlignedModel,
    AlignmentReference,
    ClientStatistics,
    LinearModel,
    receive,
)
from ..statistics import floor_shrinkage, noisy_shrinkage


@document
class OneShotClassifier(ClassifierMixin, FederatedEstimator):
    """Base class of federated classifiers.

    A subclass has an attribute ``message_type``, the class of its messages, and two
    methods:

    - ``_summarize(X, y, classes, client, seed)`` returns the message for the samples of
      one client, whose labels are among ``classes``.
    - ``_learn(messages, seed)`` sets ``classes_``, ``coef_`` and ``intercept_``. A
      classifier that is not linear defines ``_scores(X)`` instead of the last two. It
      returns decision scores of shape (n_samples, n_classes).

    Messages can be iterated several times, but are read one at a time because they may
    not fit in memory together. The ``seed`` is the same in all steps of a fit. The base
    class provides ``fit``, the two steps as public methods, both ways to pass client
    ids, checks, predictions and ``clients_report_``.

    Parameters
    ----------
    {client_column}
    {screen}
    {n_jobs}
    {verbose}

    See Also
    --------
    skslot.exchange.Message : Base of messages.
    skslot.utils.check_estimator : Checks that a subclass keeps the contract.

    Examples
    --------
    A classifier that always predicts the most frequent class of all clients:

    >>> import numpy as np
    >>> from skslot.classifiers import OneShotClassifier
    >>> from skslot.exchange import Message
    >>> class ClassCounts(Message):
    ...     kind = "class counts"
    ...     classes: list = Message.fact("labels")
    ...     counts: np.ndarray = Message.array("c", kinds="i", meaning="rows of each")
    ...     n_features: int = Message.fact("number of features")
    ...     client: object = Message.fact("name of the client", default=None)
    ...     encoder: str | None = Message.fact("what made the features", default=None)
    >>> class MajorityClassifier(OneShotClassifier):
    ...     message_type = ClassCounts
    ...     _ids_matter = False
    ...
    ...     def _summarize(self, X, y, classes, client, seed):
    ...         counts = np.array([np.sum(y == label) for label in classes])
    ...         return ClassCounts(classes.tolist(), counts, X.shape[1], client)
    ...
    ...     def _learn(self, messages, seed):
    ...         totals = {}
    ...         for message in messages:
    ...             for label, n in zip(message.classes, message.counts):
    ...                 totals[label] = totals.get(label, 0) + n
    ...         self.classes_ = np.unique(list(totals))
    ...         self.coef_ = np.zeros((len(totals), message.n_features))
    ...         self.intercept_ = np.log([totals[c] for c in self.classes_.tolist()])
    >>> X, y = np.zeros((5, 2)), np.array(["a", "b", "b", "b", "a"])
    >>> MajorityClassifier().fit(X, y).predict(X[:2])
    array(['b', 'b'], dtype='<U1')
    """

    __metadata_request__predict = {"client_ids": True}
    __metadata_request__predict_proba = {"client_ids": True}
    __metadata_request__predict_log_proba = {"client_ids": True}
    __metadata_request__decision_function = {"client_ids": True}
    __metadata_request__score = {"client_ids": True}

    _parameter_constraints: dict = {
        **FederatedEstimator._parameter_constraints,
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    _needs_labels = True

    def __init__(
        self,
        *,
        client_column=None,
        screen="warn",
        n_jobs=None,
        verbose=0,
    ):
        self.client_column = client_column
        self.screen = screen
        self.n_jobs = n_jobs
        self.verbose = verbose

    def client_update(self, X, y=None, *, classes=None, client=None):
        """Run the client step: summarize the samples of one client.

        It needs no fitted estimator and has no side effects. ``fit`` calls it for each
        client.

        Parameters
        ----------
        {X}
        {y}
            Required.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur. If None, the labels in ``y``. Required with
            ``privacy``.
        {client}

        Returns
        -------
        message : Message
            Message to the server, such as :class:`~skslot.exchange.ClassStatistics` for
            ``FedCGSClassifier``.
        """
        self._validate_params()
        return self._make_message(X, y, classes, client, self._draw_seed())

    def server_aggregate(self, messages):
        """Run the server step: fit the classifier to one message per client.

        Parameters
        ----------
        messages : iterable of Message
            Messages of the clients. An iterable that can be restarted, such as the
            result of :func:`~skslot.exchange.load_messages`, is read several times
            instead of being held in memory. With an aligner, clients without labels can
            send :class:`~skslot.exchange.ClientStatistics`.

        Returns
        -------
        self : object
            Fitted classifier.
        """
        self._validate_params()
        fitted = copy(self)  # which stays as it was if this fails
        fitted._aggregate(messages, self._draw_seed())
        vars(fitted).pop("feature_names_in_", None)  # of an earlier fit
        vars(self).clear()
        vars(self).update(vars(fitted))
        return self

    def linear_model(self):
        """Return the linear classifier for aligned features, as a message.

        Only available if the classifier is linear.

        Returns
        -------
        model : LinearModel
            Weights for all clients. :meth:`client_model` returns weights for features
            of one client that are not aligned.
        """
        check_is_fitted(self)
        head, classes = getattr(self, "estimator_", self), self.classes_.tolist()
        if hasattr(head, "coef_"):
            coef = head.coef_
            intercept = np.reshape(head.intercept_, len(coef))
        elif len(classes) == 1:
            n_features = self.n_features_in_ - (self.client_column is not None)
            coef, intercept = np.zeros((1, n_features)), np.zeros(1)
        else:
            raise ValueError(
                f"{type(head).__name__} has no coef_, so it is no linear model; choose "
                "a linear one to send it."
            )
        return LinearModel(classes, coef, intercept, encoder=self._encoder)

    def shared_model(self):
        """Return the message that the server sends to all clients.

        Only available if the classifier is linear.

        Returns
        -------
        model : LinearModel, AlignedModel or MixedEffectsModel
            Classifier, with the reference or the mixed-effects model if features are
            aligned. Clients derive their own alignment from it.
        """
        return self.linear_model()

    def client_model(self, client):
        """Return the linear classifier for features of one client before alignment.

        Only available if the classifier is linear.

        Parameters
        ----------
        client : object
            Id of the client.

        Returns
        -------
        model : LinearModel
            Weights that include the alignment of the client.
        """
        return replace(self.linear_model(), client=client)

    def predict(self, X, client_ids=None):
        """Predict the most likely class of each sample.

        Parameters
        ----------
        {X}
        {client_ids}

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Predicted labels.
        """
        best = self._all_scores(X, client_ids).argmax(axis=1)
        return self.classes_[best]

    def decision_function(self, X, client_ids=None):
        """Compute the score of each class, or of the second of two classes.

        Parameters
        ----------
        {X}
        {client_ids}

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes) or (n_samples,)
            Log-probabilities up to a constant per sample. For two classes, their
            difference. For ``FedPFTClassifier``, the scores of its estimator.
        """
        scores = self._all_scores(X, client_ids)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X, client_ids=None):
        """Predict the probability of each class.

        Parameters
        ----------
        {X}
        {client_ids}

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            One column per entry of ``classes_``.
        """
        return softmax(self._all_scores(X, client_ids), axis=1)

    def predict_log_proba(self, X, client_ids=None):
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        {X}
        {client_ids}

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            One column per entry of ``classes_``.
        """
        return log_softmax(self._all_scores(X, client_ids), axis=1)

    def score(self, X, y, sample_weight=None, client_ids=None):
        """Compute the mean accuracy.

        Parameters
        ----------
        {X}
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each sample.
        {client_ids}

        Returns
        -------
        accuracy : float
            Fraction of correct predictions.
        """
        predicted = self.predict(X, client_ids)
        return accuracy_score(y, predicted, sample_weight=sample_weight)

    def _client_rows(self, X, y, classes, client):
        """Checked arrays of one client; labels outside of ``classes`` are refused."""
        check_classes_agreed(self, classes, client)
        X = self._read_client(X, client)
        y = self._check_labels(y, X)
        if classes is not None:
            refuse_lost_labels(classes, "classes")
        classes = np.unique(y) if classes is None else column_or_1d(classes)
        if len(np.unique(classes)) < len(classes):
            raise ValueError("classes must name each label once; pass np.unique(y).")
        strangers = np.setdiff1d(y, classes)
        if len(strangers):
            raise ValueError(
                f"client {client!r} has labels {strangers.tolist()} that are not among "
                f"the classes {classes.tolist()}."
            )
        return X, y, classes

    def _make_message(self, X, y, classes, client, seed):
        rows = self._client_rows(X, y, classes, client)
        return self._summarize(*rows, client, seed)

    def _aggregate(self, messages, seed):
        received = self._receive(messages, *self._allowed_messages())
        self._learn(received, seed)
        self.clients_report_ = received.clients_report
        first = received.senders[0]
        self._encoder = first.encoder
        self.n_features_in_ = first.n_features + (self.client_column is not None)
        self._prepare_models(received)
        return self

    def _receive(self, messages, *kinds):
        return receive(
            messages,
            *kinds,
            screen=self.screen,
        )

    def _draw_seed(self):
        """One number for all steps of a fit, the same at all clients if it is set."""
        random_state = getattr(self, "random_state", 0)
        return int(check_random_state(random_state).randint(1, 2**31 - 1))

    def _allowed_messages(self):
        """Kinds of message that the server step takes."""
        return (self.message_type,)

    def _prepare_models(self, messages):
        """Make what is sent to each client, if it is not the same for all."""

    def _all_scores(self, X, client_ids):
        return self._scores_by_client(*self._prediction_rows(X, client_ids))

    def _prediction_rows(self, X, client_ids):
        check_is_fitted(self)
        return self._read_rows(X, client_ids, reset=False)

    def _scores_by_client(self, X, groups):
        return self._scores(X)

    def _scores(self, X):
        return X @ self.coef_.T + self.intercept_


# ------------------------------------------------------------------ aligned


class ClientModelsMixin:
    """For classifiers that have a fitted ``aligner_``: each client has its own map."""

    @property
    def _is_aligned(self):
        return hasattr(self, "aligner_")

    def client_model(self, client):
        if not self._is_aligned:
            return super().client_model(client)
        check_client_name(client, needed=True)
        clients = self.aligner_.clients_.tolist()
        if client not in clients:
            raise ValueError(
                reasons_for_exclusion(self, [client])
                or f"client {client!r} sent no message; {shorten(clients)} did."
            )
        return self._folded_model(client)

    def _folded_model(self, client):
        """The classifier for samples of a client that was fitted, as they are."""
        return self._fold(self.aligner_.maps_[client], client)

    def _fold(self, client_map, client):
        return self.linear_model().pulled_back(*client_map.affine, client)

    def _align(self, X, groups):
        """Align samples, if the classifier was fitted with an aligner."""
        if not self._is_aligned:
            return X
        ids = None if groups.clients == [None] else groups.ids()
        return self.aligner_.transform(X, client_ids=ids)

    def _scores_by_client(self, X, groups):
        return self._scores(self._align(X, groups))

    def _groups_without_ids(self, n_samples):
        if self._is_aligned:
            return only_client(self.aligner_.clients_.tolist(), n_samples)
        return super()._groups_without_ids(n_samples)


class FoldedHeadsMixin(ClientModelsMixin):
    """For linear ones of these: the map of each client is folded into the weights."""

    def _prepare_models(self, messages):
        self._heads = {}
        if self._is_aligned and not messages.in_memory:  # files may be gone later
            clients = self.aligner_.clients_.tolist()
            fold = super()._folded_model
            heads = map_in_order(fold, clients, self.n_jobs)
            self._heads = dict(zip(clients, heads, strict=True))

    def _folded_model(self, client):
        if client not in self._heads:
            self._heads[client] = super()._folded_model(client)
        return self._heads[client]

    def _scores_by_client(self, X, groups):
        if not self._is_aligned:
            return self._scores(X)
        known = set(self.aligner_.clients_.tolist())
        aligned = None
        if not known.issuperset(groups.clients):
            aligned = self._align(X, groups)
        scores = np.empty((len(X), len(self.classes_)))
        for client, rows in zip(groups.clients, groups.rows, strict=True):
            if client in known:
                model = self._folded_model(client)
                scores[rows] = X[rows] @ model.coef.T + model.intercept
            else:
                scores[rows] = self._scores(aligned[rows])
        return scores


# Public methods of an aligner, see FederatedAligner.
ALIGNER_METHODS = [
    "client_map",
    "client_update",
    "get_params",
    "server_aggregate",
    "transform",
]


class AlignedClassifierMixin(ClientModelsMixin):
    """For classifiers with a parameter ``aligner``, which reads the same messages.

    The messages, of ``message_type``, have a method ``client_statistics()``. Clients
    without labels send :class:`~skslot.exchange.ClientStatistics` instead. They count
    in the reference and get a map too. ``_fit_aligner`` sets ``aligner_`` if there is
    an aligner. See :class:`~skslot.alignment.FederatedAligner` for what an aligner is.
    """

    _aligner_constraint = [HasMethods(ALIGNER_METHODS), None]

    def add_client(self, X, client):
        """Compute the map of a client that joins after ``fit``.

        Only available with ``aligner``. The classifier, the reference and all other
        clients remain unchanged.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled features of the new client, with or without the client column.
        client : object
            Id of the new client.

        Returns
        -------
        self : object
            Updated classifier.
        """
        check_is_fitted(self)
        refuse_without_noise(self, "add_client")
        if not self._is_aligned:
            raise ValueError(
                "without aligner all clients get the same classifier: there is nothing "
                "to add."
            )
        X = self._read_client(X, client, fitted=True)
        self.aligner_.add_client(X, client)
        return self

    def shared_model(self):
        if not self._is_aligned:
            return super().shared_model()
        aligner = self.aligner_
        if not isinstance(aligner.reference_, AlignmentReference):
            raise ValueError(
                f"no message holds this classifier and what {type(aligner).__name__} "
                "aligns to; send client_model(client) to each client."
            )
        return AlignedModel.of(self.linear_model(), aligner.reference_, aligner.tau_)

    def _fit_aligner(self, messages):
        """Fit ``aligner_`` to the messages, if there is an aligner."""
        vars(self).pop("aligner_", None)  # of an earlier fit
        if self.aligner is None:
            return
        aligner = clone(self.aligner)
        aligner.server_aggregate(messages.for_aligner())
        clients = getattr(aligner, "maps_", ())
        lacking = [name for name in messages.names if name not in clients]
        if lacking:
            raise TypeError(
                f"aligner: after server_aggregate, maps_ of {type(aligner).__name__} "
                f"lacks client {shorten(lacking)}; see skslot.alignment."
                "FederatedAligner."
            )
        if not any(sender.has_labels for sender in messages.senders):
            raise ValueError("no client sent labels: there is nothing to learn from.")
        self.aligner_ = aligner

    def _aligned_messages(self, messages, push):
        """Messages with labels, of aligned samples: ``push`` maps one message."""

        def aligned(pair):
            message, client_map = pair
            return message if client_map is None else push(message, *client_map.affine)

        return map_in_order(aligned, self._with_maps(messages), self.n_jobs)

    def _with_maps(self, messages):
        """Messages with labels, and the maps of their clients, None if not aligned."""
        maps = self.aligner_.maps_ if self._is_aligned else None
        for message in self._labelled(messages):
            yield message, None if maps is None else maps[message.client]

    def _labelled(self, messages):
        return (each for each in messages if isinstance(each, self.message_type))

    def _part_for_alignment(self, moments):
        """Sample covariance and, with an aligner that has one, its shrinkage."""
        covariance, method = moments.sample_covariance(), self._shrinkage_of_aligner
        if method is None:
            return covariance, np.empty(0)
        coefficient = moments.shrinkage(method)
        return covariance, np.array([floor_shrinkage(covariance, coefficient)])

    @property
    def _shrinkage_of_aligner(self):
        """Parameter ``shrinkage`` of the aligner, None if there is none."""
        return getattr(self.aligner, "shrinkage", None)

    @property
    def _noisy_shrinkage(self):
        return noisy_shrinkage(self._shrinkage_of_aligner)

    def _validate_params(self):
        missing = [n for n in ALIGNER_METHODS if not hasattr(self.aligner, n)]
        if isinstance(self.aligner, type):
            raise InvalidParameterError(
                f"The 'aligner' parameter of {type(self).__name__} must be an "
                f"instance, such as {self.aligner.__name__}(), not a class."
            )
        if self.aligner is not None and missing:
            raise InvalidParameterError(
                f"The 'aligner' parameter of {type(self).__name__} must be an object "
                f"implementing {', '.join(ALIGNER_METHODS)} or None, see "
                f"skslot.alignment.FederatedAligner. Got {self.aligner!r} instead, "
                f"which lacks {', '.join(missing)}."
            )
        super()._validate_params()
        for name in ("privacy", "client_column"):
            if getattr(self.aligner, name, None) is not None:
                raise ValueError(
                    f"{name} is set on the aligner inside the classifier, which has no "
                    "use for it there. Set it on the classifier, whose one message "
                    "serves both."
                )

    def _allowed_messages(self):
        without_labels = () if self.aligner is None else (ClientStatistics,)
        return *super()._allowed_messages(), *without_labels
