"""Commands of a site: ``summarize``, ``inspect``, ``align``, ``predict``, ``adapt``."""

import csv
import hashlib
import io
import json
import os
import secrets
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import numpy as np

from .._atomic import atomic_output, one_at_a_time, outputs_together
from .._utils import column_differences, printable, quoted, shorten, warn_user
from ._data import NEEDS_PLAN, read_table, settle
from ._main import (
    add_command,
    announce,
    fraction_or,
    make_estimator,
    plain_warnings,
    print_list,
    refuse_output,
    warn_of_spellings,
    write_npz_atomically,
    writing,
)

# Alignment strength if neither the user nor a message contains one.
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
# Minimum number of rows to estimate a map from: a few would all go to the same place.
FEWEST_ROWS = 10


def add_commands(commands):
    """Add the commands of a site."""
    _add_summarize(add_command(commands, summarize))
    command = add_command(commands, inspect)
    command.add_path("message", "FILE.slot", "File to describe.")
    command = add_command(commands, align)
    _add_features(command)
    command.add_path(
        "--reference",
        "FILE.slot",
        "The reference, or the model of all sites.",
        required=True,
    )
    command.share("--client", required=True)
    command.share(
        "--tau",
        type=fraction_or(),
        help="Alignment strength from 0 to 1 (default: from the reference, or "
        f"{DEFAULT_TAU}).",
    )
    command.add_either("--statistics", "--shrinkage")
    command.add_output("FILE.npz", "Aligned features.")
    command = add_command(commands, predict)
    _add_features(command)
    command.share("--model", help="Model of all sites, or of this site.")
    command.share(
        "--client", help="Name of the site (default: from the model or --statistics)."
    )
    command.add_either("--statistics", "--shrinkage")
    command.add_output("FILE.csv", "Predictions.")
    command.add_flag(
        "--safe-csv",
        "Write an apostrophe before text that spreadsheets would run as a formula.",
    )
    command = add_command(commands, adapt)
    _add_features(command)
    command.share("--model")
    command.share("--client", required=True)
    command.share("--statistics", "--dtype")
    command.add_output("FILE.slot", "Model of this site, for skslot predict.")


def _add_features(command):
    command.share("features")
    command.add_columns(labels="none")
    command.share("--encoder", "--plan")


def _add_summarize(command):
    _add_features(command)
    command.share("--client", required=True)
    command.share(
        "--method",
        help="Classifier to summarize the labels for (default: from the plan, or "
        "mixed).",
    )
    command.add_count("--components", 1, "Gaussians per class, for fedpft")
    command.share(
        "--min-samples",
        help="Minimum number of samples of the site and of each class (default: "
        "from the plan, or 10). Noise replaces it with --epsilon.",
    )
    command.add_flag(
        "--drop-small-classes", "Exclude samples of classes below --min-samples."
    )
    command.add_argument(
        "--classes",
        type=_labels,
        metavar="LABEL,...",
        help="Labels that may occur, as agreed by all sites (default: the labels in "
        "the file).",
    )
    command.share("--shrinkage")
    command.share(
        "--dtype",
        default=None,
        help="Precision of the numbers (default: from the plan, or float32).",
    )
    command.add_flag(
        "--scaling",
        "Send count, mean and spread of each feature, for skslot plan --scaling.",
    )
    group = command.add_argument_group("differential privacy")
    for name, text in PRIVACY.items():
        group.add_argument(f"--{name}", type=float, metavar="X", help=text)
    group.add_argument(
        "--again", action="store_true", help="Release the same rows once more."
    )
    command.add_output("FILE.slot", "File to send.")


# ------------------------------------------------------------------ summarize

PRIVACY = {
    "epsilon": "Privacy loss of one row; chosen without looking at the rows.",
    "delta": "Probability of a larger loss, such as 1e-5.",
    "clip": "Norm that longer rows are clipped to.",
}


