"""CVXPY problems that no route of ours reads: solved by CVXPY's solvers, certified here.

They have second-order or exponential cones alone. A certificate needs only the conic data,

    minimize c'x   subject to  A x + s = b,  s in K,
    maximize -b'z  subject to  A'z = -c,     z in K*,

so that these problems can be cross-checked like all others. CVXPY does not return Farkas vectors and rays:
they are computed as solutions of auxiliary problems.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any

import cvxpy as cp
import cvxpy.settings as names
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL

from bregopt.arrays import Array
from bregopt.certify import Certificate, bracket
from bregopt.cvxpy.conic_program import triangle
from bregopt.cvxpy.conic_solver import conic_data
from bregopt.errors import UnsupportedProblemError
from bregopt.program import StopReason
from bregopt.records import dataclass
from bregopt.routes.registry import REFERENCE, route
from bregopt.routes.registry import settings as settings_of
from bregopt.routes.solution import Solution, Status

_LEAST = 1e-300  # replaces zero in logarithms
_PROOF_TOL = 1e-9  # tolerance of the problems for rays and Farkas vectors
_PROVES = 1e-6  # largest violation of a ray or Farkas vector, relative to its objective


@dataclass(frozen=True)
class _ConicAnswer:
    """An answer in conic terms, with CVXPY's status."""

    x: Array
    z: Array
    status: str
    steps: int
    words: str


