"""Proven bounds: every inequality in exact or high-precision arithmetic, and problems of known optimum."""

import dataclasses
import itertools
import math
import pickle
import runpy
import warnings
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from rational import KINDS, problem, problems
from samples import examples, first, turns

import bregopt as bo
from bregopt.cli import main
from bregopt.divergences import DIVERGENCES, LogDet
from bregopt.program import Penalty, SparsePlusLowRank
from bregopt.program.rows import RankOne
from bregopt.rigorous.ball import UNIT, Ball, exp, gamma, log, sparse_product
from bregopt.rigorous.data import Anchor, MatrixData, data_of
from bregopt.rigorous.divergences import conjugate, dual_term, penalty, value_term
from bregopt.rigorous.file.certificate import BoundCertificate
from bregopt.rigorous.linear_algebra import (
    Part,
    Rows,
    eigenvalues,
    exceeds,
    least_eigenvalue,
    log_det,
    nearest_solution,
    proven_shift,
)
from bregopt.rigorous.lower import by_cholesky, independent_sets, lower_bound
from bregopt.rigorous.proof import feasibility
from bregopt.rigorous.reduction import implied_bounds, independent_columns, reduced
from bregopt.rigorous.upper import corrected, factor_bound, fixes_diagonal

mpmath.mp.dps = 60


def exact(A):
    """Return an array of fractions."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(A, dtype=float))


def inside(ball, truth):
    """Whether exact numbers are within the radii."""
    gaps = np.abs(exact(ball.mid) - truth)
    return bool(np.all(gaps <= exact(ball.rad)))


def ball_and_member(rng, shape):
    """Return a ball with wide-ranging numbers, and an exact array in it."""
    mid = rng.normal(size=shape) * 10.0 ** rng.integers(-6, 7, shape)
    rad = np.abs(mid) * 10.0 ** rng.integers(-17, -3, shape) * (rng.random(shape) < 0.5)
    share = exact(rng.uniform(-1, 1, shape))
    return Ball(mid, rad), exact(mid) + share * exact(rad)


@pytest.mark.parametrize("seed", range(8))
def test_operations_enclose_the_exact_results(seed):
    rng = np.random.default_rng(seed)
    (a, x), (b, y) = (ball_and_member(rng, (4, 5)) for _ in range(2))
    assert inside(a + b, x + y)
    assert inside(a - b, x - y)
    assert inside(a * b, x * y)
    assert inside(a / b, x / y)
    assert inside(3.3 - a, Fraction(3.3) - x)
    assert inside(a @ b.T, x @ y.T)
    assert inside(a.sum(), x.sum())
    assert inside(a.sum(axis=0), x.sum(axis=0))
    assert inside(a.dot(b), (x * y).sum())
    assert Fraction(a.frobenius()) ** 2 >= (x * x).sum()
    assert all(
        Fraction(float(lo)) <= v <= Fraction(float(hi))
        for lo, v, hi in zip(a.lo.flat, x.flat, a.hi.flat, strict=True)
    )
    rows = abs(x @ x.T).sum(axis=1)
    assert Fraction((a @ a.T).symmetric_norm()) >= max(rows)


@pytest.mark.parametrize("scale", [1e-160, 1e-300, 1e150])
def test_products_that_underflow_or_grow_are_enclosed(scale):
    a = np.array([[3.3, -1.7], [0.0, 2.2]]) * scale
    b = np.array([[1.1, 7.3], [5.5, -0.1]]) * 1e-150
    assert inside(Ball.exact(a) * b, exact(a) * exact(b))
    assert inside(Ball.exact(a) @ b, exact(a) @ exact(b))


@pytest.mark.parametrize("k", [1, 2, 60, 300])
@pytest.mark.parametrize("scale", [1e-300, 1e-6, 1e290])
def test_a_product_of_exact_matrices_is_enclosed_with_few_roundings(k, scale):
    rng = np.random.default_rng(k)
    for spread in (0, 6):
        a, b = (rng.normal(size=(k, 3)) * 10.0 ** rng.integers(-spread, spread + 1, (k, 3)) for _ in range(2))
        a, b = a * scale, b * (1e-3 if scale > 1 else 1.0)
        a[0, 0] = 0.0
        found, truth = Ball.exact(a.T) @ b, exact(a.T) @ exact(b)
        assert inside(found, truth)
        if scale == 1e-6 and k > 50 and not spread:
            assert (found.rad <= 3 * UNIT * np.abs(found.mid) + 1e-17 * scale).all()


def test_a_sparse_product_is_enclosed_and_empty_rows_are_exact():
    rng = np.random.default_rng(1)
    A = sp.csr_array(np.where(rng.random((6, 5)) < 0.4, rng.normal(size=(6, 5)), 0.0))
    A = sp.csr_array(sp.vstack([A, sp.csr_array((1, 5))]))
    rad = A.copy()
    rad.data = np.abs(rad.data) * 1e-12
    x, member = ball_and_member(rng, 5)
    found = sparse_product(A, rad, x)
    assert inside(found, exact(A.toarray()) @ member)
    assert inside(found, exact((A - rad).toarray()) @ member)
    assert found.mid[-1] == found.rad[-1] == 0


def test_gamma_bounds_the_error_relative_to_a_computed_sum():
    for k in (1, 10, 1000, 10**6):
        true = Fraction(k) * Fraction(UNIT) / (1 - Fraction(k) * Fraction(UNIT))
        assert Fraction(gamma(k)) >= true / (1 - true)
    with pytest.raises(ValueError, match="fewer than"):
        gamma(2**52)


@given(st.floats(1e-300, 1e300), st.floats(-700, 700))
@examples(50)
def test_logarithm_and_exponential_are_enclosed(x, t):
    found, raised = log(Ball.exact(x)), exp(Ball.exact(t))
    assert abs(mpmath.log(mpmath.mpf(x)) - float(found.mid)) <= float(found.rad)
    assert abs(mpmath.exp(mpmath.mpf(t)) - mpmath.mpf(float(raised.mid))) <= float(raised.rad)


def test_functions_prove_nothing_outside_their_domain():
    assert np.isinf(log(Ball.exact([0.0, -1.0])).rad).all()
    assert np.isinf(log(Ball(np.array(1.0), np.array(2.0))).rad)
    assert np.isinf(exp(Ball.exact(800.0)).rad)


def definite(A):
    """Whether an exact symmetric matrix is positive semidefinite, by its exact L D L'."""
    A = A.copy()
    for k in range(len(A)):
        pivot = A[k, k]
        if pivot < 0 or (pivot == 0 and any(A[k, k:])):
            return False
        if pivot:
            for i in range(k + 1, len(A)):
                A[i, k:] = A[i, k:] - A[i, k] / pivot * A[k, k:]
    return True


