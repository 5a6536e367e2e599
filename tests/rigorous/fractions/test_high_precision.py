"""Bounds in high precision: closed forms within one unit of a double, and files that fractions check."""

import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
from rational import KINDS, problem
from samples import first, turns

import bregopt as bo
import bregopt_check as check
from bregopt.records import replace

pytest.importorskip("flint")
ULP = 2.3e-16
# Of the file, given that slacks have a trace of at most R; to the digits shown, in the sign of SDPLIB.
HINF = [
    ("hinf1", 1e8, 2.0325997),
    ("hinf1", 1e16, 1.847),
    ("hinf4", 1e12, 274.763827),
    ("hinf4", 1e16, 274.732),
]


def exact(problem, **options):
    return problem.solve(tol=1e-6).verify(exact=True, **options)


def pentagon():
    X = bo.PSD(5)
    edges = [X[i, (i + 1) % 5] == 0 for i in range(5)]
    return bo.Problem(bo.Maximize(bo.sum(X)), [bo.trace(X) == 1, *edges])


def unattained():
    X = bo.PSD(2)
    return bo.Problem(bo.Minimize(2 * X[0, 1]), [X[1, 1] == 0, X[0, 0] == 1])


def test_the_theta_number_of_a_pentagon_is_the_root_of_five():
    found = exact(pentagon())
    assert Fraction(found.lower) ** 2 <= 5 <= Fraction(found.upper) ** 2
    assert found.relative_width <= 2 * ULP


def test_a_free_variable_and_one_in_a_box():
    """The least eigenvalue of [[2, 1], [1, 3]] is the smaller root of ``t^2 - 5 t + 5``."""
    t, Z, v = bo.Variable(), bo.PSD(2), bo.Variable()
    rows = [Z[0, 0] + t == 2, Z[0, 1] == 1, Z[1, 1] + t == 3, v >= 1, v <= 4]
    found = exact(bo.Problem(bo.Maximize(t - 2 * v), rows))
    low, high = (Fraction(bound) + 2 for bound in (found.lower, found.upper))
    assert low**2 - 5 * low + 5 >= 0 >= high**2 - 5 * high + 5
    assert found.width <= 4 * ULP


@pytest.mark.parametrize("bound", [10.0, 1e3, 1e8])
def test_the_optimum_given_a_trace_of_slacks(bound):
    """``Z = [[-y2, 1], [1, -y1]]`` of a trace of at most R: ``y2`` is a root of ``y2^2 + R y2 + 1``."""
    found = exact(unattained(), trace=bound)
    R = Fraction(bound)
    signs = [Fraction(y) ** 2 + R * Fraction(y) + 1 for y in (found.lower, found.upper)]
    assert signs[0] <= 0 <= signs[1]
    assert found.width <= 2 * ULP * abs(found.lower) + 1e-20
    assert "trace of at most" in found.given[-1]
    profile = unattained().solve().trace_profile([bound], exact=True)
    assert (profile.lower[0], profile.upper[0]) == (found.lower, found.upper)


