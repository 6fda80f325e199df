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
    add_statistics,
    announce,
    check_same_encoder,
    client_map,
    plain_warnings,
    read_table,
    refuse_output,
    sent_statistics,
)
from ._options import client_name

# Rows that a map can be estimated from: one by one they would all go to the same place.
FEWEST_ROWS = 10


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
        model = _model_of_site(model, table, sent, arguments)
    probabilities = _probabilities(model, table.X)
    predicted = np.array(model.classes)[probabilities.argmax(axis=1)]
    _write_predictions(arguments.output, table, predicted, probabilities, model.classes)
    if table.labels is not None:
        _print_accuracy(predicted, table.labels.astype(str), model.classes)
    announce(arguments.output, f"predictions of {len(predicted)} rows")


def _load_model(arguments):
    from ..exchange import AlignedModel, LinearModel, MessageError, load_message

    path, model = arguments.model, load_message(arguments.model)
    if not isinstance(model, AlignedModel | LinearModel):
        raise MessageError(
            f"this is of the kind {model.kind!r}, not a model.", path=path
        )
    if isinstance(model, LinearModel) and arguments.statistics is not None:
        raise ValueError(f"{path} includes the alignment: leave --statistics out.")
    owner = getattr(model, "client", None)
    if None not in (owner, arguments.client) and owner != arguments.client:
        raise ValueError(
            f"{path} is for client {owner!r}, not for {arguments.client!r}: it "
            "includes the alignment of that client."
        )
    return model


def _model_of_site(model, table, sent, arguments):
    """The model of all sites with the alignment of this one folded in."""
    if sent is None:
        _check_estimate(table)
    with plain_warnings():
        moved_by = client_map(table, sent, model.reference, model.tau, arguments)
    return model.head.pulled_back(*moved_by.affine, arguments.client)


def _check_estimate(table):
    """Refuse rows that do not tell how a site differs from the others."""
    clients = np.unique(table.clients) if table.clients is not None else []
    if len(clients) > 1:
        some = ", ".join(clients[:10])
        raise ValueError(
            f"{table.path} has rows of several clients ({some}), each with an "
            "alignment of its own: choose one by --client."
        )
    n_rows = len(table.training_rows().X)
    if n_rows < FEWEST_ROWS:
        raise ValueError(
            f"{table.path} has {n_rows} rows to estimate the alignment from, which "
            f"takes at least {FEWEST_ROWS}: hand over what this site had sent by "
            "--statistics FILE.slot."
        )
    print(
        f"alignment estimated from {n_rows} rows of {table.path}; --statistics "
        "FILE.slot takes that of what this site had sent"
    )


def _print_accuracy(predicted, labels, classes):
    print(
        f"accuracy: {np.mean(predicted.astype(str) == labels):.2%} of {len(labels)} "
        "rows"
    )
    unknown = ~np.isin(labels, np.array(classes).astype(str))
    if unknown.any():
        some = ", ".join(map(repr, np.unique(labels[unknown])[:5].tolist()))
        print(
            f"rows with a label that the model does not know: {unknown.sum()} ({some})"
        )


def _with_row_numbers(table):
    numbers = np.arange(1, len(table.X) + 1)
    return replace(table, others={"row": numbers, **table.others})


def _probabilities(model, X):
    """Probability of each class; one row of weights tells two classes apart."""
    from scipy.special import softmax

    scores = X @ model.coef.T + model.intercept
    if len(model.classes) == 2 and scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    return softmax(scores, axis=1)


def _write_predictions(path, table, predicted, probabilities, classes):
    columns = {name: array.tolist() for name, array in table.per_row().items()}
    columns["prediction"] = predicted.tolist()
    for label, values in zip(classes, probabilities.T, strict=True):
        columns[f"probability_{label}"] = values.tolist()
    with atomic_output(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        text.detach()
