"""A library of small problems with answers known independently of any route.

Each case has its problem, the optimal value and matrix in closed form (or from a paper), the duals if they
are unique and known, or the status if there is no optimum. The conformance suite solves every case by every
route that takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import bregopt as bo

CASES: dict[str, Callable[[], Case]] = {}


@dataclass(frozen=True, eq=False)
class Case:
    problem: bo.Problem
    value: float | None = None
    X: Any = None
    duals: dict[int, Any] = field(default_factory=dict)
    u: dict[str, Any] = field(default_factory=dict)
    status: str = "optimal"


def case(function):
    CASES[function.__name__] = function
    return function


def positive_definite(n, seed, ridge=0.2):
    G = np.random.default_rng(seed).normal(size=(n, n))
    return G @ G.T / n + ridge * np.eye(n)


def rank_one_projection(X0, z, b):
    """Kulis et al. 2009, eq. 19-21: the LogDet projection on z'Xz = b."""
    p = z @ X0 @ z
    alpha = 1 / p - 1 / b
    x = X0 @ z
    return X0 + alpha / (1 - alpha * p) * np.outer(x, x), alpha


def logdet(X, X0):
    R = X @ np.linalg.inv(X0)
    return np.trace(R) - np.linalg.slogdet(R)[1] - len(X)


def sym_log(X):
    w, Q = np.linalg.eigh(X)
    return (Q * np.log(w)) @ Q.T


def von_neumann(X, X0):
    return np.trace(X @ sym_log(X) - X @ sym_log(X0) - X + X0)


# --- entropies --------------------------------------------------------------------------------------


@case
def key_rate_of_two_qubits():
    # BB84 at an error rate q in both bases: log 2 - h(q) (Shor and Preskill 2000).
    q, Z, F = 0.05, np.diag([1.0, -1.0]), np.array([[0, 1], [1, 0.0]])
    X = bo.PSD(4)
    errors = [(np.eye(4) - np.kron(s, s)) / 2 for s in (Z, F)]
    key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    rows = [bo.trace(X) == 1, *(bo.inner(E, X) == q for E in errors)]
    rate = np.log(2) + q * np.log(q) + (1 - q) * np.log(1 - q)
    return Case(bo.Problem(bo.Minimize(bo.key_rate(X, pinching=key)), rows), rate)


@case
def free_energy():
    H = np.diag([0.0, 1.0, 3.0])
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(bo.inner(H, X) - bo.von_neumann_entr(X)), [bo.trace(X) == 1])
    weights = np.exp(-np.diag(H))
    return Case(problem, -np.log(weights.sum()), np.diag(weights / weights.sum()))


@case
def entropy_below_a_bound_that_contradicts_it():
    X = bo.PSD(2)
    rows = [bo.trace(X) == 1, bo.von_neumann_entr(X) >= 1]
    return Case(bo.Problem(bo.Minimize(bo.trace(X)), rows), status="infeasible")


# --- LogDet -----------------------------------------------------------------------------------------


@case
def logdet_rank_one_equality():
    X0, z = positive_definite(5, 1), np.array([1.0, -2.0, 0.5, 0.0, 1.0])
    solution, alpha = rank_one_projection(X0, z, 3.0)
    X = bo.PSD(5)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), [bo.quad_form(z, X) == 3.0])
    # Lagrangian f + v (z'Xz - b): the gradient inv(X0) - inv(X) + v zz' vanishes at v = -alpha.
    return Case(problem, logdet(solution, X0), solution, {0: -alpha})


@case
def logdet_violated_upper_bound():
    X0 = positive_definite(4, 2)
    z = np.array([1.0, 0.0, -1.0, 0.0])
    b = 0.5 * (z @ X0 @ z)
    solution, alpha = rank_one_projection(X0, z, b)
    X = bo.PSD(4)
    problem = bo.Problem(bo.Minimize(3.0 * bo.logdet_div(X, X0)), [bo.sq_distance(X, 0, 2) <= b])
    return Case(problem, 3 * logdet(solution, X0), solution, {0: -3 * alpha})


