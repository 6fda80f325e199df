"""Strength of the alignment from class counts and class means, without validation."""

import numpy as np

# Chosen on PACS and four digit domains; see the user guide on choosing tau.
GAIN = 2.0
MOST = 0.7
PRECISION_FLOOR = 0.05


def automatic_tau_of(cells, traces):
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
    return automatic_tau(counts, means, np.asarray(traces))


def automatic_tau(counts, means, traces):
    """Strength that label shift, domain shift and sample size call for.

    ``counts`` (n_clients, n_classes) and ``means`` (n_clients, n_classes, n_features)
    describe the cells, ``traces`` (n_clients,) the total variance of each client.
    Strong when labels tell clients apart, when clients differ more than classes do, and
    when there are rows enough to estimate the maps; 0 without label shift.
    """
    n_clients, _, n_features = means.shape
    rows = counts.sum() / n_clients
    share = _domain_share(counts, means, _within_traces(counts, means, traces))
    reliability = rows / (rows + n_features)
    return float(min(MOST, GAIN * _label_shift(counts) * share * reliability))


def _label_shift(counts):
    """Mutual information of client and class, between 0 and 1."""
    joint = counts / counts.sum()
    classes = joint.sum(axis=0) > 0
    size = min(len(joint), classes.sum())
    if size < 2:
        return 0.0
    joint = joint[:, classes]
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    filled = joint > 0
    information = np.sum(joint[filled] * np.log(joint[filled] / independent[filled]))
    return max(information, 0.0) / np.log(size)


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
    centred = means - means.mean(axis=0) if len(means) else means
    norms = np.einsum("ij,ij->i", centred, centred)
    products = (centred @ centred.T)[first, second]
    distances = norms[first] + norms[second] - 2 * products
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
