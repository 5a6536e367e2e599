"""The solvers of the nearness benchmark, bregopt's methods and their peers.

Each is an :class:`Entrant`: a function that is timed, and an untimed one that certifies its answer. The
certificate is computed by the same code for all.
"""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from nearness_problems import Array, Make, correlation_problem, start_matrix

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.routes.reference.translate import Translation, joined

Fixed = tuple[Array, Array, Array] | None
_PATIENCE = 120.0  # time limit of a run of QICS in seconds
_ANCHOR = 1e-14  # least eigenvalue of a peer's answer after repair; the logarithm requires it to be positive


@dataclass(frozen=True)
class Verdict:
    """The certificate of an answer.

    Parameters
    ----------
    gap : float
        The certified relative duality gap.
    off : float
        Relative violation of the rows.
    steps : int or None
    stopped : bool
        Whether a limit ended the run.
    """

    gap: float
    off: float
    steps: int | None = None
    stopped: bool = False


@dataclass(frozen=True)
class Entrant:
    """A solver on an instance: `run` is timed, `judge` is not."""

    solver: str
    run: Callable[[], Any]
    judge: Callable[[Any], Verdict]


# ------------------------------------------------------------------------------------------------ any problem


def by_bregopt(make: Make, **options: Any) -> Entrant:
    """Return our own route; modeling is timed."""

    def judge(sol: bo.Solution) -> Verdict:
        return Verdict(sol.gap, sol.primal_residual, sol.iterations, sol.status == "user_limit")

    solver = f"bregopt {options.get('method', 'newton')}"
    return Entrant(solver, lambda: make().solve(solver="bregman", **options), judge)


def by_model(make: Make, backend: str, **options: Any) -> Entrant:
    """Return a solver on the CVXPY model that bregopt writes of a dense problem, in its own units."""
    program = make().program()

    def run() -> Translation:
        given = make().program()
        model = joined(given)
        model.problem.solve(solver=backend, **options)
        return model

    def judge(model: Translation) -> Verdict:
        X = _psd(model.matrices()[0])
        certificate = certify(PrimalDualPoint(program, (X,), np.zeros(0), model.multipliers()))
        steps = model.problem.solver_stats.num_iters
        return Verdict(certificate.gap, certificate.primal_residual, steps)

    return Entrant(f"CVXPY+{backend}", run, judge)


def by_route(make: Make, backend: str, **options: Any) -> Entrant:
    """Return a solver through bregopt's route `cvxpy`, which also takes low rank, on the range space."""

    def run() -> bo.Solution:
        return make().solve(solver="cvxpy", backend=backend, backend_options=options)

    return Entrant(
        f"CVXPY+{backend}, reduced",
        run,
        lambda sol: Verdict(sol.gap, sol.primal_residual, sol.iterations),
    )


def _psd(X: Array) -> Array:
    w, Q = np.linalg.eigh((X + X.T) / 2)
    return (Q * np.maximum(w, _ANCHOR)) @ Q.T


# ---------------------------------------------------------------------------------------- nearest correlation


def by_cvxpy(divergence: str, X0: Array, fixed: Fixed, backend: str) -> Entrant:
    """Return a solver on a CVXPY model written by hand."""

    def run() -> tuple[Array, Array]:
        X = cp.Variable(X0.shape, PSD=True)
        rows = [cp.diag(X) == 1]
        if fixed is not None:
            rows.append(X[fixed[0], fixed[1]] == fixed[2])
        model = cp.Problem(cp.Minimize(_cvxpy_divergence(divergence, X, X0)), rows)
        options = {"eps": 1e-6, "max_iters": 20_000} if backend == "SCS" else {}
        model.solve(solver=backend, **options)
        return X.value, -np.concatenate([row.dual_value for row in rows])

    judge = _judge(divergence, X0, fixed)
    return Entrant(f"CVXPY+{backend}", run, lambda answer: judge(*answer))


def _cvxpy_divergence(divergence: str, X: cp.Variable, X0: Array) -> cp.Expression:
    """Return the divergence without its constant."""
    if divergence == "frobenius":
        return cp.sum_squares(X - X0)
    if divergence == "logdet":
        return cp.trace(np.linalg.inv(X0) @ X) - cp.log_det(X)
    return -cp.von_neumann_entr(X) - cp.trace((_logarithm(X0) + np.eye(len(X0))) @ X)


