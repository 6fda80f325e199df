"""What a site says, and what it never says."""

import logging
import subprocess
import sys

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.exchange import ClientStatistics, LinearModel
from skslot.flower import make_client_app
from skslot.flower._server import REASONS

SECRET = "patient 4711 of ward 3"
PIPELINE = make_pipeline(FederatedOTAligner(), FedCGSClassifier())


@pytest.fixture
def app(rows_of):
    return make_client_app(lambda context: rows_of("fax"), PIPELINE)


def record_of(reply):
    assert reply.has_content()
    assert list(reply.content) == ["skslot"]
    return dict(reply.content["skslot"])


def ask(app, request, context):
    return record_of(app(request, context))


def test_statistics_are_those_of_the_client_step(app, request_of, context, rows_of):
    record = ask(app, request_of("query.statistics"), context)
    X, y, name = rows_of("fax")
    assert record["code"] == ""
    assert ClientStatistics.from_bytes(
        record["message"]
    ) == FederatedOTAligner().client_update(X, client=name)


def test_statistics_are_sent_once_per_run(app, request_of, context):
    assert ask(app, request_of("query.statistics"), context)["code"] == ""
    second = ask(app, request_of("query.statistics"), context)
    assert second == {"code": "asked_twice"}


def test_another_run_may_ask_again(app, request_of, context):
    first = ask(app, request_of("query.statistics"), context)
    context.state.clear()  # Flower keeps one state per run
    assert ask(app, request_of("query.statistics"), context) == first


@pytest.mark.parametrize("step", ["scale", "training"])
def test_steps_of_other_estimators_are_refused(step, app, request_of, context):
    assert ask(app, request_of(f"query.{step}"), context) == {"code": "unknown_request"}


@pytest.mark.parametrize("kind", ["query", "train", "evaluate", "query.rows"])
def test_other_kinds_of_messages_are_not_answered(kind, app, request_of, context):
    """By Flower itself, whose words are those of the request."""
    with pytest.raises(ValueError, match="No .* function registered"):
        app(request_of(kind), context)


@pytest.mark.parametrize(
    "contents", [{}, {"reference": b"nothing"}, {"reference": "text"}, {"other": b""}]
)
def test_requests_that_cannot_be_read_are_refused(contents, app, request_of, context):
    record = ask(app, request_of("query.summary", contents), context)
    assert record["code"] in ("bad_request", "step_failed")
    assert record.keys() == {"code"}


def raise_secret(*args):
    raise ValueError(SECRET)


def exit_with_secret(*args):
    raise SystemExit(SECRET)


class ExitingRows:
    """Rows that end the process when a step reads them."""

    def __array__(self, dtype=None, copy=None):
        raise SystemExit(SECRET)


def return_nan(context):
    return np.full((50, 3), np.nan), np.zeros(50), SECRET


@pytest.mark.parametrize(
    ("load_data", "code"),
    [
        (raise_secret, "load_failed"),
        (exit_with_secret, "load_failed"),
        (lambda context: SECRET, "load_failed"),
        (lambda context: (np.ones((50, 3)), None, None), "load_failed"),
        (return_nan, "step_failed"),
        (lambda context: (ExitingRows(), None, "A"), "step_failed"),
        (lambda context: (np.eye(9) + 1, None, "A"), "too_few_rows"),
        (lambda context: (np.eye(50), None, ("A", SECRET)), "step_failed"),
    ],
)
def test_failures_leave_the_site_as_a_code_only(
    load_data, code, request_of, context, caplog
):
    app = make_client_app(load_data, PIPELINE)
    with caplog.at_level(logging.ERROR):
        reply = app(request_of("query.statistics"), context)
    assert record_of(reply) == {"code": code}
    assert code in REASONS
    assert SECRET not in repr(reply)
    assert caplog.records  # the site itself learns why


def test_reason_of_a_failure_is_in_the_log_of_the_site(request_of, context, caplog):
    app = make_client_app(raise_secret, PIPELINE)
    app(request_of("query.statistics"), context)
    assert SECRET in caplog.text


@pytest.mark.parametrize("receive", [raise_secret, exit_with_secret])
def test_failure_to_keep_the_result_is_a_code_too(
    receive, rows_of, request_of, context
):
    app = make_client_app(lambda context: rows_of("fax"), PIPELINE, receive=receive)
    model = LinearModel(["a", "b"], np.ones((2, 3)), np.ones(2))
    request = request_of("query.result", {"model": model.to_bytes()})
    reply = app(request, context)
    assert record_of(reply) == {"code": "receive_failed"}
    assert SECRET not in repr(reply)


def test_small_classes_are_not_summarised(rows_of, request_of, context):
    X, y, name = rows_of("fax")
    y = np.where(np.arange(len(y)) < 5, 99, y)
    allow = {"min_samples": 5}
    for options, code in (({}, "too_few_rows"), (allow, "")):
        context.state.clear()
        load = {"load_data": lambda context: (X, y, name)}
        app = make_client_app(**load, estimator=FedCGSClassifier(), **options)
        assert ask(app, request_of("query.summary"), context)["code"] == code


def test_precision_and_fingerprint(rows_of, request_of, context):
    app = make_client_app(
        lambda context: rows_of("fax"),
        PIPELINE,
        wire_dtype="float16",
        encoder="resnet18 v1",
    )
    data = ask(app, request_of("query.statistics"), context)["message"]
    assert ClientStatistics.from_bytes(data).encoder == "resnet18 v1"
    assert len(data) < 64 * 65 * 1.3


def test_app_sets_the_precision_of_classifiers(rows_of, request_of, context):
    classifier = FedCGSClassifier()
    app = make_client_app(
        lambda context: rows_of("fax"), classifier, wire_dtype="float32"
    )
    data = ask(app, request_of("query.summary"), context)["message"]
    message = classifier.client_update(*rows_of("fax")[:2], client="fax")
    assert data == message.to_bytes("float32")


def test_without_flower_the_error_names_the_extra():
    code = """
import sys
sys.modules["flwr"] = None
from skslot import FederatedOTAligner
from skslot.flower import make_client_app, make_server_app
for make in (lambda: make_client_app(None, FederatedOTAligner()),
             lambda: make_server_app(FederatedOTAligner())):
    try:
        make()
    except ImportError as error:
        print(error)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert all('pip install "skslot[flower]"' in line for line in lines)
