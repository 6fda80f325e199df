"""Messages in files: written as a whole, read one at a time, refused one by one."""

import os
import tracemalloc
from dataclasses import replace
from weakref import finalize

import numpy as np
import pytest

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.exchange import (
    ClientStatistics,
    FeatureScale,
    MessageError,
    load_message,
    load_messages,
)
from skslot.exchange._wire import WIRE_DTYPES


@pytest.fixture
def paths(messages, tmp_path):
    """Files of four clients."""
    paths = [tmp_path / f"{name}.slot" for name in "ABCD"]
    for path in paths:
        replace(messages["client statistics"], client=path.stem).save(path)
    return paths


# --------------------------------------------------------------------- a single file


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_saved_message_is_loaded(message, tmp_path, dtype):
    path = tmp_path / "message.slot"
    message.save(path, dtype)
    expected = message.as_received(dtype)
    assert type(message).load(path) == expected
    assert load_message(path) == load_message(str(path)) == expected
    assert load_message(path.read_bytes()) == expected


def test_default_precision_of_files_is_float32(message, tmp_path):
    message.save(tmp_path / "message.slot")
    assert (tmp_path / "message.slot").read_bytes() == message.to_bytes("float32")
    assert (tmp_path / "message.slot").stat().st_size == message.nbytes()


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_message_is_read_from_anything_that_holds_bytes(message, make):
    data = message.to_bytes("float64")
    assert load_message(make(data)) == type(message).from_bytes(make(data)) == message


def test_older_file_is_replaced_and_nothing_else_left(message, tmp_path):
    path = tmp_path / "message.slot"
    path.write_text("older")
    message.save(path)
    assert os.listdir(tmp_path) == ["message.slot"]
    assert load_message(path) == message.as_received("float32")


def test_failed_write_leaves_the_older_file(messages, tmp_path, monkeypatch):
    path = tmp_path / "message.slot"
    path.write_text("older")

    def full_disk(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        messages["feature scale"].save(path)
    assert os.listdir(tmp_path) == ["message.slot"]
    assert path.read_text() == "older"


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_others_may_read_the_file_only_if_the_owner_says_so(messages, tmp_path):
    path = tmp_path / "message.slot"
    messages["feature scale"].save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    messages["feature scale"].save(path)
    assert path.stat().st_mode & 0o777 == 0o644


def test_error_names_the_file_and_the_client(messages, tampered, tmp_path):
    path = tmp_path / "A.slot"
    path.write_bytes(tampered(messages["client statistics"], n_samples=0))
    with pytest.raises(MessageError, match=r"A\.slot: client 'A': n_samples") as caught:
        load_message(path)
    assert (caught.value.path, caught.value.client) == (path, "A")


def test_file_of_another_kind_is_refused(messages, tmp_path):
    messages["client statistics"].save(tmp_path / "A.slot")
    with pytest.raises(MessageError, match=r"A\.slot: client 'A': expected .* scale'"):
        FeatureScale.load(tmp_path / "A.slot")


def test_missing_file_is_reported_as_usual(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_message(tmp_path / "missing.slot")


def test_non_psd_message_is_not_saved(messages, tmp_path):
    covariance = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    wrong = replace(messages["client statistics"], covariance=covariance)
    with pytest.raises(
        MessageError, match=r"A\.slot: client 'A': the covariance is no"
    ):
        wrong.save(tmp_path / "A.slot")


# ------------------------------------------------------------------------ many files


def test_files_are_read_in_their_order(paths):
    assert [m.client for m in load_messages(paths[::-1])] == ["D", "C", "B", "A"]


def test_files_can_be_read_again_and_again(paths):
    messages = load_messages(paths)
    assert list(messages) == list(messages)
    first = iter(messages)
    next(first)
    assert len(list(messages)) == 4


def test_wrong_file_stops_the_reading_by_default(paths):
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    with pytest.raises(MessageError, match=r"B\.slot: these bytes are not"):
        list(load_messages(paths))


def test_wrong_files_are_refused_and_the_others_go_on(paths, tmp_path):
    paths[1].write_bytes(b"nonsense")
    paths[2].unlink()
    messages = load_messages(paths, on_error="skip")
    for _ in range(2):
        assert [message.client for message in messages] == ["A", "D"]
    assert list(messages.refused) == paths[1:3]
    assert "B.slot: these bytes are not" in str(messages.refused[paths[1]])
    assert isinstance(messages.refused[paths[2]], FileNotFoundError)


def test_second_file_of_a_client_is_refused_naming_both(paths, tmp_path):
    again = tmp_path / "again.slot"
    again.write_bytes(paths[0].read_bytes())
    match = r"again\.slot: client 'A': .*A\.slot is from the same client already"
    with pytest.raises(MessageError, match=match):
        list(load_messages([*paths, again]))
    messages = load_messages([*paths, again], on_error="skip")
    assert len(list(messages)) == len(list(messages)) == 4
    assert list(messages.refused) == [again]


def test_clients_without_a_name_are_not_taken_for_one(messages, tmp_path):
    paths = [tmp_path / "1.slot", tmp_path / "2.slot"]
    for path in paths:
        replace(messages["client statistics"], client=None).save(path)
    assert len(list(load_messages(paths))) == 2


def test_a_client_may_send_several_kinds_and_rounds(messages, tmp_path):
    sent = [messages["feature summary"], messages["head weights"]]
    sent.append(replace(messages["head weights"], n_rounds=3))
    paths = [tmp_path / f"{number}.slot" for number in range(3)]
    for path, message in zip(paths, sent, strict=True):
        message.save(path, "float64")
    assert list(load_messages(paths)) == sent


def test_the_same_path_twice_is_refused(paths):
    with pytest.raises(ValueError, match="paths names .* twice"):
        load_messages([paths[0], str(paths[0])])


def test_unknown_policy_is_refused(paths):
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip'"):
        load_messages(paths, on_error="ignore")


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_file_that_changes_between_loops_is_noticed(paths, on_error):
    messages = load_messages(paths, on_error=on_error)
    changed = replace(list(messages)[1], n_samples=77)
    changed.save(paths[1])
    with pytest.raises(MessageError, match=r"B\.slot: .*changed while it was in use"):
        list(messages)


def test_progress_is_told_after_each_file(paths):
    told = []
    paths[2].write_bytes(b"nonsense")
    messages = load_messages(
        paths, on_error="skip", progress=lambda *args: told.append(args)
    )
    for _ in range(2):
        list(messages)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)] * 2


