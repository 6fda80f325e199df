"""Features of different encoders are not mixed by accident."""

from dataclasses import replace

import numpy as np
import pytest

from skslot import FedAvgClassifier, FedCGSClassifier, FederatedOTAligner
from skslot import FedPFTClassifier as FedPFT
from skslot.exchange import (
    FeatureSummary,
    HeadWeights,
    MessageError,
    feature_fingerprint,
    fingerprint_names,
    receive,
)
from skslot.exchange._wire import decode

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), np.arange(40) % 2
SITES = {"A": (X, Y), "B": (X * [1, 2, 3] + 5, Y)}


def sent(estimator, *encoders):
    """One message per site, each with an encoder."""
    messages = []
    for (client, (rows, labels)), encoder in zip(SITES.items(), encoders, strict=True):
        if isinstance(estimator, FederatedOTAligner):
            message = estimator.client_update(rows, client=client)
        else:
            message = estimator.client_update(rows, labels, client=client)
        messages.append(message.with_encoder(encoder))
    return messages


ESTIMATORS = {
    "aligner": FederatedOTAligner(),
    "FedCGS": FedCGSClassifier(),
    "FedCGS, aligned": FedCGSClassifier(aligner=FederatedOTAligner()),
    "FedPFT": FedPFT(random_state=0),
    "FedPFT, aligned": FedPFT(random_state=0, aligner=FederatedOTAligner()),
}
OVER_ESTIMATORS = pytest.mark.parametrize("name", ESTIMATORS)


def test_encoder_is_sent_with_every_kind(message):
    assert decode(message.to_bytes())[1]["encoder"] is None
    marked = message.with_encoder("resnet18@1")
    assert marked != message
    assert replace(marked, encoder=None) == message
    received = type(message).from_bytes(marked.to_bytes("float64"))
    assert received == marked
    assert received.encoder == decode(marked.to_bytes())[1]["encoder"] == "resnet18@1"


def test_header_says_the_number_of_features(message):
    assert decode(message.to_bytes())[1]["n_features"] == message.n_features == 3


@OVER_ESTIMATORS
def test_different_encoders_are_refused_naming_both(name):
    match = (
        "client 'B' has features of the encoder 'clip', client 'A' of 'resnet'. All "
        "clients must use the same encoder"
    )
    with pytest.raises(MessageError, match=match):
        ESTIMATORS[name].server_aggregate(sent(ESTIMATORS[name], "resnet", "clip"))


@OVER_ESTIMATORS
@pytest.mark.parametrize("encoders", [("resnet", None), (None, "resnet")])
def test_known_and_unknown_encoders_are_refused(name, encoders):
    with pytest.raises(
        MessageError, match=r"'resnet'.*with_encoder|None.*with_encoder"
    ):
        ESTIMATORS[name].server_aggregate(sent(ESTIMATORS[name], *encoders))


@OVER_ESTIMATORS
def test_the_same_encoder_changes_nothing(name):
    estimator = ESTIMATORS[name]
    plain = estimator.server_aggregate(sent(estimator, None, None))
    if name == "aligner":
        expected = plain.reference_
    else:
        expected = plain.predict(X, client_ids="A")
    marked = estimator.server_aggregate(sent(estimator, "resnet", "resnet"))
    if name == "aligner":
        assert marked.reference_ == expected.with_encoder("resnet")
    else:
        assert np.array_equal(marked.predict(X, client_ids="A"), expected)


def test_other_dimension_is_refused_naming_both():
    aligner = FederatedOTAligner()
    messages = [
        aligner.client_update(X, client="A"),
        aligner.client_update(X[:, :2], client="B"),
    ]
    match = "client 'B' has 2 features, client 'A' 3. All clients must use the same"
    with pytest.raises(MessageError, match=match):
        aligner.server_aggregate(messages)


def test_reference_of_another_encoder_is_refused():
    aligner = FederatedOTAligner()
    messages = sent(aligner, "resnet", "resnet")
    reference = aligner.server_aggregate(messages).reference_
    aligner.client_map(messages[0], reference)
    with pytest.raises(MessageError, match="'A' .* 'clip', the reference of 'resnet'"):
        aligner.client_map(messages[0].with_encoder("clip"), reference)


def test_model_for_a_client_knows_the_encoder():
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    classifier.server_aggregate(sent(classifier, "resnet", "resnet"))
    assert classifier.client_model("A").encoder == "resnet"


