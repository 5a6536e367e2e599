"""A test-bed of problems whose optimum is known by construction, attained or not.

Each family draws problems from a seed, with the truth in closed form. A complementary pair ``X``, ``Z`` with
``X Z = 0`` gives value and multipliers of a semidefinite program, a gradient gives those of a nearness
problem, and one eigenvalue gives the maximum cut of a transitive graph. Families that are not well posed have
no interior: an optimum that one side does not attain, a duality gap, or no optimum. They are posed alone,
rotated, and joined to a well-posed problem such that no single row reveals them.

``python tests/truth.py`` solves all of them by the routes and prints the table of docs/certificates.md;
``--count`` and ``--seed`` draw others.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import bregopt as bo

TOLS = (1e-4, 1e-6, 1e-8)
ROUTES = ("path", "bregman", "psdboost", "lowrank", "BREGOPT", "method")
WELL_POSED = ("complementary", "variables", "cut", "margin", "game", "nearness", "feasibility", "zero")


@dataclass(frozen=True, eq=False)
class Case:
    """A problem and its truth.

    Parameters
    ----------
    family, name : str
    make : callable
        Returns a new ``bo.Problem``.
    value : float
        The optimal value; ``inf`` if the problem is infeasible, ``-inf`` if it is unbounded.
    unit : float
        The scale of the objective: errors are relative to it and the value.
    attained : bool
        Whether primal and dual optima exist and agree, so that `error` has to hold.
    """

    family: str
    name: str
    make: Callable[[], bo.Problem]
    value: float
    unit: float = 1.0
    attained: bool = True


@dataclass(frozen=True, eq=False)
class Data:
    """``min <C, X> + c'u`` under ``A(X) + B u = b``, >= where `loose`, for ``X`` psd; `X` is an answer."""

    C: np.ndarray
    A: np.ndarray
    b: np.ndarray
    B: np.ndarray | None = None
    c: np.ndarray | None = None
    loose: np.ndarray | None = None
    X: np.ndarray | None = None

    def problem(self) -> bo.Problem:
        """Return the problem in bregopt's language."""
        X = bo.PSD(len(self.C))
        body, objective = bo.inner(self.A, X), bo.inner(self.C, X)
        if self.B is not None:
            u = bo.Variable(self.B.shape[1])
            body, objective = body + self.B @ u, objective + self.c @ u
        loose = np.zeros(len(self.b), dtype=bool) if self.loose is None else self.loose
        equal = np.flatnonzero(~loose)
        rows = [body[equal] == self.b[equal]] if len(equal) else []
        rows += [body[loose.nonzero()[0]] >= self.b[loose]] if loose.any() else []
        return bo.Problem(bo.Minimize(objective), rows)

    def mixed(self, rng: np.random.Generator) -> Data:
        """Return the same problem in rotated coordinates, with combined rows."""
        n, m = len(self.C), len(self.b)
        Q, T = rotation(rng, n), rng.normal(size=(m, m)) + 2 * np.eye(m)
        A = np.einsum("kl,lij->kij", T, self.A)
        return Data(sym(Q @ self.C @ Q.T), sym(Q @ A @ Q.T), T @ self.b)


def sym(A: np.ndarray) -> np.ndarray:
    """Return the symmetric part of one matrix or of each of a stack."""
    return (A + np.swapaxes(A, -1, -2)) / 2


