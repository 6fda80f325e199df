"""Read features, labels and clients from files."""

import csv
import re
from array import array
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from zipfile import BadZipFile
from zlib import error as ZlibError

import numpy as np

from .._utils import import_optional, plain_name, shorten
from ._columns import (
    FILE_NAMES,
    MISSING,
    ONLY_IN_NPZ,
    ROW_NAMES,
    ColumnChoice,
    as_names,
    check_names,
    is_number,
    leave_out,
)

# Arrays that may have as many values as there are rows, and do not describe rows.
ABOUT_ALL_ROWS = ("columns", *FILE_NAMES)
SPELLINGS = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "validation": ("val", "valid", "validation", "dev"),
}
# Texts that an integer is written as. Columns with gaps are often written as 1.0.
WHOLE_NUMBER = re.compile(r"(0|-?[1-9][0-9]{0,14})(\.0)?")


class ClientSamples:
    """Base of data sets with labels, client ids and a split of their samples.

    A subclass is a dataclass with the fields ``name``, ``X``, ``y``, ``client_ids`` and
    ``split``. All but the first two may be None.

    See Also
    --------
    load_features : Read such a data set from a file.
    skslot.experiments.FeatureSet : Data set of an experiment.

    Examples
    --------
    >>> from skslot.datasets import ClientSamples
    >>> from skslot.experiments import FeatureSet
    >>> data = FeatureSet.embedded()
    >>> isinstance(data, ClientSamples)
    True
    >>> data.select(data.client_ids == "fax")
    FeatureSet('digit scanners', n_samples=449, n_features=64, n_clients=1, ...)
    """

    def __repr__(self):
        numbers = {"n_samples": len(self.X), "n_features": self.X.shape[1]}
        if self.client_ids is not None:
            numbers["n_clients"] = len(np.unique(self.client_ids))
        if self.y is not None:
            numbers["n_classes"] = len(np.unique(self.y))
        texts = (f"{name}={number}" for name, number in numbers.items())
        return f"{type(self).__name__}({str(self.name)!r}, {', '.join(texts)})"

    def select(self, rows):
        """Keep some of the rows.

        Parameters
        ----------
        rows : ndarray
            Positions of rows, or a mask.

        Returns
        -------
        data : same type
            These rows with their labels, clients and split.
        """
        arrays = {name: getattr(self, name) for name in ("y", "client_ids", "split")}
        parts = {name: a[rows] for name, a in arrays.items() if a is not None}
        return replace(self, X=self.X[rows], **parts)

    def training_rows(self):
        """Keep the training rows.

        Returns
        -------
        data : same type
            Rows whose split is "train", or all rows if there is no split.
        """
        if self.split is None:
            return self
        rows = self.split == "train"
        if not rows.any():
            raise ValueError(
                f"{self.name} has no rows left to learn from: its split says 'train' "
                f"for none, but only {shorten(np.unique(self.split).tolist())}. If all "
                f"rows are for training, {leave_out('split')}."
            )
        return self.select(rows)


@dataclass(frozen=True, eq=False, repr=False)
class FeatureTable(ClientSamples):
    """Result of :func:`load_features`, whose docstring describes it."""

    path: Path
    X: np.ndarray
    y: np.ndarray | None
    client_ids: np.ndarray | None
    split: np.ndarray | None
    encoder: str | None
    feature_names: list | None
    dataset: str | None
    others: dict

    @property
    def name(self):
        return self.path

    @property
    def is_table(self):
        return self.path.suffix.lower() in TABLES

    def select(self, rows):
        others = self.others | {n: a[rows] for n, a in self.per_row().items()}
        return replace(super().select(rows), others=others)

    def of_client(self, client):
        """Keep the rows of one client, or all rows if the file names no clients."""
        if self.client_ids is None:
            return self
        names = self.client_ids.astype(str)
        rows = names == str(client)
        if not rows.any():
            raise ValueError(
                f"{self.path} has no row of client {client!r}, only of: "
                f"{', '.join(np.unique(names)[:10])}. Check the spelling. If all rows "
                "are of one site, whatever it is called, do not read clients from a "
                "column (client_column or --client-column)."
            )
        return self.select(rows)

    def beside(self):
        """Return the arrays other than ``X`` for an ``.npz`` file."""
        if not self.is_table:
            return self.others
        for name in ("columns", *ONLY_IN_NPZ):
            if name in self.others:
                raise ValueError(
                    f"{self.path} has a column {name!r}, which means something else in "
                    ".npz files, such as the one to be written: rename it."
                )
        return {**self.others, "columns": np.array(self.feature_names)}

    def per_row(self):
        """Return the arrays in ``others`` that have a value for each row."""
        if self.is_table:
            return self.others
        return {
            name: array
            for name, array in self.others.items()
            if name not in ABOUT_ALL_ROWS and array.shape[:1] == (len(self.X),)
        }


