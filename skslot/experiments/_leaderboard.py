"""The table that compares one-shot methods, and its picture."""

import json
from dataclasses import asdict, dataclass, field
from itertools import groupby

import numpy as np

from .._utils import LEFT_OUT, import_optional, printable
from ._paper_tables import (
    csv_table,
    grouped_table,
    latex_table,
    standard_error,
)

LOCAL, POOLED, BASE = "local training", "rows pooled", "FedCGS"


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """A method at one label shift, described in :meth:`Leaderboard.rows`."""

    alpha: float | None
    method: str
    alignment: str
    accuracy: dict
    mean: float
    error: float | None
    difference: float
    difference_error: float | None
    worst: float
    sent: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """What a comparison of methods measured; prints as a table, best methods first.

    Parameters
    ----------
    data : str
        Name of the features.
    clients : list
        Names of the clients.
    n_runs : int
        Number of partitions.
    runs : dict
        For each run a dict of ``accuracy`` (percent at each client), ``sent`` (bytes
        from each client) and ``seconds``; or with an ``error`` and no accuracy.
    left_out : list of str, default=()
        Methods that did not run because torch is not installed.

    See Also
    --------
    compare_methods : Makes one.

    Examples
    --------
    >>> from skslot.experiments import Leaderboard
    >>> print(Leaderboard("nothing", ["A", "B"], 0, {}).title)
    methods: one-shot methods compared, on nothing
    """

    data: str
    clients: list
    n_runs: int
    runs: dict = field(repr=False)
    left_out: list = ()

    @property
    def title(self):
        """The comparison and its data in a line."""
        return f"methods: one-shot methods compared, on {printable(self.data)}"

    def rows(self):
        """Compute the rows of the table.

        Returns
        -------
        rows : list of BoardRow
            By label shift, and best methods first. A row is there if the method could
            be trained on all partitions, and has these attributes:

            alpha : float or None
                Concentration of the label shift; None for no label shift.
            method, alignment : str
                What was trained.
            accuracy : dict
                Percent of right predictions at each client, mean over partitions.
            mean, error : float
                Mean over clients and partitions, and its standard error over
                partitions; None for that of one partition.
            difference, difference_error : float
                The same for the difference from FedCGS without alignment on the same
                partition. Partitions differ by more than methods do, so this error is
                the one to compare methods by.
            worst : float
                Accuracy at the worst client of each partition, mean over partitions.
            sent : float
                Bytes from a client, mean over clients and partitions.
            seconds : float
                Seconds of one core for training at all clients and the server, and for
                testing; mean over partitions.
        """
        base = {
            (run.alpha, run.partition): np.mean(found["accuracy"])
            for run, found in self.runs.items()
            if (run.method, run.alignment) == (BASE, "none")
        }
        complete = [
            (key, runs)
            for key, runs in self._by_row().items()
            if not any("error" in found for found in runs.values())
        ]
        rows = [self._row(*key, runs, base) for key, runs in complete]
        order = list(dict.fromkeys(row.alpha for row in rows))
        return sorted(rows, key=lambda row: (order.index(row.alpha), -row.mean))

    def _by_row(self):
        """What was measured for each row of the table, by partition."""
        found = {}
        for run, measured in self.runs.items():
            key = run.alpha, run.method, run.alignment
            found.setdefault(key, {})[run.partition] = measured
        return found

    def _row(self, alpha, method, alignment, runs, base):
        accuracy = np.array([found["accuracy"] for found in runs.values()])
        means = accuracy.mean(axis=1)
        differences = means - [base[alpha, partition] for partition in runs]
        by_client = accuracy.mean(axis=0).tolist()
        return BoardRow(
            alpha=alpha,
            method=method,
            alignment=alignment,
            accuracy=dict(zip(self.clients, by_client, strict=True)),
            mean=float(means.mean()),
            error=standard_error(means),
            difference=float(differences.mean()),
            difference_error=standard_error(differences),
            worst=float(accuracy.min(axis=1).mean()),
            sent=float(np.mean([found["sent"] for found in runs.values()])),
            seconds=float(np.mean([found["seconds"] for found in runs.values()])),
        )

    def __str__(self):
        lines = [
            self.title,
            f"accuracy (%), mean over {self.n_runs} partitions; +/- is the standard "
            "error of the difference from FedCGS",
            "on the same partitions; worst: the worst client of each; kB: sent by a "
            "client; s: seconds of one core",
            grouped_table(*self._cells(), "lllr"),
        ]
        lines += map(LEFT_OUT.format, self.left_out)
        for (alpha, method, alignment), runs in self._by_row().items():
            errors = [found["error"] for found in runs.values() if "error" in found]
            if errors:
                lines.append(
                    f"{method} with alignment {alignment} at alpha {_text_of(alpha)} "
                    f"failed on {len(errors)} of {len(runs)} partitions: "
                    f"{printable(errors[0])}"
                )
        return "\n".join(lines)

    def _cells(self):
        """Make the header and the rows of the table, as text; those in groups."""
        header = "alpha method alignment mean difference +/- worst kB s".split()
        groups = groupby(self.rows(), lambda row: row.alpha)
        return header, [[_texts(row) for row in group] for _, group in groups]

    def to_json(self):
        """Write rows and single runs as JSON.

        Returns
        -------
        text : str
            An object with the keys experiment, data, n_runs, rows, runs and left_out.
        """
        facts = {
            "experiment": "methods",
            "data": self.data,
            "n_runs": self.n_runs,
            "rows": [asdict(row) for row in self.rows()],
            "runs": [asdict(run) | found for run, found in self.runs.items()],
            "left_out": list(self.left_out),
        }
        return json.dumps(facts, indent=1)

    def to_csv(self):
        """Write the rows as comma-separated values.

        Returns
        -------
        text : str
            One line per row, all digits.
        """
        names = "alpha method alignment mean error difference difference_error worst"
        names = [*names.split(), "sent", "seconds"]
        lines = [["data", *names, *map(str, self.clients)]]
        for row in self.rows():
            numbers = [getattr(row, name) for name in names]
            lines.append([self.data, *numbers, *row.accuracy.values()])
        return csv_table(lines)

    def to_latex(self):
        """Write the table in LaTeX, for the booktabs package.

        Returns
        -------
        text : str
            A tabular environment, after a comment with the title.
        """
        return latex_table(self.title, *self._cells(), n_texts=3)

    def plot(self):
        """Draw accuracy against bytes, with a panel for each strength of label shift.

        The curve in each is the best accuracy for so many bytes; methods on it are
        named. Needs matplotlib.

        Returns
        -------
        figure : matplotlib Figure
            The picture.
        """
        plt = import_optional("matplotlib.pyplot", "plot", "a picture")
        panels = [list(group) for _, group in groupby(self.rows(), lambda r: r.alpha)]
        fronts = [_best_for_bytes(rows) for rows in panels]
        figure, axes = plt.subplots(
            1,
            len(panels),
            figsize=(4.2 * len(panels), 4 + 0.2 * max(map(len, fronts))),
            layout="constrained",
            squeeze=False,
        )
        for ax, rows, front in zip(axes[0], panels, fronts, strict=True):
            _draw_panel(ax, rows, front)
        axes[0, 0].set_ylabel("accuracy (%), mean over clients")
        axes[0, -1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        return figure


def _best_for_bytes(rows):
    """Select the rows that are better than all that send less."""
    front = []
    for row in sorted(rows, key=lambda row: (row.sent, -row.mean)):
        is_method = row.method not in (LOCAL, POOLED)
        if is_method and (not front or row.mean > front[-1].mean):
            front.append(row)
    return front


def _draw_panel(ax, rows, front):
    for name, style in ((LOCAL, ":"), (POOLED, "--")):
        for row in rows:
            if row.method == name:
                ax.axhline(row.mean, color="gray", linestyle=style, label=name)
    points = [row for row in rows if row.method not in (LOCAL, POOLED)]
    for index, name in enumerate(sorted({row.alignment for row in points})):
        places = [
            (row.sent / 1000, row.mean) for row in points if row.alignment == name
        ]
        label = "aligns itself" if name == "-" else f"alignment: {name}"
        ax.scatter(*np.transpose(places), color=f"C{index}", s=18, label=label)
    places = [(row.sent / 1000, row.mean) for row in front]
    ax.step(*np.transpose(places), color="black", lw=0.8, where="post")
    names = [f"{row.method}, {row.alignment}" for row in front]
    numbered = [f"{number}  {name}" for number, name in enumerate(names, 1)]
    for number, place in enumerate(places, 1):
        ax.annotate(str(number), place, (-3, 5), textcoords="offset points", fontsize=8)
    ax.set_xlabel("\n".join(["kB from a client", "", *numbered]), fontsize=8)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")
    ax.set_title(f"alpha = {_text_of(rows[0].alpha)}")


def _texts(row):
    """Make the cells of a row."""
    error = "" if row.difference_error is None else f"{row.difference_error:.1f}"
    return [
        _text_of(row.alpha),
        row.method,
        row.alignment,
        f"{row.mean:.1f}",
        f"{row.difference:+.1f}",
        error,
        f"{row.worst:.1f}",
        f"{row.sent / 1000:.1f}",
        f"{row.seconds:.2f}",
    ]


def _text_of(alpha):
    return "none" if alpha is None else f"{alpha:g}"
