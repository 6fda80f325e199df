"""Heads of several clients as one classifier: pure functions of arrays."""

import numpy as np
from numpy.linalg import cholesky
from scipy.linalg import cho_solve
from scipy.special import log_softmax, logsumexp

from ..statistics import is_constant

# Added to the variances of standardised scores when heads are stacked.
STACK_RIDGE = 1e-2


def log_shares(X, heads, classes):
    """Logarithm of the probability of each class by each head.

    Shape (n_heads, n_samples, n_classes); minus infinity for classes that a head does
    not know. A head with a single class had nothing to tell it from, and gives it what
    it would have if all classes were as probable.
    """
    shares = np.full((len(heads), len(X), len(classes)), -np.inf)
    for share, (labels, coef, intercept) in zip(shares, heads, strict=True):
        known = np.searchsorted(classes, labels)
        share[:, known] = log_softmax(X @ coef.T + intercept, axis=1)
        if len(labels) == 1:
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
