"""FedCoreset: a classifier trained on a few weighted rows of each class."""

from dataclasses import replace
from numbers import Integral

import numpy as np
from sklearn.utils.class_weight import compute_sample_weight

from .._docstrings import document
from .._sklearn_compat import HasMethods, Interval, StrOptions
from ..exchange import ClassRows
from ..statistics import FeatureMoments, average_rows
from ._base import AlignedClassifierMixin, OneShotClassifier
from ._gaussian import counts_and_means
from ._training import ServerEstimatorMixin, fit_softmax, train_estimator


@document
class FedCoresetClassifier(
    ServerEstimatorMixin, AlignedClassifierMixin, OneShotClassifier
):
    """Federated classifier trained on a few representative samples, in one round.

    Clients send a few samples for each of their classes, each weighted by the number of
    samples that it represents, and the server trains any classifier on them. With
    ``method="kmeans"``, these are cluster centres, which FedD3 [1]_ sends as instances
    and FedDISC [2]_ as centroids. FedSD2C [3]_ sends real samples.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    method : {"kmeans", "herding", "confident"}, default="kmeans"
        How the representatives of a class are chosen. ``"kmeans"`` sends the means of
        clusters. ``"herding"`` sends samples whose mean is close to the class mean, and
        ``"confident"`` the samples with the largest probability under a logistic
        regression of the client. The last two send real samples and require
        ``allow_real_rows``.
    n_per_class : int, default=10
        Maximum number of samples sent for each class.
    soft_labels : bool, default=False
        Whether to send class probabilities instead of a label with each sample. They
        are predicted by a logistic regression of the client, and averaged over
        clusters.
    estimator : estimator object, default=None
        Classifier trained by the server. Its ``fit`` must accept ``sample_weight``. If
        None, a logistic regression of standardized samples is used.
    min_samples : int, default=5
        Minimum number of samples in a cluster. Smaller clusters are merged into the
        nearest one. For a class with fewer samples, only the count is sent, and with
        ``aligner`` also the mean. Messages that contain the mean of so few samples
        cannot be saved.
    allow_real_rows : bool, default=False
        Whether clients may send real samples.
    {aligner}
        The samples that clients send are transformed. Predictions equal those of a
        Pipeline of this aligner and this classifier if the same samples are chosen
        before and after alignment: with shifts, or with ``n_per_class=1`` and "kmeans".
    {client_column}
    {screen}
    {random_state}
        Used by k-means, and by ``estimator`` if ``estimator`` has no ``random_state``.
    {n_jobs}
    {verbose}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels for which clients sent samples.
    {estimator_}
    {clients_report_}
    {aligner_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    FedPFTClassifier : Sends distributions, from which the server draws samples.
    sklearn.cluster.KMeans : Finds the clusters.

    Notes
    -----
    The classifier does not learn a class of which no client has ``min_samples``
    samples. The result depends on how samples are distributed over clients, because
    each client has its own clusters.

    References
    ----------
    .. [1] R. Song, D. Liu, D. Z. Chen, A. Festag, C. Trinitis, M. Schulz, A. Knoll.
       "Federated Learning via Decentralized Dataset Distillation in
       Resource-Constrained Edge Environments". IJCNN, 2023.
    .. [2] M. Yang, S. Su, B. Li, X. Xue. "Exploring One-Shot Semi-supervised Federated
       Learning with Pre-trained Diffusion Models". AAAI, 2024.
    .. [3] J. Zhang, S. Liu, X. Wang. "One-shot Federated Learning via Synthetic
       Distiller-Distillate Communication". NeurIPS, 2024.

    Examples
    --------
    >>> from skslot import FedCoresetClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedCoresetClassifier(random_state=0)
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedCoresetClassifier(random_state=0)
    >>> classifier.score(data.data, data.target) > 0.85
    True
    """

    message_type = ClassRows

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "method": [StrOptions({"kmeans", "herding", "confident"})],
        "n_per_class": [Interval(Integral, 1, None, closed="left")],
        "soft_labels": ["boolean"],
        "estimator": [HasMethods(["fit", "predict"]), None],
        "min_samples": [Interval(Integral, 1, None, closed="left")],
        "allow_real_rows": ["boolean"],
        "aligner": AlignedClassifierMixin._aligner_constraint,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        method="kmeans",
        *,
        n_per_class=10,
        soft_labels=False,
        estimator=None,
        min_samples=5,
        allow_real_rows=False,
        aligner=None,
        client_column=None,
        screen="warn",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.method = method
        self.n_per_class = n_per_class
        self.soft_labels = soft_labels
        self.estimator = estimator
        self.min_samples = min_samples
        self.allow_real_rows = allow_real_rows
        self.aligner = aligner
        self.client_column = client_column
        self.screen = screen
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _summarize(self, X, y, classes, client, seed):
        if self.method != "kmeans" and not self.allow_real_rows:
            raise ValueError(
                f"method={self.method!r} sends rows of client {client!r} as they are. "
                "Set allow_real_rows=True if others may see them, or use "
                "method='kmeans', which sends means of several rows."
            )
        held = np.unique(y)
        counts, means = counts_and_means(X, y, held)
        shares = np.ones((len(X), len(held)))  # no row is surer than others
        if len(held) > 1 and (self.soft_labels or self.method == "confident"):
            model = fit_softmax(X, y, compute_sample_weight("balanced", y))
            shares = model.predict_proba(X)
        groups, weights, n_rows = [], [], []
        for label, share in zip(held, shares.T, strict=True):
            own = np.flatnonzero(y == label)
            chosen = self._choose_groups(X[own], share[own], seed)
            sizes = np.array([len(group) for group in chosen])
            groups += [own[group] for group in chosen]
            weights += (len(own) * sizes / sizes.sum()).tolist() if chosen else []
            n_rows.append(len(chosen))
        rows = [average_rows(X[group]) for group in groups]
        soft_labels = means_for_alignment = np.empty(0)
        if self.soft_labels:
            soft_labels = np.array([shares[group].mean(axis=0) for group in groups])
            soft_labels = soft_labels.reshape(-1, len(held))
        part = np.empty(0), np.empty(0)
        if self.aligner is not None:
            means_for_alignment = means
            part = self._part_for_alignment(FeatureMoments.from_rows(X))
        return ClassRows(
            held.tolist(),
            self.method,
            counts,
            np.array(n_rows, dtype=np.int32),
            np.reshape(rows, (-1, X.shape[1])),
            np.array(weights, dtype=np.float64),
            soft_labels,
            means_for_alignment,
            *part,
            client,
        )

    def _choose_groups(self, X, shares, seed):
        """Positions of rows of one class, in groups that are sent as their mean."""
        if len(X) < self.min_samples:
            return []
        if self.method == "kmeans":
            labels = cluster_rows(X, self.n_per_class, self.min_samples, seed)
            return [np.flatnonzero(labels == each) for each in range(labels.max() + 1)]
        if self.method == "herding":
            chosen = herd(X, self.n_per_class)
        else:
            chosen = most_confident(X, shares, self.n_per_class)
        return list(chosen[:, None])

    def _learn(self, messages, seed):
        self._fit_aligner(messages)
        rows, labels, weights = [], [], []
        for message in self._aligned_messages(messages, push_rows):
            classes = np.array(message.classes)
            shares = message.soft_labels
            if not shares.size:
                shares = np.eye(len(classes))[message.owners]
            index, position = np.nonzero(shares)
            rows.append(message.rows[index])
            labels.append(classes[position])
            weights.append(message.weights[index] * shares[index, position])
        rows, labels, weights = map(np.concatenate, (rows, labels, weights))
        if not len(rows):
            n_samples = sum(sender.n_samples for sender in messages.senders)
            raise ValueError(
                f"no client has a class of min_samples={self.min_samples} rows, so "
                f"there is nothing to learn from (n_samples={n_samples})."
            )
        self._say(f"training on {len(rows)} rows")
        # an estimator may depend on the order of rows, but not on that of clients
        order = np.lexsort((weights, *rows.T))
        self.estimator_ = train_estimator(
            self.estimator, rows[order], labels[order], seed, weights[order]
        )
        self.classes_ = self.estimator_.classes_


