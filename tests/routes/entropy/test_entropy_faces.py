"""Rows that hold matrices on faces of the cone, numbers at zero, and images that are always singular."""

import warnings

import numpy as np
import pytest
from samples import first

import bregopt as bo


def binary_entropy(q):
    return -q * np.log(q) - (1 - q) * np.log(1 - q)


def real(element, hermitian):
    return element.real if hermitian else element


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("direction", [[1.0, 0, 0], [1.0, 1, 1]])
def test_entropy_on_a_face(hermitian, direction):
    """Without one direction the largest entropy of three is that of two."""
    X, v = bo.PSD(3, hermitian=hermitian), np.array(direction)
    rows = [bo.trace(X) == 1, bo.inner(np.outer(v, v), X) == 0]
    sol = bo.Problem(bo.Maximize(bo.von_neumann_entr(X)), rows).solve(tol=1e-9)
    assert sol.status == "optimal"
    assert abs(sol.value - np.log(2)) <= sol.error + 1e-14
    assert sol.dual_value >= np.log(2) - 1e-14
    assert np.linalg.norm(sol.X @ v) < 1e-12


@pytest.mark.parametrize("hermitian", [False, True])
def test_relative_entropies_on_faces(hermitian):
    """The first matrix is on a part of the range of the second; both diagonals are optimal (pinching)."""
    X, Y = bo.PSD(3, hermitian=hermitian), bo.PSD(3, hermitian=hermitian)
    first = [real(X[k, k], hermitian) for k in range(3)]
    second = [real(Y[k, k], hermitian) for k in range(3)]
    traces = [bo.trace(X) == 1, bo.trace(Y) == 1, first[0] == 0]
    own = bo.Minimize(bo.quantum_rel_entr(X, Y))
    sol = bo.Problem(own, [*traces, second[0] == 0.2, first[1] == 0.3]).solve(tol=1e-9)
    assert sol.value == pytest.approx(-np.log(0.8), abs=1e-9)
    assert sol.status == "optimal"
    sol = bo.Problem(own, [*traces, second[0] == 0, first[1] == 0.3, second[1] == 0.5]).solve(tol=1e-9)
    assert sol.value == pytest.approx(0.3 * np.log(0.3 / 0.5) + 0.7 * np.log(0.7 / 0.5), abs=1e-9)
    assert sol.status == "optimal"
    C = np.diag([0, 0.3, 0.7])
    sol = bo.Problem(bo.Maximize(bo.trace_logm(X, C)), [bo.trace(X) == 1, first[0] == 0]).solve(tol=1e-9)
    assert sol.value == pytest.approx(0.3 * np.log(0.3) + 0.7 * np.log(0.7), abs=1e-9)


def test_an_entropy_in_a_row_on_a_face():
    X = bo.PSD(3)
    rows = [bo.trace(X) == 1, X[0, 0] == 0, bo.von_neumann_entr(X) >= binary_entropy(0.2)]
    sol = bo.Problem(bo.Minimize(X[1, 1]), rows).solve(tol=1e-8)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(0.2, abs=1e-7)


SIGNALS = np.array([[1, 0], [0, 1], [1, 1], [1, -1]]) / np.array([1, 1, np.sqrt(2), np.sqrt(2)])[:, None]


def prepare_and_measure(rho, q):
    """Return BB84 with Alice's register of four states, whose reduced state has rank two."""
    rows = []
    for i in range(4):
        for j in range(i + 1):
            E = np.zeros((4, 4))
            E[i, j] = E[j, i] = 0.5 if i != j else 1.0
            rows.append(bo.inner(np.kron(E, np.eye(2)), rho) == SIGNALS[i] @ SIGNALS[j] / 4)
    for a in (0, 2):  # Bob finds the other signal of the basis
        wrong = np.zeros((8, 8))
        for k, other in ((a, a + 1), (a + 1, a)):
            wrong += np.kron(np.diag(np.eye(4)[k]), np.outer(SIGNALS[other], SIGNALS[other]))
        rows.append(bo.inner(wrong, rho) == q / 2)
    sift = np.kron(np.eye(4)[:2], np.eye(2))
    key = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    return bo.Problem(bo.Minimize(bo.key_rate(rho, kraus=[sift], pinching=key)), rows)


