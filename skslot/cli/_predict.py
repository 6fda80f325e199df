"""``skslot predict``: labels at a site, by a model from the server."""

import csv
import io
from dataclasses import replace

import numpy as np

from .._atomic import atomic_output
from ._arguments import add_command, read_table
from ._outputs import announce, refuse_output
from ._site_maps import (
    check_same_encoder,
    client_map,
    load_kind,
    sent_statistics,
    site_classifier,
)


def add_commands(commands):
    """Add ``predict``."""
    command = add_command(commands, predict)
    command.add_features()
    command.add_model("the model of all sites, or that of this one")
    command.add_client(default="the one that the model or --statistics is of")
    command.add_statistics()
    command.add_output("FILE.csv", "predictions")


def predict(arguments):
    """At a site: predict labels with the model from the server.

    Write a .csv file with, for each row, its number, what stood beside the features,
    the prediction, and the probability of each class. The features are not to be
    aligned before: a model for one site includes its alignment, and for that of all
    sites it is done here, by the map of this site. With --labels also print the
    accuracy.

    example: skslot predict features.npz --model global.slot --statistics A.slot
    -o predictions.csv
    """
    refuse_output(arguments, arguments.model, arguments.statistics)
    model, sent = _load_model(arguments), sent_statistics(arguments)
    table = read_table(arguments, learns=False)
    numbers = np.arange(1, len(table.X) + 1)
    table = replace(table, others={"row": numbers, **table.others})
    owners = (getattr(source, "client", None) for source in (arguments, model, sent))
    client = next((owner for owner in owners if owner is not None), None)
    if client is not None:
        table = table.of_client(client)
    check_same_encoder(table, model, arguments.model)
    model = _model_of_site(model, table, sent, arguments)
    if client is not None:
        print(f"client {client}: {len(table.X)} rows")
    probabilities = model.predict_proba(table.X)
    predicted = np.array(model.classes)[probabilities.argmax(axis=1)]
    _write_predictions(arguments.output, table, predicted, probabilities, model.classes)
    if table.y is not None:
        _print_accuracy(predicted, table, model.classes)
    announce(arguments.output, f"predictions of {len(predicted)} rows")


def _load_model(arguments):
    from ..exchange import LinearModel

    path, what = arguments.model, "a model, which skslot aggregate --model"
    kinds = ("AlignedModel", "LinearModel", "MixedEffectsModel")
    model = load_kind(path, kinds, what)
    if isinstance(model, LinearModel) and arguments.statistics is not None:
        raise ValueError(f"{path} includes the alignment: leave --statistics out.")
    owner = getattr(model, "client", None)
    if None not in (owner, arguments.client) and str(owner) != arguments.client:
        raise ValueError(
            f"{path} is for client {owner!r}, not for {arguments.client!r}: it "
            "includes the alignment of that client."
        )
    return model


def _model_of_site(model, table, sent, arguments):
    """The model for features as they are, if it is not made for this site already."""
    from ..exchange import AlignedModel, MixedEffectsModel

    if isinstance(model, MixedEffectsModel):
        classifier = site_classifier(table, sent, model, arguments)
        return classifier.client_model(classifier.aligner_.clients_[0])
    if isinstance(model, AlignedModel):
        moved_by = client_map(table, sent, model.reference, model.tau, arguments)
        return model.head.pulled_back(*moved_by.affine, arguments.client)
    return model


def _print_accuracy(predicted, table, classes):
    labels = table.y.astype(str)
    right = predicted.astype(str) == labels
    print(f"accuracy: {right.mean():.2%} of {len(right)} rows")
    for part in [] if table.split is None else np.unique(table.split):
        rows = right[table.split == part]
        print(f"accuracy of split {part}: {rows.mean():.2%} of {len(rows)} rows")
    unknown = ~np.isin(labels, np.array(classes).astype(str))
    if unknown.any():
        some = ", ".join(map(repr, np.unique(labels[unknown])[:5].tolist()))
        print(
            f"rows with a label that the model does not know: {unknown.sum()} ({some})"
        )


def _write_predictions(path, table, predicted, probabilities, classes):
    beside = {name: array for name, array in table.per_row().items() if array.ndim == 1}
    columns = {name: array.tolist() for name, array in beside.items()}
    results = {"prediction": predicted.tolist()}
    for label, values in zip(classes, probabilities.T, strict=True):
        results[f"probability_{label}"] = values.tolist()
    twice = sorted(columns.keys() & results.keys())
    if twice:
        raise ValueError(
            f"{table.path} has a column {twice[0]!r} already, which the predictions "
            "would have too; rename it."
        )
    columns |= results
    with atomic_output(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        text.detach()
