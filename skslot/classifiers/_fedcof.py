"""FedCOF: a linear classifier from one round of class means."""

from collections import Counter
from dataclasses import replace
from numbers import Real

import numpy as np
from scipy.linalg import cho_solve

from .._docstrings import document
from .._sklearn_compat import Interval, StrOptions
from .._utils import warn_of_lost_classes
from ..exchange import ClassMeans, ClassStatistics
from ..statistics import average_rows, merge_class_means
from ._gaussian import (
    LEAST_RIDGE,
    ClassStatisticsClassifier,
    counts_and_means,
    factorise,
    stack_means,
)

# What gamma="auto" is, in units of the mean variance that client means suggest.
AUTO = 0.1

GAMMA_REMEDY = (
    "so gamma=0 or a tiny gamma cannot invert it; use gamma='auto' or a larger number."
)


@document
class FedCOFClassifier(ClassStatisticsClassifier):
    """Federated classifier from class means alone, in one round.

    Clients send class counts and class means, which take 4 C (m + 1) bytes in float32
    for C classes and m features. The covariance that a linear classifier needs is
    estimated from the distances between the means of different clients (FedCOF [1]_).

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    gamma : "auto" or float, default="auto"
        Number added to the variances of each class, because the means of few clients
        cover few directions. ``"auto"`` is 0.1 times the mean of the variances
        estimated for classes that several clients hold.
    {aligner}
        With an aligner, clients send :class:`~skslot.exchange.ClassStatistics`, that is
        m (m + 1) / 2 additional numbers. Predictions equal those of a Pipeline of this
        aligner and this classifier.
    {privacy}
    {client_column}
    {screen}
    {n_jobs}
    {verbose}

    Attributes
    ----------
    {classes_}
    {coef_}
        The weights of each class have length one.
    intercept_ : ndarray of shape (n_classes,)
        Zeros, because the classifier has no intercepts.
    gamma_ : float
        Number added to the variances.
    {clients_report_}
    {aligner_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    FedCGSClassifier : Clients also send the covariance.
    FedRidgeClassifier : The classifier that is estimated here.

    Notes
    -----
    The estimate is unbiased if the samples of a class at each client are a random
    subset of all samples of the class. If domains differ, client means are further
    apart, and the estimated covariance mainly describes differences between domains.
    Directions in which domains differ are then penalized. This improves accuracy under
    label shift, and reduces it otherwise. A class that a single client holds does not
    contribute to the estimate. If this applies to most classes, use another method.

    Decision boundaries pass through the origin and weights have length one. This suits
    the features of neural networks, whose classes lie in different directions. Scores
    have the unit of the features. ``predict_proba`` is their softmax: it orders classes
    correctly, but does not estimate probabilities.

    References
    ----------
    .. [1] D. Goswami, S. Magistri, K. Wang, B. Twardowski, A. D. Bagdanov, J. van de
       Weijer. "Covariances for Free: Exploiting Mean Distributions for Training-free
       Federated Learning". NeurIPS, 2025.

    Examples
    --------
    >>> from skslot import FedCOFClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedCOFClassifier()
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedCOFClassifier()
    >>> classifier.score(data.data, data.target) > 0.7
    True
    """

    _parameter_constraints: dict = {
        **ClassStatisticsClassifier._parameter_constraints,
        "gamma": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "aligner": ClassStatisticsClassifier._aligner_constraint,
    }

    _ids_matter = True

    def __init__(
        self,
        gamma="auto",
        *,
        aligner=None,
        privacy=None,
        client_column=None,
        screen="warn",
        n_jobs=None,
        verbose=0,
    ):
        self.gamma = gamma
        self.aligner = aligner
        self.privacy = privacy
        self.client_column = client_column
        self.screen = screen
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def message_type(self):
        return ClassMeans if self.aligner is None else ClassStatistics

    def _summarize(self, X, y, classes, client, seed):
        if self.aligner is not None:
            return super()._summarize(X, y, classes, client, seed)
        if self.privacy is not None:
            return ClassMeans.release(self.privacy, X, y, classes, client)
        held = np.unique(y)
        return ClassMeans(held.tolist(), *counts_and_means(X, y, held), client)

    def _client_updates(self, X, y, groups):
        messages = super()._client_updates(X, y, groups)
        # those of class means do not list what has no rows, so no server can tell
        sent = {label for message in messages for label in message.classes}
        warn_of_lost_classes(sorted(set(y.tolist()) - sent))
        return messages

    def _learn(self, messages, seed):
        self._fit_aligner(messages)
        pooled, n_clients = {}, Counter()
        for message in self._aligned_messages(messages, push_means):
            held = message.cells()
            pooled = merge_class_means(pooled, held)
            n_clients.update(held.keys())
        self.classes_, counts, means = stack_means(pooled)
        n_clients = np.array([n_clients[label] for label in self.classes_.tolist()])
        gram = np.zeros((means.shape[1], means.shape[1]))
        for message in self._aligned_messages(messages, push_means):
            gram += dispersion(message, self.classes_, counts, means, n_clients)
        self.gamma_ = (
            automatic_gamma(gram, counts, means, n_clients)
            if self.gamma == "auto"
            else float(self.gamma)
        )
        self.coef_ = normalized_head(gram, counts, means, self.gamma_)
        self.intercept_ = np.zeros(len(self.classes_))


def push_means(message, matrix, offset):
    """Move the class means of a message by ``z -> matrix @ z + offset``.

    Its covariance stays as it is, because FedCOF does not use it.
    """
    means = message.means if matrix is None else message.means @ matrix.T
    return replace(message, means=means + offset)


def dispersion(message, classes, counts, means, n_clients):
    """What one client adds to the estimated scatter of all rows within classes.

    The covariance of a class is estimated by sum_k n_k (mean_k - mean)(...)^T over the
    clients k that hold it, divided by their number less one; its scatter has as many
    times that as it has rows, less one.
    """
    held = message.cells()
    index = np.searchsorted(classes, list(held))
    rows = np.array([count for count, _ in held.values()])
    apart = np.array([mean for _, mean in held.values()]) - means[index]
    weights = rows * (counts[index] - 1) / np.maximum(n_clients[index] - 1, 1)
    return (apart.T * weights) @ apart


def automatic_gamma(gram, counts, means, n_clients):
    """A share of the variance that means suggest, or what keeps weights finite."""
    n_features = means.shape[1]
    seen = np.sum((counts - 1)[n_clients > 1])
    variance = np.trace(gram) / (seen * n_features) if seen > 0 else 0.0
    square = counts @ np.einsum("ij,ij->i", means, means) / (counts.sum() * n_features)
    return max(AUTO * variance, LEAST_RIDGE * square) or 1.0


def normalized_head(gram, counts, means, gamma):
    """Weights of the classes, each of length one."""
    n_samples, mean = counts.sum(), average_rows(means, counts)
    gram = gram + n_samples * np.outer(mean, mean)
    # the rows that variances are estimated from; with one row per class there are none
    gram.flat[:: len(gram) + 1] += gamma * max(n_samples - len(counts), 1)
    factor = factorise(gram, means, n_samples, GAMMA_REMEDY)
    if factor is None:
        return np.zeros_like(means)
    coef = cho_solve((factor, True), (counts[:, None] * means).T).T
    lengths = np.linalg.norm(coef, axis=1, keepdims=True)
    return np.divide(coef, lengths, out=coef, where=lengths > 0)
