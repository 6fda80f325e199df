"""What all one-shot classifiers promise: two steps, ids, labels, errors, searches."""

import pickle
import tracemalloc
import warnings
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import _safe_indexing
from sklearn.utils.estimator_checks import parametrize_with_checks

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier
from skslot.datasets import make_shifted_clients
from skslot.exchange import LinearModel

# Most of these tests are about one client; the warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:fitted without client_ids")

PLAIN = {
    "cgs total": FedCGSClassifier(),
    "cgs within": FedCGSClassifier("within", ridge=0.1, priors="uniform"),
    "pft spherical": FedPFTClassifier(random_state=0),
    "pft diag": FedPFTClassifier(covariance_type="diag", random_state=0),
    "pft full": FedPFTClassifier(covariance_type="full", random_state=0),
}
ALIGNED = {
    "cgs total aligned": FedCGSClassifier(aligner=FederatedOTAligner()),
    "cgs float16 aligned": FedCGSClassifier(
        "within", aligner=FederatedOTAligner(tau=1), wire_dtype="float16"
    ),
    "pft spherical aligned": FedPFTClassifier(
        aligner=FederatedOTAligner(), random_state=0
    ),
    "pft full aligned": FedPFTClassifier(
        covariance_type="full", aligner=FederatedOTAligner(), random_state=0
    ),
}
ALL = PLAIN | ALIGNED

shifted = make_shifted_clients(
    n_samples=240, n_clients=3, n_classes=4, n_features=5, random_state=0
)
TEST, TRAIN = np.arange(0, 240, 3), np.setdiff1d(np.arange(240), np.arange(0, 240, 3))
X, Y, IDS = shifted.data, np.array(list("abcd"))[shifted.target], shifted.client_ids
IDS = np.array(["Bern", "Oslo", "Turin"])[IDS]
FRAME = pd.DataFrame(X, columns=list("vwxyz"))


def over(variants):
    return pytest.mark.parametrize("variant", list(variants), ids=str)


def new(variant, **params):
    return clone(ALL[variant]).set_params(**params)


@cache
def fitted_once(variant):
    """Fitted on the training rows; shared, so not to be changed."""
    return fitted(variant)


def fitted(variant, rows=TRAIN, **params):
    return new(variant, **params).fit(X[rows], Y[rows], client_ids=IDS[rows])


def outputs(classifier, X=X[TEST], client_ids=IDS[TEST]):
    """All that a classifier says about some rows."""
    return [
        classifier.predict(X, client_ids=client_ids),
        classifier.predict_proba(X, client_ids=client_ids),
        classifier.predict_log_proba(X, client_ids=client_ids),
        classifier.decision_function(X, client_ids=client_ids),
    ]


def assert_same(first, second):
    for left, right in zip(first, second, strict=True):
        assert np.array_equal(left, right)


def messages_of(classifier, rows=TRAIN, ids=IDS):
    classes = np.unique(Y[rows])
    return [
        classifier.client_update(
            X[rows][ids[rows] == client], Y[rows][ids[rows] == client], classes, client
        )
        for client in np.unique(ids[rows]).tolist()
    ]


def predict_aligned_rows(classifier, X):
    """What the head of a classifier predicts, without any map before it."""
    if isinstance(classifier, FedPFTClassifier):
        return classifier.estimator_.predict(X)
    scores = X @ classifier.coef_.T + classifier.intercept_
    return classifier.classes_[scores.argmax(axis=1)]


ignore_degenerate = pytest.mark.filterwarnings(
    "ignore:The (rows|covariance) of client:UserWarning"
)

# ------------------------------------------------------------------- scikit-learn


@parametrize_with_checks(
    [
        FedCGSClassifier(),
        FedCGSClassifier("within", wire_dtype="float16"),
        FedCGSClassifier(aligner=FederatedOTAligner()),
        FedPFTClassifier(),
        FedPFTClassifier(2, covariance_type="diag", n_jobs=2),
        FedPFTClassifier(covariance_type="full", aligner=FederatedOTAligner()),
    ]
)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@over(ALL)
def test_clone_has_the_same_parameters_and_no_fit(variant):
    classifier = fitted_once(variant)
    copy = clone(classifier)
    assert repr(copy) == repr(classifier) == repr(ALL[variant])
    assert not hasattr(copy, "classes_")


@over(ALL)
def test_pickle_predicts_the_same(variant):
    classifier = fitted_once(variant)
    assert_same(outputs(pickle.loads(pickle.dumps(classifier))), outputs(classifier))


@over(ALL)
def test_html_shows_the_class_and_that_it_is_fitted(variant):
    classifier = fitted_once(variant)
    html = classifier._repr_html_()
    assert type(classifier).__name__ in html
    assert "<span>Fitted</span>" in html
    assert "<span>Not fitted</span>" in new(variant)._repr_html_()


@over(ALL)
def test_fit_does_not_change_parameters(variant):
    classifier = new(variant)
    before = repr(classifier.get_params())
    classifier.fit(X[TRAIN], Y[TRAIN], client_ids=IDS[TRAIN])
    assert repr(classifier.get_params()) == before
    if classifier.aligner is not None:
        assert not hasattr(classifier.aligner, "_moments")


