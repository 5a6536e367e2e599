"""Linear matrix inequalities are replaced by their dual, in which each variable is a row.

The program in the form of :mod:`bregopt.presolve.matrix_inequalities`, ``minimize c'v subject to F_0 + F v
psd, lo <= K v <= hi``, has the dual (Vandenberghe, Boyd 1996, Semidefinite Programming, section 3)

    minimize    <F_0, Z> - lo'y_+ - hi'y_- - offset
    subject to  -F*(Z) - K'(y_+ + y_-) - s = -c,   Z psd,   0 <= y_+ <= gamma,   -gamma <= y_- <= 0,

with an infinite ``gamma`` for a hard row. The bounds of single variables are rows of ``K`` too, and ``s``
is zero but for variables in second-order cones, whose ``s`` are in the same cones. The multipliers of the
equalities are ``v``, and the slack of ``Z`` is ``F_0 + F v``. A Farkas vector of the dual is a ray of the
program, and a ray of the dual is a Farkas vector of the program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.divergences import psd_part
from bregopt.linalg import root_of
from bregopt.presolve.constants import DUAL_PAYS
from bregopt.presolve.matrix_inequalities import MatrixInequalities, matrix_inequalities
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.presolve.svec import svec_map
from bregopt.program import (
    Answer,
    Block,
    Bounds,
    Program,
    SecondOrderCones,
    Start,
    StopReason,
    pays,
)
from bregopt.program.rows import Coordinates, SparseRows

__all__ = ["DualForm", "Dualized"]


@dataclass(frozen=True, eq=False)
class Dualized(Reduced):
    """The dual of a program with linear matrix inequalities.

    Parameters
    ----------
    form : MatrixInequalities
    used : int array
        The elements of ``v`` that have a row.
    multiplied : int array
        For each variable of the dual, the row of ``K`` that it multiplies; after those rows come the boxes
        and cones of the variables `held`.
    held : int array
        The variables in a box, then those in second-order cones.
    """

    form: MatrixInequalities
    used: IntArray
    multiplied: IntArray
    held: IntArray
    rescales: ClassVar[bool] = True

    @property
    def summary(self) -> str:
        count = len(self.whole.blocks)
        inequalities = f"{count} matrix inequalit{'ies' if count > 1 else 'y'}"
        return f"dual of {inequalities}, with {self.program.m} rows instead of {self.whole.m}"

    def shrink(self, start: Start) -> Start:
        whole, form = self.whole, self.form
        reduced = (whole.c - whole.B.T @ start.y)[self.held]
        own = np.concatenate([start.y[form.kept], reduced])[self.multiplied]
        Z = form.matrices(form.prices - form.rows.T @ start.y)
        X = form.entries(start.X) if start.X else form.F_0
        v = np.concatenate([start.u, X[form.others]])
        own = self.program.cones.clipped(np.clip(own, self.program.u_lo, self.program.u_hi))
        return Start(Z if start.X else (), own, v[self.used])

    def restore(self, answer: Answer) -> Answer:
        form, whole = self.form, self.whole
        if answer.stop is StopReason.UNBOUNDED:
            y = form.multipliers(form.entries(answer.X), self._multipliers(answer.u), 0 * form.prices)
            return Answer.without_point(whole, y, StopReason.INFEASIBLE, answer.iterations)
        v = np.zeros(form.F.shape[1])
        v[self.used] = answer.y
        if answer.stop is StopReason.INFEASIBLE:
            X, u, y = form.F @ v, v[: whole.k], np.zeros(whole.m)
            return replace(answer, X=form.matrices(X), u=u, y=y, stop=StopReason.UNBOUNDED, y_on_faces=None)
        v[: whole.k] = u = whole.cones.clipped(np.clip(v[: whole.k], whole.u_lo, whole.u_hi))
        X = tuple(_psd(S) for S in form.matrices(form.F_0 + form.F @ v))
        y = form.multipliers(form.entries(answer.X), self._multipliers(answer.u), form.prices)
        y = y if pays(whole) else 0 * y
        return replace(answer, X=X, u=u, y=y, y_on_faces=None)

    def _multipliers(self, own: Array) -> Array:
        """Return the multipliers of the rows of ``K`` from the variables of the dual."""
        count = len(self.form.kept)
        multipliers: Array = np.bincount(self.multiplied, own, count + len(self.held))[:count].astype(float)
        return multipliers


class DualForm:
    """Replace linear matrix inequalities by their dual where Newton's method takes fewer operations on it."""

    name: ClassVar[str] = "dual form"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Dualized | None:
        most = DUAL_PAYS * _newton_work(program)
        posed = program if pays(program) else _of_least_traces(program)
        form = matrix_inequalities(posed, largest=math.cbrt(3 * most))
        if form is None:
            return None
        boxed = np.isfinite(program.u_lo) | np.isfinite(program.u_hi)
        held = np.concatenate([np.flatnonzero(boxed), program.cones.index])
        used = np.bincount(form.F.indices, minlength=len(form.c)) > 0
        used |= np.bincount(form.K.indices, minlength=len(form.c)) > 0
        used[held] = True
        if not used.any() or form.c[~used].any():  # no rows, or unbounded along an unused variable
            return None
        found = _dual(program, form, np.flatnonzero(used), held)
        return found if _newton_work(found.program) < most else None


