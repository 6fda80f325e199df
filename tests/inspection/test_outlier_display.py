"""ClientOutlierDisplay: where dots and the line stand."""

import numpy as np
import pytest

from skslot.inspection import ClientOutlierDisplay
from skslot.trust import ClientFinding, ClientsReport


def labels_of(display):
    return [text.get_text() for text in display.ax_.get_yticklabels()]


def test_dots_are_at_the_distances_and_the_line_at_the_limit(mixed):
    display = ClientOutlierDisplay.from_estimator(mixed)
    report = mixed.clients_report_
    features, classes, line = display.ax_.lines
    np.testing.assert_array_equal(
        features.get_xdata(), [each.distance for each in report]
    )
    np.testing.assert_array_equal(
        classes.get_xdata(), [each.class_distance for each in report]
    )
    assert set(line.get_xdata()) == {ClientsReport.MOST_DISTANCE}
    assert labels_of(display) == [str(client) for client in report.clients]


def test_one_left_out_is_marked_and_inside_the_picture():
    findings = [ClientFinding(k, 9, 0.1, distance=10.0**k) for k in range(5)]
    findings.append(ClientFinding("$5", 9, 0.1, 1e9, reason="far", left_out=True))
    display = ClientOutlierDisplay.from_report(ClientsReport(findings))
    assert labels_of(display)[-1] == r"\$5 (excluded)"
    assert display.ax_.get_xlim()[1] > 1e9
    display.figure_.canvas.draw()


def test_of_many_clients_the_farthest_are_drawn():
    findings = [ClientFinding(k, 9, 0.01, distance=1 + k / 100) for k in range(100)]
    findings[7] = ClientFinding(7, 9, 0.01, distance=0.1, reason="rows")
    display = ClientOutlierDisplay.from_report(ClientsReport(findings), most=10)
    assert labels_of(display) == ["7", *(str(k) for k in range(91, 100))]


@pytest.mark.parametrize("distance", [np.nan, 0.0])
def test_a_report_without_distances_is_drawn_empty(distance):
    findings = [ClientFinding("A", 9, 1.0, distance=distance)]
    display = ClientOutlierDisplay.from_report(ClientsReport(findings))
    assert len(display.ax_.lines) == 1
