"""Semidefinite programs of textbooks in CVXPY, each for an order `n` and a seed.

BV is Boyd and Vandenberghe (2004), Convex Optimization; VB is Vandenberghe and Boyd (1996), Semidefinite
Programming, SIAM Review 38; MC is MOSEK's Modeling Cookbook; BTN is Ben-Tal and Nemirovski (2001), Lectures
on Modern Convex Optimization. Sizes beside `n` follow the text or are proportional to `n`.
"""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np

Array = np.ndarray
PROBLEMS: dict[str, Callable[[int, np.random.Generator], cp.Problem]] = {}


def problem(make: Callable[[int, np.random.Generator], cp.Problem]) -> Callable[..., cp.Problem]:
    """Register a problem under the name of its function."""
    PROBLEMS[make.__name__] = make
    return make


def symmetric(n: int, rng: np.random.Generator) -> Array:
    """Return a random symmetric matrix."""
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


def definite(n: int, rng: np.random.Generator) -> Array:
    """Return a random positive definite matrix."""
    A = rng.normal(size=(n, 2 * n))
    return A @ A.T / (2 * n)


def stable(n: int, rng: np.random.Generator) -> Array:
    """Return a random stable matrix."""
    A = rng.normal(size=(n, n)) / np.sqrt(n)
    return A - (np.linalg.eigvals(A).real.max() + 0.5) * np.eye(n)


