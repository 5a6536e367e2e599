"""Newton's methods: derivatives against finite differences, systems against each other, hard cases."""

from dataclasses import replace
from unittest.mock import patch

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import first, turns

import bregopt as bo
from bregopt.divergences import Frobenius, VonNeumann
from bregopt.io.matrices import read_matrix
from bregopt.linalg import DefiniteFactor
from bregopt.program import Block, Bounds, Face, LinearMap, Penalty, Program, Term
from bregopt.program.bounds import relaxed_bounds
from bregopt.program.rows import DenseRows, Distances, Entries, RankOne, RankTwo
from bregopt.program.stacks import simplex_shifts
from bregopt.routes.ipm import block_rows, entry_system, linear_solvers, row_system, schur
from bregopt.routes.ipm.block_rows import Gram, RowAction
from bregopt.routes.ipm.entry_system import EntrySystem, _ChunkedFeatures, border_of
from bregopt.routes.ipm.linear_solvers import Corrections, bordered, conjugate_gradients
from bregopt.routes.ipm.plan import Plan, RightHandSide, ScalingPoint
from bregopt.routes.ipm.row_system import RowSystem

ATOMS = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}


def positive_definite(n, rng, ridge=0.3):
    G = rng.normal(size=(n, n))
    return G @ G.T / n + ridge * np.eye(n)


def symmetric(n, rng):
    A = rng.normal(size=(n, n))
    return A + A.T


def families(n, rng, m=4):
    i, j = rng.integers(0, n, (2, m))
    j = np.where(i == j, (i + 1) % n, j)
    w = rng.normal(size=m)
    return [
        Entries(n, i, np.where(np.arange(m) % 2, i, j), w),
        Distances(n, i, j, w),
        RankOne(rng.normal(size=(m, n)), w),
        RankOne(sp.csr_array(rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.5)), w),
        RankTwo(rng.normal(size=(m, n)), rng.normal(size=(m, n)), w),
        DenseRows(np.array([symmetric(n, rng) for _ in range(m)])),
    ]


def linear_map(n, rng):
    rows = families(n, rng)
    starts = np.cumsum([0, *(f.m for f in rows)])
    terms = tuple(Term(0, np.arange(a, a + f.m), f) for a, f in zip(starts, rows, strict=False))
    return LinearMap(int(starts[-1]), (n,), terms)


class TestPieces:
    def test_sum_to_the_rows(self, rng):
        for rows in families(5, rng):
            pieces = rows.rank_one_terms()
            if pieces is None:
                continue
            U = pieces.U.toarray() if sp.issparse(pieces.U) else pieces.U
            for k in range(rows.m):
                mine = pieces.row == k
                A = (U[mine].T * pieces.weight[mine]) @ U[mine]
                np.testing.assert_allclose(A, rows.adjoint(np.eye(rows.m)[k]), atol=1e-13)


@pytest.mark.parametrize("divergence", ["von_neumann", "frobenius"])
class TestSpectrum:
    def setup(self, divergence, n, rng):
        X0 = positive_definite(n, rng) if divergence == "von_neumann" else symmetric(n, rng)
        D = {"von_neumann": VonNeumann, "frobenius": Frobenius}[divergence](X0)
        return D, symmetric(n, rng)

    def test_point_and_term(self, divergence, rng):
        D, W = self.setup(divergence, 5, rng)
        spectrum = D.spectrum(W, 0.7)
        X = spectrum.X
        np.testing.assert_allclose(X, D.minimizer(W, 0.7), atol=1e-12)
        assert spectrum.term == pytest.approx(float(np.vdot(W, X)) + 0.7 * D.value(X))

    @pytest.mark.parametrize("sparse", [False, True])
    def test_derivative_by_finite_differences(self, divergence, sparse, rng):
        D, W = self.setup(divergence, 6, rng)
        S, h = symmetric(6, rng), 1e-6
        product = D.spectrum(W, 0.7).derivative(sp.csr_array(S) if sparse else S)
        moved = product.share * S + (product.L @ product.R.T + product.R @ product.L.T) / 2
        difference = (D.spectrum(W - h * S, 0.7).X - D.spectrum(W + h * S, 0.7).X) / (2 * h)
        np.testing.assert_allclose(moved, difference, atol=1e-6 * np.abs(difference).max())

    def test_curvatures(self, divergence, rng):
        D, W = self.setup(divergence, 5, rng)
        spectrum = D.spectrum(W, 1.3)
        Z = rng.normal(size=(3, 5))
        found = spectrum.curvature(Z @ spectrum.V)
        for z, curvature in zip(Z, found, strict=True):
            p = spectrum.derivative(np.outer(z, z))
            moved = p.share * np.outer(z, z) + (p.L @ p.R.T + p.R @ p.L.T) / 2
            assert z @ moved @ z == pytest.approx(curvature)
        unit = spectrum.curvature(spectrum.V)  # rows of V: the unit vectors in the eigenvectors
        np.testing.assert_allclose(np.diag(spectrum.entry_curvature()), unit)

    def test_all_eigenvalues_of_one_sign(self, divergence, rng):
        for shift in (-50.0, 50.0):
            D, W = self.setup(divergence, 4, rng)
            spectrum = D.spectrum(W - shift * np.eye(4), 1.0)
            S = symmetric(4, rng)
            p = spectrum.derivative(S)
            moved = p.share * S + (p.L @ p.R.T + p.R @ p.L.T) / 2
            assert np.isfinite(moved).all()
            if divergence == "frobenius":
                np.testing.assert_allclose(moved, S / 2 if shift > 0 else 0 * S, atol=1e-12)


def plan(A):
    return Plan.of(A)


def border_in(A, B, at, exact):
    """Return the border of a program with these rows and variables, and the bounds that the scene has."""
    m, k = B.shape
    lo = np.where(np.isfinite(at.D), 0.0, -np.inf)
    low = np.where(np.isfinite(at.D_u), 0.0, -np.inf)
    blocks = tuple(Block(f"X{b}", n) for b, n in enumerate(A.orders))
    bounds = Bounds.of_hard_rows(lo, np.full(m, np.inf))
    program = Program(blocks, A, B, bounds, np.zeros(k), low, np.full(k, np.inf))
    return border_of(program, exact)


