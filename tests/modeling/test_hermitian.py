"""Hermitian matrices: expressions against NumPy, answers against closed forms, duals against differences."""

import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp
from samples import turns

import bregopt as bo

DIVERGENCES = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}


def hermitian(n, rng):
    G = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    return (G + G.conj().T) / 2


def definite(n, rng):
    G = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    return G @ G.conj().T / n + np.eye(n) / 2


def unitary(n, rng):
    return la.expm(1j * hermitian(n, rng))


def variable(n, rng, name="X"):
    X = bo.PSD(n, name=name, hermitian=True)
    X.value = definite(n, rng)
    return X, X.value


def simplex(v):
    """Return the nearest vector of the unit simplex."""
    s = np.sort(v)[::-1]
    above = (np.cumsum(s) - 1) / np.arange(1, len(v) + 1)
    return np.maximum(v - above[np.flatnonzero(s > above)[-1]], 0)


def bell(d):
    phi = np.eye(d).ravel() / np.sqrt(d)
    return np.outer(phi, phi)


# Expressions


def test_expressions_have_the_values_of_numpy():
    rng = np.random.default_rng(0)
    X, V = variable(4, rng)
    A, c = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4)), 0.3 - 2j
    pairs = [
        (X[0, 1], V[0, 1]),
        (X[1], V[1]),
        (X[[0, 2], [3, 2]], V[[0, 2], [3, 2]]),
        (X[1:, :2][0], V[1:, :2][0]),
        (X.T, V.T),
        (X.conj(), V.conj()),
        (X.H, V),
        (X[:, :2].H, V[:, :2].conj().T),
        (X + A, V + A),
        (A - X, A - V),
        (-X * c + X[0, 0].real, -V * c + V[0, 0].real),
        (A * X / c, A * V / c),
        (X[0] @ A, V[0] @ A),
        (A @ X[:, 2], A @ V[:, 2]),
        (X[0, 1] + X[1, 2].imag, V[0, 1] + V[1, 2].imag),
        (bo.diag(X - A), np.diag(V - A)),
        (bo.trace(X - A), np.trace(V - A)),
        (bo.sum(A * X), (A * V).sum()),
    ]
    for ours, theirs in pairs:
        assert np.shape(ours.value) == np.shape(theirs), ours
        assert np.allclose(ours.value, theirs), ours
    Z = rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))
    real = [
        (X.real, V.real),
        (X.imag, V.imag),
        (X.real[0, 1] - 2 * X.imag[2, 1], V[0, 1].real - 2 * V[2, 1].imag),
        (bo.trace(X), np.trace(V).real),
        (bo.diag(X), np.diag(V).real),
        (bo.sum(X.real), V.real.sum()),
        (bo.inner(A + A.conj().T, X), np.trace((A + A.conj().T) @ V).real),
        (bo.inner([A + A.conj().T, np.eye(4)], X)[1], np.trace(V).real),
        (bo.inner(sp.csr_array(A + A.conj().T), X), np.trace((A + A.conj().T) @ V).real),
        (bo.quad_form(Z, X), np.einsum("ki,ij,kj->k", Z.conj(), V, Z).real),
        (bo.quad_form(Z[0], X), (Z[0].conj() @ V @ Z[0]).real),
        (bo.sq_distance(X, 0, 2), (V[0, 0] + V[2, 2] - 2 * V[0, 2].real).real),
        (bo.sq_distance(X, [0, 1], [2, 3])[1], (V[1, 1] + V[3, 3] - 2 * V[1, 3].real).real),
    ]
    for ours, theirs in real:
        assert np.shape(ours.value) == np.shape(theirs), ours
        assert np.allclose(ours.value, theirs), ours


