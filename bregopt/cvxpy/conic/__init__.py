"""Conic programs with second-order and psd cones as a :class:`~bregopt.program.Program`.

They are read from either side of the pair

    minimize  c'x   subject to  A x + s = b,  s in K        (P)
    minimize  b'z   subject to  A'z = -c,     z in K*       (D)

with ``K`` the zero cone, the nonnegative numbers, second-order cones and psd matrices, in this order. A psd
matrix is given by its upper triangle, column by column; entries off the diagonal are multiplied by the square
root of two.

Read directly, the matrices are the blocks of ``s``; variables that are entries of a block or second-order
cone, such as those of a psd variable, are eliminated. Read as the dual, the matrices are the blocks of ``z``,
and each variable has a row: this suits linear matrix inequalities. :func:`read_conic` prefers the direct
reading, which presolve may dualize like any program, unless it sees a matrix inequality in few variables. A
program with exponential cones has one reading, with convex rows, after one with the log-determinants that its
logarithms state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.cvxpy.conic.exponential import Exponential, too_large
from bregopt.cvxpy.conic.form import Conic
from bregopt.cvxpy.conic.hermitian import Copies, with_copies
from bregopt.cvxpy.conic.implied import (
    distribution,
    in_other_coordinates,
    needed,
    parallel_rows,
    with_rows,
)
from bregopt.cvxpy.conic.log_det import with_log_dets
from bregopt.cvxpy.conic.readings import Pivots, pivots_of, read_directly, read_dual
from bregopt.program import Program

__all__ = ["Conic", "Reading", "read_conic", "read_dual", "too_large"]

_LAST = "BREGOPT readings"  # key of the last readings in the solver cache
# Entries of the matrices for each variable from which a program is one of matrix inequalities.
_INEQUALITY = 2
# Ratio of the sizes of two readings, rows and free variables, from which the smaller one is the only one.
_MUCH_LESS = 4


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


def read_conic(conic: Conic, cache: dict[str, Any] | None = None) -> Iterator[Reading]:
    """Yield the readings of a conic program with at least one psd matrix or exponential cone.

    The direct one comes first unless the matrices have many entries for each variable, and one that is much
    larger than the other is left out. The second one may have an interior where the first has none.

    Parameters
    ----------
    conic : Conic
    cache : dict, optional
        Keeps the last readings. If the next program differs from theirs in ``b`` and ``c`` alone, as one of
        CVXPY with other parameters, its readings have the same rows, and all that is known of them.
    """
    if conic.exponential:
        logarithms = with_log_dets(conic)
        if logarithms is not None:
            yield from map(logarithms.reading, read_conic(logarithms.conic))
        if too_large(conic) is None:
            yield Exponential(conic)
        return
    parallel = parallel_rows(conic)
    kept = needed(conic, parallel)
    smaller, shared = with_rows(conic, kept), distribution(conic, parallel, kept)
    smaller, turned = in_other_coordinates(smaller)
    if turned is not None:
        shared = turned if shared is None else sp.csr_array(shared @ turned)
    copies = (None if conic.log_dets else with_copies(smaller)) or Copies(smaller, None, None)
    last: _Last | None = None if cache is None else cache.get(_LAST)
    if last is None or not (last.conic.has_rows_of(smaller) and last.copied.has_rows_of(copies.conic)):
        (m, k), pivots = copies.conic.A.shape, pivots_of(copies.conic)
        boxes = np.count_nonzero(np.diff(smaller.A.indptr)[smaller.zero : smaller.linear] == 1)
        sizes = m - boxes + k - 2 * len(pivots.rows), len(smaller.c) + smaller.zero
        last = _Last(smaller, copies.conic, pivots, sizes, {})
        if cache is not None:
            cache[_LAST] = last
    dual_first = _INEQUALITY * last.sizes[1] <= len(smaller.b) - smaller.first_psd
    for dual in (False,) if conic.log_dets else (dual_first, not dual_first):
        if conic.log_dets or last.sizes[dual] <= _MUCH_LESS * min(last.sizes):
            reading = last.read(smaller if dual else copies.conic, dual)
            yield _Given(reading, shared) if dual else _Given(reading, *_both(shared, copies))


def _both(distribution: Any, copies: Copies) -> tuple[Any, Any]:
    """Return the maps of the ``z`` and ``x`` with copies to those of the given program."""
    if distribution is None or copies.paired is None:
        return copies.paired if distribution is None else distribution, copies.mean
    return sp.csr_array(distribution @ copies.paired), copies.mean


class _Last(NamedTuple):
    """A program, with copies, too, the sizes of its readings, direct and dual, and those that were read."""

    conic: Conic
    copied: Conic
    pivots: Pivots
    sizes: tuple[int, int]
    readings: dict[bool, Any]

    def read(self, conic: Conic, dual: bool) -> Any:
        """Return the reading of a program of the same rows."""
        known = self.readings.get(dual)
        if known is None or known.conic is not conic:
            known = read_dual(conic, known) if dual else read_directly(conic, self.pivots, known)
            self.readings[dual] = known
        return known


class _Given:
    """A reading as one of the given program.

    `distribution` maps the ``z`` of the needed rows to the ``z`` of all rows, and `mean` the ``x`` with
    copies to that without; None stands for the identity.
    """

    def __init__(self, reading: Reading, distribution: Any, mean: Any = None) -> None:
        self.program, self.dual = reading.program, reading.dual
        self._reading, self._distribution, self._mean = reading, distribution, mean

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        x: Array = self._reading.x(S, u, y)
        return x if self._mean is None else self._mean @ x

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        z: Array = self._reading.z(S, u, y, priced)
        return z if self._distribution is None else self._distribution @ z
