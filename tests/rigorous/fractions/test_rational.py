"""Rational answers: rows in fractions, factors by multiplication, values at known optima, and refusals."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from rational import KINDS, problem
from samples import first, turns

import bregopt as bo
from bregopt.rigorous.data import data_of
from bregopt.rigorous.fractions import multipliers
from bregopt.rigorous.linear_algebra import is_psd, ldl
from bregopt.rigorous.proof import feasibility
from bregopt.rigorous.reduction import implied_bounds


def product(L, d):
    """Return ``L diag(d) L'`` in fractions."""
    return (L * d) @ L.T


def matrix(rng, n):
    M = rng.integers(-9, 10, (n, n))
    return [[Fraction(int(x)) for x in row] for row in M @ M.T]


@pytest.mark.parametrize(
    ("kind", "seed"), turns([kind for kind in KINDS if kind not in ("soft", "face")], range(3))
)
def test_answers_meet_their_integer_rows_exactly(kind, seed):
    known = problem(np.random.default_rng(seed), kind)
    solution = known.problem.solve()
    verified = solution.verify()
    maximize = verified.certificate.data.maximize
    if np.isinf(verified.lower if maximize else verified.upper):
        with pytest.raises(ValueError, match=r"room|independent|psd"):
            solution.rational()
        return
    found = solution.rational(2**50)
    sign = -1 if maximize else 1
    assert sign * (found.value - known.value) >= 0
    assert abs(found.value - known.value) <= 1e-4 * (1 + abs(known.value))
    data = verified.certificate.data
    blocks = found.matrices
    u = [x for value in found.u.values() for x in np.ravel(np.array(value, dtype=object))]
    for k in range(data.m):
        total = Fraction(0)
        for block, X in zip(data.matrices, blocks, strict=True):
            own = block.A[[k]].toarray()[0]
            total += sum(Fraction(a) * X[i, j] for a, i, j in zip(own, block.i, block.j, strict=True))
        total += sum(Fraction(b) * x for b, x in zip(data.B[[k]].toarray()[0], u, strict=True))
        assert data.lo[k] <= total <= data.hi[k]
    for X, (L, d) in zip(blocks, found.factors, strict=True):
        assert (product(L, d) == X).all()
        assert all(w > 0 for w in d)


def sum_of_squares(p, monomials):
    """Return the largest t, as a problem, with ``p - t`` a sum of squares of some monomials."""
    Q, t = bo.PSD(len(monomials), name="Q"), bo.Variable(name="t")
    entries = {}
    for i, j in itertools.product(range(len(monomials)), repeat=2):
        power = tuple(np.add(monomials[i], monomials[j]))
        entries.setdefault(power, np.zeros((len(monomials),) * 2))[i, j] = 1
    rows = [
        bo.inner(A, Q) + (0 if any(power) else t) == float(p.get(power, 0)) for power, A in entries.items()
    ]
    return bo.Problem(bo.Maximize(t), rows)


def expanded(L, d, monomials):
    """Return the coefficients of a weighted sum of squares."""
    found = {}
    for i, j in itertools.product(range(len(monomials)), repeat=2):
        power = tuple(int(a + b) for a, b in zip(monomials[i], monomials[j], strict=True))
        found[power] = found.get(power, 0) + sum(d[k] * L[i, k] * L[j, k] for k in range(len(d)))
    return {power: c for power, c in found.items() if c}


def quartic():
    """A quartic in three variables, nowhere below 1: x^4 + y^4 + z^4 + (x y - z)^2 + (x - 1)^2 + 1."""
    return {
        **{(4, 0, 0): 1, (0, 4, 0): 1, (0, 0, 4): 1, (2, 2, 0): 1, (1, 1, 1): -2, (0, 0, 2): 1},
        **{(2, 0, 0): 1, (1, 0, 0): -2, (0, 0, 0): 2},
    }


CAMEL = {(2, 0): 120, (4, 0): -63, (6, 0): 10, (1, 1): 30, (0, 2): -120, (0, 4): 120}
DECIC = {(10,): 1, (7,): -3, (4,): 2, (1,): 5, (0,): 1}
POLYNOMIALS = {
    "camel": (CAMEL, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (3, 0)]),
    "quartic": (quartic(), [m for m in itertools.product(range(3), repeat=3) if sum(m) <= 2]),
    "degree 10": (DECIC, [(k,) for k in range(6)]),
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_sums_of_squares_are_identities(name):
    p, monomials = POLYNOMIALS[name]
    found = sum_of_squares(p, monomials).solve(tol=1e-9).rational()
    (L, d), t = found.factors[0], found.u["t"]
    assert isinstance(t, Fraction)
    assert len(d) == len(monomials)
    constant = (0,) * len(monomials[0])
    p = {power: Fraction(c) for power, c in p.items()}
    p[constant] = p.get(constant, 0) - t
    assert expanded(L, d, monomials) == {power: c for power, c in p.items() if c}
    grid = np.random.default_rng(0).normal(size=(2000, len(monomials[0])))
    lowest = min(sum(float(c) * np.prod(grid**power, axis=1) for power, c in p.items()))
    assert lowest >= -1e-9


