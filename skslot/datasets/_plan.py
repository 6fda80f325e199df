"""Plan of a study: how all sites compute features from their tables."""

import json
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from numbers import Real
from pathlib import Path

import numpy as np

from .._atomic import atomic_output
from .._utils import shorten
from ._columns import MISSING, ColumnChoice, is_number, leave_out
from ._features import WHOLE_NUMBER, load_features, read_cells

FORMAT = 1
# Maximum number of different texts in a column of categories.
MOST_CATEGORIES = 20
WIRE_DTYPES = ("float64", "float32", "float16")
# Marks a plan whose means and scales were computed from rows of the sites.
FROM_ROWS = "from rows"
PRIVACY = ("epsilon", "delta", "clip")
SETTINGS = ("method", "dtype", "min_samples", *PRIVACY)

TEMPLATE = """\
# What all sites do to their tables, and what they send. Written by skslot plan: read
# it, correct it, and send the same file to all sites. Each runs, under its own name:
#   skslot summarize --plan {file} --client NAME TABLE.csv -o NAME.slot

format = {format}
client = {client}  # open in the plan for all sites, which give theirs by --client
client_column = {client_column}  # says whose each row is, where a table has it
label = {label}  # column with the labels; "" for none
classes = {classes}
encoder = {encoder}  # what made the columns, if that can differ: a device, a version
{scaling}
# The features in their order; columns that are not listed are not used.
# A number: fill stands for missing values, a constant or "median", which each site has
# of its own. Without it they are refused. mean and scale make (x - mean) / scale of x.
# Categories: a column for each. Others are refused, or share one column by
# unknown = "column"; so are missing values, unless fill is one of the categories.
features = [
{features}
]

[message]
method = {method}
dtype = {dtype}  # precision of the numbers that are sent
min_samples = {min_samples}  # fewest rows of a site and of each class
# Differential privacy, with noise, if there are these three numbers. It needs numbers
# for fill, and means and scales that nobody computed from rows.
{privacy}
"""
NO_NOISE = """\
# epsilon = 3.0
# delta = 1e-5
# clip = 1.0  # longer rows are cut down to this norm"""


