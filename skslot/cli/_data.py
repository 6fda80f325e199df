"""Commands on features and tables: ``encode``, ``plan`` and ``diagnose``."""

import shutil
import sys
from pathlib import Path
from textwrap import indent

import numpy as np

from .._methods import FILE_METHODS
from .._utils import (
    count_table,
    import_optional,
    list_groups,
    printable,
    spelled_alike,
    warn_user,
)
from ._main import (
    FEATURES,
    add_command,
    announce,
    in_one_line,
    named_files,
    number_or,
    plain_warnings,
    print_list,
    refuse_output,
    screen_of,
    show_progress,
    shows_progress,
    whole_number,
    write_npz_atomically,
    writing,
)

DRY_RUN = "none"  # in place of weights
# The loader, and what the paper calls the data set.
LAYOUTS = {
    "folder": ("load_image_folder", None),
    "digits": ("load_digits_benchmark", "Digits"),
    "office-home": ("load_office_home", "Office-Home"),
    "domainnet": ("load_domainnet", "DomainNet"),
}
NEEDS_PLAN = "pass the plan that the server's file was made by, --plan FILE.toml."
READING = """\
from skslot.experiments import FeatureSet

data = FeatureSet.from_file({}).training_rows()
X, y, client_ids = data.X, data.y, data.client_ids
"""


def add_commands(commands):
    """Add ``encode``, ``diagnose`` and ``plan``."""
    _add_encode(add_command(commands, encode))
    command = add_command(commands, diagnose)
    command.share("features", help=f"File of all sites with {FEATURES}.")
    command.add_columns()
    command.share("--plan")
    command.add_choice(
        "--labels-at-use",
        ("shared", "as_now"),
        "Class distribution in later use: the pooled one at all clients, or the "
        "present one of each client",
    )
    command = add_command(commands, plan)
    command.add_path("features", "TABLE", "Table of one site.", nargs="?")
    command.add_argument("--labels", metavar="COLUMN", help="Column with labels.")
    command.share("--features", "--id-column", "--client-column", "--ignore")
    command.add_argument(
        "--fill",
        type=number_or("median"),
        metavar="X",
        help="Value for missing numbers: median (of each site) or a number (default: "
        "median in columns with gaps in TABLE).",
    )
    command.share("--plan", help="Plan to complete, for --client or --scaling.")
    command.share("--client", help="Site to fill in the medians of (default: none).")
    command.add_argument(
        "--scaling",
        nargs="+",
        metavar="FILE.slot",
        help="Files of skslot summarize --scaling, one per site.",
    )
    command.share("--screen")
    command.add_output("FILE.toml", "The plan.")


# ------------------------------------------------------------------ reading features


def columns_of(arguments):
    """Return the options on columns as arguments of the reader."""
    names = ("labels", "labels_file", "ignore", "id_column", "client_column")
    columns = {name: getattr(arguments, name) for name in names}
    return {**columns, "features": arguments.feature_columns}


def read_table(arguments, learns=True, made_for=None):
    """Read the features of a site.

    With a plan, the samples of a site that ``learns`` from them define its medians. If
    the features are ``made_for`` a message, all columns that it names are features.
    """
    from ..datasets import load_features
    from ..exchange import fingerprint_names

    columns = columns_of(arguments)
    columns["labels"] = arguments.labels or False  # sent only if somebody asks for it
    if made_for is not None:
        _refuse_table_without_plan(arguments, made_for)
        columns["known_features"] = fingerprint_names(made_for.encoder) or ()
    if arguments.plan is not None:
        columns["plan"] = _plan_of_site(arguments, learns)
        if arguments.labels is not None:
            columns["labels"] = columns["plan"].label or arguments.labels
    return load_features(arguments.features, encoder=arguments.encoder, **columns)


def read_rows_of_sites(arguments, path):
    """Read the training samples of all sites.

    Returns them and the arguments that read the file in Python.
    """
    from ..experiments import FeatureSet

    columns = {name: value for name, value in columns_of(arguments).items() if value}
    if arguments.plan is not None:
        plan = _agreed_plan(arguments)
        if plan.client is not None:
            raise ValueError(
                f"{arguments.plan} is the plan of client {plan.client!r}, with its "
                "medians: take the one that was sent to all sites."
            )
        if plan.epsilon is not None:
            with plain_warnings():
                warn_user(
                    f"{arguments.plan} makes sites clip rows to norm {plan.clip:g} and "
                    f"add noise (epsilon {plan.epsilon:g}), which is not done here: "
                    "expect less accuracy of what they send."
                )
        columns.pop("labels", None)  # which the plan names
        columns["plan"] = str(arguments.plan)
    return FeatureSet.from_file(path, **columns).training_rows(), columns


