"""The ClientApp of the example with secure aggregation; one node dies mid-way.

Takes the place of ``scanners/client_app.py`` in a copy of the example.
"""

import os
import signal
from pathlib import Path

from scanners.server_app import CLASSIFIER, SETTINGS
from scanners.task import keep_model, load_data

from skslot.flower import make_client_app


def load_or_die(context):
    is_doomed = context.node_config.get("fault") == "dies"
    if is_doomed and "masked" in context.state["skslot"]:
        # for attentive_supernode.py
        Path(os.environ["FLWR_HOME"], "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return load_data(context)


app = make_client_app(
    load_or_die,
    CLASSIFIER,
    classes=range(10),
    receive=keep_model,
    secure_aggregation=SETTINGS,
)