@dataclass(frozen=True)
class PlannedColumn:
    """Column of a table, and how features are computed from it.

    ``median`` is the median at one site.
    """

    name: str
    fill: object = None
    median: float | None = None
    mean: float | None = None
    scale: float | None = None
    categories: tuple | None = None
    unknown: str | None = None

    @property
    def has_other(self):
        """Whether values outside the categories share a feature, the last one."""
        return self.unknown == "column"

    @property
    def feature_names(self):
        """Names of the features from this column."""
        if self.categories is None:
            return [self.name]
        others = ["other"] if self.has_other else []
        return [f"{self.name}={each}" for each in [*self.categories, *others]]

    @property
    def is_open(self):
        """Whether the median of a site is still missing."""
        return self.fill == "median" and self.median is None

    def check(self):
        """Refuse settings that contradict each other."""
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"the name of a feature must be text, got {self.name!r}.")
        for key in ("median", "mean", "scale"):
            value = getattr(self, key)
            if value is not None and not _is_real(value):
                self._refuse(f"{key} must be a number, got {value!r}")
        if (self.mean is None) != (self.scale is None) or self.scale == 0:
            self._refuse("mean and scale go together, and scale is not 0")
        if self.categories is None:
            if not (self.fill in (None, "median") or _is_real(self.fill)):
                self._refuse(f"fill must be a number or 'median', got {self.fill!r}")
            if self.unknown is not None:
                self._refuse("unknown is for a feature with categories")
            return
        if not self.categories or len(set(self.categories)) < len(self.categories):
            self._refuse("categories must be a list of different values")
        if self.unknown not in (None, "refuse", "column"):
            self._refuse(f"unknown must be 'refuse' or 'column', got {self.unknown!r}")
        if self.fill not in (None, *self.categories):
            self._refuse(f"fill must be one of its categories, got {self.fill!r}")
        if (self.median, self.mean) != (None, None):
            self._refuse("median, mean and scale are for numbers, not for categories")

    def _refuse(self, reason):
        raise ValueError(f"feature {self.name!r}: {reason}.")

    def numbers(self, path, cells):
        """Convert cells to numbers; NaN is a missing value."""
        try:
            numbers = [float("nan" if cell in MISSING else cell) for cell in cells]
        except ValueError:
            numbers = [float("inf")]
        if np.isinf(numbers).any() or any("_" in cell for cell in cells):
            self._refuse_texts(path, cells)
        return np.array(numbers)

    def _refuse_texts(self, path, cells):
        for line, cell in enumerate(cells, start=1):
            if cell not in MISSING and not is_number(cell):
                raise ValueError(
                    f"{path}: row {line}, column {self.name!r}: {cell!r} is no number, "
                    "as the plan says. Decimals need a point; a text needs categories "
                    "in the plan."
                )

    def median_of(self, path, cells, rows):
        """Compute the median of some of the cells."""
        numbers = self.numbers(path, cells)[rows]
        if np.isnan(numbers).all():
            raise ValueError(
                f"{path}: column {self.name!r} has no value at all, and therefore no "
                "median to fill in; agree on a number for fill in the plan."
            )
        return float(np.nanmedian(numbers))

    def features(self, path, cells):
        """Compute one or several features from the cells."""
        if self.categories is None:
            return self._filled(path, self.numbers(path, cells))[:, None]
        found = [_plain(cell) for cell in cells]
        known = {each: k for k, each in enumerate(self.categories)}
        if self.fill is not None:
            known |= {c: known[self.fill] for c in MISSING if c not in known}
        strangers = [cell not in known for cell in found]
        if any(strangers) and not self.has_other:
            self._refuse_strangers(path, found, strangers)
        columns = [known.get(cell, len(self.categories)) for cell in found]
        return np.eye(len(self.categories) + 1)[columns][:, : len(self.feature_names)]

    def _refuse_strangers(self, path, found, strangers):
        row = strangers.index(True)
        what = f"{found[row]!r}" if found[row] not in MISSING else "a missing value"
        others = dict.fromkeys(
            cell for cell, strange in zip(found, strangers, strict=True) if strange
        )
        more = [cell for cell in others if cell not in MISSING and cell != found[row]]
        also = f" Nor are {shorten(more)} in later rows." if more else ""
        raise ValueError(
            f"{path}: row {row + 1}, column {self.name!r}: {what} is not among the "
            f"categories of the plan, {shorten(self.categories)}.{also} Correct the "
            "table, or agree on a plan that lists more categories, or has unknown = "
            "'column' for all others, and send it to all sites again."
        )

    def lacks_fill(self, path, cells):
        """Return whether numbers are missing and the plan has no fill value."""
        is_settled = self.categories is not None or self.fill is not None
        return not is_settled and bool(np.isnan(self.numbers(path, cells)).any())

    def _filled(self, path, numbers):
        missing = np.isnan(numbers)
        if missing.any() and self.is_open:
            raise ValueError(
                f"{path}: column {self.name!r} misses {missing.sum()} of "
                f"{len(numbers)} values, and the plan fills in the median of the site, "
                "which it does not know. The rows that the site learns from say it: "
                "use the plan that skslot plan TABLE --plan FILE.toml --client NAME, "
                "or StudyPlan.at_site, makes of them."
            )
        fill = self.median if self.fill == "median" else self.fill
        numbers = np.where(missing, 0.0 if fill is None else fill, numbers)
        return numbers if self.mean is None else (numbers - self.mean) / self.scale


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a study: how all sites compute the same features from their tables.

    A coordinator drafts a plan from one table with :meth:`draft`, corrects the file by
    hand and sends it to all sites. ``load_features(path, plan=plan)`` and the commands
    with ``--plan`` apply it. Messages contain its fingerprint, so that a server refuses
    messages from different plans.

    Parameters
    ----------
    columns : tuple
        Columns in the order of their features, with the settings of each.
    label : str, default=None
        Column with the labels.
    classes : tuple, default=()
        Labels that may occur. If empty, all labels are allowed.
    encoder : str, default=None
        Origin of the columns, if it can differ between sites.
    client : str, default=None
        Name of the site, in the plan of one site.
    client_column : str, default=None
        Column with the client of each row, in tables that have one.
    method : str, default="mixed"
        Method that ``skslot summarize`` prepares a message for, see ``--method``.
    dtype : {"float64", "float32", "float16"}, default="float32"
        Precision of the message.
    min_samples : int, default=10
        Minimum number of rows of a site and of each class.
    epsilon, delta, clip : float, default=None
        Budget of differential privacy, see :class:`skslot.privacy.PrivacyBudget`, where
        ``clip`` is called ``clip_norm``. Set all three or none.
    scaling : {"from rows"}, default=None
        "from rows" if means and scales were computed from rows by
        :meth:`with_scaling`. Such features have no guarantee of differential privacy.

    See Also
    --------
    load_features : Read a table with a plan.
    skslot.FederatedScaler : Compute the means and scales of a plan.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skslot.datasets import StudyPlan, load_features
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "hospital.csv")
    ...     _ = path.write_text("age,sex,ill\\n50,f,no\\n,m,yes\\n70,m,no\\n")
    ...     plan = StudyPlan.draft(path, label="ill")
    ...     load_features(path, plan=plan.at_site(path, "A")).X
    array([[50.,  1.,  0.],
           [60.,  0.,  1.],
           [70.,  0.,  1.]])
    >>> plan.feature_names, plan.classes
    (['age', 'sex=f', 'sex=m'], ('no', 'yes'))
    """

    columns: tuple
    label: str | None = None
    classes: tuple = ()
    encoder: str | None = None
    client: str | None = None
    client_column: str | None = None
    method: str = "mixed"
    dtype: str = "float32"
    min_samples: int = 10
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    scaling: str | None = None

    def __post_init__(self):
        names = [column.name for column in self.columns]
        if not names or len(set(names)) < len(names) or self.label in names:
            raise ValueError(
                "features must be named once each, and not be the label; got "
                f"{shorten(names)}."
            )
        for column in self.columns:
            column.check()
        for name in ("label", "encoder", "client", "client_column", "method"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name} must be text, got {getattr(self, name)!r}.")
        if not all(isinstance(each, str | int) for each in self.classes):
            raise ValueError(f"classes must be labels, got {shorten(self.classes)}.")
        if self.dtype not in WIRE_DTYPES:
            raise ValueError(f"dtype must be one of {WIRE_DTYPES}, got {self.dtype!r}.")
        if not isinstance(self.min_samples, int) or self.min_samples < 1:
            raise ValueError(
                f"min_samples must be at least 1, got {self.min_samples!r}."
            )
        self._check_privacy()
        if self.scaling not in (None, FROM_ROWS):
            raise ValueError(f"scaling must be {FROM_ROWS!r}, got {self.scaling!r}.")

    def _check_privacy(self):
        from ..privacy import PrivacyBudget

        numbers = [getattr(self, name) for name in PRIVACY]
        if numbers == [None] * 3:
            return
        if not all(map(_is_real, numbers)):
            raise ValueError(
                f"{', '.join(PRIVACY)} are numbers and go together, got {numbers}."
            )
        PrivacyBudget(*numbers)

    # -------------------------------------------------------------------- making

    @classmethod
    def draft(
        cls,
        path,
        *,
        label=None,
        ignore=(),
        id_column=(),
        client_column=None,
        features=None,
        fill=None,
    ):
        """Draft a plan from the table of one site.

        Columns of numbers become features, and missing values are replaced by the
        median of each site if this table has any. Columns of text become categories. A
        column that duplicates the labels is refused.

        Parameters
        ----------
        path : str or path-like
            A table: ``.csv``, ``.parquet`` or ``.feather``.
        label : str, default=None
            Column with the labels.
        ignore : str or sequence of str, default=()
            Columns to exclude from the features.
        id_column : str or sequence of str, default=()
            Columns that identify rows, which are excluded from the features.
        client_column : str, default=None
            Column with the client of each row. If None, ``client`` is used if it
            exists.
        features : str or sequence of str, default=None
            Names and patterns of the features, see :func:`load_features`. Columns that
            look like identifiers, labels or names of sites must be named.
        fill : "median" or float, default=None
            Value that replaces missing numbers, also in columns that are complete in
            this table but may have gaps at other sites.

        Returns
        -------
        plan : StudyPlan
            The draft. Review it before you send it.
        """
        path = Path(path)
        choice = ColumnChoice.of(features, ignore, id_column, client_column, label)
        cells = _unique_columns(path)
        used = {name: cells[name] for name in choice.features(path, list(cells))}
        choice.refuse_suspects(path, used)
        columns = (_draft_column(path, name, used[name], fill) for name in used)
        plan = cls(tuple(columns), label, client_column=client_column)
        y = load_features(path, plan=plan.at_site(path, None), ignore=ignore).y
        if y is None:
            return plan
        choice.refuse_labels(path, y, used)
        return replace(plan, classes=tuple(np.unique(y).tolist()))

    def at_site(self, path, client, client_column=None):
        """Fill in the name and the medians of one site.

        They do not change the fingerprint.

        Parameters
        ----------
        path : str or path-like
            Table of the site. Medians are computed from its training rows.
        client : str
            Name of the site. In a table with clients, only its rows are used.
        client_column : str, default=None
            Column with the client of each row. If None, the column of the plan is used.

        Returns
        -------
        plan : StudyPlan
            The plan of this site. It is not sent to other sites.
        """
        plan = replace(self, client=client)
        if not self._is_open:
            return plan
        table = load_features(
            path, plan=plan._closed(), labels=False, client_column=client_column
        )
        positions = {"row": np.arange(len(table.X))}
        table = replace(table, others=table.others | positions)
        own = table if client is None else table.of_client(client)
        rows = own.training_rows().others["row"]
        return plan._with_medians(path, _unique_columns(Path(path)), rows)

    @property
    def _is_open(self):
        """Whether medians of a site are still missing."""
        return any(column.is_open for column in self.columns)

    def _closed(self):
        """Return a plan with 0 for open medians."""
        columns = [replace(c, median=0.0) if c.is_open else c for c in self.columns]
        return replace(self, columns=tuple(columns))

    def _with_medians(self, path, cells, rows):
        """Return a plan with the medians of some rows."""
        columns = [
            replace(c, median=c.median_of(path, cells[c.name], rows))
            if c.is_open
            else c
            for c in self.columns
        ]
        return replace(self, columns=tuple(columns))

    def _features(self, path, cells):
        return np.hstack(
            [each.features(path, cells[each.name]) for each in self.columns]
        )

    def with_scaling(self, statistics):
        """Standardize numbers with the means and scales of all sites.

        Parameters
        ----------
        statistics : ColumnStatistics
            Statistics that :meth:`skslot.FederatedScaler.server_aggregate` computed on
            features of this plan. Columns of categories stay 0 and 1.

        Returns
        -------
        plan : StudyPlan
            A plan with means and scales, and therefore with another fingerprint.
        """
        from ..preprocessing import FederatedScaler

        if statistics.encoder != self.fingerprint:
            raise ValueError(
                "the statistics are not on features that this plan makes: summarize "
                "for scaling by this plan."
            )
        scaler = FederatedScaler().server_aggregate([statistics])
        names = self.feature_names
        columns = []
        for column in self.columns:
            if column.categories is None:
                k = names.index(column.name)
                mean, scale = float(scaler.mean_[k]), float(scaler.scale_[k])
                column = replace(column, mean=mean, scale=scale)
            columns.append(column)
        return replace(self, columns=tuple(columns), scaling=FROM_ROWS)

    # -------------------------------------------------------------------- reading

    @property
    def feature_names(self):
        """Names of the features, in their order."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def fingerprint(self):
        """Fingerprint of the features and labels, equal at all sites of a study."""
        from ..exchange import feature_fingerprint

        columns = [{**asdict(column), "median": None} for column in self.columns]
        facts = [FORMAT, columns, self.label, self.classes, self.encoder]
        return feature_fingerprint(self.feature_names, json.dumps(facts))

    def read(self, path):
        """Compute features from a table.

        Parameters
        ----------
        path : str or path-like
            The table.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The features.
        others : dict of ndarray
            The other columns as text.
        """
        cells = _unique_columns(Path(path))
        names = [column.name for column in self.columns]
        missing = [name for name in names if name not in cells]
        if missing:
            raise ValueError(
                f"{path} lacks columns of the plan: {shorten(missing)}; it has "
                f"{shorten(cells)}. Rename those that are called otherwise here, or "
                "agree on a plan without them."
            )
        gaps = [c.name for c in self.columns if c.lacks_fill(path, cells[c.name])]
        if gaps:
            raise ValueError(
                f"{path}: values of {shorten(gaps)} are missing, and the plan has no "
                "fill for them: agree on one for each column, a number or 'median', "
                "and send the plan to all sites again. skslot plan --fill median "
                "agrees on it for all columns from the start."
            )
        others = {n: np.array(column) for n, column in cells.items() if n not in names}
        return self._features(path, cells), others

    def load_sites(self, path, **columns):
        """Load a table with the rows of several sites, as each site would load its own.

        Parameters
        ----------
        path : str or path-like
            The table.
        **columns : dict
            Other parameters of :func:`load_features`.

        Returns
        -------
        features : object
            Result of :func:`load_features`. Open medians are computed for each client
            from its own training rows.
        """
        if not self._is_open:
            return load_features(path, plan=self, **columns)
        table = load_features(path, plan=self._closed(), **columns)
        if table.client_ids is None:
            return table
        X, cells = table.X.copy(), _unique_columns(table.path)
        is_training = np.full(len(X), table.split is None) | (table.split == "train")
        for client in np.unique(table.client_ids).tolist():
            rows = np.flatnonzero(table.client_ids == client)
            training = is_training[rows] if is_training[rows].any() else slice(None)
            place = f"{path}, client {client!r}"
            own = {
                name: [column[row] for row in rows] for name, column in cells.items()
            }
            X[rows] = self._with_medians(place, own, training)._features(place, own)
        return replace(table, X=X)

    def check_classes(self, path, y):
        """Refuse labels that are not among the classes of the plan.

        Parameters
        ----------
        path : str or path-like
            File with the labels, for the error.
        y : ndarray of shape (n_samples,)
            Labels.
        """
        strangers = set(np.unique(y).tolist()) - set(self.classes)
        if self.classes and strangers:
            raise ValueError(
                f"{path}: labels {shorten(sorted(strangers, key=str))} are not among "
                f"the classes of the plan, {shorten(self.classes)}; correct them, or "
                "agree on another plan."
            )

    # --------------------------------------------------------------------- files

    @classmethod
    def load(cls, path):
        """Read a plan.

        Parameters
        ----------
        path : str or path-like
            A file from :meth:`save`, which may have been edited.

        Returns
        -------
        plan : StudyPlan
            The plan.
        """
        try:
            return cls._parse(Path(path).read_text(encoding="utf-8"))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is no plan of a study: {error}") from error

    def save(self, path):
        """Write the plan to a file, as a whole or not at all.

        Parameters
        ----------
        path : str or path-like
            Where to write it, usually with the ending ``.toml``.
        """
        text = self._text(Path(path).name)
        if self._parse(text) != self:
            raise ValueError(f"{path} would not be read as it was meant.")
        with atomic_output(path) as file:
            file.write(text.encode())

    def _text(self, file):
        features = ",\n".join(f"  {_inline(column)}" for column in self.columns)
        facts = {**vars(self), "format": FORMAT, "classes": list(self.classes)}
        names = ("label", "encoder", "client", "client_column")
        facts |= {name: facts[name] or "" for name in names}
        del facts["columns"]
        values = {name: _value(value) for name, value in facts.items()}
        lines = [f"{name} = {values[name]}" for name in PRIVACY]
        values["privacy"] = NO_NOISE if self.epsilon is None else "\n".join(lines)
        line = f"scaling = {values['scaling']}  # of means and scales: no --epsilon\n"
        values["scaling"] = "" if self.scaling is None else line
        return TEMPLATE.format(file=file, features=features, **values)

    @classmethod
    def _parse(cls, text):
        facts = tomllib.loads(text)
        if facts.pop("format", None) != FORMAT:
            raise ValueError(f"format = {FORMAT} is missing.")
        known = {"client", "client_column", "label", "classes", "encoder", "scaling"}
        known |= {"features", "message"}
        message = facts.pop("message", {})
        _refuse_unknown(facts, known)
        _refuse_unknown(message, SETTINGS)
        names = [each.name for each in fields(PlannedColumn)]
        columns = []
        for entry in facts.pop("features", []):
            _refuse_unknown(entry, names)
            if "categories" in entry:
                entry["categories"] = tuple(map(_plain, entry["categories"]))
                entry |= {"fill": _plain(entry["fill"])} if "fill" in entry else {}
            columns.append(PlannedColumn(**entry))
        classes = tuple(facts.pop("classes", ()))
        texts = {name: text or None for name, text in facts.items()}
        return cls(tuple(columns), classes=classes, **texts, **message)


