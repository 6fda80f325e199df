"""Measurements of one partition: accuracy at each client, and bytes that it sends."""

import warnings
from dataclasses import replace

import numpy as np
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.neighbors import KNeighborsClassifier

from .._utils import ignored
from ..alignment import AlignmentWarning, FederatedOTAligner
from ..classifiers import FedAvgClassifier, FedCGSClassifier, MixedEffectsClassifier

MANY, FEW = 200, 30
# What a site that took part in training learns from, and one that did not; and the
# strength of the alignment.
KNOWN_SITES = {
    "labelled rows only": "auto",
    f"+ {MANY} unlabelled": "auto",
    f"+ {FEW} unlabelled": "auto",
    f"+ {MANY} of two classes": "auto",
}
NEW_SITES = {
    "new site, FedCGS": 0.0,
    f"SLOT, {MANY} unlabelled": 0.4,
    "mixed effects, no rows": "auto",
    f"mixed, {MANY} unlabelled": "auto",
    "mixed, 1 label per class": "auto",
    "FedCGS, 1 label": 0.0,
    "local LDA, 1 label": 0.0,
    "mixed, 5 labels per class": "auto",
    "FedCGS, 5 labels": 0.0,
    "local LDA, 5 labels": 0.0,
}


# ---------------------------------------------------------------- baselines


def discriminant_analysis(X, y):
    """Fit a discriminant analysis, or the nearest row if each class has one row."""
    n_classes = len(np.unique(y))
    if n_classes == 1:
        model = DummyClassifier()
    elif len(y) == n_classes:
        model = KNeighborsClassifier(1)
    else:
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    return _quietly(model.fit, X, y)


class LocalDiscriminant:
    """Discriminant analysis of each client alone, with its own class distribution."""

    def fit(self, X, y, client_ids):
        """Fit one classifier to the rows of each client."""
        self.models = {
            client: discriminant_analysis(X[rows], y[rows])
            for client in np.unique(client_ids)
            for rows in [client_ids == client]
        }
        self.dtype = y.dtype
        return self

    def predict(self, X, client_ids):
        """Predict rows by the classifier of their client."""
        predicted = np.empty(len(X), dtype=self.dtype)
        for client in np.unique(client_ids):
            rows = client_ids == client
            predicted[rows] = self.models[client].predict(X[rows])
        return predicted


class PooledDiscriminant:
    """Discriminant analysis of the rows of all clients, as if these could be sent."""

    def fit(self, X, y, client_ids):
        """Fit one classifier to all rows."""
        self.model = discriminant_analysis(X, y)
        return self

    def predict(self, X, client_ids):
        """Predict rows by the one classifier."""
        return self.model.predict(X)


# -------------------------------------------------------------- one classifier


def fit_rows(classifier, rows):
    """Fit a classifier to the rows of clients, whatever an alignment may cost."""
    with ignored(AlignmentWarning):
        return classifier.fit(rows.X, rows.y, client_ids=rows.client_ids)


def align_rows(aligner, *parts):
    """Transform several sets of rows by a fitted aligner."""
    return [
        replace(rows, X=aligner.transform(rows.X, client_ids=rows.client_ids))
        for rows in parts
    ]


def accuracy_at(classifier, rows):
    """Compute the percentage of correct predictions at each client, by its name."""
    right = classifier.predict(rows.X, client_ids=rows.client_ids) == rows.y
    return [100 * float(right[rows.client_ids == each].mean()) for each in rows.clients]


def measure(classifier, aligner, train, test, dtype="float32"):
    """Train and test a classifier, aligned unless ``aligner`` is None.

    Messages are sent with the precision ``dtype``. Return the percentage of correct
    predictions at each client, and the bytes that it sent.
    """
    classifier = clone(classifier, safe=False)  # a baseline is copied
    sent = np.zeros(len(train.clients), dtype=int)
    if aligner is not None and hasattr(classifier, "aligner"):
        classifier.set_params(aligner=aligner)
    elif aligner is not None:  # the statistics are a message of their own
        aligner = fit_rows(clone(aligner), train)
        train, test = align_rows(aligner, train, test)
        sent += [message.nbytes(dtype) for message in aligner.statistics_]
    sent += _train(classifier, train, dtype)
    return accuracy_at(classifier, test), sent.tolist()


