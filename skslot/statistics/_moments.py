"""Moments of samples that merge exactly, and covariances shrunk from them.

Moments of all features together, of each class, and of each column of a table.
"""

from numbers import Real
from typing import NamedTuple

import numpy as np
from scipy.sparse import issparse

# Fourth powers of smaller distances come near the end of float64, so that their sums
# are kept in another unit, by its power of two.
SMALL = 2.0**-170
SMALL_EXPONENT = -380
# Smallest eigenvalue of a covariance to be inverted, relative to their mean. A shrunk
# covariance has no eigenvalue below its shrinkage in this unit, so that raising the
# shrinkage to the floor is enough. At 1e-6 the barycenter solvers stall.
SHRINKAGE_FLOOR = 1e-4
# Enough rows that adding their products (m^2 work) disappears behind computing them
# (rows * m^2 work), few enough to stay in the cache.
TILE_ROWS = 1024
# Share of the mean variance that is added to the diagonal of a covariance to be
# inverted, so that constant features do not make it singular.
LEAST_RIDGE = 1e-6
# Eigenvalues below this share of the mean eigenvalue are zero but for rounding.
ROUNDING = 1e-6


class FeatureMoments:
    """Moments of a set of rows, enough for their shrunk covariance.

    Blocks of rows can be added one by one, and moments computed in different places
    can be merged; the result is that of all rows together, in any order and split.
    Memory is one matrix of ``n_features`` squared, however many rows there are.

    Parameters
    ----------
    n_features : int
        Number of columns. The new object holds no rows yet.

    Attributes
    ----------
    n_features : int
        Number of columns.
    n_samples : int
        Number of rows seen.
    mean : ndarray of shape (n_features,)
        Mean of the rows.

    See Also
    --------
    sklearn.covariance.ledoit_wolf : The same estimate from all rows at once.

    Notes
    -----
    Beside the mean, three sums over the centred rows ``y`` are kept: ``y y^T``,
    ``|y|^2 y`` and ``|y|^4``. They determine the Ledoit-Wolf coefficient, because the
    sum of squared products that it needs is ``sum |y|^4``, and they can be moved to
    another centre in closed form. Sums are always taken around a local mean, so a large
    offset of the features costs no precision. float32 rows are accumulated in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import FeatureMoments
    >>> rows = np.random.default_rng(0).normal(size=(100, 3))
    >>> here, there = map(FeatureMoments.from_rows, (rows[:40], rows[40:]))
    >>> moments = here + there
    >>> moments
    FeatureMoments(n_features=3, n_samples=100)
    >>> covariance, coefficient = moments.covariance(shrinkage="ledoit_wolf")
    >>> from sklearn.covariance import ledoit_wolf
    >>> bool(np.allclose(covariance, ledoit_wolf(rows)[0], rtol=1e-12))
    True
    """

    # For others, see floor_shrinkage and lift_eigenvalues.
    SHRINKAGE_FLOOR = SHRINKAGE_FLOOR
    LEAST_RIDGE = LEAST_RIDGE

    def __init__(self, n_features):
        self.n_features = int(n_features)
        if self.n_features < 1:
            raise ValueError(f"n_features must be at least 1, got {n_features}.")
        self.n_samples = 0
        self.mean = np.zeros(self.n_features)
        self._mean_rest = np.zeros(self.n_features)  # what rounding the mean cut off
        # one zero seen m^2 times: no memory for a matrix that the first rows replace
        self._scatter = np.broadcast_to(0.0, (self.n_features, self.n_features))
        # sums of third and fourth powers of distances, in units of 2 ** exponent
        self._cubic = np.zeros(self.n_features)
        self._quartic = 0.0
        self._exponent = 0

    def __repr__(self):
        return (
            f"FeatureMoments(n_features={self.n_features}, n_samples={self.n_samples})"
        )

    @classmethod
    def from_rows(cls, X):
        """Moments of the rows of ``X``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; a memory-mapped array is read block by block.

        Returns
        -------
        moments : FeatureMoments
            Moments of all rows.
        """
        X = _as_matrix(X)
        return cls(X.shape[1]).update(X)

    def update(self, X):
        """Add rows, in place.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More rows.

        Returns
        -------
        self : FeatureMoments
            This object, now with the rows added.
        """
        X = _as_matrix(X)
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but these moments have "
                f"{self.n_features}."
            )
        if len(X) == 0:
            return self
        with np.errstate(invalid="ignore", over="ignore"):
            added = _moments_of_rows(X)
        if not np.isfinite(added._quartic):
            raise ValueError(
                "X contains NaN, infinity or values too large for float64; no row "
                "was added."
            )
        return self._absorb(added)

    def merge(self, other):
        """Moments of the rows of both, as a new object; also written ``a + b``.

        Parameters
        ----------
        other : FeatureMoments
            Moments of other rows of the same features.

        Returns
        -------
        moments : FeatureMoments
            Moments of all rows together.
        """
        if not isinstance(other, FeatureMoments):
            raise TypeError(
                f"FeatureMoments merge with FeatureMoments, got {type(other).__name__}."
            )
        if other.n_features != self.n_features:
            raise ValueError(
                f"cannot merge moments of {self.n_features} features with moments of "
                f"{other.n_features}."
            )
        return FeatureMoments(self.n_features)._absorb(self)._absorb(other)

    __add__ = merge

    def __radd__(self, other):
        # sum(list_of_moments) starts from the integer 0
        return FeatureMoments(self.n_features) + self if other == 0 else NotImplemented

    def covariance(self, shrinkage="ledoit_wolf"):
        """Shrunk covariance and the coefficient that was used.

        Parameters
        ----------
        shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1], default="ledoit_wolf"
            How much of the covariance is replaced by a multiple of the identity with
            the same trace; scikit-learn's convention, so 0 is the sample covariance.
            (The SLOT-Align paper's lambda is one minus this.)

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
            ``(1 - coefficient) * C + coefficient * trace(C) / n_features * I``, with
            ``C`` the sample covariance (divided by ``n_samples``).
        coefficient : float
            The coefficient, between 0 and 1.
        """
        sample, coefficient = self.sample_covariance(), self.shrinkage(shrinkage)
        return shrink_covariance(sample, coefficient, out=sample), coefficient

    def shrinkage(self, shrinkage="ledoit_wolf"):
        """Compute the shrinkage coefficient of the covariance.

        Parameters
        ----------
        shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1], default="ledoit_wolf"
            How to choose it; a number is the coefficient.

        Returns
        -------
        coefficient : float
            Weight of the identity, between 0 and 1.
        """
        sample = self.sample_covariance()
        scaled = np.ldexp(sample, -2 * self._exponent) if self._exponent else sample
        return shrinkage_coefficient(shrinkage, scaled, self.n_samples, self._quartic)

    def sample_covariance(self):
        """Covariance divided by ``n_samples``, without shrinkage.

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
            The maximum-likelihood covariance.
        """
        if self.n_samples == 0:
            raise ValueError("there is no covariance of no rows; call update first.")
        return self._scatter / self.n_samples

    def _absorb(self, other):
        """Merge ``other`` into this object; arrays are replaced, never written to."""
        if self.n_samples == 0 or other.n_samples == 0:
            if other.n_samples:
                vars(self).update(vars(other))
            return self
        n_samples = self.n_samples + other.n_samples
        apart = (other.mean - self.mean) + (other._mean_rest - self._mean_rest)
        own_share, share = self.n_samples / n_samples, other.n_samples / n_samples
        exponent = max(self._exponent, other._exponent, _exponent_of(apart))
        with np.errstate(invalid="ignore", over="ignore"):
            own_cubic, own_quartic = self._sums_around(-share * apart, exponent)
            cubic, quartic = other._sums_around(own_share * apart, exponent)
        if not np.isfinite(own_quartic + quartic):
            raise ValueError(
                "the rows are too far apart for float64: the fourth power of their "
                "distances is infinite; no row was added."
            )
        between = own_share * other.n_samples * np.outer(apart, apart)
        self._scatter = self._scatter + other._scatter + between
        self._cubic = own_cubic + cubic
        self._quartic = own_quartic + quartic
        self._exponent = exponent
        self.mean, self._mean_rest = _add_exactly(
            self.mean, share * apart + self._mean_rest
        )
        self.n_samples = n_samples
        return self

    def _sums_around(self, shift, exponent=0):
        """Sums of ``|y|^2 y`` and ``|y|^4`` after ``shift`` is added to every y.

        They are in units of ``2 ** exponent``.
        """
        scatter, change = self._scatter, self._exponent - exponent
        own_cubic = np.ldexp(self._cubic, 3 * change)
        own_quartic = np.ldexp(self._quartic, 4 * change)
        if exponent:
            scatter = np.ldexp(scatter, -2 * exponent)
            shift = np.ldexp(shift, -exponent)
        n, trace, squared = self.n_samples, np.trace(scatter), shift @ shift
        scattered = scatter @ shift
        cubic = own_cubic + 2 * scattered + (trace + n * squared) * shift
        quartic = (
            own_quartic
            + 4 * (own_cubic @ shift)
            + 4 * (shift @ scattered)
            + 2 * squared * trace
            + n * squared**2
        )
        return cubic, quartic