@pytest.mark.parametrize("seed", range(12))
def test_a_proven_least_eigenvalue_is_a_lower_bound_in_rational_arithmetic(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    F = rng.normal(size=(n, max(1, n - seed % 3)))
    A = F @ F.T * 10.0 ** rng.integers(-8, 9)
    A = (A + A.T) / 2 + (seed % 2) * np.eye(n)
    t = least_eigenvalue(Ball.exact(A))
    assert definite(exact(A) - Fraction(t) * exact(np.eye(n)))
    assert t >= np.linalg.eigvalsh(A)[0] - 1e-12 * np.abs(A).max()
    found = proven_shift(A, t - 1e-3 * abs(t))
    assert found is None or definite(exact(A) - Fraction(found) * exact(np.eye(n)))
    rad = np.abs(A) * 1e-9
    wide = least_eigenvalue(Ball(A, rad))
    assert definite(exact(A - rad * np.sign(A)) - Fraction(wide) * exact(np.eye(n)))


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_a_matrix_that_is_almost_singular_is_proven_definite_in_high_precision(seed):
    rng = np.random.default_rng(seed)
    n, low = 60, 2e-13
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    A = (Q * np.append(low, rng.uniform(0.5, 1.5, n - 1))) @ Q.T
    A = (A + A.T) / 2
    least = float(min(mpmath.eigsy(high(A), eigvals_only=True)))
    assert exceeds(Ball.exact(A), 0.0)
    assert not proven_shift(A, least) or proven_shift(A, least) < 0  # the bound before a factorization
    for share in (-10.0, 0.5, 0.7, 0.9, 0.99, 1.0, 1.01):
        if exceeds(Ball.exact(A), share * least):
            assert share <= 1
        if exceeds(Ball(A, np.full((n, n), 1e-16)), share * least):
            assert share * least <= least - n * 1e-16 + 1e-25
    assert not exceeds(Ball.exact(A - low * np.eye(n)), 1e-16)


@pytest.mark.parametrize("shape", [(0,), (1,), (37, 11), (3, 2, 5), (4096,)])
def test_sums_in_pairs_are_enclosed_with_few_roundings(shape):
    rng = np.random.default_rng(0)
    A = rng.normal(size=shape) * 10.0 ** rng.integers(-8, 9, shape)
    rad = np.abs(A) * 1e-18
    truth = sum(map(Fraction, A.ravel().tolist()), Fraction(0))
    found = Ball.exact(A).sum()
    assert inside(found, np.array(truth))
    assert found.rad <= 20 * UNIT * np.abs(A).sum()
    wide = Ball(A, rad).sum()
    assert inside(wide, np.array(truth + sum(map(Fraction, rad.ravel().tolist()), Fraction(0))))


def test_a_least_eigenvalue_of_nothing_known_proves_nothing():
    assert least_eigenvalue(Ball(np.eye(2), np.full((2, 2), np.inf))) == -math.inf
    assert least_eigenvalue(Ball(np.full((2, 2), np.nan), np.zeros((2, 2)))) == -math.inf
    assert least_eigenvalue(Ball.exact(np.zeros((0, 0)))) == math.inf
    assert proven_shift(np.diag([1.0, -1.0]), -0.5) is None


def high(A):
    return mpmath.matrix([[mpmath.mpf(float(v)) for v in row] for row in A])


def spd(rng, n, condition=1e3):
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    A = (Q * np.geomspace(1, condition, n)) @ Q.T
    return (A + A.T) / 2


@pytest.mark.parametrize("seed", range(4))
def test_eigenvalues_and_determinants_are_enclosed_in_high_precision(seed):
    rng = np.random.default_rng(seed)
    A = spd(rng, 5, 10.0 ** (seed + 1))
    found = eigenvalues(Ball.exact(A))
    truth = sorted(mpmath.eigsy(high(A), eigvals_only=True))
    assert all(abs(t - float(m)) <= float(r) for t, m, r in zip(truth, found.mid, found.rad, strict=True))
    assert found.rad.max() <= 1e-12 * np.abs(A).max() * 5
    determinant = log_det(Ball.exact(A))
    assert abs(mpmath.log(mpmath.det(high(A))) - float(determinant.mid)) <= float(determinant.rad) < 1e-8


def function_of(A, f):
    d, Q = mpmath.eigsy(A)
    return Q * mpmath.diag([f(v) for v in d]) * Q.T


def trace(A):
    return sum(A[k, k] for k in range(A.rows))


def divergence(name, X, X0):
    if name == "logdet":
        ratio = X * X0**-1
        return trace(ratio) - mpmath.log(mpmath.det(ratio)) - X.rows
    if name == "von_neumann":
        return trace(X * (function_of(X, mpmath.log) - function_of(X0, mpmath.log)) - X + X0)
    return sum((X - X0)[i, j] ** 2 for i in range(X.rows) for j in range(X.rows))


def dual(name, W, mu, X0):
    if name == "logdet":
        return mu * (mpmath.log(mpmath.det(X0**-1 + W / mu)) + mpmath.log(mpmath.det(X0)))
    if name == "von_neumann":
        return mu * (trace(X0) - trace(function_of(function_of(X0, mpmath.log) - W / mu, mpmath.exp)))
    best = function_of(X0 - W / (2 * mu), lambda v: v if v > 0 else mpmath.mpf(0))
    return trace(W * best) + mu * divergence("frobenius", best, X0)


@pytest.mark.parametrize("name", ["logdet", "von_neumann", "frobenius"])
@pytest.mark.parametrize("seed", range(3))
def test_divergences_and_their_duals_are_enclosed_in_high_precision(name, seed):
    rng = np.random.default_rng(seed)
    n, mu = 4, 0.75
    X0, X = spd(rng, n), spd(rng, n, 30.0)
    W = rng.normal(size=(n, n)) * 1e-3
    W = W + W.T
    block = MatrixData(
        "X",
        n,
        *np.triu_indices(n),
        None,
        None,
        Ball.exact(np.zeros(10)),
        None,
        Anchor(name, Ball.exact(X0), mu),
    )
    truth = dual(name, high(W), mu, high(X0))
    value, reason = dual_term(block, Ball.exact(W), math.inf, None)
    assert reason == ""
    assert value <= truth <= value + 1e-8 * max(1, abs(float(truth)))
    truth = mu * divergence(name, high(X), high(X0))
    value, reason = value_term(block, X, 0.0)
    assert reason == ""
    assert value >= truth >= value - 1e-8 * max(1, abs(float(truth)))
    change = rng.normal(size=(n, n))
    change = 1e-4 * (change + change.T) / np.linalg.norm(change + change.T)
    value, _ = value_term(block, X, 1.001e-4)
    assert value >= mu * divergence(name, high(X + change), high(X0))


def test_a_solution_exists_within_the_proven_radius():
    rng = np.random.default_rng(0)
    A = sp.csr_array(rng.integers(-3, 4, (3, 6)).astype(float))
    share = np.array([1.0, 0.5, 1.0, 0.5, 0.5, 1.0])
    b, x = rng.normal(size=3), rng.normal(size=6)
    rows = Rows.of([Part(A, None, share, np.arange(6))], np.arange(3))
    found = nearest_solution(
        rows, x, lambda v: Ball.exact(b) - sparse_product(A, None, Ball.exact(v)), lambda v, step: v + step[0]
    )
    D, G = exact(A.toarray()), exact(A.toarray() * share) @ exact(A.toarray()).T
    r = exact(b) - D @ exact(found.x)
    solved = mpmath.lu_solve(mpmath.matrix(G.tolist()), mpmath.matrix(r.tolist()))
    square = sum(mpmath.mpf(p.numerator) / p.denominator * s for p, s in zip(r, solved, strict=True))
    assert mpmath.sqrt(square) <= found.radius < 1e-13
    dependent = Rows.of([Part(sp.csr_array(np.ones((2, 6))), None, share, np.arange(6))], np.arange(2))
    assert nearest_solution(dependent, x, lambda v: Ball.exact(np.zeros(2)), lambda v, step: v) is None


def test_no_interval_excludes_a_known_integer_optimum():
    proven = 0
    for known in problems(0, 16):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            found = known.problem.solve(tol=1e-8).verify()
        assert found.lower <= known.value <= found.upper, known.kind
        proven += math.isfinite(found.width)
        found.certificate.check()
    assert proven >= 8


@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS))
@examples(10)
def test_no_interval_of_any_kind_of_problem_excludes_its_integer_optimum(seed, kind):
    known = problem(np.random.default_rng(seed), kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        found = known.problem.solve(tol=1e-8).verify()
    assert found.lower <= known.value <= found.upper


def test_a_row_without_coefficients_does_not_prevent_an_upper_bound():
    X = bo.PSD(3)
    rows = [bo.diag(X) == 1, bo.inner(np.zeros((3, 3)), X) == 0]
    # The optimum is zero, so the gap is relative to 3e-6. With tol=1e-9 it would have to be below round-off.
    sol = bo.Problem(bo.Minimize(bo.inner(np.ones((3, 3)), X)), rows).solve(tol=1e-8)
    assert sol.status == "optimal"
    found = sol.verify()
    assert found.lower <= 0 <= found.upper
    assert found.width <= 1e-7
    found.certificate.check()


def test_an_iterate_of_the_solve_replaces_a_further_one():
    rng = np.random.default_rng(3)
    R = rng.normal(size=(30, 2))
    A = [a + a.T for a in rng.normal(size=(25, 30, 30))]
    X = bo.PSD(30)
    rows = [
        bo.inner(np.array(A), X) == np.array([float(np.sum(a * (R @ R.T))) for a in A]),
        bo.trace(X) <= 90,
    ]
    sol = bo.Problem(bo.Minimize(bo.inner(A[0] + A[1] + 20 * np.eye(30), X)), rows).solve(tol=1e-9)
    found = sol.verify()
    assert found.solves == 0
    assert found.relative_width <= 1e-7
    again = pickle.loads(pickle.dumps(sol)).verify()  # without the iterate
    assert again.lower <= found.upper
    assert again.upper >= found.lower


def correlation(n=6, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, n))
    return A + A.T


