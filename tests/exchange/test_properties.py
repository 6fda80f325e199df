"""Any message that can be made comes back as it was."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skslot._utils import pack_triangle
from skslot.exchange import (
    AlignedModel,
    AlignmentReference,
    ClassMixtures,
    ClassStatistics,
    ClientStatistics,
    ColumnStatistics,
    FeatureScale,
    FeatureSummary,
    HeadWeights,
    LinearModel,
    MessageError,
    load_message,
)
from skslot.exchange._wire import WIRE_DTYPES

from .conftest import scatter_of

WHOLE = st.integers(-(2**63) + 1, 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
# All that UTF-8 has; hypothesis by itself tries to encode each to find out the same.
CHARACTERS = st.characters(exclude_categories=["Cs"])
NAMES = st.none() | st.text(CHARACTERS) | WHOLE | FINITE | st.booleans()
TEXT = st.text(CHARACTERS).filter(lambda text: not text.endswith("\0"))
INDEX = st.integers(-(2**53), 2**53)
LABELS = st.one_of(
    st.lists(kind, min_size=1, max_size=4, unique=True)
    for kind in (TEXT, INDEX, INDEX.map(float), st.booleans())
)
ENCODERS = st.none() | st.text(CHARACTERS, max_size=20)
COUNTS = st.integers(1, 2**31 - 1)


@st.composite
def parts(draw):
    """Numbers of some features, of any size, and the classes of some labels."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m, scale = draw(st.integers(1, 6)), 10.0 ** draw(st.integers(-100, 28))
    classes = draw(LABELS)
    rows = scale * rng.standard_normal((draw(st.integers(1, 12)), m))
    covariance = rows.T @ rows / len(rows)
    covariance = (covariance + covariance.T) / 2
    counts = rng.integers(1, 1000, len(classes)).astype(np.int32)
    return rng, m, scale, classes, counts, covariance


def statistics(draw, rng, m, scale, classes, counts, covariance):
    mean, share = scale * rng.standard_normal(m), draw(st.floats(0, 1))
    return ClientStatistics(draw(COUNTS), mean, covariance, share)


def reference(draw, rng, m, scale, classes, counts, covariance):
    tau = draw(st.none() | st.floats(0, 1))
    mean = scale * rng.standard_normal(m)
    return AlignmentReference(mean, covariance, draw(st.integers(0, 100)), 1e-9, tau)


def class_statistics(draw, rng, m, scale, classes, counts, covariance):
    shrinkage = rng.random(draw(st.integers(0, 1)))
    means = scale * rng.standard_normal((len(classes), m))
    total = covariance + scatter_of(counts, means)
    return ClassStatistics(classes, counts, means, total, shrinkage)


def mixtures(draw, rng, m, scale, classes, counts, covariance):
    kind = draw(st.sampled_from(["spherical", "diag", "full", "lowrank"]))
    each = rng.integers(1, 4, len(classes)).astype(np.int32)
    weights = np.concatenate([rng.dirichlet(np.ones(n)) for n in each])
    triangle = pack_triangle(covariance)
    flat = {"spherical": triangle[:1], "diag": np.diag(covariance), "full": triangle}
    flat["lowrank"] = np.append(scale * rng.standard_normal(m), scale)
    within = {"spherical": triangle[0] * np.eye(m), "lowrank": scale**2 * np.eye(m)}
    if kind == "lowrank":
        within[kind] += np.outer(flat[kind][:-1], flat[kind][:-1])
    is_aligned = draw(st.booleans())
    means = scale * rng.standard_normal((each.sum(), m))
    total = scatter_of(np.repeat(counts, each) * weights, means)
    total += within.get(kind, covariance)
    return ClassMixtures(
        classes,
        kind,
        counts,
        each,
        weights,
        means,
        np.array([flat[kind]] * each.sum()),
        total if is_aligned else np.empty(0),
        rng.random(1) if is_aligned else np.empty(0),
    )


def linear(draw, rng, m, scale, classes, counts, covariance):
    rows = 1 if len(classes) == 2 and draw(st.booleans()) else len(classes)
    return LinearModel(classes, rng.standard_normal((rows, m)), np.zeros(rows))


def aligned(draw, rng, m, scale, classes, counts, covariance):
    parts = (rng, m, scale, classes, counts, covariance)
    aligned_to = replace(reference(draw, *parts), tau=draw(st.floats(0, 1)))
    return AlignedModel.of(linear(draw, *parts), aligned_to, aligned_to.tau)


def summary(draw, rng, m, scale, classes, counts, covariance):
    return FeatureSummary(draw(COUNTS), scale * rng.standard_normal(m), scale)


def feature_scale(draw, rng, m, scale, classes, counts, covariance):
    return FeatureScale(scale * rng.standard_normal(m), scale)


def columns(draw, rng, m, scale, classes, counts, covariance):
    n_samples = draw(COUNTS)
    n_values = rng.integers(0, n_samples, m, endpoint=True)
    means = scale * rng.standard_normal(m) * (n_values > 0)
    return ColumnStatistics(n_samples, n_values, means, means**2)


def head(draw, rng, m, scale, classes, counts, covariance):
    names = draw(st.lists(st.text(CHARACTERS), max_size=3, unique=True))
    weights = {name: rng.standard_normal((len(classes), m)) for name in names}
    weights["steps"] = rng.integers(0, 9, ())
    losses = rng.random(2)
    return HeadWeights(classes, counts, weights, losses, m, draw(st.integers(1, 9)))


KINDS = [
    statistics,
    reference,
    class_statistics,
    mixtures,
    linear,
    aligned,
    summary,
    feature_scale,
    columns,
    head,
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.filterwarnings("ignore:float16 rounds the mean")
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_message_comes_back_as_it_was(make, data):
    dtype = data.draw(st.sampled_from(WIRE_DTYPES))
    message = make(data.draw, *data.draw(parts())).with_encoder(data.draw(ENCODERS))
    if any(each.name == "client" for each in fields(message)):
        message = replace(message, client=data.draw(NAMES))
    received = load_message(message.to_bytes(dtype))
    assert received == message.as_received(dtype)
    assert dtype != "float64" or received == message
    for name in ("client", "classes"):
        sent = getattr(message, name, None)
        assert repr(getattr(received, name, None)) == repr(sent)
    assert load_message(received.to_bytes("float32")) == received.as_received("float32")
    assert received.describe()
    assert received.rounding_error("float64") == 0


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400) | st.binary(max_size=200).map(lambda b: b"\x40" + b))
def test_any_bytes_are_refused(data):
    with pytest.raises(MessageError):
        load_message(data)
