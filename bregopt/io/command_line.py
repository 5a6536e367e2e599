"""The files of the command line: the problem of a file, whatever its format, and answers as files."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bregopt.arrays import symmetric_matrix
from bregopt.files import is_standard, replacing, zipped
from bregopt.io.cbf import SUFFIXES as CBF
from bregopt.io.cbf import read_cbf
from bregopt.io.matrices import SUFFIXES as MATRICES
from bregopt.io.matrices import csv_text, read_matrix
from bregopt.io.sdpa import SUFFIXES as SDPA
from bregopt.io.sdpa import read_sdpa
from bregopt.io.spec import Spec, load_spec
from bregopt.modeling.atoms import diag
from bregopt.modeling.objectives import Minimize, frobenius_div, logdet_div, von_neumann_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.program.lowrank import LowRank
from bregopt.routes.solution import Solution

__all__ = [
    "ACCEPTED",
    "DIVERGENCES",
    "PARTS",
    "PROBLEMS",
    "WRITERS",
    "is_sdpa",
    "problem_of_file",
    "problem_of_matrix",
    "states_problem",
    "write_answer",
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
PARTS = ("X", "u", "duals")  # of an answer, that a report has on request


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
    if not (is_sdpa(path) or _is_cbf(path)):
        spec = load_spec(path, parameters)
        for p in spec.problem.parameters:
            if p.value is None:
                raise ValueError(f"{path}: parameter {p.name} has no value; give one by --set {p.name}=...")
        return spec
    problem = read_sdpa(path) if is_sdpa(path) else read_cbf(path)
    program, n = problem.program(), [X.n for X in problem.matrices]
    orders = f"{len(n)} matrices of order up to {max(n)}" if len(n) > 1 else f"1 matrix of order {n[0]}"
    sizes = f"{program.m} equalities, {orders}, {program.k} nonnegative numbers"
    if not is_sdpa(path):
        cones = f"second-order cones: {program.cones.count}"
        sizes = f"{program.m} rows, {orders}, {program.k} scalars, {cones}"
    return Spec(f"{path.name}: {sizes}", problem)


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


def write_answer(path: Path, spec: Spec, solution: Solution, parts: Collection[str] = ()) -> None:
    """Write an answer in the format of the ending of `path`; ``-`` alone is a report on the standard output.

    Parameters
    ----------
    path : Path
    spec : Spec
    solution : Solution
        With an ``X``, if it is written as ``.csv``.
    parts : collection of {"X", "u", "duals"}
        What a report has besides status, values and timings.
    """
    data = WRITERS[path.suffix.lower() or ".json"](spec, solution, parts)
    if is_standard(path):
        sys.stdout.write(data.decode("utf-8"))
    else:
        with replacing(path) as file:
            file.write(data)


def _npz(spec: Spec, solution: Solution, _: Collection[str]) -> bytes:
    """Return ``X`` (``factor`` where low rank; ``X_name`` where several), ``u_name`` and ``dual_k``."""
    arrays: dict[str, Any] = {}
    found = _matrices(spec, solution)
    for name, value in found.items():
        kind, array = ("factor", value.factor) if isinstance(value, LowRank) else ("X", value)
        arrays[kind if len(found) == 1 else f"{kind}_{name}"] = array
    arrays |= {f"u_{name}": value for name, value in solution.u.items() if value is not None}
    arrays |= {f"dual_{k}": value for k, value in enumerate(solution.duals or ())}
    return zipped(arrays)


def _json(spec: Spec, solution: Solution, parts: Collection[str]) -> bytes:
    """Return status, values, certificate and timings, and these parts; null for what is not finite.

    Complex numbers are tables of their real and imaginary parts.
    """
    names = ("status", "value", "dual_value", "gap", "residuals", "solver", "iterations", "timings")
    report = {name: getattr(solution, name) for name in names}
    if "X" in parts:
        matrices = _matrices(spec, solution)
        report["X"] = {X.name: _matrix(matrices.get(X.name)) for X in spec.problem.matrices}
        if spec.labeled is not None:
            report["labels"] = {"rows": spec.labeled.index, "columns": spec.labeled.columns}
    if "u" in parts:
        report["u"] = solution.u
    if "duals" in parts:
        constraints = spec.problem.constraints
        duals = solution.duals or [None] * len(constraints)
        labeled = zip(constraints, duals, strict=True)
        report["duals"] = [{"constraint": c.label, "value": value} for c, value in labeled]
    return (json.dumps(_plain(report), indent=2, allow_nan=False) + "\n").encode("utf-8")


def _csv(spec: Spec, solution: Solution, _: Collection[str]) -> bytes:
    table = spec.labeled
    if table is None or solution.X.shape != table.values.shape:
        return csv_text(solution.X).encode("utf-8")
    return csv_text(solution.X, table.index, table.columns).encode("utf-8")


def _matrices(spec: Spec, solution: Solution) -> dict[str, Any]:
    """Return the matrices of an answer by name; none if there is no answer."""
    if solution.X is None:
        return {}
    found = solution.X if isinstance(solution.X, tuple) else (solution.X,)
    return {X.name: value for X, value in zip(spec.problem.matrices, found, strict=True)}


def _matrix(X: Any) -> Any:
    return {"factor": X.factor} if isinstance(X, LowRank) else X


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, complex | np.ndarray) and np.iscomplexobj(value):
        return {"real": _plain(np.real(value)), "imag": _plain(np.imag(value))}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


WRITERS: dict[str, Callable[[Spec, Solution, Collection[str]], bytes]] = {
    ".npz": _npz,
    ".json": _json,
    ".csv": _csv,
}