@over(ALL)
def test_beats_chance_by_far(variant):
    """Otherwise comparisons of predictions could not fail."""
    assert fitted_once(variant).score(X[TEST], Y[TEST], client_ids=IDS[TEST]) > 0.8


# ------------------------------------------------------------------ the two steps


@over(ALL)
def test_fit_equals_the_steps_by_hand(variant):
    classifier = new(variant)
    classifier.server_aggregate(messages_of(classifier))
    expected = fitted_once(variant)
    assert_same(outputs(classifier), outputs(expected))
    assert classifier.communication_ == expected.communication_
    for name in ("coef_", "intercept_"):
        if hasattr(expected, name):
            assert np.array_equal(getattr(classifier, name), getattr(expected, name))


@over(ALL)
def test_steps_on_different_objects_equal_fit(variant):
    """As in a deployment, where clients and server share nothing but messages."""
    server = new(variant)
    dtype = server.wire_dtype
    received = [
        type(message).from_bytes(message.to_bytes(dtype))
        for message in messages_of(new(variant))
    ]
    assert_same(
        outputs(server.server_aggregate(received)), outputs(fitted_once(variant))
    )


@over(ALL)
def test_client_step_changes_nothing(variant):
    classifier = new(variant)
    before = dict(vars(classifier))
    messages_of(classifier)
    assert vars(classifier) == before


@over(ALL)
def test_server_step_leaves_the_messages_unchanged(variant):
    classifier = new(variant)
    messages = messages_of(classifier)
    copies = pickle.loads(pickle.dumps(messages))
    classifier.server_aggregate(messages)
    assert messages == copies


@over(ALL)
def test_server_step_takes_any_iterable(variant):
    classifier = new(variant)
    messages = messages_of(classifier)
    assert_same(
        outputs(classifier.server_aggregate(iter(messages))),
        outputs(fitted_once(variant)),
    )


class ReadAgain:
    """Messages that are read from bytes on each loop, as from files."""

    def __init__(self, messages, dtype):
        self.kind = type(messages[0])
        self.parts = [message.to_bytes(dtype) for message in messages]

    def __iter__(self):
        return map(self.kind.from_bytes, self.parts)


@over(ALL)
def test_server_step_may_read_messages_again(variant):
    classifier = new(variant)
    messages = ReadAgain(messages_of(classifier), classifier.wire_dtype)
    classifier.server_aggregate(messages)
    expected = fitted_once(variant)
    assert_same(outputs(classifier), outputs(expected))
    assert classifier.communication_ == expected.communication_


@pytest.mark.parametrize("aligner", [None, FederatedOTAligner(tol=1e-2)])
def test_server_step_holds_one_message_at_a_time(aligner):
    """Memory does not grow by a matrix for each client."""
    rng = np.random.default_rng(0)
    classifier, size, peaks = FedCGSClassifier(aligner=aligner), 50, []
    for n_clients in (4, 24):
        messages = [
            classifier.client_update(
                rng.normal(size=(200, size)), np.arange(200) % 2, client=client
            )
            for client in range(n_clients)
        ]
        messages = ReadAgain(messages, "float64")
        tracemalloc.start()
        classifier.server_aggregate(messages)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 5 * size**2 * 8


@over(ALL)
def test_order_of_rows_within_clients_apart_ids_may_be_mixed(variant):
    """Rows sorted by client give the same result as rows in any order."""
    order = TRAIN[np.argsort(IDS[TRAIN], kind="stable")]
    assert_same(outputs(fitted(variant, order)), outputs(fitted_once(variant)))


@over(ALL)
def test_threads_change_nothing(variant):
    assert_same(outputs(fitted(variant, n_jobs=2)), outputs(fitted_once(variant)))


@over(PLAIN)
def test_one_client_without_ids(variant):
    classifier = new(variant).fit(X[TRAIN], Y[TRAIN])
    assert list(classifier.communication_) == [None]
    assert classifier.score(X[TEST], Y[TEST]) > 0.8


@over(ALIGNED)
def test_one_client_without_ids_is_not_moved_by_alignment(variant):
    """The reference is the client itself, up to rounding on the wire."""
    params = {"wire_dtype": "float64"}
    aligned = new(variant, **params).fit(X[TRAIN], Y[TRAIN])
    plain = new(variant, aligner=None, **params).fit(X[TRAIN], Y[TRAIN])
    actual = aligned.predict_proba(X[TEST])
    np.testing.assert_allclose(actual, plain.predict_proba(X[TEST]), atol=1e-3)


# ------------------------------------------------------------------- random state

PFT = [variant for variant in ALL if "pft" in variant]


@over(PFT)
def test_int_random_state_is_reproducible(variant):
    assert_same(outputs(fitted(variant)), outputs(fitted_once(variant)))


@over(PFT)
def test_another_random_state_draws_other_rows(variant):
    first, second = (
        outputs(fitted_once(variant)),
        outputs(fitted(variant, random_state=1)),
    )
    assert not np.array_equal(first[1], second[1])


