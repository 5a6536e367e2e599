"""The problem of a file, whatever its format: a spec, an SDPA or CBF file, or a matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bregopt.arrays import symmetric_matrix
from bregopt.io.cbf_reader import SUFFIXES as CBF
from bregopt.io.cbf_reader import read_cbf
from bregopt.io.matrices import SUFFIXES as MATRICES
from bregopt.io.matrices import read_matrix
from bregopt.io.sdpa import SUFFIXES as SDPA
from bregopt.io.sdpa import read_sdpa
from bregopt.io.spec import Spec, load_spec
from bregopt.modeling.atoms import diag
from bregopt.modeling.objectives import Minimize, frobenius_div, logdet_div, von_neumann_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD

__all__ = [
    "ACCEPTED",
    "DIVERGENCES",
    "PROBLEMS",
    "is_sdpa",
    "problem_of_file",
    "problem_of_matrix",
    "states_problem",
]

ACCEPTED = (
    f"a spec (.toml), an SDPA file ({', '.join(SDPA)}), a CBF file ({', '.join(CBF)}) or a matrix "
    f"({', '.join(MATRICES)})"
)
DIVERGENCES: dict[str, Callable[..., Any]] = {
    "frobenius": frobenius_div,
    "logdet": logdet_div,
    "von_neumann": von_neumann_div,
}
PROBLEMS = ("nearest-correlation", "nearest-psd")  # of one matrix


def is_sdpa(path: Path) -> bool:
    """Whether a name has an ending of SDPA's sparse format."""
    return path.name.lower().endswith(SDPA)


def states_problem(path: Path) -> bool:
    """Whether a name has the ending of a file that states a whole problem."""
    return path.suffix.lower() == ".toml" or is_sdpa(path) or _is_cbf(path)


def _is_cbf(path: Path) -> bool:
    return path.name.lower().endswith(CBF)


def problem_of_file(path: Path, parameters: Mapping[str, Any]) -> Spec:
    """Return the problem that a file states; `parameters` are values for those of a spec.

    Raises
    ------
    TypeError, ValueError
        If the file cannot be read, or a parameter has no value.
    """
    if is_sdpa(path):
        return _from_sdpa(path)
    return _from_cbf(path) if _is_cbf(path) else _with_values(path, load_spec(path, parameters))


def _with_values(path: Path, spec: Spec) -> Spec:
    for p in spec.problem.parameters:
        if p.value is None:
            raise ValueError(f"{path}: parameter {p.name} has no value; give one by --set {p.name}=...")
    return spec


def _from_sdpa(path: Path) -> Spec:
    problem = read_sdpa(path)
    program = problem.program()
    sizes = f"{program.m} equalities, {_matrices(problem)}, {program.k} nonnegative numbers"
    return Spec(f"{path.name}: {sizes}", problem)


def _from_cbf(path: Path) -> Spec:
    problem = read_cbf(path)
    program = problem.program()
    sizes = f"{program.m} rows, {_matrices(problem)}, {program.k} scalars"
    return Spec(f"{path.name}: {sizes}, second-order cones: {program.cones.count}", problem)


def _matrices(problem: Problem) -> str:
    orders = [X.n for X in problem.matrices]
    first = f"{len(orders)} matrices of order up to" if len(orders) > 1 else "1 matrix of order"
    return f"{first} {max(orders)}"


def problem_of_matrix(path: Path, key: str | None, problem: str | None, divergence: str) -> Spec:
    """Return a problem of the matrix in a file, one of :data:`PROBLEMS`.

    Raises
    ------
    ValueError
        If the matrix cannot be read or is not symmetric, its labels differ, or `problem` is None.
    """
    if path.suffix.lower() not in MATRICES:
        raise ValueError(f"{path}: files of type {path.suffix!r} are not read; expected {ACCEPTED}")
    table = read_matrix(path, key)
    if problem is None:
        choices = " or ".join(f"--problem {name}" for name in PROBLEMS)
        raise ValueError(f"{path} is a matrix: say what to find, {choices}")
    if table.index is not None and table.columns is not None and table.index != table.columns:
        raise ValueError(f"{path}: the labels of the rows and of the columns differ; expected the same")
    A = symmetric_matrix(table.values, str(path))
    X = PSD(len(A), name="X")
    rows = [diag(X) == 1] if problem == PROBLEMS[0] else []
    objective = Minimize(DIVERGENCES[divergence](X, A))
    return Spec(f"{problem} of {path.name}, {divergence}", Problem(objective, rows), labeled=table)
