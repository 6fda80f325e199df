"""How the aligner learns which row is whose, and what its output looks like."""

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array

from skslot import FederatedOTAligner

FEATURES = ["a", "b", "c"]
N_SAMPLES = 60


def make_rows():
    """Rows of three clients with string ids, in random order."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.repeat(["berlin", "lima", "oslo"], [30, 10, 20]))
    scale = {"berlin": 1.0, "lima": 2.0, "oslo": 0.5}
    X = rng.standard_normal((N_SAMPLES, 3))
    X *= np.array([scale[client] for client in ids])[:, None]
    X += np.array([len(client) for client in ids])[:, None]
    return X, ids


@pytest.fixture
def X():
    return make_rows()[0]


@pytest.fixture
def ids():
    return make_rows()[1]


@pytest.fixture
def expected(X, ids):
    return FederatedOTAligner().fit_transform(X, client_ids=ids)


@pytest.fixture
def frame(X, ids):
    """The same rows with the ids as the second of four columns."""
    frame = pd.DataFrame(X, columns=FEATURES, index=np.arange(N_SAMPLES) + 1000)
    frame.insert(1, "site", ids)
    return frame


# ---------------------------------------------------------------- ids as metadata

CONTAINERS = {
    "list": list,
    "list of str": lambda ids: ids.tolist(),
    "tuple": tuple,
    "generator": lambda ids: (client for client in ids),
    "dict values": lambda ids: dict(enumerate(ids)).values(),
    "object array": lambda ids: ids.astype(object),
    "column vector": lambda ids: ids[:, None],
    "object series": lambda ids: pd.Series(ids, dtype=object),
    "str series": lambda ids: pd.Series(ids, dtype="str"),
    "string series": lambda ids: pd.Series(ids, dtype="string"),
    "category series": lambda ids: pd.Series(ids, dtype="category"),
    "series with other index": lambda ids: pd.Series(ids, index=range(60, 0, -1)),
    "pandas index": pd.Index,
    "pandas categorical": pd.Categorical,
    "polars series": pl.Series,
    "polars categorical": lambda ids: pl.Series(ids, dtype=pl.Categorical),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_ids_come_in_any_container(X, ids, expected, name):
    make = CONTAINERS[name]
    aligner = FederatedOTAligner().fit(X, client_ids=make(ids))
    assert np.array_equal(aligner.transform(X, client_ids=ids), expected)
    aligner.fit(X, client_ids=ids)
    assert np.array_equal(aligner.transform(X, client_ids=make(ids)), expected)


@pytest.mark.parametrize("name", CONTAINERS)
def test_clients_print_as_plain_strings(X, ids, name):
    aligner = FederatedOTAligner().fit(X, client_ids=CONTAINERS[name](ids))
    assert aligner.clients_.tolist() == ["berlin", "lima", "oslo"]
    assert {type(message.client) for message in aligner.statistics_} == {str}
    assert aligner.clients_.dtype.kind == "U"


def number_of(ids):
    return np.unique(ids, return_inverse=True)[1]


NUMBERS = {
    "int array": number_of,
    "int8 array": lambda ids: number_of(ids).astype(np.int8),
    "float array": lambda ids: number_of(ids).astype(float),
    "list of int": lambda ids: number_of(ids).tolist(),
    "list of numpy int": lambda ids: list(number_of(ids)),
    "object array": lambda ids: number_of(ids).astype(object),
    "Int64 series": lambda ids: pd.Series(number_of(ids), dtype="Int64"),
    "category series": lambda ids: pd.Series(number_of(ids), dtype="category"),
    "polars series": lambda ids: pl.Series(number_of(ids)),
}


@pytest.mark.parametrize("at_transform", NUMBERS)
@pytest.mark.parametrize("at_fit", NUMBERS)
def test_numbers_that_compare_equal_are_one_client(
    X, ids, expected, at_fit, at_transform
):
    aligner = FederatedOTAligner().fit(X, client_ids=NUMBERS[at_fit](ids))
    aligned = aligner.transform(X, client_ids=NUMBERS[at_transform](ids))
    assert np.array_equal(aligned, expected)


class Site:
    """Object that compares equal to another of the same name, but has no order."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Site) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


