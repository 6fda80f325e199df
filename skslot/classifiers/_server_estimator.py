"""Classifiers whose server trains an estimator on rows: predictions are its own."""

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import has_fit_parameter

from ._linear_heads import prepare_estimator
from ._softmax import StandardizedLogisticRegression


def _estimator_has(method):
    def check(self):
        if hasattr(self, "estimator_"):
            return hasattr(self.estimator_, method)
        return self.estimator is None or hasattr(self.estimator, method)

    return check


def choose_estimator(estimator, default, y, seed):
    """Copy of ``estimator`` or, if it is None, the default one; both untrained."""
    if len(np.unique(y)) == 1:  # most classifiers refuse a single class
        return DummyClassifier(strategy="prior")
    return default if estimator is None else prepare_estimator(estimator, seed)


def train_weighted(estimator, X, y, weights, seed):
    """Copy of ``estimator``, or the default one, trained on weighted rows."""
    estimator = choose_estimator(estimator, StandardizedLogisticRegression(), y, seed)
    if not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(
            "estimator must take sample_weight in fit, as rows count differently; "
            f"{type(estimator).__name__} does not."
        )
    return estimator.fit(X, y, sample_weight=weights)


class ServerEstimatorMixin:
    """For classifiers with an ``estimator`` parameter that the server trains.

    Goes before :class:`AlignedClassifierMixin`; ``_learn`` sets ``estimator_``.
    """

    def predict(self, X, client_ids=None):
        rows = self._aligned_rows(X, client_ids)
        return self.estimator_.predict(rows)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X, client_ids=None):
        rows = self._aligned_rows(X, client_ids)
        return self.estimator_.decision_function(rows)

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X, client_ids=None):
        rows = self._aligned_rows(X, client_ids)
        return self.estimator_.predict_proba(rows)

    @available_if(_estimator_has("predict_proba"))
    def predict_log_proba(self, X, client_ids=None):
        return np.log(self.predict_proba(X, client_ids))

    def _aligned_rows(self, X, client_ids):
        X, groups = self._prediction_rows(X, client_ids)
        return self.aligner_._move(X, groups) if self._is_aligned else X
