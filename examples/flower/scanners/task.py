"""What all sites and the server agree on, and how a site reads its own data."""

from pathlib import Path

import numpy as np

from skslot import FedCGSClassifier, FederatedOTAligner

# Alignment and classification from one upload per site.
MODEL = FedCGSClassifier(aligner=FederatedOTAligner(tau=0.4))


def site_folder(context):
    """Folder of this site: ``--node-config``, or one of many in a simulation."""
    if "folder" in context.node_config:
        return Path(context.node_config["folder"])
    folders = sorted(Path(context.run_config["simulation-data"]).iterdir())
    return folders[context.node_config["partition-id"]]


def load_data(context):
    """Features, labels and name of the site."""
    folder = site_folder(context)
    with np.load(folder / "features.npz") as data:
        return data["X"], data["y"], folder.name


def keep_model(model, context):
    """Write the model, with the alignment of this site folded in."""
    model.save(site_folder(context) / "model.slot", "float64")
