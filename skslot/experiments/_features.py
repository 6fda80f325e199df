"""Features of several clients, from a file or embedded."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.kernel_approximation import RBFSampler

from ..datasets import load_digit_scanners
from ..model_selection import split_clients
from ._files import read_file
from ._protocol import paper_split


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Features of several clients that an experiment runs on.

    Parameters
    ----------
    name : str
        What to call it, such as the name of its file.
    X : ndarray of shape (n_samples, n_features)
        Features.
    y : ndarray of shape (n_samples,) or None
        Labels; every experiment needs them.
    client_ids : ndarray of shape (n_samples,)
        Client of each row.
    split : ndarray of shape (n_samples,), default=None
        "train" or "test", for data sets that have an official split; by default
        partitions are split at random.
    test_size : float, default=0.3
        Share of the rows for testing, where there is no official split.
    min_samples : int, default=10
        Fewest training rows of a client.
    dataset : str, default=None
        Name of the data set; the paper's rows are printed beside those of
        "Office-Home", "Digits" and "DomainNet".

    See Also
    --------
    run_experiment : Runs on one.

    Examples
    --------
    >>> from skslot.experiments import FeatureSet
    >>> FeatureSet.embedded().X.shape
    (1797, 64)
    """

    name: str
    X: np.ndarray
    y: np.ndarray | None
    client_ids: np.ndarray
    split: np.ndarray | None = None
    test_size: float = 0.3
    min_samples: int = 10
    dataset: str | None = None

    @classmethod
    def embedded(cls):
        """The digits at four scanners, which need no file.

        Returns
        -------
        data : FeatureSet
            The features are 64 pixels.
        """
        data = load_digit_scanners()
        return cls(
            "digit scanners",
            data.data,
            data.target,
            data.client_ids,
            test_size=0.5,
            min_samples=20,
        )

    @classmethod
    def embedded_backbones(cls):
        """The embedded digits as several fixed encoders see them.

        Returns
        -------
        data : list of FeatureSet
            Pixels, gradients of the image, and random features of an RBF kernel.
        """
        digits = cls.embedded()
        images = digits.X.reshape(-1, 8, 8)
        gradients = np.concatenate(np.gradient(images, axis=(1, 2)), axis=2)
        sampler = RBFSampler(gamma=0.5 / digits.X.var(axis=0).sum(), n_components=128)
        encoders = {
            "pixels": digits.X,
            "gradients": gradients.reshape(len(images), -1),
            "random features": sampler.set_params(random_state=0).fit_transform(
                digits.X
            ),
        }
        return [
            replace(digits, name=f"{digits.name}, {name}", X=X)
            for name, X in encoders.items()
        ]

    @classmethod
    def from_file(cls, path):
        """Read a file such as ``skslot encode`` writes.

        Parameters
        ----------
        path : str or path-like
            An ``.npz`` file with ``X`` and either ``client``, the client of each row,
            or ``domain``, an index into ``domains``. It may also hold the labels ``y``,
            ``split`` and ``dataset``.

        Returns
        -------
        data : FeatureSet
            The name is that of the file, without its ending.
        """
        path = Path(path)
        return cls(path.stem, **read_file(path))

    @property
    def clients(self):
        """Names of the clients."""
        return np.unique(self.client_ids).tolist()

    def fingerprint(self):
        """Tell this data from other data of the same name.

        Returns
        -------
        fingerprint : str
            Sixteen hexadecimal digits that depend on all arrays and on how partitions
            are made.
        """
        digest = hashlib.sha256(str((self.test_size, self.min_samples)).encode())
        for array in (self.X, self.y, self.client_ids, self.split):
            if array is not None:
                # objects are told apart by what they say, not by where they are
                array = array.astype(str) if array.dtype.hasobject else array
                digest.update(str((array.dtype, array.shape)).encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def select(self, rows):
        """Keep some of the rows.

        Parameters
        ----------
        rows : ndarray
            Positions of rows, or a mask.

        Returns
        -------
        data : FeatureSet
            These rows.
        """
        names = ("X", "y", "client_ids", "split")
        arrays = {name: getattr(self, name) for name in names}
        parts = {n: None if a is None else a[rows] for n, a in arrays.items()}
        return replace(self, **parts)

    def training_rows(self):
        """Keep what may be learned from.

        Returns
        -------
        data : FeatureSet
            The training rows of an official split; all rows without one.
        """
        if self.split is None:
            return self
        rows = self.split == "train"
        if not rows.any():
            raise ValueError(f"{self.name} has no training rows: its split has none.")
        return self.select(rows)

    def with_finer_clients(self, n_parts):
        """Split every client into several.

        Parameters
        ----------
        n_parts : int
            Clients to make of each.

        Returns
        -------
        data : FeatureSet
            The same rows, at ``n_parts`` times as many clients; ``min_samples`` is
            smaller by the square of it.
        """
        if n_parts == 1:
            return self
        ids = split_clients(self.client_ids, n_parts, y=self.y, random_state=0)
        # each has a part of the rows, and there are more to share a class with
        fewest = max(2, self.min_samples // n_parts**2)
        return replace(self, client_ids=ids, min_samples=fewest)

    def partition(self, alpha, number):
        """Training and test rows of one partition.

        Parameters
        ----------
        alpha : float or None
            Concentration of the label shift; None for no label shift.
        number : int
            Number of the partition.

        Returns
        -------
        train : ndarray
            Positions of the training rows.
        test : ndarray
            Positions of the test rows.
        """
        require_labels(self)
        return paper_split(
            self.y,
            self.client_ids,
            alpha,
            split=self.split,
            test_size=self.test_size,
            min_samples=self.min_samples,
            random_state=number,
        )


def check_same_rows(data):
    """Refuse features that are not of the same samples: encoders cannot be compared."""
    first, *others = data
    for other in others:
        for name in ("client_ids", "y", "split"):
            if not np.array_equal(getattr(first, name), getattr(other, name)):
                raise ValueError(
                    f"{first.name} and {other.name} are not features of the same "
                    f"images in the same order: they differ in {name}. Encode one "
                    "folder with each encoder."
                )


def require_labels(data):
    """Refuse features without labels."""
    if data.y is None:
        raise ValueError(
            f"{data.name} has no labels, which every experiment needs: add them as an "
            "array y. (skslot report does without.)"
        )
