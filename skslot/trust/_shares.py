"""A cap on the weight of one client."""

import numpy as np


def cap_shares(n_samples, max_share):
    """Lower the weights of large clients until nobody has more than a share of all.

    Weights are the largest ``w <= n_samples`` with ``w <= max_share * sum(w)``: those
    of clients that are too large are all the same, and nobody else's change.

    Parameters
    ----------
    n_samples : array-like of shape (n_clients,)
        Weight of each client without a cap, such as its number of rows.
    max_share : float
        Most that one client may have of the sum of weights, at least 1 / n_clients.

    Returns
    -------
    weights : ndarray of shape (n_clients,)
        Weight of each client.

    Examples
    --------
    >>> from skslot.trust import cap_shares
    >>> cap_shares([1000, 10, 20], 0.5)
    array([30., 10., 20.])
    >>> cap_shares([1000, 900, 20, 30], 0.4)
    array([100., 100.,  20.,  30.])
    """
    weights = np.asarray(n_samples, dtype=np.float64)
    n_clients = len(weights)
    # of as many clients as that, each can have no more than this share
    if max_share * n_clients < 1 - 1e-9:
        raise ValueError(
            f"max_share={max_share:g} is too small for {n_clients} clients, who "
            f"have 1/{n_clients} each if all weigh the same; give it at least "
            f"{1 / n_clients:.3g}."
        )
    ordered = np.sort(weights)[::-1]
    for n_capped in range(n_clients):
        rest = ordered[n_capped:].sum()
        left = 1 - max_share * n_capped
        # the cap, if so many clients are at it
        cap = max_share * rest / left if left > 1e-9 else ordered[-1]
        if ordered[n_capped] <= cap:
            break
    else:
        cap = ordered[-1]
    return np.minimum(weights, cap)
