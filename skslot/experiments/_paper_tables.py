"""The paper's tables: their rows, the paper's numbers, and those of an experiment."""

import csv
import io
import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from itertools import groupby

import numpy as np
from scipy.stats import sem

from .._utils import LEFT_OUT, printable, text_table
from ._sites import KNOWN_SITES, MANY, NEW_SITES

ONE_SHOT = ("O-FedAvg", "FedCGS", "FedPFT")
SEEDED = ("O-FedAvg", "FedPFT")  # the others draw nothing at random
NEED_TORCH = ("FedAvg", "O-FedAvg")
# Below the methods of the paper, with their strengths.
OURS = (("local LDA", 0.0), ("mixed effects", 0.0), ("mixed effects", "auto"))


@dataclass(frozen=True)
class Run:
    """One training run: what is trained, on which partition, with which seed."""

    alpha: float | None
    n_parts: int
    partition: int
    tau: float | str
    method: str
    seed: int


@dataclass(frozen=True)
class Plan:
    """An experiment: every method at every alpha and tau."""

    title: str
    alphas: tuple
    taus: tuple = (0.0, 0.4)
    references: tuple = ()
    n_parts: int = 1

    note = "ours: not in the paper; the gain is over FedCGS without alignment"

    @property
    def methods(self):
        """Method and tau of each row of the table, in its order; and what it gains on.

        Ours gain on FedCGS without alignment, as mixed effects read its message.
        """
        paper = [
            (method, tau, (method, 0.0))
            for method in (*self.references, *ONE_SHOT)
            for tau in (self.taus if method in ONE_SHOT else (0.0,))
        ]
        return paper + [(*ours, ("FedCGS", 0.0)) for ours in OURS]

    @property
    def rows(self):
        """(alpha, method, tau) of each row of the table, in its order."""
        return [
            (alpha, method, tau)
            for alpha in self.alphas
            for method, tau, _ in self.methods
        ]

    def base(self, method, tau):
        """Method and tau of the row that a row gains on."""
        return next(base for *key, base in self.methods if key == [method, tau])

    def runs(self, n_runs):
        """List partitions 0, 1, ... with seed 0, and partition 0 with seeds 1, 2, ...

        The paper varies the seed on one partition. Partitions differ far more than
        seeds do, so both are varied and the table has a standard error for each. Runs
        on the same aligned features follow each other.
        """
        partitions = [(number, 0) for number in range(n_runs)]
        seeds = [(0, number) for number in range(1, n_runs)]
        runs = [
            Run(alpha, self.n_parts, partition, tau, method, seed)
            for alpha, method, tau in self.rows
            for partition, seed in partitions + (seeds if method in SEEDED else [])
        ]
        return sorted(
            runs, key=lambda run: (run.alpha or 0, run.partition, str(run.tau))
        )


class UnlabelledPlan(Plan):
    """Sites that learn from unlabelled rows, known ones and new ones."""

    note = (
        f"sites learn from half of their test rows, at most {MANY} of them, and are "
        "tested on the others;\nnot in the paper; the gain is over the first line of "
        "each block"
    )

    @property
    def methods(self):
        """Method and tau of each row of the table; and what it gains on."""
        return [
            (*row, next(iter(group.items())))
            for group in (KNOWN_SITES, NEW_SITES)
            for row in group.items()
        ]