@case
def logdet_violated_lower_bound():
    X0 = positive_definite(4, 3)
    solution, alpha = rank_one_projection(X0, np.eye(4)[1], 2 * X0[1, 1])
    X = bo.PSD(4)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), [X[1, 1] >= 2 * X0[1, 1]])
    return Case(problem, logdet(solution, X0), solution, {0: alpha})


@case
def logdet_entry():
    # min D(X, I) with X_01 = t: X = [[d, t], [t, d]] in that block, and dD/dd = 0 gives d^2 - t^2 = d.
    t = 0.3
    d = (1 + np.sqrt(1 + 4 * t * t)) / 2
    solution = np.eye(3)
    solution[:2, :2] = [[d, t], [t, d]]
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(3))), [X[0, 1] == t])
    return Case(problem, logdet(solution, np.eye(3)), solution)


@case
def logdet_trace():
    # min D(X, I) with tr X = t: X = (t/n) I.
    X = bo.PSD(4)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(4))), [bo.trace(X) <= 2.0])
    solution = 0.5 * np.eye(4)
    # The gradient I - inv(X) + v I is zero at v = 1.
    return Case(problem, logdet(solution, np.eye(4)), solution, {0: 1.0})


@case
def logdet_diagonal_congruence():
    # diag(X) = b for a diagonal X0: the off-diagonal stays zero.
    X = bo.PSD(3)
    X0 = np.diag([1.0, 2.0, 4.0])
    solution = np.diag([2.0, 2.0, 1.0])
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), [bo.diag(X) == np.array([2.0, 2.0, 1.0])])
    return Case(problem, logdet(solution, X0), solution, {0: 1 / np.diag(solution) - 1 / np.diag(X0)})


@case
def logdet_soft_rank_one():
    # Kulis et al. 2009, below eq. 23: alpha = gamma/(gamma+1) (1/p - 1/b).
    X0, z, gamma, b = positive_definite(3, 4), np.array([1.0, 1.0, -1.0]), 2.0, 0.4
    p = z @ X0 @ z
    alpha = gamma / (gamma + 1) * (1 / p - 1 / b)
    x = X0 @ z
    solution = X0 + alpha / (1 - alpha * p) * np.outer(x, x)
    a = z @ solution @ z
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), [bo.soft(bo.quad_form(z, X) <= b, gamma=gamma)])
    return Case(problem, logdet(solution, X0) + gamma * (a / b - np.log(a / b) - 1), solution, {0: -alpha})


@case
def logdet_hinge():
    # x - log x - 1 + 0.5 max(x - 0.1, 0) has the derivative 1 - 1/x + 0.5, zero at x = 2/3, above the bound.
    X = bo.PSD(1)
    problem = bo.Problem(
        bo.Minimize(bo.logdet_div(X, [[1.0]])), [bo.soft(X[0, 0] <= 0.1, gamma=0.5, penalty="hinge")]
    )
    x = 2 / 3
    return Case(problem, x - np.log(x) - 1 + 0.5 * (x - 0.1), [[x]], {0: 0.5})


@case
def logdet_two_sided_inactive_and_active():
    X = bo.PSD(2)
    X0 = np.diag([1.0, 5.0])
    problem = bo.Problem(
        bo.Minimize(bo.logdet_div(X, X0)), [bo.between(bo.diag(X), 0.5, np.array([2.0, 3.0]))]
    )
    solution = np.diag([1.0, 3.0])
    return Case(problem, logdet(solution, X0), solution, {0: np.array([0.0, 1 / 3 - 1 / 5])})


@case
def logdet_relative_comparison():
    # D(X, diag(4, 1)) with X_00 <= X_11: both equal t with 1/4 + 1 = 2/t.
    X = bo.PSD(2)
    X0 = np.diag([4.0, 1.0])
    solution = np.diag([1.6, 1.6])
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), [X[0, 0] <= X[1, 1]])
    return Case(problem, logdet(solution, X0), solution, {0: 1 / 1.6 - 1 / 4})


