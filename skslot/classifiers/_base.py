"""The contract of all classifiers: a client step and a server step."""

import warnings
from numbers import Integral
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.metrics import accuracy_score
from sklearn.utils import (
    assert_all_finite,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .._base import ClientAwareMixin
from .._clients import REMEDY, ClientGroups, check_client_name
from ..exchange._features import check_same_features


class Communication(NamedTuple):
    """Bytes that one client sent and received.

    Parameters
    ----------
    up : int
        Bytes from the client to the server.
    down : int
        Bytes from the server to the client.

    See Also
    --------
    skslot.FedCGSClassifier : Has one per client in ``communication_``.

    Examples
    --------
    >>> from skslot.classifiers import Communication
    >>> Communication(up=2000, down=500)
    Communication(up=2000, down=500)
    """

    up: int
    down: int


class OneShotClassifier(ClientAwareMixin, ClassifierMixin, BaseEstimator):
    """A classifier whose ``fit`` is a client step per client and one server step.

    A subclass has ``client_update(X, y, classes=None, client=None) -> message``,
    ``server_aggregate(messages) -> self``, which sets ``classes_``, ``n_features_in_``
    and ``communication_``, and ``_scores(X)``, decision scores of shape (n_samples,
    n_classes) for rows whose clients were taken care of by ``_features(X, groups)``.
    """

    __metadata_request__fit = {"client_ids": True}
    __metadata_request__predict = {"client_ids": True}
    __metadata_request__predict_proba = {"client_ids": True}
    __metadata_request__predict_log_proba = {"client_ids": True}
    __metadata_request__decision_function = {"client_ids": True}
    __metadata_request__score = {"client_ids": True}

    # How clients run side by side: "threads" where the work is in BLAS.
    _prefer = "threads"

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, client_ids=None):
        """Run the client step on each client, then the server step.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all clients, in any order.
        y : array-like of shape (n_samples,)
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row; without any ids all rows are one client.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        X, y, groups = self._read_training_rows(X, y, client_ids)
        self._fit_seed = self._draw_seed()
        return self.server_aggregate(self._client_messages(X, y, groups))

    def predict(self, X, client_ids=None):
        """Most likely class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; only needed when the classifier aligns by itself.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Predicted labels.
        """
        best = self._all_scores(X, client_ids).argmax(axis=1)
        return self.classes_[best]

    def decision_function(self, X, client_ids=None):
        """Score of each class, or of the second one when there are two.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; only needed when the classifier aligns by itself.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes) or (n_samples,)
            Log-probabilities up to a constant per row; for two classes their
            difference.
        """
        scores = self._all_scores(X, client_ids)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X, client_ids=None):
        """Probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; only needed when the classifier aligns by itself.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            One column per entry of ``classes_``.
        """
        return softmax(self._all_scores(X, client_ids), axis=1)

    def predict_log_proba(self, X, client_ids=None):
        """Logarithm of the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; only needed when the classifier aligns by itself.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            One column per entry of ``classes_``.
        """
        return log_softmax(self._all_scores(X, client_ids), axis=1)

    def score(self, X, y, sample_weight=None, client_ids=None):
        """Mean accuracy.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; only needed when the classifier aligns by itself.

        Returns
        -------
        accuracy : float
            Share of rows whose label was predicted.
        """
        predicted = self.predict(X, client_ids)
        return accuracy_score(y, predicted, sample_weight=sample_weight)

    def _read_training_rows(self, X, y, client_ids):
        self._refuse_one_id_for_all(client_ids)
        if client_ids is None and self.client_column is None and self._ids_matter():
            warnings.warn(
                f"fitted without client_ids: all rows are one client. {REMEDY} An "
                "aligner before this classifier hands its column on with "
                "keep_client_column=True.",
                stacklevel=4,
            )
        X, groups = self._read_rows(X, client_ids, reset=True)
        y = self._check_labels(y, X)
        check_classification_targets(y)
        return X, y, groups

    def _ids_matter(self):
        """Whether the classifier depends on which rows are of one client."""
        return True

    def _check_labels(self, y, X):
        """One label per row of X, as a 1-D array."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_consistent_length(X, y)
        return y

    def _client_messages(self, X, y, groups):
        """Messages of all clients, in their order, with progress if asked for."""
        classes = np.unique(y)
        run = Parallel(n_jobs=self.n_jobs, prefer=self._prefer, return_as="generator")
        jobs = (
            delayed(self.client_update)(X[rows], y[rows], classes, client)
            for client, rows in zip(groups.clients, groups.rows, strict=True)
        )
        messages = []
        for client, message in zip(groups.clients, run(jobs), strict=True):
            messages.append(message)
            self._say(f"client {client!r} done ({len(messages)}/{len(groups.clients)})")
        return messages

    def _say(self, text):
        if self.verbose:
            print(f"[{type(self).__name__}] {text}", flush=True)

    def _client_rows(self, X, y, classes, client):
        """Checked arrays of one client; labels outside of ``classes`` are refused."""
        self._validate_params()
        check_client_name(client)
        X = self._read_client(X, client)
        y = self._check_labels(y, X)
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

    def _seed(self):
        """One number for all steps of a fit.

        All clients get the same one, and when ``random_state`` is an int, steps called
        by hand get that of ``fit``.
        """
        if isinstance(self.random_state, Integral):
            return self._draw_seed()
        return vars(self).get("_fit_seed") or self._draw_seed()

    def _draw_seed(self):
        random_state = getattr(self, "random_state", 0)
        return int(check_random_state(random_state).randint(1, 2**31 - 1))

    def _all_scores(self, X, client_ids):
        return self._scores(self._prediction_features(X, client_ids))

    def _prediction_features(self, X, client_ids):
        check_is_fitted(self)
        X, groups = self._read_rows(X, client_ids, reset=False)
        return self._features(X, groups)

    def _features(self, X, groups):
        return X

    def _groups_without_ids(self, n_samples):
        return ClientGroups.single(None, n_samples)


def check_kind(messages, expected):
    """A list of messages of the same kind, on the same features."""
    messages = list(messages)
    if not messages:
        raise ValueError("messages is empty: there is no client to learn from.")
    for message in messages:
        if not isinstance(message, expected):
            raise TypeError(
                f"messages must be {expected.__name__}, got a {type(message).__name__};"
                f" bytes are read by {expected.__name__}.from_bytes."
            )
    return list(check_same_features(messages))
