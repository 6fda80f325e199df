"""What one-shot classifiers refuse, in rows and in messages."""

import numpy as np
import pytest
from one_shot_variants import (
    ALIGNED,
    ALL,
    EACH,
    IDS,
    TEST,
    TRAIN,
    X,
    Y,
    fitted_once,
    messages_of,
    new,
    over,
)
from scipy.sparse import csr_array
from sklearn.linear_model import LinearRegression

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier
from skslot.exchange import ClassMixtures


@over(EACH)
def test_y_is_required(variant):
    with pytest.raises(ValueError, match="requires y to be passed"):
        new(variant).fit(X, None, client_ids=IDS)
    with pytest.raises(ValueError, match="requires y to be passed"):
        new(variant).client_update(X, None)


@over(EACH)
@pytest.mark.parametrize(
    "missing", [np.r_[np.nan, np.ones(239)], np.r_[[np.nan], Y[1:].astype(object)]]
)
def test_missing_labels_raise(variant, missing):
    with pytest.raises(ValueError, match="contains NaN"):
        new(variant).fit(X, missing, client_ids=IDS)
    with pytest.raises(ValueError, match="contains NaN"):
        new(variant).client_update(X, missing)


@over(EACH)
def test_continuous_labels_raise(variant):
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        new(variant).fit(X, X[:, 0], client_ids=IDS)


@over(EACH)
def test_labels_of_the_wrong_length_raise(variant):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        new(variant).fit(X, Y[:-1], client_ids=IDS)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        new(variant).client_update(X, Y[:-1])


@over(EACH)
def test_ids_of_the_wrong_length_raise(variant):
    with pytest.raises(ValueError, match="client_ids has 239 entries.*240 rows"):
        new(variant).fit(X, Y, client_ids=IDS[:-1])
    with pytest.raises(ValueError, match="client_ids has 239 entries.*80 rows"):
        fitted_once(variant).predict(X[TEST], client_ids=IDS[:-1])


@over(EACH)
def test_sparse_features_raise(variant):
    with pytest.raises(TypeError, match="[Ss]parse"):
        new(variant).fit(csr_array(X), Y, client_ids=IDS)
    with pytest.raises(TypeError, match="[Ss]parse"):
        fitted_once(variant).predict(csr_array(X), client_ids=IDS)


@over(EACH)
def test_nan_in_features_names_the_client(variant):
    spoilt = X.copy()
    spoilt[np.flatnonzero(IDS == "Oslo")[0], 0] = np.nan
    with pytest.raises(ValueError, match="client .*'Oslo'.*contains NaN"):
        new(variant).fit(spoilt, Y, client_ids=IDS)


@over(EACH)
def test_another_number_of_features_raises_at_prediction(variant):
    with pytest.raises(ValueError, match="X has 4 features, but .* is expecting 5"):
        fitted_once(variant).predict(X[TEST, :4], client_ids=IDS[TEST])


@over(EACH)
def test_another_number_of_features_raises_after_steps_by_hand(variant):
    classifier = new(variant)
    classifier.server_aggregate(messages_of(classifier))
    with pytest.raises(ValueError, match="X has 4 features, but .* is expecting 5"):
        classifier.predict(X[TEST, :4], client_ids=IDS[TEST])


@over(EACH)
def test_no_messages_raise(variant):
    with pytest.raises(ValueError, match="messages is empty"):
        new(variant).server_aggregate([])


@over(EACH)
def test_two_messages_of_one_client_raise(variant):
    messages = messages_of(new(variant))
    with pytest.raises(ValueError, match="'Bern'.*give each client a name of its own"):
        new(variant).server_aggregate([*messages, messages[0]])


@over(ALIGNED)
def test_messages_without_names_raise_with_aligner(variant):
    classifier = new(variant)
    messages = [classifier.client_update(X[IDS == c], Y[IDS == c]) for c in set(IDS)]
    with pytest.raises(ValueError, match="give each client a name"):
        classifier.server_aggregate(messages)


@over(EACH)
def test_messages_with_different_numbers_of_features_raise(variant):
    classifier = new(variant)
    messages = [
        classifier.client_update(X, Y, client="wide"),
        classifier.client_update(X[:, :4], Y, client="narrow"),
    ]
    match = "client 'narrow' has .*4 features.* client 'wide' .*5"
    with pytest.raises(ValueError, match=match):
        classifier.server_aggregate(messages)


@over(EACH)
def test_messages_with_labels_of_different_kinds_raise(variant):
    classifier = new(variant)
    messages = [
        classifier.client_update(X[:9], np.arange(9) % 3, client="numbers"),
        classifier.client_update(X[:9], list("012012012"), client="text"),
    ]
    with pytest.raises(
        ValueError, match="'text' sent labels as text, client 'numbers' as numbers"
    ):
        classifier.server_aggregate(messages)


@over(EACH)
def test_messages_of_another_method_raise(variant):
    classifier = new(variant)
    has_mixtures = classifier.message_type is ClassMixtures
    other = FedCGSClassifier() if has_mixtures else FedPFTClassifier()
    message = other.client_update(X, Y)
    with pytest.raises(TypeError, match="messages must be C.*load_message"):
        classifier.server_aggregate([message])
    with pytest.raises(TypeError, match="got a bytes"):
        classifier.server_aggregate([classifier.client_update(X, Y).to_bytes()])


@over(EACH)
def test_labels_outside_of_classes_raise(variant):
    match = r"client 'Oslo' has labels \['c', 'd'\] that are not among"
    with pytest.raises(ValueError, match=match):
        new(variant).client_update(X, Y, classes=["a", "b"], client="Oslo")


@over(EACH)
def test_repeated_classes_raise(variant):
    with pytest.raises(ValueError, match="name each label once"):
        new(variant).client_update(X, Y, classes=Y)


@over(ALL)
def test_float32_features_give_nearly_the_same(variant):
    classifier = new(variant)
    classifier.fit(X[TRAIN].astype(np.float32), Y[TRAIN], client_ids=IDS[TRAIN])
    actual = classifier.predict_proba(X[TEST].astype(np.float32), client_ids=IDS[TEST])
    expected = fitted_once(variant).predict_proba(X[TEST], client_ids=IDS[TEST])
    np.testing.assert_allclose(actual, expected, atol=0.02)
    assert np.mean(actual.argmax(axis=1) == expected.argmax(axis=1)) > 0.97


def test_unnamed_messages_are_not_mixed_with_named_ones():
    step = FedCGSClassifier().client_update
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.tile([0, 1], 10)
    with pytest.raises(ValueError, match="give each client a name"):
        FedCGSClassifier().server_aggregate([step(X, y, client=1), step(X, y)])


def test_labels_and_names_of_clients_are_not_mixed_up():
    X, y = np.random.default_rng(0).normal(size=(4, 2)), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="name of one client, got a ndarray"):
        FederatedOTAligner().client_update(X, client=y)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        FederatedOTAligner().client_update(X, "Oslo")


@pytest.mark.filterwarnings("ignore:No client_ids were passed")
def test_regressor_as_head_is_refused():
    with pytest.raises(ValueError, match="must be a classifier, got LinearRegression"):
        FedPFTClassifier(estimator=LinearRegression()).fit([[0.0], [1.0]], [0, 1])
