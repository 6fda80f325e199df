"""Logistic regression that does not depend on the unit of the features."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from ..statistics import average_rows, is_constant


class UnitFreeLogisticRegression(LogisticRegression):
    """Logistic regression on centred rows whose features vary by 1 on average.

    scikit-learn's penalty has a unit: on features that are a hundred times smaller it
    weighs ten thousand times more. Here all features are divided by one number, the
    root of their mean variance, so that their unit cancels and their proportions stay.

    Centring changes nothing in the model, as a shift of all rows only moves the
    intercept, which is not penalised. But features of an encoder are far from zero,
    where the solver creeps along a narrow valley and stops somewhere in it: where, the
    last bit of a message decides.
    """

    def fit(self, X, y, sample_weight=None):
        """Fit to rows in their own unit, and put the weights into that of ``X``."""
        centre = average_rows(X, sample_weight)
        centred = X - centre
        variances = np.average(centred**2, axis=0, weights=sample_weight)
        unit = np.sqrt(variances.mean())
        if is_constant(variances, centre, len(X)).all():
            unit = 1.0
        super().fit(centred / unit, y, sample_weight)
        self.coef_ = self.coef_ / unit
        self.intercept_ = self.intercept_ - self.coef_ @ centre
        return self