PLANS = {
    "main": Plan("joint domain and label shift", (0.1,), references=("FedAvg",)),
    "skew": Plan("stronger label shift", (0.05, 0.01)),
    "domain-only": Plan("domain shift only", (None,), references=("FedAvg",)),
    "tau": Plan("alignment strength", (0.1,), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    "backbones": Plan("frozen encoders", (0.1,), references=("FedAvg",)),
    "scalability": Plan("two clients per domain", (0.1,), n_parts=2),
    "unlabelled": UnlabelledPlan("rows without labels", (None, 0.1, 0.01)),
}


def paper_results(experiment=None, dataset=None):
    """List the rows of the paper's tables.

    Parameters
    ----------
    experiment : str, default=None
        Name of an experiment; all by default.
    dataset : str, default=None
        Name of a data set; all by default.

    Returns
    -------
    rows : list of PaperRow
        In the order of the paper. Each has these attributes:

        experiment : str
            Name of the experiment, as in ``skslot bench``.
        dataset : str
            "Office-Home", "Digits" or "DomainNet".
        backbone : str
            The frozen encoder.
        alpha : float or None
            Concentration of the label shift; None for no label shift.
        n_clients : int
            Number of clients.
        method : str
            "FedAvg" (many rounds), "O-FedAvg", "FedCGS" or "FedPFT".
        tau : float
            Strength of the alignment; 0 is none.
        accuracy : dict or None
            Accuracy of each domain in percent, where the paper has it.
        mean, std : float
            Mean and standard deviation of the domains, as printed.
        gain : float or None
            Gain over no alignment, as printed.
        recomputed : dict
            What ``mean``, ``std`` or ``gain`` should be where the printed number does
            not follow from the other numbers of the paper; mostly empty.

    See Also
    --------
    run_experiment : Measures the same on other features.

    Examples
    --------
    >>> from skslot.experiments import paper_results
    >>> rows = paper_results("main", "Digits")
    >>> rows[1].method, rows[1].mean
    ('O-FedAvg', 64.7)
    """
    text = files(__package__).joinpath("paper_results.json").read_text()
    return [
        PaperRow(**row)
        for row in json.loads(text)["rows"]
        if experiment in (None, row["experiment"]) and dataset in (None, row["dataset"])
    ]


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """What the rows of the paper's tables and of ours have in common."""

    source: str
    alpha: float | None
    method: str
    tau: float | str
    accuracy: dict | None
    mean: float
    std: float
    gain: float | None
    backbone: str | None = None
    error_partitions: float | None = None
    error_seeds: float | None = None


@dataclass(frozen=True, kw_only=True)
class PaperRow(TableRow):
    """One row of a table of the paper, described in :func:`paper_results`."""

    source: str = "paper"
    experiment: str
    dataset: str
    n_clients: int
    recomputed: dict = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ExperimentResult:
    """What an experiment measured; prints in the paper's layout.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    data : str
        Name of the features.
    clients : list
        Names of the clients.
    n_runs : int
        Number of partitions, and of seeds.
    accuracy : dict
        For each run, the percent of right predictions at each client.
    dataset : str, default=None
        Name of the data set; the paper's rows are those of this name.

    See Also
    --------
    run_experiment : Makes one.

    Examples
    --------
    >>> from skslot.experiments import ExperimentResult
    >>> print(ExperimentResult("skew", "nothing", ["A", "B"], 0, {}).title)
    skew: stronger label shift, on nothing
    """

    experiment: str
    data: str
    clients: list
    n_runs: int
    accuracy: dict = field(repr=False)
    dataset: str | None = None

    @property
    def title(self):
        """The experiment and its data in a line."""
        origin = f" ({self.dataset})" if self.dataset else ""
        data = printable(f"{self.data}{origin}")
        return f"{self.experiment}: {PLANS[self.experiment].title}, on {data}"

    def rows(self):
        """Compute the rows of the table.

        Returns
        -------
        rows : list of TableRow
            Each is followed by the paper's, one per encoder, if the paper has this
            data set. A row has ``alpha``, ``method``, ``tau``, ``accuracy``, ``mean``,
            ``std`` and ``gain`` as in :func:`paper_results`, with clients for domains
            and means over partitions, and these attributes:

            source : {"skslot", "paper"}
                Whose numbers these are.
            error_partitions : float or None
                Standard error of the mean over partitions.
            error_seeds : float or None
                Standard error of the mean over seeds on the first partition; None for
                methods without chance.
            backbone : str or None
                The frozen encoder of a row of the paper.
        """
        paper = defaultdict(list)
        if self.dataset is not None:
            for row in paper_results(self.experiment, self.dataset):
                paper[row.alpha, row.method, row.tau].append(row)
        rows, means, left_out = [], {}, self.left_out
        for key in PLANS[self.experiment].rows:
            if key[1] not in left_out:
                rows.append(self._row(*key, means))
                means[key] = rows[-1].mean
            rows += paper[key]
        return rows

    @property
    def left_out(self):
        """Methods that did not run because torch is not installed."""
        found = {run.method for run in self.accuracy}
        methods = dict.fromkeys(name for name, *_ in PLANS[self.experiment].methods)
        return [name for name in methods if name not in found]

    def _row(self, alpha, method, tau, means):
        runs = {
            (run.partition, run.seed): values
            for run, values in self.accuracy.items()
            if (run.alpha, run.method, run.tau) == (alpha, method, tau)
        }
        partitions = np.array([runs[number, 0] for number in range(self.n_runs)])
        n_seeds = self.n_runs if method in SEEDED else 1
        seeds = np.array([runs[0, seed] for seed in range(n_seeds)])
        by_client = partitions.mean(axis=0)
        mean = float(by_client.mean())
        base = means.get((alpha, *PLANS[self.experiment].base(method, tau)))
        return TableRow(
            source="skslot",
            alpha=alpha,
            method=method,
            tau=tau,
            accuracy=dict(zip(self.clients, by_client.tolist(), strict=True)),
            mean=mean,
            std=float(partitions.std(axis=1).mean()),
            gain=None if base is None else mean - base,
            error_partitions=standard_error(partitions.mean(axis=1)),
            error_seeds=standard_error(seeds.mean(axis=1)),
        )

    def __str__(self):
        lines = [
            self.title,
            f"accuracy (%), mean over {self.n_runs} partitions; s.e. of the mean over "
            "partitions (P) and over seeds on one partition (S)",
            PLANS[self.experiment].note,
        ]
        left_out = map(LEFT_OUT.format, self.left_out)
        return "\n".join([*lines, grouped_table(*self._cells(), "llr"), *left_out])

    def _cells(self):
        """Make the header and the rows of the table, as text; those in groups."""
        header = ["alpha", "method", "tau", *map(str, self.clients)]
        header += ["mean", "gain", "std", "P", "S"]
        plan = PLANS[self.experiment]
        groups = groupby(
            self.rows(), lambda row: (row.alpha, plan.base(row.method, row.tau))
        )
        return header, [[self._texts(row) for row in group] for _, group in groups]

    def _texts(self, row):
        """Make the cells of a row."""
        alpha = "none" if row.alpha is None else f"{row.alpha:g}"
        if row.backbone is not None:
            alpha = f"paper, {row.backbone}"
        elif _is_ours(row):
            alpha = f"{alpha}, ours"
        *before, gain, std, error_partitions, error_seeds = self._numbers(row)
        is_aligned = row.method in ONE_SHOT and row.tau > 0
        texts = [alpha, "+SLOT" if is_aligned else row.method]
        texts.append(row.tau if isinstance(row.tau, str) else f"{row.tau:g}")
        texts += map(_two_digits, before)
        texts.append("" if gain is None else f"({gain:+.2f})")
        return texts + list(map(_two_digits, (std, error_partitions, error_seeds)))

    def _numbers(self, row):
        """List the numbers of a row; None where the paper has no such client."""
        accuracy = map((row.accuracy or {}).get, self.clients)
        errors = row.error_partitions, row.error_seeds
        return [*accuracy, row.mean, row.gain, row.std, *errors]

    def to_json(self):
        """Write rows and single runs as JSON.

        Returns
        -------
        text : str
            An object with the keys experiment, data, dataset, n_runs, rows and runs.
        """
        facts = {
            "experiment": self.experiment,
            "data": self.data,
            "dataset": self.dataset,
            "n_runs": self.n_runs,
            "rows": [asdict(row) for row in self.rows()],
            "runs": [
                asdict(run) | {"accuracy": dict(zip(self.clients, values, strict=True))}
                for run, values in self.accuracy.items()
            ],
        }
        return json.dumps(facts, indent=1)

    def to_csv(self):
        """Write the rows as comma-separated values.

        Returns
        -------
        text : str
            One line per row, all digits; ``data`` of a row of the paper is its encoder.
        """
        names = ["data", "source", "alpha", "method", "tau", *map(str, self.clients)]
        names += ["mean", "gain", "std", "error_partitions", "error_seeds"]
        lines = [names]
        for row in self.rows():
            name = self.data if row.backbone is None else row.backbone
            facts = [name, row.source, row.alpha, row.method, row.tau]
            lines.append(facts + self._numbers(row))
        return csv_table(lines)

    def to_latex(self):
        """Write the table in LaTeX, for the booktabs package.

        Returns
        -------
        text : str
            A tabular environment, after a comment with the title.
        """
        return latex_table(self.title, *self._cells())


def _is_ours(row):
    """Return whether a row of a table is for a method that the paper does not have."""
    return (row.method, row.tau) in OURS


def standard_error(values):
    """Compute the standard error of the mean; None for that of one value."""
    return float(sem(values)) if len(values) > 1 else None


def grouped_table(header, groups, align):
    """Lay out groups of rows of text cells, with an empty line before each."""
    rows = [header]
    for group in groups:
        rows += [[], *group]
    return text_table(rows, align)


def csv_table(lines):
    """Write lists of values as comma-separated values; None is an empty one."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def latex_table(title, header, groups, n_texts=2):
    """Write groups of rows of cells in LaTeX; the first ``n_texts`` are no numbers."""
    align = "l" * n_texts + "r" * (len(header) - n_texts)
    lines = [f"% {title}", rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines.append(_latex_row(header))
    for group in groups:
        lines += [r"\midrule", *map(_latex_row, group)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _two_digits(value):
    return "" if value is None else f"{value:.2f}"


def _latex_row(cells):
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text):
    return text.replace("_", r"\_").replace("&", r"\&").replace("%", r"\%")
