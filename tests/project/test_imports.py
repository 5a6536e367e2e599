"""Optional and large packages are imported where they are used only; one process looks at every step."""

import subprocess
import sys

import pytest

pytest.importorskip("sklearn")

CODE = """
import sys
import scipy.linalg, scipy.sparse  # which import more of SciPy in some versions

scipys = set(sys.modules)

def assert_lean(*more):
    found = {"cvxpy", "sklearn", "pandas", "matplotlib", *more} & set(sys.modules) - scipys
    assert not found, found

import bregopt as bo
assert_lean("networkx", "highspy", "scipy.optimize", "scipy.special")
assert_lean("scipy.sparse.csgraph", "scipy.sparse.linalg")
assert_lean("threadpoolctl", "fractions", "bregopt.rigorous.proof", "bregopt.routes.conflict")
classes = {
    cls
    for name, module in sys.modules.items() if name.startswith("bregopt")
    for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == name
}
records = {cls for cls in classes if "__record__" in vars(cls)}
assert len(records) > 50
compiled = {cls for cls in classes - records if "__dataclass_fields__" in vars(cls)}
assert not compiled, compiled  # the standard library takes half a millisecond for each
assert {"learn", "online", "Problem"} <= set(dir(bo)), dir(bo)
assert_lean("networkx", "highspy")

import bregopt.cli
assert_lean()

X = bo.PSD(2)
bo.Problem(bo.Minimize(bo.logdet_div(X, [[1, 0], [0, 1]])), [bo.trace(X) == 1]).explain()
assert_lean()
bo.nearest_correlation([[1, 1, 0], [1, 1, 1], [0, 1, 1]])
assert_lean()

print(bo.learn.LogDetMetricLearner.__name__, bo.online.MEG.__name__)
"""

FIRST_SOLVE = """
import sys
import bregopt as bo

def loaded(*names):
    return [m for m in sys.modules for name in names if m.startswith(f"bregopt.{name}")]

print(bo.nearest_correlation([[1, 1, 0], [1, 1, 1], [0, 1, 1]]).status)
files = "chunks", "io.stacks", "problems.stacks"
print(loaded("routes.ipm.", "presolve.chordal", "problems.correlation.rank", *files))
print(bo.nearest_psd([[1, 2], [2, 1]], lambda X: bo.trace(X) == 1).status)
others = "presolve.revealed_faces", "routes.projection.weights_lagrangian", "routes.matrix_generation"
print(loaded("routes.ipm.path", *others))
print(bo.max_cut([[0, 1, 1], [1, 0, 1], [1, 1, 0]]).status)
print({"scipy.optimize", "scipy.special"} & set(sys.modules))
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_first_solve_waits_for_the_modules_of_its_method_only():
    found = run(FIRST_SOLVE)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split("\n") == ["optimal", "[]", "optimal", "[]", "optimal", "set()", ""]


def test_packages_are_imported_where_they_are_used():
    found = run(CODE)
    assert found.returncode == 0, found.stderr
    assert "backend CLARABEL" in found.stdout  # of a solver of CVXPY's, which is not loaded
    assert found.stdout.splitlines()[-1] == "LogDetMetricLearner MEG"
