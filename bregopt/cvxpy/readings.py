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
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.cvxpy.conic_program import Conic, others, with_log_dets
from bregopt.cvxpy.reductions import Copies, NeededRows, needed_rows, with_copies
from bregopt.linalg import csr_of
from bregopt.presolve.svec import recognize, without_round_off
from bregopt.program import Block, Bounds, LinearMap, Nearness, Program, Term
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import dataclass

_LAST = "BREGOPT readings"  # key of the last readings in the solver cache
# Entries of the matrices for each variable from which a program is one of matrix inequalities.
_INEQUALITY = 2
# Ratio of the sizes of two readings, rows and free variables, from which the smaller one is the only one.
_MUCH_LESS = 4
# Exponential cones, and variables beside them, up to which a route takes them: its equations are dense.
_MOST_EXPONENTIALS, _MOST_VARIABLES = 300, 1_000


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


# --- Read directly ------------------------------------------------------------------------------------------


class Elimination(NamedTuple):
    """What a direct reading takes from ``A`` and the cones alone.

    Parameters
    ----------
    D, P : int array
        The pivots' rows and variables.
    T : array
        The inverses of their entries.
    F, R : int array
        The other variables and rows.
    row, at, entry : array
        Row ``row[k]`` of ``R`` has ``entry[k]`` times the row ``at[k]`` of ``D`` substituted.
    per_entry : array
        The share of an entry of ``s`` in each pivot.
    substituted : csr_array or None
        The variables ``F`` in the rows ``D``; None where there are none.
    map : LinearMap
    B : csr_array
        Rows ``R`` of the matrices, and of ``x_F`` and the second-order cones.
    """

    D: IntArray
    P: IntArray
    T: Array
    F: IntArray
    R: IntArray
    row: IntArray
    at: IntArray
    entry: Array
    per_entry: Array
    substituted: Any
    map: LinearMap
    B: Any


