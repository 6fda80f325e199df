"""tau="auto" against its formula, and the same number by every route."""

import math
import pickle

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.alignment import automatic_tau
from skslot.datasets import make_shifted_clients
from skslot.exchange import ClassStatistics
from skslot.metrics import ClientScorer
from skslot.statistics import FeatureMoments

FEATURES = 3

SHAPE = {"n_clients": 4, "n_classes": 4, "n_features": 5}
shifted = make_shifted_clients(
    400, **SHAPE, domain_shift=1.5, label_shift=0.5, random_state=0
)
X, Y, IDS = shifted.data, shifted.target, shifted.client_ids


def tau_by_loops(X, y, ids):
    """The formula of the documentation, as plainly as can be."""
    clients, classes = sorted(set(ids)), sorted(set(y))
    n, mean, within = {}, {}, {}
    for k in clients:
        within[k] = 0.0
        n_client = sum(1 for i in ids if i == k)
        for c in classes:
            rows = [
                row
                for row, i, label in zip(X, ids, y, strict=True)
                if (i, label) == (k, c)
            ]
            n[k, c] = len(rows)
            if rows:
                mean[k, c] = sum(rows) / len(rows)
                squares = sum(
                    float((row - mean[k, c]) @ (row - mean[k, c])) for row in rows
                )
                within[k] += squares / n_client
    total = len(y)

    information = 0.0
    for k in clients:
        for c in classes:
            if n[k, c]:
                p = n[k, c] / total
                p_client = sum(n[k, other] for other in classes) / total
                p_class = sum(n[other, c] for other in clients) / total
                information += p * math.log(p / (p_client * p_class))
    size = min(len(clients), len(classes))
    nmi = information / math.log(size) if size > 1 else 0.0

    def distance(pairs):
        above, below = 0.0, 0.0
        for a, b in pairs:
            if n[a] >= 2 and n[b] >= 2:
                apart = mean[a] - mean[b]
                value = float(apart @ apart) - within[a[0]] / n[a] - within[b[0]] / n[b]
                weight = 1 / (1 / n[a] + 1 / n[b] + 0.05)
                above, below = above + weight * value, below + weight
        return max(above / below, 0.0) if below else None

    domain = distance(
        ((k, c), (m, c)) for c in classes for k in clients for m in clients if k < m
    )
    label = distance(
        ((k, c), (k, d)) for k in clients for c in classes for d in classes if c < d
    )
    if domain is None or label is None or domain + label == 0:
        share = 0.5
    else:
        share = domain / (domain + label)
    per_client = total / len(clients)
    return min(0.7, 2 * nmi * share * per_client / (per_client + X.shape[1]))


def automatic(X, y, ids, **params):
    return FederatedOTAligner(tau="auto", **params).fit(X, y, client_ids=ids).tau_


def draw(table, seed=0, features=FEATURES, domain=2.0):
    """Rows of a table of counts, with a shift of each client and each class."""
    rng = np.random.default_rng(seed)
    table = np.asarray(table)
    clients, labels = np.indices(table.shape)
    ids, y = np.repeat(clients, table.ravel()), np.repeat(labels, table.ravel())
    shift_of_client = domain * rng.normal(size=(len(table), features))
    shift_of_class = 2 * rng.normal(size=(table.shape[1], features))
    noise = rng.normal(size=(len(y), features))
    return shift_of_client[ids] + shift_of_class[y] + noise, y, ids


# ---------------------------------------------------------------------- the formula


