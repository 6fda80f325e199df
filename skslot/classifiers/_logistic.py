"""The default head of FedPFT."""

from sklearn.linear_model import LogisticRegression


class CentredLogisticRegression(LogisticRegression):
    """Logistic regression that is fitted to centred rows.

    The model is that of scikit-learn, as a shift of all rows only moves the intercept,
    which is not penalised. But features of an encoder are far from zero, where the
    solver creeps along a narrow valley and stops somewhere in it: where, the last bit
    of a message decides. Centred, it takes a third of the time and stops at one place.
    """

    def fit(self, X, y, sample_weight=None):
        """Fit to centred rows, and move the intercept to where the rows are."""
        centre = X.mean(axis=0)
        super().fit(X - centre, y, sample_weight)
        self.intercept_ -= self.coef_ @ centre
        return self