@pytest.mark.parametrize("is_complex", [False, True])
def test_maps_of_subsystems(is_complex):
    rng = np.random.default_rng(1)
    dims = (2, 3, 2)
    X = bo.PSD(12, hermitian=is_complex)
    X.value = definite(12, rng) if is_complex else definite(12, rng).real
    T = X.value.reshape(*dims, *dims)
    for axis in range(3):
        traced = np.trace(T, axis1=axis, axis2=axis + 3)
        k = 12 // dims[axis]
        others = [factor for factor in range(3) if factor != axis]
        assert np.allclose(bo.partial_trace(X, dims, others).value, traced.reshape(k, k))
        both = np.trace(
            np.trace(T, axis1=others[1], axis2=others[1] + 3), axis1=others[0], axis2=others[0] + 2
        )
        assert np.allclose(bo.partial_trace(X, dims, axis).value, both)
        turned = np.swapaxes(T, axis, axis + 3).reshape(12, 12)
        assert np.allclose(bo.partial_transpose(X, dims, axis).value, turned)
        assert np.allclose(bo.partial_transpose(X - np.eye(12), dims, axis).value, turned - np.eye(12))
    for A in (rng.normal(size=(2, 3)), rng.normal(size=(2, 1)) * (1 + 1j)):
        assert np.allclose(bo.kron(A, X).value, np.kron(A, X.value))
        assert np.allclose(bo.kron(X[:2, :5], A).value, np.kron(X.value[:2, :5], A))


def test_rows_of_a_whole_matrix():
    rng = np.random.default_rng(2)
    A = definite(3, rng)
    X = bo.PSD(3, hermitian=True)
    sol = bo.Problem(bo.Minimize(bo.trace(X)), [X == A]).solve()
    assert sol.status == "optimal"
    assert np.allclose(sol.X, A, atol=1e-6)


# Bad input


def test_complex_numbers_are_not_ordered():
    X = bo.PSD(3, hermitian=True, name="X")
    with pytest.raises(TypeError, match=r"X\[0, 1\] <= 1 compares complex numbers, which have no order"):
        X[0, 1] <= 1
    with pytest.raises(TypeError, match="no order"):
        1 <= X
    with pytest.raises(
        TypeError, match=r"X\[0, 1\] is complex where a real expression is expected: the imaginary"
    ):
        bo.Minimize(X[0, 1])
    with pytest.raises(TypeError, match="X is complex where"):
        bo.pos(X)


def test_bad_input_is_refused_by_name():
    X = bo.PSD(3, hermitian=True, name="X")
    skew = np.array([[1, 1j, 0], [1j, 1, 0], [0, 0, 1]])
    with pytest.raises(ValueError, match=r"A of inner is not Hermitian: entry \(0, 1\) is 0\+1j but"):
        bo.inner(skew, X)
    with pytest.raises(ValueError, match="X0 of logdet_div is not Hermitian"):
        bo.logdet_div(X, skew)
    with pytest.raises(ValueError, match="X0 of von_neumann_div is not positive definite"):
        bo.von_neumann_div(X, np.diag([1.0, 1.0, 0.0]))
    with pytest.raises(ValueError, match="imaginary part of A of inner has 1 NaN"):
        bo.inner(np.diag([1, 1, complex(1, np.nan)]), X)
    with pytest.raises(ValueError, match="value of X is not Hermitian"):
        X.value = skew
    with pytest.raises(ValueError, match="value of X has the eigenvalue"):
        X.value = -np.eye(3)
    with pytest.raises(TypeError, match="hermitian is 1; expected True or False"):
        bo.PSD(3, hermitian=1)
    with pytest.raises(ValueError, match="A of inner is not Hermitian"):
        bo.inner(skew, bo.PSD(3))
    with pytest.raises(TypeError, match="X0 of logdet_div is LowRank, but X is Hermitian"):
        bo.logdet_div(X, bo.LowRank(np.ones((3, 1))))
    with pytest.raises(ValueError, match="rows of length 3"):
        bo.quad_form(np.ones(2), X)
    with pytest.raises(ValueError, match="division"):
        X / 0
    with pytest.raises(ValueError, match=r"dims of partial_trace is \(2, 2\) for shape \(3, 3\)"):
        bo.partial_trace(X, (2, 2), 0)
    with pytest.raises(ValueError, match="which of partial_transpose is 2; expected integers from 0 to 1"):
        bo.partial_transpose(X, (3, 1), 2)
    with pytest.raises(ValueError, match="not Hermitian"):
        X * 1j >> 0
    with pytest.raises(TypeError, match="soft takes no complex"):
        bo.soft(X[0, 1] == 1j)


# Answers


