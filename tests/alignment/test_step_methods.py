"""The steps of the aligner one by one, and that ``fit`` is made of them."""

import copy
import itertools

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from skslot import FederatedOTAligner
from skslot.alignment import TransportMap
from skslot.exchange import AlignmentReference, ClientStatistics
from skslot.statistics import FeatureMoments

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
    reference = aligner.server_aggregate(messages.values()).reference_
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
def test_steps_are_exact_whatever_the_memory_layout(
    make_clients, order, dtype, adjacent, n_features
):
    X, ids = make_clients(n_features=n_features)
    if adjacent:
        X, ids = X[np.argsort(ids)], np.sort(ids)
    X = np.asarray(X, dtype=dtype, order=order)
    aligner = FederatedOTAligner()
    _, reference, by_hand = align_by_hand(aligner, X, ids)
    assert np.array_equal(aligner.fit_transform(X, client_ids=ids), by_hand)
    assert aligner.reference_ == reference


def test_steps_at_a_client_need_no_fit_and_leave_no_trace(clients):
    X, ids = clients
    reference = FederatedOTAligner().fit(X, client_ids=ids).reference_
    aligner = FederatedOTAligner()
    before = copy.deepcopy(vars(aligner))
    aligner.client_map(aligner.client_update(X), reference)
    assert vars(aligner) == before


def test_server_step_fits_and_returns_the_aligner(clients):
    X, ids = clients
    aligner = FederatedOTAligner()
    messages = FederatedOTAligner().fit(X, client_ids=ids).statistics_
    assert aligner.server_aggregate(messages) is aligner
    assert aligner.clients_.tolist() == [each.client for each in messages]


def test_steps_return_the_documented_messages(clients):
    X, _ = clients
    aligner = FederatedOTAligner(tau=0.7)
    message = aligner.client_update(X, client="A")
    reference = aligner.server_aggregate([message]).reference_
    client_map = aligner.client_map(message, reference)
    assert isinstance(message, ClientStatistics)
    assert isinstance(reference, AlignmentReference)
    assert isinstance(client_map, TransportMap)
    assert (message.client, client_map.tau) == ("A", 0.7)


@pytest.mark.parametrize("make", [list, tuple, iter], ids=["list", "tuple", "iterator"])
def test_server_takes_any_iterable_of_messages(clients, make):
    X, ids = clients
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    server = FederatedOTAligner().server_aggregate(make(aligner.statistics_))
    assert server.reference_ == aligner.reference_


def test_server_refuses_no_messages():
    with pytest.raises(ValueError, match="messages is empty"):
        FederatedOTAligner().server_aggregate([])


def test_server_refuses_clients_of_different_width(clients):
    X, _ = clients
    aligner = FederatedOTAligner()
    messages = [
        aligner.client_update(X, client="A"),
        aligner.client_update(X[:, :2], client="B"),
    ]
    with pytest.raises(ValueError, match="client 'B' has 2 features, client 'A' 4"):
        aligner.server_aggregate(messages)


def test_map_to_a_reference_of_other_width_is_refused(clients):
    X, _ = clients
    aligner = FederatedOTAligner()
    reference = aligner.server_aggregate([aligner.client_update(X)]).reference_
    message = aligner.client_update(X[:, :2], client="B")
    with pytest.raises(ValueError, match="client 'B' has 2 features, the reference 4"):
        aligner.client_map(message, reference)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_client_update_names_the_client_whose_rows_are_not_finite(clients, bad):
    X, _ = clients
    X[3, 1] = bad
    with pytest.raises(ValueError, match=r"Rows of client \['oslo'\]: .* contains"):
        FederatedOTAligner().client_update(X, client="oslo")


def test_client_update_takes_moments_of_rows_that_do_not_fit_in_memory():
    rows = np.random.default_rng(0).normal(size=(50, 3))
    moments = FeatureMoments.from_rows(rows[:20]) + FeatureMoments.from_rows(rows[20:])
    statistics = FederatedOTAligner().client_update(moments, client="A")
    expected = FederatedOTAligner().client_update(rows, client="A")
    np.testing.assert_allclose(statistics.covariance, expected.covariance, rtol=1e-12)
    assert statistics.client == "A"


def test_server_warns_when_the_reference_did_not_converge(clients):
    X, ids = clients
    messages = FederatedOTAligner().fit(X, client_ids=ids).statistics_
    with pytest.warns(ConvergenceWarning, match="residual .* after 1 passes"):
        FederatedOTAligner(max_iter=1).server_aggregate(messages)


def test_reference_that_was_rounded_below_zero_still_has_maps():
    """Half precision moves eigenvalues by more than the smallest may be."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    covariance = (vectors * np.geomspace(1, 1e-7, 6)) @ vectors.T
    exact = AlignmentReference(np.zeros(6), covariance, 1, 0.0)
    rounded = AlignmentReference.from_bytes(exact.to_bytes("float16"))
    assert np.linalg.eigvalsh(rounded.covariance)[0] < -1e-5
    aligner = FederatedOTAligner(tau=1)
    sent = aligner.client_update(rng.normal(size=(100, 6)), client="A")
    matrices = [aligner.client_map(sent, each).matrix for each in (exact, rounded)]
    np.testing.assert_allclose(*matrices, atol=0.05)


def test_server_step_that_fails_leaves_the_aligner_as_it_was(clients):
    X, ids = clients
    aligner = FederatedOTAligner()
    message = aligner.client_update(X, client="A")
    with pytest.raises(ValueError, match="needs class counts"):
        FederatedOTAligner("auto").server_aggregate([message])
    with pytest.raises(ValueError, match="needs class counts"):
        aligner.set_params(tau="auto").server_aggregate([message])
    with pytest.raises(NotFittedError):
        aligner.transform(X, client_ids="A")
    fitted = FederatedOTAligner().fit(X, client_ids=ids)
    expected = fitted.transform(X, client_ids=ids)
    with pytest.raises(ValueError, match="needs class counts"):
        fitted.set_params(tau="auto").server_aggregate([message])
    np.testing.assert_array_equal(fitted.transform(X, client_ids=ids), expected)
