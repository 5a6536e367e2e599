"""The error measures of the DIMACS challenge, of a problem and its solution."""

from __future__ import annotations

from bregopt.arrays import Array
from bregopt.certify import dimacs_errors as errors_of
from bregopt.modeling.problem import Problem
from bregopt.routes.solution import Solution

__all__ = ["dimacs_errors"]


def dimacs_errors(problem: Problem, solution: Solution) -> Array:
    """Return the six error measures of the 7th DIMACS challenge, recomputed from the data.

    Violated rows, ``X`` outside its cone, free variables whose cost is not met, ``Z = C - A*(y)`` outside its
    cone, the gap of the objectives, and ``<X, Z>``, each relative to the size of the data;
    :func:`bregopt.certify.dimacs_errors` has the formulas.

    Parameters
    ----------
    problem : Problem
        With a linear objective and hard rows.
    solution : Solution
        Of this problem, as :meth:`Problem.solve` returned it.

    Returns
    -------
    array of shape (6,)

    Raises
    ------
    ValueError
        If there is a divergence or a soft row, or the solution has no ``X`` or no multipliers.
    """
    raw = solution._in_program
    if raw is None or raw.X is None or raw.duals is None:
        raise ValueError(f"the solution ({solution.status}) has no X or no duals; expected both")
    return errors_of(problem.program(), *raw._point)
