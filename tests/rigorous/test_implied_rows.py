"""Equalities that others imply: against elimination in fractions, and problems without them."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import bregopt as bo
import bregopt_check as check
from bregopt.rigorous.certificate import BoundCertificate
from bregopt.rigorous.implied_rows import relations_of


def rank(rows):
    """Return the rank of a matrix, by elimination in fractions."""
    rows, found = [[Fraction(x) for x in row] for row in rows], 0
    while rows:
        pivot = next((j for j, x in enumerate(rows[0]) if x), None)
        first, *rows = rows
        if pivot is not None:
            found += 1
            shares = [row[pivot] / first[pivot] for row in rows]
            rows = [
                [a - s * b for a, b in zip(row, first, strict=True)]
                for s, row in zip(shares, rows, strict=True)
            ]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_implied_rows_are_those_that_raise_no_rank(seed):
    rng = np.random.default_rng(seed)
    A = rng.integers(-3, 4, (4, 9)).astype(float)
    b = rng.integers(-3, 4, 4).astype(float)
    if seed % 2:  # any doubles, whose combinations by powers of two are exact
        A, b = A * 0.1, b * 0.7
    shares = rng.integers(-2, 3, (4, 4)) if seed % 2 == 0 else np.diag(2.0 ** rng.integers(-40, 40, 4))
    A, b = np.vstack([A, shares @ A, np.zeros(9)]), np.concatenate([b, shares @ b, [0.0]])
    wrong = int(rng.integers(4, 8))
    if seed % 3 == 0:
        b[wrong] += 1.0
    order = rng.permutation(9)
    A, b = A[order], b[order]
    found = relations_of(sp.csr_array(A), b, np.ones(9))
    kept = np.setdiff1d(np.arange(9), found.implied)
    whole = np.column_stack([A, b]).tolist()
    assert len(kept) >= rank(whole) == rank([whole[k] for k in kept])
    if seed % 3:
        assert len(kept) == rank(whole)
        assert not len(found.unproven)
    else:
        assert len(found.unproven)
    sizes = np.abs(found.combinations) @ np.linalg.norm(A, axis=1)
    assert (np.linalg.norm(found.combinations @ A, axis=1) <= 1e-9 * sizes).all()


C = np.array([[0.0, 3.0, 1.0], [3.0, 1.0, -2.0], [1.0, -2.0, 2.0]])


def problems(divergence):
    """Yield problems with rows that others imply, and the same without these."""
    X, u, v = bo.PSD(3), bo.Variable(name="u"), bo.Variable(name="v")
    rows = [bo.trace(X) == 1, X[0, 1] + u == 0.1, u - v == 0.5, u <= 1, v >= -4]
    more = [
        [bo.trace(X) == 1],
        [8 * u - 8 * v == 4],
        [X[0, 1] + u == 0.1, X[0, 1] + u == 0.1, 0.25 * bo.trace(X) == 0.25],
        [bo.trace(X) + u - v == 1.5],
    ]
    cost = bo.inner(C, X) if divergence is None else divergence(X)
    for implied in more:
        yield bo.Problem(bo.Minimize(cost + v), rows + implied), bo.Problem(bo.Minimize(cost + v), rows)


@pytest.mark.parametrize(
    "divergence",
    [
        None,
        lambda X: bo.frobenius_div(X, C),
        lambda X: bo.logdet_div(X, np.eye(3)),
        lambda X: bo.inner(C, X) - bo.von_neumann_entr(X),
    ],
    ids=["linear", "frobenius", "logdet", "entropy"],
)
def test_rows_that_others_imply_leave_both_bounds(divergence, tmp_path):
    if divergence is not None:
        pytest.importorskip("flint")
    path = tmp_path / "bounds.npz"
    for problem, without in problems(divergence):
        found, other = problem.solve(tol=1e-8).verify(), without.solve(tol=1e-8).verify()
        assert max(found.lower, other.lower) <= min(found.upper, other.upper)
        assert found.relative_width <= 1e-6
        found.certificate.save(path)
        BoundCertificate.load(path).check()
        assert found.certificate.claims[1] < np.inf
        assert check.main([path]) == 0


@pytest.mark.parametrize("face", [False, True])
def test_doubles_that_hide_a_contradiction_have_no_upper_bound(face, tmp_path):
    """Three times the first row is the second up to round-off: 3 * 0.1 is no double."""
    X = bo.PSD(2)
    rows = [0.1 * X[0, 0] == 1, 0.30000000000000004 * X[0, 0] == 3]
    assert Fraction(0.30000000000000004) != 3 * Fraction(0.1)
    found = bo.Problem(bo.Minimize(X[0, 0]), [X[1, 1] == 0, *rows] if face else rows).solve(tol=1e-8).verify()
    assert found.upper == np.inf
    assert "up to round-off, but not exactly" in found.reasons["upper"]


@pytest.mark.parametrize("seed", range(6))
def test_multipliers_of_files_make_slacks_psd_beside_free_variables(seed, tmp_path):
    """Bounds on traces that rows imply prove more than a file has room for; its multipliers have it."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(3, 4, 4))
    X, u = bo.PSD(4), bo.Variable(2)
    rows = [bo.trace(X) == 1, bo.inner(G[0] + G[0].T, X) + u[0] == 0.125, u[1] - u[0] == 1]
    if seed % 2:
        rows += [X[0, 1] - u[1] >= 3.0 + u[0], u[0] >= 0]
    found = bo.Problem(bo.Minimize(bo.inner(G[1] + G[1].T, X) + u[0]), rows).solve(tol=1e-8).verify()
    assert found.infeasible == bool(seed % 2)
    found.certificate.save(tmp_path / "bounds.npz")
    assert check.main([tmp_path / "bounds.npz"]) == 0


def test_no_equalities_have_no_relations():
    found = relations_of(sp.csr_array((0, 3)), np.zeros(0), np.ones(3))
    assert not len(found.implied)
    X = bo.PSD(2)
    sol = bo.Problem(bo.Minimize(X[0, 0] + X[1, 1]), [X[0, 1] >= 1, X[0, 0] >= 1]).solve(tol=1e-8)
    assert sol.verify().lower <= 2 <= sol.verify(exact=True).upper