# ----------------------------------------------------------------------- aggregating


def site_messages(n_sites=4):
    rng, aligner = np.random.default_rng(0), FederatedOTAligner()
    for site in range(n_sites):
        rows = rng.normal(site, 1 + site, size=(60, 3))
        yield aligner.client_update(rows, client=f"site {site}")


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_reference_of_files_is_that_of_messages(tmp_path, dtype):
    sent = list(site_messages())
    paths = [tmp_path / f"{message.client}.slot" for message in sent]
    for path, message in zip(paths, sent, strict=True):
        message.save(path, dtype)
    aligner = FederatedOTAligner()
    expected = aligner.server_aggregate([m.as_received(dtype) for m in sent])
    assert aligner.server_aggregate(load_messages(paths)) == expected


def test_aggregation_goes_on_without_the_refused(tmp_path):
    sent = list(site_messages())
    paths = [tmp_path / f"{message.client}.slot" for message in sent]
    for path, message in zip(paths, sent, strict=True):
        message.save(path, "float64")
    paths[0].write_bytes(b"nonsense")
    messages, aligner = load_messages(paths, on_error="skip"), FederatedOTAligner()
    assert aligner.server_aggregate(messages) == aligner.server_aggregate(sent[1:])
    assert list(messages.refused) == paths[:1]


def test_files_are_never_all_in_memory(tmp_path, monkeypatch):
    alive, most = set(), []
    build = ClientStatistics._build.__func__

    def watched_build(cls, arrays, header):
        message = build(cls, arrays, header)
        alive.add(id(message))
        finalize(message, alive.discard, id(message))
        most.append(len(alive))
        return message

    monkeypatch.setattr(ClientStatistics, "_build", classmethod(watched_build))
    paths = [tmp_path / f"{site}.slot" for site in range(12)]
    for path, message in zip(paths, site_messages(12), strict=True):
        message.save(path)
    FederatedOTAligner().server_aggregate(load_messages(paths))
    assert len(most) > 24
    assert max(most) <= 4


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_reading_takes_a_few_times_the_numbers_in_memory(dtype, scale):
    rows = scale * np.random.default_rng(0).standard_normal((300, 256))
    labels = np.arange(300) % 3
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    data = classifier.client_update(rows, labels, client="A").to_bytes(dtype)
    load_message(data)  # what is imported or cached on first use
    tracemalloc.start()
    message = load_message(data)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert message.covariance.dtype == message.means.dtype == np.float64
    full = message.covariance.nbytes + message.means.nbytes
    assert kept < full + len(data) + 32 * 1024
    assert peak < 5 * full + 32 * 1024