@pytest.mark.parametrize(("name", "bound", "value"), HINF)
def test_hinf_given_a_trace_of_slacks(data, name, bound, value):
    found = exact(bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz"), trace=bound)
    assert abs(found.lower - value) <= 10.0 ** -len(str(value).partition(".")[2])
    assert found.relative_width <= 4 * ULP


@pytest.mark.parametrize("name", first(2, ["hinf3", "truss4", "hinf6", "control1"]))
def test_files_without_an_assumption(data, name, tmp_path, capsys):
    found = exact(bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz"))
    assert found.relative_width <= 4 * ULP
    found.certificate.save(tmp_path / "proof.npz")
    type(found.certificate).load(tmp_path / "proof.npz").check()
    assert check.main([str(tmp_path / "proof.npz")]) == 0
    assert capsys.readouterr().out.count(": proven") == 2


@pytest.mark.parametrize(("kind", "seed"), turns([kind for kind in KINDS if kind != "soft"], [0, 1]))
def test_no_interval_excludes_an_integer_optimum(kind, seed, tmp_path):
    known = problem(np.random.default_rng(seed), kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        found = known.problem.solve().verify(exact=True)
    assert found.lower <= known.value <= found.upper
    assert found.relative_width <= 1e-6
    found.certificate.save(tmp_path / "proof.npz")
    type(found.certificate).load(tmp_path / "proof.npz").check()
    if kind != "face":
        assert check.main([str(tmp_path / "proof.npz")]) == 0


@pytest.mark.parametrize("part", ["y", "X"])
def test_changed_digits_prove_less(part, tmp_path, capsys):
    certificate = exact(pentagon()).certificate
    digits = certificate.digits
    changed = {
        "y": digits._replace(y=digits.y * 1.01),
        "X": digits._replace(X=(-digits.X[0],)),
    }
    forged = replace(certificate, digits=changed[part])
    with pytest.raises(ValueError, match="the file claims"):
        forged.check()
    forged.save(tmp_path / "forged.npz")
    with pytest.raises(ValueError, match="the file claims"):
        type(forged).load(tmp_path / "forged.npz").check()
    assert check.main([str(tmp_path / "forged.npz")]) == 1


def test_numbers_of_too_many_parts_are_refused(tmp_path):
    certificate = exact(pentagon()).certificate
    many = np.concatenate([certificate.digits.y, np.zeros((80, 6))])
    replace(certificate, digits=certificate.digits._replace(y=many)).save(tmp_path / "long.npz")
    with pytest.raises(ValueError, match=r"digits_y is .*; expected 1 to 64 parts"):
        type(certificate).load(tmp_path / "long.npz")


def soft():
    X = bo.PSD(2)
    return bo.Problem(bo.Minimize(X[0, 0]), [bo.soft(X[0, 1] >= 1, 1.0), bo.trace(X) == 2])


@pytest.mark.parametrize("maximize", [False, True])
def test_second_order_cones_hold_roots(maximize, tmp_path):
    # The way from (1, 2) to (-1, -1) by a point with u_0 >= 0; the largest sum in the circle.
    X, u = bo.PSD(2), bo.Variable(2)
    ways = bo.norm2(u - np.array([1.0, 2.0])) + bo.norm2(u + 1.0)
    objective = bo.Maximize(u[0] + u[1]) if maximize else bo.Minimize(ways + X[0, 1])
    rows = [bo.diag(X) == 1, bo.norm2(u) <= X[0, 0] if maximize else u[0] >= 0]
    found = exact(bo.Problem(objective, rows))
    less, square = (0, 2) if maximize else (1, 13)
    assert (Fraction(found.lower) + less) ** 2 <= square <= (Fraction(found.upper) + less) ** 2
    assert found.width <= 4 * ULP
    found.certificate.save(tmp_path / "cone.npz")
    found.certificate.check()
    assert check.main([tmp_path / "cone.npz"]) == 0


def test_rows_and_columns_that_equalities_fix_to_zero(tmp_path):
    # The rows add up to 0.3 X_11 + 0.4 X_12 + 0.5 X_22 = 0, a definite form, and no multipliers attain 1.
    X, path, forged = bo.PSD(3), tmp_path / "face.npz", tmp_path / "forged.npz"
    rows = [X[0, 0] + 0.1 * X[1, 1] + 0.3 * X[1, 2] == 1]
    rows += [-X[0, 0] + 0.2 * X[1, 1] + 0.1 * X[1, 2] + 0.5 * X[2, 2] == -1]
    found = exact(bo.Problem(bo.Minimize(X[0, 0] + 2 * X[0, 1] + X[0, 2]), rows))
    assert 1 - 1e-9 <= found.lower <= 1 <= found.upper <= 1 + 4 * ULP
    certificate = found.certificate
    certificate.save(path)
    bo.BoundCertificate.load(path).check()
    assert check.main([path]) == 0
    face = certificate.face
    for wrong in (
        face._replace(weight=face.weight + np.array([1e-40, 0])),
        face._replace(weight=-face.weight),
        face._replace(directions=(np.eye(3),)),
        face._replace(directions=(np.eye(3)[:, 2:],)),
    ):
        forgery = replace(certificate, face=wrong)
        with pytest.raises(ValueError, match="do not imply the face"):
            forgery.check()
        forgery.save(forged)
        assert check.main([forged]) != 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "optimum"), [("hinf1", 0), ("hinf4", 271.4977), ("hinf7", 154.9047), ("hinf8", 58.4492)]
)
def test_hinf_on_faces(data, name, optimum, tmp_path):
    found = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz").solve().verify(exact=True)
    assert found.lower == pytest.approx(optimum, abs=1e-4)
    assert found.width <= 2 * ULP * (1 + optimum)
    found.certificate.save(tmp_path / "face.npz")
    assert check.main([tmp_path / "face.npz"]) == 0


def near():
    X = bo.PSD(2)
    return bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), [X[0, 1] == 1])


def large():
    X = bo.PSD(80)
    return bo.Problem(bo.Minimize(bo.inner(np.ones((80, 80)), X)), [bo.diag(X) == 1])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (soft, "not soft rows"),
        (near, "not a divergence"),
        (large, "80 rows"),
    ],
)
def test_other_problems_are_refused(made, message):
    with pytest.raises(ValueError, match=f"exact=True .*{message}"):
        exact(made())


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(ImportError, match=r"bregopt\[exact\]"):
        exact(pentagon())
