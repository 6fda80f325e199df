"""Files of earlier versions keep loading; those of this one are as small as said."""

from pathlib import Path

import numpy as np
import pytest

from skslot.exchange import (
    AlignedModel,
    AlignmentReference,
    ClassMixtures,
    ClassStatistics,
    ClientStatistics,
    FeatureScale,
    FeatureSummary,
    HeadWeights,
    LinearModel,
    load_message,
    load_messages,
)
from skslot.exchange._files import KINDS
from skslot.exchange._wire import decode

# Written by the first version of each format; never to be written again.
FIXTURES = Path(__file__).parent / "fixtures"

TRIANGLE = np.array([2.0, 0.5, 0.25, 3.0, -1.0, 4.0])
MEAN = np.array([1.0, -2.5, 0.125])
NONE = np.empty(0)

EXPECTED = {
    "client_statistics": ClientStatistics(50, MEAN, TRIANGLE, 0.1, "Zürich"),
    "client_statistics_float16": ClientStatistics(
        50, 2.0**20 * MEAN, 2.0**40 * TRIANGLE, 0.1, "far from zero"
    ),
    "alignment_reference": AlignmentReference(MEAN, TRIANGLE, 7, 1e-9, 0.4),
    "class_statistics": ClassStatistics(
        ["a", "b"],
        np.array([20, 0]),
        np.array([MEAN, 0 * MEAN]),
        TRIANGLE,
        np.array([0.25]),
        7,
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
    "linear_model": LinearModel([False, True], MEAN[None], np.array([0.5])),
    "feature_summary": FeatureSummary(30, MEAN, 1.5, 2.5),
    "feature_scale": FeatureScale(MEAN, 0.5),
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
}


NEW_IN_FORMAT_2 = {
    "aligned_model": AlignedModel(
        ["a", "b", "c"],
        np.array([MEAN, -MEAN, 0 * MEAN]),
        np.array([0.5, -0.5, 0.0]),
        MEAN,
        TRIANGLE,
        7,
        1e-9,
        0.4,
        "resnet18@1",
    )
}
FILES = {f"format1_{name}": message for name, message in EXPECTED.items()} | {
    f"format2_{name}": message for name, message in (EXPECTED | NEW_IN_FORMAT_2).items()
}


@pytest.mark.parametrize("name", FILES)
def test_file_of_any_format_loads(name):
    path = FIXTURES / f"{name}.slot"
    assert f"format{decode(path.read_bytes())[1]['format']}" == name.split("_")[0]
    message = load_message(path)
    assert message == FILES[name]
    assert type(message).load(path) == message


def test_there_is_a_file_of_each_kind():
    assert {type(message) for message in FILES.values()} == set(KINDS.values())
    assert {path.stem for path in FIXTURES.iterdir()} == FILES.keys()


def test_files_of_format_1_are_read_again_on_each_loop():
    paths = [FIXTURES / f"format1_{name}.slot" for name in EXPECTED]
    messages = load_messages(paths)
    assert list(messages) == list(messages) == list(EXPECTED.values())


@pytest.mark.parametrize("name", FILES)
def test_what_was_read_is_written_in_the_new_format(name):
    message = load_message(FIXTURES / f"{name}.slot")
    data = message.to_bytes()
    assert decode(data)[1]["format"] == "2"
    assert load_message(data) == message


def payload(data):
    """Bytes of a message without its header."""
    return len(data) - 8 - int.from_bytes(data[:8], "little")


def test_statistics_of_512_features_take_264_kilobytes_in_float16():
    m = 512
    triangle = np.full(m * (m + 1) // 2, 1e9)
    message = ClientStatistics(50, np.ones(m), triangle, 0.1, "A", "encoder")
    data = message.to_bytes("float16")
    assert payload(data) == 263_680
    assert len(data) - payload(data) < 700


def test_reference_is_sent_as_a_triangle():
    m = 64
    message = AlignmentReference.from_covariance(np.ones(m), np.eye(m), 3, 0.0)
    assert payload(message.to_bytes("float32")) == 4 * (m + m * (m + 1) // 2)
