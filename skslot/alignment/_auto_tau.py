"""Strength of the alignment from class counts and class means, without validation."""

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.metrics import mutual_info_score
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from ..base import FEATURES, ClientGroups, assert_finite_by_client
from ..statistics import class_means

# Chosen on PACS and four digit domains; see the user guide on choosing tau.
GAIN = 2.0
MOST = 0.7
PRECISION_FLOOR = 0.05


def automatic_tau(X, y, client_ids):
    """Compute the strength of the alignment that labels call for, in closed form.

    Strong when labels tell clients apart, when clients differ more than classes do, and
    when there are rows enough to estimate the maps; 0 without label shift. This is what
    ``FederatedOTAligner(tau="auto")`` uses.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Features.
    y : array-like of shape (n_samples,)
        Labels.
    client_ids : array-like of shape (n_samples,)
        Client of each row.

    Returns
    -------
    tau : float
        Strength, from 0 to 0.7.

    See Also
    --------
    FederatedOTAligner : Aligns with a strength.
    skslot.model_selection.FederatedGridSearchCV : Searches for the best strength.

    Examples
    --------
    >>> from skslot.alignment import automatic_tau
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.model_selection import dirichlet_label_shift
    >>> data = load_digit_scanners()
    >>> X, y, site = data.data, data.target, data.client_ids
    >>> round(automatic_tau(X, y, site), 2)
    0.0
    >>> rows = dirichlet_label_shift(y, site, alpha=0.1, random_state=0)
    >>> round(automatic_tau(X[rows], y[rows], site[rows]), 2)
    0.29
    """
    X = check_array(X, **{**FEATURES, "dtype": np.float64})
    y = column_or_1d(y)
    check_consistent_length(X, y)
    groups = ClientGroups.from_ids(client_ids, len(X))
    assert_finite_by_client(X, groups)
    return tau_of_cells(
        [class_means(X[rows], y[rows]) for rows in groups.rows],
        [X[rows].var(axis=0).sum() for rows in groups.rows],
    )


def tau_of_cells(cells, traces):
    """Strength for clients described by ``{label: (count, mean)}`` and total variance.

    Used for messages and for rows alike, so that both give the same number.
    """
    labels = list(dict.fromkeys(label for client in cells for label in client))
    n_features = len(next(iter(cells[0].values()))[1])
    counts = np.zeros((len(cells), len(labels)))
    means = np.zeros((*counts.shape, n_features))
    for row, client in enumerate(cells):
        for column, label in enumerate(labels):
            if label in client:
                counts[row, column], means[row, column] = client[label]
    within = _within_traces(counts, means, np.asarray(traces))
    share = _domain_share(counts, means, within)
    rows = counts.sum() / len(cells)
    reliability = rows / (rows + n_features)
    return float(min(MOST, GAIN * _label_shift(counts) * share * reliability))


def _label_shift(counts):
    """Mutual information of client and class, between 0 and 1."""
    size = min(len(counts), np.sum(counts.sum(axis=0) > 0))
    if size < 2:
        return 0.0
    information = mutual_info_score(None, None, contingency=counts)
    return max(float(information), 0.0) / np.log(size)


def _domain_share(counts, means, within):
    """Squared distance between clients, as a share of that and between classes."""
    noise = within[:, None] / np.maximum(counts, 1)
    between_clients = [
        _pair_distances(counts[:, c], means[:, c], noise[:, c])
        for c in range(counts.shape[1])
    ]
    between_classes = [
        _pair_distances(counts[k], means[k], noise[k]) for k in range(len(counts))
    ]
    domain, label = _weighted_mean(between_clients), _weighted_mean(between_classes)
    if domain is None or label is None or domain + label == 0:
        return 0.5
    return domain / (domain + label)


def _pair_distances(counts, means, noise):
    """Squared distances of all pairs of means, less noise, and their weights."""
    known = counts >= 2
    counts, means, noise = counts[known], means[known], noise[known]
    first, second = np.triu_indices(len(counts), 1)
    distances = pdist(means, "sqeuclidean")
    weights = 1 / (1 / counts[first] + 1 / counts[second] + PRECISION_FLOOR)
    return distances - noise[first] - noise[second], weights


def _weighted_mean(parts):
    values = np.concatenate([values for values, _ in parts])
    weights = np.concatenate([weights for _, weights in parts])
    if not len(values):
        return None
    return max(float(weights @ values / weights.sum()), 0.0)


def _within_traces(counts, means, traces):
    """Variance around class means, summed over features, of each client."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    centres = np.einsum("kc,kcm->km", shares, means)
    spread = np.square(means - centres[:, None]).sum(axis=2)
    return np.maximum(traces - (shares * spread).sum(axis=1), 0.0)