class TestSystems:
    def scene(self, n, rng, A, k=0):
        X, K = positive_definite(n, rng), positive_definite(n, rng)
        D = rng.uniform(0.1, 2, A.m)
        D[:3] = np.inf
        D_u = rng.uniform(0.1, 2, k)
        D_u[:1] = np.inf
        scene = ScalingPoint(plan(A), X.ravel(), (np.linalg.cholesky(X),), (), D, D_u, K=K.ravel())
        r, r_u, q = rng.normal(size=A.m), rng.normal(size=k), rng.normal(size=k)
        return scene, RightHandSide(0.6, (rng.normal(size=(n, n)),), r, r_u, q)

    @pytest.mark.parametrize("own", [False, True])
    @pytest.mark.parametrize("k", [0, 1, 3, 9])
    def test_both_solve_the_same_equations(self, rng, k, own):
        """With variables of all rows, and with those of single rows that one row shares."""
        n = 4
        A = linear_map(n, rng)
        B = rng.normal(size=(A.m, k))
        if own:
            places = np.arange(1, k)
            B[:-1, 1:] *= np.arange(A.m - 1)[:, None] == 4 + (places - 1) % (A.m - 6)
        B = sp.csr_array(B)
        at, pull = self.scene(n, rng, A, k)
        X, K, (R,) = at.X.reshape(n, n), at.K.reshape(n, n), pull.R
        held = np.isfinite(at.D_u)
        exact = np.zeros(A.m, dtype=bool)
        exact[[4, 6]] = k > 0
        at.D[exact] = 0.0
        border = border_in(A, B, at, exact)
        if own and k > 3:
            assert border.sum() == 1  # the row of all variables
        for system in (RowSystem(plan(A), B), EntrySystem(plan(A), B, ~held, border)):
            step = system.factor(at)(pull)
            half = K @ A.adjoint(step.y) @ X + K @ R
            dX = step.X.reshape(n, n)
            np.testing.assert_allclose(dX, 0.6 * K - X + (half + half.T) / 2, atol=1e-8)
            asked = np.isfinite(at.D)
            left = A.apply((dX,))[asked] + (B @ step.u)[asked] + at.D[asked] * step.y[asked]
            np.testing.assert_allclose(left, pull.r[asked], atol=1e-8)
            assert not step.y[~asked].any()
            dz = pull.q - B.T @ step.y
            np.testing.assert_allclose(dz[~held], 0, atol=1e-8)
            np.testing.assert_allclose((step.u + at.D_u * dz)[held], pull.r_u[held], atol=1e-8)

    def test_rows_of_free_variables_alone(self, rng):
        """If a row has no matrix, the Schur complement is singular, and the whole system is solved."""
        A = linear_map(4, rng).slice(np.arange(2))
        A = LinearMap(3, A.orders, A.terms)
        B = sp.csr_array(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 2.0]]))
        at, pull = self.scene(4, rng, A)
        at.D, at.D_u = np.zeros(3), np.full(2, np.inf)
        pull = RightHandSide(0.6, pull.R, rng.normal(size=3), np.zeros(2), rng.normal(size=2))
        step = RowSystem(plan(A), B).factor(at)(pull)
        np.testing.assert_allclose(A.apply((step.X.reshape(4, 4),)) + B @ step.u, pull.r, atol=1e-7)
        np.testing.assert_allclose(B.T @ step.y, pull.q, atol=1e-7)

    def test_iterations_come_to_the_same(self, rng, monkeypatch):
        n = 5
        A = linear_map(n, rng)
        B = sp.csr_array((A.m, 0))
        at, pull = self.scene(n, rng, A)
        dX = RowSystem(plan(A), B).factor(at)(pull).X
        monkeypatch.setattr(row_system, "LARGEST_FORMED_ROWS", 1)
        for module in (row_system, entry_system):
            monkeypatch.setattr(module, "CG_TOL", 1e-10)
        for system in (
            RowSystem(plan(A), B),
            EntrySystem(plan(A), B, np.zeros(0, dtype=bool), np.zeros(A.m, dtype=bool), formed=1),
        ):
            assert not system.direct
            np.testing.assert_allclose(system.factor(at)(pull).X, dX, atol=1e-6 * np.abs(dX).max())

    def test_features_by_and_by_come_to_the_same(self, rng, monkeypatch):
        n = 5
        A = linear_map(n, rng)
        B = rng.normal(size=(A.m, 2))
        B[:5, 1] = 0.0  # rows that share the bounded variable border the system
        B[7:, 1] = 0.0
        B = sp.csr_array(B)
        at, pull = self.scene(n, rng, A, 2)
        exact = np.arange(A.m) == 4
        at.D[exact] = 0.0
        free, border = np.isinf(at.D_u), border_in(A, B, at, exact)
        kept = EntrySystem(plan(A), B, free, border).factor(at)(pull)
        monkeypatch.setattr(entry_system, "_TRANSFORMED_ENTRIES", 0)  # else rows are stored as they are
        monkeypatch.setattr(entry_system, "_LARGEST_FEATURES", 40)
        with patch.object(
            _ChunkedFeatures, "_chunk", autospec=True, side_effect=_ChunkedFeatures._chunk
        ) as chunk:
            streamed = EntrySystem(plan(A), B, free, border).factor(at)(pull)
        assert chunk.call_count > 2  # the border's, and several of the Gram matrix
        for one, other in zip(kept[:3], streamed[:3], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-9 * np.abs(one).max())

    @pytest.mark.parametrize("cost", [1e-9, 1e9])
    def test_schur_matrix_by_every_formula(self, rng, cost):
        """RankOneTerms, terms and whole products, each row of the map against its definition."""
        n = 6
        A = linear_map(n, rng)
        P, Q = positive_definite(n, rng), positive_definite(n, rng)
        units = [A.adjoint(e) for e in np.eye(A.m)]
        direct = [[np.vdot(B, (P @ C @ Q + Q @ C @ P) / 2) for C in units] for B in units]
        with patch.multiple(schur, _PRODUCT_COST=cost, _CALL_COST=1e-9):
            found = Gram(A).assemble(P, Q)
        np.testing.assert_allclose(found, direct, rtol=1e-9, atol=1e-9)

    def test_products_with_rows_term_by_term_and_whole(self, rng):
        n = 6
        A = linear_map(n, rng)
        L, R, y = rng.normal(size=(n, 4)), rng.normal(size=(n, 4)), rng.normal(size=A.m)
        for by_term, fraction in ((False, 1e-9), (True, 1e9)):
            with patch.multiple(block_rows, SPARSE_ORDER=1, _SPARSE_FRACTION=fraction):
                action = RowAction(A)
            assert action.by_term == by_term
            S = action.adjoint(y)
            np.testing.assert_allclose(S.toarray() if by_term else S, A.adjoint(y), atol=1e-12)
            symmetric_product = (L @ R.T + R @ L.T) / 2
            np.testing.assert_allclose(action.apply_product(L, R), A.apply((symmetric_product,)), atol=1e-12)

    @pytest.mark.parametrize("q", [0, 1, 3, 5])
    def test_faces(self, rng, q):
        directions = rng.normal(size=(6, q))
        face = Face(directions)
        V, S, M = face.basis, symmetric(6, rng), symmetric(6 - q, rng)
        np.testing.assert_allclose(V.T @ V, np.eye(6 - q), atol=1e-13)
        np.testing.assert_allclose(directions.T @ V, 0, atol=1e-13)
        np.testing.assert_allclose(face.compress(S), V.T @ S @ V, atol=1e-13)
        np.testing.assert_allclose(face.lift(M), V @ M @ V.T, atol=1e-13)

    def test_dependent_rows(self, rng):
        Z = rng.normal(size=(3, 5))
        S = np.vstack([Z, Z]) @ np.vstack([Z, Z]).T
        right = S @ rng.normal(size=6)
        np.testing.assert_allclose(S @ DefiniteFactor(S).solve(right), right, atol=1e-8)

    def test_conjugate_gradients(self, rng):
        S, b = positive_definite(20, rng), rng.normal(size=20)
        x = conjugate_gradients(lambda v: S @ v, b, S.diagonal(), 1e-12, 200)
        np.testing.assert_allclose(x, np.linalg.solve(S, b), atol=1e-9)