def summarize(arguments):
    """At a site: write the one file that it sends.

    It contains means and covariances of the features, and no rows. Without labels the
    file serves alignment only, with labels also a classifier. Of a data set with a
    split, the training rows are used. --epsilon, --delta and --clip together add noise,
    so that the file hardly depends on any single row.

    example: skslot summarize features.npz --client A --labels -o A.slot
    """
    refuse_output(arguments)
    plan, budget = settle(arguments), _budget(arguments)
    if arguments.scaling:
        _check_scaling(plan, budget, arguments)
    if None not in (plan, budget):
        _follow_with_noise(plan, arguments)
    all_rows = read_table(arguments).of_client(arguments.client)
    if plan is not None:
        _check_one_client(all_rows, plan, arguments)
    table = all_rows.training_rows()
    n_others = len(all_rows.X) - len(table.X)
    if n_others:
        print(f"left out: {n_others} rows that are not for training")
    if table.y is not None and arguments.drop_small_classes:
        table = _without_small_classes(table, arguments.min_samples)
    if not len(table.X):
        raise ValueError(f"{table.path} has no rows left to summarize.")
    with plain_warnings(), writing(arguments):
        if table.y is not None:
            labels = np.unique(table.y).tolist()
            warn_of_spellings((label, arguments.client) for label in labels)
        make = _message if budget is None else _release
        message = make(table, arguments, budget)
        # three numbers per feature, to be merged exactly
        dtype = "float64" if arguments.scaling else arguments.dtype
        message.save(arguments.output, dtype, arguments.min_samples)
    client = printable(arguments.client)
    what = f"client {client}: {len(table.X)} rows, {table.X.shape[1]} features"
    if table.feature_names is None:
        print(what)
    else:  # so that no column slips in
        print_list(what, table.feature_names)
    if table.y is not None:
        classes, counts = np.unique(table.y, return_counts=True)
        pairs = zip(map(printable, classes.tolist()), counts, strict=True)
        print(f"rows of each class: {', '.join(f'{c}: {n}' for c, n in pairs)}")
    if budget is not None:
        print(
            f"with differential privacy: epsilon {budget.epsilon:g}, delta "
            f"{budget.delta:g}, rows clipped to norm {budget.clip_norm:g}; numbers of "
            "rows in the file are noisy"
        )
    announce(arguments.output, "send it to the server; skslot inspect tells what is in")


def _check_one_client(table, plan, arguments):
    """Reject rows of several clients by a column that is not read as such.

    Without a plan, columns that look like sites are rejected when a table is read.
    """
    if table.client_ids is not None:
        return
    for name, values in table.per_row().items():
        found = np.unique(np.asarray(values).astype(str))
        if name == plan.label or name in (arguments.ignore or ()):
            continue
        if len(found) > 1 and arguments.client in found:
            raise ValueError(
                f"{table.path}: column {name!r} names several sites, among them "
                f"{arguments.client!r}. Add --client-column {name} to summarize the "
                f"rows of {arguments.client!r} only, or --ignore {name}."
            )


def _message(table, arguments, budget):
    """Run the client step of the estimator that the server will use."""
    from .. import FederatedScaler

    X, client = table.X, arguments.client
    if arguments.scaling:
        message = FederatedScaler().client_update(X, client=client)
        return message.with_encoder(table.encoder)
    estimator = make_estimator(
        None if table.y is None else arguments.method,
        shrinkage=arguments.shrinkage,
        privacy=budget,
        n_components=arguments.components,
        min_samples=arguments.min_samples,
    )
    if table.y is None:
        message = estimator.client_update(X, client=client)
        return message.with_encoder(table.encoder)
    classes, y = arguments.classes, table.y
    if classes is not None and classes.dtype.kind == "U":
        y = y.astype(str)  # whole numbers here, but not at all sites
    message = estimator.client_update(X, y, classes=classes, client=client)
    if arguments.method == "mixed":
        message = _with_shrinkage(message, X, arguments.shrinkage)
    return message.with_encoder(table.encoder)


def _with_shrinkage(message, X, shrinkage):
    """Add what alignment needs, so that the server can still choose the method."""
    from ..statistics import (
        FeatureMoments,
        floor_shrinkage,
        noisy_shrinkage,
        shrinkage_coefficient,
    )

    covariance = message.covariance
    if message.privacy is None:
        coefficient = FeatureMoments.from_rows(X).shrinkage(shrinkage)
        coefficient = floor_shrinkage(covariance, coefficient)
    else:
        coefficient = shrinkage_coefficient(
            noisy_shrinkage(shrinkage), covariance, message.n_samples
        )
    return replace(message, shrinkage=np.array([coefficient]))


