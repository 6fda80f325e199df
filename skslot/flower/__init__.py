"""Flower apps over the same client and server steps as ``fit``."""

from ._client import make_client_app
from ._exchanges import FederationReport
from ._server import make_server_app

__all__ = [
    "FederationReport",
    "make_client_app",
    "make_server_app",
]
