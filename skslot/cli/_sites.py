"""``skslot summarize``, ``align`` and ``predict``: what a site does by itself."""

import csv
import hashlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from .._atomic import atomic_output
from ._exchange import (
    DEFAULT_TAU,
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

# Rows that a map can be estimated from: one by one they would all go to the same place.
FEWEST_ROWS = 10


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
    _add_statistics(align)
    add_output(align, "FILE.npz", "aligned features")
    align.set_defaults(run=_align)


def _add_statistics(command):
    """What the map of the site is estimated from."""
    statistics = command.add_mutually_exclusive_group()
    statistics.add_argument(
        "--statistics",
        type=Path,
        metavar="FILE.slot",
        help="what this site had sent; the map is then the one of that time (default: "
        "it is estimated from the rows in the file of features)",
    )
    add_shrinkage(statistics)


def _add_predict(commands):
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
    _add_statistics(predict)
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
    tau = next(t for t in (arguments.tau, reference.tau, DEFAULT_TAU) if t is not None)
    sent = _sent_statistics(arguments)
    with plain_warnings():
        client_map = _client_map(table, sent, reference, tau, arguments)
    aligned = {
        "X": client_map.transform(table.X),
        "fingerprint": _aligned_fingerprint(table.encoder, reference, client_map.tau),
    }
    if arguments.labels_file is not None:
        aligned["y"] = table.labels
    write_npz_atomically(output, {**table.others, **aligned})
    announce(output, f"{len(table.X)} rows, aligned with tau = {client_map.tau:g}")


def _client_map(table, sent, reference, tau, arguments):
    """The map of a site, by what it had sent or else by the rows at hand."""
    from .. import FederatedOTAligner

    aligner = FederatedOTAligner(tau, shrinkage=arguments.shrinkage)
    if sent is None:
        rows = table.training_rows().X
        sent = aligner.client_update(rows, arguments.client).with_encoder(table.encoder)
    return aligner.client_map(sent, reference)


def _sent_statistics(arguments):
    """What the site had sent, if it is given."""
    if arguments.statistics is None:
        return None
    sent = load_client_message(arguments.statistics)
    if arguments.client not in (None, sent.client):
        raise ValueError(
            f"{arguments.statistics} is from client {sent.client!r}, not from "
            f"{arguments.client!r}."
        )
    return sent


def _aligned_fingerprint(encoder, reference, tau):
    """Tells aligned features from others, so that nobody aligns them again."""
    digest = hashlib.sha256(
        reference.mean.tobytes() + reference.covariance_triangle.tobytes()
    )
    digest.update(repr(float(tau)).encode())
    return f"{encoder or 'features'}+aligned:{digest.hexdigest()[:16]}"


# ------------------------------------------------------------------------ predict


def _predict(arguments):
    from ..exchange import AlignedModel

    _refuse_output(arguments, arguments.model, arguments.statistics)
    model, sent = _load_model(arguments), _sent_statistics(arguments)
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
        client_map = _client_map(table, sent, model.reference, model.tau, arguments)
    return model.head.pulled_back(*client_map.affine, arguments.client)


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
