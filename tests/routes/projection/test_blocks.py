"""Divergence objectives over several matrices in `bregman`."""

import itertools
import warnings

import numpy as np
import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import first, turns

import bregopt as bo
from bregopt.divergences import LogDet

ATOMS = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}
DEGREES = {"logdet": 0, "von_neumann": 1, "frobenius": 2}
PAIRS = list(itertools.product(ATOMS, ATOMS))
SEEDS_OF_PAIRS = first(1, [range(2), range(2, 5)])


def positive_definite(n, rng, ridge=0.3):
    G = rng.normal(size=(n, n))
    return G @ G.T / n + ridge * np.eye(n)


def linked(pair, seed, scale=1.0, unit=1.0, second=2.0):
    """Return a problem in two matrices whose rows hold at matrices near their anchors.

    Matrices and bounds are multiplied by `scale`, the objective by `unit`, the second divergence by `second`.
    """
    rng = np.random.default_rng(seed)
    X, Y = bo.PSD(4, name="X"), bo.PSD(3, name="Y")
    X0, Y0 = positive_definite(4, rng), positive_definite(3, rng)
    F, G = X0 + 0.1 * np.eye(4), positive_definite(3, rng)
    weights = [unit * scale ** -DEGREES[name] for name in pair]
    objective = weights[0] * ATOMS[pair[0]](X, scale * X0) + weights[1] * second * ATOMS[pair[1]](
        Y, scale * Y0
    )
    slope = unit / scale * 0.05
    rows = [
        bo.trace(X) - bo.trace(Y) == scale * (np.trace(F) - np.trace(G)),
        X[0, 1] - Y[0, 1] <= scale * (F[0, 1] - G[0, 1] - 0.01),
        bo.diag(Y) <= scale * (np.diag(G) + 0.1),
        bo.soft(2 * X[1, 2] + Y[1, 2] >= scale, gamma=slope, penalty="hinge"),
    ]
    return bo.Problem(bo.Minimize(objective + slope * X[0, 3]), rows)


def gradients(pair, answer, problem):
    """Return the gradients of the divergences at an answer, from their definitions."""
    for name, X, block in zip(pair, answer, problem.program().blocks, strict=True):
        X0, mu = block.nearness.X0, block.nearness.mu
        yield mu * {
            "logdet": lambda X, X0: np.linalg.inv(X0) - np.linalg.inv(X),
            "von_neumann": lambda X, X0: logarithm(X) - logarithm(X0),
            "frobenius": lambda X, X0: 2 * (X - X0),
        }[name](X, X0)


def logarithm(X):
    w, Q = np.linalg.eigh(X)
    return (Q * np.log(w)) @ Q.T


@pytest.mark.parametrize(("pair", "second"), turns(PAIRS, [2.0, 1e-3]))
def test_agrees_with_clarabel(pair, second):
    problem = linked(pair, 1, second=second)
    sol = problem.solve(tol=1e-8)
    assert (sol.solver, sol.status) == ("bregman", "optimal")
    peers.ask(problem).confirms(sol)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("seeds", SEEDS_OF_PAIRS, ids=["few", "more"])
def test_meets_the_optimality_conditions(seeds, pair):
    """The gradient of the objective is a combination of the rows, up to a multiplier of ``X psd``."""
    for seed in seeds:
        problem = linked(pair, seed)
        sol = problem.solve(solver="bregman", tol=1e-10, tol_X=1e-9)
        assert sol.status == "optimal"
        program, y = problem.program(), sol._raw.duals
        assert (np.abs(y[[0, 1]]) > 1e-6).any()  # rows in both matrices are active
        for b, slope in enumerate(gradients(pair, sol.X, problem)):
            Z = slope + program.blocks[b].C - program.A.adjoint(y, b)
            assert np.linalg.eigvalsh(Z)[0] >= -1e-8
            assert abs(np.vdot(Z, sol.X[b])) <= 1e-8


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("seeds", SEEDS_OF_PAIRS, ids=["few", "more"])
def test_the_answer_is_the_point_whose_matrices_are_nearest(seeds, pair):
    """The gap is of second order in X: it is round-off where entries are certified to 1e-6 only."""
    for seed in seeds:
        problem = linked(pair, seed)
        usual = problem.solve(solver="bregman", tol=1e-10)
        finer = problem.solve(solver="bregman", tol=1e-10, tol_X=1e-9)
        assert usual.iterations <= finer.iterations <= usual.iterations + 3
        for X, Y, a, b in zip(usual.X, finer.X, usual.accuracy, finer.accuracy, strict=True):
            largest = np.abs(Y).max()
            assert a.largest <= 1e-6 * largest
            assert b.largest <= 1e-8 * largest  # multipliers of inactive rows limit what is certified
            assert (np.abs(X - Y) <= a.entries + b.entries).all()


