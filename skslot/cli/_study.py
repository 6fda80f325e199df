"""Commands on the samples or messages of all sites: ``demo``, ``bench``, ``report``."""

import argparse
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from textwrap import fill

from .._atomic import atomic_output, outputs_together
from .._utils import import_optional, printable
from ._data import columns_of, read_rows_of_sites, reading_code
from ._main import (
    FEATURES,
    add_command,
    in_one_line,
    named_files,
    option_of,
    plain_warnings,
    refuse_output,
    refuse_overwrite,
    refuse_twins,
    show_progress,
    writing,
)
from ._server import look_at, method_of
from ._site import DEFAULT_TAU

EXPERIMENTS = (
    "main",
    "skew",
    "domain-only",
    "tau",
    "backbones",
    "scalability",
    "unlabelled",
    "methods",
    "pca",
)
# Options that only the experiment "methods" has.
ONLY_METHODS = ("methods", "alignments", "alphas", "n_jobs")
FORMATS = ("json", "csv", "latex")
PICTURES = ("png", "svg")


def add_commands(commands):
    """Add ``demo``, ``bench`` and ``report``."""
    command = add_command(commands, demo)
    command.add_count("--partitions", 5, "Label-skewed partitions to average over")
    command.add_path(
        "--picture",
        "FILE.png",
        "Picture of the features, if matplotlib is installed (default: %(default)s).",
        default=Path("skslot-demo.png"),
    )
    command = add_command(commands, bench)
    command.add_argument("experiment", choices=EXPERIMENTS, help="Experiment to run.")
    command.add_path(
        "--features",
        "FILE",
        f"Files of all sites with {FEATURES} (default: embedded data).",
        nargs="+",
    )
    command.add_columns(features="--columns")
    command.add_count("--runs", 5, "Partitions, and seeds on the first partition")
    for flag, example in (("--methods", "fedcgs"), ("--alignments", "none")):
        command.add_argument(
            flag,
            nargs="+",
            metavar="NAME",
            help=f"For methods: names such as {example} (default: all).",
        )
    command.add_argument(
        "--alphas",
        nargs="+",
        type=_alpha,
        metavar="ALPHA",
        help="For methods: concentrations of the label shift (default: none 1 0.1 0.05 "
        "0.01).",
    )
    command.add_argument(
        "--n-jobs",
        type=int,
        metavar="N",
        help="For methods: processes over runs (default: 1).",
    )
    command.share(
        "--min-samples",
        help="Minimum number of training samples of a client (default: 10; 20 on "
        "embedded data).",
    )
    command.add_path(
        "--results",
        "FILE",
        "File of completed runs, which are not repeated (default: %(default)s).",
        default=Path("skslot-bench.jsonl"),
    )
    for name in FORMATS:
        command.add_path(f"--{name}", "FILE", f"Output as {name}.")
    command.add_path(
        "--figures",
        "FOLDER",
        "Folder for figures of pca (default: this folder) and methods (default: none).",
    )
    command.share("--force")
    command = add_command(commands, report)
    command.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=f"File of all sites with {FEATURES}; or one .slot file of each site.",
    )
    command.add_columns()
    command.share("--plan")
    command.add_output("FILE.html", "The page.")
    command.share(
        "--tau",
        help="Alignment strength from 0 to 1, or auto (default: the recommendation of "
        "skslot diagnose; for .slot files mixed effects, or 0.4 without labels).",
    )


# ------------------------------------------------------------------ demo


def demo(arguments):
    """Show what alignment does, on embedded data.

    No download, no extra package, less than a minute.

    example: skslot demo --partitions 3
    """
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    from ..experiments import run_demo  # scikit-learn takes a second: not for --help

    with threadpool_limits(1):  # threads are slower than none on matrices this small
        result = run_demo(
            arguments.partitions, progress=show_progress("step", arguments)
        )
    print(result)
    print(f"\n{save_picture(result, arguments.picture)}")


def save_picture(result, path):
    """Draw if possible; return a sentence on the picture."""
    name = printable(path)
    if path.exists():
        return f"No picture: {name} exists already; name another file with --picture."
    try:
        refuse_overwrite(path)
        figure = result.plot().figure_
        with outputs_together(replace=False):
            _save(figure, path)
    except (ImportError, OSError) as error:
        return f"No picture: {in_one_line(error)}"
    text = (
        f"Picture: {name}, the training features in two dimensions. From left to right "
        "sites come together (top); at tau=1 digits do so too (bottom), which is too "
        "much."
    )
    return fill(text, width=88, break_long_words=False)


def _save(figure, path):
    with atomic_output(path) as file:
        figure.savefig(file, format=path.suffix[1:] or "png", dpi=150)


# ------------------------------------------------------------------ bench


