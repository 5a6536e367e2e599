"""Faces of rows and equalities that others imply: proven in integers and fractions, kept in certificates."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from samples import first, turns

import bregopt as bo
import bregopt_check as check
from bregopt.presolve.integer_faces import integer_face
from bregopt.records import replace
from bregopt.rigorous.data import data_of
from bregopt.rigorous.faces import IntegerFace, as_integers, exposes, on_integer_face, relations_of
from bregopt.rigorous.file.certificate import BoundCertificate

# Optima on the face, to the digits that both proven ends share.
QAP = {"qap5": 436.0, "qap7": 424.8197103, "qap8": 756.955256, "qap9": 1409.941068, "qap10": 1092.60747}


def faced(seed, n=8, d=2, count=6):
    """Return a problem on a face of integers, its face, and the optimum in coordinates of the face."""
    rng = np.random.default_rng(seed)
    K = np.arange(n - d)
    T = np.vstack([rng.integers(-1, 2, (n - d, d)), np.eye(d)]).astype(float)
    V = np.vstack([np.eye(n - d), -T[K].T])
    M = np.eye(n - d) * 3 + np.ones((n - d, n - d))
    X0 = V @ M @ V.T
    w = rng.integers(1, 4, count).astype(float)
    rows = rng.integers(-2, 3, (count, n, n)).astype(float)
    rows = rows + rows.transpose(0, 2, 1)
    rows[0] = 2 * np.eye(n)
    last = T @ np.diag(rng.integers(1, 4, d).astype(float)) @ T.T - np.tensordot(w, rows, 1)
    rows, weight = np.concatenate([rows, last[None]]), np.append(w, 1.0)
    rng.shuffle(order := np.arange(count + 1))
    rows, weight = rows[order], weight[order]
    b = np.tensordot(rows, X0, 2)
    C = rng.normal(size=(n, n))
    C = C + C.T
    X, Y = bo.PSD(n), bo.PSD(n - d)
    whole = bo.Problem(
        bo.Minimize(bo.inner(C, X)), [bo.inner(A, X) == a for A, a in zip(rows, b, strict=True)]
    )
    on = bo.Problem(
        bo.Minimize(bo.inner(V.T @ C @ V, Y)),
        [bo.inner(V.T @ A @ V, Y) == a for A, a in zip(rows[:-1], b[:-1], strict=True)],
    )
    return whole, IntegerFace(weight, (T,)), on


@pytest.mark.parametrize("seed", range(8))
def test_a_face_is_proven_and_no_other_is(seed):
    problem, face, _ = faced(seed)
    data = data_of(problem.program())
    assert exposes(data, face)
    on = on_integer_face(data, face)
    assert on.data.matrices[0].n == 6
    assert on.bases[0].T @ face.directions[0] == pytest.approx(0, abs=0)
    for wrong in (
        face._replace(weight=-face.weight),  # negative semidefinite
        face._replace(weight=face.weight + np.eye(len(face.weight))[0]),
        face._replace(weight=face.weight / 3),  # no integers
        face._replace(weight=0 * face.weight),
        face._replace(directions=(face.directions[0][:, :1],)),  # a larger face than that of F
    ):
        assert not exposes(data, wrong)
        assert on_integer_face(data, wrong) is None


@pytest.mark.parametrize("seed", first(2, range(8)))
def test_the_interval_contains_the_optimum_on_the_face(seed):
    problem, _, on = faced(seed)
    truth = on.solve(solver="path", tol=1e-8).verify()
    proven = problem.solve(solver="path").verify()
    assert proven.lower <= truth.upper
    assert truth.lower <= proven.upper


def test_multiples_of_fractions():
    N, factor = as_integers(np.array([[0.5, 1 / 3], [2.0, -1.0], [np.pi, 0.0]]))
    assert N[:2].tolist() == [[3, 2], [2, -1]]
    assert factor.tolist() == [6, 1, 0]


@pytest.mark.parametrize("name", first(1, QAP))
def test_quadratic_assignments(data, name, tmp_path):
    """Their relaxations have faces of integers, where they are solved, and where both bounds are proven."""
    problem = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz")
    solution = problem.solve(solver="path")
    assert solution.status == "optimal"
    assert np.abs(bo.dimacs_errors(problem, solution)).max() <= 1e-6
    proven = solution.verify()
    assert proven.relative_width <= (2e-7 if name == "qap5" else 5e-8)
    assert proven.lower - 1e-6 <= -QAP[name] <= proven.upper + 1e-6
    proven.certificate.save(tmp_path / "proof.npz")
    again = BoundCertificate.load(tmp_path / "proof.npz")
    again.check()
    assert again.claims == proven.certificate.claims
    wrong = again.face._replace(weight=2 * again.face.weight + 1)
    with pytest.raises(ValueError, match="do not imply the face"):
        replace(again, face=wrong).check()


def test_rows_that_add_up_to_a_square():
    """``(x0 - x1)^2 = 0`` is their sum: at the optimum of rank one the proofs find the face as well."""
    X = bo.PSD(3)
    rows = [X[0, 0] + X[1, 1] == 2, X[0, 1] + X[2, 2] == 2, X[2, 2] == 1]
    solution = bo.Problem(bo.Minimize(11 * X[0, 2] - 9 * X[1, 2]), rows).solve(solver="path", tol=1e-8)
    assert solution.status == "optimal"
    proven = solution.verify()
    assert proven.lower <= -2 <= proven.upper
    assert proven.width <= 1e-7


def test_the_zero_matrix_shows_no_face():
    X = bo.PSD(4)
    program = bo.Problem(bo.Minimize(X[0, 1]), [bo.trace(X) == 0, X[0, 1] == 0]).program()
    assert integer_face(program, [np.zeros((4, 4))], optimum=True) is None


# --- Equalities that others imply


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


def with_implied_rows(divergence, number):
    """Return a problem with rows that others imply, and the same without these."""
    X, u, v = bo.PSD(3), bo.Variable(name="u"), bo.Variable(name="v")
    rows = [bo.trace(X) == 1, X[0, 1] + u == 0.1, u - v == 0.5, u <= 1, v >= -4]
    more = [
        [bo.trace(X) == 1],
        [8 * u - 8 * v == 4],
        [X[0, 1] + u == 0.1, X[0, 1] + u == 0.1, 0.25 * bo.trace(X) == 0.25],
        [bo.trace(X) + u - v == 1.5],
    ]
    cost = bo.inner(C, X) if divergence is None else divergence(X)
    return [bo.Problem(bo.Minimize(cost + v), own) for own in (rows + more[number], rows)]


COSTS = {
    "linear": None,
    "frobenius": lambda X: bo.frobenius_div(X, C),
    "logdet": lambda X: bo.logdet_div(X, np.eye(3)),
    "entropy": lambda X: bo.inner(C, X) - bo.von_neumann_entr(X),
}


@pytest.mark.parametrize(("cost", "number"), turns(COSTS, range(4)))
def test_rows_that_others_imply_leave_both_bounds(cost, number, tmp_path):
    if cost != "linear":
        pytest.importorskip("flint")
    path = tmp_path / "bounds.npz"
    found, other = (problem.solve(tol=1e-8).verify() for problem in with_implied_rows(COSTS[cost], number))
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


@pytest.mark.parametrize("seed", first(2, range(6)))
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
