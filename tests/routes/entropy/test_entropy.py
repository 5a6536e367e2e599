"""Entropies of affine arguments: closed forms, CVXPY with Clarabel, invariances, and statuses."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from samples import first

import bregopt as bo
from bregopt.cvxpy import BREGOPT
from bregopt.routes.entropy import route
from bregopt.routes.entropy.equations import ReducedSystem, own_columns
from bregopt.routes.entropy.interior_point import Barrier

X_, Z_ = np.array([[0, 1], [1, 0.0]]), np.diag([1.0, -1.0])


def binary_entropy(q):
    return -q * np.log(q) - (1 - q) * np.log(1 - q)


def bb84(q, hermitian=False):
    rho = bo.PSD(4, name="rho", hermitian=hermitian)
    errors = [(np.eye(4) - np.kron(s, s)) / 2 for s in (Z_, X_)]
    key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    rows = [bo.trace(rho) == 1, *(bo.inner(E, rho) == q for E in errors)]
    return bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=key)), rows)


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("q", [1e-4, 0.01, 0.05, 0.11])
def test_bb84(q, hermitian):
    """The key rate is ``log 2 - h(q)`` before error correction (Shor and Preskill 2000)."""
    sol = bb84(q, hermitian).solve(tol=1e-8)
    rate = np.log(2) - binary_entropy(q)
    assert sol.status == "optimal"
    assert sol.solver == "entropy"
    assert abs(sol.value - rate) <= sol.error + 1e-14
    assert sol.dual_value <= rate + 1e-14
    assert sol.error <= 1e-7


@pytest.mark.parametrize("hermitian", [False, True])
def test_gibbs_states(hermitian):
    rng = np.random.default_rng(0)
    H = rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4)) * hermitian
    H = (H + H.conj().T) if hermitian else (H + H.T).real
    rho = bo.PSD(4, hermitian=hermitian)
    energy = bo.inner(H, rho)
    sol = bo.Problem(bo.Minimize(energy - bo.von_neumann_entr(rho)), [bo.trace(rho) == 1]).solve(tol=1e-9)
    d, U = np.linalg.eigh(H)
    assert sol.value == pytest.approx(-np.log(np.exp(-d).sum()), abs=1e-8)
    gibbs = (U * np.exp(-d)) @ U.conj().T / np.exp(-d).sum()
    np.testing.assert_allclose(sol.X, gibbs, atol=1e-4)


def test_entropy_of_an_orthogonal_invariant_problem_turns_with_it():
    rng = np.random.default_rng(1)
    Q, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    C, B = np.diag([0.4, 0.3, 0.2, 0.1]), np.diag([1.0, 2, 0, 1])
    values = []
    for turn in (np.eye(4), Q):
        X = bo.PSD(4)
        own = bo.quantum_rel_entr(X, turn @ C @ turn.T)
        rows = [bo.trace(X) == 1, bo.inner(turn @ B @ turn.T, X) == 1.5]
        values.append(bo.Problem(bo.Minimize(own), rows).solve(tol=1e-9).value)
    assert values[0] == pytest.approx(values[1], abs=1e-8)


def test_relative_entropy_of_both_arguments():
    """Over all ``B`` of trace one the nearest to ``A`` is ``A``; on diagonals it is the classical one."""
    A, B = bo.PSD(3), bo.PSD(3)
    rows = [bo.diag(A) == [0.5, 0.3, 0.2], bo.trace(B) == 1, B[0, 0] == 0.2]
    sol = bo.Problem(bo.Minimize(bo.quantum_rel_entr(A, B)), rows).solve(tol=1e-9)
    classical = 0.5 * np.log(0.5 / 0.2) + 0.5 * np.log(0.5 / 0.8)  # the pinching does not increase it
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(classical, abs=1e-8)


def test_a_constant_first_argument():
    """The relative entropy from an isotropic state to the states of least eigenvalue ``t``."""
    C = np.diag([0.7, 0.2, 0.1])
    X = bo.PSD(3)
    sol = bo.Problem(bo.Minimize(bo.quantum_rel_entr(C, X)), [bo.trace(X) == 1, X[0, 0] <= 0.6]).solve(
        tol=1e-9
    )
    expected = 0.7 * np.log(0.7 / 0.6) + 0.3 * np.log(0.3 / 0.4)
    assert sol.value == pytest.approx(expected, abs=1e-8)
    minus = bo.Problem(bo.Maximize(bo.trace_logm(X, C)), [bo.trace(X) == 1, X[0, 0] <= 0.6]).solve(tol=1e-9)
    assert -minus.value + np.sum(np.diag(C) * np.log(np.diag(C))) == pytest.approx(expected, abs=1e-8)


def test_conditional_entropy_of_maximally_entangled_states():
    """``S(A|B)`` is at most ``log d``; a fidelity with the entangled state bounds it from above."""
    phi = np.eye(2).ravel() / np.sqrt(2)
    X = bo.PSD(4, hermitian=True)
    free = bo.Problem(bo.Maximize(bo.quantum_cond_entr(X, (2, 2))), [bo.trace(X) == 1]).solve(tol=1e-8)
    assert free.value == pytest.approx(np.log(2), abs=1e-7)
    f = 0.9
    rows = [bo.trace(X) == 1, bo.inner(np.outer(phi, phi), X) == f]
    for sys in (0, 1):
        sol = bo.Problem(bo.Maximize(bo.quantum_cond_entr(X, (2, 2), sys)), rows).solve(tol=1e-8)
        isotropic = -f * np.log(f) - (1 - f) * np.log((1 - f) / 3) - np.log(2)
        assert sol.value == pytest.approx(isotropic, abs=1e-7)


RNG = np.random.default_rng(3)
D, LABELS, M, Q = (
    RNG.standard_normal((20, 4)),
    np.sign(RNG.standard_normal(20)),
    RNG.random((2, 4)),
    np.full(4, 0.25),
)
MARGINS = -LABELS[:, None] * D
CLASSICAL = {
    "maximum entropy": lambda m, u: (m.Maximize(m.sum(m.entr(u))), [m.sum(u) == 1, M @ u <= M @ Q - 0.02]),
    "kl_div": lambda m, u: (m.Minimize(m.sum(m.kl_div(u, Q))), [m.sum(u) == 1, M @ u == M @ Q + 0.02]),
    "rel_entr": lambda m, u: (
        m.Minimize(m.sum(m.rel_entr(u[:2], u[2:]))),
        [m.sum(u) == 1, u[0] == 0.4, u[2] <= 0.1],
    ),
    "logistic": lambda m, u: (m.Minimize(m.sum(m.logistic(MARGINS @ u)) + 0.3 * m.norm1(u)), []),
    "ridge": lambda m, u: (m.Minimize(m.sum(m.logistic(MARGINS @ u)) + 0.3 * m.sum_squares(u)), []),
    "in a ball": lambda m, u: (m.Minimize(m.sum(m.logistic(MARGINS @ u))), [m.norm2(u) <= 0.2]),
    "log_sum_exp": lambda m, u: (m.Minimize(m.log_sum_exp(D @ u) + m.norm2(u)), [u <= 1, u >= -1]),
    "exp below": lambda m, u: (m.Maximize(m.sum(u)), [m.sum(m.exp(u)) <= 3]),
    "log_sum_exp below": lambda m, u: (m.Maximize(u[0] + u[1]), [m.log_sum_exp(D @ u) <= 5, u >= -2]),
    "entropy from below": lambda m, u: (m.Maximize(M[0] @ u), [m.sum(u) == 1, m.sum(m.entr(u)) >= 1.2]),
    "logarithms": lambda m, u: (m.Maximize(m.sum(m.log(u)) - m.log_sum_exp(D[:5] @ u)), [m.sum(u) <= 1]),
    "composition": lambda m, u: (m.Minimize(m.sum(m.exp(m.abs(D[:6] @ u - 1)))), [u >= -1]),
}


@pytest.mark.parametrize("name", CLASSICAL)
def test_functions_of_numbers_agree_with_cvxpy(name):
    problem, peer = (
        bo.Problem(*CLASSICAL[name](bo, bo.Variable(4))),
        cp.Problem(*CLASSICAL[name](cp, cp.Variable(4))),
    )
    sol = problem.solve(tol=1e-8)
    peer.solve(solver=cp.CLARABEL)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(peer.value, abs=2e-6 * max(1, abs(peer.value)))
    assert abs(sol.value - sol.dual_value) <= sol.error + 1e-12
    for own, theirs in zip(problem.constraints, peer.constraints, strict=True):
        np.testing.assert_allclose(own.dual_value, theirs.dual_value, atol=2e-3)


def test_matrices_and_numbers_together():
    X, Y = bo.PSD(3), cp.Variable((3, 3), PSD=True)
    A = np.diag([1.0, 2.0, -1.0]) + 0.2
    own = bo.frobenius_div(X, A) - bo.von_neumann_entr(X) + bo.sum(bo.kl_div(bo.diag(X), [0.2, 0.3, 0.5]))
    theirs = cp.sum_squares(Y - A) - cp.von_neumann_entr(Y) + cp.sum(cp.kl_div(cp.diag(Y), [0.2, 0.3, 0.5]))
    sol = bo.Problem(bo.Minimize(own)).solve(tol=1e-8)
    assert sol.value == pytest.approx(cp.Problem(cp.Minimize(theirs)).solve(solver=cp.CLARABEL), abs=1e-5)
    determinant = bo.Problem(bo.Maximize(bo.log_det(X) + bo.von_neumann_entr(X)), [bo.trace(X) <= 1]).solve()
    assert determinant.value == pytest.approx(-2 * np.log(3), abs=1e-5)  # at I / 3


def test_a_bound_on_a_relative_entropy():
    """The optimum on a ball of relative entropy is attained at an exponential."""
    C, r = np.diag([0.5, 0.3, 0.2]), 0.1
    X = bo.PSD(3)
    rows = [bo.trace(X) == 1, bo.quantum_rel_entr(X, C) <= r]
    problem = bo.Problem(bo.Maximize(X[0, 0]), rows)
    sol = problem.solve(tol=1e-9)
    p = sol.value  # then X = diag(p, (1 - p) .6, (1 - p) .4), whose relative entropy is r
    assert p * np.log(p / 0.5) + (1 - p) * np.log((1 - p) / 0.5) == pytest.approx(r, abs=1e-8)
    price = 1 / (np.log(p / 0.5) - np.log((1 - p) / 0.5))  # dp / dr
    assert problem.constraints[1].dual_value == pytest.approx(price, rel=1e-4)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_units_change_nothing(size):
    X = bo.PSD(3)
    C = np.diag([0.5, 0.3, 0.2])
    rows = [bo.trace(X) == size, X[0, 0] == 0.4 * size, X[0, 1] == 0.1 * size]
    sol = bo.Problem(bo.Minimize(bo.quantum_rel_entr(X, size * C)), rows).solve()
    weighed = bo.Problem(
        bo.Minimize(size * bo.quantum_rel_entr(X, C)), [bo.trace(X) == 1, X[0, 0] == 0.4, X[0, 1] == 0.1]
    ).solve()
    assert sol.status == weighed.status == "optimal"
    assert sol.value / size == pytest.approx(0.0466914357, abs=1e-7)
    assert weighed.value / size == pytest.approx(0.0466914357, abs=1e-7)


@pytest.mark.parametrize("weight", [1e-6, 1.0, 1e6])
def test_a_value_of_zero(weight):
    """Equal states: the gap is relative to the terms, which cancel, in the unit of the objective."""
    A, B, E = bo.PSD(3), bo.PSD(3), np.diag([1.0, 2, 4])
    rows = [bo.trace(A) == 1, bo.trace(B) == 1, bo.inner(E, A) == 2.2]
    sol = bo.Problem(bo.Minimize(weight * bo.quantum_rel_entr(A, B)), rows).solve()
    assert sol.status == "optimal"
    assert sol.error <= 1e-7 * weight


def test_parameters():
    X, q, w = bo.PSD(4), bo.Parameter(value=0.05), bo.Parameter(value=2.0)
    errors = [(np.eye(4) - np.kron(s, s)) / 2 for s in (Z_, X_)]
    key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    rows = [bo.trace(X) == 1, *(bo.inner(E, X) == q for E in errors)]
    problem = bo.Problem(bo.Minimize(w * bo.key_rate(X, pinching=key)), rows)
    for rate in (0.05, 0.02):
        q.value = rate
        assert problem.solve(tol=1e-9).value == pytest.approx(
            2 * (np.log(2) - binary_entropy(rate)), abs=1e-8
        )
    w.value = -1.0
    with pytest.raises(ValueError, match="weight"):
        problem.solve()


@pytest.mark.parametrize("objective", [bo.sum, bo.norm2])
def test_a_contradiction_is_proven_beside_the_cone_of_a_norm(objective):
    q, p = np.array([0.7, 0.2, 0.1]), bo.Variable(3)
    share = 0.6  # of the third number, at a relative entropy of .6 log 6 + .4 log(4 / 9) = 0.75 at least
    rows = [bo.sum(p) == 1, bo.sum(bo.rel_entr(p, q)) <= 0.01, p[2] >= share]
    assert share * np.log(share / 0.1) + (1 - share) * np.log((1 - share) / 0.9) > 0.75
    assert bo.Problem(bo.Minimize(objective(p - q)), rows).solve().status == "infeasible"


@pytest.mark.parametrize("seed", [0, 1])
def test_margins_of_many_triplets_have_the_value_of_all(seed):
    """Twelve points of four classes: the answer has the symmetry of all 216 triplets; it is a Gibbs state."""
    n, c, s = 12, 4, 3
    of = np.arange(n) // s
    every = [t for t in itertools.permutations(range(n), 3) if of[t[0]] == of[t[1]] != of[t[2]]]
    i, j, k = np.random.default_rng(seed).choice(every, 400).T  # some of them several times
    X, rho = bo.PSD(n), bo.Variable()
    rows = [bo.sq_distance(X, i, k) - bo.sq_distance(X, i, j) >= rho, bo.trace(X) == 1]
    sol = bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(n) / n) - rho), rows).solve()
    assert sol.status == "optimal"
    between, within = 2 / (s * np.array([c - 1, c - n]))
    exact = np.log(n / (1 + (c - 1) * np.exp(between) + (n - c) * np.exp(within)))
    assert abs(sol.value - exact) <= sol.error + 1e-14
    assert sol.dual_value <= exact + 1e-14


def test_problems_without_an_answer():
    X, u = bo.PSD(3), bo.Variable(3)
    entropy, exponential = bo.von_neumann_entr(X), bo.exp(u[0])
    infeasible = [
        bo.Problem(bo.Maximize(entropy), [bo.trace(X) == 1, X[0, 0] == 2]),
        bo.Problem(bo.Maximize(entropy), [bo.trace(X) == 1, 2 * bo.trace(X) == 3]),
        bo.Problem(bo.Minimize(bo.trace(X)), [bo.quantum_rel_entr(X, np.eye(3) / 3) <= -1, bo.trace(X) == 1]),
        bo.Problem(bo.Maximize(bo.sum(bo.entr(u))), [u[0] <= -1]),
    ]
    for problem in infeasible:
        assert problem.solve().status == "infeasible"
    unbounded = [
        bo.Problem(bo.Minimize(u[2] + exponential), [u[1] >= 0]),
        bo.Problem(bo.Minimize(exponential - bo.trace(X)), [u[0] >= 0]),
    ]
    for problem in unbounded:
        assert problem.solve().status == "unbounded"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda X, u: bo.Minimize(bo.von_neumann_entr(X)), TypeError, "concave"),
        (lambda X, u: bo.Maximize(bo.quantum_rel_entr(X, np.eye(3))), TypeError, "convex"),
        (lambda X, u: bo.Minimize(bo.quantum_rel_entr(X, np.diag([1.0, 1, 0]))), ValueError, "not pos"),
        (lambda X, u: bo.Minimize(bo.quantum_rel_entr(np.diag([1.0, 1, -1]), X)), ValueError, "semidefinite"),
        (lambda X, u: bo.Minimize(bo.quantum_rel_entr(np.eye(3), np.eye(3))), TypeError, "constant"),
        (lambda X, u: bo.Minimize(bo.quantum_rel_entr(X, bo.PSD(2))), ValueError, "orders"),
        (lambda X, u: bo.Maximize(bo.quantum_cond_entr(X, (2, 2))), ValueError, "dims"),
        (lambda X, u: bo.Minimize(bo.key_rate(X, pinching=[np.eye(3), np.eye(3)])), ValueError, "pinching"),
        (lambda X, u: bo.Minimize(bo.key_rate(X, [np.eye(2)], [np.eye(2)])), ValueError, "kraus"),
        (lambda X, u: bo.Minimize(bo.entr(bo.square(u))), TypeError, "entr"),
        (lambda X, u: bo.Minimize(bo.exp(bo.min(u))), TypeError, "exp"),
        (lambda X, u: bo.Minimize(bo.kl_div([1.0], [2.0])), ValueError, "variable"),
        (lambda X, u: bo.Minimize(bo.sum(bo.kl_div(u, [0.2, -1, 0.8]))), ValueError, "y of kl_div has an el"),
        (lambda X, u: bo.Minimize(bo.log_sum_exp(u, axis=3)), ValueError, "axis"),
        (lambda X, u: bo.Minimize(bo.sum(bo.exp(bo.Parameter(value=2.0) * u))), TypeError, "parameter"),
    ],
)  # fmt: skip
def test_bad_input_is_named(make, error, message):
    X, u = bo.PSD(3), bo.Variable(3)
    with pytest.raises(error, match=message):
        bo.Problem(make(X, u), [bo.trace(X) == 1]).solve()


def test_limits_and_steps():
    rho, steps = bo.PSD(4), []
    bounds = [bo.trace(rho) == 1, rho[0, 0] <= 0.1, rho[0, 1] >= 0.05]
    problem = bo.Problem(bo.Maximize(bo.von_neumann_entr(rho)), bounds)
    with pytest.warns(bo.ConvergenceWarning):
        sol = problem.solve(callback=lambda step: steps.append(step) or len(steps) == 3, projections=False)
    assert sol.status == "user_limit"
    assert len(steps) == 3
    with pytest.warns(bo.ConvergenceWarning):
        assert problem.solve(max_iter=2, projections=False).status == "user_limit"


def random_program(m, seed):
    """Return a program of a few functions of numbers, over decades of weights, in bounded rows."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    u, A, weight = (
        m.Variable(n),
        rng.standard_normal((int(rng.integers(1, 8)), n)),
        10.0 ** rng.integers(-3, 4),
    )
    terms = [rng.standard_normal(n) @ u]
    for _ in range(int(rng.integers(1, 4))):
        R, r, w = rng.standard_normal((3, n)), rng.standard_normal(3), rng.random() + 0.1
        kinds = [
            lambda R=R, r=r: m.sum(m.exp(R @ u + r)),
            lambda R=R, r=r: m.log_sum_exp(R @ u + r),
            lambda R=R, r=r: m.sum(m.logistic(R @ u + r)),
            lambda: -m.sum(m.entr(u)),
            lambda: m.sum(m.kl_div(u, np.full(n, 0.3))),
        ]
        terms.append(float(w) * kinds[int(rng.integers(len(kinds)))]())
    rows = [
        lambda: [m.sum(u) == 1, u >= 0],
        lambda: [u <= 2, u >= -2],
        lambda: [m.log_sum_exp(A @ u) <= 3, u <= 5, u >= -5],
        lambda: [m.sum(m.exp(u)) <= n + 3, u >= -5],
        lambda: [m.norm2(u) <= 2],
    ]
    return m.Problem(
        m.Minimize(float(weight) * sum(terms[1:], terms[0])), rows[int(rng.integers(len(rows)))]()
    )


