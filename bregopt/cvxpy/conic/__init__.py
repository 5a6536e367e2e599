"""Conic programs with second-order and psd cones as a :class:`~bregopt.program.Program`.

They are read from either side of the pair

    minimize  c'x   subject to  A x + s = b,  s in K        (P)
    minimize  b'z   subject to  A'z = -c,     z in K*       (D)

with ``K`` the zero cone, the nonnegative numbers, second-order cones and psd matrices, in this order. A psd
matrix is given by its upper triangle, column by column; entries off the diagonal are multiplied by the square
root of two.

Read directly, the matrices are the blocks of ``s``; variables that are entries of a block or second-order
cone, such as those of a psd variable, are eliminated. Read as the dual, the matrices are the blocks of ``z``,
and each variable has a row: this suits linear matrix inequalities. :func:`read_conic` prefers the reading
with fewer rows and free variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from bregopt.arrays import Array
from bregopt.cvxpy.conic.form import Conic
from bregopt.cvxpy.conic.implied import distribution, needed, parallel_rows, with_rows
from bregopt.cvxpy.conic.readings import pivots_of, read_directly, read_dual
from bregopt.program import Program

__all__ = ["Conic", "Reading", "read_conic", "read_dual"]

_NOT_MUCH = 4  # largest ratio of the sizes (rows and free variables) at which the larger reading is tried too


class Reading(Protocol):
    """A conic program as a :class:`Program`, and the map from its answers back to ``x`` and ``z``.

    If (D) was read, an unbounded program means that (P) is infeasible, and vice versa.
    """

    @property
    def program(self) -> Program:
        """The program that solvers receive."""
        ...

    @property
    def dual(self) -> bool:
        """Whether (D) was read."""
        ...

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer, shape ``(k,)``."""
        ...

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return the ``z`` of an answer, shape ``(m,)``.

        If (P) is infeasible, ``z`` is a Farkas vector, ``A'z = 0`` and ``b'z < 0``. It comes from the
        multipliers `y`, with `priced` false (the cost is zero), or, if (D) was read, from the ray `S`, `u`.
        """
        ...


def read_conic(conic: Conic) -> Iterator[Reading]:
    """Yield the readings of a conic program with at least one psd matrix, the smaller one first.

    The other reading follows if it is not much larger: it may have an interior where the first has none.
    """
    parallel = parallel_rows(conic)
    kept = needed(conic, parallel)
    smaller, shared = with_rows(conic, kept), distribution(conic, parallel, kept)
    pivots = pivots_of(smaller)
    (m, k), gone = smaller.A.shape, len(pivots.rows)
    boxes = np.count_nonzero(np.diff(smaller.A.indptr)[smaller.zero : smaller.linear] == 1)
    ways: list[tuple[int, Callable[[], Reading]]] = [
        (m - boxes + k - 2 * gone, lambda: read_directly(smaller, pivots)),
        (k + smaller.zero, lambda: read_dual(smaller)),
    ]
    ways.sort(key=itemgetter(0))
    for size, read in ways:
        if size <= _NOT_MUCH * ways[0][0]:
            yield read() if shared is None else _Padded(read(), shared)


class _Padded:
    """A reading of the needed rows; `distribution` maps their ``z`` to the ``z`` of all rows."""

    def __init__(self, reading: Reading, distribution: Any) -> None:
        self.program, self.dual, self.x = reading.program, reading.dual, reading.x
        self._reading, self._distribution = reading, distribution

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        z: Array = self._distribution @ self._reading.z(S, u, y, priced)
        return z
