"""Sparse inverse covariance estimation: its data, points and certificates, and programs that are one.

The primal problem is, with ``P_ij >= 0`` the penalty of the entry ``X_ij``,

    minimize  <S, X> - logdet X + sum_ij P_ij |X_ij|   over positive definite X.

Its dual is to maximize ``logdet(S + U) + n`` over the box ``|U_ij| <= P_ij`` (Banerjee, El Ghaoui,
d'Aspremont 2008, Model Selection Through Sparse Maximum Likelihood Estimation, JMLR 9, eq. 3). Each point of
the box with ``S + U`` positive definite proves a lower bound. An infinite penalty requires a zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.certify import objective_size
from bregopt.certify.certificate import Certificate, bracket
from bregopt.divergences.base import ROOT_UNITS
from bregopt.divergences.logdet import LogDet
from bregopt.linalg import log_det, root_of
from bregopt.program import Answer, Penalty, Program, Start
from bregopt.program.program import divergence_of
from bregopt.records import cached_property, dataclass, replace
from bregopt.routes.progress import Progress

CITATION = (
    "Friedman, Hastie, Tibshirani (2008), Sparse Inverse Covariance Estimation with the Graphical Lasso, "
    "Biostatistics 9; Hsieh, Sustik, Dhillon, Ravikumar (2014), QUIC: Quadratic Approximation for Sparse "
    "Inverse Covariance Estimation, JMLR 15"
)


@dataclass(frozen=True, eq=False)
class LassoData:
    """The data of a problem, or of some of its rows and columns.

    Parameters
    ----------
    S : array of shape (n, n)
        Symmetric.
    penalty : array of shape (n, n)
        Symmetric, from zero; infinite for entries that are zero.
    """

    S: Array
    penalty: Array

    @property
    def n(self) -> int:
        """The order."""
        return len(self.S)

    @cached_property
    def _infinite(self) -> Mask | None:
        """Where the penalty is infinite, None if nowhere."""
        infinite: Mask = np.isinf(self.penalty)
        return infinite if infinite.any() else None

    @cached_property
    def prices(self) -> Array:
        """The penalty with zeros for infinite ones."""
        return self.penalty if self._infinite is None else np.where(self._infinite, 0.0, self.penalty)

    def block(self, rows: IntArray) -> LassoData:
        """Return the problem of some rows and columns."""
        square = square_of(rows, self.n)
        return LassoData(self.S[square], self.penalty[square])

    def linear_part(self, X: Array) -> float:
        """Return ``<S, X> + sum P_ij |X_ij|``; infinite if an entry is not zero that must be."""
        return float(np.vdot(self.S, X)) + self.paid(X)

    def paid(self, X: Array) -> float:
        """Return ``sum P_ij |X_ij|``; infinite if an entry is not zero that must be."""
        paid = float(np.vdot(self.prices, np.abs(X)))
        return paid if self._infinite is None or not X[self._infinite].any() else math.inf

    def loss(self, X: Array) -> float:
        """Return ``<S, X> - logdet X``."""
        root = root_of(X)
        return math.inf if root is None else float(np.vdot(self.S, X)) - log_det(root)

    def value(self, X: Array, root: Array) -> float:
        """Return the objective at a matrix with its Cholesky factor."""
        return self.linear_part(X) - log_det(root)

    def clip(self, U: Array) -> Array:
        """Return the nearest point of the box, ``|U_ij| <= P_ij``."""
        return clipped(U, self.penalty)

    def bound(self, U: Array) -> float:
        """Return the lower bound of a point of the box; ``-inf`` if ``S + U`` is not positive definite."""
        root = root_of(self.S + U)
        return -math.inf if root is None else log_det(root) + self.n


@dataclass(frozen=True, eq=False)
class LassoPoint:
    """A primal and a dual point, with their values.

    Parameters
    ----------
    X : array of shape (n, n)
        Positive definite.
    value : float
        Objective at ``X``.
    U : array of shape (n, n)
        Point of the box with the best bound so far.
    bound : float
        ``-inf`` if none was found.
    """

    X: Array
    value: float
    U: Array
    bound: float

    @property
    def error(self) -> float:
        """The distance of value and bound."""
        return self.value - self.bound


def clipped(U: Array, reach: Array) -> Array:
    """Return the numbers, but at most `reach` from zero. ``np.clip`` takes three times as long."""
    nearest: Array = np.minimum(U, reach)
    return np.maximum(nearest, -reach, out=nearest)


def square_of(rows: IntArray, n: int) -> Any:
    """Return the index of some rows and the same columns in matrices of order `n`; of all rows, in a view."""
    return (slice(None), slice(None)) if len(rows) == n else np.ix_(rows, rows)


def lasso_certificate(n: int, primal: float, dual: float, evaluation_error: float = 0.0) -> Certificate:
    """Return the certificate of two values of a problem of order `n`, known up to their round-off.

    At the solution the linear part of the objective is `n`: the largest of its terms.
    """
    return bracket(primal, dual, terms=n, evaluation_error=evaluation_error)


def certify_lasso(data: LassoData, X: Array, U: Array, parts: Sequence[IntArray]) -> Certificate:
    """Return the certificate of a primal and a dual point, from the data alone.

    Parameters
    ----------
    data : LassoData
    X : array of shape (n, n)
        Zero outside the blocks of the parts.
    U : array of shape (n, n)
        In the box. Outside these blocks ``U = -S`` counts, if the box has that.
    parts : sequence of int arrays
        Rows of each block; together all rows, each once.
    """
    alone = np.array([rows[0] for rows in parts if len(rows) == 1], dtype=np.intp)
    primals, duals = _values_of_entries(data, X, U, alone)
    outside = np.abs(data.S) > data.penalty
    outside[alone, alone] = False
    for rows in parts:
        if len(rows) == 1:
            continue
        square = square_of(rows, data.n)
        block, X_k = data.block(rows), X[square]
        outside[square] = False
        root = root_of(X_k)
        primals.append(math.inf if root is None else block.value(X_k, root))
        duals.append(block.bound(U[square]))
    dual = -math.inf if outside.any() else math.fsum(duals)
    # Near the solution S + U is the inverse of X: their diagonals bound the round-off of both determinants.
    of_log_det = ROOT_UNITS * float(X.diagonal() @ (data.S + U).diagonal())
    round_off = 2 * of_log_det / (1 - of_log_det) if of_log_det < 1 else math.inf
    return lasso_certificate(data.n, math.fsum(primals), dual, round_off)


def _values_of_entries(data: LassoData, X: Array, U: Array, at: IntArray) -> tuple[list[float], list[float]]:
    """Return values and bounds of the problems of order one of some entries of the diagonal."""
    x, s, p, u = (M[at, at] for M in (X, data.S, data.penalty, U))
    primals, duals = np.full(len(at), math.inf), np.full(len(at), -math.inf)
    np.log(x, out=primals, where=x > 0)
    primals = np.where(x > 0, (s + p) * x - primals, math.inf)
    np.log(s + u, out=duals, where=s + u > 0)
    return primals.tolist(), (duals + 1).tolist()


def ascended(X: Array, gradient: Array) -> Array:
    """Return a step of ascent on the dual from ``inv(X) - S``, which is the negative `gradient`.

    There the bound ``logdet(S + U)`` has the gradient ``X`` and the Hessian ``-X E X``, and the step divides
    by its diagonal. The gap that a clipped inverse proves is of first order in the errors of its entries,
    that with the step is of second order.
    """
    scale = 1 / X.diagonal()
    step: Array = X * scale * scale[:, None]
    step -= gradient
    return step


def with_dual(data: LassoData, at: LassoPoint, U: Array) -> LassoPoint:
    """Return the point with the nearest dual point of the box, if its bound is better."""
    U = data.clip(U)
    bound = data.bound(U)
    return replace(at, U=U, bound=bound) if bound > at.bound else at


# --- Programs -------------------------------------------------------------------------------------------
#
# With ``S = C / mu + inv(X0)`` a LogDet term and its cost are ``mu (<S, X> - logdet X)`` and a constant. A
# soft row that pays ``gamma |w X_ij|`` is a penalty of ``gamma |w| / mu``, half of it for each of two equal
# entries, and a hard row ``X_ij = 0`` is an infinite one.


@dataclass(frozen=True, eq=False)
class LassoProgram:
    """A program that is a sparse inverse covariance problem.

    Parameters
    ----------
    program : Program
    i, j : int arrays of shape (m,)
        The entry of each row.
    weight : array of shape (m,)
        Its factor in the row.
    """

    program: Program
    i: IntArray
    j: IntArray
    weight: Array

    @property
    def _mu(self) -> float:
        nearness = self.program.blocks[0].nearness
        assert nearness is not None
        return nearness.mu

    @property
    def _share(self) -> Array:
        """The change of a row by one of its entries, in units of ``mu``, shape (m,)."""
        return self.weight * np.where(self.i == self.j, 1.0, 0.5) / self._mu

    def data(self) -> LassoData:
        """Return ``S`` and the penalties."""
        block, bounds = self.program.blocks[0], self.program.bounds
        assert block.nearness is not None
        divergence: Any = divergence_of(block.nearness)
        penalty = np.zeros((block.n, block.n))
        paid = np.where(bounds.hard, np.inf, bounds.gamma * np.abs(self._share))
        penalty[self.i, self.j] = penalty[self.j, self.i] = paid
        return LassoData(block.C / self._mu + divergence.inverse, penalty)

    def solve(self, tol: float, limit: int | None, start: Start | None, progress: Progress) -> Answer:
        """Return the answer in the terms of the program."""
        from bregopt.routes.graphical_lasso.solve import solve_lasso  # only those with such a program wait

        data, program = self.data(), self.program
        X0 = None if start is None or not start.X else np.asarray(start.X[0])
        if X0 is not None:
            X0 = np.where(np.isinf(data.penalty), 0.0, X0)
        constant = self._constant(data)

        def restated(n: int, primal: float, dual: float, evaluation_error: float = 0.0) -> Certificate:
            values = self._mu * primal + constant, self._mu * dual + constant
            error = abs(values[0] - values[1]) + self._mu * evaluation_error
            gap = error / objective_size(program, *values) if np.isfinite(error) else np.inf
            return Certificate(*values, gap, 0.0, 0.0, error)

        found = solve_lasso(data, tol, limit, progress, X0, restated)
        y = -found.U[self.i, self.j] / self._share
        return Answer(
            (found.X,), np.zeros(0), program.bounds.clip(y), found.stop, found.iterations, citation=CITATION
        )

    def _constant(self, data: LassoData) -> float:
        """Return the difference of the program's objective and ``mu`` times that of `data`."""
        nearness = self.program.blocks[0].nearness
        assert nearness is not None
        X, mu = np.asarray(nearness.X0), nearness.mu
        own = self.program.blocks[0].cost_value(X) + mu * divergence_of(nearness).value(X)
        return own - mu * data.loss(X) + self.program.offset


