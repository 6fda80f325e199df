"""Files of features that cannot be right, at the command line."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from four_sites import error_of


def save(**arrays):
    return lambda: np.savez("bad.npz", **arrays)


def write(name, content):
    return lambda: Path(name).write_bytes(content)


NAN = np.where(np.arange(20)[:, None] == 7, np.nan, np.ones((20, 3)))


WRONG = {
    "missing": (lambda: None, "bad.npz", "error: bad.npz: No such file or directory."),
    "format": (write("bad.txt", b""), "bad.txt", "files that end in .npz, .npy, .csv"),
    "empty file": (write("bad.npz", b""), "bad.npz", "cannot be read"),
    "half a file": (write("bad.npz", b"PK\x03\x04half"), "bad.npz", "cannot be read"),
    "objects": (save(X=np.array([None])), "bad.npz", "holds Python objects"),
    "no X": (save(Z=np.ones((20, 3))), "bad.npz", "must hold an array X.* it has: Z"),
    "no rows": (save(X=np.empty((0, 3))), "bad.npz", "has no rows"),
    "no matrix": (save(X=np.ones(3)), "bad.npz", "must be a matrix of numbers"),
    "text": (save(X=np.full((20, 3), "a")), "bad.npz", "must be a matrix of numbers"),
    "NaN": (save(X=NAN), "bad.npz", "1 of 20 rows have NaN or infinity.* is row 8;"),
    "no labels": (
        save(X=np.ones((20, 3)), z=[1]),
        "bad.npz --labels",
        "has no column 'y'; it has: X, z",
    ),
    "few labels": (
        save(X=np.ones((20, 3)), y=np.ones(19)),
        "bad.npz --labels",
        "y has 19 values, but there are 20 rows of features",
    ),
    "NaN as label": (
        save(X=np.ones((20, 3)), y=[1.0, np.nan] * 10),
        "bad.npz --labels",
        "10 of 20 rows have no label, the first is row 2",
    ),
    "wrong client": (
        save(X=np.ones((20, 3)), client=["B"] * 20),
        "bad.npz",
        "no row of client 'A', only of: B",
    ),
    "no training rows": (
        save(X=np.ones((20, 3)), split=["test"] * 20),
        "bad.npz",
        "no rows left to learn from: its split.*only .'test'.*--ignore split",
    ),
    "empty table": (write("bad.csv", b""), "bad.csv", "begin with a line of column"),
    "no header": (write("bad.csv", b"1,2\n3,4\n"), "bad.csv", "begin with a line of"),
    "header only": (write("bad.csv", b"a,b\n\n"), "bad.csv", "has no rows"),
    "not UTF-8": (write("bad.csv", b"\xe4,b\n1,2\n"), "bad.csv", "CSV UTF-8"),
    "text in table": (
        write("bad.csv", b"a,name\n1,Eve\n"),
        "bad.csv",
        "line 2, column 'name': 'Eve' is no number.*--ignore",
    ),
    "gap in table": (
        write("bad.csv", b"a,b\n1,2\n,3\n"),
        "bad.csv",
        "line 3, column 'a': '' is no number.*skslot plan",
    ),
    "decimal commas": (
        write("bad.csv", b"a,b\n1,2\n\n1,5,2,5\n"),
        "bad.csv",
        "bad.csv: fields in line 4: 4, but columns: 2, separated by ','",
    ),
    "separator in text": (
        write("bad.csv", b'a;name\n1;"Eve; Eva"\n2;Adam; Ada\n'),
        "bad.csv --ignore name",
        "bad.csv: fields in line 3: 3, but columns: 2",
    ),
    "few fields": (
        write("bad.csv", b"a,b\n1\n"),
        "bad.csv",
        "bad.csv: fields in line 2: 1, but columns: 2",
    ),
    "field without end": (
        write("bad.csv", b'a,b\n"' + b"x" * 200_000),
        "bad.csv",
        "bad.csv: line 2: field larger than",
    ),
    "column twice": (write("bad.csv", b"a,a\n1,2\n"), "bad.csv", "more than one col"),
    "no features": (
        write("bad.csv", b"y,client\n1,A\n"),
        "bad.csv --labels",
        "has no features",
    ),
    "unknown column": (
        write("bad.csv", b"a , class,client\n1,cat,A\n"),
        "bad.csv --labels",
        "has no column 'y'; it has: a, class, client.$",
    ),
    "nothing beside": (
        save(X=np.ones((20, 3)), fingerprint="v1"),
        "bad.npz --labels",
        "has no column 'y'; it has: X, fingerprint",
    ),
    "text in parquet": (
        lambda: pd.DataFrame({"a": [1], "b": ["x"]}).to_parquet("bad.parquet"),
        "bad.parquet",
        "column 'b' is not numeric",
    ),
    "no parquet": (write("bad.parquet", b"no"), "bad.parquet", "bad.parquet"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_features_are_one_line(site, case, capsys):
    prepare, arguments, expected = WRONG[case]
    prepare()
    error = error_of(f"summarize {arguments} --client A -o A.slot", capsys)
    assert re.search(expected, error)
    assert "bad." in error
    assert not Path("A.slot").exists()


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_tables_without_pandas_name_what_to_install(site, kind, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pandas", None)
    error = error_of(f"summarize table.{kind} --client A -o A.slot", capsys)
    assert 'pip install "skslot[tables]"' in error