@case
def logdet_with_linear_term():
    # <I, X> - logdet X + ...: inv(X) = inv(X0) + I.
    X0 = positive_definite(3, 5)
    solution = np.linalg.inv(np.linalg.inv(X0) + np.eye(3))
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, X0) + bo.trace(X) + 7.0))
    return Case(problem, logdet(solution, X0) + np.trace(solution) + 7.0, solution)


@case
def logdet_maximized():
    X = bo.PSD(2)
    problem = bo.Problem(bo.Maximize(1.0 - bo.logdet_div(X, np.eye(2))), [bo.trace(X) >= 4.0])
    solution = 2 * np.eye(2)
    # CVXPY reports duals of the minimization: -1/2 I + ... : v = 1 - 1/2.
    return Case(problem, 1.0 - logdet(solution, np.eye(2)), solution, {0: 0.5})


@case
def logdet_low_rank():
    rng = np.random.default_rng(6)
    G = rng.normal(size=(30, 3))
    z = G[2] - G[7]
    b = 0.4 * z @ z
    M, _ = rank_one_projection(np.eye(3), z, b)
    X = bo.PSD(30)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), [bo.sq_distance(X, 2, 7) <= b])
    return Case(problem, logdet(M, np.eye(3)), G @ M @ G.T)


# --- eigenvalues below a cap ------------------------------------------------------------------------


