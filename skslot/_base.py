"""What all estimators that know their clients have in common."""

import warnings

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from ._clients import (
    REMEDY,
    ClientGroups,
    assert_finite_by_client,
    is_single_id,
    split_client_column,
)

# One memory layout for all, so that results do not depend on that of X, to the last
# bit. Whether X is finite is checked when it is known whose rows are not.
FEATURES = {
    "dtype": (np.float64, np.float32),
    "order": "C",
    "ensure_all_finite": False,
}


class ClientAwareMixin:
    """Reads rows together with their clients, by either of two routes.

    Ids are passed as ``client_ids`` or are the column ``client_column`` of X. The
    estimator has a ``client_column`` parameter and, if it can do without ids once it
    is fitted, overrides ``_groups_without_ids``.
    """

    def _read_rows(self, X, client_ids, *, reset, adding=False, y=None):
        """Features and the rows of each client, checked.

        ``reset`` forgets earlier rows, ``adding`` is for rows to learn from either way.
        """
        if self.client_column is None:
            X = validate_data(self, X, reset=reset, **FEATURES)
        else:
            validate_data(self, X, reset=reset, skip_check_array=True)
            X, client_ids, position = self._read_client_column(X, client_ids)
            if reset:
                self._client_position = position
        if client_ids is not None:
            groups = ClientGroups.from_ids(client_ids, len(X))
        elif reset or adding:
            groups = ClientGroups.single(None, len(X))
            if reset and y is not None:
                warnings.warn(
                    "fitted without client_ids: y was not taken as ids, all rows are "
                    f"one client. {REMEDY}",
                    stacklevel=3,
                )
        else:
            groups = self._groups_without_ids(len(X))
        assert_finite_by_client(X, groups, self)
        return X, groups

    def _refuse_one_id_for_all(self, client_ids):
        """In ``fit`` a single id is most likely the name of a column."""
        if client_ids is not None and is_single_id(client_ids):
            raise ValueError(
                f"client_ids={client_ids!r} is one id for all rows, which tells fit "
                "nothing. Pass one id per row; if it is the name of a column of X, set "
                "client_column instead."
            )

    def _read_client_column(self, X, client_ids):
        """Features without ids, the ids that were among them, and their position."""
        if client_ids is not None:
            raise ValueError(
                "ids came both as client_ids and as client_column="
                f"{self.client_column!r}; use one of the two."
            )
        X, client_ids, position = split_client_column(X, self.client_column)
        return self._check_features(X), client_ids, position

    def _read_client(self, X, client):
        """Features of one client, without ids, checked."""
        X = self._check_features(X)
        assert_finite_by_client(X, ClientGroups.single(client, len(X)), self)
        return X

    def _check_features(self, X):
        """Features without ids, in float32 or float64; not yet checked for NaN."""
        return check_array(X, estimator=self, **FEATURES)
