"""What a call that fails, or odd input, leaves behind; errors name the remedy."""

import pickle
from copy import deepcopy

import numpy as np
import pytest

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FedRidgeClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.datasets import make_shifted_clients
from skslot.exchange import load_messages
from skslot.trust import cap_shares, examine_clients

DATA = make_shifted_clients(n_clients=3, n_classes=3, n_features=4, random_state=0)
X, Y = DATA.data, DATA.target
IDS = np.array(["Bern", "Oslo", "Turin"])[DATA.client_ids]
BERN = IDS == "Bern"


@pytest.mark.parametrize(
    "classifier",
    [
        FedCGSClassifier(aligner=FederatedOTAligner(tau=1)),
        FedRidgeClassifier(aligner=FederatedOTAligner(tau=1)),
        MixedEffectsClassifier(),
    ],
)
def test_a_server_step_that_fails_keeps_the_classifier(classifier):
    classifier = deepcopy(classifier).fit(X, Y, client_ids=IDS)
    before = classifier.predict_proba(X, client_ids=IDS)
    foreign = FedCGSClassifier().client_update(X[:, :2], Y, client="Rome")
    for messages in ([], [foreign, foreign]):
        with pytest.raises(ValueError):  # noqa: PT011
            classifier.server_aggregate(messages)
        after = classifier.predict_proba(X, client_ids=IDS)
        np.testing.assert_array_equal(after, before)
    with pytest.raises(ValueError, match="was not seen in fit"):
        classifier.predict(X, client_ids="nobody")


@pytest.mark.parametrize("names", [(2**63 + 12345, 7, 2**64 - 3), ("a\0", "a", "b")])
def test_ids_that_an_array_would_change_name_their_client(names):
    ids = np.fromiter((names[code] for code in DATA.client_ids), dtype=object)
    found = MixedEffectsClassifier().fit(X, Y, client_ids=ids)
    expected = MixedEffectsClassifier().fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(
        found.predict_proba(X, client_ids=ids),
        expected.predict_proba(X, client_ids=IDS),
        rtol=1e-9,
    )
    assert found.client_model(names[0]).client == names[0]


@pytest.mark.parametrize("aligner", [FederatedOTAligner(), MixedEffectsAligner()])
def test_what_is_no_reference_is_refused(aligner):
    message = aligner.client_update(X[BERN], Y[BERN], client="Bern")
    with pytest.raises(TypeError, match="reference must be the reference_"):
        aligner.client_map(message, message)


def test_numbers_that_are_too_large_do_not_adapt_a_client():
    classifier = MixedEffectsClassifier().fit(X, Y, client_ids=IDS)
    before = classifier.predict_proba(X, client_ids=IDS)
    with pytest.raises(ValueError, match="client 'Bern' contains numbers"):
        classifier.adapt_client(X * 1e160, "Bern")
    np.testing.assert_array_equal(classifier.predict_proba(X, client_ids=IDS), before)
    with pytest.raises(ValueError, match="nothing to undo"):
        classifier.reset_client("Bern")


def test_a_shrinkage_that_was_set_reaches_clients_that_joined():
    rows, new = IDS != "Turin", X[IDS == "Turin"]
    aligner = FederatedOTAligner().fit(X[rows], client_ids=IDS[rows])
    aligner.add_client(new, "Turin").set_params(shrinkage=0.5)
    aligner.partial_fit(X[BERN], client_ids=IDS[BERN])
    again = FederatedOTAligner(shrinkage=0.5)
    twice = np.flatnonzero(rows), np.flatnonzero(BERN)
    again.fit(X[np.concatenate(twice)], client_ids=IDS[np.concatenate(twice)])
    again.add_client(new, "Turin")
    np.testing.assert_allclose(
        aligner.transform(new, "Turin"), again.transform(new, "Turin"), rtol=1e-9
    )


def test_labels_may_become_superfluous_between_chunks_but_not_necessary():
    aligner = FederatedOTAligner("auto").fit(X, Y, client_ids=IDS)
    aligner.set_params(tau=0.3).partial_fit(X, Y, client_ids=IDS)
    twice = np.r_[X, X], None, np.r_[IDS, IDS]
    expected = FederatedOTAligner(0.3).fit(*twice).transform(X, IDS)
    np.testing.assert_allclose(aligner.transform(X, IDS), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="labels of earlier samples were not kept"):
        aligner.set_params(tau="auto").partial_fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(aligner.transform(X, IDS), expected, rtol=1e-9)


def test_files_that_are_gone_are_named_with_the_remedy(tmp_path):
    aligner, paths = FederatedOTAligner(), []
    for client in np.unique(IDS):
        paths.append(tmp_path / f"{client}.slot")
        rows = IDS == client
        aligner.client_update(X[rows], client=str(client)).save(paths[-1])
    aligner.server_aggregate(load_messages(paths))
    restored = pickle.loads(pickle.dumps(aligner.maps_))
    np.testing.assert_array_equal(
        restored["Bern"].transform(X), aligner.transform(X, "Bern")
    )
    paths[0].unlink()
    with pytest.raises(FileNotFoundError, match="client 'Bern', is needed again"):
        aligner.transform(X, "Bern")
    with pytest.raises(TypeError, match="paths must be a list"):
        load_messages(str(paths[1]))
    for wrong, words in {paths[1]: "iterable of", (paths[1],): "load_messages"}.items():
        with pytest.raises(TypeError, match=words):
            aligner.server_aggregate(wrong)


def test_labels_that_would_change_are_refused():
    with pytest.raises(ValueError, match="y contains NaN in row 1"):
        FedCGSClassifier().fit(X[:4], ["a", np.nan, "b", "a"], client_ids=IDS[:4])
    labels = np.array([1, 2**63 + 5, 9], dtype=np.uint64)[Y]
    with pytest.raises(ValueError, match="y has labels that are too large"):
        FedCGSClassifier().fit(X, labels, client_ids=IDS)


def test_a_report_on_nobody_or_on_other_features_is_refused():
    with pytest.raises(ValueError, match="messages is empty"):
        examine_clients([])
    step = FederatedOTAligner().client_update
    sent = [step(X[BERN], client="Bern"), step(X[~BERN][:, :2], client="others")]
    with pytest.raises(ValueError, match="different numbers of features"):
        examine_clients(sent)
    for wrong in ([], [1.0, -2.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match="n_samples must be non-negative"):
            cap_shares(wrong, 0.5)


def test_an_aligner_that_breaks_its_contract_is_named():
    class Forgetful(FederatedOTAligner):
        maps_ = {}

    Forgetful.__init__ = FederatedOTAligner.__init__
    with pytest.raises(TypeError, match=r"maps_ of Forgetful lacks client \['Bern'"):
        FedCGSClassifier(aligner=Forgetful()).fit(X, Y, client_ids=IDS)
    with pytest.raises(ValueError, match="must be an instance, such as Feder"):
        FedCGSClassifier(aligner=FederatedOTAligner).fit(X, Y, client_ids=IDS)
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    classifier.fit(X, Y, client_ids=IDS)
    with pytest.raises(ValueError, match="client must be the name of one client"):
        classifier.client_model(["Bern"])
    with pytest.raises(ValueError, match="client must be the name of one client"):
        classifier.aligner_.remove_client(["Bern"])
