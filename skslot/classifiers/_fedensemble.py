"""FedEnsemble: the heads of the clients kept apart, and asked together."""

from functools import partial

import numpy as np
from numpy.linalg import cholesky
from scipy.linalg import cho_solve
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from .._docstrings import document
from .._sklearn_compat import HasMethods, StrOptions
from ..exchange import CurvedHead, LinearModel
from ..statistics import is_constant
from ._base import OneShotClassifier
from ._gaussian import pool_statistics
from ._training import (
    LocalHeadsMixin,
    fit_softmax,
    prepare_estimator,
    train_estimator,
    train_head,
)

# Added to the variances of standardised scores when heads are stacked.
STACK_RIDGE = 1e-2


@document
class FedEnsembleClassifier(LocalHeadsMixin, OneShotClassifier):
    """Federated ensemble of the linear classifiers of all clients, in one round.

    Each client trains a linear classifier on the classes that it holds and sends the
    weights. The server keeps all of them and combines their predictions. A class that a
    client does not hold gets probability zero from this client, not a score of zero.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    combine : {"mean", "weighted", "vote", "stack"}, default="mean"
        How to combine predictions. ``"mean"`` averages probabilities. ``"weighted"``
        averages the probabilities of each class with weights proportional to the
        samples of the class at each client, as in FedKD [1]_. ``"vote"`` counts votes,
        as in FedKT [2]_. ``"stack"`` is the linear combination of all scores that fits
        the labels of all clients best. FENS [3]_ trains it in many rounds; for linear
        classifiers and least squares, class means and a covariance from each client
        suffice.
    estimator : estimator object, default=None
        Linear classifier trained by each client. Only its ``coef_`` and ``intercept_``
        are sent. If None, a logistic regression of standardized samples with equal
        class weights is used.
    consistent : bool, default=True
        Whether a client votes only if its most likely class is more probable than all
        other classes together. In FedKT, a client votes if its students agree; here it
        has a single one. Only used if ``combine="vote"``.
    {aligner}
        The linear classifiers of the clients are transformed in closed form. They were
        trained on features that were not aligned, so predictions equal those of a
        Pipeline of this aligner and this classifier only if the aligner shifts features
        without a linear map. Otherwise they are close to them.
    {client_column}
    {screen}
    {random_state}
        Used by ``estimator`` if ``estimator`` has no ``random_state``.
    {n_jobs}
    {verbose}

    Attributes
    ----------
    {classes_}
    heads_ : list of LinearModel
        Linear classifier of each client, for aligned features.
    {coef_}
        Only defined with ``combine="stack"``.
    {intercept_}
        Only defined with ``combine="stack"``.
    {clients_report_}
    {aligner_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    FedMergeClassifier : Merges the classifiers into one.

    Notes
    -----
    A client with a single class always predicts this class. Such clients reduce the
    accuracy of "mean", "weighted" and "vote". "stack" ignores constant scores.

    References
    ----------
    .. [1] X. Gong, A. Sharma, S. Karanam, Z. Wu, T. Chen, D. Doermann, A. Innanje.
       "Preserving Privacy in Federated Learning with Ensemble Cross-Domain Knowledge
       Distillation". AAAI, 2022.
    .. [2] Q. Li, B. He, D. Song. "Practical One-Shot Federated Learning for Cross-Silo
       Setting". IJCAI, 2021.
    .. [3] Y. Allouah, A. Dhasade, R. Guerraoui, N. Gupta, A.-M. Kermarrec, R. Pinot, R.
       Pires, R. Sharma. "Revisiting Ensembling in One-Shot Federated Learning".
       NeurIPS, 2024.

    Examples
    --------
    >>> from skslot import FedEnsembleClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedEnsembleClassifier("stack")
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedEnsembleClassifier(combine='stack')
    >>> classifier.score(data.data, data.target) > 0.85
    True
    """

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "combine": [StrOptions({"mean", "weighted", "vote", "stack"})],
        "estimator": [HasMethods(["fit", "predict"]), None],
        "consistent": ["boolean"],
        "aligner": LocalHeadsMixin._aligner_constraint,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        combine="mean",
        *,
        estimator=None,
        consistent=True,
        aligner=None,
        client_column=None,
        screen="warn",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.combine = combine
        self.estimator = estimator
        self.consistent = consistent
        self.aligner = aligner
        self.client_column = client_column
        self.screen = screen
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def distill(self, X_public, head=None):
        """Train a single classifier on public samples labelled by the ensemble.

        This is the last step of FedKT and FedKD, which need public data.

        Parameters
        ----------
        X_public : array-like of shape (n_samples, n_features)
            Unlabelled samples that belong to no particular client. With an ``aligner``,
            they must be aligned.
        head : estimator object, default=None
            Classifier to train. Its ``fit`` must accept ``sample_weight``. If None, a
            logistic regression of standardized samples is used.

        Returns
        -------
        head : estimator object
            Copy of the classifier, trained on the probabilities of the ensemble.
        """
        check_is_fitted(self)
        X = self._read_client(X_public, None)
        n_features = self.n_features_in_ - (self.client_column is not None)
        if X.shape[1] != n_features:
            raise ValueError(
                f"X_public has {X.shape[1]} features, but the heads are for "
                f"{n_features}."
            )
        shares = softmax(self._scores(X), axis=1)
        index, position = np.nonzero(shares)
        labels, weights = self.classes_[position], shares[index, position]
        return train_estimator(head, X[index], labels, self._draw_seed(), weights)

    def linear_model(self):
        check_is_fitted(self)
        if not hasattr(self, "coef_"):
            raise ValueError(
                f"an ensemble with combine={self._combine!r} is no linear model. Use "
                "combine='stack', or distill it into a single head."
            )
        return super().linear_model()

    def _summarize(self, X, y, classes, client, seed):
        if self.estimator is None:
            weights = compute_sample_weight("balanced", y)
            fit = partial(fit_softmax, sample_weight=weights)
        else:
            fit = prepare_estimator(self.estimator, seed).fit
        curvature = "gram" if self.combine == "stack" else "none"
        return self._head_message(X, y, train_head(X, y, fit), curvature, client)

    def _learn(self, messages, seed):
        needed = "gram" if self.combine == "stack" else "none"
        self._check_heads(messages, needed, f"combine={self.combine!r}")
        self._fit_aligner(messages)
        for name in ("coef_", "intercept_"):  # of an earlier fit
            vars(self).pop(name, None)
        self._combine, self._consistent = self.combine, self.consistent
        self.heads_, counts = [], []
        for head in self._aligned_messages(messages, CurvedHead.pushed):
            facts = {"client": head.client, "encoder": head.encoder}
            model = LinearModel(head.classes, head.coef, head.intercept, **facts)
            self.heads_.append(model)
            counts.append(head.counts)
        self.classes_ = np.unique(
            np.concatenate([each.classes for each in self.heads_])
        )
        self._weights = np.zeros((len(counts), len(self.classes_)))
        for weights, head, held in zip(self._weights, self.heads_, counts, strict=True):
            weights[np.searchsorted(self.classes_, head.classes)] = held
        self._weights /= self._weights.sum(axis=0)
        if self.combine == "stack":
            aligned = self._aligned_messages(messages, CurvedHead.pushed)
            coef = np.vstack([head.coef for head in self.heads_])
            self.coef_, self.intercept_ = stack_heads(coef, pool_statistics(aligned))

    def _scores(self, X):
        if self._combine == "stack":
            return super()._scores(X)
        shares = log_shares(X, self.heads_, self.classes_)
        if self._combine == "vote":
            return count_votes(shares, self._consistent)
        weights = self._weights
        if self._combine == "mean":
            weights = np.full_like(weights, 1 / len(weights))
        return average(shares, weights)