@pytest.mark.parametrize("make", [FedCGSClassifier, FedPFT])
def test_client_can_join_a_classifier_whose_encoder_is_known(make):
    aligner = FederatedOTAligner(unknown_client="adapt")
    classifier = make(aligner=aligner)
    classifier.server_aggregate(sent(classifier, "resnet", "resnet"))
    adapted = classifier.predict(X, client_ids="C")
    classifier.add_client(X, "C")
    assert np.array_equal(classifier.predict(X, client_ids="C"), adapted)


def test_results_of_training_know_the_encoder(messages):
    summary, head = messages["feature summary"], messages["head weights"]
    summaries = [summary, replace(summary, client="B")]
    classifier = FedAvgClassifier()
    assert classifier.server_scale(summaries).encoder is None
    marked = [message.with_encoder("resnet") for message in summaries]
    assert classifier.server_scale(marked).encoder == "resnet"
    heads = [head.with_encoder("resnet"), replace(head, client="B", encoder="resnet")]
    assert classifier.server_average(heads).encoder == "resnet"
    with pytest.raises(MessageError, match="encoder"):
        list(receive([heads[0], heads[1].with_encoder("clip")], HeadWeights))
    with pytest.raises(MessageError, match="encoder"):
        list(receive([marked[0], summaries[1]], FeatureSummary))


def test_fedavg_refuses_different_encoders():
    classifier = FedAvgClassifier()
    summaries = [
        classifier.client_summary(rows, client=client).with_encoder(encoder)
        for (client, (rows, _)), encoder in zip(SITES.items(), "12", strict=True)
    ]
    with pytest.raises(
        MessageError, match="client 'B' has features of the encoder '2'"
    ):
        classifier.server_scale(summaries)


# ---------------------------------------------------------------------- fingerprints


def test_fingerprint_depends_on_names_and_their_order():
    fingerprint = feature_fingerprint(["age", "weight"])
    assert fingerprint.startswith("columns:")
    assert feature_fingerprint(np.array(["age", "weight"])) == fingerprint
    others = [["weight", "age"], ["age"], ["age", "weight", "x"], ["age, weight"], []]
    assert len({fingerprint, *map(feature_fingerprint, others)}) == 6


@pytest.mark.parametrize("names", [["age", "weight"], ['a "b"', "Größe", "x,y", ""]])
def test_names_can_be_read_from_a_fingerprint(names):
    assert fingerprint_names(feature_fingerprint(names)) == names
    by_plan = feature_fingerprint(names, "age as it is")
    assert by_plan.startswith("plan:")
    assert fingerprint_names(by_plan) == names
    assert by_plan != feature_fingerprint(names, "age in months")


@pytest.mark.parametrize(
    "encoder",
    [
        None,
        "resnet",
        "columns:f4f5b7f73149a985",
        "columns:f4f5b7f73149a985 [1, 2]",
        "columns:f4f5b7f73149a985 [" + "[" * 10_000 + "]",
        feature_fingerprint(f"column {k}" for k in range(20_000)),
    ],
)
def test_other_fingerprints_have_no_names(encoder):
    assert fingerprint_names(encoder) is None


def test_columns_that_differ_are_named():
    aligner, names = FederatedOTAligner(), {"A": ["u", "v", "w"], "B": ["u", "x", "w"]}
    messages = [
        aligner.client_update(X, client=site).with_encoder(feature_fingerprint(columns))
        for site, columns in names.items()
    ]
    words = r"'B' has columns \['x'\] that client 'A' has not and lacks columns \['v'\]"
    with pytest.raises(MessageError, match=words):
        aligner.server_aggregate(messages)


def test_reordered_columns_are_caught():
    aligner = FederatedOTAligner()
    messages = [
        aligner.client_update(X, client=site).with_encoder(feature_fingerprint(columns))
        for site, columns in {"A": ["u", "v", "w"], "B": ["v", "u", "w"]}.items()
    ]
    with pytest.raises(
        MessageError, match="'B' has the columns of client 'A' in another order"
    ):
        aligner.server_aggregate(messages)


@pytest.mark.parametrize("encoder", [5, b"resnet", ["resnet"]])
def test_encoder_is_text(messages, encoder):
    message = messages["client statistics"].with_encoder(encoder)
    with pytest.raises(MessageError, match="encoder must be text"):
        message.to_bytes()
