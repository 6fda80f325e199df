"""How far clients are from each other, before and after alignment."""

from ._drawing import axes_for, draw_heat_map
from ._gaussians import check_aligner, client_gaussians, pairwise_distances


class ClientDistanceDisplay:
    """Distances between clients before and after alignment, as two heat maps.

    A client is taken for the Gaussian that it sent, with its mean and its shrunk
    covariance, and the distance is the 2-Wasserstein distance of two of them. Use
    :meth:`from_estimator`. Both maps have one colour scale.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    before : ndarray of shape (n_clients, n_clients)
        Distances of the features as they are.
    after : ndarray of shape (n_clients, n_clients)
        Distances of the aligned features.
    clients : ndarray of shape (n_clients,)
        Client ids.
    tau : float
        Strength of the alignment.

    Attributes
    ----------
    axes_ : ndarray of shape (2,)
        The axes.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    alignment_report : Distances to the reference, among other things.
    skslot.geometry.gaussian_wasserstein : The distance.

    Examples
    --------
    >>> from skslot import FederatedOTAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.inspection import ClientDistanceDisplay
    >>> data = load_digit_scanners()
    >>> aligner = FederatedOTAligner().fit(data.data, client_ids=data.client_ids)
    >>> display = ClientDistanceDisplay.from_estimator(aligner)
    >>> bool(display.after.max() < display.before.max())
    True
    """

    def __init__(self, before, after, clients, tau):
        self.before = before
        self.after = after
        self.clients = clients
        self.tau = tau

    @classmethod
    def from_estimator(cls, estimator, *, ax=None):
        """Compute the distances and draw them.

        Parameters
        ----------
        estimator : FederatedOTAligner
            A fitted aligner.
        ax : array-like of 2 matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        display : ClientDistanceDisplay
            The distances, drawn.
        """
        check_aligner(estimator)
        before, after = client_gaussians(estimator)
        display = cls(
            pairwise_distances(before),
            pairwise_distances(after),
            estimator.clients_,
            estimator.tau_,
        )
        return display.plot(ax=ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : array-like of 2 matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        display : ClientDistanceDisplay
            This object.
        """
        figure, axes = axes_for(ax, (1, 2), (4.0, 3.4))
        most = max(self.before.max(), self.after.max()) or 1.0
        titles = ("before alignment", f"after, tau = {self.tau:.2g}")
        for axis, title, values in zip(
            axes[0], titles, (self.before, self.after), strict=True
        ):
            image = draw_heat_map(
                axis, values, self.clients, self.clients, most=most, cmap="PuBu"
            )
            axis.set(title=title, xlabel="client", ylabel="client")
        axes[0, 1].set(ylabel=None)
        axes[0, 1].tick_params(labelleft=False)
        figure.colorbar(image, ax=axes.ravel().tolist(), label="2-Wasserstein distance")
        self.figure_, self.axes_ = figure, axes[0]
        return self
