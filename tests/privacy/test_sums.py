"""What one row can change in what noise is added to, by every way to a message."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.kernel_approximation import RBFSampler

from skslot import (
    FedCGSClassifier,
    FedCOFClassifier,
    FederatedOTAligner,
    FedRidgeClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.exchange import ClassMeans, ClassStatistics, ClientStatistics
from skslot.privacy import PrivacyBudget
from skslot.privacy._budget import (
    GRID,
    SPLIT_OF_ALL,
    SPLIT_OF_CLASSES,
    SPLIT_OF_MEANS,
    clip_rows,
    packed_sums,
    unpack_sums,
)

CLASSES = np.arange(3)
NUMBERS = st.floats(-1e6, 1e6, width=64)
SPLITS = [SPLIT_OF_CLASSES, SPLIT_OF_MEANS, SPLIT_OF_ALL]


def vector(X, y, clip_norm=2.0, center=0.0, split=SPLIT_OF_CLASSES):
    held = np.equal.outer(CLASSES, y).astype(float)
    return packed_sums(clip_rows(X, clip_norm, center), held, split)


def change(X, y, row, label, **options):
    """How far one more row moves the vector that noise is added to."""
    more = vector(np.vstack([X, row]), np.append(y, label), **options)
    return np.linalg.norm(more - vector(X, y, **options))


@pytest.mark.parametrize("split", SPLITS)
def test_shares_of_the_budget_add_up_to_one(split):
    assert sum(split.values()) == pytest.approx(1.0, abs=1e-15)


@settings(max_examples=200, deadline=None)
@given(
    X=arrays(float, (4, 5), elements=NUMBERS),
    row=arrays(float, 5, elements=NUMBERS),
    label=st.sampled_from(CLASSES.tolist()),
    clip_norm=st.floats(1e-3, 1e3),
    center=arrays(float, 5, elements=st.floats(-10, 10)),
    split=st.sampled_from(SPLITS),
)
def test_no_row_changes_more_than_one(X, row, label, clip_norm, center, split):
    options = {"clip_norm": clip_norm, "center": center, "split": split}
    assert change(X, np.array([0, 1, 1, 2]), row, label, **options) <= 1 + 1e-12


@pytest.mark.parametrize("split", SPLITS)
def test_no_row_that_a_search_finds_changes_more_than_one(split):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10, 4)), np.arange(10) % 3
    best, most = rng.normal(size=4), 0.0
    for step in range(2000):
        row = best + rng.standard_cauchy(4) * 0.99**step
        found = change(X, y, row, step % 3, split=split)
        if found > most:
            best, most = row, found
    assert 0.99 < most <= 1 + 1e-12  # noise is not needlessly large either


@pytest.mark.parametrize("n_features", [1, 2, 7, 40])
def test_every_row_on_the_surface_changes_the_same(n_features):
    """What is off the diagonal counts as in the norm of the matrix, not half."""
    row = np.full((1, n_features), 100.0)
    nothing, empty = np.empty((0, n_features)), np.empty(0, int)
    assert change(nothing, empty, row, 1) == pytest.approx(1.0, abs=1e-3)
    assert change(nothing, empty, row, 1) <= 1.0


@pytest.mark.parametrize("row", [[1e308, -1e308, 0], [5e-324, 0, 0], [1e200, 1.0, 1.0]])
def test_rows_of_any_size_are_clipped(row):
    rows = clip_rows(np.array([row]), 1.0, -np.sign(row) * 1e308)
    assert np.isfinite(rows).all()
    assert np.square(rows).sum() <= GRID**2


def test_rows_inside_the_ball_stay_and_others_move_to_its_surface():
    X = np.array([[0.5, 0.0], [30.0, 40.0], [1.5, -1.0]])
    rows = clip_rows(X, 5.0, np.array([0.5, 0.0])) / GRID
    np.testing.assert_allclose(5 * rows[0], [0.0, 0.0])
    assert np.linalg.norm(rows[1]) == pytest.approx(1.0, abs=1e-4)
    np.testing.assert_allclose(5 * rows[2], [1.0, -1.0], atol=5 / GRID)


def test_sums_are_exact_in_any_order():
    """Rounding that depends on the other rows would tell about them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 20)), rng.integers(3, size=3000)
    order = rng.permutation(3000)
    assert np.array_equal(vector(X, y), vector(X[order], y[order]))
    row = rng.normal(size=20)
    alone = vector(row[None], np.array([1]))
    more = vector(np.vstack([X, row]), np.append(y, 1)) - vector(X, y)
    np.testing.assert_allclose(more, alone, rtol=0, atol=1e-11)


