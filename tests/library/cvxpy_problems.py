"""More than fifty problems as a CVXPY user writes them, each with its status.

Each function returns a new ``cvxpy.Problem``.
"""

import cvxpy as cp
import numpy as np

CASES = {}


def case(status="optimal", duals=True, route="path"):
    """Register a problem: its status, whether its duals are unique, and the route that takes it."""

    def register(make):
        CASES[make.__name__] = (make, status, duals, route)
        return make

    return register


def graph(n, seed, density=0.5):
    rng = np.random.default_rng(seed)
    W = np.triu(rng.random((n, n)) < density, 1) * rng.uniform(0.5, 1.5, (n, n))
    return W + W.T


def laplacian(W):
    return np.diag(W.sum(axis=1)) - W


def symmetric(n, seed):
    A = np.random.default_rng(seed).normal(size=(n, n))
    return (A + A.T) / 2


def correlation(n, seed):
    A = np.random.default_rng(seed).uniform(-1, 1, (n, n))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1)
    return A


def definite(n, seed):
    G = np.random.default_rng(seed).normal(size=(n, n + 2))
    return G @ G.T / n


# --- Cuts and graphs --------------------------------------------------------------------------------


@case()
def max_cut():
    X = cp.Variable((8, 8), PSD=True)
    return cp.Problem(cp.Maximize(cp.trace(laplacian(graph(8, 0)) @ X) / 4), [cp.diag(X) == 1])


@case()
def max_cut_explicit():
    X = cp.Variable((8, 8), symmetric=True)
    return cp.Problem(cp.Maximize(cp.trace(laplacian(graph(8, 1)) @ X) / 4), [X >> 0, cp.diag(X) == 1])


@case()
def max_cut_dual():
    L, y = laplacian(graph(8, 2)) / 4, cp.Variable(8)
    return cp.Problem(cp.Minimize(cp.sum(y)), [cp.diag(y) - L >> 0])


@case(duals=False)
def max_cut_with_triangles():
    X, n = cp.Variable((7, 7), PSD=True), 7
    rows = [X[i, j] + X[j, k] + X[i, k] >= -1 for i in range(n) for j in range(i) for k in range(j)]
    return cp.Problem(cp.Maximize(cp.trace(laplacian(graph(7, 3)) @ X) / 4), [cp.diag(X) == 1, *rows])


def _edges(n, seed):
    return np.argwhere(np.triu(graph(n, seed, 0.4), 1) > 0)


@case(duals=False)
def lovasz_theta():
    X = cp.Variable((9, 9), PSD=True)
    rows = [X[i, j] == 0 for i, j in _edges(9, 4)]
    return cp.Problem(cp.Maximize(cp.sum(X)), [cp.trace(X) == 1, *rows])


@case(duals=False)
def lovasz_theta_lmi():
    edges = _edges(9, 4)
    t, y = cp.Variable(), cp.Variable(len(edges))
    S = t * np.eye(9) - np.ones((9, 9))
    for k, (i, j) in enumerate(edges):
        E = np.zeros((9, 9))
        E[i, j] = E[j, i] = 1
        S = S + y[k] * E
    return cp.Problem(cp.Minimize(t), [S >> 0])


@case(duals=False)
def theta_plus():
    X = cp.Variable((7, 7), PSD=True)
    rows = [X[i, j] == 0 for i, j in _edges(7, 5)]
    return cp.Problem(cp.Maximize(cp.sum(X)), [cp.trace(X) == 1, X >= 0, *rows])


@case(duals=False)
def fastest_mixing_markov_chain():
    edges = np.argwhere(np.triu(graph(6, 6, 0.6), 1) > 0)
    P, t = cp.Variable((6, 6), symmetric=True), cp.Variable()
    J = np.ones((6, 6)) / 6
    linked = np.eye(6, dtype=bool)
    linked[tuple(edges.T)] = linked[tuple(edges.T[::-1])] = True
    rows = [cp.sum(P, axis=1) == 1, P >= 0, P - J << t * np.eye(6), P - J >> -t * np.eye(6)]
    rows += [P[i, j] == 0 for i, j in np.argwhere(~linked) if i < j]
    return cp.Problem(cp.Minimize(t), rows)


