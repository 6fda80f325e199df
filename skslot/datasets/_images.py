"""Paths, labels and clients of images, in folders, CSV files and benchmarks."""

import csv
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch, check_random_state

from .._sklearn_compat import validate_params

# A fixed list: what Pillow can open depends on how it was built, and the same folder
# must give the same rows everywhere.
IMAGE_EXTENSIONS = frozenset(
    ".bmp .gif .jfif .jp2 .jpeg .jpg .pbm .pgm .png .ppm .tga .tif .tiff .webp".split()
)
COLUMNS = ("path", "client", "label")
LAYOUT = "The layout is <client>/<class>/<image>"

SPLITS = ("train", "test")
DIGITS = {
    "MNIST": "http://yann.lecun.com/exdb/mnist/",
    "USPS": "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html",
    "SVHN": "http://ufldl.stanford.edu/housenumbers/",
    "Synth": "https://www.kaggle.com/datasets/prasunroy/synthetic-digits",
}
DIGITS_LAYOUT = "The layout is <domain>/<train or test>/<digit>/<image>"
OFFICE_HOME = ("Art", "Clipart", "Product", "Real World")
OFFICE_HOME_CLASSES = 65
OFFICE_HOME_PAGE = "https://www.hemanthdv.org/officeHomeDataset.html"
DOMAINNET = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
DOMAINNET_PAGE = "https://ai.bu.edu/M3SDA/"

ROOT = {"root": [str, os.PathLike]}


@validate_params(ROOT, prefer_skip_nested_validation=True)
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


def _image_bunch(rows, n_ignored=0):
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


def _list_folder(folder):
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


def _list_classes(folder, client, split=None, layout=LAYOUT):
    """List the images in ``folder/<class>``, and count what is ignored."""
    folders, images, n_ignored = _list_folder(folder)
    if images:
        raise ValueError(
            f"{images[0]} is in no class folder. {layout}: move it into a folder that "
            "is named after its class."
        )
    if not folders:
        raise ValueError(f"{folder} has no class folders. {layout}.")
    found = []
    for class_folder in folders:
        inner, images, ignored = _list_folder(class_folder)
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
    folders, images, n_ignored = _list_folder(root)
    if images or not folders:
        trouble = "holds images itself" if images else "has no folders"
        raise ValueError(
            f"{root} {trouble}. {LAYOUT}: it must hold one folder per client."
        )
    rows = []
    for folder in folders:
        found, ignored = _list_classes(folder.path, folder.name)
        rows += found
        n_ignored += ignored
    return _image_bunch(rows, n_ignored)


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
    _check_files_exist(
        [row.path for row in rows],
        f"listed in {file}",
        f"Paths are relative to {file.parent.absolute()}; correct them, or delete "
        "their lines",
    )
    return _image_bunch(rows)


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


def _check_files_exist(paths, origin, remedy):
    """Raise an error that names the first files that are missing, and counts them."""
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FileNotFoundError(
            f"{len(missing)} of {len(paths)} images {origin} do not exist: "
            f"{', '.join(missing[:3])}{more}. {remedy}."
        )


# ------------------------------------------------------ benchmarks of the paper


@validate_params(ROOT, prefer_skip_nested_validation=True)
def load_digits_benchmark(root):
    """List the images of the paper's Digits benchmark, with their official splits.

    The four domains are MNIST, USPS, SVHN and Synthetic Digits. As they are published
    in four different formats, they are expected as image files:
    ``<domain>/<split>/<digit>/<image>``, with the domains ``mnist``, ``usps``, ``svhn``
    and ``synth`` (upper or lower case), the splits ``train`` and ``test``, and the
    digits ``0`` to ``9``.

    Parameters
    ----------
    root : str or path-like
        The folder with the four domains.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        As :func:`load_image_folder` returns it, with the clients "MNIST", "USPS",
        "SVHN" and "Synth", the classes "0" to "9", and ``split``, "train" or "test"
        for each image.

    See Also
    --------
    load_office_home : The paper's second benchmark.
    load_domainnet : The paper's third benchmark.
    load_digit_scanners : Digits at four clients without a download.

    Notes
    -----
    The user guide shows how to write the images of MNIST, USPS and SVHN into such
    folders. Synthetic Digits are published as folders, in which ``imgs_train`` is the
    split ``train`` and ``imgs_valid`` is ``test``.

    Examples
    --------
    >>> from skslot.datasets import load_digits_benchmark
    >>> digits = load_digits_benchmark("no/such/folder")
    Traceback (most recent call last):
    FileNotFoundError: no/such/folder lacks mnist/train, mnist/test, usps/train, ...
    """
    domains = _folders_by_name(root)
    folders = {
        (domain, split): Path(domains.get(_fold(domain), Path(root, domain)), split)
        for domain in DIGITS
        for split in SPLITS
    }
    missing = [key for key, folder in folders.items() if not folder.is_dir()]
    if missing:
        names = ", ".join(f"{domain.lower()}/{split}" for domain, split in missing)
        pages = [f"{domain} from {DIGITS[domain]}" for domain in dict(missing)]
        raise FileNotFoundError(
            f"{root} lacks {names}. {DIGITS_LAYOUT}. Get {', '.join(pages)}."
        )
    rows, n_ignored = [], 0
    for (domain, split), folder in folders.items():
        found, ignored = _list_classes(folder, domain, split, DIGITS_LAYOUT)
        labels = sorted({row.label for row in found})
        if labels != list("0123456789"):
            raise ValueError(
                f"{folder} must hold the folders 0 to 9, but holds "
                f"{', '.join(labels)}. (The files of SVHN call the digit zero 10.)"
            )
        rows += found
        n_ignored += ignored
    return _image_bunch(rows, n_ignored)