@pytest.mark.parametrize("q", [1e-3, 0.01, 0.05, 0.07])
def test_a_key_rate_whose_rows_leave_no_interior(q):
    """Combinations of rows hold the state on a face; half of the signals pass, at the rate of BB84."""
    sol = prepare_and_measure(bo.PSD(8), q).solve()
    rate = (np.log(2) - binary_entropy(q)) / 2
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(rate, abs=1e-8 if q >= 0.01 else 1e-7)
    assert abs(sol.value - rate) <= sol.error
    assert sol.dual_value <= rate + 1e-12


@pytest.mark.parametrize("q", [1e-4, 0.01, 0.05])
def test_a_key_rate_on_the_range_of_the_signals(q):
    """With the state on the face from the start both bounds are good."""
    V = np.kron(np.linalg.svd(SIGNALS, full_matrices=False)[0], np.eye(2))
    sol = prepare_and_measure(V @ bo.PSD(4) @ V.T, q).solve(tol=1e-9)
    rate = (np.log(2) - binary_entropy(q)) / 2
    assert sol.status == "optimal"
    assert abs(sol.value - rate) <= sol.error + 1e-13
    assert sol.dual_value <= rate + 1e-13


def test_contradictions_on_faces():
    X = bo.PSD(3)
    entropy = bo.Maximize(bo.von_neumann_entr(X))
    with pytest.raises(bo.InfeasibleRowError, match=r"asks for 0\.5, but it is 0"):
        bo.Problem(entropy, [bo.trace(X) == 1, X[0, 0] == 0, X[0, 1] + X[0, 2] == 0.5]).solve()


def test_entropies_of_numbers_that_are_zero():
    p, q = bo.Variable(4), bo.Variable(4)
    sol = bo.Problem(bo.Maximize(bo.sum(bo.entr(p))), [bo.sum(p) == 1, 2 * p[0] == 0]).solve(tol=1e-9)
    assert sol.status == "optimal"
    assert abs(sol.value - np.log(3)) <= sol.error + 1e-14
    divergence = bo.Minimize(bo.sum(bo.rel_entr(p, q)))
    rows = [bo.sum(p) == 1, bo.sum(q) == 1, p[0] == 0, q[1] == 0.5, p[1] == 0.4, q[0] == 0]
    sol = bo.Problem(divergence, rows).solve(tol=1e-9)
    assert sol.value == pytest.approx(0.4 * np.log(0.4 / 0.5) + 0.6 * np.log(0.6 / 0.5), abs=1e-9)


@pytest.mark.parametrize("hermitian", [False, True])
def test_images_under_isometries(hermitian):
    """``V X V*`` with a tall isometry is singular for all ``X`` and has the entropy of ``X``."""
    rng = np.random.default_rng(0)
    V = rng.standard_normal((4, 2)) + 1j * rng.standard_normal((4, 2)) * hermitian
    V = np.linalg.qr(V if hermitian else V.real)[0]
    X = bo.PSD(2, hermitian=hermitian)
    image = V @ X @ V.conj().T
    sol = bo.Problem(bo.Maximize(bo.von_neumann_entr(image)), [bo.trace(X) == 1]).solve(tol=1e-9)
    assert sol.value == pytest.approx(np.log(2), abs=1e-9)
    assert sol.status == "optimal"
    C = np.diag([0.3, 0.7])
    rows = [bo.trace(X) == 1, real(X[0, 0], hermitian) <= 0.2]
    own = bo.Problem(bo.Minimize(bo.quantum_rel_entr(V @ C @ V.conj().T, image)), rows).solve(tol=1e-9)
    assert own.value == pytest.approx(0.3 * np.log(0.3 / 0.2) + 0.7 * np.log(0.7 / 0.8), abs=1e-9)
    proven = sol.verify()
    assert proven.lower <= np.log(2) <= proven.upper


