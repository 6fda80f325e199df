"""Flower apps over the same client and server steps as ``fit``."""

from ._client import make_client_app
from ._local import LocalFederation
from ._report import FederationReport
from ._server import make_server_app
from ._submit import submit_run

__all__ = [
    "FederationReport",
    "LocalFederation",
    "make_client_app",
    "make_server_app",
    "submit_run",
]
