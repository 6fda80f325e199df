"""FedMerge: heads of the clients, merged by the curvature of their losses."""

from functools import partial
from numbers import Real

import numpy as np
from numpy.linalg import cholesky
from scipy.linalg import cho_solve
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import softmax
from sklearn.utils.class_weight import compute_sample_weight

from .._docstrings import document
from .._sklearn_compat import Interval, StrOptions
from .._utils import warn_user
from ..exchange import CurvedHead
from ..statistics import average_rows, is_constant
from ._base import FoldedHeadsMixin, OneShotClassifier
from ._training import LocalHeadsMixin, fit_softmax, train_head

# Added to the diagonal, in its own unit: where no client has curvature, the average of
# heads stays.
LEAST_CURVATURE = 1e-10


@document
class FedMergeClassifier(FoldedHeadsMixin, LocalHeadsMixin, OneShotClassifier):
    """Federated classifier that merges the classifiers of all clients, in one round.

    Each client fits a logistic regression to the classes that it holds. It sends the
    weights together with a summary of the curvature of its loss. The server computes
    the weights that are closest to the weights of all clients, where the curvatures
    define the distance.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    curvature : {"gram", "none", "diag", "kfac"}, default="gram"
        Summary of the curvature. ``"gram"`` sends second moments of the features
        (RegMean [1]_), ``"none"`` nothing (plain average), ``"diag"`` the diagonal of
        the curvature (Fisher merging [2]_), and ``"kfac"`` second moments of the
        features and of the probabilities, whose Kronecker product approximates the
        curvature (as in FedLPA [3]_).
    l2 : float, default=10
        Penalty of local training: ``l2 / 2`` times the squared weights of standardized
        features, added to the loss summed over samples.
    local_softmax : {"balanced", "held"}, default="balanced"
        Weights of the classes in the loss of a client. ``"balanced"`` gives all classes
        that the client holds equal weight, ``"held"`` weights them by their number of
        samples.
    off_diagonal : float in [0, 1], default=0.9
        Factor of the off-diagonal second moments in "gram" and "kfac".
    {aligner}
        The linear classifiers and second moments of the clients are transformed in
        closed form. The classifiers were trained, with their penalty, on features that
        were not aligned, so predictions equal those of a Pipeline of this aligner and
        this classifier only if the aligner shifts features without a linear map.
        Otherwise they are close to them.
    {client_column}
    {screen}
    {n_jobs}
    {verbose}

    Attributes
    ----------
    {classes_}
    {coef_}
    {intercept_}
    {clients_report_}
    {aligner_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    FedEnsembleClassifier : Keeps the classifiers separate.
    FedAvgClassifier : Averages heads of any form, over several rounds.

    Notes
    -----
    All clients have equal weight, whatever their number of samples. The weights of a
    class are merged only from the clients that hold it. A client with a single class
    cannot train a classifier and is excluded. A class that only such clients hold gets
    weights of zero.

    The server holds matrices of second moments in memory: with "gram", one for each set
    of clients that hold the same class, and with "kfac", one for each client.

    References
    ----------
    .. [1] X. Jin, X. Ren, D. Preotiuc-Pietro, P. Cheng. "Dataless Knowledge Fusion by
       Merging Weights of Language Models". ICLR, 2023.
    .. [2] M. Matena, C. Raffel. "Merging Models with Fisher-Weighted Averaging".
       NeurIPS, 2022.
    .. [3] X. Liu, L. Liu, F. Ye, Y. Shen, X. Li, L. Jiang, J. Li. "FedLPA: One-shot
       Federated Learning with Layer-Wise Posterior Aggregation". NeurIPS, 2024.

    Examples
    --------
    >>> from skslot import FedMergeClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedMergeClassifier()
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedMergeClassifier()
    >>> classifier.score(data.data, data.target) > 0.85
    True
    """

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "curvature": [StrOptions({"gram", "none", "diag", "kfac"})],
        "l2": [Interval(Real, 0, None, closed="neither")],
        "local_softmax": [StrOptions({"balanced", "held"})],
        "off_diagonal": [Interval(Real, 0, 1, closed="both")],
        "aligner": LocalHeadsMixin._aligner_constraint,
    }

    def __init__(
        self,
        curvature="gram",
        *,
        l2=10,
        local_softmax="balanced",
        off_diagonal=0.9,
        aligner=None,
        client_column=None,
        screen="warn",
        n_jobs=None,
        verbose=0,
    ):
        self.curvature = curvature
        self.l2 = l2
        self.local_softmax = local_softmax
        self.off_diagonal = off_diagonal
        self.aligner = aligner
        self.client_column = client_column
        self.screen = screen
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _summarize(self, X, y, classes, client, seed):
        balanced = "balanced" if self.local_softmax == "balanced" else None
        weights = compute_sample_weight(balanced, y)
        fit = partial(fit_softmax, sample_weight=weights, l2=self.l2)
        coef, intercept = train_head(X, y, fit)
        parts = {}
        if self.curvature in ("kfac", "diag"):
            shares = softmax(X @ coef.T + intercept, axis=1)
        if self.curvature == "kfac":
            parts["class_curvature"] = class_curvature(shares)
        elif self.curvature == "diag":
            parts["fisher"] = fisher_diagonal(X, shares)
        head = coef, intercept
        return self._head_message(X, y, head, self.curvature, client, **parts)

    def _learn(self, messages, seed):
        self._check_heads(messages, self.curvature, f"curvature={self.curvature!r}")
        self._fit_aligner(messages)
        self.classes_, self.coef_, self.intercept_ = merge_heads(
            lambda: self._aligned_messages(messages, CurvedHead.pushed),
            self.curvature,
            self.off_diagonal,
        )