@case(duals=False)
def absolute_algebraic_connectivity():
    edges = np.argwhere(np.triu(graph(6, 7, 0.7), 1) > 0)
    w, g = cp.Variable(len(edges), nonneg=True), cp.Variable()
    L = 0
    for k, (i, j) in enumerate(edges):
        a = np.zeros((6, 1))
        a[i], a[j] = 1, -1
        L = L + w[k] * (a @ a.T)
    return cp.Problem(cp.Maximize(g), [cp.sum(w) == 1, L - g * (np.eye(6) - np.ones((6, 6)) / 6) >> 0])


@case(duals=False)
def min_bisection_bound():
    X = cp.Variable((8, 8), PSD=True)
    return cp.Problem(
        cp.Minimize(cp.trace(laplacian(graph(8, 8)) @ X) / 4), [cp.diag(X) == 1, cp.sum(X) == 0]
    )


# --- Nearness ---------------------------------------------------------------------------------------


@case()
def nearest_correlation_frobenius():
    X = cp.Variable((5, 5), PSD=True)
    return cp.Problem(cp.Minimize(cp.sum_squares(X - correlation(5, 9))), [cp.diag(X) == 1])


def squares(*rows):
    """Return squares of expressions that share variables, one of them of the variables themselves."""
    X, u = cp.Variable((4, 4), PSD=True), cp.Variable(3)
    A = np.random.default_rng(51).normal(size=(5, 3))
    goal = cp.sum_squares(A @ u - cp.diag(X)[0] * np.arange(5.0)) + 3 * cp.sum_squares(X - correlation(4, 5))
    goal += cp.square(u[0] + X[0, 1] - 2) + cp.sum_squares(u) / 2 + cp.trace(X)
    return cp.Problem(cp.Minimize(goal), [cp.sum(u) + X[1, 2] == 2, *(row(X, u) for row in rows)])


@case()
def squares_beside_a_matrix():
    return squares(lambda X, u: X[0, 0] <= 0.7)


@case()
def squares_of_variables():
    X, u = cp.Variable((3, 3), PSD=True), cp.Variable(2)
    return cp.Problem(
        cp.Minimize(cp.sum_squares(u) + cp.trace(X)), [X[0, 1] + u[0] == 1, X[0, 2] - u[1] == 2]
    )


@case("infeasible")
def squares_that_no_point_has():
    return squares(
        lambda X, u: X[0, 0] + X[1, 1] <= 1, lambda X, u: X[0, 1] + u[0] >= 3, lambda X, u: u[0] <= 1
    )


@case("unbounded")
def squares_without_a_least_value():
    X, u = cp.Variable((3, 3), PSD=True), cp.Variable(2)
    return cp.Problem(
        cp.Minimize(cp.sum_squares(X[0] - 1) + cp.square(u[0] - X[1, 1]) - X[2, 2]), [u[1] == X[0, 0]]
    )


@case(route="bregman")
def nearest_correlation_norm():
    X = cp.Variable((5, 5), PSD=True)
    return cp.Problem(cp.Minimize(cp.norm(X - correlation(5, 10), "fro")), [cp.diag(X) == 1])


@case(route="bregman")
def nearest_correlation_logdet():
    X, C = cp.Variable((4, 4), PSD=True), np.linalg.inv(definite(4, 11))
    return cp.Problem(cp.Minimize(cp.trace(C @ X) - cp.log_det(X)), [cp.diag(X) == 1])


@case(route="entropy")
def nearest_correlation_von_neumann():
    X = cp.Variable((3, 3), PSD=True)
    return cp.Problem(
        cp.Minimize(-cp.von_neumann_entr(X) + cp.trace(symmetric(3, 12) @ X)), [cp.diag(X) == 1]
    )