@pytest.mark.parametrize("name", DIVERGENCES)
def test_real_data_are_a_special_case(name):
    rng = np.random.default_rng(3)
    n, div = 5, DIVERGENCES[name]
    X0, A = definite(n, rng).real, hermitian(n, rng).real
    answers = []
    for X in (bo.PSD(n), bo.PSD(n, hermitian=True)):
        entry = X[0, 1] if isinstance(X, bo.PSD) else X[0, 1].real
        rows = [
            bo.trace(X) == 3,
            bo.inner(A, X) >= 1,
            entry <= 0.1,
            bo.diag(X) >= 0.2,
            bo.sq_distance(X, 0, 1) <= 1,
        ]
        sol = bo.Problem(bo.Minimize(2 * div(X, X0) + entry), rows).solve(tol=1e-9)
        assert sol.status == "optimal"
        answers.append((sol, [np.atleast_1d(row.dual_value) for row in rows]))
    (real, y), (other, z) = answers
    assert np.isclose(real.value, other.value, rtol=1e-7)
    assert np.allclose(real.X, other.X, atol=1e-4)
    assert np.abs(other.X.imag).max() < 1e-8
    assert np.allclose(np.concatenate(y), np.concatenate(z), atol=1e-3)
    assert real.rank == other.rank


@pytest.mark.parametrize("name", DIVERGENCES)
def test_answers_turn_with_the_data(name):
    rng = np.random.default_rng(4)
    n, div = 4, DIVERGENCES[name]
    X0, A, U = definite(n, rng), [hermitian(n, rng) for _ in range(3)], unitary(n, rng)
    b = [np.trace(a @ definite(n, rng)).real for a in A[:1]]

    def solve(turn):
        X = bo.PSD(n, hermitian=True)
        turned = [turn @ a @ turn.conj().T for a in (X0, *A)]
        rows = [bo.inner(turned[1], X) == b[0], bo.inner(np.array(turned[2:]), X) <= 0.5]
        return bo.Problem(bo.Minimize(div(X, turned[0])), rows).solve(tol=1e-9)

    plain, turned = solve(np.eye(n)), solve(U)
    assert plain.status == turned.status == "optimal"
    assert np.isclose(plain.value, turned.value, rtol=1e-7)
    assert np.allclose(U @ plain.X @ U.conj().T, turned.X, atol=1e-4)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_duals_are_slopes(name):
    rng = np.random.default_rng(5)
    n, div = 4, DIVERGENCES[name]
    X0, entry, step = definite(n, rng), 0.2 + 0.1j, 1e-4

    def solve(moved):
        X = bo.PSD(n, hermitian=True)
        row, total = X[0, 1] == entry + moved, X[[2, 0], [1, 3]] == np.array([0.1j, 0.2])
        sol = bo.Problem(bo.Minimize(div(X, X0)), [row, total]).solve(tol=1e-11)
        return sol.value, row.dual_value, total.dual_value

    _, dual, others = solve(0)
    assert isinstance(dual, complex)
    assert others.shape == (2,)
    for direction in (1, 1j):
        slope = (solve(step * direction)[0] - solve(-step * direction)[0]) / (2 * step)
        assert np.isclose(-slope, (np.conj(dual) * direction).real, atol=1e-4)


@pytest.mark.parametrize("n", [4, 16])
def test_gibbs_states(n):
    """With expectations of A_k the state nearest to the maximally mixed one is exp(sum theta_k A_k) / Z."""
    rng = np.random.default_rng(6)
    A = np.array([hermitian(n, rng) for _ in range(4)])
    gibbs = la.expm(np.tensordot(rng.normal(size=4) / 5, A, 1))
    gibbs /= np.trace(gibbs).real
    X = bo.PSD(n, hermitian=True)
    rows = [bo.trace(X) == 1, bo.inner(A, X) == np.einsum("kij,ji->k", A, gibbs).real]
    prob = bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(n) / n)), rows)
    sol = prob.solve(tol=1e-11)
    eigenvalues = np.linalg.eigvalsh(gibbs)
    assert np.isclose(sol.value, np.log(n) + eigenvalues @ np.log(eigenvalues), atol=1e-9)
    assert np.allclose(sol.X, gibbs, atol=1e-7)
    assert sol.rank == n
    assert np.isclose(prob.objective.expression.value, sol.value)


def test_nearest_density_matrix():
    rng = np.random.default_rng(7)
    n = 12
    A = hermitian(n, rng)
    d, U = np.linalg.eigh(A)
    nearest = (U * simplex(d)) @ U.conj().T
    X = bo.PSD(n, hermitian=True)
    sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.trace(X) == 1]).solve(tol=1e-12)
    assert np.allclose(sol.X, nearest, atol=1e-10)
    assert sol.rank == np.linalg.matrix_rank(nearest)
    assert np.isclose(sol.value, np.linalg.norm(A - nearest) ** 2)


