"""Clients of which little is known, and references that do not converge."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skslot import FederatedOTAligner

CONSTANT_ROWS = {
    "one row": np.array([[1.0, 2.0, 3.0, 4.0]]),
    "repeated row": np.tile([[0.1, 1e6 + 0.1, 1 / 3, 0.0]], (7, 1)),
}
NEARLY_SINGULAR_ROWS = {
    "two rows": np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 0.0, 3.5, 1.0]]),
    "constant features": np.c_[np.arange(50.0) ** 2, np.ones((50, 3))],
    "repeated feature": np.repeat(np.sin(np.arange(50.0))[:, None], 4, axis=1),
}


@pytest.fixture
def with_tiny_client(make_clients):
    """Function that puts rows of a client "tiny" beside those of two others."""

    def add(rows):
        X, ids = make_clients(sizes=[40, 60], clients=["berlin", "oslo"])
        return np.vstack([X, rows]), np.append(ids, ["tiny"] * len(rows))

    return add


@pytest.mark.parametrize("name", CONSTANT_ROWS)
@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", "oas", 0.0, 0.5])
def test_client_that_does_not_vary_is_translated(with_tiny_client, name, shrinkage):
    X, ids = with_tiny_client(CONSTANT_ROWS[name])
    aligner = FederatedOTAligner(tau=1, shrinkage=shrinkage, screen=None)
    with pytest.warns(UserWarning, match="rows of client 'tiny' do not vary"):
        aligned = aligner.fit_transform(X, client_ids=ids)
    assert np.isfinite(aligned).all()
    tiny = aligned[ids == "tiny"]
    np.testing.assert_allclose(
        tiny, np.tile(aligner.reference_mean_, (len(tiny), 1)), rtol=1e-9
    )
    assert np.array_equal(aligner.maps_[aligner.clients_[-1]].matrix, np.eye(4))


@pytest.mark.parametrize("name", CONSTANT_ROWS)
def test_client_that_does_not_vary_stays_out_of_the_barycenter(with_tiny_client, name):
    X, ids = with_tiny_client(CONSTANT_ROWS[name])
    with pytest.warns(UserWarning, match="left out of the reference"):
        aligner = FederatedOTAligner(screen=None).fit(X, client_ids=ids)
    others = ids != "tiny"
    expected = FederatedOTAligner().fit(X[others], client_ids=ids[others])
    np.testing.assert_allclose(
        aligner.reference_covariance_, expected.reference_covariance_, atol=1e-12
    )


@pytest.mark.parametrize("shrinkage", [0.0, 0.5, 1.0])
def test_client_that_does_not_vary_keeps_its_shrinkage(shrinkage):
    aligner = FederatedOTAligner(shrinkage=shrinkage)
    with pytest.warns(UserWarning, match="rows of this client do not vary"):
        statistics = aligner.client_update(np.ones((5, 3)))
    assert statistics.shrinkage == shrinkage


@pytest.mark.parametrize("name", NEARLY_SINGULAR_ROWS)
def test_nearly_singular_client_is_floored_and_named(with_tiny_client, name):
    X, ids = with_tiny_client(NEARLY_SINGULAR_ROWS[name])
    aligner = FederatedOTAligner(tau=1, shrinkage=0.0, screen=None)
    with pytest.warns(UserWarning, match="covariance of client 'tiny' is singular"):
        aligned = aligner.fit_transform(X, client_ids=ids)
    assert np.isfinite(aligned).all()
    eigenvalues = np.linalg.eigvalsh(aligner.covariances_[-1])
    assert eigenvalues[0] >= 0.99e-4 * eigenvalues.mean()
    assert list(aligner.shrinkage_) == [0.0, 0.0, 1e-4]


def test_two_rows_are_floored_with_ledoit_wolf(with_tiny_client):
    X, ids = with_tiny_client(NEARLY_SINGULAR_ROWS["two rows"])
    with pytest.warns(UserWarning, match="covariance of client 'tiny' is singular"):
        aligned = FederatedOTAligner().fit_transform(X, client_ids=ids)
    assert np.isfinite(aligned).all()


def test_several_degenerate_clients_are_named_in_one_warning(with_tiny_client):
    X, ids = with_tiny_client(np.vstack([CONSTANT_ROWS["one row"]] * 2))
    ids[-1] = "wee"
    with pytest.warns(UserWarning, match=r"client \['tiny', 'wee'\] do not") as record:
        FederatedOTAligner().fit(X, client_ids=ids)
    assert len(record) == 1


@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", "oas"])
def test_far_fewer_rows_than_features_need_no_floor(make_clients, shrinkage):
    X, ids = make_clients(sizes=[6, 8, 5], n_features=60)
    aligner = FederatedOTAligner(tau=1, shrinkage=shrinkage)
    assert np.isfinite(aligner.fit_transform(X, client_ids=ids)).all()
    assert (aligner.shrinkage_ > 1e-3).all()


def test_far_fewer_rows_than_features_without_shrinkage_are_named(make_clients):
    X, ids = make_clients(sizes=[6, 8, 500], n_features=60)
    aligner = FederatedOTAligner(tau=1, shrinkage=0.0)
    with pytest.warns(UserWarning, match=r"client \['berlin', 'lima'\] is singular"):
        aligned = aligner.fit_transform(X, client_ids=ids)
    assert np.isfinite(aligned).all()


@pytest.mark.parametrize("tau", [0.4, 1.0])
def test_clients_of_one_row_each_meet_in_their_mean(tau):
    X = np.random.default_rng(0).normal(3, size=(3, 4))
    aligner = FederatedOTAligner(tau)
    with pytest.warns(UserWarning, match=r"client \['berlin', 'lima', 'oslo'\] do"):
        aligned, covariance = (
            aligner.fit_transform(X, client_ids=["berlin", "lima", "oslo"]),
            aligner.reference_covariance_,  # with tau=0, computed only now
        )
    expected = (1 - tau) * X + tau * X.mean(axis=0)
    np.testing.assert_allclose(aligned, expected, rtol=1e-12)
    assert not covariance.any()


def test_without_strength_clients_are_named_when_the_reference_is_asked_for():
    X = np.random.default_rng(0).normal(3, size=(3, 4))
    aligner = FederatedOTAligner(tau=0)
    aligned = aligner.fit_transform(X, client_ids=["berlin", "lima", "oslo"])
    np.testing.assert_array_equal(aligned, X)
    with pytest.warns(UserWarning, match=r"client \['berlin', 'lima', 'oslo'\] do"):
        assert not aligner.reference_covariance_.any()


def test_degenerate_newcomer_is_named(clients):
    X, ids = clients
    aligner = FederatedOTAligner(tau=1).fit(X, client_ids=ids)
    with pytest.warns(UserWarning, match="client 'tiny' do not vary"):
        aligner.add_client(X[:1], "tiny")
    aligned = aligner.transform(X[:1], client_ids="tiny")
    np.testing.assert_allclose(aligned[0], aligner.reference_mean_, rtol=1e-12)


def test_one_feature_is_enough(make_clients):
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