@pytest.mark.parametrize("seed", first(6, range(25)))
def test_random_programs_agree_with_clarabel(seed):
    problem, peer = random_program(bo, seed), random_program(cp, seed)
    peer.solve(solver=cp.CLARABEL)
    sol = problem.solve()
    assert (sol.status, peer.status) == ("optimal", "optimal")
    assert abs(sol.value - peer.value) <= sol.error + 1e-5 * max(1.0, abs(peer.value))


def test_dual_values_are_derivatives_of_the_optimum():
    """Central differences of a key rate by its error rates, and of an entropy by the bound of its row."""
    step, rates = 1e-5, np.array([0.03, 0.06])

    def solved(rates):
        rho = bo.PSD(4)
        errors = [bo.inner((np.eye(4) - np.kron(s, s)) / 2, rho) for s in (Z_, X_)]
        rows = [bo.trace(rho) == 1, *(e == q for e, q in zip(errors, rates, strict=True))]
        key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
        return bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=key)), rows).solve(tol=1e-10), rows

    _, rows = solved(rates)
    for k in range(2):
        ends = [solved(rates + sign * step * np.eye(2)[k])[0].value for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert -rows[1 + k].dual_value == pytest.approx(slope, abs=1e-3)


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_relative_entropies_of_numbers_that_both_vanish(seed):
    """Costs hold pairs of numbers near zero, where the slope of ``x log(x / y)`` depends on the way there."""
    rng = np.random.default_rng(seed)
    n = 10
    x, y, B = bo.Variable(n), bo.Variable(n), rng.standard_normal(n)
    cost, start = 3 * rng.standard_normal(n), rng.dirichlet(np.ones(n))
    rows = [bo.sum(x) == 1, bo.sum(y) == 1, B @ y == B @ start, x >= 0, y >= 0]
    sol = bo.Problem(bo.Minimize(bo.sum(bo.rel_entr(x, y)) + cost @ x), rows).solve()
    proven = sol.verify(resolve=False)
    assert sol.status == "optimal"
    assert proven.lower <= sol.value + 1e-12
    assert sol.value - proven.lower <= 1e-6 * max(1, abs(sol.value))
    np.testing.assert_array_less(-1e-9, sol.u[x.name])


@pytest.mark.parametrize("seed", [2, 7, 15, 16])
def test_key_rates_whose_slacks_lose_the_central_path(seed):
    """Nearly block-diagonal states: the logarithms change more in a step than their slopes say."""
    rng = np.random.default_rng(seed)
    M, C, E = rng.standard_normal((3, 4, 4))
    key, rho = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)], bo.PSD(4)
    state = M @ M.T / np.trace(M @ M.T) * 0.9 + np.eye(4) / 40
    rows = [bo.trace(rho) == 1, bo.inner(E + E.T, rho) == float(np.vdot(E + E.T, state))]
    cost = bo.inner(0.02 * (C + C.T), rho)
    sol = bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=key) + cost), rows).solve(projections=False)
    proven = sol.verify(resolve=False)
    assert sol.status == "optimal"
    assert proven.lower <= sol.value + 1e-12
    assert sol.value - proven.lower <= 1e-6


