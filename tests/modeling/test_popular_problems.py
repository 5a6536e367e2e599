"""The problems that people pose with semidefinite programming, in our language and in CVXPY's.

Each function declares one problem in the language ``m``; our answer is compared with that of a peer.
"""

import warnings

import numpy as np
import peers
import pytest
from languages import CVXPY, OURS

import bregopt as bo

PROBLEMS = {}


def problem(make):
    """Add a problem to the list."""
    PROBLEMS[make.__name__] = make
    return make


def rng(seed=0):
    return np.random.default_rng(seed)


def symmetric(count, n, seed=0):
    A = rng(seed).normal(size=(count, n, n))
    return A + A.transpose(0, 2, 1)


def cycle(n):
    """Return the edges of a cycle with chords."""
    i = np.arange(n)
    return np.concatenate([i, i[: n // 2]]), np.concatenate([(i + 1) % n, (i[: n // 2] + n // 2) % n])


def stable(n, seed=0):
    A = rng(seed).normal(size=(n, n))
    return A - (np.linalg.eigvals(A).real.max() + 0.5) * np.eye(n)


# --- Polynomials --------------------------------------------------------------------------------------


@problem
def sum_of_squares(m):
    """Parrilo (2000): the largest c for which x^4 - 3x^2 + x + 5 - c is a sum of squares."""
    p, Q, c = [5.0, 1.0, -3.0, 0.0, 1.0], m.PSD(3, name="Q"), m.Variable(name="c")
    sums = [sum(Q[i, k - i] for i in range(3) if 0 <= k - i < 3) for k in range(5)]
    return m.Problem(m.Maximize(c), [sums[0] == p[0] - c, *(sums[k] == p[k] for k in range(1, 5))])


@problem
def moment_relaxation(m):
    """Lasserre (2001): the moments of a measure on the line with the least mean of the same polynomial."""
    M = m.PSD(3, name="M")
    return m.Problem(m.Minimize(5 + M[0, 1] - 3 * M[1, 1] + M[2, 2]), [M[0, 0] == 1, M[0, 2] == M[1, 1]])


# --- Control ------------------------------------------------------------------------------------------


@problem
def lyapunov(m):
    """Boyd et al. (1994): the P of least trace with A'P + PA + I negative semidefinite."""
    A, P, eye = stable(4), m.PSD(4, name="P"), np.eye(4)
    return m.Problem(m.Minimize(m.trace(P)), [A.T @ P + P @ A + eye << 0])


@problem
def h2_norm(m):
    A, B, C = stable(3, 1), rng(2).normal(size=(3, 2)), rng(3).normal(size=(2, 3))
    P = m.PSD(3, name="P")
    return m.Problem(m.Minimize(m.inner(C.T @ C, P)), [A @ P + P @ A.T + B @ B.T << 0])


@problem
def h_infinity_norm(m):
    """The bounded-real lemma; the value is the square of the norm."""
    A, B, C = stable(3, 1), rng(2).normal(size=(3, 2)), rng(3).normal(size=(2, 3))
    P, g = m.PSD(3, name="P"), m.Variable(name="g")
    whole = m.bmat([[A.T @ P + P @ A + C.T @ C, P @ B], [B.T @ P, -g * np.eye(2)]])
    return m.Problem(m.Minimize(g), [whole << 0])


# --- Geometry -----------------------------------------------------------------------------------------


@problem
def sensor_network(m):
    """Biswas, Ye (2004): positions in the plane from distances to anchors and to each other."""
    points, anchors = rng(0).uniform(-1, 1, (4, 2)), np.array([[1.0, 1], [-1, 1], [0, -1]])
    Z, off = m.PSD(6, name="Z"), []
    for i in range(4):
        for a in anchors:
            z = np.concatenate([a, -np.eye(4)[i]])
            off.append(m.inner(np.outer(z, z), Z) - ((points[i] - a) ** 2).sum() * 1.05)
        for j in range(i):
            off.append(m.sq_distance(Z, 2 + i, 2 + j) - ((points[i] - points[j]) ** 2).sum())
    fixed = [Z[0, 0] == 1, Z[0, 1] == 0, Z[1, 1] == 1]
    return m.Problem(m.Minimize(sum(m.abs(e) for e in off)), fixed)


@problem
def distance_completion(m):
    """Alfakih et al. (1999): a Gram matrix near known squared distances."""
    points, G = rng(1).normal(size=(5, 2)), m.PSD(5, name="G")
    i, j = cycle(5)
    known = ((points[i] - points[j]) ** 2).sum(1)
    off = sum(m.square(m.sq_distance(G, int(a), int(b)) - d) for a, b, d in zip(i, j, known, strict=True))
    return m.Problem(m.Minimize(off + 0.1 * m.trace(G)), [m.inner(np.ones((5, 5)), G) == 0])


@problem
def maximum_variance_unfolding(m):
    """Weinberger, Saul (2004): the most spread Gram matrix with given distances to neighbors."""
    points, G = rng(2).normal(size=(6, 3)), m.PSD(6, name="G")
    i, j = cycle(6)
    rows = [
        m.sq_distance(G, int(a), int(b)) <= float(((points[a] - points[b]) ** 2).sum())
        for a, b in zip(i, j, strict=True)
    ]
    return m.Problem(m.Maximize(m.trace(G)), [*rows, m.inner(np.ones((6, 6)), G) == 0])


@problem
def smallest_ellipsoid(m):
    """Boyd, Vandenberghe (2004), section 8.4.1: the ellipsoid of least volume around points."""
    points, A, b = rng(3).normal(size=(8, 2)), m.PSD(2, name="A"), m.Variable(2, name="b")
    rows = [m.norm2(A @ x + b) <= 1 for x in points]
    return m.Problem(m.Maximize(m.log_det(A)), rows)


@problem
def largest_ellipsoid(m):
    """Section 8.4.2: the ellipsoid of greatest volume in a polytope."""
    A, B, d = rng(4).normal(size=(7, 2)), m.PSD(2, name="B"), m.Variable(2, name="d")
    A = np.concatenate([A, np.eye(2), -np.eye(2)])
    rows = [m.norm2(B @ a) + a @ d <= 1 for a in A]
    return m.Problem(m.Maximize(m.log_det(B)), rows)


@problem
def center_of_a_spectrahedron(m):
    """The point at which the least eigenvalue of a linear matrix inequality is largest (Chebyshev center)."""
    A, x = symmetric(3, 4), m.Variable(2, name="x")
    F = np.eye(4) * 3 + A[0] + x[0] * A[1] + x[1] * A[2]
    return m.Problem(m.Maximize(m.lambda_min(F)), [m.norm_inf(x) <= 2])


@problem
def trust_region(m):
    """The semidefinite form of a quadratic over a ball, which is exact."""
    A, b = symmetric(1, 3)[0], np.array([1.0, -1, 2])
    X = m.PSD(4, name="X")
    C = np.block([[np.zeros((1, 1)), b[None]], [b[:, None], A]])
    return m.Problem(m.Minimize(m.inner(C, X)), [X[0, 0] == 1, m.trace(X) <= 2])


# --- Matrices of low rank -----------------------------------------------------------------------------


@problem
def matrix_completion(m):
    """Candes, Recht (2009)."""
    M = rng(5).normal(size=(4, 2)) @ rng(6).normal(size=(2, 3))
    F, seen = m.Variable((4, 3), name="F"), rng(7).uniform(size=(4, 3)) < 0.7
    return m.Problem(m.Minimize(m.norm_nuc(F)), [F[i, j] == M[i, j] for i, j in np.argwhere(seen)])


@problem
def robust_pca(m):
    """Candes, Li, Ma, Wright (2011)."""
    M = np.outer(np.arange(1.0, 5), [1, -1, 2])
    M[0, 0] += 5
    L, S = m.Variable((4, 3), name="L"), m.Variable((4, 3), name="S")
    return m.Problem(m.Minimize(m.norm_nuc(L) + 0.5 * m.norm1(S)), [L + S == M])


@problem
def nuclear_regression(m):
    """Yuan et al. (2007): regressions with a common low rank."""
    Z, Y, B = rng(8).normal(size=(6, 3)), rng(9).normal(size=(6, 2)), m.Variable((3, 2), name="B")
    fits = m.sum_squares(Z @ B - Y)
    return m.Problem(m.Minimize(fits + 2 * m.norm_nuc(B)))


@problem
def phase_retrieval(m):
    """Candes, Strohmer, Voroninski (2013), with real numbers."""
    a, X = rng(10).normal(size=(7, 3)), m.PSD(3, name="X")
    return m.Problem(m.Minimize(m.trace(X)), [m.quad_form(a, X) == (a @ [1.0, -2, 0.5]) ** 2])


@problem
def factor_analysis(m):
    """Minimum trace factor analysis: a diagonal D from 0 with S - D psd and the least trace of S - D."""
    G = rng(11).normal(size=(9, 4))
    S, d = np.cov(G.T), m.Variable(4, nonneg=True, name="d")
    rest = S - m.diag(d)
    return m.Problem(m.Minimize(np.trace(S) - m.sum(d)), [rest >> 0])


@problem
def sparse_pca(m):
    """d'Aspremont et al. (2007)."""
    S, X = np.cov(rng(12).normal(size=(9, 4)).T), m.PSD(4, name="X")
    return m.Problem(m.Maximize(m.inner(S, X) - 0.2 * m.norm1(X)), [m.trace(X) == 1])


# --- Graphs -------------------------------------------------------------------------------------------


@problem
def lovasz_theta(m):
    X = m.PSD(6, name="X")
    i, j = cycle(6)
    rows = [X[int(a), int(b)] == 0 for a, b in zip(i, j, strict=True)]
    return m.Problem(m.Maximize(m.inner(np.ones((6, 6)), X)), [m.trace(X) == 1, *rows])


@problem
def max_cut(m):
    """Goemans, Williamson (1995)."""
    X, W = m.PSD(6, name="X"), np.zeros((6, 6))
    W[cycle(6)] = rng(13).uniform(size=9)
    L = np.diag((W + W.T).sum(0)) - W - W.T
    return m.Problem(m.Maximize(m.inner(L / 4, X)), [m.diag(X) == 1])


def laplacians(n):
    """Return the Laplacian of each edge."""
    e = np.eye(n)
    return [np.outer(e[a] - e[b], e[a] - e[b]) for a, b in zip(*cycle(n), strict=True)]


@problem
def fastest_mixing(m):
    """Boyd, Diaconis, Xiao (2004): the Markov chain on a graph with the least second modulus."""
    L = laplacians(5)
    p = m.Variable(len(L), nonneg=True, name="p")
    P = np.eye(5) - sum(p[k] * own for k, own in enumerate(L)) - np.full((5, 5), 1 / 5)
    stays = [sum(p[k] * own[v, v] for k, own in enumerate(L)) <= 1 for v in range(5)]
    return m.Problem(m.Minimize(m.maximum(m.lambda_max(P), -m.lambda_min(P))), stays)


@problem
def algebraic_connectivity(m):
    """Ghosh, Boyd (2006): weights of edges that make a graph best connected."""
    L = laplacians(6)
    w = m.Variable(len(L), nonneg=True, name="w")
    whole = sum(w[k] * own for k, own in enumerate(L)) + np.full((6, 6), 1.0)
    return m.Problem(m.Maximize(m.lambda_min(whole)), [m.sum(w) == 4])


# --- Statistics and learning --------------------------------------------------------------------------


def candidates():
    return rng(14).normal(size=(8, 3))


def information(m, w):
    return sum(w[k] * np.outer(v, v) for k, v in enumerate(candidates()))


@problem
def d_optimal_design(m):
    w = m.Variable(8, nonneg=True, name="w")
    return m.Problem(m.Maximize(m.log_det(information(m, w))), [m.sum(w) == 1])


@problem
def e_optimal_design(m):
    w = m.Variable(8, nonneg=True, name="w")
    return m.Problem(m.Maximize(m.lambda_min(information(m, w))), [m.sum(w) == 1])


@problem
def a_optimal_design(m):
    """The trace of the inverse, by Schur complements."""
    w, u = m.Variable(8, nonneg=True, name="w"), m.Variable(3, name="u")
    rows = []
    for k in range(3):
        column = np.eye(3)[:, k : k + 1]
        rows.append(m.bmat([[information(m, w), column], [column.T, u[k] * np.eye(1)]]) >> 0)
    return m.Problem(m.Minimize(m.sum(u)), [m.sum(w) == 1, *rows])


@problem
def bounded_design(m):
    """A D-optimal design in which no experiment has more than a fifth of the weight."""
    w = m.Variable(8, nonneg=True, name="w")
    return m.Problem(m.Maximize(m.log_det(information(m, w))), [m.sum(w) == 1, m.max(w) <= 0.2])


@problem
def graphical_lasso(m):
    """Friedman, Hastie, Tibshirani (2008)."""
    S, X = np.cov(rng(15).normal(size=(9, 4)).T), m.PSD(4, name="X")
    return m.Problem(m.Minimize(m.inner(S, X) - m.log_det(X) + 0.2 * m.norm1(X)))


@problem
def covariance_completion(m):
    """Dempster (1972): the completion of greatest determinant."""
    S, X = np.cov(rng(16).normal(size=(12, 4)).T), m.PSD(4, name="X")
    rows = [X[i, j] == S[i, j] for i in range(4) for j in range(i, 4) if j - i != 2]
    return m.Problem(m.Maximize(m.log_det(X)), rows)


@problem
def nearest_correlation(m):
    """Higham (2002)."""
    A, X = np.eye(4) + 0.8 * symmetric(1, 4, 17)[0], m.PSD(4, name="X")
    return m.Problem(m.Minimize(m.frobenius_div(X, A)), [m.diag(X) == 1])


@problem
def kernel_learning(m):
    """Lanckriet et al. (2004): the combination of kernels that is best aligned with labels."""
    K, y = symmetric(3, 5, 18), np.sign(rng(19).normal(size=5))
    w = m.Variable(3, name="w")
    combined = sum(w[k] * K[k] for k in range(3)) + np.eye(5) / 5
    return m.Problem(
        m.Maximize(sum(float(y @ K[k] @ y) * w[k] for k in range(3))), [combined >> 0, m.norm2(w) <= 1]
    )


# --- Engineering --------------------------------------------------------------------------------------


@problem
def least_largest_eigenvalue(m):
    A, x = symmetric(4, 5, 20), m.Variable(3, name="x")
    return m.Problem(m.Minimize(m.lambda_max(A[0] + sum(x[k] * A[k + 1] for k in range(3)))))


@problem
def eigenvalue_sums(m):
    """Overton, Womersley (1993)."""
    A, x = symmetric(4, 5, 20), m.Variable(3, name="x")
    F = A[0] + sum(x[k] * A[k + 1] for k in range(3))
    return m.Problem(m.Minimize(m.lambda_sum_largest(F, 2) + m.sum_squares(x)))


@problem
def beamforming(m):
    """Bengtsson, Ottersten (1999): the least power for a signal-to-noise ratio of every user."""
    h = rng(21).normal(size=(3, 4))
    W = [m.PSD(4, name=f"W{k}") for k in range(3)]
    gains = [[m.inner(np.outer(own, own), part) for part in W] for own in h]
    rows = [gains[k][k] >= 2 * (sum(gains[k][j] for j in range(3) if j != k) + 0.1) for k in range(3)]
    return m.Problem(m.Minimize(sum(m.trace(part) for part in W)), rows)


@problem
def robust_beamforming(m):
    """Vorobyov et al. (2003), relaxed: least noise, with gain 1 for the worst of several steering vectors."""
    R, W = np.eye(4) + symmetric(1, 4, 22)[0] / 8, m.PSD(4, name="W")
    steering = 1 + 0.3 * rng(23).normal(size=(5, 4))
    return m.Problem(m.Minimize(m.inner(R, W)), [m.min(m.quad_form(steering, W)) >= 1])


@problem
def truss(m):
    """Ben-Tal, Nemirovski (1997): the bars of given volume with the least compliance."""
    bars, f = rng(24).normal(size=(7, 4)), np.array([[1.0], [0], [-1], [0.5]])
    t, x = m.Variable(name="t"), m.Variable(7, nonneg=True, name="x")
    stiffness = sum(x[k] * np.outer(bar, bar) for k, bar in enumerate(bars))
    return m.Problem(m.Minimize(t), [m.bmat([[stiffness, f], [f.T, t * np.eye(1)]]) >> 0, m.sum(x) <= 1])


@pytest.mark.parametrize("name", PROBLEMS)
def test_as_in_cvxpy(name):
    ours = PROBLEMS[name](OURS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        found = ours.solve()
    peer = peers.ask(PROBLEMS[name](CVXPY))
    assert found.status == "optimal"
    peer.confirms(found)


def test_there_are_28():
    assert len(PROBLEMS) >= 28
