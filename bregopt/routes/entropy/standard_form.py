"""A program in real coordinates, with all its curvature in terms: the form that the method solves.

    minimize    c'x + sum_t w_t f_t(L_t x + b_t)
    subject to  E x = e,   G x + (terms of rows) <= h,   matrices psd,   vectors in second-order cones

The coordinates ``x`` are the vectors of the matrices, then the ordinary variables. The real form
``[Re X, -Im X; Im X, Re X]`` of a Hermitian matrix of order ``n`` has the ``n^2`` coordinates of that matrix;
it is recognized by its data, which all have the form. Divergences of matrices and smooth penalties of rows
become terms, too, and a hinge becomes two variables that take up what its row lacks, at its price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import qr

from bregopt.arrays import Array, IntArray
from bregopt.linalg import lean
from bregopt.presolve.faces import OnFaces
from bregopt.program import Bounds, Face, LinearMap, Penalty, Program
from bregopt.program.convex_functions import (
    ConvexFunction,
    Local,
    Logarithm,
    NegativeEntropy,
    NumbersRelativeEntropy,
    SquaredDistance,
    entries_of,
    hmat,
    hvec,
    hvec_length,
)
from bregopt.program.convex_terms import ConvexTerm, row_vectors
from bregopt.program.linear_map import Term as LinearTerm
from bregopt.program.matrix_entropies import EntropySum, LogDeterminant, on_ranges
from bregopt.program.rows import DenseRows
from bregopt.records import dataclass, replace

_NONE = np.zeros(0, dtype=np.intp)
_HERMITIAN = 1e-14  # of the squared norm of a row: it has the form of a Hermitian matrix up to this
_DEPENDENT = 1e-11  # size of an equality, relative to the largest, that depends on the others
_INDEPENDENT = 1e-6  # least eigenvalue of the products of rows of length one that are surely independent
_VANISHES = 1e-10  # size of a row on a face, relative to its own, that is round-off
# Part of the entries, and their number: a map with more of them, or no more, is stored dense. For a small one
# the calls for sparse products take longer than the products.
_DENSE, _SMALL = 0.1, 40_000


@dataclass(frozen=True, eq=False)
class Matrices:
    """The coordinates of one matrix.

    Parameters
    ----------
    n : int
        The order of the symmetric or Hermitian matrix, that of ``M`` on a face ``X = V M V*``.
    hermitian : bool
    place : slice
    entries : csr_array
        The entries of the program's block as a linear map of the coordinates.
    """

    n: int
    hermitian: bool
    place: slice
    entries: Any

    @classmethod
    def of(cls, n: int, hermitian: bool, start: int, face: Face | None) -> Matrices:
        """Return the coordinates, from `start` on, of a matrix of order `n`, or on a face of the cone."""
        entries = entries_of(n, hermitian)
        if face is not None and face.codimension:
            V: Any = face.basis
            if hermitian:  # columns in pairs v, J v, which are v and i v
                V = np.linalg.svd(V[:n] + 1j * V[n:], full_matrices=False)[0][:, : face.order // 2]
            units = hmat(np.eye(hvec_length(V.shape[1], hermitian)), V.shape[1], hermitian)
            entries = sp.csr_array(entries @ hvec(V @ units @ V.conj().T).T)
            n = V.shape[1]
        return cls(n, hermitian, slice(start, start + hvec_length(n, hermitian)), entries)

    @property
    def copies(self) -> int:
        """How often each eigenvalue occurs in the program's block."""
        return 2 if self.hermitian else 1

    @property
    def identity(self) -> Array:
        """The coordinates of the identity."""
        return hvec(np.eye(self.n, dtype=complex if self.hermitian else float))

    def matrix_of(self, own: Array) -> Any:
        """Return the symmetric or Hermitian matrix of its own coordinates."""
        return hmat(own, self.n, self.hermitian)

    def forms(self, rows: Array) -> Array:
        """Return the matrices, in real form, whose inner products with ``M`` in real form are given rows."""
        S = hmat(rows[:, self.place], self.n, self.hermitian)
        return np.block([[S.real, -S.imag], [S.imag, S.real]]) / 2 if self.hermitian else np.asarray(S)

    def block(self, x: Array) -> Array:
        """Return the program's block."""
        flat: Array = self.entries @ x[self.place]
        order = math.isqrt(len(flat))
        return flat.reshape(order, order)


