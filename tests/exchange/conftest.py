"""One message of each kind, and a way to change what is sent."""

import json

import numpy as np
import pytest
from safetensors.numpy import load, save

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
)
from skslot.exchange._packing import pack_triangle
from skslot.exchange._wire import checksum


def make_messages():
    rng = np.random.default_rng(0)
    mean, rows = rng.standard_normal(3), rng.standard_normal((20, 3))
    covariance = rows.T @ rows / 20
    triangle = pack_triangle((covariance + covariance.T) / 2)
    counts, means = np.array([12, 30], np.int32), np.array([mean, -mean])
    mixture = (np.array([1, 1]), np.ones(2), means, np.array([triangle] * 2))
    weights = {"weight": means, "bias": mean[:2], "steps": np.array(3)}
    return {
        "client statistics": ClientStatistics(50, mean, triangle, 0.1, "A"),
        "alignment reference": AlignmentReference(mean, triangle, 7, 1e-9, 0.4),
        "class statistics": ClassStatistics(
            ["a", "b"], counts, means, triangle, np.array([0.25]), "A"
        ),
        "class mixtures": ClassMixtures(
            ["a", "b"], "full", counts, *mixture, triangle, np.array([0.25]), "A"
        ),
        "aligned model": AlignedModel(
            ["a", "b", "c"], np.eye(3), mean, mean, triangle, 7, 1e-9, 0.4
        ),
        "linear model": LinearModel(["a", "b"], mean[None], np.array([0.5]), "A"),
        "feature summary": FeatureSummary(30, mean, 1.5, "A"),
        "feature scale": FeatureScale(mean, 0.5),
        "head weights": HeadWeights(
            ["a", "b"], counts, weights, np.array([0.75, 0.5]), 3, 2, "A"
        ),
    }


MESSAGES = make_messages()


@pytest.fixture(params=MESSAGES)
def message(request):
    return MESSAGES[request.param]


@pytest.fixture
def messages():
    return dict(MESSAGES)


@pytest.fixture
def tampered():
    """Function that changes a message on its way, with the checksum that it needs."""

    def tamper(message, **changes):
        data = message.to_bytes("float64")
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])["__metadata__"]["skslot"]
        header, tensors = json.loads(header), dict(load(data))
        for name, value in changes.items():
            target = tensors if isinstance(value, np.ndarray) else header
            target[name] = value
        header["checksum"] = checksum(header, tensors)
        return save(tensors, metadata={"skslot": json.dumps(header)})

    return tamper
