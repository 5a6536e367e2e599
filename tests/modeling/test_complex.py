"""Complex data: expressions against NumPy, problems of quantum information against CVXPY, errors in words."""

import operator
import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy
import scipy.sparse as sp

import bregopt as bo
from bregopt.modeling.expressions import Operand
from tests.library import peers

PAULI_Y = np.array([[0, -1j], [1j, 0]])
PHI = np.outer([1, 0, 0, 1j], [1, 0, 0, -1j]) / 2

OLD = tuple(map(int, cp.__version__.split(".")[:2])) < (1, 7)
OLD_SCIPY = tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 14)


def numbers(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def hermitian(rng, n):
    A = numbers(rng, n, n)
    return A + A.conj().T


def state(rng, n):
    A = numbers(rng, n, n)
    return A @ A.conj().T / np.linalg.norm(A) ** 2


# Expressions


def operands(rng):
    """Return operands of all kinds, with values."""
    u, t = bo.Variable(3, name="u"), bo.Variable(name="t")
    c = bo.Variable(3, complex=True, name="c")
    F, P = bo.Variable((3, 3), hermitian=True), bo.Parameter((3, 3), hermitian=True, value=hermitian(rng, 3))
    X, r, q = bo.PSD(3), bo.PSD(3, hermitian=True), bo.Parameter(complex=True, value=0.3 - 2j)
    u.value, t.value, c.value, F.value = rng.normal(size=3), 0.7, numbers(rng, 3), hermitian(rng, 3)
    r.value = state(rng, 3)
    X.value = state(rng, 3).real
    return [u, t, c, F, P, X, r, q, u[1] + t, 2 * c[1], X - 1]


def value(side):
    if isinstance(side, Operand):
        return np.asarray(side.value)
    return side.toarray() if sp.issparse(side) else np.asarray(side)


@pytest.mark.parametrize("function", [operator.add, operator.sub, operator.mul, operator.matmul])
def test_operators_are_those_of_numpy(function):
    rng = np.random.default_rng(0)
    A, given, count = numbers(rng, 3, 3), operands(rng), 0
    data = [A, 1j, np.complex128(2 - 1j), A[0], A.tolist()]
    if not (OLD_SCIPY and function is operator.mul):  # its sparse arrays do not ask the other operand
        data.append(sp.csr_array(A))
    for e in given:
        for other in (*data, *given):
            for left, right in ((e, other), (other, e))[: 1 if isinstance(other, Operand) else 2]:
                try:
                    expected = function(value(left), value(right))
                except ValueError:  # of shapes, which we refuse, too
                    with pytest.raises((TypeError, ValueError)):
                        function(left, right)
                    continue
                try:
                    found = function(left, right)
                except TypeError as error:
                    if "is a product of two" not in str(error):
                        raise
                    continue
                assert np.shape(found.value) == np.shape(expected)
                assert np.allclose(found.value, expected)
                count += 1
    assert count > 60


def test_functions_are_those_of_numpy():
    rng = np.random.default_rng(1)
    u, _, c, F, P, X, r, q, *_ = operands(rng)
    A, B = numbers(rng, 3, 3), hermitian(rng, 3)
    V, W, Y = F.value, r.value, X.value
    pairs = [
        (bo.real(c), c.value.real),
        (bo.imag(c[0]), c.value[0].imag),
        (bo.real(u), u.value),
        (bo.imag(u), 0 * u.value),
        (bo.conj(c), c.value.conj()),
        (bo.conj(u), u.value),
        (F.H, V),
        ((A @ F).H, (A @ V).conj().T),
        (c / 2j, c.value / 2j),
        (bo.inner(A, F), np.vdot(A, V)),
        (bo.inner([A, B], F), [np.vdot(A, V), np.vdot(B, V)]),
        (bo.inner(B, X), np.vdot(B, Y).real),
        (bo.inner(sp.csr_array(B), X), np.vdot(B, Y).real),
        (bo.inner(P, r), np.vdot(P.value, W)),
        (bo.inner(r.real, P), np.vdot(W.real, P.value)),
        (bo.quad_form(A[0], F), A[0].conj() @ V @ A[0]),
        (bo.quad_form(A, F), np.einsum("ki,ij,kj->k", A.conj(), V, A)),
        (bo.kron(A, u[:, None]), np.kron(A, u.value[:, None])),
        (bo.kron(P, X), np.kron(P.value, Y)),
        (bo.kron(r, P[:2, :2]), np.kron(W, P.value[:2, :2])),
        (bo.bmat([[X, A], [F.H, 2j * r]]), np.block([[Y, A], [V, 2j * W]])),
        (bo.hstack([u, c, 1j]), np.hstack([u.value, c.value, 1j])),
        (bo.vstack([c, A]), np.vstack([c.value, A])),
        (bo.sum(F, axis=1), V.sum(axis=1)),
        (bo.sum(q * A), (q.value * A).sum()),
        (bo.diag(c), np.diag(c.value)),
        (bo.trace(A @ F), np.trace(A @ V)),
        (bo.abs(c - 1), np.abs(c.value - 1)),
        (bo.abs(A @ F), np.abs(A @ V)),
        (bo.abs(F), np.abs(V)),
        (bo.norm1(F), np.abs(V).sum()),
        (bo.norm_inf(c), np.abs(c.value).max()),
        (bo.norm2(F), np.linalg.norm(V)),
        (bo.norm2(A @ F), np.linalg.norm(A @ V)),
        (bo.sum_squares(c), np.linalg.norm(c.value) ** 2),
        (bo.quad_over_lin(c, 2.0), np.linalg.norm(c.value) ** 2 / 2),
        (bo.norm_nuc(A @ F), np.linalg.norm(A @ V, "nuc")),
        (bo.square(bo.abs(c)), np.abs(c.value) ** 2),
        (next(iter(F)), V[0]),
    ]
    for ours, theirs in pairs:
        assert np.shape(ours.value) == np.shape(theirs), ours
        assert np.allclose(ours.value, theirs), ours


def test_expressions_without_imaginary_part_are_real():
    rng = np.random.default_rng(2)
    H, r, t = hermitian(rng, 3), bo.PSD(3, hermitian=True, name="r"), bo.Variable(name="t")
    energy = bo.trace(H @ r)
    rows = [energy <= 3, bo.quad_form(H[0], r - H) >= 1, np.trace(H @ H) >= energy, t == energy]
    assert [type(c) for c in rows] == 4 * [bo.Constraint]
    assert bo.Minimize(energy + bo.norm2(r)).label == "norm2(r) + trace(A @ r)"
    with pytest.raises(TypeError, match=r"trace\(A @ r\) is complex .* imaginary part is not zero"):
        bo.Minimize(bo.trace((H + 1e-9j * np.eye(3)) @ r))
    with pytest.raises(TypeError, match="imaginary part of its element"):
        bo.pos(bo.diag((H + 1e-9j * np.eye(3)) @ r))
    with pytest.raises(TypeError, match="constant is complex where a real expression is expected"):
        bo.between(t, 0, 1 + 1e-9j)


# Problems, each in our language and in CVXPY's


def discrimination(m, v):
    rng = np.random.default_rng(3)
    S, M = [state(rng, 3) for _ in range(3)], [v.psd(3) for _ in range(3)]
    rows = [sum(M) == np.eye(3)]
    return m.Maximize(
        v.re(sum(w * m.trace(s @ E) for w, s, E in zip([0.2, 0.5, 0.3], S, M, strict=True)))
    ), rows


def dual_of_discrimination(m, v):
    rng = np.random.default_rng(3)
    K = v.hermitian(3)
    rows = [K >> w * state(rng, 3) for w in (0.2, 0.5, 0.3)]
    return m.Minimize(v.re(m.trace(K))), rows


def witness(m, v):
    rho = 0.7 * PHI + 0.3 * np.eye(4) / 4
    W, P, Q = v.hermitian(4), v.psd(4), v.psd(4)
    rows = [m.trace(W) == 1, W == P + m.partial_transpose(Q, (2, 2), 1)]
    return m.Minimize(v.re(m.trace(W @ rho))), rows[:1], rows[1:]


def fidelity(m, v):
    rng = np.random.default_rng(4)
    Z = v.complex((3, 3))
    rows = [m.bmat([[state(rng, 3), Z], [Z.H, state(rng, 3)]]) >> 0]
    return m.Maximize(m.real(m.trace(Z))), [], rows


def coherence(m, v):
    q = v.real(4)
    return m.Minimize(m.sum(q)), [m.diag(q) - state(np.random.default_rng(5), 4) >> 0]


def tomography(m, v):
    rng = np.random.default_rng(6)
    E, r = [a[:, None] * a.conj() for a in numbers(rng, 12, 3)], v.psd(3)
    data = np.array([np.vdot(e, PHI[:3, :3]).real for e in E]) + 0.05 * rng.normal(size=12)
    return m.Minimize(m.norm1(m.hstack([v.re(m.trace(e @ r)) for e in E]) - data)), [v.re(m.trace(r)) == 1]


def chsh(m, v):
    G = v.psd(5)
    return m.Maximize(m.real(G[1, 3] + G[1, 4] + G[2, 3] - G[2, 4])), [m.real(m.diag(G)) == 1]


def bounded_coherences(m, v):
    rng = np.random.default_rng(7)
    H, r = hermitian(rng, 3), v.psd(3)
    rows = [v.re(m.trace(r)) == 1, m.abs(r[0, 1]) <= 0.1, m.abs(r[[0, 1], [2, 2]] - 0.1j) <= [0.2, 0.3]]
    return m.Minimize(v.re(m.trace(H @ r))), rows


def antenna(m, v):
    angles = np.linspace(-1, 1, 21)
    response = np.exp(1j * np.pi * np.outer(angles, np.arange(4)))
    w, r = v.complex(4), v.psd(1)
    rows = [m.conj(w) @ response[12] == 1, m.norm2(w) <= 0.6 if m is bo else m.norm(w) <= 0.6]
    return m.Minimize(m.max(m.abs(response[np.abs(angles - 0.2) > 0.5] @ w)) + v.re(m.trace(r))), rows


def largest_field(m, v):
    rng = np.random.default_rng(8)
    t, H = v.real(2), [hermitian(rng, 3) for _ in range(2)]
    rows = [t[0] * H[0] + H[1] * t[1] << np.eye(3), m.lambda_min(t[0] * H[0]) >= -1]
    return m.Maximize(t[0] - 2 * t[1]), rows


def l1_coherence(m, v):
    r = v.psd(3)
    A = state(np.random.default_rng(9), 3)
    rows = [r[0, 1] == 0.1 + 0.2j, v.re(r[0, 0]) == 0.5, v.re(m.trace(r)) == 1]
    return m.Minimize(m.sum(m.abs(r - A))), rows


class Ours:
    """The words of our language for variables."""

    re = staticmethod(lambda e: e)
    psd = staticmethod(lambda n: bo.PSD(n, hermitian=True))
    hermitian = staticmethod(lambda n: bo.Variable((n, n), hermitian=True))
    complex = staticmethod(lambda shape: bo.Variable(shape, complex=True))
    real = staticmethod(bo.Variable)


class Theirs:
    """Those of CVXPY, with the psd constraints that it needs."""

    re = staticmethod(cp.real)
    hermitian = staticmethod(lambda n: cp.Variable((n, n), hermitian=True))
    complex = staticmethod(lambda shape: cp.Variable(shape, complex=True))
    real = staticmethod(cp.Variable)

    def __init__(self):
        self.rows = []

    def psd(self, n):
        X = cp.Variable((n, n), hermitian=True)
        self.rows.append(X >> 0)
        return X


PROBLEMS = [
    *(discrimination, dual_of_discrimination, witness, fidelity, coherence, tomography, chsh),
    *(bounded_coherences, antenna, largest_field, l1_coherence),
]


@pytest.mark.parametrize("write", PROBLEMS)
def test_values_and_duals_are_those_of_cvxpy(write):
    """A function returns an objective, rows with unique duals, and other rows."""
    objective, rows, *others = write(bo, Ours)
    problem = bo.Problem(objective, [rows, others])
    sol = problem.solve(tol=1e-8)
    assert sol.status == "optimal"
    theirs = Theirs()
    goal, their_rows, *their_others = write(cp, theirs)
    free = [row for group in their_others for row in group]
    found = peers.ask(cp.Problem(goal, [*their_rows, *free, *theirs.rows]))
    assert abs(sol.value - found.value) <= found.error + 1e-6 * max(1, abs(sol.value))
    for ours, other in zip(rows, their_rows, strict=True):
        assert np.shape(ours.dual_value) == np.shape(other.dual_value)
        halved = OLD and np.ndim(other.dual_value) == 2  # of complex psd constraints
        theirs_is_off = 0.0  # a dual of CVXPY's solver need not be Hermitian
        if np.ndim(other.dual_value) == 2:
            theirs_is_off = np.abs(other.dual_value - other.dual_value.conj().T).max()
        assert halved or np.allclose(ours.dual_value, other.dual_value, atol=2e-3 + theirs_is_off)
    translated = peers.ask(problem)
    assert abs(sol.value - translated.value) <= translated.error + 1e-6 * max(1, abs(sol.value))


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_answers_do_not_depend_on_the_unit(unit):
    """The least |c| with a'c = b is b / |a|, at the multiple of a; its dual has the phase of b."""
    rng = np.random.default_rng(10)
    a, b = numbers(rng, 4), (0.3 - 0.4j) * unit
    c, r = bo.Variable(4, complex=True), bo.PSD(1)
    row = a.conj() @ c == b
    sol = bo.Problem(bo.Minimize(bo.norm2(c) + unit * bo.trace(r)), [row]).solve(tol=1e-9)
    size = np.linalg.norm(a)
    assert sol.value == pytest.approx(abs(b) / size, rel=1e-6)
    assert np.allclose(c.value / unit, a * b / size**2 / unit, atol=1e-6)
    assert row.dual_value == pytest.approx(-b / abs(b) / size, rel=1e-5)


def test_duals_keep_the_order_of_the_sides():
    rng = np.random.default_rng(11)
    B, q = hermitian(rng, 2), bo.Parameter(complex=True, value=0.1 + 0.1j)
    for swapped in (False, True):
        r, w = bo.PSD(2, hermitian=True), bo.Variable(complex=True)
        sides = [(r[0, 1], q), (w, r[0, 1] + 0)]
        rows = [left == right for left, right in (tuple(reversed(s)) if swapped else s for s in sides)]
        total = bo.inner(B, r) + bo.real(w) + bo.trace(r) * 4
        bo.Problem(bo.Minimize(total), [bo.trace(r) == 1, *rows]).solve(tol=1e-9)
        duals = np.array([row.dual_value for row in rows]) * (-1 if swapped else 1)
        if not swapped:
            expected = duals
        assert np.allclose(duals, expected, atol=1e-5)
    assert np.abs(expected).min() > 0.1


# Parameters


def test_parameters_are_solved_as_numbers_are():
    rng = np.random.default_rng(12)
    H, q = bo.Parameter((3, 3), hermitian=True, name="H"), bo.Parameter(complex=True, name="q")
    K = bo.Parameter((2, 3), complex=True, name="K")

    def problem(H, q, K):
        r, w, t = bo.PSD(3, hermitian=True), bo.Variable(2, complex=True), bo.Variable(name="t")
        rows = [bo.trace(r) == 1, r[0, 1] == q, K @ r[0] == w, t * H << np.eye(3), bo.abs(q * w[0]) <= 3]
        return bo.Problem(bo.Minimize(bo.inner(H, r) + bo.norm2(w) - t), rows)

    given = problem(H, q, K)
    assert given.parameters == (H, q, K)
    for _ in range(3):
        H.value, q.value, K.value = hermitian(rng, 3), 0.1 * numbers(rng)[()], numbers(rng, 2, 3)
        ours = given.solve(tol=1e-9)
        other = problem(H.value, q.value, K.value).solve(tol=1e-9)
        assert ours.value == pytest.approx(other.value, rel=1e-7)
        assert np.allclose(ours.X, other.X, atol=1e-5)


@pytest.mark.parametrize("name", ["logdet", "von_neumann", "frobenius"])
def test_centers_may_be_parameters(name):
    rng = np.random.default_rng(13)
    divergence = getattr(bo, f"{name}_div")
    r, C = bo.PSD(3, hermitian=True), bo.Parameter((3, 3), hermitian=True)
    problem = bo.Problem(bo.Minimize(divergence(r, C)), [bo.diag(r) == 1 / 3])
    for _ in range(2):
        C.value = state(rng, 3)
        sol = problem.solve(tol=1e-9)
        known = bo.Problem(bo.Minimize(divergence(r, C.value)), [bo.diag(r) == 1 / 3]).solve(tol=1e-9)
        assert sol.value == pytest.approx(known.value, rel=1e-8)
        assert np.allclose(sol.X, known.X, atol=1e-8)


# Errors


def test_bad_input_is_refused_by_name():
    rng = np.random.default_rng(14)
    A, u, c = numbers(rng, 2, 2), bo.Variable(2, name="u"), bo.Variable(2, complex=True, name="c")
    P = bo.Parameter((2, 2), hermitian=True, name="P")
    r = bo.PSD(2, hermitian=True, name="r")
    with pytest.raises(ValueError, match="value of P is not Hermitian"):
        P.value = A
    with pytest.raises(ValueError, match=r"value of c has shape \(3,\); expected \(2,\)"):
        c.value = np.zeros(3)
    with pytest.raises(ValueError, match="imaginary part of value of c has 1 NaN"):
        c.value = [1, complex(0, np.nan)]
    with pytest.raises(TypeError, match="lower is given for a complex variable"):
        bo.Variable(2, complex=True, lower=0)
    with pytest.raises(TypeError, match="lo is given for a complex parameter"):
        bo.Parameter(complex=True, lo=0, hi=1)
    with pytest.raises(ValueError, match=r"hermitian is True for shape \(2, 3\); expected a square"):
        bo.Variable((2, 3), hermitian=True)
    with pytest.raises(TypeError, match="complex is 1; expected True or False"):
        bo.Parameter(complex=1)
    with pytest.raises(TypeError, match=r"u <= B compares complex numbers, which have no order"):
        u <= A[0]
    with pytest.raises(TypeError, match=r"c >= 0 compares complex .* the imaginary part of c is not zero"):
        c >= 0
    with pytest.raises(ValueError, match=r"not Hermitian: its entries \[0, 1\] and \[1, 0\] are no"):
        A @ r >> 0
    with pytest.raises(ValueError, match=r"its entry \[0, 0\] has an imaginary part"):
        1j * np.diag([5, 1]) + r >> 0
    with pytest.raises(ValueError, match=r"0\.5 is a scalar; expected a square matrix or 0"):
        r >> 0.5
    with pytest.raises(TypeError, match="c is complex where a real expression is expected"):
        bo.square(c)
    with pytest.raises(TypeError, match="product of two expressions with variables"):
        c * r[0]
    with pytest.raises(TypeError, match="product of two expressions with parameters"):
        P @ P
    with pytest.raises(TypeError, match=r"P\[0, 1\] is complex where a real expression is expected"):
        P[0, 1] * bo.norm2(u)
    with pytest.raises(ValueError, match="F of lambda_max, A @ r, is not Hermitian"):
        bo.lambda_max(A @ r)
    with pytest.raises(ValueError, match="A of inner is not Hermitian"):
        bo.inner(A, r)
    with pytest.raises(TypeError, match=r"X0 of logdet_div is .*; expected numbers or"):
        bo.logdet_div(bo.PSD(2), P)
    for constant in (1j * P, A):
        with pytest.raises(ValueError, match="x of abs contains no variable"):
            bo.abs(constant)
    with pytest.raises(TypeError, match=r"numpy.conjugate takes no expression of bregopt; use bo\.conj"):
        np.conj(c)
    prob = bo.Problem(bo.Minimize(bo.inner(P, r)), [bo.trace(r) == 1])
    with pytest.raises(ValueError, match="parameter P has no value"):
        prob.solve()
    P.value = np.eye(2)
    with pytest.raises(ValueError, match="derivatives are known for real"):
        prob.solve().derivative()


# Files, other processes, texts


@pytest.fixture
def problem():
    rng = np.random.default_rng(15)
    P, q = bo.Parameter((2, 2), hermitian=True, name="P", value=hermitian(rng, 2)), bo.Parameter(complex=True)
    q.value = 0.1 - 0.1j
    r, c = bo.PSD(2, hermitian=True, name="r"), bo.Variable(2, complex=True, name="c")
    F, t = bo.Variable((2, 2), hermitian=True, name="F"), bo.Variable(name="t")
    rows = [
        *(bo.trace(r) == 1, r[0, 1] == q, bo.abs(c - q) <= 0.5, P @ r[0] == c, F >> r),
        *((F.H)[0, 1].imag <= 1, P[0, 0].real * t <= 1, t * P << F + np.eye(2), bo.norm1(F) <= 9),
    ]
    total = bo.inner(P, r) + bo.real(q * c[0]) + bo.sum_squares(F) - t / 10
    return bo.Problem(bo.Minimize(total + bo.sum(bo.abs(F - P))), rows)


def test_specs_hold_complex_operands(tmp_path, problem):
    sol = problem.solve(tol=1e-8)
    problem.to_spec(tmp_path / "p.toml")
    spec = bo.load_spec(tmp_path / "p.toml")
    again = spec.problem.solve(tol=1e-8)
    assert again.value == sol.value
    assert np.array_equal(again.u["F"], sol.u["F"])
    assert again.u["c"].dtype == complex
    names = {p.name: p for p in spec.problem.parameters}
    assert names["P"].is_hermitian
    assert np.array_equal(names["P"].value, problem.parameters[0].value)
    changed = bo.load_spec(tmp_path / "p.toml", {"P": np.eye(2) + 2 * PAULI_Y})
    problem.parameters[0].value = np.eye(2) + 2 * PAULI_Y
    assert changed.problem.solve(tol=1e-8).value == pytest.approx(problem.solve(tol=1e-8).value, rel=1e-7)


def test_copies_and_batches(problem):
    sol, P = problem.solve(tol=1e-8), problem.parameters[0]
    twin = pickle.loads(pickle.dumps(problem))
    assert twin.solve(tol=1e-8).value == pytest.approx(sol.value, rel=1e-8)
    kept = np.array(P.value)
    values = [kept, np.eye(2) + 2 * PAULI_Y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = list(bo.solve_many([(problem, {P: v}) for v in values], tol=1e-8))
    assert batch[0].value == pytest.approx(sol.value, rel=1e-6)
    P.value = values[1]
    assert batch[1].value == pytest.approx(problem.solve(tol=1e-8).value, rel=1e-6)


def test_texts(problem):
    assert "c (2, complex), F (2 × 2, Hermitian)" in str(problem)
    assert r"c \in \mathbb{C}^{2}" in problem._repr_latex_()
    assert "Im F" in str(problem)
    r = problem.matrices[0]
    assert (2j * r[0, 1] == 1j).label == "2j r[0, 1] == 1j"
    assert ((2 - 1j) * r[0, 0]).label == "(2-1j) r[0, 0]"
    assert (PAULI_Y * r).label == "A * r"
    assert "F.H[0, 1]" in problem.constraints[5].label
    assert repr(problem.parameters[0]) == "Parameter((2, 2), name='P', hermitian=True)"
    assert repr(problem.variables[-1]).startswith("Variable(")
