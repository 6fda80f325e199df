"""Gaussian mixtures per class: fitting, mapping and drawing from them."""

from dataclasses import replace

import numpy as np
from scipy.linalg.lapack import dsfrk, dtfttp
from sklearn.mixture import GaussianMixture

from ..exchange._packing import pack_triangle, unpack_triangle
from ..geometry._linalg import eigh

COVARIANCE_TYPES = ("spherical", "diag", "full")

# Rows that are centred at once: enough for BLAS to run at full speed, few enough to
# stay in the cache. Fresh memory for all rows would cost as much as the arithmetic.
TILE_ROWS = 128

# Most numbers that are drawn: 8 GB in float64.
MOST_NUMBERS = 2**30


def fit_mixture(X, n_components, covariance_type, reg_covar, seed):
    """Weights, means and flat covariances of a mixture for the rows of one class."""
    if n_components > 1:
        n_components = min(n_components, len(np.unique(X, axis=0)))
    if n_components == 1:
        mean, covariance = single_gaussian(X, covariance_type)
        return np.ones(1), mean[None], covariance[None]
    centre = X.mean(axis=0, dtype=np.float64)  # GaussianMixture cancels far from zero
    mixture = GaussianMixture(
        n_components,
        covariance_type=covariance_type,
        reg_covar=reg_covar,
        random_state=seed,
    ).fit(X - centre)
    # reg_covar is taken out again: it is added, once, where rows are drawn
    if covariance_type == "full":
        covariances = mixture.covariances_ - reg_covar * np.eye(len(centre))
        covariances = np.array([pack_triangle(c) for c in covariances])
    else:
        covariances = (mixture.covariances_ - reg_covar).reshape(n_components, -1)
    return mixture.weights_, mixture.means_ + centre, covariances


def single_gaussian(X, covariance_type):
    """Mean and flat covariance of one Gaussian, in closed form."""
    mean = X.mean(axis=0, dtype=np.float64)
    if covariance_type == "full":
        return mean, _packed_covariance(X, mean)
    centred = X - mean
    if covariance_type == "diag":
        return mean, np.einsum("ij,ij->j", centred, centred) / len(X)
    return mean, np.array([np.vdot(centred, centred) / X.size])


def push_mixtures(message, matrix, offset):
    """ClassMixtures of the same rows after ``z -> matrix @ z + offset``.

    Exact for full covariances. Spherical and diagonal ones do not stay so under a map:
    they are scaled by what the map does to the variance within classes.
    """
    means = message.means @ matrix.T + offset
    if message.covariance_type == "full":
        covariances = [
            pack_triangle(matrix @ unpack_triangle(flat) @ matrix.T)
            for flat in message.covariances
        ]
        return replace(message, means=means, covariances=np.array(covariances))
    within = _within_class_covariance(message)
    before = np.trace(within)
    growth = np.sum((matrix @ within) * matrix) / before if before > 0 else 1.0
    return replace(message, means=means, covariances=growth * message.covariances)


def check_can_be_drawn(messages):
    """Refuse more rows than fit in memory, which anybody may claim to have."""
    rows, n_features = {}, 0
    for message in messages:
        rows[message.client] = rows.get(message.client, 0) + message.n_samples
        n_features = message.n_features
    total = sum(rows.values())
    if total * n_features > MOST_NUMBERS:
        client = max(rows, key=rows.get)
        raise ValueError(
            f"drawing {total} rows of {n_features} features would take "
            f"{total * n_features / 2**27:.0f} GB, and at most "
            f"{MOST_NUMBERS / 2**27:.0f} are allowed. Client {client!r} says that it "
            f"has {rows[client]} of them: if that is wrong, leave its message out; "
            "otherwise let large clients send messages on a random part of their rows."
        )


def draw_rows(message, reg_covar, rng):
    """As many rows as the client has, drawn from its mixtures, with their labels."""
    rows, labels, start = [], [], 0
    for label, count, n_components in zip(
        message.classes, message.counts, message.n_components, strict=True
    ):
        components = slice(start, start + n_components)
        weights = message.weights[components] / message.weights[components].sum()
        shares = rng.multinomial(count, weights)
        for index, share in enumerate(shares, start=start):
            noise = _centred_noise(rng, share, message.n_features)
            spread = _spread(noise, message, index, reg_covar)
            rows.append(message.means[index] + spread)
        labels += [label] * int(count)
        start += n_components
    return np.vstack(rows), labels


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


def _spread(noise, message, index, reg_covar):
    """White noise with the covariance of a component."""
    flat = message.covariances[index]
    if message.covariance_type == "full":
        return noise @ _root(unpack_triangle(flat), reg_covar)
    return noise * np.sqrt(np.maximum(flat, 0.0) + reg_covar)


def _root(covariance, reg_covar):
    """Symmetric root, which unlike a Cholesky factor hardly feels rounding."""
    eigenvalues, vectors = eigh(covariance)
    roots = np.sqrt(np.maximum(eigenvalues, 0.0) + reg_covar)
    return (vectors * roots) @ vectors.T


def _within_class_covariance(message):
    """Covariance around class means, from that of all rows and the class means."""
    shares = message.counts / message.counts.sum()
    centred = message.class_means - shares @ message.class_means
    between = (centred.T * shares) @ centred
    return unpack_triangle(message.covariance_triangle) - between