def _labels(text):
    """Convert labels separated by commas: whole numbers if all are."""
    labels = [label.strip() for label in text.split(",")]
    if all(label.lstrip("-").isdecimal() for label in labels):
        return np.array(labels, dtype=np.int64)
    return np.array(labels)


def _check_scaling(plan, budget, arguments):
    """Refuse scaling that no plan can take, or that the plan has already."""
    if budget is not None:
        raise ValueError(
            "--scaling has no guarantee of differential privacy: leave --epsilon out, "
            "in the plan too, or agree on means and scales without looking at rows."
        )
    if plan is None:
        raise ValueError("--scaling is for a plan: name it by --plan FILE.toml.")
    if any(column.scale is not None for column in plan.columns):
        raise ValueError(
            f"{arguments.plan} has means and scales already: leave --scaling out."
        )
    arguments.labels = arguments.labels_file = None


def _without_small_classes(table, min_samples):
    classes, counts = np.unique(table.y, return_counts=True)
    small = counts < min_samples
    for label, count in zip(classes[small].tolist(), counts[small], strict=True):
        print(f"left out: class {label!r}, rows: {count}")
    return table.select(~np.isin(table.y, classes[small]))


# ------------------------------------------------------------------ with privacy


def _budget(arguments):
    """Return the guarantee of differential privacy, or None."""
    from ..privacy import PrivacyBudget

    numbers = {f"--{name}": getattr(arguments, name) for name in PRIVACY}
    missing = [flag for flag, number in numbers.items() if number is None]
    if len(missing) == len(numbers):
        if arguments.again:
            raise ValueError(
                "--again is for releases with --epsilon only; leave it out."
            )
        return None
    if missing:
        raise ValueError(
            f"{', '.join(numbers)} go together: give {' and '.join(missing)} too, for "
            "example --epsilon 3 --delta 1e-5 --clip 1."
        )
    return PrivacyBudget(*numbers.values())


def _follow_with_noise(plan, arguments):
    """Take the classes of a plan; refuse one by which rows depend on each other."""
    medians = [column.name for column in plan.columns if column.fill == "median"]
    if medians:
        raise ValueError(
            f"{arguments.plan} fills {', '.join(medians)} with medians of the site, "
            "so that one row changes others and --epsilon would promise too much: "
            "agree on numbers for fill in the plan."
        )
    if plan.scaling is not None:
        raise ValueError(
            f"{arguments.plan} has means and scales that were computed from rows, so "
            "that one row changes others and --epsilon would promise too much: agree "
            "on means and scales without looking at the rows."
        )
    if plan.classes and arguments.classes is None:
        arguments.classes = np.array(plan.classes)


def _release(table, arguments, budget):
    """Make a message with noise, and note it before the file exists."""
    _check_release(table, arguments)
    with ReleaseRecord.opened() as record:
        record.check(table, arguments.client, arguments.again)
        message = _message(table, arguments, budget)
        record.note(table, arguments.client, budget)
    return message


def _check_release(table, arguments):
    """Refuse options without a guarantee, and options that would reveal something."""
    if table.encoder is None:
        raise ValueError(
            f"{table.path} does not name its encoder, so it is unknown whether the "
            "encoder was trained on these rows; name it with --encoder."
        )
    if table.y is None:
        return
    if "privacy" not in make_estimator(arguments.method).get_params():
        raise ValueError(
            f"--method {arguments.method} has no guarantee of differential privacy: "
            "its file is not made of counts, sums and second moments alone."
        )
    if arguments.drop_small_classes:
        raise ValueError(
            "--drop-small-classes would reveal which classes are small; omit it with "
            "--epsilon, because noise protects them."
        )
    if arguments.classes is None:
        raise ValueError(
            "with --epsilon, pass the labels that may occur, as agreed by all sites: "
            "--classes cat,dog. The file does not reveal which of them this site has."
        )