@case(duals=False)
def nearest_correlation_spectral_norm():
    X = cp.Variable((5, 5), PSD=True)
    return cp.Problem(cp.Minimize(cp.sigma_max(X - correlation(5, 13))), [cp.diag(X) == 1])


@case(duals=False)
def nearest_correlation_absolute():
    X = cp.Variable((5, 5), PSD=True)
    return cp.Problem(cp.Minimize(cp.sum(cp.abs(X - correlation(5, 14)))), [cp.diag(X) == 1])


@case(duals=False)
def nearest_euclidean_distance_matrix():
    rng = np.random.default_rng(15)
    Z = rng.normal(size=(6, 2))
    D = ((Z[:, None] - Z[None]) ** 2).sum(axis=2) * (1 + 0.1 * np.abs(symmetric(6, 15)))
    X, t = cp.Variable((6, 6), PSD=True), cp.Variable(nonneg=True)
    rows = [cp.abs(X[i, i] + X[j, j] - 2 * X[i, j] - D[i, j]) <= t for i in range(6) for j in range(i)]
    return cp.Problem(cp.Minimize(t), [cp.sum(X) == 0, *rows])


# --- Eigenvalues ------------------------------------------------------------------------------------


@case()
def largest_eigenvalue():
    A, B, x = symmetric(6, 16), symmetric(6, 17), cp.Variable()
    return cp.Problem(cp.Minimize(cp.lambda_max(A + x * B)))


@case()
def smallest_eigenvalue():
    A, x = [symmetric(5, k) for k in (18, 19, 20)], cp.Variable(2)
    return cp.Problem(cp.Maximize(cp.lambda_min(A[0] + x[0] * A[1] + x[1] * A[2])), [cp.abs(x) <= 1])


@case()
def sum_of_largest_eigenvalues():
    A, B, x = symmetric(5, 21), symmetric(5, 22), cp.Variable()
    return cp.Problem(cp.Minimize(cp.lambda_sum_largest(A + x * B, 2)), [x <= 2, x >= -2])


@case()
def spectral_norm():
    rng = np.random.default_rng(23)
    A, x = rng.normal(size=(3, 4, 5)), cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sigma_max(A[0] + x[0] * A[1] + x[1] * A[2])))


@case()
def eigenvalue_of_a_matrix():
    X = cp.Variable((6, 6), PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(symmetric(6, 24) @ X)), [cp.trace(X) == 1])


@case(duals=False)
def sum_of_eigenvalues_of_a_matrix():
    X = cp.Variable((6, 6), PSD=True)
    return cp.Problem(cp.Maximize(cp.trace(symmetric(6, 25) @ X)), [cp.trace(X) == 2, X << np.eye(6)])


# --- Nuclear norm -----------------------------------------------------------------------------------


@case(duals=False)
def matrix_completion():
    rng = np.random.default_rng(26)
    M = rng.normal(size=(5, 1)) @ rng.normal(size=(1, 4))
    seen = np.argwhere(rng.random((5, 4)) < 0.7)
    X = cp.Variable((5, 4))
    return cp.Problem(cp.Minimize(cp.normNuc(X)), [X[i, j] == M[i, j] for i, j in seen])


@case(duals=False)
def nuclear_norm_with_bounds():
    M, X = np.random.default_rng(27).normal(size=(4, 3)), cp.Variable((4, 3))
    return cp.Problem(cp.Minimize(cp.normNuc(X)), [cp.abs(X - M) <= 0.3])


# --- Geometry ---------------------------------------------------------------------------------------


@case(route="path")
def minimum_volume_ellipsoid():
    Z = np.random.default_rng(28).normal(size=(8, 2))
    A, b = cp.Variable((2, 2), PSD=True), cp.Variable(2)
    return cp.Problem(cp.Minimize(-cp.log_det(A)), [cp.norm(A @ z + b) <= 1 for z in Z])