@dataclass(frozen=True, eq=False)
class Direct:
    """(P) with the variables ``x_P = T (b_D - s_D - A_DF x_F)`` of the pivots eliminated.

    Parameters
    ----------
    conic : Conic
    program : Program
        Its ``u`` is ``x_F`` and then the ``s`` of the second-order cones; its rows are the rows ``R``.
    rows : Elimination
    """

    dual: ClassVar[bool] = False
    conic: Conic
    program: Program
    rows: Elimination

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        A, b, (D, P, T, F, *_) = self.conic.A, self.conic.b, self.rows
        x = np.zeros(A.shape[1])
        x[F] = u[: len(F)]
        s = np.concatenate([u[len(F) :], self.conic.triangles(S)])
        x[P] = T * ((b - A @ x)[D] - s[D - self.conic.linear])
        return x

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return ``z``: on the rows ``R`` from the multipliers, on the pivots' rows from ``A'z = -c``."""
        return self.of_rows(self.program.bounds.clip(y), priced)

    def of_rows(self, y: Array, priced: bool) -> Array:
        """Return the ``z`` of these multipliers of the rows ``R``."""
        c = self.conic.c if priced else np.zeros(len(self.conic.c))
        z, rows = np.zeros(len(self.conic.b)), self.rows
        z[rows.R] = -y
        z[rows.D] = -rows.T * (c + self.conic.At @ z)[rows.P]
        return z


class Pivots(NamedTuple):
    """The rows, columns and values of the pivots."""

    rows: IntArray
    columns: IntArray
    entries: Array


def pivots_of(conic: Conic) -> Pivots:
    """Return rows of second-order cones and matrices, and for each a variable that is in no other of them.

    First come variables that are the only one in such a row, of several in that of the matrix with most such
    rows: one matrix, not another that it is in, shows the faces that rows of entries imply. Then, in rows
    without such a variable, come variables that occur in no other such row.
    """
    A, first_curved = conic.A, conic.A.indptr[conic.linear]
    column, entry = A.indices[first_curved:], A.data[first_curved:]
    start = A.indptr[conic.linear :] - first_curved
    count, columns = np.diff(start), A.shape[1]
    row = np.repeat(np.arange(len(count)), count)
    sizes = np.array([*conic.soc, *(n * (n + 1) // 2 for n in conic.orders)], dtype=np.intp)
    cone = np.repeat(np.arange(len(sizes)), sizes)
    single = start[np.flatnonzero(count == 1)[::-1]]
    single = single[_once_in_cone(cone[row] * columns + column)[single]]
    own = cone[row[single]]
    share = np.bincount(own, minlength=len(sizes)) / sizes
    share[: len(conic.soc)] -= 1  # after the matrices
    single = single[np.argsort(-share[own], kind="stable")]
    alone, first = np.unique(column[single], return_index=True)
    taken = np.zeros(columns, dtype=bool)
    taken[alone] = True
    open_row = np.bincount(row, weights=taken[column], minlength=len(count)) == 0
    once = np.bincount(column, minlength=columns) == 1
    own = np.flatnonzero(open_row[row] & once[column])
    _, at = np.unique(row[own], return_index=True)
    chosen = np.concatenate([single[first], own[at]])
    return Pivots(row[chosen] + conic.linear, column[chosen], entry[chosen])


def _once_in_cone(variable: IntArray) -> Mask:
    """Whether each variable, numbered anew in each cone, occurs once in its cone.

    One that occurs more often, such as ``t`` in ``t I``, is one of a matrix inequality in few variables.
    """
    _, pair, count = np.unique(variable, return_inverse=True, return_counts=True)
    once: Mask = count[np.ravel(pair)] == 1
    return once


def read_directly(conic: Conic, pivots: Pivots, known: Direct | None = None) -> Direct:
    """Return the reading of (P); a `known` one of the same ``A`` leaves the numbers of ``b`` and ``c``."""
    b, c, rows = conic.b, conic.c, _elimination(conic, pivots) if known is None else known.rows
    D, P, T, F, R, *_ = rows
    right = b[R] - np.bincount(rows.row, rows.entry * b[D][rows.at], len(R))
    bounds = Bounds.of_hard_rows(np.where((R >= conic.zero) & (R < conic.linear), -np.inf, right), right)
    offset = float(c[P] @ (T * b[D])) + conic.stated_constant
    if known is not None and np.array_equal(c, known.conic.c):
        return Direct(conic, known.program.restated(bounds=bounds, offset=offset), rows)
    count, cost = sum(conic.soc), c[F]
    if rows.substituted is not None:
        cost = without_round_off(cost, rows.substituted, -T * c[P])
    price = np.zeros(count + len(conic.places.weight))
    price[D - conic.linear] = -rows.per_entry * c[P]
    k = len(F) + count
    program = Program(
        blocks=blocks_of(conic, price[count:]),
        A=rows.map,
        B=rows.B,
        bounds=bounds,
        c=np.concatenate([cost, price[:count]]),
        u_lo=np.full(k, -np.inf),
        u_hi=np.full(k, np.inf),
        offset=offset,
        cones=conic.cones(len(F)),
    )
    return Direct(conic, program, rows)


def _elimination(conic: Conic, pivots: Pivots) -> Elimination:
    """Return what the pivots eliminate, and the rows that are left."""
    A = conic.A
    D, P, T = pivots.rows, pivots.columns, 1 / pivots.entries
    R, F = others(D, A.shape[0]), others(P, A.shape[1])
    # The numbers of each row and column of A among R or D, and among F or P.
    of_row, of_column = np.empty(A.shape[0], dtype=np.intp), np.empty(A.shape[1], dtype=np.intp)
    of_row[R], of_row[D], of_column[F], of_column[P] = map(np.arange, map(len, (R, D, F, P)))
    eliminated, pivot = np.zeros(A.shape[0], dtype=bool), np.zeros(A.shape[1], dtype=bool)
    eliminated[D], pivot[P] = True, True
    row, column, value = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)), A.indices, A.data
    # Through the pivots, a row of R has entries in s_D; one of a cone or matrix has its own element of s too.
    through = ~eliminated[row] & pivot[column]
    own, at = of_row[row[through]], of_column[column[through]]
    entry = value[through] * T[at]
    inner = np.flatnonzero(conic.linear <= R)
    rows = np.concatenate([own, inner])
    place = np.concatenate([D[at], R[inner]]) - conic.linear
    # Pivots of a matrix are its weights, so that their quotient is one: data near the boundary stay as given.
    count, weight = sum(conic.soc), np.concatenate([np.ones(sum(conic.soc)), conic.places.weight])
    per_entry = weight[D - conic.linear] / pivots.entries
    values = np.concatenate([-value[through] * per_entry[at], weight[R[inner] - conic.linear]])
    in_cone = place < count

    def of_variables(chosen: Mask, m: int) -> Any:
        """Return the chosen entries of A in the columns F."""
        own = chosen[row] & ~pivot[column]
        return csr_of(value[own], of_row[row[own]], of_column[column[own]], (m, len(F)))

    B, substituted = of_variables(~eliminated, len(R)), None
    if (eliminated[row] & ~pivot[column]).any():  # matrix inequalities: other variables are in the rows D too
        substituted = of_variables(eliminated, len(D))
        B = B - csr_of(entry, own, at, (len(R), len(D))) @ substituted
    if count:
        in_s = csr_of(values[in_cone], rows[in_cone], place[in_cone], (len(R), count))
        B = sp.hstack([B, in_s])
    A_map = map_of(conic, len(R), rows[~in_cone], place[~in_cone] - count, values[~in_cone])
    return Elimination(D, P, T, F, R, own, at, entry, per_entry, substituted, A_map, sp.csr_array(B))


# --- Read as the dual ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Dual:
    """(D): its rows belong to the variables ``x``; its ``u`` is the part of ``z`` outside the matrices."""

    dual: ClassVar[bool] = True
    conic: Conic
    program: Program

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        return y

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return the ``z`` of an answer, or of a ray."""
        return np.concatenate([u, self.conic.triangles(S)])