@dataclass(frozen=True, eq=False)
class Term:
    """``weight @ f(L x + b)``, in the objective or in inequalities.

    Parameters
    ----------
    function : ConvexFunction
    L : array or csr_array of shape (size, width)
    b : array of shape (size,)
    weight : array of shape (count,)
    place : int array of shape (count,), optional
        The inequalities that the components are added to; None for the objective.
    soft : int array of shape (count,), optional
        The soft rows whose penalties they are.
    """

    function: ConvexFunction
    L: Any
    b: Array
    weight: Array
    place: IntArray | None = None
    soft: IntArray | None = None

    def arguments(self, x: Array) -> Array:
        """Return the function's arguments at a point."""
        return self.L @ x + self.b


def locals_at(terms: Sequence[Term], points: Sequence[Array]) -> list[Local] | None:
    """Return the functions of terms at their arguments, None outside a domain."""
    found = [term.function.at(y) for term, y in zip(terms, points, strict=True)]
    return None if any(own is None for own in found) else [own for own in found if own is not None]


def paid(terms: Sequence[Term], locals_: Sequence[Local], count: int) -> Array:
    """Return what terms add to `count` rows."""
    total = np.zeros(count)
    for term, local in zip(terms, locals_, strict=True):
        if term.place is not None:
            np.add.at(total, term.place, term.weight * local.value)
    return total


def normals(terms: Sequence[Term], locals_: Sequence[Local], rows: Any) -> Any:
    """Return the derivatives of `rows` with terms added, shape ``(count, width)``."""
    for term, local in zip(terms, locals_, strict=True):
        if term.place is not None:
            owner, size = term.function.owner, term.function.size
            at = (term.place[owner], np.arange(size))
            slope = sp.csr_array((local.gradient * term.weight[owner], at), (rows.shape[0], size))
            rows = rows + slope @ sp.csr_array(term.L)
    return sp.csr_array(rows)


