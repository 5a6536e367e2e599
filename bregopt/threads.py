"""One BLAS thread for small matrices: there the others cost more than they give.

OpenBLAS starts a thread for each core unless an environment variable says otherwise. On matrices of some
tens of rows the threads spend their time waiting for each other, and far more of it where the machine is
busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["SMALL", "threads_for"]

SMALL = 300  # largest order that is small; benchmarks/threads.py --orders measures it

_lock = Lock()
_inside = 0  # how many blocks for small matrices are running, in all threads of Python
_limit: Any = None  # what the first of them set, and the last takes back


@contextmanager
def threads_for(order: int) -> Iterator[None]:
    """Keep BLAS to one thread in a block where matrices are small, and leave it alone where they are not.

    The number of threads belongs to the process. It is one while any such block runs, in whatever thread of
    Python, and is set back to the numbers found when the last of them ends.

    Parameters
    ----------
    order : int
        The largest order of the matrices.
    """
    if order > SMALL:
        yield
        return
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside, _limit
    with _lock:
        if _inside == 0:
            _limit = _libraries().limit(limits=1)
        _inside += 1


def _leave() -> None:
    global _inside, _limit
    with _lock:
        _inside -= 1
        if _inside == 0:
            _limit.restore_original_limits()
            _limit = None


@cache
def _libraries() -> ThreadpoolController:
    """Return the BLAS libraries of the process: NumPy and SciPy may each have one of their own.

    They are looked up once, as that takes longer than a small problem. Importing bregopt loads both.
    """
    return ThreadpoolController().select(user_api="blas")
