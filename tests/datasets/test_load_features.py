"""Files of features: one rule each, the same for all formats."""

import re
import sys

import numpy as np
import pandas as pd
import pytest

from skslot.datasets import load_features
from skslot.exchange import feature_fingerprint

X = np.random.default_rng(0).standard_normal((12, 3))
NAMES = ["age", "weight", "dose"]
CLIENT = np.repeat(["A", "B"], 6)
Y = np.resize(["cat", "dog", "owl"], 12)
TABLES = ["csv", "parquet", "feather"]


@pytest.fixture(params=["npz", *TABLES])
def ending(request):
    return request.param


@pytest.fixture
def save(tmp_path):
    """Write X and what stands beside it in some format."""

    def write(ending, X=X, **others):
        path = tmp_path / f"sites.{ending}"
        if ending == "npz":
            np.savez(path, X=X, **others)
        else:
            write_table(path, pd.DataFrame(X, columns=NAMES).assign(**others))
        return path

    return write


def write_table(path, frame):
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_feather(path)


def refused(path, *words, **options):
    """The error, which names the file."""
    with pytest.raises(ValueError, match=r"sites\.") as caught:
        load_features(path, **options)
    for word in words:
        assert word in str(caught.value)


# ------------------------------------------------------------------- what is read


def test_all_that_a_file_says_is_returned(save, ending):
    split = np.resize(["train", "test", "val"], 12)
    path = save(ending, y=Y, client=CLIENT, split=split, path=Y)
    features = load_features(str(path))
    assert np.array_equal(features.X, X)
    assert features.y.tolist() == Y.tolist()
    assert features.client_ids.tolist() == CLIENT.tolist()
    assert features.split.tolist() == ["train", "test", "validation"] * 4
    assert list(features.per_row()) == ["y", "client", "split", "path"]
    names = None if ending == "npz" else NAMES
    assert features.feature_names == names
    assert features.encoder == (names and feature_fingerprint(names))


def test_nothing_but_features(save, ending):
    features = load_features(save(ending))
    assert (features.y, features.client_ids, features.split) == (None, None, None)
    assert features.of_client("A") is features.training_rows() is features
    assert features.per_row() == {}


def test_array_alone(tmp_path):
    np.save(tmp_path / "sites.npy", X.astype(np.float32))
    features = load_features(tmp_path / "sites.npy")
    assert features.X.dtype == np.float32
    refused(tmp_path / "sites.npy", "has no column 'y'; it has: X", labels="y")


def test_numbers_in_text_are_read_exactly(save):
    """As Python reads them, to the last bit."""
    assert np.array_equal(load_features(save("csv")).X, X)


def test_what_is_said_of_the_whole_file(save):
    path = save("npz", fingerprint="v1", dataset="Digits", columns=np.array(NAMES))
    features = load_features(path)
    assert (features.encoder, features.dataset) == ("v1", "Digits")
    assert features.feature_names == NAMES
    refused(save("npz", fingerprint=["v1", "v2"]), "fingerprint must be one text")


def test_encoder_is_named_by_who_reads_if_the_file_does_not(save, ending):
    assert load_features(save(ending), encoder="v1").encoder == "v1"
    path = save("npz", fingerprint="v2")
    assert load_features(path, encoder="v2").encoder == "v2"
    refused(path, "'v2', which", "encoder='v1' or --encoder v1", encoder="v1")


def test_some_rows_keep_all_that_is_known_of_them(save, ending):
    others = {"path": np.char.add("p", CLIENT)}
    if ending == "npz":
        others["crops"] = np.arange(24).reshape(12, 2)
        others["settings"] = np.arange(5)
    features = load_features(save(ending, y=Y, client=CLIENT, **others))
    part = features.select([6, 8])
    assert np.array_equal(part.X, X[[6, 8]])
    assert part.y.tolist() == Y[[6, 8]].tolist()
    assert part.client_ids.tolist() == part.of_client("B").client_ids.tolist()
    assert part.others["path"].tolist() == ["pB", "pB"]
    if ending == "npz":
        assert part.others["crops"].tolist() == [[12, 13], [16, 17]]
        assert part.others["settings"].tolist() == [0, 1, 2, 3, 4]


# ------------------------------------------------------------------- values per row


@pytest.mark.parametrize("name", ["client", "y", "split", "domain", "path"])
@pytest.mark.parametrize("shape", [11, 13, (12, 1), ()])
def test_one_value_for_each_row(save, name, shape):
    values = np.full(shape, "train")
    found = f"{shape} values" if isinstance(shape, int) else f"shape {shape}"
    for options in ({}, {"labels": False}):
        path = save("npz", **{name: values})
        remedy = f"ignore=['{name}'] or --ignore {name}"
        refused(path, f"{name} has {found}, but there are 12", remedy, **options)
    if name != "domain":
        assert load_features(path, ignore=name).X.shape == X.shape


