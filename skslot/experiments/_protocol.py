"""The paper's evaluation protocol, on features from a file."""

import numpy as np
from sklearn.model_selection import train_test_split

from ..model_selection import dirichlet_label_shift

SPLITS = ("train", "test")


def load_features(path):
    """Load features, labels and clients from a file.

    Parameters
    ----------
    path : str or path-like
        An ``.npz`` file with ``X``, ``y`` and either ``client``, the client of each
        row, or ``domain``, an index into ``domains``.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Features, in float64.
    y : ndarray of shape (n_samples,)
        Labels.
    client_ids : ndarray of shape (n_samples,)
        Client of each row.

    See Also
    --------
    paper_split : Splits them as the paper does.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from skslot.experiments import load_features
    >>> file = io.BytesIO()
    >>> np.savez(file, X=np.eye(2), y=[0, 1], domain=[0, 0], domains=["photo"])
    >>> load_features(io.BytesIO(file.getvalue()))[2]
    array(['photo', 'photo'], dtype='<U5')
    """
    with np.load(path, allow_pickle=False) as file:
        missing = {"X", "y"} - set(file)
        if missing or not ("client" in file or {"domain", "domains"} <= set(file)):
            raise ValueError(
                f"the file must hold X, y and client (or domain and domains); it holds "
                f"{sorted(file)}."
            )
        if "client" in file:
            client_ids = file["client"]
        else:
            client_ids = file["domains"][file["domain"]]
        return file["X"].astype(np.float64), file["y"], client_ids


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
        "train" or "test" for each row, if the data set has an official split.
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
        cells = np.char.add(client_ids.astype(str), y.astype(str))
        _, cell, sizes = np.unique(cells, return_inverse=True, return_counts=True)
        alone = sizes[cell] == 1  # cannot be on both sides, so it is trained on
        train, test = train_test_split(
            np.flatnonzero(~alone),
            test_size=test_size,
            stratify=cells[~alone],
            random_state=random_state,
        )
        train = np.concatenate([train, np.flatnonzero(alone)])
    else:
        train, test = (np.flatnonzero(np.asarray(split) == s) for s in SPLITS)
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