def test_gram_matrices_of_more_rows_than_fit_one_product_are_exact(monkeypatch):
    monkeypatch.setattr("skslot.privacy._budget.EXACT_ROWS", 7)
    X, y = np.random.default_rng(0).normal(size=(50, 4)), np.zeros(50, int)
    pieces = vector(X, y)
    monkeypatch.undo()
    assert np.array_equal(pieces, vector(X, y))


def test_the_vector_is_taken_apart_again():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 3
    rows = clip_rows(X, 2.0, 0.0)
    counts, sums, gram = unpack_sums(vector(X, y), 3, 4, SPLIT_OF_CLASSES)
    np.testing.assert_allclose(counts, [10, 10, 10])
    np.testing.assert_allclose(sums[1], rows[y == 1].sum(axis=0) / GRID)
    np.testing.assert_allclose(gram, rows.T @ rows / GRID**2, atol=1e-12)


# ------------------------------------------------------------------- every message

BUDGET = PrivacyBudget(1.0, 1e-5, clip_norm=2.0)


def make(estimator, X, y):
    return estimator.set_params(privacy=BUDGET).client_update(
        X, y, classes=CLASSES, client="A"
    )


PATHS = {
    "FedCGS": partial(make, FedCGSClassifier()),
    "FedCGS, aligned": partial(make, FedCGSClassifier(aligner=FederatedOTAligner())),
    "FedRidge": partial(make, FedRidgeClassifier()),
    "AFL": partial(make, FedRidgeClassifier.as_afl()),
    "Fed3R": partial(
        make,
        FedRidgeClassifier.as_fed3r(
            feature_map=RBFSampler(n_components=8, random_state=0)
        ),
    ),
    "FedCOF": partial(make, FedCOFClassifier()),
    "FedCOF, aligned": partial(make, FedCOFClassifier(aligner=MixedEffectsAligner())),
    "mixed effects": partial(make, MixedEffectsClassifier()),
    "mixed aligner": partial(make, MixedEffectsAligner()),
    "OT aligner": partial(make, FederatedOTAligner()),
    "OT aligner, tau='auto'": partial(make, FederatedOTAligner("auto")),
    "ClassStatistics": lambda X, y: ClassStatistics.release(BUDGET, X, y, CLASSES),
    "ClassMeans": lambda X, y: ClassMeans.release(BUDGET, X, y, CLASSES),
    "ClientStatistics": lambda X, y: ClientStatistics.release(BUDGET, X),
}


@pytest.mark.parametrize("path", PATHS)
def test_no_row_changes_any_message_by_more_than_one(path, seen):
    """Rows near and far, drawn and sought, added to what each message is made of."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 4)), np.arange(12) % 3
    rows = [rng.normal(size=4) * 10.0**size for size in range(-2, 5) for _ in range(3)]
    rows += [*1e6 * np.eye(4), *-1e6 * np.eye(4), np.full(4, 1e9), np.zeros(4)]
    with seen() as vectors:
        PATHS[path](X, y)
        (without,) = vectors
        most = 0.0
        for index, row in enumerate(rows):
            vectors.clear()
            PATHS[path](np.vstack([X, row]), np.append(y, index % 3))
            (found,) = vectors  # one release, and nothing beside it
            most = max(most, np.linalg.norm(found - without))
    assert most <= 1 + 1e-12
    is_mapped = path == "Fed3R"  # its features are cosines, which are never so long
    assert most > (0.1 if is_mapped else 0.999)


@pytest.mark.parametrize("path", PATHS)
def test_messages_depend_on_rows_through_the_noisy_sums_alone(path, seeded):
    """Other rows with the same sums give the same message."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 4)) / 4, np.zeros(12, int)
    turned = X[::-1]  # another order is the only way to the same sums
    with seeded():
        first = PATHS[path](X, y)
    with seeded():
        second = PATHS[path](turned, y)
    assert first == second
    assert first.privacy == BUDGET.guarantee
