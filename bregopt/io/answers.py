"""Answers written to files: ``.npz`` all arrays, ``.json`` the certificate, ``.csv`` the matrix."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from bregopt.io.matrices import write_csv
from bregopt.io.spec import Spec
from bregopt.program.lowrank import LowRank
from bregopt.routes.solution import Solution

__all__ = ["WRITERS"]


def _write_npz(path: Path, spec: Spec, solution: Solution) -> None:
    """Write ``X`` (``factor`` where low rank; ``X_name`` where several), ``u_name`` and ``dual_k``."""
    found = solution.X if isinstance(solution.X, tuple) else (solution.X,)
    arrays: dict[str, Any] = {}
    for X, value in zip(spec.problem.matrices, found, strict=True) if solution.X is not None else ():
        kind, array = ("factor", value.factor) if isinstance(value, LowRank) else ("X", value)
        arrays[kind if len(found) == 1 else f"{kind}_{X.name}"] = array
    arrays |= {f"u_{name}": value for name, value in solution.u.items() if value is not None}
    arrays |= {f"dual_{k}": value for k, value in enumerate(solution.duals or ())}
    np.savez(path, **arrays)


def _write_json(path: Path, spec: Spec, solution: Solution) -> None:
    """Write status, values, certificate and timings of the answer; null for numbers that are not finite."""
    names = ("status", "value", "dual_value", "gap", "residuals", "solver", "iterations", "timings")
    report = {name: _plain(getattr(solution, name)) for name in names}
    path.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _write_csv(path: Path, spec: Spec, solution: Solution) -> None:
    if spec.labeled is None or solution.X.shape != spec.labeled.values.shape:
        write_csv(path, solution.X)
    else:
        write_csv(path, solution.X, spec.labeled.index, spec.labeled.columns)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


WRITERS = {".npz": _write_npz, ".json": _write_json, ".csv": _write_csv}