def bench(arguments):
    """Run an experiment of the paper, or compare methods.

    main: alpha = 0.1; skew: alpha = 0.05 and 0.01; domain-only: no label shift; tau:
    alignment strengths from 0 to 1; backbones: main with several encoders, a file of
    features of each; scalability: two clients per domain; unlabelled: sites that learn
    from unlabelled rows, and sites that join; methods: all one-shot methods, aligned
    and not; pca: figures of the features in two dimensions.

    The table has the accuracy per client, the macro mean, the standard deviation over
    clients and the gain of the alignment. "unlabelled", "methods" and rows with "ours"
    are not in the paper. FedAvg needs pip install "skslot[torch]".

    example: skslot bench main --features features.npz --runs 5
    """
    given = {name: getattr(arguments, name) for name in ONLY_METHODS}
    given = {name: value for name, value in given.items() if value is not None}
    if given and arguments.experiment != "methods":
        flag = option_of(next(iter(given)))
        raise ValueError(f"{flag} is for methods, not for {arguments.experiment}.")
    if arguments.experiment == "pca":
        return _draw_pca(arguments)
    from ..experiments import compare_methods, run_experiment

    import_optional("pandas", "tables", "skslot bench")  # before the work
    outputs = _outputs(arguments)
    inputs = [*(arguments.features or ()), arguments.labels_file]
    for path in outputs.values():
        refuse_overwrite(path, arguments.force, inputs)
    refuse_overwrite(arguments.results, force=True, inputs=inputs)
    refuse_twins([*outputs.values(), arguments.results])
    all_data, pictures = _data(arguments), {}
    if arguments.experiment == "methods":
        run = partial(compare_methods, **given)
        for data in all_data:
            pictures[data.name] = _pictures(arguments, f"methods-{data.name}")
    else:
        run = partial(run_experiment, arguments.experiment)
    results = []
    for data in all_data:
        result = run(
            data,
            n_runs=arguments.runs,
            results=arguments.results,
            progress=show_progress("run", arguments),
        )
        print(result, end="\n\n")
        results.append(result)
    written = []
    with writing(arguments):
        for result in results:
            for path in pictures.get(result.data, ()):
                _save(result.plot(), path)
                written.append(path)
        for name, path in outputs.items():
            with atomic_output(path) as file:
                file.write(_text(name, results).encode())
            written.append(path)
    for path in written:
        print(f"wrote {printable(path)}")


def _text(name, results):
    """Write results as one file; tables of the same columns become one CSV."""
    texts = [getattr(result, f"to_{name}")() for result in results]
    if name == "json":
        return f"[{', '.join(texts)}]\n"
    if name == "latex":
        return "\n\n".join(texts) + "\n"
    tables = {}
    for header, _, rows in (text.partition("\n") for text in texts):
        tables[header] = tables.get(header, f"{header}\n") + rows
    return "\n".join(tables.values())


def _draw_pca(arguments):
    tables = _outputs(arguments)
    if tables:
        raise ValueError(f"pca has no table to write as {', '.join(tables)}.")
    arguments.figures = arguments.figures or Path(".")
    for data in _data(arguments):
        paths = {
            path: what
            for what in ("client", "class")
            for path in _pictures(arguments, f"pca-{data.name}-by-{what}")
        }
        figures = data.pca_figures()
        with writing(arguments):
            for path, what in paths.items():
                _save(figures[what], path)
        for path in paths:
            print(f"wrote {printable(path)}")


def _pictures(arguments, name):
    """List the paths of a picture, if pictures are asked for and can be made."""
    if arguments.figures is None:
        return []
    import_optional("matplotlib.pyplot", "plot", "a picture")
    stem = re.sub(r"[^\w.-]+", "-", name)
    paths = [arguments.figures / f"{stem}.{kind}" for kind in PICTURES]
    for path in paths:
        refuse_overwrite(path, arguments.force)
    return paths


def _alpha(text):
    """Convert a concentration of the label shift: none, or a number above 0."""
    try:
        value = None if text == "none" else float(text)
    except ValueError:
        value = 0.0
    if value is not None and not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither none nor above 0")
    return value


def _outputs(arguments):
    paths = {name: getattr(arguments, name) for name in FORMATS}
    return {name: path for name, path in paths.items() if path is not None}


def _data(arguments):
    from ..experiments import FeatureSet

    compares_encoders = arguments.experiment == "backbones"
    if arguments.features:
        paths, columns = arguments.features, columns_of(arguments)
        if len({path.stem for path in paths}) < len(paths):
            raise ValueError(
                "results are named after their files of features, and two of these "
                f"have the same name: {', '.join(map(str, paths))}."
            )
        data = [FeatureSet.from_file(path, **columns) for path in paths]
    elif compares_encoders:
        data = FeatureSet.embedded_backbones()
    else:
        data = [FeatureSet.embedded()]
    if compares_encoders:
        for other in data[1:]:
            data[0].check_same_rows(other)
    if arguments.min_samples is not None:
        data = [replace(one, min_samples=arguments.min_samples) for one in data]
    return data


