"""The tour on embedded data that ``skslot demo`` prints."""

from dataclasses import dataclass
from textwrap import fill

import numpy as np
from sklearn import config_context

from .._methods import METHODS, make_classifier
from .._utils import LEFT_OUT, can_train_nets, text_table
from ..alignment import FederatedOTAligner
from ..model_selection import FederatedGridSearchCV, class_table
from ._feature_set import FeatureSet, draw_alignment
from ._measures import measure
from ._results import standard_error

ALPHA = 0.1
TAU = FederatedOTAligner().tau
REPORT = """\
Handwritten digits at four sites with different scanners. Labels are skewed too:
training rows of each digit at each site, in the first of {n_partitions} partitions \
('.' = none):

{example}

Test accuracy (%) at each site, where all digits occur equally often, and what a site
sent: mixed effects, which we recommend to begin with and which take their strength from
the message of FedCGS; then others without alignment (tau=0) and with it (tau={tau:g}):

{accuracy}

How to choose tau: FederatedGridSearchCV, here with FedCGS on the training rows of the
first partition. Some folds test on digits that a site did not train on:

{search}

{meaning}"""


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demo measured, described in :func:`run_demo`; prints as a report."""

    clients: list
    methods: list
    accuracy: np.ndarray
    sent: np.ndarray
    mixed_accuracy: np.ndarray
    mixed_sent: np.ndarray
    example: object
    search: FederatedGridSearchCV

    def __str__(self):
        return REPORT.format(
            n_partitions=len(self.accuracy),
            example=self.example,
            tau=TAU,
            accuracy=self._accuracy_table(),
            search=self._search_table(),
            meaning=fill(self._meaning(), width=88),
        )

    def plot(self):
        """Draw the training features of the first partition, by site and by digit."""
        return draw_alignment(FeatureSet.embedded(), ALPHA)

    def _accuracy_table(self):
        rows = [["", "", *self.clients, "mean", "s.e.", "kB sent"]]
        measured = self.mixed_accuracy, self.mixed_sent
        rows.append(["mixed effects", "", *_cells(*measured)])
        for row, method in enumerate(self.methods):
            for column, tau in enumerate((0.0, TAU)):
                measured = self.accuracy[:, row, column], self.sent[:, row, column]
                rows.append([method, f"tau={tau:g}", *_cells(*measured)])
        text = text_table(rows, "llr")
        if "O-FedAvg" not in self.methods:
            text += f"\n\n{LEFT_OUT.format('FedAvg')}"
        return text

    def _search_table(self):
        results = self.search.cv_results_
        taus = [params["aligner__tau"] for params in results["params"]]
        scores = [f"{score:.3f}" for score in results["mean_test_score"]]
        chosen = f"chosen: {self.search.best_tau_:g}"
        return text_table(
            [["tau", *(f"{tau:g}" for tau in taus)], ["score", *scores, chosen]]
        )

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
            f"classifier. Mixed effects reach {100 * self.mixed_accuracy.mean():.1f} % "
            "from the message of FedCGS, and there is no tau to choose: they tell what "
            "a scanner does to an image from which digits the site has."
        )


def _cells(accuracy, sent):
    """Texts of a row: percent at each site, their mean and its error, and kB sent."""
    percent = 100 * accuracy
    error = standard_error(percent.mean(axis=1))
    numbers = [*percent.mean(axis=0), percent.mean(), error, sent.mean() / 1000]
    return ["-" if number is None else f"{number:.1f}" for number in numbers]


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
        Prints as a short report; ``plot()`` draws the training features of the first
        partition, before and after alignment. It has these attributes:

        clients : list of str
            The sites.
        methods : list of str
            The classifiers; FedAvg is among them where torch is installed.
        accuracy : ndarray of shape (n_partitions, n_methods, 2, n_clients)
            Test accuracy without alignment and with the default ``tau``.
        sent : ndarray of shape (n_partitions, n_methods, 2, n_clients)
            Bytes from the site to the server.
        mixed_accuracy, mixed_sent : ndarray of shape (n_partitions, n_clients)
            The same for mixed effects, which need no aligner.
        example : ClassTable
            Training rows of the first partition, as
            :func:`~skslot.model_selection.class_table` counts them.
        search : FederatedGridSearchCV
            Search for ``tau`` on these rows.

    See Also
    --------
    run_experiment : The paper's experiments, on these data or your own.
    skslot.datasets.load_digit_scanners : The data.

    Examples
    --------
    >>> from skslot.experiments import run_demo
    >>> result = run_demo(n_partitions=2, taus=(0.0, 0.4))
    >>> result.clients, result.search.best_tau_
    (['fax', 'flatbed', 'microfilm', 'phone'], 0.4)
    >>> plain, aligned = result.accuracy.mean(axis=(0, 1, 3))
    >>> bool(aligned > plain)
    True
    """
    progress = progress or (lambda done, total: None)
    data = FeatureSet.embedded()
    first = data.select(data.partition(ALPHA, 0)[0])
    example = class_table(first.y, first.client_ids)
    search = FederatedGridSearchCV(
        make_classifier("fedcgs", aligner=FederatedOTAligner()),
        {"aligner__tau": list(taus)},
    )
    with config_context(enable_metadata_routing=True):
        search.fit(first.X, first.y, client_ids=first.client_ids)
    names = ["fedcgs", "fedpft"] + ["o-fedavg"] * can_train_nets()
    measured, mixed = [], []
    for number in range(n_partitions):
        progress(number + 1, n_partitions + 1)
        rows = data.partition(ALPHA, number)
        measured.append(
            [[_run(name, tau, data, *rows) for tau in (0.0, TAU)] for name in names]
        )
        mixed.append(_run("mixed", 0.0, data, *rows))
    progress(n_partitions + 1, n_partitions + 1)
    accuracy, sent = np.moveaxis(np.array(measured), 3, 0)
    by_mixed = np.moveaxis(np.array(mixed), 1, 0)
    labels = [METHODS[name].label for name in names]
    return DemoResult(data.clients, labels, accuracy, sent, *by_mixed, example, search)


def _run(method, tau, data, train, test):
    """Measure the accuracy at each client, and count the bytes that it sent."""
    aligner = FederatedOTAligner(tau) if tau else None
    # half the bytes are enough for drawn rows, as in the paper
    dtype = "float16" if method == "fedpft" else "float32"
    train, test = data.select(train), data.select(test)
    percent, sent = measure(make_classifier(method), aligner, train, test, dtype)
    return np.divide(percent, 100), sent