def cone_and_entropy():
    """Return ``max entr(u) - |v|`` with ``sum(v) = 2 u``, of one number, and its value."""
    u, v = bo.Variable(), bo.Variable(2)
    objective = bo.Maximize(bo.entr(u) - bo.norm2(v))  # |v| = sqrt 2 u, and log u = -1 - sqrt 2
    return bo.Problem(objective, [bo.sum(v) == 2 * u]), np.exp(-1 - np.sqrt(2))


def entropy_in_a_row():
    """Return the least energy of a qubit whose entropy is that of probabilities of 0.1 and 0.9, or more."""
    X = bo.PSD(2, hermitian=True)
    C = np.array([[1, 1j], [-1j, -1]])
    rows = [bo.trace(X) == 1, bo.von_neumann_entr(X) >= binary_entropy(0.1)]
    return bo.Problem(bo.Minimize(bo.inner(C, X)), rows), -0.8 * np.sqrt(2)


@pytest.mark.parametrize("case", ["bb84", "cone", "row"])
def test_the_barrier_method_alone_finds_closed_forms(case, monkeypatch):
    problem, value = {
        "bb84": lambda: (bb84(0.03), np.log(2) - binary_entropy(0.03)),
        "cone": cone_and_entropy,
        "row": entropy_in_a_row,
    }[case]()
    monkeypatch.setattr(route, "EntropyPath", Barrier)
    monkeypatch.setattr(route._followed, "__defaults__", (0, Barrier))
    sol = problem.solve(tol=1e-7, solver="entropy", projections=False)
    assert sol.status == "optimal"
    assert abs(sol.value - value) <= sol.error + 1e-14


