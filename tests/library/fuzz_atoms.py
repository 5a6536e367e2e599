"""Targets of `fuzz.py`: random convex expressions, written once for bregopt, NumPy and CVXPY."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from fuzz_values import QUICK, require, sensible, symmetric, unmodified

import bregopt as bo

N = 3  # order of the matrix variables
BOX = 4.0  # bound on ordinary variables
TRACE = 10.0  # bound on traces
SINGLE = ("abs", "max", "min", "pos", "square", "sum_squares", "norm1", "norm2", "norm_inf", "norm_nuc")
SINGLE += ("sigma_max", "lambda_max", "lambda_min", "log", "log_det")
NEAR = 1e-3  # of values and rows of an answer that is optimal to the default tolerance, relative


def singular_values(F):
    return np.linalg.svd(F, compute_uv=False)


def eigenvalues(F):
    return np.linalg.eigvalsh((F + F.conj().T) / 2)


def traced(M, dims, keep):
    """Return the partial trace over one of two factors."""
    parts = M.reshape(*dims, *dims)
    return np.einsum("iaja->ij" if keep == 0 else "aiaj->ij", parts)


def transposed(M, dims, which):
    """Return the transpose in one of two factors."""
    turned = (2, 1, 0, 3) if which == 0 else (0, 3, 2, 1)
    return M.reshape(*dims, *dims).transpose(turned).reshape(M.shape)


NUMPY = SimpleNamespace(
    sum=np.sum,
    trace=np.trace,
    diag=np.diag,
    abs=np.abs,
    pos=lambda x: np.maximum(x, 0.0),
    square=np.square,
    maximum=lambda *x: np.max(np.broadcast_arrays(*x), axis=0),
    minimum=lambda *x: np.min(np.broadcast_arrays(*x), axis=0),
    max=np.max,
    min=np.min,
    norm1=lambda x: np.abs(x).sum(),
    norm2=lambda x: np.linalg.norm(np.ravel(x)),
    norm_inf=lambda x: np.abs(x).max(),
    sum_squares=lambda x: np.sum(np.abs(x) ** 2),
    quad_over_lin=lambda x, y: np.sum(np.abs(x) ** 2) / y,
    lambda_max=lambda F: eigenvalues(F)[-1],
    lambda_min=lambda F: eigenvalues(F)[0],
    lambda_sum_largest=lambda F, k: eigenvalues(F)[-k:].sum(),
    sigma_max=lambda F: singular_values(F)[0],
    norm_nuc=lambda F: singular_values(F).sum(),
    log=np.log,
    log_det=lambda F: np.log(eigenvalues(F)).sum(),
    bmat=np.block,
    hstack=np.hstack,
    vstack=np.vstack,
    kron=np.kron,
    partial_trace=traced,
    partial_transpose=transposed,
)


def in_cvxpy():
    """Return the language of CVXPY."""
    import cvxpy as cp
    from languages import CVXPY

    others = {
        "hstack": cp.hstack,
        "vstack": cp.vstack,
        "kron": cp.kron,
        "partial_trace": lambda M, dims, keep: cp.partial_trace(M, dims, axis=1 - keep),
        "partial_transpose": lambda M, dims, which: cp.partial_transpose(M, dims, axis=which),
    }
    return SimpleNamespace(**{**vars(CVXPY), **others})


class Expressions:
    """Random expressions: functions of a language ``m`` and of the variables ``p`` in it."""

    def __init__(self, rng, hermitian):
        self.rng, self.hermitian = rng, hermitian

    def numbers(self, *shape):
        return np.round(self.rng.normal(size=shape), 1)

    def coin(self, share=0.5):
        return self.rng.random() < share

    def one(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def vector(self):
        """Return an affine real vector."""
        A, b, c = self.numbers(3, 3), self.numbers(3), self.numbers(3)
        if self.hermitian:
            return self.one(
                lambda m, p: A @ p.x - b + real(m.diag(p.X)),
                lambda m, p: c * real(p.X[0, 1]) + p.x - b,
                lambda m, p: m.hstack([p.x - b, imag(p.X[:, 1]), real(p.X[2, 2]) + p.y]),
            )
        return self.one(
            lambda m, p: A @ p.x - b + c * p.X[0, 1],
            lambda m, p: m.diag(p.X) - 2 * p.x + p.y,
            lambda m, p: p.X @ c + b,
            lambda m, p: m.hstack([p.x - b, p.X[0, 1:], A[0] @ p.X]),
            lambda m, p: m.vstack([p.x, c - p.y * b])[0] + b,
            lambda m, p: (A @ p.X @ A.T)[1] - p.x,
        )

    def symmetric(self):
        """Return an affine symmetric or Hermitian matrix."""
        S, b, D = symmetric(self.rng, N), self.numbers(N), np.diag([1.0, 2.0])
        if self.hermitian:
            T = self.numbers(N, N)
            S = S + 1j * (T - T.T)
            return self.one(
                lambda m, p: p.X - S,
                lambda m, p: p.X + p.y * np.eye(N),
                lambda m, p: m.partial_transpose(m.kron(D, p.X), (2, N), 0) - p.y * np.eye(2 * N),
                lambda m, p: m.partial_trace(m.kron(D, p.X), (2, N), 1) - S,
            )
        return self.one(
            lambda m, p: p.X,
            lambda m, p: p.X - S,
            lambda m, p: p.X + p.y * np.eye(N) - S,
            lambda m, p: S @ p.X @ S - p.X,
            lambda m, p: m.diag(p.x) - p.X,
            lambda m, p: m.bmat([[p.X, b[:, None]], [b[None, :], np.ones((1, 1))]]),
            lambda m, p: m.kron(D, p.X) - m.kron(p.X, D),
            lambda m, p: m.partial_transpose(m.kron(D, p.X), (2, N), 1) + p.y * np.eye(2 * N),
            lambda m, p: m.partial_trace(m.kron(D, p.X), (2, N), 0),
        )

    def matrix(self):
        """Return an affine matrix that need not be symmetric."""
        G, A = self.numbers(2, N), self.numbers(2, N)
        if self.hermitian:
            G = G + 1j * self.numbers(2, N)
            return self.one(lambda m, p: p.X[:2] - G, lambda m, p: p.X - np.eye(N))
        return self.one(
            lambda m, p: p.X[:2, :] - G,
            lambda m, p: A @ p.X + G,
            lambda m, p: m.vstack([p.X, p.X[:1, :]]),
            lambda m, p: m.hstack([p.X, G.T]) - p.y,
        )

    def convex(self, depth=2):
        """Return a convex scalar."""
        if depth and self.coin():
            return self.composed(depth)
        k, r, F, M = int(self.rng.integers(1, 3)), self.vector(), self.symmetric(), self.matrix()
        c, above = self.numbers(1)[0], float(self.rng.random()) + 0.1
        return self.one(
            lambda m, p: m.sum(m.abs(r(m, p))),
            lambda m, p: m.sum(m.pos(r(m, p))),
            lambda m, p: m.sum(m.square(r(m, p))),
            lambda m, p: m.norm1(r(m, p)),
            lambda m, p: m.norm2(r(m, p)),
            lambda m, p: m.norm_inf(r(m, p)),
            lambda m, p: m.max(r(m, p)),
            lambda m, p: -m.min(r(m, p)),
            lambda m, p: m.sum(m.maximum(r(m, p), c, -2 * r(m, p))),
            lambda m, p: -m.sum(m.minimum(r(m, p), c)),
            lambda m, p: m.sum_squares(r(m, p)),
            lambda m, p: m.quad_over_lin(r(m, p), p.y + BOX + above),
            lambda m, p: m.quad_over_lin(r(m, p), m.min(p.x) + BOX + above),
            lambda m, p: m.lambda_max(F(m, p)),
            lambda m, p: -m.lambda_min(F(m, p)),
            lambda m, p: m.lambda_sum_largest(F(m, p), k),
            lambda m, p: m.sigma_max(M(m, p)),
            lambda m, p: m.norm_nuc(M(m, p)),
        )

    def composed(self, depth):
        """Return a convex scalar of convex ones."""
        f, g, r = self.convex(depth - 1), self.convex(depth - 1), self.vector()
        c, w = self.numbers(1)[0], np.round(self.rng.random(2) + 0.1, 1)
        return self.one(
            lambda m, p: w[0] * f(m, p) + w[1] * g(m, p) - c,
            lambda m, p: m.maximum(f(m, p), g(m, p)),
            lambda m, p: m.pos(f(m, p) - c),
            lambda m, p: m.square(m.pos(f(m, p))),
            lambda m, p: m.norm2(m.abs(r(m, p))),
            lambda m, p: m.max(m.square(r(m, p))),
            lambda m, p: m.square(m.norm1(r(m, p))),
        )


def real(e):
    """Return the real part in any language; traces of Hermitian matrices are real already."""
    return getattr(e, "real", e) if not hasattr(e, "is_real") else _parts(e)[0]


def imag(e):
    return e.imag if not hasattr(e, "is_real") else _parts(e)[1]


def _parts(e):
    import cvxpy as cp

    return (e, 0 * e) if e.is_real() else (cp.real(e), cp.imag(e))


def model(rng, hermitian):
    """Return the objective, the rows ``f <= 0`` with their kind, and a feasible point."""
    make = Expressions(rng, hermitian)
    R = rng.normal(size=(N, N)) + (1j * rng.normal(size=(N, N)) if hermitian else 0.0)
    known = SimpleNamespace(
        X=(R @ R.conj().T) * 0.5 * TRACE / np.linalg.norm(R) ** 2,
        x=rng.uniform(-1, 1, N),
        y=rng.uniform(-1, 1),
    )
    f, c = make.convex(), make.numbers(N)
    logs = not hermitian and make.coin(0.25)
    barrier = make.one(
        lambda m, p: m.log_det(p.X),
        lambda m, p: m.log_det(p.X + np.eye(N)),
        lambda m, p: m.sum(m.log(p.x + BOX + 0.1)),
    )
    if logs:
        objective = lambda m, p: f(m, p) + c @ p.x - barrier(m, p)  # noqa: E731
    elif make.coin(0.2):
        objective = lambda m, p: c @ p.x + real(m.trace(p.X)) - 0.5 * p.y  # noqa: E731
    else:
        objective = lambda m, p: f(m, p) + 0.1 * (c @ p.x)  # noqa: E731
    rows = [
        lambda m, p: real(m.trace(p.X)) - TRACE,
        lambda m, p: m.norm_inf(p.x) - BOX,
        lambda m, p: m.abs(p.y) - BOX,
    ]
    for _ in range(rng.integers(0, 3)):
        g = make.convex()
        room = float(g(NUMPY, known)) + float(rng.choice([0.1, 1.0]))
        rows.append(lambda m, p, g=g, room=room: g(m, p) - room)
    return objective, rows, known


def solved(rng, hermitian):
    """Solve a random convex problem; judge its value, its rows, its bound and CVXPY's opinion."""
    objective, rows, known = model(rng, hermitian)
    mine = SimpleNamespace(
        X=bo.PSD(N, hermitian=True, name="X") if hermitian else bo.PSD(N, name="X"),
        x=bo.Variable(N, name="x"),
        y=bo.Variable(name="y"),
    )
    maximize = rng.random() < 0.3
    sign = rng.choice([1.0, 1.0, 1e-6, 1e6]) * (-1.0 if maximize else 1.0)
    aim = bo.Maximize(sign * objective(bo, mine)) if maximize else bo.Minimize(sign * objective(bo, mine))
    problem = bo.Problem(aim, [row(bo, mine) <= 0 for row in rows])
    if rng.random() < 0.1:
        contradiction = bo.norm2(mine.x) + bo.lambda_max(mine.X) <= -0.1
        status = bo.Problem(aim, [*problem.constraints, contradiction]).solve(**QUICK).status
        require(status not in ("optimal", "unbounded"), f"{status}; a norm is below zero")
        return status
    found = problem.solve("auto" if rng.random() < 0.8 else "cvxpy", **QUICK)
    says = f"{found.status} by {found.solver}: {found.value} +- {found.error}"
    require(found.status not in ("infeasible", "unbounded"), f"{says}; the problem has a solution")
    at = float(objective(NUMPY, known))
    value, bound = ((np.nan if x is None else x) / sign for x in (found.value, found.dual_value))
    size = 1 + abs(at) + abs(np.nan_to_num(value))
    require(not bound > at + 1e-6 * size, f"{says}: bound {bound} above {at}")
    if found.status != "optimal":
        return found.status
    point = SimpleNamespace(X=np.asarray(mine.X.value), x=np.asarray(mine.x.value), y=float(mine.y.value))
    own = float(objective(NUMPY, point))
    require(abs(own - value) <= NEAR * size, f"{says}: NumPy has {own}, the answer {value}")
    stated = aim.expression.value / sign
    require(abs(stated - value) <= NEAR * size, f"{says}: the expression is {stated}, the answer {value}")
    off = max(float(np.max(row(NUMPY, point))) for row in rows)
    require(off <= NEAR * TRACE, f"{says}: rows missed by {off:.1e}")
    require(eigenvalues(point.X)[0] >= -1e-6 * TRACE, f"{says}: X is not psd")
    require(value <= at + NEAR * size, f"{says}: a known point has {at}, the answer {value}")
    if rng.random() < 0.4:
        agrees(objective, rows, hermitian, value, found.error / abs(sign), says)
    return found.status