@pytest.mark.parametrize("name", ["frobenius", "logdet", "von_neumann"])
def test_nearness_has_both_bounds_near_its_value(name):
    A = correlation() if name == "frobenius" else spd(np.random.default_rng(2), 6, 20.0)
    X = bo.PSD(6)
    nearness = {"frobenius": bo.frobenius_div, "logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}[
        name
    ]
    sol = bo.Problem(bo.Minimize(nearness(X, A)), [bo.diag(X) == 1]).solve(tol=1e-9)
    found = sol.verify()
    assert found.reasons == {}
    assert found.lower <= found.upper
    assert found.width <= 1e-7 * abs(sol.value)
    assert abs(found.lower - sol.value) <= 1e-7 * abs(sol.value)


def test_elementwise_weights_and_caps_have_bounds():
    A = correlation()
    H = np.where(np.eye(6) > 0, 1.0, np.random.default_rng(1).uniform(0, 2, (6, 6)))
    H = (H + H.T) / 2
    H[0, 1] = H[1, 0] = 0.0
    for objective, constraints in (
        (lambda X: bo.frobenius_div(X, A, weights=H), lambda X: [bo.diag(X) == 1]),
        (lambda X: bo.frobenius_div(X, A), lambda X: [bo.diag(X) == 1, bo.lambda_max(X) <= 1.5]),
        (lambda X: bo.inner(A, X), lambda X: [bo.trace(X) >= 3, bo.lambda_max(X) <= 1.5]),
    ):
        X = bo.PSD(6)
        sol = bo.Problem(bo.Minimize(objective(X)), constraints(X)).solve(tol=1e-9)
        found = sol.verify()
        assert found.reasons == {}
        assert found.lower <= sol.value + 1e-6
        assert found.upper >= sol.value - 1e-6
        assert found.width <= 1e-5 * max(1, abs(sol.value))


def test_a_certificate_is_written_checked_and_not_believed_after_a_change(tmp_path):
    X = bo.PSD(3)
    u = bo.Variable(2)
    prob = bo.Problem(
        bo.Maximize(bo.inner(np.ones((3, 3)), X) - bo.sum(u)), [bo.diag(X) == 1, u >= X[0, 1], u <= 4]
    )
    found = prob.solve(tol=1e-9).verify()
    path = tmp_path / "bounds.npz"
    found.certificate.save(path)
    again = BoundCertificate.load(path)
    again.check()
    assert again.claims == found.certificate.claims
    assert again.claims[0] < -found.upper
    assert -found.lower < again.claims[1]
    with np.load(path) as file:
        arrays = dict(file)
    arrays["lo"] = arrays["lo"] + 1e-9
    np.savez_compressed(path, **arrays)
    with pytest.raises(ValueError, match="changed"):
        BoundCertificate.load(path)
    lied = dataclasses.replace(again, claims=(again.claims[0] + 1e-3, again.claims[1]))
    with pytest.raises(ValueError, match="claims"):
        lied.check()
    np.savez(path, facts=np.zeros(2))
    with pytest.raises(ValueError, match="not a certificate"):
        BoundCertificate.load(path)
    with pytest.raises(ValueError, match="npz"):
        found.certificate.save(tmp_path / "bounds.txt")


def test_the_command_line_checks_a_certificate_again(tmp_path, capsys):
    X = bo.PSD(3)
    found = bo.Problem(bo.Maximize(bo.inner(np.ones((3, 3)), X)), [bo.diag(X) == 1]).solve(tol=1e-9).verify()
    path = tmp_path / "bounds.npz"
    found.certificate.save(path)
    assert main(["verify", str(path)]) == 0
    assert f"proven again: {found.certificate.proven}" in capsys.readouterr().out
    lied = dataclasses.replace(found.certificate, claims=(found.certificate.claims[0] + 1e-3, math.inf))
    lied.save(path)
    assert main(["verify", str(path)]) == 2
    assert "claims" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["bounds", "cost", "coefficient", "anchor", "variable"])
def test_bounds_hold_for_every_value_in_an_interval(place):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(4, 4))
    A = A + A.T
    X, width = bo.PSD(4), 1e-6

    def problem(p):
        if place == "bounds":
            return bo.Problem(bo.Minimize(bo.inner(A, X)), [bo.diag(X) == p])
        if place == "cost":
            return bo.Problem(bo.Minimize(bo.inner(A, X) + p[0] * X[0, 1]), [bo.diag(X) == 1])
        if place == "coefficient":
            return bo.Problem(
                bo.Minimize(bo.inner(A, X)), [p[0] * X[0, 0] + X[1, 1] == 2, bo.diag(X)[1:] <= 1]
            )
        if place == "variable":
            u = bo.Variable(4)
            rows = [u + bo.diag(X) >= p, X[0, 0] <= 1, bo.trace(X) <= 3, u >= 0]
            return bo.Problem(bo.Minimize(bo.inner(A, X) + bo.sum(u)), rows)
        return bo.Problem(bo.Minimize(bo.frobenius_div(X, p)), [bo.diag(X) == 1])

    center = A if place == "anchor" else np.ones(4)
    p = bo.Parameter(center.shape, lo=center - width, hi=center + width, name="p")
    sol = problem(p).solve(tol=1e-9)
    found = sol.verify()
    assert found.reasons == {}
    assert found.intervals == ("p",)
    assert found.width < 1e-3
    exact_data = problem(bo.Parameter(center.shape, value=center)).solve(tol=1e-9).verify()
    assert exact_data.width < found.width
    for sign in (-1, 1):
        end = center + sign * width * (1 if place == "anchor" else np.sign(rng.normal(size=4)))
        inner = problem(bo.Parameter(center.shape, value=np.clip(end, p.lo, p.hi))).solve(tol=1e-9).verify()
        assert found.lower <= inner.upper
        assert inner.lower <= found.upper
        assert found.lower <= inner.lower + 1e-7
        assert inner.upper <= found.upper + 1e-7
    found.certificate.check()


def solved_cut(half, tol):
    """Return the relaxed maximum cut of the graph with the edges of ``half + half'``, and its solution."""
    W = sp.csr_array(half + half.T)
    laplacian = sp.csr_array(sp.diags_array(W.sum(axis=1)) - W)
    X = bo.PSD(W.shape[0])
    prob = bo.Problem(bo.Maximize(bo.inner(laplacian / 4, X)), [bo.diag(X) == 1])
    return prob, prob.solve(tol=tol, solver="lowrank")


