"""``skslot encode``: a folder of images to a file of features."""

import shutil
import sys
from pathlib import Path

import numpy as np

from ._files import refuse_overwrite, write_npz_atomically
from ._options import natural_number, positive_int

# The loader, and what the paper calls the data set.
LAYOUTS = {
    "folder": ("load_image_folder", None),
    "digits": ("load_digits_benchmark", "Digits"),
    "office-home": ("load_office_home", "Office-Home"),
    "domainnet": ("load_domainnet", "DomainNet"),
}


def add_commands(commands):
    """Add ``encode``."""
    encode = commands.add_parser(
        "encode",
        help="turn images into features with a frozen encoder",
        description="Turn images into features with a frozen encoder, and write them "
        "with labels and clients to one .npz file (X, y, client, path, fingerprint; "
        "for a benchmark also split and dataset, for a table with a column split also "
        "that). Every image is encoded once: a run "
        "that was interrupted goes on where it stopped.",
        epilog="example: skslot encode photos -o features.npz --model resnet18.tv_in1k "
        "--source timm --pretrained resnet18.safetensors",
    )
    encode.add_argument(
        "images",
        metavar="FOLDER_OR_CSV",
        help="folder with images as <client>/<class>/<image>, or a CSV file with the "
        "columns path, client and label",
    )
    encode.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE.npz", help="result"
    )
    encode.add_argument(
        "--layout",
        choices=list(LAYOUTS),
        default="folder",
        help="the benchmarks of the paper come with a split into training and test "
        "images (default: folder)",
    )
    _add_encoder(encode.add_argument_group("encoder"))
    encode.add_argument(
        "--cache-dir",
        type=Path,
        metavar="FOLDER",
        help="where features are kept while they are computed, and afterwards "
        "(default: FILE.npz.cache)",
    )
    encode.add_argument(
        "--force", action="store_true", help="overwrite FILE.npz if it exists"
    )
    encode.set_defaults(run=_encode)


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
        help="name of the weights, or a file with them (default: %(default)s)",
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


def _encode(arguments):
    output = arguments.output
    if output.suffix != ".npz":
        raise ValueError(f"the name of the output must end in .npz, not {output.name}.")
    refuse_overwrite(output, arguments.force)
    images = _images(arguments)
    encoder = _encoder(arguments)
    try:
        before = encoder.cache_info()
        folder = before.path.parent
        if before.n_images:
            print(f"resuming, features that {folder} has already: {before.n_images}")
        features = encoder.transform(images.paths)
    except KeyboardInterrupt:
        print("what was encoded is kept; the same command goes on", file=sys.stderr)
        raise
    except RuntimeError as error:  # of torch: not enough memory
        raise ValueError(
            f"{error} (Another --device or a smaller --batch-size may help.)"
        ) from error
    fingerprint = encoder.fingerprint()
    write_npz_atomically(
        output,
        {"X": features, "fingerprint": fingerprint, **_arrays(images, arguments)},
    )
    after = encoder.cache_info()
    misses, hits = after.misses - before.misses, after.hits - before.hits
    print(_table(images))
    print(f"encoded: {misses}, from the cache {folder}: {hits}")
    print(f"wrote {output}, features per image: {features.shape[1]}")


def _images(arguments):
    from .. import datasets

    loader, _ = LAYOUTS[arguments.layout]
    images = getattr(datasets, loader)(arguments.images)
    print(
        f"images: {len(images.paths)}, classes: {len(images.target_names)}, clients: "
        f"{len(images.client_names)}, other files ignored: {images.n_ignored}"
    )
    return images


def _encoder(arguments):
    from ..encoders import FrozenEncoder

    return FrozenEncoder(
        arguments.model,
        arguments.pretrained,
        source=arguments.source,
        batch_size=arguments.batch_size,
        device=arguments.device,
        dtype=arguments.dtype,
        cache_dir=arguments.cache_dir or f"{arguments.output}.cache",
        n_workers=arguments.workers,
        progress=sys.stderr.isatty(),
    )


def _arrays(images, arguments):
    """What is known of the images; paths are relative, so that they hold elsewhere."""
    root = Path(arguments.images)
    folder = root if root.is_dir() else root.parent
    arrays = {
        "y": images.target,
        "client": images.client_ids,
        "path": [_relative(path, folder) for path in images.paths],
    }
    if "split" in images:
        arrays["split"] = images.split
    _, name = LAYOUTS[arguments.layout]
    if name:
        arrays["dataset"] = name
    return arrays


def _relative(path, folder):
    path = Path(path)
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return path.as_posix()


def _table(images):
    """Images per client and class, with a line per class if they are many."""
    from ..model_selection import ClassTable, class_table

    table = class_table(images.target, images.client_ids)
    width = max(map(len, str(table).splitlines()))
    if width <= shutil.get_terminal_size().columns:
        return str(table)
    counts = np.vstack([table.counts.T, table.counts.sum(axis=1)])
    return str(ClassTable(counts, [*table.classes, "all"], table.clients))
