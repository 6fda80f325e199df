"""Checks of the contract of this package, which scikit-learn's checks do not know."""

import inspect
from functools import partial

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

# Relative to the largest entry of a result.
ROUNDING = 1e-9


def check_estimator(estimator):
    """Check that an estimator keeps the contract of this package.

    Run it beside :func:`sklearn.utils.estimator_checks.check_estimator`. It is for
    classifiers with one exchange, whose ``fit`` is ``client_update`` for each client
    and ``server_aggregate``, for aligners and for preprocessors.

    Parameters
    ----------
    estimator : estimator object
        The estimator, not fitted; with ``random_state``, if it has one, and without
        ``privacy``, as noise makes every message differ.

    Raises
    ------
    AssertionError
        If it breaks the contract; the text says how.

    See Also
    --------
    parametrize_with_checks : Makes a test of each check.
    sklearn.utils.estimator_checks.check_estimator : The contract of scikit-learn.

    Examples
    --------
    >>> from skslot import FedCGSClassifier
    >>> from skslot.utils import check_estimator
    >>> check_estimator(FedCGSClassifier("within"))
    """
    for _, check in _pairs([estimator]):
        check(estimator)


def parametrize_with_checks(estimators):
    """Make a test of each check of each estimator, for pytest.

    Parameters
    ----------
    estimators : list of estimator objects
        Classifiers, aligners and preprocessors, not fitted.

    Returns
    -------
    decorator : pytest.mark.parametrize
        For a test with the arguments ``estimator`` and ``check``.

    See Also
    --------
    check_estimator : Runs all checks of one estimator.
    sklearn.utils.estimator_checks.parametrize_with_checks : Those of scikit-learn.

    Examples
    --------
    >>> from skslot import FedCGSClassifier
    >>> from skslot.utils import parametrize_with_checks
    >>> @parametrize_with_checks([FedCGSClassifier()])
    ... def test_contract(estimator, check):
    ...     check(estimator)
    """
    import pytest

    pairs = list(_pairs(estimators))
    names = [f"{estimator}-{check.args[0].__name__}" for estimator, check in pairs]
    return pytest.mark.parametrize(("estimator", "check"), pairs, ids=names)


def _pairs(estimators):
    for estimator in estimators:
        if not hasattr(estimator, "server_aggregate"):
            raise TypeError(
                f"{type(estimator).__name__} is neither a one-shot classifier nor an "
                "aligner nor a preprocessor."
            )
        kinds = ["classifier", "guard"]
        if hasattr(estimator, "transform"):
            is_aligner = hasattr(estimator, "client_map")
            kinds = ["aligner", "guard"] if is_aligner else ["preprocessor"]
            kinds.append("transformer")
        prefixes = tuple(f"check_{kind}_" for kind in ("estimator", *kinds))
        for name, check in list(globals().items()):
            if name.startswith(prefixes):
                yield estimator, partial(_run, check)


def _run(check, estimator):
    """Run a check on a copy of the estimator, with rows to try it on."""
    check(clone(estimator), *rows_of_clients())


def rows_of_clients():
    """Rows of four clients; some miss classes, one has a single class, one a row."""
    rng = np.random.default_rng(0)
    client_ids = np.repeat(["A", "B", "C", "D"], [60, 40, 30, 1])
    y = np.resize(["x", "y", "z"], len(client_ids))
    y[client_ids == "B"] = np.resize(["x", "y"], 40)
    y[client_ids == "C"] = "z"
    X = rng.normal(size=(len(y), 4)) + 3 * np.unique(y, return_inverse=True)[1][:, None]
    return X, y, client_ids


class OneByOne:
    """Messages that can be looped over again, and nothing else."""

    def __init__(self, messages):
        self._messages = messages

    def __iter__(self):
        yield from self._messages


def _messages(estimator, X, y, client_ids):
    classes = np.unique(y)
    return [
        estimator.client_update(X[rows], y[rows], classes=classes, client=client)
        for client in np.unique(client_ids).tolist()
        for rows in [client_ids == client]
    ]


# ------------------------------------------------------------------- all of them


def check_estimator_has_the_common_client_step(estimator, X, y, client_ids):
    """The same call works for every estimator."""
    parameters = inspect.signature(estimator.client_update).parameters
    assert list(parameters)[:4] == ["X", "y", "classes", "client"], (
        f"client_update takes {list(parameters)}, not (X, y=None, *, classes=None, "
        "client=None)."
    )
    for name in ("classes", "client"):
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY, (
            f"{name} of client_update can be passed by position."
        )


def check_estimator_has_a_pure_client_step(estimator, X, y, client_ids):
    """A client step changes nothing and can be repeated."""
    before = vars(estimator).copy()
    first = _messages(estimator, X, y, client_ids)
    assert vars(estimator) == before, "client_update changes the estimator."
    second = _messages(estimator, X, y, client_ids)
    assert first == second, "client_update gives another message the second time."


