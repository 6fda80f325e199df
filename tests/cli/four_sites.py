"""Rows of four sites, and commands on them."""

import csv

import numpy as np
import pandas as pd

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.cli import main
from skslot.datasets import make_shifted_clients

SITES = ["A", "B", "C", "D"]
DATA = make_shifted_clients(
    800, n_clients=4, n_classes=4, n_features=6, random_state=0, label_shift=3.0
)
X, CLIENTS = DATA.data, np.array(SITES)[DATA.client_ids]
Y = np.array(["cat", "dog", "horse", "owl"])[DATA.target]
NAMES = ["age", "weight", "height", "pulse", "dose", "score"]


def message_of(client, labels=True):
    rows = CLIENTS == client
    aligner = FederatedOTAligner()
    if not labels:
        return aligner.client_update(X[rows], client=client)
    return FedCGSClassifier(aligner=aligner).client_update(
        X[rows], Y[rows], client=client
    )


def save_messages(folder):
    """Write the files of all clients, with labels, into a folder."""
    for client in SITES:
        message_of(client).save(folder / f"{client}.slot", min_samples=1)


def run(command):
    """Exit code of a command line."""
    return main(command.split())


def read_predictions(path):
    """Labels and probabilities, in the order of the rows of the site."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name.startswith("probability_")]
    probabilities = [[float(row[name]) for name in names] for row in rows]
    return np.array([row["prediction"] for row in rows]), np.array(probabilities)


def write_table(path, client="A", columns=NAMES, **others):
    rows = CLIENTS == client
    frame = pd.DataFrame(X[rows], columns=NAMES)[list(columns)]
    for name, values in {"diagnosis": Y[rows], **others}.items():
        frame[name] = values
    if path.endswith(".csv"):
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)


def error_of(command, capsys):
    """The one line that a command fails with."""
    assert run(command) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("skslot: error: ")
    assert printed.count("\n") == 1
    return printed