@case(route="path")
def sparse_inverse_covariance():
    X, S = cp.Variable((4, 4), PSD=True), definite(4, 30)
    return cp.Problem(cp.Minimize(cp.trace(S @ X) - cp.log_det(X) + 0.1 * cp.sum(cp.abs(X))))


@case(route="path", duals=False)
def weighted_design():
    V, w = np.random.default_rng(31).normal(size=(9, 3)), cp.Variable(9)
    return cp.Problem(cp.Maximize(2.5 * cp.log_det(V.T @ cp.diag(w) @ V)), [w >= 0, cp.sum(w) == 1])


@case(route="bregman")
def log_determinants_of_two_matrices():
    X, Y = cp.Variable((3, 3), symmetric=True), cp.Variable((4, 4), symmetric=True)
    rows = [cp.trace(X) + cp.sum(Y[:3, :3]) + cp.trace(Y) <= 3, X[0, 1] == Y[0, 1], Y[1, 2] >= 0.1]
    return cp.Problem(cp.Minimize(-cp.log_det(X) - 3 * cp.log_det(Y)), rows)


@case(route="entropy")
def log_determinant_beside_an_entropy():
    X, p = cp.Variable((4, 4), PSD=True), cp.Variable(4)
    rows = [cp.diag(X) == p, cp.sum(p) == 2, X[0, 1] == 0.2]
    return cp.Problem(cp.Maximize(cp.log_det(X) + cp.sum(cp.entr(p))), rows)


@case(route="path")
def log_determinant_above_the_identity():
    X, S = cp.Variable((4, 4), symmetric=True), definite(4, 32)
    return cp.Problem(cp.Minimize(cp.trace(S @ X) - cp.log_det(X)), [X >> 1.1 * np.eye(4)])


@case(duals=False)
def smallest_trace_ellipsoid():
    Z = np.random.default_rng(29).normal(size=(9, 3))
    P = cp.Variable((3, 3), PSD=True)
    rows = [cp.bmat([[P, z[:, None]], [z[None], np.ones((1, 1))]]) >> 0 for z in Z]
    return cp.Problem(cp.Minimize(cp.trace(P)), rows)


@case(duals=False)
def sensor_localization():
    rng = np.random.default_rng(30)
    anchors, z = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), rng.uniform(0.2, 0.6, (2, 2))
    x, Y = cp.Variable((2, 2)), cp.Variable((2, 2), symmetric=True)
    Z = cp.bmat([[np.eye(2), x], [x.T, Y]])
    rows = [
        a @ a - 2 * (a @ x[:, k]) + Y[k, k] == ((a - z[k]) ** 2).sum() for a in anchors[:2] for k in range(2)
    ]
    return cp.Problem(cp.Minimize(cp.trace(Y)), [Z >> 0, *rows])


@case(duals=False)
def chebyshev_bound():
    # The largest probability that both coordinates exceed 2, at given moments.
    Z, z, p = cp.Variable((2, 2), symmetric=True), cp.Variable((2, 1)), cp.Variable((1, 1))
    M, m, one = np.array([[1.0, 0.3], [0.3, 1.0]]), np.zeros((2, 1)), np.ones((1, 1))
    inside = cp.bmat([[Z, z], [z.T, p]])
    return cp.Problem(
        cp.Maximize(cp.sum(p)),
        [z >= 2 * p, inside >> 0, cp.bmat([[M, m], [m.T, one]]) - inside >> 0],
    )


# --- Control and inequalities -----------------------------------------------------------------------


@case(duals=False)
def lyapunov():
    A = np.random.default_rng(31).normal(size=(4, 4)) - 3 * np.eye(4)
    P = cp.Variable((4, 4), symmetric=True)
    return cp.Problem(cp.Minimize(cp.trace(P)), [P >> np.eye(4), A.T @ P + P @ A << -0.1 * np.eye(4)])