def load_features(
    path,
    *,
    labels=None,
    labels_file=None,
    ignore=(),
    id_column=(),
    client_column=None,
    features=None,
    known_features=(),
    encoder=None,
    plan=None,
):
    """Load features from a file, with labels, clients and split if it has them.

    All commands that read features, and
    :meth:`skslot.experiments.FeatureSet.from_file`, use this function. Invalid content
    raises an error that names the file, the column and the remedy.

    Parameters
    ----------
    path : str or path-like
        An ``.npz`` file with the array ``X``, an ``.npy`` file, or a table with a
        column for each feature: ``.csv``, ``.parquet`` or ``.feather``. The last two
        need ``pip install "skslot[tables]"``.
    labels : str or False, default=None
        Name of the column or array with the labels. If None, ``y`` is used if it
        exists. If False, labels are not read.
    labels_file : str or path-like, default=None
        Separate file with the labels: ``.npy``, or text with one label per line.
    ignore : str or sequence of str, default=()
        Columns to exclude from the features. ``y``, ``client``, ``domain``, ``split``
        and ``path`` are never features; if they are listed here, their content is
        ignored as well.
    id_column : str or sequence of str, default=()
        Columns that identify rows, such as patient numbers. They are excluded from the
        features.
    client_column : str, default=None
        Name of the column or array with the client of each row. If None, ``client`` is
        used if it exists.
    features : str or sequence of str, default=None
        Columns of a table to use as features, in this order: names, or patterns such as
        ``"f*"`` for matching columns in the order of the table. If None, all columns
        without another role are features. Columns that look like identifiers, labels or
        names of sites are rejected unless they are listed here by name, see Notes.
    known_features : str or sequence of str, default=()
        Names of features that are accepted without this check, such as the features
        that a model was trained on.
    encoder : str, default=None
        Name of the encoder that produced the features, for files without a
        fingerprint.
    plan : StudyPlan, str or path-like, default=None
        Plan that computes features from the columns of a table, or its file. Labels are
        then read from the label column of the plan, unless ``labels`` is False. The
        fingerprint of the plan becomes the encoder.

    Returns
    -------
    features : object
        It has these attributes:

        X : ndarray of shape (n_samples, n_features)
            Features: finite numbers, in at least one row.
        y : ndarray of shape (n_samples,) or None
            Labels without missing values.
        client_ids : ndarray of shape (n_samples,) or None
            The client of each row, from ``client`` or ``client_column``, or ``domains``
            at the positions ``domain``: text without spaces around it, or integers if
            all values are integers.
        split : ndarray of str of shape (n_samples,) or None
            "train", "test" or "validation" for each row.
        encoder : str or None
            ``encoder``, the ``fingerprint`` in the file, or a fingerprint of the column
            names.
        feature_names : list of str or None
            Names of the columns, or the array ``columns`` of an ``.npz`` file.
        dataset : str or None
            Name of the data set.
        others : dict of ndarray
            All other arrays or columns in the file.

        and these methods: ``of_client(client)``, ``training_rows()`` and
        ``select(rows)`` keep some of the rows, and ``per_row()`` returns the entries of
        ``others`` that have a value for each row.

    See Also
    --------
    skslot.experiments.FeatureSet.from_file : Load features for an experiment.
    StudyPlan : Define for all sites how features are computed from tables.

    Notes
    -----
    In tables, these columns are rejected as features, unless ``features``,
    ``known_features`` or a plan names them.

    *Identifiers.* A column of text with different values in all rows. A column of whole
    numbers with different values in all rows, if that is unlikely to occur by chance:
    as many numbers drawn from the same range would contain at least five equal pairs
    (1 to 11, or 100 different ones below 1000), or all numbers are at least a million.
    A column with a name such as ``id``, ``PatientID`` or ``mrn``, of text or whole
    numbers at least half of which are different. With fewer than ten rows, no column is
    treated as an identifier.

    *Labels.* A column of text or whole numbers with a name such as ``diagnosis``,
    ``target`` or ``class``, and at most 20 different values or half as many as there
    are rows. A column with a one-to-one correspondence to the labels, if that is
    unlikely to occur by chance.

    *Sites.* A column with as few values and a name such as ``site`` or ``hospital``.

    *Columns without a name*, such as the index that pandas writes.

    Examples
    --------
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skslot.datasets import load_features
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "features.npz")
    ...     np.savez(path, X=np.eye(3), client=["A", "A", "B"], y=["cat", "dog", "cat"])
    ...     features = load_features(path)
    >>> features.X.shape, features.client_ids.tolist()
    ((3, 3), ['A', 'A', 'B'])
    >>> features.of_client("A").y.tolist()
    ['cat', 'dog']
    """
    path = Path(path)
    if path.suffix.lower() not in READERS:
        raise ValueError(
            f"{path}: features are read from files that end in {', '.join(READERS)}."
        )
    if labels and labels_file is not None:
        raise ValueError("give labels or labels_file, not both.")
    if isinstance(plan, str | PathLike):
        from ._plan import StudyPlan

        plan = StudyPlan.load(plan)
    if plan is not None and labels is None and labels_file is None:
        labels = plan.label or False
    if plan is not None and features is not None:
        raise ValueError("the plan says which columns are features: leave them out.")
    ignored = {*as_names(ignore)}
    no_features = (ignored, id_column, client_column, labels or ())
    choice = ColumnChoice.of(features, *no_features, known=known_features)
    if plan is None:
        X, others, facts = READERS[path.suffix.lower()](path, choice)
    else:
        X, others = plan.read(path)
        facts = _facts_of_columns(plan.feature_names, plan.fingerprint)
        _check_beside_plan(path, plan, list(others), choice.others)
        if client_column is None and plan.client_column in others:
            client_column = plan.client_column
    _check_features(path, X)
    is_table = path.suffix.lower() in TABLES
    unused = {*ignored, *(ONLY_IN_NPZ if is_table else ())}
    used = {name: array for name, array in others.items() if name not in unused}
    if client_column is not None:
        used["client"] = others[client_column]
    for name in ROW_NAMES:
        if name in used:
            _check_one_per_row(path, name, used[name], len(X))
    y = None
    if labels_file is not None:
        y = _check_labels(labels_file, "labels", _read_labels(labels_file), len(X))
    elif labels or (labels is None and "y" in used):
        y = _check_labels(path, labels or "y", others[labels or "y"], len(X))
        if plan is not None:
            plan.check_classes(path, y)
    columns = facts.get("columns", np.empty(0))
    if y is not None and plan is None and is_table:
        choice.refuse_labels(path, y, dict(zip(columns.tolist(), X.T, strict=True)))
    return FeatureTable(
        path,
        X,
        y,
        _clients(path, used),
        _split(path, used),
        _encoder(path, facts, encoder),
        columns.tolist() if columns.shape == X.shape[1:] else None,
        _one_value(path, used, "dataset"),
        others,
    )


