"""Flower apps over the same client and server steps as ``fit``."""

from ._client import make_client_app
from ._server import FederationReport, make_server_app

__all__ = [
    "FederationReport",
    "make_client_app",
    "make_server_app",
]