class TestBordered:
    @pytest.mark.parametrize("rank", [6, 3, 0])
    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
    def test_where_the_first_block_alone_is_singular(self, rng, rank, scale):
        m, k = 6, 6 - rank + 1
        G, F = rng.normal(size=(m, rank)), rng.normal(size=(m, k))
        M = scale * G @ G.T
        free = np.arange(k) < 6 - rank
        H = np.where(free[:, None], 0.0, rng.normal(size=(k, 2)))
        E = (np.diag(np.where(free, 0.0, rng.uniform(0.1, 1, k))) + H @ H.T) / scale
        b, q = rng.normal(size=m), rng.normal(size=k)
        y, u = bordered(M, F, E)(b, q)
        size = np.abs(y).max() * np.abs(M).max() + np.abs(u).max()
        np.testing.assert_allclose(M @ y + F @ u, b, atol=1e-12 * size)
        np.testing.assert_allclose(F.T @ y - E @ u, q, atol=1e-12 * (np.abs(y).max() + np.abs(E @ u).max()))

    def test_rows_of_zeros(self, rng):
        M = np.diag([2.0, 0.0, 0.0])
        F = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, -1.0]])
        b, q = rng.normal(size=3), rng.normal(size=2)
        y, u = bordered(M, F)(b, q)
        np.testing.assert_allclose(M @ y + F @ u, b, atol=1e-12)
        np.testing.assert_allclose(F.T @ y, q, atol=1e-12)


class TestBends:
    @pytest.mark.parametrize("kind", [Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE])
    def test_response_is_the_derivative_of_the_penalty_and_the_inverse_of_the_bend(self, kind):
        bounds = Bounds(
            np.array([-np.inf, 2.0]), np.array([1.0, np.inf]), np.full(2, kind), np.array([0.7, 1.9])
        )
        a, h = np.array([1.6, 0.8]), 1e-6
        y = bounds.response(a)
        slope = (bounds.penalty(a + h) - bounds.penalty(a - h)) / (2 * h)
        np.testing.assert_allclose(y, -slope, rtol=1e-6)
        complementarity_diagonal = (bounds.response(a - h) - bounds.response(a + h)) / (2 * h)
        value, derivative = relaxed_bounds(bounds.kind, np.array([1.0, 2.0]), bounds.gamma, y)
        np.testing.assert_allclose(value, a, rtol=1e-12)
        np.testing.assert_allclose(derivative, -1 / complementarity_diagonal, rtol=1e-6)

    @pytest.mark.parametrize("kind", [Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE])
    def test_meeting_is_newton_for_activities_that_equal_the_bend(self, kind):
        bounds = Bounds(
            np.array([-np.inf, 2.0, 0.5, 3.0]),
            np.array([1.0, np.inf, 4.0, 3.0]),
            np.full(4, kind),
            np.ones(4),
        )
        a = np.array([1.6, 0.8, 5.0, 2.0])
        y = bounds.response(a)
        # At a pair that belongs together nothing is asked for, and D is the derivative.
        r, D = bounds.meet(a, y, bounds.side(a, y))
        np.testing.assert_allclose(r, 0, atol=1e-14)
        bound = np.array([1.0, 2.0, 4.0, 3.0])
        np.testing.assert_allclose(D, -relaxed_bounds(bounds.kind, bound, bounds.gamma, y)[1], rtol=1e-12)
        # Elsewhere D is the geometric mean of both derivatives.
        far = 0.5 * y
        r, D = bounds.meet(a, far, bounds.side(a, far))
        value, of_bend = relaxed_bounds(bounds.kind, bound, bounds.gamma, far)
        of_response = 1 / falls(bounds, a)
        np.testing.assert_allclose(r, value - a, rtol=1e-12)
        np.testing.assert_allclose(D**2, -of_bend / of_response, rtol=1e-6)
        # Rows inside their bounds need no step; a remaining multiplier goes to zero.
        inside = np.array([0.4, 2.5, 1.0, 3.0])
        r, D = bounds.meet(inside, np.zeros(4), bounds.side(inside, np.zeros(4)))
        assert (r == 0).all()
        assert np.isinf(D).all()
        left = np.array([-0.1, 0.1, 0.1, 0.0])
        side = bounds.side(inside, left)
        r, D = bounds.meet(inside, left, side)
        assert r[0] > 0 > r[1]
        assert np.isfinite(D[:3]).all()
        np.testing.assert_array_equal(bounds.stop(-left, side), np.zeros(4))
        np.testing.assert_array_equal(bounds.stop(2 * left, side), 2 * left)


def falls(bounds, a, h=1e-6):
    """Return how fast activities fall with the multipliers that answer them."""
    return 2 * h / (bounds.response(a - h) - bounds.response(a + h))


def is_solved(sol):
    """Whether an answer is optimal, or only the round-off of an ill-conditioned matrix hides that."""
    return sol.status == "optimal" or "in doubles the objective is known to" in sol.stop_reason