def check_estimator_makes_messages_that_travel(estimator, X, y, client_ids):
    """Messages come through bytes unchanged, and say what is in them."""
    for message in _messages(estimator, X, y, client_ids):
        received = type(message).from_bytes(message.to_bytes("float64"))
        assert received == message, "a message changes on its way through bytes."
        assert message.describe(), "a message does not say what is in it."
        assert message.nbytes("float32") == len(message.to_bytes("float32")), (
            "the bytes of a message are not counted right."
        )


def check_estimator_takes_ids_as_a_column(estimator, X, y, client_ids):
    """Ids as a column of X are as good as ids as an argument."""
    column = np.unique(client_ids, return_inverse=True)[1]
    table = np.column_stack([X, column])
    by_column = clone(estimator).set_params(client_column=-1)
    if "keep_client_column" in by_column.get_params():
        by_column.set_params(keep_client_column=False)
    by_column.fit(table, y)
    by_argument = estimator.fit(X, y, client_ids=column)
    results = _result(by_column, table, None), _result(by_argument, X, column)
    complaint = "ids as a column give another result than ids as an argument."
    assert _agree(*results), complaint


def _assert_same(first, second, X, client_ids, complaint):
    """Refuse two fitted estimators that differ by more than rounding."""
    results = (_result(each, X, client_ids) for each in (first, second))
    assert _agree(*results), complaint


def _agree(found, expected):
    """Tell whether two results are equal up to rounding.

    BLAS sums in an order that may depend on where an array lies in memory, so that not
    even two equal calls always agree in the last bit.
    """
    return np.allclose(found, expected, rtol=0, atol=ROUNDING * np.abs(expected).max())


def _result(estimator, X, client_ids):
    """What a fitted estimator makes of rows."""
    method = getattr(estimator, "predict_proba", None) or estimator.transform
    return method(X) if client_ids is None else method(X, client_ids=client_ids)


# ------------------------------------------------------------------- classifiers


def check_classifier_fit_is_its_steps(classifier, X, y, client_ids):
    """``fit`` is the client step for each client and the server step."""
    by_hand = clone(classifier)
    by_hand.server_aggregate(_messages(by_hand, X, y, client_ids))
    fitted = classifier.fit(X, y, client_ids=client_ids)
    complaint = "fit gives another classifier than client_update and server_aggregate."
    _assert_same(fitted, by_hand, X, client_ids, complaint)


def check_classifier_reads_messages_one_by_one(classifier, X, y, client_ids):
    """Messages are read again if need be: many files do not fit in memory."""
    messages = _messages(classifier, X, y, client_ids)
    expected = clone(classifier).server_aggregate(messages)
    streamed = clone(classifier).server_aggregate(OneByOne(messages))
    complaint = "messages that are read one by one give another classifier than a list."
    _assert_same(streamed, expected, X, client_ids, complaint)


def check_classifier_knows_the_classes_of_all_clients(classifier, X, y, client_ids):
    """A client is told about classes that it has never seen."""
    fitted = classifier.fit(X, y, client_ids=client_ids)
    assert np.array_equal(fitted.classes_, np.unique(y)), "classes_ is not the union."
    predicted = fitted.predict(X, client_ids=client_ids)
    assert set(predicted) <= set(y), "a label is predicted that nobody has."
    accuracy = np.mean(predicted == y)
    assert accuracy > 0.4, f"of three classes, {accuracy:.0%} of rows are recognised."


def check_classifier_does_not_depend_on_jobs(classifier, X, y, client_ids):
    """``n_jobs`` changes nothing but the time."""
    one = clone(classifier).fit(X, y, client_ids=client_ids)
    two = clone(classifier).set_params(n_jobs=2).fit(X, y, client_ids=client_ids)
    _assert_same(one, two, X, client_ids, "n_jobs changes the classifier.")


# ---------------------------------------------------------------------- aligners


def check_aligner_fit_is_its_steps(aligner, X, y, client_ids):
    """``fit`` and ``transform`` are the three steps."""
    messages = _messages(aligner, X, y, client_ids)
    reference = clone(aligner).server_aggregate(messages).reference_
    aligned = aligner.fit(X, y, client_ids=client_ids).transform(X, client_ids)
    for message in messages:
        rows = client_ids == message.client
        moved = clone(aligner).client_map(message, reference).transform(X[rows])
        assert _agree(moved, aligned[rows]), (
            f"fit moves the rows of client {message.client!r} elsewhere than the steps."
        )


