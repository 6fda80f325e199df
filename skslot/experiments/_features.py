"""Features of several clients, from a file or embedded."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.kernel_approximation import RBFSampler

from ..datasets import load_digit_scanners
from ..model_selection import split_clients
from ._protocol import load_features, paper_split


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Features of several clients that an experiment runs on.

    Parameters
    ----------
    name : str
        Name of the data set; one of the paper's names has the paper's rows printed.
    X : ndarray of shape (n_samples, n_features)
        Features.
    y : ndarray of shape (n_samples,)
        Labels.
    client_ids : ndarray of shape (n_samples,)
        Client of each row.
    split : ndarray of shape (n_samples,), default=None
        "train" or "test", for data sets that have an official split; by default
        partitions are split at random.
    test_size : float, default=0.3
        Share of the rows for testing, where there is no official split.
    min_samples : int, default=10
        Fewest training rows of a client.

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
    y: np.ndarray
    client_ids: np.ndarray
    split: np.ndarray | None = None
    test_size: float = 0.3
    min_samples: int = 10

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
            An ``.npz`` file as :func:`load_features` reads; it may also hold ``split``
            and ``dataset``.

        Returns
        -------
        data : FeatureSet
            Its name is ``dataset`` if the file has it, else that of the file.
        """
        features = load_features(path)
        with np.load(path, allow_pickle=False) as file:
            name = str(file["dataset"]) if "dataset" in file else Path(path).stem
            split = file["split"] if "split" in file else None
        return cls(name, *features, split)

    @property
    def clients(self):
        """Names of the clients."""
        return np.unique(self.client_ids).tolist()

    def fingerprint(self):
        """Tell this data from other data of the same name.

        Returns
        -------
        fingerprint : str
            Sixteen hexadecimal digits that depend on all arrays.
        """
        digest = hashlib.sha256()
        for array in (self.X, self.y, self.client_ids, self.split):
            if array is not None:
                digest.update(str((array.dtype, array.shape)).encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def with_finer_clients(self, n_parts):
        """Split every client into several.

        Parameters
        ----------
        n_parts : int
            Clients to make of each.

        Returns
        -------
        data : FeatureSet
            The same rows; clients may become as much smaller as there are more.
        """
        if n_parts == 1:
            return self
        ids = split_clients(self.client_ids, n_parts, y=self.y, random_state=0)
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
        return paper_split(
            self.y,
            self.client_ids,
            alpha,
            split=self.split,
            test_size=self.test_size,
            min_samples=self.min_samples,
            random_state=number,
        )