class ReleaseRecord:
    """Releases of this user under differential privacy.

    Guarantees add up over releases of the same rows, so none may happen unseen. The
    record has a keyed fingerprint of all rows of a release together, which reveals
    nothing about a row to anybody who lacks the others. It also has a fingerprint of
    their file, because another plan computes other features from the same rows.
    """

    def __init__(self, path):
        self.path, self.key, self.releases = path, secrets.token_hex(32), []
        if not path.exists():
            return
        try:
            found = json.loads(path.read_text())
            self.key = found["key"]
            names = ("client", "rows", "epsilon", "delta", "date")
            for each in found["releases"]:
                release = {name: each[name] for name in names}
                release["file"] = each.get("file", "")  # early records have none
                self.releases.append(release)
        except (ValueError, TypeError, LookupError) as error:
            raise ValueError(
                f"{path}, the record of releases with differential privacy, is "
                "damaged; move it away if earlier releases are on record elsewhere."
            ) from error

    @classmethod
    @contextmanager
    def opened(cls):
        """Read the record, and lock it until the block ends."""
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        path = Path(state) / "skslot" / "releases.json"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with one_at_a_time(path):
            yield cls(path)

    def check(self, table, client, again):
        """Refuse to release the same rows twice; print what was spent before."""
        found = self._fingerprints(table, client)
        same = [
            each
            for each in self.releases
            if any(each[name] == value for name, value in found.items())
        ]
        if same and not again:
            raise ValueError(
                f"client {client!r}: these rows were released before, last on "
                f"{same[-1]['date'][:10]}, with {_spent(same)}. What is spent adds up: "
                "send the file that was written then, or allow one more release with "
                "--again."
            )
        if same:
            print(f"released again: before, {_spent(same)} were spent on these rows")
        of_client = [each for each in self.releases if each["client"] == client]
        others = [each for each in of_client if each not in same]
        if others:
            print(
                f"client {client} has released other rows before, with "
                f"{_spent(others)}; for rows that are in several, what is spent adds up"
            )

    def note(self, table, client, budget):
        """Write down a release, which is about to happen."""
        release = {
            "client": client,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **self._fingerprints(table, client),
        }
        self.releases.append(release)
        content = {"key": self.key, "releases": self.releases}
        # at once, whatever else is being written
        with outputs_together(), atomic_output(self.path, private=True) as file:
            file.write(json.dumps(content, indent=1).encode())

    def _fingerprints(self, table, client):
        """Keyed fingerprints of the rows, in any order, and of their file."""
        key = bytes.fromhex(self.key)

        def digest(*parts, size=16):
            made = hashlib.blake2b(key=key, digest_size=size)
            for part in parts:
                made.update(part)
            return made

        rows = np.ascontiguousarray(table.X, dtype=np.float64)
        rows = sorted(digest(row, size=64).digest() for row in rows)
        with open(table.path, "rb") as file:
            of_file = hashlib.file_digest(file, digest)
        if table.client_ids is not None:
            of_file.update(client.encode())
        return {"rows": digest(*rows).hexdigest(), "file": of_file.hexdigest()}


def _spent(releases):
    """Total cost of some releases."""
    epsilon = sum(each["epsilon"] for each in releases)
    delta = sum(each["delta"] for each in releases)
    return f"epsilon {epsilon:g} and delta {delta:g} in all"


# ------------------------------------------------------------------ messages in files


def inspect(arguments):
    """Describe what is in a file, and what is not.

    For files that leave a site and for files from the server.

    example: skslot inspect A.slot
    """
    from ..exchange import load_messages

    path = arguments.message
    refuse_rows(path)
    files = load_messages([path])
    (message,), header = files, files.headers()[path]
    print(
        f"{printable(path)}: {path.stat().st_size:,} bytes in {header['dtype']}, "
        f"format {header['format']}, skslot {printable(header['skslot'])}, checksum "
        "right"
    )
    print(message.describe())


def load_kind(path, names, what):
    """Load a message; refuse it unless its class has one of some names."""
    from ..exchange import load_message

    refuse_rows(path)
    message = load_message(path)
    check_kind(path, type(message), names, what)
    return message


