"""Splitting and searching the way federated data asks for."""

from ._partitions import (
    class_table,
    dirichlet_label_shift,
    paper_split,
    split_clients,
)
from ._search import FederatedGridSearchCV
from ._splitters import CellHoldoutKFold, LeaveOneClientOut, StratifiedClientKFold

__all__ = [
    "CellHoldoutKFold",
    "FederatedGridSearchCV",
    "LeaveOneClientOut",
    "StratifiedClientKFold",
    "class_table",
    "dirichlet_label_shift",
    "paper_split",
    "split_clients",
]
