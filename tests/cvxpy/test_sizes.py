"""Problems that do not fit in memory are refused with the number, before anything of that size is made."""

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL

import bregopt as bo
import bregopt.cvxpy  # registers the method and the solver
from bregopt.cli import main

BREGOPT_ASKED = hasattr(CLARABEL, "can_solve")


def declared():
    X = cp.Variable((1_000_000, 1_000_000), PSD=True, name="X")
    return cp.Problem(cp.Minimize(X[0, 0]), [X[0, 1] >= 1])


def required():
    X = cp.Variable((1_000_000, 1_000_000), symmetric=True, name="X")
    return cp.Problem(cp.Minimize(X[0, 0]), [X >> 0, X[0, 1] >= 1])


def affine():
    x = cp.Variable(100_000, name="x")
    return cp.Problem(cp.Minimize(cp.sum(x)), [cp.diag(x) >> 0])


SIZES = {
    declared: r"variable X of shape \(1000000, 1000000\), .* need 32000.0 GB of memory, this machine has",
    required: r"constraint 0 of shape \(1000000, 1000000\), .* need 96000.0 GB",
    affine: r"constraint 0 of shape \(100000, 100000\), .* need 640.0 GB",
}


@pytest.mark.parametrize("problem", SIZES)
def test_cvxpy_problems_are_refused_with_the_number(problem):
    with pytest.raises(ValueError, match=SIZES[problem]):
        bo.from_cvxpy(problem())
    with pytest.raises(ValueError, match=SIZES[problem]):
        problem().solve(method="bregopt")


@pytest.mark.skipif(not BREGOPT_ASKED, reason="this version of CVXPY compiles before it asks a solver")
@pytest.mark.parametrize("problem", SIZES)
def test_the_conic_solver_refuses_before_cvxpy_compiles(problem):
    with pytest.raises(ValueError, match=SIZES[problem]):
        problem().solve(solver="BREGOPT")


def test_the_sum_of_the_sizes_counts(monkeypatch):
    monkeypatch.setattr("bregopt.arrays.memory", lambda: 1_000_000)
    x = [cp.Variable((100, 100), PSD=True) for _ in range(3)]
    fits, not_fits = (cp.Problem(cp.Minimize(sum(X[0, 0] for X in part))) for part in (x[:2], x))
    assert bo.from_cvxpy(fits).program().m == 0
    with pytest.raises(ValueError, match=r"need 0.0 GB of memory, this machine has 0.0 GB"):
        bo.from_cvxpy(not_fits)


FILES = {
    "a dense block of order a million": ("1\n1\n1000000\n1.0\n0 1 1 1 1\n1 1 1 1 1\n", "128000.0 GB"),
    "a diagonal block of a billion": ("1\n2\n2 -1000000000\n1.0\n0 1 1 1 1\n1 1 1 1 1\n", "100.0 GB"),
    "a billion rows": ("1000000000\n1\n2\n1.0\n0 1 1 1 1\n", "expected the 1000000000 numbers of c"),
    "a billion blocks": ("1\n1000000000\n2\n1.0\n0 1 1 1 1\n", "expected the sizes of 1000000000 blocks"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_refused_with_the_number(name, tmp_path, capsys):
    text, message = FILES[name]
    path = tmp_path / "large.dat-s"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        bo.read_sdpa(path).solve()
    assert main(["solve", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_small_problems_beside_a_large_block_are_not_listed():
    """A block of order a million has too many entries to look for rows that define them."""
    X, Y, u = bo.PSD(1_000_000, name="X"), bo.PSD(2, name="Y"), bo.Variable(name="u")
    entries = [Y[i, j] == u * float(i == j) for i in range(2) for j in range(i + 1)]
    problem = bo.Problem(bo.Minimize(u + X[0, 0]), [*entries, bo.trace(X) == 1])
    with pytest.raises(bo.UnsupportedProblemError, match=r"128000\.0 GB"):
        problem.solve(solver="path")
    assert np.isfinite(problem.program().bound_scale)