def as_lasso(program: Program) -> LassoProgram | None:
    """Return the program as a sparse inverse covariance problem, None if it is not one.

    It is one if it has one matrix with a LogDet term, no ordinary variable, and each row equates a different
    entry to zero: softly with a hinge, or, off the diagonal, exactly.
    """
    bounds = program.bounds
    if len(program.blocks) != 1 or program.k or program.m == 0 or bounds.lo.any() or bounds.hi.any():
        return None
    block = program.blocks[0]
    if block.nearness is None or block.nearness.kind is not LogDet or block.cap is not None:
        return None
    if bounds.penalties or not all(term.rows.single for term in program.A.terms):
        return None
    i, j, weight = np.zeros(program.m, np.intp), np.zeros(program.m, np.intp), np.zeros(program.m)
    for term in program.A.terms:
        own, rows = term.rows.coordinates(), np.arange(program.m)[term.at]
        i[rows[own.row]], j[rows[own.row]], weight[rows[own.row]] = own.i, own.j, own.value
    diagonal: Mask = i == j
    distinct = len(np.unique(np.minimum(i, j) * block.n + np.maximum(i, j))) == program.m
    if not distinct or not weight.all() or (diagonal & bounds.hard).any():
        return None
    hinge = bounds.kind == int(Penalty.HINGE)
    return LassoProgram(program, i, j, weight) if (hinge | bounds.hard).all() else None