@pytest.mark.parametrize("n", [600, pytest.param(5200, marks=pytest.mark.slow)])
def test_cuts_of_large_graphs_have_both_bounds(n, tmp_path):
    rng = np.random.default_rng(0)
    weights = rng.choice([-1.0, 1.0], (2, n))
    at = np.arange(n)
    parts = [sp.csr_array((w, (at, (at + d) % n)), (n, n)) for w, d in zip(weights, (1, 2), strict=True)]
    _, sol = solved_cut(sum(parts[1:], parts[0]), 1e-3)
    found = sol.verify()
    assert found.reasons == {}
    assert abs(found.lower - sol.value) <= 1e-9 * sol.value
    assert found.upper >= found.lower
    assert found.relative_width <= 2e-3
    found.certificate.save(tmp_path / "cut.npz")
    BoundCertificate.load(tmp_path / "cut.npz").check()


@pytest.mark.parametrize("n", [700, pytest.param(6000, marks=pytest.mark.slow)])
def test_cuts_of_large_graphs_whose_factor_is_dense_have_both_bounds(n, tmp_path):
    rng = np.random.default_rng(1)
    i, j = rng.integers(0, n, (2, 4 * n))
    half = sp.csr_array((rng.choice([-1.0, 1.0, 2.0], 4 * n) * (i != j), (i, j)), (n, n))
    prob, sol = solved_cut(half, 1e-4)
    found = sol.verify()
    assert found.reasons == {}
    assert abs(found.lower - sol.value) <= 1e-9 * sol.value
    assert found.relative_width <= 10 * sol.gap
    if n < 1000:  # the optimum to more digits
        assert found.lower <= prob.solve(tol=1e-7).verify().lower <= found.upper
    found.certificate.save(tmp_path / "cut.npz")
    BoundCertificate.load(tmp_path / "cut.npz").check()


@pytest.mark.parametrize("seed", range(6))
def test_a_corrected_factor_is_feasible_and_below_its_bound_in_rational_arithmetic(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 9))
    z = rng.choice([-1.0, 0.0, 1.0], n)
    z[:3] = 1.0
    fixed = np.flatnonzero((z != 0) | (rng.random(n) < 0.5))
    asked, cost = rng.choice([1.0, 1.25], len(fixed)) if seed % 2 else 1.0, rng.normal(size=(n, n))
    X = bo.PSD(n)
    rows = [bo.quad_form(2 * z, X) == 0, X[fixed, fixed] == asked]
    prob = bo.Problem(bo.Minimize(bo.inner(cost + cost.T, X)), rows)
    data = data_of(prob.program())
    assert data.matrices[0].null.row == 0
    assert fixes_diagonal(data)
    start = rng.normal(size=(n, 5)) * 1e3
    found = corrected(data, start)
    P = exact(np.eye(n)) - exact(np.outer(z, z)) / Fraction(int(z @ z))
    G, t = P @ exact(found.F), Fraction(found.t)
    s, on, goal = Fraction(int(z @ z)), z != 0, exact(np.broadcast_to(asked, len(fixed)))
    c = np.array([Fraction(0)] * n)
    c[fixed] = goal - t * (G @ G.T)[fixed, fixed]
    w = np.where(on, (c - c[on].sum() / (s * (s - 1))) / (1 - 2 / s), c)
    assert inside(found.w, w)
    assert (w >= 0).all()
    feasible = t * (G @ G.T) + P @ np.diag(w) @ P
    assert not (feasible @ exact(z)).any()
    assert (feasible[fixed, fixed] == goal).all()
    bound = factor_bound(data, start).value
    value = (exact(cost + cost.T) * feasible).sum()
    assert value <= Fraction(bound) <= value + Fraction(1e-9) * max(abs(value), 1)
    assert factor_bound(data, np.zeros((n, 2))).value == math.inf


@pytest.mark.parametrize("n", first(2, [40, 250, 700, 6000]))
def test_balanced_cuts_of_large_graphs_have_both_bounds(n, tmp_path):
    rng = np.random.default_rng(4)
    i, j = rng.integers(0, n, (2, 4 * n))
    W = sp.csr_array((rng.choice([1.0, 2.0], 4 * n) * (i != j), (i, j)), (n, n))
    W = sp.csr_array(W + W.T)
    laplacian = sp.csr_array(sp.diags_array(W.sum(axis=1)) - W)
    X = bo.PSD(n)
    rows = [bo.diag(X) == 1, bo.quad_form(np.ones(n), X) == 0]
    prob = bo.Problem(bo.Minimize(bo.inner(laplacian / 4, X)), rows)
    sol = prob.solve(tol=1e-4, solver="lowrank")
    found = sol.verify()
    assert found.reasons == {}
    assert found.solves == 0
    assert abs(found.upper - sol.value) <= 1e-9 * sol.value
    assert found.relative_width <= 10 * sol.gap
    if n < 1000:  # on the face, as a dense matrix
        face = prob.solve(tol=1e-8, solver="path").verify()
        assert found.lower <= face.upper
        assert face.lower <= found.upper
    found.certificate.save(tmp_path / "cut.npz")
    certificate = BoundCertificate.load(tmp_path / "cut.npz")
    certificate.check()
    block = certificate.data.matrices[0]
    other = dataclasses.replace(block, null=block.null._replace(z=2 * block.null.z))
    data = dataclasses.replace(certificate.data, matrices=(other,))
    dataclasses.replace(certificate, data=data).save(tmp_path / "other.npz")
    with pytest.raises(ValueError, match=r"null0 is .* expected two entries"):
        BoundCertificate.load(tmp_path / "other.npz")


@pytest.mark.parametrize("weight", [0.0, 7.0])
@pytest.mark.parametrize("seed", range(6))
def test_a_bound_after_elimination_holds_in_rational_arithmetic(seed, weight):
    rng = np.random.default_rng(seed)
    n = 14
    i, j = rng.integers(0, n, (2, n))
    A = rng.normal(size=n) * (i != j)
    S = sp.coo_array((np.concatenate([A, A]), (np.concatenate([i, j]), np.concatenate([j, i]))), (n, n))
    z = rng.choice([-1.0, 0.0, 1.0], n)
    low = np.linalg.eigvalsh(S.toarray() + weight * np.outer(z, z))[0]
    S = sp.csr_array(S.tocsr() + (1e-13 * rng.normal() - low) * sp.eye_array(n))  # about singular
    W = SparsePlusLowRank(S, z[:, None][:, : int(weight > 0)], np.array([weight])[: int(weight > 0)])
    sets = list(independent_sets(S))
    assert len(sets) > 1
    for chosen in sets[:1]:
        assert not (S[chosen][:, chosen].toarray() - np.diag(S.diagonal()[chosen])).any()
    found = by_cholesky(W, sets)
    if found is not None:
        M = exact(S.toarray()) + Fraction(weight) * exact(np.outer(z, z))
        assert definite(M - (Fraction(found) - Fraction(1, 10**40)) * exact(np.eye(n)))
        assert found >= -1e-10
    W = dataclasses.replace(W, S=sp.csr_array(S + 1e-6 * sp.eye_array(n)))
    assert by_cholesky(W, sets) is not None
    assert by_cholesky(dataclasses.replace(W, S=sp.csr_array(S - 1e-5 * sp.eye_array(n))), sets) is None


def test_slack_matrices_are_bounded_with_a_multiple_of_the_balance_row():
    n = 8
    rng = np.random.default_rng(5)
    X, z = bo.PSD(n), np.ones(n)
    cost = rng.integers(-4, 5, (n, n)).astype(float)
    rows = [bo.diag(X) == 1, bo.quad_form(z, X) == 0]
    data = data_of(bo.Problem(bo.Minimize(bo.inner(cost + cost.T, X)), rows).program())
    y = np.append(rng.integers(-40, -20, n).astype(float), 0.0)
    least = lower_bound(data, y, implied_bounds(data)).value
    W = cost + cost.T - np.diag(y[:n])
    t = (Fraction(least) - Fraction(float(y.sum()))) / n  # the bound is sum y + t tr X, t < 0
    large = Fraction(10**9) * exact(np.outer(z, z))
    assert t < 0
    assert definite(exact(W) + large - t * exact(np.eye(n)))
    # The bound is nearly that on the face.
    Q = scipy.linalg.null_space(z[None])
    best = float(y.sum() + n * min(np.linalg.eigvalsh(Q.T @ W @ Q)[0], 0.0))
    assert best - 1e-2 * abs(best) <= least <= best + 1e-9


