"""Random effects of clients and classes on class means: pure functions of arrays.

A cell is a pair of a client and a class that it holds. The mean of a cell is modelled
as ``mu + d_k + c_y + u_ky + e_ky``: a client effect, a class effect, their interaction
and the noise of a mean of ``n_ky`` samples. In each feature, the effects are normal
with variances ``client * t``, ``label * t`` and ``interaction * t``, and the noise with
variance ``t / n_ky``, where ``t`` is the variance within cells. All features share the
three numbers, so a handful of cells is enough to estimate them.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from scipy.special import softmax

from ._moments import (
    average_rows,
    is_constant,
    lift_eigenvalues,
    shrinkage_coefficient,
)

# ------------------------------------------------------------------ cells

# Variance within cells below this share of the variance between them is rounding.
NO_VARIANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Cells:
    """Class means of several clients.

    Parameters
    ----------
    client : ndarray of shape (n_cells,)
        Client of each cell, numbered from 0. Each client has at least one cell.
    label : ndarray of shape (n_cells,)
        Class of each cell, numbered from 0. Each class has at least one cell.
    counts : ndarray of shape (n_cells,)
        Number of samples of each cell.
    means : ndarray of shape (n_cells, n_features)
        Mean of each cell.
    within : float
        Sum over features of the squared deviations of all samples from the means of
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

    @classmethod
    def of_clients(cls, class_means, classes, within):
        """Join the class means of several clients.

        Parameters
        ----------
        class_means : list of dict
            For each client the number of samples and the mean of each class that it
            holds, as :func:`class_means` returns them.
        classes : list
            All labels, in the order of their numbers.
        within : float
            Squared deviations within cells.

        Returns
        -------
        cells : Cells
            The cells of all clients.
        """
        position = {label: index for index, label in enumerate(classes)}
        pairs = [pair for held in class_means for pair in held.values()]
        return cls(
            np.repeat(np.arange(len(class_means)), [len(held) for held in class_means]),
            np.array([position[label] for held in class_means for label in held]),
            np.array([count for count, _ in pairs], dtype=np.float64),
            np.array([mean for _, mean in pairs]),
            within,
        )

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
        """Number of samples of each class."""
        return np.bincount(self.label, self.counts)

    @property
    def holders(self):
        """Number of clients that hold each class."""
        return np.bincount(self.label)

    @cached_property
    def design(self):
        """Design matrix: ones for the mean, the client and the class of each cell."""
        n_cells = len(self.counts)
        mean = np.zeros(n_cells, dtype=np.intp)
        label = 1 + self.n_clients + self.label
        columns = np.column_stack([mean, 1 + self.client, label]).ravel()
        starts = np.arange(0, 3 * n_cells + 1, 3)
        shape = n_cells, 1 + self.n_clients + self.n_classes
        return csr_array((np.ones(3 * n_cells), columns, starts), shape=shape)

    def of_client(self, client):
        """Spread the cells of one client over all classes.

        Parameters
        ----------
        client : int
            Its number.

        Returns
        -------
        counts : ndarray of shape (n_classes,)
            Number of samples of each class; zero where it has none.
        means : ndarray of shape (n_classes, n_features)
            Mean of each class; zero where it has none.
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
            Values to add up.

        Returns
        -------
        sums : ndarray of shape (n_classes, n_features)
            Weighted sums.
        """
        cells = np.arange(len(self.label))
        shape = self.n_classes, len(cells)
        return csr_array((weights, (self.label, cells)), shape=shape) @ values

    def deviations(self, offsets):
        """Compute the deviations of cells from their class, without client offsets.

        Parameters
        ----------
        offsets : ndarray of shape (n_clients, n_features)
            Offsets of the clients.

        Returns
        -------
        deviations : ndarray of shape (n_cells, n_features)
            Means without offsets, minus the mean of their class over all clients.
        """
        apart = self.means - offsets[self.client]
        shares = self.counts / self.class_counts[self.label]
        apart -= self.class_sums(shares, apart)[self.label]
        return apart

    def centre(self):
        """Compute the mean of all samples.

        Returns
        -------
        mean : ndarray of shape (n_features,)
            Mean of the cells, weighted by their counts.
        """
        return average_rows(self.means, self.counts)

    @property
    def least_variance(self):
        """Variance within cells below which it is rounding."""
        return NO_VARIANCE * float(np.square(self.means - self.centre()).mean())

    def within_variance(self):
        """Compute the mean variance of a feature within cells.

        Returns
        -------
        variance : float
            The variance within cells. If there is none, the variance between them.
        """
        freedom = self.counts.sum() - len(self.counts)
        within = self.within / (self.means.shape[1] * freedom) if freedom > 0 else 0.0
        least = self.least_variance
        return float(within if within > least else least / NO_VARIANCE)


