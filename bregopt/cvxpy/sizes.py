"""The memory that reading a CVXPY problem takes, and the refusal of problems that need more than there is."""

from __future__ import annotations

from typing import Any

from bregopt.memory import check_memory

__all__ = ["check_sizes"]

_VARIABLE = 32  # bytes for each element of a variable: our form, its places and its value
_CONSTRAINT = 64  # bytes for each element of a constraint: rows and their coefficients


def check_sizes(problem: Any) -> None:
    """Refuse a problem that does not fit in memory, before an array of its size is made.

    Parameters
    ----------
    problem : cvxpy.Problem

    Raises
    ------
    ValueError
        The message names the largest variable or constraint, the memory needed and the memory there is.
    """
    needed = {
        f"variable {variable.name()} of shape {variable.shape}": _VARIABLE * variable.size
        for variable in problem.variables()
    }
    for number, constraint in enumerate(problem.constraints):
        needed[f"constraint {number} of shape {constraint.shape}"] = _CONSTRAINT * constraint.size
    if needed:
        largest = max(needed, key=needed.__getitem__)
        check_memory(float(sum(needed.values())), f"the CVXPY problem, with {largest},")
