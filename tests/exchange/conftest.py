"""One message of each kind, and a way to change what is sent."""

import json

import numpy as np
import pytest
from safetensors.numpy import load, save

from skslot._utils import pack_triangle
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
    MixedEffectsModel,
)
from skslot.exchange._wire import checksum


def scatter_of(counts, means):
    """Covariance that rows have at least, if classes have these means."""
    shares = counts / counts.sum()
    centred = means - shares @ means
    scatter = (centred.T * shares) @ centred
    return (scatter + scatter.T) / 2


def make_messages():
    rng = np.random.default_rng(0)
    mean, rows = rng.standard_normal(3), rng.standard_normal((20, 3))
    covariance = rows.T @ rows / 20
    covariance = (covariance + covariance.T) / 2
    triangle = pack_triangle(covariance)
    counts, means = np.array([12, 30], np.int32), np.array([mean, -mean])
    total = covariance + scatter_of(counts, means)
    mixture = (np.array([1, 1]), np.ones(2), means, np.array([triangle] * 2))
    weights = {"weight": means, "bias": mean[:2], "steps": np.array(3)}
    return {
        "client statistics": ClientStatistics(50, mean, covariance, 0.1, "A"),
        "alignment reference": AlignmentReference(mean, covariance, 7, 1e-9, 0.4),
        "class statistics": ClassStatistics(
            ["a", "b"], counts, means, total, np.array([0.25]), "A"
        ),
        "class means": ClassMeans(["a", "b"], counts, means, "A"),
        "class mixtures": ClassMixtures(
            ["a", "b"], "full", counts, *mixture, total, np.array([0.25]), "A"
        ),
        "low-rank mixtures": ClassMixtures(
            ["a", "b"],
            "lowrank",
            counts,
            *mixture[:3],
            np.array([[*mean, *-mean, 0.5]] * 2),
            np.empty(0),
            np.empty(0),
            "A",
        ),
        "class rows": ClassRows(
            ["a", "b"],
            "kmeans",
            counts,
            np.array([1, 2], np.int32),
            rows[:3],
            np.array([12.0, 10.0, 20.0]),
            np.array([[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]),
            means,
            total,
            np.array([0.25]),
            "A",
        ),
        "curved head": CurvedHead(
            ["a", "b"],
            "kfac",
            counts,
            means,
            mean[:2],
            np.array([[0.2, -0.2], [-0.2, 0.2]]),
            np.empty(0),
            means,
            total,
            np.array([0.25]),
            "A",
        ),
        "aligned model": AlignedModel(
            ["a", "b", "c"], np.eye(3), mean, mean, covariance, 7, 1e-9, 0.4
        ),
        "linear model": LinearModel(["a", "b"], mean[None], np.array([0.5]), "A"),
        "mixed-effects model": MixedEffectsModel(
            class_counts=np.array([60.0, 20.0]),
            holders=np.array([3, 1]),
            means=means,
            effects=means / 2,
            components=np.array([0.5, 4.0, 0.25]),
            converged=True,
            classes=["a", "b"],
            covariance=covariance,
            shrinkage=0.125,
            priors=np.array([0.75, 0.25]),
            reference_covariance=2 * covariance,
            tau=0.3,
            by_rows=True,
            by_client=False,
            clients=["A", "B", "C"],
        ),
        "feature summary": FeatureSummary(30, mean, 1.5, "A"),
        "feature scale": FeatureScale(mean, 0.5),
        "column statistics": ColumnStatistics(
            30, np.array([30, 12, 0]), mean * [1, 1, 0], np.array([4.0, 0.5, 0.0]), "A"
        ),
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