def by_qics(divergence: str, X0: Array) -> Entrant:
    """Return QICS on a LogDet or von Neumann problem, without the compilation of its kernels."""
    import numba

    numba.set_num_threads(1)  # its own loops are parallel too
    _solved_by_qics(divergence, start_matrix(5, np.random.default_rng(0)))
    judge = _judge(divergence, X0, None)

    def verdict(answer: tuple[Array, Array, bool]) -> Verdict:
        value, y, stopped = answer
        worth = judge(value, y)
        return Verdict(worth.gap, worth.off, stopped=stopped)

    return Entrant("QICS", lambda: _solved_by_qics(divergence, X0), verdict)


def has_qics() -> bool:
    """Whether QICS is installed."""
    return importlib.util.find_spec("qics") is not None


def _solved_by_qics(divergence: str, X0: Array) -> tuple[Array, Array, bool]:
    """Return the answer, the multipliers, and whether time ran out.

    QICS minimizes t + <C, X> over (t, U, X) in a cone, with U constant. von Neumann: t >= tr X log X with
    ``U = 1``. LogDet: t >= tr U (log U - log X) with ``U = I``, which is -log det X. This is the fastest
    cone of QICS for -log det X.
    """
    import qics
    from qics.vectorize import eye, mat_to_vec

    n = len(X0)
    if divergence == "von_neumann":
        C = -_logarithm(X0) - np.eye(n)
        cone, constant, of_U = qics.cones.QuantEntr(n), np.ones((1, 1)), np.ones((1, 1))
    else:
        C = np.linalg.inv(X0)
        cone, constant = qics.cones.QuantRelEntr(n), mat_to_vec(np.eye(n), compact=True)
        of_U = eye(n)
    diagonal = sp.csr_array((np.ones(n), (range(n), range(0, n * n, n + 1))), shape=(n, n * n))
    A = sp.block_diag([np.zeros((0, 1)), of_U, diagonal], format="csr")
    b = np.vstack([constant, np.ones((n, 1))])
    c = np.vstack([[[1.0]], np.zeros((of_U.shape[1], 1)), mat_to_vec(C)])
    model = qics.Model(c, sp.csr_array(A), b, cones=[cone])
    info = qics.Solver(model, verbose=0, max_time=_PATIENCE).solve()
    return info["s_opt"][0][-1], -info["y_opt"].ravel()[-n:], info["exit_status"] == "max_time"


def _logarithm(X0: Array) -> Array:
    w, Q = np.linalg.eigh(X0)
    return (Q * np.log(w)) @ Q.T


def by_statsmodels(A: Array) -> Entrant:
    """Return statsmodels on a plain Frobenius problem."""
    from statsmodels.stats.correlation_tools import corr_nearest

    def run() -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it always runs to its limit and warns
            return corr_nearest(A)

    return Entrant("statsmodels corr_nearest", run, _judge("frobenius", A, None))


def by_higham(A: Array) -> Entrant:
    """Return alternating projections on a plain Frobenius problem."""
    judge = _judge("frobenius", A, None)
    return Entrant(
        "Higham with Anderson", lambda: higham(A), lambda answer: judge(answer[0], steps=answer[1])
    )


def higham(A: Array, tol: float = 1e-8, depth: int = 2, limit: int = 2000) -> tuple[Array, int]:
    """Return the nearest correlation matrix by alternating projections with Anderson acceleration.

    Higham (2002) with Dykstra's correction; Higham and Strabic (2016) for the acceleration of the map.
    """
    n = len(A)

    def psd(S: Array) -> Array:
        w, Q = np.linalg.eigh(S)
        return (Q * np.maximum(w, 0)) @ Q.T

    def step(z: Array) -> Array:
        Y, S = z[: n * n].reshape(n, n), z[n * n :].reshape(n, n)
        R = Y - S
        X = psd(R)
        S = X - R
        Y = X.copy()
        np.fill_diagonal(Y, 1)
        return np.concatenate([Y.ravel(), S.ravel()])

    z = np.concatenate([A.ravel(), np.zeros(n * n)])
    values: list[Array] = []
    residuals: list[Array] = []
    for k in range(limit):
        g = step(z)
        f = g - z
        values.append(g)
        residuals.append(f)
        if np.linalg.norm(f) <= tol * np.linalg.norm(g):
            return psd(g[: n * n].reshape(n, n)), k + 1
        values, residuals = values[-depth - 1 :], residuals[-depth - 1 :]
        z = g
        if len(values) > 1:
            dF = np.column_stack([b - a for a, b in itertools.pairwise(residuals)])
            dG = np.column_stack([b - a for a, b in itertools.pairwise(values)])
            weight, *_ = np.linalg.lstsq(dF, f, rcond=None)
            z = g - dG @ weight
    return psd(z[: n * n].reshape(n, n)), limit