def agrees(objective, rows, hermitian, value, error, says):
    """Check a value beside that of Clarabel; a failure of Clarabel says nothing."""
    import cvxpy as cp

    m = in_cvxpy()
    X = cp.Variable((N, N), hermitian=True) if hermitian else cp.Variable((N, N), PSD=True)
    theirs = SimpleNamespace(X=X, x=cp.Variable(N), y=cp.Variable())
    held = [row(m, theirs) <= 0 for row in rows] + ([X >> 0] if hermitian else [])
    problem = cp.Problem(cp.Minimize(objective(m, theirs)), held)
    require(problem.is_dcp(), "CVXPY does not find the problem convex")
    try:
        expected = problem.solve(solver="CLARABEL")
    except cp.SolverError:
        return
    if problem.status == "optimal":
        apart = abs(value - expected)
        require(apart <= error + 1e-4 * (1 + abs(expected)), f"{says}; Clarabel has {expected}")


def convex_problems(rng):
    return solved(rng, hermitian=False)


def hermitian_problems(rng):
    return solved(rng, hermitian=True)


def atoms(rng):
    """Apply an atom to a good expression and a hostile value, and solve a problem with the result."""
    X, x, y = bo.PSD(N, name="X"), bo.Variable(N, name="x"), bo.Variable(name="y")
    H = bo.PSD(4, hermitian=True, name="H") if rng.random() < 0.3 else bo.PSD(4, name="H")
    bad, good, other = (sensible(rng, N) for _ in range(3))
    make = Expressions(rng, hermitian=False)
    r, F = (
        make.vector()(bo, SimpleNamespace(X=X, x=x, y=y)),
        make.symmetric()(bo, SimpleNamespace(X=X, x=x, y=y)),
    )
    operand = [
        bad,
        lambda: r * bad,
        lambda: F + bad,
        lambda: F @ bad,
        lambda: r.__rmatmul__(bad),
        lambda: r,
        lambda: F,
    ][rng.integers(7)]
    name = str(rng.choice(SINGLE))
    e = lambda: operand() if callable(operand) and operand is not bad else bad  # noqa: E731
    calls = [
        *4 * [lambda: getattr(bo, name)(e())],
        lambda: bo.maximum(e(), other, good),
        lambda: bo.minimum(r, e()),
        lambda: bo.quad_over_lin(e(), y),
        lambda: bo.quad_over_lin(r, bad),
        lambda: bo.lambda_sum_largest(F, bad),
        lambda: bo.lambda_sum_largest(e(), 2),
        lambda: bo.kron(e(), good),
        lambda: bo.kron(good, bad),
        lambda: bo.partial_trace(H, bad, 0),
        lambda: bo.partial_trace(e(), (2, 2), 0),
        lambda: bo.partial_trace(H, (2, 2), bad),
        lambda: bo.partial_transpose(H, (2, 2), bad),
        lambda: bo.partial_transpose(H, bad, other),
        lambda: bo.bmat([[F, e()], [other, good]]),
        lambda: bo.bmat(bad),
        lambda: bo.hstack([e(), r, other]),
        lambda: bo.vstack(bad),
        lambda: bo.vstack([r, e()]),
        lambda: bo.PSD(N, hermitian=bad),
        lambda: bo.inner(bad, H),
        lambda: bad * bo.norm1(r),
        lambda: bo.norm2(r) <= bad,
        lambda: bo.lambda_max(X) <= bad,
        lambda: bo.log_det(X) + bad,
        lambda: bo.abs(r)[bad],
        lambda: bo.abs(r).__rmatmul__(bad),
        lambda: F >> bad,
        lambda: bo.sum(bo.square(r), bad),
    ]
    with unmodified(bad, good, other):
        made = calls[rng.integers(len(calls))]()
        if isinstance(made, bool | np.bool_):
            return "a truth value"
        rows = [bo.trace(X) <= 5, bo.norm_inf(x) <= 2, bo.abs(y) <= 2]
        aim = bo.sum(x) + bo.trace(X)
        if hasattr(made, "curvature") or hasattr(made, "shape"):
            aim = aim + (bo.sum(made) if getattr(made, "shape", ()) else made)
        else:
            rows.append(made)
        return bo.Problem(bo.Minimize(aim), rows).solve(**QUICK).status