@pytest.mark.parametrize("pair", PAIRS)
def test_unlinked_matrices_are_separate_problems(pair):
    rng = np.random.default_rng(3)
    matrices = [bo.PSD(5, name="X"), bo.PSD(4, name="Y")]
    terms, rows = [], []
    for name, X in zip(pair, matrices, strict=True):
        terms.append((1 + rng.random()) * ATOMS[name](X, positive_definite(X.n, rng)))
        rows.append([bo.diag(X) == 1, X[0, 1:] >= 0.1])
    together = bo.Problem(bo.Minimize(sum(terms)), [*rows[0], *rows[1]]).solve(tol=1e-12)
    apart = [bo.Problem(bo.Minimize(t), own).solve(tol=1e-12) for t, own in zip(terms, rows, strict=True)]
    assert together.value == pytest.approx(sum(sol.value for sol in apart), abs=1e-8)
    for X, sol in zip(together.X, apart, strict=True):
        np.testing.assert_allclose(X, sol.X, atol=1e-8)


@pytest.mark.parametrize(("pair", "scale", "unit"), turns(PAIRS, [1e-6, 1e6], [1e-5, 1e5]))
def test_units_do_not_matter(pair, scale, unit):
    plain, scaled = (linked(pair, 4, *units).solve(tol=1e-9) for units in ((1.0, 1.0), (scale, unit)))
    assert plain.status == scaled.status == "optimal"
    assert scaled.value / unit == pytest.approx(plain.value, rel=1e-7)
    for X, Y in zip(plain.X, scaled.X, strict=True):
        np.testing.assert_allclose(Y / scale, X, atol=1e-4)


@given(seed=st.integers(0, 10_000))
def test_answers_to_random_links_are_certified(seed):
    rng = np.random.default_rng(seed)
    pair = rng.choice(list(ATOMS), rng.integers(2, 5))
    matrices = [bo.PSD(int(rng.integers(1, 7)), name=f"X{b}") for b in range(len(pair))]
    at = [positive_definite(X.n, rng) for X in matrices]
    mu = 10 ** rng.uniform(-3, 3, len(pair))
    terms = [
        float(m) * ATOMS[name](X, positive_definite(X.n, rng, 0.05))
        for m, name, X in zip(mu, pair, matrices, strict=True)
    ]
    rows = []
    for k in range(rng.integers(1, 7)):
        expression, value = 0 * matrices[0][0, 0], 0.0
        for X, F in zip(matrices, at, strict=True):
            if rng.random() < 0.7:
                A = rng.normal(size=(X.n, X.n))
                expression, value = expression + bo.inner(A + A.T, X), value + 2 * np.vdot(A, F)
        row = [expression == value, expression <= value, expression >= value - 0.1][k % 3]
        rows.append(bo.soft(row, gamma=float(mu.min()), penalty="hinge") if rng.random() < 0.2 else row)
    sol = bo.Problem(bo.Minimize(sum(terms)), rows).solve(solver="bregman", tol=1e-7)
    assert sol.status == "optimal"
    assert sol.dual_value <= sol.value + sol.error


