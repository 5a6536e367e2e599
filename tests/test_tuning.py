"""The numerical constants of the methods: passed by experts, checked, and without influence on the truth."""

from dataclasses import fields, replace

import numpy as np
import pytest

import bregopt as bo


@pytest.mark.parametrize("solver", bo.solvers())
def test_every_route_gives_its_constants(solver):
    tuning = bo.tuning(solver)
    assert tuning == type(tuning)()
    documented = {name for cls in type(tuning).__mro__ for name in (cls.__doc__ or "").split()}
    assert {field.name for field in fields(tuning)} <= documented


def test_a_constant_of_the_wrong_kind_is_refused():
    tuning = bo.tuning("path")
    with pytest.raises(TypeError, match=r"rounds is 2\.5; expected an integer"):
        replace(tuning, rounds=2.5)
    with pytest.raises(TypeError, match="first_tol is 'small'; expected a number"):
        replace(tuning, first_tol="small")
    with pytest.raises(ValueError, match=r"first_tol is -1\.0; expected a positive number"):
        replace(tuning, first_tol=-1.0)
    with pytest.raises(ValueError, match="first_tol is nan; expected a positive number"):
        replace(tuning, first_tol=float("nan"))
    with pytest.raises(TypeError, match="interior is None; expected a InteriorPointTuning"):
        replace(bo.tuning("bregman"), interior=None)


def test_the_constants_of_another_method_are_refused():
    A = np.array([[1.0, 0.9, 0.3], [0.9, 1.0, 0.9], [0.3, 0.9, 1.0]])
    with pytest.raises(TypeError, match=r"expected ProjectionTuning, such as bo\.tuning\(solver\)"):
        bo.nearest_correlation(A, solver="bregman", tuning=bo.tuning("path"))


def test_the_constants_of_a_method_select_its_route(capsys):
    X = bo.PSD(3, name="X")
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1])
    assert problem.solve(tuning=bo.tuning("path")).solver == "path"
    assert problem.solve(tuning=bo.tuning("cvxpy")).solver == "cvxpy"
    problem.explain(tuning=bo.tuning("cvxpy"))
    assert "it has no option 'tuning' of type ReferenceTuning" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "constants", "steps"),
    [
        ({"method": "cyclic"}, {"cycle_limit": 3}, 3),
        ({"method": "newton"}, {"newton_limit": 2}, 2),
        ({"weights": [[1, 2, 1], [2, 1, 3], [1, 3, 1]]}, {"weighted_limit": 2, "certificate_steps": 1}, 2),
    ],
)
def test_projections_obey_their_constants(options, constants, steps):
    A = np.array([[1.0, 0.9, -0.4], [0.9, 1.0, 0.3], [-0.4, 0.3, 1.0]])
    tuning = replace(bo.tuning("bregman"), **constants)
    with pytest.warns(bo.ConvergenceWarning):
        sol = bo.nearest_correlation(A, solver="bregman", tol=1e-14, tuning=tuning, **options)
    assert sol.iterations == steps
