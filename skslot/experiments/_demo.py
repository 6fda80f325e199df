"""The tour on embedded data that ``skslot demo`` prints."""

from dataclasses import dataclass

import numpy as np
from sklearn import config_context
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from ..alignment import FederatedOTAligner
from ..datasets import load_digit_scanners
from ..model_selection import ClassTable, class_table, dirichlet_label_shift

ALPHA = 0.1
MIN_SAMPLES = 20


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demo measured; prints as a short report.

    Parameters
    ----------
    clients : list of str
        The devices.
    taus : tuple of float
        Strengths that were tried.
    accuracy : ndarray of shape (n_partitions, n_clients, n_taus)
        Test accuracy.
    example : ClassTable
        Training rows of the first partition.
    message_bytes : int
        Size of what one client sends, in float32.

    See Also
    --------
    run_demo : Makes one.

    Examples
    --------
    >>> from skslot.experiments import run_demo
    >>> result = run_demo(n_partitions=1, taus=(0.0, 0.4))
    >>> result.accuracy.shape
    (1, 4, 2)
    """

    clients: list
    taus: tuple
    accuracy: np.ndarray
    example: ClassTable
    message_bytes: int

    def __str__(self):
        percent = 100 * self.accuracy
        by_client = percent.mean(axis=0)
        mean = percent.mean(axis=1)
        error = mean.std(axis=0, ddof=1) / np.sqrt(len(mean)) if len(mean) > 1 else None
        best = int(by_client.mean(axis=0).argmax())
        lines = [
            "Handwritten digits at four sites with different scanners. Labels are "
            "skewed too:",
            "training rows of each digit at each site, in the first of "
            f"{len(percent)} partitions ('.' = none):",
            "",
            str(self.example),
            "",
            "Test accuracy (%) at each site, where all digits occur equally often, of "
            "one",
            "linear discriminant trained on the features of all sites, aligned with "
            "strength tau:",
            "",
            f"{'site':<12}" + "".join(f"{f'tau={tau:g}':>9}" for tau in self.taus),
        ]
        for client, row in zip(self.clients, by_client, strict=True):
            lines.append(f"{client:<12}" + "".join(f"{value:>9.1f}" for value in row))
        lines.append(
            f"{'mean':<12}" + "".join(f"{v:>9.1f}" for v in by_client.mean(axis=0))
        )
        if error is not None:
            lines.append(f"{'+/- s.e.':<12}" + "".join(f"{v:>9.1f}" for v in error))
        lines += ["", self._meaning(by_client.mean(axis=0), best)]
        return "\n".join(lines)

    def _meaning(self, mean, best):
        return (
            f"Without alignment (tau=0) the classifier is right in {mean[0]:.1f} % of "
            f"cases, at tau={self.taus[best]:g} in {mean[best]:.1f} %:\n"
            "a class that a site never saw is now recognised there, because the sites' "
            "features were\nmoved towards a common reference. Full alignment "
            f"(tau=1) gives {mean[-1]:.1f} %: it also removes differences\nthat come "
            "from the labels. Each site sent one message of "
            f"{self.message_bytes / 1000:.1f} kB and no image."
        )


def run_demo(n_partitions=10, taus=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0), progress=None):
    """Show what alignment does on the embedded data set.

    Parameters
    ----------
    n_partitions : int, default=10
        How many label-skewed partitions to average over.
    taus : tuple of float, default=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
        Alignment strengths to compare, from the weakest to the strongest.
    progress : callable, default=None
        Called with (partitions done, partitions in all).

    Returns
    -------
    result : DemoResult
        Prints as a short report.

    See Also
    --------
    skslot.datasets.load_digit_scanners : The data.

    Examples
    --------
    >>> from skslot.experiments import run_demo
    >>> result = run_demo(n_partitions=2, taus=(0.0, 0.4))
    >>> plain, aligned = result.accuracy.mean(axis=(0, 1))
    >>> bool(aligned > plain)
    True
    """
    data = load_digit_scanners()
    accuracy, example, aligner = [], None, None
    for seed in range(n_partitions):
        train, test = _skewed_split(data, seed)
        if example is None:
            example = class_table(data.target[train], data.client_ids[train])
            aligner = FederatedOTAligner().fit(
                data.data[train], client_ids=data.client_ids[train]
            )
        columns = [_accuracy_by_client(data, train, test, tau) for tau in taus]
        accuracy.append(np.column_stack(columns))
        if progress is not None:
            progress(seed + 1, n_partitions)
    message = aligner.statistics_[0]
    numbers = message.mean.size + message.covariance_triangle.size + 2
    return DemoResult(
        aligner.clients_.tolist(), tuple(taus), np.array(accuracy), example, 4 * numbers
    )


def _skewed_split(data, seed):
    """Half of each (client, class) cell for testing, the rest skewed for training."""
    cells = np.char.add(data.client_ids, data.target.astype(str))
    train, test = train_test_split(
        np.arange(len(cells)), test_size=0.5, stratify=cells, random_state=seed
    )
    kept = dirichlet_label_shift(
        data.target[train],
        data.client_ids[train],
        ALPHA,
        min_samples=MIN_SAMPLES,
        random_state=seed,
    )
    return train[kept], test


def _accuracy_by_client(data, train, test, tau):
    X, y, ids = data.data, data.target, data.client_ids
    pipeline = make_pipeline(
        FederatedOTAligner(tau=tau),
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    )
    with config_context(enable_metadata_routing=True):
        pipeline.fit(X[train], y[train], client_ids=ids[train])
        right = pipeline.predict(X[test], client_ids=ids[test]) == y[test]
    return [right[ids[test] == client].mean() for client in np.unique(ids)]
