"""The message of federated preprocessing."""

from numbers import Integral

import numpy as np

from ..statistics import ColumnMoments, merge_column_moments
from ._message import MAX_COUNT, Message, check_counts, check_number, check_variances
from ._wire import MessageError


class ColumnStatistics(Message):
    """How many values each feature has, their mean and how they spread.

    What one client sends for features to be standardized and, from the rows of all
    clients, what the server sends back. Usually made by
    :meth:`skslot.FederatedScaler.client_update` and
    :meth:`skslot.FederatedScaler.server_aggregate`.

    Parameters
    ----------
    n_samples : int
        Number of rows.
    n_values : ndarray of shape (n_features,)
        Values of each feature that are not missing.
    means : ndarray of shape (n_features,)
        Their mean; 0 where there are none.
    squares : ndarray of shape (n_features,)
        Sum of their squared distances from that mean.
    client : object, default=None
        Name of the client; None for all clients together.
    encoder : str, default=None
        Fingerprint of what made the features, see :meth:`with_encoder`.

    See Also
    --------
    skslot.FederatedScaler : Makes these and uses them.

    Notes
    -----
    It has three numbers per feature, so that float64 costs next to nothing: save it by
    ``message.save(path, "float64")`` for a result that is exact.

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
        """Message on the rows of several messages together.

        Parameters
        ----------
        messages : iterable of ColumnStatistics
            At least one, on the same features.

        Returns
        -------
        statistics : ColumnStatistics
            What one client with all of these rows would have sent, but for rounding.
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
        """The numbers in it, as they are computed with."""
        counts = self.n_values.astype(np.int64)
        return ColumnMoments(counts, self.means, self.squares)

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