def weights_of(counts, interaction):
    """Precision of cell means around client and class effects, per variance within."""
    return counts / (interaction * counts + 1)


# ------------------------------------------------------------------ components

# Bounds of each component, and the standard deviation of its logarithm around the mean
# of the three, which decides only what the data leave open.
BOUNDS = 1e-8, 1e4
PRIOR_DEVIATION = 3.0
# Least variance of the cells to start the search from.
LEAST_SPREAD = 1e-4
# Difference of logarithms for the curvature at the optimum, and the longest Newton step
# that is taken.
NEWTON_STEP = 1e-4
LONGEST_STEP = 0.1
# Number of features whose residuals are computed together.
BLOCK = 64


def solve_effects(cells, components, Y):
    """Solve the mixed-model equations for the mean and all effects.

    ``effects`` has the mean in its first row, then clients, then classes. The diagonal
    of ``inverse`` contains their posterior variances. Also returns the logarithm of the
    determinant of the equations.
    """
    client, label, interaction = components
    design, weights = cells.design, weights_of(cells.counts, interaction)
    weighted = (design * weights[:, None]).T
    matrix = (weighted @ design).toarray()
    precisions = np.repeat([1 / client, 1 / label], [cells.n_clients, cells.n_classes])
    matrix[np.diag_indices_from(matrix)] += np.append(0.0, precisions)
    # scaled to a diagonal of ones, as precisions may be very large
    scale = 1 / np.sqrt(np.diag(matrix))
    factor = cho_factor(matrix * np.outer(scale, scale), lower=True)
    effects = scale[:, None] * cho_solve(factor, scale[:, None] * (weighted @ Y))
    inverse = scale[:, None] * cho_solve(factor, np.diag(scale))
    return effects, inverse, 2 * np.log(np.diag(factor[0]) / scale).sum()


def restricted_likelihood(logs, cells, Y, n_features):
    """Negative restricted log-likelihood of components per feature, and its gradient.

    ``logs`` are the logarithms of the components, and ``Y`` the centred means of the
    cells in units of the standard deviation within them. See :doc:`/theory`.
    """
    components = np.exp(logs)
    client, label, interaction = components
    weights = weights_of(cells.counts, interaction)
    effects, inverse, log_determinant = solve_effects(cells, components, Y)
    products = squared_residuals = 0.0
    for first in range(0, Y.shape[1], BLOCK):  # Y is as large as all messages
        block = slice(first, first + BLOCK)
        residuals = Y[:, block] - cells.design @ effects[:, block]
        products += np.einsum("ij,ij->i", residuals, Y[:, block]) / n_features
        squared_residuals += np.einsum("ij,ij->i", residuals, residuals) / n_features
    second_moments = np.diag(inverse) + np.square(effects).sum(axis=1) / n_features
    of_clients, of_classes = np.split(second_moments[1:], [cells.n_clients])
    columns = cells.design.indices.reshape(-1, 3)
    leverage = inverse[columns[:, :, None], columns[:, None, :]].sum(axis=(1, 2))
    trace = weights.sum() - np.square(weights) @ leverage
    from_prior = logs - logs.mean()
    strength = 1 / (PRIOR_DEVIATION**2 * n_features)
    value = (
        -np.log(weights).sum()
        + cells.n_clients * logs[0]
        + cells.n_classes * logs[1]
        + log_determinant
        + weights @ products
        + strength * from_prior @ from_prior
    )
    gradient = 2 * strength * from_prior
    gradient[0] += cells.n_clients - of_clients.sum() / client
    gradient[1] += cells.n_classes - of_classes.sum() / label
    gradient[2] += interaction * (trace - np.square(weights) @ squared_residuals)
    return value / 2, gradient / 2