def cluster_rows(X, n_clusters, min_samples, seed):
    """Clusters of rows, none of them smaller than ``min_samples``.

    Position of the cluster of each row. What k-means leaves too small joins the cluster
    whose mean is nearest, the smallest first.
    """
    n_clusters = min(n_clusters, len(X) // min_samples)
    if n_clusters > 1:
        n_clusters = min(n_clusters, len(np.unique(X, axis=0)))
    if n_clusters <= 1:
        return np.zeros(len(X), dtype=int)
    from sklearn.cluster import KMeans  # not for servers, which choose no rows

    # distances cancel far from zero, most of all in float32
    centred = (X - average_rows(X)).astype(X.dtype, copy=False)
    labels = KMeans(n_clusters, random_state=seed).fit(centred).labels_
    while True:
        _, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        smallest = sizes.argmin()
        if sizes[smallest] >= min_samples:
            return labels
        centres = average_by(X, labels)
        apart = np.square(centres - centres[smallest]).sum(axis=1)
        apart[smallest] = np.inf
        labels[labels == smallest] = apart.argmin()


def average_by(values, labels):
    """Mean of the rows of each label 0, 1, ..."""
    sums = np.zeros((labels.max() + 1, values.shape[1]))
    np.add.at(sums, labels, values)
    return sums / np.bincount(labels)[:, None]


def herd(X, n_rows):
    """Positions of rows whose mean is near that of all, the best one first."""
    centred = X - average_rows(X)
    chosen, total = [], np.zeros(X.shape[1])
    free = np.ones(len(X), dtype=bool)
    for _ in range(min(n_rows, len(X))):
        miss = np.square(total + centred).sum(axis=1)
        best = np.where(free, miss, np.inf).argmin()
        chosen.append(best)
        free[best] = False
        total += centred[best]
    return np.array(chosen)


def most_confident(X, shares, n_rows):
    """Positions of rows whose class is surest; of equals, those nearest to the mean."""
    apart = np.square(X - average_rows(X)).sum(axis=1)
    return np.lexsort((apart, -shares))[:n_rows]


def push_rows(message, matrix, offset):
    """ClassRows with the rows mapped by ``z -> matrix @ z + offset``."""
    rows = message.rows if matrix is None else message.rows @ matrix.T
    return replace(message, rows=rows + offset)
