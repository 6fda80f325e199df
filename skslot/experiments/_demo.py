"""The tour on embedded data that ``skslot demo`` prints."""

from dataclasses import dataclass
from importlib.util import find_spec
from textwrap import fill

import numpy as np
from sklearn import config_context

from ..alignment import FederatedOTAligner
from ..classifiers import FedAvgClassifier, FedCGSClassifier, FedPFTClassifier
from ..model_selection import ClassTable, FederatedGridSearchCV, class_table
from ._features import FeatureSet

ALPHA = 0.1
TAU = FederatedOTAligner().tau


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demo measured; prints as a short report.

    Parameters
    ----------
    clients : list of str
        The sites.
    methods : list of str
        The classifiers; FedAvg is among them where torch is installed.
    accuracy : ndarray of shape (n_partitions, n_methods, 2, n_clients)
        Test accuracy without alignment and with the default ``tau``.
    sent : ndarray of shape (n_partitions, n_methods, 2, n_clients)
        Bytes from the site to the server.
    example : ClassTable
        Training rows of the first partition.
    search : FederatedGridSearchCV
        Search for ``tau`` on these rows.

    See Also
    --------
    run_demo : Makes one.

    Examples
    --------
    >>> from skslot.experiments import run_demo
    >>> result = run_demo(n_partitions=1, taus=(0.0, 0.4))
    >>> result.clients
    ['fax', 'flatbed', 'microfilm', 'phone']
    >>> result.search.best_tau_
    0.4
    """

    clients: list
    methods: list
    accuracy: np.ndarray
    sent: np.ndarray
    example: ClassTable
    search: FederatedGridSearchCV

    def __str__(self):
        return "\n".join(
            [
                "Handwritten digits at four sites with different scanners. Labels are "
                "skewed too:",
                "training rows of each digit at each site, in the first of "
                f"{len(self.accuracy)} partitions ('.' = none):",
                "",
                str(self.example),
                "",
                "Test accuracy (%) at each site, where all digits occur equally often, "
                "without",
                f"alignment (tau=0) and with it (tau={TAU:g}, the default), and what a "
                "site sent:",
                "",
                *self._accuracy_table(),
                "",
                "How to choose tau: FederatedGridSearchCV, here with FedCGS on the "
                "training rows of the",
                "first partition. Some folds test on digits that a site did not train "
                "on:",
                "",
                *self._search_table(),
                "",
                fill(self._meaning(), width=88),
            ]
        )

    def plot(self):
        """Draw the training features of the first partition, before and after.

        Returns
        -------
        display : AlignmentDisplay
            The features in two dimensions, coloured by site and by digit.
        """
        from ..inspection import AlignmentDisplay

        data = FeatureSet.embedded()
        rows, _ = data.partition(ALPHA, 0)
        X, y, ids = data.X[rows], data.y[rows], data.client_ids[rows]
        aligner = FederatedOTAligner().fit(X, client_ids=ids)
        return AlignmentDisplay.from_estimator(aligner, X, y, ids)

    def _accuracy_table(self):
        columns = [*self.clients, "mean", "s.e.", "kB sent"]
        lines = [" " * 18 + "".join(f"{name:>10}" for name in columns)]
        percent, kilobytes = 100 * self.accuracy, self.sent / 1000
        for row, method in enumerate(self.methods):
            for column, tau in enumerate((0.0, TAU)):
                by_client = percent[:, row, column]
                numbers = [*by_client.mean(axis=0), by_client.mean()]
                text = "".join(f"{number:>10.1f}" for number in numbers)
                text += _standard_error(by_client.mean(axis=1))
                text += f"{kilobytes[:, row, column].mean():>10.1f}"
                lines.append(f"{method:<10}{f'tau={tau:g}':<8}{text}")
        if "O-FedAvg" not in self.methods:
            lines += ["", 'FedAvg is left out: it needs pip install "skslot[torch]".']
        return lines

    def _search_table(self):
        results = self.search.cv_results_
        taus = [params["aligner__tau"] for params in results["params"]]
        scores = results["mean_test_score"]
        return [
            "tau       " + "".join(f"{tau:>8g}" for tau in taus),
            "score     "
            + "".join(f"{score:>8.3f}" for score in scores)
            + f"   chosen: {self.search.best_tau_:g}",
        ]

    def _meaning(self):
        percent = 100 * self.accuracy.mean(axis=0)
        gains = percent[:, 1] - percent[:, 0]
        by_method = ", ".join(
            f"{gain:+.1f} with {method}"
            for method, gain in zip(self.methods, gains.mean(axis=1), strict=True)
        )
        site = gains.mean(axis=0).argmax()
        before, after = percent[0, :, site]
        return (
            f"What to see: alignment changes the mean accuracy by {by_method}, in "
            f"points, and most at {self.clients[site]} ({self.methods[0]}: "
            f"{before:.1f} to {after:.1f} %). Test rows have digits that a site never "
            "had in training; it knows them from other sites, whose features look like "
            "its own once all are moved towards a common reference. No image left a "
            "site. With FedCGS and FedPFT one message from each serves alignment and "
            "classifier."
        )


def run_demo(n_partitions=5, taus=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0), progress=None):
    """Show what alignment does on the embedded data set.

    Parameters
    ----------
    n_partitions : int, default=5
        How many label-skewed partitions to average over.
    taus : tuple of float, default=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
        Alignment strengths to search, on the first partition.
    progress : callable, default=None
        Called with (steps done, steps in all); a step is the search or a partition.

    Returns
    -------
    result : DemoResult
        Prints as a short report.

    See Also
    --------
    run_experiment : The paper's experiments, on these data or your own.
    skslot.datasets.load_digit_scanners : The data.

    Examples
    --------
    >>> from skslot.experiments import run_demo
    >>> result = run_demo(n_partitions=2, taus=(0.0, 0.4))
    >>> plain, aligned = result.accuracy.mean(axis=(0, 1, 3))
    >>> bool(aligned > plain)
    True
    """
    data = FeatureSet.embedded()
    train, _ = data.partition(ALPHA, 0)
    example = class_table(data.y[train], data.client_ids[train])
    search = _search(data, train, taus)
    measured = []
    for number in range(n_partitions):
        if progress is not None:
            progress(number + 1, n_partitions + 1)
        train, test = data.partition(ALPHA, number)
        measured.append(
            [
                [_run(classifier, tau, data, train, test) for tau in (0.0, TAU)]
                for classifier in _methods().values()
            ]
        )
    if progress is not None:
        progress(n_partitions + 1, n_partitions + 1)
    accuracy, sent = np.moveaxis(np.array(measured), 3, 0)
    return DemoResult(data.clients, [*_methods()], accuracy, sent, example, search)


def _methods():
    methods = {
        "FedCGS": FedCGSClassifier(wire_dtype="float32"),
        "FedPFT": FedPFTClassifier(random_state=0),
    }
    if find_spec("torch") and find_spec("skorch"):
        methods["O-FedAvg"] = FedAvgClassifier(random_state=0)
    return methods


def _search(data, train, taus):
    search = FederatedGridSearchCV(
        FedCGSClassifier(aligner=FederatedOTAligner()), {"aligner__tau": list(taus)}
    )
    with config_context(enable_metadata_routing=True):
        return search.fit(
            data.X[train], data.y[train], client_ids=data.client_ids[train]
        )


def _run(classifier, tau, data, train, test):
    """Accuracy at each client, and the bytes that it sent."""
    X, y, ids = data.X, data.y, data.client_ids
    statistics = np.zeros(len(data.clients))
    if tau and "aligner" in classifier.get_params():
        classifier.set_params(aligner=FederatedOTAligner(tau))
    elif tau:  # the statistics are a message of their own
        aligner = FederatedOTAligner(tau).fit(X[train], client_ids=ids[train])
        X = aligner.transform(X, client_ids=ids)
        statistics += [message.nbytes for message in aligner.statistics_]
    classifier.fit(X[train], y[train], client_ids=ids[train])
    right = classifier.predict(X[test], client_ids=ids[test]) == y[test]
    accuracy = [right[ids[test] == client].mean() for client in data.clients]
    sent = [classifier.communication_[client].up for client in data.clients]
    return accuracy, statistics + sent


def _standard_error(values):
    """Ten characters for the standard error of a mean; a dash for that of one value."""
    if len(values) == 1:
        return f"{'-':>10}"
    return f"{values.std(ddof=1) / np.sqrt(len(values)):>10.1f}"
