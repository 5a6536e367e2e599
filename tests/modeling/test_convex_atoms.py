"""Convex atoms: values, curvature, and problems beside CVXPY with their duals and statuses."""

import warnings

import numpy as np
import peers
import pytest
import scipy.sparse as sp
from languages import CVXPY, OURS
from samples import first

import bregopt as bo

SEEDS = range(2)


def data(seed):
    """Return random numbers for all models."""
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(3, 3))
    return rng.normal(size=(4, 3)), rng.normal(size=4), S + S.T, rng.normal(size=(2, 3))


class Model:
    """Variables and expressions of one language: vectors, matrices, and what they are made of."""

    def __init__(self, m, seed):
        A, b, S, G = data(seed)
        self.m, self.X = m, m.PSD(3, name="X")
        self.x, self.t, self.y = m.Variable(3, name="x"), m.Variable(name="t"), m.Variable(name="y")
        self.r = A @ self.x - b + 0.3 * self.X[0, 1]  # a vector of both kinds of variables
        self.F = self.X + self.y * np.eye(3) - S  # symmetric
        self.R = self.X[:2, :] - G  # rectangular
        self.held = [m.diag(self.X) <= 2, self.X[0, 2] >= 0.4, m.trace(self.X) >= 2]


CONVEX = {
    "abs": lambda m, p: m.sum(m.abs(p.r)),
    "pos": lambda m, p: m.sum(m.pos(p.r)),
    "square": lambda m, p: m.sum(m.square(p.r)),
    "norm1": lambda m, p: m.norm1(p.r),
    "norm2": lambda m, p: m.norm2(p.r),
    "norm_inf": lambda m, p: m.norm_inf(p.r),
    "max": lambda m, p: m.max(p.r) + 2 * m.norm2(p.x),
    "maximum": lambda m, p: m.sum(m.maximum(p.r, 0.5, -p.r)),
    "sum_squares": lambda m, p: m.sum_squares(p.r),
    "quad_over_lin": lambda m, p: m.quad_over_lin(p.r, p.y + 1) + m.square(p.y),
    "lambda_max": lambda m, p: m.lambda_max(p.F) + m.square(p.y),
    "lambda_max of a variable": lambda m, p: m.lambda_max(p.X),
    "lambda_sum_largest": lambda m, p: m.lambda_sum_largest(p.F, 2) + m.square(p.y),
    "sigma_max": lambda m, p: m.sigma_max(p.R),
    "norm_nuc": lambda m, p: m.norm_nuc(p.R),
    "norm_nuc of a variable": lambda m, p: m.norm_nuc(p.X),
    "min": lambda m, p: -m.min(p.r) + 2 * m.norm2(p.x),
    "minimum": lambda m, p: -m.sum(m.minimum(p.r, 0.5)) + 0.1 * m.norm2(p.x),
    "lambda_min": lambda m, p: m.square(p.y) - m.lambda_min(p.F),
    "matrix products": lambda m, p: m.max(
        np.array([[1.0, 2.0], [0.0, 0.5]]) @ m.abs(p.R) @ np.array([[1.0], [0.5], [2.0]])
    ),
    "max of abs": lambda m, p: m.max(m.abs(p.r)),
    "norm2 of abs": lambda m, p: m.norm2(m.abs(p.r)),
    "norm1 of pos": lambda m, p: m.norm1(m.pos(p.r)),
    "sum_squares of pos": lambda m, p: m.sum_squares(m.pos(p.r)),
    "square of norm1": lambda m, p: m.square(m.norm1(p.r)),
    "pos of a sum": lambda m, p: m.pos(m.norm2(p.r) - 0.5 + m.max(p.x)) + 0.1 * m.norm_inf(p.x),
    "maximum of norms": lambda m, p: m.maximum(m.norm2(p.r), m.lambda_max(p.X)),
    "weights": lambda m, p: np.array([1.0, 2.0, 0.0, 0.5]) @ m.abs(p.r),
    "slices": lambda m, p: m.sum(m.abs(p.r)[1:]) + 3 * m.square(p.r)[0],
    "a sum": lambda m, p: (
        2 * m.norm1(p.r) + m.sum_squares(p.x) / 4 + m.norm2(p.x - 1) - m.min(p.x) + p.X[0, 0]
    ),
    "quad_over_lin of a concave": lambda m, p: m.quad_over_lin(p.r, m.min(p.x) + 3),
}