def test_sums_of_squares_of_complex_numbers():
    rng = np.random.default_rng(7)
    A = hermitian(4, rng)
    X = bo.PSD(4, hermitian=True)
    squares = bo.Problem(bo.Minimize(bo.sum_squares(X - A)), [bo.trace(X) == 1]).solve(tol=1e-9)
    distance = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.trace(X) == 1]).solve(tol=1e-9)
    assert np.isclose(squares.value, distance.value)
    assert np.allclose(squares.X, distance.X, atol=1e-4)


def test_routes_agree():
    rng = np.random.default_rng(8)
    X = bo.PSD(4, hermitian=True, name="X")
    rows = [bo.trace(X) == 1, X[0, 1] == 0.1j, bo.quad_form(rng.normal(size=4) + 1j, X) <= 1]
    prob = bo.Problem(bo.Minimize(bo.inner(hermitian(4, rng), X)), rows)
    table = bo.cross_check(prob, solvers=("path", "psdboost", "lowrank", "cvxpy"))
    assert table.ok
    assert np.isclose(prob.to_cvxpy().solve(), prob.solve().value, atol=1e-5)


def test_weighted_frobenius():
    rng = np.random.default_rng(8)
    n = 4
    A, H = definite(n, rng), np.ones((n, n))
    H[0, 1] = H[1, 0] = 0  # an unknown entry
    X = bo.PSD(n, hermitian=True)
    sol = bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), [X[0, 1] == 0.1j]).solve()
    assert np.isclose(sol.X[0, 1], 0.1j, atol=1e-6)
    expected = A.copy()
    expected[0, 1], expected[1, 0] = 0.1j, -0.1j
    if np.linalg.eigvalsh(expected)[0] > 0:
        assert np.allclose(sol.X, expected, atol=1e-4)


def test_state_discrimination():
    """Helstrom: the best measurement of two states succeeds with (1 + ||p rho - q sigma||_1) / 2."""
    rng = np.random.default_rng(9)
    n, p = 4, 0.3
    rho, sigma = (a / np.trace(a).real for a in (definite(n, rng), definite(n, rng)))
    M, N = bo.PSD(n, hermitian=True, name="M"), bo.PSD(n, hermitian=True, name="N")
    success = bo.inner(p * rho, M) + bo.inner((1 - p) * sigma, N)
    sol = bo.Problem(bo.Maximize(success), [M + N == np.eye(n)]).solve(tol=1e-9)
    best = (1 + np.abs(np.linalg.eigvalsh(p * rho - (1 - p) * sigma)).sum()) / 2
    assert np.isclose(sol.value, best, atol=1e-8)
    assert len(sol.X) == 2
    assert np.allclose(sol.X[0] + sol.X[1], np.eye(n), atol=1e-7)


@pytest.mark.parametrize("d", [2, 3])
def test_matrix_inequality_of_a_partial_transpose(d):
    """The largest fidelity of a PPT state with a maximally entangled one is 1/d."""
    X = bo.PSD(d * d, hermitian=True, name="X")
    ppt = bo.partial_transpose(X, (d, d), 1) >> 0
    prob = bo.Problem(bo.Maximize(bo.inner(bell(d), X)), [bo.trace(X) == 1, ppt])
    sol = prob.solve(tol=1e-9)
    assert np.isclose(sol.value, 1 / d, atol=1e-8)
    assert prob.matrices == (X,)
    assert sol.X.shape == (d * d, d * d)
    S = ppt.dual_value
    assert np.allclose(S, S.conj().T)
    assert np.linalg.eigvalsh(S)[0] > -1e-7
    assert ppt.label == f"partial_transpose(X, [{d}, {d}], which=[1]) >> 0"


@pytest.mark.parametrize("write", [lambda X, B: X - B >> 0, lambda X, B: B << X[:, :], lambda X, B: X >> B])
def test_matrix_inequalities_and_their_duals(write):
    """With C and B definite the least <C, X> over X >> B is at X = B, and the dual is C."""
    rng = np.random.default_rng(10)
    n = 3
    B, C = definite(n, rng), definite(n, rng)
    X = bo.PSD(n, hermitian=True)
    row = write(X, B)
    sol = bo.Problem(bo.Minimize(bo.inner(C, X)), [row]).solve(tol=1e-9)
    assert np.allclose(sol.X, B, atol=1e-6)
    assert np.allclose(row.dual_value, C, atol=1e-5)