@over(PFT)
def test_random_state_instance_is_reproducible_and_moves_on(variant):
    classifier = new(variant, random_state=np.random.RandomState(0))
    first = outputs(classifier.fit(X[TRAIN], Y[TRAIN], client_ids=IDS[TRAIN]))
    second = outputs(classifier.fit(X[TRAIN], Y[TRAIN], client_ids=IDS[TRAIN]))
    again = outputs(fitted(variant, random_state=np.random.RandomState(0)))
    assert_same(first, again)
    assert not np.array_equal(first[1], second[1])


@over(PFT)
def test_random_state_instance_is_used_once_per_fit(variant):
    """Not by each client in its turn, which threads would make irreproducible."""
    one, three = np.random.RandomState(0), np.random.RandomState(0)
    new(variant, random_state=one).fit(X, Y)
    new(variant, random_state=three).fit(X, Y, client_ids=IDS)
    assert one.randint(2**31 - 1) == three.randint(2**31 - 1)


@over(PFT)
def test_without_random_state_fits_differ(variant):
    first, second = (outputs(fitted(variant, random_state=None)) for _ in range(2))
    assert not np.array_equal(first[1], second[1])


# ------------------------------------------------------- classes, clients and rows


@over(ALL)
def test_classes_are_the_union_over_clients(variant):
    """Each client misses one of the classes."""
    absent = {"Bern": "a", "Oslo": "b", "Turin": "d"}
    kept = [row for row in TRAIN if absent[IDS[row]] != Y[row]]
    classifier = fitted(variant, np.array(kept))
    assert classifier.classes_.tolist() == ["a", "b", "c", "d"]
    probabilities = classifier.predict_proba(X[TEST], client_ids=IDS[TEST])
    assert np.isfinite(probabilities).all()
    assert classifier.score(X[TEST], Y[TEST], client_ids=IDS[TEST]) > 0.6


@over(ALL)
@ignore_degenerate
def test_clients_with_a_single_class(variant):
    """Two of the three clients hold one class only."""
    only = {"Bern": "a", "Oslo": "b"}
    kept = [row for row in TRAIN if only.get(IDS[row], Y[row]) == Y[row]]
    classifier = fitted(variant, np.array(kept))
    assert classifier.classes_.tolist() == ["a", "b", "c", "d"]
    assert np.isfinite(
        classifier.decision_function(X[TEST], client_ids=IDS[TEST])
    ).all()


@over(ALL)
@ignore_degenerate
def test_client_with_a_single_row(variant):
    oslo = np.flatnonzero(IDS[TRAIN] == "Oslo")
    rows = np.delete(TRAIN, oslo[1:])
    classifier = fitted(variant, rows)
    assert set(classifier.communication_) == {"Bern", "Oslo", "Turin"}
    elsewhere = TEST[IDS[TEST] != "Oslo"]
    score = classifier.score(X[elsewhere], Y[elsewhere], client_ids=IDS[elsewhere])
    assert score > 0.8


@over(ALIGNED)
def test_client_with_a_single_row_is_named_in_a_warning(variant):
    oslo = np.flatnonzero(IDS[TRAIN] == "Oslo")
    with pytest.warns(UserWarning, match="'Oslo'"):
        fitted(variant, np.delete(TRAIN, oslo[1:]))


@over(PLAIN)
def test_one_row_of_each_class_in_all(variant):
    rows = np.array([np.flatnonzero(Y == label)[0] for label in "abcd"])
    classifier = fitted(variant, rows)
    assert classifier.predict(X[rows], client_ids=IDS[rows]).tolist() == list("abcd")


@over(ALL)
@ignore_degenerate
def test_rows_that_are_all_alike(variant):
    same, labels = np.full((12, 3), 0.1), np.array(list("aab") * 4)
    ids = np.arange(12) % 2
    classifier = new(variant).fit(same, labels, client_ids=ids)
    assert np.isfinite(classifier.predict_proba(same, client_ids=ids)).all()


@over(ALL)
def test_all_rows_of_one_class(variant):
    labels = np.full(len(TRAIN), "only")
    classifier = new(variant).fit(X[TRAIN], labels, client_ids=IDS[TRAIN])
    assert classifier.classes_.tolist() == ["only"]
    assert set(classifier.predict(X[TEST], client_ids=IDS[TEST])) == {"only"}
    assert np.array_equal(
        classifier.predict_proba(X[TEST], client_ids=IDS[TEST]), np.ones((len(TEST), 1))
    )


@over(ALL)
@pytest.mark.parametrize(
    "labels", [np.arange(4), np.array([7, -3, 5, 0]), np.array(list("dcba"), object)]
)
def test_labels_of_any_kind_are_predicted_as_given(variant, labels):
    codes = np.searchsorted(list("abcd"), Y)
    classifier = new(variant)
    classifier.fit(X[TRAIN], labels[codes[TRAIN]], client_ids=IDS[TRAIN])
    predicted = classifier.predict(X[TEST], client_ids=IDS[TEST])
    assert set(predicted) <= set(labels)
    assert np.mean(predicted == labels[codes[TEST]]) > 0.8
    assert np.array_equal(classifier.classes_, np.sort(labels))