# ------------------------------------------------------------------ at the client


def class_curvature(shares):
    """Average ``diag(p) - p p^T`` over rows ``p`` of probabilities."""
    products = shares.T @ shares / len(shares)
    curvature = -(products + products.T) / 2
    np.fill_diagonal(curvature, 0.0)
    # rows add up to zero, which rounding must not change
    np.fill_diagonal(curvature, -curvature.sum(axis=0))
    return curvature


def fisher_diagonal(X, shares):
    """Compute the diagonal of the curvature for centred samples and the intercept."""
    spread = shares * (1 - shares)
    squares = np.square(X - average_rows(X))
    return np.column_stack([spread.T @ squares / len(X), spread.mean(axis=0)])


# ------------------------------------------------------------------ at the server
#
# Weights and intercept of a class are one vector here, for samples that are centred at
# one origin for all clients and end in a one. A class is merged from the clients that
# hold it. A client with a single class is excluded, as its head is zero.


def merge_heads(heads, curvature, off_diagonal):
    """Return classes, weights and intercepts merged from the heads of all clients.

    ``heads()`` returns an iterator over the CurvedHead of each client.
    """
    classes = np.unique(np.concatenate([head.classes for head in heads()]))
    holders, means = [], []
    for head in heads():
        holders.append(np.isin(classes, head.classes) & (len(head.classes) > 1))
        means.append(np.zeros(head.n_features) if curvature == "none" else head.mean)
    holders, origin = np.array(holders), average_rows(np.array(means))

    def clients():
        for head in heads():
            if len(head.classes) > 1:
                intercept = head.intercept + head.coef @ origin
                weights = np.column_stack([head.coef, intercept])
                yield np.searchsorted(classes, head.classes), weights, head

    merged = np.zeros((len(classes), len(origin) + 1))
    for where, weights, _ in clients():
        merged[where] += weights
    merged /= np.maximum(holders.sum(axis=0), 1)[:, None]
    if curvature == "diag":
        merged = merge_by_diagonal(clients(), merged, origin)
    elif curvature == "gram":
        merged = merge_by_gram(clients(), merged, origin, holders, off_diagonal)
    elif curvature == "kfac":
        merged = merge_by_factors(clients(), merged, origin, off_diagonal)
    coef = merged[:, :-1]
    return classes, coef, merged[:, -1] - coef @ origin


