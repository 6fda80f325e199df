"""Files of the format keep loading, and are as small as said."""

from pathlib import Path

import numpy as np
import pytest

from skslot.exchange import (
    AlignedModel,
    AlignmentReference,
    ClassMeans,
    ClassMixtures,
    ClassRows,
    ClassStatistics,
    ClientStatistics,
    ColumnStatistics,
    CurvedHead,
    FeatureScale,
    FeatureSummary,
    HeadWeights,
    LinearModel,
    Message,
    MixedEffectsModel,
    load_message,
    load_messages,
)
from skslot.privacy import PrivacyBudget

# Written by the first version that had the kind; never to be written again.
FIXTURES = Path(__file__).parent / "fixtures"

COVARIANCE = np.array([[2.0, 0.5, 0.25], [0.5, 3.0, -1.0], [0.25, -1.0, 4.0]])
MEAN = np.array([1.0, -2.5, 0.125])
NONE = np.empty(0)
PRIVACY = PrivacyBudget(3.0, 1e-5, 2.0).guarantee

EXPECTED = {
    "client_statistics": ClientStatistics(50, MEAN, COVARIANCE, 0.1, "Zürich"),
    "client_statistics_float16": ClientStatistics(
        50, 2.0**20 * MEAN, 2.0**40 * COVARIANCE, 0.1, "far from zero"
    ),
    "client_statistics_private": ClientStatistics(
        50, MEAN, COVARIANCE, 0.1, "A", "r@1", PRIVACY
    ),
    "alignment_reference": AlignmentReference(MEAN, COVARIANCE, 7, 1e-9, 0.4),
    "class_statistics": ClassStatistics(
        ["a", "b"],
        np.array([20, 0]),
        np.array([MEAN, 0 * MEAN]),
        COVARIANCE,
        np.array([0.25]),
        7,
    ),
    "class_statistics_private": ClassStatistics(
        ["a", "b"],
        np.array([20, 0]),
        np.array([MEAN, 0 * MEAN]),
        COVARIANCE,
        NONE,
        "A",
        "r@1",
        PRIVACY,
    ),
    "class_means_private": ClassMeans(
        ["a"], np.array([3]), MEAN[None], "A", "r@1", PRIVACY
    ),
    "class_means": ClassMeans(
        ["a", "b"], np.array([20, 11]), np.array([MEAN, -2 * MEAN]), "Zürich", "r@1"
    ),
    "class_mixtures": ClassMixtures(
        [0, 3],
        "diag",
        np.array([12, 30]),
        np.array([1, 2]),
        np.array([1.0, 0.25, 0.75]),
        np.array([MEAN, 2 * MEAN, -MEAN]),
        np.array([[1.0, 2.0, 0.5], [0.25, 1.0, 1.0], [2.0, 2.0, 2.0]]),
        NONE,
        NONE,
        "A",
    ),
    "class_mixtures_lowrank": ClassMixtures(
        ["a", "b"],
        "lowrank",
        np.array([12, 30]),
        np.array([1, 1]),
        np.ones(2),
        np.array([MEAN, -MEAN]),
        np.array([[*MEAN, *2 * MEAN, 0.5], [*-MEAN, 0.0, 0.0, 0.0, 0.0]]),
        NONE,
        NONE,
        "C",
    ),
    "class_rows": ClassRows(
        ["a", "b"],
        "kmeans",
        np.array([12, 30]),
        np.array([1, 2]),
        np.array([MEAN, 2 * MEAN, -MEAN]),
        np.array([12.0, 10.0, 20.0]),
        np.array([[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]),
        NONE,
        NONE,
        NONE,
        "A",
    ),
    "curved_head": CurvedHead(
        [1, 2],
        "gram",
        np.array([12, 30]),
        np.array([MEAN, -MEAN]),
        np.array([0.5, -0.5]),
        NONE,
        NONE,
        np.array([MEAN, 2 * MEAN]),
        COVARIANCE,
        np.array([0.25]),
        "A",
    ),
    "linear_model": LinearModel([False, True], MEAN[None], np.array([0.5])),
    "feature_summary": FeatureSummary(30, MEAN, 1.5, 2.5),
    "feature_scale": FeatureScale(MEAN, 0.5),
    "column_statistics": ColumnStatistics(
        30,
        np.array([30, 12, 0]),
        np.array([1.0, -2.5, 0.0]),
        np.array([4.0, 0.5, 0.0]),
        "Zürich",
        "r@1",
    ),
    "head_weights": HeadWeights(
        ["x", "y"],
        np.array([11, 12]),
        {
            "weight": np.array([MEAN, -MEAN]),
            "bias": np.array([0.5, -0.5]),
            "steps": np.array(3),
        },
        np.array([0.75, 0.5]),
        3,
        2,
        "B",
    ),
    "mixed_effects_model": MixedEffectsModel(
        class_counts=np.array([60.0, 20.0]),
        holders=np.array([3, 1]),
        means=np.array([MEAN, -MEAN]),
        effects=np.array([0.5 * MEAN, -0.5 * MEAN]),
        components=np.array([0.5, 4.0, 0.25]),
        converged=True,
        classes=["a", "b"],
        covariance=COVARIANCE,
        shrinkage=0.125,
        priors=np.array([0.75, 0.25]),
        reference_covariance=2 * COVARIANCE,
        tau=0.3,
        by_rows=True,
        by_client=False,
        clients=["A", 7, "Zürich"],
        encoder="resnet18@1",
    ),
    "aligned_model": AlignedModel(
        ["a", "b", "c"],
        np.array([MEAN, -MEAN, 0 * MEAN]),
        np.array([0.5, -0.5, 0.0]),
        MEAN,
        COVARIANCE,
        7,
        1e-9,
        0.4,
        "resnet18@1",
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_file_of_the_format_loads(name):
    path = FIXTURES / f"{name}.slot"
    message = load_message(path)
    assert message == EXPECTED[name]
    assert type(message).load(path) == message
    assert load_message(message.to_bytes()) == message


def test_there_is_a_file_of_each_kind():
    kinds = {kind for kind in Message._kinds.values() if "skslot" in kind.__module__}
    assert {type(message) for message in EXPECTED.values()} == kinds
    assert {path.stem for path in FIXTURES.iterdir()} == EXPECTED.keys()


def test_files_are_read_again_on_each_loop():
    paths = [FIXTURES / f"{name}.slot" for name in EXPECTED]
    messages = load_messages(paths)
    assert list(messages) == list(messages) == list(EXPECTED.values())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", EXPECTED)
def test_bytes_are_counted_as_they_are_sent(name, dtype):
    message = EXPECTED[name]
    assert message.nbytes(dtype) == len(message.to_bytes(dtype))


def payload(data):
    """Bytes of a message without its header."""
    return len(data) - 8 - int.from_bytes(data[:8], "little")


def test_statistics_of_512_features_take_264_kilobytes_in_float16():
    m = 512
    covariance = np.full((m, m), 1e9)
    message = ClientStatistics(50, np.ones(m), covariance, 0.1, "A", "encoder")
    data = message.to_bytes("float16")
    assert payload(data) == 263_680
    assert len(data) - payload(data) < 700


def test_reference_is_sent_as_a_triangle():
    m = 64
    message = AlignmentReference(np.ones(m), np.eye(m), 3, 0.0)
    assert payload(message.to_bytes("float32")) == 4 * (m + m * (m + 1) // 2)