def estimate_components(cells):
    """Estimate the variance components: (components, whether the search converged)."""
    scale = cells.within_variance()
    if cells.n_clients == 1 or not scale > 0:
        return np.zeros(3), True
    Y, n_features = (
        (cells.means - cells.centre()) / np.sqrt(scale),
        cells.means.shape[1],
    )
    spread = (np.square(Y).sum(axis=1) / n_features - 1 / cells.counts).mean()
    if n_features > len(Y):  # only Y @ Y.T matters
        Y = qr(Y.T, mode="r")[0][: len(Y)].T
    arguments, bounds = (cells, Y, n_features), np.log(BOUNDS)
    best = minimize(
        restricted_likelihood,
        np.full(3, np.log(max(spread, LEAST_SPREAD) / 3)),
        arguments,
        jac=True,
        method="L-BFGS-B",
        bounds=[bounds] * 3,
        options={"ftol": 1e-11, "gtol": 1e-7},
    )

    # The value is flat to rounding around its optimum, the gradient is not. Newton's
    # method makes the components independent of rounding and of the order of clients.
    logs, gradient = best.x, best.jac
    free = np.flatnonzero(~np.isclose(logs[:, None], bounds).any(axis=1))
    nearby = [logs + NEWTON_STEP * each for each in np.eye(3)[free]]
    ahead = [restricted_likelihood(each, *arguments)[1][free] for each in nearby]
    hessian = (np.reshape(ahead, (len(free),) * 2) - gradient[free]) / NEWTON_STEP
    for _ in range(3):
        step = np.zeros(3)
        step[free] = np.linalg.lstsq(hessian, gradient[free], rcond=None)[0]
        if not 0 < np.abs(step).max() < LONGEST_STEP:
            break
        next_logs = np.clip(logs - step, *bounds)
        next_gradient = restricted_likelihood(next_logs, *arguments)[1]
        if np.linalg.norm(next_gradient[free]) >= np.linalg.norm(gradient[free]):
            break
        logs, gradient = next_logs, next_gradient
    free = ~np.isclose(logs[:, None], bounds).any(axis=1)
    converged = best.success or np.abs(gradient[free]).max(initial=0.0) < 1e-4
    return np.exp(logs), bool(converged)


# ------------------------------------------------------------------ model


