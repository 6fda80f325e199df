"""``skslot summarize``, ``align`` and ``predict``: what a site does by itself."""

import csv
import hashlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from .._atomic import atomic_output
from ._exchange import (
    add_dtype,
    add_features,
    add_output,
    add_shrinkage,
    announce,
    check_same_encoder,
    load_client_message,
    plain_warnings,
    read_table,
)
from ._files import refuse_overwrite, write_npz_atomically
from ._options import client_name, fraction_or, positive_int


def add_commands(commands):
    """Add ``summarize``, ``align`` and ``predict``."""
    _add_summarize(commands)
    _add_align(commands)
    _add_predict(commands)


def _add_summarize(commands):
    summarize = commands.add_parser(
        "summarize",
        help="at a site: write the one file that it sends",
        description="Summarize the features of a site in one small file, to be sent to "
        "the server: means and covariances, no rows. Without labels the file serves "
        "alignment only, with labels a classifier too. Of a data set with a split, the "
        "training rows are used.",
        epilog="example: skslot summarize features.npz --client A --labels -o A.slot",
    )
    add_features(summarize)
    summarize.add_argument(
        "--client",
        required=True,
        type=client_name,
        metavar="NAME",
        help="name of the site; of a file with a column client, its rows are taken",
    )
    summarize.add_argument(
        "--method",
        choices=("fedcgs", "fedpft"),
        default="fedcgs",
        help="classifier that the labels are summarized for (default: %(default)s)",
    )
    summarize.add_argument(
        "--components",
        type=positive_int,
        default=1,
        metavar="N",
        help="of fedpft: Gaussians for each class (default: %(default)s)",
    )
    summarize.add_argument(
        "--min-samples",
        type=positive_int,
        default=10,
        metavar="N",
        help="fewest rows of the site and of each class; with fewer nothing is "
        "written, since the mean of one row is that row (default: %(default)s)",
    )
    summarize.add_argument(
        "--drop-small-classes",
        action="store_true",
        help="leave out the rows of classes with fewer rows than that",
    )
    add_shrinkage(summarize)
    add_dtype(summarize)
    add_output(summarize, "FILE.slot", "the file to send")
    summarize.set_defaults(run=_summarize)


def _add_align(commands):
    align = commands.add_parser(
        "align",
        help="at a site: move features towards the reference of all sites",
        description="Move the features of a site towards the reference of all sites, "
        "and write them to an .npz file with all that stood beside them. The map is "
        "estimated from the rows of FEATURES, of a data set with a split from the "
        "training rows. For rows that came later, give the file that the site had "
        "sent as --statistics: a few rows say too little.",
        epilog="example: skslot align features.npz --reference reference.slot "
        "--client A --tau 0.4 -o aligned.npz",
    )
    add_features(align)
    align.add_argument(
        "--reference",
        type=Path,
        required=True,
        metavar="FILE.slot",
        help="what skslot aggregate wrote",
    )
    align.add_argument(
        "--client",
        required=True,
        type=client_name,
        metavar="NAME",
        help="name of the site; of a file with a column client, its rows are taken",
    )
    align.add_argument(
        "--tau",
        type=fraction_or("auto"),
        help="strength of the alignment, from 0 to 1 (default: as the reference says, "
        "else 0.4)",
    )
    statistics = align.add_mutually_exclusive_group()
    statistics.add_argument(
        "--statistics",
        type=Path,
        metavar="FILE.slot",
        help="what this site had sent; the map is then the one of that time",
    )
    add_shrinkage(statistics)
    add_output(align, "FILE.npz", "aligned features")
    align.set_defaults(run=_align)


def _add_predict(commands):
    predict = commands.add_parser(
        "predict",
        help="at a site: predict labels with the model from the server",
        description="Predict the label of each row with the model that skslot "
        "aggregate --models made for this site, and write a .csv file: number of the "
        "row, what stood beside the features, prediction, probability of each class. "
        "The model includes the alignment, so that features are not to be aligned "
        "before. With --labels it also prints the accuracy.",
        epilog="example: skslot predict features.npz --model A.model.slot "
        "-o predictions.csv",
    )
    add_features(predict)
    predict.add_argument(
        "--model",
        type=Path,
        required=True,
        metavar="FILE.slot",
        help="what skslot aggregate --models wrote for this site",
    )
    predict.add_argument(
        "--client",
        type=client_name,
        metavar="NAME",
        help="name of the site (default: the one that the model is for)",
    )
    add_output(predict, "FILE.csv", "predictions")
    predict.set_defaults(run=_predict)


# ---------------------------------------------------------------------- summarize


def _summarize(arguments):
    _refuse_output(arguments)
    table = read_table(arguments).of_client(arguments.client).training_rows()
    if table.labels is not None and arguments.drop_small_classes:
        table = _without_small_classes(table, arguments.min_samples)
    if not len(table.X):
        raise ValueError(f"{table.path} has no rows left to summarize.")
    with plain_warnings():
        message = _message(table, arguments).with_encoder(table.encoder)
        _check_disclosure(message, arguments.min_samples)
        message.save(arguments.output, arguments.dtype, arguments.min_samples)
    print(f"client {arguments.client}: {len(table.X)} rows, {_features(table)}")
    if table.labels is not None:
        classes, counts = np.unique(table.labels, return_counts=True)
        pairs = zip(classes.tolist(), counts, strict=True)
        print(f"rows of each class: {', '.join(f'{c}: {n}' for c, n in pairs)}")
    announce(arguments.output, "send it to the server; skslot inspect tells what is in")