class ConeProblem:
    """A CVXPY problem in conic form; the problem itself does not change.

    Parameters
    ----------
    problem : cvxpy.Problem

    Attributes
    ----------
    solvers : tuple of str
        CVXPY's solvers that are used by default.

    Raises
    ------
    UnsupportedProblemError
        If it has power cones, or integer variables.
    """

    solvers = ("CLARABEL", "SCS")

    def __init__(self, problem: Any) -> None:
        data, offset = conic_data(problem, use_quad_obj=False)
        dims = data[CLARABEL.DIMS]
        if any(getattr(dims, cone, None) for cone in ("p3d", "pnd")):
            raise UnsupportedProblemError("the CVXPY problem has power cones")
        self._A = sp.csr_array(data[names.A], dtype=float)
        self._b, self._c = np.array(data[names.B], dtype=float), np.array(data[names.C], dtype=float)
        self._cones = list(cones_of(dims))
        self._offset = offset
        self._sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0

    def solve(self, solver: str, **options: Any) -> Solution:
        """Return the certified answer of one of CVXPY's solvers, named by the option ``backend``.

        Its ``u`` holds the vector ``x`` of the conic form.

        Raises
        ------
        UnsupportedProblemError
            If `solver` is a route of ours.
        """
        if solver != REFERENCE:
            raise UnsupportedProblemError(
                f"solver {solver!r} does not take this problem: it has cones other than the psd one. "
                "Solvers of CVXPY do, such as 'CLARABEL'"
            )
        begin = time.perf_counter()
        settings: Any = settings_of(solver, {"backend": self.solvers[0], **options})
        ask = partial(route(solver).ask, settings=settings)
        point = self._optimum(ask, settings.tol)
        status, certificate = self._proven(point, ask, settings.tol)
        return self._solution(point, status, certificate, time.perf_counter() - begin)

    # --- Problems for CVXPY's solvers ---

    def _optimum(self, ask: Any, tol: float) -> _ConicAnswer:
        x = cp.Variable(len(self._c))
        return self._asked(ask, tol, x, self._c @ x, self._b - self._A @ x)

    def _ray(self, ask: Any) -> _ConicAnswer:
        """Return the answer with right-hand side zero and the objective bounded below by -1."""
        x = cp.Variable(len(self._c))
        return self._asked(ask, _PROOF_TOL, x, self._c @ x, -(self._A @ x), [self._c @ x >= -1])

    def _least_infeasible(self, ask: Any) -> _ConicAnswer:
        """Return the point with the least violation of the cones; its multipliers are a Farkas vector."""
        x, t, miss = cp.Variable(len(self._c)), cp.Variable(nonneg=True), cp.Variable(len(self._b))
        inside = [cone.inside() for cone in self._cones]
        equations = np.concatenate([np.full(len(e), not e.any()) for e in inside])
        s = self._b - self._A @ x + t * np.concatenate(inside) + cp.multiply(equations, miss)
        return self._asked(ask, _PROOF_TOL, x, t + cp.norm1(miss), s)

    def _asked(self, ask: Any, tol: float, x: Any, cost: Any, s: Any, more: Any = ()) -> _ConicAnswer:
        constraints = [cone.constraint(s[cone.rows]) for cone in self._cones]
        problem = cp.Problem(cp.Minimize(cost), [*constraints, *more])
        outcome = ask(problem, tol=tol)
        if x.value is None:
            x_none, z_none = np.zeros(len(self._c)), np.zeros(len(self._b))
            return _ConicAnswer(x_none, z_none, outcome.status, outcome.iterations, outcome.words)
        pairs = zip(self._cones, constraints, strict=True)
        z = np.concatenate([cone.multiplier(constraint) for cone, constraint in pairs])
        return _ConicAnswer(np.array(x.value), z, outcome.status, outcome.iterations, outcome.words)

    # --- Certificates of their answers ---

    def _proven(self, point: _ConicAnswer, ask: Any, tol: float) -> tuple[Status, Certificate]:
        """Return what an answer proves; infeasible and unbounded must be proven as well."""
        if "infeasible" in point.status:
            z = self._least_infeasible(ask).z
            good = self._b @ z < 0 and self._dual_miss(z, 0.0) <= _PROVES * -(self._b @ z)
            return Status.INFEASIBLE if good else Status.INFEASIBLE_INACCURATE, _no_point(np.inf)
        if "unbounded" in point.status:
            x = self._ray(ask).x
            good = self._c @ x < 0 and self._primal_miss(x, 0.0) <= _PROVES * -(self._c @ x)
            return Status.UNBOUNDED if good else Status.UNBOUNDED_INACCURATE, _no_point(-np.inf)
        certificate = self._certificate(point)
        limited = point.status == Status.USER_LIMIT.value
        return certificate.status(tol, StopReason.MAX_ITER if limited else StopReason.INACCURATE), certificate

    def _certificate(self, point: _ConicAnswer) -> Certificate:
        """Return the certificate; its residuals are DIMACS errors."""
        x, z = point.x, point.z if self._c.any() else 0 * point.z  # the multipliers of no objective are zero
        value, bound = float(self._c @ x), -float(self._b @ z)
        s, r = self._b - self._A @ x, self._A.T @ z + self._c
        primal_miss, dual_miss = self._primal_miss(x), self._dual_miss(z)
        loss = primal_miss * float(np.abs(z).sum())
        loss += dual_miss * float(np.abs(s).sum()) + float(np.abs(r) @ np.abs(x))
        return bracket(
            value,
            bound,
            terms=float(max(np.abs(self._c) @ np.abs(x), np.abs(self._b) @ np.abs(z))),
            loss=loss,
            primal_residual=primal_miss / (1 + float(np.abs(self._b).max(initial=0.0))),
            dual_residual=dual_miss / (1 + float(np.abs(self._c).max(initial=0.0))),
        )

    def _primal_miss(self, x: Array, scale: float = 1.0) -> float:
        """Return the violation of the cones by ``scale b - A x``."""
        s = scale * self._b - self._A @ x
        return max(0.0, *(cone.outside(s[cone.rows]) for cone in self._cones))

    def _dual_miss(self, z: Array, scale: float = 1.0) -> float:
        """Return the largest violation of the dual cones by `z`, and of ``A'z + scale c = 0``."""
        left = float(np.abs(self._A.T @ z + scale * self._c).max(initial=0.0))
        return max(0.0, left, *(cone.outside_dual(z[cone.rows]) for cone in self._cones))

    def _solution(
        self, point: _ConicAnswer, status: Status, certificate: Certificate, seconds: float
    ) -> Solution:
        ends = (certificate.primal, certificate.dual)
        value, bound = (self._sign * (end + self._offset) for end in ends)
        reasons = {
            Status.OPTIMAL: StopReason.CONVERGED,
            Status.INFEASIBLE: StopReason.INFEASIBLE,
            Status.UNBOUNDED: StopReason.UNBOUNDED,
        }
        reason = reasons.get(status, StopReason.INACCURATE)
        return Solution(
            status=status.value,
            stop_reason=f"{reason.value} {point.words}",
            value=value,
            X=None,
            u={"x": point.x} if status.has_point else {},
            duals=None,
            dual_value=bound,
            gap=certificate.gap,
            primal_residual=certificate.primal_residual,
            dual_residual=certificate.dual_residual,
            error=certificate.error,
            iterations=point.steps,
            timings={"total": seconds},
            solver=REFERENCE,
            history={},
            citation="",
        )


def _no_point(value: float) -> Certificate:
    """Return the certificate where there is no answer."""
    return Certificate(value, value, np.nan, np.nan, np.nan, np.nan)


# --- The cones ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cone(ABC):
    """A cone ``K`` and the `rows` of ``s`` that lie in it, those of ``z`` in its dual."""

    rows: slice

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.rows.stop - self.rows.start

    @abstractmethod
    def outside(self, s: Array) -> float:
        """Return the violation of the cone by a vector; at most zero inside."""

    def outside_dual(self, z: Array) -> float:
        """Return the violation of the dual cone by a vector, by default of the cone itself."""
        return self.outside(z)

    @abstractmethod
    def inside(self) -> Array:
        """Return a vector strictly inside; zero if there is none."""

    @abstractmethod
    def constraint(self, s: Any) -> Any:
        """Return CVXPY's constraint that an expression lies in the cone."""

    @abstractmethod
    def multiplier(self, constraint: Any) -> Array:
        """Return the ``z`` of such a constraint that CVXPY has solved."""


