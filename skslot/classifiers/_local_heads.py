"""Linear heads that clients train on their own, and the message that contains one."""

import numpy as np

from .._utils import warn_user
from ..exchange import CurvedHead
from ..statistics import FeatureMoments
from ._base import AlignedClassifierMixin
from ._gaussian import counts_and_means


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
                    f"{sender.words} sent one with {sender.traits['curvature']!r}; let "
                    "clients use the parameters of the server."
                )
        held = [set(sender.class_counts) for sender in labelled]
        if len(set().union(*held)) > 1 and max(map(len, held)) == 1:
            warn_user(
                "every client holds a single class, so that no head can tell two apart "
                "and predictions mean nothing; choose a classifier that sends "
                "statistics of classes, such as FedCGSClassifier."
            )