@pytest.mark.parametrize(
    "name",
    [
        Site,
        lambda client: (client, 1),
        lambda client: (client, ("nested", 2)),
        lambda client: frozenset([client]),
        lambda client: client.encode(),
        lambda client: np.datetime64(ord(client[0]), "ns"),
        lambda client: {"berlin": 1, "lima": "1", "oslo": 2.5}[client],
    ],
    ids=["object", "tuple", "nested", "frozenset", "bytes", "date", "mixed"],
)
def test_ids_are_any_objects_that_compare_equal(X, ids, expected, name):
    def renamed():
        return [name(client) for client in ids]

    aligner = FederatedOTAligner().fit(X, client_ids=renamed())
    assert len(aligner.clients_) == 3
    aligned = aligner.transform(X, client_ids=renamed())
    np.testing.assert_allclose(aligned, expected, rtol=1e-12)


def test_number_and_text_are_different_clients(X):
    mixed = [1, "1"] * (N_SAMPLES // 2)
    aligner = FederatedOTAligner().fit(X, client_ids=mixed)
    assert list(aligner.clients_) == [1, "1"]


@pytest.mark.parametrize("client", ["lima", np.str_("lima"), np.array("lima")])
def test_scalar_id_is_for_all_rows(X, ids, client):
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    aligned = aligner.transform(X, client_ids=client)
    assert np.array_equal(aligned, aligner.transform(X, client_ids=["lima"] * 60))


def test_number_as_scalar_id(X, ids):
    aligner = FederatedOTAligner().fit(X, client_ids=number_of(ids))
    aligned = aligner.transform(X, client_ids=1)
    assert np.array_equal(aligned, aligner.transform(X, client_ids=[1.0] * 60))


def test_ids_can_be_left_out_for_a_single_client(X):
    aligner = FederatedOTAligner(tau=1).fit(X, client_ids=["lima"] * len(X))
    aligned = aligner.transform(X)
    assert np.array_equal(aligned, aligner.transform(X, client_ids="lima"))


def test_clients_are_sorted(X, ids):
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    assert aligner.clients_.tolist() == ["berlin", "lima", "oslo"]


# ------------------------------------------------------------------- bad ids

METHODS = ["fit", "partial_fit", "fit_transform", "transform", "inverse_transform"]


@pytest.fixture(params=METHODS)
def call(request, X, ids):
    """Any method of a fitted aligner that takes ids, bound to X."""
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    method = getattr(aligner, request.param)
    return lambda client_ids: method(X, client_ids=client_ids)


@pytest.mark.parametrize("length", [0, 1, 59, 61, 120])
def test_wrong_number_of_ids_is_refused(call, length):
    with pytest.raises(ValueError, match=f"{length} entries, but X has 60 rows"):
        call(["lima"] * length)


@pytest.mark.parametrize(
    "missing",
    [
        lambda ids: [*ids[:-1], None],
        lambda ids: [*ids[:-1], np.nan],
        lambda ids: [*ids[:-1], pd.NA],
        lambda ids: [*ids[:-1], pd.NaT],
        lambda ids: pd.Series([*ids[:-1], None], dtype=object),
        lambda ids: pd.Series([*ids[:-1], None], dtype="str"),
        lambda ids: pd.Series([*ids[:-1], None], dtype="string"),
        lambda ids: pd.Series([*ids[:-1], None], dtype="category"),
        lambda ids: pd.Series([*number_of(ids)[:-1], None], dtype="Int64"),
        lambda ids: np.append(number_of(ids)[:-1], np.nan),
        lambda ids: pl.Series([*ids[:-1], None]),
        lambda ids: pl.Series([*number_of(ids)[:-1].tolist(), None]),
    ],
)
def test_missing_id_is_refused(call, ids, missing):
    with pytest.raises(ValueError, match="missing .* for 1 rows, the first is row 59"):
        call(missing(ids))


@pytest.mark.parametrize("scalar", [np.nan, pd.NA])
def test_missing_scalar_id_is_refused(call, scalar):
    with pytest.raises(ValueError, match="missing .* for 60 rows|one id for all rows"):
        call(scalar)


def test_fit_takes_a_single_id_for_a_column_name(X):
    with pytest.raises(ValueError, match="'site' is one id .* set client_column"):
        FederatedOTAligner().fit(X, client_ids="site")


def test_partial_fit_does_not_mix_rows_with_and_without_ids(X, ids):
    named = FederatedOTAligner().partial_fit(X, client_ids="lima")
    with pytest.raises(ValueError, match="fitted with client_ids before"):
        named.partial_fit(X)
    nameless = FederatedOTAligner().partial_fit(X)
    with pytest.raises(ValueError, match="fitted without client_ids before"):
        nameless.partial_fit(X, client_ids=ids)
    with pytest.raises(ValueError, match="one nameless client"):
        nameless.add_client(X, "lima")


def test_two_ids_per_row_are_refused(call, ids):
    with pytest.raises(ValueError, match=r"one id per row, got .* shape \(60, 2\)"):
        call(np.c_[ids, ids])


@pytest.mark.parametrize(
    "unhashable",
    [
        lambda ids: [[client] for client in ids],
        lambda ids: [[client] * len(client) for client in ids],
        lambda ids: [{client} for client in ids],
        lambda ids: [np.array([1, 2]) for _ in ids],
        lambda ids: [{"site": client} for client in ids],
    ],
    ids=["lists", "ragged", "sets", "arrays", "dicts"],
)
def test_ids_that_cannot_be_hashed_are_refused(call, ids, unhashable):
    with pytest.raises(ValueError, match="client_ids must be hashable"):
        call(unhashable(ids))


@pytest.mark.parametrize("method", ["transform", "inverse_transform"])
def test_missing_ids_are_refused_with_the_remedy(X, ids, method):
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    with pytest.raises(ValueError, match="client_ids is missing") as raised:
        getattr(aligner, method)(X)
    message = str(raised.value)
    assert "3 clients were fitted" in message
    assert "client_column" in message
    assert "enable_metadata_routing=True" in message


@pytest.mark.parametrize("method", ["transform", "inverse_transform"])
def test_the_remedy_is_not_routing_where_it_is_on(X, ids, method, routing):
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    with pytest.raises(ValueError, match="a wrapper does not pass them on") as raised:
        getattr(aligner, method)(X)
    message = str(raised.value)
    assert "scoring='accuracy'" in message
    assert "client_column" in message
    assert "set_config" not in message


@pytest.mark.parametrize("method", ["fit", "partial_fit", "fit_transform"])
def test_y_is_not_taken_as_ids(X, ids, method):
    aligner = FederatedOTAligner()
    with pytest.warns(UserWarning, match="No client_ids were passed"):
        getattr(aligner, method)(X, ids)
    assert aligner.clients_.tolist() == [None]


def test_fit_without_ids_and_y_is_silent(X):
    assert FederatedOTAligner().fit(X).clients_.tolist() == [None]


def test_y_beside_ids_changes_nothing(X, ids, expected):
    y = np.arange(N_SAMPLES)
    aligned = FederatedOTAligner().fit_transform(X, y, client_ids=ids)
    assert np.array_equal(aligned, expected)


# --------------------------------------------------------------- ids as a column

FRAMES = {
    "pandas": lambda frame: frame,
    "polars": pl.DataFrame,
    "array": lambda frame: frame.to_numpy(),
    "list": lambda frame: frame.to_numpy().tolist(),
}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        *itertools.product(FRAMES, [1, -3, np.int64(1)]),
        ("pandas", "site"),
        ("polars", "site"),
    ],
)
def test_column_of_ids_equals_ids(frame, expected, kind, column):
    X = FRAMES[kind](frame)
    aligner = FederatedOTAligner(client_column=column)
    assert np.array_equal(aligner.fit_transform(X), expected)
    assert np.array_equal(aligner.transform(X), expected)
    assert list(aligner.clients_) == ["berlin", "lima", "oslo"]
    assert aligner.n_features_in_ == 4


