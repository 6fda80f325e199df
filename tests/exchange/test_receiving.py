"""How often messages are read and what is computed from them, and what disagrees."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier
from skslot.cli import main
from skslot.datasets import load_digit_scanners
from skslot.exchange import (
    ClientStatistics,
    Message,
    MessageError,
    load_messages,
    receive,
)
from skslot.privacy import PrivacyBudget

data = load_digit_scanners()
X, Y, IDS = data.data, data.target, data.client_ids
CLIENTS = np.unique(IDS).tolist()
ALIGNER = FederatedOTAligner(tau=0.4)


def messages_of(classifier):
    return [
        classifier.client_update(X[IDS == c], Y[IDS == c], client=c) for c in CLIENTS
    ]


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{client}.slot" for client in CLIENTS]
    for path, message in zip(
        paths, messages_of(FedCGSClassifier(aligner=ALIGNER)), strict=True
    ):
        message.save(path)
    return paths


# ------------------------------------------------------------------- how often


@pytest.mark.parametrize("make", [FedCGSClassifier, FedPFTClassifier])
def test_fit_computes_each_map_once(make, count_calls):
    options = {} if make is FedCGSClassifier else {"random_state": 0}
    with count_calls("transport_matrix") as called:
        make(aligner=ALIGNER, **options).fit(X, Y, client_ids=IDS)
    assert len(called) == len(CLIENTS)


def test_server_floors_the_shrinkage_of_each_message_once(count_calls):
    classifier = FedCGSClassifier(aligner=ALIGNER)
    messages = messages_of(classifier)
    with count_calls("floor_shrinkage") as called:
        classifier.server_aggregate(messages)
    assert len(called) == len(messages)
    assert classifier.aligner_.n_iter_ > 2


def test_fit_neither_serialises_nor_hashes(count_calls):
    with count_calls("encode", "checksum") as called:
        FedCGSClassifier(aligner=ALIGNER).fit(X, Y, client_ids=IDS)
    assert called == []


@pytest.mark.parametrize(
    "outputs",
    ["-o r.slot", "--model m.slot", "--site-models models"],
)
@pytest.mark.parametrize("tau", ["0.4", "auto"])
def test_aggregate_reads_files_in_the_passes_of_the_solver_and_three(
    files, tmp_path, monkeypatch, outputs, tau, count_calls, capsys
):
    monkeypatch.chdir(tmp_path)
    n_iter = ALIGNER.server_aggregate(load_messages(files)).n_iter_
    names = [path.name for path in files]
    with count_calls("read_file") as called:
        command = f"aggregate {outputs} --method fedcgs --tau {tau}"
        assert main([*command.split(), *names]) == 0
    assert len(called) <= (n_iter + 3) * len(files)


@pytest.mark.parametrize("outputs", ["--model m.slot", "--site-models models"])
def test_aggregate_reads_files_twice_for_mixed_effects_without_maps(
    files, tmp_path, monkeypatch, outputs, count_calls, capsys
):
    monkeypatch.chdir(tmp_path)
    names = [path.name for path in files]
    with count_calls("read_file") as called:
        assert main(["aggregate", *outputs.split(), "--tau", "0", *names]) == 0
    assert len(called) == 2 * len(files)


def test_without_aligner_files_are_read_once(files, count_calls):
    with count_calls("read_file") as called:
        FedCGSClassifier().server_aggregate(load_messages(files))
    assert len(called) == len(files)


def test_streamed_classifier_makes_maps_again_when_they_are_asked_for(files):
    streamed = FedCGSClassifier(aligner=ALIGNER).server_aggregate(load_messages(files))
    held = FedCGSClassifier(aligner=ALIGNER).server_aggregate(
        list(load_messages(files))
    )
    for one, other in zip(
        streamed.aligner_.maps_.values(), held.aligner_.maps_.values(), strict=True
    ):
        assert np.array_equal(one.matrix, other.matrix)
    assert streamed.aligner_.statistics_ == held.aligner_.statistics_


# -------------------------------------------------------------- what is kept


def test_sender_has_the_facts_of_its_message(files):
    received = receive(load_messages(files), Message)
    for sender, path, client in zip(received.senders, files, CLIENTS, strict=True):
        counts = {c: np.sum(Y[IDS == client] == c) for c in np.unique(Y[IDS == client])}
        assert (sender.client, sender.path) == (client, path)
        assert sender.class_counts == counts
        assert sender.n_samples == np.sum(IDS == client)
        assert sender.n_features == 64
        assert sender.has_labels


def test_message_of_a_client_is_found_again(files):
    for source in (load_messages(files), list(load_messages(files))):
        received = receive(source, Message)
        assert received.of_client(CLIENTS[2]).client == CLIENTS[2]


@pytest.mark.parametrize("order", [(None, "exclude"), ("exclude", None)])
@pytest.mark.filterwarnings("ignore:client 'phone' was left out")
def test_each_server_step_judges_what_another_has_read(order):
    rows = np.where((IDS == "phone")[:, None], 1e4 * X, X)
    messages = [
        FedCGSClassifier().client_update(rows[IDS == c], Y[IDS == c], client=c)
        for c in CLIENTS
    ]
    received = receive(messages, Message)
    for screen in order:
        classifier = FedCGSClassifier(screen=screen)
        found = clone(classifier).server_aggregate(received)
        expected = clone(classifier).server_aggregate(messages)
        assert np.array_equal(found.coef_, expected.coef_)
        assert found.clients_report_.clients == expected.clients_report_.clients
        assert list(found.clients_report_.outliers) == ["phone"]


def test_what_was_not_read_yet_is_read_by_the_step_that_gets_it(files, count_calls):
    received = receive(load_messages(files))
    with count_calls("read_file") as called:
        FedCGSClassifier().server_aggregate(received)
        assert [sender.client for sender in received.senders] == CLIENTS
        assert received.clients_report is not None
    assert len(called) == len(files)


def test_kind_and_client_are_seen_without_reading_the_numbers(files, tmp_path):
    header = load_messages(files).headers()[files[0]]
    assert header["kind"] == "class statistics"
    assert header["client"] == CLIENTS[0]
    for name, content in {
        "empty": b"",
        "text": b"no message at all",
        "huge": b"\xff" * 8,
        "nested": (200_000).to_bytes(8, "little") + b"[" * 200_000,
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert load_messages([path]).headers() == {path: {}}
    missing = tmp_path / "missing"
    assert load_messages([missing]).headers() == {missing: {}}


# -------------------------------------------------------------- what disagrees


@pytest.mark.parametrize(
    ("change", "trait", "value", "other"),
    [
        ({"encoder": "b"}, "encoder", "b", "a"),
        ({"encoder": None}, "encoder", None, "a"),
        (
            {"mean": np.zeros(2), "covariance": np.ones((2, 2))},
            "number of features",
            2,
            1,
        ),
    ],
)
def test_error_says_what_disagrees(change, trait, value, other):
    first = ClientStatistics(20, np.zeros(1), np.ones((1, 1)), 0.1, "A", "a")
    second = replace(first, client="B", **change)
    with pytest.raises(MessageError) as caught:
        list(receive([first, second], ClientStatistics))
    found = caught.value.disagreement
    assert (found.trait, found.value, found.other_value) == (trait, value, other)
    assert found.other.client == "A"
    assert "client 'B'" in str(caught.value)


def test_error_names_the_files_that_disagree(files):
    other = FedCGSClassifier(aligner=ALIGNER).client_update(X, Y.astype(str))
    other = replace(other, client="late")
    path = files[0].with_name("late.slot")
    other.save(path)
    with pytest.raises(MessageError, match="sent labels as text") as caught:
        FedCGSClassifier().server_aggregate(load_messages([*files, path]))
    assert caught.value.path == path
    assert caught.value.disagreement.other.path == files[0]


def test_labels_are_compared_with_the_first_client_that_has_some():
    classifier = FedCGSClassifier(aligner=ALIGNER)
    messages = [
        ALIGNER.client_update(X[IDS == "fax"], client="fax"),
        classifier.client_update(X[:99], Y[:99], client="numbers"),
        classifier.client_update(X[:99], Y[:99].astype(str), client="text"),
    ]
    with pytest.raises(MessageError, match="'text' sent labels as text, .*'numbers'"):
        classifier.server_aggregate(messages)


def test_a_second_kind_of_message_cannot_take_a_name():
    with pytest.raises(TypeError, match="'client statistics' is taken by"):
        type("Other", (Message,), {"kind": "client statistics"})


def test_traits_of_the_server_are_its_features_only():
    reference = ALIGNER.server_aggregate(
        [ALIGNER.client_update(X[IDS == c], client=c) for c in CLIENTS]
    ).reference_
    assert reference.facts().words == "the reference"
    assert reference.facts().traits == {"number of features": 64, "encoder": None}


def test_messages_with_and_without_privacy_go_together_but_are_noticed():
    guarantee = PrivacyBudget(1.0, 1e-5, 1.0).guarantee
    first, *others = messages_of(FedCGSClassifier())
    mixed = [replace(first, privacy=guarantee), *others]
    match = r"clients \['flatbed', .*\] sent messages without differential privacy"
    with pytest.warns(UserWarning, match=match):
        FedCGSClassifier().server_aggregate(mixed)
    FedCGSClassifier().server_aggregate([replace(m, privacy=guarantee) for m in mixed])