def test_labels_of_another_name_or_file(save, ending, tmp_path):
    path = save(ending, y=np.arange(12), kind=Y)
    assert load_features(path, labels="kind").y.tolist() == Y.tolist()
    ignored = load_features(path, ignore=["y", "kind"])
    assert ignored.y is None
    assert np.array_equal(ignored.X, X)
    assert load_features(path, labels=False, ignore=["kind"]).y is None
    np.save(tmp_path / "labels.npy", Y)
    (tmp_path / "labels.txt").write_text("\n".join(Y) + "\n")
    for name in ("labels.npy", "labels.txt"):
        features = load_features(path, labels_file=tmp_path / name, ignore="kind")
        assert features.y.tolist() == Y.tolist()
    (tmp_path / "labels.txt").write_text("cat\n")
    with pytest.raises(ValueError, match=r"labels\.txt: labels has 1 values, .* 12"):
        load_features(path, labels_file=tmp_path / "labels.txt", ignore="kind")
    with pytest.raises(ValueError, match="labels or labels_file, not both"):
        load_features(path, labels="kind", labels_file="labels.txt")


@pytest.mark.parametrize("name", ["y", "client"])
@pytest.mark.parametrize("missing", ["", " ", None, np.nan])
def test_labels_and_clients_are_not_missing(save, ending, name, missing):
    values = [missing if row == 3 else label for row, label in enumerate(Y)]
    values = np.array(values, str) if ending == "npz" else values
    words = {"y": "label", "client": "client"}
    path = save(ending, **{name: values})
    refused(path, f"1 of 12 rows have no {words[name]}, the first is row 4")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 10], [1, 2, 10]),
        (["1", "2", "10"], [1, 2, 10]),
        (["1.0", "2.0", "10.0"], [1, 2, 10]),
        (["007", "2", "10"], ["007", "2", "10"]),
        (["1", "2", "x"], ["1", "2", "x"]),
    ],
)
def test_whole_numbers_are_numbers_and_names_stay_text(save, ending, values, expected):
    values = np.resize(values, 12)
    features = load_features(save(ending, y=values, client=values))
    assert features.y.tolist() == expected * 4
    assert features.client_ids.tolist() == expected * 4


def test_names_of_clients_are_the_same_however_typed(save, ending):
    names = np.where(CLIENT == "A", "Zu\u0308rich ", " Z\u00fcrich")
    features = load_features(save(ending, client=names))
    assert set(features.client_ids) == {"Z\u00fcrich"}


def test_client_that_is_not_there(save, ending):
    features = load_features(save(ending, client=CLIENT))
    with pytest.raises(ValueError, match=r"no row of client 'C', only of: A, B\."):
        features.of_client("C")


# --------------------------------------------------------------------------- split


@pytest.mark.parametrize(
    ("part", "spellings"),
    [
        ("train", ["train", "Training", " TRAIN "]),
        ("test", ["test", "TESTING", "Test"]),
        ("validation", ["val", "Valid", "validation ", "DEV"]),
    ],
)
def test_usual_spellings_of_a_split(save, ending, part, spellings):
    features = load_features(save(ending, split=np.resize(spellings, 12)))
    assert set(features.split) == {part}
    if part == "train":
        assert np.array_equal(features.training_rows().X, X)
    else:
        with pytest.raises(ValueError, match=f"'train' for none, but only .'{part}'"):
            features.training_rows()


def test_other_parts_are_refused(save, ending):
    path = save(ending, split=np.resize(["train", "holdout", ""], 12))
    words = "train, training, test, testing, val, valid, validation, dev for each row"
    refused(path, words, "['', 'holdout']", "--ignore split")
    assert load_features(path, ignore=["split"]).split is None


# ------------------------------------------------------------------------- domains


def test_clients_may_be_positions_in_domains(save):
    path = save("npz", domain=np.arange(12) % 2, domains=["A ", "B"])
    assert load_features(path).client_ids.tolist() == ["A", "B"] * 6


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        (np.arange(12) % 3, "from 0 to 1, the positions in domains, but is also [2]"),
        (np.arange(12) % 2 - 1, "but is also [-1]"),
        (np.arange(12) % 2 * 1.0, "domain must hold integers"),
        (CLIENT, "domain must hold integers"),
    ],
)
def test_domain_is_a_position(save, domain, words):
    path = save("npz", domain=domain, domains=["A", "B"])
    refused(path, words)
    assert load_features(path, ignore=["domain", "domains"]).client_ids is None


