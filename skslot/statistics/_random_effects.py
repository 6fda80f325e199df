"""Variance components of the means of (client, class) cells, by restricted likelihood.

The mean of a cell is ``mu + d_k + c_y + u_ky + e_ky``: a client effect, a class effect,
their interaction and the noise of a mean of ``n_ky`` rows. In each feature the effects
are normal with variances ``client * t``, ``label * t`` and ``interaction * t``, and the
noise with ``t / n_ky``, where ``t`` is the variance within cells. All features share
the three numbers, so that a handful of cells is enough to estimate them."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError, cholesky, eigvalsh
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from scipy.special import softmax

from . import average_rows, is_constant, shrinkage_coefficient

# Bounds of each component, and the standard deviation of its logarithm around the mean
# of the three, which decides only what the data leave open.
BOUNDS = 1e-8, 1e4
PRIOR_DEVIATION = 3.0
# Least spread to start from. Below this share of the spread of all cells, variance
# within cells is rounding.
LEAST_SPREAD = 1e-4
NO_VARIANCE = 1e-10
# Difference of logarithms that the curvature at the optimum is estimated from, and the
# longest way from where the search ended that Newton's method is trusted on.
NEWTON_STEP = 1e-4
LONGEST_STEP = 0.1
# Features whose residuals are computed together.
BLOCK = 64


class VarianceComponents(NamedTuple):
    """Variances of client, class and interaction, in units of that within a class.

    Parameters
    ----------
    client : float
        Variance of what a client does to all of its rows.
    label : float
        Variance of what a class does, at all clients.
    interaction : float
        Variance of what a client does to a class, beyond the two.

    See Also
    --------
    fit_mixed_effects : Estimates them.

    Examples
    --------
    >>> from skslot.statistics import VarianceComponents
    >>> sum(VarianceComponents(client=0.5, label=3.0, interaction=0.25))
    3.75
    """

    client: float
    label: float
    interaction: float


@dataclass(frozen=True)
class Cells:
    """Means of the rows of each client in each class that it holds.

    Parameters
    ----------
    client : ndarray of shape (n_cells,)
        Number of the client of each cell, from 0; each client has one cell at least.
    label : ndarray of shape (n_cells,)
        Number of its class, likewise.
    counts : ndarray of shape (n_cells,)
        Rows of each cell.
    means : ndarray of shape (n_cells, n_features)
        Their means.
    within : float
        Sum over features of the squared deviations of all rows from the means of
        their cells.

    See Also
    --------
    fit_mixed_effects : Fits the model to them.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import Cells
    >>> means = np.array([[0.0], [4.0], [1.0]])
    >>> client, label = np.array([0, 0, 1]), np.array([0, 1, 0])
    >>> cells = Cells(client, label, np.array([5.0, 6.0, 7.0]), means, within=15.0)
    >>> cells.class_counts
    array([12.,  6.])
    """

    client: np.ndarray
    label: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    within: float

    @property
    def n_clients(self):
        """Number of clients."""
        return int(self.client.max()) + 1

    @property
    def n_classes(self):
        """Number of classes."""
        return int(self.label.max()) + 1

    @property
    def class_counts(self):
        """Rows of each class."""
        return np.bincount(self.label, self.counts)

    @property
    def holders(self):
        """Number of clients that hold each class."""
        return np.bincount(self.label)

    def of_client(self, client):
        """Spread the cells of one client over all classes.

        Parameters
        ----------
        client : int
            Its number.

        Returns
        -------
        counts : ndarray of shape (n_classes,)
            Rows of each class; zero where it has none.
        means : ndarray of shape (n_classes, n_features)
            Their means.
        """
        counts = np.zeros(self.n_classes)
        means = np.zeros((self.n_classes, self.means.shape[1]))
        rows = self.client == client
        counts[self.label[rows]] = self.counts[rows]
        means[self.label[rows]] = self.means[rows]
        return counts, means

    def class_sums(self, weights, values):
        """Add up values over the cells of each class.

        Parameters
        ----------
        weights : ndarray of shape (n_cells,)
            Weight of each cell.
        values : ndarray of shape (n_cells, n_features)
            What is added up.

        Returns
        -------
        sums : ndarray of shape (n_classes, n_features)
            Weighted sums.
        """
        cells = np.arange(len(self.label))
        shape = self.n_classes, len(cells)
        return csr_array((weights, (self.label, cells)), shape=shape) @ values

    def centre(self):
        """Compute the mean of all rows.

        Returns
        -------
        mean : ndarray of shape (n_features,)
            Mean of the cells, by their rows.
        """
        return average_rows(self.means, self.counts)

    @property
    def least_variance(self):
        """Variance within cells below which it is rounding, as cells are far apart."""
        return NO_VARIANCE * float(np.square(self.means - self.centre()).mean())

    def within_variance(self, centred):
        """Compute the mean variance of a feature within cells.

        Parameters
        ----------
        centred : ndarray of shape (n_cells, n_features)
            Means of the cells without their centre.

        Returns
        -------
        variance : float
            The variance; that of the cells if there is none within them.
        """
        n_features = centred.shape[1]
        between = np.vdot(centred, centred) / centred.size
        freedom = self.counts.sum() - len(self.counts)
        within = self.within / (n_features * freedom) if freedom > 0 else 0.0
        return float(within if within > NO_VARIANCE * between else between)


class _Criterion:
    """Restricted log-likelihood of the components, negated, and its gradient.

    Per feature; see :doc:`/theory` for the formulas. ``Y`` are the centred means of
    the cells in units of the deviation within them: only ``Y @ Y.T`` matters, so that
    there need not be more columns than cells.
    """

    def __init__(self, cells, Y):
        self.n_features = Y.shape[1]
        self.Y = qr(Y.T, mode="r")[0][: len(Y)].T if Y.shape[1] > len(Y) else Y
        self.counts = cells.counts
        self.n_clients, self.n_classes = cells.n_clients, cells.n_classes
        self.design = design_of(cells)

    def start(self):
        """Components that share the spread of the cells alike."""
        squares = np.einsum("ij,ij->i", self.Y, self.Y)
        spread = squares / self.n_features - 1 / self.counts
        return np.full(3, np.log(max(spread.mean(), LEAST_SPREAD) / 3))

    def __call__(self, logs):
        client, label, interaction = np.exp(logs)
        n_clients, n_classes, m = self.n_clients, self.n_classes, self.n_features
        weights = self.counts / (interaction * self.counts + 1)
        equations = MixedModelEquations(
            self.design, weights, np.exp(logs), (n_clients, n_classes)
        )
        effects = equations.solve(self.Y)
        products, squared_residuals = self._residuals(effects)
        inverse = equations.inverse()
        clients, classes = slice(1, 1 + n_clients), slice(1 + n_clients, None)
        squares = np.square(effects).sum(axis=1) / m
        variances = np.diag(inverse)
        columns = self.design.indices.reshape(-1, 3)
        leverage = inverse[columns[:, :, None], columns[:, None, :]].sum(axis=(1, 2))
        trace = weights.sum() - np.square(weights) @ leverage
        from_prior = logs - logs.mean()
        strength = 1 / (PRIOR_DEVIATION**2 * m)
        value = (
            -np.log(weights).sum()
            + n_clients * logs[0]
            + n_classes * logs[1]
            + equations.log_determinant()
            + weights @ products
            + strength * from_prior @ from_prior
        )
        gradient = 2 * strength * from_prior
        gradient[0] += n_clients - (variances + squares)[clients].sum() / client
        gradient[1] += n_classes - (variances + squares)[classes].sum() / label
        gradient[2] += interaction * (trace - np.square(weights) @ squared_residuals)
        return value / 2, gradient / 2

    def _residuals(self, effects):
        """Products of residuals with Y, and their squares, per cell and feature.

        Some features at a time: the cells are as large as all messages together.
        """
        products = squares = 0.0
        for first in range(0, self.Y.shape[1], BLOCK):
            block = slice(first, first + BLOCK)
            Y = self.Y[:, block]
            residuals = Y - self.design @ effects[:, block]
            products = products + np.einsum("ij,ij->i", residuals, Y)
            squares = squares + np.einsum("ij,ij->i", residuals, residuals)
        return products / self.n_features, squares / self.n_features


class MixedModelEquations:
    """The linear system for the mean and all effects, at given components.

    ``solve`` has the mean in its first row, then clients, then classes.
    """

    def __init__(self, design, weights, components, sizes):
        columns, size = design.indices.reshape(-1, 3).astype(np.intp), design.shape[1]
        parts = np.repeat(weights, 3), design.indices, design.indptr
        self.weighted = csr_array(parts, shape=design.shape).T
        # each row of the design has three ones: nine entries of the matrix
        pairs = columns[:, :, None] * size + columns[:, None, :]
        matrix = np.bincount(pairs.ravel(), np.repeat(weights, 9), size**2)
        matrix = matrix.reshape(size, size)
        precisions = np.repeat(1 / np.asarray(components)[:2], sizes)
        matrix[np.diag_indices_from(matrix)] += np.r_[0.0, precisions]
        # scaled to a diagonal of ones, as precisions may be very large
        self.scale = 1 / np.sqrt(np.diag(matrix))
        self.factor = cho_factor(matrix * np.outer(self.scale, self.scale), lower=True)

    def solve(self, Y):
        """Effects that explain Y."""
        right = self.scale[:, None] * (self.weighted @ Y)
        return self.scale[:, None] * cho_solve(self.factor, right)

    def inverse(self):
        """Inverse of the system, which has the posterior variances of the effects."""
        inverse = cho_solve(self.factor, np.diag(self.scale))
        return self.scale[:, None] * inverse

    def log_determinant(self):
        """Logarithm of the determinant of the system."""
        diagonal = np.diag(self.factor[0]) / self.scale
        return 2 * np.log(diagonal).sum()


def design_of(cells):
    """Ones for the mean, the client and the class of each cell."""
    n_cells = len(cells.counts)
    first = np.zeros(n_cells, dtype=np.intp)
    columns = np.column_stack(
        [first, 1 + cells.client, 1 + cells.n_clients + cells.label]
    )
    shape = n_cells, 1 + cells.n_clients + cells.n_classes
    starts = np.arange(0, 3 * n_cells + 1, 3)
    return csr_array((np.ones(3 * n_cells), columns.ravel(), starts), shape=shape)


def estimate_components(cells):
    """Estimate the variance components of cells: (components, whether it converged)."""
    centred = cells.means - cells.centre()
    scale = cells.within_variance(centred)
    if cells.n_clients == 1 or not scale > 0:
        return VarianceComponents(0.0, 0.0, 0.0), True
    centred /= np.sqrt(scale)
    criterion = _Criterion(cells, centred)
    best = minimize(
        criterion,
        criterion.start(),
        jac=True,
        method="L-BFGS-B",
        bounds=[np.log(BOUNDS)] * 3,
        options={"ftol": 1e-11, "gtol": 1e-7},
    )
    logs, gradient = _polish(criterion, best.x, best.jac)
    converged = best.success or np.abs(gradient[_is_free(logs)]).max(initial=0.0) < 1e-4
    return VarianceComponents(*np.exp(logs).tolist()), bool(converged)


def _is_free(logs):
    """Which components are not at a bound."""
    return ~np.isclose(logs[:, None], np.log(BOUNDS)).any(axis=1)


def _polish(criterion, logs, gradient):
    """Newton's method from where the search ended: (logarithms, gradient there).

    The value of the criterion is flat to rounding around its optimum, the gradient is
    not. So the components do not depend on the order of clients, or on other rounding.
    """
    free = np.flatnonzero(_is_free(logs))
    nearby = logs + NEWTON_STEP * np.eye(3)[free]
    changes = [criterion(each)[1][free] - gradient[free] for each in nearby]
    hessian = np.reshape(changes, (len(free), len(free))) / NEWTON_STEP
    for _ in range(3):
        step = np.zeros(3)
        step[free] = np.linalg.lstsq(hessian, gradient[free], rcond=None)[0]
        if not 0 < np.abs(step).max() < LONGEST_STEP:
            break
        next_logs = np.clip(logs - step, *np.log(BOUNDS))
        next_gradient = criterion(next_logs)[1]
        if np.linalg.norm(next_gradient[free]) >= np.linalg.norm(gradient[free]):
            break
        logs, gradient = next_logs, next_gradient
    return logs, gradient


def class_effects(cells, components):
    """Mean plus effect of each class, as the model predicts them (BLUP)."""
    centre = cells.centre()
    if min(components[:2]) <= 0:
        weights = cells.counts / cells.class_counts[cells.label]
        return cells.class_sums(weights, cells.means)
    weights = cells.counts / (components.interaction * cells.counts + 1)
    sizes = cells.n_clients, cells.n_classes
    equations = MixedModelEquations(design_of(cells), weights, components, sizes)
    effects = equations.solve(cells.means - centre)
    return centre + effects[0] + effects[1 + cells.n_clients :]


# ------------------------------------------------------------------ model


@dataclass(frozen=True)
class MixedEffects:
    """A random-effects model of the means of (client, class) cells.

    Made by :func:`fit_mixed_effects`. Classes are numbered; a client is described by
    the number of its rows of each class and by their means, arrays of shape
    (n_classes,) and (n_classes, n_features), with zeros for a class that it lacks.

    Parameters
    ----------
    components : VarianceComponents
        Variances of client, class and interaction effects, in units of the variance
        within cells.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class over clients, without their offsets.
    effects : ndarray of shape (n_classes, n_features)
        Mean of each class as the model predicts it, which offsets are relative to.
    class_counts : ndarray of shape (n_classes,)
        Rows of each class.
    holders : ndarray of shape (n_classes,)
        Number of clients that hold each class.
    converged : bool, default=True
        Whether the search for the components did.

    See Also
    --------
    fit_mixed_effects : Makes it.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import Cells, fit_mixed_effects
    >>> means = np.array([[0.0, 0.1], [4.0, 4.2], [1.0, 1.1], [5.0, 5.1]])
    >>> client, label = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> cells = Cells(client, label, np.full(4, 50.0), means, within=400.0)
    >>> model = fit_mixed_effects(cells)
    >>> model.offset(*cells.of_client(0)).round(1)
    array([-0.5, -0.5])
    """

    components: VarianceComponents
    means: np.ndarray
    effects: np.ndarray
    class_counts: np.ndarray
    holders: np.ndarray
    converged: bool = True

    @property
    def class_shares(self):
        """Share of each class in the rows of all clients."""
        return self.class_counts / self.class_counts.sum()

    @property
    def strength(self):
        """How much of the difference between cells comes from clients, from 0 to 1."""
        client, label, interaction = self.components
        total = client + label + interaction
        return (client + interaction) / total if total > 0 else 0.0

    def offset(self, counts, means, origin=None):
        """Compute how far a client that was fitted is from the others (BLUP).

        Parameters
        ----------
        counts : ndarray of shape (n_classes,)
            Its rows of each class.
        means : ndarray of shape (n_classes, n_features)
            Their means.
        origin : ndarray of shape (n_classes, n_features), default=None
            What it is relative to; by default ``effects``.

        Returns
        -------
        offset : ndarray of shape (n_features,)
            What all of its classes have in common.
        """
        weights = counts / (self.components.interaction * counts + 1)
        origin = self.effects if origin is None else origin
        return self._pulled_to_zero(weights, means - origin)

    def offset_of_newcomer(self, counts, means):
        """Compute how far a client that was not fitted is from the others.

        Parameters
        ----------
        counts : ndarray of shape (n_classes,)
            Its rows of each class, which need not be whole numbers.
        means : ndarray of shape (n_classes, n_features)
            Their means.

        Returns
        -------
        offset : ndarray of shape (n_features,)
            What all of its classes have in common.
        """
        interaction = self.components.interaction * (1 + 1 / self.holders)
        weights = counts / (interaction * counts + 1)
        return self._pulled_to_zero(weights, means - self.means)

    def _pulled_to_zero(self, weights, deviations):
        client = self.components.client
        return client * (weights @ deviations) / (1 + client * weights.sum())

    def own_means(self, counts, means, offset):
        """Compute the class means of one client, between its own and those of all.

        Parameters
        ----------
        counts : ndarray of shape (n_classes,)
            Its rows of each class.
        means : ndarray of shape (n_classes, n_features)
            Their means.
        offset : ndarray of shape (n_features,)
            Its offset, which is taken out.

        Returns
        -------
        own_means : ndarray of shape (n_classes, n_features)
            Nearer to its own the more rows it has of the class, and the more classes
            it holds: two classes of ten do not say how sites differ.
        """
        posterior = 1 - 1 / (self.components.interaction * counts + 1)
        cover = self.class_shares @ posterior
        deviations = means - offset - self.means
        return self.means + (cover * posterior)[:, None] * deviations


def fit_mixed_effects(cells, components=None):
    """Fit the random-effects model to the cells of all clients.

    Parameters
    ----------
    cells : Cells
        Number of rows and mean of each class at each client.
    components : VarianceComponents, default=None
        Variances that are known already; by default they are estimated by restricted
        maximum likelihood.

    Returns
    -------
    model : MixedEffects
        The model.

    See Also
    --------
    MixedEffects : What it says about a client.

    Notes
    -----
    If no two clients share a class, the components cannot be told apart: a weak prior
    then makes them equal. A single client has no offset.

    Examples
    --------
    Four clients in two groups of classes, drawn from the model:

    >>> import numpy as np
    >>> from skslot.statistics import Cells, fit_mixed_effects
    >>> rng, m = np.random.default_rng(0), 400
    >>> client, label = np.divmod(np.arange(20), 5)
    >>> means = rng.normal(size=(4, m))[client] + 2 * rng.normal(size=(5, m))[label]
    >>> means += rng.normal(size=(20, m)) / 10
    >>> cells = Cells(client, label, np.full(20, 100.0), means, within=1980.0 * m)
    >>> [round(each, 2) for each in fit_mixed_effects(cells).components]
    [0.95, 4.11, 0.0]
    """
    converged = True
    if components is None:
        components, converged = estimate_components(cells)
    model = MixedEffects(
        components,
        means=None,
        effects=class_effects(cells, components),
        class_counts=cells.class_counts,
        holders=cells.holders,
        converged=converged,
    )
    weights = cells.counts / (components.interaction * cells.counts + 1)
    offsets = np.array(
        [model.offset(*cells.of_client(k)) for k in range(cells.n_clients)]
    )
    moved = offsets[cells.client]
    np.subtract(cells.means, moved, out=moved)  # as large as all messages
    totals = np.bincount(cells.label, weights)
    means = cells.class_sums(weights / totals[cells.label], moved)
    return MixedEffects(**{**vars(model), "means": means})


# ------------------------------------------------------------------ covariance


# Share of the mean variance that is always added to the diagonal, so that constant
# features do not make the covariance singular.
LEAST_RIDGE = 1e-6


class WithinCovariance:
    """Covariance of all rows around their class means, added up client by client.

    Parameters
    ----------
    n_samples : int
        Rows of all clients.
    least_variance : float, default=0.0
        Variance of a feature below which all of it is rounding. So much is left on the
        diagonal if rows do not vary within classes.

    See Also
    --------
    MixedEffects : Has the offsets that are taken out of the rows before.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import WithinCovariance
    >>> pooled = WithinCovariance(n_samples=30)
    >>> pooled.add(10, 10 * np.diag([1.0, 2.0]))
    >>> pooled.add(20, 20 * np.diag([3.0, 2.0]))
    >>> covariance, shrinkage = pooled.shrunk("clients")
    >>> round(shrinkage, 2)
    1.0
    >>> pooled.shrunk(0.0)[0].round(2)
    array([[2.33, 0.  ],
           [0.  , 2.  ]])
    """

    def __init__(self, n_samples, least_variance=0.0):
        self.n_samples = n_samples
        self.least_variance = least_variance
        self._sum = self._weighted = 0.0
        self._squares = self._shares = 0.0
        self._n_clients = 0

    def add(self, n_samples, scatter):
        """Add the rows of a client.

        Parameters
        ----------
        n_samples : int
            Their number.
        scatter : ndarray of shape (n_features, n_features)
            Sum of the products of their deviations from the class means of all.
        """
        share = n_samples / self.n_samples
        self._n_clients += 1
        self._sum = self._sum + scatter
        self._weighted = self._weighted + (share / self.n_samples) * scatter
        self._squares += np.vdot(scatter, scatter) / self.n_samples**2
        self._shares += share**2

    def shrunk(self, shrinkage):
        """Compute the covariance, pulled towards a multiple of the identity.

        Parameters
        ----------
        shrinkage : {"clients", "oas"} or float
            Weight of the identity. "clients" takes clients as replicates: the more
            their covariances differ, the less the pooled one says about the next.

        Returns
        -------
        covariance : ndarray of shape (n_features, n_features)
            The covariance.
        coefficient : float
            Weight of the identity.
        """
        covariance = self._sum / self.n_samples
        n_features = len(covariance)
        variance = max(np.trace(covariance) / n_features, self.least_variance)
        coefficient = shrinkage
        if isinstance(shrinkage, str):
            coefficient = shrinkage_coefficient("oas", covariance, self.n_samples)
        if shrinkage == "clients":
            coefficient = max(coefficient, self._between_clients(covariance))
        coefficient = float(min(coefficient, 1.0))
        shrunk = (1 - coefficient) * covariance
        ridge = (coefficient + LEAST_RIDGE) * variance
        diagonal = np.diag_indices_from(shrunk)
        shrunk[diagonal] += ridge
        try:
            cholesky(shrunk)
        except LinAlgError:
            # rounding, mostly of float16 messages: lift eigenvalues above the noise
            shrunk[diagonal] += max(-2 * eigvalsh(shrunk)[0], 0.0)
        return shrunk, coefficient

    def _between_clients(self, covariance):
        """Ledoit and Wolf's coefficient, with clients as independent replicates."""
        apart = np.square(covariance).sum() - np.trace(covariance) ** 2 / len(
            covariance
        )
        if self._n_clients < 2 or not apart > 0:
            return 0.0
        cross = np.vdot(self._weighted, covariance)
        spread = self._squares - 2 * cross + self._shares * np.square(covariance).sum()
        return max(spread, 0.0) / (1 - self._shares) / apart


# ------------------------------------------------------------------ unlabelled


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
    >>> from skslot.statistics import Cells, fit_mixed_effects, fit_unlabelled
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
    >>> from skslot.statistics import Cells, fit_mixed_effects, fit_unlabelled
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