def refuse_rows(path):
    """Refuse a table, or another file that is not a message."""
    from ..exchange import load_messages

    is_ours = path.suffix == ".slot" or load_messages([path]).headers()[path]
    if not is_ours and path.is_file():
        raise ValueError(
            f"{path} is no message of skslot, which are the .slot files that it "
            "writes. Tables and other features are for skslot plan, summarize, "
            "diagnose and report."
        )


def check_kind(path, kind, names, what):
    """Refuse messages of other classes, and name the command that writes these."""
    from ..exchange import MessageError

    if kind.__name__ not in names:
        raise MessageError(
            f"this is of the kind {kind.kind!r}, not {what} writes.", path=path
        )


def check_is_of_client(path, kind, client):
    """Refuse messages that no site sends for alignment."""
    from ..exchange import MessageError

    check_kind(path, kind, FROM_SITES, "what skslot summarize")
    if client is None:
        raise MessageError("the message does not name its client.", path=path)


def sent_statistics(arguments):
    """Load what the site had sent, if it is given."""
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


# ------------------------------------------------------------------ same features


def check_same_encoder(table, message, path):
    """Refuse features that a reference or model was not made for."""
    why = _why_not(table, message, path)
    if why is not None:
        raise ValueError(f"{table.path} does not fit {path}: {why}")


def _why_not(table, message, path):
    """Describe why features do not fit a message, with the options that help."""
    from ..exchange import fingerprint_names

    n_features, wanted = table.X.shape[1], fingerprint_names(message.encoder)
    if table.encoder == message.encoder and n_features == message.n_features:
        return None
    names = fingerprint_names(table.encoder)
    differences = column_differences(names, wanted, path)
    differences = "" if differences is None else f" The table {differences}."
    by_plan = [str(each.encoder).startswith("plan:") for each in (table, message)]
    if all(by_plan):
        return f"{path} was made by another --plan.{differences}"
    if by_plan[1]:
        return NEEDS_PLAN
    if by_plan[0]:
        return f"{path} was made without a plan; omit --plan."
    if differences:
        return f"they have different columns.{differences} {_remedy(table, wanted)}"
    if n_features != message.n_features:
        columns = shorten(table.feature_names or (), 20)
        return (
            f"it has {n_features} features, and {path} has {message.n_features}. Its "
            f"columns are {columns}. {COLUMN_OPTIONS}"
        )
    if "+aligned:" in (table.encoder or ""):
        return "its features were written by skslot align, and must not be aligned yet."
    return (
        f"its encoder is {table.encoder!r}, and that of {path} is {message.encoder!r}. "
        "--encoder names what made the features, the same for all files."
    )


COLUMN_OPTIONS = (
    "--features chooses columns; --ignore, --id-column and --labels exclude some."
)


def _remedy(table, wanted):
    """Describe how the columns of a table become the columns of a message."""
    missing = [name for name in wanted if name not in table.feature_names]
    excluded = [name for name in missing if name in table.others]
    if excluded:
        return f"{shorten(excluded)} are in the file, but excluded. {COLUMN_OPTIONS}"
    if missing:
        return f"Columns with other names here must be renamed. {COLUMN_OPTIONS}"
    return f"Use --features {' '.join(map(quoted, wanted))}, or a plan by --plan."


# ------------------------------------------------------------------ map of a site


def client_map(table, sent, reference, tau, arguments):
    """Compute the map of a site, from its statistics to the reference."""
    from ..exchange import MixedEffectsModel

    if isinstance(reference, MixedEffectsModel):
        classifier = site_classifier(table, sent, reference, arguments)
        return classifier.aligner_.maps_[classifier.aligner_.clients_[0]]
    aligner = make_estimator(None, tau=tau, shrinkage=arguments.shrinkage)
    with plain_warnings():
        if sent is None:
            rows = _rows_to_estimate_from(table)
            message = aligner.client_update(rows, client=arguments.client)
            sent = message.with_encoder(table.encoder)
        else:
            _warn_of_other_rows(table, sent, arguments.statistics)
        return aligner.client_map(sent, reference)