def _as_matrix(X):
    if issparse(X):
        raise TypeError("X is sparse, but dense rows are required; use X.toarray().")
    X = X if isinstance(X, np.ndarray) else np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise ValueError(
            f"X must be a numeric matrix of shape (n_samples, n_features), got shape "
            f"{X.shape} and dtype {X.dtype}."
        )
    return X


def _add_exactly(first, second):
    """Rounded sum and its rounding error (Knuth's TwoSum)."""
    total = first + second
    added = total - first
    return total, (first - (total - added)) + (second - added)


def _exponent_of(distances):
    """Power of two of the unit for sums of fourth powers of distances."""
    return SMALL_EXPONENT if np.abs(distances).max() < SMALL else 0


def _moments_of_rows(X):
    """Moments of rows; those that are very close together get another unit."""
    moments = _sums_of_rows(X)
    if moments._quartic < SMALL**4:
        apart = X - moments.mean
        exponent = _exponent_of(apart)
        scaled = _sums_of_rows(np.ldexp(apart, -exponent))
        moments._cubic, moments._quartic = scaled._cubic, scaled._quartic
        moments._exponent = exponent
    return moments


def _sums_of_rows(X):
    """One pass over the rows, tile by tile."""
    n, n_features = X.shape
    # Any centre near the mean will do; rows from all over X give one even when X is
    # sorted. The exact mean is put right at the end.
    centre = average_rows(X[:: max(1, n // 64)])
    # Beside each centred row y stand the columns 1 and |y|^2: one product of this
    # buffer with itself gives all sums.
    buffer = np.empty((min(n, TILE_ROWS), n_features + 2))
    buffer[:, -2] = 1.0
    sums = np.zeros((n_features + 2, n_features + 2))
    product = np.empty_like(sums)
    for start in range(0, n, TILE_ROWS):
        tile = X[start : start + TILE_ROWS]
        columns = buffer[: len(tile)]
        rows = np.subtract(tile, centre, out=columns[:, :-2])
        np.einsum("ij,ij->i", rows, rows, out=columns[:, -1])
        sums += np.matmul(columns.T, columns, out=product)
    total, cubic, quartic = sums[-2, :-2], sums[-1, :-2], sums[-1, -1]
    rest = total / n
    moments = FeatureMoments(n_features)
    moments.n_samples = n
    moments.mean, moments._mean_rest = _add_exactly(centre, rest)
    moments._scatter = sums[:-2, :-2] - n * np.outer(rest, rest)  # exactly symmetric
    # the sums are around the centre; what moving there adds is taken off again
    moments._cubic = cubic - moments._sums_around(rest)[0]
    moments._quartic = quartic - moments._sums_around(rest)[1]
    return moments


def shrink_covariance(covariance, coefficient, out=None):
    """Mix a covariance with a multiple of the identity of the same trace.

    Parameters
    ----------
    covariance : ndarray of shape (n_features, n_features)
        A covariance C.
    coefficient : float
        Weight s of the identity, in [0, 1].
    out : ndarray of shape (n_features, n_features), default=None
        Where to write the result; may be ``covariance`` itself.

    Returns
    -------
    shrunk : ndarray of shape (n_features, n_features)
        ``(1 - s) C + s trace(C) / n_features I``.

    See Also
    --------
    shrinkage_coefficient : How much to shrink.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import shrink_covariance
    >>> shrink_covariance(np.array([[3.0, 1.0], [1.0, 1.0]]), 0.5)
    array([[2.5, 0.5],
           [0.5, 1.5]])
    """
    mean_eigenvalue = np.trace(covariance) / len(covariance)
    shrunk = np.multiply(covariance, 1.0 - coefficient, out=out)
    shrunk.flat[:: len(shrunk) + 1] += coefficient * mean_eigenvalue
    return shrunk


def floor_shrinkage(covariance, coefficient):
    """Raise a shrinkage coefficient until the shrunk covariance can be inverted.

    Parameters
    ----------
    covariance : ndarray of shape (n_features, n_features)
        A sample covariance. If it was sent in float16, it may have negative
        eigenvalues.
    coefficient : float
        Weight of the identity, in [0, 1].

    Returns
    -------
    coefficient : float
        The coefficient, raised if an eigenvalue of the shrunk covariance is below
        1e-4 of their mean.

    See Also
    --------
    shrink_covariance : Applies the coefficient.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import floor_shrinkage
    >>> floor_shrinkage(np.diag([1.0, 0.0]), 0.0)
    0.0001
    """
    mean_eigenvalue = np.trace(covariance) / len(covariance)
    if not mean_eigenvalue > 0:  # constant rows, which no shrinkage can help
        return coefficient
    excess = shrink_covariance(covariance, coefficient)
    # just below the floor, so that a coefficient at the floor passes
    excess.flat[:: len(excess) + 1] -= 0.99 * SHRINKAGE_FLOOR * mean_eigenvalue
    try:
        np.linalg.cholesky(excess)
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh(covariance)[0] / mean_eigenvalue
        if least > -ROUNDING:  # zero but for rounding
            return SHRINKAGE_FLOOR
        return float((SHRINKAGE_FLOOR - least) / (1.0 - least))
    return coefficient


def lift_eigenvalues(covariance, variance=0.0):
    """Add a small ridge to a covariance, so that it can be inverted.

    Parameters
    ----------
    covariance : ndarray of shape (n_features, n_features)
        A covariance. If it was sent in float16, it may have negative eigenvalues.
    variance : float, default=0.0
        Mean variance of a feature. A share of 1e-6 of it is added to the diagonal.

    Returns
    -------
    lifted : ndarray of shape (n_features, n_features)
        The covariance with the ridge. If it still has negative eigenvalues, the ridge
        is raised until all eigenvalues are above this noise.

    See Also
    --------
    floor_shrinkage : Raises the shrinkage instead.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import lift_eigenvalues
    >>> lift_eigenvalues(np.diag([2.0, 0.0]), variance=1.0)
    array([[2.000001e+00, 0.000000e+00],
           [0.000000e+00, 1.000000e-06]])
    """
    lifted = covariance.copy()
    diagonal = lifted.ravel()[:: len(lifted) + 1]
    diagonal += LEAST_RIDGE * variance
    try:
        np.linalg.cholesky(lifted)
    except np.linalg.LinAlgError:
        diagonal -= 2 * min(np.linalg.eigvalsh(lifted)[0], 0.0)
    return lifted


def noisy_shrinkage(shrinkage):
    """Choose the shrinkage of noisy statistics, which contain no fourth powers.

    Parameters
    ----------
    shrinkage : {"ledoit_wolf", "oas"}, float in [0, 1] or None
        Shrinkage of exact statistics.

    Returns
    -------
    shrinkage : "oas", float in [0, 1] or None
        ``"oas"`` instead of ``"ledoit_wolf"``; other values are returned unchanged.

    Examples
    --------
    >>> from skslot.statistics import noisy_shrinkage
    >>> noisy_shrinkage("ledoit_wolf"), noisy_shrinkage(0.1)
    ('oas', 0.1)
    """
    return "oas" if shrinkage == "ledoit_wolf" else shrinkage


def shrinkage_coefficient(shrinkage, covariance, n_samples, quartic=None):
    """Compute how much to shrink the covariance of some rows.

    Parameters
    ----------
    shrinkage : {"ledoit_wolf", "oas"} or float in [0, 1]
        How to choose the coefficient; a number is the coefficient.
    covariance : ndarray of shape (n_features, n_features)
        Sample covariance of the rows, divided by their number.
    n_samples : int
        Number of rows.
    quartic : float, default=None
        Sum over rows of the fourth power of their distance from the mean; only
        "ledoit_wolf" needs it.

    Returns
    -------
    coefficient : float
        Weight of the identity, in [0, 1].

    See Also
    --------
    shrink_covariance : Applies it.
    FeatureMoments : Has all that it takes.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import shrinkage_coefficient
    >>> round(shrinkage_coefficient("oas", np.diag([1.0, 9.0]), n_samples=100), 3)
    0.056
    """
    if isinstance(shrinkage, Real) and not isinstance(shrinkage, bool):
        if not 0 <= shrinkage <= 1:
            raise ValueError(f"shrinkage must lie in [0, 1], got {shrinkage!r}.")
        return float(shrinkage)
    if shrinkage not in ("ledoit_wolf", "oas"):
        raise ValueError(
            "shrinkage must be 'ledoit_wolf', 'oas' or a number in [0, 1], got "
            f"{shrinkage!r}."
        )
    n_features = len(covariance)
    mean_eigenvalue = np.trace(covariance) / n_features
    unit = _exponent_of(mean_eigenvalue)
    if unit:  # the coefficient has no unit, but its squares might be lost
        covariance = np.ldexp(covariance, -unit)
        mean_eigenvalue = np.ldexp(mean_eigenvalue, -unit)
        quartic = None if quartic is None else np.ldexp(quartic, -2 * unit)
    squared_norm = np.einsum("ij,ij->", covariance, covariance)
    if n_features == 1:
        return 0.0
    if shrinkage == "ledoit_wolf":
        dispersion = squared_norm - n_features * mean_eigenvalue**2
        noise = (quartic / n_samples - squared_norm) / n_samples
        # a multiple of the identity already, if there is no dispersion
        return float(np.clip(noise / dispersion, 0.0, 1.0)) if dispersion > 0 else 0.0
    mean_square = squared_norm / n_features**2
    dispersion = (n_samples + 1) * (mean_square - mean_eigenvalue**2 / n_features)
    if dispersion <= 0:
        return 1.0
    return float(min((mean_square + mean_eigenvalue**2) / dispersion, 1.0))


# ------------------------------------------------------------------------ exact means


def average_rows(X, weights=None):
    """Average rows, exactly where a feature is constant.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows.
    weights : ndarray of shape (n_samples,), default=None
        Weight of each row. If None, all rows have the same weight.

    Returns
    -------
    mean : ndarray of shape (n_features,)
        Mean of the rows, in float64.

    See Also
    --------
    is_constant : Decides whether a variance is more than rounding.

    Notes
    -----
    The sum of a thousand times 3.7, divided by a thousand, may differ from 3.7 in the
    last bit. Whether it does depends on the order of summation, which depends on the
    CPU. The deviations from one of the rows are summed instead: those of a constant
    feature are exactly zero. With weights, it is the row with the largest one, as rows
    without weight may hold anything.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import average_rows
    >>> average_rows(np.array([[3.7, 1.0], [3.7, 2.0]]))
    array([3.7, 1.5])
    """
    if weights is None:
        origin = X[0].astype(np.float64)
        return origin + (X - origin).mean(axis=0)
    origin = X[np.argmax(weights)].astype(np.float64)
    return origin + weights @ (X - origin) / np.sum(weights)


def is_constant(variances, means, n_samples):
    """Find features whose variance is nothing but rounding.

    Parameters
    ----------
    variances : array-like of shape (n_features,)
        Variance of each feature.
    means : array-like of shape (n_features,)
        Mean of each feature. Only the magnitude matters.
    n_samples : int or array-like of shape (n_features,)
        Number of rows behind each variance.

    Returns
    -------
    constant : ndarray of shape (n_features,)
        True where the feature does not vary.

    See Also
    --------
    average_rows : Mean that is exact for constant features.

    Notes
    -----
    A sum of ``n`` numbers of size ``c`` is off by up to ``n * eps * c``, and so is
    every deviation from their mean. ``8 * eps * c`` is added for the steps that follow
    a sum, such as an affine map. scikit-learn's ``StandardScaler`` uses a similar rule.

    Examples
    --------
    >>> from skslot.statistics import is_constant
    >>> is_constant([1e-31, 1e-31], means=[3.7, 1e-15], n_samples=100)
    array([ True, False])
    """
    eps = np.finfo(np.float64).eps
    rounding = (np.asarray(n_samples) + 8) * eps * np.abs(means)
    # roots, as squares of numbers near the ends of float64 would leave it
    return np.sqrt(np.maximum(variances, 0.0)) <= rounding


# ---------------------------------------------------------------------------- classes


def class_means(X, y):
    """Count and average the rows of each class.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows.
    y : ndarray of shape (n_samples,)
        Their labels.

    Returns
    -------
    means : dict
        For each label the number of rows and their mean, in float64.

    See Also
    --------
    merge_class_means : Joins those of two sets of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import class_means
    >>> class_means(np.array([[0.0], [2.0], [5.0]]), np.array(["a", "a", "b"]))
    {'a': (2, array([1.])), 'b': (1, array([5.]))}
    """
    labels, counts = np.unique(y, return_counts=True)
    return {
        label: (int(count), average_rows(X[y == label]))
        for label, count in zip(labels.tolist(), counts, strict=True)
    }


def stack_class_means(means, classes):
    """Arrange class means in arrays.

    Parameters
    ----------
    means : dict
        For at least one label the number of rows and their mean, as
        :func:`class_means` returns them.
    classes : iterable
        Labels, in the order of the arrays.

    Returns
    -------
    counts : ndarray of shape (n_classes,)
        Number of rows of each class; zero for classes without rows.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class; zero for classes without rows.

    See Also
    --------
    class_means : Makes the dict.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import stack_class_means
    >>> counts, means = stack_class_means({"b": (3, np.ones(2))}, ["a", "b"])
    >>> counts
    array([0., 3.])
    >>> means
    array([[0., 0.],
           [1., 1.]])
    """
    none = 0.0, np.zeros_like(next(iter(means.values()))[1])
    counts, rows = zip(*(means.get(label, none) for label in classes), strict=True)
    return np.array(counts, dtype=np.float64), np.array(rows)


def merge_class_means(first, second):
    """Join the class means of two sets of rows.

    Parameters
    ----------
    first : dict
        What :func:`class_means` returned.
    second : dict
        The same for other rows.

    Returns
    -------
    means : dict
        Counts and means of the rows of both.

    See Also
    --------
    class_means : Makes them.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import merge_class_means
    >>> merge_class_means({"a": (3, np.zeros(1))}, {"a": (1, np.array([4.0]))})
    {'a': (4, array([1.]))}
    """
    merged = dict(first)
    for label, (count, mean) in second.items():
        if label in merged:
            known, known_mean = merged[label]
            total = known + count
            mean = known_mean + (mean - known_mean) * (count / total)
            count = total
        merged[label] = count, mean
    return merged


# ----------------------------------------------------------------- columns of a table


class ColumnMoments(NamedTuple):
    """Moments of each column of some rows, of the values that are not missing.

    Parameters
    ----------
    counts : ndarray of shape (n_features,)
        Number of values.
    means : ndarray of shape (n_features,)
        Their mean; 0 where there are none.
    squares : ndarray of shape (n_features,)
        Sum of their squared distances from that mean.

    See Also
    --------
    column_moments : Computes them from rows.
    FeatureMoments : Moments of columns together, for rows without missing values.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import ColumnMoments, merge_column_moments
    >>> here = ColumnMoments(np.array([2]), np.array([1.0]), np.array([2.0]))
    >>> there = ColumnMoments(np.array([2]), np.array([3.0]), np.array([0.0]))
    >>> merge_column_moments(here, there)
    ColumnMoments(counts=array([4]), means=array([2.]), squares=array([6.]))
    """

    counts: np.ndarray
    means: np.ndarray
    squares: np.ndarray


def column_moments(X):
    """Compute the moments of each column, in float64.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows of floats; NaN is a missing value.

    Returns
    -------
    moments : ColumnMoments
        Their moments.

    See Also
    --------
    merge_column_moments : Joins those of two sets of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import column_moments
    >>> column_moments(np.array([[0.0, 1.0], [2.0, np.nan]]))
    ColumnMoments(counts=array([2, 1]), means=array([1., 1.]), squares=array([2., 0.]))
    """
    is_there = ~np.isnan(X)
    counts = is_there.sum(axis=0)
    divisors = np.maximum(counts, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        centres = np.sum(X, axis=0, where=is_there, dtype=np.float64) / divisors
        apart = np.where(is_there, X - centres, 0.0)
        # what rounding has left of the mean: the sums above may be long
        rests = apart.sum(axis=0) / divisors
        squares = np.einsum("ij,ij->j", apart, apart) - counts * rests**2
    return ColumnMoments(counts, centres + rests, np.maximum(squares, 0.0))


def merge_column_moments(first, second):
    """Join the column moments of two sets of rows.

    Parameters
    ----------
    first : ColumnMoments
        What :func:`column_moments` returned.
    second : ColumnMoments
        The same for other rows.

    Returns
    -------
    moments : ColumnMoments
        Those of the rows of both.

    See Also
    --------
    column_moments : Makes them.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import column_moments, merge_column_moments
    >>> rows = np.array([[0.0], [2.0], [7.0]])
    >>> here, there = column_moments(rows[:1]), column_moments(rows[1:])
    >>> merge_column_moments(here, there).means
    array([3.])
    """
    counts = first.counts + second.counts
    shares = second.counts / np.maximum(counts, 1)
    apart = second.means - first.means
    between = apart**2 * (first.counts * shares)
    squares = first.squares + second.squares + between
    return ColumnMoments(counts, first.means + shares * apart, squares)