@pytest.mark.parametrize("alone", ["domain", "domains"])
def test_domain_and_domains_need_each_other(save, alone):
    refused(save("npz", **{alone: np.zeros(12, int)}), "it takes both domain", alone)


# --------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Client", "client"),
        ("CLIENT", "client"),
        ("Y", "y"),
        ("x", "X"),
        ("Split", "split"),
        ("Domain", "domain"),
        ("DOMAINS", "domains"),
        ("Path", "path"),
        ("Fingerprint", "fingerprint"),
        ("DataSet", "dataset"),
    ],
)
def test_names_that_are_nearly_known_are_refused(save, ending, name, known):
    path = save(ending, **{name: np.arange(12)})
    remedy = f"rename it, or leave it out by ignore=['{name}'] or --ignore {name}"
    refused(path, f"has '{name}', which is nearly '{known}'", remedy)
    features = load_features(path, ignore=name)
    assert np.array_equal(features.X, X)
    assert features.client_ids is None
    assert load_features(path, labels=name).y.tolist() == list(range(12))


@pytest.mark.parametrize("name", ["X", "domain", "domains", "fingerprint", "dataset"])
@pytest.mark.parametrize("ending", TABLES)
def test_columns_that_mean_something_in_other_files(tmp_path, ending, name):
    path = tmp_path / f"sites.{ending}"
    write_table(path, pd.DataFrame({"a": [1.0, 2.0], name: [0, 1]}))
    refused(path, f"column '{name}'", ".npz files only", f"--ignore {name}")
    assert load_features(path, ignore=[name]).feature_names == ["a"]


def test_names_that_are_not_there(save, ending):
    for options in ({"labels": "kind"}, {"ignore": "kind"}, {"ignore": ["y", "kind"]}):
        refused(save(ending, y=Y), "has no column 'kind'; it has: ", **options)


def test_index_that_pandas_wrote_is_no_feature(tmp_path):
    path = tmp_path / "sites.csv"
    pd.DataFrame(X, columns=NAMES).to_csv(path)
    refused(path, "column 1 has no name ('')", "ignore=[''] or --ignore \"\"")
    assert np.array_equal(load_features(path, ignore=[""]).X, X)


@pytest.mark.parametrize("name", ["Unnamed: 0", "__index_level_0__"])
@pytest.mark.parametrize("ending", TABLES)
def test_index_that_became_a_column_is_no_feature(save, ending, name):
    path = save(ending, **{name: np.arange(12)})
    refused(path, f"has no name ('{name}')", f"--ignore {name}".replace(" U", ' "U'))
    assert np.array_equal(load_features(path, ignore=name).X, X)


def test_index_with_a_name_stands_beside_the_features(tmp_path):
    path = tmp_path / "sites.parquet"
    frame = pd.DataFrame(X, columns=NAMES).assign(client=CLIENT, patient=range(12))
    frame.set_index(["client", "patient"]).to_parquet(path)
    features = load_features(path)
    assert features.client_ids.tolist() == CLIENT.tolist()
    assert features.feature_names == NAMES
    assert features.others["patient"].tolist() == list(range(12))
    frame.set_index("client", drop=False).to_parquet(path)
    refused(path, "more than one column 'client'")


@pytest.mark.parametrize("ending", TABLES)
def test_spaces_around_names_do_not_matter(tmp_path, ending):
    path = tmp_path / f"sites.{ending}"
    frame = pd.DataFrame(
        {"age": [1.0, 2.0], " dose ": [3.0, 4.0], "client ": ["A"] * 2}
    )
    write_table(path, frame)
    features = load_features(path)
    assert features.feature_names == ["age", "dose"]
    assert features.client_ids.tolist() == ["A", "A"]


# -------------------------------------------------------------------------- features


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_with_gaps_are_counted(save, ending, value):
    holes = np.where(np.arange(12)[:, None] == 7, value, X)
    if ending == "csv" and np.isnan(value):
        refused(save(ending, holes), "line 9, column 'age': '' is no number")
    else:
        words = "1 of 12 rows have NaN or infinity", "the first is row 8"
        refused(save(ending, holes), *words)


