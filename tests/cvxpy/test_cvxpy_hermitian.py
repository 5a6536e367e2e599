"""Hermitian variables of CVXPY through both hooks, against closed forms."""

import cvxpy as cp
import numpy as np
import pytest
from samples import turns

import bregopt as bo
import bregopt.cvxpy
from bregopt.cvxpy import BREGOPT
from bregopt.cvxpy.conic_solver import _conic
from bregopt.cvxpy.readings import read_conic
from bregopt.cvxpy.reductions import with_copies
from bregopt.routes import routing

HOOKS = [{"method": "bregopt", "strict": True, "tol": 1e-9}, {"solver": "BREGOPT"}]
bregopt.cvxpy.register()
OLD = tuple(map(int, cp.__version__.split(".")[:2])) < (1, 7)


def hermitian(n, rng):
    G = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    return (G + G.conj().T) / 2


def state(n, rng):
    G = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    return G @ G.conj().T / np.trace(G @ G.conj().T).real


@pytest.mark.parametrize("hook", HOOKS, ids=["method", "solver"])
def test_state_discrimination(hook):
    """With D = (rho - sigma) / 2 the multiplier of M psd is the negative part of D."""
    rng = np.random.default_rng(0)
    n = 3
    rho, sigma = state(n, rng), state(n, rng)
    M, N = (cp.Variable((n, n), hermitian=True) for _ in range(2))
    success = cp.real(cp.trace(rho @ M) + cp.trace(sigma @ N)) / 2
    prob = cp.Problem(cp.Maximize(success), [M >> 0, N >> 0, M + N == np.eye(n)])
    prob.solve(**hook)
    d, U = np.linalg.eigh(rho - sigma)
    assert prob.status == "optimal"
    assert np.isclose(prob.value, (2 + np.abs(d).sum()) / 4, atol=1e-7)
    assert np.allclose(M.value, (U * (d > 0)) @ U.conj().T, atol=1e-4)
    if OLD:
        pytest.skip("the duals, as CVXPY 1.6 returns other ones of complex inequalities")
    assert np.allclose(prob.constraints[0].dual_value, (U * np.maximum(-d / 2, 0)) @ U.conj().T, atol=1e-4)


@pytest.mark.parametrize("hook", HOOKS, ids=["method", "solver"])
def test_duals_of_complex_rows_are_slopes(hook):
    rng = np.random.default_rng(1)
    n, step = 3, 1e-3
    C = hermitian(n, rng)

    def solve(entry):
        X = cp.Variable((n, n), hermitian=True)
        row = X[0, 1] == entry
        prob = cp.Problem(cp.Minimize(cp.real(cp.trace(C @ X))), [X >> 0, cp.real(cp.trace(X)) == 1, row])
        return prob.solve(**hook), row.dual_value

    _, dual = solve(0.1j)
    for direction in (1, 1j):
        slope = (solve(0.1j + step * direction)[0] - solve(0.1j - step * direction)[0]) / (2 * step)
        assert np.isclose(-slope, (np.conj(dual) * direction).real, atol=1e-3)


@pytest.mark.parametrize("d", [2, 3])
def test_partial_transposes(d):
    """The largest fidelity of a PPT state with a maximally entangled one is 1/d."""
    phi = np.eye(d).ravel() / np.sqrt(d)
    X = cp.Variable((d * d, d * d), hermitian=True)
    rows = [X >> 0, cp.partial_transpose(X, (d, d), 1) >> 0, cp.real(cp.trace(X)) == 1]
    prob = cp.Problem(cp.Maximize(cp.real(phi @ X @ phi)), rows)
    assert np.isclose(prob.solve(method="bregopt", strict=True, tol=1e-9), 1 / d, atol=1e-7)
    assert X.value.dtype.kind == "c"