def test_column_of_numbers_in_a_numeric_array(X, ids, expected):
    rows = np.c_[X, number_of(ids)]
    aligned = FederatedOTAligner(client_column=-1).fit_transform(rows)
    assert np.array_equal(aligned, expected)


def test_partial_fit_reads_the_column(frame, expected):
    aligner = FederatedOTAligner(client_column="site")
    aligner.partial_fit(frame[:20]).partial_fit(frame[20:])
    np.testing.assert_allclose(aligner.transform(frame), expected, rtol=1e-10)


def test_add_client_takes_rows_without_the_column(X, frame):
    aligner = FederatedOTAligner(client_column="site").fit(frame)
    aligner.add_client(frame[FEATURES] + 1, "rome")
    rows = frame.assign(site="rome")
    expected = aligner.maps_[aligner.clients_[-1]].transform(X)
    assert aligner.clients_.tolist() == ["berlin", "lima", "oslo", "rome"]
    assert np.array_equal(aligner.transform(rows), expected)


def test_add_client_refuses_rows_with_the_column(X, ids):
    rows = np.c_[number_of(ids), X]
    aligner = FederatedOTAligner(client_column=0).fit(rows)
    with pytest.raises(ValueError, match="X has 4 features|rows are of client"):
        aligner.add_client(rows, 9)


