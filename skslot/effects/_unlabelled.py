"""What a site learns from rows without labels, by expectation maximisation."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import softmax

from ..statistics import average_rows, is_constant

# A row whose class is guessed counts as this much of a labelled one. Chosen on PACS and
# four digit domains; with 1, rows of two classes only cost 3 to 6 points.
SHARE_OF_GUESSED = 0.3
# Rows that the label mix of all clients counts for, against those of the site.
PRIOR_ROWS = 10
# Fewer guessed rows of a class than this are none.
TINY = 1e-12
# It ends when no mean moves by more than this share of the deviation within classes.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class SiteFit:
    """What unlabelled rows say about one site.

    Made by :func:`fit_unlabelled`.

    Parameters
    ----------
    offset : ndarray of shape (n_features,)
        How far the site is from the others.
    class_means : ndarray of shape (n_classes, n_features)
        Mean of each class there, without the offset.
    counts : ndarray of shape (n_classes,)
        Rows of each class, guessed ones in part.
    means : ndarray of shape (n_classes, n_features)
        Their means, with the offset.
    label_mix : ndarray of shape (n_classes,)
        Estimated share of each class in the unlabelled rows.
    certainty : float
        Mean probability of the most likely class of a row.
    distance : float
        Mean squared distance of rows to their class, per feature and in units of the
        variance within classes: about 1 for rows like those of the other clients.
    n_passes : int
        Passes over the rows.
    moved : float
        Length of the change of the offset, in deviations within classes.

    See Also
    --------
    fit_unlabelled : Makes it.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.effects import Cells, fit_mixed_effects, fit_unlabelled
    >>> rng, classes = np.random.default_rng(0), 6 * np.eye(3)
    >>> client, label = np.divmod(np.arange(6), 3)
    >>> means = classes[label] + np.array([[1.0], [-1.0]])[client]
    >>> cells = Cells(client, label, np.full(6, 50.0), means, within=900.0)
    >>> rows = classes[rng.integers(3, size=200)] + rng.normal(size=(200, 3)) + 2
    >>> fit = fit_unlabelled(fit_mixed_effects(cells), np.eye(3), rows)
    >>> fit.offset.round()
    array([2., 2., 2.])
    """

    offset: np.ndarray
    class_means: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    label_mix: np.ndarray
    certainty: float
    distance: float
    n_passes: int
    moved: float


def fit_unlabelled(model, covariance, X, counts=None, means=None):
    """Estimate offset and class means of a site from rows without labels.

    Parameters
    ----------
    model : MixedEffects
        What is known of all clients; it stays as it is.
    covariance : ndarray of shape (n_features, n_features)
        Covariance within classes.
    X : ndarray of shape (n_samples, n_features)
        Rows of the site.
    counts : ndarray of shape (n_classes,), default=None
        Labelled rows that the site has of each class. Without any, only its offset is
        estimated: class means from guesses alone do more harm than good.
    means : ndarray of shape (n_classes, n_features), default=None
        Means of the labelled rows.

    Returns
    -------
    fit : SiteFit
        Offset and class means, and how they came about.

    See Also
    --------
    MixedEffects : Has offsets and class means from labelled rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.effects import Cells, fit_mixed_effects, fit_unlabelled
    >>> client, label = np.divmod(np.arange(4), 2)
    >>> means = np.array([[0.0], [8.0], [2.0], [10.0]])
    >>> cells = Cells(client, label, np.full(4, 50.0), means, within=200.0)
    >>> model = fit_mixed_effects(cells)
    >>> rows = np.array([[2.9], [3.1], [11.0], [11.2], [10.8], [3.0]])
    >>> fit_unlabelled(model, np.eye(1), rows).label_mix.round(1)
    array([0.5, 0.5])
    """
    # In coordinates where the covariance within classes is the identity.
    magnitudes, n_samples = np.abs(model.means).max(axis=0), model.class_counts.sum()
    if is_constant(np.diag(covariance), magnitudes, n_samples).all():
        raise ValueError(
            "rows do not vary within classes, so that the classes of rows without "
            "labels cannot be guessed. Pass labels."
        )
    factor, centre = np.linalg.cholesky(covariance), average_rows(model.means)

    def whiten(rows):
        return solve_triangular(factor, (rows - centre).T, lower=True).T

    white = replace(model, means=whiten(model.means), effects=whiten(model.effects))
    if counts is None:
        site = _UnlabelledSite(white)
    else:
        means = np.where(counts[:, None] > 0, whiten(means), 0.0)
        site = _LabelledSite(white, counts, means)
    rows, shares = whiten(X), model.class_shares
    offset, class_means = start, _ = site.start()
    mix = shares
    n_passes, step = 0, np.inf
    while n_passes < site.most_passes and step > TOLERANCE:
        n_passes += 1
        guesses = _responsibilities(rows - offset, class_means, mix)
        before = offset, class_means
        cells = site.with_guesses(guesses, rows)
        offset, class_means = site.learn(*cells)
        mix = (guesses.sum(axis=0) + PRIOR_ROWS * shares) / (len(rows) + PRIOR_ROWS)
        pairs = zip((offset, class_means), before, strict=True)
        step = max(np.abs(now - then).max() for now, then in pairs)
    distances = cdist(rows - offset, class_means, "sqeuclidean")
    return SiteFit(
        offset=factor @ offset,
        class_means=centre + class_means @ factor.T,
        counts=cells[0],
        means=centre + cells[1] @ factor.T,
        label_mix=guesses.mean(axis=0),
        certainty=float(guesses.max(axis=1).mean()),
        distance=float((guesses * distances).sum() / rows.size),
        n_passes=n_passes,
        moved=float(np.linalg.norm(offset - start)),
    )


class _LabelledSite:
    """A site whose guessed rows add to labelled ones, at a lower weight."""

    most_passes = 30

    def __init__(self, model, counts, means):
        self.model, self.counts, self.means = model, counts, means

    def start(self):
        offset = self.model.offset(self.counts, self.means)
        return offset, self.model.own_means(self.counts, self.means, offset)

    def with_guesses(self, guesses, rows):
        guesses = SHARE_OF_GUESSED * guesses
        counts = self.counts + guesses.sum(axis=0)
        sums = self.counts[:, None] * self.means + guesses.T @ rows
        return counts, sums / np.maximum(counts, TINY)[:, None]

    def learn(self, counts, means):
        offset = self.model.offset(counts, means, self.model.means)
        return offset, self.model.own_means(counts, means, offset)


class _UnlabelledSite:
    """A site without labels, whose guessed rows only say where it is."""

    most_passes = 50

    def __init__(self, model):
        self.model = model

    def start(self):
        return np.zeros(self.model.means.shape[1]), self.model.means

    def with_guesses(self, guesses, rows):
        counts = guesses.sum(axis=0)
        return counts, guesses.T @ rows / np.maximum(counts, TINY)[:, None]

    def learn(self, counts, means):
        return self.model.offset_of_newcomer(counts, means), self.model.means


def _responsibilities(rows, class_means, mix):
    """Probability of each class for each row, within-class covariance the identity."""
    with np.errstate(divide="ignore"):
        log_mix = np.log(mix)
    scores = rows @ class_means.T - np.square(class_means).sum(axis=1) / 2
    return softmax(scores + log_mix, axis=1)
