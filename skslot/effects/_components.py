"""Variance components of the means of (client, class) cells, by restricted likelihood.

The mean of a cell is ``mu + d_k + c_y + u_ky + e_ky``: a client effect, a class effect,
their interaction and the noise of a mean of ``n_ky`` rows. In each feature the effects
are normal with variances ``client * t``, ``label * t`` and ``interaction * t``, and the
noise with ``t / n_ky``, where ``t`` is the variance within cells. All features share
the three numbers, so that a handful of cells is enough to estimate them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, qr
from scipy.optimize import minimize
from scipy.sparse import csr_array

from ..statistics import average_rows

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
    >>> from skslot.effects import VarianceComponents
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
    >>> from skslot.effects import Cells
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
