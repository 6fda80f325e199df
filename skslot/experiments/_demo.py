"""The tour on embedded data that ``skslot demo`` prints."""

from dataclasses import dataclass
from textwrap import fill

import numpy as np

from ..alignment import FederatedOTAligner
from ..classifiers import Communication, FedCGSClassifier
from ..datasets import load_digit_scanners
from ..model_selection import ClassTable, class_table
from ._protocol import paper_split

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
    communication : Communication
        Bytes that one client sent and received.

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
    communication: Communication

    def __str__(self):
        percent = 100 * self.accuracy
        by_client = percent.mean(axis=0)
        mean = percent.mean(axis=1)
        error = mean.std(axis=0, ddof=1) / np.sqrt(len(mean)) if len(mean) > 1 else None
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
            "FedCGS classifier made from one message per site, aligned with strength "
            "tau:",
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
        lines += ["", self._meaning(by_client.mean(axis=0))]
        return "\n".join(lines)

    def _meaning(self, mean):
        accuracy = dict(zip(self.taus, mean, strict=True))
        default = FederatedOTAligner().tau
        text = ""
        if 0.0 in accuracy:
            text += (
                f"Without alignment {accuracy[0.0]:.1f} % of digits are recognised. "
            )
        if default in accuracy:
            text += (
                f"At the default tau={default:g} it is {accuracy[default]:.1f} %: a "
                "digit that a site never had in training is now recognised there, "
                "because the features of all sites were moved towards a common "
                "reference. "
            )
        if 1.0 in accuracy:
            text += (
                f"At tau=1 it is {accuracy[1.0]:.1f} %: full alignment also removes "
                "differences that come from the labels. "
            )
        text += (
            f"Each site sent one message of {self.communication.up / 1000:.1f} kB and "
            "no image."
        )
        return fill(text, width=88)


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
    accuracy, example = [], None
    for seed in range(n_partitions):
        train, test = paper_split(
            data.target,
            data.client_ids,
            ALPHA,
            test_size=0.5,
            min_samples=MIN_SAMPLES,
            random_state=seed,
        )
        if example is None:
            example = class_table(data.target[train], data.client_ids[train])
        classifiers = [_fit(data, train, tau) for tau in taus]
        columns = [_accuracy_by_client(c, data, test) for c in classifiers]
        accuracy.append(np.column_stack(columns))
        if progress is not None:
            progress(seed + 1, n_partitions)
    clients = example.clients.tolist()
    communication = classifiers[0].communication_[clients[0]]
    return DemoResult(clients, tuple(taus), np.array(accuracy), example, communication)


def _fit(data, train, tau):
    classifier = FedCGSClassifier(
        "within", aligner=FederatedOTAligner(tau=tau), wire_dtype="float32"
    )
    return classifier.fit(
        data.data[train], data.target[train], client_ids=data.client_ids[train]
    )


def _accuracy_by_client(classifier, data, test):
    y, ids = data.target[test], data.client_ids[test]
    right = classifier.predict(data.data[test], client_ids=ids) == y
    return [right[ids == client].mean() for client in np.unique(ids)]
