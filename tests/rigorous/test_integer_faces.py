"""Faces that rows of integers imply together: found by the path, proven in integers, kept in certificates."""

import numpy as np
import pytest
from samples import first

import bregopt as bo
from bregopt.presolve.revealed_faces import integer_face
from bregopt.records import replace
from bregopt.rigorous.certificate import BoundCertificate
from bregopt.rigorous.data import data_of
from bregopt.rigorous.implied_rows import as_integers
from bregopt.rigorous.integer_faces import IntegerFace, exposes, on_integer_face

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


@pytest.mark.parametrize("seed", range(8))
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


@pytest.mark.parametrize("name", first(2, QAP))
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
