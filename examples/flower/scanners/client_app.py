"""What runs at each site."""

from scanners.task import MODEL, keep_model, load_data
from skslot.flower import make_client_app

app = make_client_app(
    load_data, MODEL, encoder="8x8 digits, pixels", receive=keep_model
)