class TestHardCases:
    @pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
    @pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
    def test_ill_conditioned_start(self, divergence):
        n, rng = 8, np.random.default_rng(1)
        Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
        X0 = (Q * np.logspace(-12, 0, n)) @ Q.T
        X0 = (X0 + X0.T) / 2
        X = bo.PSD(n)
        d = X0[0, 0] + X0[1, 1] - 2 * X0[0, 1]
        for rows in (
            [bo.diag(X) == 1.1 * np.diag(X0)],
            [bo.sq_distance(X, 0, 1) <= 0.9 * d, bo.trace(X) >= 0.5],
        ):
            problem = bo.Problem(bo.Minimize(ATOMS[divergence](X, X0)), rows)
            sol = problem.solve(solver="bregman", method="newton")
            assert is_solved(sol)
            assert np.linalg.eigvalsh(sol.X)[0] > 0

    @pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
    @pytest.mark.parametrize(("condition", "divergence"), turns([1e6, 1e9, 1e12], ATOMS))
    def test_rows_that_need_the_smallest_directions(self, divergence, condition):
        n, rng = 10, np.random.default_rng(1)
        Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
        X0 = (Q * np.logspace(-np.log10(condition), 0, n)) @ Q.T
        X = bo.PSD(n)
        small = Q[:, :2].T
        for rows in (
            [bo.diag(X) == 1],
            [bo.diag(X) == 1, X[0, 1] == 0.5],
            [bo.quad_form(small, X) == 1e-3, bo.trace(X) == 1],
            [bo.quad_form(small, X) >= 1e-3],
        ):
            problem = bo.Problem(bo.Minimize(ATOMS[divergence](X, (X0 + X0.T) / 2)), rows)
            sol = problem.solve(solver="bregman", method="newton")
            assert is_solved(sol)

    @pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
    def test_bounds_far_from_the_start(self, share):
        rng = np.random.default_rng(5)
        G = rng.normal(size=(12, 3))
        A = G @ G.T + 0.01 * np.eye(12)
        A /= np.sqrt(np.outer(A.diagonal(), A.diagonal()))
        limit = share * np.abs(A - np.eye(12)).max()
        sol = bo.nearest_correlation(A, "logdet", lower=-limit, upper=limit, tol=1e-8)
        assert sol.status == "optimal"

    @pytest.mark.parametrize("divergence", ATOMS)
    def test_working_set_of_rows(self, divergence):
        rng = np.random.default_rng(3)
        X0, X = positive_definite(8, rng), bo.PSD(8)
        i, j = np.triu_indices(8, 1)
        d = X0[i, i] + X0[j, j] - 2 * X0[i, j]
        rows = [bo.trace(X) == 8, bo.sq_distance(X, i, j) <= rng.uniform(0.6, 3, len(i)) * d]
        rows.append(bo.soft(X[i, j] >= 0.1, gamma=0.3, penalty="hinge"))
        problem = bo.Problem(bo.Minimize(ATOMS[divergence](X, X0)), rows)
        all_rows = problem.solve(tol=1e-9)
        tuning = replace(bo.tuning("bregman"), working_set_rows=10)
        some = problem.solve(tol=1e-9, tuning=tuning)
        assert "rows" in some.history
        assert "rows" not in all_rows.history
        assert some.history["rows"][0] < some.history["rows"][-1] < 57
        assert some.value == pytest.approx(all_rows.value, rel=1e-7)
        np.testing.assert_allclose(some.X, all_rows.X, atol=1e-4)
        for some_duals, all_duals in zip(some.duals, all_rows.duals, strict=True):
            np.testing.assert_allclose(some_duals, all_duals, atol=1e-3)
        contradiction = bo.Problem(problem.objective, [*rows, bo.diag(X) <= 0.5])
        assert contradiction.solve(tuning=tuning).status == "infeasible"

    @pytest.mark.parametrize("divergence", ATOMS)
    @pytest.mark.parametrize("scale", [1e-8, 1e8])
    def test_scaled_data(self, divergence, scale):
        rng = np.random.default_rng(2)
        X0 = positive_definite(6, rng)
        X = bo.PSD(6)

        def solved(s):
            rows = [bo.diag(X) == s, X[0, 1:4] >= 0.2 * s, bo.trace(X) <= 7 * s]
            return bo.Problem(bo.Minimize(ATOMS[divergence](X, s * X0)), rows).solve(tol=1e-8)

        plain, scaled = solved(1.0), solved(scale)
        assert scaled.status == "optimal"
        np.testing.assert_allclose(scaled.X / scale, plain.X, atol=1e-5)

    @pytest.mark.parametrize("divergence", ATOMS)
    def test_duplicate_redundant_and_contradictory_rows(self, divergence):
        X0 = positive_definite(4, np.random.default_rng(3))
        X = bo.PSD(4)
        D = bo.Minimize(ATOMS[divergence](X, X0))
        plain = bo.Problem(D, [bo.diag(X) == 1]).solve(tol=1e-11)
        doubled = bo.Problem(D, [bo.diag(X) == 1, 2 * bo.diag(X) == 2, bo.trace(X) == 4, X[0, 0] <= 1]).solve(
            tol=1e-11
        )
        assert doubled.status == "optimal"
        np.testing.assert_allclose(doubled.X, plain.X, atol=1e-5)
        broken = bo.Problem(D, [bo.diag(X) == 1, bo.trace(X) == 4.1]).solve()
        assert broken.status == "infeasible"

    @pytest.mark.parametrize("divergence", ATOMS)
    @pytest.mark.parametrize("margin", [1e-1, 1e-3])
    def test_bounds_that_cross_by_little_are_proven_so(self, divergence, margin):
        X = bo.PSD(2)
        rows = [X[0, 0] <= 1, X[0, 0] >= 1 + margin]
        sol = bo.Problem(bo.Minimize(ATOMS[divergence](X, np.eye(2))), rows).solve(solver="bregman")
        assert sol.status == "infeasible"

    @pytest.mark.parametrize("divergence", ["von_neumann", "frobenius"])
    def test_rows_that_only_just_meet_the_cone(self, divergence):
        X = bo.PSD(2)
        rows = [bo.diag(X) == 1, X[0, 1] >= 1]
        sol = bo.Problem(bo.Minimize(ATOMS[divergence](X, np.eye(2))), rows).solve(solver="bregman")
        assert sol.status == "optimal"
        np.testing.assert_allclose(sol.X, 1, atol=1e-3)

    @given(cost=st.floats(-20, 20), trace=st.floats(0.5, 4))
    def test_linear_cost_that_leaves_the_domain_of_the_dual(self, cost, trace):
        # Without rows C + inv(X0) need not be definite; the trace holds X back, and X = (trace / 2) I.
        X = bo.PSD(2)
        objective = bo.Minimize(bo.logdet_div(X, np.eye(2)) + cost * bo.trace(X))
        sol = bo.Problem(objective, [bo.trace(X) == trace]).solve(solver="bregman", method="newton")
        assert sol.status == "optimal"
        np.testing.assert_allclose(sol.X, trace / 2 * np.eye(2), atol=1e-5)

    def test_exponential_that_would_overflow(self):
        X = bo.PSD(2)
        objective = bo.Minimize(bo.von_neumann_div(X, np.eye(2)) - 1000 * bo.trace(X))
        sol = bo.Problem(objective, [bo.trace(X) <= 1]).solve(solver="bregman", tol=1e-8)
        assert sol.status == "optimal"
        np.testing.assert_allclose(sol.X, np.eye(2) / 2, atol=1e-5)

    def test_stiff_soft_rows_are_hard_rows(self):
        X = bo.PSD(3)
        X0 = positive_definite(3, np.random.default_rng(4))
        D = bo.Minimize(bo.logdet_div(X, X0))
        hard = bo.Problem(D, [bo.diag(X) == 0.5]).solve(tol=1e-9)
        for gamma in (1e5, 1e9, 1e12):
            soft = bo.Problem(D, [bo.soft(bo.diag(X) == 0.5, gamma=gamma)]).solve(tol=1e-8)
            assert soft.status == "optimal"
            np.testing.assert_allclose(soft.X, hard.X, atol=1e-3)

    def test_no_row_acts(self):
        X = bo.PSD(3)
        for atom in ATOMS.values():
            sol = bo.Problem(bo.Minimize(atom(X, np.eye(3))), [bo.trace(X) <= 10]).solve(solver="bregman")
            assert sol.status == "optimal"
            assert sol.iterations == 0
            assert sol.duals[0] == 0


