"""One-shot classifiers as estimators, and as a client step and a server step."""

import pickle
import tracemalloc

import numpy as np
import pytest
from one_shot_variants import (
    ALIGNED,
    ALL,
    EACH,
    IDS,
    PLAIN,
    TEST,
    TRAIN,
    X,
    Y,
    assert_same,
    fitted,
    fitted_once,
    messages_of,
    new,
    outputs,
    over,
)
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier

# Some of these tests are about one client; the warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:No client_ids were passed")

# ----------------------------------------------------------------------- scikit-learn


@over(EACH)
def test_clone_has_the_same_parameters_and_no_fit(variant):
    classifier = fitted_once(variant)
    copy = clone(classifier)
    assert repr(copy) == repr(classifier) == repr(ALL[variant])
    assert not hasattr(copy, "classes_")


@over(ALL)
def test_pickle_predicts_the_same(variant):
    classifier = fitted_once(variant)
    assert_same(outputs(pickle.loads(pickle.dumps(classifier))), outputs(classifier))


@over(EACH)
def test_html_shows_the_class_and_that_it_is_fitted(variant):
    classifier = fitted_once(variant)
    html = classifier._repr_html_()
    assert type(classifier).__name__ in html
    assert "<span>Fitted</span>" in html
    assert "<span>Not fitted</span>" in new(variant)._repr_html_()


@over(EACH)
def test_fit_does_not_change_parameters(variant):
    classifier = new(variant)
    before = repr(classifier.get_params())
    classifier.fit(X[TRAIN], Y[TRAIN], client_ids=IDS[TRAIN])
    assert repr(classifier.get_params()) == before
    if classifier.aligner is not None:
        assert not hasattr(classifier.aligner, "_moments")


@over(ALL)
def test_beats_chance_by_far(variant):
    """Otherwise comparisons of predictions could not fail."""
    assert fitted_once(variant).score(X[TEST], Y[TEST], client_ids=IDS[TEST]) > 0.8


# ---------------------------------------------------------------------- the two steps


@over(ALL)
def test_fit_equals_the_steps_by_hand(variant):
    classifier = new(variant)
    classifier.server_aggregate(messages_of(classifier))
    expected = fitted_once(variant)
    assert_same(outputs(classifier), outputs(expected))
    for name in ("coef_", "intercept_"):
        if hasattr(expected, name):
            assert np.array_equal(getattr(classifier, name), getattr(expected, name))


@over(EACH)
def test_client_step_changes_nothing(variant):
    classifier = new(variant)
    before = dict(vars(classifier))
    messages_of(classifier)
    assert vars(classifier) == before


@over(ALL)
def test_server_step_leaves_the_messages_unchanged(variant):
    classifier = new(variant)
    messages = messages_of(classifier)
    copies = pickle.loads(pickle.dumps(messages))
    classifier.server_aggregate(messages)
    assert messages == copies


@over(EACH)
def test_server_step_takes_any_iterable(variant):
    classifier = new(variant)
    messages = messages_of(classifier)
    assert_same(
        outputs(classifier.server_aggregate(iter(messages))),
        outputs(fitted_once(variant)),
    )


class ReadAgain:
    """Messages that are read from bytes on each loop, as from files."""

    def __init__(self, messages, dtype):
        self.kind = type(messages[0])
        self.parts = [message.to_bytes(dtype) for message in messages]

    def __iter__(self):
        return map(self.kind.from_bytes, self.parts)


@over(ALL)
def test_server_step_may_read_messages_again(variant):
    """As in a deployment, where clients and server share nothing but messages."""
    messages = ReadAgain(messages_of(new(variant)), "float64")
    server = new(variant).server_aggregate(messages)
    assert_same(outputs(server), outputs(fitted_once(variant)))


@pytest.mark.parametrize("aligner", [None, FederatedOTAligner(tol=1e-2)])
def test_server_step_holds_one_message_at_a_time(aligner):
    """Memory does not grow by a matrix for each client."""
    rng = np.random.default_rng(0)
    classifier, size, peaks = FedCGSClassifier(aligner=aligner), 50, []
    for n_clients in (4, 24):
        messages = [
            classifier.client_update(
                rng.normal(size=(200, size)), np.arange(200) % 2, client=client
            )
            for client in range(n_clients)
        ]
        messages = ReadAgain(messages, "float64")
        tracemalloc.start()
        classifier.server_aggregate(messages)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 5 * size**2 * 8


