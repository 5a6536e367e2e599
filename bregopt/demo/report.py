"""The results of the cases of the demo, and the table at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import bregopt as bo
from bregopt.records import dataclass

__all__ = ["Case", "Line", "agree", "compared", "summary_table"]


@dataclass(frozen=True)
class Line:
    """One solved problem beside its reference."""

    problem: str
    solution: bo.Solution
    reference: bo.Solution
    agrees: bool


@dataclass(frozen=True)
class Case:
    """A finished case: its lines, its findings, and its picture."""

    name: str
    lines: Sequence[Line]
    findings: Sequence[str]
    draw: Callable[[Any], None]  # takes an empty matplotlib figure


def compared(
    name: str, problem: bo.Problem, verbose: bool, reference_tol: float = 1e-6, **options: Any
) -> Line:
    """Return the answers of the automatic route and of the reference, and whether they agree.

    Parameters
    ----------
    name : str
        The name of the problem in the table.
    problem : bregopt.Problem
    verbose : bool
        Print the progress of the automatic route.
    reference_tol : float
        Relative tolerance of the reference.
    **options
        Options of the automatic route.
    """
    solution = problem.solve(verbose=verbose, **options)
    reference = problem.solve(solver="cvxpy", tol=reference_tol)
    problem.solution = solution
    return Line(name, solution, reference, agree(solution, reference))


def agree(a: bo.Solution, b: bo.Solution) -> bool:
    """Whether the values of two answers differ by at most the sum of their certified errors."""
    return abs(a.value - b.value) <= a.error + b.error


def summary_table(lines: Sequence[Line]) -> str:
    """Return the table of all lines, one a problem."""
    heads = (
        "problem",
        "route",
        "value",
        "certified gap",
        "CVXPY's value",
        "its gap",
        "agree",
        "seconds",
        "CVXPY",
    )
    rows = [heads]
    for line in lines:
        ours, theirs = line.solution, line.reference
        rows.append(
            (
                line.problem,
                ours.solver,
                f"{ours.value:.7g}",
                f"{ours.gap:.1e}",
                f"{theirs.value:.7g}",
                f"{theirs.gap:.1e}",
                "yes" if line.agrees else "NO",
                f"{ours.timings['total']:.2f}",
                f"{theirs.timings['total']:.2f}",
            )
        )
    widths = [max(len(row[k]) for row in rows) for k in range(len(heads))]
    text = [_aligned(row, widths) for row in rows]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    left, right = row[:2], row[2:]
    cells = [cell.ljust(w) for cell, w in zip(left, widths[:2], strict=True)]
    cells += [cell.rjust(w) for cell, w in zip(right, widths[2:], strict=True)]
    return "  ".join(cells)