@pytest.mark.parametrize("pair", PAIRS)
def test_low_rank_matrices_keep_their_ranges(pair):
    rng = np.random.default_rng(5)
    X, Y = bo.PSD(12, name="X"), bo.PSD(9, name="Y")
    G, H = rng.normal(size=(12, 3)), rng.normal(size=(9, 2))
    X0, Y0 = (F @ F.T if name == "frobenius" else bo.LowRank(F) for name, F in zip(pair, (G, H), strict=True))
    rows = [bo.trace(X) == bo.trace(Y), bo.sq_distance(X, 0, 1) - bo.sq_distance(Y, 0, 1) >= 0.3]
    problem = bo.Problem(bo.Minimize(ATOMS[pair[0]](X, X0) + ATOMS[pair[1]](Y, Y0)), rows)
    sol = problem.solve(tol=1e-8)
    assert (sol.solver, sol.status) == ("bregman", "optimal")
    for name, F, found in zip(pair, (G, H), sol.X, strict=True):
        if name != "frobenius":
            inside = F @ np.linalg.pinv(F)
            np.testing.assert_allclose(inside @ found.dense(), found.dense(), atol=1e-9)
    peers.ask(problem).confirms(sol)


@pytest.mark.parametrize("pair", PAIRS)
def test_contradictions_between_matrices_are_proven(pair):
    rng = np.random.default_rng(0)
    X, Y = bo.PSD(3, name="X"), bo.PSD(2, name="Y")
    objective = ATOMS[pair[0]](X, positive_definite(3, rng)) + ATOMS[pair[1]](Y, positive_definite(2, rng))
    for rows in (
        [bo.trace(X) + bo.trace(Y) <= 1, X[0, 0] >= 0.6, Y[1, 1] >= 0.6],
        [bo.trace(X) + 2 * Y[0, 0] == -1],
    ):
        assert bo.Problem(bo.Minimize(objective), rows).solve(solver="bregman").status == "infeasible"


def test_rays_of_one_matrix_and_of_several():
    X, Y, eye = bo.PSD(3, name="X"), bo.PSD(2, name="Y"), np.eye(3)
    near = bo.logdet_div(X, eye) + bo.logdet_div(Y, np.eye(2))
    for objective, rows in (
        (near - 2 * bo.trace(Y), [bo.trace(X) <= 2]),
        (near - 3 * bo.trace(Y), [bo.trace(X) == bo.trace(Y)]),
    ):
        assert bo.Problem(bo.Minimize(objective), rows).solve(solver="bregman").status == "unbounded"
    bounded = bo.Problem(bo.Minimize(near - 2 * bo.trace(Y)), [bo.trace(X) + bo.trace(Y) <= 9])
    sol = bounded.solve(solver="bregman", tol=1e-8)
    assert sol.status == "optimal"
    peers.ask(bounded).confirms(sol)


@pytest.mark.parametrize("name", ATOMS)
def test_soft_rows_of_one_kind(name):
    """With penalties of the divergence on all rows, matrices and multipliers are the only unknowns."""
    rng = np.random.default_rng(6)
    X, Y = bo.PSD(4, name="X"), bo.PSD(3, name="Y")
    near = ATOMS[name](X, positive_definite(4, rng)) + 3 * ATOMS[name](Y, positive_definite(3, rng))
    rows = [
        bo.soft(bo.trace(X) + bo.trace(Y) <= 2.0, gamma=0.7),
        bo.soft(bo.diag(Y) >= 1.5, gamma=np.array([0.1, 1.0, 10.0])),
        bo.soft(X[0, 0] + 2 * Y[1, 1] == 1.0, gamma=2.0),
    ]
    problem = bo.Problem(bo.Minimize(near), rows)
    sol = problem.solve(solver="bregman", tol=1e-9)
    assert sol.status == "optimal"
    peers.ask(problem).confirms(sol)