def graph(n: int, rng: np.random.Generator, degree: float = 6.0) -> list[tuple[int, int]]:
    """Return the edges of a connected graph of about this mean degree."""
    chosen = {(i, i + 1) for i in range(n - 1)}
    while len(chosen) < min(n * (n - 1) // 2, int(degree * n / 2)):
        i, j = sorted(rng.choice(n, 2, replace=False).tolist())
        chosen.add((i, j))
    return sorted(chosen)


def incidence(edges: list[tuple[int, int]], n: int) -> Array:
    """Return the oriented incidence matrix of a graph."""
    A = np.zeros((n, len(edges)))
    for e, (i, j) in enumerate(edges):
        A[i, e], A[j, e] = 1.0, -1.0
    return A


# --- Eigenvalues and norms ----------------------------------------------------------------------------


@problem
def largest_eigenvalue(n, rng):
    """BV 4.6.3: minimize the largest eigenvalue of ``A_0 + sum x_i A_i``."""
    x = cp.Variable(n // 2)
    A = symmetric(n, rng) + sum(x[i] * symmetric(n, rng) for i in range(n // 2))
    return cp.Problem(cp.Minimize(cp.lambda_max(A)))


@problem
def sum_of_largest_eigenvalues(n, rng):
    """MC 6.2.2: minimize the sum of the three largest eigenvalues."""
    x = cp.Variable(n // 4)
    A = symmetric(n, rng) + sum(x[i] * symmetric(n, rng) for i in range(n // 4))
    return cp.Problem(cp.Minimize(cp.lambda_sum_largest(A, 3)))


@problem
def eigenvalue_range(n, rng):
    """BV 4.64: minimize the spread of the eigenvalues."""
    x = cp.Variable(n // 4)
    A = symmetric(n, rng) + sum(x[i] * symmetric(n, rng) for i in range(n // 4))
    return cp.Problem(cp.Minimize(cp.lambda_max(A) - cp.lambda_min(A)))


@problem
def spectral_norm(n, rng):
    """BV 4.6.3: minimize the largest singular value of an affine matrix."""
    x = cp.Variable(n // 4)
    m = n // 2
    A = rng.normal(size=(n, m)) + sum(x[i] * rng.normal(size=(n, m)) for i in range(n // 4))
    return cp.Problem(cp.Minimize(cp.sigma_max(A)))


@problem
def nuclear_norm(n, rng):
    """MC 6.2.5: complete a matrix of rank two with the least nuclear norm."""
    m = n // 2
    M = rng.normal(size=(m, 2)) @ rng.normal(size=(2, m))
    known = rng.random((m, m)) < 0.5
    X = cp.Variable((m, m))
    return cp.Problem(cp.Minimize(cp.normNuc(X)), [X[i, j] == M[i, j] for i, j in np.argwhere(known)])


@problem
def matrix_fractional(n, rng):
    """BV 3.4: minimize ``x' inv(P(y)) x`` over a simplex of matrices."""
    m = max(n // 4, 2)
    y, x = cp.Variable(m, nonneg=True), cp.Variable(n)
    P = sum(y[i] * definite(n, rng) for i in range(m))
    return cp.Problem(cp.Minimize(cp.matrix_frac(x, P)), [cp.sum(y) == 1, rng.normal(size=(2, n)) @ x == 1])


# --- Robust and stochastic -----------------------------------------------------------------------------


@problem
def robust_least_squares(n, rng):
    """BV 6.4.2: minimize the worst residual over an ellipsoid of matrices."""
    m, p = 2 * n, 3
    A = [rng.normal(size=(m, n)) * (1.0 if i == 0 else 0.1) for i in range(p + 1)]
    b, x, t, lam = rng.normal(size=m), cp.Variable(n), cp.Variable(), cp.Variable()
    P = cp.hstack([cp.reshape(Ai @ x, (m, 1), order="F") for Ai in A[1:]])
    q = cp.reshape(A[0] @ x - b, (m, 1), order="F")
    body = cp.bmat(
        [
            [np.eye(m), P, q],
            [P.T, lam * np.eye(p), np.zeros((p, 1))],
            [q.T, np.zeros((1, p)), cp.reshape(t, (1, 1), order="F")],
        ]
    )
    return cp.Problem(cp.Minimize(t + lam), [body >> 0])


@problem
def worst_case_risk(n, rng):
    """BV 4.6.3: the largest variance of a portfolio, given bounds on the covariances."""
    S, w = definite(n, rng), rng.dirichlet(np.ones(n))
    X = cp.Variable((n, n), PSD=True)
    return cp.Problem(cp.Maximize(w @ X @ w), [cp.abs(X - S) <= 0.1 * np.sqrt(np.outer(*2 * [S.diagonal()]))])


@problem
def robust_portfolio(n, rng):
    """MC 10.3 and BV 4.6.3: the portfolio of the least worst-case variance under such bounds."""
    S, w = definite(n, rng), cp.Variable(n)
    size = 0.1 * np.sqrt(np.outer(*2 * [S.diagonal()]))
    U, L = cp.Variable((n, n), symmetric=True), cp.Variable((n, n), symmetric=True)
    body = cp.bmat([[U - L, cp.reshape(w, (n, 1), order="F")], [cp.reshape(w, (1, n), order="F"), np.eye(1)]])
    risk = cp.sum(cp.multiply(U, S + size)) - cp.sum(cp.multiply(L, S - size))
    return cp.Problem(cp.Minimize(risk), [body >> 0, U >= 0, L >= 0, cp.sum(w) == 1, w >= 0])


@problem
def markowitz_by_schur(n, rng):
    """MC 6.2.3: the least variance for a return, as a Schur complement."""
    S, mu = definite(n, rng), rng.normal(size=n)
    w, t = cp.Variable(n), cp.Variable()
    G = np.linalg.cholesky(S).T
    body = cp.bmat(
        [
            [np.eye(n), cp.reshape(G @ w, (n, 1), order="F")],
            [cp.reshape(G @ w, (1, n), order="F"), cp.reshape(t, (1, 1), order="F")],
        ]
    )
    return cp.Problem(cp.Minimize(t), [body >> 0, cp.sum(w) == 1, mu @ w >= 0.5, w >= 0])


@problem
def chebyshev_bound(n, rng):
    """BV 7.4.1: bound the probability of a polyhedron from two moments."""
    a = rng.normal(size=(6, n))
    a /= np.linalg.norm(a, axis=1)[:, None]
    P, q, r, tau = cp.Variable((n, n), symmetric=True), cp.Variable(n), cp.Variable(), cp.Variable(6)
    whole = cp.bmat(
        [
            [P, cp.reshape(q, (n, 1), order="F")],
            [cp.reshape(q, (1, n), order="F"), cp.reshape(r, (1, 1), order="F")],
        ]
    )
    rows = [whole >> 0, tau >= 0]
    for i in range(6):
        half = cp.reshape(q - tau[i] * a[i] / 2, (n, 1), order="F")
        corner = cp.reshape(r - 1 + tau[i] * 2.0, (1, 1), order="F")
        rows.append(cp.bmat([[P, half], [half.T, corner]]) >> 0)
    return cp.Problem(cp.Minimize(cp.trace(P) + r), rows)


# --- Combinatorial relaxations -------------------------------------------------------------------------


@problem
def max_cut(n, rng):
    """Goemans and Williamson 1995; MC 6.3.4."""
    A = incidence(graph(n, rng), n)
    X = cp.Variable((n, n), PSD=True)
    return cp.Problem(cp.Maximize(cp.trace(A @ A.T @ X) / 4), [cp.diag(X) == 1])


@problem
def max_cut_dual(n, rng):
    """BV 5.39: the two-way partitioning bound as a matrix inequality."""
    A = incidence(graph(n, rng), n)
    v = cp.Variable(n)
    return cp.Problem(cp.Minimize(cp.sum(v)), [cp.diag(v) - A @ A.T / 4 >> 0])


@problem
def lovasz_theta(n, rng):
    """VB section 2: the theta number of a graph."""
    X = cp.Variable((n, n), PSD=True)
    return cp.Problem(cp.Maximize(cp.sum(X)), [cp.trace(X) == 1, *(X[e] == 0 for e in graph(n, rng))])


@problem
def binary_least_squares(n, rng):
    """MC 6.3.3: least squares over signs."""
    A = rng.normal(size=(n + 5, n))
    b = A @ rng.choice([-1.0, 1.0], n) + 0.5 * rng.normal(size=n + 5)
    X, x = cp.Variable((n, n), symmetric=True), cp.Variable((n, 1))
    whole = cp.bmat([[X, x], [x.T, np.eye(1)]])
    return cp.Problem(cp.Minimize(cp.trace(A.T @ A @ X) - 2 * b @ A @ x[:, 0]), [whole >> 0, cp.diag(X) == 1])


@problem
def boolean_linear_program(n, rng):
    """MC 6.3: a covering problem with ``x_i^2 = x_i``."""
    A = (rng.random((n // 2, n)) < 0.4).astype(float)
    A[A.sum(axis=1) == 0, 0] = 1.0
    X, x = cp.Variable((n, n), symmetric=True), cp.Variable((n, 1))
    whole = cp.bmat([[X, x], [x.T, np.eye(1)]])
    rows = [whole >> 0, cp.diag(X) == x[:, 0], A @ x[:, 0] >= 1]
    return cp.Problem(cp.Minimize(rng.uniform(1, 2, n) @ x[:, 0]), rows)


@problem
def nonconvex_quadratic(n, rng):
    """BV B.1: Shor's relaxation of a nonconvex quadratic program with few constraints."""
    X, x = cp.Variable((n, n), symmetric=True), cp.Variable((n, 1))
    whole = cp.bmat([[X, x], [x.T, np.eye(1)]])
    rows = [whole >> 0]
    for _ in range(4):
        rows.append(cp.trace(definite(n, rng) @ X) + rng.normal(size=n) @ x[:, 0] <= 3)
    return cp.Problem(cp.Minimize(cp.trace(symmetric(n, rng) @ X) + rng.normal(size=n) @ x[:, 0]), rows)


# --- Graphs and structures -----------------------------------------------------------------------------


@problem
def fastest_mixing_markov_chain(n, rng):
    """Boyd, Diaconis, Xiao 2004: the second eigenvalue of a symmetric chain on a graph."""
    edges = graph(n, rng)
    A, p = incidence(edges, n), cp.Variable(len(edges), nonneg=True)
    P, mean, s = np.eye(n) - A @ cp.diag(p) @ A.T, np.full((n, n), 1 / n), cp.Variable()
    rows = [P - mean << s * np.eye(n), P - mean >> -s * np.eye(n), np.abs(A) @ p <= 1]
    return cp.Problem(cp.Minimize(s), rows)


@problem
def algebraic_connectivity(n, rng):
    """Ghosh and Boyd 2006: edge weights of the largest second eigenvalue of the Laplacian."""
    edges = graph(n, rng)
    A, w, s = incidence(edges, n), cp.Variable(len(edges), nonneg=True), cp.Variable()
    L = A @ cp.diag(w) @ A.T
    return cp.Problem(cp.Maximize(s), [L + np.ones((n, n)) >> s * np.eye(n), cp.sum(w) == n])


@problem
def truss(n, rng):
    """BTN 4.8: the least compliance of a truss of `n` degrees of freedom and a given weight."""
    bars = 3 * n
    B, f = rng.normal(size=(n, bars)) * (rng.random((n, bars)) < 0.2), rng.normal(size=n)
    B[:, :n] += np.eye(n)
    t, tau = cp.Variable(bars, nonneg=True), cp.Variable()
    body = cp.bmat([[B @ cp.diag(t) @ B.T, f[:, None]], [f[None], cp.reshape(tau, (1, 1), order="F")]])
    return cp.Problem(cp.Minimize(tau), [body >> 0, cp.sum(t) <= 1])


@problem
def sensor_network(n, rng):
    """Biswas and Ye 2004: positions in the plane from some distances and three anchors."""
    x, anchors = rng.random((n, 2)), np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    Z = cp.Variable((n + 2, n + 2), PSD=True)
    rows = [Z[:2, :2] == np.eye(2)]
    for i in range(n):
        near = np.argsort(np.linalg.norm(x - x[i], axis=1))[1:5]
        for j in near:
            if i < j:
                e = np.zeros(n + 2)
                e[2 + i], e[2 + j] = 1.0, -1.0
                rows.append(cp.trace(np.outer(e, e) @ Z) == np.sum((x[i] - x[j]) ** 2))
        for a in anchors:
            e = np.concatenate([-a, np.eye(n)[i]])
            rows.append(cp.trace(np.outer(e, e) @ Z) == np.sum((x[i] - a) ** 2))
    return cp.Problem(cp.Minimize(cp.trace(Z)), rows[: 3 * n])


@problem
def distance_embedding(n, rng):
    """BV 8.3.3: the Gram matrix whose distances are nearest to given ones in the largest deviation."""
    x = rng.normal(size=(n, 2))
    D = np.sum((x[:, None] - x[None]) ** 2, axis=2) * rng.uniform(0.8, 1.2, (n, n))
    D = (D + D.T) / 2
    G, t = cp.Variable((n, n), PSD=True), cp.Variable()
    d = cp.reshape(cp.diag(G), (n, 1), order="F")
    ones = np.ones((n, 1))
    return cp.Problem(cp.Minimize(t), [cp.abs(d @ ones.T + ones @ d.T - 2 * G - D) <= t])


# --- Estimation ----------------------------------------------------------------------------------------


@problem
def nearest_correlation(n, rng):
    """MC 6.2: the nearest correlation matrix, in the Frobenius norm."""
    A = rng.uniform(-1, 1, (n, n))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1.0)
    X = cp.Variable((n, n), PSD=True)
    return cp.Problem(cp.Minimize(cp.norm(X - A, "fro")), [cp.diag(X) == 1])


@problem
def educational_testing(n, rng):
    """VB section 2: ``max sum d`` with ``S - diag(d)`` psd and ``d >= 0``."""
    S, d = definite(n, rng), cp.Variable(n, nonneg=True)
    return cp.Problem(cp.Maximize(cp.sum(d)), [S - cp.diag(d) >> 0])


@problem
def factor_analysis(n, rng):
    """Shapiro 1982: the covariance split into a diagonal and a psd matrix of the least trace."""
    S, L = definite(n, rng), cp.Variable((n, n), PSD=True)
    off = ~np.eye(n, dtype=bool)
    rows = [cp.multiply(off, L) == off * S, cp.diag(L) <= S.diagonal()]
    return cp.Problem(cp.Minimize(cp.trace(L)), rows)


@problem
def sparse_component(n, rng):
    """D'Aspremont et al. 2007: a sparse principal component."""
    X = cp.Variable((n, n), PSD=True)
    return cp.Problem(
        cp.Maximize(cp.trace(definite(n, rng) @ X) - 0.1 * cp.sum(cp.abs(X))), [cp.trace(X) == 1]
    )


@problem
def phase_retrieval(n, rng):
    """Candes, Strohmer, Voroninski 2013: a signal from magnitudes, by the least trace."""
    m = 4 * n
    a, x = rng.normal(size=(m, n)), rng.normal(size=n)
    X = cp.Variable((n, n), PSD=True)
    rows = [cp.trace(np.outer(a[i], a[i]) @ X) == (a[i] @ x) ** 2 for i in range(m)]
    return cp.Problem(cp.Minimize(cp.trace(X)), rows)


@problem
def kernel_alignment(n, rng):
    """Lanckriet et al. 2004: the kernel nearest to the labels, with the least trace."""
    y = rng.choice([-1.0, 1.0], n)
    K0, K = definite(n, rng), cp.Variable((n, n), PSD=True)
    rows = [cp.trace(K) <= np.trace(K0), cp.norm(K - K0, "fro") <= 0.5 * np.linalg.norm(K0)]
    return cp.Problem(cp.Maximize(y @ K @ y), rows)


@problem
def metric_learning(n, rng):
    """Xing et al. 2002, as a linear program over psd matrices: near pairs near, far pairs apart."""
    x = rng.normal(size=(4 * n, n))
    M = cp.Variable((n, n), PSD=True)
    near, far = x[: 2 * n : 2] - 0.7 * x[1 : 2 * n : 2], x[2 * n :: 2] - x[2 * n + 1 :: 2]
    slack = cp.Variable(len(far), nonneg=True)
    rows = [cp.sum(cp.multiply(far @ M, far), axis=1) >= 1 - slack]
    return cp.Problem(cp.Minimize(cp.sum(cp.multiply(near @ M, near)) + cp.sum(slack)), rows)


@problem
def e_optimal_design(n, rng):
    """BV 7.5.2: experiments of the largest least eigenvalue of the information."""
    v, lam, t = rng.normal(size=(4 * n, n)), cp.Variable(4 * n, nonneg=True), cp.Variable()
    return cp.Problem(cp.Maximize(t), [v.T @ cp.diag(lam) @ v >> t * np.eye(n), cp.sum(lam) == 1])


@problem
def a_optimal_design(n, rng):
    """BV 7.5.2: experiments of the least trace of the inverse information."""
    m = max(n // 3, 2)
    v, lam = rng.normal(size=(4 * m, m)), cp.Variable(4 * m, nonneg=True)
    u, information = cp.Variable(m), v.T @ cp.diag(lam) @ v
    rows = [cp.sum(lam) == 1]
    for k in range(m):
        e = np.eye(m)[:, [k]]
        rows.append(cp.bmat([[information, e], [e.T, cp.reshape(u[k], (1, 1), order="F")]]) >> 0)
    return cp.Problem(cp.Minimize(cp.sum(u)), rows)


# --- Control -------------------------------------------------------------------------------------------


@problem
def lyapunov(n, rng):
    """BV 4.6.2: a Lyapunov function of the least trace."""
    m = max(n // 2, 2)
    A, P = stable(m, rng), cp.Variable((m, m), symmetric=True)
    return cp.Problem(cp.Minimize(cp.trace(P)), [A.T @ P + P @ A << -np.eye(m), P >> np.eye(m)])


@problem
def linear_quadratic_regulator(n, rng):
    """VB section 2: the regulator from Riccati's inequality."""
    m = max(n // 2, 2)
    p = m // 2 + 1
    A, B, P = rng.normal(size=(m, m)) / np.sqrt(m), rng.normal(size=(m, p)), cp.Variable((m, m), PSD=True)
    body = cp.bmat([[A.T @ P + P @ A + np.eye(m), P @ B], [B.T @ P, np.eye(p)]])
    return cp.Problem(cp.Maximize(cp.trace(P)), [body >> 0])


@problem
def bounded_real_lemma(n, rng):
    """Boyd, El Ghaoui, Feron, Balakrishnan 1994, 2.7: the gain of a stable system."""
    m = max(n // 3, 2)
    A, B, C = stable(m, rng), rng.normal(size=(m, 2)), rng.normal(size=(2, m))
    P, g = cp.Variable((m, m), PSD=True), cp.Variable()
    body = cp.bmat([[A.T @ P + P @ A + C.T @ C, P @ B], [B.T @ P, -g * np.eye(2)]])
    return cp.Problem(cp.Minimize(g), [body << 0])


# --- Geometry and polynomials --------------------------------------------------------------------------


@problem
def ellipsoid_around_ellipsoids(n, rng):
    """BV 8.4.1: an ellipsoid that contains several, by the S-procedure, of the least trace."""
    m = max(n // 4, 2)
    P, q, r = cp.Variable((m, m), PSD=True), cp.Variable((m, 1)), cp.Variable((1, 1))
    rows = [cp.bmat([[P, q], [q.T, r]]) >> 0]
    for _ in range(5):
        c, E, tau = rng.normal(size=(m, 1)), definite(m, rng) + 0.1 * np.eye(m), cp.Variable(nonneg=True)
        own = np.block([[E, -E @ c], [-(E @ c).T, c.T @ E @ c - 1]])
        rows.append(cp.bmat([[P, q], [q.T, r - 1]]) << tau * own)
    return cp.Problem(cp.Maximize(cp.trace(P)), rows)


@problem
def nonnegative_polynomial(n, rng):
    """BV 4.6: the minimum of a polynomial of degree ``2 (n / 2)`` in one variable, by squares."""
    d = max(n // 2, 2)
    target = rng.normal(size=2 * d + 1) / np.arange(1, 2 * d + 2)
    target[-1], basis = 1.0, np.zeros((2 * d + 1, d + 1, d + 1))
    for i in range(d + 1):
        for j in range(d + 1):
            basis[i + j, i, j] = 1.0
    Q, t = cp.Variable((d + 1, d + 1), PSD=True), cp.Variable()
    rows = [cp.trace(basis[k] @ Q) == target[k] - (t if k == 0 else 0) for k in range(2 * d + 1)]
    return cp.Problem(cp.Maximize(t), rows)


@problem
def convex_quadratic_fit(n, rng):
    """BV 6.5.5: the convex quadratic function that fits values best in the largest deviation."""
    m = max(n // 2, 2)
    x = rng.normal(size=(6 * m, m))
    values = np.sum(x**2, axis=1) + x[:, 0] + 0.5 * rng.normal(size=6 * m)
    P, q, r, t = cp.Variable((m, m), PSD=True), cp.Variable(m), cp.Variable(), cp.Variable()
    fitted = cp.sum(cp.multiply(x @ P, x), axis=1) + x @ q + r
    return cp.Problem(cp.Minimize(t), [cp.abs(fitted - values) <= t])


@problem
def multicast_beamforming(n, rng):
    """Sidiropoulos, Davidson, Luo 2006: the least power that reaches all receivers."""
    h = rng.normal(size=(2 * n, n))
    X = cp.Variable((n, n), PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(X)), [cp.sum(cp.multiply(h @ X, h), axis=1) >= 1])
