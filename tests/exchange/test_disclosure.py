"""What a message says about single rows, and messages in words."""

from dataclasses import replace

import numpy as np
import pytest

from skslot import (
    FedCGSClassifier,
    FedCOFClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
)
from skslot.exchange import MessageError

X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.array(["common"] * 31 + ["rare"] * 9)


def test_client_with_few_rows_is_not_saved(tmp_path):
    message = FederatedOTAligner(shrinkage=0.5).client_update(X[:9], client="A")
    match = (
        r"A\.slot: client 'A': it describes a client with 9 rows, but min_samples=10"
    )
    with pytest.raises(MessageError, match=match):
        message.save(tmp_path / "A.slot")
    assert list(tmp_path.iterdir()) == []
    message.save(tmp_path / "A.slot", min_samples=9)


@pytest.mark.parametrize("make", [FedCGSClassifier, FedCOFClassifier])
def test_class_with_few_rows_is_not_saved(tmp_path, make):
    message = make().client_update(X, Y, client="A")
    with pytest.raises(MessageError, match="describes class 'rare' with 9 rows"):
        message.save(tmp_path / "A.slot")
    message.save(tmp_path / "A.slot", min_samples=9)


def test_component_with_few_rows_is_not_saved(tmp_path):
    rows = np.r_[X[:30], X[:3] + 1000]
    message = FedPFTClassifier(2, random_state=0).client_update(rows, ["a"] * 33)
    with pytest.raises(MessageError, match=r"component \d \(class 'a'\) with 3 rows"):
        message.save(tmp_path / "A.slot")
    message.check_disclosure(min_samples=2)


def test_class_means_say_what_is_in_them():
    text = FedCOFClassifier().client_update(X, Y, client="A").describe()
    assert text.startswith("ClassMeans: class means, ")
    for part in ("[31, 9]", "2 x 3 numbers", "mean of each class", "'rare' with 9 row"):
        assert part in text
    assert "covariance" not in text


def test_absent_class_gives_nothing_away():
    classes = ["absent", "common", "rare"]
    message = FedCGSClassifier().client_update(X, Y, classes=classes)
    message.check_disclosure(min_samples=9)


def test_sites_may_ask_for_more_rows():
    message = FederatedOTAligner().client_update(X, client="A")
    message.check_disclosure(min_samples=40)
    with pytest.raises(MessageError, match="but min_samples=41") as caught:
        message.check_disclosure(min_samples=41)
    assert caught.value.small_groups == {"a client": 40}


@pytest.mark.parametrize("min_samples", [0, -1, 2.5, None, True, "10"])
def test_impossible_thresholds_are_refused(messages, min_samples):
    with pytest.raises(ValueError, match="min_samples must be a whole number"):
        messages["client statistics"].check_disclosure(min_samples)


@pytest.mark.parametrize("kind", ["feature summary", "head weights"])
def test_messages_of_training_are_guarded_too(messages, kind):
    with pytest.raises(MessageError, match="min_samples=31"):
        messages[kind].check_disclosure(31)


@pytest.mark.parametrize(
    "kind",
    ["alignment reference", "linear model", "feature scale", "mixed-effects model"],
)
def test_messages_of_the_server_have_no_rows_of_their_own(messages, kind):
    messages[kind].check_disclosure(min_samples=10**6)


def test_long_lists_of_classes_are_cut():
    message = FedCGSClassifier().client_update(X, np.arange(40))
    with pytest.raises(MessageError, match="class 4 with 1 row, 35 more, but"):
        message.check_disclosure()


def test_a_single_row_can_be_used_in_one_process():
    message = FedCGSClassifier().client_update(X[:1], Y[:1], client="A")
    assert type(message).from_bytes(message.to_bytes("float64")) == message


# ------------------------------------------------------------------------- in words


def test_description_has_every_field_and_no_number_of_an_array(message):
    text = message.describe()
    for name in message.__dataclass_fields__:
        value = getattr(message, name)
        assert name in text or (name == "privacy" and "No noise is added" in text)
        for number in value.ravel() if isinstance(value, np.ndarray) else []:
            shown = f"{number:.4g}"
            assert len(shown) < 4 or shown not in text
    assert f"{message.nbytes():,} bytes" in text
    assert "Not in it: rows" in text
    assert "Loss by rounding" in text


def test_description_names_small_classes():
    text = FedCGSClassifier().client_update(X, Y, client="A").describe()
    assert "Fewer than 10 rows, and therefore close to them: class 'rare'" in text
    assert "common" not in text.split("Not in it")[1]


def test_description_says_when_groups_are_large(messages):
    assert "at least 12" in messages["class statistics"].describe(min_samples=12)
    assert "Every group" not in messages["feature scale"].describe()


def test_description_of_long_contents_is_short(messages):
    message = replace(messages["linear model"], client="x" * 1000)
    assert max(map(len, message.describe().splitlines())) < 200


def test_unknown_precision_is_refused(messages):
    message = messages["client statistics"]
    for method in (message.to_bytes, message.as_received, message.rounding_error):
        with pytest.raises(ValueError, match="dtype must be one of"):
            method("float8")


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [("float64", 0, 0), ("float32", 1e-9, 2**-24), ("float16", 1e-6, 2**-11)],
)
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_rounding_error_is_that_of_the_wire(messages, dtype, least, most, scale):
    message = messages["client statistics"]
    message = replace(message, mean=scale * message.mean)
    error = message.rounding_error(dtype)
    assert least <= error <= most
    received = message.as_received(dtype)
    change = np.abs(received.mean - message.mean).max() / np.abs(message.mean).max()
    assert change <= error


PRIVATE = {"epsilon": 3.0, "delta": 1e-5, "clip_norm": 2.0}
PRIVATE["adjacency"] = "one row added or removed"


@pytest.mark.parametrize("make", [FedCGSClassifier, FedCOFClassifier])
def test_messages_with_noise_say_what_is_guaranteed_and_what_is_not(make, tmp_path):
    message = replace(make().client_update(X, Y, client="A"), privacy=PRIVATE)
    text = message.describe()
    assert "probability of any such message by a factor of 20.1 at most" in text
    assert "epsilon 3 and delta 1e-05, for one row added or removed" in text
    assert "Not covered: that the client takes part, which labels may occur" in text
    assert "repeated releases of the same rows, whose epsilons and deltas add" in text
    for phrase in ("No noise", "Fewer than", "Every group"):
        assert phrase not in text
    # sizes of groups are noisy, and noise protects small ones too
    message.save(tmp_path / "A.slot")
    assert type(message).load(tmp_path / "A.slot").privacy == PRIVATE


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.0},
        {"epsilon": "3"},
        {"epsilon": [3]},
        {"delta": 1.0},
        {"clip_norm": -1.0},
        {"adjacency": "one row replaced"},
        {"more": 1},
    ],
)
def test_guarantees_that_no_budget_gives_are_refused(changes):
    message = FederatedOTAligner().client_update(X, client="A")
    for privacy in ({**PRIVATE, **changes}, "epsilon 3", []):
        with pytest.raises(MessageError, match="privacy is no guarantee"):
            replace(message, privacy=privacy).to_bytes()