def read_dual(conic: Conic, known: Dual | None = None) -> Dual:
    """Return the reading of (D); a `known` one of the same ``A`` leaves the numbers of ``b`` and ``c``."""
    A, linear, first_psd = conic.A, conic.linear, conic.first_psd
    weight, row = conic.places.weight, np.arange(first_psd)
    if known is None:
        end, at = A.indptr[first_psd], np.repeat(np.arange(len(conic.b)), np.diff(A.indptr))
        place, column = at[end:] - first_psd, A.indices
        A_map = map_of(conic, A.shape[1], column[end:], place, _per_entry(A.data[end:], weight[place]))
        B = csr_of(A.data[:end], column[:end], at[:end], (A.shape[1], first_psd))
    else:
        A_map, B = known.program.A, known.program.B
    program = Program(
        blocks=blocks_of(conic, _per_entry(conic.b[first_psd:], weight)),
        A=A_map,
        B=B,
        bounds=Bounds.of_hard_rows(-conic.c, -conic.c),
        c=conic.b[:first_psd],
        u_lo=np.where((row >= conic.zero) & (row < linear), 0.0, -np.inf),
        u_hi=np.full(first_psd, np.inf),
        cones=conic.cones(linear),
    )
    return Dual(conic, program)


def _per_entry(value: Array, weight: Array) -> Array:
    """Return what psd rows contribute to entries; the quotient undoes CVXPY's product with the weight."""
    contribution: Array = np.where(weight == 1.0, value, 2.0 * (value / weight))
    return contribution


def blocks_of(conic: Conic, cost: Array) -> tuple[Block, ...]:
    """Return the blocks, with the given prices of the entries of the psd rows, and with log-determinants.

    ``-w log det S`` is ``w`` times the divergence from the identity, apart from the trace and a constant.
    """
    weight = np.array(conic.log_dets or (0.0,) * len(conic.orders))
    block, i, j, _ = conic.places
    cost = cost - weight[block] * (i == j)
    used = np.flatnonzero(cost)
    rows = {b: family for b, _, family in _sparse(conic, np.zeros_like(used), used, cost[used])}
    near = [
        Nearness("logdet", np.eye(n), w) if w else None
        for n, w in zip(conic.orders, weight.tolist(), strict=True)
    ]
    return tuple(Block(f"block {b}", n, rows.get(b), near[b]) for b, n in enumerate(conic.orders))


def map_of(conic: Conic, m: int, row: IntArray, place: IntArray, value: Array) -> LinearMap:
    """Return the map whose row ``row[k]`` has ``value[k]`` times the entry of the psd row ``place[k]``."""
    terms = [
        Term(b, at[local], family)
        for b, at, rows in _sparse(conic, row, place, value)
        for local, family in recognize(rows)
    ]
    return LinearMap(m, conic.orders, tuple(terms))


def _sparse(
    conic: Conic, row: IntArray, place: IntArray, value: Array
) -> Iterator[tuple[int, IntArray, SparseRows]]:
    """Yield each block that has entries, the numbers of its rows, and these rows as a family."""
    block, i, j, _ = conic.places
    block, i, j = block[place], i[place], j[place]
    order = np.argsort(block, kind="stable")
    ends = np.searchsorted(block[order], np.arange(len(conic.orders) + 1))
    for b, (n, span) in enumerate(zip(conic.orders, pairwise(ends.tolist()), strict=True)):
        own = order[slice(*span)]
        if len(own):
            at, local = np.unique(row[own], return_inverse=True)
            yield b, at, SparseRows.of(len(at), n, Coordinates(local, i[own], j[own], value[own]))


# --- The readings of a program ------------------------------------------------------------------------------


def too_large(conic: Conic) -> str | None:
    """Return why no route takes a program with exponential cones, None if one does."""
    count, variables = conic.exponential, len(conic.c)
    many = count > _MOST_EXPONENTIALS or (count and variables > _MOST_VARIABLES)
    return f"it has {count} exponential cones and {variables} variables" if many else None


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
            from bregopt.cvxpy.exponential_cones import Exponential  # only these programs wait

            yield Exponential(conic)
        return
    last: _Last | None = None if cache is None else cache.get(_LAST)
    rows = needed_rows(conic, None if last is None else last.rows)
    smaller, shared = rows.conic, rows.distribution
    copies = (None if conic.log_dets else with_copies(smaller)) or Copies(smaller, None, None)
    if last is not None and last.rows.conic.has_rows_of(smaller) and last.copied.has_rows_of(copies.conic):
        last = last._replace(rows=rows)
    else:
        (m, k), pivots = copies.conic.A.shape, pivots_of(copies.conic)
        boxes = np.count_nonzero(np.diff(smaller.A.indptr)[smaller.zero : smaller.linear] == 1)
        sizes = m - boxes + k - 2 * len(pivots.rows), len(smaller.c) + smaller.zero
        last = _Last(rows, copies.conic, pivots, sizes, {})
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

    rows: NeededRows
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
