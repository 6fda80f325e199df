"""Sites that stand out, over Flower."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FederatedOTAligner,
    MixedEffectsClassifier,
)
from skslot.flower import FederationReport, make_client_app
from skslot.flower._server import choose_screen
from skslot.trust import ClientScreen

GOOD = ["fax", "flatbed", "microfilm"]


@pytest.fixture
def in_other_units(rows_of):
    """Function that makes the app of a site whose features are too large."""

    def make(estimator, **options):
        def load_data(context):
            X, y, name = rows_of("phone")
            return 1000 * X, y, name

        return make_client_app(load_data, estimator, **options)

    return make


ESTIMATORS = [
    FederatedOTAligner(),
    FedCGSClassifier(),
    FedCGSClassifier(aligner=FederatedOTAligner()),
    MixedEffectsClassifier(),
    make_pipeline(FederatedOTAligner(), FedCGSClassifier()),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_a_site_in_other_units_is_left_out_by_name(estimator, federate, in_other_units):
    sites = [*GOOD, in_other_units(estimator)]
    report, folder, received = federate(
        estimator, sites, min_clients=3, screen="exclude"
    )
    assert report.status == "completed"
    assert sorted(received) == GOOD
    (record,) = report.left_out
    assert (record.client, record.code) == ("phone", "outlier")
    assert "times larger than those of others" in record.detail
    assert "phone (left out)" in str(report)
    expected, _, expected_received = federate(estimator, GOOD)
    assert received == expected_received
    assert "no client stands out" in str(expected)


def test_fedavg_asks_one_that_was_left_out_for_no_head(
    federate, in_other_units, digits
):
    pytest.importorskip("skorch")
    estimator = FedAvgClassifier(random_state=0)
    client = {"classes": np.unique(digits[1])}
    sites = [*GOOD, in_other_units(estimator, **client)]
    options = {"min_clients": 3, "client": client}
    report, _, received = federate(estimator, sites, screen="exclude", **options)
    assert [record.step for record in report.left_out] == ["scale"]
    assert sorted(received) == GOOD


def test_min_clients_counts_those_that_remain(federate, in_other_units):
    estimator = FedCGSClassifier(screen="exclude")
    sites = [*GOOD, in_other_units(estimator)]
    report, _, received = federate(estimator, sites, min_clients=4, fails=True)
    assert report.status == "aborted"
    assert "3 of 4 clients answered" in report.reason
    assert received == {}


def test_settings_of_the_run_come_first(federate, in_other_units):
    estimator = FedCGSClassifier()
    sites = [*GOOD, in_other_units(estimator)]
    run_config = {"screen": "exclude", "min-clients": 3, "max-share": 0.4}
    report, _, _ = federate(estimator, sites, run_config=run_config)
    assert [record.client for record in report.left_out] == ["phone"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((None, None), ClientScreen("warn", 0.5)),
        (("none", None), ClientScreen(None, 0.5)),
        (("exclude", 0.4), ClientScreen("exclude", 0.4)),
        ((ClientScreen("exclude"), None), ClientScreen("exclude")),
        ((ClientScreen("exclude"), 0.4), ClientScreen("exclude", 0.4)),
    ],
)
def test_settings_that_are_not_given_are_those_of_the_estimator(settings, expected):
    assert choose_screen(ClientScreen(max_share=0.5), *settings) == expected


def test_default_is_a_warning_in_the_log_of_the_server(federate, in_other_units):
    estimator = FedCGSClassifier()
    sites = [*GOOD, in_other_units(estimator)]
    with pytest.warns(UserWarning, match="client 'phone' stands out"):
        report, _, _ = federate(estimator, sites)
    assert [record.status for record in report.clients] == ["done"] * 4
    assert "client 'phone' stands out" in str(report)


def test_findings_are_in_the_file(federate):
    report, folder, _ = federate(FedCGSClassifier())
    again = FederationReport.from_json((folder / "report.json").read_text())
    assert [row["client"] for row in again.findings] == [*GOOD, "phone"]
    assert again == report
