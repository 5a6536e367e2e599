"""Types of the public surface: they are complete, and mypy checks the code of a user against them."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_overloads, get_type_hints

import pytest

from bregopt.chunks import RowChunks
from bregopt.modeling.affine import Affine
from bregopt.problems.stacks import PANEL
from bregopt.routes import registry
from bregopt.routes.base import Settings

ROOT = Path(__file__).parents[2]

# Public parameters, fields and results of arbitrary values. ``Array | Any`` is an array unless the data or
# the problem say otherwise: a checker knows arrays and asks for no check of the kind at each use.
ARBITRARY = {
    *{f"Solution.{name}" for name in ("X", "u", "duals", "duals_by_name")},
    "Solutions.X",
    "Design.support",  # an Index of pandas, whatever its labels are
    "Ellipsoid.contact",
    "Suggestion.arguments",  # arguments of a function
    *{f"Expression.{name}" for name in ("psd", "variables", "parameters")},  # the parts of an affine form
    "solve.options",  # those of CVXPY, too
    "PairDefiniteBoost.predict.return",  # the user's labels
    "NearestCorrelation.groups",
    "PartedGraph.plot.pos",  # by the names of vertices
    *{f"{owner}.to_networkx.return" for owner in ("PrecisionSolution", "SparsePrecision")},  # no stubs
    "GraphicalLassoSolution.components",  # the user's labels
    "GraphicalLassoCV.cv",  # of scikit-learn
    *{f"{name}.options" for name in ("graphical_lasso", "graphical_lasso_path", "Problem.bound")},
    "Problem.bound.fixings",  # by constraints, variables or names
}

# They repeat the fields of Solution.
SUBCLASSES = (
    "Communities",
    "CorrelationSolution",
    "Cut",
    "FactorModel",
    "GraphicalLassoSolution",
    "PartedGraph",
    "Partition",
    "PrecisionSolution",
    "ThetaNumber",
)

# `# E:` marks a line with an error, and its kind.
USER = """
from concurrent.futures import ThreadPoolExecutor
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import bregopt as bo

Array = NDArray[np.float64]
A: Array = np.eye(3)

X = bo.PSD(3)
t = bo.Variable(name="t", lower=0.0)
assert_type(X[0, 1], bo.Expression)
assert_type(bo.trace(X), bo.Expression)
assert_type(bo.sum(bo.square(X[0, :])), bo.CurvedExpression)
assert_type(bo.diag(X), bo.Expression)
assert_type(bo.inner(A, X), bo.Expression)
rows = [bo.trace(X) <= 3, X[0, 1] >= 0.2, bo.between(X[0, 2], -0.5, 0.5), t <= 1.0]
problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A) + t), [rows, bo.lambda_max(X) <= 2])
sol = problem.solve(tol=1e-8, time_limit=10.0, callback=lambda step: step.gap < 1e-3)
assert_type(sol, bo.Solution)
assert_type(sol.X, Array | Any)
assert_type(sol.u["t"], Array | Any)
assert_type(sol.gap, float)
problem.solve("path", warm_start=sol, verbose=True)
problem.solve(tolerance=1e-8)  # E: call-arg
problem.solve(tol="small")  # E: arg-type
problem.solve(solver=3)  # E: arg-type
bo.Problem(bo.Minimize(t), [3])  # E: list-item

near = bo.nearest_correlation(A, fixed=[[0, 1]], lower={(0, 2): 0.1}, weights=[1.0, 1.0, 2.0], tol=1e-9)
assert_type(near, bo.CorrelationSolution | bo.Solutions)
bo.nearest_correlation({"a": A, "b": A}, executor=ThreadPoolExecutor(), warm_start="chain")
bo.nearest_correlation(A, tolerance=1e-9)  # E: call-arg
bo.nearest_correlation(object())  # E: arg-type
bo.nearest_psd(A, lambda Y: [bo.diag(Y) == 1, Y[0, 1] >= 0])
kernel = bo.learn_kernel(bo.LowRank(A), similar=[[0, 1]], dissimilar=np.array([[0, 2]]), gamma=1.0)
assert_type(kernel, bo.Solution)
bo.learn_kernel(A, similar=3.0, gama=1.0)  # E: call-arg

