"""Results stay as they were before the packages were rebuilt.

``numbers_before.npz`` is what ``results`` gave at commit 25f49c3.
"""

from pathlib import Path

import numpy as np
import pytest

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier
from skslot.datasets import load_digit_scanners
from skslot.model_selection import dirichlet_label_shift

BEFORE = np.load(Path(__file__).with_name("numbers_before.npz"))
MESSAGES = {
    "cgs": ("counts", "means", "covariance_triangle", "shrinkage"),
    "pft": ("counts", "weights", "means", "covariances"),
}


def results():
    """Name and value of everything that is compared."""
    data = load_digit_scanners()
    X, y, ids = data.data[:, 18:31], data.target, data.client_ids
    rows = dirichlet_label_shift(y, ids, 0.3, min_samples=30, random_state=0)
    shown = slice(None, None, 60)
    for tau in (0.4, "auto"):
        aligner = FederatedOTAligner(tau).fit(X[rows], y[rows], client_ids=ids[rows])
        yield f"aligner {tau}: reference", aligner.reference_.covariance_triangle
        yield f"aligner {tau}: mean", aligner.reference_.mean
        yield f"aligner {tau}: tau", aligner.tau_
        aligned = aligner.transform(X[shown], client_ids=ids[shown])
        yield f"aligner {tau}: rows", aligned
    rows_of_fax = rows[ids[rows] == "fax"]
    for name, classifier in {
        "cgs": FedCGSClassifier(),
        "cgs aligned": FedCGSClassifier(aligner=FederatedOTAligner()),
        "cgs within": FedCGSClassifier("within", aligner=FederatedOTAligner("auto")),
        "pft": FedPFTClassifier(random_state=0),
        "pft aligned": FedPFTClassifier(aligner=FederatedOTAligner(), random_state=0),
    }.items():
        # FedPFT has drawn other rows since: they no longer depend on names of clients
        if name.startswith("cgs"):
            classifier.fit(X[rows], y[rows], client_ids=ids[rows])
            scores = classifier.decision_function(X[shown], client_ids=ids[shown])
            yield f"{name}: scores", scores
        message = classifier.client_update(X[rows_of_fax], y[rows_of_fax], client="fax")
        for field in MESSAGES[name[:3]]:
            yield f"{name}: message, {field}", getattr(message, field)


@pytest.fixture(scope="module")
def now():
    return dict(results())


def test_the_same_is_compared(now):
    assert sorted(BEFORE) == sorted(now)


@pytest.mark.parametrize("name", BEFORE)
def test_number_is_as_before(now, name):
    largest = np.abs(BEFORE[name]).max(initial=0)
    np.testing.assert_allclose(now[name], BEFORE[name], rtol=0, atol=1e-12 * largest)