@over(ALL)
def test_binary_decision_function_is_one_dimensional(variant):
    pair = TRAIN[np.isin(Y[TRAIN], ["a", "b"])]
    classifier = fitted(variant, pair)
    decision = classifier.decision_function(X[TEST], client_ids=IDS[TEST])
    assert decision.shape == (len(TEST),)
    predicted = classifier.predict(X[TEST], client_ids=IDS[TEST])
    assert np.array_equal(predicted == "b", decision > 0)


@over(ALL)
@pytest.mark.parametrize("ids", [[7, 1, 3], [b"x", "y", 3], [0.5, (1, 2), True]])
def test_ids_of_any_kind(variant, ids):
    names = np.fromiter(ids, dtype=object)[np.searchsorted(np.unique(IDS), IDS)]
    classifier = new(variant).fit(X[TRAIN], Y[TRAIN], client_ids=names[TRAIN])
    assert set(classifier.communication_) == set(ids)
    assert classifier.score(X[TEST], Y[TEST], client_ids=names[TEST]) > 0.8


@over(ALL)
def test_class_held_by_nobody_is_never_predicted(variant):
    classifier = new(variant)
    classes = ["a", "aa", "b", "c", "d", "e"]
    messages = [
        classifier.client_update(
            X[IDS == client], Y[IDS == client], classes, client=client
        )
        for client in np.unique(IDS)
    ]
    classifier.server_aggregate(messages)
    assert classifier.classes_.tolist() == ["a", "b", "c", "d"]
    probabilities = classifier.predict_proba(X, client_ids=IDS)
    assert probabilities.shape == (len(X), 4)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)


@over(ALL)
def test_order_of_classes_by_hand_does_not_matter(variant):
    classifier = new(variant)
    messages = [
        classifier.client_update(X[IDS == c], Y[IDS == c], list("cadb"), client=c)
        for c in np.unique(IDS).tolist()
    ]
    actual = classifier.server_aggregate(messages).predict_proba(X, client_ids=IDS)
    expected = fitted(variant, np.arange(len(X))).predict_proba(X, client_ids=IDS)
    np.testing.assert_allclose(actual, expected, atol=1e-10)


# ------------------------------------------------------------------ communication


@over(ALL)
@pytest.mark.parametrize("wire_dtype", ["float64", "float32", "float16"])
def test_bytes_up_are_those_of_the_messages(variant, wire_dtype):
    classifier = fitted(variant, wire_dtype=wire_dtype)
    expected = {
        message.client: len(message.to_bytes(wire_dtype))
        for message in messages_of(new(variant, wire_dtype=wire_dtype))
    }
    up = {client: bytes_.up for client, bytes_ in classifier.communication_.items()}
    assert up == expected


@over(ALL)
def test_bytes_down_are_those_of_a_linear_model(variant):
    classifier = fitted_once(variant)
    model = LinearModel(list("abcd"), np.ones((4, 5)), np.ones(4), "Oslo")
    expected = len(model.to_bytes(classifier.wire_dtype))
    # the name of a client in the header may cost one more unit of padding, of 8 bytes
    assert abs(classifier.communication_["Oslo"].down - expected) <= 24


def test_bytes_down_include_the_map_when_the_estimator_is_not_linear():
    forest = RandomForestClassifier(5, max_depth=2, random_state=0)
    plain = fitted("pft spherical", estimator=forest)
    aligned = fitted("pft spherical aligned", estimator=forest)
    actual = plain.communication_["Oslo"].down
    assert actual == len(pickle.dumps(plain.estimator_))
    assert aligned.communication_["Oslo"].down > actual + 8 * 5 * 5


@over(PLAIN)
def test_messages_without_names_are_numbered(variant):
    classifier = new(variant)
    messages = [
        classifier.client_update(X[IDS == client], Y[IDS == client])
        for client in np.unique(IDS)
    ]
    assert list(classifier.server_aggregate(messages).communication_) == [0, 1, 2]


@over(ALL)
def test_progress_is_printed_on_request(variant, capsys):
    fitted(variant)
    assert capsys.readouterr().out == ""
    classifier = fitted(variant, verbose=1)
    printed = capsys.readouterr().out
    for text in ("'Bern' done (1/3)", "'Oslo' done (2/3)", "'Turin' done (3/3)"):
        assert f"[{type(classifier).__name__}] client {text}" in printed


# -------------------------------------------------------------- ids at prediction


@over(PLAIN)
@pytest.mark.parametrize("ids", ["Bern", "nobody", IDS[TEST], np.arange(len(TEST))])
def test_ids_are_ignored_without_aligner(variant, ids):
    classifier = fitted_once(variant)
    assert_same(
        outputs(classifier, client_ids=ids), outputs(classifier, client_ids=None)
    )


@over(ALIGNED)
def test_ids_matter_with_aligner(variant):
    classifier = fitted_once(variant)
    wrong = outputs(classifier, client_ids=np.roll(IDS[TEST], 1))
    assert not np.allclose(wrong[1], outputs(classifier)[1], atol=0.01)


