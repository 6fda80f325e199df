"""Multinomial logistic regression, solved to rounding, whatever the unit of rows."""

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from ..statistics import average_rows, is_constant

# Strength of the penalty on weights of standardised features.
DEFAULT_L2 = 10.0
MOST_NEWTON_STEPS = 100


class StandardizedLogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression that is fitted to standardised rows.

    The penalty then means the same whatever the unit of a feature is, and as it is
    solved to rounding, so do predictions. ``coef_`` and ``intercept_`` have one row for
    each class and are for rows as they are.
    """

    def __init__(self, l2=DEFAULT_L2):
        self.l2 = l2

    def fit(self, X, y, sample_weight=None):
        """Fit to weighted rows."""
        self.classes_, position = np.unique(y, return_inverse=True)
        shares = np.eye(len(self.classes_))[position]
        weights = np.ones(len(X)) if sample_weight is None else sample_weight
        self.coef_, self.intercept_ = fit_softmax(X, shares, weights, self.l2)
        return self

    def decision_function(self, X):
        """Score of each class, or of the second one when there are two."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X):
        """Most likely class of each row."""
        return self.classes_[self._scores(X).argmax(axis=1)]

    def predict_proba(self, X):
        """Probability of each class."""
        return softmax(self._scores(X), axis=1)

    def _scores(self, X):
        return X @ self.coef_.T + self.intercept_


def fit_softmax(X, shares, weights, l2):
    """Weights and intercepts of each class, from rows with a share of each class.

    Minimises the weighted cross-entropy, summed over rows, plus half of ``l2`` times
    the squared weights of standardised features, by Newton's method.
    """
    centre, scale = mean_and_scale(X, weights)
    rows = np.column_stack([(X - centre) / scale, np.ones(len(X))])
    penalty = np.r_[np.full(X.shape[1], l2), 0.0]
    head = np.zeros((shares.shape[1], rows.shape[1]))
    loss, log_probabilities = _loss(head, rows, shares, weights, penalty)
    first = None
    for _ in range(MOST_NEWTON_STEPS):
        probabilities = np.exp(log_probabilities)
        residual = weights[:, None] * (probabilities - shares)
        gradient = residual.T @ rows + penalty * head
        gradient -= gradient.mean(axis=0)  # rounding: what all classes share is zero

        def curvature(step, probabilities=probabilities):
            change = probabilities * (rows @ step.T)
            change -= probabilities * change.sum(axis=1, keepdims=True)
            return (weights[:, None] * change).T @ rows + penalty * step

        size = np.linalg.norm(gradient)
        first = first or size
        if size <= 1e-14 * first:
            break
        # the nearer, the more exact: errors are squared in each step, up to rounding
        tolerance = min(0.1, max(size / first, 1e-6))
        step, _ = conjugate_gradients(
            curvature, -gradient, np.zeros_like(head), np.ones_like(head), tolerance
        )
        decrease = -0.5 * np.vdot(gradient, step)
        if decrease <= 1e-14 * loss:  # one last step, which rounding hides in the loss
            head = head + step
            break
        length = 1.0
        while True:
            tried = head + length * step
            next_loss, log_probabilities = _loss(tried, rows, shares, weights, penalty)
            if next_loss <= loss - 1e-4 * length * decrease or length < 1e-10:
                break
            length /= 2
        head, loss = tried, next_loss
    coef = head[:, :-1] / scale
    return coef, head[:, -1] - coef @ centre


def mean_and_scale(X, weights):
    """Mean and standard deviation of each feature; infinity where it does not vary."""
    centre = average_rows(X, weights)
    apart = X - centre
    # squares of numbers near the ends of float64 would not be in it
    unit = np.ldexp(1.0, np.frexp(np.abs(apart).max(axis=0))[1])
    squares = np.average(np.square(apart / unit), axis=0, weights=weights)
    scale = unit * np.sqrt(squares)
    with np.errstate(over="ignore"):
        constant = is_constant(squares, centre / unit, len(X))
    return centre, np.where(constant, np.inf, scale)


def conjugate_gradients(
    apply, target, start, diagonal, tolerance=1e-10, most_steps=2000
):
    """Solve ``apply(x) = target`` for a symmetric, semi-definite linear function.

    ``diagonal`` is about that of the function, and makes the steps free of units. The
    solution, and whether the residual fell to this share of the first one.
    """
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    solution = start.copy()
    residual = target - apply(solution)
    step = inverse * residual
    first = size = np.vdot(residual, step)
    for _ in range(most_steps):
        if size <= tolerance**2 * first:
            return solution, True
        image = apply(step)
        length = size / np.vdot(step, image)
        solution += length * step
        residual -= length * image
        before, size = size, np.vdot(residual, inverse * residual)
        step = inverse * residual + (size / before) * step
    return solution, False


def _loss(head, rows, shares, weights, penalty):
    """What is minimised, and the logarithm of probabilities."""
    log_probabilities = log_softmax(rows @ head.T, axis=1)
    entropy = -weights @ np.sum(shares * log_probabilities, axis=1)
    return entropy + 0.5 * np.sum(penalty * head**2), log_probabilities