def by_qi_sun(A: Array) -> Entrant:
    """Return Newton's method on the dual of a plain Frobenius problem."""
    judge = _judge("frobenius", A, None)
    return Entrant(
        "Newton by Qi and Sun",
        lambda: qi_sun(A),
        lambda answer: judge(answer[0], 2 * answer[1], steps=answer[2]),
    )


def qi_sun(A: Array, tol: float = 1e-7, limit: int = 100) -> tuple[Array, Array, int]:
    """Return the nearest correlation matrix by the semismooth Newton method, without a certificate.

    Qi and Sun (2006): minimize ``||(A + Diag y)_+||^2 / 2 - sum y`` over ``y``. Steps are by conjugate
    gradients with a diagonal preconditioner, each product with the smaller of the two parts of the spectrum.
    It ends where the diagonal is off by at most `tol`, in the norm relative to that of the ones.
    """
    y = 1 - np.diag(A)
    value, slope, w, P = _dual_of_qi_sun(A, y)
    steps = 0
    while np.linalg.norm(slope) > tol * len(A) ** 0.5 and steps < limit:
        d = _newton_step(w, P, slope)
        length, descent = 1.0, float(slope @ d)
        while True:
            found = _dual_of_qi_sun(A, y + length * d)
            if found[0] <= value + 1e-4 * length * descent + 1e-14 * abs(value) or length < 1e-6:
                break
            length /= 2
        y = y + length * d
        value, slope, w, P = found
        steps += 1
    half = P[:, w > 0] * np.sqrt(w[w > 0])
    return half @ half.T, y, steps


def _dual_of_qi_sun(A: Array, y: Array) -> tuple[float, Array, Array, Array]:
    w, P = np.linalg.eigh(A + np.diag(y))
    plus = np.maximum(w, 0)
    return 0.5 * float(plus @ plus) - float(y.sum()), (P**2) @ plus - 1, w, P


def _newton_step(w: Array, P: Array, slope: Array) -> Array:
    """Return the step by conjugate gradients to a residual that falls with the slope."""
    up, down = w > 0, w <= 0
    ratio = w[up][:, None] / (w[up][:, None] - w[down][None, :])
    P1, P2 = P[:, up], P[:, down]
    if up.sum() <= down.sum():

        def curvature(h: Array) -> Array:
            T = P1.T @ (h[:, None] * P1), ratio * (P1.T @ (h[:, None] * P2))
            return np.einsum("ij,ij->i", P1, P1 @ T[0].T + 2 * P2 @ T[1].T) + 1e-10 * h

    else:  # the identity less the part with the other spectrum

        def curvature(h: Array) -> Array:
            T = P2.T @ (h[:, None] * P2), (1 - ratio) * (P1.T @ (h[:, None] * P2))
            return h - np.einsum("ij,ij->i", P2, P2 @ T[0].T + 2 * P1 @ T[1]) + 1e-10 * h

    share = (P1**2).sum(axis=1)
    diagonal = np.maximum(share**2 + 2 * ((P1**2 @ ratio) * P2**2).sum(axis=1), 1e-8)
    d, r = np.zeros_like(slope), -slope
    z = r / diagonal
    p, old = z, float(r @ z)
    enough = min(0.1, float(np.linalg.norm(slope))) * float(np.linalg.norm(slope))
    for _ in range(200):
        Vp = curvature(p)
        alpha = old / float(p @ Vp)
        d, r = d + alpha * p, r - alpha * Vp
        if np.linalg.norm(r) <= enough:
            break
        z = r / diagonal
        new = float(r @ z)
        p, old = z + new / old * p, new
    return d


def _judge(divergence: str, X0: Array, fixed: Fixed) -> Callable[..., Verdict]:
    """Return the function that certifies an answer by its multipliers, or by the best ones if it has none.

    First the answer is made psd with a unit diagonal.
    """
    problem = correlation_problem(divergence, X0, fixed)()

    def judge(X: Array, y: Array | None = None, steps: int | None = None) -> Verdict:
        if y is None:
            problem.solve(tol=1e-10)
            y = -np.concatenate([row.dual_value for row in problem.constraints])
        X = _psd(X)
        d = 1 / np.sqrt(np.diag(X))
        X = d[:, None] * X * d
        certificate = certify(PrimalDualPoint(problem.program(), ((X + X.T) / 2,), np.zeros(0), y))
        return Verdict(certificate.gap, certificate.primal_residual, steps)

    return judge