@pytest.mark.parametrize(
    "values",
    [
        pd.date_range("2020-01-01", periods=12),
        pd.date_range("2020-01-01", periods=12, tz="UTC"),
        pd.date_range("2020-01-01", periods=12).date,
        pd.date_range("2020-01-01", periods=12).strftime("%Y_%m_%d"),
        pd.to_timedelta(np.arange(12), "D"),
        pd.date_range("2020-01-01 12:00", periods=12, freq="min").time,
        pd.Series(pd.date_range("2020-01-01", periods=12)).astype("category"),
        pd.period_range("2020-01", periods=12, freq="M"),
    ],
)
@pytest.mark.parametrize("ending", TABLES)
def test_dates_are_no_features(save, ending, values):
    if ending != "csv" and isinstance(values[0], str):
        values = pd.Series(values).str.replace("_", "-")
    path = save(ending, visit=values)
    refused(path, "column 'visit'", "ignore=['visit'] or --ignore visit")
    features = load_features(path, ignore="visit")
    assert features.feature_names == NAMES
    assert features.others["visit"].dtype.kind in "U"


@pytest.mark.parametrize("ending", TABLES)
def test_text_is_no_feature_and_booleans_are(save, ending):
    path = save(ending, name=Y)
    refused(path, "column 'name'", "ignore=['name'] or --ignore name")
    features = load_features(save(ending, treated=np.arange(12) < 5))
    assert features.feature_names == [*NAMES, "treated"]
    assert features.X[:, 3].tolist() == [1.0] * 5 + [0.0] * 7


@pytest.mark.parametrize("ending", TABLES)
def test_table_without_features_or_rows(tmp_path, ending):
    path = tmp_path / f"sites.{ending}"
    write_table(path, pd.DataFrame({"y": [1], "client": ["A"]}))
    refused(path, "has no features, only the columns ['y', 'client']")
    write_table(path, pd.DataFrame({"a": [], "b": []}))
    refused(path, "has no rows")


# ------------------------------------------------------------------------ CSV by hand


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_and_quotes(tmp_path, separator):
    path = tmp_path / "sites.csv"
    rows = [["a", "name", "b"], ["1", f'"Eve{separator} Eva"', "2"], ["3", "NA", "4"]]
    text = "\r\n".join(separator.join(row) for row in rows) + "\r\n\r\n"
    path.write_text(text, encoding="utf-8-sig", newline="")
    features = load_features(path, ignore="name")
    assert features.X.tolist() == [[1, 2], [3, 4]]
    assert features.others["name"].tolist() == [f"Eve{separator} Eva", "NA"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must begin with a line of column names"),
        ("1,2\n3,4\n", "must begin with a line of column names"),
        ("a,b\n\n", "has no rows"),
        ("a,a\n1,2\n", "more than one column 'a'"),
        ("a,path\n1,x\n2\n", "fields in line 3: 1, but columns: 2"),
        ("a,b\n1,2\n\n1,5,2,5\n", "fields in line 4: 4, but columns: 2"),
        ("a;b\n1,5;2\n", "line 2, column 'a': '1,5' is no number"),
        ("a,b\n1,nan\n", "line 2, column 'b': 'nan' is no number"),
        ('a,b\n1,"2\n', "line 2: unexpected end of data"),
    ],
)
def test_text_that_is_no_table(tmp_path, text, words):
    path = tmp_path / "sites.csv"
    path.write_text(text)
    refused(path, words)


def test_other_alphabets_are_refused(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_bytes("größe,b\n1,2\n".encode("latin-1"))
    refused(path, "not UTF-8; save it as CSV UTF-8")


# ----------------------------------------------------------------------------- files


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"ARROW1half"])
@pytest.mark.parametrize("ending", ["npz", "npy", "parquet", "feather"])
def test_damaged_files(tmp_path, ending, content):
    path = tmp_path / f"sites.{ending}"
    path.write_bytes(content)
    refused(path, "cannot be read", f".{ending} file")


def test_arrays_without_features(tmp_path):
    np.savez(tmp_path / "sites.npz", y=Y)
    refused(tmp_path / "sites.npz", "must hold an array X with", "it has: y.")
    np.savez(tmp_path / "sites.npz")
    refused(tmp_path / "sites.npz", "it has: nothing.")


def test_missing_and_other_files(tmp_path, ending):
    with pytest.raises(FileNotFoundError, match=f"none.{ending}"):
        load_features(tmp_path / f"none.{ending}")
    refused(tmp_path / "sites.txt", "end in .npz, .npy, .csv, .parquet, .feather")


def test_csv_needs_no_extra(save, monkeypatch):
    path = save("csv")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert np.array_equal(load_features(path).X, X)


@pytest.mark.parametrize(
    ("ending", "package"), [("parquet", "pandas"), ("feather", "pyarrow")]
)
def test_other_tables_need_an_extra(save, ending, package, monkeypatch):
    path = save(ending)
    monkeypatch.setitem(sys.modules, package, None)
    remedy = re.escape(f"sites.{ending}: to read Parquet ") + ".*skslot.tables."
    with pytest.raises(ImportError, match=remedy):
        load_features(path)
    assert load_features(save("npz")).X.shape == X.shape
