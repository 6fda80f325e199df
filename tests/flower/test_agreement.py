"""Whose message counts when messages do not fit together."""

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
)
from skslot.exchange import AlignmentReference, find_misfits
from skslot.flower import make_client_app

ALIGNER = FederatedOTAligner()
PIPELINE = make_pipeline(ALIGNER, FedCGSClassifier())
FEDAVG = FedAvgClassifier(net__max_epochs=1, random_state=0)
OTHERS = ["flatbed", "microfilm", "phone"]


@pytest.fixture
def misfit(rows_of):
    """Function that makes the app of the site "fax", which differs from the others."""

    def make(estimator, n_features=64, as_label=int, **options):
        X, y, name = rows_of("fax")
        rows = X[:, :n_features], [as_label(label) for label in y], name
        return make_client_app(lambda context: rows, estimator, **options)

    return make


@pytest.mark.parametrize(
    ("estimator", "changes", "detail"),
    [
        (ALIGNER, {"n_features": 32}, "number of features is 32, .* is 64"),
        (PIPELINE, {"n_features": 32}, "number of features is 32, .* is 64"),
        (ALIGNER, {"encoder": "vit-b-32"}, "encoder is 'vit-b-32', .* is 'resnet18'"),
        (ALIGNER, {"encoder": None}, "encoder is None, .* is 'resnet18'"),
        (PIPELINE, {"as_label": str}, "labels is 'text', .* is 'numbers'"),
        (
            FedPFTClassifier(random_state=0),
            {"estimator": FedPFTClassifier(covariance_type="diag")},
            "covariance_type is 'diag', .* is 'spherical'",
        ),
        (
            FedCGSClassifier(aligner=ALIGNER),
            {"estimator": FedCGSClassifier()},
            "part for alignment is 'absent', .* is 'present'",
        ),
        (FEDAVG, {"classes": range(11)}, r"classes is .*10\), .* is .* 9\)"),
    ],
)
def test_site_that_does_not_fit_is_left_out(
    estimator, changes, detail, federate, misfit
):
    options = {"encoder": "resnet18"}
    if estimator is FEDAVG:
        options["classes"] = range(10)
    site = misfit(**{"estimator": estimator, **options, **changes})
    sites = [*OTHERS, site]
    report, _, received = federate(estimator, sites, client=options, min_clients=3)
    assert report.status == "completed"
    assert sorted(received) == OTHERS
    (record,) = report.left_out
    assert (record.client, record.node, record.code) == ("fax", "14", "misfit")
    assert re.search(detail, record.detail)
    assert "that of client 'flatbed'" in record.detail


def test_result_is_that_of_those_who_fit(federate, misfit, digits):
    X, _, site = digits
    sites = [misfit(ALIGNER, n_features=32), *OTHERS]
    _, folder, _ = federate(ALIGNER, sites, min_clients=3)
    rows = np.isin(site, OTHERS)
    expected = FederatedOTAligner().fit(X[rows], client_ids=site[rows]).reference_
    found = AlignmentReference.load(folder / "reference.slot")
    assert_allclose(found.covariance, expected.covariance, atol=1e-12)


def test_by_default_a_misfit_ends_the_run_and_is_named(federate, misfit):
    sites = [misfit(ALIGNER, n_features=32), *OTHERS]
    report, folder, _ = federate(ALIGNER, sites, fails=True)
    assert "3 of 4 clients answered" in report.reason
    assert [(r.client, r.code) for r in report.left_out] == [("fax", "misfit")]
    assert not (folder / "reference.slot").exists()


def test_same_name_twice_aborts_also_if_one_does_not_fit(federate, misfit):
    sites = ["fax", "phone", misfit(ALIGNER, n_features=32)]
    report, _, _ = federate(ALIGNER, sites, fails=True, min_clients=1)
    assert "nodes [11, 13] all say that they are client 'fax'" in report.reason


def statistics(*sizes):
    """Messages of clients with so many features, by their node."""
    rng = np.random.default_rng(0)
    return {
        node: ALIGNER.client_update(rng.normal(size=(20, size)), client=f"{node}")
        for node, size in enumerate(sizes)
    }


@pytest.mark.parametrize(
    ("sizes", "misfits"),
    [
        ([], []),
        ([3], []),
        ([3, 3, 3], []),
        ([4, 3, 3], [0]),
        ([3, 4, 3], [1]),
        ([3, 4], [1]),  # equally many: the first counts
        ([3, 4, 4, 3], [1, 2]),
        ([3, 4, 5, 5], [0, 1]),
    ],
)
def test_what_most_have_counts(sizes, misfits):
    assert sorted(find_misfits(statistics(*sizes))) == misfits


def test_next_trait_is_compared_among_those_who_still_fit():
    messages = statistics(3, 3, 3, 4, 4)
    encoders = ["a", "b", "b", "a", "a"]
    for node, encoder in enumerate(encoders):
        messages[node] = replace(messages[node], encoder=encoder)
    assert sorted(find_misfits(messages)) == [0, 3, 4]


def test_first_is_by_name_and_not_by_node(federate, misfit):
    report, _, received = federate(
        ALIGNER, ["phone", misfit(ALIGNER, n_features=32)], min_clients=1
    )
    assert [record.client for record in report.left_out] == ["phone"]
    assert received == {}
