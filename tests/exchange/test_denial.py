"""What one sender could stop a server with: refused at once, in words."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from skslot import FedAvgClassifier, FedCGSClassifier, FedPFTClassifier
from skslot.exchange import (
    ClassMixtures,
    HeadWeights,
    MessageError,
    load_message,
    load_messages,
)
from skslot.exchange import _wire as wire

HUGE = 10**400
FACTS = [
    ("client statistics", "n_samples"),
    ("client statistics", "shrinkage"),
    ("alignment reference", "n_iter"),
    ("alignment reference", "residual"),
    ("alignment reference", "tau"),
    ("mixed-effects model", "tau"),
    ("feature summary", "variance"),
    ("feature summary", "n_samples"),
    ("feature scale", "scale"),
    ("head weights", "n_rounds"),
    ("head weights", "n_features"),
    ("linear model", "client"),
    ("linear model", "n_features"),
]


@pytest.mark.parametrize(("kind", "fact"), FACTS)
@pytest.mark.parametrize("number", [HUGE, -HUGE], ids=["plus", "minus"])
def test_numbers_of_any_length_are_refused(messages, tampered, kind, fact, number):
    with pytest.raises(MessageError):
        load_message(tampered(messages[kind], **{fact: number}))


@pytest.mark.parametrize("field", ["client", "encoder", "classes"])
def test_halves_of_characters_are_refused(messages, tampered, field):
    message = messages["class statistics"]
    value = ["a", "b\ud800"] if field == "classes" else "b\ud800"
    with pytest.raises(MessageError, match="has half a character in it"):
        load_message(tampered(message, **{field: value}))
    with pytest.raises(MessageError, match="has half a character in it"):
        replace(message, **{field: value}).to_bytes()


def test_halves_of_characters_can_be_used_in_one_process():
    X = np.random.default_rng(0).normal(size=(40, 2))
    y, ids = (
        np.array(["a", "\ud800"])[np.arange(40) % 2],
        np.repeat(["A", "\udcff"], 20),
    )
    classifier = FedCGSClassifier().fit(X, y, client_ids=ids)
    assert set(classifier.clients_report_.clients) == {"A", "\udcff"}


# ------------------------------------------------------------------------- files


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_pipes_are_refused_and_never_waited_for(messages, tmp_path):
    os.mkfifo(tmp_path / "A.slot")
    messages["client statistics"].save(tmp_path / "B.slot")
    with pytest.raises(MessageError, match=r"A\.slot: it is no regular file"):
        load_message(tmp_path / "A.slot")
    files = load_messages([tmp_path / "A.slot", tmp_path / "B.slot"], on_error="skip")
    assert files.headers()[tmp_path / "A.slot"] == {}
    assert len(list(files)) == 1


def test_links_to_files_are_read(messages, tmp_path):
    messages["client statistics"].save(tmp_path / "A.slot")
    (tmp_path / "link.slot").symlink_to(tmp_path / "A.slot")
    assert load_message(tmp_path / "link.slot").client == "A"


def sparse_file(path, announced, size):
    """A file that takes no room, whose header announces so many bytes of numbers."""
    entry = {"dtype": "U8", "shape": [announced], "data_offsets": [0, announced]}
    text = json.dumps({"mean": entry}).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)


@pytest.mark.parametrize(
    ("announced", "size", "match"),
    [
        (10, 2**33, "and its header announces"),
        (2**33, 10, "and its header announces"),
        (2**33, 2**33, r"it has 8\.0 GiB, and at most 2 are read"),
    ],
)
def test_files_are_not_read_before_their_size_is_known(
    tmp_path, monkeypatch, announced, size, match
):
    path = tmp_path / "A.slot"
    sparse_file(path, announced, size)
    monkeypatch.setattr(wire, "decode", None)
    with pytest.raises(MessageError, match=rf"A\.slot: .*{match}"):
        load_message(path)


@pytest.mark.parametrize("text", ["[]", "5", '{"a": 5}', '{"a": {}}', "[" * 9999, "{"])
def test_files_whose_header_is_no_layout_are_refused(tmp_path, text):
    path = tmp_path / "A.slot"
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + b"0" * 99)
    with pytest.raises(
        MessageError, match=r"A\.slot: these bytes are not a skslot mes"
    ):
        load_message(path)


# -------------------------------------------------------------------- claims of rows


def mixtures(client, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((40, 3)), np.arange(40) % 2
    return FedPFTClassifier(random_state=0).client_update(X, y, client=client)


def test_client_that_claims_more_rows_than_can_be_drawn_is_left_out(tmp_path, tampered):
    claim = np.array([20, ClassMixtures.MOST_NUMBERS // 3])
    (tmp_path / "A.slot").write_bytes(mixtures("A", 0).to_bytes("float64"))
    (tmp_path / "B.slot").write_bytes(tampered(mixtures("B", 1), counts=claim))
    paths = sorted(tmp_path.iterdir())
    with pytest.raises(
        MessageError, match=r"B\.slot: client 'B': it claims 357913961 r"
    ):
        list(load_messages(paths))
    files = load_messages(paths, on_error="skip")
    classifier = FedPFTClassifier(random_state=0).server_aggregate(files)
    assert classifier.clients_report_.clients == ["A"]
    assert list(files.refused) == paths[1:]


def test_claim_of_rows_is_refused_without_a_file_too():
    claim = np.array([20, ClassMixtures.MOST_NUMBERS // 3])
    wrong = replace(mixtures("B", 1), counts=claim)
    with pytest.raises(MessageError, match="client 'B': it claims 357913961 rows"):
        FedPFTClassifier().server_aggregate([mixtures("A", 0), wrong])


def heads(*claims, **weights):
    return [
        HeadWeights(
            ["a", "b"],
            np.array([claim, 1]),
            {name: values[index] for name, values in weights.items()},
            np.zeros(2),
            3,
            1,
            "ABC"[index],
        )
        for index, claim in enumerate(claims)
    ]


@pytest.mark.parametrize("averaging", ["samples", "uniform"])
def test_counts_of_heads_are_added_up_without_overflow(averaging):
    one = np.ones((2, 3))
    messages = heads(2**31 - 2, 2**31 - 2, 5, weight=[one, 3 * one, one])
    average = FedAvgClassifier(averaging=averaging).server_average(messages)
    assert average.n_samples == 2 * (2**31 - 1) + 6
    expected = 2.0 if averaging == "samples" else 5 / 3
    np.testing.assert_allclose(average.weights["weight"], expected, rtol=1e-6)
    messages = heads(2**52, 2**52, 1, weight=[one, one, one])
    with pytest.raises(MessageError, match="client 'A': it claims 4503599627370497 ro"):
        FedAvgClassifier(averaging=averaging).server_average(messages)


@pytest.mark.parametrize("dtypes", [("i1", "i8"), ("i8", "i1")])
def test_counters_of_any_width_are_averaged(dtypes):
    steps = [np.array(100, dtypes[0]), np.array(120, dtypes[1])]
    if dtypes == ("i1", "i8"):
        steps[1] = np.array(1000, "i8")
    average = FedAvgClassifier().server_average(heads(5, 5, steps=steps))
    assert average.weights["steps"] == (550 if dtypes == ("i1", "i8") else 110)


@pytest.mark.parametrize("narrow_first", [False, True])
def test_heads_of_any_precision_are_averaged(narrow_first):
    weights = [np.full((2, 3), 1 + 2.0**-20), np.full((2, 3), 1.0, np.float16)]
    weights = weights[::-1] if narrow_first else weights
    classifier = FedAvgClassifier()
    average = classifier.server_average(heads(5, 5, weight=weights))
    np.testing.assert_array_equal(average.weights["weight"], 1 + 2.0**-21)
