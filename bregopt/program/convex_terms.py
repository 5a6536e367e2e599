"""Convex terms of a program, in its objective or its rows, and the tangent programs that bound it.

A term is ``weight @ f(A(X) + B u + b)`` with a convex function ``f``. With its tangent at any point in its
place a program is linear in it, and easier: no point of the convex program costs less than in the tangent
program, and where a convex row holds its tangent does. So each bound on the optimum of a tangent program
bounds that of the program. At the point of the tangent both have the same value and the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, Array, IntArray
from bregopt.program.bounds import Bounds
from bregopt.program.convex_functions import ConvexFunction, Local
from bregopt.program.linear_map import LinearMap, Term
from bregopt.program.matrix_entropies import OfMatrices
from bregopt.program.program import Nearness, Program
from bregopt.program.rows import DenseRows
from bregopt.program.rows.base import Matrix
from bregopt.records import dataclass, replace

_OF_ROWS = ("Bt", "absolute_B", "column_sizes", "row_sizes", "row_units")  # properties of the rows alone
INWARD = (1e-15, 1e-12, 1e-9)  # shares of their size by which arguments move into their domain


@dataclass(frozen=True, eq=False)
class ConvexTerm:
    """``weight @ f(A(X) + B u + b)``, or its components in several rows.

    Parameters
    ----------
    function : ConvexFunction
    A : LinearMap
        Of as many rows as the function has arguments.
    B : csr_array
    b : array of shape (size,)
    weight : array of shape (count,), above 0
    rows : int array of shape (count,), optional
        The rows of the program to whose activity the components are added; these have an upper bound only.
        None for a term of the objective.
    """

    function: ConvexFunction
    A: LinearMap
    B: Any
    b: Array
    weight: Array
    rows: IntArray | None = None

    def arguments(self, X: Sequence[Matrix], u: Array) -> Array:
        """Return the arguments of the function at a point."""
        y: Array = self.A.apply(X) + self.B @ u + self.b
        return y


@dataclass(frozen=True, eq=False)
class Tangent:
    """Where a tangent program comes from.

    Parameters
    ----------
    program : Program
        The program with convex terms.
    X, u : the point of the tangent
    inward : float
        Share of their size by which arguments were moved into their domain.
    size : float
        The largest slope of a term along a matrix. Near an optimum the slopes of several terms cancel, and
        what is left is no measure of a dual residual.
    costs : array of shape (k,)
        The sum of the magnitudes of the slopes along each variable.
    terms : float
        The sum of the magnitudes of the objective's terms and of their arguments, at their weights. Where an
        argument is nearly at the end of its domain, a slope may be huge, while these are not.
    """

    program: Program
    X: tuple[Array, ...]
    u: Array
    inward: float
    size: float
    costs: Array
    terms: float = math.inf


def tangent_program(program: Program, X: Sequence[Array], u: Array, inward: float = 0.0) -> Program | None:
    """Return the program with the tangents of its convex terms at a point, None outside their domain.

    Parameters
    ----------
    program : Program
    X, u : the point
    inward : float
        Share of their size by which arguments are moved into their domain first.
    """
    costs = [block.C.copy() for block in program.blocks]
    c, offset = program.c.copy(), program.offset
    rows = _Rows(program)
    size, magnitudes, terms = 0.0, np.abs(c), 0.0
    for term in program.terms:
        y = term.arguments(X, u)
        y = term.function.moved_inside(y, inward) if inward else y
        local = term.function.at(y)
        if local is None:
            return None
        slope = local.gradient * term.weight[term.function.owner]
        size = max(size, float((np.abs(slope) * term.A.norms()).max(initial=0.0)))
        if program.k:
            magnitudes = magnitudes + abs(term.B).T @ np.abs(slope)
        if term.rows is not None:
            rows.add(term, local, slope, y)
            continue
        terms += float(term.weight @ np.abs(local.value) + term.weight[term.function.owner] @ np.abs(y))
        for b, cost in enumerate(costs):
            cost += term.A.adjoint(slope, b)
        c += term.B.T @ slope if program.k else 0.0
        offset += float(term.weight @ local.value + slope @ (term.b - y))
    found = replace(
        program,
        blocks=tuple(
            replace(block, cost=DenseRows((C + C.T)[None] / 2) if C.any() else None)
            for block, C in zip(program.blocks, costs, strict=True)
        ),
        A=rows.A(),
        B=rows.B,
        bounds=replace(program.bounds, hi=rows.hi),
        c=c,
        offset=offset,
        constant=program.stated_constant,
        terms=(),
        tangent=Tangent(
            program, tuple(np.array(X_b) for X_b in X), np.array(u), inward, size, magnitudes, terms
        ),
    )
    if found.A is program.A and found.B is program.B:  # many tangents have the same rows
        vars(found).update({name: getattr(program, name) for name in _OF_ROWS})
    return found


def tangent_inside(program: Program, X: Sequence[Any], u: Array) -> Program | None:
    """Return the tangent program at a point, or with arguments moved inside the domains of their functions.

    A matrix on a face of the cone has entropies whose slopes are infinite; nearby they are finite.
    """
    tangents = (tangent_program(program, X, u, share) for share in (0.0, *INWARD))
    return next((found for found in tangents if found is not None), None)


def with_constant_terms(program: Program) -> Program:
    """Return the program with rows in place of its terms: along its rays no argument changes."""
    if not program.terms:
        return program
    count = sum(term.function.size for term in program.terms)
    moved, start = list(program.A.terms), program.m
    for term in program.terms:
        moved += [replace(own, at=start + own.at) for own in term.A.terms]
        start += term.function.size
    zero = np.zeros(count)
    return replace(
        program,
        A=LinearMap(start, program.A.orders, tuple(moved)),
        B=sp.csr_array(sp.vstack([program.B, *(term.B for term in program.terms)])),
        bounds=program.bounds.followed_by(Bounds.of_hard_rows(zero, zero)),
        labels=(*program.labels, ("arguments of convex terms", count)) if program.labels else (),
        parameter_slopes=(),
        terms=(),
    )


def with_log_dets(program: Program) -> Program:
    """Return the program without terms, with a log-determinant of each matrix that must be definite for them.

    The two have the same infeasible rows: no matrix of finite objective is singular in either.
    """
    blocks = list(program.blocks)
    for term in program.terms:
        if isinstance(term.function, OfMatrices) and term.function.needs_definite:
            b = _matrix_of(term)
            if b is not None and blocks[b].nearness is None:
                blocks[b] = replace(blocks[b], nearness=Nearness("logdet", np.eye(blocks[b].n)))
    return replace(program, blocks=tuple(blocks), terms=())


def _matrix_of(term: ConvexTerm) -> int | None:
    """Return the block whose matrix is the one real matrix that a term is of, None for other arguments."""
    blocks, function = {own.block for own in term.A.terms}, term.function
    assert isinstance(function, OfMatrices)
    alone = len(blocks) == len(function.orders) == 1 and not term.b.any() and abs(term.B).sum() == 0
    single = sum(own.count for own in term.A.terms) == function.size  # each argument is one entry
    if function.hermitian or not (alone and single):
        return None
    (b,) = blocks
    S = np.random.default_rng(0).normal(size=(term.A.orders[b],) * 2)
    S, rest = S + S.T, [np.zeros((n, n)) for n in term.A.orders]
    rest[b] = S
    if function.orders != (len(S),):
        return None
    return b if np.allclose(function.matrices(term.A.apply(rest))[0], S, rtol=4 * EPS, atol=0.0) else None


def row_vectors(A: LinearMap, b: int) -> Any:
    """Return the symmetric matrices of rows in one block as vectors, sparse of shape ``(m, n^2)``."""
    n, parts = A.orders[b], []
    for term in A.terms_of(b):
        t = term.rows.coordinates()
        row, half = term.at[t.row], t.value / 2
        parts += [(row, t.i * n + t.j, half), (row, t.j * n + t.i, half)]
    if not parts:
        return sp.csr_array((A.m, n * n))
    row, place, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    return sp.csr_array((value, (row, place)), (A.m, n * n))


class _Rows:
    """The rows of a program, to which tangents are added."""

    def __init__(self, program: Program) -> None:
        self._map, self.B, self.hi = program.A, program.B, program.bounds.hi.copy()
        self._added: list[tuple[IntArray, list[Array]]] = []

    def add(self, term: ConvexTerm, local: Local, slope: Array, y: Array) -> None:
        """Add the tangents of a term's components to their rows."""
        assert term.rows is not None
        count, size = term.function.count, term.function.size
        G = sp.csr_array((slope, (term.function.owner, np.arange(size))), (count, size))
        np.subtract.at(self.hi, term.rows, term.weight * local.value + G @ (term.b - y))
        spread = sp.csr_array((np.ones(count), (term.rows, np.arange(count))), (len(self.hi), count))
        self.B = sp.csr_array(self.B + spread @ (G @ term.B))
        dense = G.toarray()
        stacks = [
            np.array([term.A.adjoint(row, b) for row in dense]).reshape(count, n, n)
            for b, n in enumerate(term.A.orders)
        ]
        self._added.append((term.rows, stacks))

    def A(self) -> LinearMap:
        """Return the map with the tangents; a row meets each block in one term."""
        if not self._added:
            return self._map
        terms: list[Term] = []
        for b, n in enumerate(self._map.orders):
            added = [(at, stacks[b]) for at, stacks in self._added if stacks[b].any()]
            own = self._map.terms_of(b)
            if not added:
                terms += own
                continue
            changed = np.unique(np.concatenate([at for at, _ in added]))
            total = np.zeros((len(changed), n, n))
            for at, stack in added:
                np.add.at(total, np.searchsorted(changed, at), stack)
            for term in own:
                mine = np.isin(term.at, changed)
                for k in np.flatnonzero(mine):
                    total[np.searchsorted(changed, term.at[k])] += term.rows.slice(np.array([k])).adjoint(
                        np.ones(1)
                    )
                kept = np.flatnonzero(~mine)
                if len(kept):
                    terms.append(Term(b, term.at[kept], term.rows.slice(kept)))
            terms.append(Term(b, changed, DenseRows((total + total.transpose(0, 2, 1)) / 2)))
        return LinearMap(self._map.m, self._map.orders, tuple(terms))
