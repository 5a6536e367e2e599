"""The accuracy of X: distances from optima that are known by construction, and when nearness stops."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.certify import accuracy

EPS = np.finfo(float).eps
CLOSED = ("frobenius", "logdet", "von_neumann")


def symmetric(A):
    return (A + A.T) / 2


def adjoint(n, i, j, y):
    S = np.zeros((n, n))
    np.add.at(S, (i, j), y / 2)
    np.add.at(S, (j, i), y / 2)
    return S


class Known:
    """A nearness problem whose optimum ``X`` was chosen first: its gradient gives the matrix to be near."""

    def __init__(self, kind, rows, seed):
        rng = np.random.default_rng(seed)
        n, unit = int(rng.integers(3, 20)), 10.0 ** rng.integers(-6, 7) if seed % 2 else 1.0
        V = np.linalg.qr(rng.standard_normal((n, n)))[0]
        squares = kind in ("frobenius", "weighted")
        r = min(n, max(int(rng.integers(1, n + 1)), int(np.sqrt(3 * n)) + 1)) if squares else n
        x = rng.uniform(0.3, 2, r) if squares else np.exp(rng.uniform(-2, 1, n))
        X = (V[:, :r] * x) @ V[:, :r].T
        D = np.ones(n)
        if squares:
            D = np.exp(rng.standard_normal(n) * (seed % 3 == 0)) / np.sqrt(X.diagonal())
        D *= np.sqrt(unit)
        self.X, self.n = symmetric(D[:, None] * X * D), n
        k = np.arange(n)
        i, j = (np.concatenate([k, own]) for own in np.array([[0, 0, 1], [1, 2, 2]]))
        i, j = (k, k) if rows == "diagonal" else (i, j)
        a, y = self.X[i, j], rng.standard_normal(len(i))
        self.lo, self.hi = a.copy(), a.copy()
        if rows == "bounds":  # one acts from below, one from above, one not at all
            y[n:] = 0.1 + np.abs(y[n]), -0.1 - np.abs(y[n + 1]), 0.0
            self.lo[n + 1], self.hi[n], self.lo[n + 2], self.hi[n + 2] = (
                -np.inf,
                np.inf,
                a[-1] - unit,
                a[-1] + unit,
            )
        self.i, self.j = i, j
        condition = 1.0
        self.H = symmetric(rng.uniform(0.5, 2, (n, n))) if kind == "weighted" else np.ones((n, n))
        if squares:
            Z = (V[:, r:] * rng.uniform(0.3, 2, n - r)) @ V[:, r:].T / np.outer(D, D) * unit**2
            self.X0 = self.X - (Z + adjoint(n, i, j, y * unit)) / (2 * self.H**2)
        elif kind == "logdet":
            S = adjoint(n, i, j, y)
            least = 1 / np.linalg.eigvalsh(self.X)[-1]
            self.X0 = np.linalg.inv(
                np.linalg.inv(self.X) + S * (0.5 * least / np.abs(np.linalg.eigvalsh(S)).max())
            )
        else:
            w, Q = np.linalg.eigh(self.X)
            w, Q = np.linalg.eigh((Q * np.log(w)) @ Q.T - 0.3 * adjoint(n, i, j, y) / np.abs(y).max())
            self.X0 = (Q * np.exp(w)) @ Q.T
        self.X0 = symmetric(self.X0)
        if not squares:
            condition = np.linalg.cond(self.X0) + np.linalg.cond(self.X)
        # The data are rounded, so that the optimum is known to this.
        self.error = 16 * n * EPS * (np.abs(self.X).max() * condition + np.abs(self.X0).max())
        self.kind = kind

    def solve(self, **options):
        Y = bo.PSD(self.n, name="X")
        if self.kind == "weighted":
            distance = bo.frobenius_div(Y, self.X0, weights=self.H)
        else:
            distance = getattr(bo, f"{self.kind}_div")(Y, self.X0)
        equal = self.lo == self.hi
        below, above = (~equal & np.isfinite(end) for end in (self.lo, self.hi))
        constraints = [Y[self.i[equal], self.j[equal]] == self.lo[equal]]
        if below.any():
            constraints.append(Y[self.i[below], self.j[below]] >= self.lo[below])
        if above.any():
            constraints.append(Y[self.i[above], self.j[above]] <= self.hi[above])
        return bo.Problem(bo.Minimize(distance), constraints).solve(**options)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize(
    ("seed", "rows", "kind"),
    turns(first(1, range(4)), ["diagonal", "fixed", "bounds"], [*CLOSED, "weighted"]),
)
def test_the_accuracy_holds_and_is_sharp(kind, rows, seed):
    problem = Known(kind, rows, seed)
    for options in ({}, {"tol": 1e-3, "tol_X": 0.1}, {"max_iter": 3}):
        sol = problem.solve(**options)
        known, error = sol.accuracy, np.abs(sol.X - problem.X)
        assert (error <= known.entries + problem.error).all()
        assert np.linalg.norm(error) <= known.norm + problem.n * problem.error
        assert known.largest == known.entries.max() or known.reason
        if sol.status == "optimal" and error.max() > 10 * problem.error:
            assert known.largest <= 4 * error.max() + problem.error
            assert known.norm <= 4 * np.linalg.norm(error) + problem.n * problem.error


@pytest.mark.parametrize("kind", CLOSED)
def test_the_bound_of_any_multipliers_holds(kind):
    tightest = 0.0
    for seed in range(12):
        problem = Known(kind, "fixed", seed)
        raw = problem.solve(tol=1e-9, tol_X=1e-9)._raw
        rng, y = np.random.default_rng(seed), raw.duals
        for size in (1e-1, 1e-2, 1e-3, 1e-4):
            moved = y + size * np.abs(y).mean() * rng.standard_normal(len(y))
            near = accuracy.near_optimum(raw._program, moved)
            if near is None:  # no feasible matrix is near
                continue
            entries, norm = accuracy._BALLS[kind](raw._program.blocks[0], near, 0)
            error = near.F[0] - problem.X
            assert (np.abs(error) <= entries + problem.error).all()
            tightest = max(tightest, (np.linalg.norm(error) - problem.n * problem.error) / norm)
    assert tightest <= 1.0
    assert tightest >= {"frobenius": 0.7, "logdet": 0.1, "von_neumann": 0.05}[kind]  # it says something


@pytest.mark.parametrize(("seed", "kind"), turns(range(4, 8), CLOSED))
def test_entries_are_certified_by_default(kind, seed):
    problem = Known(kind, "bounds", seed)
    root = np.sqrt(problem.X.diagonal())
    for asked, options in ((1e-6, {}), (1e-8, {"tol_X": 1e-8})):
        relative = problem.solve(**options).accuracy.entries / np.outer(root, root)
        assert relative.max() <= asked + problem.error / root.min() ** 2


def correlation(rng, n, noise=0.3):
    B = rng.standard_normal((n, max(2, n // 3)))
    C = B @ B.T
    C /= np.sqrt(np.outer(C.diagonal(), C.diagonal()))
    A = C + noise * symmetric(rng.standard_normal((n, n)))
    np.fill_diagonal(A, 1.0)
    return A


@pytest.mark.parametrize(
    ("own", "n"), turns([{}, {"fixed": [[0, 1], [2, 3]]}, {"lower": -0.3, "upper": 0.9}], [6, 30, 60])
)
def test_stack_chain_single_call_and_language_agree(n, own, rng):
    A = np.stack([correlation(rng, n)] * 3)
    for k in (1, 2):
        A[k] = 0.95 * A[k - 1] + 0.05 * correlation(rng, n)
    A[:, [0, 1], [1, 0]] = A[:, [2, 3], [3, 2]] = 0.25
    stack, chain = (bo.nearest_correlation(A, warm_start=warm, **own) for warm in (False, "chain"))
    assert max(stack.accuracy.max(), chain.accuracy.max()) <= 1e-6
    for k, each in enumerate(A):
        single = bo.nearest_correlation(each, **own)
        assert single.accuracy.largest <= 1e-6
        for X in (stack.X[k], chain.X[k]):
            np.testing.assert_allclose(X, single.X, rtol=0, atol=2e-6)
        assert stack[k].accuracy.largest <= stack.accuracy[k] + 1e-12  # sharper, by Newton's method
        if not own:
            Y, Z = bo.PSD(n), cp.Variable((n, n), PSD=True)
            language = bo.Problem(bo.Minimize(bo.frobenius_div(Y, each)), [bo.diag(Y) == 1]).solve()
            np.testing.assert_allclose(language.X, single.X, rtol=0, atol=2e-6)
            hook = cp.Problem(cp.Minimize(cp.sum_squares(Z - each)), [cp.diag(Z) == 1])
            hook.solve(method="bregopt")
            np.testing.assert_allclose(Z.value, single.X, rtol=0, atol=2e-6)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize(("bound", "kind"), turns([{"min_eigenvalue": 0.3}, {"max_condition": 3.0}], CLOSED))
def test_bounds_on_eigenvalues(kind, bound, rng):
    """The error of coarse answers, beside finer ones, is at most the bound and most of it."""
    A = np.corrcoef(rng.normal(size=(5, 12)))
    finest = bo.nearest_correlation(A, divergence=kind, tol=1e-12, **bound)
    for options in ({}, {"max_iter": 2}):
        sol = bo.nearest_correlation(A, divergence=kind, **options, **bound)
        error = np.abs(sol.X - finest.X)
        assert (error <= sol.accuracy.entries + finest.accuracy.entries).all()
        assert sol.accuracy.largest <= max(1e-6, 100 * error.max())


@pytest.mark.parametrize("linked", ["matrix", "variables"])
def test_rows_beside_other_matrices_or_variables_fix_no_entry(linked, rng):
    """With ``X_ij - S_ij = B_ij`` an entry of ``B`` is no optimum, however near one of ``X`` is to it.

    The minimizer over ``X - B`` psd is ``B`` plus the positive part of ``A - B``.
    """
    n = 5
    A, X, B = symmetric(rng.standard_normal((n, n))), bo.PSD(n), np.diag(rng.uniform(0.1, 0.5, n))
    rows = [X >> B]
    if linked == "variables":
        u = bo.Variable(lower=0.0)
        rows = [X[0, 1] - u == B[0, 1], u <= 2]
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), rows)
    sol = problem.solve(tol=1e-8)
    w, V = np.linalg.eigh(A - B)
    best = sol.X if linked == "variables" else B + (V * np.maximum(w, 0)) @ V.T
    assert np.abs(best - sol.X).max() <= sol.accuracy.largest <= sol.accuracy.norm <= 1e-4
    raw, moved = sol._in_program or sol, sol.X.copy()
    moved[0, 1] = moved[1, 0] = B[0, 1]
    rest = raw.X[1:] if isinstance(raw.X, tuple) else ()
    known = accuracy.accuracies(raw._program, [moved, *rest], *raw._point[1:])
    assert known[0].entries[0, 1] >= abs(best[0, 1] - B[0, 1]) - 1e-5


@pytest.mark.parametrize("seed", range(8))
def test_fixed_entries_are_exact_and_the_value_is_above_the_bound(seed):
    rng = np.random.default_rng(seed)
    A = correlation(rng, int(rng.integers(4, 40)))
    A[[0, 1], [1, 0]] = np.clip(A[0, 1], -0.7, 0.7)
    for own in ({}, {"min_eigenvalue": 1e-3}, {"weights": rng.uniform(0.5, 2, len(A))}):
        sol = bo.nearest_correlation(A, fixed=[[0, 1]], **own)
        assert sol.X[0, 1] == sol.X[1, 0] == A[0, 1]
        assert (sol.X.diagonal() == 1).all()
        assert sol.dual_value <= sol.value <= sol.dual_value + 1e-6 * abs(sol.value)


def test_the_units_are_those_of_the_user(rng):
    C = correlation(rng, 8)
    scale = 10.0 ** rng.uniform(-2, 2, 8)
    unit = np.outer(scale, scale)
    sol = bo.nearest_covariance(
        pd.DataFrame(C * unit, index=list("abcdefgh"), columns=list("abcdefgh")),
        tol=1e-4,
        units="covariance",
    )
    exact = bo.nearest_covariance(C * unit, tol=1e-10, tol_X=1e-9, units="covariance").X
    error, known = np.abs(sol.X.to_numpy() - exact), sol.accuracy
    assert list(known.entries.columns) == list("abcdefgh")
    assert (error <= known.entries.to_numpy() + 1e-8 * unit).all()
    assert (known.entries.to_numpy().diagonal() <= 4 * EPS * unit.diagonal()).all()  # the variances are exact


def test_complex_matrices(rng):
    A = rng.standard_normal((5, 5)) + 1j * rng.standard_normal((5, 5))
    H, A = bo.PSD(5, hermitian=True), A + A.conj().T
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(H, A)), [bo.trace(H) == 1])
    exact = problem.solve(tol_X=1e-10).X
    sol = problem.solve(tol=1e-2)
    assert sol.accuracy.entries.shape == (5, 5)
    assert (np.abs(sol.X - exact) <= sol.accuracy.entries + 1e-9).all()


def test_what_nothing_can_be_said_of(rng):
    X = bo.PSD(4)
    linear = bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace(X) == 1]).solve()  # every answer is optimal
    assert linear.accuracy.largest == np.inf
    assert linear.accuracy.reason
    assert "accuracy" not in repr(linear)
    A, W = np.array([[1, 0, 0.3], [0, 1, 0], [0.3, 0, 1]]), np.ones((3, 3))
    W[0, 1] = W[1, 0] = W[1, 2] = W[2, 1] = 0  # X_01 may have any value from -1 to 1, as X_12 is free
    known = bo.nearest_correlation(A, weights=W).accuracy
    assert known.entries[0, 1] >= 1
    assert known.entries[0, 2] <= 1e-9
    W = np.ones((3, 3))
    W[0, 0] = 0  # no row bounds X_00 from above
    Y = bo.PSD(3)
    known = bo.Problem(bo.Minimize(bo.frobenius_div(Y, A, weights=W)), [Y[1, 1] == 1]).solve().accuracy
    assert known.entries[0, 0] == np.inf
    assert known.entries[0, 2] <= 1e-9
    assert "weight" in known.reason
    A = correlation(rng, 6)
    groups = bo.nearest_correlation(A, groups=[0, 0, 0, 1, 1, 1])
    assert "another matrix" in groups.accuracy.reason
    bad = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(4))), [bo.trace(X) == -1])
    with pytest.raises(bo.InfeasibleRowError):
        bad.solve()


def test_cards_state_it(rng):
    A = correlation(rng, 6)
    assert "accuracy   X is within" in repr(bo.nearest_correlation(A))
    assert "of the optimum, entry by entry" in repr(bo.nearest_correlation(np.stack([A, A])))
    assert "accuracy" in bo.nearest_correlation(np.stack([A, A])).to_frame().columns
    assert "entry by entry" in str(bo.nearest_correlation(A).report())


@pytest.mark.parametrize("value", [0, 1, -1e-3, "1e-6"])
def test_tol_X_is_checked(value):
    with pytest.raises((TypeError, ValueError), match="tol_X"):
        bo.nearest_correlation(np.eye(3), tol_X=value)


def test_the_card_clips_a_value_outside_of_its_proven_interval(rng):
    sol = bo.nearest_correlation(correlation(rng, 5))
    sol.verify()
    assert "clipped" not in repr(sol)
    lower, upper = 0.5 * sol.value, 0.75 * sol.value
    vars(sol)["_interval"] = lower, upper  # as if X missed its rows
    assert f"value      {upper:.8g}" in repr(sol)
    assert "clipped" in repr(sol)
