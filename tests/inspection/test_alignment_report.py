"""alignment_report: the numbers, the warnings, text and HTML."""

import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from skslot import FederatedOTAligner
from skslot.geometry import gaussian_wasserstein
from skslot.inspection import alignment_report


@pytest.mark.parametrize("tau", [0.0, 0.4, 0.9])
def test_distance_to_the_reference_shrinks_by_one_minus_tau(training, tau):
    X, _, ids = training
    report = alignment_report(FederatedOTAligner(tau=tau).fit(X, client_ids=ids))
    np.testing.assert_allclose(report.after, (1 - tau) * report.before, rtol=1e-5)


def test_columns_are_those_of_the_aligner(aligner, training):
    report = alignment_report(aligner)
    _, _, ids = training
    np.testing.assert_array_equal(report.clients, aligner.clients_)
    np.testing.assert_array_equal(
        report.n_samples, np.unique(ids, return_counts=True)[1]
    )
    np.testing.assert_array_equal(report.shrinkage, aligner.shrinkage_)
    np.testing.assert_allclose(
        report.condition, np.linalg.cond(aligner.covariances_), rtol=1e-6
    )
    expected = [
        gaussian_wasserstein(
            mean, covariance, aligner.reference_mean_, aligner.reference_covariance_
        )
        for mean, covariance in zip(aligner.means_, aligner.covariances_, strict=True)
    ]
    np.testing.assert_allclose(report.before, expected)
    sizes = [len(message.to_bytes()) for message in aligner.statistics_]
    assert report.n_bytes.tolist() == sizes


def test_text_has_one_line_per_client(aligner):
    report = alignment_report(aligner)
    title, heads, *lines = repr(report).splitlines()
    assert title == "4 clients, 64 features, tau = 0.3"
    assert heads.split()[:2] == ["client", "rows"]
    assert [line.split()[0] for line in lines[:4]] == list(aligner.clients_)
    assert len({len(line) for line in [heads, *lines[:4]]}) == 1
    assert all(len(line) <= 88 for line in lines)


def test_frame_has_one_row_per_client(aligner):
    frame = alignment_report(aligner).to_frame()
    assert frame.index.name == "client"
    assert frame.shape == (4, 6)


def blobs(centres, n_rows=60, n_features=3):
    """Rows of a client around each centre."""
    rng = np.random.default_rng(0)
    X = np.vstack([c + rng.normal(size=(n_rows, n_features)) for c in centres])
    return X, np.repeat([f"site {k}" for k in range(len(centres))], n_rows)


def report_on(X, ids, **params):
    return alignment_report(FederatedOTAligner(**params).fit(X, client_ids=ids))


def test_nothing_to_warn_of():
    assert report_on(*blobs([0, 1, 2, 3])).warnings == []


def test_outliers_are_those_of_the_clients_report():
    X, ids = blobs([0, 1, 2, 30])
    aligner = FederatedOTAligner(screen=None).fit(X, client_ids=ids)
    (warning,) = alignment_report(aligner).warnings
    reason = aligner.clients_report_.outliers["site 3"]
    assert warning == f"Client 'site 3' stands out: {reason}"


def test_two_pairs_of_clients_are_no_outliers():
    assert report_on(*blobs([0, 0.5, 30, 30.5])).warnings == []


def test_few_rows_are_named():
    X, ids = blobs([0, 1, 2], n_rows=30, n_features=20)
    rows = np.r_[0:30, 30:45, 60:90]
    (warning,) = report_on(X[rows], ids[rows]).warnings
    assert warning.startswith("Client ['site 1']: no more rows than the 20 features")


def test_high_condition_number_is_named():
    X, ids = blobs([0, 1], n_rows=500)
    X[:, 0] *= 130
    (warning,) = report_on(X, ids, shrinkage=0.0).warnings
    assert warning.startswith("Client ['site 0', 'site 1']: the condition number")


@pytest.mark.filterwarnings("ignore:The rows of client")
def test_constant_client_is_in_the_table_and_named():
    X, ids = blobs([0, 1])
    X[ids == "site 0"] = 1.0
    report = report_on(X, ids, tau=0.5)
    assert report.condition[0] == np.inf
    assert "client 'site 0' do not vary" in report.warnings[0]
    assert "inf" in repr(report)


@pytest.mark.filterwarnings("ignore:The covariance of client")
def test_singular_covariance_is_named():
    X, ids = blobs([0, 1])
    X[:, 2] = X[:, 1]
    warnings = report_on(X, ids, shrinkage=0.0).warnings
    assert "is singular or nearly so" in warnings[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_reference_that_has_not_converged_is_told():
    X, ids = blobs([0, 1, 2])
    X[ids == "site 1"] *= [1, 5, 9]
    warnings = report_on(X, ids, max_iter=1).warnings
    assert "has not converged" in warnings[-1]


class Tags(HTMLParser):
    """Counts tags and refuses those that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.counts = [], {}
        self.feed(text)
        assert not self.stack

    def handle_starttag(self, tag, attrs):
        self.stack.append(tag)
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def test_html_is_well_formed_and_escapes_names():
    X, ids = blobs([0, 1, 2, 30])
    ids = np.where(ids == "site 3", "<script>alert(1)</script> & co", ids)
    html = report_on(X, ids, screen=None)._repr_html_()
    counts = Tags(html).counts
    assert counts["tr"] == 5
    assert counts["th"] == 7 + 4
    assert counts["li"] == 1
    assert "script" not in counts
    assert "&lt;script&gt;" in html
    assert html.count('scope="row"') == 4


def test_missing_matplotlib_names_the_extra_and_the_report_needs_none():
    code = """
import sys
sys.modules["matplotlib"] = sys.modules["matplotlib.pyplot"] = None
import numpy as np
from skslot import FederatedOTAligner
from skslot.inspection import LabelShiftDisplay, alignment_report
X = np.random.default_rng(0).normal(size=(40, 2))
aligner = FederatedOTAligner().fit(X, client_ids=np.repeat(["A", "B"], 20))
print(alignment_report(aligner))
try:
    LabelShiftDisplay.from_labels([0, 1], ["A", "B"])
except ImportError as error:
    print(error)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("2 clients, 2 features")
    assert 'pip install "skslot[plot]"' in result.stdout