def site_classifier(table, sent, model, arguments):
    """Make the mixed-effects classifier of this site only."""
    classifier = classifier_of_sent(sent, model, arguments)
    known = list(map(str, model.clients))
    with plain_warnings():
        if sent is not None:
            if str(sent.client) not in known:
                print(
                    f"the model was learned from {', '.join(map(printable, known))}, "
                    f"and not from client {printable(sent.client)}"
                )
            _warn_of_other_rows(table, sent, arguments.statistics, model.means)
            return classifier
        rows = _rows_to_estimate_from(table)
        name = arguments.client or "this site"
        if name in known:
            print(
                f"the model was learned from client {printable(name)} too, which is "
                "described better by what it had sent: hand it over by --statistics "
                "FILE.slot"
            )
        classifier.add_client(rows, name)
    return classifier


def classifier_of_sent(sent, model, arguments):
    """Make the classifier of a site from what it had sent, if anything."""
    from .. import MixedEffectsClassifier

    if sent is not None and not sent.describes_classes:
        raise ValueError(
            f"{arguments.statistics} was summarized without --labels, and mixed "
            "effects need them: leave --statistics out, and the rows of "
            f"{arguments.features} describe the site."
        )
    return MixedEffectsClassifier.from_model(model, sent)


def _rows_to_estimate_from(table):
    """Select enough rows of one site to estimate its map."""
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


# Maximum ratio of the spread of rows to the spread in statistics.
MOST_SPREAD = 4.0
# Maximum squared distance of the mean of many rows from the mean in statistics, in
# units of the variance. On digit scanners and PACS, the rows of nearly all sites are
# nearer to their own statistics, whatever their labels, and farther from others.
MOST_SHIFT = 1.0
MOST_SHIFT_BEYOND_LABELS = 0.4


def _warn_of_other_rows(table, sent, path, class_means=None):
    """Warn if rows are far from what the statistics of the site describe.

    They are often of another site or encoder. ``class_means`` are the means of all
    classes, if they are known.
    """
    if len(table.X) < FEWEST_ROWS:
        return
    if not np.size(sent.shrinkage):  # without it, the spread is unknown
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

        # another class distribution moves the mean too, in these directions only
        axes = orth((class_means - class_means.mean(axis=0)).T)
        shift = shift - axes @ (axes.T @ shift)
        variance = total - np.sum(axes * (statistics.shrunk_covariance @ axes))
        most_shift = MOST_SHIFT_BEYOND_LABELS
    shift = np.square(shift).sum() / max(variance, 1e-9 * total)
    if not 1 / MOST_SPREAD <= spread <= MOST_SPREAD:
        differs = (
            f"spread around the mean in {path} {spread:.2g} times as much as those"
        )
    elif shift > most_shift + 2 / len(table.X):
        differs = (
            f"have a mean that is {np.sqrt(shift):.2g} standard deviations from that "
            f"in {path}, which is far for those"
        )
    else:
        return
    warn_user(
        f"the rows of {table.path} {differs} that it describes: are they of client "
        f"{sent.client!r}, made in the same way?",
    )


# ------------------------------------------------------------------ align


def align(arguments):
    """At a site: align features with the reference of all sites.

    They are written to an .npz file together with all other columns. The map is
    estimated from the rows of FILE, or from the training rows of a data set with a
    split. For later rows, give the file that the site had sent as --statistics: a few
    rows are not enough.

    example: skslot align features.npz --reference reference.slot --client A --tau 0.4
    -o aligned.npz
    """
    refuse_output(arguments, suffix=".npz")
    what = "a reference, which skslot aggregate -o or --model"
    reference = load_kind(arguments.reference, FOR_ALL_SITES, what)
    reference = getattr(reference, "reference", reference)  # of a model of all sites
    table = read_table(arguments, made_for=reference).of_client(arguments.client)
    check_same_encoder(table, reference, arguments.reference)
    tau = _strength(reference, arguments)
    aligned_by = client_map(
        table, sent_statistics(arguments), reference, tau, arguments
    )
    aligned = {
        **table.beside(),
        "X": aligned_by.transform(table.X),
        "fingerprint": _aligned_fingerprint(table.encoder, reference, tau),
    }
    if arguments.labels_file is not None:
        aligned["y"] = table.y
    with writing(arguments):
        write_npz_atomically(arguments.output, aligned)
    announce(
        arguments.output, f"{len(table.X)} rows, aligned with tau = {aligned_by.tau:g}"
    )