@over(ALIGNED)
def test_scalar_id_stands_for_all_rows(variant):
    classifier, rows = fitted_once(variant), TEST[IDS[TEST] == "Oslo"]
    actual = outputs(classifier, X[rows], "Oslo")
    assert_same(actual, outputs(classifier, X[rows], IDS[rows]))


@over(ALIGNED)
@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_missing_ids_raise_with_aligner(variant, method):
    classifier = fitted_once(variant)
    with pytest.raises(ValueError, match="client_ids is missing.*aligns 3 clients"):
        getattr(classifier, method)(X[TEST])
    with pytest.raises(ValueError, match="client_ids is missing"):
        classifier.score(X[TEST], Y[TEST])


@over(ALIGNED)
def test_unknown_client_raises(variant):
    classifier = fitted_once(variant)
    with pytest.raises(ValueError, match="client .*'Rome'.* was not seen in fit"):
        classifier.predict(X[TEST], client_ids="Rome")


@over(ALIGNED)
def test_unknown_client_is_left_where_it_is_on_request(variant):
    classifier = fitted(variant, aligner__unknown_client="identity")
    actual = classifier.predict(X[TEST], client_ids="Rome")
    assert np.array_equal(actual, predict_aligned_rows(classifier, X[TEST]))


@over(ALIGNED)
def test_unknown_client_is_adapted_on_request(variant):
    classifier = fitted(variant, aligner__unknown_client="adapt")
    actual = classifier.predict(X[TEST], client_ids="Rome")
    statistics = classifier.aligner.client_update(X[TEST])
    own_map = classifier.aligner.client_map(statistics, classifier.reference_)
    moved = own_map.transform(X[TEST])
    assert np.array_equal(actual, predict_aligned_rows(classifier, moved))
    assert not np.allclose(moved, X[TEST], atol=0.1)


@over(ALIGNED)
def test_no_classifier_for_a_client_that_sent_no_message(variant):
    with pytest.raises(ValueError, match="client 'Rome' sent no message"):
        fitted_once(variant).client_classifier("Rome")


@over(ALL)
def test_classifier_of_a_client_predicts_without_ids(variant):
    classifier, rows = fitted_once(variant), TEST[IDS[TEST] == "Oslo"]
    own = classifier.client_classifier("Oslo")
    expected = classifier.predict_proba(X[rows], client_ids="Oslo")
    np.testing.assert_allclose(own.predict_proba(X[rows]), expected, atol=1e-9)
    assert np.array_equal(own.predict(X[rows]), classifier.predict(X[rows], "Oslo"))


# --------------------------------------------------------------------- the column


@over(ALL)
@pytest.mark.parametrize(
    ("table", "column"),
    [
        (FRAME.assign(site=IDS), "site"),
        (FRAME.assign(site=IDS)[["v", "site", "w", "x", "y", "z"]], "site"),
        (FRAME.assign(site=IDS), -1),
        (pl.DataFrame({**FRAME.to_dict("list"), "site": IDS.tolist()}), "site"),
        (np.column_stack([IDS.astype(object), X.astype(object)]), 0),
    ],
    ids=["pandas", "pandas, second", "pandas, by position", "polars", "ndarray"],
)
def test_ids_as_a_column(variant, table, column):
    train, test = (_safe_indexing(table, rows) for rows in (TRAIN, TEST))
    classifier = new(variant, client_column=column).fit(train, Y[TRAIN])
    assert_same(outputs(classifier, test, None), outputs(fitted_once(variant)))
    assert classifier.n_features_in_ == 6


@over(ALL)
def test_numeric_ids_as_a_column_of_an_array(variant):
    numbers = np.searchsorted(["Bern", "Oslo", "Turin"], IDS)
    table = np.insert(X, 2, numbers, axis=1)
    classifier = new(variant, client_column=2).fit(table[TRAIN], Y[TRAIN])
    actual = outputs(classifier, table[TEST], None)
    assert_same(actual, outputs(fitted_once(variant)))


@over(ALL)
def test_ids_both_as_column_and_argument_raise(variant):
    classifier = new(variant, client_column=0)
    with pytest.raises(ValueError, match="ids came both"):
        classifier.fit(X, Y, client_ids=IDS)


# ------------------------------------------------------------------------- errors


@over(ALL)
def test_y_is_required(variant):
    with pytest.raises(ValueError, match="requires y to be passed"):
        new(variant).fit(X, None, client_ids=IDS)
    with pytest.raises(ValueError, match="requires y to be passed"):
        new(variant).client_update(X, None)


@over(ALL)
@pytest.mark.parametrize(
    "missing", [np.r_[np.nan, np.ones(239)], np.r_[[np.nan], Y[1:].astype(object)]]
)
def test_missing_labels_raise(variant, missing):
    with pytest.raises(ValueError, match="contains NaN"):
        new(variant).fit(X, missing, client_ids=IDS)
    with pytest.raises(ValueError, match="contains NaN"):
        new(variant).client_update(X, missing)


@over(ALL)
def test_continuous_labels_raise(variant):
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        new(variant).fit(X, X[:, 0], client_ids=IDS)


@over(ALL)
def test_labels_of_the_wrong_length_raise(variant):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        new(variant).fit(X, Y[:-1], client_ids=IDS)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        new(variant).client_update(X, Y[:-1])


