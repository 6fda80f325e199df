"""How a server step handles implausible and dominant clients."""

from dataclasses import dataclass
from numbers import Real

ACTIONS = (None, "warn", "exclude")


@dataclass(frozen=True)
class ClientScreen:
    """Rules by which a server step screens its clients.

    The ``screen`` parameter of all estimators takes an instance.

    Read more in the :doc:`User Guide </user_guide/trust>`.

    Parameters
    ----------
    action : None, "warn" or "exclude", default="warn"
        How to handle clients whose statistics are implausible compared with all others.
        ``"warn"`` issues a warning, ``"exclude"`` drops the client, ``None`` disables
        the check. The report on the clients is computed in any case.
    max_share : float in (0, 1], default=None
        Maximum fraction of all samples that one client may contribute. Larger clients
        are down-weighted, see :func:`cap_shares`. If None, no limit is applied.

    See Also
    --------
    guard_clients : Apply an action to a list of clients.
    cap_shares : Compute the weights of clients under a limit.

    Examples
    --------
    >>> from skslot import FedCGSClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.trust import ClientScreen
    >>> data = load_digit_scanners()
    >>> screen = ClientScreen(action="exclude", max_share=0.5)
    >>> screen
    ClientScreen(action='exclude', max_share=0.5)
    >>> classifier = FedCGSClassifier(screen=screen)
    >>> classifier = classifier.fit(data.data, data.target, client_ids=data.client_ids)
    >>> classifier.clients_report_.left_out
    {}
    """

    action: str | None = "warn"
    max_share: float | None = None

    def __post_init__(self):
        if self.action not in ACTIONS:
            raise ValueError(
                f"action must be None, 'warn' or 'exclude', got {self.action!r}."
            )
        share = self.max_share
        if share is not None and not (isinstance(share, Real) and 0 < share <= 1):
            raise ValueError(
                "max_share must be None or a number above 0 and at most 1, got "
                f"{share!r}."
            )

    @classmethod
    def of(cls, screen):
        """Convert a value of the ``screen`` parameter to a ClientScreen.

        Parameters
        ----------
        screen : None, "warn", "exclude" or ClientScreen
            Value to convert. An instance is returned unchanged.

        Returns
        -------
        screen : ClientScreen
            The instance.
        """
        return screen if isinstance(screen, cls) else cls(screen)