@over(EACH)
def test_order_of_rows_within_clients_apart_ids_may_be_mixed(variant):
    """Rows sorted by client give the same result as rows in any order."""
    order = TRAIN[np.argsort(IDS[TRAIN], kind="stable")]
    assert_same(outputs(fitted(variant, order)), outputs(fitted_once(variant)))


@over(ALL)
def test_threads_change_nothing(variant):
    assert_same(outputs(fitted(variant, n_jobs=2)), outputs(fitted_once(variant)))


@over(PLAIN)
def test_one_client_without_ids(variant):
    classifier = new(variant).fit(X[TRAIN], Y[TRAIN])
    assert classifier.clients_report_.clients == [None]
    assert classifier.score(X[TEST], Y[TEST]) > 0.8


@over(ALIGNED)
def test_one_client_without_ids_is_not_moved_by_alignment(variant):
    """The reference is the client itself."""
    aligned = new(variant).fit(X[TRAIN], Y[TRAIN])
    plain = new(variant, aligner=None).fit(X[TRAIN], Y[TRAIN])
    actual = aligned.predict_proba(X[TEST])
    np.testing.assert_allclose(actual, plain.predict_proba(X[TEST]), atol=1e-3)


# ----------------------------------------------------------------------- random state


PFT = [variant for variant in ALL if "pft" in variant]


@over(PFT)
def test_int_random_state_is_reproducible(variant):
    assert_same(outputs(fitted(variant)), outputs(fitted_once(variant)))


@over(PFT)
def test_another_random_state_draws_other_rows(variant):
    first, second = (
        outputs(fitted_once(variant)),
        outputs(fitted(variant, random_state=1)),
    )
    assert not np.array_equal(first[1], second[1])


@over(PFT)
def test_random_state_instance_is_reproducible_and_moves_on(variant):
    classifier = new(variant, random_state=np.random.RandomState(0))
    first = outputs(classifier.fit(X[TRAIN], Y[TRAIN], client_ids=IDS[TRAIN]))
    second = outputs(classifier.fit(X[TRAIN], Y[TRAIN], client_ids=IDS[TRAIN]))
    again = outputs(fitted(variant, random_state=np.random.RandomState(0)))
    assert_same(first, again)
    assert not np.array_equal(first[1], second[1])


@over(PFT)
def test_random_state_instance_is_used_once_per_fit(variant):
    """Not by each client in its turn, which threads would make irreproducible."""
    one, three = np.random.RandomState(0), np.random.RandomState(0)
    new(variant, random_state=one).fit(X, Y)
    new(variant, random_state=three).fit(X, Y, client_ids=IDS)
    assert one.randint(2**31 - 1) == three.randint(2**31 - 1)


@over(PFT)
def test_without_random_state_fits_differ(variant):
    first, second = (outputs(fitted(variant, random_state=None)) for _ in range(2))
    assert not np.array_equal(first[1], second[1])


def test_aligner_set_after_fit_waits_for_the_next_fit():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.tile([0, 1], 10)
    fitted = FedCGSClassifier().fit(X, y)
    expected = fitted.predict_proba(X)
    fitted.set_params(aligner=FederatedOTAligner())
    assert np.array_equal(fitted.predict_proba(X), expected)
    fitted.fit(X, y, client_ids=np.repeat(["A", "B"], 10))
    fitted.set_params(aligner=None)
    with pytest.raises(ValueError, match="client_ids is missing"):
        fitted.predict(X)


def test_linear_model_is_what_predicts():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.tile(["x", "y", "z"], 20)
    for classifier in (FedCGSClassifier(), FedPFTClassifier(random_state=0)):
        classifier.fit(X, y, client_ids=np.repeat(["A", "B"], 30))
        model = classifier.linear_model()
        assert np.array_equal(model.predict(X), classifier.predict(X))
    trees = FedPFTClassifier(estimator=DecisionTreeClassifier(), random_state=0)
    trees.fit(X, y, client_ids=np.repeat(["A", "B"], 30))
    with pytest.raises(ValueError, match="DecisionTreeClassifier has no coef_"):
        trees.linear_model()
