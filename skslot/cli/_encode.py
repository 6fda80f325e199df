"""``skslot encode``: a folder of images to a file of features."""

import re
import shutil
import sys
from pathlib import Path

import numpy as np

from .._utils import count_table, import_optional, printable
from ._arguments import add_command, natural_number, positive_int
from ._outputs import refuse_output, write_npz_atomically, writing
from ._terminal import shows_progress

DRY_RUN = "none"  # in the place of weights
# The loader, and what the paper calls the data set.
LAYOUTS = {
    "folder": ("load_image_folder", None),
    "digits": ("load_digits_benchmark", "Digits"),
    "office-home": ("load_office_home", "Office-Home"),
    "domainnet": ("load_domainnet", "DomainNet"),
}


def add_commands(commands):
    """Add ``encode``."""
    command = add_command(commands, encode)
    command.add_argument(
        "images",
        metavar="FOLDER_OR_CSV",
        help="folder with images as <client>/<class>/<image>, or a CSV file with the "
        "columns path, client and label",
    )
    command.add_output("FILE.npz", "result")
    command.add_argument(
        "--layout",
        choices=list(LAYOUTS),
        default="folder",
        help="the benchmarks of the paper come with a split into training and test "
        "images (default: folder)",
    )
    _add_encoder(command.add_argument_group("encoder"))
    command.add_argument(
        "--cache-dir",
        type=Path,
        metavar="FOLDER",
        help="where features are kept while they are computed, and afterwards "
        "(default: FILE.npz.cache)",
    )


def _add_encoder(group):
    """The parameters of FrozenEncoder, with its defaults."""
    group.add_argument(
        "--model",
        default="ViT-B-32",
        metavar="NAME",
        help="architecture (default: %(default)s)",
    )
    group.add_argument(
        "--pretrained",
        default="datacomp_xl_s13b_b90k",
        metavar="TAG_OR_FILE",
        help="name of the weights, a file with them, or none for random ones: a dry "
        "run, whose features mean nothing and are marked as such in the file (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--source",
        choices=("open_clip", "timm"),
        default="open_clip",
        help="library that has the model (default: %(default)s)",
    )
    group.add_argument(
        "--batch-size",
        type=positive_int,
        default=64,
        metavar="N",
        help="images per batch (default: %(default)s)",
    )
    group.add_argument(
        "--device",
        default="auto",
        help="such as cpu, cuda or mps (default: %(default)s, a GPU if there is one)",
    )
    group.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="precision of the computation (default: %(default)s)",
    )
    group.add_argument(
        "--workers",
        type=natural_number,
        default=0,
        metavar="N",
        help="processes that read images (default: %(default)s, none beside this one)",
    )


def encode(arguments):
    """Turn images into features with a frozen encoder.

    They are written with labels and clients to one .npz file (X, y, client, path,
    fingerprint; for a benchmark also split and dataset, for a table with a column split
    also that). Every image is encoded once: a run that was interrupted goes on where it
    stopped.

    example: skslot encode photos -o features.npz --model resnet18.tv_in1k
    --source timm --pretrained resnet18.safetensors
    """
    from .. import datasets

    output = arguments.output
    refuse_output(arguments, suffix=".npz")
    images = getattr(datasets, LAYOUTS[arguments.layout][0])(arguments.images)
    print(
        f"images: {len(images.paths)}, classes: {len(images.target_names)}, clients: "
        f"{len(images.client_names)}, other files ignored: {images.n_ignored}"
    )
    try:
        encoder = _encoder(arguments)
        before = encoder.cache_info()
        folder = before.path.parent
        if before.n_images:
            place = printable(folder)
            print(f"resuming, features that {place} has already: {before.n_images}")
        features = encoder.transform(images.paths)
    except KeyboardInterrupt:
        print("what was encoded is kept; the same command goes on", file=sys.stderr)
        raise
    except RuntimeError as error:  # of torch: not enough memory
        raise ValueError(
            f"{error} (Another --device or a smaller --batch-size may help.)"
        ) from error
    except OSError as error:  # weights that are not there
        raise OSError(_in_options_of_commands(error)) from error
    made = {"X": features, "fingerprint": _fingerprint(encoder, arguments)}
    with writing(arguments):
        write_npz_atomically(output, made | _arrays(images, arguments))
    after = encoder.cache_info()
    misses, hits = after.misses - before.misses, after.hits - before.hits
    print(_table(images))
    print(f"encoded: {misses}, from the cache {printable(folder)}: {hits}")
    print(f"wrote {printable(output)}, features per image: {features.shape[1]}")
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
    """A module with random weights, the same on every run, and its preprocessing."""
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


def _fingerprint(encoder, arguments):
    """What made the features, which all later files repeat."""
    mark = "dry-run-" if arguments.pretrained == DRY_RUN else ""
    return mark + encoder.fingerprint()


def _in_options_of_commands(error):
    """The error of an encoder, with options in the place of parameters."""
    return re.sub(r"\b(model|pretrained)=", r"--\1 ", str(error))


def _arrays(images, arguments):
    """What is known of the images; paths are relative, so that they hold elsewhere."""
    root = Path(arguments.images)
    folder = root if root.is_dir() else root.parent
    arrays = {
        "y": images.target,
        "client": images.client_ids,
        "path": [_relative(path, folder) for path in images.paths],
        "split": images.get("split"),
        "dataset": LAYOUTS[arguments.layout][1],
    }
    return {name: array for name, array in arrays.items() if array is not None}


def _relative(path, folder):
    path = Path(path)
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return path.as_posix()


def _table(images):
    """Images per client and class, with a line per class if they are many."""
    from ..model_selection import class_table

    table = class_table(images.target, images.client_ids)
    width = max(map(len, str(table).splitlines()))
    if width <= shutil.get_terminal_size().columns:
        return str(table)
    counts = np.vstack([table.counts.T, table.counts.sum(axis=1)])
    return count_table(counts, [*table.classes, "all"], table.clients)