def reading_code(path, columns):
    """Write code that reads the samples of all sites."""
    options = (f"{name}={value!r}" for name, value in columns.items())
    return READING.format(", ".join([repr(str(path)), *options]))


def _refuse_table_without_plan(arguments, made_for):
    """Ask for the plan at once, before columns are questioned that it settles."""
    is_table = Path(arguments.features).suffix.lower() not in {".npz", ".npy"}
    by_plan = str(made_for.encoder).startswith("plan:")
    if is_table and by_plan and arguments.plan is None:
        path = getattr(arguments, "model", None) or arguments.reference
        raise ValueError(f"{arguments.features} does not fit {path}: {NEEDS_PLAN}")


def _agreed_plan(arguments):
    """Load the plan, unless other options contradict it."""
    from ..datasets import StudyPlan

    path = arguments.plan
    plan = StudyPlan.load(path)
    if arguments.labels not in (None, "y", plan.label):
        raise ValueError(
            f"{path} names {plan.label!r} as the column with labels, which --labels "
            f"{arguments.labels} contradicts; leave it out."
        )
    if arguments.feature_columns is not None:
        raise ValueError(f"{path} names the features: leave --features out.")
    return plan


def _plan_of_site(arguments, learns):
    """Load the plan for the site whose file is read."""
    path = arguments.plan
    if arguments.encoder is not None:
        raise ValueError(f"{path} defines the features: leave --encoder out.")
    shared = _agreed_plan(arguments)
    client = arguments.client or shared.client
    if shared.client not in (None, client):
        raise ValueError(
            f"{path} is the plan of client {shared.client!r}, with its medians, not of "
            f"{client!r}: take the one that was sent to all sites."
        )
    arguments.client = client
    if not learns:
        return shared
    at_site = shared.at_site(arguments.features, client, arguments.client_column)
    medians = [
        f"{column.name} {column.median:g}"
        for known, column in zip(shared.columns, at_site.columns, strict=True)
        if known != column
    ]
    if medians:
        print(f"medians of this site, for missing values: {', '.join(medians)}")
    return at_site


# ------------------------------------------------------------------ plan

# Settings of ``summarize`` that a plan can contain.
SETTINGS = ("method", "dtype", "min_samples", "epsilon", "delta", "clip")


def settle(arguments):
    """Fill in the settings of ``summarize`` from the plan, or else by default."""
    from ..datasets import StudyPlan

    plan = None
    if arguments.plan is not None:
        plan = StudyPlan.load(arguments.plan)
        if arguments.labels is None and arguments.labels_file is None:
            arguments.labels = plan.label
    for name in SETTINGS:
        if getattr(arguments, name) is None:
            setattr(arguments, name, getattr(plan or StudyPlan, name))
    if arguments.method not in FILE_METHODS:
        raise ValueError(
            f"{arguments.plan}: method must be one of {', '.join(FILE_METHODS)}, not "
            f"{arguments.method}."
        )
    return plan


def plan(arguments):
    """Write down how all sites make features of their tables.

    From the table of one site, a plan is drafted: which columns are features, how
    missing values are filled and which categories there are. Correct it, and send the
    same file to all sites, which follow it by --plan. With --scaling the server fills
    in means and scales. With --client a site fills in its medians.

    example: skslot plan hospital.csv --labels diagnosis --id-column patient
    -o study.toml
    """
    refuse_output(arguments, suffix=".toml")
    has_table, has_plan = arguments.features is not None, arguments.plan is not None
    if has_plan and arguments.fill is not None:
        raise ValueError(
            f"--fill is for a draft: {arguments.plan} defines how missing values are "
            "filled. To change that, draft it again or edit it."
        )
    if has_table and not has_plan and arguments.scaling is None:
        made, what = _draft(arguments), "read it, correct it, send it to all sites"
    elif has_table and has_plan and arguments.client is not None:
        made, what = _at_site(arguments), f"the plan of client {arguments.client}"
    elif has_plan and arguments.scaling is not None and not has_table:
        made, what = _with_scaling(arguments), "send it to all sites"
    else:
        raise ValueError(
            "give TABLE to draft a plan, TABLE --plan FILE.toml --client NAME for the "
            "plan of a site, or --plan FILE.toml --scaling FILE.slot to standardize."
        )
    made.save(arguments.output)
    announce(arguments.output, what)