def test_logdet_matrices_of_very_different_weights_and_conditions():
    rng = np.random.default_rng(7)
    X, Y, Z = bo.PSD(4, name="X"), bo.PSD(3, name="Y"), bo.PSD(2, name="Z")
    ill = np.diag([1e-9, 1.0, 1e3])
    near = 1e5 * bo.logdet_div(X, positive_definite(4, rng)) + 1e-3 * bo.logdet_div(Y, ill)
    rows = [bo.trace(X) + bo.trace(Y) <= 3, bo.trace(X) - bo.trace(Z) == 1]
    problem = bo.Problem(bo.Minimize(near + bo.logdet_div(Z, np.eye(2))), rows)
    sol = problem.solve(solver="bregman", tol=1e-8)
    assert sol.status == "optimal"
    multipliers = sol._raw.duals
    for b, slope in enumerate(gradients(("logdet",) * 3, sol.X, problem)):
        expected = problem.program().A.adjoint(multipliers, b)
        np.testing.assert_allclose(sol.X[b] @ slope, sol.X[b] @ expected, atol=1e-3)


@pytest.mark.parametrize("pair", [("logdet", "logdet"), ("logdet", "von_neumann"), ("frobenius", "logdet")])
def test_many_inequalities_run_on_a_working_set(pair, capsys):
    rng = np.random.default_rng(8)
    X, Y = bo.PSD(8, name="X"), bo.PSD(8, name="Y")
    U, X0, Y0 = rng.normal(size=(400, 8)), positive_definite(8, rng), positive_definite(8, rng)
    forms = np.einsum("ki,ij,kj->k", U, X0, U)
    rows = [
        bo.quad_form(U, X) <= 1.1 * forms + 0.1,
        bo.soft(bo.quad_form(U, X) - bo.quad_form(U, Y) <= 0.5, gamma=0.01, penalty="hinge"),
    ]
    problem = bo.Problem(bo.Minimize(ATOMS[pair[0]](X, X0) + ATOMS[pair[1]](Y, Y0)), rows)
    problem.explain()
    assert "on a working set of rows" in capsys.readouterr().out
    sol = problem.solve(solver="bregman", tol=1e-7)
    assert sol.status == "optimal"
    assert (bo.quad_form(U, X).value <= 1.1 * forms + 0.1 + 1e-5).all()


@pytest.mark.parametrize("pair", PAIRS)
def test_warm_starts(pair):
    problem = linked(pair, 9)
    first = problem.solve(solver="bregman", tol=1e-9)
    again = problem.solve(solver="bregman", tol=1e-9, warm_start=True)
    assert again.status == "optimal"
    assert again.iterations <= first.iterations
    assert again.value == pytest.approx(first.value, abs=1e-8)