def _draft_column(path, name, cells, fill):
    found = {_plain(cell) for cell in set(cells) - MISSING}
    has_gaps = not MISSING.isdisjoint(cells)
    if not found:
        raise ValueError(
            f"{path}: column {name!r} is empty: nothing tells whether it has numbers "
            f"or categories; {leave_out(name)}, or draft the plan from a table that "
            "has values there."
        )
    texts = sorted(each for each in found if not is_number(each))
    if not texts:
        return PlannedColumn(name, fill="median" if has_gaps and fill is None else fill)
    if len(found) > MOST_CATEGORIES:
        raise ValueError(
            f"{path}: column {name!r} has {len(found)} different values, which are no "
            f"categories, and {shorten(texts, 3)} are no numbers. If it is no feature, "
            f"{leave_out(name)}; else write it as numbers."
        )
    unknown = "column" if has_gaps else "refuse"
    return PlannedColumn(name, categories=tuple(sorted(found)), unknown=unknown)


def _unique_columns(path):
    """Read the cells of each column, and refuse duplicate names."""
    pairs = read_cells(path)
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{path} has more than one column {name!r}.")
    return dict(pairs)


def _plain(cell):
    """Normalize the text of a category: some programs turn 1 into 1.0."""
    cell = str(cell)
    return cell.removesuffix(".0") if WHOLE_NUMBER.fullmatch(cell) else cell


def _is_real(value):
    return (
        isinstance(value, Real)
        and not isinstance(value, bool)
        and -1e300 < value < 1e300
    )


def _refuse_unknown(entries, known):
    for key in entries:
        if key not in known:
            raise ValueError(f"{key!r} is none of {', '.join(known)}.")


def _inline(column):
    values = {
        name: value for name, value in asdict(column).items() if value is not None
    }
    return "{" + ", ".join(f"{name} = {_value(v)}" for name, v in values.items()) + "}"


def _value(value):
    """Format a value as TOML; texts are written as in JSON, except for DEL."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
