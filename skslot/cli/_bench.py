"""``skslot bench``: the paper's experiments."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

from .._atomic import atomic_output
from ._files import refuse_overwrite, refuse_twins
from ._options import positive_int, show_progress

EXPERIMENTS = ("main", "skew", "domain-only", "tau", "backbones", "scalability", "pca")
FORMATS = ("json", "csv", "latex")
PICTURES = list(product(("client", "class"), ("png", "svg")))


def add_commands(commands):
    """Add ``bench``."""
    bench = commands.add_parser(
        "bench",
        help="run an experiment of the paper",
        description="Run an experiment of the paper and print its table: accuracy per "
        "client, macro mean, standard deviation over clients, gain of the alignment; "
        "pca writes two figures. Without --features it runs on embedded data. FedAvg "
        'needs pip install "skslot[torch]".',
        epilog="example: skslot bench main --features features.npz --runs 5",
    )
    bench.add_argument(
        "experiment",
        choices=EXPERIMENTS,
        help="main: alpha = 0.1; skew: alpha = 0.05 and 0.01; domain-only: no label "
        "shift; tau: alignment strengths from 0 to 1; backbones: main with several "
        "encoders, a file of features of each; scalability: two clients per domain; "
        "pca: features in two dimensions, as figures",
    )
    bench.add_argument(
        "--features",
        nargs="+",
        type=Path,
        metavar="FILE.npz",
        help="features with X, y and client, such as skslot encode writes; each file "
        "has a table of its own, named after it",
    )
    bench.add_argument(
        "--runs",
        type=positive_int,
        default=5,
        metavar="N",
        help="partitions, and seeds on the first partition (default: 5)",
    )
    bench.add_argument(
        "--min-samples",
        type=positive_int,
        metavar="N",
        help="fewest training rows that a partition leaves a client (default: 10; 20 "
        "on embedded data)",
    )
    _add_outputs(bench)
    bench.set_defaults(run=_bench)


def _add_outputs(bench):
    bench.add_argument(
        "--results",
        type=Path,
        default=Path("skslot-bench.jsonl"),
        metavar="FILE",
        help="where each run is kept, so that an interrupted experiment goes on "
        "(default: %(default)s)",
    )
    for name in FORMATS:
        bench.add_argument(
            f"--{name}", type=Path, metavar="FILE", help=f"also write {name} to FILE"
        )
    bench.add_argument(
        "--figures",
        type=Path,
        default=Path("."),
        metavar="FOLDER",
        help="where pca writes its figures, as PNG and SVG (default: this folder)",
    )
    bench.add_argument(
        "--force", action="store_true", help="overwrite tables and figures that exist"
    )


def _bench(arguments):
    if arguments.experiment == "pca":
        return _draw_pca(arguments)
    from ..experiments import run_experiment

    inputs = arguments.features or ()
    for path in _outputs(arguments).values():
        refuse_overwrite(path, arguments.force, inputs)
    refuse_overwrite(arguments.results, force=True, inputs=inputs)
    refuse_twins([*_outputs(arguments).values(), arguments.results])
    results = []
    for data in _data(arguments):
        result = run_experiment(
            arguments.experiment,
            data,
            arguments.runs,
            results=arguments.results,
            progress=show_progress("run"),
        )
        print(result, end="\n\n")
        results.append(result)
    for name, path in _outputs(arguments).items():
        with atomic_output(path) as file:
            file.write(_text(name, results).encode())
        print(f"wrote {path}")


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
    from ..experiments import pca_figures

    tables = _outputs(arguments)
    if tables:
        raise ValueError(f"pca has no table to write as {', '.join(tables)}.")
    for data in _data(arguments):
        stem = "pca-" + re.sub(r"[^\w.-]+", "-", data.name)
        names = [f"{stem}-by-{what}.{kind}" for what, kind in PICTURES]
        paths = [arguments.figures / name for name in names]
        for path in paths:
            refuse_overwrite(path, arguments.force)
        figures = pca_figures(data)
        for path, (what, kind) in zip(paths, PICTURES, strict=True):
            with atomic_output(path) as file:
                figures[what].savefig(file, format=kind, dpi=150)
            print(f"wrote {path}")


def _outputs(arguments):
    paths = {name: getattr(arguments, name) for name in FORMATS}
    return {name: path for name, path in paths.items() if path is not None}


def _data(arguments):
    from ..experiments import FeatureSet
    from ..experiments._features import check_same_rows

    compares_encoders = arguments.experiment == "backbones"
    if arguments.features:
        data = _data_of_files(arguments.features)
    elif compares_encoders:
        data = FeatureSet.embedded_backbones()
    else:
        data = [FeatureSet.embedded()]
    if compares_encoders:
        check_same_rows(data)
    if arguments.min_samples is not None:
        data = [replace(one, min_samples=arguments.min_samples) for one in data]
    return data


def _data_of_files(paths):
    from ..experiments import FeatureSet

    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        raise ValueError(
            "results are named after their files of features, and two of these have "
            f"the same name: {', '.join(map(str, paths))}."
        )
    return [FeatureSet.from_file(path) for path in paths]
