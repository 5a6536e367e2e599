"""Answers as files or on the standard output: ``.npz`` arrays, ``.json`` a report, ``.csv`` the matrix."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from bregopt.files import is_standard, replacing, zipped
from bregopt.io.matrices import csv_text
from bregopt.io.spec import Spec
from bregopt.program.lowrank import LowRank
from bregopt.routes.solution import Solution

__all__ = ["PARTS", "WRITERS", "write_answer"]

PARTS = ("X", "u", "duals")  # of an answer, that a report has on request


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
