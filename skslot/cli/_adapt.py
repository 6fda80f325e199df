"""``skslot adapt``: a site learns from rows without labels."""

from dataclasses import replace
from pathlib import Path

from .._utils import printable
from ._arguments import add_command, read_table
from ._outputs import announce, refuse_output, writing
from ._site_maps import (
    FEWEST_ROWS,
    check_same_encoder,
    classifier_of_sent,
    load_kind,
    sent_statistics,
)
from ._terminal import plain_warnings

# Models that cannot be adapted, and what to do instead.
OTHER_MODELS = {
    "AlignedModel": "is not a model of mixed effects, the only ones that learn from "
    "rows without labels: skslot predict aligns the rows of a site for this model, "
    "also without --statistics. Or let the server run skslot aggregate --model with "
    "--method mixed, on files that were summarized for it.",
    "LinearModel": "is the model of one site already: skslot predict takes it as it "
    "is. To adapt, ask the server for the model of all sites by mixed effects, which "
    "skslot aggregate --model writes with --method mixed.",
}


def add_commands(commands):
    """Add ``adapt``."""
    command = add_command(commands, adapt)
    command.add_features()
    command.add_model("the model of all sites, by mixed effects")
    command.add_client()
    command.add_argument(
        "--statistics",
        type=Path,
        metavar="FILE.slot",
        help="what this site had sent (default: it sent nothing, and joins now)",
    )
    command.add_dtype()
    command.add_output("FILE.slot", "the model of this site, for skslot predict")


def adapt(arguments):
    """At a site: learn from rows without labels, and send nothing.

    Write a model of this site, for skslot predict. With --statistics, the site refines
    what its labelled rows say; this gains most where they are of few classes. Without,
    a site that sent nothing gets a model: from its rows alone, or with --labels from a
    few labelled ones. The rows should be an ordinary sample of what the site sees,
    about 100 or more. Of a data set with a split, the training rows are used.

    example: skslot adapt features.npz --model global.slot --statistics E.slot
    --client E -o E-model.slot
    """
    refuse_output(arguments, arguments.model, arguments.statistics)
    model = _load_model(arguments.model)
    table = read_table(arguments, made_for=model).of_client(arguments.client)
    sent = sent_statistics(arguments)
    check_same_encoder(table, model, arguments.model)
    table = table.training_rows()
    classifier = classifier_of_sent(sent, model, arguments)
    if sent is not None or table.y is None:
        _check_unlabelled(table, sent, arguments)
    with plain_warnings():
        if sent is not None:
            client = sent.client
            report = classifier.adapt_client(table.X, client)
        else:
            client = arguments.client
            report = classifier.add_client(table.X, client, table.y)
    print(replace(report, warnings=()))  # which were shown already
    with writing(arguments):
        classifier.client_model(client).save(arguments.output, arguments.dtype)
    announce(arguments.output, "for skslot predict; nothing leaves the site")


def _load_model(path):
    """Model that sites can learn from; others with what they are good for."""
    what = "a model of mixed effects, which skslot aggregate --model"
    model = load_kind(path, ("MixedEffectsModel", *OTHER_MODELS), what)
    remedy = OTHER_MODELS.get(type(model).__name__)
    if remedy is not None:
        raise ValueError(f"{path} {remedy}")
    return model


def _check_unlabelled(table, sent, arguments):
    """Refuse too few rows, and say so if labels are not looked at."""
    if len(table.X) < FEWEST_ROWS:
        raise ValueError(
            f"{table.path} has {len(table.X)} rows to learn from without labels, which "
            f"takes at least {FEWEST_ROWS}, and better 100: wait for more of them."
        )
    if sent is not None and table.y is not None:
        print(
            f"labels of {printable(table.path)} are ignored: "
            f"{printable(arguments.statistics)} has those that count"
        )
    elif sent is None and "y" in table.others:
        print(f"y of {printable(table.path)} is ignored: --labels makes use of it")