def _facts_of_columns(names, fingerprint=None):
    """Names of the features of a table, and their fingerprint."""
    from ..exchange import feature_fingerprint

    fingerprint = fingerprint or feature_fingerprint(names)
    return {"columns": np.array(names), "fingerprint": np.array(fingerprint)}


def _check_beside_plan(path, plan, names, asked_for):
    """Refuse options that exclude a feature of the plan or name a missing column."""
    for column in plan.columns:
        if column.name in asked_for:
            raise ValueError(
                f"{path}: column {column.name!r} is a feature of the plan, and nothing "
                "else beside it: name another column, or agree on another plan."
            )
    if plan.label in asked_for - set(names):
        raise ValueError(
            f"{path} has no column {plan.label!r}, in which the plan has the labels: "
            "for rows without labels leave --labels out, in Python give labels=False."
        )
    features = [column.name for column in plan.columns]
    check_names(path, [*names, *features], asked_for, features)


# -------------------------------------------------------------- files of NumPy


def _read_numpy(path, choice):
    arrays = _load_numpy(path)
    if choice.wanted is not None:
        raise ValueError(
            f"{path}: features and --features choose columns of a table; here all of X "
            "is taken, leave them out."
        )
    check_names(path, list(arrays), choice.others)
    if "X" not in arrays:
        raise ValueError(
            f"{path} must hold an array X with the features; it has: "
            f"{', '.join(arrays) or 'nothing'}."
        )
    return arrays.pop("X"), arrays, arrays