def test_capacity_of_an_amplitude_damping_channel():
    """The entanglement-assisted capacity: its isometry makes the first argument singular (Bennett 1999)."""
    g = 0.3
    V = np.zeros((4, 2))  # output and environment
    V[0, 0], V[2, 1], V[1, 1] = 1, np.sqrt(1 - g), np.sqrt(g)
    rho = bo.PSD(2, name="rho")
    whole = V @ rho @ V.T
    output = bo.partial_trace(whole, (2, 2), keep=0)
    own = bo.quantum_cond_entr(whole, (2, 2), 0) + bo.von_neumann_entr(output)
    sol = bo.Problem(bo.Maximize(own), [bo.trace(rho) == 1]).solve(tol=1e-9)
    p = np.linspace(0, 1, 200_001)[1:-1]  # inputs are diagonal by covariance
    rates = binary_entropy(p) + binary_entropy((1 - g) * p) - binary_entropy(g * p)
    assert sol.value == pytest.approx(rates.max(), abs=1e-8)


SIGNALS = np.array([[1, 0.0], [0, 1], [np.sqrt(0.5), np.sqrt(0.5)], [np.sqrt(0.5), -np.sqrt(0.5)]])
OVERLAPS = SIGNALS @ SIGNALS.T / 4  # of four signals of a qubit: the register of a sender has rank two


def register(others):
    """Return the operator that copies the bits of the first basis, and the projections on its bits."""
    e, bits = np.eye(4), np.eye(2)
    kraus = sum(np.kron(np.kron(bits[:, [z]], np.outer(e[z], e[z])), others) for z in range(2))
    return kraus, [np.kron(np.outer(bit, bit), np.eye(kraus.shape[1])) for bit in bits]


def prepared(rate):
    """Return BB84 with signals that are prepared and measured, and its key rate."""
    rho, e = bo.PSD(8), np.eye(4)
    rows = [bo.partial_trace(rho, (4, 2), keep=0) == OVERLAPS]
    for x, y in np.ndindex(4, 4):
        share = (1 - 2 * rate) * (SIGNALS[x] @ SIGNALS[y]) ** 2 + rate
        observed = np.kron(np.outer(e[x], e[x]), np.outer(SIGNALS[y], SIGNALS[y]))
        rows.append(bo.inner(observed, rho) == share / 4)
    kraus, key = register(np.eye(2))
    entropy = -rate * np.log(rate) - (1 - rate) * np.log1p(-rate)
    own = 2 * bo.key_rate(rho, kraus=[kraus], pinching=key)
    return bo.Problem(bo.Minimize(own), rows), np.log(2) - entropy, "of order 4"


def announced(rate, share=0.25):
    """Return a station in the middle that announces one of four Bell states, and its key rate."""
    passed, failed, e = bo.PSD(16), bo.PSD(16), np.eye(4)
    rows = [passed + failed == np.kron(OVERLAPS, OVERLAPS)]
    bell = np.eye(2).ravel() / np.sqrt(2)
    state = (1 - 2 * rate) * np.outer(bell, bell) + rate / 2 * np.eye(4)
    for x, y in np.ndindex(4, 4):
        v = np.kron(SIGNALS[x], SIGNALS[y])
        observed = np.kron(np.outer(e[x], e[x]), np.outer(e[y], e[y]))
        rows.append(bo.inner(observed, passed) == share * (v @ state @ v) / 16)
    kraus, key = register(np.diag([1.0, 1, 0, 0]))
    entropy = -rate * np.log(rate) - (1 - rate) * np.log1p(-rate)
    own = bo.key_rate(passed, kraus=[kraus], pinching=key)
    return bo.Problem(bo.Minimize(own), rows), share / 16 * (np.log(2) - entropy), "of order 4"


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize(
    ("protocol", "rate"), first(2, [(prepared, 0.05), (announced, 0.03), (prepared, 1e-4)])
)
def test_protocols_that_are_not_reduced_have_both_bounds(protocol, rate):
    """Marginals of rank two leave the states no interior, and no row shows it alone."""
    problem, exact, named = protocol(rate)
    sol = problem.solve(tol=1e-9)
    proven = sol.verify()
    assert abs(sol.value - exact) < 1e-10
    assert proven.lower <= exact <= proven.upper
    assert proven.upper - proven.lower < 1e-10
    assert any(named in text for text in proven.given)
    assert not any(named in text for text in sol.verify(resolve=False).given)


