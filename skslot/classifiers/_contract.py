"""Checks of the contract that scikit-learn's checks do not know."""

import numpy as np
from sklearn.base import clone


def check_one_shot_classifier(classifier):
    """Check that a classifier keeps the contract of this package.

    Run it beside :func:`sklearn.utils.estimator_checks.check_estimator`. It is for
    classifiers with one exchange, whose ``fit`` is ``client_update`` for each client
    and ``server_aggregate``.

    Parameters
    ----------
    classifier : estimator object
        The classifier, not fitted; with ``random_state``, if it has one.

    Raises
    ------
    AssertionError
        If it breaks the contract; the text says how.

    See Also
    --------
    sklearn.utils.estimator_checks.check_estimator : The contract of scikit-learn.

    Examples
    --------
    >>> from skslot import FedCGSClassifier
    >>> from skslot.classifiers import check_one_shot_classifier
    >>> check_one_shot_classifier(FedCGSClassifier("within"))
    """
    for check in CHECKS:
        check(clone(classifier), *_rows_of_clients())


def _rows_of_clients():
    """Rows of four clients; some miss classes, one has a single class, one a row."""
    rng = np.random.default_rng(0)
    client_ids = np.repeat(["A", "B", "C", "D"], [60, 40, 30, 1])
    y = np.resize(["x", "y", "z"], len(client_ids))
    y[client_ids == "B"] = np.resize(["x", "y"], 40)
    y[client_ids == "C"] = "z"
    X = rng.normal(size=(len(y), 4)) + 3 * np.unique(y, return_inverse=True)[1][:, None]
    return X, y, client_ids


def _messages(classifier, X, y, client_ids):
    classes = np.unique(y)
    return [
        classifier.client_update(X[rows], y[rows], classes=classes, client=client)
        for client in np.unique(client_ids).tolist()
        for rows in [client_ids == client]
    ]


def _probabilities(classifier, X, client_ids):
    return classifier.predict_proba(X, client_ids=client_ids)


def _check_fit_is_its_steps(classifier, X, y, client_ids):
    by_hand = clone(classifier)
    by_hand.server_aggregate(_messages(by_hand, X, y, client_ids))
    fitted = classifier.fit(X, y, client_ids=client_ids)
    assert np.array_equal(
        _probabilities(fitted, X, client_ids), _probabilities(by_hand, X, client_ids)
    ), "fit gives another classifier than client_update and server_aggregate."


def _check_client_step_is_pure(classifier, X, y, client_ids):
    before = vars(classifier).copy()
    first = _messages(classifier, X, y, client_ids)
    assert vars(classifier) == before, "client_update changes the classifier."
    second = _messages(classifier, X, y, client_ids)
    assert first == second, "client_update gives another message the second time."


def _check_messages_travel(classifier, X, y, client_ids):
    messages = _messages(classifier, X, y, client_ids)
    for message in messages:
        received = type(message).from_bytes(message.to_bytes("float64"))
        assert received == message, "a message changes on its way through bytes."
        assert message.describe(), "a message does not say what is in it."
    fitted = classifier.fit(X, y, client_ids=client_ids)
    for message in messages:
        size = len(message.to_bytes(classifier.wire_dtype))
        said = fitted.communication_.get(message.client)
        assert said is not None, f"communication_ lacks client {message.client!r}."
        assert said.up == size, f"communication_ says {said.up} bytes up, not {size}."


def _check_messages_are_read_one_by_one(classifier, X, y, client_ids):
    """And again if need be: files of many clients do not fit in memory."""
    messages = _messages(classifier, X, y, client_ids)
    expected = clone(classifier).server_aggregate(messages)
    streamed = clone(classifier).server_aggregate(_Restartable(messages))
    assert np.array_equal(
        _probabilities(streamed, X, client_ids), _probabilities(expected, X, client_ids)
    ), "messages that are read one by one give another classifier than a list."


def _check_classes_are_those_of_all_clients(classifier, X, y, client_ids):
    fitted = classifier.fit(X, y, client_ids=client_ids)
    assert np.array_equal(fitted.classes_, np.unique(y)), "classes_ is not the union."
    predicted = fitted.predict(X, client_ids=client_ids)
    assert set(predicted) <= set(y), "a label is predicted that nobody has."
    accuracy = np.mean(predicted == y)
    assert accuracy > 0.4, f"of three classes, {accuracy:.0%} of rows are recognised."


def _check_jobs_change_nothing(classifier, X, y, client_ids):
    one = clone(classifier).fit(X, y, client_ids=client_ids)
    two = clone(classifier).set_params(n_jobs=2).fit(X, y, client_ids=client_ids)
    assert np.array_equal(
        _probabilities(one, X, client_ids), _probabilities(two, X, client_ids)
    ), "n_jobs changes the classifier."


CHECKS = (
    _check_fit_is_its_steps,
    _check_client_step_is_pure,
    _check_messages_travel,
    _check_messages_are_read_one_by_one,
    _check_classes_are_those_of_all_clients,
    _check_jobs_change_nothing,
)


class _Restartable:
    """Messages that can be looped over several times, and nothing else."""

    def __init__(self, messages):
        self._messages = messages

    def __iter__(self):
        yield from self._messages