def rotation(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return an orthogonal matrix."""
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def of_norm_one(rng: np.random.Generator, m: int, n: int) -> np.ndarray:
    """Return a stack of random symmetric matrices of Frobenius norm one."""
    A = sym(rng.normal(size=(m, n, n)))
    return A / np.linalg.norm(A, axis=(1, 2))[:, None, None]


def pair(
    rng: np.random.Generator, n: int, rank: int, conditioning: float = 10.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return psd matrices with ``X Z = 0``, ranks that add up to `n`, and largest eigenvalue one."""
    Q = rotation(rng, n)
    x, z = (np.geomspace(1, 1 / conditioning, r) for r in (rank, n - rank))
    return (Q[:, :rank] * x) @ Q[:, :rank].T, (Q[:, rank:] * z) @ Q[:, rank:].T


def regular_size(rng: np.random.Generator, n: int, rank: int) -> int:
    """Return a number of rows with which a random pair is nondegenerate on both sides."""
    return int(rng.integers(rank * (rank + 1) // 2, rank * n - rank * (rank - 1) // 2 + 1))


# --- Well posed -------------------------------------------------------------------------------------


def complementary(rng: np.random.Generator, kind: str) -> tuple[Data, float, float]:
    """Return a semidefinite program from a complementary pair, its value and its unit."""
    n = int(rng.integers(4, 11))
    rank = int(rng.integers(1, n))
    conditioning = 10 ** rng.uniform(0, 6) if kind == "conditioning" else 10.0
    X, Z = pair(rng, n, rank, conditioning)
    A = of_norm_one(rng, regular_size(rng, n, rank), n)
    y = rng.normal(size=len(A))
    scale_C, scale_b = 1.0, 1.0
    if kind == "scales":
        scale_C, scale_b = 10.0 ** rng.integers(-6, 7, size=2)
    b = np.einsum("kij,ij->k", A, X)
    if kind == "zero":
        y -= (b @ y) / (b @ b) * b
    B = c = loose = None
    if kind == "variables":
        B = rng.normal(size=(len(A), max(1, len(A) // 4)))
        u, c = rng.normal(size=B.shape[1]), B.T @ y
        b = b + B @ u
    if kind == "inequalities":
        loose = rng.random(len(A)) < 0.5
        idle = loose & (rng.random(len(A)) < 0.4)
        y = np.where(idle, 0.0, np.where(loose, np.abs(y), y))
        b = b - np.where(idle, rng.random(len(A)), 0.0)
    C = Z + np.einsum("k,kij->ij", y, A)
    if kind == "rows":
        size = 10 ** rng.uniform(-3, 3, size=len(A))
        A, b = size[:, None, None] * A, size * b
    if kind == "redundant":
        T = rng.normal(size=(2, len(A)))
        A, b = np.concatenate([A, np.einsum("kl,lij->kij", T, A)]), np.concatenate([b, T @ b])
    value = float(np.vdot(C, X)) + (0.0 if c is None else float(c @ u))
    unit = scale_b * scale_C * float(np.linalg.norm(C) * np.linalg.norm(X))
    data = Data(scale_C * C, A, scale_b * b, B, None if c is None else scale_C * c, loose, X)
    return data, scale_b * scale_C * (0.0 if kind == "zero" else value), unit


def complementary_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield random complementary pairs: plain, scaled, badly conditioned, with rows of many sizes."""
    for kind in ("plain", "scales", "conditioning", "rows", "inequalities", "redundant"):
        for k in range(count):
            data, value, unit = complementary(rng, kind)
            yield Case("complementary", f"{kind} {k}", data.problem, value, unit)
    for k in range(count):
        data, value, unit = complementary(rng, "zero")
        yield Case("zero", f"value {k}", data.problem, value, unit)
    for k in range(count):
        data, value, unit = complementary(rng, "variables")
        yield Case("variables", f"free {k}", data.problem, value, unit)


def feasibility_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield problems without an objective, with an interior."""
    for k in range(count):
        n = int(rng.integers(3, 9))
        A = of_norm_one(rng, int(rng.integers(1, n * (n + 1) // 2)), n)
        G = rng.normal(size=(n, n))
        b = np.einsum("kij,ij->k", A, G @ G.T / n + 0.1 * np.eye(n)) * 10.0 ** rng.integers(-6, 7)
        yield Case("feasibility", f"{k}", Data(np.zeros((n, n)), A, b).problem, 0.0, 1e-9)


def circulant(n: int, steps: Sequence[int]) -> np.ndarray:
    """Return the adjacency matrix of a circulant graph."""
    W = np.zeros((n, n))
    for step in steps:
        W[np.arange(n), (np.arange(n) + step) % n] = 1.0
    return np.maximum(W, W.T)


def cut_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield cuts of transitive graphs, known by an eigenvalue, and of bipartite ones, which cut all edges."""

    def problem(W: np.ndarray, balanced: bool) -> Callable[[], bo.Problem]:
        def make() -> bo.Problem:
            X = bo.PSD(len(W))
            L = (np.diag(W.sum(axis=1)) - W) / 4
            rows = [bo.diag(X) == 1] + ([bo.sum(X) == 0] if balanced else [])
            goal = bo.Minimize(bo.inner(L, X)) if balanced else bo.Maximize(bo.inner(L, X))
            return bo.Problem(goal, rows)

        return make

    for k in range(count):
        n = int(rng.integers(4, 16))
        weight = 10.0 ** rng.integers(-6, 7)
        steps = rng.choice(np.arange(1, n // 2 + 1), size=int(rng.integers(1, n // 2 + 1)), replace=False)
        W = weight * circulant(n, steps)
        eigenvalues = np.linalg.eigvalsh(np.diag(W.sum(axis=1)) - W)
        unit = float(W.sum()) / 2
        yield Case("cut", f"largest {k}", problem(W, False), n / 4 * eigenvalues[-1], unit)
        yield Case("cut", f"balanced {k}", problem(W, True), n / 4 * eigenvalues[1], unit)
        side = rng.random(n) < 0.5
        V = np.where(side[:, None] != side, rng.random((n, n)) * (rng.random((n, n)) < 0.6), 0.0)
        V = weight * (V + V.T)
        total = float(V.sum()) / 2
        if total > 0:
            yield Case("cut", f"bipartite {k}", problem(V, False), total, total)


def game(rng: np.random.Generator, value: float, price: float) -> tuple[np.ndarray, float]:
    """Return rows ``A_i`` for which ``max min_i <A_i, X>`` over trace one has this value, and the optimum.

    Rows whose multiplier is the full `price` are violated, which lowers the optimum of the soft margin. With
    an infinite price no row is violated.
    """
    n = int(rng.integers(2, 9))
    X, Z = pair(rng, n, int(rng.integers(1, n)))
    X /= np.trace(X)
    most = int(1 / price) if np.isfinite(price) else 0
    missing = int(rng.integers(0, most)) if most else 0
    rest = 1 - missing * price if missing else 1.0
    active = missing + int(2 * rest / price + rng.integers(2, 12))
    m = active + int(rng.integers(0, 10))
    A = sym(rng.normal(size=(m, n, n)))
    w = np.zeros(m)
    w[:missing] = price
    share = rng.random(active - missing) + 1.0
    w[missing:active] = share * rest / share.sum()
    goal = np.full(m, value)
    goal[:missing] -= rng.random(missing)
    goal[active:] += rng.random(m - active)
    A += (goal - np.einsum("kij,ij->k", A, X))[:, None, None] * np.eye(n)
    optimum = float(w @ goal)
    # The last active row makes the weighted sum complementary to X.
    k = active - 1
    rest = np.einsum("k,kij->ij", w, A) - w[k] * A[k]
    A[k] = (optimum * np.eye(n) - Z - rest) / w[k]
    return A, optimum


def game_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield matrix games ``max t`` with ``<A_i, X> >= t``, some of value zero, and soft margins."""

    def problem(A: np.ndarray, scale: float, price: float) -> Callable[[], bo.Problem]:
        def make() -> bo.Problem:
            X, t = bo.PSD(A.shape[1]), bo.Variable()
            rows = bo.inner(scale * A, X) - t >= 0
            rows = rows if np.isinf(price) else bo.soft(rows, gamma=price, penalty="hinge")
            return bo.Problem(bo.Maximize(t), [rows, bo.trace(X) == 1])

        return make

    for k in range(count):
        scale = 10.0 ** rng.integers(-6, 7)
        A, value = game(rng, 0.0 if k % 2 else rng.normal(), np.inf)
        unit = scale * float(np.linalg.norm(A, axis=(1, 2)).max())
        yield Case("game", f"{k}", problem(A, scale, np.inf), scale * value, unit)
        price = rng.uniform(0.15, 0.45)
        A, value = game(rng, rng.normal(), price)
        unit = scale * float(np.linalg.norm(A, axis=(1, 2)).max())
        yield Case("margin", f"{k}", problem(A, scale, price), scale * value, unit)


def nearness_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield nearness problems of the three divergences whose gradient condition holds at a known answer."""

    def problem(atom: Any, X0: np.ndarray, A: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> Any:
        def make() -> bo.Problem:
            X = bo.PSD(len(X0))
            equal = lo == hi
            below, above = np.isfinite(lo) & ~equal, np.isfinite(hi) & ~equal
            rows = [bo.inner(A[equal], X) == lo[equal]] if equal.any() else []
            rows += [bo.inner(A[below], X) >= lo[below]] if below.any() else []
            rows += [bo.inner(A[above], X) <= hi[above]] if above.any() else []
            return bo.Problem(bo.Minimize(atom(X, X0)), rows)

        return make

    atoms = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}
    for name, atom in atoms.items():
        for k in range(3 * count):
            n, scale = int(rng.integers(3, 10)), 10.0 ** rng.integers(-6, 7)
            kind = ("equal", "inequalities", "zero")[k % 3]
            G = rng.normal(size=(n, n))
            X0 = G @ G.T / n + 0.2 * np.eye(n)
            A = of_norm_one(rng, int(rng.integers(1, 2 * n)), n)
            y = rng.normal(size=len(A)) * (kind != "zero")
            loose = (rng.random(len(A)) < 0.6) & (kind == "inequalities")
            idle = loose & (rng.random(len(A)) < 0.4)
            y[idle] = 0.0
            X, value, unit = nearest(name, X0, np.einsum("k,kij->ij", y, A))
            a = scale * np.einsum("kij,ij->k", A, X)
            room = scale * rng.random(len(A))
            lo = np.where(loose & (y < 0), -np.inf, a - np.where(idle, room, 0.0))
            hi = np.where(loose & (y >= 0), np.inf, a)
            size = {"logdet": 1.0, "von_neumann": scale, "frobenius": scale**2}[name]
            make = problem(atom, scale * X0, A, lo, hi)
            yield Case("nearness", f"{name} {kind} {k}", make, size * value, size * unit)


def spectral(A: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the function of a symmetric matrix that acts on its eigenvalues."""
    w, Q = np.linalg.eigh(A)
    return (Q * function(w)) @ Q.T


def nearest(name: str, X0: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return ``X`` where the divergence from `X0` has the gradient `S` plus a multiplier of the cone.

    Also return the divergence of ``X`` and its unit. For LogDet `S` is scaled, in place, until ``X`` exists.
    """
    if name == "frobenius":
        w, Q = np.linalg.eigh(X0 + S / 2)
        X = (Q * np.maximum(w, 0)) @ Q.T
        return X, float(np.linalg.norm(X - X0) ** 2), float(np.linalg.norm(X0) ** 2)
    if name == "von_neumann":
        log_X0 = spectral(X0, np.log)
        X = spectral(log_X0 + S, np.exp)
        value = np.trace(X @ S - X + X0)
        return X, float(value), float(np.trace(X0))
    inverse = np.linalg.inv(X0)
    S *= min(1.0, 0.8 / max(np.linalg.eigvalsh(np.linalg.solve(inverse, S) @ np.eye(len(S)))[-1], 1e-12))
    while np.linalg.eigvalsh(inverse - S)[0] <= 0.05 * np.linalg.eigvalsh(inverse)[0]:
        S *= 0.5
    X = sym(np.linalg.inv(inverse - S))
    R = X @ inverse
    return X, float(np.trace(R) - np.linalg.slogdet(R)[1] - len(X)), 1.0


# --- Hard: no interior, nearly dependent rows ------------------------------------------------------


def hard_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield problems with an attained optimum that are nearly degenerate or whose solutions are on a face."""
    for k in range(count):
        data, value, unit = complementary(rng, "plain")
        A = np.concatenate([data.A, data.A[:1] + 1e-6 * of_norm_one(rng, 1, len(data.C))])
        b = np.append(data.b, float(np.vdot(A[-1], data.X)))
        near = Data(data.C, A, b)
        yield Case("nearly redundant", f"{k}", near.problem, value, unit)
    for k in range(count):
        data, value, unit = complementary(rng, "plain")
        n = len(data.C)
        joined = join(data, Data(np.eye(2), np.eye(2)[None], np.zeros(1)), rng, n)
        yield Case("face", f"{k}", joined.problem, value, unit)


# --- Not well posed ---------------------------------------------------------------------------------


def unit_entry(n: int, i: int, j: int) -> np.ndarray:
    """Return the symmetric matrix with ``<A, X> = X_ij``."""
    return sym(np.outer(np.eye(n)[i], np.eye(n)[j]))


def ill_posed() -> dict[str, tuple[Data, float]]:
    """Return the classical examples of orders two and three, and their optimal values."""
    e = unit_entry
    return {
        # X_22 = 0 forces X_12 = 0, with no finite multiplier.
        "dual not attained": (
            Data(2 * e(2, 0, 1), np.array([e(2, 1, 1), e(2, 0, 0)]), np.array([0.0, 1.0])),
            0.0,
        ),
        # X_12 = 1 with X_11 arbitrarily small.
        "primal not attained": (Data(e(2, 0, 0), np.array([e(2, 0, 1)]), np.array([1.0])), 0.0),
        # X_22 = 0 forces X_23 = 0 and X_11 = 1; the dual value is 0.
        "duality gap": (
            Data(e(3, 0, 0), np.array([e(3, 1, 1), e(3, 0, 0) + 2 * e(3, 1, 2)]), np.array([0.0, 1.0])),
            1.0,
        ),
        # X_11 = 0 and X_12 = 1 contradict each other, with no multipliers that prove it.
        "weakly infeasible": (
            Data(e(2, 1, 1), np.array([e(2, 0, 0), e(2, 0, 1)]), np.array([0.0, 1.0])),
            np.inf,
        ),
        # X_12 = -sqrt(X_11) is unbounded below, but along no ray.
        "weakly unbounded": (Data(2 * e(2, 0, 1), np.array([e(2, 1, 1)]), np.array([1.0])), -np.inf),
        "infeasible": (
            Data(e(2, 1, 1), np.array([e(2, 0, 0), e(2, 0, 1)]), np.array([-1.0, 1.0])),
            np.inf,
        ),
        "unbounded": (Data(-e(2, 0, 0), np.array([e(2, 0, 1)]), np.array([1.0])), -np.inf),
    }


def join(first: Data, second: Data, rng: np.random.Generator, n: int) -> Data:
    """Return two problems in one matrix, in rotated coordinates and with their rows combined."""
    order = n + len(second.C)

    def placed(S: np.ndarray, at: int) -> np.ndarray:
        whole = np.zeros((*S.shape[:-2], order, order))
        whole[..., at : at + S.shape[-1], at : at + S.shape[-1]] = S
        return whole

    A = np.concatenate([placed(first.A, 0), placed(second.A, n)])
    C = placed(first.C, 0) + placed(second.C, n)
    return Data(C, A, np.concatenate([first.b, second.b])).mixed(rng)


def ill_posed_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield each example alone, rotated, and joined to a complementary pair."""
    for name, (data, value) in ill_posed().items():
        for scale in (1e-3, 1.0, 1e3):
            scaled = Data(data.C, data.A, scale * data.b)
            yield Case(name, f"alone {scale:g}", scaled.problem, scale * value, scale, False)
        for k in range(count):
            yield Case(name, f"turned {k}", data.mixed(rng).problem, value, 1.0, False)
        for k in range(2 * count):
            own, known, unit = complementary(rng, "plain")
            both = join(own, data, rng, len(own.C))
            yield Case(name, f"joined {k}", both.problem, known + value, unit + 1.0, False)


FAMILIES = (
    complementary_cases,
    feasibility_cases,
    cut_cases,
    game_cases,
    nearness_cases,
    hard_cases,
    ill_posed_cases,
)


def cases(seed: int = 0, count: int = 20) -> list[Case]:
    """Return all families, with this many draws of each kind."""
    found = []
    for k, family in enumerate(FAMILIES):
        found += family(np.random.default_rng([seed, k]), count)
    return found


# --- Judging ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The claims of an answer compared with the truth.

    Parameters
    ----------
    status : str
    false : bool
        "optimal" with a value that is wrong by more than a hundred tolerances, or without an optimum.
    exaggerated : bool
        "optimal" with value and bound further apart than ten tolerances.
    disproved : bool
        "infeasible" or "unbounded" for a problem that is not.
    understated : bool
        `error` below the true error by more than 1e-11 of the size, for an attained optimum.
    """

    status: str
    false: bool = False
    exaggerated: bool = False
    disproved: bool = False
    understated: bool = False

    @property
    def true(self) -> bool:
        """Whether no claim is wrong."""
        return not (self.false or self.exaggerated or self.disproved or self.understated)


def judge(case: Case, tol: float, status: str, value: float, bound: float, error: float) -> Verdict:
    """Return the verdict on an answer; `bound` and `error` are NaN if they are unknown."""
    if status == "infeasible":
        return Verdict(status, disproved=np.isfinite(case.value) or case.value < 0)
    if status == "unbounded":
        return Verdict(status, disproved=np.isfinite(case.value) or case.value > 0)
    size = case.unit + abs(case.value)
    off = abs(value - case.value)
    optimal = status == "optimal"
    return Verdict(
        status,
        false=optimal and not (np.isfinite(case.value) and off <= 100 * tol * size),
        exaggerated=optimal and abs(value - bound) > 10 * tol * (case.unit + abs(value) + abs(bound)),
        understated=case.attained and off > error + 1e-11 * size,
    )


def answer(case: Case, route: str, tol: float) -> Verdict | None:
    """Return the verdict on a route's answer, None if the route does not take the problem."""
    problem = case.make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if route in ("BREGOPT", "method"):
            return _by_cvxpy(case, problem, route, tol)
        try:
            sol = problem.solve(solver=route, tol=tol)
        except bo.InfeasibleRowError:
            return judge(case, tol, "infeasible", np.inf, np.inf, np.nan)
        except bo.UnsupportedProblemError:
            return None
    return judge(case, tol, sol.status, sol.value, sol.dual_value, sol.error)


def _by_cvxpy(case: Case, problem: bo.Problem, route: str, tol: float) -> Verdict | None:
    import cvxpy as cp

    import bregopt.cvxpy as bregopt_cvxpy

    if route == "BREGOPT" and any(problem.program().divergences):
        return None
    theirs = problem.to_cvxpy()
    how = {"solver": bregopt_cvxpy.BREGOPT} if route == "BREGOPT" else {"method": "bregopt"}
    try:
        theirs.solve(tol=tol, **how)
    except cp.SolverError:
        return judge(case, tol, "solver_error", np.nan, np.nan, np.nan)
    return judge(case, tol, theirs.status, theirs.value, np.nan, np.nan)


HEADING = "| by | tol | problems | optimal | no answer, proven | inaccurate | wrong | well posed: optimal |"


@dataclass(frozen=True)
class Tally:
    """The verdicts on one route at one tolerance."""

    route: str
    tol: float
    verdicts: Sequence[tuple[Case, Verdict]]

    @classmethod
    def of(cls, route: str, tol: float, found: Sequence[Case]) -> Tally:
        """Solve all problems that a route takes."""
        verdicts = [(case, answer(case, route, tol)) for case in found]
        return cls(route, tol, [(case, verdict) for case, verdict in verdicts if verdict is not None])

    @property
    def wrong(self) -> list[str]:
        """The problems with a wrong claim."""
        return [
            f"{case.family} {case.name}: {verdict}" for case, verdict in self.verdicts if not verdict.true
        ]

    @property
    def lost(self) -> list[str]:
        """The well-posed problems that do not end optimal."""
        return [
            f"{case.family} {case.name}: {verdict.status}"
            for case, verdict in self.verdicts
            if case.family in WELL_POSED and verdict.status != "optimal"
        ]

    @property
    def well_posed(self) -> int:
        """The number of well-posed problems."""
        return sum(case.family in WELL_POSED for case, _ in self.verdicts)

    def __str__(self) -> str:
        statuses = Counter(verdict.status for _, verdict in self.verdicts)
        proven = statuses["infeasible"] + statuses["unbounded"]
        rest = len(self.verdicts) - statuses["optimal"] - proven
        solved = self.well_posed - len(self.lost)
        cells = (self.route, f"{self.tol:.0e}", len(self.verdicts), statuses["optimal"], proven, rest)
        return "| " + " | ".join(map(str, (*cells, len(self.wrong), f"{solved} of {self.well_posed}"))) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Solve problems of known truth by every route.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="draws of each kind")
    parser.add_argument("--route", choices=ROUTES, action="append")
    parser.add_argument("--list", action="store_true", help="name what is wrong and what is lost")
    options = parser.parse_args()
    found = cases(options.seed, options.count)
    print(HEADING)
    print("|---" * HEADING.count(" | ") + "|---|")
    for route in options.route or ROUTES:
        for tol in TOLS:
            tally = Tally.of(route, tol, found)
            print(tally, flush=True)
            if options.list:
                print(*(f"wrong {line}" for line in tally.wrong), sep="\n")
                print(*(f"lost {line}" for line in tally.lost), sep="\n")


if __name__ == "__main__":
    main()
