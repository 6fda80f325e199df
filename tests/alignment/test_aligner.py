"""FederatedOTAligner: the method, its steps, and life after fit.

How ids get in is in ``test_aligner_ids.py``.
"""

import copy
import itertools
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils._param_validation import InvalidParameterError

import skslot.alignment._fitted as fitted_module
from skslot import FederatedOTAligner
from skslot.alignment import TransportMap
from skslot.exchange import AlignmentReference, ClientStatistics
from skslot.geometry import bures_barycenter, gaussian_wasserstein
from skslot.statistics import FeatureMoments

CLIENTS = ["berlin", "lima", "oslo"]
SIZES = [40, 25, 60]
N_FEATURES = 4

FITTED_ATTRIBUTES = {
    "clients_": (3,),
    "weights_": (3,),
    "means_": (3, N_FEATURES),
    "covariances_": (3, N_FEATURES, N_FEATURES),
    "shrinkage_": (3,),
    "reference_mean_": (N_FEATURES,),
    "reference_covariance_": (N_FEATURES, N_FEATURES),
}


def make_clients(seed=0, sizes=SIZES, clients=CLIENTS, n_features=N_FEATURES):
    """Rows of clients with different means and covariances, in random order."""
    rng = np.random.default_rng(seed)
    blocks = []
    for size in sizes:
        mixing = np.eye(n_features) + 0.3 * rng.standard_normal((n_features,) * 2)
        rows = rng.standard_normal((size, n_features)) @ mixing
        blocks.append(rows * rng.uniform(0.5, 3) + 3 * rng.standard_normal(n_features))
    order = rng.permutation(sum(sizes))
    return np.vstack(blocks)[order], np.repeat(clients, sizes)[order]


@pytest.fixture
def clients():
    return make_clients()


@pytest.fixture
def count_references(monkeypatch):
    """List that grows by one whenever a reference is really computed."""
    computed, align_moments = [], fitted_module.align_moments

    def counting(*args, **kwargs):
        computed.append(1)
        return align_moments(*args, **kwargs)

    monkeypatch.setattr(fitted_module, "align_moments", counting)
    return computed


