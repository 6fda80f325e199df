"""``skslot bench``: the paper's experiments, and two of our own."""

import argparse
import re
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from .._atomic import atomic_output
from .._utils import import_optional, printable
from ._arguments import FEATURES, add_command, columns_of, positive_int
from ._outputs import refuse_overwrite, refuse_twins, writing
from ._terminal import show_progress

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
FORMATS = ("json", "csv", "latex")
PICTURES = ("png", "svg")


def add_commands(commands):
    """Add ``bench``."""
    command = add_command(commands, bench)
    command.add_argument(
        "experiment",
        choices=EXPERIMENTS,
        help="main: alpha = 0.1; skew: alpha = 0.05 and 0.01; domain-only: no label "
        "shift; tau: alignment strengths from 0 to 1; backbones: main with several "
        "encoders, a file of features of each; scalability: two clients per domain; "
        "unlabelled: sites that learn from unlabelled rows, and sites that join; "
        "methods: all one-shot methods, aligned and not; pca: features in two "
        "dimensions, as figures",
    )
    command.add_argument(
        "--features",
        nargs="+",
        type=Path,
        metavar="FILE",
        help=f"{FEATURES}; client says whose each row is. Each file has a table of its "
        "own, named after it",
    )
    command.add_columns(default=", and by default", features="--columns")
    command.add_count("--runs", 5, "partitions, and seeds on the first partition")
    group = command.add_argument_group("only for methods")
    group.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help="methods to compare, such as mixed, fedcgs or local (default: all)",
    )
    group.add_argument(
        "--alignments",
        nargs="+",
        metavar="NAME",
        help="alignments to combine them with, named as in the table (default: all)",
    )
    group.add_argument(
        "--alphas",
        nargs="+",
        type=_alpha,
        metavar="ALPHA",
        help="strengths of the label shift, none or numbers; the smaller the stronger "
        "(default: none 1 0.1 0.05 0.01)",
    )
    group.add_argument(
        "--n-jobs", type=int, metavar="N", help="processes over runs (default: 1)"
    )
    command.add_argument(
        "--min-samples",
        type=positive_int,
        metavar="N",
        help="fewest training rows that a partition leaves a client (default: 10; 20 "
        "on embedded data)",
    )
    command.add_argument(
        "--results",
        type=Path,
        default=Path("skslot-bench.jsonl"),
        metavar="FILE",
        help="where each run is kept, so that an interrupted experiment goes on "
        "(default: %(default)s)",
    )
    for name in FORMATS:
        command.add_argument(
            f"--{name}", type=Path, metavar="FILE", help=f"also write {name} to FILE"
        )
    command.add_argument(
        "--figures",
        type=Path,
        metavar="FOLDER",
        help="where pca writes its figures, as PNG and SVG (default: this folder), and "
        "methods one of accuracy against bytes (default: none is drawn)",
    )
    command.add_force()


def bench(arguments):
    """Run an experiment of the paper, with mixed effects beside, or compare methods.

    Print its table: accuracy per client, macro mean, standard deviation over clients,
    gain of the alignment; pca writes two figures. "unlabelled", "methods" and rows
    with "ours" are not in the paper. Without --features it runs on embedded data.
    FedAvg is left out without pip install "skslot[torch]".

    example: skslot bench main --features features.npz --runs 5
    """
    options = _options(arguments)
    if arguments.experiment == "pca":
        return _draw_pca(arguments)
    from ..experiments import compare_methods, run_experiment

    import_optional("pandas", "tables", "skslot bench")  # before the work
    inputs = [*(arguments.features or ()), arguments.labels_file]
    for path in _outputs(arguments).values():
        refuse_overwrite(path, arguments.force, inputs)
    refuse_overwrite(arguments.results, force=True, inputs=inputs)
    refuse_twins([*_outputs(arguments).values(), arguments.results])
    all_data, pictures = _data(arguments), {}
    if arguments.experiment == "methods":
        run = partial(compare_methods, **options)
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
    drawn = [result for result in results if pictures.get(result.data)]
    with writing(arguments):
        for result in drawn:
            _save(result.plot(), pictures[result.data])
        for name, path in _outputs(arguments).items():
            with atomic_output(path) as file:
                file.write(_text(name, results).encode())
    _announce(*(pictures[result.data] for result in drawn))
    _announce(_outputs(arguments).values())


def _text(name, results):
    """Results as the text of one file; tables of the same columns become one CSV."""
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
        by = {
            what: _pictures(arguments, f"pca-{data.name}-by-{what}")
            for what in ("client", "class")
        }
        figures = data.pca_figures()
        with writing(arguments):
            for what, paths in by.items():
                _save(figures[what], paths)
        _announce(*by.values())


def _pictures(arguments, name):
    """Paths of a picture of this name, if pictures are asked for and can be made."""
    if arguments.figures is None:
        return []
    import_optional("matplotlib.pyplot", "plot", "a picture")
    stem = re.sub(r"[^\w.-]+", "-", name)
    paths = [arguments.figures / f"{stem}.{kind}" for kind in PICTURES]
    for path in paths:
        refuse_overwrite(path, arguments.force)
    return paths


def _save(figure, paths):
    for path in paths:
        with atomic_output(path) as file:
            figure.savefig(file, format=path.suffix[1:], dpi=150)


def _announce(*written):
    for path in chain(*written):
        print(f"wrote {printable(path)}")


def _alpha(text):
    """A strength of the label shift: none, or a number above 0."""
    try:
        value = None if text == "none" else float(text)
    except ValueError:
        value = 0.0
    if value is not None and not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither none nor above 0")
    return value


def _options(arguments):
    """Options that only methods has, if they were given."""
    names = ("methods", "alignments", "alphas", "n_jobs")
    given = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    if given and arguments.experiment != "methods":
        flag = f"--{next(iter(given)).replace('_', '-')}"
        raise ValueError(f"{flag} is for methods, not for {arguments.experiment}.")
    return given


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