@pytest.mark.parametrize("pair", PAIRS)
def test_an_answer_that_is_cut_short_bounds_the_optimum(pair):
    problem = linked(pair, 10)
    full = problem.solve(solver="bregman", tol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        sol = problem.solve(solver="bregman", tol=1e-14, max_iter=1)
    assert sol.iterations == 1
    assert sol.dual_value <= full.value + full.error


def test_refusals_name_the_matrix_and_the_reason():
    X, Y, eye = bo.PSD(2, name="X"), bo.PSD(2, name="Y"), np.eye(2)
    link = [bo.trace(X) == bo.trace(Y)]
    near = bo.logdet_div(X, eye) + bo.frobenius_div(Y, eye)
    weighted = bo.frobenius_div(Y, eye, weights=np.ones((2, 2)) + eye)
    for objective, options, reason in (
        (near, {"method": "cyclic"}, "the logdet divergence with method 'cyclic' in 1 matrix variable, .* 2"),
        (
            bo.logdet_div(X, eye) + weighted,
            {},
            "takes elementwise weights with method 'auto' in 1 matrix variable",
        ),
        (bo.logdet_div(X, eye) + bo.trace(Y), {}, "a linear objective .of Y."),
        (near - 2 * bo.trace(X), {}, "needs C . mu inv.X0. of X positive definite"),
    ):
        with pytest.raises(bo.UnsupportedProblemError, match=reason):
            bo.Problem(bo.Minimize(objective), link).solve(solver="bregman", **options)
    # What has no start goes to another route.
    sol = bo.Problem(bo.Minimize(near - 2 * bo.trace(X)), link).solve()
    assert (sol.solver, sol.status) == ("entropy", "optimal")


def test_a_large_cost_overflows_at_zero_multipliers():
    """The weight of the exponential alone grows until there is a first point."""
    X, Y = bo.PSD(2, name="X"), bo.PSD(2, name="Y")
    near = bo.logdet_div(X, np.eye(2)) + 1e-3 * bo.von_neumann_div(Y, np.eye(2))
    problem = bo.Problem(bo.Minimize(near - bo.trace(Y)), [bo.trace(X) + bo.trace(Y) <= 2])
    sol = problem.solve(solver="bregman", tol=1e-8)
    assert sol.status == "optimal"
    assert np.trace(sol.X[0]) + np.trace(sol.X[1]) == pytest.approx(2)
    peers.ask(problem).confirms(sol)


@pytest.mark.parametrize(
    ("name", "far", "condition"),
    turns(["von_neumann", "frobenius"], [1e-2, 1.0, 1e2, 1e4], first(1, [1e6, 1e2])),
)
def test_rows_far_from_logdet_beside_others(name, far, condition):
    rng = np.random.default_rng(12)
    X, Y = bo.PSD(6, name="X"), bo.PSD(5, name="Y")
    Q, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    X0 = (Q * np.geomspace(1, 1 / condition, 6)) @ Q.T
    near = bo.logdet_div(X, (X0 + X0.T) / 2) + ATOMS[name](Y, positive_definite(5, rng))
    rows = [
        bo.diag(X) == far * rng.uniform(0.5, 2, 6),
        bo.trace(Y) >= 0.7 * bo.trace(X),
        X[0, 1] >= Y[0, 1] + 0.1 * far,
        bo.diag(Y) >= 1e-3 * far,
    ]
    sol = bo.Problem(bo.Minimize(near), rows).solve(tol=1e-6)
    assert (sol.solver, sol.status) == ("bregman", "optimal")


class TestReciprocalSpectrum:
    @pytest.fixture
    def scene(self):
        rng = np.random.default_rng(11)
        S = rng.normal(size=(5, 5))
        return LogDet(positive_definite(5, rng)), 0.1 * (S + S.T), rng

    def test_point_and_term(self, scene):
        D, W, _ = scene
        spectrum = D.spectrum(W, 0.7)
        np.testing.assert_allclose(spectrum.X, 0.7 * np.linalg.inv(0.7 * D.inverse + W), atol=1e-12)
        assert spectrum.term == pytest.approx(float(np.vdot(W, spectrum.X)) + 0.7 * D.value(spectrum.X))
        assert D.spectrum(W - 100 * np.eye(5), 0.7) is None

    def test_derivative_by_finite_differences(self, scene):
        D, W, rng = scene
        S, h = rng.normal(size=(5, 5)), 1e-6
        S = S + S.T
        product = D.spectrum(W, 0.7).derivative(S)
        moved = (product.L @ product.R.T + product.R @ product.L.T) / 2
        difference = (D.spectrum(W - h * S, 0.7).X - D.spectrum(W + h * S, 0.7).X) / (2 * h)
        np.testing.assert_allclose(moved, difference, atol=1e-7 * np.abs(difference).max())

    def test_reach_is_the_end_of_the_domain(self, scene):
        D, W, rng = scene
        S = rng.normal(size=(5, 5))
        S = S + S.T
        end = D.spectrum(W, 0.7).reach(S)
        assert D.spectrum(W - 0.999 * end * S, 0.7) is not None
        assert D.spectrum(W - 1.001 * end * S, 0.7) is None
        assert D.spectrum(W, 0.7).reach(-np.eye(5)) == np.inf

    def test_curvatures(self, scene):
        D, W, rng = scene
        spectrum, Z = D.spectrum(W, 0.7), rng.normal(size=(3, 5))
        X = 0.7 * np.linalg.inv(0.7 * D.inverse + W)
        np.testing.assert_allclose(
            spectrum.curvature(Z @ spectrum.V), np.einsum("ki,ij,kj->k", Z, X, Z) ** 2 / 0.7
        )
        np.testing.assert_allclose(spectrum.entry_curvature(), np.outer(X.diagonal(), X.diagonal()) / 0.7)