@dataclass(frozen=True, eq=False)
class MixedEffects:
    """Random-effects model of the class means of several clients.

    Made by :func:`fit_mixed_effects`. Classes are numbered. A client is described by
    its number of samples of each class and their means, arrays of shape (n_classes,)
    and (n_classes, n_features), with zeros for a class that it lacks.

    Parameters
    ----------
    class_counts : ndarray of shape (n_classes,)
        Number of samples of each class.
    holders : ndarray of shape (n_classes,)
        Number of clients that hold each class.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class over clients, without their offsets.
    effects : ndarray of shape (n_classes, n_features)
        Mean of each class as the model predicts it. Offsets are relative to it.
    components : ndarray of shape (3,)
        Variances of client, class and interaction effects, in units of the variance
        within cells.
    converged : bool
        Whether the search for the components converged.

    See Also
    --------
    fit_mixed_effects : Makes it.
    skslot.exchange.MixedEffectsModel : The model as it is sent to clients.

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

    class_counts: np.ndarray
    holders: np.ndarray
    means: np.ndarray
    effects: np.ndarray
    components: np.ndarray
    converged: bool

    @property
    def class_shares(self):
        """Share of each class in the samples of all clients."""
        return self.class_counts / self.class_counts.sum()

    @property
    def client_share(self):
        """Share of the variance between cells that is due to clients, from 0 to 1."""
        client, label, interaction = self.components
        total = client + label + interaction
        return float((client + interaction) / total) if total > 0 else 0.0

    def offset(self, counts, means, origin=None):
        """Predict the offset of a client that the model was fitted to (BLUP).

        Parameters
        ----------
        counts : ndarray of shape (n_classes,)
            Its number of samples of each class.
        means : ndarray of shape (n_classes, n_features)
            Their means.
        origin : ndarray of shape (n_classes, n_features), default=None
            Class means that the offset is relative to. If None, ``effects``.

        Returns
        -------
        offset : ndarray of shape (n_features,)
            Effect of the client on all of its classes.
        """
        origin = self.effects if origin is None else origin
        weights = weights_of(counts, self.components[2])
        return self._shrunk_mean(weights, means - origin)

    def offsets(self, cells):
        """Predict the offsets of all clients that the model was fitted to.

        Parameters
        ----------
        cells : Cells
            Class means of all clients.

        Returns
        -------
        offsets : ndarray of shape (n_clients, n_features)
            Their offsets.
        """
        clients = range(cells.n_clients)
        return np.array([self.offset(*cells.of_client(client)) for client in clients])

    def offset_of_newcomer(self, counts, means):
        """Predict the offset of a client that the model was not fitted to.

        Parameters
        ----------
        counts : ndarray of shape (n_classes,)
            Its number of samples of each class, which may be fractional.
        means : ndarray of shape (n_classes, n_features)
            Their means.

        Returns
        -------
        offset : ndarray of shape (n_features,)
            Effect of the client on all of its classes.
        """
        weights = weights_of(counts, self.components[2] * (1 + 1 / self.holders))
        return self._shrunk_mean(weights, means - self.means)

    def _shrunk_mean(self, weights, deviations):
        client = self.components[0]
        return client * (weights @ deviations) / (1 + client * weights.sum())

    def own_means(self, counts, means, offset):
        """Predict the class means of one client.

        Each lies between the mean of the client and the mean of all clients. It is
        closer to the former the more samples the client has of the class, and the more
        classes the client holds: two classes of ten say little about the others.

        Parameters
        ----------
        counts : ndarray of shape (n_classes,)
            Its number of samples of each class.
        means : ndarray of shape (n_classes, n_features)
            Their means.
        offset : ndarray of shape (n_features,)
            Its offset, which is subtracted from them.

        Returns
        -------
        own_means : ndarray of shape (n_classes, n_features)
            Class means of the client, without its offset.
        """
        posterior = 1 - 1 / (self.components[2] * counts + 1)
        cover = self.class_shares @ posterior
        deviations = means - offset - self.means
        return self.means + (cover * posterior)[:, None] * deviations


def fit_mixed_effects(cells, components=None):
    """Fit the random-effects model to the class means of several clients.

    Parameters
    ----------
    cells : Cells
        Class means of all clients.
    components : array-like of shape (3,), default=None
        Known variances of client, class and interaction effects. If None, they are
        estimated by restricted maximum likelihood.

    Returns
    -------
    model : MixedEffects
        The model.

    See Also
    --------
    MixedEffects : Predicts offsets and class means of clients.

    Notes
    -----
    If no two clients share a class, the components cannot be distinguished. A weak
    prior then makes them equal. A single client has no offset.

    Examples
    --------
    Four clients with samples of five classes, drawn from the model:

    >>> import numpy as np
    >>> from skslot.statistics import Cells, fit_mixed_effects
    >>> rng, m = np.random.default_rng(0), 400
    >>> client, label = np.divmod(np.arange(20), 5)
    >>> means = rng.normal(size=(4, m))[client] + 2 * rng.normal(size=(5, m))[label]
    >>> means += rng.normal(size=(20, m)) / 10
    >>> cells = Cells(client, label, np.full(20, 100.0), means, within=1980.0 * m)
    >>> fit_mixed_effects(cells).components.round(2)
    array([0.95, 4.11, 0.  ])
    """
    if components is None:
        components, converged = estimate_components(cells)
    else:
        components, converged = np.array(components, dtype=np.float64), True
    counts, label = cells.class_counts, cells.label
    if components[:2].min() > 0:
        centre = cells.centre()
        found = solve_effects(cells, components, cells.means - centre)[0]
        effects = centre + found[0] + found[1 + cells.n_clients :]
    else:
        effects = cells.class_sums(cells.counts / counts[label], cells.means)
    # offsets do not depend on the means, which follow from them
    model = MixedEffects(counts, cells.holders, effects, effects, components, converged)
    weights = weights_of(cells.counts, components[2])
    shares = weights / np.bincount(label, weights)[label]
    without_offsets = cells.means - model.offsets(cells)[cells.client]
    return replace(model, means=cells.class_sums(shares, without_offsets))


# ------------------------------------------------------------------ covariance


def within_covariance(scatters, shrinkage="clients", least_variance=0.0):
    """Pool the covariance of samples around their class means, and shrink it.

    Parameters
    ----------
    scatters : iterable of (int, ndarray of shape (n_features, n_features))
        For each client its number of samples, and the sum of the outer products of
        their deviations from the class means of all clients. Read once, one by one.
    shrinkage : {"clients", "oas"} or float, default="clients"
        Weight of the identity. ``"clients"`` treats clients as replicates: the more
        their covariances differ, the larger it is. It is at least that of ``"oas"``,
        which depends on the number of samples.
    least_variance : float, default=0.0
        Variance of a feature below which it is rounding. If samples do not vary within
        classes, it determines the diagonal.

    Returns
    -------
    covariance : ndarray of shape (n_features, n_features)
        The shrunk covariance.
    coefficient : float
        Weight of the identity.

    See Also
    --------
    fit_mixed_effects : Estimates the offsets that are subtracted before.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.statistics import within_covariance
    >>> scatters = [(10, 10 * np.diag([1.0, 2.0])), (20, 20 * np.diag([3.0, 2.0]))]
    >>> within_covariance(scatters, shrinkage=0.0)[0].round(2)
    array([[2.33, 0.  ],
           [0.  , 2.  ]])
    """
    n_clients = n_samples = squared_counts = squared_norms = 0
    total = weighted = 0.0
    for count, scatter in scatters:
        n_clients += 1
        n_samples += count
        squared_counts += count**2
        squared_norms += np.vdot(scatter, scatter)
        total = total + scatter
        weighted = weighted + count * scatter
    covariance = total / n_samples
    trace, n_features = np.trace(covariance), len(covariance)
    coefficient = shrinkage
    if isinstance(shrinkage, str):
        coefficient = shrinkage_coefficient("oas", covariance, n_samples)
    squared_norm = np.square(covariance).sum()
    dispersion = squared_norm - trace**2 / n_features
    if shrinkage == "clients" and n_clients > 1 and dispersion > 0:
        # Ledoit and Wolf's coefficient, with clients as independent replicates
        shares = squared_counts / n_samples**2
        cross = np.vdot(weighted, covariance) / n_samples**2
        spread = squared_norms / n_samples**2 - 2 * cross + shares * squared_norm
        by_clients = max(spread, 0.0) / (1 - shares) / dispersion
        coefficient = max(coefficient, by_clients)
    coefficient = float(min(coefficient, 1.0))
    variance = max(trace / n_features, least_variance)
    shrunk = (1 - coefficient) * covariance
    shrunk.flat[:: n_features + 1] += coefficient * variance
    return lift_eigenvalues(shrunk, variance), coefficient


# ------------------------------------------------------------------ unlabelled sites

# Weight of a sample whose class is predicted, relative to a labelled one. Chosen on
# PACS and four digit domains; with 1, samples of two classes cost 3 to 6 points.
PREDICTED_WEIGHT = 0.3
# Number of samples that the class distribution of all clients counts as.
PRIOR_SAMPLES = 10
# Maximum number of passes, for sites with labelled samples and without.
MOST_PASSES = 30, 50
# Smaller counts of predicted samples are zero.
TINY = 1e-12
# Largest change of a mean at the end, in standard deviations within classes.
TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class SiteFit:
    """Offset and class means of one site, estimated from unlabelled samples.

    Made by :func:`fit_unlabelled`.

    Parameters
    ----------
    offset : ndarray of shape (n_features,)
        Offset of the site.
    class_means : ndarray of shape (n_classes, n_features)
        Class means of the site, without its offset.
    counts : ndarray of shape (n_classes,)
        Number of samples of each class, labelled and predicted.
    means : ndarray of shape (n_classes, n_features)
        Their means, with the offset.
    label_mix : ndarray of shape (n_classes,)
        Estimated class distribution of the unlabelled samples.
    certainty : float
        Mean probability of the most likely class of a sample.
    distance : float
        Mean squared distance of samples to their class, per feature and in units of
        the variance within classes. It is about 1 for samples like those of the other
        clients.
    n_passes : int
        Number of passes over the samples.
    moved : float
        Length of the change of the offset, in standard deviations within classes.

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
    """Estimate offset and class means of a site from unlabelled samples.

    Parameters
    ----------
    model : MixedEffects
        The model of all clients, which stays as it is.
    covariance : ndarray of shape (n_features, n_features)
        Covariance within classes.
    X : ndarray of shape (n_samples, n_features)
        Unlabelled samples of the site.
    counts : ndarray of shape (n_classes,), default=None
        Number of labelled samples of the site in each class. If None, only its offset
        is estimated: class means from predicted labels alone do more harm than good.
    means : ndarray of shape (n_classes, n_features), default=None
        Means of the labelled samples.

    Returns
    -------
    fit : SiteFit
        Offset and class means of the site.

    See Also
    --------
    MixedEffects : Predicts offsets and class means from labelled samples.

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
    magnitudes, n_samples = np.abs(model.means).max(axis=0), model.class_counts.sum()
    if is_constant(np.diag(covariance), magnitudes, n_samples).all():
        raise ValueError(
            "samples do not vary within classes, so the classes of unlabelled samples "
            "cannot be predicted. Pass labels."
        )
    # in coordinates where the covariance within classes is the identity
    factor, centre = np.linalg.cholesky(covariance), average_rows(model.means)

    def whiten(rows):
        return solve_triangular(factor, (rows - centre).T, lower=True).T

    white = replace(model, means=whiten(model.means), effects=whiten(model.effects))
    X, shares = whiten(X), model.class_shares
    if counts is None:
        weight, most_passes = 1.0, MOST_PASSES[1]
        known = np.zeros(len(shares)), np.zeros_like(white.means)
        offset, class_means = np.zeros(X.shape[1]), white.means
    else:
        weight, most_passes = PREDICTED_WEIGHT, MOST_PASSES[0]
        known = counts, np.where(counts[:, None] > 0, whiten(means), 0.0)
        offset = white.offset(*known)
        class_means = white.own_means(*known, offset)
    start, mix = offset, shares
    n_passes, step = 0, np.inf
    while n_passes < most_passes and step > TOLERANCE:
        n_passes += 1
        with np.errstate(divide="ignore"):
            log_mix = np.log(mix)
        scores = (X - offset) @ class_means.T - np.square(class_means).sum(axis=1) / 2
        predicted = softmax(scores + log_mix, axis=1)
        mix = (predicted.sum(axis=0) + PRIOR_SAMPLES * shares) / (
            len(X) + PRIOR_SAMPLES
        )
        # labelled and predicted samples together
        joint_counts = known[0] + weight * predicted.sum(axis=0)
        sums = known[0][:, None] * known[1] + weight * (predicted.T @ X)
        joint = joint_counts, sums / np.maximum(joint_counts, TINY)[:, None]
        before = offset, class_means
        if counts is None:
            offset = white.offset_of_newcomer(*joint)
        else:
            offset = white.offset(*joint, white.means)
            class_means = white.own_means(*joint, offset)
        step = max(
            np.abs(offset - before[0]).max(), np.abs(class_means - before[1]).max()
        )
    distances = cdist(X - offset, class_means, "sqeuclidean")
    return SiteFit(
        offset=factor @ offset,
        class_means=centre + class_means @ factor.T,
        counts=joint[0],
        means=centre + joint[1] @ factor.T,
        label_mix=predicted.mean(axis=0),
        certainty=float(predicted.max(axis=1).mean()),
        distance=float((predicted * distances).sum() / X.size),
        n_passes=n_passes,
        moved=float(np.linalg.norm(offset - start)),
    )