@pytest.mark.parametrize("gamma", [1.0, 100.0, 1e4])
def test_dear_soft_rows_on_features_of_very_different_sizes(gamma):
    # Newton's method on X crept there, by as much in each step as the divergence weighs.
    rng = np.random.default_rng(0)
    n = 8
    points = rng.normal(size=(40, n)) * 10.0 ** np.linspace(-1, 3, n)
    i, j = rng.integers(40, size=(2, 120))
    Z = points[i[i != j]] - points[j[i != j]]
    near, (low, high) = rng.random(len(Z)) < 0.5, np.quantile((Z**2).sum(axis=1), [0.05, 0.95])
    X = bo.PSD(n)
    rows = [bo.quad_form(Z[near], X) <= low, bo.quad_form(Z[~near], X) >= high]
    soft = [bo.soft(row, gamma=gamma) for row in rows]
    sol = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(n))), soft).solve(solver="bregman", tol=1e-6)
    assert sol.status == "optimal"
    assert (np.diff(sol.history["iteration"]) >= 0).all()


@pytest.mark.parametrize("scale", [1e-3, 0.1, 10.0, 1e3])
def test_soft_rows_far_from_their_bounds(scale):
    """From a point without active rows Newton's method only halved the distance in each step."""
    Z = np.random.default_rng(0).normal(size=(30, 8))

    X = bo.PSD(8)
    rows = [bo.soft(row) for row in (bo.quad_form(Z[:20], X) <= scale, bo.quad_form(Z[20:], X) >= 5 * scale)]
    sol = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(8))), rows).solve(solver="bregman", tol=1e-8)
    assert sol.status == "optimal"
    left = left_to_gain(sol.X, np.eye(8), [(Z[:20], scale, 1), (Z[20:], 5 * scale, -1)], 1.0)
    assert left <= 1e-7 * max(sol.value, 1e-3)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize("seed", first(2, range(6)))
def test_round_off_near_an_ill_conditioned_start_does_not_stop_soft_rows(seed):
    """Objectives that differ by round-off only shortened steps to zero."""
    rng = np.random.default_rng(seed)
    n, m = 20, 60
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    X0 = (Q * np.logspace(-7.5, 0, n)) @ Q.T
    X0 = (X0 + X0.T) / 2
    i = rng.integers(0, n, m)
    j = (i + 1 + rng.integers(0, n - 1, m)) % n
    d = (X0[i, i] + X0[j, j] - 2 * X0[i, j]) * np.exp(rng.normal(size=m))
    X = bo.PSD(n)
    rows = [bo.sq_distance(X, i[:30], j[:30]) <= d[:30], bo.sq_distance(X, i[30:], j[30:]) >= d[30:]]
    soft = [bo.soft(row, gamma=1e-3) for row in rows]
    sol = bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), soft).solve("bregman", tol=1e-8)
    assert is_solved(sol)


@pytest.mark.parametrize("bound", [1e-200, 1e-300])
def test_bounds_near_the_end_of_doubles(bound):
    """A complementarity of zero was a divisor."""
    X, (i, j) = bo.PSD(3), np.triu_indices(3, 1)
    sol = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(3))), [bo.soft(X[i, j] >= bound)]).solve("bregman")
    assert sol.status == "optimal"
    np.testing.assert_allclose(sol.X, np.eye(3), atol=1e-6)


def breast_cancer_pairs(pairs, features):
    """Return differences of points of one class and of two classes, and bounds on their lengths."""
    data = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    points, label = data.data[:, :features] / data.data[:, :features].std(axis=0), data.target
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, len(points), (2, pairs))
    i, j = i[i != j], j[i != j]
    Z, same = points[i] - points[j], label[i] == label[j]
    return Z[same], Z[~same], *np.quantile((Z**2).sum(axis=1), [0.05, 0.95])


def breast_cancer(pairs, gamma, features=30):
    """Return a metric problem: upper bounds for pairs of one class, lower bounds for pairs of two classes."""
    near, far, upper, lower = breast_cancer_pairs(pairs, features)
    X = bo.PSD(features)
    rows = [bo.quad_form(near, X) <= upper, bo.quad_form(far, X) >= lower]
    soft = [bo.soft(row, gamma=gamma) for row in rows]
    return bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(features))), soft)


def left_to_gain(X, X0, families, gamma):
    """Return half the squared gradient in the metric of X, an estimate of the remaining decrease."""
    X = np.asarray(X)
    gradient, L = np.linalg.inv(X0) - np.linalg.inv(X), np.linalg.cholesky(X)
    for Z, bound, side in families:
        a = np.einsum("ri,ij,rj->r", Z, X, Z)
        gradient += Z.T @ (np.where(side * (a - bound) > 0, gamma * (1 / bound - 1 / a), 0.0)[:, None] * Z)
    return np.sum((L.T @ gradient @ L) ** 2) / 2


@pytest.mark.parametrize(
    ("pairs", "gamma", "features"),
    [(160, 1.0, 30), (160, 0.01, 30), (160, 30.0, 30), (3000, 1.0, 8), (3000, 30.0, 8)],
)
def test_a_metric_that_is_learned_leaves_nothing_to_gain(pairs, gamma, features):
    problem = breast_cancer(pairs, gamma, features)
    sol = problem.solve(solver="bregman", tol=1e-7)
    assert sol.status == "optimal"
    near, far, upper, lower = breast_cancer_pairs(pairs, features)
    left = left_to_gain(sol.X, np.eye(features), [(near, upper, 1), (far, lower, -1)], gamma)
    assert left <= 1e-6 * sol.value