def _load_numpy(path):
    """Load arrays by name; a single array is X. No code in the file is run."""
    try:
        with open(path, "rb") as file:  # NumPy leaves it open when the file is damaged
            loaded = np.load(file, allow_pickle=False)
            return {"X": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, EOFError, BadZipFile, ZlibError) as error:
        raise ValueError(
            f"{path} cannot be read: it is damaged, holds Python objects or is no "
            f"{path.suffix} file."
        ) from error


# ---------------------------------------------------------------------- tables


def _read_csv(path, choice):
    lines = _csv_lines(path)
    _, names = next(lines)
    features = choice.features(path, names)
    places = [names.index(name) for name in features]
    beside = {name: k for k, name in enumerate(names) if name not in features}
    numbers, others = array("d"), {name: [] for name in beside}
    are_numbers = True
    for _, row in lines:
        cells = [row[k] for k in places]
        try:
            numbers.extend(list(map(float, cells)))
        except ValueError:
            are_numbers = False
        are_numbers &= "_" not in "".join(cells)  # to Python, 1_000 is a number
        for name, k in beside.items():
            others[name].append(row[k])
    X = np.array(numbers).reshape(-1, len(features))
    if not are_numbers or np.isnan(X).any():
        X = _parse_cells(path, choice, features)
    choice.refuse_suspects(path, dict(zip(features, X.T, strict=True)))
    others = {name: np.array(cells) for name, cells in others.items()}
    return X, others, _facts_of_columns(features)


