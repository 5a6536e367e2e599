"""What an answer proves of its problem: rigorous bounds of the optimum, and the error measures of DIMACS."""

from __future__ import annotations

import math
import time

from numpy.typing import ArrayLike

from bregopt.arrays import Array
from bregopt.certify import dimacs_errors as errors_of
from bregopt.modeling.problem import Problem
from bregopt.records import replace
from bregopt.rigorous.certificate import BoundCertificate, Verification
from bregopt.routes.solution import Solution
from bregopt.routes.verification import verified

__all__ = ["dimacs_errors", "verify"]


def verify(
    problem: Problem,
    solution: Solution | BoundCertificate | None = None,
    *,
    resolve: bool = True,
    trace_bound: ArrayLike | None = None,
    eigenvalue_bound: ArrayLike | None = None,
) -> Verification:
    """Return bounds on the optimum of a problem that are proven in spite of all rounding errors.

    The bounds are those of the problem at the current values of its parameters. The answer may be any guess,
    such as one of a similar problem: it changes how near the bounds are, not whether they hold.

    Parameters
    ----------
    problem : Problem
    solution : Solution or BoundCertificate, optional
        An answer of a problem with the same variables and rows; by default the last answer of `problem`. Of
        a certificate only its points and multipliers are used, and what its author states of traces: its
        claims are proven for this problem, from which all data come.
    resolve, trace_bound, eigenvalue_bound
        As for :meth:`bregopt.Solution.verify`.

    Returns
    -------
    Verification

    Raises
    ------
    TypeError, ValueError
        If there is no answer, or it has other variables or rows, or does not prove what it claims.
    """
    if not isinstance(problem, Problem):
        theirs = type(problem).__module__.partition(".")[0] == "cvxpy"
        hint = ": pass bo.from_cvxpy(problem), solved" if theirs else ""
        raise TypeError(f"problem is {type(problem).__name__}; expected a bo.Problem{hint}")
    given = problem.solution if solution is None else solution
    if given is None:
        raise ValueError("the problem has no answer; solve it first, or pass a solution")
    if isinstance(given, BoundCertificate):
        return _checked(problem, given)
    if not isinstance(given, Solution):
        raise TypeError(
            f"solution is {type(given).__name__}; expected the Solution of a problem, or a certificate"
        )
    raw = given._in_program or given
    program = problem.program()
    found = (len(raw.u), None if raw.duals is None else len(raw.duals))
    orders = None if raw.X is None else [X.shape[0] for X in raw.X]
    if found[0] != program.k or found[1] not in (None, program.m):
        raise ValueError(
            f"the solution has {found[1]} rows and {found[0]} variables; expected {program.m} and {program.k}"
        )
    if orders not in (None, [block.n for block in program.blocks]):
        own = [block.n for block in program.blocks]
        raise ValueError(f"the solution has matrices of orders {orders}; expected {own}")
    source = problem._compiled.proof_data(program)
    generated = bool(problem._generates)
    return verified(program, raw, resolve, trace_bound, eigenvalue_bound, source, generated=generated)


def _checked(problem: Problem, certificate: BoundCertificate) -> Verification:
    """Return the claims of a certificate, proven for a problem."""
    start = time.perf_counter()
    _, data, intervals = problem._compiled.proof_data(problem.program())
    if problem._generates and certificate.claims[1] < math.inf:  # no point is proven feasible
        lower_only = certificate.claims[0], math.inf
        certificate = replace(certificate, point=None, factor=None, ray=None, claims=lower_only)
    if certificate.terms or problem.program().terms:
        raise ValueError(
            "entropies and exponentials are proven with their tangents, which are in the file alone: "
            "certificate.check() proves it, and problem.solve().verify() your problem"
        )
    certificate = certificate.of_problem(data)
    certificate.check()
    lower, upper = certificate.claims
    lower, upper = (-upper, -lower) if data.maximize else (lower, upper)
    seconds = time.perf_counter() - start
    given = certificate.given
    return Verification(lower, upper, {}, given, intervals, seconds, source=certificate)


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
