"""The ClientApp of the example, with the fault that a node is started with.

Takes the place of ``scanners/client_app.py`` in a copy of the example.
"""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from scanners.task import MODEL, keep_model, load_data, site_folder

from skslot.exchange import ClassStatistics
from skslot.exchange._wire import encode
from skslot.flower import make_client_app

SECRET = "patient 4711 of ward 3"


def fault_of(context):
    return context.node_config.get("fault") if context.run_config["faults"] else None


def load_or_fail(context):
    fault = fault_of(context)
    if fault == "raises":
        raise ValueError(SECRET)
    if fault == "dies":
        # for attentive_supernode.py
        Path(os.environ["FLWR_HOME"], "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "is silent":
        time.sleep(3600)
    return load_data(context)


honest = make_client_app(load_or_fail, MODEL, receive=keep_model)
app = ClientApp()


@app.query("summary")
def summary(message, context):
    reply = honest(message, context)
    if fault_of(context) != "sends NaN":
        return reply
    honest_answer = ClassStatistics.from_bytes(reply.content["skslot"]["message"])
    forged = replace(honest_answer, means=np.full_like(honest_answer.means, np.nan))
    data = encode(forged.kind, forged._wire_arrays(), forged._json_facts(), "float64")
    record = {"message": data, "code": ""}
    return Message(RecordDict({"skslot": ConfigRecord(record)}), reply_to=message)


@app.query("result")
def result(message, context):
    asked = dict(context.state["skslot"])
    (site_folder(context) / "asked.txt").write_text(str(asked))
    return honest(message, context)