def _of_least_traces(program: Program) -> Program:
    """Return a program whose objective is constant with the sum of the traces as objective.

    With a constant objective the dual has no interior where the program has one. Every feasible point is
    optimal there, so that another objective may take its place.
    """
    blocks = []
    for block in program.blocks:
        own = np.arange(block.n)
        trace = SparseRows(1, block.n, Coordinates(0 * own, own, own, np.ones(block.n)))
        blocks.append(replace(block, cost=trace))
    return replace(program, blocks=tuple(blocks))


def _dual(whole: Program, form: MatrixInequalities, used: IntArray, held: IntArray) -> Dualized:
    box = sp.csr_array((np.ones(len(held)), (np.arange(len(held)), held)), (len(held), len(form.c)))
    K = sp.csr_array(sp.vstack([form.K, box], format="csr"))
    cones, boxed = whole.cones, held[: len(held) - whole.cones.size]
    lo = np.concatenate([form.bounds.lo, whole.u_lo[boxed]])
    hi = np.concatenate([form.bounds.hi, whole.u_hi[boxed]])
    gamma = np.concatenate([form.bounds.gamma, np.full(len(boxed), np.inf)])
    in_cones, free = np.arange(len(lo), K.shape[0]), np.full(cones.size, np.inf)
    equal = lo == hi
    below, above = np.flatnonzero(np.isfinite(lo)), np.flatnonzero(np.isfinite(hi) & ~equal)
    F = sp.csr_array(form.F[:, used].T)
    F.sort_indices()
    multiplied = np.concatenate([below, above, in_cones])
    program = Program(
        blocks=_blocks(form),
        A=svec_map(whole.A.orders, -F),
        B=sp.csr_array(-K[multiplied][:, used].T),
        bounds=Bounds.of_hard_rows(-form.c[used], -form.c[used]),
        c=-np.concatenate([lo[below], hi[above], 0 * cones.identity]),
        u_lo=np.concatenate([np.where(equal, -gamma, 0.0)[below], -gamma[above], -free]),
        u_hi=np.concatenate([gamma[below], np.zeros(len(above)), free]),
        offset=-form.offset,
        constant=-whole.stated_constant,
        maximize=not whole.maximize,
        cones=SecondOrderCones(len(below) + len(above) + np.arange(cones.size), cones.dimensions),
    )
    return Dualized(whole, program, form, used, multiplied, held)


def _blocks(form: MatrixInequalities) -> tuple[Block, ...]:
    """Return the blocks of ``Z``, with the costs ``F_0``."""
    costs = {t.block: t.rows for t in svec_map(form.whole.A.orders, sp.csr_array(form.F_0[None])).terms}
    return tuple(Block(block.name, block.n, costs.get(b)) for b, block in enumerate(form.whole.blocks))


def _psd(S: Array) -> Array:
    """Return the nearest psd matrix: the answer of a route is in the cone and violates rows instead."""
    return S if root_of(S) is not None else psd_part(S)


def _newton_work(program: Program) -> float:
    """Return the approximate operations of a step of Newton's method: to form and to solve its system.

    The unknowns are the rows and the free variables. For `r` rows with `t` terms, a block of order `n` takes
    ``t^2`` operations, or two products and an inner product for each row, ``2 r n^3 + r t``.
    """
    work = float(program.m + np.count_nonzero(program.free)) ** 3 / 3
    rows, terms = np.zeros((2, len(program.blocks)))
    for term in program.A.terms:
        rows[term.block] += term.rows.m
        terms[term.block] += term.rows.count()
    n = np.array(program.A.orders, dtype=float)
    return work + float(np.minimum(terms**2, 2 * rows * n**3 + rows * terms).sum())