@pytest.mark.parametrize("atom", ["von_neumann_entr", "log_det"])
def test_spectral_objectives_are_divergences(atom):
    """No second matrix: the argument of the atom is the one that is psd."""
    X = cp.Variable((3, 3), hermitian=True)
    row = X[0, 1] == 0.1j
    prob = cp.Problem(cp.Maximize(getattr(cp, atom)(X)), [X >> 0, cp.real(cp.trace(X)) == 1, row])
    ours = bo.from_cvxpy(prob)
    assert [repr(M) for M in ours.matrices] == ["PSD(3, name='S0', hermitian=True)"]
    prob.solve(method="bregopt", strict=True)
    assert prob.solver_stats.solver_name == "bregopt: bregman"
    value, dual = prob.value, row.dual_value
    b = np.diag([1 / 3, 1 / 3, 1 / 3]).astype(complex)
    b[0, 1], b[1, 0] = 0.1j, -0.1j
    # The optimum has equal diagonal entries within {0, 1}, and its other entries are zero.
    t = np.linspace(0.3, 0.37, 2001)
    eigenvalues = np.array([t - 0.1, t + 0.1, 1 - 2 * t])
    values = np.log(eigenvalues).sum(axis=0)
    if atom == "von_neumann_entr":
        values = -(eigenvalues * np.log(eigenvalues)).sum(axis=0)
    assert np.isclose(value, values.max(), atol=1e-6)
    assert abs(np.real(dual)) < 1e-6
    assert np.imag(dual) < -0.1


def test_from_cvxpy_reads_complex_problems():
    rng = np.random.default_rng(2)
    C = hermitian(4, rng)
    X = cp.Variable((4, 4), hermitian=True)
    prob = cp.Problem(cp.Minimize(cp.real(cp.trace(C @ X))), [X >> 0, cp.real(cp.trace(X)) == 1])
    ours = bo.from_cvxpy(prob)
    sol = ours.solve(tol=1e-9)
    assert sol.X.shape == (4, 4)
    assert np.isclose(sol.value, np.linalg.eigvalsh(C)[0])


def test_a_real_form_that_a_user_wrote_is_one_matrix():
    rng = np.random.default_rng(3)
    C = hermitian(3, rng)
    A, B = cp.Variable((3, 3), symmetric=True), cp.Variable((3, 3))
    form = cp.bmat([[A, -B], [B, A]])
    prob = cp.Problem(
        cp.Minimize(cp.trace(C.real @ A) + cp.trace(C.imag.T @ B)), [form >> 0, cp.trace(A) == 1, B == -B.T]
    )
    prob.solve(method="bregopt", strict=True, tol=1e-9)
    assert np.isclose(prob.value, np.linalg.eigvalsh(C)[0], atol=1e-7)


@pytest.mark.skipif(OLD, reason="CVXPY 1.6 takes no complex scalar as the value of a parameter")
def test_complex_parameters_are_left_to_the_conic_form():
    p = cp.Parameter(complex=True, value=0.1j)
    X = cp.Variable((3, 3), hermitian=True)
    prob = cp.Problem(cp.Minimize(cp.real(cp.trace(X))), [X >> 0, X[0, 1] == p])
    with pytest.raises(bo.UnsupportedProblemError, match="is complex"):
        bo.from_cvxpy(prob)
    with pytest.warns(UserWarning, match="is complex"):
        prob.solve(method="bregopt")
    assert np.isclose(prob.value, 0.2, atol=1e-6)


def conic_form(problem):
    data, _, _ = problem.get_problem_data(BREGOPT)
    return _conic(data)


def states_between(n, rng):
    """Two Hermitian matrices, one below the other, beside a symmetric one, a bound and a free number."""
    X, Y = (cp.Variable((n, n), hermitian=True) for _ in range(2))
    S, t = cp.Variable((n, n), PSD=True), cp.Variable()
    C, D = hermitian(n, rng), hermitian(n, rng)
    rows = [X >> 0, Y >> X, cp.real(cp.trace(Y)) + cp.trace(S) == 1, cp.real(X[0, 1]) <= t, S[0, 1] == t / 2]
    return cp.Minimize(cp.real(cp.trace(C @ X) + cp.trace(D @ Y)) + S[0, 0] - t), rows


def phases(n, rng):
    """Phase retrieval, whose rows are dense."""
    a, x = rng.normal(size=(4 * n, n, 2)) @ [1, 1j], rng.normal(size=(n, 2)) @ [1, 1j]
    X = cp.Variable((n, n), hermitian=True)
    rows = [cp.real(a_k.conj() @ X @ a_k) == abs(a_k.conj() @ x) ** 2 for a_k in a]
    return cp.Minimize(cp.real(cp.trace(X))), [X >> 0, *rows]