def test_kept_column_in_pandas(frame, expected):
    aligner = FederatedOTAligner(client_column="site", keep_client_column=True)
    aligned = aligner.fit_transform(frame)
    assert isinstance(aligned, pd.DataFrame)
    assert list(aligned.columns) == ["a", "site", "b", "c"]
    assert aligned.index.equals(frame.index)
    assert aligned["site"].equals(frame["site"])
    assert aligned.dtypes[FEATURES].eq(np.float64).all()
    assert np.array_equal(aligned[FEATURES], expected)


def test_kept_column_in_polars(frame, expected):
    aligner = FederatedOTAligner(client_column="site", keep_client_column=True)
    polars = pl.DataFrame(frame)
    aligned = aligner.fit_transform(polars)
    assert isinstance(aligned, pl.DataFrame)
    assert aligned.columns == ["a", "site", "b", "c"]
    assert aligned["site"].equals(polars["site"])
    assert aligned.schema["a"] == pl.Float64
    assert np.array_equal(aligned[FEATURES].to_numpy(), expected)


def test_kept_column_in_a_square_polars_frame(frame):
    aligner = FederatedOTAligner(client_column="site", keep_client_column=True)
    aligner.fit(frame)
    square = pl.DataFrame(frame)[:3]
    expected = aligner.transform(frame)[:3]
    aligned = aligner.transform(square)
    np.testing.assert_allclose(aligned[FEATURES], expected[FEATURES], rtol=1e-13)