class StandardForm:
    """A program in the form of the method.

    Parameters
    ----------
    program : Program
    faces : OnFaces, optional
        The faces that its rows hold the matrices on, and the rows that are left there.

    Attributes
    ----------
    faces : sequence of Face, optional
    blocks : list of Matrices
    cones : list of int arrays
        The coordinates of each vector in a second-order cone, its axis first.
    width : int
    c, E, e, G, h
    above : int array
        The program's rows of the first inequalities, those with upper bounds.
    terms : list of Term
    zeros : array of shape (3, count)
        Numbers of variables that rows fix at zero, of these rows, and the coefficients there. Entropies of
        zero have no slope, so they are left out.
    """

    def __init__(self, program: Program, faces: OnFaces | None = None) -> None:
        self.program, whole = program, program
        program = _without_hinges(program)
        self._own_variables, self._on_faces = whole.k, faces
        self.faces = None if faces is None else faces.program.faces
        self.blocks: list[Matrices] = []
        start = 0
        for b, block in enumerate(program.blocks):
            hermitian = _is_hermitian(program, b)
            n = block.n // 2 if hermitian else block.n
            own = Matrices.of(n, hermitian, start, None if self.faces is None else self.faces[b])
            self.blocks.append(own)
            start = own.place.stop
        self.variables = slice(start, start + program.k)
        self.width = start + program.k
        cones, ends = program.cones, np.cumsum(program.cones.dimensions)
        self.cones = [start + own for own in np.split(cones.index, ends[:-1])] if cones.count else []
        costs = [np.ravel(b.C) @ own.entries for b, own in zip(program.blocks, self.blocks, strict=True)]
        self.c = np.concatenate([*costs, program.c])
        R = self.rows(program.A, program.B)
        number = self._read_rows(program, R)
        self.terms = [self._term(term, number) for term in program.terms]
        self.terms += self._divergences(program)
        self.terms += self._penalties(program, R)

    def point(self, x: Array) -> tuple[list[Array], Array]:
        """Return the program's matrices and variables."""
        return [own.block(x) for own in self.blocks], x[self.variables][: self._own_variables]

    def multipliers(self, nu: Array, lam: Array, locals_: Sequence[Local | None]) -> Array:
        """Return the multipliers of the program's rows, positive at lower bounds."""
        y = np.zeros(self.program.m)
        y[self._equal] = nu / self._norms
        a, b = len(self.above), len(self._below)
        y[self.above] -= lam[:a]
        y[self._below] += lam[a : a + b]
        for term, local in zip(self.terms, locals_, strict=True):
            if term.soft is not None and local is not None:
                y[term.soft] = -term.weight * local.gradient
        return y

    def program_on_faces(self) -> Program:
        """Return the program of the matrices ``M`` with ``X = V M V*``, and of independent rows.

        Raises
        ------
        ValueError
            If rows have penalties, or matrices divergences.
        """
        program, m, hard = self.program, len(self.above) + len(self._below), self.program.bounds.hard
        if not hard.all() or any(program.divergences):
            raise ValueError("the program has penalties or divergences; expected hard rows and convex terms")
        rows = sp.csr_array(sp.vstack([sp.csr_array(self.E), sp.csr_array(self.G)[:m]]))
        lower = np.concatenate([self.e, np.full(m, -np.inf)])
        return replace(
            program,
            blocks=tuple(
                replace(block, n=own.copies * own.n, face=None, cost=DenseRows(own.forms(self.c[None])))
                for block, own in zip(program.blocks, self.blocks, strict=True)
            ),
            A=self._map_of(rows),
            B=sp.csr_array(rows[:, self.variables]),
            bounds=Bounds.of_hard_rows(lower, np.concatenate([self.e, self.h[:m]])),
            c=self.c[self.variables],
            terms=tuple(self._stated(term) for term in self.terms),
            labels=(),
            parameter_slopes=(),
        )

    def _map_of(self, rows: Any) -> LinearMap:
        """Return the parts of rows in the matrices."""
        at, dense = np.arange(rows.shape[0]), rows.toarray() if sp.issparse(rows) else rows
        parts = [LinearTerm(b, at, DenseRows(own.forms(dense))) for b, own in enumerate(self.blocks)]
        return LinearMap(len(at), tuple(own.copies * own.n for own in self.blocks), tuple(parts))

    def _stated(self, term: Term) -> ConvexTerm:
        rows = None if term.place is None else len(self.e) + term.place
        B = sp.csr_array(term.L[:, self.variables])
        return ConvexTerm(term.function, self._map_of(term.L), B, term.b, term.weight, rows)

    def priced(self, y: Array, tangent: Program) -> Array:
        """Return multipliers with those of rows that fix a number at zero, from its cost in a program."""
        variable, row = self.zeros[:2].astype(np.intp)
        if not len(row):
            return y
        own = y.copy()
        own[row] = 0.0
        own[row] = (tangent.c - tangent.B.T @ own)[variable] / self.zeros[2]
        return own

    def _read_rows(self, program: Program, R: Any) -> IntArray:
        """Split the rows into independent equalities and inequalities; return the numbers of upper bounds."""
        bounds, u = program.bounds, self.variables
        equal = np.flatnonzero(bounds.equal)
        if self._on_faces is not None:
            equal = np.intersect1d(equal, self._on_faces.kept)
        above = np.flatnonzero(bounds.hard & np.isfinite(bounds.hi) & ~bounds.equal)
        below = np.flatnonzero(bounds.hard & np.isfinite(bounds.lo) & ~bounds.equal)
        high, low = np.flatnonzero(np.isfinite(program.u_hi)), np.flatnonzero(np.isfinite(program.u_lo))
        equalities = R[equal]
        single = _single_zeros(equalities, bounds.lo[equal])
        fixed = {int(column): (int(equal[k]), value) for k, column, value in single if column >= u.start}
        self.zeros = np.array([(j - u.start, *own) for j, own in fixed.items()]).reshape(-1, 3).T
        zeros = self._zeros = np.isin(np.arange(self.width), list(fixed))
        if len(single):
            sizes = abs(R)
            moves = (sizes @ ~zeros > 0) | (sizes @ zeros == 0)  # rows of numbers that are zero have no slack
            moves[np.concatenate([_NONE, *(t.rows for t in program.terms if t.rows is not None)])] = True
            above, below = above[moves[above]], below[moves[below]]
            high, low = (own[~zeros[u][own]] for own in (high, low))
        single = sp.eye_array(self.width, format="csr")[u]
        self.above, self._below = above, below
        G = sp.csr_array(sp.vstack([R[above], -R[below], single[high], -single[low]]))
        # Without matrices Newton's equations may be diagonal, which dense rows would hide.
        self.G: Any = lean(G) if self.blocks or not G.shape[0] else G
        self.h = np.concatenate([bounds.hi[above], -bounds.lo[below], program.u_hi[high], -program.u_lo[low]])
        E, e = equalities.toarray(), bounds.lo[equal]
        norms = np.linalg.norm(E, axis=1)
        E[norms <= _VANISHES * program.row_sizes[equal]] = 0.0  # round-off, on a face
        norms = np.where(norms > 0, norms, 1.0)
        E, e = E / norms[:, None], e / norms
        kept = _independent(E)
        self._equal, self._norms = equal[kept], norms[kept]
        self.E, self.e = (E, e) if len(kept) == len(E) else (E[kept], e[kept])
        number = np.full(program.m, -1)
        number[above] = np.arange(len(above))
        return number

    def _term(self, term: Any, number: IntArray) -> Term:
        place = None if term.rows is None else number[term.rows]
        function, L, b = term.function, self.rows(term.A, term.B), term.b
        reduced = on_ranges(function, partial(_samples, L, b)) if self._on_faces is not None else None
        if reduced is not None:
            function, S = reduced
            L, b = sp.csr_array(S @ L), S @ b
        weight = term.weight
        if self._zeros.any() and isinstance(function, NegativeEntropy | NumbersRelativeEntropy):
            first = slice(0, function.count)
            moves = abs(L[first]) @ ~self._zeros > 0
            kept = np.flatnonzero(moves | (b[first] != 0))  # of the others, the functions are zero
            own = kept if function.size == function.count else np.append(kept, function.count + kept)
            function, L, b, weight = replace(function, count=len(kept)), L[own], b[own], weight[kept]
            place = None if place is None else place[kept]
        count = function.count
        fixed = isinstance(function, NumbersRelativeEntropy) and not abs(L[count:]).sum()
        if place is None and fixed and (b[count:] > 0).all():
            self.c = self.c - L[:count].T @ (weight * np.log(b[count:]))  # x log x, and a linear part
            function, L, b = NegativeEntropy(count), L[:count], b[:count]
        return Term(function, _stored(L), b, weight, place)

    def _divergences(self, program: Program) -> list[Term]:
        """Return the divergences of matrices as terms; their linear parts are added to the costs."""
        terms: list[Term] = []
        for block, own in zip(program.blocks, self.blocks, strict=True):
            if block.nearness is None:
                continue
            near, length = block.nearness, own.place.stop - own.place.start
            mu = np.full(1, near.mu * own.copies)
            L = sp.eye_array(self.width, format="csr")[own.place]
            X0 = hmat(own.entries.T @ np.ravel(np.asarray(near.X0)) / own.copies, own.n, own.hermitian)
            if near.divergence == "frobenius":
                square = SquaredDistance(hvec(X0), hvec(X0))
                terms.append(Term(square, L, np.zeros(length), np.full(length, mu[0])))
                continue
            d, U = np.linalg.eigh(X0)
            slope = np.log(d) + 1 if near.divergence == "von_neumann" else -1 / d
            self.c[own.place] -= mu[0] * hvec((U * slope) @ U.conj().T)
            function: ConvexFunction = (
                EntropySum((own.n,), (1.0,), own.hermitian)
                if near.divergence == "von_neumann"
                else LogDeterminant((own.n,), own.hermitian)
            )
            terms.append(Term(function, L, np.zeros(length), mu))
        return terms

    def _penalties(self, program: Program, R: Any) -> list[Term]:
        """Return squared and logarithmic penalties of rows as terms."""
        bounds = program.bounds
        terms: list[Term] = []
        for kind in (Penalty.SQUARE, Penalty.LOG):
            rows = np.flatnonzero(bounds.kind == int(kind))
            if not len(rows):
                continue
            lo, hi = bounds.lo[rows], bounds.hi[rows]
            square = kind is Penalty.SQUARE
            function: ConvexFunction = SquaredDistance(lo, hi) if square else Logarithm(len(rows))
            b = np.zeros(len(rows)) if square else -lo
            terms.append(Term(function, _stored(R[rows]), b, bounds.gamma[rows], None, rows))
        return terms

    def rows(self, A: LinearMap, B: Any) -> Any:
        """Return rows as a sparse matrix of shape ``(m, width)``."""
        parts = [row_vectors(A, b) @ own.entries for b, own in enumerate(self.blocks)]
        if not parts:
            return sp.csr_array(B)
        return sp.csr_array(sp.hstack([*parts, sp.csr_array(B)], format="csr"))