def _strength(reference, arguments):
    """Choose the alignment strength; for mixed effects, the server has chosen it."""
    from ..exchange import MixedEffectsModel

    path = arguments.reference
    if isinstance(reference, MixedEffectsModel):
        if arguments.tau is not None:
            raise ValueError(
                f"{path} is a model of mixed effects, which contains the alignment "
                "strength: leave --tau out."
            )
        return reference.tau
    tau = next(t for t in (arguments.tau, reference.tau, DEFAULT_TAU) if t is not None)
    if reference.tau not in (None, tau):
        print(f"tau = {tau:g}, although {printable(path)} says {reference.tau:g}")
    return tau


def _aligned_fingerprint(encoder, reference, tau):
    """Mark aligned features, so that they are not aligned again."""
    digest = hashlib.sha256()
    values = (getattr(reference, each.name) for each in fields(reference))
    for array in values:
        if isinstance(array, np.ndarray):
            digest.update(array.tobytes())
    digest.update(repr(float(tau)).encode())
    return f"{encoder or 'features'}+aligned:{digest.hexdigest()[:16]}"


# ------------------------------------------------------------------ predict

# Characters that make a spreadsheet take text for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def predict(arguments):
    """At a site: predict labels with the model from the server.

    Write a .csv file with the number of each row, its other columns, the prediction,
    and the probability of each class. Features must not be aligned before: a model for
    one site includes its alignment, and for a model of all sites, this command aligns
    them. With --labels also print the accuracy.

    example: skslot predict features.npz --model global.slot --statistics A.slot
    -o predictions.csv
    """
    refuse_output(arguments)
    model = _load_model(arguments)
    table = read_table(arguments, learns=False, made_for=model)
    owner = getattr(model, "client", None)
    if None not in (owner, arguments.client) and str(owner) != arguments.client:
        raise ValueError(
            f"{arguments.model} is for client {owner!r}, not for {arguments.client!r}: "
            "it includes the alignment of that client."
        )
    sent = sent_statistics(arguments)
    numbers = np.arange(1, len(table.X) + 1)
    table = replace(table, others={"row": numbers, **table.others})
    owners = (arguments.client, owner, getattr(sent, "client", None))
    client = next((name for name in owners if name is not None), None)
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


def _model_of_site(model, table, sent, arguments):
    """Return the model for features of this site before alignment."""
    from ..exchange import AlignedModel, MixedEffectsModel

    if isinstance(model, MixedEffectsModel):
        classifier = site_classifier(table, sent, model, arguments)
        return classifier.client_model(classifier.aligner_.clients_[0])
    if isinstance(model, AlignedModel):
        aligned_by = client_map(table, sent, model.reference, model.tau, arguments)
        return model.head.pulled_back(*aligned_by.affine, arguments.client)
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
        print(f"rows with a label that is not in the model: {unknown.sum()} ({some})")


def _columns(table, predicted, probabilities, classes):
    """Collect the columns of the output, by name."""
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
    """Escape text that a spreadsheet would run as a formula."""
    is_formula = isinstance(cell, str) and cell.startswith(FORMULA)
    return f"'{cell}" if is_formula else cell


# ------------------------------------------------------------------ adapt


def adapt(arguments):
    """At a site: learn from rows without labels, and send nothing.

    Write a model of this site, for skslot predict. With --statistics, the rows
    refine the estimates from labelled rows; this gains most if these are of few
    classes. Without, a site that sent nothing gets a model from its rows alone, or with
    --labels from a few labelled rows. The rows should be an ordinary sample of the
    site, about 100 or more. Of a data set with a split, the training rows are used.

    example: skslot adapt features.npz --model global.slot --statistics E.slot
    --client E -o E-model.slot
    """
    refuse_output(arguments)
    what = "a model of mixed effects, which skslot aggregate --model"
    model = load_kind(arguments.model, ("MixedEffectsModel",), what)
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


def _check_unlabelled(table, sent, arguments):
    """Refuse too few rows; print a note if labels are ignored."""
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
        print(f"y of {printable(table.path)} is ignored; --labels uses it")
