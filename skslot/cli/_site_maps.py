"""The map or model of a site: by what it had sent, or else by the rows at hand.

And whether files go together: features, messages of sites, references and models.
"""

from dataclasses import replace

import numpy as np

from .._utils import column_differences, printable, quoted, shorten, warn_user
from ._terminal import plain_warnings

# Strength of the alignment when nobody says otherwise.
DEFAULT_TAU = 0.4
# Messages that sites send for alignment.
FROM_SITES = (
    "ClientStatistics",
    "ClassStatistics",
    "ClassMixtures",
    "ClassRows",
    "CurvedHead",
)
# Messages of a server that are the same for all sites.
FOR_ALL_SITES = ("AlignmentReference", "AlignedModel", "MixedEffectsModel")
# Rows that a map can be estimated from: one by one they would all go to the same place.
FEWEST_ROWS = 10
# Name of a site that did not say what it is called.
NAMELESS = "this site"
# How far the spread of rows may be from that of statistics, as a factor.
MOST_SPREAD = 4.0
# How far the mean of many rows may be from that of statistics, squared and in units of
# the variance. A site's own rows are nearer, whatever their labels, at nearly all sites
# of digit scanners and of PACS, and those of most other sites are not.
MOST_SHIFT = 1.0
MOST_SHIFT_BEYOND_LABELS = 0.4
# Columns that a person would type.
MOST_NAMES = 20


def sent_statistics(arguments):
    """What the site had sent, if it is given."""
    if arguments.statistics is None:
        return None
    sent = load_kind(arguments.statistics, FROM_SITES, "what skslot summarize")
    check_is_of_client(arguments.statistics, type(sent), getattr(sent, "client", None))
    if arguments.client not in (None, str(sent.client)):
        raise ValueError(
            f"{arguments.statistics} is from client {sent.client!r}, not from "
            f"{arguments.client!r}."
        )
    return sent


def load_kind(path, names, what):
    """Message in a file; refused unless it is of one of some classes of messages."""
    from .. import exchange

    refuse_rows(path)
    message = exchange.load_message(path)
    check_kind(path, type(message), names, what)
    return message


def refuse_rows(path):
    """Refuse a table, or another file that is none of ours, where a message is due."""
    from ..exchange import load_messages

    is_ours = path.suffix == ".slot" or load_messages([path]).headers()[path]
    if not is_ours and path.is_file():
        raise ValueError(
            f"{path} is no message of skslot, which are the .slot files that it "
            "writes. Tables and other features are for skslot plan, summarize, "
            "diagnose and report."
        )


def check_kind(path, kind, names, what):
    """Refuse messages of other classes, and say which command writes the right ones."""
    from .. import exchange

    if kind.__name__ not in names:
        raise exchange.MessageError(
            f"this is of the kind {kind.kind!r}, not {what} writes.", path=path
        )


def check_is_of_client(path, kind, client):
    """Refuse what no site sends for alignment."""
    from ..exchange import MessageError

    check_kind(path, kind, FROM_SITES, "what skslot summarize")
    if client is None:
        raise MessageError("the message does not say which client it is of.", path=path)


def check_same_encoder(table, message, path):
    """Refuse features that a reference or model was not made for."""
    from ..exchange import fingerprint_names

    n_features = table.X.shape[1]
    if table.encoder == message.encoder and n_features == message.n_features:
        return
    names = map(fingerprint_names, (table.encoder, message.encoder))
    differences = column_differences(*names, path)
    by_plan = [str(each.encoder).startswith("plan:") for each in (table, message)]
    if any(by_plan):
        remedy = "hand over the plan that it was made by, by --plan FILE.toml."
        if all(by_plan):
            remedy = "the plans differ in what they make of columns or labels"
            remedy += "" if differences is None else f": it {differences}"
            remedy += ". Take the plan that the model was made by."
        elif by_plan[0]:
            remedy = "it was made without a plan: leave --plan out."
        raise ValueError(f"{table.path} does not fit {path}: {remedy}")
    if differences is not None:
        raise ValueError(
            f"the features of {table.path} are not those that {path} was made of: "
            f"it {differences}. {_column_remedy(table, message)}"
        )
    if n_features != message.n_features:
        raise ValueError(
            f"{table.path} has {n_features} features, but {path} is for "
            f"{message.n_features}.{_listed(table)}"
        )
    if "+aligned:" in (table.encoder or ""):
        raise ValueError(
            f"{table.path} holds features that skslot align wrote: give those that are "
            f"not aligned yet, which {path} is for."
        )
    raise ValueError(
        f"{table.path} has features of the encoder {table.encoder!r}, but {path} is "
        f"for {message.encoder!r}: --encoder gives a name to what made the features, "
        "the same for all files."
    )


def _column_remedy(table, message):
    """Options that make the columns of a table those of a message."""
    from ..exchange import fingerprint_names

    wanted = fingerprint_names(message.encoder)
    extra = [name for name in table.feature_names if name not in wanted]
    missing = [name for name in wanted if name not in table.feature_names]
    left_out = [name for name in missing if name in table.others]
    remedies = []
    if extra:
        flags = " or ".join(("--id-column", "--ignore", "--labels"))
        remedies.append(f"{flags} {quoted(extra[0])} leaves a column out.")
    if left_out:
        remedies.append(
            f"{shorten(left_out)} are in the file, but named by --ignore, --id-column "
            "or --labels, or not by --features."
        )
    elif missing:
        remedies.append("Columns that are called otherwise here must be renamed.")
    elif len(wanted) <= MOST_NAMES:
        names = " ".join(map(quoted, wanted))
        remedies.append(f"--features {names} takes the right ones, in their order.")
    return " ".join([*remedies, "In a plan, options are given once: --plan FILE.toml."])