def _single_zeros(R: Any, e: Array) -> list[tuple[int, int, float]]:
    """Return the equalities that fix one coordinate at zero, with that coordinate and its coefficient."""
    R.eliminate_zeros()
    alone = np.flatnonzero((np.diff(R.indptr) == 1) & (e == 0))
    first = R.indptr[alone]
    return list(zip(alone, R.indices[first], R.data[first], strict=True))


def _samples(L: Any, b: Array) -> Array:
    """Return generic arguments."""
    rng = np.random.default_rng(0)
    return np.array([L @ rng.standard_normal(L.shape[1]) + rng.standard_normal() * b for _ in range(3)])


def _without_hinges(program: Program) -> Program:
    """Return a program with two variables in place of the hinge of each row: what it lacks on either side."""
    rows = np.flatnonzero(program.bounds.kind == int(Penalty.HINGE))
    if not len(rows):
        return program
    bounds, count = program.bounds, len(rows)
    at = np.arange(2 * count)
    signs, price = np.repeat([1.0, -1.0], count), np.tile(bounds.gamma[rows], 2)
    more = sp.csr_array((signs, (np.tile(rows, 2), at)), (program.m, 2 * count))
    kind, gamma = bounds.kind.copy(), bounds.gamma.copy()
    kind[rows], gamma[rows] = int(Penalty.HARD), np.inf
    none = sp.csr_array
    return replace(
        program,
        B=sp.csr_array(sp.hstack([program.B, more], format="csr")),
        bounds=replace(bounds, kind=kind, gamma=gamma),
        c=np.concatenate([program.c, price]),
        u_lo=np.concatenate([program.u_lo, np.zeros(2 * count)]),
        u_hi=np.concatenate([program.u_hi, np.full(2 * count, np.inf)]),
        terms=tuple(
            replace(t, B=sp.csr_array(sp.hstack([t.B, none((t.function.size, 2 * count))], format="csr")))
            for t in program.terms
        ),
    )