def both(seed, make):
    """Return our solved problem and the peer's answer to the same model."""
    ours, theirs = make(Model(OURS, seed)), make(Model(CVXPY, seed))
    return ours, theirs


@pytest.mark.parametrize("seed", first(1, SEEDS))
@pytest.mark.parametrize("name", CONVEX)
def test_minimized(name, seed):
    def make(p):
        return p.m.Problem(p.m.Minimize(CONVEX[name](p.m, p) + 0.1 * p.m.trace(p.X)), p.held)

    ours, theirs = both(seed, make)
    found = ours.solve(tol=1e-7)
    assert (found.status, found.solver) == ("optimal", "path")
    peer = peers.ask(theirs)
    peer.confirms(found)
    assert ours.objective.expression.value == pytest.approx(found.value, abs=1e-5 * max(1, abs(found.value)))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CONVEX)
def test_bounded(name, seed):
    """The bound is a little above the least value; the rest of the objective is linear."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        least = bo.Problem(*_least(Model(OURS, seed), name)).solve(tol=1e-5).value

    def make(p, bound):
        linear = p.m.sum(p.x) + 0.5 * p.m.trace(p.X) - p.X[0, 1] + 0.3 * p.y
        inequality = CONVEX[name](p.m, p) <= bound
        box = [p.m.abs(p.x) <= 5, p.m.norm_inf(p.y) <= 5]
        return p.m.Problem(p.m.Minimize(linear), [inequality, *box, *p.held])

    bound = least + 0.5 + 0.2 * abs(least)
    ours, theirs = both(seed, lambda p: make(p, bound))
    capped = name == "lambda_max of a variable"  # it belongs to the variable, and has no dual
    found = ours.solve(tol=1e-7)
    assert found.status == "optimal"
    assert found.solver == ("cvxpy" if capped else "path")
    peer = peers.ask(theirs)
    peer.confirms(found)
    for c, dual in zip(ours.constraints, peer.duals, strict=True):
        if c.dual_value is not None:
            peer.near(c.dual_value, dual, 2e-4 * max(1.0, np.abs(dual).max()))
    inequality = ours.constraints[0]
    if not capped:
        assert inequality.dual_value >= 0
    if not capped and seed:  # by default the multiplier is compared with Clarabel's alone
        step = 1e-3
        values = [make(Model(OURS, seed), bound + s * step).solve(tol=1e-9).value for s in (1, -1)]
        slope = (values[1] - values[0]) / (2 * step)
        assert inequality.dual_value == pytest.approx(slope, rel=1e-2, abs=1e-3)


def _least(p, name):
    return p.m.Minimize(CONVEX[name](p.m, p)), [p.m.abs(p.x) <= 5, p.m.norm_inf(p.y) <= 5, *p.held]


# --- Statuses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        lambda x, X: [bo.norm1(x) <= 1, bo.sum(x) >= 2],
        lambda x, X: [bo.max(bo.abs(x)) <= 1, x[0] >= 2],
        lambda x, X: [bo.norm_inf(x) <= -1],
        lambda x, X: [bo.pos(x) <= -1],
        lambda x, X: [bo.min(x) >= 1, bo.sum(x) <= 2],
        lambda x, X: [bo.lambda_max(X - 3 * np.eye(2)) <= -3.5],
        lambda x, X: [bo.lambda_max(X) <= -1],
        lambda x, X: [bo.lambda_min(X) >= 1, bo.trace(X) <= 1],
        lambda x, X: [bo.sigma_max(X - np.eye(2)) <= 0.5, X[0, 1] >= 1],
        lambda x, X: [bo.norm_nuc(X[:1, :]) <= 0.5, X[0, 1] >= 1],
        lambda x, X: [bo.lambda_sum_largest(X - np.eye(2), 1) <= 1, X[0, 0] >= 3],
        lambda x, X: [bo.quad_over_lin(x, 1 - x[0]) <= 1, x[1] >= 4],
        lambda x, X: [bo.square(x) <= 1, x[2] <= -2],
        lambda x, X: [bo.norm1(x) + bo.norm2(x) <= 1, x[0] == 1],
    ],
)
def test_infeasible(rows):
    X, x = bo.PSD(2, name="X"), bo.Variable(3, name="x")
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= 0.1, *rows(x, X)])
    assert problem.solve("path").status == "infeasible"
    duals = [np.max(c.dual_value) for c in problem.constraints]
    assert max(duals) > 0
    assert min(np.min(c.dual_value) for c in problem.constraints[1:2]) >= 0


@pytest.mark.parametrize(
    "objective",
    [
        lambda x, X: bo.max(x),
        lambda x, X: bo.lambda_max(x[0] * np.eye(2) + X),
        lambda x, X: bo.norm1(x) + 2 * bo.sum(x),
        lambda x, X: -bo.min(x),
        lambda x, X: bo.pos(x[0]) + x[1],
        lambda x, X: bo.norm_nuc(X) - x[0],
        lambda x, X: bo.sigma_max(X) - bo.trace(X),
    ],
)
def test_unbounded(objective):
    X, x = bo.PSD(2, name="X"), bo.Variable(3, name="x")
    problem = bo.Problem(bo.Minimize(objective(x, X)), [X[0, 1] >= 0.1])
    assert problem.solve("path").status == "unbounded"
    assert problem.solution.duals is None


# --- log_det ------------------------------------------------------------------------------------------


LOG_DET = {
    "of a variable": lambda m, p: m.log_det(p.X) - m.trace(p.X),
    "twice a variable": lambda m, p: 2 * m.log_det(p.X) - 3 * m.inner(np.eye(3) + 0.2, p.X) + 1,
    "of an expression": lambda m, p: m.log_det(p.X + np.eye(3)) - 0.5 * m.trace(p.X),
    "of a variable and of an expression": lambda m, p: (
        m.log_det(p.X) + m.log_det(2 * np.eye(3) - p.X) + p.X[0, 1]
    ),
    "with a norm": lambda m, p: m.log_det(p.X) - 0.3 * m.norm1(p.X - np.eye(3)) - m.trace(p.X),
    "with squares": lambda m, p: m.log_det(p.X) - m.sum_squares(p.X[0] - 1) - m.trace(p.X),
    "of an ordinary variable": lambda m, p: m.log_det(p.X + p.y * np.eye(3)) - m.square(p.y) - m.trace(p.X),
}


@pytest.mark.parametrize("name", LOG_DET)
def test_log_det(name):
    def make(p):
        return p.m.Problem(p.m.Maximize(LOG_DET[name](p.m, p)), p.held)

    ours, theirs = both(0, make)
    found = ours.solve(tol=1e-6)
    assert found.status == "optimal"
    peer = peers.ask(theirs)
    peer.confirms(found)
    assert ours.objective.expression.value == pytest.approx(found.value, abs=1e-4)
    for c, dual in zip(ours.constraints, peer.duals, strict=True):
        peer.near(c.dual_value, dual, 1e-3 * max(1.0, np.abs(dual).max()))


def test_log_det_beside_a_divergence():
    X, X0 = bo.PSD(3, name="X"), np.eye(3) + 0.3
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, X0) - bo.log_det(X)), [bo.trace(X) == 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        found = problem.solve()
    assert found.value == pytest.approx(
        np.linalg.norm(X.value - X0) ** 2 - np.linalg.slogdet(X.value)[1], abs=1e-4
    )


def test_two_divergences_beside_ordinary_variables():
    def make(p):
        m, Y = p.m, p.m.PSD(2, name="Y")
        objective = (
            m.logdet_div(p.X, np.eye(3)) + 2 * m.frobenius_div(Y, np.ones((2, 2))) + m.square(p.y) + p.t
        )
        return m.Problem(m.Minimize(objective), [p.t >= p.X[0, 1] + Y[0, 1], p.t >= 0.3, p.y == Y[0, 0] - 1])

    ours, theirs = both(0, make)
    found = ours.solve(tol=1e-6)
    assert found.status == "optimal"
    peers.ask(theirs).confirms(found)


# --- The rules ----------------------------------------------------------------------------------------


ABOVE = "is convex, and a convex expression may be bounded from above only"
BELOW = "is concave, and a concave expression may be bounded from below only"
CONVEX_MIX = r"is neither convex nor concave: it adds norm1\(x\) \(convex\) and -norm2\(x\) \(concave\)"


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (lambda x, t, X: bo.norm1(x) >= 1, TypeError, r"norm1\(x\) >= 1 is not convex: norm1\(x\) " + ABOVE),
        (lambda x, t, X: 1 <= bo.norm1(x), TypeError, ABOVE),
        (lambda x, t, X: t <= bo.max(x), TypeError, ABOVE),
        (lambda x, t, X: bo.min(x) <= t, TypeError, BELOW),
        (lambda x, t, X: bo.lambda_min(X) <= 1, TypeError, BELOW),
        (lambda x, t, X: bo.log_det(X) <= 1, TypeError, BELOW),
        (lambda x, t, X: bo.norm1(x) - bo.norm2(x) <= 1, TypeError, CONVEX_MIX),
        (lambda x, t, X: bo.norm1(x) <= bo.norm2(x), TypeError, r"norm2\(x\) " + ABOVE),
        (lambda x, t, X: bo.norm1(x) == 1, TypeError, "only affine expressions may be equated"),
        (lambda x, t, X: x == bo.abs(x), TypeError, "only affine expressions may be equated"),
        (lambda x, t, X: bo.Minimize(bo.min(x)), TypeError, "a concave expression may be maximized only"),
        (lambda x, t, X: bo.Maximize(bo.norm1(x)), TypeError, "a convex expression may be minimized only"),
        (lambda x, t, X: bo.Minimize(bo.norm1(x) - bo.norm2(x)), TypeError, CONVEX_MIX),
        (lambda x, t, X: bo.Minimize(bo.abs(x)), ValueError, "expected a scalar"),
        (lambda x, t, X: bo.norm1(x) * t, TypeError, "a product of expressions is not"),
        (lambda x, t, X: t * bo.norm1(x), TypeError, "a product of expressions is not"),
        (lambda x, t, X: bo.norm1(x) * bo.norm2(x), TypeError, "a product of expressions is not"),
        (lambda x, t, X: bo.norm1(x) / t, TypeError, "a ratio of expressions is not"),
        (lambda x, t, X: bo.norm1(x) / 0, ValueError, r"division of norm1\(x\) by zero"),
        (lambda x, t, X: x @ bo.abs(x), TypeError, "a product of expressions is not"),
        (
            lambda x, t, X: bo.norm1(bo.norm1(x) - 1),
            TypeError,
            r"norm1\(norm1\(x\) - 1\) is not convex: norm1 is convex and not monotone here, so its argument "
            r"must be affine, and norm1\(x\) - 1 is convex",
        ),
        (
            lambda x, t, X: bo.max(bo.min(x)),
            TypeError,
            "max is convex and nondecreasing here, so its argument must be affine or convex, and",
        ),
        (
            lambda x, t, X: bo.quad_over_lin(x, bo.norm1(x)),
            TypeError,
            "nonincreasing here, so its second argument must be affine or concave",
        ),
        (
            lambda x, t, X: bo.max(bo.logdet_div(X, np.eye(2))),
            TypeError,
            "a divergence may be minimized only",
        ),
        (lambda x, t, X: bo.logdet_div(X, np.eye(2)) <= 1, TypeError, "a divergence may be minimized only"),
        (lambda x, t, X: bo.lambda_max(bo.abs(X)), TypeError, "not affine"),
        (lambda x, t, X: bo.between(bo.norm1(x), 0, 1), TypeError, "norm1.* is convex, and not affine"),
        (lambda x, t, X: bo.soft(bo.norm1(x) <= 1), TypeError, "soft takes a constraint"),
        (lambda x, t, X: bo.diag(X) @ bo.abs(x), TypeError, "a product of expressions is not"),
        (lambda x, t, X: bo.norm1([1, 2]), ValueError, "x of norm1 contains no variable"),
        (lambda x, t, X: bo.maximum(1, 2), ValueError, "no variable"),
        (lambda x, t, X: bo.maximum(), ValueError, "no arguments"),
        (lambda x, t, X: bo.maximum(x, X), ValueError, "do not go together"),
        (lambda x, t, X: bo.quad_over_lin(x, x), ValueError, "expected a scalar"),
        (lambda x, t, X: bo.quad_over_lin(x, 0), ValueError, "expected a number above 0"),
        (lambda x, t, X: bo.lambda_max(X[:1, :]), ValueError, "expected a square matrix"),
        (lambda x, t, X: bo.lambda_max(x), ValueError, "expected a"),
        (lambda x, t, X: bo.lambda_max(X + np.triu(np.ones((2, 2)))), ValueError, "is not symmetric"),
        (lambda x, t, X: bo.log_det(X * [[1, 2], [3, 4]]), ValueError, "is not symmetric"),
        (lambda x, t, X: bo.lambda_max(x[0] * np.triu(np.ones((2, 2)))), ValueError, "is not symmetric"),
        (lambda x, t, X: bo.lambda_sum_largest(X, 3), ValueError, "expected an integer from 1 to 2"),
        (lambda x, t, X: bo.lambda_sum_largest(X, 1.5), TypeError, "expected an integer from 1 to 2"),
        (lambda x, t, X: bo.norm1(x) <= np.nan, ValueError, "bound of norm1"),
        (lambda x, t, X: bo.norm1(x) <= "t", TypeError, "bound of norm1"),
        (lambda x, t, X: bo.norm1(x) < 1, TypeError, "write <="),
        (lambda x, t, X: bool(bo.norm1(x) <= 1), TypeError, "truth value"),
        (lambda x, t, X: list(bo.norm1(x)), TypeError, "scalar"),
        (lambda x, t, X: bo.abs(x)[7], ValueError, "index"),
        (lambda x, t, X: np.ones((2, 2)) @ bo.abs(x), ValueError, "expected"),
        (
            lambda x, t, X: bo.Problem(bo.Minimize(bo.trace(X)), [bo.log_det(X) >= 1]),
            bo.UnsupportedProblemError,
            r"log_det\(X\) is in a constraint, .*; expected it as a term of an objective",
        ),
    ],
)
def test_refusals_name_the_rule(write, error, message):
    with pytest.raises(error, match=message):
        write(bo.Variable(3, name="x"), bo.Variable(name="t"), bo.PSD(2, name="X"))


def test_affine_results_are_affine():
    X = bo.PSD(2, name="X")
    for e in (bo.norm_nuc(X), bo.lambda_sum_largest(X, 2), 0 * bo.norm1(X) + bo.trace(X)):
        assert e.curvature == "affine"
        assert (e == 1).sense == "=="
        assert (e >= 1).sense == ">="


def test_signs_are_known_where_data_tell():
    x, y, X = bo.Variable(2, nonneg=True), bo.Variable(2, upper=0), bo.PSD(2)
    for e in (bo.abs(y), x + 1, bo.diag(X), 2 * x - y, bo.sum(bo.abs(x)) + bo.trace(X), bo.max(bo.pos(x))):
        assert bo.norm2(bo.norm2(e) + e).curvature == "convex"
    for e in (x - 1, X[0, 1], x + y, bo.Parameter() + x):
        with pytest.raises(TypeError, match="not monotone"):
            bo.norm2(bo.norm2(e) + e)
    assert bo.square(-bo.norm1(x)).curvature == "convex"  # nonincreasing of a concave
    assert bo.square(bo.min(y)).curvature == "convex"


def test_values_are_those_of_numpy():
    rng = np.random.default_rng(0)
    x, X = bo.Variable((2, 3), name="x"), bo.PSD(3, name="X")
    assert bo.norm1(x).value is None
    assert (bo.norm1(x) + bo.trace(X)).value is None
    v, M = rng.normal(size=(2, 3)), np.cov(rng.normal(size=(3, 9)))
    x.value, X.value = v, M
    w = np.linalg.eigvalsh(M - 1)
    for e, expected in {
        bo.abs(x): np.abs(v),
        bo.pos(x): np.maximum(v, 0),
        bo.square(x): v**2,
        bo.maximum(x, 0.1, -x): np.maximum(np.abs(v), 0.1),
        bo.minimum(x, 0.1): np.minimum(v, 0.1),
        bo.max(x): v.max(),
        bo.min(x): v.min(),
        bo.norm1(x): np.abs(v).sum(),
        bo.norm2(x): np.linalg.norm(v),
        bo.norm_inf(x): np.abs(v).max(),
        bo.sum_squares(x): (v**2).sum(),
        bo.quad_over_lin(x, X[0, 0]): (v**2).sum() / M[0, 0],
        bo.quad_over_lin(x, 2): (v**2).sum() / 2,
        bo.lambda_max(X - 1): w[-1],
        bo.lambda_min(X - 1): w[0],
        bo.lambda_sum_largest(X - 1, 2): w[1:].sum(),
        bo.sigma_max(x): np.linalg.norm(v, 2),
        bo.norm_nuc(x): np.linalg.norm(v, "nuc"),
        bo.norm_nuc(X): np.trace(M),
        bo.log_det(X): np.linalg.slogdet(M)[1],
        bo.log_det(X - 9 * np.eye(3)): -np.inf,
        2 * bo.norm1(x) - 3 + X[0, 0] / 2: 2 * np.abs(v).sum() - 3 + M[0, 0] / 2,
        np.ones(2) @ bo.abs(x)[:, 0]: np.abs(v)[:, 0].sum(),
        bo.abs(x)[0] @ np.eye(3)[:, :2]: np.abs(v)[0, :2],
        np.arange(4.0).reshape(2, 2) @ bo.abs(x): np.arange(4.0).reshape(2, 2) @ np.abs(v),
        bo.abs(x) @ np.arange(6.0).reshape(3, 2): np.abs(v) @ np.arange(6.0).reshape(3, 2),
        np.array([1.0, -2.0]) @ bo.abs(x) @ np.ones(3): np.array([1.0, -2.0]) @ np.abs(v) @ np.ones(3),
        bo.abs(x) @ sp.csr_array(np.eye(3)): np.abs(v),
        bo.sum(bo.square(x)): (v**2).sum(),
        bo.norm1(x) + x: np.abs(v).sum() + v,
        (bo.norm1(x) + x)[0, 1]: np.abs(v).sum() + v[0, 1],
        [1.0, 2, 3] * bo.pos(x): np.array([1.0, 2, 3]) * np.maximum(v, 0),
        -bo.min(x) / 2: -v.min() / 2,
        bo.norm2(bo.square(x) + bo.norm1(x)): np.linalg.norm(v**2 + np.abs(v).sum()),
    }.items():
        np.testing.assert_allclose(e.value, expected, rtol=1e-12)
    assert [part.value for part in bo.abs(x)[0]] == pytest.approx(np.abs(v)[0])


def test_expressions_are_readable():
    x, X = bo.Variable(3, name="x"), bo.PSD(2, name="X")
    A = np.ones((2, 3))
    assert str(2 * bo.norm1(x) - bo.min(x) + bo.trace(X)) == "2 norm1(x) - min(x) + trace(X)"
    assert str(A @ bo.abs(x)) == "A @ abs(x)"
    assert str(bo.sum(bo.abs(x))) == "sum(abs(x))"
    assert str(bo.lambda_sum_largest(X, 1) + bo.lambda_sum_largest(X - 1, 1)).startswith("lambda_max(X) + ")
    assert repr(bo.norm1(x) <= bo.trace(X)) == "ConvexConstraint(norm1(x) <= trace(X), rows=1)"
    assert repr(bo.trace(X) >= bo.norm1(x)) == "ConvexConstraint(norm1(x) <= trace(X), rows=1)"
    assert repr(bo.abs(x) <= 1) == "ConvexConstraint(abs(x) <= 1, rows=3)"
    assert repr(bo.norm1(x) <= 1 + bo.min(x)) == "ConvexConstraint(norm1(x) <= min(x) + 1, rows=1)"


# --- Programs -----------------------------------------------------------------------------------------


def test_bounds_of_single_atoms_need_no_variable():
    X, x = bo.PSD(2, name="X"), bo.Variable(3, name="x")
    for inequality, rows in (
        (bo.abs(x) <= 1, 6),
        (bo.max(x) <= bo.trace(X), 3),
        (bo.norm_inf(x) <= 1, 6),
        (2 * bo.lambda_max(X - 1) <= 3, 3),
        (bo.min(x) >= 1, 3),
    ):
        program = bo.Problem(bo.Minimize(bo.trace(X) + bo.sum(x)), [inequality]).program()
        assert (program.m, program.k) == (rows, 3)


def test_domains_of_variables_are_their_bounds():
    """Other affine arguments, and variables that may be negative only, keep rows."""
    p, t = bo.Variable(3, name="p"), bo.Variable(3, lower=-2, upper=[-1, 2, 2])
    for argument, rows in ((p, 1), (2 * p[::-1], 1), (p - 0.1, 4), (p[:2] + p[1:], 3)):
        problem = bo.Problem(bo.Maximize(bo.sum(bo.entr(argument))), [bo.sum(p) == 1])
        assert problem.program().m == rows
        assert problem.solve().status == "optimal"
        assert p.value == pytest.approx(np.full(3, 1 / 3), abs=1e-4) or rows == 3
    assert bo.Problem(bo.Maximize(bo.sum(bo.entr(t))), []).solve().status == "infeasible"
    ball = bo.Problem(bo.Maximize(bo.sum(bo.entr(p[:2]))), [bo.sum(p) == 1, bo.norm2(p) <= 1])
    sol = ball.solve(tol=1e-8)  # the entropy alone is largest at 1 / e, which the other rows allow
    assert sol.value == pytest.approx(2 / np.e, abs=1e-7)
    assert p.value == pytest.approx([1 / np.e, 1 / np.e, 1 - 2 / np.e], abs=1e-4)


def test_terms_of_objectives_are_soft_rows():
    X, x = bo.PSD(2, name="X"), bo.Variable(3, name="x")
    objective = bo.norm1(x) + 2 * bo.sum(bo.pos(x)) + bo.sum_squares(x) / 2 + np.ones(3) @ bo.square(x)
    program = bo.Problem(bo.Minimize(objective + bo.trace(X))).program()
    assert (program.m, program.k) == (12, 3)
    np.testing.assert_array_equal(program.bounds.gamma, np.repeat([1, 2, 0.5, 1], 3))


def test_epigraphs_are_not_the_users():
    X, x = bo.PSD(2, name="X"), bo.Variable(3, name="x")
    problem = bo.Problem(bo.Minimize(bo.max(x) + bo.norm_nuc(X - 1)), [bo.norm1(x) <= 1])
    found = problem.solve(tol=1e-8)
    assert problem.matrices == (X,)
    assert problem.variables == (x,)
    assert set(found.u) == {"x"}
    assert found.X.shape == (2, 2)
    assert np.asarray(X.value) == pytest.approx(np.ones((2, 2)), abs=1e-3)
    assert found.value == pytest.approx(-1 / 3, abs=1e-6)
    assert problem.solve(warm_start=True).value == pytest.approx(-1 / 3, abs=1e-4)


def test_a_problem_of_spectral_atoms_needs_no_matrix_variable():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 4, 4))
    A, x = A + A.transpose(0, 2, 1), bo.Variable(2)
    problem = bo.Problem(bo.Minimize(bo.lambda_max(A[0] + x[0] * A[1] + x[1] * A[2])))
    found = problem.solve(tol=1e-8)
    assert (found.status, found.X) == ("optimal", ())
    w = np.linalg.eigvalsh(A[0] + x.value[0] * A[1] + x.value[1] * A[2])
    assert w[-1] == pytest.approx(found.value, abs=1e-6)
    assert "answer" in repr(found)


def test_parameters():
    X, x, p = bo.PSD(2, name="X"), bo.Variable(3, name="x"), bo.Parameter(value=1.0, name="p")
    b = bo.Parameter(3, value=[1.0, 2, 3])
    penalty = bo.Problem(bo.Minimize(p * bo.norm1(x) + bo.sum_squares(x - b) + bo.trace(X)), [X[0, 1] == 1])
    bound = bo.Problem(bo.Minimize(bo.norm2(x - b) + bo.trace(X)), [bo.norm1(x) <= p, X[0, 1] == 1])
    for value in (1.0, 2.0):
        p.value = value
        shrunk = np.maximum(np.arange(1, 4) - value / 2, 0)
        penalty.solve(tol=1e-8)
        np.testing.assert_allclose(x.value, shrunk, atol=1e-3)
        bound.solve(tol=1e-8)
        assert np.abs(x.value).sum() == pytest.approx(value, abs=1e-5)
    p.value = -1.0
    with pytest.raises(ValueError, match="value -1"):
        penalty.solve()


def test_parameters_weigh_epigraphs():
    X, x, p = bo.PSD(2, name="X"), bo.Variable(3, name="x"), bo.Parameter(value=1.0, name="p")
    objective = bo.sum(x) + p * bo.norm_inf(x) + 2 * (p * bo.sum_squares(x)) + bo.trace(X)
    problem = bo.Problem(bo.Minimize(objective), [X[0, 1] == 1])
    bound = bo.Problem(bo.Minimize(bo.trace(X) - bo.sum(x)), [p * bo.norm2(x) + x[0] <= 2, X[0, 1] == 1])
    for value in (1.0, 2.0):
        p.value = value
        # By symmetry x = -s (1, 1, 1), and s maximizes 3 s - p s - 6 p s^2.
        s = (3 - value) / (12 * value)
        assert problem.solve(tol=1e-8).status == "optimal"
        np.testing.assert_allclose(x.value, -s, atol=1e-3)
        assert bound.solve(tol=1e-8).status == "optimal"
        assert value * np.linalg.norm(x.value) + x.value[0] == pytest.approx(2, abs=1e-5)
        step = 1e-4
        shifted = [p * bo.norm2(x) + x[0] <= 2 + step, X[0, 1] == 1]
        more = bo.Problem(bo.Minimize(bo.trace(X) - bo.sum(x)), shifted).solve(tol=1e-9).value
        rate = (bound.solution.value - more) / step
        assert bound.constraints[0].dual_value == pytest.approx(rate, rel=1e-2)
    p.value = -1.0
    with pytest.raises(ValueError, match=r"p is -1\.0, a weight of a term; expected from 0 up"):
        bound.solve()
    with pytest.raises(TypeError, match="product of two parameters"):
        p * (p * bo.norm1(x))


def test_a_parameter_weighs_what_a_number_weighs():
    S = np.array([[2.0, 0.6, 0.1], [0.6, 1.0, 0.3], [0.1, 0.3, 1.5]])
    p = bo.Parameter(value=0.3, name="p")
    values = []
    for weight in (p, 0.3):
        X, x = bo.PSD(3, name="X"), bo.Variable(3, name="x")
        hinges = weight * bo.norm1(X) + weight * (np.array([1, 0, 2.0]) @ bo.abs(x - 1))
        lasso = bo.Problem(bo.Minimize(bo.inner(S, X) - bo.log_det(X) + hinges), [x[0] >= 2 + X[0, 1]])
        scaled = bo.Problem(bo.Minimize(weight * (bo.inner(S, X) - bo.log_det(X) + bo.norm1(X))))
        values.append([peers.reference(lasso, within=1e-5).value, scaled.solve(tol=1e-8).value])
    np.testing.assert_allclose(*values, rtol=1e-6)
    problem = bo.Problem(bo.Maximize(p * bo.log_det(X) - bo.trace(X)))
    problem.solve(tol=1e-10)
    np.testing.assert_allclose(X.value, 0.3 * np.eye(3), atol=1e-4)


def test_specifications_know_the_atoms():
    from bregopt.io.evaluate import evaluate

    names = {"x": bo.Variable(2, name="x"), "X": bo.PSD(2, name="X")}
    assert repr(evaluate("max(abs(x)) <= lambda_min(X)", names)) == (
        "ConvexConstraint(max(abs(x)) <= lambda_min(X), rows=1)"
    )
    with pytest.raises(TypeError, match="bounded from above only"):
        evaluate("norm_nuc(X - 1) >= 1", names)


@pytest.mark.parametrize("atom", [bo.abs, bo.pos, bo.square, bo.norm1, bo.sum_squares, bo.norm2])
def test_factors_that_are_all_zero(atom):
    X, x = bo.PSD(2), bo.Variable(3)
    nothing = bo.sum(np.zeros(3) * atom(x))
    sol = bo.Problem(bo.Minimize(nothing + bo.sum(x) + bo.trace(X)), [bo.norm_inf(x) <= 2]).solve()
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(-6, abs=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, X: np.zeros((0, 0)) * bo.norm1(x),
        lambda x, X: bo.abs(x) @ np.zeros((3, 0)),
        lambda x, X: X @ np.zeros((2, 0)),
        lambda x, X: X @ sp.csr_array((2, 0)),
    ],
)
def test_empty_factors_are_refused(make):
    with pytest.raises(ValueError, match="it is empty; expected at least one number"):
        make(bo.Variable(3), bo.PSD(2))


def test_divisors_below_the_smallest_normal_number():
    with pytest.raises(ValueError, match="Inf"):
        bo.norm1(bo.Variable(3)) / 5e-324