@given(
    table=st.lists(
        st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=2, max_size=4
    ).filter(lambda table: all(sum(row) >= 3 for row in table)),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_formula(table, seed):
    rows = draw(table, seed)
    found = automatic(*rows, shrinkage=0.5)
    assert found == pytest.approx(tau_by_loops(*rows), rel=1e-9, abs=1e-12)


def test_formula_with_numbers():
    # two clients with one class each: NMI = 1, nothing to compare, s = 0.5
    X = np.array([[0.0], [1.0], [0.5], [5.0], [6.0], [7.0]])
    y = ids = [0, 0, 0, 1, 1, 1]
    assert automatic(X, y, ids) == pytest.approx(0.7)  # min(0.7, 2 * 0.5 * 3 / 4)
    wide = np.hstack([X, X**2, np.sin(X), np.cos(X)])
    options = {"shrinkage": 0.5, "screen": None}
    assert automatic(wide, y, ids, **options) == pytest.approx(3 / 7)


def test_the_reference_data_is_not_trivial():
    assert 0.05 < automatic(X, Y, IDS) < 0.65
    assert automatic(X, Y, IDS) == pytest.approx(tau_by_loops(X, Y, IDS))


@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", "oas", 0.0, 0.7, 1.0])
def test_shrinkage_plays_no_part(shrinkage):
    assert automatic(X, Y, IDS, shrinkage=shrinkage) == pytest.approx(
        automatic(X, Y, IDS)
    )


# --------------------------------------------------------------------- what it means


@pytest.mark.parametrize("table", [[[20, 20], [20, 20]], [[10, 20, 30], [20, 40, 60]]])
def test_zero_when_labels_are_independent_of_clients(table):
    assert automatic(*draw(table)) == pytest.approx(0, abs=1e-12)


def test_nearly_zero_when_labels_are_drawn_independently():
    rng = np.random.default_rng(0)
    X, y, ids = draw(np.full((4, 5), 60))
    assert automatic(X, rng.permutation(y), ids) < 0.03


def test_grows_with_label_skew():
    tables = [[[20 + k, 20 - k], [20 - k, 20 + k]] for k in (0, 5, 10, 15)]
    taus = [automatic(*draw(table, domain=8)) for table in tables]
    assert taus == sorted(set(taus))
    assert taus[-1] > 0.2


def test_grows_with_domain_shift():
    table = [[30, 10], [10, 30]]
    taus = [automatic(*draw(table, domain=domain)) for domain in (0.5, 2, 8)]
    assert taus == sorted(set(taus))


def test_never_more_than_seven_tenths():
    assert automatic(*draw([[99, 2], [2, 99]], domain=50)) == 0.7


@pytest.mark.parametrize(
    ("y", "ids"),
    [
        (np.zeros(400, int), IDS),
        (Y, np.zeros(400, int)),
    ],
    ids=["one class", "one client"],
)
def test_zero_when_there_is_no_label_shift_to_speak_of(y, ids):
    assert automatic(X, y, ids) == 0


def test_order_of_rows_does_not_matter():
    order = np.random.default_rng(0).permutation(len(X))
    assert automatic(X[order], Y[order], IDS[order]) == pytest.approx(
        automatic(X, Y, IDS)
    )


def test_names_do_not_matter():
    permuted = automatic(X, np.array([2, 0, 3, 1])[Y], np.array([3, 1, 0, 2])[IDS])
    text = automatic(X, np.array(list("dbca"))[Y], np.array(list("zxyw"))[IDS])
    assert permuted == pytest.approx(automatic(X, Y, IDS), rel=1e-10)
    assert text == pytest.approx(automatic(X, Y, IDS), rel=1e-10)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: 1e-3 * X,
        lambda X: 1e3 * X,
        lambda X: X + 100,
        lambda X: X @ ortho_group.rvs(5, random_state=0),
        lambda X: -X[:, ::-1],
    ],
    ids=["small", "large", "shifted", "rotated", "reflected"],
)
def test_scale_rotation_and_origin_of_features_do_not_matter(change):
    assert automatic(change(X), Y, IDS) == pytest.approx(automatic(X, Y, IDS), rel=1e-7)


# --------------------------------------------------------------------- the estimator


def test_labels_are_needed_in_fit():
    with pytest.raises(ValueError, match="requires y to be passed.*tau='auto'"):
        FederatedOTAligner(tau="auto").fit(X, client_ids=IDS)


def test_labels_are_needed_in_partial_fit():
    with pytest.raises(ValueError, match="requires y to be passed.*tau='auto'"):
        FederatedOTAligner(tau="auto").partial_fit(X, client_ids=IDS)


