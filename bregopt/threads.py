"""One BLAS thread for small matrices, where more threads are slower.

OpenBLAS starts a thread for each core unless an environment variable sets another number. On matrices of
some tens of rows the threads mostly wait for each other, and far longer on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import product
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

__all__ = ["SMALL", "threads_for"]

# Where other processes share two cores, two threads take 7 to 160 times the CPU of one at orders 50 to 300
# (benchmarks/threads.py --orders), and more than 10 times at 400. On idle cores the gain is not measured.
SMALL = 500

_OPENBLAS = tuple(product(("", "scipy_"), ("", "64_", "_64")))  # parts of the names of its functions


def threads_for(order: int) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread in a block with small matrices; do nothing for larger ones.

    Blocks may be nested, and may overlap in several threads of Python. The number of BLAS threads belongs to
    the process, except with OpenMP: the first small block to begin sets it to one, and the last one to end
    restores it. A small block has one BLAS thread throughout, so its digits do not depend on other blocks. A
    large block has one thread too while small blocks run elsewhere.

    Parameters
    ----------
    order : int
        The largest order of the matrices.
    """
    if order > SMALL:
        return nullcontext()
    shared, per_thread = _libraries()
    return shared if per_thread is None else _both(shared, per_thread)


@contextmanager
def _both(shared: _Shared, per_thread: ThreadpoolController) -> Iterator[None]:
    with per_thread.limit(limits=1), shared:
        yield


class _Shared:
    """Libraries with one number of threads for the process, and a count of the blocks that limit it to one.

    threadpoolctl 3.8 lets only one thread of Python set the number of OpenBLAS and ignores all others. This
    fails if the last block to end is not in the thread of the first one to begin. The libraries' own
    functions have no such restriction.
    """

    def __init__(self, controllers: list[Any]) -> None:
        self._libraries = [(_function(library, "get"), _function(library, "set")) for library in controllers]
        self._lock, self._blocks = Lock(), 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        """Count a block; the first one stores the numbers and sets them to one."""
        with self._lock:
            if self._blocks == 0:
                self._before = [get() for get, _ in self._libraries]
                for _, put in self._libraries:
                    put(1)
            self._blocks += 1

    def __exit__(self, *error: object) -> None:
        """Discount a block; the last one restores the numbers."""
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                for (_, put), number in zip(self._libraries, self._before, strict=True):
                    put(number)


def _function(library: Any, does: str) -> Callable[..., Any]:
    """Return the function that gets or sets the number of threads of a library from any thread of Python."""
    if library.internal_api != "openblas":
        return library.get_num_threads if does == "get" else library.set_num_threads
    names = (f"{prefix}openblas_{does}_num_threads{suffix}" for prefix, suffix in _OPENBLAS)
    return next(getattr(library.dynlib, name) for name in names if hasattr(library.dynlib, name))


@cache
def _libraries() -> tuple[_Shared, ThreadpoolController | None]:
    """Return the BLAS libraries with a number for the process, and those with one for each thread of Python.

    NumPy and SciPy may each have their own BLAS. Importing bregopt loads both. They are looked up once, as
    this takes longer than a small problem.
    """
    from threadpoolctl import ThreadpoolController  # which takes as long as ten modules of ours

    blas = ThreadpoolController().select(user_api="blas")
    per_thread = blas.select(threading_layer="openmp").select(internal_api="openblas")
    own = {library.filepath for library in per_thread.lib_controllers}
    shared = _Shared([library for library in blas.lib_controllers if library.filepath not in own])
    return shared, per_thread if own else None