def check_aligner_keeps_what_was_fitted(aligner, X, y, client_ids):
    """Parameters that are set after ``fit`` wait for the next one."""
    fitted = aligner.fit(X, y, client_ids=client_ids)
    expected = _result(fitted, X, client_ids)
    if "tau" in fitted.get_params():
        fitted.set_params(tau=1.0 if np.mean(fitted.tau_) < 0.5 else 0.0)
    assert np.array_equal(_result(fitted, X, client_ids), expected), (
        "a parameter that is set after fit changes the result."
    )


def check_aligner_adds_a_client_and_moves_nobody(aligner, X, y, client_ids):
    """A client that joins later gets a map; all others keep theirs."""
    fitted = aligner.fit(X, y, client_ids=client_ids)
    expected = _result(fitted, X, client_ids)
    fitted.add_client(2 * X + 1, "E")
    assert np.array_equal(_result(fitted, X, client_ids), expected), (
        "add_client moves the rows of others."
    )
    assert "E" in list(fitted.clients_), "clients_ lacks the client that was added."
    assert np.isfinite(fitted.transform(2 * X + 1, client_ids="E")).all()


def check_aligner_refuses_strangers(aligner, X, y, client_ids):
    """Rows of a client without a map are refused by default, never passed through."""
    fitted = aligner.set_params(unknown_client="error").fit(X, y, client_ids)
    for wrong in ({"client_ids": "stranger"}, {}):
        try:
            fitted.transform(X, **wrong)
        except ValueError:
            continue
        raise AssertionError(f"rows with {wrong or 'no ids'} are transformed.")


# ---------------------------------------------------- aligners and preprocessors


def check_transformer_fits_messages(transformer, X, y, client_ids):
    """A server that has messages only gets the same transformer."""
    messages = _messages(transformer, X, y, client_ids)
    expected = clone(transformer).fit(X, y, client_ids=client_ids)
    for source in (messages, OneByOne(messages)):
        fitted = clone(transformer).server_aggregate(source)
        check_is_fitted(fitted)
        complaint = "server_aggregate gives another transformer than fit."
        _assert_same(fitted, expected, X, client_ids, complaint)


def check_transformer_adds_rows_exactly(transformer, X, y, client_ids):
    """Samples in chunks give what all samples at once give."""
    if not hasattr(transformer, "partial_fit"):
        return
    expected = clone(transformer).fit(X, y, client_ids=client_ids)
    for chunk in np.array_split(np.random.default_rng(0).permutation(len(X)), 5):
        transformer.partial_fit(X[chunk], y[chunk], client_ids=client_ids[chunk])
    np.testing.assert_allclose(
        _result(transformer, X, client_ids), _result(expected, X, client_ids), atol=1e-8
    )


def check_transformer_can_be_undone(transformer, X, y, client_ids):
    """``inverse_transform`` undoes ``transform``."""
    fitted = transformer.fit(X, y, client_ids=client_ids)
    back = fitted.inverse_transform(_result(fitted, X, client_ids), client_ids)
    np.testing.assert_allclose(back, X, atol=1e-6)


# ----------------------------------------------------------------- preprocessors


def check_preprocessor_fit_is_its_steps(preprocessor, X, y, client_ids):
    """What the server answers is all that a client needs."""
    messages = _messages(preprocessor, X, y, client_ids)
    answer = clone(preprocessor).server_aggregate(messages).statistics_
    by_hand = clone(preprocessor).server_aggregate([answer])
    fitted = preprocessor.fit(X, y, client_ids=client_ids)
    complaint = "fit gives another preprocessor than the answer of the server."
    _assert_same(fitted, by_hand, X, client_ids, complaint)


def check_preprocessor_does_not_depend_on_who_has_a_row(preprocessor, X, y, client_ids):
    """The same rows give the same result, however they are spread over clients."""
    expected = _result(clone(preprocessor).fit(X, y), X, None)
    fitted = preprocessor.fit(X, y, client_ids=client_ids)
    assert np.allclose(_result(fitted, X, client_ids), expected, rtol=0, atol=1e-12), (
        "the result depends on how rows are spread over clients."
    )


# ------------------------------------------------------- classifiers and aligners


def check_guard_reports_on_its_clients(estimator, X, y, client_ids):
    """``clients_report_`` has the share of every client, and honest ones are quiet."""
    if "screen" not in estimator.get_params():
        return
    report = clone(estimator).fit(X, y, client_ids=client_ids).clients_report_
    clients = np.unique(client_ids).tolist()
    assert report.clients == clients, f"clients_report_ is on {report.clients}."
    assert not report.outliers, f"honest clients stand out: {report.outliers}."
    for finding in report:
        share = np.mean(client_ids == finding.client)
        assert np.isclose(finding.share, share), (
            f"the share of client {finding.client!r} is {finding.share}, not {share}."
        )