@pytest.mark.parametrize(("a", "b"), first(2, [(100, 1), (3, 2), (1, 5)]))
def test_squares_that_rows_fix_together_are_on_a_face(a, b):
    # Rosenbrock's a (y - x^2)^2 + (b - x)^2: three rows fix the squares of y and x^2 and their product, so
    # that no Gram matrix is definite. Its minimum is zero at (b, b^2).
    p = {(0, 2): a, (2, 1): -2 * a, (4, 0): a, (2, 0): 1, (1, 0): -2 * b, (0, 0): b * b}
    monomials = [(0, 0), (0, 1), (1, 0), (2, 0)]
    solution = sum_of_squares(p, monomials).solve(tol=1e-9)
    verified = solution.verify()
    assert -1e-6 * b**2 < verified.lower <= 0 <= verified.upper < 1e-6 * b**2
    found = solution.rational()
    identity = {power: Fraction(c) for power, c in p.items()}
    identity[0, 0] -= found.u["t"]
    assert expanded(*found.factors[0], monomials) == {power: c for power, c in identity.items() if c}
    assert -1e-6 * b**2 < found.u["t"] <= 0


def test_minimum_of_the_camel_to_eight_digits():
    found = sum_of_squares(*POLYNOMIALS["camel"]).solve(tol=1e-9).rational()
    assert found.value == found.u["t"]
    assert abs(float(found.value) / 30 + 1.0316284534898774) < 1e-8  # its minimum, by Newton's method


def test_polynomials_that_are_no_sums_of_squares_are_refused():
    motzkin = {(4, 2): 1, (2, 4): 1, (2, 2): -3, (0, 0): 1}
    with pytest.raises(bo.InfeasibleRowError, match="== -3"):
        sum_of_squares(motzkin, [(0, 0), (1, 1), (1, 2), (2, 1)]).solve()


def test_motzkin_without_its_newton_polytope_is_refused():
    # The squares of x^3 and y^3 vanish first, then those of x^2 and y^2, of x and y, and that of x y is -3.
    motzkin = {(4, 2): 1, (2, 4): 1, (2, 2): -3, (0, 0): 1}
    monomials = [(i, j) for i in range(4) for j in range(4) if i + j <= 3]
    found = sum_of_squares(motzkin, monomials).solve()
    assert found.verify().infeasible
    with pytest.raises(ValueError, match="infeasible"):
        found.rational()


def test_rows_on_a_face_of_a_face():
    # X_11 = 0, and then X_22 + 2 X_13 = 0 is X_22 = 0; the last two equalities are one on the face.
    X = bo.PSD(4, name="X")
    rows = [X[0, 0] == 0, X[1, 1] + 2 * X[0, 2] == 0, X[2, 2] == 2, X[2, 2] + X[0, 3] + X[1, 3] == 2]
    found = bo.Problem(bo.Minimize(X[3, 3] - 3 * X[2, 3]), rows).solve(tol=1e-9).rational()
    assert not found.X[:2].any()
    assert found.X[2, 2] == 2
    assert ldl(found.X.tolist()) is not None
    assert abs(found.value + Fraction(9, 2)) < Fraction(1, 10**9)
    combined = [X[0, 0] + X[3, 3] == 1, X[3, 3] == 1, X[1, 1] + 2 * X[0, 2] + X[3, 3] == 1, X[2, 3] >= 0.25]
    cost = bo.Minimize(X[2, 2] + X[2, 3])
    with pytest.raises(ValueError, match=r"such as X\[0, 0\] == 0"):
        bo.Problem(cost, combined).solve().rational()
    found = bo.Problem(cost, [*combined, X[0, 0] == 0, X[1, 1] == 0]).solve(tol=1e-9).rational()
    assert not found.X[:2].any()
    assert abs(found.value - Fraction(5, 16)) < Fraction(1, 10**6)