# ------------------------------------------------------------------ report

MESSAGES = ".slot"
MOST_FILES = 6  # in a command; more are written as a pattern


def report(arguments):
    """Write a page about clients, from a file of features or from messages.

    One HTML file with plain words and pictures, for the people who run the sites: each
    site, its classes, its distance from others, the variance, and the recommendation of
    skslot diagnose as code. From .slot files, the accuracy is unknown. Needs
    matplotlib: pip install "skslot[plot]".

    example: skslot report features.npz -o report.html
    """
    paths = named_files(arguments.files)
    refuse_output(arguments, *paths)
    messages = [path for path in paths if path.suffix.lower() == MESSAGES]
    features = [path for path in paths if path not in messages]
    if messages and features:
        raise ValueError(
            f"{messages[0]} is what a site sent, {features[0]} has features: give the "
            "one or the other."
        )
    make = _page_of_messages if messages else _page_of_rows
    with plain_warnings():
        page = make(paths, arguments, show_progress("report, part", arguments))
    with writing(arguments), atomic_output(arguments.output) as file:
        file.write(page.encode())
    print(f"wrote {printable(arguments.output)}; open it in a browser")


def _page_of_rows(paths, arguments, progress):
    from ..inspection import client_report

    if len(paths) > 1:
        raise ValueError(
            f"{paths[0]} and {paths[1]}: a page is about one file of features. Join "
            "the rows of all sites in one file with a column client, or give the .slot "
            "files that skslot summarize writes."
        )
    (path,) = paths
    data, columns = read_rows_of_sites(arguments, path)
    if data.y is None and arguments.tau == "auto":
        raise ValueError(
            f"{path} has no labels, which --tau auto compares; name them by --labels, "
            "or give --tau a number."
        )
    # code that anybody can run who has the files, in whatever folder
    for name in {"labels_file", "plan"} & columns.keys():
        columns[name] = Path(columns[name]).name
    return client_report(
        data.X,
        data.y,
        data.client_ids,
        tau=arguments.tau,
        name=data.name,
        reading=reading_code(path.name, columns) + "\n",
        progress=progress,
    )


def _page_of_messages(paths, arguments, progress):
    from ..exchange import load_message, load_messages
    from ..inspection import message_report

    columns = {**columns_of(arguments), "plan": arguments.plan}
    given = [name for name, value in columns.items() if value]
    if given:
        raise ValueError(
            f"{option_of(given[0])} is about columns of features, which {paths[0]} "
            "does not have; leave it out."
        )
    if len(paths) < 2:
        load_message(paths[0])  # the error states why it cannot be read
        raise ValueError(
            f"{paths[0]} is of one client only; there is nothing to compare. Name the "
            "files of all sites."
        )
    kinds = look_at(paths)
    labelled = {p: kind for p, kind in kinds.items() if kind and kind.describes_classes}
    without = [p for p, kind in kinds.items() if kind and not kind.describes_classes]
    if arguments.tau == "auto" and without:
        raise ValueError(
            f"--tau auto needs the labels of all sites, but {without[0]} was "
            "summarized without --labels."
        )
    command, note = _next_command(kinds, labelled, without, arguments.tau)
    return message_report(
        load_messages(kinds),
        tau=arguments.tau,
        command=command,
        note=note,
        progress=progress,
    )


def _next_command(kinds, labelled, without, tau):
    """Return the command that computes a model from these files, and a note."""
    try:
        method = method_of(labelled) if labelled else None
    except ValueError as error:
        return None, printable(f"These files do not give a model: {error}")
    names, options, note = [path.name for path in kinds], "--model model.slot", None
    if tau is None and method == "mixed" and without:
        names = [path.name for path in labelled]
        note = (
            f"{', '.join(printable(path.name) for path in without)} came without "
            "labels, which mixed effects need: this command uses the other files, and "
            "a site without labels joins the model by skslot adapt. --method fedcgs "
            "would use the files of all sites."
        )
    elif tau is not None or method != "mixed":
        options = options if method else "-o reference.slot"
        options += " --method fedcgs" * (method == "mixed")
        if tau is None:
            tau = DEFAULT_TAU if without else "auto"
        options += f" --tau {tau if tau == 'auto' else format(tau, '.4g')}"
    is_pattern = MOST_FILES < len(names) == len(kinds) and all(
        name.endswith(MESSAGES) for name in names
    )
    files = f"*{MESSAGES}" if is_pattern else " ".join(map(quote, names))
    return f"skslot aggregate {files} {options}\n", note
