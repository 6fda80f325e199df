"""Features in files: ``.npz``, ``.npy``, ``.csv`` and ``.parquet``."""

import csv
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .._numpy_files import load_numpy
from ._options import plain_name

# Arrays that may have as many values as there are rows, and are not about these.
ABOUT_ALL_ROWS = ("columns", "domains", "fingerprint")
# Columns of a table that are never features.
NEVER_FEATURES = ("client", "path", "split")


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features of a file and what stands beside them.

    ``others`` are arrays that are no features: one value per row, or about all rows.
    ``labels``, ``clients`` and ``split`` have a value per row, or are None.
    """

    path: Path
    X: np.ndarray
    others: dict
    encoder: str | None = None
    labels: np.ndarray | None = None
    clients: np.ndarray | None = None
    split: np.ndarray | None = None

    @property
    def has_names(self):
        """Whether the file has a name for each feature."""
        return self.path.suffix.lower() in (".csv", ".parquet")

    def select(self, rows):
        """The table with some of the rows."""
        names = ("X", "labels", "clients", "split")
        parts = {name: getattr(self, name) for name in names}
        per_row = self.per_row()
        return replace(
            self,
            others={n: a[rows] if n in per_row else a for n, a in self.others.items()},
            **{name: a if a is None else a[rows] for name, a in parts.items()},
        )

    def of_client(self, client):
        """The rows of one client; all of them if the file does not say whose."""
        if self.clients is None:
            return self
        rows = self.clients == str(client)
        if not rows.any():
            known = ", ".join(np.unique(self.clients)[:10])
            raise ValueError(
                f"{self.path} has no row of client {client!r}, only of: {known}. If "
                "all rows are of one site, whatever it is called, add --ignore client."
            )
        return self.select(rows)

    def training_rows(self):
        """The rows that may be learned from, of a data set with a split."""
        if self.split is None:
            return self
        rows = np.char.lower(np.char.strip(self.split)) == "train"
        if not rows.any():
            found = ", ".join(map(repr, np.unique(self.split)[:10].tolist()))
            raise ValueError(
                f"{self.path} has no rows left to learn from: its column split must "
                f"say 'train' for them, and says only {found}. If all rows are for "
                "training, add --ignore split."
            )
        return self.select(rows)

    def per_row(self):
        """Those of the others that have one value for each row."""
        shape = (len(self.X),)
        beside = {n: a for n, a in self.others.items() if n not in ABOUT_ALL_ROWS}
        return {name: array for name, array in beside.items() if array.shape == shape}


def read_features(path, labels=None, labels_file=None, ignore=(), encoder=None):
    """Read a file of features; errors name it.

    Parameters
    ----------
    path : Path
        The file; its name says what format it has.
    labels : str, default=None
        Column or array with the labels.
    labels_file : Path, default=None
        File with the labels, if they are in one of their own.
    ignore : list of str, default=()
        Columns that are no features; for ``client`` and ``split`` also what they say.
    encoder : str, default=None
        What made the features, if no fingerprint in the file says it.

    Returns
    -------
    table : FeatureTable
        The features: finite numbers, in at least one row.
    """
    read = READERS.get(path.suffix.lower())
    if read is None:
        raise ValueError(
            f"{path}: features are read from files that end in {', '.join(READERS)}."
        )
    table = read(path, {labels, *ignore, *NEVER_FEATURES})
    _check_features(path, table.X)
    _check_columns(table, [*ignore, *([labels] if labels else [])])
    _check_encoder(table, encoder)
    found = (
        table.others.get(labels) if labels_file is None else _read_labels(labels_file)
    )
    if found is not None:
        found = _check_labels(found, len(table.X), labels_file or path)
    used = {n: a for n, a in table.per_row().items() if n not in ignore}
    return replace(
        table,
        encoder=encoder or table.encoder,
        labels=found,
        clients=_clients(used, table.others),
        split=used["split"].astype(str) if "split" in used else None,
    )


# ------------------------------------------------------------------------ formats


def _read_npz(path, not_features):
    arrays = load_numpy(path)
    if not isinstance(arrays, dict) or "X" not in arrays:
        raise ValueError(f"{path} must hold an array X with the features.")
    encoder = arrays.get("fingerprint")
    X = arrays.pop("X")
    return FeatureTable(path, X, arrays, None if encoder is None else str(encoder))


def _read_npy(path, not_features):
    return FeatureTable(path, load_numpy(path), {})


def _read_csv(path, not_features):
    names, delimiter = _read_header(path)
    features, others = _split_names(path, names, not_features)
    _check_fields(path, delimiter, len(names))

    def read(columns, dtype):
        return np.loadtxt(
            path,
            dtype,
            comments=None,
            delimiter=delimiter,
            skiprows=1,
            usecols=[names.index(name) for name in columns],
            ndmin=2,
            encoding="utf-8-sig",
            quotechar='"',
        )

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Input line .* contained no data")
        try:
            X = read(features, np.float64)
        except ValueError as error:
            raise ValueError(
                f"{path}: {_bad_cell(path, delimiter, features) or error}. All columns "
                "are features but those that --labels and --ignore name; missing "
                "values must be filled in, and decimals need a point."
            ) from error
        texts = read(others, str).T if others else ()
    return _table(path, X, features, dict(zip(others, texts, strict=True)))


def _read_header(path):
    """Names of the columns and what stands between them; a table has rows below."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            has_rows = any(line.strip() for line in file)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8; save it as CSV UTF-8.") from error
    # Excel writes semicolons where the comma is for decimals
    delimiter = max(",;\t", key=first.count)
    names = next(csv.reader([first], delimiter=delimiter), [])
    names = [name.strip() for name in names]
    if not names or all(_is_number(name) for name in names):
        raise ValueError(f"{path} must begin with a line of column names.")
    if not has_rows:
        raise ValueError(f"{path} has no rows.")
    return names, delimiter