@over(ALL)
def test_ids_of_the_wrong_length_raise(variant):
    with pytest.raises(ValueError, match="client_ids has 239 entries.*240 rows"):
        new(variant).fit(X, Y, client_ids=IDS[:-1])
    with pytest.raises(ValueError, match="client_ids has 239 entries.*80 rows"):
        fitted_once(variant).predict(X[TEST], client_ids=IDS[:-1])


@over(ALL)
def test_sparse_features_raise(variant):
    with pytest.raises(TypeError, match="[Ss]parse"):
        new(variant).fit(csr_array(X), Y, client_ids=IDS)
    with pytest.raises(TypeError, match="[Ss]parse"):
        fitted_once(variant).predict(csr_array(X), client_ids=IDS)


@over(ALL)
def test_nan_in_features_names_the_client(variant):
    spoilt = X.copy()
    spoilt[np.flatnonzero(IDS == "Oslo")[0], 0] = np.nan
    with pytest.raises(ValueError, match="client .*'Oslo'.*contains NaN"):
        new(variant).fit(spoilt, Y, client_ids=IDS)


@over(ALL)
def test_another_number_of_features_raises_at_prediction(variant):
    with pytest.raises(ValueError, match="X has 4 features, but .* is expecting 5"):
        fitted_once(variant).predict(X[TEST, :4], client_ids=IDS[TEST])


@over(ALL)
def test_another_number_of_features_raises_after_steps_by_hand(variant):
    classifier = new(variant)
    classifier.server_aggregate(messages_of(classifier))
    with pytest.raises(ValueError, match="X has 4 features, but .* is expecting 5"):
        classifier.predict(X[TEST, :4], client_ids=IDS[TEST])


@over(ALL)
def test_no_messages_raise(variant):
    with pytest.raises(ValueError, match="messages is empty"):
        new(variant).server_aggregate([])


@over(ALL)
def test_two_messages_of_one_client_raise(variant):
    messages = messages_of(new(variant))
    with pytest.raises(ValueError, match="'Bern'.*give each client a name of its own"):
        new(variant).server_aggregate([*messages, messages[0]])


@over(ALIGNED)
def test_messages_without_names_raise_with_aligner(variant):
    classifier = new(variant)
    messages = [classifier.client_update(X[IDS == c], Y[IDS == c]) for c in set(IDS)]
    with pytest.raises(ValueError, match="give each client a name"):
        classifier.server_aggregate(messages)


@over(ALL)
def test_messages_with_different_numbers_of_features_raise(variant):
    classifier = new(variant)
    messages = [
        classifier.client_update(X, Y, client="wide"),
        classifier.client_update(X[:, :4], Y, client="narrow"),
    ]
    match = "client 'narrow' has 4 features, client 'wide' 5"
    with pytest.raises(ValueError, match=match):
        classifier.server_aggregate(messages)


@over(ALL)
def test_messages_with_labels_of_different_kinds_raise(variant):
    classifier = new(variant)
    messages = [
        classifier.client_update(X[:9], np.arange(9) % 3, client="numbers"),
        classifier.client_update(X[:9], list("012012012"), client="text"),
    ]
    with pytest.raises(ValueError, match="labels as text, others as numbers"):
        classifier.server_aggregate(messages)


@over(ALL)
def test_messages_of_another_method_raise(variant):
    classifier = new(variant)
    is_pft = isinstance(classifier, FedPFTClassifier)
    other = FedCGSClassifier() if is_pft else FedPFTClassifier()
    message = other.client_update(X, Y)
    with pytest.raises(TypeError, match="messages must be Class.*load_message"):
        classifier.server_aggregate([message])
    with pytest.raises(TypeError, match="got a bytes"):
        classifier.server_aggregate([classifier.client_update(X, Y).to_bytes()])


@over(ALL)
def test_labels_outside_of_classes_raise(variant):
    match = r"client 'Oslo' has labels \['c', 'd'\] that are not among"
    with pytest.raises(ValueError, match=match):
        new(variant).client_update(X, Y, classes=["a", "b"], client="Oslo")


@over(ALL)
def test_repeated_classes_raise(variant):
    with pytest.raises(ValueError, match="name each label once"):
        new(variant).client_update(X, Y, classes=Y)


@over(ALL)
def test_float32_features_give_nearly_the_same(variant):
    classifier = new(variant)
    classifier.fit(X[TRAIN].astype(np.float32), Y[TRAIN], client_ids=IDS[TRAIN])
    actual = classifier.predict_proba(X[TEST].astype(np.float32), client_ids=IDS[TEST])
    expected = fitted_once(variant).predict_proba(X[TEST], client_ids=IDS[TEST])
    np.testing.assert_allclose(actual, expected, atol=0.02)
    assert np.mean(actual.argmax(axis=1) == expected.argmax(axis=1)) > 0.97


# ------------------------------------------------- searches, behind an aligner

SEARCHED = {
    "cgs total": {"classify__covariance": ["total", "within"]},
    "pft spherical": {"classify__covariance_type": ["spherical", "full"]},
    "cgs total aligned": {"classify__aligner__tau": [0.0, 1.0]},
    "pft spherical aligned": {"classify__aligner__tau": [0.0, 1.0]},
}
CV = StratifiedKFold(2)


