"""One BLAS thread for small matrices: there the others cost more than they give.

OpenBLAS starts a thread for each core unless an environment variable says otherwise. On matrices of some
tens of rows the threads spend their time waiting for each other, and far more of it where the machine is
busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["SMALL", "threads_for"]

# Where other processes share two cores, two threads take 7 to 160 times the CPU of one at orders 50 to 300
# (benchmarks/threads.py --orders), and more than 10 times at 400. On idle cores the gain is not measured.
SMALL = 500

_SETTERS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}"
    for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64"))
)


@contextmanager
def threads_for(order: int) -> Iterator[None]:
    """Keep BLAS to one thread in a block where matrices are small, and leave it alone where they are not.

    Blocks may lie inside of each other, and overlap in several threads of Python. The number of BLAS threads
    belongs to the process, save with OpenMP: the first small block to begin sets it to one, and the last one
    to end restores it. A small block has one BLAS thread throughout, and so computes the same digits beside
    others as alone. A large block keeps to one thread too while small ones last elsewhere.

    Parameters
    ----------
    order : int
        The largest order of the matrices.
    """
    if order > SMALL:
        yield
        return
    shared, per_thread = _libraries()
    with per_thread.limit(limits=1):
        shared.begin()
        try:
            yield
        finally:
            shared.end()


class _Shared:
    """Libraries of which each has one number of threads for the process, and the blocks that hold it at one.

    threadpoolctl 3.8 lets only one thread of Python set the number of OpenBLAS and ignores all others, which
    fails where the last block to end is not in the thread of the first to begin. The functions of the
    libraries themselves have no owner.
    """

    def __init__(self, controllers: list[Any]) -> None:
        self._libraries = [(library.get_num_threads, _setter(library)) for library in controllers]
        self._lock, self._blocks = Lock(), 0
        self._before: list[int] = []

    def begin(self) -> None:
        """Count a block; the first one notes the numbers and sets them to one."""
        with self._lock:
            if self._blocks == 0:
                self._before = [get() for get, _ in self._libraries]
                for _, put in self._libraries:
                    put(1)
            self._blocks += 1

    def end(self) -> None:
        """Count a block off; the last one restores the numbers."""
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                for (_, put), number in zip(self._libraries, self._before, strict=True):
                    put(number)


def _setter(library: Any) -> Callable[[int], object]:
    """Return the function that sets the number of threads of a library, without an owner."""
    if library.internal_api != "openblas":
        return library.set_num_threads
    return next(getattr(library.dynlib, name) for name in _SETTERS if hasattr(library.dynlib, name))


@cache
def _libraries() -> tuple[_Shared, ThreadpoolController]:
    """Return the BLAS libraries with a number for the process, and those with one for each thread of Python.

    NumPy and SciPy may each have one of their own. They are looked up once, as that takes longer than a small
    problem. Importing bregopt loads both.
    """
    blas = ThreadpoolController().select(user_api="blas")
    per_thread = blas.select(threading_layer="openmp").select(internal_api="openblas")
    own = {library.filepath for library in per_thread.lib_controllers}
    return _Shared([library for library in blas.lib_controllers if library.filepath not in own]), per_thread
