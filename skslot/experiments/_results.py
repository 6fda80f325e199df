"""Tables of experiments: their rows, their text, and the paper's numbers."""

import json
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from itertools import groupby

import numpy as np
from scipy.stats import sem

from .._methods import METHODS
from .._utils import LEFT_OUT, import_optional, printable
from ._measures import KNOWN_SITES, MANY, NEW_SITES

LABELS = {name: method.label for name, method in METHODS.items()}
LABELS |= {"local": "local training", "pooled": "rows pooled"}
SEEDED = ("o-fedavg", "fedpft")  # the paper's other methods draw nothing at random
# Below the methods of the paper, with their alignment strengths.
OURS = (("local", 0.0), ("mixed", 0.0), ("mixed", "auto"))


@dataclass(frozen=True)
class Run:
    """One training run: what is trained, how it is aligned, and on which partition.

    ``n_parts`` is None for a comparison of methods, whose messages have float32
    numbers; in the paper's experiments it counts the parts of a client.
    """

    alpha: float | None
    n_parts: int | None
    partition: int
    alignment: float | str
    method: str
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """Rows of the table of an experiment, at each ``alpha``.

    ``rows`` has the method and alignment of each row as keys. Values are the method and
    alignment of the row that its gain refers to.
    """

    title: str
    alphas: tuple
    rows: dict
    n_parts: int = 1
    note: str = "ours: not in the paper; the gain is over FedCGS without alignment"

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
            for alpha in self.alphas
            for method, tau in self.rows
            for partition, seed in partitions + (seeds if method in SEEDED else [])
        ]
        return sorted(
            runs, key=lambda run: (run.alpha or 0, run.partition, str(run.alignment))
        )


def _plan_of_paper(title, alphas, taus=(0.0, 0.4), many_rounds=False, n_parts=1):
    """Plan an experiment with each method at each alignment strength, then ours."""
    rows = {("fedavg", 0.0): ("fedavg", 0.0)} if many_rounds else {}
    for method in ("o-fedavg", "fedcgs", "fedpft"):
        rows |= {(method, tau): (method, 0.0) for tau in taus}
    rows |= dict.fromkeys(OURS, ("fedcgs", 0.0))
    return Plan(title, alphas, rows, n_parts)