def pencil(n, rng):
    """The largest t with C - t I - D psd for a free diagonal D: matrices with constants."""
    t, d = cp.Variable(), cp.Variable(n)
    return cp.Maximize(t), [
        hermitian(n, rng) + np.diag(np.arange(n)) - t * np.eye(n) - cp.diag(d) >> 0,
        d >= -1,
        cp.sum(d) == 0,
    ]


@pytest.mark.parametrize(("make", "seed"), turns([states_between, phases, pencil], range(2)))
def test_copies_of_variables_meet_the_conic_program(make, seed, monkeypatch):
    """Optimality of ``x`` and ``z``, with matrices of the form of Hermitian ones."""
    conic = conic_form(cp.Problem(*make(4, np.random.default_rng(seed))))
    assert with_copies(conic) is not None
    monkeypatch.setattr(bregopt.cvxpy.readings, "_MUCH_LESS", np.inf)  # the larger reading, too
    reading = next(r for r in read_conic(conic) if not r.dual)
    found = routing.solve(reading.program, "path", tol=1e-9)
    x, z = (part(*found._point) for part in (reading.x, reading.z))
    s, size = conic.b - conic.A @ x, 1 + abs(conic.c @ x)
    assert np.abs(s[: conic.zero]).max(initial=0) < 1e-7 * size
    for own in (s, z):
        assert (own[conic.zero : conic.linear] > -1e-7 * size).all()
        for S in conic.matrices(own[conic.first_psd :]):
            assert np.linalg.eigvalsh(S)[0] > -1e-7 * size
    assert np.allclose(conic.A.T @ z, -conic.c, atol=1e-7 * size)
    assert np.isclose(conic.c @ x, -conic.b @ z, atol=1e-7 * size)
    for S in conic.matrices(z[conic.first_psd :]):
        n = len(S) // 2
        if len(S) == 8:
            assert np.allclose(S[:n, :n], S[n:, n:], atol=1e-12 * size)
            assert np.allclose(S[:n, n:], -S[n:, :n], atol=1e-12 * size)


def test_a_hermitian_matrix_needs_no_rows_of_its_own():
    conic = conic_form(cp.Problem(*phases(5, np.random.default_rng(0))))
    reading = next(read_conic(conic))
    assert reading.program.m == 20
    assert [block.n for block in reading.program.blocks] == [10]


@pytest.mark.parametrize("form", ["constant", "entry", "factor", "sign", "none"])
def test_nearly_hermitian_matrices_have_no_copies(form):
    """One entry differs from that of a Hermitian matrix."""
    Y, Z, E = cp.Variable((3, 3), symmetric=True), cp.Variable((3, 3)), np.zeros((3, 3))
    E[0, 1] = E[1, 0] = 1.0
    skew = (Z - Z.T) / 2
    other = {
        "constant": Y + E,
        "entry": Y + Y[0, 0] * E,
        "factor": Y + cp.multiply(E, Y),
        "sign": Y,
        "none": Y,
    }[form]
    S = cp.bmat([[Y, Z if form == "sign" else skew], [Z.T if form == "sign" else -skew, other]])
    conic = conic_form(cp.Problem(cp.Minimize(cp.trace(Y) + Z[0, 1]), [S >> 0, Y[0, 0] == 1]))
    assert (with_copies(conic) is None) == (form != "none")


def test_infeasible_hermitian_matrices_have_a_proof():
    X = cp.Variable((3, 3), hermitian=True)
    problem = cp.Problem(cp.Minimize(cp.real(X[0, 0])), [X >> 0, X[0, 1] == 2j, cp.real(cp.trace(X)) == 1])
    problem.solve(solver="BREGOPT")
    assert problem.status == "infeasible"
    problem = cp.Problem(cp.Minimize(cp.imag(X[0, 1])), [X >> 0, X[2, 2] == 1])
    problem.solve(solver="BREGOPT")
    assert problem.status == "unbounded"


def test_parameters_keep_the_copies():
    X, p = cp.Variable((3, 3), hermitian=True), cp.Parameter()
    problem = cp.Problem(
        cp.Minimize(cp.imag(X[0, 1]) + p * cp.real(X[0, 2])),
        [X >> 0, X[2, 2] == 1, cp.real(cp.trace(X)) == 2],
    )
    for p.value in (0.0, 1.0, -3.0):
        fresh = cp.Problem(problem.objective, problem.constraints).solve(method="bregopt", tol=1e-9)
        assert np.isclose(problem.solve(solver="BREGOPT"), fresh, atol=1e-6)
