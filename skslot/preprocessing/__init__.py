"""Preprocessing that sites can do without handing rows to anybody."""

from ._scaler import FederatedScaler

__all__ = ["FederatedScaler"]
