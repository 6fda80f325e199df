"""Features of several clients, from a file or embedded."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from sklearn.kernel_approximation import RBFSampler

from .._utils import ignored
from ..alignment import AlignmentWarning, FederatedOTAligner
from ..datasets import (
    ClientSamples,
    StudyPlan,
    load_digit_scanners,
    load_features,
)
from ..model_selection import paper_split, split_clients

PCA_ALPHA = 0.1
PCA_TAUS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSet(ClientSamples):
    """Features of several clients that an experiment runs on.

    Parameters
    ----------
    name : str
        Name of the data, such as the name of its file.
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
        Fraction of the rows for testing, if there is no official split.
    min_samples : int, default=10
        Minimum number of training rows of a client.
    dataset : str, default=None
        Name of the data set. Results for "Office-Home", "Digits" and "DomainNet" are
        printed with the rows of the paper.

    See Also
    --------
    run_experiment : Runs on one.

    Examples
    --------
    >>> from skslot.experiments import FeatureSet
    >>> FeatureSet.embedded()
    FeatureSet('digit scanners', n_samples=1797, n_features=64, n_clients=4, ...)
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
        """Load the digits at four scanners, which need no file.

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
        """Load the embedded digits as several fixed encoders see them.

        Returns
        -------
        data : list of FeatureSet
            Pixels, gradients of the image, and random features of an RBF kernel.
        """
        digits = cls.embedded()
        images = digits.X.reshape(-1, 8, 8)
        gradients = np.concatenate(np.gradient(images, axis=(1, 2)), axis=2)
        gamma = 0.5 / digits.X.var(axis=0).sum()
        sampler = RBFSampler(gamma=gamma, n_components=128, random_state=0)
        encoders = {
            "pixels": digits.X,
            "gradients": gradients.reshape(len(images), -1),
            "random features": sampler.fit_transform(digits.X),
        }
        return [
            replace(digits, name=f"{digits.name}, {name}", X=X)
            for name, X in encoders.items()
        ]

    @classmethod
    def from_file(cls, path, *, plan=None, **columns):
        """Read a file such as ``skslot encode`` writes, or a table.

        Parameters
        ----------
        path : str or path-like
            Any file that :func:`skslot.datasets.load_features` reads, with the client
            of each row.
        plan : StudyPlan, str or path-like, default=None
            Plan that computes features from the columns of a table, or its file. See
            :meth:`skslot.datasets.StudyPlan.load_sites`.
        **columns : dict
            Other parameters: ``labels``, ``labels_file``, ``ignore``, ``id_column``,
            ``client_column`` and ``features``.

        Returns
        -------
        data : FeatureSet
            Features named after the file, without its ending. Rows for validation are
            excluded, since experiments do not use them.
        """
        if plan is None:
            table = load_features(path, **columns)
        else:
            by_file = not isinstance(plan, StudyPlan)
            plan = StudyPlan.load(plan) if by_file else plan
            table = plan.load_sites(path, **columns)
        if table.client_ids is None:
            raise ValueError(
                f"{path} must say whose each row is: by client, another column that "
                "client_column or --client-column names, or in an .npz file by domain "
                f"and domains; beside the features it has: "
                f"{', '.join(table.per_row()) or 'nothing'}."
            )
        if table.split is not None:
            table.training_rows()  # refuses a split without them
            table = table.select(table.split != "validation")
        return cls(
            table.path.stem,
            table.X.astype(np.float64),
            table.y,
            table.client_ids,
            table.split,
            dataset=table.dataset,
        )

    @property
    def clients(self):
        """Names of the clients."""
        return np.unique(self.client_ids).tolist()

    def fingerprint(self):
        """Compute a short text by which data of one name differ.

        Returns
        -------
        fingerprint : str
            Sixteen hexadecimal digits that depend on all arrays and on how partitions
            are made.
        """
        digest = hashlib.sha256(str((self.test_size, self.min_samples)).encode())
        for array in (self.X, self.y, self.client_ids, self.split):
            if array is not None:
                # objects differ by their text, not by where they are in memory
                array = array.astype(str) if array.dtype.hasobject else array
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
        """Split rows into those for training and for testing, as the paper does.

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
        self._require_labels()
        return paper_split(
            self.y,
            self.client_ids,
            alpha,
            split=self.split,
            test_size=self.test_size,
            min_samples=self.min_samples,
            random_state=number,
        )

    def check_same_rows(self, other):
        """Refuse features of other samples, with which encoders cannot be compared.

        Parameters
        ----------
        other : FeatureSet
            What should be features of the same samples in the same order.
        """
        for name in ("client_ids", "y", "split"):
            if not np.array_equal(getattr(self, name), getattr(other, name)):
                raise ValueError(
                    f"{self.name} and {other.name} are not features of the same "
                    f"images in the same order: they differ in {name}. Encode one "
                    "folder with each encoder."
                )

    def pca_figures(self):
        """Draw the two figures of the paper's appendix.

        They show the features in two dimensions, for several strengths of the
        alignment. The paper draws half of the classes and does not specify the rows.
        These are the first half of the classes, and the training rows of the first
        partition with alpha = 0.1: what the reference is made of and a classifier is
        trained on. :class:`skslot.inspection.AlignmentDisplay` draws other rows.

        Returns
        -------
        figures : dict of str to matplotlib Figure
            One coloured by "client", one by "class".
        """
        self._require_labels()
        classes = np.unique(self.y)
        half = self.select(np.isin(self.y, classes[: max(2, len(classes) // 2)]))
        display = draw_alignment(half, PCA_ALPHA, taus=PCA_TAUS, color_by="client")
        by_client = display.figure_
        return {"client": by_client, "class": display.plot(color_by="class").figure_}

    def _require_labels(self):
        if self.y is None:
            raise ValueError(
                f"{self.name} has no labels, which every experiment needs: add them as "
                "y, or name them by labels. (skslot report does without.)"
            )


def draw_alignment(data, alpha, **options):
    """Draw the training rows of the first partition, as ``AlignmentDisplay`` does."""
    from ..inspection import AlignmentDisplay

    rows = data.select(data.partition(alpha, 0)[0])
    with ignored(AlignmentWarning):
        aligner = FederatedOTAligner().fit(rows.X, client_ids=rows.client_ids)
    return AlignmentDisplay.from_estimator(
        aligner, rows.X, rows.y, rows.client_ids, **options
    )