def test_a_matrix_that_does_not_fit_in_memory_has_a_reason(monkeypatch):
    n = 700
    rng = np.random.default_rng(2)
    i, j = rng.integers(0, n, (2, 4 * n))
    W = sp.csr_array((np.ones(4 * n), (i, j)), (n, n))
    X = bo.PSD(n)
    prob = bo.Problem(bo.Maximize(bo.inner(sp.csr_array(W + W.T), X)), [bo.diag(X) == 1])
    sol = prob.solve(tol=1e-2, solver="lowrank")
    monkeypatch.setattr("bregopt.arrays.memory", lambda: 10**6)
    monkeypatch.setattr("bregopt.rigorous.lower.LARGEST_DENSE", 500)
    found = sol.verify()
    assert "GB of memory" in found.reasons["upper"]
    assert found.lower > 0


def test_intervals_of_parameters_are_checked():
    with pytest.raises(ValueError, match="both or none"):
        bo.Parameter(lo=1.0)
    with pytest.raises(ValueError, match="lo <= hi"):
        bo.Parameter(lo=1.0, hi=0.0)
    p = bo.Parameter(lo=0.0, hi=1.0)
    assert p.value == 0.5
    with pytest.raises(ValueError, match="lo <= value <= hi"):
        p.value = 2.0
    X = bo.PSD(2)
    weighed = bo.Problem(bo.Minimize(p * bo.frobenius_div(X, np.eye(2))), [X[0, 1] == 1])
    with pytest.raises(ValueError, match="a weight"):
        weighed.solve().verify()


def test_intervals_stay_in_spec_files(tmp_path):
    p = bo.Parameter(3, lo=[0.0, 1.0, 2.0], hi=[1.0, 2.0, 3.0], name="p")
    X = bo.PSD(3)
    bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) >= p]).to_spec(tmp_path / "p.toml")
    read = bo.load_spec(tmp_path / "p.toml").problem.parameters[0]
    assert (read.lo == p.lo).all()
    assert (read.hi == p.hi).all()


def test_branch_and_bound_finds_a_maximum_cut():
    pytest.importorskip("matplotlib").use("Agg")
    found = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "graphs" / "exact_cut.py"))
    W, best = found["W"], 0
    for x in map(np.array, itertools.product((-1, 1), repeat=10)):
        best = max(best, int(W.sum() - x @ W @ x) // 4)
    assert found["best"] == best
    assert found["count"] > 1


def test_fixings_are_checked_and_bound_what_they_fix():
    X, u = bo.PSD(2, name="X"), bo.Variable(2, name="u")
    entry = bo.between(X[0, 1], -1, 1)
    prob = bo.Problem(bo.Minimize(X[0, 1] + bo.sum(u)), [bo.diag(X) == 1, entry, u >= -1, u <= 1])
    free = prob.bound()
    assert -3.0001 < free.value <= -3
    assert -2.5001 < prob.bound({entry: 0.5, u: [-1, np.nan]}).value <= -1.5
    fixed = prob.bound({entry: 0.5, "u": [-1, 0.25]})
    assert -0.2501 < fixed.value <= -0.25
    assert abs(fixed.X[0, 1] - 0.5) < 1e-5
    assert prob.value is None
    for fixings, error, message in (
        ({entry: 2.0}, ValueError, "expected -1 to 1"),
        ({u: 0.5}, ValueError, "shape"),
        ({"v": 1.0}, ValueError, "names 'v'"),
        ({u: ["a", "b"]}, TypeError, "dtype"),
        ([1], TypeError, "dict"),
    ):
        with pytest.raises(error, match=message):
            prob.bound(fixings)
    impossible = bo.Problem(bo.Maximize(X[0, 1]), [bo.diag(X) <= 1, X[0, 1] <= 4, X[0, 1] >= 3])
    assert impossible.bound().value == -math.inf


def test_infeasible_and_unbounded_problems_are_proven():
    X = bo.PSD(2)
    infeasible = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] <= 1, X[1, 1] <= 1, X[0, 1] >= 2]).solve()
    found = infeasible.verify()
    assert found.infeasible
    assert found.lower == found.upper == math.inf
    found.certificate.check()
    X = bo.PSD(2)
    unbounded = bo.Problem(bo.Maximize(bo.trace(X)), [X[0, 1] == 1]).solve()
    found = unbounded.verify()
    assert found.unbounded
    assert found.lower == found.upper == math.inf
    assert "unbounded" in found.proven
    found.certificate.check()


def test_a_contradiction_is_proven_where_equations_of_free_variables_depend():
    n, k = 14, 10
    s = np.random.default_rng(0).uniform(0.5, 2, (2, n))
    X = bo.PSD(2)
    v, u, q = bo.Variable(n), bo.Variable(n), bo.Variable()
    least = np.where(np.arange(n) < k, 2.0, 0.1)
    # The k largest elements of v add up to 2 k at least. Their multipliers are no simple fractions.
    rows = [*(s[0, i] * v[i] >= s[0, i] * least[i] for i in range(n)), u >= 0, X[0, 0] >= q]
    rows += [s[1, i] * v[i] <= s[1, i] * (u[i] + q) for i in range(n)]
    for most, status in ((1.9 * k, "infeasible"), (2.1 * k, "optimal")):
        prob = bo.Problem(bo.Minimize(bo.trace(X)), [*rows, bo.sum(u) + k * q <= most])
        assert prob.solve().status == status


@pytest.mark.parametrize("n", [4, 12])
def test_an_equality_of_other_free_variables_does_not_prevent_a_proof(n):
    S = np.random.default_rng(n).normal(size=(n, n))
    S = (S + S.T) / 2
    X, other = bo.PSD(n), bo.Variable(n)
    nearer = -float(np.linalg.eigvalsh(S)[0]) * 0.9  # than any psd matrix, in the norm of the largest row sum
    rows = [bo.sum(bo.abs(X[i] - S[i])) <= nearer for i in range(n)]
    found = bo.Problem(bo.Minimize(bo.trace(X)), [*rows, bo.sum(other) == 1]).solve()
    assert found.status == "infeasible"
    raw = found._in_program
    data = feasibility(data_of(raw._program))
    assert lower_bound(data, raw._point[2], implied_bounds(data)).value > 0


def test_a_problem_without_a_trace_bound_takes_one_that_is_stated():
    X = bo.PSD(2)
    prob = bo.Problem(bo.Minimize(X[0, 0]), [X[0, 1] == 1])  # not attained
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        sol = prob.solve(solver="path")
    assert sol.verify().lower <= 0
    stated = sol.verify(trace_bound=100.0)
    assert -1e-3 < stated.lower <= 0.02
    assert "trace" in stated.given[0]
    for wrong, error in (
        (-1.0, ValueError),
        ("a", TypeError),
        ([1.0, 2.0], ValueError),
        (True, TypeError),
        (10**400, ValueError),
    ):
        with pytest.raises(error, match="trace_bound"):
            sol.verify(trace_bound=wrong)
    with pytest.raises(TypeError, match="resolve is array"):
        sol.verify(resolve=np.eye(2))