@pytest.mark.parametrize("hermitian", [False, True])
def test_faces_of_rows_have_both_bounds(hermitian):
    """A qubit in four dimensions, turned: its largest entropy with an energy is that of two numbers."""
    rng = np.random.default_rng(3)
    M = rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4)) * hermitian
    Q, _ = np.linalg.qr(M if hermitian else M.real)
    rho = bo.PSD(4, hermitian=hermitian)
    rows = [bo.trace(rho) == 1, bo.inner(np.outer(Q[:, 0], Q[:, 0].conj()), rho) == 0.3]
    rows.append(bo.inner(Q[:, 2:] @ Q[:, 2:].conj().T, rho) == 0)
    sol = bo.Problem(bo.Maximize(bo.von_neumann_entr(rho)), rows).solve(tol=1e-9)
    proven, exact = sol.verify(), -0.3 * np.log(0.3) - 0.7 * np.log(0.7)
    assert proven.lower <= exact <= proven.upper
    assert proven.upper - proven.lower < 1e-9


WITHOUT_INTERIOR = {  # rows that hold for psd matrices, but for no definite one
    "a zero": lambda X: [X[0, 0] == 0, bo.trace(X) == 1],
    "a null vector": lambda X: [X @ np.ones(4) == 0, bo.trace(X) == 1],
    "a correlation of one": lambda X: [bo.diag(X)[:2] == 0.4, X[0, 1] == 0.4, bo.trace(X) == 1],
}


@pytest.mark.parametrize("rows", WITHOUT_INTERIOR)
@pytest.mark.parametrize("name", ["relative entropy", "trace of a logarithm"])
def test_a_logarithm_of_singular_matrices_is_infinite(name, rows):
    """``-tr C log X`` with a definite ``C``: no value is finite, however little the rows are missed."""
    X, C = bo.PSD(4), np.diag([0.1, 0.2, 0.3, 0.4])
    cost = {"relative entropy": bo.quantum_rel_entr(C, X), "trace of a logarithm": -bo.trace_logm(X, C)}[name]
    found = bo.Problem(bo.Minimize(cost), WITHOUT_INTERIOR[rows](X)).solve()
    assert found.status == "infeasible"
    assert found.value == np.inf


@pytest.mark.parametrize("rows", WITHOUT_INTERIOR)
def test_the_relative_entropy_of_singular_matrices_is_finite(rows):
    X, C = bo.PSD(4), np.diag([0.1, 0.2, 0.3, 0.4])
    found = bo.Problem(bo.Minimize(bo.quantum_rel_entr(X, C)), WITHOUT_INTERIOR[rows](X)).solve()
    near = bo.Problem(bo.Minimize(bo.von_neumann_div(X, C)), WITHOUT_INTERIOR[rows](X)).solve()
    assert found.status == near.status == "optimal"
    assert found.value == pytest.approx(near.value, rel=1e-6)


