"""Paths, labels and clients of images that lie in folders or stand in a CSV file."""

import csv
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.utils import Bunch

from .._sklearn_compat import validate_params

# A fixed list: what Pillow can open depends on how it was built, and the same folder
# must give the same rows everywhere.
IMAGE_EXTENSIONS = frozenset(
    ".bmp .gif .jfif .jp2 .jpeg .jpg .pbm .pgm .png .ppm .tga .tif .tiff .webp".split()
)
COLUMNS = ("path", "client", "label")
LAYOUT = "The layout is <client>/<class>/<image>"


@validate_params({"root": [str, os.PathLike]}, prefer_skip_nested_validation=True)
def load_image_folder(root):
    """List images with their labels and clients, from a folder or a CSV file.

    A folder has the layout ``<client>/<class>/<image>``, as PACS, Office-Home and
    DomainNet have. A CSV file has the columns ``path``, ``client`` and ``label``, and
    ``split`` if you like. Images are listed, not opened.

    Parameters
    ----------
    root : str or path-like
        The folder, or the CSV file. Paths in a CSV file are relative to its folder,
        unless they are absolute.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with these attributes:

        paths : ndarray of str of shape (n_samples,)
            The images, as :class:`skslot.FrozenEncoder` takes them. Sorted if they
            come from a folder, in the order of the file otherwise.
        target : ndarray of str of shape (n_samples,)
            The class of each image.
        client_ids : ndarray of str of shape (n_samples,)
            The client of each image.
        split : ndarray of str of shape (n_samples,)
            The column ``split`` of the CSV file; only there if the file has one.
        target_names : ndarray of str
            The classes, sorted. A client need not have all of them.
        client_names : list of str
            The clients, sorted.
        n_ignored : int
            How many hidden files, hidden folders and files that are not images the
            folder has.

    See Also
    --------
    load_digits_benchmark : Four sets of digits, with their official splits.
    load_office_home : Office-Home, split as in the paper.
    load_domainnet : DomainNet, with its official splits.

    Notes
    -----
    Files with one of the usual extensions of images (such as ``.jpg``, ``.png``,
    ``.tif`` or ``.webp``) are images; others can be listed in a CSV file. Nothing that
    may be an image is left out in silence: an image outside of a class folder is an
    error, and so are folders without images.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skslot.datasets import load_image_folder
    >>> with TemporaryDirectory() as root:
    ...     for name in ["photo/cat/1.jpg", "photo/dog/1.jpg", "sketch/cat/1.png"]:
    ...         image = Path(root, name)
    ...         image.parent.mkdir(parents=True, exist_ok=True)
    ...         image.touch()
    ...     images = load_image_folder(root)
    >>> images.target.tolist()
    ['cat', 'dog', 'cat']
    >>> images.client_ids.tolist()
    ['photo', 'photo', 'sketch']
    """
    root = Path(root)
    if root.is_dir():
        return _read_folder(root)
    if not root.exists():
        raise FileNotFoundError(
            f"{root} does not exist. Pass a folder with images as "
            f"<client>/<class>/<image>, or a CSV file with the columns "
            f"{', '.join(COLUMNS)}."
        )
    if root.suffix.lower() != ".csv":
        raise ValueError(f"{root} is neither a folder nor a .csv file.")
    return _read_csv(root)


class ImageRow(NamedTuple):
    """One image; its split is None if there are no splits."""

    path: str
    client: str
    label: str
    split: str | None = None


def image_bunch(rows, n_ignored=0):
    """Make the object that all loaders of images return."""
    paths, clients, labels, splits = map(np.array, zip(*rows, strict=True))
    return Bunch(
        paths=paths,
        target=labels,
        client_ids=clients,
        target_names=np.unique(labels),
        client_names=np.unique(clients).tolist(),
        n_ignored=n_ignored,
        **({} if rows[0].split is None else {"split": splits}),
    )


def list_folder(folder):
    """List the folders and images in a folder, and count what was ignored."""
    folders, images, n_ignored = [], [], 0
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith(".") or entry.name == "__MACOSX":
                n_ignored += 1
            elif entry.is_dir():
                folders.append(entry)
            elif os.path.splitext(entry.name)[1].lower() in IMAGE_EXTENSIONS:
                images.append(entry.path)
            else:
                n_ignored += 1
    return folders, images, n_ignored


def list_classes(folder, client, split=None, layout=LAYOUT):
    """List the images in ``folder/<class>``, and count what is ignored."""
    folders, images, n_ignored = list_folder(folder)
    if images:
        raise ValueError(
            f"{images[0]} is in no class folder. {layout}: move it into a folder that "
            "is named after its class."
        )
    if not folders:
        raise ValueError(f"{folder} has no class folders. {layout}.")
    found = []
    for class_folder in folders:
        inner, images, ignored = list_folder(class_folder)
        if inner:
            raise ValueError(
                f"{inner[0].path} is a folder where images are expected. {layout}: "
                "move what is in it one level up."
            )
        if not images:
            raise ValueError(
                f"{class_folder.path} holds no images. {layout}: delete the folder, or "
                f"put images into it ({' '.join(sorted(IMAGE_EXTENSIONS))})."
            )
        label = class_folder.name
        found += [ImageRow(path, client, label, split) for path in images]
        n_ignored += ignored
    return found, n_ignored


def _read_folder(root):
    folders, images, n_ignored = list_folder(root)
    if images or not folders:
        trouble = "holds images itself" if images else "has no folders"
        raise ValueError(
            f"{root} {trouble}. {LAYOUT}: it must hold one folder per client."
        )
    rows = []
    for folder in folders:
        found, ignored = list_classes(folder.path, folder.name)
        rows += found
        n_ignored += ignored
    return image_bunch(rows, n_ignored)


def _read_csv(file):
    try:
        with open(file, newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, skipinitialspace=True, strict=True)
            names = reader.fieldnames or []
            if not set(COLUMNS) <= set(names):
                raise ValueError(
                    f"{file} must begin with a header that names the columns "
                    f"{', '.join(COLUMNS)}, separated by commas; its first line is "
                    f"{','.join(names)!r}."
                )
            columns = [name for name in ImageRow._fields if name in names]
            rows = [
                _check_row(f"{file}, line {reader.line_num}", row, columns)
                for row in reader
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{file} cannot be read ({error}). Save it as CSV in UTF-8."
        ) from error
    if not rows:
        raise ValueError(f"{file} lists no images: there is nothing below its header.")
    rows = [row._replace(path=str(file.parent / row.path)) for row in rows]
    check_files_exist(
        [row.path for row in rows],
        f"listed in {file}",
        f"Paths are relative to {file.parent.absolute()}; correct them, or delete "
        "their lines",
    )
    return image_bunch(rows)


def _check_row(place, row, columns):
    if None in row:
        raise ValueError(
            f"{place} has more fields than the header. Put double quotes around "
            "fields with commas."
        )
    empty = [name for name in columns if not row[name]]
    if empty:
        raise ValueError(f"{place} has no {empty[0]}. Fill it in, or delete the line.")
    return ImageRow(*(row[name] for name in columns))


def check_files_exist(paths, origin, remedy):
    """Raise an error that names the first files that are missing, and counts them."""
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FileNotFoundError(
            f"{len(missing)} of {len(paths)} images {origin} do not exist: "
            f"{', '.join(missing[:3])}{more}. {remedy}."
        )