def test_wrong_number_of_labels():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        FederatedOTAligner(tau="auto").fit(X, Y[1:], client_ids=IDS)


def test_transform_is_that_of_the_same_number():
    aligner = FederatedOTAligner(tau="auto").fit(X, Y, client_ids=IDS)
    fixed = FederatedOTAligner(tau=aligner.tau_).fit(X, client_ids=IDS)
    found = aligner.transform(X, client_ids=IDS)
    # the mean of all rows is that of class means, if messages describe classes
    expected = fixed.transform(X, client_ids=IDS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert np.allclose(aligner.inverse_transform(found, client_ids=IDS), X)


def test_fit_transform_hands_labels_on():
    aligner = FederatedOTAligner(tau="auto")
    found = aligner.fit_transform(X, Y, client_ids=IDS)
    assert np.array_equal(found, aligner.transform(X, client_ids=IDS))


@pytest.mark.parametrize("tau", [0, 0.4, 1])
def test_tau_that_was_given_is_the_tau_used(tau):
    aligner = FederatedOTAligner(tau=tau).fit(X, client_ids=IDS)
    assert aligner.tau_ == tau
    assert isinstance(aligner.tau_, float)


def test_tau_parameter_stays_auto():
    aligner = FederatedOTAligner(tau="auto").fit(X, Y, client_ids=IDS)
    assert aligner.get_params()["tau"] == "auto"
    assert clone(aligner).tau == "auto"


def test_pickle_keeps_tau():
    aligner = FederatedOTAligner(tau="auto").fit(X, Y, client_ids=IDS)
    assert pickle.loads(pickle.dumps(aligner)).tau_ == aligner.tau_


@pytest.mark.parametrize("n_chunks", [2, 7])
def test_chunks_equal_fit(n_chunks):
    order = np.random.default_rng(0).permutation(len(X))
    whole = FederatedOTAligner(tau="auto").fit(X, Y, client_ids=IDS)
    parts = FederatedOTAligner(tau="auto")
    for rows in np.array_split(order, n_chunks):
        parts.partial_fit(X[rows], Y[rows], client_ids=IDS[rows])
    assert parts.tau_ == pytest.approx(whole.tau_, rel=1e-10)
    aligned = parts.transform(X, client_ids=IDS)
    assert np.allclose(aligned, whole.transform(X, client_ids=IDS), atol=1e-8)


def test_client_that_joins_changes_nothing():
    aligner = FederatedOTAligner(tau="auto").fit(X, Y, client_ids=IDS)
    before = aligner.tau_
    aligner.add_client(X[:50] + 3, "new")
    assert aligner.tau_ == before
    assert aligner.transform(X[:5], client_ids="new").shape == (5, 5)


def test_unknown_client_adapts():
    known = IDS != 3
    aligner = FederatedOTAligner(tau="auto", unknown_client="adapt")
    aligner.fit(X[known], Y[known], client_ids=IDS[known])
    found = aligner.transform(X[~known], client_ids=IDS[~known])
    fixed = FederatedOTAligner(tau=aligner.tau_).fit(X[known], client_ids=IDS[known])
    expected = fixed.add_client(X[~known], 3).transform(
        X[~known], client_ids=IDS[~known]
    )
    assert np.allclose(found, expected, atol=1e-10)


def test_grid_with_auto_in_it():
    pipeline = make_pipeline(FederatedOTAligner(), LogisticRegression(max_iter=1000))
    search = GridSearchCV(
        pipeline,
        {"federatedotaligner__tau": [0.0, "auto", 1.0]},
        cv=StratifiedKFold(2),
        scoring=ClientScorer(),
        error_score="raise",
    )
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, Y, client_ids=IDS)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) == 3


# ----------------------------------------------------------------------- deployment


def messages_of(aligner):
    return {
        client: aligner.client_update(
            X[client == IDS], client=client, y=Y[client == IDS]
        )
        for client in np.unique(IDS).tolist()
    }


