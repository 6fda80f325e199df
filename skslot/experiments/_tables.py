"""Results of an experiment, in the paper's layout."""

import csv
import io
import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field

import numpy as np

from ._paper import paper_results
from ._plans import PLANS, SEEDED


@dataclass(frozen=True)
class ResultRow:
    """One row of a result table.

    Parameters
    ----------
    source : {"skslot", "paper"}
        Whose numbers these are.
    alpha : float or None
        Concentration of the label shift; None for no label shift.
    method : str
        The classifier.
    tau : float
        Strength of the alignment; 0 is none.
    accuracy : dict
        Percent of right predictions at each client, mean over partitions.
    mean : float
        Mean over clients.
    std : float
        Standard deviation over clients.
    gain : float or None
        Gain in the mean over no alignment.
    error_partitions : float or None
        Standard error of the mean over partitions.
    error_seeds : float or None
        Standard error of the mean over seeds on the first partition; None for methods
        without chance.
    backbone : str or None
        The frozen encoder of a row of the paper.

    See Also
    --------
    ExperimentResult : Has them.

    Examples
    --------
    >>> from skslot.experiments import ResultRow
    >>> ResultRow("skslot", 0.1, "FedCGS", 0.4, {"A": 80.0}, 80.0, 0.0).gain is None
    True
    """

    source: str
    alpha: float | None
    method: str
    tau: float
    accuracy: dict
    mean: float
    std: float
    gain: float | None = None
    error_partitions: float | None = None
    error_seeds: float | None = None
    backbone: str | None = None


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
        return (
            f"{self.experiment}: {PLANS[self.experiment].title}, on {self.data}{origin}"
        )

    def rows(self):
        """Compute the rows of the table.

        Returns
        -------
        rows : list of ResultRow
            Each is followed by the paper's, one per encoder, if the paper has this
            data set.
        """
        paper = defaultdict(list)
        if self.dataset is not None:
            for row in paper_results(self.experiment, self.dataset):
                paper[row.alpha, row.method, row.tau].append(_paper_row(row))
        rows, plain = [], {}
        for key in PLANS[self.experiment].rows:
            row = self._row(*key, plain)
            plain.setdefault(key[:2], row.mean)
            rows += [row, *paper[key]]
        return rows

    def _row(self, alpha, method, tau, plain):
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
        return ResultRow(
            "skslot",
            alpha,
            method,
            tau,
            dict(zip(self.clients, by_client.tolist(), strict=True)),
            mean,
            float(partitions.std(axis=1).mean()),
            mean - plain[alpha, method] if (alpha, method) in plain else None,
            _standard_error(partitions.mean(axis=1)),
            _standard_error(seeds.mean(axis=1)),
        )

    def __str__(self):
        lines = [
            self.title,
            f"accuracy (%), mean over {self.n_runs} partitions; s.e. of the mean over "
            "partitions (P) and over seeds on one partition (S)",
        ]
        header, body = self._cells()
        widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
        for row in [header, *body]:
            if _begins_group(row):
                lines.append("")
            first = row[0].ljust(widths[0]) + "  " + row[1].ljust(widths[1])
            rest = zip(row[2:], widths[2:], strict=True)
            lines.append(first + "".join(f"  {c.rjust(w)}" for c, w in rest))
        return "\n".join(line.rstrip() for line in lines)

    def _cells(self):
        """Header and rows of the table as text."""
        header = ["alpha", "method", "tau", *map(str, self.clients)]
        header += ["mean", "gain", "std", "P", "S"]
        body = []
        for row in self.rows():
            alpha = "none" if row.alpha is None else f"{row.alpha:g}"
            accuracy = self._accuracies(row)
            body.append(
                [
                    alpha if row.backbone is None else f"paper, {row.backbone}",
                    row.method if row.gain is None else "+SLOT",
                    f"{row.tau:g}",
                    *(_number(value) for value in accuracy),
                    _number(row.mean),
                    "" if row.gain is None else f"({row.gain:+.2f})",
                    _number(row.std),
                    _number(row.error_partitions),
                    _number(row.error_seeds),
                ]
            )
        return header, body

    def _accuracies(self, row):
        """One per client; None where a row of the paper has no such client."""
        return [row.accuracy.get(client) for client in self.clients]

    def to_json(self):
        """Write rows and single runs as JSON.

        Returns
        -------
        text : str
            An object with the keys experiment, data, dataset, n_runs, rows and runs.
        """
        runs = [
            {**asdict(run), "accuracy": dict(zip(self.clients, values, strict=True))}
            for run, values in self.accuracy.items()
        ]
        facts = {
            "experiment": self.experiment,
            "data": self.data,
            "dataset": self.dataset,
            "n_runs": self.n_runs,
            "rows": [asdict(row) for row in self.rows()],
            "runs": runs,
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
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for row in self.rows():
            name = self.data if row.backbone is None else row.backbone
            facts = [name, row.source, row.alpha, row.method, row.tau]
            facts += [*self._accuracies(row), row.mean]
            facts += [row.gain, row.std, row.error_partitions, row.error_seeds]
            writer.writerow(facts)
        return text.getvalue()

    def to_latex(self):
        """Write the table in LaTeX, for the booktabs package.

        Returns
        -------
        text : str
            A tabular environment, after a comment that says what it is.
        """
        header, body = self._cells()
        lines = [f"% {self.title}"]
        lines += [rf"\begin{{tabular}}{{ll{'r' * (len(header) - 2)}}}", r"\toprule"]
        lines.append(" & ".join(map(_latex, header)) + r" \\")
        for row in body:
            if _begins_group(row):
                lines.append(r"\midrule")
            lines.append(" & ".join(map(_latex, row)) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _paper_row(row):
    return ResultRow(
        "paper",
        row.alpha,
        row.method,
        row.tau,
        row.accuracy or {},
        row.mean,
        row.std,
        row.gain,
        backbone=row.backbone,
    )


def _begins_group(cells):
    """Whether a line of the table is the first of a method."""
    return cells[1] != "+SLOT" and not cells[0].startswith("paper")


def _standard_error(means):
    if len(means) < 2:
        return None
    return float(means.std(ddof=1) / np.sqrt(len(means)))


def _number(value):
    return "" if value is None else f"{value:.2f}"


def _latex(text):
    return text.replace("_", r"\_").replace("&", r"\&").replace("%", r"\%")