@dataclass(frozen=True)
class _Zero(Cone):
    def outside(self, s: Array) -> float:
        return float(np.abs(s).max(initial=0.0))

    def outside_dual(self, z: Array) -> float:
        return 0.0

    def inside(self) -> Array:
        return np.zeros(self.size)

    def constraint(self, s: Any) -> Any:
        return s == 0

    def multiplier(self, constraint: Any) -> Array:
        return -np.ravel(constraint.dual_value)


@dataclass(frozen=True)
class _Nonnegative(Cone):
    def outside(self, s: Array) -> float:
        return float(-s.min(initial=np.inf))

    def inside(self) -> Array:
        return np.ones(self.size)

    def constraint(self, s: Any) -> Any:
        return s >= 0

    def multiplier(self, constraint: Any) -> Array:
        return np.ravel(constraint.dual_value)


@dataclass(frozen=True)
class _SecondOrder(Cone):
    """``|(s_1, ...)| <= s_0``."""

    def outside(self, s: Array) -> float:
        return float(np.linalg.norm(s[1:]) - s[0])

    def inside(self) -> Array:
        return np.r_[1.0, np.zeros(self.size - 1)]

    def constraint(self, s: Any) -> Any:
        return cp.SOC(s[0], s[1:]) if self.size > 1 else s >= 0

    def multiplier(self, constraint: Any) -> Array:
        parts = constraint.dual_value
        return np.concatenate([np.ravel(part) for part in (parts if isinstance(parts, list) else [parts])])


@dataclass(frozen=True)
class _Psd(Cone):
    n: int

    def outside(self, s: Array) -> float:
        i, j, weight = triangle(self.n)
        S = np.zeros((self.n, self.n))
        S[i, j] = S[j, i] = s / weight
        return float(-np.linalg.eigvalsh(S)[0])

    def inside(self) -> Array:
        i, j, _ = triangle(self.n)
        return np.where(i == j, 1.0, 0.0)

    def constraint(self, s: Any) -> Any:
        i, j, weight = triangle(self.n)
        off, n, row = np.flatnonzero(i != j), self.n, np.arange(len(i))
        places = np.concatenate([i + n * j, (j + n * i)[off]])
        spread = sp.csr_array(
            (np.concatenate([1 / weight, 1 / weight[off]]), (places, np.concatenate([row, off]))),
            (n * n, len(i)),
        )
        return cp.reshape(spread @ s, (n, n), order="F") >> 0

    def multiplier(self, constraint: Any) -> Array:
        i, j, weight = triangle(self.n)
        Z = np.asarray(constraint.dual_value)
        return np.asarray(weight * (Z + Z.T)[i, j] / 2)


@dataclass(frozen=True)
class _Exponential(Cone):
    """Triples ``s_1 exp(s_0 / s_1) <= s_2``, one after the other."""

    def outside(self, s: Array) -> float:
        x, y, z = s.reshape(-1, 3).T
        reach = np.maximum(y, 0.0) * np.log(np.maximum(z, _LEAST) / np.maximum(y, _LEAST))
        return float(np.max([-y, -z, x - reach], initial=-np.inf))

    def outside_dual(self, z: Array) -> float:
        """Return the violation of ``-u exp(v / u) <= e w``, ``u <= 0``."""
        u, v, w = z.reshape(-1, 3).T
        p = np.maximum(-u, 0.0)
        least = -p - p * np.log(np.maximum(w, _LEAST) / np.maximum(p, _LEAST))
        return float(np.max([u, -w, least - v], initial=-np.inf))

    def inside(self) -> Array:
        return np.tile([0.0, 1.0, 2.0], (self.size) // 3)

    def constraint(self, s: Any) -> Any:
        return cp.ExpCone(s[0::3], s[1::3], s[2::3])

    def multiplier(self, constraint: Any) -> Array:
        return np.column_stack([np.ravel(part) for part in constraint.dual_value]).ravel()


def cones_of(dims: Any) -> Iterator[Cone]:
    """Yield the cones of CVXPY's ``ConeDims`` that have rows, in their order."""
    start = 0

    def rows(count: int) -> slice:
        nonlocal start
        start += count
        return slice(start - count, start)

    if dims.zero:
        yield _Zero(rows(int(dims.zero)))
    if dims.nonneg:
        yield _Nonnegative(rows(int(dims.nonneg)))
    yield from (_SecondOrder(rows(int(size))) for size in dims.soc)
    yield from (_Psd(rows(int(n) * (int(n) + 1) // 2), int(n)) for n in dims.psd)
    if dims.exp:
        yield _Exponential(rows(3 * int(dims.exp)))
