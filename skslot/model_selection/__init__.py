"""Splitting data the way federated data is split."""

from ._label_shift import ClassTable, class_table, dirichlet_label_shift

__all__ = ["ClassTable", "class_table", "dirichlet_label_shift"]
