"""Splitting and searching the way federated data asks for."""

from ._label_shift import (
    ClassTable,
    class_table,
    dirichlet_label_shift,
    split_clients,
)
from ._search import FederatedGridSearchCV
from ._splitters import CellHoldoutKFold, LeaveOneClientOut, StratifiedClientKFold

__all__ = [
    "CellHoldoutKFold",
    "ClassTable",
    "FederatedGridSearchCV",
    "LeaveOneClientOut",
    "StratifiedClientKFold",
    "class_table",
    "dirichlet_label_shift",
    "split_clients",
]
