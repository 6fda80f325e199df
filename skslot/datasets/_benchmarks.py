"""The benchmarks of the paper, from the folders that people have of them."""

import os
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from .._sklearn_compat import validate_params
from ._image_folder import (
    ImageRow,
    check_files_exist,
    image_bunch,
    list_classes,
    list_folder,
)

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
        found, ignored = list_classes(folder, domain, split, DIGITS_LAYOUT)
        labels = sorted({row.label for row in found})
        if labels != list("0123456789"):
            raise ValueError(
                f"{folder} must hold the folders 0 to 9, but holds "
                f"{', '.join(labels)}. (The files of SVHN call the digit zero 10.)"
            )
        rows += found
        n_ignored += ignored
    return image_bunch(rows, n_ignored)


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
        images, ignored = list_classes(folders[_fold(domain)], domain, "train")
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
    return image_bunch(rows, n_ignored)


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
    check_files_exist(
        [row.path for row in rows],
        f"in the lists of {root}",
        f"Unpack the domains there again, from {DOMAINNET_PAGE}",
    )
    return image_bunch(rows)


def _folders_by_name(root):
    folders = list_folder(root)[0] if os.path.isdir(root) else []
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