def test_dear_steps_on_soft_rows_leave_nothing_to_gain():
    """Where a step costs far more than answering a point, the start answers ten of them."""
    n, m = 150, 1500
    rng = np.random.default_rng(0)
    G = rng.normal(size=(n, n))
    X, X0 = bo.PSD(n), G @ G.T / n + 0.1 * np.eye(n)
    i = rng.integers(0, n, m)
    j = (i + 1 + rng.integers(0, n - 1, m)) % n
    up, distance = rng.random(m) < 0.5, X0[i, i] + X0[j, j] - 2 * X0[i, j]
    upper, lower = 0.7 * distance[up], 1.3 * distance[~up]
    rows = [bo.sq_distance(X, i[up], j[up]) <= upper, bo.sq_distance(X, i[~up], j[~up]) >= lower]
    objective = bo.Minimize(bo.logdet_div(X, X0))
    sol = bo.Problem(objective, [bo.soft(row) for row in rows]).solve("bregman")
    assert sol.status == "optimal"
    Z = np.eye(n)[i] - np.eye(n)[j]
    left = left_to_gain(sol.X, X0, [(Z[up], upper, 1), (Z[~up], lower, -1)], 1.0)
    assert left <= 1e-6 * sol.value


@pytest.mark.parametrize("seed", range(12))
def test_rows_between_two_soft_bounds_may_change_sides(seed):
    """Multipliers that jumped from one bound's side to the other's stopped the method."""
    rng = np.random.default_rng(seed)
    n, m = 8, 30
    G, Z = rng.normal(size=(n, n)), rng.normal(size=(m, n))
    X0 = G @ G.T / n + 0.1 * np.eye(n)
    X, activity = bo.PSD(n), np.einsum("ri,ij,rj->r", Z, X0, Z)
    lower = activity * np.exp(0.3 * rng.normal(size=m))
    row = bo.soft(bo.between(bo.quad_form(Z, X), lower, 1.2 * lower), gamma=10.0)
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, X0)), [row])
    sol = problem.solve(solver="bregman", tol=1e-8)
    assert sol.status == "optimal"
    left = left_to_gain(sol.X, X0, [(Z, 1.2 * lower, 1), (Z, lower, -1)], 10.0)
    assert left <= 1e-6 * sol.value


def test_soft_rows_from_a_start_where_steps_land_on_zero_multipliers():
    rng = np.random.default_rng(8)
    G = rng.normal(size=(1000, 5))
    i, j = rng.integers(0, 500, 200), rng.integers(500, 1000, 200)
    d = ((G[i] - G[j]) ** 2).sum(axis=1)
    X = bo.PSD(1000)
    rows = [bo.soft(bo.sq_distance(X, i, j) <= 0.5 * d, gamma=1.0)]
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), rows)
    newton, cyclic = (problem.solve(method=method) for method in ("newton", "cyclic"))
    assert newton.status == cyclic.status == "optimal"
    assert newton.value == pytest.approx(cyclic.value, rel=1e-5)


@pytest.mark.parametrize("seed", [52, 53, 81, 125, 126, 187, 193, 238, 423, 850])
def test_multipliers_that_are_not_unique_do_not_slow_newton(seed):
    # More rows are active than a singular X has degrees of freedom; without a shift of the Hessian 500 steps.
    rng = np.random.default_rng(seed)
    n = 5
    G = rng.normal(size=(n, n))
    at = G @ G.T / n
    i, j = np.triu_indices(n, 1)
    X = bo.PSD(n)
    rows = [bo.abs(X[i, j] - at[i, j]) <= 0.01, bo.diag(X) == at.diagonal()]
    sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, G + G.T)), rows).solve(solver="bregman")
    assert sol.status == "optimal"
    assert sol.iterations < 100


class TestRule:
    def test_one_logdet_row_is_a_projection(self, capsys):
        X = bo.PSD(3)
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(3))), [bo.trace(X) <= 1])
        problem.explain()
        assert "method 'cyclic', for one row alone" in capsys.readouterr().out
        assert problem.solve().iterations == 1

    def test_several_rows_move_at_once(self, capsys):
        X = bo.PSD(3)
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(3))), [bo.diag(X) == 2, X[0, 1] <= -1])
        problem.explain()
        assert "method 'newton'" in capsys.readouterr().out


class TestWeights:
    @pytest.mark.parametrize("spread", [0.5, 0.1])
    def test_agrees_with_cvxpy(self, spread):
        n, rng = 5, np.random.default_rng(5)
        A, H = symmetric(n, rng), rng.uniform(spread, 1, (n, n))
        H = (H + H.T) / 2
        X = bo.PSD(n)
        rows = [bo.diag(X) == 1, X[0, 1] <= 0.1]
        sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), rows).solve(
            solver="bregman", tol=1e-9
        )
        K = cp.Variable((n, n), PSD=True)
        reference = cp.Problem(
            cp.Minimize(cp.sum_squares(cp.multiply(H, K - A))), [cp.diag(K) == 1, K[0, 1] <= 0.1]
        )
        assert sol.status == "optimal"
        peers.ask(reference).confirms(sol, {K: sol.X})

    def test_equal_weights_are_the_plain_problem(self):
        A = symmetric(6, np.random.default_rng(6))
        X = bo.PSD(6)
        plain = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1]).solve(tol=1e-13)
        weighted = bo.Problem(
            bo.Minimize(bo.frobenius_div(X, A, weights=np.full((6, 6), 3.0))), [bo.diag(X) == 1]
        ).solve(solver="bregman", tol=1e-12)
        np.testing.assert_allclose(weighted.X, plain.X, atol=1e-6)
        assert weighted.value == pytest.approx(9 * plain.value)

    def test_contradiction(self):
        X = bo.PSD(2)
        D = bo.frobenius_div(X, np.eye(2), weights=np.array([[1.0, 2.0], [2.0, 1.0]]))
        sol = bo.Problem(bo.Minimize(D), [bo.diag(X) == 1, X[0, 1] >= 1.5]).solve(solver="bregman")
        assert sol.status == "infeasible"

    def test_cyclic_refuses_with_the_reason(self):
        X = bo.PSD(2)
        D = bo.frobenius_div(X, np.eye(2), weights=np.ones((2, 2)))
        with pytest.raises(bo.UnsupportedProblemError, match="elementwise weights"):
            bo.Problem(bo.Minimize(D)).solve(solver="bregman", method="cyclic")