def _refuse_output(arguments, *inputs):
    inputs = arguments.features, arguments.labels_file, *inputs
    refuse_overwrite(arguments.output, arguments.force, inputs)


def _check_disclosure(message, min_samples):
    """Refuse small groups in the words of the command line."""
    from ..exchange import MessageError

    try:
        message.check_disclosure(min_samples)
    except MessageError as error:
        text = str(error).replace("min_samples=", "--min-samples ")
        text = text.replace("lower min_samples", "lower --min-samples")
        raise ValueError(
            f"{text} --drop-small-classes leaves out the rows of small classes."
        ) from error


def _message(table, arguments):
    """The message of the estimators that the server will use."""
    from .. import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier

    aligner = FederatedOTAligner(shrinkage=arguments.shrinkage)
    if table.labels is None:
        return aligner.client_update(table.X, arguments.client)
    options = {"aligner": aligner, "wire_dtype": arguments.dtype}
    if arguments.method == "fedcgs":
        classifier = FedCGSClassifier(**options)
    else:
        classifier = FedPFTClassifier(arguments.components, random_state=0, **options)
    return classifier.client_update(table.X, table.labels, client=arguments.client)


def _without_small_classes(table, min_samples):
    classes, counts = np.unique(table.labels, return_counts=True)
    small = counts < min_samples
    for label, count in zip(classes[small].tolist(), counts[small], strict=True):
        print(f"left out: class {label!r}, rows: {count}")
    return table.select(~np.isin(table.labels, classes[small]))


def _features(table):
    """Features in words; those of a table by name, so that no column slips in."""
    text = f"{table.X.shape[1]} features"
    names = table.others.get("columns", np.empty(0)).tolist()
    if not names:
        return text
    more = ", ..." if len(names) > 20 else ""
    return f"{text}: {', '.join(names[:20])}{more}"


# -------------------------------------------------------------------------- align


def _align(arguments):
    from ..exchange import AlignmentReference

    output = arguments.output
    if output.suffix != ".npz":
        raise ValueError(f"the name of the output must end in .npz, not {output.name}.")
    _refuse_output(arguments, arguments.reference, arguments.statistics)
    table = read_table(arguments).of_client(arguments.client)
    reference = AlignmentReference.load(arguments.reference)
    check_same_encoder(table, reference, arguments.reference)
    with plain_warnings():
        client_map = _client_map(table, reference, arguments)
    aligned = {
        "X": client_map.transform(table.X),
        "fingerprint": _aligned_fingerprint(table.encoder, reference, client_map.tau),
    }
    if arguments.labels_file is not None:
        aligned["y"] = table.labels
    write_npz_atomically(output, {**table.others, **aligned})
    announce(output, f"{len(table.X)} rows, aligned with tau = {client_map.tau:g}")


def _client_map(table, reference, arguments):
    from .. import FederatedOTAligner

    tau = next(t for t in (arguments.tau, reference.tau, 0.4) if t is not None)
    aligner = FederatedOTAligner(tau, shrinkage=arguments.shrinkage)
    if arguments.statistics is None:
        rows = table.training_rows().X
        statistics = aligner.client_update(rows, arguments.client)
        return aligner.client_map(statistics.with_encoder(table.encoder), reference)
    sent = load_client_message(arguments.statistics)
    if sent.client != arguments.client:
        raise ValueError(
            f"{arguments.statistics} is from client {sent.client!r}, not from "
            f"{arguments.client!r}."
        )
    return aligner.client_map(sent, reference)


def _aligned_fingerprint(encoder, reference, tau):
    """Tells aligned features from others, so that nobody aligns them again."""
    digest = hashlib.sha256(reference.mean.tobytes() + reference.covariance_triangle.tobytes())
    digest.update(repr(float(tau)).encode())
    return f"{encoder or 'features'}+aligned:{digest.hexdigest()[:16]}"


# ------------------------------------------------------------------------ predict


def _predict(arguments):
    from ..exchange import LinearModel

    _refuse_output(arguments, arguments.model)
    model = LinearModel.load(arguments.model)
    client = arguments.client or model.client
    if model.client not in (None, client):
        raise ValueError(
            f"{arguments.model} is for client {model.client!r}, not for {client!r}: it "
            "includes the alignment of that client."
        )
    table = _with_row_numbers(read_table(arguments))
    if client is not None:
        table = table.of_client(client)
    check_same_encoder(table, model, arguments.model)
    probabilities = _probabilities(model, table.X)
    predicted = np.array(model.classes)[probabilities.argmax(axis=1)]
    _write_predictions(arguments.output, table, predicted, probabilities, model.classes)
    if table.labels is not None:
        _print_accuracy(predicted, table.labels.astype(str), model.classes)
    announce(arguments.output, f"predictions of {len(predicted)} rows")


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
