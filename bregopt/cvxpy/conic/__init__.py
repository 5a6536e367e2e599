"""Conic programs with psd cones as a :class:`~bregopt.program.Program`.

They are read from either side of the pair

    minimize  c'x   subject to  A x + s = b,  s in K        (P)
    minimize  b'z   subject to  A'z = -c,     z in K*       (D)

with ``K`` the zero cone, the nonnegative numbers and psd matrices, in this order; a psd matrix is given by
its upper triangle, column by column, entries off the diagonal times the square root of two.

Read directly, the matrices are the blocks of ``s``, and variables that are entries of a block, as those of a
psd variable are, drop out. Read as the dual, they are the blocks of ``z``, and there is a row for each
variable: the way for linear matrix inequalities. :func:`read_conic` takes the one with fewer rows and free
variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from bregopt.arrays import Array
from bregopt.cvxpy.conic.direct import pivots_of, read_directly
from bregopt.cvxpy.conic.dual import read_dual
from bregopt.cvxpy.conic.form import Conic
from bregopt.cvxpy.conic.implied import needed, shares, with_rows
from bregopt.program import Program

__all__ = ["Conic", "Reading", "read_conic", "read_dual"]

_NOT_MUCH = 4  # times as many rows and free variables


class Reading(Protocol):
    """A conic program as a :class:`Program`, and the way back from its answers.

    Where (D) was read, an unbounded program means that (P) is infeasible, and the other way round.
    """

    @property
    def program(self) -> Program:
        """What solvers receive."""
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

        If (P) is infeasible it is a Farkas vector, ``A'z = 0`` and ``b'z < 0``: of the multipliers `y`, with
        nothing `priced`, or, where (D) was read, of the ray `S`, `u`.
        """
        ...


def read_conic(conic: Conic) -> Iterator[Reading]:
    """Yield a conic program, with at least one psd matrix, as a :class:`Program`: the smaller reading first.

    The other one follows where it is not much larger: it may have an interior where the first has none.
    """
    kept = needed(conic)
    smaller, shared = with_rows(conic, kept), shares(conic, kept)
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
            yield _Padded(read(), shared)


class _Padded:
    """A reading of the rows that are needed; `shares` makes the ``z`` of all rows of theirs."""

    def __init__(self, reading: Reading, shares: Any) -> None:
        self.program, self.dual, self.x = reading.program, reading.dual, reading.x
        self._reading, self._shares = reading, shares

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        z: Array = self._shares @ self._reading.z(S, u, y, priced)
        return z