def relative_error(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def assert_same_alignment(left, right, tolerance):
    """Both have the same clients, statistics and reference."""
    assert list(left.clients_) == list(right.clients_)
    for name in FITTED_ATTRIBUTES:
        if name != "clients_":
            error = relative_error(getattr(left, name), getattr(right, name))
            assert error <= tolerance, name


# ------------------------------------------------------------------ identities


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tau_zero_returns_the_input_bit_for_bit(clients, dtype):
    X, ids = clients[0].astype(dtype), clients[1]
    aligned = FederatedOTAligner(tau=0).fit_transform(X, client_ids=ids)
    assert aligned.dtype == dtype
    assert aligned.tobytes() == X.tobytes()
    assert not np.shares_memory(aligned, X)


def test_tau_one_gives_every_client_the_mean_of_the_reference(clients):
    X, ids = clients
    aligner = FederatedOTAligner(tau=1)
    aligned = aligner.fit_transform(X, client_ids=ids)
    for client in CLIENTS:
        mean = aligned[ids == client].mean(axis=0)
        np.testing.assert_allclose(mean, aligner.reference_mean_, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", 0.0])
def test_tau_one_pushes_shrunk_covariances_to_the_reference(clients, shrinkage):
    X, ids = clients
    aligner = FederatedOTAligner(tau=1, shrinkage=shrinkage).fit(X, client_ids=ids)
    for covariance, client_map in zip(aligner.covariances_, aligner.maps_, strict=True):
        matrix, _ = client_map.affine
        pushed = matrix @ covariance @ matrix.T
        assert relative_error(pushed, aligner.reference_covariance_) <= 1e-12


def test_without_shrinkage_aligned_rows_have_the_reference_covariance(clients):
    X, ids = clients
    aligner = FederatedOTAligner(tau=1, shrinkage=0.0)
    aligned = aligner.fit_transform(X, client_ids=ids)
    for client in CLIENTS:
        covariance = np.cov(aligned[ids == client].T, ddof=0)
        assert relative_error(covariance, aligner.reference_covariance_) <= 1e-12


@pytest.mark.parametrize("tau", [0.1, 0.4, 0.9, 1.0])
def test_distance_to_the_reference_contracts_by_one_minus_tau(clients, tau):
    X, ids = clients
    aligner = FederatedOTAligner(tau=tau).fit(X, client_ids=ids)
    target = aligner.reference_mean_, aligner.reference_covariance_
    for mean, covariance, client_map in zip(
        aligner.means_, aligner.covariances_, aligner.maps_, strict=True
    ):
        matrix, offset = client_map.affine
        pushed = matrix @ covariance @ matrix.T
        after = gaussian_wasserstein(
            matrix @ mean + offset, (pushed + pushed.T) / 2, *target
        )
        before = gaussian_wasserstein(mean, covariance, *target)
        assert abs(after - (1 - tau) * before) <= 1e-10 * before


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_inverse_maps_average_to_the_identity(clients, weights):
    X, ids = clients
    aligner = FederatedOTAligner(weights=weights, tol=1e-12).fit(X, client_ids=ids)
    inverses = [np.linalg.inv(client_map.matrix) for client_map in aligner.maps_]
    average = np.tensordot(aligner.weights_, inverses, axes=1)
    assert relative_error(average, np.eye(N_FEATURES)) <= 1e-11


def test_reference_is_the_barycenter_after_partial_alignment(clients):
    X, ids = clients
    aligner = FederatedOTAligner(tau=0.3, tol=1e-12).fit(X, client_ids=ids)
    matrices = [client_map.affine[0] for client_map in aligner.maps_]
    pushed = [
        matrix @ covariance @ matrix.T
        for matrix, covariance in zip(matrices, aligner.covariances_, strict=True)
    ]
    barycenter, _ = bures_barycenter(pushed, aligner.weights_, tol=1e-12)
    assert relative_error(barycenter, aligner.reference_covariance_) <= 1e-10


def test_single_client_is_left_in_place(clients):
    X, _ = clients
    aligned = FederatedOTAligner(tau=1).fit_transform(X)
    np.testing.assert_allclose(aligned, X, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("samples", np.array(SIZES) / sum(SIZES)), ("uniform", np.full(3, 1 / 3))],
)
def test_weights_and_mean_of_the_reference(clients, weights, expected):
    X, ids = clients
    aligner = FederatedOTAligner(weights=weights).fit(X, client_ids=ids)
    means = [X[ids == client].mean(axis=0) for client in CLIENTS]
    np.testing.assert_allclose(aligner.weights_, expected, rtol=1e-15)
    np.testing.assert_allclose(aligner.reference_mean_, expected @ means, rtol=1e-12)


def test_map_cannot_undo_a_reflection():
    X, _ = make_clients(sizes=[200], clients=["one"])
    X -= X.mean(axis=0)
    ids = np.repeat(["upright", "inverted"], 200)
    both = np.vstack([X, -X])
    aligned = FederatedOTAligner(tau=1).fit_transform(both, client_ids=ids)
    np.testing.assert_allclose(aligned, both, rtol=0, atol=1e-10)


# ------------------------------------------------------- the steps, on their own

STEP_PARAMS = [
    {"shrinkage": shrinkage, "weights": weights, "solver": solver}
    for shrinkage, weights, solver in itertools.product(
        ["ledoit_wolf", "oas", 0.2],
        ["samples", "uniform"],
        ["anderson", "fixed_point", "paper"],
    )
]


def align_by_hand(aligner, X, ids):
    """What the sites and the server do, without fit or transform."""
    rows = {client: ids == client for client in np.unique(ids)}
    messages = {c: aligner.client_update(X[rows[c]], client=c) for c in rows}
    reference = aligner.server_aggregate(messages.values())
    aligned = np.empty_like(X, order="C")
    for client, message in messages.items():
        client_map = aligner.client_map(message, reference)
        aligned[rows[client]] = client_map.transform(X[rows[client]])
    return list(messages.values()), reference, aligned


@pytest.mark.parametrize(
    "params", STEP_PARAMS, ids=lambda p: "-".join(map(str, p.values()))
)
def test_fit_and_transform_are_the_three_steps_exactly(clients, params):
    X, ids = clients
    aligner = FederatedOTAligner(**params, max_iter=1000)
    messages, reference, by_hand = align_by_hand(aligner, X, ids)
    aligned = aligner.fit(X, client_ids=ids).transform(X, client_ids=ids)
    assert aligner.statistics_ == messages
    assert aligner.reference_ == reference
    assert np.array_equal(aligned, by_hand)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("adjacent", [False, True])
@pytest.mark.parametrize("n_features", [1, 3, 33])
def test_steps_are_exact_whatever_the_memory_layout(order, dtype, adjacent, n_features):
    X, ids = make_clients(n_features=n_features)
    if adjacent:
        X, ids = X[np.argsort(ids)], np.sort(ids)
    X = np.asarray(X, dtype=dtype, order=order)
    aligner = FederatedOTAligner()
    _, reference, by_hand = align_by_hand(aligner, X, ids)
    assert np.array_equal(aligner.fit_transform(X, client_ids=ids), by_hand)
    assert aligner.reference_ == reference


def test_steps_need_no_fit_and_leave_no_trace(clients):
    X, ids = clients
    aligner = FederatedOTAligner()
    before = copy.deepcopy(vars(aligner))
    align_by_hand(aligner, X, ids)
    assert vars(aligner) == before


def test_steps_return_the_documented_messages(clients):
    X, _ = clients
    aligner = FederatedOTAligner(tau=0.7)
    message = aligner.client_update(X, client="A")
    reference = aligner.server_aggregate([message])
    client_map = aligner.client_map(message, reference)
    assert isinstance(message, ClientStatistics)
    assert isinstance(reference, AlignmentReference)
    assert isinstance(client_map, TransportMap)
    assert (message.client, client_map.tau) == ("A", 0.7)


@pytest.mark.parametrize("make", [list, tuple, iter], ids=["list", "tuple", "iterator"])
def test_server_takes_any_iterable_of_messages(clients, make):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    assert aligner.server_aggregate(make(aligner.statistics_)) == aligner.reference_


def test_server_refuses_no_messages():
    with pytest.raises(ValueError, match="statistics is empty"):
        FederatedOTAligner().server_aggregate([])


def test_server_refuses_clients_of_different_width(clients):
    X, _ = clients
    aligner = FederatedOTAligner()
    messages = [aligner.client_update(X, "A"), aligner.client_update(X[:, :2], "B")]
    with pytest.raises(ValueError, match="client 'B' has 2 features, client 'A' 4"):
        aligner.server_aggregate(messages)


def test_map_to_a_reference_of_other_width_is_refused(clients):
    X, _ = clients
    aligner = FederatedOTAligner()
    reference = aligner.server_aggregate([aligner.client_update(X)])
    message = aligner.client_update(X[:, :2], "B")
    with pytest.raises(ValueError, match="client 'B' has 2 features, the reference 4"):
        aligner.client_map(message, reference)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_client_update_names_the_client_whose_rows_are_not_finite(clients, bad):
    X, _ = clients
    X[3, 1] = bad
    with pytest.raises(ValueError, match=r"Rows of client \['oslo'\]: .* contains"):
        FederatedOTAligner().client_update(X, client="oslo")


# ------------------------------------------------------------------- invariance


def test_order_of_rows_changes_nothing(clients):
    X, ids = clients
    order = np.random.default_rng(1).permutation(len(X))
    left = FederatedOTAligner().fit(X, client_ids=ids)
    right = FederatedOTAligner().fit(X[order], client_ids=ids[order])
    assert_same_alignment(left, right, tolerance=1e-12)
    aligned = left.transform(X, client_ids=ids)
    permuted = right.transform(X[order], client_ids=ids[order])
    assert relative_error(permuted, aligned[order]) <= 1e-12


@pytest.mark.parametrize(
    "names", [["z", "y", "x"], [30, 10, 20], [2, "b", ("c", 1)]], ids=str
)
def test_names_of_clients_change_nothing(clients, names):
    X, ids = clients
    renamed = [dict(zip(CLIENTS, names, strict=True))[client] for client in ids]
    expected = FederatedOTAligner().fit_transform(X, client_ids=ids)
    aligned = FederatedOTAligner().fit_transform(X, client_ids=renamed)
    assert relative_error(aligned, expected) <= 1e-12


def test_rows_of_a_batch_do_not_affect_each_other(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    together = aligner.transform(X, client_ids=ids)
    one_by_one = [
        aligner.transform(row[None], client_ids=client)[0]
        for row, client in zip(X, ids, strict=True)
    ]
    np.testing.assert_allclose(one_by_one, together, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_threads_change_nothing(clients, n_jobs):
    X, ids = clients
    one = FederatedOTAligner().fit(X, client_ids=ids)
    many = FederatedOTAligner(n_jobs=n_jobs).fit(X, client_ids=ids)
    assert one.reference_ == many.reference_
    expected = one.transform(X, client_ids=ids)
    assert np.array_equal(many.transform(X, client_ids=ids), expected)


def test_float32_stays_float32_and_close_to_float64(clients):
    X, ids = clients[0].astype(np.float32), clients[1]
    narrow = FederatedOTAligner().fit_transform(X, client_ids=ids)
    wide = FederatedOTAligner().fit_transform(X.astype(np.float64), client_ids=ids)
    assert (narrow.dtype, wide.dtype) == (np.float32, np.float64)
    assert relative_error(narrow, wide) <= 1e-6


@pytest.mark.parametrize("dtype", [np.float16, np.int32])
def test_other_numbers_become_float64(clients, dtype):
    X, ids = clients[0].astype(dtype), clients[1]
    aligned = FederatedOTAligner().fit_transform(X, client_ids=ids)
    expected = FederatedOTAligner().fit_transform(X.astype(float), client_ids=ids)
    assert aligned.dtype == np.float64
    assert np.array_equal(aligned, expected)


@pytest.mark.parametrize("tau", [0.0, 0.4])
def test_inputs_are_not_written_to(clients, tau):
    X, ids = clients
    kept = X.copy(), ids.copy()
    X.flags.writeable = ids.flags.writeable = False
    aligner = FederatedOTAligner(tau).fit(X, client_ids=ids)
    aligner.partial_fit(X, client_ids=ids)
    aligned = aligner.transform(X, client_ids=ids)
    aligner.inverse_transform(aligned, client_ids=ids)
    assert np.array_equal(X, kept[0])
    assert np.array_equal(ids, kept[1])


# ------------------------------------------------------------------ partial_fit


@pytest.mark.parametrize("n_chunks", [1, 4, 40])
def test_partial_fit_in_chunks_is_fit(clients, n_chunks):
    X, ids = clients
    aligner = FederatedOTAligner()
    for chunk in np.array_split(np.arange(len(X)), n_chunks):
        aligner.partial_fit(X[chunk], client_ids=ids[chunk])
    expected = FederatedOTAligner().fit(X, client_ids=ids)
    assert_same_alignment(aligner, expected, tolerance=1e-10)
    aligned = aligner.transform(X, client_ids=ids)
    assert relative_error(aligned, expected.transform(X, client_ids=ids)) <= 1e-10


def test_partial_fit_by_client_is_fit(clients):
    X, ids = clients
    aligner = FederatedOTAligner()
    for client in reversed(CLIENTS):
        aligner.partial_fit(X[ids == client], client_ids=client)
    expected = FederatedOTAligner().fit(X, client_ids=ids)
    assert_same_alignment(aligner, expected, tolerance=1e-10)


def test_partial_fit_continues_after_fit(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X[:50], client_ids=ids[:50])
    aligner.partial_fit(X[50:], client_ids=ids[50:])
    expected = FederatedOTAligner().fit(X, client_ids=ids)
    assert_same_alignment(aligner, expected, tolerance=1e-10)


def test_partial_fit_without_ids_is_one_client(clients):
    X, _ = clients
    aligner = FederatedOTAligner().partial_fit(X[:50]).partial_fit(X[50:])
    expected = FederatedOTAligner().fit(X)
    assert_same_alignment(aligner, expected, tolerance=1e-10)


def test_fit_forgets_earlier_rows(clients):
    X, ids = clients
    aligner = FederatedOTAligner().partial_fit(X + 9, client_ids="elsewhere")
    aligner.add_client(X, "later").fit(X, client_ids=ids)
    expected = FederatedOTAligner().fit(X, client_ids=ids)
    assert aligner.reference_ == expected.reference_
    assert list(aligner.clients_) == CLIENTS


def test_reference_is_computed_when_needed_and_once(clients, count_references):
    X, ids = clients
    aligner = FederatedOTAligner()
    for chunk in np.array_split(np.arange(len(X)), 5):
        aligner.partial_fit(X[chunk], client_ids=ids[chunk])
    assert len(count_references) == 0
    aligner.transform(X, client_ids=ids)
    _ = aligner.weights_, aligner.reference_mean_, aligner.covariances_
    assert len(count_references) == 1
    aligner.partial_fit(X, client_ids=ids).transform(X, client_ids=ids)
    assert len(count_references) == 2


def test_refused_rows_leave_the_aligner_unchanged(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    reference = aligner.reference_
    spoilt = X.copy()
    spoilt[-1, -1] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        aligner.partial_fit(spoilt, client_ids=ids)
    assert aligner.reference_ == reference
    assert aligner._moments["oslo"].n_samples == SIZES[2]


def test_partial_fit_refuses_another_width(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    with pytest.raises(ValueError, match="X has 2 features, .* expecting 4"):
        aligner.partial_fit(X[:, :2], client_ids=ids)


# ------------------------------------------------------------------- add_client


@pytest.fixture
def founders_and_newcomer():
    """Aligner fitted with two clients, and rows of a third."""
    X, ids = make_clients()
    old = ids != "lima"
    return FederatedOTAligner(0.6).fit(X[old], client_ids=ids[old]), X[~old]


def test_new_client_leaves_the_others_alone(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    reference, maps = aligner.reference_, aligner.maps_
    aligner.add_client(rows, "lima")
    assert aligner.reference_ == reference
    for before, after in zip(maps, aligner.maps_, strict=False):
        assert np.array_equal(before.transform(rows), after.transform(rows))


def test_new_client_has_no_weight(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    aligner.add_client(rows, "lima")
    weight = dict(zip(aligner.clients_, aligner.weights_, strict=True))
    assert weight == {"berlin": 0.4, "oslo": 0.6, "lima": 0.0}
    assert aligner.means_.shape == (3, N_FEATURES)


def test_new_client_gets_its_own_map(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    message = aligner.client_update(rows, "lima")
    expected = aligner.client_map(message, aligner.reference_).transform(rows)
    aligned = aligner.add_client(rows, "lima").transform(rows, client_ids="lima")
    assert np.array_equal(aligned, expected)


def test_add_client_returns_the_aligner(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    assert aligner.add_client(rows, "lima") is aligner


def test_known_client_cannot_be_added(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    with pytest.raises(ValueError, match="'oslo' is known already; use partial_fit"):
        aligner.add_client(rows, "oslo")


def test_more_rows_of_a_new_client_move_nobody_else(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    before = aligner.reference_
    aligner.add_client(rows[:10], "lima").partial_fit(rows[10:], client_ids="lima")
    assert aligner.reference_ == before
    assert aligner.statistics_[list(aligner.clients_).index("lima")].n_samples == len(
        rows
    )


def test_rows_of_others_leave_the_new_client_without_weight(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    aligner.add_client(rows, "lima").partial_fit(rows + 1, client_ids="oslo")
    weight = dict(zip(aligner.clients_, aligner.weights_, strict=True))
    assert weight["lima"] == 0
    assert weight["oslo"] == pytest.approx(85 / 125, rel=1e-15)


def test_client_can_be_added_while_the_reference_is_due(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    twin = copy.deepcopy(aligner)
    aligner.partial_fit(rows, client_ids="oslo").add_client(rows, "lima")
    twin.partial_fit(rows, client_ids="oslo")
    assert aligner.reference_ == twin.reference_


@pytest.mark.parametrize(
    ("rows", "client", "error", "message"),
    [
        (np.zeros((5, 2)), "lima", ValueError, "X has 2 features, .* expecting 4"),
        (np.full((5, 4), np.nan), "lima", ValueError, r"client \['lima'\]: .* NaN"),
        (csr_array((5, 4)), "lima", TypeError, "Sparse data was passed"),
        (np.zeros((5, 4)), None, ValueError, "None or NaN"),
        (np.zeros((5, 4)), np.nan, ValueError, "None or NaN"),
        (np.zeros((5, 4)), ["lima"], ValueError, "name of one client, got a list"),
    ],
)
def test_bad_newcomer_is_refused(founders_and_newcomer, rows, client, error, message):
    aligner, _ = founders_and_newcomer
    with pytest.raises(error, match=message):
        aligner.add_client(rows, client)
    assert list(aligner.clients_) == ["berlin", "oslo"]


def test_newcomer_with_columns_in_another_order_is_refused(clients):
    X, ids = clients
    frame = pd.DataFrame(X, columns=list("abcd"))
    aligner = FederatedOTAligner().fit(frame, client_ids=ids)
    with pytest.raises(ValueError, match="feature names should match"):
        aligner.add_client(frame[list("dcba")], "new")


# -------------------------------------------------------------- unknown clients


def test_unknown_client_is_named_beside_the_known_ones(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    with pytest.raises(ValueError, match=r"\['rome'\] .*\['berlin', 'lima', 'oslo'\]"):
        aligner.transform(X, client_ids=np.where(ids == "lima", "rome", ids))


def test_many_known_clients_are_not_all_listed():
    X, ids = make_clients(sizes=[5] * 30, clients=list(range(30)))
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    with pytest.raises(ValueError, match=r"8, 9, \.\.\. \(30 in all\)\]"):
        aligner.transform(X, client_ids=99)


def test_unknown_client_after_a_fit_without_ids(clients):
    X, _ = clients
    with pytest.raises(ValueError, match="which saw no client_ids"):
        FederatedOTAligner().fit(X).transform(X, client_ids="rome")


@pytest.mark.parametrize("policy", ["identity", "adapt"])
def test_policy_leaves_known_clients_alone(clients, policy):
    X, ids = clients
    known = ids != "lima"
    strict = FederatedOTAligner().fit(X[known], client_ids=ids[known])
    aligner = clone(strict).set_params(unknown_client=policy)
    aligned = aligner.fit(X[known], client_ids=ids[known]).transform(X, client_ids=ids)
    expected = strict.transform(X[known], client_ids=ids[known])
    np.testing.assert_allclose(aligned[known], expected, rtol=1e-13, atol=1e-13)


def test_identity_returns_unknown_rows_bit_for_bit(clients):
    X, ids = clients
    aligner = FederatedOTAligner(unknown_client="identity")
    aligner.fit(X[ids != "lima"], client_ids=ids[ids != "lima"])
    rows = ids == "lima"
    assert np.array_equal(aligner.transform(X, client_ids=ids)[rows], X[rows])
    back = aligner.inverse_transform(X, client_ids=ids)
    assert np.array_equal(back[rows], X[rows])


def test_adapt_is_the_map_of_add_client(clients):
    X, ids = clients
    rows = ids == "lima"
    aligner = FederatedOTAligner(unknown_client="adapt")
    aligner.fit(X[~rows], client_ids=ids[~rows])
    adapted = aligner.transform(X, client_ids=ids)
    assert list(aligner.clients_) == ["berlin", "oslo"]
    aligner.add_client(X[rows], "lima")
    assert np.array_equal(adapted, aligner.transform(X, client_ids=ids))


def test_adapt_warns_of_a_degenerate_batch(clients):
    X, ids = clients
    aligner = FederatedOTAligner(unknown_client="adapt").fit(X, client_ids=ids)
    with pytest.warns(UserWarning, match="rows of client 'rome' do not vary"):
        aligned = aligner.transform(X[:1], client_ids="rome")
    assert np.isfinite(aligned).all()


def test_adapted_maps_cannot_be_inverted(clients):
    X, ids = clients
    aligner = FederatedOTAligner(unknown_client="adapt").fit(X, client_ids=ids)
    with pytest.raises(ValueError, match=r"\['rome'\] .* add_client"):
        aligner.inverse_transform(X, client_ids="rome")


# ------------------------------------------------------------ inverse_transform


@pytest.mark.parametrize("tau", [0.0, 0.4, 1.0])
def test_inverse_transform_goes_back(clients, tau):
    X, ids = clients
    aligner = FederatedOTAligner(tau).fit(X, client_ids=ids)
    aligned = aligner.transform(X, client_ids=ids)
    back = aligner.inverse_transform(aligned, client_ids=ids)
    np.testing.assert_allclose(back, X, rtol=1e-11, atol=1e-11)


def test_inverse_transform_keeps_float32(clients):
    X, ids = clients[0].astype(np.float32), clients[1]
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    aligned = aligner.transform(X, client_ids=ids)
    back = aligner.inverse_transform(aligned, client_ids=ids)
    assert back.dtype == np.float32
    assert relative_error(back, X) <= 1e-6


@pytest.mark.parametrize("tau", [0.0, 0.4])
def test_inverse_transform_refuses_another_width(clients, tau):
    X, ids = clients
    aligner = FederatedOTAligner(tau).fit(X, client_ids=ids)
    with pytest.raises(ValueError, match="X has 2 features, but 4 were aligned"):
        aligner.inverse_transform(X[:, :2], client_ids=ids)


def test_inverse_transform_needs_ids(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    with pytest.raises(ValueError, match="client_ids is missing, but 3 clients"):
        aligner.inverse_transform(X)


# ----------------------------------------------------------- degenerate clients


def with_tiny_client(rows):
    X, ids = make_clients(sizes=[40, 60], clients=["berlin", "oslo"])
    return np.vstack([X, rows]), np.append(ids, ["tiny"] * len(rows))


CONSTANT_ROWS = {
    "one row": np.array([[1.0, 2.0, 3.0, 4.0]]),
    "repeated row": np.tile([[0.1, 1e6 + 0.1, 1 / 3, 0.0]], (7, 1)),
}
NEARLY_SINGULAR_ROWS = {
    "two rows": np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 0.0, 3.5, 1.0]]),
    "constant features": np.c_[np.arange(50.0) ** 2, np.ones((50, 3))],
    "repeated feature": np.repeat(np.sin(np.arange(50.0))[:, None], 4, axis=1),
}


@pytest.mark.parametrize("name", CONSTANT_ROWS)
@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", "oas", 0.0, 0.5])
def test_client_that_does_not_vary_is_translated(name, shrinkage):
    X, ids = with_tiny_client(CONSTANT_ROWS[name])
    aligner = FederatedOTAligner(tau=1, shrinkage=shrinkage)
    with pytest.warns(UserWarning, match="rows of client 'tiny' do not vary"):
        aligned = aligner.fit_transform(X, client_ids=ids)
    assert np.isfinite(aligned).all()
    tiny = aligned[ids == "tiny"]
    np.testing.assert_allclose(
        tiny, np.tile(aligner.reference_mean_, (len(tiny), 1)), rtol=1e-9
    )
    assert np.array_equal(aligner.maps_[-1].matrix, np.eye(N_FEATURES))


@pytest.mark.parametrize("name", CONSTANT_ROWS)
def test_client_that_does_not_vary_stays_out_of_the_barycenter(name):
    X, ids = with_tiny_client(CONSTANT_ROWS[name])
    with pytest.warns(UserWarning, match="left out of the reference"):
        aligner = FederatedOTAligner().fit(X, client_ids=ids)
    others = ids != "tiny"
    expected = FederatedOTAligner().fit(X[others], client_ids=ids[others])
    error = relative_error(
        aligner.reference_covariance_, expected.reference_covariance_
    )
    assert error <= 1e-12


@pytest.mark.parametrize("shrinkage", [0.0, 0.5, 1.0])
def test_client_that_does_not_vary_keeps_its_shrinkage(shrinkage):
    aligner = FederatedOTAligner(shrinkage=shrinkage)
    with pytest.warns(UserWarning, match="rows of this client do not vary"):
        statistics = aligner.client_update(np.ones((5, 3)))
    assert statistics.shrinkage == shrinkage


def test_client_update_takes_moments_of_rows_that_do_not_fit_in_memory():
    rows = np.random.default_rng(0).normal(size=(50, 3))
    moments = FeatureMoments.from_rows(rows[:20]) + FeatureMoments.from_rows(rows[20:])
    statistics = FederatedOTAligner().client_update(moments, "A")
    expected = FederatedOTAligner().client_update(rows, "A")
    np.testing.assert_allclose(statistics.covariance, expected.covariance, rtol=1e-12)
    assert statistics.client == "A"


@pytest.mark.parametrize("name", NEARLY_SINGULAR_ROWS)
def test_nearly_singular_client_is_floored_and_named(name):
    X, ids = with_tiny_client(NEARLY_SINGULAR_ROWS[name])
    aligner = FederatedOTAligner(tau=1, shrinkage=0.0)
    with pytest.warns(UserWarning, match="covariance of client 'tiny' is singular"):
        aligned = aligner.fit_transform(X, client_ids=ids)
    assert np.isfinite(aligned).all()
    eigenvalues = np.linalg.eigvalsh(aligner.covariances_[-1])
    assert eigenvalues[0] >= 0.99e-4 * eigenvalues.mean()
    assert list(aligner.shrinkage_) == [0.0, 0.0, 1e-4]


def test_two_rows_are_floored_with_ledoit_wolf():
    X, ids = with_tiny_client(NEARLY_SINGULAR_ROWS["two rows"])
    with pytest.warns(UserWarning, match="covariance of client 'tiny' is singular"):
        aligned = FederatedOTAligner().fit_transform(X, client_ids=ids)
    assert np.isfinite(aligned).all()


def test_several_degenerate_clients_are_named_in_one_warning():
    X, ids = with_tiny_client(np.vstack([CONSTANT_ROWS["one row"]] * 2))
    ids[-1] = "wee"
    with pytest.warns(UserWarning, match=r"client \['tiny', 'wee'\] do not") as record:
        FederatedOTAligner().fit(X, client_ids=ids)
    assert len(record) == 1


@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", "oas"])
def test_far_fewer_rows_than_features_need_no_floor(shrinkage):
    X, ids = make_clients(sizes=[6, 8, 5], n_features=60)
    aligner = FederatedOTAligner(tau=1, shrinkage=shrinkage)
    assert np.isfinite(aligner.fit_transform(X, client_ids=ids)).all()
    assert (aligner.shrinkage_ > 1e-3).all()


def test_far_fewer_rows_than_features_without_shrinkage_are_named():
    X, ids = make_clients(sizes=[6, 8, 500], n_features=60)
    aligner = FederatedOTAligner(tau=1, shrinkage=0.0)
    with pytest.warns(UserWarning, match=r"client \['berlin', 'lima'\] is singular"):
        aligned = aligner.fit_transform(X, client_ids=ids)
    assert np.isfinite(aligned).all()


@pytest.mark.parametrize("tau", [0.0, 0.4, 1.0])
def test_clients_of_one_row_each_meet_in_their_mean(tau):
    X = np.random.default_rng(0).normal(3, size=(3, N_FEATURES))
    aligner = FederatedOTAligner(tau)
    with pytest.warns(UserWarning, match=r"client \['berlin', 'lima', 'oslo'\] do"):
        aligned = aligner.fit_transform(X, client_ids=CLIENTS)
    expected = (1 - tau) * X + tau * X.mean(axis=0)
    np.testing.assert_allclose(aligned, expected, rtol=1e-12)
    assert not aligner.reference_covariance_.any()


def test_degenerate_newcomer_is_named(clients):
    X, ids = clients
    aligner = FederatedOTAligner(tau=1).fit(X, client_ids=ids)
    with pytest.warns(UserWarning, match="client 'tiny' do not vary"):
        aligner.add_client(X[:1], "tiny")
    aligned = aligner.transform(X[:1], client_ids="tiny")
    np.testing.assert_allclose(aligned[0], aligner.reference_mean_, rtol=1e-12)


def test_one_feature_is_enough():
    X, ids = make_clients(n_features=1)
    aligner = FederatedOTAligner(tau=1).fit(X, client_ids=ids)
    scales = np.sqrt(aligner.covariances_[:, 0, 0])
    expected = (aligner.weights_ @ scales) ** 2
    np.testing.assert_allclose(aligner.reference_covariance_, [[expected]], rtol=1e-12)


# ------------------------------------------------------------------ convergence


@pytest.mark.parametrize("memory", [False, True])
def test_fit_warns_when_the_reference_did_not_converge(clients, memory, tmp_path):
    X, ids = clients
    aligner = FederatedOTAligner(max_iter=1, memory=str(tmp_path) if memory else None)
    for _ in range(2):  # the second time from the cache
        with pytest.warns(ConvergenceWarning, match="residual .* after 1 passes"):
            aligner.fit(X, client_ids=ids)
    assert aligner.n_iter_ == 1
    assert aligner.residual_ > aligner.tol


def test_server_warns_when_the_reference_did_not_converge(clients):
    X, ids = clients
    messages = FederatedOTAligner().fit(X, client_ids=ids).statistics_
    with pytest.warns(ConvergenceWarning, match="residual .* after 1 passes"):
        FederatedOTAligner(max_iter=1).server_aggregate(messages)


def test_partial_fit_warns_when_the_reference_is_computed(clients):
    X, ids = clients
    aligner = FederatedOTAligner(max_iter=1).partial_fit(X, client_ids=ids)
    with pytest.warns(ConvergenceWarning, match="residual .* after 1 passes"):
        aligner.transform(X, client_ids=ids)


def test_residual_and_passes_are_reported(clients):
    X, ids = clients
    aligner = FederatedOTAligner(tol=1e-9).fit(X, client_ids=ids)
    assert 0 <= aligner.residual_ <= 1e-9
    assert 1 < aligner.n_iter_ <= 100


# ----------------------------------------------------------------------- memory


@pytest.mark.parametrize("make", [str, joblib.Memory], ids=["str", "joblib"])
def test_memory_computes_the_reference_once_for_all_tau(
    clients, make, tmp_path, count_references
):
    X, ids = clients
    memory = make(tmp_path)
    if make is joblib.Memory:
        memory.verbose = 0
    for tau in (0.0, 0.2, 0.4, 1.0):
        aligner = FederatedOTAligner(tau, memory=memory)
        aligned = aligner.fit_transform(X, client_ids=ids)
        count = len(count_references)
        expected = FederatedOTAligner(tau).fit_transform(X, client_ids=ids)
        del count_references[count:]
        assert np.array_equal(aligned, expected)
    assert len(count_references) == 1


@pytest.mark.parametrize(
    "params",
    [
        {"shrinkage": "oas"},
        {"weights": "uniform"},
        {"solver": "fixed_point"},
        {"tol": 1e-4},
        {"max_iter": 99},
    ],
    ids=str,
)
def test_memory_tells_apart_what_the_reference_depends_on(
    clients, params, tmp_path, count_references
):
    X, ids = clients
    aligner = FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    aligner.set_params(**params).fit(X, client_ids=ids)
    assert len(count_references) == 2
    expected = FederatedOTAligner(**params).fit(X, client_ids=ids)
    assert aligner.reference_ == expected.reference_


@pytest.mark.parametrize("changed", ["rows", "ids", "names"])
def test_memory_tells_data_apart(clients, changed, tmp_path, count_references):
    X, ids = clients
    FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    if changed == "rows":
        X = X + 1
    elif changed == "ids":
        ids = np.roll(ids, 1)
    else:
        ids = np.char.add(ids, "!")
    aligner = FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    assert len(count_references) == 2
    assert list(aligner.clients_) == sorted(set(ids))


@pytest.mark.parametrize("changed", [{"n_jobs": 2}, {"unknown_client": "identity"}])
def test_memory_overlooks_what_does_not_matter(
    clients, changed, tmp_path, count_references
):
    X, ids = clients
    aligner = FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    clone(aligner).set_params(**changed).fit(X, client_ids=ids)
    assert len(count_references) == 1


def test_memory_overlooks_the_memory_layout(clients, tmp_path, count_references):
    X, ids = clients
    for rows in (X, np.asfortranarray(X), pd.DataFrame(X)):
        FederatedOTAligner(memory=str(tmp_path)).fit(rows, client_ids=ids)
    assert len(count_references) == 1


def test_warnings_come_again_from_the_cache(tmp_path, count_references):
    X, ids = with_tiny_client(CONSTANT_ROWS["one row"])
    for _ in range(2):
        with pytest.warns(UserWarning, match="rows of client 'tiny' do not vary"):
            FederatedOTAligner(memory=str(tmp_path)).fit(X, client_ids=ids)
    assert len(count_references) == 1


def test_cached_fit_can_be_continued(clients, tmp_path):
    X, ids = clients
    memory = joblib.Memory(tmp_path, mmap_mode="r", verbose=0)
    for _ in range(2):  # the second time the arrays are read-only memory maps
        aligner = FederatedOTAligner(memory=memory).fit(X[:60], client_ids=ids[:60])
        aligner.partial_fit(X[60:], client_ids=ids[60:])
        aligner.add_client(X + 1, "new")
    expected = FederatedOTAligner().fit(X, client_ids=ids)
    aligned = aligner.transform(X, client_ids=ids)
    assert relative_error(aligned, expected.transform(X, client_ids=ids)) <= 1e-10


# -------------------------------------------------------- estimator conventions


@pytest.mark.parametrize("name", FITTED_ATTRIBUTES)
def test_fitted_attributes_have_the_documented_shape(clients, name):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    assert getattr(aligner, name).shape == FITTED_ATTRIBUTES[name]


def test_other_fitted_attributes_have_the_documented_type(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    assert isinstance(aligner.n_iter_, int)
    assert isinstance(aligner.residual_, float)
    assert isinstance(aligner.reference_, AlignmentReference)
    assert [type(s) for s in aligner.statistics_] == [ClientStatistics] * 3
    assert [type(m) for m in aligner.maps_] == [TransportMap] * 3
    assert aligner.n_features_in_ == N_FEATURES


@pytest.mark.parametrize(
    "name",
    [*FITTED_ATTRIBUTES, "n_iter_", "residual_", "statistics_", "reference_", "maps_"],
)
def test_nothing_is_fitted_before_fit(name):
    aligner = FederatedOTAligner()
    assert not hasattr(aligner, name)
    with pytest.raises(NotFittedError):
        getattr(aligner, name)


@pytest.mark.parametrize(
    "call",
    [
        lambda aligner, X: aligner.transform(X),
        lambda aligner, X: aligner.inverse_transform(X),
        lambda aligner, X: aligner.add_client(X, "A"),
        lambda aligner, X: aligner.get_feature_names_out(),
    ],
)
def test_methods_need_fit(clients, call):
    with pytest.raises(NotFittedError):
        call(FederatedOTAligner(), clients[0])


BAD_PARAMS = [
    {"tau": -0.1},
    {"tau": 1.1},
    {"tau": "often"},
    {"tau": np.nan},
    {"shrinkage": "lw"},
    {"shrinkage": 1.5},
    {"shrinkage": None},
    {"weights": "size"},
    {"weights": None},
    {"unknown_client": "ignore"},
    {"client_column": 1.5},
    {"keep_client_column": "yes"},
    {"solver": "newton"},
    {"tol": -1e-8},
    {"max_iter": 0},
    {"max_iter": 1.5},
    {"memory": 3},
    {"n_jobs": 1.5},
]


@pytest.mark.parametrize("params", BAD_PARAMS, ids=str)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "fit_transform"])
def test_bad_parameters_are_refused_by_fit(clients, params, method):
    X, ids = clients
    with pytest.raises(InvalidParameterError, match=next(iter(params))):
        getattr(FederatedOTAligner(**params), method)(X, client_ids=ids)


@pytest.mark.parametrize("params", BAD_PARAMS, ids=str)
def test_bad_parameters_are_refused_by_the_steps(clients, params):
    X, _ = clients
    good, bad = FederatedOTAligner(), FederatedOTAligner(**params)
    message = good.client_update(X)
    reference = good.server_aggregate([message])
    (name,) = params
    with pytest.raises(InvalidParameterError, match=name):
        bad.client_update(X)
    with pytest.raises(InvalidParameterError, match=name):
        bad.server_aggregate([message])
    with pytest.raises(InvalidParameterError, match=name):
        bad.client_map(message, reference)


def test_tau_can_be_changed_after_fit(clients, count_references):
    X, ids = clients
    aligner = FederatedOTAligner(0.4).fit(X, client_ids=ids)
    aligned = aligner.set_params(tau=0.9).transform(X, client_ids=ids)
    assert len(count_references) == 1
    expected = FederatedOTAligner(0.9).fit_transform(X, client_ids=ids)
    assert np.array_equal(aligned, expected)


def test_clone_is_unfitted(clients):
    X, ids = clients
    aligner = FederatedOTAligner(0.7, weights="uniform").fit(X, client_ids=ids)
    twin = clone(aligner)
    assert twin.get_params() == aligner.get_params()
    assert not hasattr(twin, "clients_")


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))]
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_copies_align_alike(clients, duplicate, method):
    X, ids = clients
    aligner = getattr(FederatedOTAligner(), method)(X, client_ids=ids)
    twin = duplicate(aligner)
    aligned = twin.transform(X, client_ids=ids)
    assert np.array_equal(aligned, aligner.transform(X, client_ids=ids))


def test_copy_does_not_follow_the_original(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    twin = copy.copy(aligner)
    reference = aligner.reference_
    aligner.partial_fit(X + 5, client_ids=ids).add_client(X, "new")
    assert twin.reference_ == reference
    assert list(twin.clients_) == CLIENTS


@pytest.mark.parametrize("method", [None, "fit", "partial_fit"])
def test_notebook_representation(clients, method):
    X, ids = clients
    aligner = FederatedOTAligner(tau=0.7)
    if method:
        getattr(aligner, method)(X, client_ids=ids)
    html = aligner._repr_html_()
    assert "FederatedOTAligner" in html
    assert "0.7" in html


def test_sparse_rows_are_refused(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    with pytest.raises(TypeError, match="dense data is required"):
        FederatedOTAligner().fit(csr_array(X), client_ids=ids)
    with pytest.raises(TypeError, match="dense data is required"):
        aligner.transform(csr_array(X), client_ids=ids)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_client_whose_rows_are_not_finite_is_named(clients, bad):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    X[np.flatnonzero(ids == "lima")[2], 1] = bad
    for method in (FederatedOTAligner().fit, aligner.transform):
        with pytest.raises(ValueError, match=r"Rows of client \['lima'\]: Input X con"):
            method(X, client_ids=ids)


def test_no_client_is_named_when_there_are_no_ids(clients):
    X, _ = clients
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"^Input X contains NaN"):
        FederatedOTAligner().fit(X)
