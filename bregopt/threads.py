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

from threadpoolctl import ThreadpoolController

__all__ = ["SMALL", "threads_for"]

SMALL = 500  # largest order at which two threads gain less than a tenth (benchmarks/threads.py --orders)

_limited = Lock()  # held while a block for small matrices keeps BLAS to one thread


@contextmanager
def threads_for(order: int) -> Iterator[None]:
    """Keep BLAS to one thread in a block where matrices are small, and leave it alone where they are not.

    The number of threads belongs to the process. The block that sets it is the one that restores it, in the
    same thread of Python, as threadpoolctl asks for; blocks that begin meanwhile, inside or in other threads
    of Python, find it set and do nothing.

    Parameters
    ----------
    order : int
        The largest order of the matrices.
    """
    if order > SMALL or not _limited.acquire(blocking=False):
        yield
        return
    try:
        with _libraries().limit(limits=1):
            yield
    finally:
        _limited.release()


@cache
def _libraries() -> ThreadpoolController:
    """Return the BLAS libraries of the process: NumPy and SciPy may each have one of their own.

    They are looked up once, as that takes longer than a small problem. Importing bregopt loads both.
    """
    return ThreadpoolController().select(user_api="blas")