class IdsAsMetadata:
    routing = True
    table = X
    aligner: dict = {}
    classifier: dict = {}
    params = {"client_ids": IDS}


class IdsAsFrameColumn:
    routing = False
    table = FRAME.assign(site=IDS)
    aligner = {"client_column": "site", "keep_client_column": True}
    classifier = {"client_column": "site"}
    params: dict = {}


class IdsAsArrayColumn:
    routing = False
    table = np.column_stack([IDS.astype(object), X.astype(object)])
    aligner = {"client_column": 0, "keep_client_column": True}
    classifier = {"client_column": 0}
    params: dict = {}


@pytest.fixture(
    params=[IdsAsMetadata, IdsAsFrameColumn, IdsAsArrayColumn],
    ids=lambda route: route.__name__,
)
def route(request):
    with sklearn.config_context(enable_metadata_routing=request.param.routing):
        yield request.param


def score_by_hand(classifier, tau, train, test):
    aligner = FederatedOTAligner(tau).fit(X[train], client_ids=IDS[train])
    aligned = aligner.transform(X, client_ids=IDS)
    classifier = clone(classifier)
    classifier.fit(aligned[train], Y[train], client_ids=IDS[train])
    return classifier.score(aligned[test], Y[test], client_ids=IDS[test])


@pytest.mark.parametrize("variant", SEARCHED)
def test_grid_search_behind_an_aligner(variant, route):
    pipeline = Pipeline(
        [
            ("align", FederatedOTAligner(**route.aligner)),
            ("classify", new(variant, **route.classifier)),
        ]
    )
    grid = {"align__tau": [0.0, 0.8], **SEARCHED[variant]}
    search = GridSearchCV(pipeline, grid, cv=CV, error_score="raise")
    search.fit(route.table, Y, **route.params)
    results = search.cv_results_
    for index, params in enumerate(results["params"]):
        own = {k.split("__", 1)[1]: v for k, v in params.items() if "classify" in k}
        expected = [
            score_by_hand(new(variant, **own), params["align__tau"], train, test)
            for train, test in CV.split(X, Y)
        ]
        assert [results[f"split{k}_test_score"][index] for k in (0, 1)] == expected
    assert search.score(route.table, Y, **route.params) > 0.8


@pytest.mark.parametrize("variant", ALIGNED)
def test_grid_search_over_tau_alone(variant):
    """Without a Pipeline, by metadata routing and the default scoring."""
    grid = {"aligner__tau": [0.0, 0.5, 1.0]}
    search = GridSearchCV(new(variant), grid, cv=CV, error_score="raise")
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, Y, client_ids=IDS)
    for tau, actual in zip(
        grid["aligner__tau"], search.cv_results_["mean_test_score"], strict=True
    ):
        expected = [
            fitted(variant, train, aligner__tau=tau).score(
                X[test], Y[test], client_ids=IDS[test]
            )
            for train, test in CV.split(X, Y)
        ]
        assert actual == np.mean(expected)


@pytest.mark.parametrize("variant", ALIGNED)
def test_column_of_ids_works_with_every_scorer(variant):
    table = FRAME.assign(site=IDS)
    search = GridSearchCV(
        new(variant, client_column="site"),
        {"aligner__tau": [0.0, 1.0]},
        scoring=["balanced_accuracy", "neg_log_loss"],
        refit="neg_log_loss",
        cv=CV,
        error_score="raise",
    ).fit(table, Y)
    assert np.isfinite(search.cv_results_["mean_test_neg_log_loss"]).all()
    predicted = cross_val_predict(new(variant, client_column="site"), table, Y, cv=CV)
    for train, test in CV.split(X, Y):
        expected = fitted(variant, train).predict(X[test], client_ids=IDS[test])
        assert np.array_equal(predicted[test], expected)


@pytest.mark.parametrize(
    "method",
    [
        "fit",
        "predict",
        "predict_proba",
        "predict_log_proba",
        "decision_function",
        "score",
    ],
)
@over(ALL)
def test_ids_are_requested_by_default(variant, method):
    requests = getattr(new(variant).get_metadata_routing(), method).requests
    assert requests["client_ids"] is True


@pytest.mark.parametrize(
    ("classifier", "warns"),
    [
        (FedCGSClassifier(), False),
        (FedCGSClassifier(aligner=FederatedOTAligner()), True),
        (FedPFTClassifier(random_state=0), True),
    ],
)
def test_missing_ids_are_worth_a_warning_where_they_matter(classifier, warns):
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.tile([0, 1], 10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier.fit(X, y)
    assert any("fitted without client_ids" in str(w.message) for w in caught) == warns


def test_client_joins_an_aligned_classifier_later():
    rng = np.random.default_rng(0)
    X, y, ids = rng.normal(size=(60, 3)), np.tile([0, 1], 30), np.repeat(["A", "B"], 30)
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(unknown_client="adapt"))
    classifier.fit(X, y, client_ids=ids)
    new = rng.normal(5, 2, size=(40, 3))
    adapted = classifier.predict_proba(new, client_ids="C")
    before = classifier.predict_proba(X, client_ids=ids)
    classifier.add_client(new, "C")
    assert np.array_equal(classifier.predict_proba(new, client_ids="C"), adapted)
    assert np.array_equal(classifier.predict_proba(X, client_ids=ids), before)
    assert classifier.client_classifier("C").predict(new).shape == (40,)
    with pytest.raises(ValueError, match="'C' is known already"):
        classifier.add_client(new, "C")
    with pytest.raises(ValueError, match="nothing to add"):
        FedCGSClassifier().fit(X, y).add_client(new, "C")


