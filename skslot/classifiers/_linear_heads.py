"""Linear heads that clients train on their own, and the message that they make."""

import numpy as np
from scipy.special import softmax
from sklearn.base import clone, is_classifier

from .._warnings import warn_user
from ..exchange import CurvedHead
from ..statistics import FeatureMoments, average_rows
from ._aligned import AlignedClassifierMixin
from ._gaussian import counts_and_means
from ._softmax import DEFAULT_L2, fit_softmax


def prepare_estimator(estimator, seed):
    """Copy of a classifier to be trained; all that it draws at random is set."""
    if not is_classifier(estimator):
        raise ValueError(
            f"estimator must be a classifier, got {type(estimator).__name__}."
        )
    estimator = clone(estimator)
    unset = {
        name: seed
        for name, value in estimator.get_params().items()
        if name.split("__")[-1] == "random_state" and value is None
    }
    return estimator.set_params(**unset)


def train_logistic(X, y, l2=DEFAULT_L2, balanced=True):
    """Weights and intercepts of a softmax over the classes in ``y``.

    Each class weighs the same if ``balanced``, and as many rows as it has otherwise.
    """
    _, position, counts = np.unique(y, return_inverse=True, return_counts=True)
    weights = np.ones(len(y))
    if balanced:
        weights = len(y) / (len(counts) * counts[position])
    return fit_softmax(X, np.eye(len(counts))[position], weights, l2)


def train_head(X, y, estimator):
    """One row of weights and an intercept for each class in ``y``.

    Zeros for a single class, which nothing is told apart from.
    """
    n_classes = len(np.unique(y))
    if n_classes == 1:
        return np.zeros((1, X.shape[1])), np.zeros(1)
    estimator.fit(X, y)
    if not hasattr(estimator, "coef_") or not hasattr(estimator, "intercept_"):
        raise ValueError(
            f"estimator must be linear: {type(estimator).__name__} has no coef_ and "
            "intercept_ after fit, and these are all that a client sends. Choose, for "
            "example, sklearn.linear_model.LogisticRegression."
        )
    coef = np.atleast_2d(estimator.coef_).astype(np.float64)
    intercept = np.broadcast_to(estimator.intercept_, len(coef)).astype(np.float64)
    if len(coef) == 1:  # the second class against the first
        coef, intercept = np.vstack([-coef, coef]) / 2, np.r_[-intercept, intercept] / 2
    return coef, intercept


def class_curvature(shares):
    """Mean of ``diag(p) - p p^T`` over rows ``p`` of probabilities."""
    products = shares.T @ shares / len(shares)
    curvature = -(products + products.T) / 2
    np.fill_diagonal(curvature, 0.0)
    # rows add up to zero, which rounding must not change
    np.fill_diagonal(curvature, -curvature.sum(axis=0))
    return curvature


def fisher_diagonal(X, shares):
    """Diagonal of the curvature for weights of centred rows, and for the intercept."""
    spread = shares * (1 - shares)
    squares = np.square(X - average_rows(X))
    return np.column_stack([spread.T @ squares / len(X), spread.mean(axis=0)])


class LocalHeadsMixin(AlignedClassifierMixin):
    """For classifiers whose clients send a head, with or without its curvature."""

    message_type = CurvedHead

    def _check_curvature(self, messages, needed, parameter):
        """Refuse messages that lack what the server step needs."""
        for sender in messages.senders:
            if sender.has_labels and needed not in ("none", sender.traits["curvature"]):
                raise ValueError(
                    f"{parameter} needs heads with the curvature {needed!r}, but "
                    f"{sender.words} sent one with {sender.traits['curvature']!r}; let "
                    "clients use the parameters of the server."
                )

    def _warn_if_all_have_one_class(self, messages):
        """Heads that have nothing to tell apart say nothing, however combined."""
        held = [set(each.class_counts) for each in messages.senders if each.has_labels]
        if len(set().union(*held)) > 1 and max(map(len, held)) == 1:
            warn_user(
                "every client holds a single class, so that no head can tell two apart "
                "and predictions mean nothing; choose a classifier that sends "
                "statistics of classes, such as FedCGSClassifier."
            )

    def _head_message(self, X, y, coef, intercept, curvature, client):
        """The message of a client with this head."""
        held, nothing = np.unique(y), np.empty(0)
        counts, means = counts_and_means(X, y, held)
        by_class = by_weight = triangle = shrinkage = nothing
        if curvature == "kfac":
            by_class = class_curvature(softmax(X @ coef.T + intercept, axis=1))
        elif curvature == "diag":
            by_weight = fisher_diagonal(X, softmax(X @ coef.T + intercept, axis=1))
        if self.aligner is not None or curvature in ("gram", "kfac"):
            triangle, shrinkage = self._part_for_alignment(FeatureMoments.from_rows(X))
        elif curvature == "none":
            means = nothing
        return CurvedHead(
            held.tolist(),
            curvature,
            counts,
            coef,
            intercept,
            by_class,
            by_weight,
            means,
            triangle,
            shrinkage,
            client,
        )
