"""What the variance components say about clients and classes."""

from dataclasses import dataclass

import numpy as np

from ._components import (
    VarianceComponents,
    class_effects,
    estimate_components,
)


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
    >>> from skslot.effects import Cells, fit_mixed_effects
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
    >>> from skslot.effects import Cells, fit_mixed_effects
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