def _check_fields(path, delimiter, n_columns):
    """Refuse rows with more or fewer fields than columns, which would shift values."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=delimiter)
        try:
            for row in reader:
                if row and len(row) != n_columns:
                    raise ValueError(
                        f"{path}: fields in line {reader.line_num}: {len(row)}, but "
                        f"columns: {n_columns}, separated by {delimiter!r}. "
                        "Decimals need a point, and text with a separator needs "
                        "double quotes."
                    )
        except csv.Error as error:
            raise ValueError(f"{path}: line {reader.line_num}: {error}.") from error


def _bad_cell(path, delimiter, features):
    """Where the first feature stands that is no number, in words."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=delimiter)
        names = [name.strip() for name in next(reader)]
        for row in filter(None, reader):
            for name, cell in zip(names, row, strict=True):
                if name in features and not _is_number(cell):
                    line = reader.line_num
                    return f"line {line}, column {name!r}: {cell!r} is no number"
    return None


def _read_parquet(path, not_features):
    try:
        import pandas

        frame = pandas.read_parquet(path)
    except ImportError as error:
        raise ImportError(
            f"{path}: to read .parquet files, install pandas and pyarrow: pip install "
            "pandas pyarrow"
        ) from error
    names = [str(name).strip() for name in frame.columns]
    features, others = _split_names(path, names, not_features)
    frame.columns = names
    columns = []
    for name in features:
        try:
            column = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}: column {name!r} is not numeric; leave it out with --ignore, "
                "or name it as --labels."
            ) from error
        columns.append(column)
    texts = {name: np.array(frame[name].tolist()) for name in others}
    return _table(path, np.column_stack(columns), features, texts)


READERS = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def _split_names(path, names, not_features):
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has more than one column {twice[0]!r}.")
    missing = sorted(not_features - {None, *NEVER_FEATURES, *names})
    if missing:
        raise ValueError(
            f"{path} has no column {missing[0]!r}; its columns are: {', '.join(names)}."
        )
    features = [name for name in names if name not in not_features]
    if not features:
        raise ValueError(f"{path} has no features, only the columns {names}.")
    return features, [name for name in names if name in not_features]


def _table(path, X, features, others):
    from ..exchange import feature_fingerprint

    encoder = feature_fingerprint(features)
    columns = {"columns": np.array(features), "fingerprint": np.array(encoder)}
    return FeatureTable(path, X, {**others, **columns}, encoder)


# ------------------------------------------------------------------------- checks


def _check_features(path, X):
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"{path}: features must be a matrix of numbers with a row for each sample."
        )
    if not X.size:
        raise ValueError(f"{path} has no rows." if X.shape[1] else f"{path} is empty.")
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        raise ValueError(
            f"{path}: {len(bad)} of {len(X)} rows have NaN or infinity among their "
            f"features, the first is row {bad[0] + 1}; fill them in or leave them out."
        )


def _check_columns(table, names):
    beside = [n for n in table.others if n not in ("columns", "fingerprint")]
    for name in names:
        if name not in table.others:
            raise ValueError(
                f"{table.path} has no column {name!r}; beside the features it has: "
                f"{', '.join(beside) or 'nothing'}."
            )


def _check_encoder(table, encoder):
    """Refuse to overrule a fingerprint; names of columns may be."""
    if table.has_names or not encoder or table.encoder in (None, encoder):
        return
    raise ValueError(
        f"{table.path} says that its features are of the encoder {table.encoder!r}, "
        f"which --encoder {encoder} contradicts; leave --encoder out."
    )


def _check_labels(labels, n_rows, path):
    """Labels as text or numbers, one per row."""
    if labels.shape != (n_rows,):
        raise ValueError(
            f"{path}: labels have the shape {labels.shape}, but there are {n_rows} "
            "rows of features."
        )
    texts = labels.astype(str)
    missing = np.isin(np.char.strip(texts), ["", "nan", "None", "<NA>", "NaT"])
    if missing.any():
        raise ValueError(
            f"{path}: {missing.sum()} of {n_rows} rows have no label, the first is row "
            f"{np.argmax(missing) + 1}; leave them out."
        )
    if labels.dtype.kind not in "US":
        return labels
    names, rows = np.unique(texts, return_inverse=True)
    # some programs write whole numbers as 1.0 once one of them was missing
    names = [name.removesuffix(".0") for name in names.tolist()]
    return np.array(names, np.int64)[rows] if all(map(_is_whole, names)) else labels


def _read_labels(path):
    """Labels in a file of their own."""
    if path.suffix.lower() == ".npy":
        return np.asarray(load_numpy(path))
    return np.array(path.read_text(encoding="utf-8-sig").splitlines())


def _clients(used, others):
    """Client of each row as text, if the file says it."""
    if "client" in used:
        names, rows = np.unique(used["client"].astype(str), return_inverse=True)
    elif "domain" in used and "domains" in others:
        names, rows = others["domains"].astype(str), used["domain"]
    else:
        return None
    return np.array([plain_name(name) for name in names])[rows]


def _is_whole(text):
    """Whether text is a whole number that comes back as the same text."""
    digits = text.removeprefix("-")
    return digits.isdecimal() and len(digits) < 16 and str(int(text)) == text


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True
