"""Who is left out and why, and when a run is aborted."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.exchange import AlignmentReference
from skslot.exchange._wire import encode
from skslot.flower import FederationReport, make_client_app
from skslot.flower._common import flower_modules
from skslot.flower._server import REASONS, ClientRecord, send_and_wait

ALIGNER = FederatedOTAligner()


def forger(rows_of, site, **changes):
    """App of a client whose message no honest client could send."""
    flower, clientapp, _ = flower_modules()
    X, _, client = rows_of(site)
    message = ALIGNER.client_update(X, client=client)
    forged = replace(message, **changes)
    data = encode(forged.kind, forged._wire_arrays(), forged._json_facts(), "float64")
    return replying({"message": data, "code": ""})


def replying(record):
    flower, clientapp, _ = flower_modules()
    app = clientapp.ClientApp()

    @app.query("statistics")
    def answer(message, context):
        content = flower.RecordDict({"skslot": flower.ConfigRecord(record)})
        return flower.Message(content, reply_to=message)

    return app


def failing(error):
    def load_data(context):
        raise error

    return make_client_app(load_data, ALIGNER)


def bare_app_that_raises():
    """Without skslot, Flower would send the text of the exception."""
    _, clientapp, _ = flower_modules()
    app = clientapp.ClientApp()

    @app.query("statistics")
    def answer(message, context):
        raise ValueError("patient 4711")

    return app


def test_replies_are_attributed_by_what_they_reply_to():
    flower, *_ = flower_modules()

    def reply(message_id, data):
        record = flower.ConfigRecord({"code": "", "message": data})
        content = flower.RecordDict({"skslot": record})
        message = flower.Message(content, 1, "query")
        message.metadata.__dict__["_reply_to_message_id"] = message_id
        return message

    class Grid:
        def push_messages(self, messages):
            return [f"to {message.metadata.dst_node_id}" for message in messages]

        def pull_messages(self, message_ids):
            nodes = {12: b"second", 11: b"first", 99: b"first", 14: b"first"}
            replies = [reply(f"to {node}", data) for node, data in nodes.items()]
            return [*replies, reply("to 14", b"second")]

    contents = {node: {} for node in (11, 12, 13, 14)}
    assert send_and_wait(Grid(), flower, 0.01, "statistics", contents) == {
        11: b"first",
        12: b"second",
        13: "silent",
        14: "malformed",
    }


@pytest.fixture
def bad_sites(rows_of):
    """Apps of sites that fail, by the code that the report must give."""
    covariance = np.eye(64)
    covariance[0, 0] = -1.0
    return {
        "load_failed": failing(ValueError("patient 4711")),
        "silent": None,
        "unavailable": "gone",
        "unavailable ": "gone",
        "app_failed": bare_app_that_raises(),
        "malformed": replying({"code": "", "message": "text"}),
        "refused": forger(rows_of, "fax", mean=np.full(64, np.nan)),
        "refused ": forger(rows_of, "fax", covariance=covariance),
        "refused  ": replying({"code": "", "message": b"nothing"}),
        "refused   ": forger(rows_of, "fax", mean=np.full(64, 1e300)),
        "refused    ": forger(rows_of, "fax", covariance=1e300 * np.eye(64)),
        "malformed ": replying({"code": "patient 4711"}),
        "malformed  ": replying({"code": 4711}),
        "malformed   ": forger(rows_of, "fax", client=None),
    }


def test_everyone_who_fails_is_left_out_and_named(bad_sites, federate):
    good = ["phone", "flatbed"]
    report, folder, received = federate(
        ALIGNER, [*good, *bad_sites.values()], min_clients=2
    )
    assert report.status == "completed"
    assert sorted(received) == sorted(good)
    by_node = {record.node: record for record in report.clients}
    assert [by_node[node].client for node in ("11", "12")] == good
    for node, code in enumerate(bad_sites, start=13):
        record = by_node[str(node)]
        assert (record.status, record.step) == ("left out", "statistics")
        assert record.code == code.strip()
    assert "mean contains NaN" in by_node["19"].detail
    assert "negative variance" in by_node["20"].detail
    assert "mean contains a number of 1e+300" in by_node["22"].detail
    assert "a number of 1e+300" in by_node["23"].detail
    assert "4711" not in (folder / "report.json").read_text()


def test_who_reads_an_old_report_does_not_see_half_of_a_new_one(federate):
    _, folder, _ = federate(ALIGNER, ["phone", "flatbed"])
    before = (folder / "report.json").read_text()
    with (folder / "report.json").open() as old:
        report, _, _ = federate(ALIGNER, ["phone", "flatbed", "fax"])
        assert old.read() == before
    assert len(report.clients) == 3


def test_result_is_that_of_the_others(bad_sites, federate, digits):
    X, _, site = digits
    good = ["flatbed", "phone"]
    _, folder, _ = federate(ALIGNER, [*good, *bad_sites.values()], min_clients=2)
    rows = np.isin(site, good)
    expected = FederatedOTAligner().fit(X[rows], client_ids=site[rows]).reference_
    found = AlignmentReference.load(folder / "reference.slot")
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-12)


def test_default_policy_is_that_all_must_answer(federate):
    sites = ["phone", "flatbed", failing(ValueError())]
    report, folder, received = federate(ALIGNER, sites, fails=True)
    assert report.status == "aborted"
    assert "2 of 3 clients answered" in report.reason
    assert [record.code for record in report.left_out] == ["load_failed"]
    assert not (folder / "reference.slot").exists()
    assert received == {}


def test_same_name_twice_aborts_whatever_the_policy(federate):
    report, _, _ = federate(ALIGNER, ["fax", "phone", "fax"], fails=True, min_clients=1)
    assert "nodes [11, 13] all say that they are client 'fax'" in report.reason


def test_client_that_fails_later_is_left_out_from_then_on(federate, rows_of):
    """Its statistics are in the reference, its classes are not in the classifier."""
    pipeline = make_pipeline(ALIGNER, FedCGSClassifier())
    calls = []

    def load_data(context):
        calls.append(1)
        if len(calls) > 1:
            raise ValueError
        return rows_of("fax")

    sites = ["phone", make_client_app(load_data, pipeline)]
    report, _, received = federate(pipeline, sites, min_clients=1)
    assert (report.left_out[0].client, report.left_out[0].step) == ("fax", "summary")
    assert list(received) == ["phone"]


def test_client_must_keep_its_name(federate, rows_of):
    pipeline = make_pipeline(ALIGNER, FedCGSClassifier())
    names = iter(["fax", "phone"])

    def load_data(context):
        X, y, _ = rows_of("fax")
        return X, y, next(names)

    sites = ["flatbed", make_client_app(load_data, pipeline)]
    report, _, _ = federate(pipeline, sites, min_clients=1)
    assert report.left_out[0].code == "renamed"


def refuse_result(message, context):
    raise OSError("disk full")


def test_result_that_is_not_kept_is_reported(federate, rows_of):
    def load_data(context):
        return rows_of("fax")

    app = make_client_app(load_data, ALIGNER, receive=refuse_result)
    report, _, _ = federate(ALIGNER, ["phone", app])
    assert str(report).startswith(
        "run 7: completed, 1 of 2 clients did not take the result."
    )
    assert (report.left_out[0].client, report.left_out[0].code) == (
        "fax",
        "receive_failed",
    )


def test_result_that_nobody_keeps_is_no_success(federate):
    report, folder, _ = federate(ALIGNER, client={"receive": refuse_result}, fails=True)
    assert report.status == "aborted"
    assert "no client took the result" in report.reason
    assert [record.code for record in report.left_out] == ["receive_failed"] * 4
    assert (folder / "reference.slot").exists()


def test_too_few_nodes(federate):
    report, _, _ = federate(ALIGNER, ["fax"], fails=True, n_clients=2, timeout=0.0)
    assert report.reason == "1 of 2 nodes connected within 0 s."


@pytest.mark.parametrize("min_clients", [0, 3])
def test_policy_that_cannot_be_met(min_clients, federate):
    report, _, _ = federate(
        ALIGNER, ["fax", "phone"], fails=True, min_clients=min_clients
    )
    assert report.reason == f"min_clients is {min_clients}, but 2 clients are there."


def test_number_of_clients_must_be_said(federate):
    report, _, _ = federate(ALIGNER, ["fax"], fails=True, n_clients=None)
    assert "pass n_clients" in report.reason


def test_settings_of_the_run_come_first(federate):
    report, _, _ = federate(
        ALIGNER,
        ["fax", None],
        n_clients=9,
        run_config={"n-clients": 2, "min-clients": 1},
    )
    assert report.status == "completed"


def test_report_survives_the_file():
    record = ClientRecord("11", "fax")
    record.leave_out("statistics", "silent")
    report = FederationReport("123", "completed", clients=[record])
    assert FederationReport.from_json(report.to_json()) == report
    assert json.loads(report.to_json())["run_id"] == "123"
    assert str(report) == (
        "run 123: completed\n  client 'fax': left out (node 11) at step "
        f"'statistics': silent, {REASONS['silent']}"
    )


def test_bytes_are_counted(federate):
    report, folder, _ = federate(ALIGNER, ["fax", "phone"])
    for record in report.clients:
        assert record.bytes_up > 8 * 64 * 65 / 2
        assert record.bytes_down > 8 * 64 * 65 / 2


def test_server_that_is_told_to_stop_says_so(federate, tmp_path):
    def stop(message, context):
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        federate(ALIGNER, ["fax", "phone", stop])
    written = (tmp_path / "run-7" / "report.json").read_text()
    report = FederationReport.from_json(written)
    assert (report.status, report.reason) == ("aborted", "the server was told to stop")