@validate_params(
    ROOT | {"random_state": ["random_state"]}, prefer_skip_nested_validation=True
)
def load_office_home(root, *, random_state=0):
    """List the images of Office-Home, 70 % of each domain for training.

    Office-Home has no official split. As in the paper, each domain is split at random,
    70 % for training and 30 % for testing; here, the classes are split in these
    proportions as well.

    Parameters
    ----------
    root : str or path-like
        The folder that holds ``Art``, ``Clipart``, ``Product`` and ``Real World``,
        each with one folder per class. Case, spaces and underscores in these four
        names do not matter.
    random_state : int, RandomState instance or None, default=0
        Determines the split. Pass an int for the same split on every call.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        As :func:`load_image_folder` returns it, with the domains as clients, and
        ``split``, "train" or "test" for each image.

    See Also
    --------
    load_domainnet : A larger benchmark of the paper.
    load_image_folder : The same images without a split.

    Examples
    --------
    >>> from skslot.datasets import load_office_home
    >>> office = load_office_home("no/such/folder")
    Traceback (most recent call last):
    FileNotFoundError: no/such/folder lacks the folders Art, Clipart, Product, ...
    """
    folders = _folders_by_name(root)
    missing = [domain for domain in OFFICE_HOME if _fold(domain) not in folders]
    if missing:
        raise FileNotFoundError(
            f"{root} lacks the folders {', '.join(missing)}. Get Office-Home from "
            f"{OFFICE_HOME_PAGE}, unpack it, and pass the folder that holds "
            f"{', '.join(OFFICE_HOME)}."
        )
    rng = check_random_state(random_state)
    rows, n_ignored = [], 0
    for domain in OFFICE_HOME:
        images, ignored = _list_classes(folders[_fold(domain)], domain, "train")
        labels = [row.label for row in images]
        if len(set(labels)) != OFFICE_HOME_CLASSES:
            raise ValueError(
                f"{domain} has {len(set(labels))} classes where Office-Home has "
                f"{OFFICE_HOME_CLASSES}: it was not unpacked completely. For a part of "
                "Office-Home, use load_image_folder."
            )
        _, test = train_test_split(
            np.arange(len(labels)), test_size=0.3, stratify=labels, random_state=rng
        )
        for position in test:
            images[position] = images[position]._replace(split="test")
        rows += images
        n_ignored += ignored
    return _image_bunch(rows, n_ignored)


@validate_params(ROOT, prefer_skip_nested_validation=True)
def load_domainnet(root):
    """List the images of DomainNet, with their official splits.

    Parameters
    ----------
    root : str or path-like
        The folder that holds the six domains ``clipart``, ``infograph``,
        ``painting``, ``quickdraw``, ``real`` and ``sketch``, and their lists
        ``clipart_train.txt``, ``clipart_test.txt`` and so on.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        As :func:`load_image_folder` returns it, with the domains as clients, and
        ``split``, "train" or "test" for each image. Images are in the order of the
        lists; those in no list are left out.

    See Also
    --------
    load_office_home : A smaller benchmark of the paper.
    load_image_folder : All images, without a split.

    Notes
    -----
    There are two releases, "cleaned" and "original". Take images and lists from the
    same one; the home page recommends the first.

    Examples
    --------
    >>> from skslot.datasets import load_domainnet
    >>> images = load_domainnet("no/such/folder")
    Traceback (most recent call last):
    FileNotFoundError: no/such/folder lacks clipart_train.txt, clipart_test.txt, ...
    """
    root = Path(root)
    lists = {(d, s): root / f"{d}_{s}.txt" for d in DOMAINNET for s in SPLITS}
    missing = [file.name for file in lists.values() if not file.is_file()]
    missing += [f"the folder {d}" for d in DOMAINNET if not (root / d).is_dir()]
    if missing:
        raise FileNotFoundError(
            f"{root} lacks {', '.join(missing)}. Get the images and the lists from "
            f"{DOMAINNET_PAGE} and put them, unpacked, into one folder."
        )
    rows = []
    for (domain, split), file in lists.items():
        rows += _read_list(file, domain, split)
    _check_files_exist(
        [row.path for row in rows],
        f"in the lists of {root}",
        f"Unpack the domains there again, from {DOMAINNET_PAGE}",
    )
    return _image_bunch(rows)


def _folders_by_name(root):
    folders = _list_folder(root)[0] if os.path.isdir(root) else []
    return {_fold(folder.name): folder.path for folder in folders}


def _fold(name):
    return "".join(filter(str.isalnum, name.casefold()))


def _read_list(file, domain, split):
    """Read a list with lines such as ``clipart/zebra/clipart_345_001.jpg 344``."""
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        path, _, code = line.rpartition(" ")
        parts = path.split("/")
        if len(parts) != 3 or parts[0] != domain or not code.isdecimal():
            raise ValueError(
                f"{file}, line {number} is {line!r} and not of the form "
                f"'{domain}/<class>/<image> <number>'. Get the list again from "
                f"{DOMAINNET_PAGE}."
            )
        rows.append(ImageRow(str(file.parent / path), domain, parts[1], split))
    return rows