def test_steps_by_hand_equal_fit():
    aligner = FederatedOTAligner(tau="auto")
    messages = messages_of(aligner)
    reference = aligner.server_aggregate(list(messages.values())).reference_
    fitted = clone(aligner).fit(X, Y, client_ids=IDS)
    assert reference.tau == pytest.approx(fitted.tau_, abs=1e-10)
    for client, message in messages.items():
        rows = X[client == IDS]
        found = aligner.client_map(message, reference).transform(rows)
        expected = fitted.transform(rows, client_ids=client)
        assert np.allclose(found, expected, atol=1e-10, rtol=0)


def test_steps_work_over_the_wire():
    aligner = FederatedOTAligner(tau="auto")
    sent = [message.to_bytes() for message in messages_of(aligner).values()]
    received = [ClassStatistics.from_bytes(each) for each in sent]
    reference = aligner.server_aggregate(received).reference_
    reference = type(reference).from_bytes(reference.to_bytes())
    assert reference.tau == pytest.approx(automatic(X, Y, IDS), rel=1e-5)


def test_messages_without_classes():
    aligner = FederatedOTAligner(tau="auto")
    message = aligner.client_update(X[IDS == 0], client="north")
    with pytest.raises(ValueError, match=r"'north' has none; pass y to client_update"):
        aligner.server_aggregate([message])


def test_moments_without_classes():
    aligner = FederatedOTAligner(tau="auto")
    message = aligner.client_update(
        FeatureMoments.from_rows(X[IDS == 0]), client="north"
    )
    with pytest.raises(ValueError, match="tau='auto' needs class counts"):
        aligner.server_aggregate([message])


def test_reference_without_tau():
    aligner = FederatedOTAligner(tau="auto")
    messages = messages_of(aligner)
    server = FederatedOTAligner(tau=0.4).server_aggregate(list(messages.values()))
    reference = server.reference_
    with pytest.raises(ValueError, match="The reference contains no tau"):
        aligner.client_map(messages[0], reference)


def test_labels_are_not_sent_when_tau_is_a_number():
    message = FederatedOTAligner(tau=0.4).client_update(X, client="north", y=Y)
    assert not hasattr(message, "class_means")


# ---------------------------------------------------------------- inside a classifier


def test_classifier_equals_pipeline():
    aligner = FederatedOTAligner(tau="auto")
    inside = FedCGSClassifier(aligner=aligner).fit(X, Y, client_ids=IDS)
    pipeline = make_pipeline(aligner, FedCGSClassifier())
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline.fit(X, Y, client_ids=IDS)
        expected = pipeline.predict_proba(X, client_ids=IDS)
    assert np.allclose(inside.predict_proba(X, client_ids=IDS), expected, atol=1e-8)
    assert inside.aligner_.tau_ == pytest.approx(pipeline[0].tau_, abs=1e-12)


def test_classifier_adapts_to_an_unknown_client():
    known = IDS != 3
    aligner = FederatedOTAligner(tau="auto", unknown_client="adapt")
    model = FedCGSClassifier(aligner=aligner)
    model.fit(X[known], Y[known], client_ids=IDS[known])
    fixed = clone(model).set_params(aligner__tau=model.aligner_.tau_)
    fixed.fit(X[known], Y[known], client_ids=IDS[known])
    found = model.predict_proba(X[~known], client_ids=IDS[~known])
    assert np.allclose(found, fixed.predict_proba(X[~known], client_ids=IDS[~known]))


def test_missing_label_is_refused():
    """It would become a class of its own, with a mean that is no number."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = np.tile([0.0, 1.0], 20)
    y[3] = np.nan
    with pytest.raises(ValueError, match="y contains NaN"):
        FederatedOTAligner(tau="auto").fit(X, y, client_ids=np.repeat(["A", "B"], 20))


def test_missing_values_are_those_of_a_client():
    gaps = X.copy()
    gaps[np.flatnonzero(IDS == 2)[0], 1] = np.nan
    words = r"client \[2\]: Input X contains NaN\. Fill or drop them"
    with pytest.raises(ValueError, match=words):
        automatic_tau(gaps, Y, IDS)