def test_a_matrix_without_interior_has_no_upper_bound_and_says_why():
    X = bo.PSD(3)
    prob = bo.Problem(bo.Minimize(bo.trace(X)), [bo.quad_form([1.0, 2, 3], X) == 0, X[0, 0] == 1])
    found = prob.solve().verify()
    assert found.upper == math.inf
    assert "definite" in found.reasons["upper"]
    assert "no upper" in repr(found)
    assert "<table>" in found._repr_html_()


def test_the_data_of_a_program_are_its_numbers():
    X = bo.PSD(3)
    z = np.array([1.0, 2.0, 3.0]) / 7
    prob = bo.Problem(bo.Minimize(bo.trace(X)), [bo.quad_form(z, X) == 1, bo.sq_distance(X, [0], [1]) <= 2])
    data = data_of(prob.program())
    assert data.matrices[0].A_rad is not None  # a product of numbers is rounded
    block = data.matrices[0]
    row = exact(np.outer(z, z)) * 0 + np.outer(exact(z), exact(z))
    A, rad = (M[[0]].toarray()[0] for M in (block.A, block.A_rad))
    found = {}
    for i, j, value, error in zip(block.i, block.j, A, rad, strict=True):
        found[i, j] = (value, error)
    for (i, j), (value, error) in found.items():
        truth = row[i, j] * (1 if i == j else 2)
        assert abs(Fraction(value) - truth) <= Fraction(error)
    assert block.A_rad[[1]].sum() == 0


@pytest.mark.parametrize("signs", [False, True])
def test_dense_rows_of_vectors_are_enclosed(signs):
    rng = np.random.default_rng(3)
    n, m = 5, 4
    near, far = rng.normal(size=(2, m, n))
    near[0, 1] = far[1, 2] = 0.0
    far[2] = -near[2]
    if signs:
        far = np.sign(far)
    X = bo.PSD(n)
    rows = [bo.quad_form(far, X) - bo.quad_form(near, X) >= 1, bo.quad_form(far, X) <= 9]
    program = bo.Problem(bo.Minimize(bo.trace(X)), rows).program()
    block = data_of(program).matrices[0]
    A, rad = block.A.toarray(), block.A_rad.toarray()
    for term in program.A.terms:
        products = term.rows.products()
        assert not sp.issparse(products.U)
        for k, at in enumerate(term.at):
            u, w = exact(products.U[k]), exact(products.W[k])
            truth = Fraction(float(products.weight[k])) * (np.outer(u, w) + np.outer(w, u))
            for i, j, value, error in zip(block.i, block.j, A[at], rad[at], strict=True):
                assert abs(Fraction(float(value)) - truth[i, j] / (2 if i == j else 1)) <= Fraction(
                    float(error)
                )
            if signs and isinstance(term.rows, RankOne):
                assert not rad[at].any()


def logarithmic_rows(weight, bound):
    """Return data with logarithmic rows of given weights and lower bounds, and the mask of these rows."""
    X = bo.PSD(len(weight))
    prob = bo.Problem(bo.Maximize(bo.sum(bo.log(bo.diag(X)) @ weight)), [bo.trace(X) <= 1])
    data = data_of(prob.program())
    log_rows = data.kind == int(Penalty.LOG)
    return dataclasses.replace(data, lo=np.where(log_rows, np.resize(bound, data.m), data.lo)), log_rows


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_terms_of_logarithms_are_enclosed_in_high_precision(scale):
    rng = np.random.default_rng(0)
    weight, bound = rng.uniform(0.1, 3, 5) * scale, rng.normal(size=5)
    data, rows = logarithmic_rows(weight, bound)
    y, a = rows * rng.uniform(0.1, 3, data.m) / scale, bound[0] + rng.uniform(0.1, 3, data.m) * scale
    wide = Ball(y, rows * 0.01 / scale)
    lower, wider, upper = conjugate(data, Ball.exact(y)), conjugate(data, wide), penalty(data, Ball.exact(a))
    for k in np.flatnonzero(rows):
        w, b, v = (mpmath.mpf(float(part)) for part in (data.weight[k], data.lo[k], y[k]))
        # the minimum of y a - w log(a - b) is at a = b + w / y
        truth = v * b + w - w * mpmath.log(w / v)
        assert lower[k] <= truth <= lower[k] + 1e-13 * (abs(truth) + w + abs(v * b))
        ends = [mpmath.mpf(float(end)) for end in (wide.lo[k], wide.hi[k])]
        assert wider[k] <= min(end * b + w - w * mpmath.log(w / end) for end in ends)
        gap = mpmath.mpf(float(a[k])) - b
        if gap > 0:
            paid = -w * mpmath.log(gap)
            assert upper[k] - 1e-9 * (abs(paid) + w) <= paid <= upper[k]
        else:
            assert upper[k] == math.inf
    assert np.isneginf(conjugate(data, Ball.exact(np.zeros(data.m)))[rows]).all()
    near = Ball(data.lo + 1e-3, np.full(data.m, 2e-3))
    assert np.isinf(penalty(data, near)[rows]).all()


@pytest.mark.parametrize(("scale", "n"), turns([1e-6, 1.0, 1e6], [1, 2, 7]))
def test_logarithms_have_both_bounds_of_a_known_optimum(n, scale, tmp_path, capsys):
    w = np.random.default_rng(n).integers(1, 6, n).astype(float)
    X = bo.PSD(n)
    gain = bo.sum(bo.log(bo.diag(X)) @ w)
    found = bo.Problem(bo.Maximize(gain), [bo.trace(X) == scale]).solve(tol=1e-9).verify()
    total = mpmath.mpf(int(w.sum()))
    truth = sum(mpmath.mpf(int(v)) * mpmath.log(mpmath.mpf(scale) * int(v) / total) for v in w)
    assert found.reasons == {}
    assert found.lower <= truth <= found.upper
    assert found.width <= 1e-8 * max(1, abs(float(truth)))
    path = tmp_path / "log.npz"
    found.certificate.save(path)
    assert main(["verify", str(path)]) == 0
    assert f"proven again: {found.certificate.proven}" in capsys.readouterr().out


def test_logarithms_beside_the_rest_of_the_language_have_both_bounds():
    rng = np.random.default_rng(4)
    A = spd(rng, 5, 20.0)
    X, u, v = bo.PSD(5), bo.Variable(3), bo.Variable()
    p = bo.Parameter(2, lo=[1 - 1e-8, 2 - 1e-8], hi=[1 + 1e-8, 2 + 1e-8], name="p")
    for objective, constraints in (
        (bo.Maximize(bo.log_det(X) + 2 * bo.log(5 - bo.trace(X))), []),
        (bo.Minimize(bo.logdet_div(X, A) - bo.sum(bo.log(3 - bo.diag(X)))), [X[0, 1] == 0.1]),
        (bo.Minimize(bo.von_neumann_div(X, A) - bo.log(X[0, 1] + 4)), [bo.diag(X) == 1]),
        (bo.Maximize(bo.sum(bo.log(u)) - bo.trace(X)), [u <= X[0, 1:4]]),
        (bo.Maximize(bo.log(v - 1) - v + bo.inner(A, X)), [bo.diag(X) == 1]),
        (bo.Maximize(bo.sum(bo.log(p[:1] * X[0, 1] + p))), [bo.diag(X) == 1]),
    ):
        sol = bo.Problem(objective, constraints).solve(tol=1e-9)
        found = sol.verify()
        assert found.reasons == {}
        assert found.lower <= sol.value + 2 * sol.error
        assert found.upper >= sol.value - 2 * sol.error
        assert found.width <= 1e-6 * max(1, abs(sol.value))
        found.certificate.check()


def test_logarithms_without_an_optimum_are_proven():
    X = bo.PSD(2)
    none = bo.Problem(bo.Maximize(bo.log(X[0, 0] - 3)), [bo.trace(X) == 2]).solve().verify()
    assert none.infeasible
    X = bo.PSD(2)
    grows = bo.Problem(bo.Maximize(bo.log(X[0, 0]) + X[0, 0]), [X[1, 1] == 1]).solve()
    assert grows.status == "unbounded"
    found = grows.verify()
    assert found.unbounded or "lower" in found.reasons or "upper" in found.reasons
    found.certificate.check()