def log_shares(X, heads, classes):
    """Logarithm of the probability of each class by each head.

    Shape (n_heads, n_samples, n_classes); minus infinity for classes that a head does
    not know. A head with a single class had nothing to tell it from, and gives it what
    it would have if all classes were as probable.
    """
    shares = np.full((len(heads), len(X), len(classes)), -np.inf)
    for share, head in zip(shares, heads, strict=True):
        known = np.searchsorted(classes, head.classes)
        share[:, known] = log_softmax(X @ head.coef.T + head.intercept, axis=1)
        if len(known) == 1:
            share[:, known] = -np.log(len(classes))
    return shares


def average(shares, weights):
    """Logarithm of weighted probabilities; ``weights`` of each head and class."""
    return logsumexp(shares, axis=0, b=weights[:, None])


def count_votes(shares, consistent):
    """Logarithm of votes, the mean probability being one more vote that breaks ties.

    A head votes for the class that it takes as most probable; if ``consistent``, only
    where this is more probable than all others together.
    """
    n_heads, n_samples, n_classes = shares.shape
    votes = np.zeros((n_samples, n_classes))
    for share in shares:
        best = share.argmax(axis=1)
        counts = share.max(axis=1) > np.log(0.5) if consistent else np.ones(n_samples)
        votes[np.arange(n_samples), best] += counts
    mean = average(shares, np.full((n_heads, n_classes), 1 / n_heads))
    with np.errstate(divide="ignore"):
        return np.logaddexp(np.log(votes), mean) - np.log(n_heads + 1)


def stack_heads(coef, pooled):
    """Weights and intercepts of the best combination of scores, by least squares.

    ``coef`` are the weights of all heads together; the statistics of the rows say all
    about the scores that is needed to regress the labels on them.
    """
    priors = pooled.counts / pooled.counts.sum()
    mean = pooled.mean
    covariance = coef @ pooled.covariance("total") @ coef.T
    # a head that always says the same has no weight
    constant = is_constant(covariance.diagonal(), coef @ mean, pooled.n_samples)
    deviation = np.sqrt(np.where(constant, np.inf, covariance.diagonal()))
    correlation = covariance / deviation / deviation[:, None]
    np.fill_diagonal(correlation, 1 + STACK_RIDGE)
    between = priors * ((pooled.means - mean) @ coef.T / deviation).T
    solved = cho_solve((cholesky(correlation), True), between) / deviation[:, None]
    stacked = solved.T @ coef
    return stacked, priors - stacked @ mean
