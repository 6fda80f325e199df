"""Threads over clients."""

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skslot import FedCGSClassifier, FederatedOTAligner, MixedEffectsClassifier
from skslot._utils import map_in_order, one_blas_thread
from skslot.exchange import load_messages
from skslot.geometry import bures_barycenter, transport_matrix

N_FEATURES = 150  # enough for BLAS to round differently with two threads
# Of the largest entry. OpenBLAS's kernels for Prescott, Haswell and SkylakeX, with one
# and two threads, and NumPy with and without AVX gave maps of these rows that differ by
# 4e-12, barycenters by 8e-13, aligned rows and scores by 2e-15. Kernels without AVX
# also round differently if an array starts at another address.
ROUNDING = 1e-10


def assert_agree(found, expected):
    """Equal up to rounding, relative to the size of the matrix."""
    atol = ROUNDING * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def blas_threads():
    pools = [each for each in threadpool_info() if each["user_api"] == "blas"]
    return [each["num_threads"] for each in pools]


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(5, N_FEATURES, N_FEATURES)) / 10 + np.eye(N_FEATURES)
    X = np.vstack([rng.normal(size=(400, N_FEATURES)) @ each for each in mix])
    return X, np.tile(np.arange(4), 500), np.repeat(list("ABCDE"), 400)


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 3, 20])
def test_results_come_in_the_order_of_the_items(n_jobs):
    assert list(map_in_order(lambda x: 2 * x, range(10), n_jobs)) == [*range(0, 20, 2)]


@pytest.mark.parametrize(("n_jobs", "most"), [(1, 1), (2, 3), (4, 5)])
def test_no_more_items_are_read_than_threads_need(n_jobs, most):
    read, ahead = [], []

    def items():
        for index in range(20):
            read.append(index)
            yield index

    for result in map_in_order(lambda x: x, items(), n_jobs):
        ahead.append(len(read) - result)
    assert max(ahead) == most


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_error_of_an_item_reaches_the_caller(n_jobs):
    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda x: 1 / x, [2, 1, 0, 1, 2], n_jobs))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_error_while_items_are_read_reaches_the_caller(n_jobs):
    def items():
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        list(map_in_order(lambda x: x, items(), n_jobs))


def test_number_of_blas_threads_is_restored_by_the_last_user(two_blas_threads):
    first, second = one_blas_thread(), one_blas_thread()
    before = blas_threads()
    first.__enter__()
    second.__enter__()
    assert set(blas_threads()) == {1}
    first.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before


def longest_wait(compute):
    """Longest time that another thread waits, relative to the computation."""
    times, done = [], threading.Event()

    def other():
        while not done.is_set():
            times.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=other)
    thread.start()
    start = time.perf_counter()
    compute()
    stop = time.perf_counter()
    done.set()
    thread.join()
    times = [start, *(each for each in times if start < each < stop), stop]
    return np.diff(times).max() / (stop - start)


@pytest.mark.parametrize(
    "compute",
    [lambda matrix: bures_barycenter([matrix]), lambda m: transport_matrix(m, m)],
    ids=["barycenter", "map"],
)
def test_other_threads_run_during_eigendecompositions(compute):
    matrix = np.cov(np.random.default_rng(0).normal(size=(700, 800)))
    # About half the time goes into one eigendecomposition. The shortest of several
    # waits counts, because other processes may delay the threads.
    assert any(longest_wait(lambda: compute(matrix)) < 0.25 for _ in range(20))


@pytest.mark.parametrize("n_jobs", [2, 4])
def test_barycenter_does_not_depend_on_threads(two_blas_threads, rows, n_jobs):
    X, _, ids = rows
    covariances = [np.cov(X[ids == client].T) for client in "ABCDE"]
    one, _ = bures_barycenter(covariances)
    several, _ = bures_barycenter(covariances, n_jobs=n_jobs)
    assert_agree(several, one)


def test_maps_do_not_depend_on_threads_of_blas(rows):
    X, _, ids = rows
    pair = [np.cov(X[ids == client].T) for client in "AB"]
    with threadpool_limits(1):
        expected = transport_matrix(*pair)
    with threadpool_limits(2):
        assert_agree(transport_matrix(*pair), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda n_jobs: FederatedOTAligner(n_jobs=n_jobs),
        lambda n_jobs: FederatedOTAligner("auto", n_jobs=n_jobs),
    ],
    ids=["0.4", "auto"],
)
def test_aligner_does_not_depend_on_jobs(two_blas_threads, rows, make):
    X, y, ids = rows
    one, three = (make(n).fit(X, y, client_ids=ids) for n in (1, 3))
    assert_agree(three.transform(X, client_ids=ids), one.transform(X, client_ids=ids))


@pytest.mark.parametrize(
    "make",
    [
        lambda n: MixedEffectsClassifier(0.5, n_jobs=n),
        lambda n: FedCGSClassifier(aligner=FederatedOTAligner(n_jobs=n), n_jobs=n),
    ],
    ids=["mixed", "fedcgs"],
)
def test_server_step_on_files_does_not_depend_on_jobs(
    two_blas_threads, rows, make, tmp_path
):
    X, y, ids = rows
    paths = [tmp_path / f"{client}.slot" for client in "ABCDE"]
    for path in paths:
        own = ids == path.stem
        make(1).client_update(X[own], y[own], client=path.stem).save(path)
    one, three = (make(n).server_aggregate(load_messages(paths)) for n in (1, 3))
    assert_agree(
        three.decision_function(X, client_ids=ids),
        one.decision_function(X, client_ids=ids),
    )
