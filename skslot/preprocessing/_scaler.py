"""FederatedScaler: standardisation by the moments of all clients."""

from dataclasses import replace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._docstrings import document
from .._sklearn_compat import _fit_context
from ..base import (
    FederatedTransformer,
    delete_client_name,
    split_client_column,
)
from ..exchange import ColumnStatistics, feature_fingerprint, receive
from ..statistics import column_moments, is_constant
from ..trust import ClientScreen


@document
class FederatedScaler(FederatedTransformer):
    """Standardize features by the mean and variance of the samples of all clients.

    For each feature, every client sends the number of values, their mean, and the sum
    of squared distances from the mean. The server merges them exactly. The result
    equals :class:`~sklearn.preprocessing.StandardScaler` on the pooled samples of all
    clients.

    Read more in the :doc:`User Guide </user_guide/preprocessing>`.

    Parameters
    ----------
    with_mean : bool, default=True
        Whether to subtract the mean.
    with_std : bool, default=True
        Whether to divide by the standard deviation.
    {client_column}
    keep_client_column : bool, default=True
        Whether the output contains the column of client ids, in its original position.
        The default differs from aligners because a later step usually needs the ids.
    {screen}
        Here, its ``max_share`` must be None.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,) or None
        Mean of each feature. None if ``with_mean=False`` and ``with_std=False``.
    var_ : ndarray of shape (n_features,) or None
        Variance of each feature. None if ``with_std=False``.
    scale_ : ndarray of shape (n_features,) or None
        Divisor of each feature, which is 1 for constant features. None if
        ``with_std=False``.
    n_samples_seen_ : int or ndarray of shape (n_features,)
        Number of samples. An array with the number of values of each feature if these
        differ because of missing values.
    statistics_ : ColumnStatistics
        Message of the server.
    {clients_report_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    sklearn.preprocessing.StandardScaler : Equivalent on pooled samples.
    FederatedOTAligner : Also reduces differences between clients.

    Notes
    -----
    All clients are scaled alike, so differences between clients remain. Missing values
    (NaN) are ignored in ``fit`` and stay missing in ``transform``. Impute them later,
    or before by a rule that all clients share. Features whose variance is explained by
    rounding are treated as constant and not divided, as in
    :class:`~sklearn.preprocessing.StandardScaler`.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedScaler
    >>> X = np.array([[50.0, 1.0], [60.0, 3.0], [70.0, np.nan], [80.0, 5.0]])
    >>> site = ["A", "A", "B", "B"]
    >>> scaler = FederatedScaler().fit(X, client_ids=site)
    >>> scaler.mean_, scaler.n_samples_seen_
    (array([65.,  3.]), array([4, 3]))

    The same in two steps, as run at the sites and the server:

    >>> messages = [scaler.client_update(X[:2]), scaler.client_update(X[2:])]
    >>> answer = FederatedScaler().server_aggregate(messages).statistics_
    >>> FederatedScaler().server_aggregate([answer]).transform(X[2:])
    array([[0.4472136 ,        nan],
           [1.34164079, 1.22474487]])
    """

    _parameter_constraints: dict = {
        "with_mean": ["boolean"],
        "with_std": ["boolean"],
        **FederatedTransformer._parameter_constraints,
    }

    def __init__(
        self,
        *,
        with_mean=True,
        with_std=True,
        client_column=None,
        keep_client_column=True,
        screen="warn",
    ):
        self.with_mean = with_mean
        self.with_std = with_std
        self.client_column = client_column
        self.keep_client_column = keep_client_column
        self.screen = screen

    # ------------------------------------------------------- the steps, one by one

    def client_update(self, X, y=None, *, classes=None, client=None):
        """Run the client step: summarize the samples of one client.

        It needs no fitted estimator and has no side effects. ``fit`` calls it for each
        client.

        Parameters
        ----------
        {X}
            They must not contain the client column.
        y : array-like of shape (n_samples,), default=None
            Ignored.
        classes : array-like of shape (n_classes,), default=None
            Ignored.
        {client}

        Returns
        -------
        statistics : ColumnStatistics
            Message to the server.
        """
        self._validate_params()
        return _summarize(self._read_client(X, client), client)

    def server_aggregate(self, messages):
        """Run the server step: fit the scaler to the messages of all clients.

        Parameters
        ----------
        messages : iterable of ColumnStatistics
            One message per client. At a client, only the message of the server.

        Returns
        -------
        self : object
            Fitted scaler. Its ``statistics_`` are the message to all clients.
        """
        self._validate_params()
        received = self._receive(messages)
        self._learn(received)
        n_features = received.senders[0].n_features
        self.n_features_in_ = n_features + (self.client_column is not None)
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, client_ids=None):
        """Update the scaler with more samples.

        The result after several chunks equals ``fit`` on all of them.

        Parameters
        ----------
        {X}
        y : array-like of shape (n_samples,), default=None
            Ignored.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each sample. The result does not depend on it.

        Returns
        -------
        self : object
            Updated scaler.
        """
        known = {}
        if hasattr(self, "_received"):
            received = self._received.messages
            known = {message.client: message for message in received}
        X, _, groups = self._validate_rows(X, None, client_ids, reset=not known)
        self._check_width(X)
        for added in self._client_updates(X, None, groups):
            client = added.client
            if client in known:
                joined = ColumnStatistics.joined([known[client], added])
                added = replace(joined, client=client)
            known[client] = added
        received = self._receive(list(known.values()))
        self._learn(received)
        return self

    # ------------------------------------------------------------- transforming

    def transform(self, X, client_ids=None):
        """Standardize samples.

        Parameters
        ----------
        {X}
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Ignored, as all clients are scaled alike.

        Returns
        -------
        X_scaled : ndarray of shape (n_samples, n_features)
            Standardized features, in the precision of X.
        """
        check_is_fitted(self)
        rows, _ = self._read_rows(X, client_ids, reset=False)
        self._check_width(rows)
        scaled = rows.copy()
        if self.with_mean:
            scaled -= self.mean_
        if self.with_std:
            scaled /= self.scale_
        return self._with_client_column(scaled, X)

    def inverse_transform(self, X, client_ids=None):
        """Convert standardized samples to their original units.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Standardized features returned by ``transform``, with or without the client
            column.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Ignored.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            Features in original units, without the client column.
        """
        check_is_fitted(self)
        has_column = self.client_column is not None and self.keep_client_column
        if has_column and np.shape(X)[1:] == (self.n_features_in_,):
            X, _, _ = split_client_column(X, self.client_column, client_ids)
        rows = self._check_features(X)
        self._check_width(rows)
        original = rows.copy()
        if self.with_std:
            original *= self.scale_
        if self.with_mean:
            original += self.mean_
        return original

    # ------------------------------------------------------------------ helpers

    _ids_matter = False

    def _client_updates(self, X, y, groups):
        messages = super()._client_updates(X, y, groups)
        names = self._names_of_features()
        if names is None:
            return messages
        # so that a warning of other units names the column
        fingerprint = feature_fingerprint(names)
        return [message.with_encoder(fingerprint) for message in messages]

    def _receive(self, messages):
        if ClientScreen.of(self.screen).max_share is not None:
            raise ValueError(
                "FederatedScaler does not limit the share of one client. Set max_share "
                "of the screen to None."
            )
        return receive(messages, ColumnStatistics, screen=self.screen)

    def _learn(self, received):
        """Join the messages of all clients but those that are excluded."""
        statistics = ColumnStatistics.joined(received)
        self._received, self.clients_report_ = received, received.clients_report
        counts, means, squares = statistics.moments
        with np.errstate(invalid="ignore"):
            variances = squares / counts
        means = np.where(counts > 0, means, np.nan)
        self.statistics_ = statistics
        self.n_samples_seen_ = counts if np.ptp(counts) else int(counts[0])
        self.mean_ = means if self.with_mean or self.with_std else None
        self.var_ = variances if self.with_std else None
        self.scale_ = _scale(counts, means, variances) if self.with_std else None

    def _names_of_features(self):
        """Names of the features, if rows came with names."""
        names = getattr(self, "feature_names_in_", None)
        if names is None or self.client_column is None:
            return None if names is None else list(names)
        return list(delete_client_name(names, self.client_column))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _summarize(X, client):
    return ColumnStatistics(len(X), *column_moments(X), client)


def _scale(counts, means, variances):
    """Standard deviations; 1 where rounding explains all of the variance."""
    constant = is_constant(variances, means, counts)
    return np.where(constant, 1.0, np.sqrt(variances))