def test_a_two_sided_row_whose_multiplier_may_have_either_sign_costs_the_dearer_end():
    X = bo.PSD(2)
    data = data_of(bo.Problem(bo.Minimize(bo.trace(X)), [bo.between(X[0, 1], -2, 3)]).program())
    lower = conjugate(data, Ball(np.array([0.25]), np.array([0.5])))
    assert lower[0] <= min(-0.25 * 3, 0.75 * -2)  # the minimum of y a over the row


def mp_orthonormal(F):
    """Return an orthonormal basis of the range of a matrix in high precision."""
    return mpmath.qr(high(F), mode="skinny")[0]


@pytest.mark.parametrize("seed", range(3))
def test_the_coefficients_on_a_range_are_enclosed(seed):
    rng = np.random.default_rng(seed)
    n, r = 6, 3
    F = rng.normal(size=(n, r)) * 10.0 ** rng.integers(-3, 4)
    X = bo.PSD(n)
    cost, row = spd(rng, n), rng.normal(size=(n, n))
    for near, orthonormal in ((bo.logdet_div, False), (bo.von_neumann_div, True)):
        objective = near(X, bo.LowRank(F)) + bo.inner(cost, X)
        prob = bo.Problem(bo.Minimize(objective), [bo.inner(row + row.T, X) <= 1, bo.diag(X)[0] <= 9])
        data, (P,) = reduced(data_of(prob.program()))
        block = data.matrices[0]
        if orthonormal:  # the basis is H = F T (I + E)^(-1/2), T near the inverse of R of F = Q R
            T = high(np.triu(scipy.linalg.lapack.dtrtri(np.linalg.qr(F, mode="r"))[0]))
            half = high(F) * T
            H = half * function_of(half.T * half, lambda v: 1 / mpmath.sqrt(v))
            assert mpmath.norm(H.T * H - mpmath.eye(r)) < 1e-50
            X0 = H.T * high(F) * high(F).T * H
        else:
            H, X0 = high(F), mpmath.eye(r)
        assert mpmath.norm(H - high(P)) <= 1e-12 * mpmath.norm(H)
        size = float(mpmath.norm(H)) ** 2
        for i, j in itertools.product(range(r), range(r)):
            found = block.anchor.X0[i, j]
            assert abs(X0[i, j] - float(found.mid)) <= float(found.rad) + 1e-55
        numbers = [(cost, block.C), *((M, block.A[[k]].toarray()[0]) for k, M in ((0, row + row.T),))]
        for M, own in numbers:
            truth = H.T * high((M + M.T) / 2) * H
            mid = own.mid if isinstance(own, Ball) else own
            rad = own.rad if isinstance(own, Ball) else block.A_rad[[0]].toarray()[0]
            for i, j, value, error in zip(block.i, block.j, mid, rad, strict=True):
                exactly = truth[int(i), int(j)] * (1 if i == j else 2)
                assert abs(exactly - float(value)) <= float(error) <= 1e-11 * size * np.abs(M).max()


@pytest.mark.parametrize(("scale", "shape"), turns([1e-3, 1.0, 1e3], [(1, 1), (5, 2), (30, 4)]))
def test_divergences_from_a_low_rank_matrix_have_both_bounds_of_a_known_optimum(shape, scale, tmp_path):
    rng = np.random.default_rng(shape[0])
    F, z = rng.normal(size=shape) * scale, rng.normal(size=shape[0])
    now = float((F.T @ z) @ (F.T @ z))
    b = 0.5 * now
    X = bo.PSD(shape[0])
    prob = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(F))), [bo.quad_form(z, X) == b])
    found = prob.solve(tol=1e-9).verify()
    form = high(F).T * high(z[:, None])
    ratio = mpmath.mpf(b) / (form.T * form)[0]
    truth = ratio - mpmath.log(ratio) - 1  # of a row of rank one, Kulis et al. 2009
    assert found.reasons == {}
    assert found.lower <= truth <= found.upper
    assert found.width <= 1e-8

    prob = bo.Problem(bo.Minimize(bo.von_neumann_div(X, bo.LowRank(F))), [bo.quad_form(z, X) == b])
    found = prob.solve(tol=1e-9).verify()
    H = mp_orthonormal(F)
    X0 = H.T * high(F) * high(F).T * H
    logarithm, along = function_of((X0 + X0.T) / 2, mpmath.log), H.T * high(z[:, None])

    def matrix(t):
        return function_of(logarithm - t * along * along.T, mpmath.exp)

    start = math.log(2) / float((along.T * along)[0])
    t = mpmath.findroot(lambda t: (along.T * matrix(t) * along)[0] - b, (start, 1.1 * start))
    truth = trace(X0) - trace(matrix(t)) - t * b
    assert found.reasons == {}
    assert found.lower <= truth <= found.upper
    assert found.width <= 1e-8 * float(trace(X0))
    found.certificate.save(tmp_path / "low.npz")
    again = BoundCertificate.load(tmp_path / "low.npz")
    again.check()
    assert again.data.matrices[0].n == shape[0]


def test_low_rank_starts_beside_the_rest_of_the_language():
    rng = np.random.default_rng(5)
    F = rng.normal(size=(12, 4))
    i, j = np.arange(5), np.arange(5) + 3
    for near in (bo.logdet_div, bo.von_neumann_div):
        X, u = bo.PSD(12), bo.Variable(nonneg=True)
        rows = [bo.sq_distance(X, i, j) <= 2 + u, bo.soft(X[0, 1] == 0.3, gamma=2.0), bo.trace(X) <= 40]
        rows.append(bo.lambda_max(X) <= 20)
        sol = bo.Problem(bo.Minimize(near(X, bo.LowRank(F)) + u - 0.1 * bo.log(X[0, 0])), rows).solve(
            tol=1e-9
        )
        found = sol.verify()
        assert found.reasons == {}
        assert found.lower <= sol.value + sol.error
        assert found.upper >= sol.value - sol.error
        assert found.width <= 1e-6 * max(1, abs(sol.value))
        found.certificate.check()


@pytest.mark.parametrize("seed", range(4))
def test_dependent_columns_are_exact_combinations_in_rational_arithmetic(seed):
    rng = np.random.default_rng(seed)
    A = rng.integers(-9, 10, (9, 3)) / 4.0
    F = np.hstack([3 * A, A @ rng.integers(-2, 3, (3, 2)), np.zeros((9, 1))])[:, rng.permutation(6)]
    G, K = independent_columns(F)
    assert G.shape == (9, 3)
    fractions = np.vectorize(lambda k: Fraction(k).limit_denominator(12))(K.mid)
    assert inside(K, fractions)
    assert (exact(G) @ fractions == exact(F)).all()
    other = independent_columns(np.hstack([A, A @ rng.normal(size=(3, 1))]))
    assert other[0].shape == (9, 4)


@pytest.mark.parametrize("divergence", [bo.logdet_div, bo.von_neumann_div])
def test_a_factor_of_dependent_columns_has_both_bounds_of_a_known_optimum(divergence, tmp_path):
    rng = np.random.default_rng(6)
    A, z = rng.integers(-9, 10, (6, 2)) / 4.0, rng.normal(size=6)
    F, X = np.hstack([2 * A, A @ [[1.0], [-1.0]]]), bo.PSD(6)
    b = 0.5 * float((F.T @ z) @ (F.T @ z))
    found = (
        bo.Problem(bo.Minimize(divergence(X, bo.LowRank(F))), [bo.quad_form(z, X) == b])
        .solve(tol=1e-9)
        .verify()
    )
    assert found.reasons == {}
    assert found.width <= 1e-7
    found.certificate.save(tmp_path / "low.npz")
    BoundCertificate.load(tmp_path / "low.npz").check()
    if divergence is bo.logdet_div:
        form = high(F).T * high(z[:, None])
        ratio = mpmath.mpf(b) / (form.T * form)[0]
        assert found.lower <= ratio - mpmath.log(ratio) - 1 <= found.upper