def test_largest_eigenvalues_are_bounded():
    X = bo.PSD(3, hermitian=True)
    X0 = np.diag([4.0, 2.0, 1.0])
    rows = [bo.trace(X) == 1, bo.lambda_max(X) <= 0.5]
    sol = bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), rows).solve()
    assert np.allclose(sol.X, np.diag([1 / 2, 1 / 3, 1 / 6]), atol=1e-4)


def test_real_and_hermitian_matrices_in_one_problem():
    np.random.default_rng(11)
    n = 3
    X, Y, u = bo.PSD(n, hermitian=True, name="X"), bo.PSD(n, name="Y"), bo.Variable(name="u")
    rows = [Y == X.real, X[0, 1] == 0.5j + 0.1, X[0, 2] + u == 0.3j + 2, bo.diag(X) <= 4]
    sol = bo.Problem(bo.Minimize(bo.trace(X) + bo.trace(Y) + u), rows).solve(tol=1e-8)
    assert sol.status == "optimal"
    assert np.allclose(sol.X[1], sol.X[0].real, atol=1e-6)
    assert np.isclose(sol.X[0][0, 1], 0.1 + 0.5j, atol=1e-6)
    assert np.isclose(sol.X[0][0, 2].imag, 0.3, atol=1e-6)


def test_answers_pickle_and_start_the_next():
    rng = np.random.default_rng(12)
    n = 4
    X, t = bo.PSD(n, hermitian=True, name="X"), bo.Parameter(value=1.0)
    prob = bo.Problem(bo.Minimize(bo.logdet_div(X, definite(n, rng))), [X[0, 1] == 0.1j, bo.trace(X) == t])
    sol = prob.solve()
    again = pickle.loads(pickle.dumps(sol))
    assert np.array_equal(again.X, sol.X)
    assert not sol.X.flags.writeable
    assert np.array_equal(X.value, sol.X)
    assert prob.matrices == (X,)
    t.value = 1.01
    assert prob.solve(warm_start=True).status == "optimal"
    assert "Hermitian" in str(prob)
    assert "mathbb{H}_+^{4}" in prob._repr_latex_()


def test_infeasible_rows_are_proven():
    X = bo.PSD(3, hermitian=True)
    low, entry = bo.trace(X) <= 1, X[0, 1] == 2j
    sol = bo.Problem(bo.Minimize(bo.inner(np.eye(3), X)), [low, entry]).solve()
    assert sol.status == "infeasible"
    assert sol.X is None
    assert abs(entry.dual_value.imag) > abs(entry.dual_value.real)


# --- Convex atoms ------------------------------------------------------------------------------------


def atoms_of(F, module):
    """Return all atoms of complex arguments, ours or CVXPY's."""
    names = {
        bo: ("norm2", "sum_squares", "lambda_max", "lambda_min", "sigma_max", "norm_nuc", "log_det"),
        cp: ("pnorm", "sum_squares", "lambda_max", "lambda_min", "sigma_max", "normNuc", "log_det"),
    }
    concave = ("lambda_min", "log_det")
    found = [(-1 if name in concave else 1) * getattr(module, name)(F) for name in names[module]]
    return [*found, module.lambda_sum_largest(F, 2)]


@pytest.mark.parametrize(("number", "whole"), turns(range(8), [True, False]))
def test_convex_atoms_of_complex_matrices(number, whole):
    rng = np.random.default_rng(number)
    A, C, B = definite(3, rng), definite(3, rng), definite(2, rng)
    problems = []
    for module in (bo, cp):
        X = bo.PSD(3, hermitian=True) if module is bo else cp.Variable((3, 3), hermitian=True)
        inner = bo.inner(C, X) if module is bo else cp.real(cp.trace(C @ X))
        trace = bo.trace(X) if module is bo else cp.real(cp.trace(X))
        atom = atoms_of(X if whole else X + A, module)[number]
        rows = [trace == 2, X[:2, :2] >> 0.1 * B] + ([] if module is bo else [X >> 0])
        problems.append(module.Problem(module.Minimize(atom + 0.3 * inner), rows))
    ours, theirs = problems
    sol = ours.solve(tol=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Clarabel's accuracy
        theirs.solve(solver="CLARABEL")
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(theirs.value, rel=1e-4, abs=1e-5)
    assert ours.objective.expression.value == pytest.approx(sol.value, rel=1e-5, abs=1e-6)