class TestComplement:
    def test_makes_a_problem_feasible_that_the_range_forbids(self):
        G = np.array([[1.0], [1.0], [0.0]])
        X = bo.PSD(3)
        row = bo.sq_distance(X, 0, 1) >= 0.5
        with pytest.raises(bo.InfeasibleRowError):
            bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), [row]).solve()
        for start in (bo.LowRank(G), G @ G.T):
            sol = bo.Problem(bo.Minimize(bo.logdet_div(X, start, complement=1e-2)), [row]).solve()
            assert sol.status == "optimal"
            assert sol.X[0, 0] + sol.X[1, 1] - 2 * sol.X[0, 1] >= 0.5 - 1e-5

    @pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
    def test_is_the_start_plus_the_projection_on_its_null_space(self, scale):
        G = np.sqrt(scale) * np.random.default_rng(7).normal(size=(5, 2))
        Q, _ = np.linalg.qr(G)
        full = G @ G.T + 0.3 * scale * (np.eye(5) - Q @ Q.T)
        X = bo.PSD(5)
        rows = [bo.trace(X) == 3 * scale]
        for atom in (bo.logdet_div, bo.von_neumann_div):
            ours = bo.Problem(bo.Minimize(atom(X, bo.LowRank(G), complement=0.3 * scale)), rows).solve(
                tol=1e-9
            )
            theirs = bo.Problem(bo.Minimize(atom(X, (full + full.T) / 2)), rows).solve(tol=1e-9)
            np.testing.assert_allclose(ours.X, theirs.X, atol=1e-6 * scale)

    @pytest.mark.parametrize("eps", [0.0, -1.0, np.nan, "much"])
    def test_bad_value_is_named(self, eps):
        with pytest.raises((TypeError, ValueError), match="complement of logdet_div"):
            bo.logdet_div(bo.PSD(2), bo.LowRank([[1.0], [1.0]]), complement=eps)


@pytest.mark.parametrize(
    "name",
    ["beyu11", "bhwi01", "burt11", "carcorr25", "fing97", "high02", "nearpd6", "tec03", "tyda99r1", "usgs13"],
)
def test_real_broken_correlation_matrices(data, name):
    A = np.asarray(read_matrix(data / "nearcorr" / f"{name}.csv").values)
    A = (A + A.T) / 2
    sol = bo.nearest_correlation(A, tol=1e-8)
    assert sol.status == "optimal"
    assert np.linalg.eigvalsh(sol.X)[0] >= -1e-10
    with pytest.raises(ValueError, match="A is not positive definite"):
        bo.nearest_correlation(A, "logdet")
    if len(A) > 30:
        return
    lifted = bo.nearest_correlation(A, min_eigenvalue=1e-3, tol=1e-8).X
    limit = 0.98 * np.abs(lifted - np.eye(len(A))).max()  # so that some rows are active
    for divergence in ("logdet", "von_neumann"):
        near = bo.nearest_correlation(lifted, divergence, upper=limit, lower=-limit)
        assert near.status == "optimal"
        assert np.abs(near.X - np.eye(len(A))).max() <= limit + 1e-5


@pytest.mark.parametrize("name", ["fing97", "usgs13"])
def test_real_patterns_of_fixed_entries(data, name):
    A = np.asarray(read_matrix(data / "nearcorr" / f"{name}.csv").values)
    pattern = np.asarray(read_matrix(data / "nearcorr" / f"{name}_pattern.csv").values) != 0
    A, pattern = (A + A.T) / 2, pattern | pattern.T
    sol = bo.nearest_correlation(A, fixed=pattern)
    if sol.status == "infeasible":  # some patterns have no correlation matrix, which is proven
        return
    assert sol.status == "optimal"
    np.testing.assert_allclose(sol.X[pattern], A[pattern], atol=1e-5)


class TestBoundedDiagonal:
    def test_the_shift_projects_onto_the_simplex(self):
        rng = np.random.default_rng(0)
        for total in (0.0, 0.5, 30.0):
            theta = np.sort(rng.normal(size=9))
            shift = simplex_shifts(theta[None], np.array([total]))
            assert np.maximum(theta - shift, 0).sum() == pytest.approx(total)

    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
    def test_answers_are_on_the_rows(self, scale):
        A = scale * symmetric(8, np.random.default_rng(1))
        b = scale * np.linspace(0.5, 2, 8)
        X = bo.PSD(8)
        problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [2 * bo.diag(X) == 2 * b])
        sol = problem.solve(solver="bregman", tol=1e-8)
        np.testing.assert_allclose(sol.X.diagonal(), b, rtol=4e-16)
        assert sol.status == "optimal"
        exact = problem.solve(solver="bregman", tol=1e-14)
        # as far from the answer as the gap allows: the objective is strongly convex
        assert np.linalg.norm(sol.X - exact.X) ** 2 <= (sol.gap + 1e-13) * exact.value * (1 + 1e-6)

    def test_bounds_on_the_diagonal_alone(self):
        A = symmetric(6, np.random.default_rng(2))
        X = bo.PSD(6)
        rows = [bo.between(bo.diag(X), 0.5, 1.0)]
        problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), rows)
        assert bo.cross_check(problem, solvers=["bregman", "cvxpy"]).ok
        sol = problem.solve(solver="bregman")
        assert (sol.X.diagonal() <= 1).all()
        assert (sol.X.diagonal() >= 0.5 - 1e-15).all()

    def test_zeros_on_the_diagonal(self):
        X = bo.PSD(3)
        b = np.array([0.0, 1.0, 2.0])
        sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, 2 * np.eye(3))), [bo.diag(X) == b]).solve()
        np.testing.assert_allclose(sol.X, np.diag(b), atol=1e-12)
        assert sol.value == pytest.approx(5.0)


# --- On from a nearby answer --------------------------------------------------------------------------


