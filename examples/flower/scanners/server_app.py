"""What runs at the server."""

from scanners.task import MODEL
from skslot.flower import make_server_app

# How many clients to wait for is in pyproject.toml.
app = make_server_app(MODEL)