def _draft(arguments):
    from ..datasets import StudyPlan

    drafted = StudyPlan.draft(
        arguments.features,
        label=arguments.labels,
        ignore=arguments.ignore,
        id_column=arguments.id_column,
        client_column=arguments.client_column,
        features=arguments.feature_columns,
        fill=arguments.fill,
    )
    print_list(f"{len(drafted.feature_names)} features", drafted.feature_names)
    if drafted.label is None:
        print("no labels: name their column by --labels")
    else:
        print(f"labels: {drafted.label}: {', '.join(map(str, drafted.classes))}")
    filled = [column.name for column in drafted.columns if column.fill is not None]
    if filled:
        by_median = arguments.fill in (None, "median")
        by = "the median of each site" if by_median else f"{arguments.fill:g}"
        print_list(f"missing values, filled by {by}", filled)
    lumped = [each.feature_names[-1] for each in drafted.columns if each.has_other]
    if lumped:
        print_list("missing and unlisted categories have a column of their own", lumped)
    if any(column.fill is column.categories is None for column in drafted.columns):
        print(
            "other sites and new rows may miss more: --fill median fills in all numbers"
        )
    with plain_warnings():
        _warn_of_labels(drafted, arguments)
    return drafted


def _warn_of_labels(drafted, arguments):
    """Warn of labels and categories that would be a problem at the sites."""
    from ..datasets import load_features

    values = {column.name: column.categories or () for column in drafted.columns}
    for name, texts in {drafted.label: drafted.classes, **values}.items():
        for found in spelled_alike(texts):
            warn_user(
                f"{' and '.join(map(repr, found))} in column {name!r} are different to "
                "a computer; if they are the same, write them alike in the tables of "
                "all sites, and draft the plan again."
            )
    if drafted.label is None:
        return
    path, at_site = arguments.features, drafted.at_site(arguments.features, None)
    rows = load_features(path, plan=at_site, ignore=arguments.ignore).training_rows()
    classes, counts = np.unique(rows.y, return_counts=True)
    few = counts < drafted.min_samples
    if few.any():
        groups = dict(zip(classes[few].tolist(), counts[few].tolist(), strict=True))
        warn_user(
            f"{path}: {list_groups(groups)}: a site sends no class with fewer than "
            f"{drafted.min_samples}, the min_samples of the plan. Get more rows, join "
            "classes, or leave such rows out at each site by skslot summarize "
            "--drop-small-classes."
        )


def _at_site(arguments):
    from ..datasets import StudyPlan

    shared = StudyPlan.load(arguments.plan)
    return shared.at_site(arguments.features, arguments.client, arguments.client_column)


def _with_scaling(arguments):
    from .. import FederatedScaler
    from ..datasets import StudyPlan
    from ..exchange import load_messages, receive
    from ._site import load_kind

    paths = named_files(arguments.scaling)
    for path in paths:
        load_kind(path, ("ColumnStatistics",), "what skslot summarize --scaling")
    received = receive(load_messages(paths))
    with plain_warnings():
        scaler = FederatedScaler(screen=screen_of(arguments))
        answer = scaler.server_aggregate(received).statistics_
    print(f"clients: {len(received.senders)}, rows: {answer.n_samples}")
    print(f"what each client adds:\n{received.clients_report}")
    return StudyPlan.load(arguments.plan).with_scaling(answer)


# ------------------------------------------------------------------ diagnose


def diagnose(arguments):
    """Recommend an estimator for the clients of a features file.

    Print samples, classes and empty cells, how labels and features differ between
    clients, outliers, the accuracy to expect, and a recommendation with code. It needs
    the samples of all clients in one file, such as the file of a pilot study. Of a data
    set with a split, the training samples are used. Nothing is written or sent.

    example: skslot diagnose features.npz --labels-at-use as_now
    """
    from ..inspection import diagnose

    data, columns = read_rows_of_sites(arguments, arguments.features)
    found = diagnose(
        data.X,
        data.y,
        data.client_ids,
        labels_at_use=arguments.labels_at_use,
        progress=show_progress("models tried", arguments),
    )
    print(found)
    if found.code:
        reading = indent(reading_code(arguments.features, columns).rstrip(), "    ")
        print(f"\nX, y and client_ids are read by\n\n{reading}")


# ------------------------------------------------------------------ encode


def _add_encode(command):
    """Add the options of ``encode``; the defaults are those in FrozenEncoder."""
    command.add_argument(
        "images",
        metavar="FOLDER_OR_CSV",
        help="Folder <client>/<class>/<image>, or CSV file with the columns path, "
        "client and label.",
    )
    command.add_output("FILE.npz", "File with features.")
    command.add_choice(
        "--layout", list(LAYOUTS), "Layout of the folder; benchmarks have a split"
    )
    command.add_path(
        "--cache-dir",
        "FOLDER",
        "Cache of computed features (default: FILE.npz.cache).",
    )
    for flag, metavar, default, text in (
        ("--model", "NAME", "ViT-B-32", "Architecture"),
        (
            "--pretrained",
            "TAG_OR_FILE",
            "datacomp_xl_s13b_b90k",
            "Name of the weights, a file, or none for a dry run with random weights",
        ),
        ("--device", "DEVICE", "auto", "cpu, cuda or mps; auto chooses a GPU"),
    ):
        command.add_argument(
            flag,
            metavar=metavar,
            default=default,
            help=f"{text} (default: %(default)s).",
        )
    command.add_choice("--source", ("open_clip", "timm"), "Library of the model")
    command.add_choice(
        "--dtype",
        ("float32", "float16", "bfloat16"),
        "Precision of the computation",
    )
    command.add_count("--batch-size", 64, "Images per batch")
    command.add_argument(
        "--workers",
        type=whole_number,
        default=0,
        metavar="N",
        help="Additional processes that read images (default: %(default)s).",
    )