def test_the_barrier_method_solves_what_the_other_leaves():
    """An image of order two of a state beside a small cost: one of 60 stalls far from the optimum."""
    rng = np.random.default_rng(41)
    C, E, K = rng.standard_normal((8, 8)), rng.standard_normal((8, 8)), rng.standard_normal((2, 8))
    rho = bo.PSD(8)
    rate = bo.key_rate(rho, kraus=[K], pinching=[np.diag([1.0, 0]), np.diag([0, 1.0])])
    rows = [bo.trace(rho) == 1, bo.inner(E + E.T, rho) == 2 * np.trace(E) / 8]
    problem = bo.Problem(bo.Minimize(rate + 0.02 * bo.inner(C + C.T, rho)), rows)
    sol = problem.solve(tol=1e-6)
    proven = sol.verify()
    assert sol.status == "optimal"
    assert proven.lower <= sol.value + 1e-12
    assert proven.upper - proven.lower < 1e-5


@pytest.mark.parametrize("hermitian", [False, True])
def test_von_neumann_divergences_of_expressions(hermitian):
    """With both arguments affine the divergence is jointly convex, and zero where they agree."""
    rng = np.random.default_rng(5)

    def state():
        M = rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)) * hermitian
        M = M @ M.conj().T / np.trace(M @ M.conj().T).real
        return M if hermitian else M.real

    def log(M):
        d, U = np.linalg.eigh(M)
        return (U * np.log(d)) @ U.conj().T

    X, Y = bo.PSD(3, hermitian=hermitian), bo.PSD(3, hermitian=hermitian)
    K, C = state(), state()
    cases = [(X, Y), (K @ X @ K.conj().T, C), (C, Y), (K @ X @ K.conj().T, Y + np.eye(3))]
    for A, B in cases:
        f = bo.von_neumann_div(A, B)
        cost = bo.real(bo.inner(state(), X)) + bo.real(bo.inner(state(), Y))
        sol = bo.Problem(bo.Minimize(f + cost), [bo.trace(X) == 1, bo.trace(Y) == 2]).solve(tol=1e-8)
        a, b = (np.asarray(getattr(e, "value", e)) for e in (A, B))
        assert sol.status == "optimal"
        assert f.value == pytest.approx(np.trace(a @ (log(a) - log(b)) - a + b).real, abs=1e-10)
    with pytest.raises(TypeError, match="where complement is stated"):
        bo.von_neumann_div(2 * X, np.eye(3), complement=1.0)