def water_level(excess, low, high):
    """Return the root of a decreasing function by bisection."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def capped_simplex(divergence, of, function):
    """The nearest matrix of trace one below I/3: function(eigenvalue, shift) clipped at 1/3."""
    X0 = positive_definite(5, 11)
    w, Q = np.linalg.eigh(X0)
    shift = water_level(lambda t: np.clip(function(w, t), 0, 1 / 3).sum() - 1, -50.0, 50.0)
    solution = (Q * np.clip(function(w, shift), 0, 1 / 3)) @ Q.T
    X = bo.PSD(5)
    problem = bo.Problem(bo.Minimize(divergence(X, X0)), [bo.trace(X) == 1, bo.lambda_max(X) <= 1 / 3])
    return Case(problem, of(solution, X0), solution)


@case
def frobenius_capped_simplex():
    return capped_simplex(bo.frobenius_div, lambda X, X0: np.linalg.norm(X - X0) ** 2, lambda w, t: w - t)


@case
def von_neumann_capped_simplex():
    return capped_simplex(bo.von_neumann_div, von_neumann, lambda w, t: w * np.exp(-t))


@case
def logdet_capped():
    # Without rows the eigenvalues are clipped: D is a sum over them in the eigenvectors of X0.
    X0 = positive_definite(4, 12)
    w, Q = np.linalg.eigh(X0)
    solution = (Q * np.minimum(w, 0.5)) @ Q.T
    X = bo.PSD(4)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), [bo.lambda_max(X) <= 0.5])
    return Case(problem, logdet(solution, X0), solution)


@case
def linear_capped():
    # Ky Fan: the sum of the two largest eigenvalues is the largest <A, X> with 0 <= X <= I, tr X = 2.
    A = positive_definite(5, 13)
    w, Q = np.linalg.eigh(A)
    X = bo.PSD(5)
    problem = bo.Problem(bo.Maximize(bo.inner(A, X)), [bo.lambda_max(X) <= 1, bo.trace(X) == 2])
    return Case(problem, w[-2:].sum(), Q[:, -2:] @ Q[:, -2:].T)


@case
def contradiction_capped_trace():
    X = bo.PSD(4)
    rows = [bo.trace(X) == 1, bo.lambda_max(X) <= 0.2]
    return Case(bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(4))), rows), status="infeasible")


# --- von Neumann ------------------------------------------------------------------------------------


@case
def von_neumann_trace_one():
    X0 = positive_definite(4, 7)
    solution = X0 / np.trace(X0)
    X = bo.PSD(4)
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), [bo.trace(X) == 1.0])
    return Case(problem, von_neumann(solution, X0), solution, {0: np.log(np.trace(X0))})


@case
def von_neumann_diagonal():
    X = bo.PSD(3)
    X0 = np.diag([1.0, 2.0, 4.0])
    b = np.array([2.0, 2.0, 1.0])
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), [bo.diag(X) == b])
    return Case(problem, von_neumann(np.diag(b), X0), np.diag(b), {0: -np.log(b / np.diag(X0))})


@case
def von_neumann_entry():
    # exp(alpha A) for A the symmetric unit of entry (0, 1): sinh(alpha / 2) off the diagonal.
    t = 0.4
    half = np.arcsinh(t)
    solution = np.array([[np.cosh(half), np.sinh(half)], [np.sinh(half), np.cosh(half)]])
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(2))), [X[0, 1] >= t])
    return Case(problem, von_neumann(solution, np.eye(2)), solution, {0: 2 * half})


@case
def von_neumann_soft():
    # In one dimension log x0 + a = log b - a/gamma.
    x0, b, gamma = 3.0, 1.0, 0.5
    alpha = (np.log(b) - np.log(x0)) * gamma / (gamma + 1)
    x = x0 * np.exp(alpha)
    X = bo.PSD(1)
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, [[x0]])), [bo.soft(X[0, 0] == b, gamma=gamma)])
    value = x * np.log(x / x0) - x + x0 + gamma * (x * np.log(x / b) - x + b)
    return Case(problem, value, [[x]], {0: -alpha})


@case
def von_neumann_low_rank():
    rng = np.random.default_rng(8)
    V, _ = np.linalg.qr(rng.normal(size=(20, 3)))
    s = np.array([2.0, 1.0, 0.5])
    X = bo.PSD(20)
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, bo.LowRank(V * np.sqrt(s)))), [bo.trace(X) == 1.0])
    solution = (V * (s / s.sum())) @ V.T
    return Case(problem, von_neumann(np.diag(s / s.sum()), np.diag(s)), solution)


@case
def von_neumann_row_at_fixed_trace():
    # tr(W C) = 0 for C = diag(1, -1/3, -1/3): weights ~ exp(-alpha C), so 1/4, 3/8, 3/8.
    X = bo.PSD(3)
    W = np.diag([1 / 4, 3 / 8, 3 / 8])
    problem = bo.Problem(
        bo.Minimize(bo.von_neumann_div(X, np.eye(3) / 3)),
        [bo.inner(np.diag([3.0, -1.0, -1.0]), X) <= 0.0, bo.trace(X) == 1.0],
    )
    return Case(problem, von_neumann(W, np.eye(3) / 3), W, {0: np.log(3 / 2) / 4})


@case
def contradiction_von_neumann_at_fixed_trace():
    X = bo.PSD(2)
    rows = [X[0, 0] >= 0.7, X[1, 1] >= 0.5, bo.trace(X) == 1.0]
    return Case(bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(2) / 2)), rows), status="infeasible")


# --- Kulis et al. 2009, Appendix B: errors without dual corrections -----------------------------------


def _appendix_b_identity(divergence):
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(divergence(X, np.eye(2))), [bo.sq_distance(X, 0, 1) >= 1.0])
    return Case(problem, 0.0, np.eye(2), {0: 0.0})


@case
def appendix_b_identity_logdet():
    return _appendix_b_identity(bo.logdet_div)


@case
def appendix_b_identity_von_neumann():
    return _appendix_b_identity(bo.von_neumann_div)


@case
def appendix_b_identity_frobenius():
    return _appendix_b_identity(bo.frobenius_div)


@case
def appendix_b_simplex():
    # Uncorrected projections stop at (1/5, 7/15, 1/3); the answer is the maximum entropy vector. The printed
    # coefficients have four digits, which limits the accuracy of the answer to four digits.
    X = bo.PSD(3)
    rows = np.array([[0.0912, 0.9385, -0.4377], [0.6020, 0.6020, -0.4377]])
    problem = bo.Problem(
        bo.Minimize(bo.von_neumann_div(X, np.diag([0.1, 0.1, 0.8]))),
        [rows @ bo.diag(X) >= np.array([0.0238, 0.2554]), bo.trace(X) == 1.0],
    )
    return Case(problem, None, np.eye(3) / 3)


# --- Frobenius --------------------------------------------------------------------------------------


@case
def frobenius_psd_part():
    A = np.array([[1.0, 2.0], [2.0, 1.0]])
    X = bo.PSD(2)
    return Case(bo.Problem(bo.Minimize(bo.frobenius_div(X, A))), 1.0, np.full((2, 2), 1.5))


@case
def frobenius_higham():
    # Higham 2002, the 3 x 3 example: distance 0.5278, and X to four digits.
    A = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1.0])
    solution = np.array([[1, 0.7607, 0.1573], [0.7607, 1, 0.7607], [0.1573, 0.7607, 1]])
    return Case(problem, None, solution)


@case
def frobenius_hyperplane():
    # Projection on <A, X> = b that stays inside the cone: X0 + (b - <A, X0>)/||A||^2 A.
    X0, A = 5 * np.eye(3), np.array([[1.0, 0.5, 0.0], [0.5, 0.0, 0.2], [0.0, 0.2, -1.0]])
    alpha = 1.0 / np.vdot(A, A)
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, X0)), [bo.inner(A, X) == np.vdot(A, X0) + 1.0])
    return Case(problem, alpha, X0 + alpha * A, {0: -2 * alpha})


@case
def frobenius_soft():
    # (x - 3)^2 + gamma (x - 1)^2 for x above its bound 1.
    X = bo.PSD(1)
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, [[3.0]])), [bo.soft(X[0, 0] <= 1.0, gamma=3.0)])
    return Case(problem, 1.5**2 + 3 * 0.5**2, [[1.5]], {0: 3.0})


@case
def frobenius_duplicate_rows():
    X = bo.PSD(2)
    problem = bo.Problem(
        bo.Minimize(bo.frobenius_div(X, np.eye(2))), [bo.diag(X) == 2.0, bo.trace(X) == 4.0, X[0, 0] == 2.0]
    )
    return Case(problem, 2.0, 2 * np.eye(2))


# --- Linear -----------------------------------------------------------------------------------------


@case
def smallest_eigenvalue():
    C = positive_definite(5, 9)
    w, Q = np.linalg.eigh(C)
    X = bo.PSD(5)
    problem = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.trace(X) == 1.0])
    return Case(problem, w[0], np.outer(Q[:, 0], Q[:, 0]), {0: -w[0]})


@case
def max_cut_of_a_triangle():
    L = 3 * np.eye(3) - np.ones((3, 3))
    X = bo.PSD(3)
    problem = bo.Problem(bo.Maximize(bo.inner(L, X) / 4), [bo.diag(X) == 1.0])
    return Case(problem, 9 / 4, 1.5 * np.eye(3) - 0.5 * np.ones((3, 3)), {0: np.full(3, 0.75)})


@case
def largest_of_two_forms():
    # min theta with <C_j, X> <= theta, tr X = 1, C_1 = diag(1, 3), C_2 = diag(3, 1): theta = 2 at X = I/2.
    X, theta = bo.PSD(2), bo.Variable(name="theta")
    forms = bo.inner([np.diag([1.0, 3.0]), np.diag([3.0, 1.0])], X)
    problem = bo.Problem(bo.Minimize(theta), [forms <= theta, bo.trace(X) == 1.0])
    return Case(problem, 2.0, None, {0: np.array([0.5, 0.5])}, {"theta": 2.0})


@case
def trace_at_most():
    # min <C, X> with tr X <= 2 for an indefinite C: all weight on the negative eigenvalue.
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.inner(np.diag([-1.0, 1.0]), X)), [bo.trace(X) <= 2.0])
    return Case(problem, -2.0, np.diag([2.0, 0.0]), {0: 1.0})


@case
def hinge_margin():
    # max rho - 2 sum of hinges of <A, X> >= rho for A = diag(1, 0), diag(0, 1): rho = 1/2 at X = I/2.
    X, rho = bo.PSD(2), bo.Variable(name="rho")
    rows = bo.soft(bo.diag(X) >= rho, gamma=2.0)
    problem = bo.Problem(bo.Maximize(rho), [rows, bo.trace(X) == 1.0])
    return Case(problem, 0.5, 0.5 * np.eye(2), {0: np.array([0.5, 0.5])}, {"rho": 0.5})


@case
def boxed_variables():
    # min -3 u0 - 3 u1 + tr X with u in a box and u0 + u1 <= X_00, tr X <= 10: u gains 3 and costs 1 a unit.
    X, u = bo.PSD(2), bo.Variable(2, lower=0.0, upper=[1.0, 2.0], name="u")
    problem = bo.Problem(
        bo.Minimize(-3 * bo.sum(u) + bo.trace(X)), [bo.sum(u) <= X[0, 0], bo.trace(X) <= 10.0]
    )
    return Case(problem, -6.0, np.diag([3.0, 0.0]), {0: 1.0}, {"u": np.array([1.0, 2.0])})


# --- Several matrices -------------------------------------------------------------------------------

# At the price 1 of the trace, each divergence from the identity has the minimizer x I.
ATOMS = {
    "logdet": (bo.logdet_div, logdet, lambda mu: 1 / (1 + 1 / mu)),
    "von_neumann": (bo.von_neumann_div, von_neumann, lambda mu: np.exp(-1 / mu)),
    "frobenius": (bo.frobenius_div, lambda X, X0: np.sum((X - X0) ** 2), lambda mu: 1 - 1 / (2 * mu)),
}


def _shared_trace(*divergences):
    terms, total, trace, solution, value = [], 0.0, 0.0, [], 0.0
    for b, name in enumerate(divergences):
        atom, divergence, scale = ATOMS[name]
        n, mu = 2 + b % 2, 1.0 + b
        X, own = bo.PSD(n, name=f"X{b}"), scale(mu) * np.eye(n)
        terms.append(mu * atom(X, np.eye(n)))
        total, trace = total + bo.trace(X), trace + np.trace(own)
        solution.append(own)
        value += mu * divergence(own, np.eye(n))
    problem = bo.Problem(bo.Minimize(sum(terms)), [total <= trace])
    return Case(problem, value, tuple(solution), {0: 1.0})


@case
def shared_trace_logdet_logdet():
    return _shared_trace("logdet", "logdet")


@case
def shared_trace_von_neumann_von_neumann():
    return _shared_trace("von_neumann", "von_neumann")


@case
def shared_trace_frobenius_frobenius():
    return _shared_trace("frobenius", "frobenius")


@case
def shared_trace_logdet_von_neumann():
    return _shared_trace("logdet", "von_neumann")


@case
def shared_trace_von_neumann_frobenius():
    return _shared_trace("von_neumann", "frobenius")


@case
def shared_trace_frobenius_logdet():
    return _shared_trace("frobenius", "logdet")


@case
def shared_trace_of_three():
    return _shared_trace("logdet", "von_neumann", "frobenius")


@case
def contradiction_between_matrices():
    X, Y = bo.PSD(3, name="X"), bo.PSD(2, name="Y")
    objective = bo.logdet_div(X, np.eye(3)) + bo.von_neumann_div(Y, np.eye(2))
    rows = [bo.trace(X) + bo.trace(Y) <= 1, X[0, 0] >= 0.6, Y[1, 1] >= 0.6]
    return Case(bo.Problem(bo.Minimize(objective), rows), status="infeasible")


@case
def unbounded_beside_a_bounded_matrix():
    X, Y = bo.PSD(2, name="X"), bo.PSD(2, name="Y")
    objective = bo.logdet_div(X, np.eye(2)) + bo.logdet_div(Y, np.eye(2)) - 2 * bo.trace(Y)
    return Case(bo.Problem(bo.Minimize(objective), [bo.trace(X) <= 1]), status="unbounded")


# --- No answer --------------------------------------------------------------------------------------


def _contradiction(objective):
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(objective(X)), [X[0, 0] == 1.0, X[0, 0] == 2.0, bo.trace(X) <= 5.0])
    return Case(problem, status="infeasible")


@case
def contradiction_logdet():
    return _contradiction(lambda X: bo.logdet_div(X, np.eye(2)))


@case
def contradiction_von_neumann():
    return _contradiction(lambda X: bo.von_neumann_div(X, np.eye(2)))


@case
def contradiction_frobenius():
    return _contradiction(lambda X: bo.frobenius_div(X, np.eye(2)))


@case
def contradiction_linear():
    return _contradiction(bo.trace)


def _beyond_the_cone(objective):
    X = bo.PSD(3)
    problem = bo.Problem(bo.Minimize(objective(X)), [bo.diag(X) <= 1.0, X[0, 1] >= 2.0])
    return Case(problem, status="infeasible")


@case
def beyond_the_cone_logdet():
    return _beyond_the_cone(lambda X: bo.logdet_div(X, np.eye(3)))


@case
def beyond_the_cone_von_neumann():
    return _beyond_the_cone(lambda X: bo.von_neumann_div(X, np.eye(3)))


@case
def beyond_the_cone_frobenius():
    return _beyond_the_cone(lambda X: bo.frobenius_div(X, np.eye(3)))


@case
def beyond_the_cone_linear():
    return _beyond_the_cone(bo.trace)


@case
def unbounded_matrix():
    X = bo.PSD(2)
    return Case(bo.Problem(bo.Maximize(bo.trace(X)), [X[0, 0] == 1.0]), status="unbounded")


@case
def unbounded_margin():
    # PSDBoost's margin SDP with C |S| < 1: raising rho by one costs less than one.
    X, rho, xi = bo.PSD(2), bo.Variable(name="rho"), bo.Variable(2, nonneg=True, name="xi")
    problem = bo.Problem(bo.Maximize(rho - 0.4 * bo.sum(xi)), [bo.diag(X) >= rho - xi, bo.trace(X) == 1.0])
    return Case(problem, status="unbounded")


# --- Cuts of graphs ---------------------------------------------------------------------------------


def _ring(n):
    ring = np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)
    return 2 * np.eye(n) - ring


@case
def largest_cut_of_a_pentagon():
    # Vectors in the plane, each rotated by 4/5 pi from the last: 5 (1 - cos(4/5 pi)) / 2.
    n = 5
    X = bo.PSD(n)
    angle = 0.8 * np.pi * np.arange(n)
    problem = bo.Problem(bo.Maximize(bo.inner(_ring(n) / 4, X)), [bo.diag(X) == 1])
    return Case(problem, n * (1 - np.cos(0.8 * np.pi)) / 2, np.cos(angle[:, None] - angle))


@case
def balanced_cut_of_a_ring():
    # The second eigenvalue of the Laplacian, 2 - 2 cos(2 pi / n), is double: rows are points of a circle.
    n = 8
    X = bo.PSD(n)
    angle = 2 * np.pi / n * np.arange(n)
    balance = bo.quad_form(np.ones(n), X) == 0
    problem = bo.Problem(bo.Minimize(bo.inner(_ring(n), X)), [bo.diag(X) == 1, balance])
    return Case(problem, n * (2 - 2 * np.cos(2 * np.pi / n)), np.cos(angle[:, None] - angle))


@case
def cut_with_an_entry_bounded_from_below():
    # One edge: without the bound X_01 is -1; it must be at least -1/2.
    X = bo.PSD(2)
    L = np.array([[1.0, -1.0], [-1.0, 1.0]])
    problem = bo.Problem(bo.Maximize(bo.inner(L / 4, X)), [bo.diag(X) == 1, X[0, 1] >= -0.5])
    return Case(problem, 0.75, np.array([[1.0, -0.5], [-0.5, 1.0]]), {1: 0.5})
