"""Base of all federated estimators: ``fit`` is a client step and a server step."""

from contextlib import contextmanager
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ._clients import ClientAwareMixin, insert_client_column
from ._parallel import map_in_order
from ._sklearn_compat import StrOptions, _fit_context
from .trust import ClientScreen

__all__ = ["FederatedEstimator", "FederatedTransformer"]


class FederatedEstimator(ClientAwareMixin, BaseEstimator):
    """Estimator whose ``fit`` runs two public steps.

    A subclass has two methods:

    - ``client_update(X, y=None, *, classes=None, client=None)`` summarises the rows of
      one client in a :class:`~skslot.exchange.Message`. It changes nothing.
    - ``server_aggregate(messages)`` fits the estimator to the messages of all clients
      and returns it.

    ``fit`` groups the samples by client, runs the first step for each client and the
    second step once. So a search in one process evaluates what sites and a server
    compute. Client ids are passed as ``client_ids`` or are a column of X, named by the
    parameter ``client_column``.

    See Also
    --------
    skslot.classifiers.OneShotClassifier : Base of classifiers.
    skslot.utils.check_estimator : Checks that an estimator keeps the contract.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedScaler
    >>> from skslot.base import FederatedEstimator
    >>> scaler = FederatedScaler()
    >>> isinstance(scaler, FederatedEstimator)
    True
    >>> X, site = np.array([[1.0], [3.0], [8.0]]), ["A", "A", "B"]
    >>> messages = [scaler.client_update(X[:2]), scaler.client_update(X[2:])]
    >>> scaler.server_aggregate(messages).mean_ == scaler.fit(X, client_ids=site).mean_
    array([ True])
    """

    __metadata_request__fit = {"client_ids": True}
    __metadata_request__partial_fit = {"client_ids": True}

    _parameter_constraints: dict = {
        "client_column": [str, Integral, None],
        "screen": [StrOptions({"warn", "exclude"}), ClientScreen, None],
    }

    # Threads over clients, for estimators without this parameter.
    n_jobs = None

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, client_ids=None):
        """Run the client step on the rows of each client, then the server step.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all clients, in any order.
        y : array-like of shape (n_samples,), default=None
            Labels, if the estimator needs them. Client ids are not labels: pass them
            as ``client_ids``.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each sample. If None, all samples are treated as one client.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        X, y, groups = self._validate_rows(X, y, client_ids)
        columns = vars(self).get("feature_names_in_")
        with self._one_random_state():
            self.server_aggregate(self._client_updates(X, y, groups))
        if columns is not None:  # messages have no names of columns
            self.feature_names_in_ = columns
        return self

    @contextmanager
    def _one_random_state(self):
        """Make all steps of a fit draw the same numbers, also if none was chosen."""
        random_state = getattr(self, "random_state", 0)
        if isinstance(random_state, Integral):
            yield
            return
        self.random_state = check_random_state(random_state).randint(2**31 - 1)
        try:
            yield
        finally:
            self.random_state = random_state

    def _client_updates(self, X, y, groups):
        """Return the message of each client, in the order of the clients."""
        classes = None if y is None else np.unique(y)

        def update(client_rows):
            client, rows = client_rows
            labels = None if y is None else y[rows]
            return self.client_update(X[rows], labels, classes=classes, client=client)

        pairs = zip(groups.clients, groups.rows, strict=True)
        return list(map_in_order(update, pairs, self.n_jobs))


class FederatedTransformer(OneToOneFeatureMixin, TransformerMixin, FederatedEstimator):
    """Federated estimator that transforms samples, one output for each feature.

    The parameter ``keep_client_column`` states whether the output contains the column
    of client ids.

    See Also
    --------
    FederatedEstimator : Base of all federated estimators.

    Examples
    --------
    >>> from skslot import FederatedOTAligner
    >>> from skslot.base import FederatedTransformer
    >>> issubclass(FederatedOTAligner, FederatedTransformer)
    True
    """

    __metadata_request__transform = {"client_ids": True}
    __metadata_request__inverse_transform = {"client_ids": True}

    def fit_transform(self, X, y=None, client_ids=None):
        """Fit, and transform the same rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all clients.
        y : array-like of shape (n_samples,), default=None
            Labels, if they are needed.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row; handed to both ``fit`` and ``transform``.

        Returns
        -------
        X_transformed : ndarray of shape (n_samples, n_features)
            Features as ``transform`` returns them.
        """
        return self.fit(X, y, client_ids).transform(X, client_ids)

    def get_feature_names_out(self, input_features=None):
        check_is_fitted(self)
        names = super().get_feature_names_out(input_features)
        if self.client_column is None or self.keep_client_column:
            return names
        has_names = input_features is not None or hasattr(self, "feature_names_in_")
        if isinstance(self.client_column, str) and not has_names:
            raise ValueError(
                "fitted from messages, which have no names of columns; pass "
                f"input_features, with {self.client_column!r} among them."
            )
        return self._without_client_column(names)

    def _with_client_column(self, features, X):
        """Transformed features, with the column of ids of X if it is to be kept."""
        if self.client_column is None or not self.keep_client_column:
            return features
        return insert_client_column(features, X, self.client_column)

    def _check_width(self, X):
        """Refuse rows of another number of features, which the column of ids is not."""
        n_features = self.n_features_in_ - (self.client_column is not None)
        if X.shape[1] != n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but {n_features} were fitted."
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
