"""Gaussian mixtures per class: fitting, merging and drawing from them."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import svd
from scipy.linalg.lapack import dsfrk, dtfttp

from .._linalg import pack_triangle, unpack_triangle
from ..exchange import ClassMixtures
from ..statistics import average_rows, is_constant

COVARIANCE_TYPES = ("spherical", "diag", "full", "lowrank")

# Rows that are centred at once: enough for BLAS to run at full speed, few enough to
# stay in the cache. Fresh memory for all rows would cost as much as the arithmetic.
TILE_ROWS = 128


# ------------------------------------------------------------------ at the client


def fit_mixture(X, n_components, covariance_type, n_loadings, reg_covar, seed):
    """Weights, means and flat covariances of a mixture for the rows of one class."""
    if n_components > 1:
        n_components = min(n_components, len(np.unique(X, axis=0)))
    if n_components == 1:
        mean, covariance = single_gaussian(X, covariance_type, n_loadings)
        return np.ones(1), mean[None], covariance[None]
    # brings clusters and neighbours along, of which a server has no use
    from sklearn.mixture import GaussianMixture

    # GaussianMixture cancels far from zero, and its reg_covar has a unit
    centre = average_rows(X)
    variances = np.mean((X - centre) ** 2, axis=0)
    scale = np.sqrt(variances.mean())
    if is_constant(variances, centre, len(X)).all():
        scale = 1.0
    mixture = GaussianMixture(
        n_components,
        covariance_type=covariance_type,
        reg_covar=reg_covar,
        random_state=seed,
    ).fit((X - centre) / scale)
    # reg_covar is taken out again: it is added, once, where rows are drawn
    if covariance_type == "full":
        covariances = mixture.covariances_ - reg_covar * np.eye(len(centre))
        covariances = np.array([pack_triangle(c) for c in covariances])
    else:
        covariances = (mixture.covariances_ - reg_covar).reshape(n_components, -1)
    return mixture.weights_, scale * mixture.means_ + centre, scale**2 * covariances


def single_gaussian(X, covariance_type, n_loadings=1):
    """Mean and flat covariance of one Gaussian, in closed form."""
    mean = average_rows(X)
    if covariance_type == "full":
        return mean, _packed_covariance(X, mean)
    centred = X - mean
    if covariance_type == "lowrank":
        return mean, _principal_loadings(centred, n_loadings)
    if covariance_type == "diag":
        return mean, np.einsum("ij,ij->j", centred, centred) / len(X)
    return mean, np.array([np.vdot(centred, centred) / X.size])


def _packed_covariance(X, mean):
    """Packed upper triangle of the covariance, with no square matrix on the way.

    Sums are kept in LAPACK's rectangular form of a triangle, which is as fast to add to
    as a matrix and half its size.
    """
    n_samples, n_features = X.shape
    buffer = np.empty((min(n_samples, TILE_ROWS), n_features))
    sums = np.zeros(n_features * (n_features + 1) // 2)
    for start in range(0, n_samples, TILE_ROWS):
        tile = X[start : start + TILE_ROWS]
        centred = np.subtract(tile, mean, out=buffer[: len(tile)]).T
        shape, scale = centred.shape, 1 / n_samples
        sums = dsfrk(*shape, scale, centred, 1.0, sums, uplo="L", overwrite_c=1)
    return dtfttp(n_features, sums, uplo="L")[0]


def _principal_loadings(centred, n_loadings):
    """Loadings, one after the other, and the deviation that they leave to a feature.

    The maximum of the likelihood of probabilistic principal component analysis. Where
    rows span fewer directions than there are loadings, the others are zero.
    """
    n_samples, n_features = centred.shape
    n_loadings = min(n_loadings, n_features)
    if n_samples > n_features:  # the same singular values and axes, of a smaller matrix
        centred = np.linalg.qr(centred, mode="r")
    _, lengths, axes = svd(centred, full_matrices=False)
    variances = lengths**2 / n_samples
    left = max(n_features - n_loadings, 1)
    residual = variances[n_loadings:].sum() / left
    excess = np.maximum(variances[:n_loadings] - residual, 0.0)
    loadings = np.zeros((n_loadings, n_features))
    loadings[: len(excess)] = np.sqrt(excess)[:, None] * axes[: len(excess)]
    return np.append(loadings, np.sqrt(residual))


# ------------------------------------------------------------------ at the server


class Outline(NamedTuple):
    """What the server has to know of all messages before it draws from the first."""

    key: tuple
    client: object
    n_samples: int
    n_features: int
    classes: list
    variance: float

    @classmethod
    def of(cls, message):
        """Outline of a message."""
        return cls(
            _content_key(message),
            message.client,
            message.n_samples,
            message.n_features,
            message.classes,
            _mean_variance(message),
        )


def ranks_by_content(outlines):
    """Rank of each message in an order that neither names nor arrival change."""
    order = sorted(range(len(outlines)), key=lambda index: outlines[index].key)
    return np.argsort(order).tolist()


def _content_key(message):
    """What messages are ordered by.

    Numbers are compared along a generic direction: that order is the same in all units
    of the features, and rounding hardly ever changes it, as it would that of a feature
    which is constant. Messages with equal keys are equal.
    """
    numbers = message.means, message.covariances, message.weights
    for_alignment = message.covariance, message.shrinkage
    return (
        message.classes,
        message.counts.tolist(),
        message.n_components.tolist(),
        *map(_project, numbers + for_alignment),
    )


def _project(array):
    return float(array.ravel() @ np.sin(np.arange(1.0, array.size + 1)))


def _mean_variance(message):
    """Variance within components, averaged over rows and features."""
    # a component far from zero may have less than none, by rounding
    variances = np.maximum(message.component_variances, 0.0)
    within = message.component_rows @ variances
    return float(within / message.n_samples)


def check_can_be_drawn(n_rows, n_features, remedy):
    """Refuse more rows than fit in memory."""
    most = ClassMixtures.MOST_NUMBERS
    if n_rows * n_features > most:
        raise ValueError(
            f"drawing {n_rows} rows of {n_features} features would take "
            f"{n_rows * n_features / 2**27:.0f} GB, and at most "
            f"{most / 2**27:.0f} are allowed. {remedy}"
        )


def draw_rows(message, draws, ridge, rng):
    """Rows drawn from the mixture of each class, with their labels.

    ``draws`` of each class, or as many as the client has if it is "counts"; ``ridge``
    is added to all variances.
    """
    rows, labels, start = [], [], 0
    for label, count, n_components in zip(
        message.classes, message.counts, message.n_components, strict=True
    ):
        components = slice(start, start + n_components)
        weights = message.weights[components] / message.weights[components].sum()
        n_rows = int(count) if draws == "counts" else draws
        shares = rng.multinomial(n_rows, weights)
        for index, share in enumerate(shares, start=start):
            noise = _centred_noise(rng, share, message.n_features)
            rows.append(message.means[index] + _spread(noise, message, index, ridge))
        labels += [label] * n_rows
        start += n_components
    return np.vstack(rows), labels


def _centred_noise(rng, n_samples, n_features):
    """White noise whose rows average to zero.

    The rows drawn then have the mean of their component exactly, and not only up to the
    error of a small sample, which the client's own rows have already added once.
    """
    noise = rng.standard_normal((n_samples, n_features))
    if n_samples > 1:
        noise -= noise.mean(axis=0)
        noise *= np.sqrt(n_samples / (n_samples - 1))
    return noise


def _spread(noise, message, index, ridge):
    """White noise with the covariance of a component.

    By the symmetric root, which unlike a Cholesky factor hardly feels rounding, and
    unlike loadings has no sign.
    """
    flat, kind = message.covariances[index], message.covariance_type
    if kind == "full":
        eigenvalues, vectors = np.linalg.eigh(unpack_triangle(flat))
        roots = np.sqrt(np.maximum(eigenvalues, 0.0) + ridge)
        return noise @ ((vectors * roots) @ vectors.T)
    if kind == "lowrank":
        loadings, residual = _loadings(flat, message.n_features)
        _, lengths, axes = svd(loadings, full_matrices=False)
        base = np.sqrt(residual + ridge)
        roots = np.sqrt(lengths**2 + residual + ridge)
        return base * noise + ((noise @ axes.T) * (roots - base)) @ axes
    return noise * np.sqrt(np.maximum(flat, 0.0) + ridge)


def merge_by_class(messages_and_maps):
    """One Gaussian per class, with the mean and covariance of all its components.

    These are taken after the map of the client, which may be None.
    """
    merged = {}
    for message, client_map in messages_and_maps:
        affine = (None, None) if client_map is None else client_map.affine
        owners = np.repeat(np.arange(len(message.classes)), message.n_components)
        for index, count in enumerate(message.component_rows):
            label = message.classes[owners[index]]
            part = count, *_moved_component(message, index, *affine)
            merged[label] = _merge(merged[label], part) if label in merged else part
    classes = sorted(merged)
    counts, means, triangles = zip(*(merged[label] for label in classes), strict=True)
    return ClassMixtures(
        classes,
        "full",
        np.rint(counts).astype(np.int64),
        np.ones(len(classes), dtype=np.int32),
        np.ones(len(classes)),
        np.array(means),
        np.array(triangles),
        np.empty(0),
        np.empty(0),
    )


def _merge(first, second):
    """Count, mean and packed covariance of the rows of both."""
    (n_first, mean, own), (n_second, other_mean, other) = first, second
    count = n_first + n_second
    share, apart = n_second / count, other_mean - mean
    between = pack_triangle(np.outer(share * (1 - share) * apart, apart))
    triangle = (1 - share) * own + share * other + between
    return count, mean + share * apart, triangle


def _moved_component(message, index, matrix, offset):
    """Mean and packed covariance of a component after an affine map."""
    mean, covariance = message.means[index], _covariance(message, index)
    if matrix is not None:
        mean, covariance = matrix @ mean, matrix @ covariance @ matrix.T
    return mean if offset is None else mean + offset, pack_triangle(covariance)


def _covariance(message, index):
    """Covariance of a component as a matrix."""
    flat, n_features = message.covariances[index], message.n_features
    if message.covariance_type == "full":
        return unpack_triangle(flat)
    if message.covariance_type == "lowrank":
        loadings, residual = _loadings(flat, n_features)
        return loadings.T @ loadings + residual * np.eye(n_features)
    return np.diag(np.broadcast_to(flat, n_features))


def _loadings(flat, n_features):
    """Loadings as rows, and the variance that they leave."""
    return flat[:-1].reshape(-1, n_features), flat[-1] ** 2