def _csv_lines(path):
    """Yield the line and the cells of the header and of each row."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            # Excel writes semicolons where the comma is for decimals
            delimiter = max(",;\t", key=file.readline().count)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = [name.strip() for name in next(reader, [])]
            if all(map(is_number, names)):
                raise ValueError(f"{path} must begin with a line of column names.")
            yield 1, names
            row = None
            for row in filter(None, reader):
                if len(row) != len(names):
                    raise ValueError(
                        f"{path}: fields in line {reader.line_num}: {len(row)}, but "
                        f"columns: {len(names)}, separated by {delimiter!r}. Decimals "
                        "need a point, and text with a separator needs double quotes."
                    )
                yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num}: {error}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8; save it as CSV UTF-8.") from error
    if row is None:
        raise ValueError(f"{path} has no rows.")


def _parse_cells(path, choice, features):
    """Convert columns with numbers or booleans, and refuse other texts."""
    columns = dict(read_cells(path))
    columns = {name: columns[name] for name in features}
    choice.refuse_suspects(path, columns)
    for name, cells in columns.items():
        if {cell.lower() for cell in cells} <= {"true", "false"}:
            columns[name] = [cell.lower() == "true" for cell in cells]
    texts = {name for name, cells in columns.items() if isinstance(cells[0], str)}
    lines = _csv_lines(path)
    _, names = next(lines)
    for line, row in lines:
        for name, cell in zip(names, row, strict=True):
            if name in texts and not is_number(cell):
                raise ValueError(
                    f"{path}: line {line}, column {name!r}: {cell!r} is no number. "
                    f"{_what_to_do(name, cell)}"
                )
    return np.array([list(map(float, cells)) for cells in columns.values()]).T


def _what_to_do(name, cell):
    """Return the remedy for a cell that is not a number."""
    if cell.strip() in MISSING:
        return (
            "Fill missing values in, or let skslot plan say what stands for them. If "
            f"the column is no feature, {leave_out(name)}."
        )
    return (
        "Decimals need a point, and skslot plan makes columns of categories. If the "
        f"column is no feature, {leave_out(name)}, or name it as labels."
    )


def _read_arrow(path, choice):
    frame, index = _read_frame(path)
    features = choice.features(path, list(frame.columns), index)
    values = {name: _numbers_or_texts(path, frame[name]) for name in features}
    choice.refuse_suspects(path, values)
    X = np.column_stack([_numbers(path, frame[name]) for name in features])
    return X, _beside(frame, features), _facts_of_columns(features)


def _numbers_or_texts(path, column):
    try:
        return _numbers(path, column)
    except ValueError:
        return column[column.notna()].astype(str).tolist()


def _read_frame(path):
    """Read a Parquet or Feather file, and the names of its index columns."""
    purpose = f"{path}: to read Parquet and Feather files, skslot"
    pandas = import_optional("pandas", "tables", purpose)
    import_optional("pyarrow", "tables", purpose)
    kind = path.suffix.lower()
    read = pandas.read_feather if kind == ".feather" else pandas.read_parquet
    with open(path, "rb") as file:
        try:
            frame = read(file)
        except (ValueError, OSError, NotImplementedError) as error:
            raise ValueError(
                f"{path} cannot be read: it is damaged or no {kind} file."
            ) from error
    index = [name for name in frame.index.names if name is not None]
    if index:
        frame = frame.reset_index(index, allow_duplicates=True)
    frame.columns = [str(name).strip() for name in frame.columns]
    return frame, index


def read_cells(path):
    """Read all columns of a table as stripped text; "" is a missing value.

    Return pairs of a name and its cells, since names may occur twice.
    """
    if READERS.get(path.suffix.lower()) is _read_arrow:
        frame, _ = _read_frame(path)
        columns = [frame.iloc[:, k] for k in range(frame.shape[1])]
        cells = [column.astype(object).where(column.notna(), "") for column in columns]
        return [
            (name, [str(cell).strip() for cell in column.tolist()])
            for name, column in zip(frame.columns, cells, strict=True)
        ]
    if READERS.get(path.suffix.lower()) is not _read_csv:
        raise ValueError(
            f"{path}: a plan is for tables, {', '.join(TABLES)}; features of an "
            "encoder need none."
        )
    (_, names), *lines = _csv_lines(path)
    columns = zip(*(row for _, row in lines), strict=True)
    texts = [[cell.strip() for cell in column] for column in columns]
    return list(zip(names, texts, strict=True))


def _numbers(path, column):
    try:
        values = getattr(column.dtype, "categories", column)
        if values.dtype.kind in "mMc":  # dates would become numbers
            raise TypeError(column.dtype)
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: column {column.name!r} is not numeric: dates and text are no "
            f"features; {leave_out(column.name)}, or name it as labels."
        ) from error


def _beside(frame, features):
    """Return the other columns as arrays that need no pickle."""
    others = {}
    for name in frame.columns.drop(features):
        values = np.array(frame[name].tolist())
        others[name] = values.astype(str) if values.dtype.hasobject else values
    return others


READERS = {
    ".npz": _read_numpy,
    ".npy": _read_numpy,
    ".csv": _read_csv,
    ".parquet": _read_arrow,
    ".feather": _read_arrow,
}
TABLES = [end for end, read in READERS.items() if read is not _read_numpy]


# ---------------------------------------------------------------------- values


def _check_features(path, X):
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"{path}: features must be a matrix of numbers with a row for each sample."
        )
    if not X.size:
        raise ValueError(f"{path} has no rows." if X.shape[1] else f"{path} is empty.")
    bad = ~np.isfinite(X).all(axis=1)
    _refuse_rows(path, bad, "NaN or infinity among their features")


def _refuse_rows(path, bad, trouble):
    if bad.any():
        raise ValueError(
            f"{path}: {bad.sum()} of {len(bad)} rows have {trouble}, the first is row "
            f"{bad.argmax() + 1}; fill them in or leave them out."
        )


def _texts(path, name, array):
    """Convert values to text, and refuse missing ones."""
    texts = array.astype(str)
    missing = np.isin(np.char.strip(texts), ["", "nan", "None", "<NA>", "NaT"])
    _refuse_rows(path, missing, f"no {name}")
    return texts


def _check_one_per_row(path, name, array, n_rows):
    if array.shape != (n_rows,):
        found = f"{len(array)} values" if array.ndim == 1 else f"shape {array.shape}"
        raise ValueError(
            f"{path}: {name} has {found}, but there are {n_rows} rows of features. "
            f"Correct it, or {leave_out(name)}."
        )


def _check_labels(path, name, labels, n_rows):
    """Labels as text or numbers, one per row."""
    _check_one_per_row(path, name, labels, n_rows)
    texts = _texts(path, "label", labels)
    return _as_integers(texts) if labels.dtype.kind in "US" else labels


def _as_integers(texts):
    """Integers if all texts are whole numbers, else the texts."""
    if all(map(WHOLE_NUMBER.fullmatch, np.unique(texts).tolist())):
        return texts.astype(np.float64).astype(np.int64)
    return texts


def _read_labels(path):
    path = Path(path)
    if path.suffix.lower() == ".npy":
        return _load_numpy(path).get("X", np.empty(0))
    return np.array(path.read_text(encoding="utf-8-sig").splitlines())


def _clients(path, used):
    """Return the client of each row, if the file names clients."""
    found = [name for name in ("domain", "domains") if name in used]
    if len(found) == 1:
        raise ValueError(
            f"{path} has {found[0]!r}, but it takes both domain, a position for each "
            "row, and domains, the names at these positions. Add the other one, or say "
            f"whose each row is by 'client' and {leave_out(found[0])}."
        )
    names = used.get("client")
    if found:
        in_domains = _at_positions(path, used["domain"], used["domains"])
        names = in_domains if names is None else names
    if names is None:
        return None
    names, rows = np.unique(_texts(path, "client", names), return_inverse=True)
    return _as_integers(np.array([plain_name(name) for name in names])[rows])


def _at_positions(path, domain, domains):
    if domains.ndim != 1 or domain.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: domain must hold integers and domains names, one after the other."
        )
    wrong = np.setdiff1d(domain, np.arange(len(domains)))
    if len(wrong):
        raise ValueError(
            f"{path}: domain must be from 0 to {len(domains) - 1}, the positions in "
            f"domains, but is also {shorten(wrong.tolist())}."
        )
    return domains[domain]


def _split(path, used):
    """Part of each row by one name, however it is spelled."""
    if "split" not in used:
        return None
    part_of = {spelling: p for p, known in SPELLINGS.items() for spelling in known}
    names = used["split"].astype(str)
    plain = np.char.lower(np.char.strip(names))
    others = np.unique(names[~np.isin(plain, list(part_of))])
    if len(others):
        raise ValueError(
            f"{path}: split must be one of {', '.join(part_of)} for each row, in upper "
            f"or lower case, but is also {shorten(others.tolist())}. Rename these, "
            "leave their rows out, or, if all rows are for training, "
            f"{leave_out('split')}."
        )
    return np.array([part_of[name] for name in plain.tolist()])


def _encoder(path, facts, encoder):
    """Name the encoder; `encoder` overrides column names, but not a fingerprint."""
    found = _one_value(path, facts, "fingerprint")
    is_known = READERS[path.suffix.lower()] is _read_numpy and found is not None
    if is_known and encoder not in (None, found):
        raise ValueError(
            f"{path} says that its features are of the encoder {found!r}, which "
            f"encoder={encoder!r} or --encoder {encoder} contradicts; leave it out."
        )
    return encoder or found


def _one_value(path, arrays, name):
    """Return a text that describes the whole file, if there is one."""
    if name not in arrays:
        return None
    if arrays[name].size != 1:
        raise ValueError(
            f"{path}: {name} must be one text for all rows, not {arrays[name].size}."
        )
    return str(arrays[name].item())