def test_a_logarithm_beside_a_matrix_on_its_range_is_finite():
    X, C = bo.PSD(3), np.diag([0.0, 0.5, 0.5])
    found = bo.Problem(bo.Minimize(bo.quantum_rel_entr(C, X)), [X[0, 0] == 0, bo.trace(X) == 1]).solve()
    assert found.status == "optimal"
    assert abs(found.value) <= 1e-6


@pytest.mark.parametrize("least", [0.0, 1e-3])
def test_a_logarithm_of_a_number_that_rows_fix_at_zero_is_infinite(least):
    X, x, p = bo.PSD(3), bo.Variable(3), np.array([0.2, 0.3, 0.5])
    for y, rows in ((x, [x[0] == least, bo.sum(x) == 1]), (bo.diag(X), [X[0, 0] == least, bo.trace(X) == 1])):
        cost = bo.sum(bo.rel_entr(p, y)) + bo.trace(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if least == 0 else "error", bo.ConvergenceWarning)
            found = bo.Problem(bo.Minimize(cost), rows).solve()
        if least == 0:
            assert found.status in ("infeasible", "infeasible_inaccurate")
            assert found.value == np.inf
        else:
            q = np.array([least, *(p[1:] * (1 - least) / p[1:].sum())])
            trace = 0.0 if y is x else 1.0
            assert found.status == "optimal"
            assert found.value == pytest.approx(p @ np.log(p / q) + trace, rel=1e-6)


@pytest.mark.parametrize("bound", first(3, [1e-2, 1e-8, 1e-14, 1e-4, 1e-6, 1e-10, 1e-12]))
def test_a_slope_without_end_makes_no_gap_small(bound):
    """Near the end of the domain the slope is huge, and no gap may count relative to it."""
    p, X = np.array([0.1, 0.2, 0.3, 0.4]), bo.PSD(4)
    problem = bo.Problem(
        bo.Minimize(bo.quantum_rel_entr(np.diag(p), X)), [X[0, 0] <= bound, bo.trace(X) == 1]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        found = problem.solve()
    q = np.array([bound, *(p[1:] * (1 - bound) / p[1:].sum())])
    off = abs(found.value - p @ np.log(p / q))
    assert off <= found.error
    assert found.status != "optimal" or off <= 1e-6 * max(1, found.value)


@pytest.mark.parametrize("shift", [1e-3, 1e-9, 1e-14])
def test_a_logarithm_of_a_matrix_and_its_trace_is_finite(shift):
    """``X + s tr(X) I`` is definite where ``X`` is singular: no proof may take it for ``X``."""
    X, C = bo.PSD(3), np.diag([0.2, 0.3, 0.5])
    cost = bo.quantum_rel_entr(C, X + shift * bo.trace(X) * np.eye(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        found = bo.Problem(bo.Minimize(cost), [X[0, 0] == 0, bo.trace(X) == 1]).solve()
    assert found.status != "infeasible"
    if found.status == "optimal":
        y = shift + np.array([0, 3, 5]) / 8  # of one of the matrices
        assert found.value <= np.diag(C) @ np.log(np.diag(C) / y) + 1e-6


@pytest.mark.parametrize("unit", [1.0, 1e-14])
def test_small_units_are_not_zero(unit):
    X, x = bo.PSD(3), bo.Variable(3)
    numbers = bo.sum(bo.rel_entr(np.array([0.2, 0.3, 0.5]), bo.hstack([unit * x[:1], x[1:]])))
    matrix = bo.quantum_rel_entr(
        np.diag([0.2, 0.3, 0.5]), np.diag([unit, 1, 1]) ** 0.5 @ X @ np.diag([unit, 1, 1]) ** 0.5
    )
    for cost, rows in ((numbers + bo.trace(X), [bo.sum(x) == 1]), (matrix, [bo.trace(X) == 1])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            found = bo.Problem(bo.Minimize(cost), rows).solve()
        assert "infeasible" not in found.status
        off = abs(found.value + 0.2 * np.log(unit))
        assert off <= found.error
        assert found.status != "optimal" or off <= 1e-5