def _is_hermitian(program: Program, b: int) -> bool:
    """Whether the cost and all rows of a block have the real form of Hermitian matrices."""
    block = program.blocks[b]
    if block.n % 2:
        return False
    R = entries_of(block.n // 2, True)
    costs = [block.C] if block.nearness is None else [block.C, np.asarray(block.nearness.X0)]
    tables = [sp.csr_array(np.array([np.ravel(C) for C in costs]))]
    tables += [row_vectors(program.A, b), *(row_vectors(term.A, b) for term in program.terms)]
    return any(table.nnz for table in tables) and all(_within(table, R) for table in tables)


def _within(table: Any, R: Any) -> bool:
    """Whether symmetric matrices, as vectors, are in the range of a map that is a multiple of an isometry."""
    whole, own = table.multiply(table).sum(axis=1), (table @ R).power(2).sum(axis=1) / 2
    return bool((whole - own <= _HERMITIAN * whole).all())


def _stored(L: Any) -> Any:
    size = L.shape[0] * L.shape[1]
    return L.toarray() if size <= _SMALL or L.nnz > _DENSE * size else sp.csr_array(L)


def _independent(E: Array) -> IntArray:
    """Return the numbers of independent rows of length one, by a pivoted QR factorization."""
    if not len(E):
        return np.zeros(0, dtype=np.intp)
    # A QR factorization of long rows takes eight times as long.
    if len(E) < E.shape[1] and np.linalg.eigvalsh(E @ E.T)[0] > _INDEPENDENT:
        return np.arange(len(E))
    R, pivots = qr(E.T, mode="r", pivoting=True, check_finite=False)
    d = np.abs(np.diagonal(R))
    rank = int((d > _DEPENDENT * d[0]).sum()) if len(d) and d[0] > 0 else 0
    return np.sort(pivots[:rank])