@pytest.mark.parametrize("beyond", [[(4, 0)], [(4, 0), (5, 0)]])  # the second one leaves a face of a face
def test_monomials_beyond_the_newton_polytope_are_on_a_face(beyond):
    monomials = [(i, j) for i in range(4) for j in range(4) if i + j <= 3] + beyond
    found = sum_of_squares(CAMEL, monomials).solve(tol=1e-9).rational()
    L, d = found.factors[0]
    assert len(d) == 7
    identity = {power: Fraction(c) for power, c in CAMEL.items()} | {(0, 0): -found.u["t"]}
    assert expanded(L, d, monomials) == identity


@pytest.mark.parametrize("seed", range(20))
def test_exact_factors(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    M = matrix(rng, n)
    if seed % 3 == 0:  # singular
        T = rng.integers(-3, 4, (n + 2, n))
        M = [[Fraction(int(x), 7) for x in row] for row in T @ T.T]
    L, d = (np.array(part, dtype=object) for part in ldl(M))
    assert (product(L, d) == np.array(M, dtype=object)).all()
    assert len(d) == np.linalg.matrix_rank(np.array(M, dtype=float))
    M[0][0] -= 10**6
    assert ldl(M) is None


def test_semidefinite_integers():
    rng = np.random.default_rng(0)
    for n in range(1, 7):
        for rank in range(1, n + 1):
            F = rng.integers(-9, 10, (n, rank))
            M = F @ F.T
            assert ldl(M.tolist()) is not None
            M[n - 1, n - 1] -= 1
            known = rank == n and np.linalg.eigvalsh(M)[0] > 1e-6
            assert known or ldl(M.tolist()) is None or np.linalg.eigvalsh(M)[0] > -1e-6
    for M, right in (
        ([[0, 1], [1, 5]], False),
        ([[2**60, 2**60], [2**60, 2**60 - 1]], False),  # doubles do not see it
        ([[2**60, 2**60], [2**60, 2**60 + 1]], True),
        ([[1, 10**9], [10**9, 10**18]], True),
        ([[1, 0], [0, -1]], False),
        ([], True),
    ):
        assert is_psd(M) == right == (ldl(M) is not None)


@pytest.mark.parametrize(("demand", "looked_at"), [(-1.0, False), (1.0, True)])
def test_rows_that_demand_nothing_need_no_factors(demand, looked_at, monkeypatch):
    """Whether ``A*(y)`` is negative is asked only of rows that demand something."""
    asked = []
    monkeypatch.setattr(multipliers, "is_psd", lambda M: bool(asked.append(M)) or is_psd(M))
    X = bo.PSD(3)
    program = bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace(X) == -demand]).program()
    data = data_of(program)
    found = multipliers.exact_farkas(data, implied_bounds(feasibility(data)), np.array([-1.0]))
    assert bool(asked) == looked_at == (found is not None)


def test_refusals_say_why():
    X = bo.PSD(2, name="X")
    near = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(2))), [X[0, 1] == 0.5]).solve()
    with pytest.raises(ValueError, match="not linear"):
        near.rational()
    answer = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 0.5]).solve()
    for wrong in (0, 2.0, "3"):
        with pytest.raises(TypeError, match="denominator is"):
            answer.rational(wrong)
    H = bo.PSD(2, hermitian=True)
    with pytest.raises(ValueError, match="complex"):
        bo.Problem(bo.Minimize(bo.real(H[0, 0])), [bo.trace(H) == 1]).solve().rational()
    face = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] == 0, X[1, 1] == 3]).solve().rational()
    assert face.value == 3
    assert "value 3" in repr(face)


def test_caps_hold_exactly():
    C = np.array([[1, 2, 0], [2, -1, 1], [0, 1, 0.5]])
    X = bo.PSD(3)
    solution = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.trace(X) == 1, bo.lambda_max(X) <= 0.5]).solve()
    found = solution.rational()
    below = [[Fraction(int(i == j), 2) - found.X[i, j] for j in range(3)] for i in range(3)]
    assert ldl(below) is not None
    assert sum(found.X.diagonal()) == 1
    with pytest.raises(ValueError, match="is above its cap"):
        solution.rational(10**6)  # the answer is nearer to its cap


@pytest.mark.parametrize("place", ["cost", "row"])
def test_rounded_products_of_vectors_are_refused(place):
    X, z = bo.PSD(3), np.array([0.1, 0.2, 0.3])
    cost, row = (bo.quad_form(z, X), bo.trace(X)) if place == "cost" else (bo.trace(X), bo.quad_form(z, X))
    with pytest.raises(ValueError, match="products that doubles round"):
        bo.Problem(bo.Minimize(cost), [row == 1]).solve().rational()