def test_a_factor_of_columns_that_depend_up_to_round_off_has_a_reason():
    F = np.random.default_rng(6).normal(size=(6, 2))
    X = bo.PSD(6)
    near = bo.logdet_div(X, bo.LowRank(np.hstack([F, F @ [[np.sqrt(2)], [np.sqrt(3)]]])))
    found = bo.Problem(bo.Minimize(near), [X[0, 0] == 1]).solve().verify()
    assert found.lower == -math.inf
    assert "not proven independent" in found.reasons["lower"]
    found.certificate.check()


@pytest.mark.parametrize("seed", range(4))
def test_the_coefficients_on_a_face_are_enclosed_in_rational_arithmetic(seed):
    rng = np.random.default_rng(seed)
    n = 6
    z = rng.choice([-1.0, 0.0, 1.0], n)
    z[seed], z[-1 - seed] = 1.0, -1.0
    X, cost, row = bo.PSD(n), rng.normal(size=(n, n)), rng.normal(size=(n, n))
    face = bo.quad_form(z, X) == 0 if seed % 2 else bo.inner(-3.0 * np.outer(z, z), X) == 0
    rows = [bo.inner(row + row.T, X) <= 1, face, bo.quad_form(rng.normal(size=n), X) <= 2]
    prob = bo.Problem(bo.Minimize(bo.inner(cost + cost.T, X)), rows)
    whole = data_of(prob.program())
    data, (H,) = reduced(whole)
    assert H.shape == (n, n - 1)
    assert not (z @ H).any()
    assert np.linalg.matrix_rank(H) == n - 1
    assert (data.lo[1], data.hi[1]) == (-math.inf, math.inf)
    before, block = whole.matrices[0], data.matrices[0]

    def matrices(block, k):
        C = block.C if k is None else Ball(*(block.A[[k]].toarray()[0], radii(block, k)))
        return block.matrix(C)

    def radii(block, k):
        return np.zeros(len(block.i)) if block.A_rad is None else block.A_rad[[k]].toarray()[0]

    for k in (None, 0, 2):
        found, own = matrices(block, k), matrices(before, k)
        for end in (-1, 1):  # of the radii that the coefficients have already
            given = exact(own.mid) + end * exact(own.rad) / 2
            assert inside(found, exact(H.T) @ given @ exact(H))
        assert found.rad.max() <= 1e-13
    assert not block.A[[1]].sum()


@pytest.mark.parametrize("n", [3, 5, 12])
def test_balanced_relaxations_have_both_bounds(n, tmp_path):
    rng = np.random.default_rng(n)
    W = rng.integers(0, 3, (n, n)).astype(float)
    W = np.triu(W, 1) + np.triu(W, 1).T
    X, u = bo.PSD(n), bo.Variable()
    cost = bo.inner(np.diag(W.sum(axis=1)) - W, X)
    for balanced in (bo.quad_form(np.ones(n), X) == 0, bo.inner(np.ones((n, n)), X) == 0):
        sol = bo.Problem(bo.Minimize(cost + u), [bo.diag(X) == 1, balanced, u >= -X[0, 1]]).solve(tol=1e-9)
        found = sol.verify()
        assert found.reasons == {}
        assert found.lower <= sol.value + 2 * sol.error
        assert found.upper >= sol.value - 2 * sol.error
        assert found.width <= 1e-6 * max(1, abs(sol.value))
        found.certificate.save(tmp_path / "face.npz")
        BoundCertificate.load(tmp_path / "face.npz").check()
    if n == 3:  # three unit vectors with the sum zero
        truth = 1.5 * W.sum() + 0.5
        assert found.lower <= truth <= found.upper


def test_faces_stand_beside_other_blocks_and_fixings():
    X, Y = bo.PSD(4, name="X"), bo.PSD(3, name="Y")
    rows = [bo.diag(X) == 1, bo.quad_form([1.0, 1, 1, 0], X) == 0, bo.diag(Y) == 1, X[0, 1] + Y[0, 1] <= 0]
    edge = bo.between(X[1, 3], -1, 1)
    prob = bo.Problem(bo.Maximize(X[0, 3] + X[1, 3] + Y[0, 1]), [*rows, edge])
    found = prob.solve(tol=1e-9).verify()
    assert found.reasons == {}
    assert found.lower <= 1.5 <= found.upper  # vectors 0 to 2 have the sum zero; vector 3 is minus vector 2
    assert found.width < 1e-6
    assert abs(prob.bound({edge: 0.0}).value - 0.5 - math.sqrt(0.75)) < 1e-6
    rows = [bo.quad_form([1.0, 1, 1, 1], X) == 0, bo.inner(np.ones((4, 4)), X) >= 1, bo.trace(X) <= 9]
    assert bo.Problem(bo.Minimize(X[0, 0]), rows).solve().verify().infeasible


def test_faces_of_faces_are_found():
    rng = np.random.default_rng(8)
    X, C = bo.PSD(6), rng.normal(size=(6, 6))
    rows = [bo.quad_form([1.0, 1, 1, 0, 0, 0], X) == 0, bo.quad_form([0.0, 0, 0, 1, -1, 1], X) == 0]
    prob = bo.Problem(bo.Minimize(bo.inner(C + C.T, X)), [*rows, bo.trace(X) == 1])
    H = scipy.linalg.null_space(np.array([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, -1, 1]]))
    truth = np.linalg.eigvalsh(H.T @ (C + C.T) @ H)[0]
    found = prob.solve(tol=1e-9).verify()
    assert found.reasons == {}
    assert found.lower <= truth + 1e-12
    assert found.upper >= truth - 1e-12
    assert found.width < 1e-6
    found.certificate.check()


def test_infeasibility_is_printed_as_proven():
    X = bo.PSD(2)
    rows = [X[0, 0] == 1, X[1, 1] == 1, X[0, 1] >= 2]
    for sense in (bo.Minimize, bo.Maximize):
        heading, *facts = repr(bo.Problem(sense(bo.trace(X)), rows).solve().verify()).splitlines()
        assert heading == "bregopt verification: the problem is infeasible"
        assert not any("width" in fact for fact in facts)


def test_problems_of_cvxpy_are_sent_to_from_cvxpy():
    cp = pytest.importorskip("cvxpy")
    x = cp.Variable()
    with pytest.raises(TypeError, match=r"expected a bo.Problem: pass bo.from_cvxpy\(problem\), solved"):
        bo.verify(cp.Problem(cp.Minimize(x), [x >= 1]))
    with pytest.raises(TypeError, match=r"problem is int; expected a bo.Problem$"):
        bo.verify(3)


def test_a_missing_proof_names_the_function_that_has_none():
    found = bo.nearest_correlation(0.5 + 0.5 * np.eye(3), max_condition=2).verify()
    assert "no proof is known for the frobenius divergence with bounds on the eigenvalues" in repr(found)

    class Scaled(LogDet):  # a plug-in with a parameter, whose domain is that of LogDet
        name = "scaled_for_a_test"

        def __init__(self, X0, scale):
            super().__init__(scale * X0)

        @classmethod
        def variant(cls, **parameters):
            return cls

    X = bo.PSD(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DIVERGENCES, Scaled.name, Scaled)
        term = bo.bregman_div(X, np.eye(2), Scaled.name, scale=2.0)
        (matrix,) = data_of(bo.Problem(bo.Minimize(term), [X[0, 0] == 1]).program()).matrices
    assert matrix.anchor.divergence == "the scaled_for_a_test divergence"
