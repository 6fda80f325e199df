"""Clients that were not there in ``fit``: those that join, and those that do not."""

import copy

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

from skslot import FederatedOTAligner

# ------------------------------------------------------------------- add_client


@pytest.fixture
def founders_and_newcomer(clients):
    """Aligner fitted with two clients, and rows of a third."""
    X, ids = clients
    old = ids != "lima"
    return FederatedOTAligner(0.6).fit(X[old], client_ids=ids[old]), X[~old]


def test_new_client_leaves_the_others_alone(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    reference, maps = aligner.reference_, dict(aligner.maps_)
    aligner.add_client(rows, "lima")
    assert aligner.reference_ == reference
    for before, after in zip(maps.values(), aligner.maps_.values(), strict=False):
        assert np.array_equal(before.transform(rows), after.transform(rows))


def test_new_client_has_no_weight(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    aligner.add_client(rows, "lima")
    weight = dict(zip(aligner.clients_, aligner.weights_, strict=True))
    assert weight == {"berlin": 0.4, "oslo": 0.6, "lima": 0.0}
    assert aligner.means_.shape == (3, 4)


def test_new_client_gets_its_own_map(founders_and_newcomer):
    aligner, rows = founders_and_newcomer
    message = aligner.client_update(rows, client="lima")
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
        (np.zeros((5, 4)), None, ValueError, "None names nobody"),
        (np.zeros((5, 4)), np.nan, ValueError, "nan names nobody"),
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


def test_many_known_clients_are_not_all_listed(make_clients):
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


@pytest.mark.parametrize("column", ["site", 1])
def test_new_client_may_come_with_the_column_of_ids(clients, column):
    X, ids = clients
    table = pd.DataFrame(X, columns=list("abcd"))
    table.insert(1, "site", ids)
    new = ids == "lima"
    aligner = FederatedOTAligner(client_column=column).fit(table[~new])
    plain = clone(aligner).fit(table[~new])
    aligner.add_client(table[new], "lima")
    plain.add_client(table[new].drop(columns="site"), "lima")
    assert np.array_equal(aligner.transform(table), plain.transform(table))
    with pytest.raises(ValueError, match="rows are of client .'lima'.* of 'rome'"):
        aligner.add_client(table[new], "rome")


def test_shrinkage_that_was_set_between_chunks_holds_for_all_rows(clients):
    X, ids = clients
    aligner = FederatedOTAligner().partial_fit(X[:60], client_ids=ids[:60])
    last = ids[60:] == ids[60]  # of one client only
    aligner.set_params(shrinkage=0.3)
    aligner.partial_fit(X[60:][last], client_ids=ids[60:][last])
    rows = np.r_[np.arange(60), 60 + np.flatnonzero(last)]
    expected = FederatedOTAligner(shrinkage=0.3).fit(X[rows], client_ids=ids[rows])
    np.testing.assert_allclose(
        aligner.transform(X[:60], client_ids=ids[:60]),
        expected.transform(X[:60], client_ids=ids[:60]),
        rtol=0,
        atol=1e-10,
    )