def sweep(seed, soft=False, n=30, m=60):
    """Return a LogDet problem with rows of every kind whose bounds a parameter moves."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(n, n))
    X0 = G @ G.T / n + np.eye(n)
    X, p = bo.PSD(n), bo.Parameter(m, value=np.zeros(m))
    i, j = np.triu_indices(n, 1)
    at = rng.choice(len(i), m, replace=False)
    distances = bo.sq_distance(X, i[at], j[at])
    start = X0[i, i][at] + X0[j, j][at] - 2 * X0[i, j][at]
    rows = [distances <= 0.8 * start * rng.uniform(0.8, 1.4, m) + p, bo.diag(X)[:3] == 2.0]
    rows.append(bo.between(X[3, 4:8], -0.1, 0.1))
    if soft:
        rows[0] = bo.soft(rows[0], gamma=0.05, penalty="hinge")
    return bo.Problem(bo.Minimize(0.5 * bo.logdet_div(X, X0)), rows), p


@pytest.mark.parametrize(("soft", "seed"), turns([False, True], range(4)))
def test_a_nearby_answer_is_nearer_to_the_next(seed, soft):
    problem, p = sweep(seed, soft)
    rng = np.random.default_rng(seed)
    problem.solve(tol=1e-8)
    for _ in range(4):
        p.value = p.value + 0.02 * rng.normal(size=p.shape)
        near = problem.solve(tol=1e-8, warm_start=True)
        far = problem.solve(tol=1e-8)
        assert near.status == far.status == "optimal"
        assert near.value == pytest.approx(far.value, rel=1e-7)
        np.testing.assert_allclose(near.duals[0], far.duals[0], atol=1e-4)
        assert near.history["gap"][0] < far.history["gap"][0]


@pytest.mark.parametrize("far", [1.0, -5.0])
def test_a_start_from_afar_does_no_harm(far):
    problem, p = sweep(0)
    first = problem.solve(tol=1e-8)
    p.value = np.where(np.arange(p.size) % 2, far, 0.0) * 0.1
    near, cold = problem.solve(tol=1e-8, warm_start=first), problem.solve(tol=1e-8)
    assert near.status == cold.status == "optimal"
    assert near.value == pytest.approx(cold.value, rel=1e-7)
    with pytest.warns(bo.ConvergenceWarning):
        assert problem.solve(tol=1e-12, warm_start=first, max_iter=1).iterations == 1


def test_where_the_first_start_leads_nowhere_the_central_path_does():
    """A hinge that repeats an equation stalled the method from the start without active rows."""
    n = 5
    X, (i, j) = bo.PSD(n), np.triu_indices(n, 1)
    rows = [
        bo.diag(X) == 1,
        X[i, j] <= np.linspace(0.5, 0.9, 10),
        X[0, 1:] >= -0.5,
        2 * X[0, 1] - X[2, 3] <= 0.3,
        bo.sq_distance(X, 0, 1) <= bo.sq_distance(X, 2, 3),
        bo.between(bo.sum(X), 4, 6),
    ]
    objective = bo.Minimize(0.1 * bo.logdet_div(X, np.eye(n)) + bo.inner(np.ones((n, n)), X))
    without = bo.Problem(objective, rows).solve("bregman")
    hinges = bo.soft(bo.diag(X)[:3] >= 0.2, gamma=2.0, penalty="hinge")
    sol = bo.Problem(objective, [*rows, hinges]).solve("bregman")
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(without.value, rel=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_corrections(seed):
    """Corrections by an inverse with a few wrong directions solve the system; none adds to the residual."""
    rng = np.random.default_rng(seed)
    n, wrong = 30, int(rng.integers(0, 4))
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = 10.0 ** rng.uniform(-6, 0, n)
    H = (Q * values) @ Q.T
    inverse = (Q / (values * np.where(np.arange(n) < wrong, rng.uniform(0.1, 10, n), 1.0))) @ Q.T
    right = H @ rng.normal(size=n)

    def correction(residual):
        x = inverse @ residual
        return H @ x, x

    for limit in (1, wrong, wrong + 2):
        if limit:
            with patch.object(linear_solvers, "_REFINEMENTS", limit):
                x = Corrections().refined(right, np.zeros(n), correction, 0.0)
            left = np.linalg.norm(right - H @ x) / np.linalg.norm(right)
            assert left <= 1 + 1e-12
    assert left < 1e-8


@given(st.integers(0, 2**32 - 1))
def test_corrections_serve_all_right_sides(seed):
    """A right side that earlier corrections span needs no new one; new ones reduce the residual of others."""
    rng = np.random.default_rng(seed)
    n = 20
    H = np.linalg.qr(rng.normal(size=(n, n)))[0] * rng.uniform(0.1, 10, n)
    made = []

    def correction(residual):
        made.append(residual)
        return H @ residual, residual

    right, other = rng.normal(size=n), rng.normal(size=n)
    shared = Corrections()
    with patch.object(linear_solvers, "_REFINEMENTS", 4):
        x = shared.refined(right, np.zeros(n), correction, 0.0)
    again = shared.refined(H @ x, np.zeros(n), correction, 1e-8 * float(np.linalg.norm(H @ x)))
    assert len(made) == 4
    assert np.allclose(again, x)
    y = shared.refined(other, np.zeros(n), correction, 0.0)
    fewer = shared.refined(other, np.zeros(n), correction, np.inf)
    assert np.linalg.norm(other - H @ y) <= np.linalg.norm(other - H @ fewer) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("n", "m", "least"),
    [
        (30, 10, 1e-6),
        (60, 20, 1e-4),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((60, 20, 1e-6), (100, 10, 1e-6), (100, 30, 1e-4))
        ),
    ],
)
def test_a_nearly_singular_fixed_block(n, m, least):
    """The optimum is chosen first; conjugate gradients do not solve Newton's equation there."""
    rng = np.random.default_rng(n + m)
    r = n // 2
    U, W = (np.linalg.qr(rng.standard_normal((k, m)))[0] for k in (m, r))
    G = np.vstack(
        [(U * np.geomspace(np.sqrt(least), 1, m)) @ W.T, rng.standard_normal((n - m, r)) / np.sqrt(r)]
    )
    X = G @ G.T
    N = np.linalg.qr(G, mode="complete")[0][:, r:]
    Z = (N * rng.uniform(0.3, 2, n - r)) @ N.T
    fixed = np.eye(n, dtype=bool)
    fixed[:m, :m] = True
    y = np.where(fixed, rng.standard_normal((n, n)), 0.0)
    X0 = X - (Z + (y + y.T) / 2) / 2
    i, j = np.nonzero(np.triu(fixed))
    Y = bo.PSD(n)
    sol = bo.Problem(bo.Minimize(bo.frobenius_div(Y, (X0 + X0.T) / 2)), [Y[i, j] == X[i, j]]).solve()
    assert sol.status == "optimal"
    assert sol.iterations <= 40
    assert sol.accuracy.largest <= 1e-8
    error = 1e-14 / least * np.abs(X0).max()  # of the data, which are rounded
    assert (np.abs(sol.X - X) <= sol.accuracy.entries + error).all()


@pytest.mark.parametrize("c", [30, 100, 1000])
@pytest.mark.parametrize("rotated", [False, True])
def test_large_costs_beside_von_neumann(c, rotated):
    """Each eigenvalue is ``min(exp(c l), 1)``; the exponentials of the dual begin at ``exp(c)``."""
    n, rng = 8, np.random.default_rng(5)
    levels = np.linspace(-1, 1, n)
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0] if rotated else np.eye(n)
    X = bo.PSD(n)
    objective = bo.von_neumann_div(X, np.eye(n)) - c * bo.inner((Q * levels) @ Q.T, X)
    sol = bo.Problem(bo.Minimize(objective), [bo.quad_form(Q.T, X) <= 1]).solve()
    x = np.exp(np.minimum(c * levels, 0.0))
    value = float(np.sum(x * np.minimum(c * levels, 0.0) - x + 1 - c * levels * x))
    assert sol.status == "optimal"
    assert abs(sol.value - value) <= sol.error