def test_unnamed_messages_are_not_mixed_with_named_ones():
    step = FedCGSClassifier().client_update
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.tile([0, 1], 10)
    with pytest.raises(ValueError, match="give each client a name"):
        FedCGSClassifier().server_aggregate([step(X, y, client=1), step(X, y)])


def test_column_of_the_inner_aligner_is_refused():
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(client_column=2))
    with pytest.raises(ValueError, match="set it on the classifier instead"):
        classifier.fit(np.zeros((4, 3)), [0, 1, 0, 1])


def test_aligner_set_after_fit_asks_for_another_fit():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.tile([0, 1], 10)
    fitted = FedCGSClassifier().fit(X, y).set_params(aligner=FederatedOTAligner())
    with pytest.raises(ValueError, match="fit the classifier again"):
        fitted.predict(X, client_ids="A")


def test_labels_are_not_taken_for_the_name_of_a_client():
    X, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="name of one client, got a ndarray"):
        FederatedOTAligner().client_update(X, y)


def test_float16_far_from_zero_is_worth_a_warning():
    X = np.random.default_rng(0).normal(3000, 1, size=(20, 2))
    with pytest.warns(UserWarning, match="float16 rounds the mean of 2 features"):
        FedPFTClassifier().client_update(X, np.tile([0, 1], 10), client="A")


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_float32_wire_keeps_any_scale(scale):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.tile([0, 1], 20)
    X[y == 1] += 1
    exact = FedCGSClassifier().fit(X, y).predict(X)
    scaled = FedCGSClassifier(wire_dtype="float32").fit(X * scale, y).predict(X * scale)
    assert np.array_equal(scaled, exact)


def test_regressor_as_head_is_refused():
    with pytest.raises(ValueError, match="must be a classifier, got LinearRegression"):
        FedPFTClassifier(estimator=LinearRegression()).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("make", [FedCGSClassifier, FedPFTClassifier])
def test_clients_without_labels_count_in_the_reference(make):
    rng = np.random.default_rng(0)
    sites = {name: rng.normal(i, 1 + i, (60, 3)) for i, name in enumerate("ABC")}
    y, aligner = np.tile(["x", "y"], 30), FederatedOTAligner(tau=0.5)
    options = {} if make is FedCGSClassifier else {"random_state": 0}
    classifier = make(aligner=aligner, wire_dtype="float64", **options)
    messages = [classifier.client_update(sites[n], y, client=n) for n in "AB"]
    messages.append(aligner.client_update(sites["C"], client="C"))
    classifier.server_aggregate(messages)
    assert classifier.reference_ == aligner.server_aggregate(messages)
    assert list(classifier.communication_) == ["A", "B", "C"]
    expected = classifier.client_classifier("C").predict_proba(sites["C"])
    actual = classifier.predict_proba(sites["C"], client_ids="C")
    np.testing.assert_allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize("make", [FedCGSClassifier, FedPFTClassifier])
def test_someone_must_have_labels(make):
    aligner = FederatedOTAligner()
    message = aligner.client_update(np.random.default_rng(0).normal(size=(60, 3)), "A")
    with pytest.raises(ValueError, match="no client sent labels"):
        make(aligner=aligner).server_aggregate([message])
    with pytest.raises(TypeError, match="got a ClientStatistics"):
        make().server_aggregate([message])


@pytest.mark.parametrize("wire_dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("make", [FedCGSClassifier, FedPFTClassifier])
def test_singular_clients_are_named_whatever_the_wire(make, wire_dtype):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(32, 6)), np.tile(["x", "y"], 16)
    ids = np.repeat(["A", "B"], [30, 2])
    classifier = make(aligner=FederatedOTAligner(shrinkage=0), wire_dtype=wire_dtype)
    with pytest.warns(UserWarning, match="covariance of client 'B' is singular"):
        classifier.fit(X, y, client_ids=ids)


def test_linear_model_is_what_predicts():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.tile(["x", "y", "z"], 20)
    for classifier in (FedCGSClassifier(), FedPFTClassifier(random_state=0)):
        classifier.fit(X, y, client_ids=np.repeat(["A", "B"], 30))
        model = classifier.linear_model()
        assert np.array_equal(model.predict(X), classifier.predict(X))
    trees = FedPFTClassifier(estimator=DecisionTreeClassifier(), random_state=0)
    trees.fit(X, y, client_ids=np.repeat(["A", "B"], 30))
    with pytest.raises(ValueError, match="DecisionTreeClassifier has no coef_"):
        trees.linear_model()
