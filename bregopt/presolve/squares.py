"""Norms that are squared distances, and squared distances as soft rows.

- A *norm* is the axis ``t`` of a second-order cone: minimize ``w t`` under ``t >= ||v||``, with a row
  ``e_k x + f_k v_k = a_k`` for each element, where ``x`` is an entry of ``svec(X)``. If these rows hold most
  entries of one matrix, then ``||v||^2 = s ||H o (X - X0)||_F^2 + r`` with numbers ``s`` and ``r``, and
  weights ``H`` if the ``(e_k / f_k)^2`` differ. The square has the same minimizers. It is one divergence
  without rows, where the cone has a variable and a row for each entry. In all other rows the elements are
  substituted.
- A *squared distance* beside matrices without a divergence, or variables, becomes a soft row for each entry,
  so that methods for linear objectives take it.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, Array, IntArray, scattered
from bregopt.divergences import psd_part
from bregopt.presolve import Reduced, Tolerances, with_multipliers
from bregopt.presolve.svec import Svec, sparse_svec, svec, svec_map
from bregopt.program import (
    NO_CONES,
    Answer,
    Bounds,
    LinearMap,
    Nearness,
    Penalty,
    Program,
    Start,
    StopReason,
    Term,
)
from bregopt.program.rows import Entries
from bregopt.records import dataclass, replace

_EQUAL = 64 * EPS  # relative difference of two numbers that are equal up to round-off
_MOST_ENTRIES = 0.5  # of all entries: a norm of fewer is a cone with fewer rows


# --- Norms ----------------------------------------------------------------------------------------------


class Elements(NamedTuple):
    """The elements ``v`` of a norm, one for each variable of the cone but its axis.

    Parameters
    ----------
    row, place : int array
        The row of each, and the entry of ``svec(X)`` in it.
    entry, own, right : array
        The coefficients of the entry, which is zero for a constant element, and of the element; the
        right-hand side.
    """

    row: IntArray
    place: IntArray
    entry: Array
    own: Array
    right: Array


@dataclass(frozen=True, eq=False)
class Squared(Reduced):
    """A program with the square of its norm.

    Parameters
    ----------
    elements : Elements
    scale : float
        The number ``s``.
    X0, H : array of shape (n, n)
        `H` is None for equal weights.
    left : int array
        The rows of no element.
    """

    elements: Elements
    scale: float
    X0: Array
    H: Array | None
    left: IntArray
    rescales: ClassVar[bool] = True

    @property
    def summary(self) -> str:
        return "the square of the norm"

    def shrink(self, start: Start) -> Start:
        slope = self._slope(float(start.u[self.whole.cones.axes[0]]))
        return replace(start, u=np.zeros(0), y=start.y[self.left] / (slope or 1.0))

    def restore(self, answer: Answer) -> Answer:
        if answer.stop is StopReason.INFEASIBLE:
            y = self._with_elements(answer.y, np.zeros(len(self.elements.row)))
            return Answer.without_point(self.whole, y, answer.stop, answer.iterations)
        u, cones = np.zeros(self.whole.k), self.whole.cones
        v = self._at(np.asarray(answer.X[0]))
        u[cones.index[1:]], u[cones.axes[0]] = v, np.linalg.norm(v)
        S = None if answer.S is None else answer.S[0]
        return with_multipliers(answer, lambda own: self._multipliers(own, S), u=u, S=None)

    def _slope(self, norm: float) -> float:
        """Return the change of the objective with that of ``||X - X0||^2``; zero at a norm of zero."""
        price = float(self.whole.c[self.whole.cones.axes[0]])
        return price * self.scale / (2 * norm) if norm else 0.0

    def _at(self, X: Array) -> Array:
        """Return the elements at a matrix."""
        e = self.elements
        return (e.right - e.entry * svec(X[None])[0][e.place]) / e.own

    def _multipliers(self, own: Array, S: Array | None) -> Array:
        """Return multipliers of all rows from those of the square; zero where the norm is zero."""
        half = self.program.A.adjoint(own) / 2
        if self.H is None or S is None:
            X = psd_part(self.X0 + half)
        else:
            squares = np.where(self.H > 0, self.H, 1.0) ** 2
            X = self.X0 + (half + S / 2) / squares
        v = self._at(X)
        norm, price = float(np.linalg.norm(v)), float(self.whole.c[self.whole.cones.axes[0]])
        return self._with_elements(self._slope(norm) * own, price * v / (norm or 1.0))

    def _with_elements(self, own: Array, negative: Array) -> Array:
        """Return multipliers of all rows, at the negatives of the elements' reduced costs."""
        y = scattered(self.left, own, self.whole.m)
        in_others = (self.whole.Bt @ y)[self.whole.cones.index[1:]]
        y[self.elements.row] = (negative - in_others) / self.elements.own
        return y


