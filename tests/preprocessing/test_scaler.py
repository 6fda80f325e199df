"""FederatedScaler is StandardScaler on the rows of all clients, which nobody pools."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FederatedScaler,
    MixedEffectsClassifier,
)
from skslot.datasets import load_digit_scanners
from skslot.exchange import ColumnStatistics, MessageError, load_message, load_messages
from skslot.model_selection import FederatedGridSearchCV

N = 300


def make_rows(case, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5)) * [1.0, 30.0, 1e-3, 1e5, 2.0] + [0, 130, 1e-3, 1e6, -4]
    if case == "constant":
        X[:, 1], X[:, 2], X[:, 3] = 0.1, 0.0, -1e9
    elif case == "nearly constant":
        X[:, 0] = 1.0 + 1e-16 * rng.normal(size=N)
        X[:, 1] = 1e8 + 1e-8 * rng.normal(size=N)
        X[:, 2] = 1e-30 * rng.normal(size=N)
    elif case == "missing":
        X[rng.random(X.shape) < 0.3] = np.nan
        X[: N // 2, 2] = np.nan
        X[:, 4] = np.nan
    return X.astype(dtype)


def make_ids(spread):
    if spread == "one row each":
        return np.arange(N)
    if spread == "in order":
        return np.repeat(["A", "B", "C"], [10, 90, 200])
    return np.random.default_rng(1).choice(["A", "B", "C", "D"], N)


def relative(found, expected):
    """Largest difference, as a share of the numbers."""
    size = np.maximum(np.abs(expected), np.finfo(float).tiny)
    return np.nanmax(np.abs(found - expected) / size)


CASES = ["plain", "constant", "nearly constant", "missing"]
SPREADS = ["at random", "in order", "one row each"]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning:sklearn")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("case", CASES)
def test_result_is_that_of_pooled_rows(case, spread, dtype):
    X = make_rows(case, dtype)
    expected = StandardScaler().fit(X)
    scaler = FederatedScaler().fit(X, client_ids=make_ids(spread))
    varies = expected.scale_ != 1
    assert relative(scaler.mean_, expected.mean_) < 1e-12
    assert relative(scaler.var_[varies], expected.var_[varies]) < 1e-12
    assert relative(scaler.scale_, expected.scale_) < 1e-12
    np.testing.assert_array_equal(np.isnan(scaler.scale_), np.isnan(expected.scale_))
    np.testing.assert_array_equal(scaler.n_samples_seen_, expected.n_samples_seen_)
    scaled = scaler.transform(X)
    assert scaled.dtype == dtype
    # of numbers far from zero, the mean is known to fewer digits than the spread
    digits = 1e-12 if dtype is np.float64 and case != "nearly constant" else 1e-6
    known = expected.transform(X.astype(np.float64))  # in float32 it rounds the mean
    np.testing.assert_allclose(scaled, known, rtol=0, atol=digits)


@pytest.mark.parametrize("with_std", [False, True])
@pytest.mark.parametrize("with_mean", [False, True])
def test_what_is_switched_off_is_as_in_scikit_learn(with_mean, with_std):
    X = make_rows("missing")[:, :4]
    switches = {"with_mean": with_mean, "with_std": with_std}
    expected = StandardScaler(**switches).fit(X)
    scaler = FederatedScaler(**switches).fit(X, client_ids=make_ids("at random"))
    for name in ("mean_", "var_", "scale_"):
        found, known = getattr(scaler, name), getattr(expected, name)
        assert (found is None) == (known is None)
        assert known is None or relative(found, known) < 1e-12
    scaled, known = scaler.transform(X), expected.transform(X)
    sizes = np.maximum(np.abs(known), np.abs(X))
    assert np.nanmax(np.abs(scaled - known) / sizes) < 1e-12
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X)


def test_rows_are_left_as_they_are():
    X = make_rows("missing")
    before = X.copy()
    FederatedScaler().fit(X).transform(X)
    np.testing.assert_array_equal(X, before)


def test_chunks_give_what_all_rows_give():
    X, ids = make_rows("missing"), make_ids("at random")
    expected, scaler = FederatedScaler().fit(X, client_ids=ids), FederatedScaler()
    for rows in np.array_split(np.arange(N), 7):
        scaler.partial_fit(X[rows], client_ids=ids[rows])
    assert relative(scaler.mean_[:4], expected.mean_[:4]) < 1e-12
    assert relative(scaler.scale_[:4], expected.scale_[:4]) < 1e-12
    assert scaler.statistics_.n_samples == N


def test_infinity_is_refused_with_the_client_and_nan_is_not():
    X = make_rows("missing")
    X[5, 0] = np.inf
    with pytest.raises(ValueError, match=r"Rows of client \['A'\].*contains infinity"):
        FederatedScaler().fit(X, client_ids=make_ids("in order"))


def test_rows_of_another_width_are_refused():
    scaler = FederatedScaler().fit(make_rows("plain"))
    with pytest.raises(ValueError, match="X has 4 features, but 5 were fitted"):
        scaler.inverse_transform(make_rows("plain")[:, :4])


# ------------------------------------------------------------------------------ ids


@pytest.fixture
def table():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(make_rows("missing")[:, :4], columns=list("abcd"))
    frame.insert(1, "site", make_ids("in order"))
    return frame


@pytest.mark.parametrize("keep", [False, True])
def test_column_of_ids_is_kept_in_its_place_or_dropped(table, keep):
    scaler = FederatedScaler(client_column="site", keep_client_column=keep)
    scaled = scaler.fit(table).transform(table)
    names = list(table.columns) if keep else ["a", "b", "c", "d"]
    assert list(scaler.get_feature_names_out()) == names
    assert scaler.n_features_in_ == 5
    rows = table.drop(columns="site")
    expected = StandardScaler().fit_transform(rows)
    if keep:
        assert list(scaled.columns) == names
        assert scaled["site"].tolist() == table["site"].tolist()
        scaled = scaled.drop(columns="site")
    np.testing.assert_allclose(scaled, expected, atol=1e-12)
    for back in (scaler.transform(table), np.asarray(scaled)):
        np.testing.assert_allclose(scaler.inverse_transform(back), rows)


def test_output_can_be_a_frame(table):
    scaler = FederatedScaler(client_column="site").set_output(transform="pandas")
    scaled = scaler.fit_transform(table)
    assert list(scaled.columns) == list(table.columns)
    plain = FederatedScaler().set_output(transform="pandas")
    rows = table.drop(columns="site")
    assert list(plain.fit_transform(rows, client_ids=table["site"])) == list("abcd")


def test_position_of_the_column_in_an_array_serves_as_well(table):
    ids = np.unique(table["site"], return_inverse=True)[1]
    rows = table.drop(columns="site").to_numpy()
    scaler = FederatedScaler(client_column=0).fit(np.column_stack([ids, rows]))
    scaled = scaler.transform(np.column_stack([ids, rows]))
    np.testing.assert_array_equal(scaled[:, 0], ids)
    np.testing.assert_allclose(
        scaled[:, 1:], StandardScaler().fit_transform(rows), atol=1e-12
    )


@pytest.fixture
def labelled():
    rng = np.random.default_rng(0)
    y = np.resize(["healthy", "ill"], N)
    X = rng.normal(size=(N, 4)) + (y == "ill")[:, None]
    return X * [1, 50, 1e-3, 10] + [0, 200, 1, 5], y, make_ids("at random")


def test_ids_are_routed_through_a_pipeline(labelled):
    X, y, ids = labelled
    scaled = StandardScaler().fit_transform(X)
    aligned = FederatedOTAligner().fit_transform(scaled, client_ids=ids)
    expected = LogisticRegression().fit(aligned, y).predict_proba(aligned)
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(
            FederatedScaler(), FederatedOTAligner(), LogisticRegression()
        )
        pipe.fit(X, y, client_ids=ids)
        found = pipe.predict_proba(X, client_ids=ids)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(
    "after",
    [
        [FederatedOTAligner(client_column=0), LogisticRegression()],
        [
            FederatedOTAligner(client_column=0, keep_client_column=True),
            FedCGSClassifier(client_column=0),
        ],
        [MixedEffectsClassifier(client_column=0)],
    ],
    ids=lambda steps: type(steps[-1]).__name__,
)
def test_column_of_ids_goes_through_a_pipeline(labelled, after):
    X, y, ids = labelled
    table = np.column_stack([np.unique(ids, return_inverse=True)[1], X])
    pipe = make_pipeline(FederatedScaler(client_column=0), *after).fit(table, y)
    scaled = np.column_stack([table[:, 0], StandardScaler().fit_transform(X)])
    expected = make_pipeline(*after).fit(scaled, y).predict_proba(scaled)
    np.testing.assert_allclose(pipe.predict_proba(table), expected, atol=1e-6)


@pytest.mark.parametrize("route", ["argument", "column"])
def test_search_goes_through_the_scaler(labelled, route):
    X, y, ids = labelled
    column, passed, data = None, {"client_ids": ids}, X
    if route == "column":
        column, passed = 0, {}
        data = np.column_stack([np.unique(ids, return_inverse=True)[1], X])
    pipe = make_pipeline(
        FederatedScaler(client_column=column),
        FederatedOTAligner(client_column=column),
        LogisticRegression(),
    )
    grid = {"federatedotaligner__tau": [0.0, 0.5]}
    with sklearn.config_context(enable_metadata_routing=True):
        search = FederatedGridSearchCV(pipe, grid).fit(data, y, **passed)
    assert search.best_score_ > 0.6
    scaler = search.best_estimator_[0]
    assert relative(scaler.scale_, StandardScaler().fit(X).scale_) < 1e-12


# ------------------------------------------------------------------------ messages


def test_files_of_sites_make_the_scaler_of_all_rows(tmp_path):
    X, ids = make_rows("missing"), make_ids("in order")
    scaler, paths = FederatedScaler(), []
    for site in np.unique(ids):
        message = scaler.client_update(X[ids == site], client=str(site))
        paths.append(tmp_path / f"{site}.slot")
        message.with_encoder("lab@1").save(paths[-1], "float64", min_samples=1)
    answer = scaler.server_aggregate(load_messages(paths)).statistics_
    assert (answer.n_samples, answer.client, answer.encoder) == (N, None, "lab@1")
    answer.save(tmp_path / "all.slot", "float64")
    at_site = FederatedScaler().server_aggregate([load_message(tmp_path / "all.slot")])
    expected = FederatedScaler().fit(X, client_ids=ids).transform(X)
    np.testing.assert_array_equal(at_site.transform(X), expected)


def test_feature_with_few_values_is_not_saved(tmp_path):
    X = make_rows("plain")
    X[3:, 1] = np.nan
    message = FederatedScaler().client_update(X, client="A")
    with pytest.raises(MessageError, match="feature 2 with 3 rows") as caught:
        message.save(tmp_path / "A.slot")
    assert caught.value.small_groups == {"feature 2": 3}


def test_messages_on_other_features_are_refused():
    scaler, X = FederatedScaler(), make_rows("plain")
    messages = [scaler.client_update(X), scaler.client_update(X[:, :3])]
    with pytest.raises(MessageError, match="has 3 features, client None 5"):
        scaler.server_aggregate(messages)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_values": np.array([31, 1])}, "n_values must be at most n_samples=30"),
        ({"n_values": np.array([-1, 1])}, "n_values must be at least 0"),
        ({"squares": np.array([-1.0, 1.0])}, "squares contains a negative variance"),
        ({"n_values": np.array([0, 1])}, "a feature without values has a mean"),
        ({"n_samples": 0}, "n_samples must be a whole number from 1"),
        ({"means": np.array([np.nan, 0.0])}, "means contains NaN"),
    ],
)
def test_message_that_no_rows_can_have_is_refused(changes, match):
    facts = {
        "n_samples": 30,
        "n_values": np.array([30, 12]),
        "means": np.ones(2),
        "squares": np.ones(2),
    }
    FederatedScaler().server_aggregate([ColumnStatistics(**facts)])
    with pytest.raises(MessageError, match=match):
        FederatedScaler().server_aggregate([ColumnStatistics(**facts | changes)])


def test_more_rows_than_can_be_counted_are_refused():
    n = 2**53
    one = ColumnStatistics(n, np.array([n]), np.zeros(1), np.zeros(1), "A")
    other = ColumnStatistics(n, np.array([n]), np.zeros(1), np.zeros(1), "B")
    with pytest.raises(MessageError, match="n_samples of all clients"):
        FederatedScaler().server_aggregate([one, other])


# ------------------------------------------------------------ clients that stand out


@pytest.fixture
def honest():
    """A table of four sites: age, a skewed laboratory value, a rare sign, a score."""
    rng = np.random.default_rng(0)
    columns = [
        rng.normal(60, 10, 400),
        rng.lognormal(8, 1, 400),
        rng.random(400) < 0.02,
        rng.normal(size=400),
    ]
    return np.column_stack(columns), np.repeat(list("ABCD"), 100)


def messages_of(X, site):
    scaler = FederatedScaler()
    return [scaler.client_update(X[site == name], client=name) for name in "ABCD"]


def spoil(X, how):
    """Change the rows of site D."""
    X = X.copy()
    if how == "all units":
        X[300:] *= 1e4
    elif how == "larger":
        X[300:, 0] *= 1000
        X[:, 1] *= 1000  # so that the other is no more than a small part
    elif how == "smaller":
        X[300:, 0] /= 1000
    elif how == "code":
        X[300:, 0] = -999
    return X


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("all units", "its features are about .* times larger than those of others"),
        ("larger", "its feature 1 is about 960 times larger than that of others"),
        ("smaller", "its feature 1 is about 1,000 times smaller than that of others"),
        ("code", "its feature 1 is 110 standard deviations away from that of others"),
    ],
)
def test_client_in_other_units_is_warned_of(how, match, honest):
    X, site = spoil(honest[0], how), honest[1]
    match = f"client 'D' stands out: {match}"
    with pytest.warns(UserWarning, match=match):
        fitted = FederatedScaler().fit(X, client_ids=site)
    assert list(fitted.clients_report_.outliers) == ["D"]
    messages = messages_of(X, site)
    with pytest.warns(UserWarning, match=match):
        from_messages = FederatedScaler().server_aggregate(messages)
    expected = fitted.clients_report_.to_dicts()
    assert from_messages.clients_report_.to_dicts() == expected
    ignoring = FederatedScaler(screen=None).fit(X, client_ids=site)
    assert np.array_equal(ignoring.scale_, fitted.scale_)


@pytest.mark.parametrize("how", ["all units", "larger", "smaller", "code"])
def test_client_that_is_left_out_changes_nothing(how, honest):
    X, site = spoil(honest[0], how), honest[1]
    expected = FederatedScaler().fit(X[:300], client_ids=site[:300])
    scaler = FederatedScaler(screen="exclude")
    with pytest.warns(UserWarning, match="client 'D' was left out"):
        scaler.fit(X, client_ids=site)
    assert np.array_equal(scaler.mean_, expected.mean_)
    assert np.array_equal(scaler.scale_, expected.scale_)
    with pytest.warns(UserWarning, match="client 'D' was left out"):
        scaler.server_aggregate(messages_of(X, site))
    assert scaler.statistics_ == expected.statistics_


def test_rows_of_who_was_left_out_are_not_forgotten(honest):
    """With more rows, which are as they should be, they are judged together."""
    X, site = spoil(honest[0], "all units"), honest[1]
    whole = np.vstack([X, honest[0]]), np.tile(site, 2)
    scaler = FederatedScaler(screen="exclude")
    with pytest.warns(UserWarning, match="client 'D' was left out"):
        expected = FederatedScaler(screen="exclude").fit(whole[0], client_ids=whole[1])
    for rows in (X, honest[0]):
        with pytest.warns(UserWarning, match="client 'D' was left out"):
            scaler.partial_fit(rows, client_ids=site)
    np.testing.assert_allclose(scaler.scale_, expected.scale_, rtol=1e-12)
    assert scaler.clients_report_["D"].n_samples == 200


@pytest.mark.parametrize("case", ["as it is", "missing", "common", "constant", "few"])
def test_honest_clients_are_quiet(case, honest):
    X, site = honest
    if case == "missing":
        X[300:, 0] = np.nan
    elif case == "common":  # a sign that is rare elsewhere
        X[300:, 2] = 1.0
    elif case == "constant":
        X[300:, [0, 3]] = 62.0, 0.5
    elif case == "few":
        X, site = X[:303], site[:303]
        X[300:] = X[300]
    report = FederatedScaler().fit(X, client_ids=site).clients_report_
    assert report.outliers == {}
    assert report.clients == ["A", "B", "C", "D"]


@pytest.mark.parametrize("by_class", [False, True])
def test_digits_of_scanners_are_quiet(by_class):
    data = load_digit_scanners()
    site = data.client_ids
    if by_class:
        site = [
            f"{name}, {label}" for name, label in zip(site, data.target, strict=True)
        ]
    scaler = FederatedScaler().fit(data.data, client_ids=site)
    assert scaler.clients_report_.outliers == {}


@pytest.mark.parametrize("column", [None, "site"])
def test_columns_of_a_frame_are_warned_of_by_name(column):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 9, 160), "salt": rng.normal(9, 1, 160)})
    site = np.repeat(["A", "B", "C", "D"], 40)
    frame.loc[site == "C", "salt"] *= 1000
    frame.insert(1, "height", rng.normal(170, 1e5, 160))
    ids = {"client_ids": site} if column is None else {}
    rows = frame if column is None else frame.assign(site=site)[["site", *frame]]
    with pytest.warns(UserWarning, match="'C' stands out: its column 'salt' is about"):
        FederatedScaler(client_column=column).fit(rows, **ids)
    with pytest.warns(UserWarning, match="'C' stands out: its feature 3 is about"):
        FederatedScaler().fit(frame.to_numpy(), client_ids=site)


@pytest.mark.parametrize("n_clients", [3, 4])
def test_other_units_at_one_of_few_clients_are_named(n_clients):
    rng = np.random.default_rng(0)
    X = rng.normal([50, 1.0, 5.5], [15, 0.2, 1], (100 * n_clients, 3))
    ids = np.repeat(np.arange(n_clients), 100)
    X[ids == 1, 1] *= 88.4
    table = pd.DataFrame(X, columns=["age", "creatinine", "glucose"])
    with pytest.warns(UserWarning, match="client 1.*'creatinine' is about .* larger"):
        FederatedScaler().fit(table, client_ids=ids)
