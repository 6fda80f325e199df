"""Folds of rows and of (client, class) cells."""

import numpy as np


def stratified_folds(y, groups, n_splits, rng=None):
    """Test rows of each fold, such that all folds have a like share of each cell."""
    if n_splits > len(y):
        raise ValueError(
            f"n_splits={n_splits} is more than the {len(y)} rows there are."
        )
    _, labels = np.unique(y, return_inverse=True)
    clients = np.empty(len(y), dtype=np.intp)
    for index, rows in enumerate(groups.rows):
        clients[rows] = index
    order = np.arange(len(y)) if rng is None else rng.permutation(len(y))
    order = order[np.lexsort((labels[order], clients[order]))]
    # a client with one row would be unknown when that row is tested: keep it to train
    order = order[np.bincount(clients)[clients[order]] > 1]
    # dealing out like cards, cell after cell, also balances the folds in size
    return [order[fold::n_splits] for fold in range(n_splits)]


def assign_cells(counts, n_folds, min_cell, min_client, rng=None):
    """Distribute cells over folds to hold out; folds without any are left out.

    ``counts`` has a row per client and a column per class. In every fold, the class of
    each held-out cell keeps ``min_cell`` rows at another client, and a client gives up
    one cell at most and keeps ``min_client`` rows. Cells for which no fold allows it
    are not held out.
    """
    folds = [np.zeros(counts.shape, dtype=bool) for _ in range(n_folds)]
    cells = np.argwhere(counts > 0)
    # diagonally, so that clients do not all begin with the same class
    diagonal = (cells[:, 1] - cells[:, 0]) % counts.shape[1]
    cells = cells[np.lexsort((cells[:, 0], diagonal))]
    if rng is not None:
        cells = rng.permutation(cells)
    for client, label in cells:
        free = [held for held in folds if not held[client].any()]
        for held in sorted(free, key=lambda held: counts[held].sum()):
            held[client, label] = True
            if _is_allowed(counts, held, min_cell, min_client):
                break
            held[client, label] = False
    return [np.argwhere(held).tolist() for held in folds if held.any()]


def _is_allowed(counts, held, min_cell, min_client):
    kept = np.where(held, 0, counts)
    clients, labels = np.nonzero(held)
    enough_rows = (kept.sum(axis=1)[clients] >= min_client).all()
    return enough_rows and (kept.max(axis=0)[labels] >= min_cell).all()