def encode(arguments):
    """Turn images into features with a frozen encoder.

    Features, labels and clients are written to one .npz file (X, y, client, path,
    fingerprint; for a benchmark also split and dataset, for a CSV file with a column
    split also split). Every image is encoded once: an interrupted run continues where
    it stopped.

    example: skslot encode photos -o features.npz --model resnet18.tv_in1k
    --source timm --pretrained resnet18.safetensors
    """
    from .. import datasets

    refuse_output(arguments, suffix=".npz")
    images = getattr(datasets, LAYOUTS[arguments.layout][0])(arguments.images)
    print(
        f"images: {len(images.paths)}, classes: {len(images.target_names)}, clients: "
        f"{len(images.client_names)}, other files ignored: {images.n_ignored}"
    )
    try:
        encoder = _encoder(arguments)
        before = encoder.cache_info()
        folder = printable(before.path.parent)
        if before.n_images:
            print(f"resuming, features that {folder} has already: {before.n_images}")
        features = encoder.transform(images.paths)
    except KeyboardInterrupt:
        print("features so far are kept; the same command continues", file=sys.stderr)
        raise
    except RuntimeError as error:  # of torch: not enough memory
        raise ValueError(
            f"{error} (Another --device or a smaller --batch-size may help.)"
        ) from error
    except OSError as error:  # weights that are not there
        raise OSError(
            f"{in_one_line(error)} (options --model and --pretrained)"
        ) from error
    mark = "dry-run-" if arguments.pretrained == DRY_RUN else ""
    made = {"X": features, "fingerprint": mark + encoder.fingerprint()}
    with writing(arguments):
        write_npz_atomically(arguments.output, made | _arrays(images, arguments))
    after = encoder.cache_info()
    misses, hits = after.misses - before.misses, after.hits - before.hits
    print(_table(images))
    print(f"encoded: {misses}, from the cache {folder}: {hits}")
    print(f"wrote {printable(arguments.output)}, features per image: {len(features.T)}")
    if arguments.pretrained == DRY_RUN:
        print("a dry run: the weights were random, and the features mean nothing")


def _encoder(arguments):
    from ..encoders import FrozenEncoder

    model, preprocess = arguments.model, None
    if arguments.pretrained == DRY_RUN:
        model, preprocess = _random_model(arguments.model, arguments.source)
    return FrozenEncoder(
        model,
        arguments.pretrained,
        source=arguments.source,
        preprocess=preprocess,
        batch_size=arguments.batch_size,
        device=arguments.device,
        dtype=arguments.dtype,
        cache_dir=arguments.cache_dir or f"{arguments.output}.cache",
        n_workers=arguments.workers,
        progress=shows_progress(arguments),
    )


def _random_model(name, source):
    """Make a module with random weights, the same on every run."""
    torch = import_optional("torch", "clip", "skslot encode")
    library = import_optional(source, "clip", f"--source {source}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if source == "open_clip":
            clip, _, preprocess = library.create_model_and_transforms(name)
            return clip.visual, preprocess
        module = library.create_model(name, pretrained=False, num_classes=0)
    config = library.data.resolve_model_data_config(module)
    return module, library.data.create_transform(**config, is_training=False)


def _arrays(images, arguments):
    """Collect what is known of the images, with relative paths."""
    root = Path(arguments.images)
    folder = root if root.is_dir() else root.parent
    arrays = {
        "y": images.target,
        "client": images.client_ids,
        "path": [_relative(Path(path), folder) for path in images.paths],
        "split": images.get("split"),
        "dataset": LAYOUTS[arguments.layout][1],
    }
    return {name: array for name, array in arrays.items() if array is not None}


def _relative(path, folder):
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return path.as_posix()


def _table(images):
    """Lay out images per client and class, with a line per class if they are many."""
    from ..model_selection import class_table

    table = class_table(images.target, images.client_ids)
    width = max(map(len, str(table).splitlines()))
    if width <= shutil.get_terminal_size().columns:
        return str(table)
    counts = np.vstack([table.counts.T, table.counts.sum(axis=1)])
    return count_table(counts, [*table.classes, "all"], table.clients)