def _listed(table):
    """The columns of a table that are features, and what to do about them."""
    if table.feature_names is None:
        return ""
    return (
        f" Its features are the columns {shorten(table.feature_names, MOST_NAMES)}: "
        "--features chooses among them; --ignore, --id-column and --labels leave some "
        "out."
    )


def client_map(table, sent, reference, tau, arguments):
    """The map of a site, from its statistics to the reference."""
    from .. import FederatedOTAligner
    from ..exchange import MixedEffectsModel

    if isinstance(reference, MixedEffectsModel):
        return next(
            iter(
                site_classifier(
                    table, sent, reference, arguments
                ).aligner_.maps_.values()
            )
        )
    aligner = FederatedOTAligner(tau, shrinkage=arguments.shrinkage)
    with plain_warnings():
        if sent is None:
            rows = _rows_to_estimate_from(table)
            message = aligner.client_update(rows, client=arguments.client)
            sent = message.with_encoder(table.encoder)
        else:
            _warn_of_other_rows(table, sent, arguments.statistics)
        return aligner.client_map(sent, reference)


def site_classifier(table, sent, model, arguments):
    """Classifier by mixed effects that knows one site, and no other."""
    classifier = classifier_of_sent(sent, model, arguments)
    with plain_warnings():
        if sent is not None:
            if str(sent.client) not in map(str, model.clients):
                known = ", ".join(map(printable, model.clients))
                print(
                    f"the model was learned from {known}, and not from client "
                    f"{printable(sent.client)}"
                )
            _warn_of_other_rows(table, sent, arguments.statistics, model.means)
            return classifier
        rows = _rows_to_estimate_from(table)
        name = arguments.client or NAMELESS
        if name in map(str, model.clients):
            print(
                f"the model was learned from client {printable(name)} too, which is "
                "described better by what it had sent: hand it over by --statistics "
                "FILE.slot"
            )
        classifier.add_client(rows, name)
    return classifier


def classifier_of_sent(sent, model, arguments):
    """The same, which knows the site by what it had sent, or not yet."""
    from .. import MixedEffectsClassifier

    if sent is not None and not sent.describes_classes:
        raise ValueError(
            f"{arguments.statistics} was summarized without --labels, and mixed "
            "effects need them: leave --statistics out, and the rows of "
            f"{arguments.features} describe the site."
        )
    return MixedEffectsClassifier.from_model(model, sent)


def _rows_to_estimate_from(table):
    """Rows of one site, enough of them to tell how it differs from the others."""
    clients = [] if table.client_ids is None else np.unique(table.client_ids)
    if len(clients) > 1:
        some = ", ".join(map(str, clients[:10]))
        raise ValueError(
            f"{table.path} has rows of several clients ({some}), each with an "
            "alignment of its own: choose one by --client."
        )
    rows = table.training_rows().X
    if len(rows) < FEWEST_ROWS:
        raise ValueError(
            f"{table.path} has {len(rows)} rows to estimate the alignment from, which "
            f"takes at least {FEWEST_ROWS}: hand over, by --statistics FILE.slot, what "
            "this site had sent, or what skslot summarize makes of more of its rows."
        )
    print(
        f"alignment estimated from {len(rows)} rows of {printable(table.path)}; "
        "--statistics FILE.slot takes that of what this site had sent"
    )
    return rows


def _warn_of_other_rows(table, sent, path, class_means=None):
    """Rows far from what the statistics describe are often of another site or encoder.

    ``class_means`` are those of all classes, if they are known.
    """
    if len(table.X) < FEWEST_ROWS:
        return
    if not np.size(sent.shrinkage):  # it says nothing about the spread
        sent = replace(sent, shrinkage=np.zeros(1))
    statistics = sent.client_statistics()
    if statistics.n_features != table.X.shape[1] or statistics.is_constant:
        return
    total = statistics.variances.sum()
    spread = np.square(table.X - statistics.mean).sum(axis=1).mean() / total
    shift, variance = table.X.mean(axis=0) - statistics.mean, total
    most_shift = MOST_SHIFT
    if class_means is not None and 2 * len(class_means) <= len(shift):
        from scipy.linalg import orth

        # another label mix moves the mean too, in these directions only
        axes = orth((class_means - class_means.mean(axis=0)).T)
        shift = shift - axes @ (axes.T @ shift)
        variance = total - np.sum(axes * (statistics.shrunk_covariance @ axes))
        most_shift = MOST_SHIFT_BEYOND_LABELS
    shift = np.square(shift).sum() / max(variance, 1e-9 * total)
    differs = None
    if not 1 / MOST_SPREAD <= spread <= MOST_SPREAD:
        differs = (
            f"spread around the mean in {path} {spread:.2g} times as much as those"
        )
    elif shift > most_shift + 2 / len(table.X):
        differs = (
            f"have a mean that is {np.sqrt(shift):.2g} standard deviations from that "
            f"in {path}, which is far for those"
        )
    if differs is not None:
        warn_user(
            f"the rows of {table.path} {differs} that it describes: are they of client "
            f"{sent.client!r}, made in the same way?",
        )
