"""The margin problem with a sample of its triplets, and all others linearized.

    maximize  rho - C sum_k max(rho - <A_k, X>, 0)   over  X psd of trace one

is concave in ``X`` and the level ``rho``. Its model keeps the terms of some triplets, with weights. The sum
of all terms enters by its gradient at a center, from which those of the kept triplets are subtracted. So the
gradient of the model at the center is that of the problem, and only the differences of triplets that change
sides are sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.chunks.triplet_chunk import Split, factors
from bregopt.program import Block, Bounds, LinearMap, LowRank, Penalty, Program, Term
from bregopt.program.answer import Start
from bregopt.program.rows import Coordinates, DenseRows, RankTwo, SparseRows
from bregopt.routes.progress import Progress
from bregopt.routes.registry import route
from bregopt.threads import threads_for

__all__ = ["EQUAL", "Model", "Optimum", "model_of"]

_CUTS = 4  # eigenvectors a round; with a start, more of them only make the master larger
EQUAL = 1e-9  # difference of two sums of multipliers that are equal up to round-off
_RANK_TOL = 1e-12  # eigenvalues of X below it, relative to the trace, are dropped


@dataclass(frozen=True, eq=False)
class Optimum:
    """A maximizer of a model.

    Parameters
    ----------
    root : array of shape (d, r)
        ``X = root root'``, of trace one.
    level : float
        ``rho``.
    multipliers : array of shape (k,)
        Of the kept triplets.
    """

    root: Array
    level: float
    multipliers: Array


@dataclass(frozen=True, eq=False)
class Model:
    """``(1 - mass) rho + <cost, X>`` less the terms of the kept triplets.

    Parameters
    ----------
    cost : array of shape (d, d)
    mass : float
        Sum of the multipliers of the linearized triplets.
    rows : RankTwo
        The kept triplets.
    weight : float
        The largest multiplier of a kept triplet.
    """

    cost: Array
    mass: float
    rows: RankTwo
    weight: float

    @property
    def bounded(self) -> bool:
        """Whether its objective is bounded, that is, whether multipliers may sum to one."""
        return self.mass < 1 <= (1 + EQUAL) * (self.mass + self.weight * self.rows.m)

    def solve(self, tol: float, start: Optimum | None) -> Optimum:
        """Return the maximizer by PSDBoost, up to a relative gap, from a start or from nothing."""
        method = route("psdboost")
        first = None
        if start is not None:
            first = Start((LowRank(start.root),), np.array([start.level]), np.append(start.multipliers, 0.0))
        settings = method.Settings(tol=tol, cuts_per_round=_CUTS)
        with threads_for(self.rows.n):
            answer = method.solve(self.program(), settings, first, Progress("model"))
            root = _unit_root(answer.X[0])
        return Optimum(root, float(answer.u[0]), np.clip(answer.y[:-1], 0.0, self.weight))

    def bound(self, multipliers: Array) -> float:
        """Return the upper bound on the problem's optimum that multipliers prove, if all weights are ``C``.

        Made to sum to one, they bound it by the largest eigenvalue of ``sum_k y_k A_k``.
        """
        y, total = multipliers, self.mass + float(multipliers.sum())
        slack = self.weight - y
        if total < 1 and slack.any():  # without slack round-off alone separates the sum from one
            y = y + slack * min(1.0, (1 - total) / float(slack.sum()))
            total = self.mass + float(y.sum())
        return float(np.linalg.eigvalsh(self.cost + self.rows.adjoint(y))[-1]) / total

    def margins(self, root: Array) -> Array:
        """Return the margins of the kept triplets."""
        return self.rows.apply(LowRank(root))

    def program(self) -> Program:
        """Return the model as a minimization, its triplets as hinge rows."""
        k, d = self.rows.m, self.rows.n
        diagonal = Coordinates(np.zeros(d, dtype=np.intp), np.arange(d), np.arange(d), np.ones(d))
        terms = (Term(0, np.arange(k), self.rows), Term(0, np.array([k]), SparseRows(1, d, diagonal)))
        hinges = Bounds(
            np.zeros(k), np.full(k, np.inf), np.full(k, int(Penalty.HINGE)), np.full(k, self.weight)
        )
        return Program(
            blocks=(Block("X", d, DenseRows(-self.cost[None])),),
            A=LinearMap(k + 1, (d,), terms),
            B=sp.csr_array(np.append(-np.ones(k), 0.0)[:, None]),
            bounds=hinges.followed_by(Bounds.of_hard_rows(np.ones(1), np.ones(1))),
            c=np.array([self.mass - 1]),
            u_lo=np.array([-np.inf]),
            u_hi=np.array([np.inf]),
            labels=(("the kept triplets", k), ("the trace", 1)),
            columns=(("rho", 1),),
            maximize=True,
        )


def model_of(split: Split, points: Array, C: float, stride: int) -> Model:
    """Return the model of all triplets, around the level that splits them.

    Parameters
    ----------
    split : Split
    points : array of shape (n, d)
    C : float
    stride : int
        Triplets for each one of the sample.
    """
    weight = C * stride
    rows = RankTwo(*factors(split.triplets, points), np.ones(len(split.triplets)))
    cost = C * split.moment - rows.adjoint(np.where(split.below, weight, 0.0))
    mass = C * split.number - weight * int(split.below.sum())
    return Model(cost, mass, rows, weight)


def _unit_root(X: Array | LowRank) -> Array:
    """Return a factor of the psd part of a matrix, scaled to trace one."""
    eigenvalues, V = np.linalg.eigh(X.dense() if isinstance(X, LowRank) else X)
    kept = eigenvalues > _RANK_TOL * eigenvalues[-1]
    root: Array = V[:, kept] * np.sqrt(eigenvalues[kept] / eigenvalues[kept].sum())
    return root