@case()
def lyapunov_equation_cost():
    A = np.random.default_rng(32).normal(size=(3, 3)) - 3 * np.eye(3)
    P = cp.Variable((3, 3), PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(P)), [A.T @ P + P @ A + np.eye(3) << 0])


@case(duals=False)
def lmi_feasibility():
    A, x = [symmetric(4, k) for k in (33, 34, 35)], cp.Variable(3)
    return cp.Problem(cp.Minimize(0), [3 * np.eye(4) + sum(x[k] * A[k] for k in range(3)) >> 0, x >= 0.1])


@case()
def schur_complement():
    B, X = definite(3, 36), cp.Variable((3, 3), symmetric=True)
    return cp.Problem(cp.Minimize(cp.trace(X)), [cp.bmat([[X, np.eye(3)], [np.eye(3), B]]) >> 0])


@case()
def experiment_design_a_optimal():
    V = np.random.default_rng(37).normal(size=(6, 3))
    w, X = cp.Variable(6, nonneg=True), cp.Variable((3, 3), symmetric=True)
    M = sum(w[k] * np.outer(V[k], V[k]) for k in range(6))
    return cp.Problem(
        cp.Minimize(cp.trace(X)), [cp.sum(w) == 1, cp.bmat([[X, np.eye(3)], [np.eye(3), M]]) >> 0]
    )


@case()
def sum_of_squares_minimum():
    # min of x^4 - 3 x^2 + x: the greatest t with p - t = v' Q v, v = (1, x, x^2)
    Q, t = cp.Variable((3, 3), PSD=True), cp.Variable()
    rows = [Q[0, 0] == -t, 2 * Q[0, 1] == 1, 2 * Q[0, 2] + Q[1, 1] == -3, Q[1, 2] == 0, Q[2, 2] == 1]
    return cp.Problem(cp.Maximize(t), rows)


# --- Forms ------------------------------------------------------------------------------------------


@case(duals=False)
def hermitian():
    rng = np.random.default_rng(38)
    C = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4))
    X = cp.Variable((4, 4), hermitian=True)
    return cp.Problem(cp.Minimize(cp.real(cp.trace((C + C.conj().T) @ X))), [X >> 0, cp.trace(X) == 1])


@case(duals=False)
def hermitian_max_cut():
    rng = np.random.default_rng(39)
    C = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4))
    X = cp.Variable((4, 4), hermitian=True)
    return cp.Problem(
        cp.Maximize(cp.real(cp.trace((C + C.conj().T) @ X))), [X >> 0, cp.real(cp.diag(X)) == 1]
    )


@case(duals=False)  # X == X.T takes any difference of the multipliers of X[0, 1] and X[1, 0]
def not_symmetric():
    X = cp.Variable((4, 4))
    return cp.Problem(
        cp.Minimize(cp.trace(definite(4, 40) @ X)), [X >> 0, X[0, 1] >= 1, X[1, 0] >= 1, X == X.T]
    )


@case(duals=False)
def psd_twice():
    X = cp.Variable((5, 5), PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(symmetric(5, 41) @ X)), [X >> 0, cp.trace(X) == 1])


@case(duals=False)
def least_eigenvalue_floor():
    X = cp.Variable((5, 5), PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(symmetric(5, 42) @ X)), [X >> 0.1 * np.eye(5), cp.diag(X) == 1])


@case()
def negative_semidefinite():
    X = cp.Variable((4, 4), NSD=True)
    return cp.Problem(cp.Maximize(cp.trace(definite(4, 43) @ X)), [X[0, 1] == 1, X[2, 3] <= -1])


@case()
def blocks_and_numbers():
    X, Y = cp.Variable((3, 3), PSD=True), cp.Variable((4, 4), PSD=True)
    u, v = cp.Variable(2, nonneg=True), cp.Variable()
    return cp.Problem(
        cp.Minimize(cp.trace(definite(3, 44) @ X) + cp.trace(definite(4, 45) @ Y) + u @ [1.0, 2.0] + v),
        [cp.trace(X) + cp.trace(Y) + cp.sum(u) == 3, X[0, 1] + v >= 0.3, Y[0, 1] - u[0] <= 0.2, v >= -0.5],
    )


