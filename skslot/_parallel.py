"""Threads over clients: results come in the order of clients and do not depend on jobs.

BLAS rounds differently with each number of its threads, so that it gets one thread
wherever clients are worked on, in parallel or not.
"""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController

_lock = Lock()
_users, _limit = 0, None


@contextmanager
def one_blas_thread():
    """Give BLAS one thread, until all who asked for that are through.

    The number of threads is one for the whole process. Whoever restores the number that
    was found must be the last, or others would find one thread and leave it at that.
    """
    global _users, _limit
    with _lock:
        if _users == 0:
            _limit = _libraries().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()


@cache
def _libraries():
    return ThreadpoolController()


def map_in_order(function, items, n_jobs):
    """Results of a function of each item, in the order of the items.

    Items are read in the thread of the caller, and one more than there are threads are
    in memory at most. With one thread, that is one.
    """
    n_threads = effective_n_jobs(n_jobs)
    with one_blas_thread():
        if n_threads == 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            waiting = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(function, item))
                    del item
                    if len(waiting) > n_threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for each in waiting:
                    each.cancel()
