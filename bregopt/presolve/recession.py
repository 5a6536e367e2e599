"""Directions in which ``X`` grows at no cost, and facial reduction of the dual.

A psd ``D`` with ``A(D) + B d = 0`` and ``<C, D> + c'd = 0`` changes neither rows nor objective, so the set of
optima is unbounded, or the optimum is not attained. For all multipliers ``<Z, D> = 0``, hence ``Z D = 0``
wherever ``Z = C - A*(y)`` is psd: no ``Z`` is definite. A matrix that grows without bound shows such a ``D``
to a few digits. It is a psd combination of a basis of the directions that change nothing, as exposing vectors
are of rows (:mod:`bregopt.presolve.revealed_faces`).

**The face.** With ``U`` the range of ``D`` and ``V`` its null space, a ``Z`` of the dual is on the face
``V S V'``, and ``Z U = 0`` are linear equations in ``y``. Their multipliers are the entries of ``X`` between
``V`` and ``U``, and those in ``U``: free variables, as a multiple of ``D`` makes every ``X`` psd whose
``V'XV`` is definite. Along free variables some rows may change to their safe side, at no cost. Then their
multipliers are zero, and they are left out. The program that remains may have such a direction again. The
last one has interiors on both sides, and its multipliers are those of the program (Borwein, Wolkowicz 1981;
Drusvyatskiy, Wolkowicz 2017, The many faces of degeneracy in conic optimization).

**The matrix.** With a small price on ``U'XU`` the multipliers have an interior, and the path ends at an ``X``
that is no larger than the program asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask, scattered
from bregopt.linalg import null_space
from bregopt.presolve import with_multipliers
from bregopt.presolve.svec import Svec, svec, svec_rows
from bregopt.program import Answer, Bounds, Face, Program
from bregopt.program.rows import DenseRows
from bregopt.records import dataclass, replace

# Singular values of rows, of norm one, that count as zero.
_RECEDING_RANK = 1e-11
# Part of a large X along directions that change neither rows nor objective, from which one is sought.
_ALONG = 0.99
# Entries of the dense matrices of all directions above which none is sought: the search takes a tenth of a
# second, as even good answers are searched that are large.
_LARGEST_RECEDING = 200_000
# The same after a stall, where the search costs less than the steps before it.
_LARGEST_AFTER_STALL = 5_000_000
# Size of a block, relative to the largest, up to which it is fixed where the search of all is too large.
_FIXED = 1e-3
# Entries of the dense rows of all blocks, relative to that limit, above which no large ones are searched.
_ALL_ROWS = 4
# Products of a row with directions, relative to the norm of the row, that are round-off.
_PRODUCT_NOISE = 1e-13
# Least ratio of successive eigenvalues that may separate those which grow.
_LEAST_RATIO = 10.0
# Parts of the range of a direction that may be errors.
_RANGE_NOISE = 1e-6
# Singular values of the coefficients that other variables do not have, relative to those of all.
_CORNER_RANK = 1e-9


@dataclass(frozen=True, eq=False)
class Recession:
    """The range of a direction ``D`` that changes neither rows nor objective.

    Parameters
    ----------
    program : Program
    U : tuple of arrays of shape (n_b, r_b)
        Orthonormal bases of the range of ``D`` in each block.
    vector : array
        ``D`` and ``d`` as one vector.
    """

    program: Program
    U: tuple[Array, ...]
    vector: Array

    @property
    def direction(self) -> tuple[tuple[Array, ...], Array]:
        """``D``, without parts outside its range, and ``d``."""
        stacks, u = Svec.of(self.program).points(self.vector[None])
        D = [U @ (U.T @ stack[0] @ U) @ U.T for stack, U in zip(stacks, self.U, strict=True)]
        return tuple((D_b + D_b.T) / 2 for D_b in D), u[0]

    @property
    def rank(self) -> int:
        """The rank of ``D``."""
        return sum(U.shape[1] for U in self.U)

    def multipliers(self, y: Array) -> Array:
        """Return the nearest multipliers, of rows of norm one, with ``Z U = 0`` and free variables priced.

        Only these may have a psd ``Z``.
        """
        program = self.program
        used = program.row_sizes > 0  # a row without coefficients has no price
        units = (np.eye(program.m) / np.where(used, program.row_sizes, 1.0)[:, None])[used]
        costs = [(block.C @ U).ravel() for block, U in zip(program.blocks, self.U, strict=True)]
        right = np.concatenate([*costs, program.c[program.free]])
        equations = np.array([self._on_range(unit) for unit in units]).T
        left = right - self._on_range(y)
        return y + np.linalg.lstsq(equations, left, rcond=_RECEDING_RANK)[0] @ units

    def _on_range(self, y: Array) -> Array:
        """Return ``A*(y) U`` and ``B'y`` of the free variables, as a vector."""
        program = self.program
        parts = [(program.A.adjoint(y, b) @ U).ravel() for b, U in enumerate(self.U)]
        return np.concatenate([*parts, (program.Bt @ y)[program.free]])