def merge_by_diagonal(clients, average, origin):
    """Weigh each weight by its curvature at each client (Fisher merging)."""
    total, sums = np.zeros_like(average), np.zeros_like(average)
    for where, weights, head in clients:
        fisher = head.fisher.copy()
        # the same at the common origin, which is apart from that of the client
        fisher[:, :-1] += fisher[:, -1:] * np.square(head.mean - origin)
        total[where] += fisher
        sums[where] += fisher * (weights - average[where])
    apart = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)
    return average + apart


def merge_by_gram(clients, average, origin, holders, off_diagonal):
    """Fit the scores of each head on the samples of its client (RegMean)."""
    # classes that the same clients hold share one matrix
    patterns, group = np.unique(holders, axis=1, return_inverse=True)
    group = group.ravel()
    grams = np.zeros((patterns.shape[1], average.shape[1], average.shape[1]))
    sums = np.zeros_like(average)
    for where, weights, head in clients:
        gram = second_moments(head, origin, off_diagonal)
        grams[np.unique(group[where])] += gram
        sums[where] += (weights - average[where]) @ gram
    merged = average.copy()
    for index in np.unique(group[holders.any(axis=0)]):
        own, gram = group == index, grams[index]
        scale = np.sqrt(gram.diagonal())
        scale[scale == 0] = np.inf  # a feature that is zero everywhere
        scaled = gram / scale / scale[:, None]
        np.fill_diagonal(scaled, 1 + LEAST_CURVATURE)
        apart = cho_solve((cholesky(scaled), True), (sums[own] / scale).T).T
        merged[own] += apart / scale
    return merged


def merge_by_factors(clients, average, origin, off_diagonal):
    """Solve for the weights under the curvature of classes times that of features.

    This is the Laplace approximation of each client. The system is semi-definite:
    adding the same vector to all classes of a client costs nothing.
    """
    forms, residual = [], np.zeros_like(average)
    diagonal = np.zeros_like(average)
    for where, weights, head in clients:
        gram = second_moments(head, origin, off_diagonal)
        # rounding on the wire must not give scores a cost that all classes share
        curvature = head.class_curvature - head.class_curvature.mean(axis=0)
        curvature -= curvature.mean(axis=1, keepdims=True)
        forms.append((where, curvature, gram))
        residual[where] += curvature @ (weights - average[where]) @ gram
        diagonal[where] += np.outer(curvature.diagonal(), gram.diagonal())
    # Scaling both sides is the diagonal preconditioner, and frees the stopping
    # criterion of the features' units.
    scale = np.sqrt(np.where(diagonal > 0, diagonal, np.inf))

    def apply(flat):
        weights, image = flat.reshape(scale.shape) / scale, np.zeros_like(scale)
        for where, curvature, gram in forms:
            image[where] += curvature @ weights[where] @ gram
        return (image / scale).ravel()

    operator = LinearOperator((scale.size, scale.size), apply, dtype=np.float64)
    target = (residual / scale).ravel()
    apart, stopped_at = cg(operator, target, rtol=1e-10, maxiter=2000)
    if stopped_at > 0:
        warn_user(
            "merging by curvature='kfac' did not converge; a smaller off_diagonal "
            "makes it easier."
        )
    return average + apart.reshape(scale.shape) / scale


def second_moments(head, origin, off_diagonal):
    """Average ``z z^T`` over the samples of a client, centred and ending in a one.

    Off-diagonal entries are multiplied by ``off_diagonal``. Features that stay at the
    origin have moments of exactly zero: what rounding leaves of them would be divided
    by itself.
    """
    mean = np.r_[head.mean - origin, 1.0]
    moments = np.outer(mean, mean)
    moments[:-1, :-1] += head.covariance
    diagonal = moments.diagonal().copy()
    constant = is_constant(diagonal, np.r_[origin, 0.0], head.n_samples)
    moments *= off_diagonal
    np.fill_diagonal(moments, diagonal)
    moments[constant] = moments[:, constant] = 0.0
    return moments