@case(duals=False)
def bounds():
    X = cp.Variable((4, 4), PSD=True)
    u = cp.Variable(3, bounds=[-1, np.array([1.0, 2.0, 3.0])])
    return cp.Problem(
        cp.Minimize(cp.trace(symmetric(4, 46) @ X) + u @ [1.0, -1.0, 0.5]),
        [cp.diag(X) <= 1, X[0, 1] == 0.1 * u[0], cp.sum(u) >= 0.5],
    )


@case(duals=False)
def quadratic_forms():
    Z, X = np.random.default_rng(47).normal(size=(6, 4)), cp.Variable((4, 4), PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(X)), [z @ X @ z >= 1 for z in Z])


@case(duals=False)
def kernel_distances():
    X = cp.Variable((6, 6), PSD=True)
    rows = [X[i, i] + X[i + 1, i + 1] - 2 * X[i, i + 1] <= 0.5 for i in range(5)]
    return cp.Problem(cp.Maximize(cp.trace(X)), [cp.sum(X) == 0, *rows])


@case()
def orders_one_and_two():
    X, Y = cp.Variable((1, 1), PSD=True), cp.Variable((2, 2), PSD=True)
    return cp.Problem(cp.Minimize(X[0, 0] + cp.trace(Y)), [Y[0, 1] + X[0, 0] == 1, Y[0, 0] >= 0.2])


@case()
def norm_beside_a_matrix():
    X, x = cp.Variable((3, 3), PSD=True), cp.Variable(3)
    return cp.Problem(cp.Minimize(cp.norm(x - 1) + cp.trace(X)), [X[0, 1] == x[0], x[1] <= 0.5])


@case()
def power_and_matrix():
    X = cp.Variable((2, 2), PSD=True)
    return cp.Problem(cp.Maximize(cp.geo_mean(cp.diag(X)) + X[0, 1]), [cp.trace(X) <= 2])


# --- Without an answer ------------------------------------------------------------------------------


@case("infeasible")
def infeasible_direct():
    X = cp.Variable((3, 3), PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(X)), [X[0, 0] == 1, X[1, 1] == 1, X[0, 1] >= 2])


@case("infeasible")
def infeasible_lmi():
    x = cp.Variable(2)
    S = cp.bmat([[cp.reshape(x[0], (1, 1), order="F"), np.ones((1, 1))], [np.ones((1, 1)), np.zeros((1, 1))]])
    return cp.Problem(cp.Minimize(x[0] + x[1]), [S - 0.5 * np.eye(2) >> 0, x[1] >= 0])


@case("infeasible")
def infeasible_trace():
    X = cp.Variable((3, 3), PSD=True)
    return cp.Problem(cp.Minimize(X[0, 1]), [cp.trace(X) == -1])


@case("infeasible")
def infeasible_maximize():
    A, x = definite(4, 48), cp.Variable(1)
    return cp.Problem(cp.Maximize(x[0]), [-np.eye(4) - x[0] * A >> 0, x >= 0])


@case("unbounded")
def unbounded_direct():
    X = cp.Variable((3, 3), PSD=True)
    return cp.Problem(cp.Maximize(cp.trace(X)), [X[0, 1] == 1])


@case("unbounded")
def unbounded_lmi():
    A, x = definite(4, 49), cp.Variable(2)
    return cp.Problem(cp.Minimize(x[0] - x[1]), [np.eye(4) + x[1] * A - x[0] * np.eye(4) >> 0, x[1] >= 0])


@case("unbounded")
def unbounded_number():
    X, v = cp.Variable((3, 3), PSD=True), cp.Variable()
    return cp.Problem(cp.Minimize(cp.trace(X) + v), [X[0, 1] >= 1])