def recession(program: Program, X: Sequence[Array], largest: float = _LARGEST_RECEDING) -> Recession | None:
    """Return the direction, near large matrices, that changes neither rows nor objective, None without one.

    Only free variables change with it, and no slack of a row does.

    Parameters
    ----------
    program : Program
        With linear objective.
    X : sequence of arrays of shape (n_b, n_b)
    largest : float
        Entries of the dense matrices of all directions above which none is sought.
    """
    if not all(np.isfinite(X_b).all() for X_b in X):
        return None
    vectors = Svec.of(program)
    moves = _moving(program, X, largest)
    if not moves.any():
        return None
    rows = _rows_and_costs(program)
    own = np.repeat(moves, [n * (n + 1) // 2 for n in vectors.orders])
    matrices = int(own.sum())
    kept = np.concatenate([own, program.free])
    fixed = rows[:, kept]
    sizes = np.linalg.norm(fixed, axis=1)
    unchanged = null_space(fixed[sizes > 0] / sizes[sizes > 0, None], _RECEDING_RANK)
    # Their matrices: the rows of an orthonormal basis.
    _, s, Q = np.linalg.svd(unchanged[:, :matrices], full_matrices=False)
    basis = Q[s > _RECEDING_RANK]
    directions = np.zeros((len(basis), len(own)))
    directions[:, own] = basis
    point = np.concatenate([svec(X_b) for X_b in X])
    w = directions @ point
    if np.linalg.norm(w) <= _ALONG * np.linalg.norm(point):
        return None
    from bregopt.presolve.revealed_faces import Equalities  # only answers that diverge wait

    stacks, _ = Svec(vectors.orders, 0).points(directions)
    found = Equalities(stacks, np.zeros(len(directions))).exposing(w)
    if found is None:
        return _of_integers(program, rows, X)
    # The combination of directions that change nothing with these matrices.
    weights = np.linalg.lstsq(unchanged[:, :matrices].T, found.w @ basis, rcond=None)[0]
    whole = np.zeros(len(kept))
    whole[kept] = weights @ unchanged
    return Recession(program, found.U, whole)


def _moving(program: Program, X: Sequence[Array], largest: float) -> Mask:
    """Return the blocks among which a direction is sought: all, the large ones, or none if these are many."""
    orders = np.array(program.A.orders)
    widths, sizes = orders * (orders + 1) // 2, np.array([np.linalg.norm(X_b) for X_b in X])
    every: Mask = np.ones(len(orders), dtype=bool)
    for own in (every, sizes > _FIXED * sizes.max(initial=0.0)):
        columns, squares = widths[own].sum() + program.k, (orders[own] ** 2).sum()
        few = program.m * max(columns, (widths.sum() + program.k) / _ALL_ROWS) <= largest
        if columns * squares <= largest and (own.all() or few):
            return own
    return ~every


def _rows_and_costs(program: Program) -> Array:
    """Return the rows as vectors, and that of the costs after them."""
    costs = Svec.of(program).vectors([block.C[None] for block in program.blocks], program.c[None])
    return np.concatenate([svec_rows(program, np.arange(program.m)), costs])


# Pays on: a variance reduced over ten functions.
def _of_integers(program: Program, rows: Array, X: Sequence[Array]) -> Recession | None:
    """Return a direction ``U U'`` along which `X` is large, with a ``U`` that has the range of integers.

    None is returned if that range is none of integers, or if ``U'A_k U`` or ``U'C U`` is not zero.
    """
    from bregopt.presolve.integer_faces import integer_basis  # only answers that diverge wait

    decomposed, U = [np.linalg.eigh(X_b) for X_b in X], []
    values = np.sort(np.concatenate([own for own, _ in decomposed]))[::-1]
    values = np.maximum(values, EPS * values[0])
    ratio = values[:-1] / np.maximum(values[1:], TINY)
    if not ratio.max(initial=0.0) > _LEAST_RATIO:
        return None
    least = values[int(np.argmax(ratio))]
    for X_b, (own, Q) in zip(X, decomposed, strict=True):
        W = Q[:, own >= least]
        T = integer_basis(W, int(np.argmin(X_b.diagonal()))) if 0 < W.shape[1] < len(W) else W[:, :0]
        if T.shape[1] < W.shape[1]:
            return None
        U.append(np.linalg.qr(T)[0])
    if _products(rows, U, [U_b[:, :0] for U_b in U]).any():
        return None
    vectors = Svec.of(program).vectors([(U_b @ U_b.T)[None] for U_b in U], np.zeros((1, program.k)))
    return Recession(program, tuple(U), vectors[0])


def _products(rows: Array, U: Sequence[Array], others: Sequence[Array]) -> Array:
    """Return the coefficients that rows have at ``q_i q_j' + q_j q_i'``, without round-off.

    Each ``q_i`` is a column of ``U``, each ``q_j`` a column of ``U`` or of others.
    """
    parts, start = [], 0
    for U_b, W in zip(U, others, strict=True):
        n, r = U_b.shape
        Q = np.column_stack([U_b, W]).T
        i, j = np.triu_indices(r, 0, len(Q))
        outer = Q[i][:, :, None] * Q[j][:, None, :]
        width = n * (n + 1) // 2
        parts.append(rows[:, start : start + width] @ svec(outer + outer.swapaxes(1, 2)).T)
        start += width
    products: Array = np.concatenate(parts, axis=1)
    noise = _PRODUCT_NOISE * np.linalg.norm(rows, axis=1)[:, None]
    return np.where(np.abs(products) > noise, products, 0.0)


# --- The face of the dual ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DualFace:
    """A program whose dual is restricted to a face: ``Z U = 0``.

    Parameters
    ----------
    whole : Program
    U : tuple of arrays of shape (n_b, r_b)
        Orthonormal.
    program : Program
        In ``V'XV``. After the variables of `whole` come free ones for the other entries of ``X``.
    kept : int array
        The rows whose multipliers need not be zero.
    """

    whole: Program
    U: tuple[Array, ...]
    program: Program
    kept: IntArray

    @classmethod
    def entire(cls, whole: Program) -> DualFace:
        """Return the cone itself."""
        return cls(whole, tuple(np.zeros((n, 0)) for n in whole.A.orders), whole, np.arange(whole.m))

    @classmethod
    def of(cls, whole: Program, U: tuple[Array, ...]) -> DualFace | None:
        """Return the face of the given directions; None where nothing is left of a matrix."""
        faces = [Face(U_b) for U_b in U]
        if any(face.order == 0 for face in faces):
            return None
        program = whole
        for b, face in enumerate(faces):
            if face.codimension:
                program = program.restrict(b, face.basis)
        rows = _rows_and_costs(whole)
        products = _products(rows, U, [face.basis for face in faces])
        others = rows[:, rows.shape[1] - whole.k :][:, whole.free]
        kept = np.flatnonzero(~_safer(whole.bounds, np.column_stack([others, _spanning(products, others)])))
        used = np.append(kept, whole.m)
        corner = _spanning(products[used], others[used])
        program, free = program.of_rows(kept), np.full(corner.shape[1], np.inf)
        program = replace(
            program,
            B=sp.csr_array(sp.hstack([program.B, sp.csr_array(corner[:-1])], format="csr")),
            c=np.concatenate([program.c, corner[-1]]),
            u_lo=np.concatenate([program.u_lo, -free]),
            u_hi=np.concatenate([program.u_hi, free]),
        )
        return cls(whole, U, program, kept)

    def smaller(self, X: Sequence[Array]) -> DualFace | None:
        """Return the face that a large `X` of `program` shows on this one, None where it shows none."""
        found = recession(self.program, X, _LARGEST_AFTER_STALL)
        if found is None:
            return None
        inside = [Face(U_b).embed(W) for U_b, W in zip(self.U, found.U, strict=True)]
        return self.of(self.whole, tuple(map(np.column_stack, zip(self.U, inside, strict=True))))

    def restore(self, answer: Answer) -> Answer:
        """Return ``V M V'`` and the multipliers of all rows. Rows that need more of ``X`` are violated."""
        X = tuple(
            Face(U_b).lift(np.asarray(M)) if U_b.size else M for U_b, M in zip(self.U, answer.X, strict=True)
        )
        return with_multipliers(
            answer,
            lambda y: scattered(self.kept, y, self.whole.m),
            X=X,
            u=answer.u[: self.whole.k],
            inner=None,
        )

    def priced(self, price: float) -> Program:
        """Return the whole program with a price on ``U'XU``.

        ``U`` has errors of 1e-9. A price on them would hide vectors that no row and no cost sees.
        """
        from bregopt.presolve.faces import null_spaces  # as above

        blocks = list(self.whole.blocks)
        unseen = null_spaces(self.whole.A, [b for b, U_b in enumerate(self.U) if U_b.size])
        for b, U_b in enumerate(self.U):
            N = unseen.get(b, np.zeros((len(U_b), 0)))
            part = N.T @ U_b
            U_b = U_b - N @ np.where(np.abs(part) <= _RANGE_NOISE, part, 0.0)
            if U_b.size:
                blocks[b] = replace(blocks[b], cost=DenseRows((blocks[b].C + price * U_b @ U_b.T)[None]))
        return replace(self.whole, blocks=tuple(blocks))


def _spanning(columns: Array, others: Array) -> Array:
    """Return the fewest combinations of columns that span them together with other columns."""
    left = columns
    if others.shape[1]:
        Q, R, _ = scipy.linalg.qr(others, mode="economic", pivoting=True)
        Q = Q[:, np.abs(R.diagonal()) > _RECEDING_RANK * abs(R[0, 0])]
        left = columns - Q @ (Q.T @ columns)
    _, s, P = np.linalg.svd(left, full_matrices=False)
    found: Array = columns @ P[s > _CORNER_RANK * np.linalg.norm(columns)].T
    return np.where(np.abs(found) > _PRODUCT_NOISE * np.abs(found).max(initial=0.0), found, 0.0)


def _safer(bounds: Bounds, columns: Array) -> Mask:
    """Return the mask of the inequalities that free variables can change to their safe side at no cost.

    No other row changes for the worse. Then the multipliers of these inequalities are zero.

    Parameters
    ----------
    bounds : Bounds
    columns : array of shape (m + 1, k)
        The coefficients of the variables in the rows and, last, in the objective.
    """
    above, k = np.isfinite(bounds.hi), columns.shape[1]
    loose = bounds.hard & (above != np.isfinite(bounds.lo))
    safer, count = np.zeros(bounds.m, dtype=bool), int(loose.sum())
    if not (count and k):
        return safer
    from scipy.optimize import linprog  # slow to import, seldom needed

    B = np.where(above, 1.0, -1.0)[:, None] * columns[:-1]
    rows = np.column_stack([np.vstack([B[loose], columns[-1]]), np.eye(count + 1, count)])
    fixed = np.column_stack([B[~loose], np.zeros((bounds.m - count, count))])
    found = linprog(
        np.repeat([0.0, -1.0], [k, count]),
        A_ub=rows,
        b_ub=np.zeros(count + 1),
        A_eq=fixed,
        b_eq=np.zeros(len(fixed)),
        bounds=[(None, None)] * k + [(0, 1)] * count,
    )
    if found.status == 0:
        safer[loose] = found.x[k:] > 0.5
    return safer