def _train(classifier, train, dtype):
    """Fit a classifier, and count the bytes that each client sends for it."""
    rows = [train.client_ids == client for client in train.clients]
    if isinstance(classifier, LocalDiscriminant):
        fit_rows(classifier, train)
        return [0 for _ in rows]
    if isinstance(classifier, PooledDiscriminant):  # rows and labels are sent
        fit_rows(classifier, train)
        size = np.dtype(dtype).itemsize * (train.X.shape[1] + 1)
        return [size * own.sum() for own in rows]
    if isinstance(classifier, FedAvgClassifier):
        return _train_in_rounds(classifier, train, rows, dtype)
    classes = np.unique(train.y)
    messages = [
        classifier.client_update(
            train.X[own], train.y[own], classes=classes, client=client
        )
        for client, own in zip(train.clients, rows, strict=True)
    ]
    with ignored(AlignmentWarning):
        classifier.server_aggregate([each.as_received(dtype) for each in messages])
    return [message.nbytes(dtype) for message in messages]


def _train_in_rounds(classifier, train, rows, dtype):
    """Fit FedAvg; each of its messages is as large as their average."""
    fit_rows(classifier, train)
    sent = []
    for client, own in zip(train.clients, rows, strict=True):
        head = replace(classifier.model_, client=client)
        sent.append(classifier.n_rounds * head.nbytes(dtype))
        if classifier.standardize:
            summary = classifier.client_summary(train.X[own], client=client)
            sent[-1] += summary.nbytes(dtype)
    return sent


# ----------------------------------------------- sites that learn from their own rows


def at_known_sites(train, test, seed):
    """Measure what unlabelled rows are worth to sites that took part in training.

    Half of the test rows of each site are set aside, and unlabelled rows are drawn from
    them. Returns the accuracy at each client on the other half, for ``KNOWN_SITES``.
    """
    rng = np.random.default_rng([seed, 1])
    pool, test = set_aside(test, rng)
    two = rng.choice(np.unique(pool.y), 2, replace=False)
    classifier = fit_rows(MixedEffectsClassifier(), train)
    found = [accuracy_at(classifier, test)]
    for rows, n in ((pool, MANY), (pool, FEW), (_of_classes(pool, two), MANY)):
        for client in pool.clients:
            drawn = rng.permutation(np.flatnonzero(rows.client_ids == client))[:n]
            if len(drawn):
                _quietly(classifier.adapt_client, rows.X[drawn], client)
        found.append(accuracy_at(classifier, test))
    return dict(zip(KNOWN_SITES, found, strict=True))


def at_new_sites(train, test, seed):
    """Measure what rows are worth to a site that was not there in training.

    Each site is left out in turn, and joins with rows that were set aside as in
    :func:`at_known_sites`; labelled ones are of classes that another site has. Returns
    the accuracy at each client, for ``NEW_SITES``.
    """
    rng = np.random.default_rng([seed, 1])
    pool, test = set_aside(test, rng)
    by_client = [
        _accuracy_of_newcomer(
            train.select(train.client_ids != client),
            pool.select(pool.client_ids == client),
            test.select(test.client_ids == client),
            rng,
        )
        for client in test.clients
    ]
    return dict(zip(NEW_SITES, np.transpose(by_client).tolist(), strict=True))


def _accuracy_of_newcomer(founders, pool, test, rng):
    (client,) = test.clients
    unlabelled = pool.X[rng.permutation(len(pool.y))[:MANY]]
    slot = fit_rows(FedCGSClassifier(aligner=FederatedOTAligner(0.4)), founders)
    mixed = fit_rows(MixedEffectsClassifier(unknown_client="identity"), founders)
    found = [
        accuracy_at(fit_rows(FedCGSClassifier(), founders), test),
        accuracy_at(slot.add_client(unlabelled, client), test),
        accuracy_at(mixed, test),
    ]
    _quietly(mixed.add_client, unlabelled, client)
    found.append(accuracy_at(mixed, test))
    classes = np.intersect1d(founders.y, pool.y)
    for n in (1, 5):
        of_class = [rng.permutation(np.flatnonzero(pool.y == c))[:n] for c in classes]
        X, y, ids = _columns(pool.select(np.concatenate(of_class)))
        mixed.reset_client(client).add_client(X, client, y)
        together = zip(_columns(founders), (X, y, ids), strict=True)
        refitted = FedCGSClassifier().fit(*map(np.concatenate, together))
        local = LocalDiscriminant().fit(X, y, ids)
        found += [accuracy_at(each, test) for each in (mixed, refitted, local)]
    return np.ravel(found)


def set_aside(rows, rng):
    """Half of the rows of each client, drawn at random, and the others."""
    aside = np.zeros(len(rows.y), dtype=bool)
    for client in rows.clients:
        own = rng.permutation(np.flatnonzero(rows.client_ids == client))
        aside[own[: len(own) // 2]] = True
    return rows.select(aside), rows.select(~aside)


def _of_classes(rows, classes):
    return rows.select(np.isin(rows.y, classes))


def _columns(rows):
    return rows.X, rows.y, rows.client_ids


def _quietly(action, *arguments):
    """Call an action without its warnings about few rows or classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return action(*arguments)
