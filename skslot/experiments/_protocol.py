"""The paper's evaluation protocol."""

import numpy as np
from sklearn.model_selection import train_test_split

from .._clients import shorten
from ..model_selection import dirichlet_label_shift

SPLITS = ("train", "test")


def paper_split(
    y,
    client_ids,
    alpha,
    *,
    split=None,
    test_size=0.3,
    min_samples=10,
    random_state=0,
):
    """Split into skewed training rows and test rows that are not skewed.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    client_ids : array-like of shape (n_samples,)
        Client of each row.
    alpha : float or None
        Concentration of the label shift; None for no label shift.
    split : array-like of shape (n_samples,), default=None
        "train" or "test" for each row, in upper or lower case, if the data set has an
        official split.
    test_size : float, default=0.3
        Share of each (client, class) cell for testing, without an official split.
    min_samples : int, default=10
        Fewest training rows of a client.
    random_state : int, default=0
        Number of the partition.

    Returns
    -------
    train : ndarray
        Positions of the training rows.
    test : ndarray
        Positions of the test rows.

    See Also
    --------
    skslot.model_selection.dirichlet_label_shift : The label shift.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.experiments import paper_split
    >>> y, site = np.tile([0, 1], 50), np.repeat(["A", "B"], 50)
    >>> train, test = paper_split(y, site, alpha=None)
    >>> len(train), len(test)
    (70, 30)
    """
    y, client_ids = np.asarray(y), np.asarray(client_ids)
    if split is None:
        _, client = np.unique(client_ids.astype(str), return_inverse=True)
        classes, label = np.unique(y, return_inverse=True)
        cells = client * len(classes) + label
        alone = np.bincount(cells)[cells] == 1  # cannot be split, so it is trained on
        train, test = train_test_split(
            np.flatnonzero(~alone),
            test_size=test_size,
            stratify=cells[~alone],
            random_state=random_state,
        )
        train = np.concatenate([train, np.flatnonzero(alone)])
    else:
        split = check_split(split)
        train, test = (np.flatnonzero(split == name) for name in SPLITS)
    if alpha is not None:
        kept = dirichlet_label_shift(
            y[train],
            client_ids[train],
            alpha,
            min_samples=min_samples,
            random_state=random_state,
        )
        train = train[kept]
    return train, test


def check_split(split, name="split"):
    """The split of each row in lower case; whoever is in neither part is an error."""
    split = np.char.lower(np.char.strip(np.asarray(split).astype(str)))
    others = np.setdiff1d(split, SPLITS)
    if len(others):
        raise ValueError(
            f"{name} must be 'train' or 'test' for each row, but is also "
            f"{shorten(others.tolist())}; rename these, or leave their rows out."
        )
    return split