# Pays on: nearest correlation matrix by its norm.
def least_norm(program: Program, tolerances: Tolerances) -> Squared | None:
    """Replace the norm of a matrix minus a constant, as the objective, by its square."""
    if not _has_norm(program):
        return None
    rows = sparse_svec(program.A)
    elements = _elements_of(program, rows)
    if elements is None:
        return None
    slope, count = elements.entry / elements.own, rows.shape[1]
    weight = np.bincount(elements.place, slope**2, count)
    if np.count_nonzero(weight) <= _MOST_ENTRIES * count:
        return None
    nearest = np.bincount(elements.place, slope * elements.right / elements.own, count)
    nearest = np.divide(nearest, weight, out=np.zeros(count), where=weight > 0)
    scale, lengths = float(weight.max()), svec(np.ones(2 * program.A.orders))
    vectors = np.array([nearest, lengths * np.sqrt(weight / scale)])
    X0, H = Svec(program.A.orders, 0).points(vectors)[0][0]
    uniform = weight.min() >= (1 - _EQUAL) * scale
    parameters = {} if uniform else {"weights": H}
    left = np.setdiff1d(np.arange(program.m), elements.row)
    in_left = sp.csr_array(program.B[left][:, program.cones.index[1:]])
    A, bounds = program.A.slice(left), program.bounds.slice(left)
    if in_left.nnz:
        per_element = sp.csr_array(in_left @ sp.diags_array(1 / elements.own))
        moved = per_element @ elements.right
        A = svec_map(A.orders, sp.csr_array(rows[left] - per_element @ rows[elements.row]))
        bounds = replace(bounds, lo=bounds.lo - moved, hi=bounds.hi - moved)
    nearness = Nearness("frobenius", X0, parameters=parameters)
    squared = replace(
        program.of_variables(np.zeros(0, dtype=np.intp)),
        blocks=(replace(program.blocks[0], cost=None, nearness=nearness),),
        A=A,
        B=sp.csr_array((len(left), 0)),
        bounds=bounds,
        cones=NO_CONES,
        offset=0.0,
        constant=None,
        labels=program.labels_of(left),
    )
    return Squared(program, squared, elements, scale, X0, None if uniform else H, left)


def _has_norm(program: Program) -> bool:
    """Whether the axis of a cone of all variables is the objective of a program of one matrix."""
    cones = program.cones
    if cones.count != 1 or cones.size != program.k or len(program.blocks) != 1 or program.terms:
        return False
    block, axis, tail = program.blocks[0], cones.axes[0], cones.index[1:]
    if block.nearness is not None or block.cap is not None or block.cost is not None:
        return False
    boxed = np.isfinite(program.u_hi).any() or np.isfinite(program.u_lo[tail]).any()
    return bool(program.c[axis] > 0) and not (boxed or program.u_lo[axis] > 0 or program.c[tail].any())


def _elements_of(program: Program, rows: Any) -> Elements | None:
    """Return the elements of the norm, each with a row that says what it is; None without such.

    A row with an entry goes before one that says a constant.
    """
    tail, bounds, B = program.cones.index[1:], program.bounds, program.B
    count = np.diff(rows.indptr)
    single = (np.diff(B.indptr) == 1) & (count <= 1) & bounds.equal & bounds.hard
    own = np.flatnonzero(single)
    own = own[np.argsort(-count[own], kind="stable")]
    column, first = np.unique(B.indices[B.indptr[own]], return_index=True)
    if not np.array_equal(column, np.sort(tail)) or B[:, [int(program.cones.axes[0])]].count_nonzero():
        return None
    row = own[first][np.searchsorted(column, tail)]
    coefficient, held = B.data[B.indptr[row]], count[row] > 0
    if not coefficient.all():
        return None
    place, entry = np.zeros(len(row), dtype=np.intp), np.zeros(len(row))
    at = rows.indptr[row[held]]
    place[held], entry[held] = rows.indices[at], rows.data[at]
    return Elements(row, place, entry, coefficient, bounds.lo[row])


# --- Squared distances as soft rows ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WithSquares(Reduced):
    """A program with soft rows in place of squared distances; they follow its own rows."""

    rescales: ClassVar[bool] = True  # gaps of squared distances have a scale of their own

    @property
    def summary(self) -> str:
        return "squared distances as soft rows"

    def shrink(self, start: Start) -> Start:
        return replace(start, y=np.pad(start.y, (0, self.program.m - self.whole.m)), S=None)

    def restore(self, answer: Answer) -> Answer:
        return with_multipliers(answer, lambda y: y[: self.whole.m], S=None)


def squares_as_rows(program: Program, tolerances: Tolerances) -> WithSquares:
    """Replace squared distances beside matrices without a divergence, or variables, by soft rows."""
    posed = program
    for b, block in enumerate(program.blocks):
        if block.nearness is not None:
            price = np.full((block.n, block.n), block.nearness.mu)
            posed = with_squares(posed, b, price, np.asarray(block.nearness.X0))
    return WithSquares(program, posed)


def with_squares(program: Program, b: int, price: Array, target: Array) -> Program:
    """Return the program with soft rows of entries that have a price in place of a block's divergence."""
    n, m = program.blocks[b].n, program.m
    i, j = np.nonzero(np.triu(price > 0))
    at, kind = np.arange(m, m + len(i)), np.full(len(i), int(Penalty.SQUARE))
    gamma = price[i, j] * np.where(i == j, 1.0, 2.0)
    entries = Term(b, at, Entries(n, i, j, np.ones(len(i))))
    return replace(
        program,
        blocks=tuple(
            replace(own, nearness=None) if place == b else own for place, own in enumerate(program.blocks)
        ),
        A=LinearMap(m + len(i), program.A.orders, (*program.A.terms, entries)),
        B=sp.csr_array(sp.vstack([program.B, sp.csr_array((len(i), program.k))])),
        bounds=program.bounds.followed_by(Bounds(target[i, j], target[i, j], kind, gamma)),
        labels=(),
    )