def test_kept_column_in_an_object_array(frame, expected):
    aligner = FederatedOTAligner(client_column=1, keep_client_column=True)
    aligned = aligner.fit_transform(frame.to_numpy())
    assert aligned.dtype == object
    assert np.array_equal(aligned[:, 1], frame["site"])
    assert np.array_equal(aligned[:, [0, 2, 3]].astype(float), expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kept_column_in_a_numeric_array_keeps_the_precision(X, ids, dtype):
    rows = np.c_[X, number_of(ids)].astype(dtype)
    aligner = FederatedOTAligner(client_column=-1, keep_client_column=True)
    aligned = aligner.fit_transform(rows)
    assert aligned.dtype == dtype
    assert np.array_equal(aligned[:, -1], rows[:, -1])


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_inverse_transform_reads_a_kept_column(X, frame, kind):
    aligner = FederatedOTAligner(client_column=1, keep_client_column=True)
    aligned = aligner.fit_transform(FRAMES[kind](frame))
    back = aligner.inverse_transform(aligned)
    np.testing.assert_allclose(back, X, rtol=1e-12)


def test_inverse_transform_takes_ids_for_a_dropped_column(X, ids, frame):
    aligner = FederatedOTAligner(client_column="site")
    aligned = aligner.fit_transform(frame)
    back = aligner.inverse_transform(aligned, client_ids=ids)
    np.testing.assert_allclose(back, X, rtol=1e-12)
    with pytest.raises(ValueError, match="client_ids is missing"):
        aligner.inverse_transform(aligned)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("kind", FRAMES)
def test_frame_is_not_written_to(frame, kind, keep):
    aligner = FederatedOTAligner(client_column=1, keep_client_column=keep)
    rows, kept = FRAMES[kind](frame), FRAMES[kind](frame.copy())
    aligned = aligner.fit_transform(rows)
    if hasattr(aligned, "iloc"):
        aligned.iloc[:, 0] = 0.0
    same = rows == kept if kind == "list" else np.array_equal(rows, kept)
    assert same


@pytest.mark.parametrize("method", ["fit", "partial_fit", "fit_transform", "transform"])
def test_both_routes_at_once_are_refused(frame, ids, method):
    aligner = FederatedOTAligner(client_column="site").fit(frame)
    with pytest.raises(ValueError, match="both as client_ids and as client_column"):
        getattr(aligner, method)(frame, client_ids=ids)


def test_both_routes_at_once_are_refused_on_the_way_back(frame, ids):
    aligner = FederatedOTAligner(client_column="site", keep_client_column=True)
    aligned = aligner.fit_transform(frame)
    with pytest.raises(ValueError, match="both as client_ids and as client_column"):
        aligner.inverse_transform(aligned, client_ids=ids)


@pytest.mark.parametrize(
    ("column", "rows", "error", "message"),
    [
        ("city", pd.DataFrame({"a": [1.0]}), ValueError, r"'city' .* are \['a'\]"),
        ("city", np.zeros((5, 2)), ValueError, "X has no column names"),
        (2, np.zeros((5, 2)), ValueError, "out of range: X has 2 columns"),
        (-3, np.zeros((5, 2)), ValueError, "out of range: X has 2 columns"),
        (0, np.zeros((5, 1)), ValueError, "X has no features"),
        ("a", pd.DataFrame({"a": [1, 2]}), ValueError, "X has no features"),
        (0, csr_array(np.eye(3)), TypeError, "dense data is required"),
        (0, np.zeros(5), ValueError, "Expected 2D array"),
        (0, np.array([[None, 1.0]]), ValueError, "client_ids is missing"),
        (0, np.array([["a", "b"]]), ValueError, "beside that of clients has text, 'b'"),
        (0, np.array([["a", np.nan]], dtype=object), ValueError, r"\['a'\]: .* NaN"),
    ],
)
def test_bad_column_is_refused(column, rows, error, message):
    with pytest.raises(error, match=message):
        FederatedOTAligner(client_column=column).fit(rows)


def test_y_beside_a_column_of_ids_is_silent(frame):
    aligner = FederatedOTAligner(client_column="site").fit(frame, np.arange(N_SAMPLES))
    assert len(aligner.clients_) == 3


# --------------------------------------------------------------- names and output


def test_frames_keep_their_names(X, ids):
    frame = pd.DataFrame(X, columns=FEATURES)
    aligner = FederatedOTAligner().fit(frame, client_ids=ids)
    assert aligner.feature_names_in_.tolist() == FEATURES
    assert aligner.get_feature_names_out().tolist() == FEATURES


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_names_out_lack_a_dropped_column(frame, kind, keep):
    aligner = FederatedOTAligner(client_column=-3, keep_client_column=keep)
    aligner.fit(FRAMES[kind](frame))
    names = list(frame.columns) if kind != "array" else ["x0", "x1", "x2", "x3"]
    if not keep:
        del names[1]
    assert aligner.get_feature_names_out().tolist() == names


def test_columns_in_another_order_are_refused(X, ids):
    frame = pd.DataFrame(X, columns=FEATURES)
    aligner = FederatedOTAligner().fit(frame, client_ids=ids)
    with pytest.raises(ValueError, match="feature names should match"):
        aligner.transform(frame[FEATURES[::-1]], client_ids=ids)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_set_output_with_ids(X, ids, expected, make, output):
    frame = make(dict(zip(FEATURES, X.T, strict=True)))
    aligner = FederatedOTAligner().set_output(transform=output)
    aligned = aligner.fit_transform(frame, client_ids=ids)
    assert type(aligned) is {"pandas": pd.DataFrame, "polars": pl.DataFrame}[output]
    assert list(aligned.columns) == FEATURES
    assert np.array_equal(aligned.to_numpy(), expected)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_set_output_with_a_column(frame, expected, kind, output, keep):
    aligner = FederatedOTAligner(client_column=1, keep_client_column=keep)
    aligner.set_output(transform=output)
    aligned = aligner.fit_transform(FRAMES[kind](frame))
    assert type(aligned) is {"pandas": pd.DataFrame, "polars": pl.DataFrame}[output]
    assert list(aligned.columns) == aligner.get_feature_names_out().tolist()
    features = [name for name in aligned.columns if name not in ("site", "x1")]
    if not keep:
        features = list(aligned.columns)
    values = aligned[features].to_numpy().astype(float)
    assert np.array_equal(values, expected)


@pytest.mark.parametrize("keep", [False, True])
def test_index_is_kept(frame, keep):
    aligner = FederatedOTAligner(client_column="site", keep_client_column=keep)
    aligner.set_output(transform="pandas")
    aligned = aligner.fit_transform(frame)
    assert aligned.index.equals(frame.index)


def test_float32_frame_stays_float32(frame):
    narrow = frame.astype(dict.fromkeys(FEATURES, np.float32))
    aligner = FederatedOTAligner(client_column="site", keep_client_column=True)
    aligned = aligner.fit_transform(narrow)
    assert aligned.dtypes[FEATURES].eq(np.float32).all()
