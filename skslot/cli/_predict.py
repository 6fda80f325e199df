"""``skslot predict``: labels at a site, by a model from the server."""

import csv
import io
from dataclasses import replace
from itertools import chain

import numpy as np

from .._atomic import atomic_output
from .._utils import printable
from ._arguments import add_command, read_table
from ._outputs import announce, refuse_output, writing
from ._site_maps import (
    check_same_encoder,
    client_map,
    load_kind,
    sent_statistics,
    site_classifier,
)

# What text begins with that a spreadsheet takes for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def add_commands(commands):
    """Add ``predict``."""
    command = add_command(commands, predict)
    command.add_features()
    command.add_model("the model of all sites, or that of this one")
    command.add_client(default="the one that the model or --statistics is of")
    command.add_statistics()
    command.add_output("FILE.csv", "predictions")
    command.add_argument(
        "--safe-csv",
        action="store_true",
        help="write an apostrophe before text that spreadsheets would run as a "
        "formula, which begins with = + - @ or a control character; for files that "
        "are opened in one, as other programs read the apostrophe too",
    )


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
    model = _load_model(arguments)
    table = read_table(arguments, learns=False, made_for=model)
    _check_owner(model, arguments)  # a plan may say whose rows they are
    sent = sent_statistics(arguments)
    numbers = np.arange(1, len(table.X) + 1)
    table = replace(table, others={"row": numbers, **table.others})
    owners = (getattr(source, "client", None) for source in (arguments, model, sent))
    client = next((owner for owner in owners if owner is not None), None)
    if client is not None:
        table = table.of_client(client)
    check_same_encoder(table, model, arguments.model)
    model = _model_of_site(model, table, sent, arguments)
    if client is not None:
        print(f"client {printable(client)}: {len(table.X)} rows")
    probabilities = model.predict_proba(table.X)
    predicted = np.array(model.classes)[probabilities.argmax(axis=1)]
    columns = _columns(table, predicted, probabilities, model.classes)
    with writing(arguments):
        _write_csv(arguments.output, columns, arguments.safe_csv)
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
    return model


def _check_owner(model, arguments):
    owner = getattr(model, "client", None)
    if None not in (owner, arguments.client) and str(owner) != arguments.client:
        raise ValueError(
            f"{arguments.model} is for client {owner!r}, not for {arguments.client!r}: "
            "it includes the alignment of that client."
        )


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


def _columns(table, predicted, probabilities, classes):
    """What is written of each row, by the name of the column."""
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
    return columns | results


def _write_csv(path, columns, for_spreadsheets):
    lines = chain([columns], zip(*columns.values(), strict=True))
    if for_spreadsheets:
        lines = (map(_no_formula, line) for line in lines)
    with atomic_output(path, private=True) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        csv.writer(text).writerows(lines)
        text.detach()


def _no_formula(cell):
    """Text that no spreadsheet takes for a formula."""
    is_formula = isinstance(cell, str) and cell.startswith(FORMULA)
    return f"'{cell}" if is_formula else cell
