"""FederatedOTAligner: the method, rows in chunks, and the conventions of estimators.

How ids get in is in ``test_aligner_ids.py``.
"""

import copy
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import InvalidParameterError

from skslot import FederatedOTAligner
from skslot.alignment import TransportMap
from skslot.exchange import AlignmentReference, ClientStatistics
from skslot.geometry import bures_barycenter, gaussian_wasserstein

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


def relative_error(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def assert_same_alignment(left, right, tolerance):
    """Both have the same clients, statistics and reference."""
    assert list(left.clients_) == list(right.clients_)
    for name in FITTED_ATTRIBUTES:
        if name != "clients_":
            error = relative_error(getattr(left, name), getattr(right, name))
            assert error <= tolerance, name


# ------------------------------------------------------------------------- identities


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
    for covariance, client_map in zip(
        aligner.covariances_, aligner.maps_.values(), strict=True
    ):
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
        aligner.means_, aligner.covariances_, aligner.maps_.values(), strict=True
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
    inverses = [
        np.linalg.inv(client_map.matrix) for client_map in aligner.maps_.values()
    ]
    average = np.tensordot(aligner.weights_, inverses, axes=1)
    assert relative_error(average, np.eye(N_FEATURES)) <= 1e-11


def test_reference_is_the_barycenter_after_partial_alignment(clients):
    X, ids = clients
    aligner = FederatedOTAligner(tau=0.3, tol=1e-12).fit(X, client_ids=ids)
    matrices = [client_map.affine[0] for client_map in aligner.maps_.values()]
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


def test_map_cannot_undo_a_reflection(make_clients):
    X, _ = make_clients(sizes=[200], clients=["one"])
    X -= X.mean(axis=0)
    ids = np.repeat(["upright", "inverted"], 200)
    both = np.vstack([X, -X])
    aligned = FederatedOTAligner(tau=1).fit_transform(both, client_ids=ids)
    np.testing.assert_allclose(aligned, both, rtol=0, atol=1e-10)


# ------------------------------------------------------------------------- invariance


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


# ------------------------------------------------------------------------ partial_fit


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
    assert aligner.statistics_[-1].n_samples == SIZES[2]


def test_partial_fit_refuses_another_width(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    with pytest.raises(ValueError, match="X has 2 features, .* expecting 4"):
        aligner.partial_fit(X[:, :2], client_ids=ids)


# ------------------------------------------------------------------ inverse_transform


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
    with pytest.raises(ValueError, match="X has 2 features, but 4 were fitted"):
        aligner.inverse_transform(X[:, :2], client_ids=ids)


def test_inverse_transform_needs_ids(clients):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    with pytest.raises(ValueError, match="client_ids is missing, but 3 clients"):
        aligner.inverse_transform(X)


# -------------------------------------------------------------- estimator conventions


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
    assert [type(m) for m in aligner.maps_.values()] == [TransportMap] * 3
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
    reference = good.server_aggregate([message]).reference_
    (name,) = params
    with pytest.raises(InvalidParameterError, match=name):
        bad.client_update(X)
    with pytest.raises(InvalidParameterError, match=name):
        bad.server_aggregate([message])
    with pytest.raises(InvalidParameterError, match=name):
        bad.client_map(message, reference)


@pytest.mark.parametrize(
    "params",
    [
        {"tau": 0.9},
        {"tau": "auto"},
        {"tau": 2},
        {"shrinkage": 0.9, "weights": "uniform"},
        {"solver": "paper", "tol": 1e-2, "max_iter": 1},
    ],
    ids=str,
)
def test_parameters_set_after_fit_change_nothing(clients, params):
    X, ids = clients
    expected = FederatedOTAligner(0.4).fit(X, client_ids=ids)
    aligner = FederatedOTAligner(0.4).fit(X, client_ids=ids).set_params(**params)
    assert aligner.tau_ == 0.4
    assert np.array_equal(
        aligner.transform(X, client_ids=ids), expected.transform(X, client_ids=ids)
    )
    assert aligner.reference_ == expected.reference_


def test_client_added_after_set_params_gets_what_was_fitted(clients):
    X, ids = clients
    expected = FederatedOTAligner(0.4).fit(X, client_ids=ids).add_client(X + 1, "rio")
    aligner = FederatedOTAligner(0.4).fit(X, client_ids=ids)
    aligner.set_params(tau=0.9, shrinkage=0.5).add_client(X + 1, "rio")
    assert aligner.maps_[aligner.clients_[-1]].tau == 0.4
    assert np.array_equal(
        aligner.transform(X, client_ids="rio"), expected.transform(X, client_ids="rio")
    )


def test_rows_added_later_are_aligned_with_the_parameters_of_that_time(clients):
    X, ids = clients
    aligner = FederatedOTAligner(0.4).fit(X[:50], client_ids=ids[:50])
    aligner.set_params(tau=0.7).partial_fit(X[50:], client_ids=ids[50:])
    aligner.set_params(tau=0.1)
    expected = FederatedOTAligner(0.7).fit(X, client_ids=ids)
    assert aligner.tau_ == 0.7
    np.testing.assert_allclose(
        aligner.transform(X, client_ids=ids),
        expected.transform(X, client_ids=ids),
        rtol=1e-9,
    )


def test_fitted_maps_have_all_strengths(clients):
    X, ids = clients
    rows = X[ids == "oslo"]
    aligner = FederatedOTAligner(0.4).fit(X, client_ids=ids)
    expected = FederatedOTAligner(0.9).fit(X, client_ids=ids)
    client_map = aligner.maps_["oslo"]
    assert np.array_equal(
        client_map.at(0.9).transform(rows), expected.transform(rows, client_ids="oslo")
    )


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
