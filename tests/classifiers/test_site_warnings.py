"""Which rows without labels a site is warned of, and which not."""

import re
import warnings

import numpy as np
import pytest

from skslot import MixedEffectsClassifier
from skslot.datasets import load_digit_scanners

DATA = load_digit_scanners()
X, Y, SITE = DATA.data, DATA.target, DATA.client_ids
TRAIN = np.arange(len(Y)) % 2 == 0
ROWS = X[~TRAIN & (SITE == "fax")]
LABELS = Y[~TRAIN & (SITE == "fax")]


@pytest.fixture(scope="module")
def classifier():
    return MixedEffectsClassifier().fit(X[TRAIN], Y[TRAIN], client_ids=SITE[TRAIN])


@pytest.mark.parametrize("client", np.unique(SITE).tolist())
def test_ordinary_rows_of_a_known_site_give_no_warning(classifier, client):
    rows = X[~TRAIN & (SITE == client)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = classifier.adapt_client(rows, client)
    classifier.reset_client(client)
    assert report.warnings == ()


@pytest.mark.parametrize("client", np.unique(SITE).tolist())
def test_ordinary_rows_of_a_new_site_give_no_warning(client):
    others = TRAIN & (SITE != client)
    classifier = MixedEffectsClassifier()
    classifier.fit(X[others], Y[others], client_ids=SITE[others])
    report = classifier.add_client(X[~TRAIN & (SITE == client)], client)
    assert report.warnings == ()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[:10], "gave 10 rows without labels, which say little"),
        (3 * ROWS, "times as far from all classes"),
        (ROWS[np.isin(LABELS, [3, 8])], r"seem to be of \[3, 8\] only"),
    ],
    ids=["few", "other units", "two classes"],
)
def test_rows_that_mislead_are_warned_of(classifier, rows, message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = classifier.adapt_client(rows, "fax")
    classifier.reset_client("fax")
    assert report.warnings == tuple(str(each.message) for each in caught)
    assert all("client 'fax'" in note for note in report.warnings)
    assert any(re.search(message, note) for note in report.warnings)
    assert all(note in repr(report) for note in report.warnings)
