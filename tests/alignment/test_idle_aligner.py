"""tau=0 moves nothing, so that nothing is solved for until somebody asks."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.exchange import load_messages
from skslot.trust import ClientScreen

FITS = ["fit", "partial_fit", "fit_messages"]


def fit(aligner, how, X, ids):
    if how != "fit_messages":
        return getattr(aligner, how)(X, client_ids=ids)
    names = np.unique(ids)
    return aligner.server_aggregate(
        [aligner.client_update(X[ids == name], client=str(name)) for name in names]
    )


@pytest.mark.parametrize("how", FITS)
def test_rows_stay_and_no_reference_is_computed(clients, how, count_references):
    X, ids = clients
    aligner = fit(FederatedOTAligner(0), how, X, ids)
    check_is_fitted(aligner)
    np.testing.assert_array_equal(aligner.transform(X, client_ids=ids), X)
    np.testing.assert_array_equal(aligner.inverse_transform(X, client_ids=ids), X)
    assert aligner.clients_.tolist() == sorted(set(ids))
    assert aligner.tau_ == 0
    assert len(count_references) == 0


@pytest.mark.parametrize("how", FITS)
@pytest.mark.parametrize("copy", [lambda a: a, lambda a: pickle.loads(pickle.dumps(a))])
def test_reference_is_there_for_those_who_ask(clients, how, copy, count_references):
    X, ids = clients
    aligner = copy(fit(FederatedOTAligner(0), how, X, ids))
    expected = fit(FederatedOTAligner(0.4), how, X, ids)
    assert aligner.reference_ == expected.reference_
    assert len(count_references) == 2
    assert len(aligner.maps_) == len(aligner.weights_) == 3
    assert len(count_references) == 2


@pytest.mark.parametrize("how", ["fit", "fit_messages"])
def test_cap_that_cannot_be_kept_is_refused_as_with_any_other_strength(clients, how):
    X, ids = clients
    with pytest.raises(ValueError, match="max_share=0.3 is too small"):
        fit(FederatedOTAligner(0, screen=ClientScreen(max_share=0.3)), how, X, ids)


def test_reference_is_there_when_the_files_are_gone(clients, tmp_path):
    X, ids = clients
    expected = fit(FederatedOTAligner(0), "fit_messages", X, ids)
    paths = [tmp_path / f"{message.client}.slot" for message in expected.statistics_]
    for message, path in zip(expected.statistics_, paths, strict=True):
        message.save(path, "float64")
    aligner = FederatedOTAligner(0).server_aggregate(load_messages(paths))
    for path in paths:
        path.unlink()
    assert aligner.reference_ == expected.reference_
    np.testing.assert_array_equal(aligner.transform(X, client_ids=ids), X)


def test_full_maps_can_be_had_from_it(clients):
    X, ids = clients
    there = FederatedOTAligner(0).fit(X, client_ids=ids).maps_["oslo"].at(1)
    expected = FederatedOTAligner(1).fit(X, client_ids=ids).maps_["oslo"]
    np.testing.assert_array_equal(there.affine[0], expected.affine[0])


def test_strangers_stay_too(clients, count_references):
    X, ids = clients
    aligner = FederatedOTAligner(0, unknown_client="adapt").fit(X, client_ids=ids)
    moved = aligner.transform(X[:5], client_ids="elsewhere")
    np.testing.assert_array_equal(moved, X[:5])
    assert len(count_references) == 0


def test_later_client_gets_the_map_that_others_would_give_it(clients):
    X, ids = clients
    late = ids == "oslo"
    aligner = FederatedOTAligner(0).fit(X[~late], client_ids=ids[~late])
    other = FederatedOTAligner(1).fit(X[~late], client_ids=ids[~late])
    pair = [
        each.add_client(X[late], "oslo").maps_["oslo"].at(1)
        for each in (aligner, other)
    ]
    np.testing.assert_array_equal(pair[0].affine[0], pair[1].affine[0])


def test_clone_is_not_fitted(clients):
    X, ids = clients
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(FederatedOTAligner(0).fit(X, client_ids=ids)))


def test_classifier_with_it_is_the_one_without(clients):
    X, ids = clients
    y = np.arange(len(X)) % 2
    plain = FedCGSClassifier().fit(X, y, client_ids=ids)
    aligned = FedCGSClassifier(aligner=FederatedOTAligner(0)).fit(X, y, client_ids=ids)
    np.testing.assert_allclose(
        aligned.decision_function(X, client_ids=ids), plain.decision_function(X)
    )