PLANS = {
    "main": _plan_of_paper("joint domain and label shift", (0.1,), many_rounds=True),
    "skew": _plan_of_paper("stronger label shift", (0.05, 0.01)),
    "domain-only": _plan_of_paper("domain shift only", (None,), many_rounds=True),
    "tau": _plan_of_paper("alignment strength", (0.1,), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    "backbones": _plan_of_paper("frozen encoders", (0.1,), many_rounds=True),
    "scalability": _plan_of_paper("two clients per domain", (0.1,), n_parts=2),
    "unlabelled": Plan(
        "rows without labels",
        (None, 0.1, 0.01),
        {
            row: next(iter(sites.items()))
            for sites in (KNOWN_SITES, NEW_SITES)
            for row in sites.items()
        },
        note=f"sites learn from half of their test rows, at most {MANY} of them, and "
        "are tested on the others;\nnot in the paper; the gain is over the first row "
        "for known sites, and for new sites",
    ),
}


def _read_paper(experiment=None, dataset=None):
    text = files(__package__).joinpath("paper_results.json").read_text()
    return [
        {**row, "recomputed": row.get("recomputed", {})}
        for row in json.loads(text)["rows"]
        if experiment in (None, row["experiment"]) and dataset in (None, row["dataset"])
    ]


def paper_results(experiment=None, dataset=None):
    """Return the rows of the paper's tables.

    Parameters
    ----------
    experiment : str, default=None
        Name of an experiment. If None, rows of all experiments are returned.
    dataset : str, default=None
        Name of a data set. If None, rows of all data sets are returned.

    Returns
    -------
    rows : DataFrame
        Rows in the order of the paper, with these columns:

        experiment
            Name of the experiment, as in ``skslot bench``.
        dataset
            "Office-Home", "Digits" or "DomainNet".
        backbone
            The frozen encoder.
        alpha
            Concentration of the label shift; NaN for no label shift.
        n_clients
            Number of clients.
        method
            "FedAvg" (many rounds), "O-FedAvg", "FedCGS" or "FedPFT".
        tau
            Alignment strength; 0 means without alignment.
        accuracy
            Dict with the accuracy of each domain in percent, or None where the paper
            does not have it.
        mean, std
            Mean and standard deviation over the domains, as printed.
        gain
            Gain over no alignment, as printed; NaN where there is none.
        recomputed
            Dict with the values that ``mean``, ``std`` or ``gain`` should have where
            the printed number contradicts other numbers of the paper; mostly empty.

    See Also
    --------
    run_experiment : Run the same experiments on other features.

    Examples
    --------
    >>> from skslot.experiments import paper_results
    >>> rows = paper_results("main", "Digits")
    >>> print(rows["method"][1], rows["mean"][1])
    O-FedAvg 64.7
    """
    pandas = import_optional("pandas", "tables", "a table of results")
    return pandas.DataFrame(_read_paper(experiment, dataset))


@dataclass(frozen=True, eq=False)
class ExperimentResult:
    """Result of an experiment; prints as a table.

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
    runs : dict
        For each run a dict with ``accuracy``, the percentage of correct predictions at
        each client.
    dataset : str, default=None
        Name of the data set. The paper's rows for this data set are added.
    left_out : list of str, default=()
        Methods that did not run because torch is not installed.

    See Also
    --------
    run_experiment : Run an experiment.

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
    runs: dict = field(repr=False)
    dataset: str | None = None
    left_out: list = ()

    @property
    def title(self):
        """Name of the experiment and its data, in one line."""
        origin = f" ({self.dataset})" if self.dataset else ""
        data = printable(f"{self.data}{origin}")
        return f"{self.experiment}: {PLANS[self.experiment].title}, on {data}"

    def to_frame(self):
        """Return the table as a pandas DataFrame.

        Returns
        -------
        table : DataFrame
            If the paper has this data set, each row is followed by the paper's, one per
            encoder. The columns are:

            data
                Name of the features.
            alpha
                Concentration of the label shift; NaN for no label shift.
            source
                "skslot", "ours" for methods that are not in the paper, or "paper" with
                the encoder.
            method, tau
                Method and alignment strength.
            one column per client
                Accuracy in percent, mean over partitions.
            mean, gain, std
                Mean over clients, its gain over no alignment, and the standard
                deviation over clients.
            error_partitions
                Standard error of the mean over partitions.
            error_seeds
                Standard error of the mean over seeds on the first partition, for
                methods that draw at random.
        """
        return self._frame(self._rows())

    def _frame(self, rows):
        """Turn rows, dicts with ``accuracy`` by client, into a DataFrame."""
        pandas = import_optional("pandas", "tables", "a table of results")
        frame = pandas.DataFrame(rows)
        if frame.empty:
            return frame
        by_client = [row["accuracy"] or {} for row in rows]
        accuracy = pandas.DataFrame(
            [[found.get(client) for client in self.clients] for found in by_client],
            columns=list(map(str, self.clients)),
        )
        place = frame.columns.get_loc("accuracy")
        parts = frame.iloc[:, :place], accuracy, frame.iloc[:, place + 1 :]
        frame = pandas.concat(parts, axis=1)
        frame.insert(0, "data", self.data)
        return frame

    def _rows(self):
        plan, paper, rows, means = PLANS[self.experiment], {}, [], {}
        if self.dataset is not None:
            for row in _read_paper(self.experiment, self.dataset):
                row["source"] = f"paper, {row['backbone']}"
                key = row["alpha"], row["method"], row["tau"]
                paper.setdefault(key, []).append(row)
        measured = {(run.alpha, run.method, run.alignment) for run in self.runs}
        for alpha in plan.alphas:
            for method, tau in plan.rows:
                if (alpha, method, tau) in measured:
                    row = self._row(alpha, method, tau)
                    base = means.get((alpha, *plan.rows[method, tau]))
                    row["gain"] = None if base is None else row["mean"] - base
                    means[alpha, method, tau] = row["mean"]
                    rows.append(row)
                rows += paper.get((alpha, LABELS.get(method), tau), [])
        return [{name: row.get(name) for name in COLUMNS} for row in rows]

    def _row(self, alpha, method, tau):
        runs = {
            (run.partition, run.seed): found["accuracy"]
            for run, found in self.runs.items()
            if (run.alpha, run.method, run.alignment) == (alpha, method, tau)
        }
        partitions = np.array([runs[number, 0] for number in range(self.n_runs)])
        n_seeds = self.n_runs if method in SEEDED else 1
        seeds = np.array([runs[0, seed] for seed in range(n_seeds)])
        by_client = partitions.mean(axis=0)
        return {
            "alpha": alpha,
            "source": "ours" if (method, tau) in OURS else "skslot",
            "method": LABELS.get(method, method),
            "tau": tau,
            "accuracy": dict(zip(self.clients, by_client.tolist(), strict=True)),
            "mean": float(by_client.mean()),
            "std": float(partitions.std(axis=1).mean()),
            "error_partitions": standard_error(partitions.mean(axis=1)),
            "error_seeds": standard_error(seeds.mean(axis=1)),
        }

    def __str__(self):
        left_out = [LEFT_OUT.format(LABELS[name]) for name in self.left_out]
        lines = [self.title, *self._notes(), "", self._texts().to_string(), *left_out]
        return "\n".join(lines)

    def _notes(self):
        return [
            f"accuracy (%), mean over {self.n_runs} partitions; s.e. of the mean over "
            "partitions (P) and over seeds on one partition (S)",
            PLANS[self.experiment].note,
        ]

    def _texts(self):
        """Make the DataFrame that is printed."""
        frame = self.to_frame()
        texts = _as_texts(frame, "{:.2f}", alpha="{:g}", tau="{:g}", gain="({:+.2f})")
        texts = texts.drop(columns="data").set_index(["alpha", "source", "method"])
        return texts.rename(columns={"error_partitions": "P", "error_seeds": "S"})

    def to_json(self):
        """Return rows and single runs as JSON.

        Returns
        -------
        text : str
            An object with the parameters of the result, its rows and its runs.
        """
        facts = {name: value for name, value in vars(self).items() if name != "runs"}
        runs = [asdict(run) | found for run, found in self.runs.items()]
        return json.dumps({**facts, "rows": self._rows(), "runs": runs}, indent=1)

    def to_csv(self):
        """Return the table as comma-separated values.

        Returns
        -------
        text : str
            One line per row of :meth:`to_frame`, with all digits.
        """
        return self.to_frame().to_csv(index=False, lineterminator="\n")

    def to_latex(self):
        """Return the table in LaTeX, for the booktabs package.

        Returns
        -------
        text : str
            A tabular environment, after a comment with the title.
        """
        texts = self._texts()
        align = "l" * texts.index.nlevels + "r" * len(texts.columns)
        texts = texts.reset_index()
        lines = [f"% {self.title}", rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
        lines.append(_latex_row(texts.columns))
        for _, rows in groupby(texts.values.tolist(), lambda row: row[0]):
            lines += [r"\midrule", *map(_latex_row, rows)]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


COLUMNS = ("alpha", "source", "method", "tau", "accuracy", "mean", "gain", "std")
COLUMNS += ("error_partitions", "error_seeds")


class Leaderboard(ExperimentResult):
    """Result of a comparison of methods; prints as a table, best methods first.

    Parameters
    ----------
    experiment : str
        Name of the experiment, "methods".
    data : str
        Name of the features.
    clients : list
        Names of the clients.
    n_runs : int
        Number of partitions.
    runs : dict
        For each run a dict with ``accuracy`` (percentage at each client), ``sent``
        (bytes from each client) and ``seconds``, or with an ``error`` and no accuracy.
    dataset : str, default=None
        Name of the data set.
    left_out : list of str, default=()
        Methods that did not run because torch is not installed.

    See Also
    --------
    compare_methods : Compare methods.

    Examples
    --------
    >>> from skslot.experiments import Leaderboard
    >>> print(Leaderboard("methods", "nothing", ["A", "B"], 0, {}).title)
    methods: one-shot methods compared, on nothing
    """

    @property
    def title(self):
        """Name of the comparison and its data, in one line."""
        return f"methods: one-shot methods compared, on {printable(self.data)}"

    def to_frame(self):
        """Return the table as a pandas DataFrame.

        Returns
        -------
        table : DataFrame
            Rows by label shift, best methods first. Methods that could not be trained
            on all partitions are missing. The columns are:

            data
                Name of the features.
            alpha
                Concentration of the label shift; NaN for no label shift.
            method, alignment
                Method and its alignment.
            one column per client
                Accuracy in percent, mean over partitions.
            mean, error
                Mean over clients and partitions, and its standard error over
                partitions; NaN for one partition.
            difference, difference_error
                Difference from FedCGS without alignment on the same partition, mean
                over partitions, and its standard error. Partitions differ by more than
                methods do, so this error is the one to compare methods by.
            worst
                Accuracy at the worst client of each partition, mean over partitions.
            sent
                Bytes from a client, mean over clients and partitions.
            seconds
                Seconds of one core for training at all clients and the server, and for
                testing; mean over partitions.
        """
        return super().to_frame()

    def _rows(self):
        found = {}
        for run, measured in self.runs.items():
            key = run.alpha, run.method, run.alignment
            found.setdefault(key, {})[run.partition] = measured
        rows = [
            self._row(*key, runs, found[key[0], "fedcgs", "none"])
            for key, runs in found.items()
            if not any("error" in each for each in runs.values())
        ]
        order = list(dict.fromkeys(row["alpha"] for row in rows))
        return sorted(rows, key=lambda row: (order.index(row["alpha"]), -row["mean"]))

    def _row(self, alpha, method, alignment, runs, base):
        accuracy = np.array([found["accuracy"] for found in runs.values()])
        means = accuracy.mean(axis=1)
        differences = means - [np.mean(base[number]["accuracy"]) for number in runs]
        by_client = accuracy.mean(axis=0).tolist()
        return {
            "alpha": alpha,
            "method": LABELS[method],
            "alignment": alignment,
            "accuracy": dict(zip(self.clients, by_client, strict=True)),
            "mean": float(means.mean()),
            "error": standard_error(means),
            "difference": float(differences.mean()),
            "difference_error": standard_error(differences),
            "worst": float(accuracy.min(axis=1).mean()),
            "sent": float(np.mean([found["sent"] for found in runs.values()])),
            "seconds": float(np.mean([found["seconds"] for found in runs.values()])),
        }

    def __str__(self):
        failed = {}
        for run, found in self.runs.items():
            if "error" in found:
                key = LABELS[run.method], run.alignment, run.alpha
                failed.setdefault(key, []).append(found["error"])
        lines = [
            f"{method} with alignment {alignment} at alpha {_text(alpha)} failed on "
            f"{len(errors)} of {self.n_runs} partitions: {printable(errors[0])}"
            for (method, alignment, alpha), errors in failed.items()
        ]
        return "\n".join([super().__str__(), *lines])

    def _notes(self):
        return [
            f"accuracy (%), mean over {self.n_runs} partitions; +/- is the standard "
            "error of the difference from FedCGS",
            "on the same partitions; worst: the worst client of each; kB: sent by a "
            "client; s: seconds of one core",
        ]

    def _texts(self):
        frame = self.to_frame().assign(sent=lambda frame: frame["sent"] / 1000)
        texts = _as_texts(
            frame, "{:.1f}", alpha="{:g}", difference="{:+.1f}", seconds="{:.2f}"
        )
        texts = texts.set_index(["alpha", "method", "alignment"])
        names = {"mean": "mean", "difference": "difference", "difference_error": "+/-"}
        names |= {"worst": "worst", "sent": "kB", "seconds": "s"}
        return texts[[*names]].rename(columns=names)

    def plot(self):
        """Draw accuracy against bytes, with a panel for each strength of label shift.

        The curve in each panel is the best accuracy for so many bytes; the methods on
        it are named. Needs matplotlib.

        Returns
        -------
        figure : matplotlib Figure
            The picture.
        """
        plt = import_optional("matplotlib.pyplot", "plot", "a picture")
        frame = self.to_frame()
        # None is no label shift, which old versions of pandas cannot group by
        names = frame["alpha"].map(_text)
        panels = list(frame.groupby(names, sort=False))
        figure, axes = plt.subplots(
            1,
            len(panels),
            figsize=(4.2 * len(panels), 6),
            layout="constrained",
            squeeze=False,
        )
        for ax, (alpha, rows) in zip(axes[0], panels, strict=True):
            _draw_panel(ax, rows)
            ax.set_title(f"alpha = {alpha}")
        axes[0, 0].set_ylabel("accuracy (%), mean over clients")
        axes[0, -1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        return figure


def _draw_panel(ax, rows):
    rows = rows.assign(kB=rows["sent"] / 1000)
    is_baseline = rows["method"].isin([LABELS["local"], LABELS["pooled"]])
    for row, style in zip(rows[is_baseline].itertuples(), (":", "--"), strict=False):
        ax.axhline(row.mean, color="gray", linestyle=style, label=row.method)
    points = rows[~is_baseline].sort_values(["kB", "mean"], ascending=[True, False])
    for name, aligned in points.groupby("alignment"):
        label = "aligns itself" if name == "-" else f"alignment: {name}"
        ax.scatter(aligned["kB"], aligned["mean"], s=18, label=label)
    # better than all that send less
    front = points[points["mean"] > points["mean"].cummax().shift(fill_value=-1)]
    ax.step(front["kB"], front["mean"], color="black", lw=0.8, where="post")
    lines = ["kB from a client", ""]
    for number, row in enumerate(front.itertuples(), 1):
        place = row.kB, row.mean
        ax.annotate(str(number), place, (-3, 5), textcoords="offset points", fontsize=8)
        lines.append(f"{number}  {row.method}, {row.alignment}")
    ax.set_xlabel("\n".join(lines), fontsize=8)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")


def standard_error(values):
    """Compute the standard error of the mean; None for a single value."""
    return float(sem(values)) if len(values) > 1 else None


def _text(value, form="{:g}", missing="none"):
    """Text of a cell."""
    if isinstance(value, str):
        return value
    return missing if value is None or value != value else form.format(value)


def _as_texts(frame, form, **forms):
    """Format the cells of a table; missing numbers are empty, but for alpha."""
    pandas = import_optional("pandas", "tables", "a table of results")
    texts = [
        [
            _text(value, forms.get(name, form), "none" if name == "alpha" else "")
            for value in column.tolist()
        ]
        for name, column in frame.items()
    ]
    texts = pandas.DataFrame(dict(enumerate(texts)))
    return texts.set_axis(map(printable, frame.columns), axis="columns")


def _latex_row(cells):
    texts = [
        cell.replace("_", r"\_").replace("&", r"\&").replace("%", r"\%")
        for cell in cells
    ]
    return " & ".join(texts) + r" \\"