found = bo.max_cut(A, bound="triangles", seed=1, time_limit=5.0)
assert_type(found.cut, float)
assert_type(found.partition, NDArray[np.intp])
bo.max_cut(A, bound="lp")  # E: arg-type
bo.partition([(0, 1), (1, 2)], 2, verbose=True, warm_start=True)  # E: call-arg

assert_type(bo.d_optimal(A).efficiency, float)
assert_type(bo.min_volume_ellipsoid(A).gap, float)
bo.solve_many([problem, (problem, {bo.Parameter(): 1.0}), "a.toml"], tol=1e-3, seed=1)
"""


def _public() -> Iterator[tuple[str, str, str]]:
    """Yield owner, parameter or "return", and annotation of all public functions, methods and fields."""
    for module in ("bregopt", "bregopt.learn", "bregopt.online", "bregopt.cvxpy"):
        for name in importlib.import_module(module).__all__:
            thing = getattr(importlib.import_module(module), name)
            if inspect.isfunction(thing):
                yield from _annotations(name, thing)
            for cls in thing.__mro__ if inspect.isclass(thing) else ():
                if not cls.__module__.startswith("bregopt") or cls is Affine:  # a base of Expression
                    continue
                for method, function in vars(cls).items():
                    function = getattr(function, "__func__", function)
                    if inspect.isfunction(function) and (method == "__init__" or not method.startswith("_")):
                        owner = cls.__name__ if method == "__init__" else f"{cls.__name__}.{method}"
                        yield from _annotations(owner, function)


def _annotations(owner, function):
    for each in get_overloads(function) or [function]:
        for parameter, annotation in each.__annotations__.items():
            if not parameter.startswith("_"):
                yield owner, parameter, str(annotation)


def test_public_signatures_have_no_any():
    found = {f"{owner}.{parameter}" for owner, parameter, text in _public() if re.search(r"\bAny\b", text)}
    repeated = {f"{owner}.{name}" for owner in SUBCLASSES for name in ("X", "u", "duals", "duals_by_name")}
    assert found - repeated == ARBITRARY


def test_every_public_parameter_has_a_type():
    for module in ("bregopt", "bregopt.learn", "bregopt.online"):
        for name in importlib.import_module(module).__all__:
            thing = getattr(importlib.import_module(module), name)
            if inspect.isfunction(thing):
                assert set(inspect.signature(thing).parameters) < set(thing.__annotations__), name


def test_the_types_of_options_are_those_of_the_settings():
    typed = get_type_hints(registry.RouteOptions)
    classes = [registry.load(name).Settings for name in registry._BUILT_IN]
    assert typed.keys() == {name for cls in classes for name in cls.__dataclass_fields__}
    for cls in classes:
        own = get_type_hints(cls)
        for name in own.keys() - {
            "tuning",
            "factor",
        }:  # of one route, and checked later
            assert typed[name] == own[name], name
    assert get_type_hints(registry.SolveOptions).keys() - typed.keys() == {"solver", "warm_start"}
    assert set(PANEL) <= get_type_hints(registry.StackOptions).keys()
    assert typed.keys() - get_type_hints(registry.SeededOptions).keys() == {"progress"}
    assert Settings.__dataclass_fields__.keys() <= registry.option_names("auto")


def test_the_options_of_learn_kernel_are_those_of_its_solves():
    of_chunks = set(inspect.signature(RowChunks.solve).parameters) - {"self", "X0", "divergence"}
    both = get_type_hints(registry.KernelOptions).keys()
    assert both - get_type_hints(registry.SolveOptions).keys() <= of_chunks <= both


def test_the_package_says_that_it_has_types():
    assert (ROOT / "bregopt/py.typed").exists()


@pytest.mark.slow
def test_mypy_checks_the_code_of_a_user(tmp_path):
    script = tmp_path / "user.py"
    script.write_text(USER)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(script)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    lines = USER.splitlines()
    expected = {(k + 1, line.split("# E: ")[1]) for k, line in enumerate(lines) if "# E: " in line}
    found = re.findall(r"^.*user\.py:(\d+): error: .*\[([\w-]+)\]$", run.stdout, re.M)
    assert {(int(line), kind) for line, kind in found} == expected, run.stdout + run.stderr
    assert run.stdout.count("error:") == len(found), run.stdout
