"""Training on samples, by clients or the server: what several classifiers share."""

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import has_fit_parameter

from .._utils import warn_user
from ..exchange import CurvedHead
from ..statistics import FeatureMoments, average_rows, is_constant
from ._base import AlignedClassifierMixin
from ._gaussian import counts_and_means


def fit_logistic(X, y, sample_weight=None, *, scaling="feature", **params):
    """Fit scikit-learn's logistic regression independently of the features' units.

    The penalty of logistic regression has a unit: on features that are a hundred times
    smaller, it weighs ten thousand times more. The model is therefore fitted to centred
    and scaled samples. Its weights are then converted to the original features.

    Centring does not change the model, because the intercept is not penalised. But
    features of an encoder are far from zero, where solvers converge slowly and stop at
    a point that depends on the last bits of the features.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Samples.
    y : ndarray of shape (n_samples,)
        Labels of at least two classes.
    sample_weight : ndarray of shape (n_samples,), default=None
        Weight of each sample. If None, all samples have the same weight.
    scaling : {"feature", "common"}, default="feature"
        ``"feature"`` divides each feature by its standard deviation. ``"common"``
        divides all features by the root of their mean variance, so that their
        proportions stay.
    **params : dict
        Parameters of :class:`sklearn.linear_model.LogisticRegression`.

    Returns
    -------
    model : LogisticRegression
        The fitted model, for samples in the original units.
    """
    # not for servers of other methods, which would load a large package for nothing
    from sklearn.linear_model import LogisticRegression

    centre, scale = mean_and_scale(X, sample_weight)
    if scaling == "common":
        scale = np.sqrt(np.mean(np.where(np.isinf(scale), 0.0, scale) ** 2)) or 1.0
    model = LogisticRegression(**params).fit((X - centre) / scale, y, sample_weight)
    model.coef_ = model.coef_ / scale
    model.intercept_ = model.intercept_ - model.coef_ @ centre
    return model


def fit_softmax(X, y, sample_weight=None, l2=10.0):
    """Fit a logistic regression to standardised samples until it has converged.

    Minimises the weighted cross-entropy, summed over samples, plus half of ``l2`` times
    the squared weights of all classes.
    """
    # For two classes, scikit-learn penalises the difference of their weights.
    n_weights = 2 if len(np.unique(y)) == 2 else 1
    # With smaller tolerances, rounding of the loss makes line searches fail. With this
    # one, probabilities are within about 1e-7 of those at the minimum.
    return fit_logistic(
        X,
        y,
        sample_weight,
        C=n_weights / l2,
        solver="newton-cg",
        tol=1e-9,
        max_iter=1000,
    )


def mean_and_scale(X, weights=None):
    """Compute the mean and standard deviation of each feature.

    The deviation of a constant feature is infinity, so that dividing by it gives zero.
    """
    centre = average_rows(X, weights)
    apart = X - centre
    # squares of numbers near the ends of float64 would not be in it
    unit = np.ldexp(1.0, np.frexp(np.abs(apart).max(axis=0))[1])
    squares = np.average(np.square(apart / unit), axis=0, weights=weights)
    with np.errstate(over="ignore"):
        constant = is_constant(squares, centre / unit, len(X))
    return centre, np.where(constant, np.inf, unit * np.sqrt(squares))


def prepare_estimator(estimator, seed):
    """Copy a classifier and set each ``random_state`` that is None."""
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


def train_estimator(estimator, X, y, seed, sample_weight=None, default=fit_softmax):
    """Train a copy of an estimator or, if it is None, the default logistic regression.

    Most classifiers reject a single class, so a constant prediction replaces them.
    """
    if len(np.unique(y)) == 1:
        return DummyClassifier(strategy="prior").fit(X, y, sample_weight)
    if estimator is None:
        return default(X, y, sample_weight)
    estimator = prepare_estimator(estimator, seed)
    if sample_weight is None:
        return estimator.fit(X, y)
    if not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(
            "estimator must take sample_weight in fit, as rows count differently; "
            f"{type(estimator).__name__} does not."
        )
    return estimator.fit(X, y, sample_weight=sample_weight)


# ------------------------------------------------------------------ by the server


def _estimator_has(method):
    def check(self):
        if hasattr(self, "estimator_"):
            return hasattr(self.estimator_, method)
        return self.estimator is None or hasattr(self.estimator, method)

    return check


class ServerEstimatorMixin:
    """For classifiers with an ``estimator`` parameter that the server trains.

    Goes before :class:`AlignedClassifierMixin`. ``_learn`` sets ``estimator_``, which
    makes the predictions.
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
        return self._align(*self._prediction_rows(X, client_ids))


# ------------------------------------------------------------------ by clients


def train_head(X, y, fit):
    """Return weights and intercepts, one row for each class in ``y``.

    ``fit(X, y)`` returns a fitted linear classifier. A single class cannot be
    distinguished from anything, so its weights are zero.
    """
    if len(np.unique(y)) == 1:
        return np.zeros((1, X.shape[1])), np.zeros(1)
    model = fit(X, y)
    if not hasattr(model, "coef_") or not hasattr(model, "intercept_"):
        raise ValueError(
            f"estimator must be linear: {type(model).__name__} has no coef_ and "
            "intercept_ after fit, and these are all that a client sends. Choose, for "
            "example, sklearn.linear_model.LogisticRegression."
        )
    coef = np.atleast_2d(model.coef_).astype(np.float64)
    intercept = np.broadcast_to(model.intercept_, len(coef)).astype(np.float64)
    if len(coef) == 1:  # the second class against the first
        coef, intercept = np.vstack([-coef, coef]) / 2, np.r_[-intercept, intercept] / 2
    return coef, intercept


class LocalHeadsMixin(AlignedClassifierMixin):
    """For classifiers whose clients send a head, with or without its curvature."""

    message_type = CurvedHead

    def _head_message(self, X, y, head, curvature, client, **parts):
        """Build the message of a client; ``parts`` are arrays of the curvature."""
        held = np.unique(y)
        counts, means = counts_and_means(X, y, held)
        triangle = shrinkage = np.empty(0)
        if self.aligner is not None or curvature in ("gram", "kfac"):
            triangle, shrinkage = self._part_for_alignment(FeatureMoments.from_rows(X))
        elif curvature == "none":
            means = np.empty(0)
        coef, intercept = head
        return CurvedHead(
            held.tolist(),
            curvature,
            counts,
            coef,
            intercept,
            parts.get("class_curvature", np.empty(0)),
            parts.get("fisher", np.empty(0)),
            means,
            triangle,
            shrinkage,
            client,
        )

    def _check_heads(self, messages, needed, parameter):
        """Reject heads without the needed curvature; warn if all are uninformative."""
        labelled = [sender for sender in messages.senders if sender.has_labels]
        for sender in labelled:
            if needed not in ("none", sender.traits["curvature"]):
                raise ValueError(
                    f"{parameter} needs heads with the curvature {needed!r}, but "
                    f"client {sender.client!r} sent one with "
                    f"{sender.traits['curvature']!r}. Use the same parameters at "
                    "clients and server."
                )
        held = [set(sender.class_counts) for sender in labelled]
        if len(set().union(*held)) > 1 and max(map(len, held)) == 1:
            warn_user(
                "every client holds a single class, so none can train a classifier "
                "and predictions are meaningless. Use a classifier that sends class "
                "statistics, such as FedCGSClassifier."
            )
