"""Hermitian variables of CVXPY through both hooks, against closed forms."""

import cvxpy as cp
import numpy as np
import pytest

import bregopt as bo
import bregopt.cvxpy

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