@pytest.mark.parametrize("seed", range(5))
def test_equalities_with_columns_of_their_own_leave_a_smaller_system(seed):
    rng = np.random.default_rng(seed)
    n, p, q = 12, 5, 2
    F = rng.normal(size=(n, n))
    E = rng.normal(size=(p + q, n)) * (rng.random((p + q, n)) < 0.5)
    E[:, rng.permutation(n)[:p]] = np.vstack([np.diag(rng.uniform(1, 3, p)), np.zeros((q, p))])
    own = own_columns(E)
    assert len(own.rows) >= 1
    assert np.abs(E[own.rows] @ own.N.toarray()).max() <= 1e-12
    K, b, r = F @ F.T + np.eye(n), rng.normal(size=n), rng.normal(size=p + q)
    dx, dnu = ReducedSystem(K, E, own).solve(b, r)
    assert np.abs(K @ dx - E.T @ dnu - b).max() <= 1e-9
    assert np.abs(E @ dx - r).max() <= 1e-9


def test_an_ellipsoid_through_cvxpy_takes_few_steps():
    """Rows of exponentials curve away from their tangents: the corrector takes their second order."""
    points = np.random.default_rng(7).normal(size=(28, 7))
    A, b = cp.Variable((7, 7), PSD=True), cp.Variable(7)
    problem = cp.Problem(cp.Maximize(cp.log_det(A)), [cp.norm(A @ x + b) <= 1 for x in points])
    problem.solve(solver=BREGOPT)
    value, steps = problem.value, problem.solver_stats.num_iters
    assert problem.value == pytest.approx(problem.solve(solver=cp.CLARABEL), rel=1e-6)
    assert value == pytest.approx(problem.value, rel=1e-6)
    assert steps <= 20
