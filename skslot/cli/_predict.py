"""``skslot predict``: labels at a site, by a model from the server."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from .._atomic import atomic_output
from ._exchange import (
    add_features,
    add_output,
    announce,
    check_same_encoder,
    read_table,
    refuse_output,
)
from ._options import client_name
from ._site_maps import add_statistics, client_map, sent_statistics


def add_commands(commands):
    """Add ``predict``."""
    predict = commands.add_parser(
        "predict",
        help="at a site: predict labels with the model from the server",
        description="Predict the label of each row with a model that skslot aggregate "
        "made, and write a .csv file: number of the row, what stood beside the "
        "features, prediction, probability of each class. The features are not to be "
        "aligned before: a model for one site includes its alignment, and for that of "
        "all sites it is done here, by the map of this site. With --labels it also "
        "prints the accuracy.",
        epilog="example: skslot predict features.npz --model global.slot --statistics "
        "A.slot -o predictions.csv",
    )
    add_features(predict)
    predict.add_argument(
        "--model",
        type=Path,
        required=True,
        metavar="FILE.slot",
        help="what skslot aggregate wrote: the model of all sites, or that of this one",
    )
    predict.add_argument(
        "--client",
        type=client_name,
        metavar="NAME",
        help="name of the site; of a file with a column client, its rows are taken "
        "(default: the one that the model or --statistics is of)",
    )
    add_statistics(predict)
    add_output(predict, "FILE.csv", "predictions")
    predict.set_defaults(run=_predict)


def _predict(arguments):
    from ..exchange import AlignedModel

    refuse_output(arguments, arguments.model, arguments.statistics)
    model, sent = _load_model(arguments), sent_statistics(arguments)
    table = _with_row_numbers(read_table(arguments))
    owners = (getattr(source, "client", None) for source in (arguments, model, sent))
    client = next((owner for owner in owners if owner is not None), None)
    if client is not None:
        table = table.of_client(client)
    check_same_encoder(table, model, arguments.model)
    if isinstance(model, AlignedModel):
        moved_by = client_map(table, sent, model.reference, model.tau, arguments)
        model = model.head.pulled_back(*moved_by.affine, client)
    if client is not None:
        print(f"client {client}: {len(table.X)} rows")
    probabilities = model.predict_proba(table.X)
    predicted = np.array(model.classes)[probabilities.argmax(axis=1)]
    _write_predictions(arguments.output, table, predicted, probabilities, model.classes)
    if table.labels is not None:
        _print_accuracy(predicted, table, model.classes)
    announce(arguments.output, f"predictions of {len(predicted)} rows")


def _load_model(arguments):
    from ..exchange import AlignedModel, LinearModel, MessageError, load_message

    path, model = arguments.model, load_message(arguments.model)
    if not isinstance(model, AlignedModel | LinearModel):
        raise MessageError(
            f"this is of the kind {model.kind!r}, not a model, which skslot aggregate "
            "--model writes.",
            path=path,
        )
    if isinstance(model, LinearModel) and arguments.statistics is not None:
        raise ValueError(f"{path} includes the alignment: leave --statistics out.")
    owner = getattr(model, "client", None)
    if None not in (owner, arguments.client) and str(owner) != arguments.client:
        raise ValueError(
            f"{path} is for client {owner!r}, not for {arguments.client!r}: it "
            "includes the alignment of that client."
        )
    return model


def _print_accuracy(predicted, table, classes):
    labels = table.labels.astype(str)
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


def _with_row_numbers(table):
    numbers = np.arange(1, len(table.X) + 1)
    return replace(table, others={"row": numbers, **table.others})


def _write_predictions(path, table, predicted, probabilities, classes):
    columns = {name: array.tolist() for name, array in table.per_row().items()}
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
