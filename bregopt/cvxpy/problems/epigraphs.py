"""Convex atoms that our language has no form for, in terms of their epigraphs: rows, cones and psd matrices.

CVXPY knows the epigraph of each of its atoms: a norm is a variable and a second-order cone, a nuclear norm a
psd matrix and its trace. Such atoms are replaced, in constraints and in objectives, where all cones of the
epigraph are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cvxpy as cp
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone

from bregopt.errors import UnsupportedProblemError

__all__ = ["SENSES", "affine_problem", "epigraph"]

SENSES = {"Equality": "==", "Zero": "==", "Inequality": "<=", "NonPos": "<=", "NonNeg": ">="}
_CONES = ("PSD", "SOC")
_APPROXIMATED = "quantum_rel_entr"  # CVXPY has no epigraph of it, but one of an approximation


def affine_problem(problem: Any, more: Sequence[Any]) -> tuple[Any, dict[Any, Any]]:
    """Return a problem with affine constraints, `more` of them at the end, and the given one of each.

    Raises
    ------
    UnsupportedProblemError
        If a constraint needs other cones than ours, or is not convex.
    """
    constraints, given, extra = [], {}, [*more]
    for number, c in enumerate(problem.constraints):
        if _is_read(c):
            constraints.append(c)
            continue
        affine, own = _canonical(c, f"constraint {number}: {_atoms(c)} is not affine")
        constraints.append(affine)
        given[affine] = c
        extra += own
    if not extra and not given:
        return problem, {}
    return cp.Problem(problem.objective, [*constraints, *extra]), given


def epigraph(atom: Any) -> tuple[Any, list[Any]]:
    """Return an affine expression in place of an atom of an objective, and the constraints that it needs.

    Raises
    ------
    UnsupportedProblemError
        If it needs other cones than ours, or is not convex.
    """
    return _canonical(atom, f"the objective contains {_name(atom)}")


def _is_read(c: Any) -> bool:
    """Whether a constraint is read as it is: all its arguments are affine, or its kind is refused later."""
    return type(c).__name__ not in (*SENSES, *_CONES) or all(argument.is_affine() for argument in c.args)


def _canonical(part: Any, refusal: str) -> tuple[Any, list[Any]]:
    if not part.is_dcp() or _contains(part, _APPROXIMATED):
        raise UnsupportedProblemError(refusal)
    try:
        affine, own = _replaced(part, Dcp2Cone())
    except (NotImplementedError, ValueError, cp.error.SolverError):  # as some atoms say
        raise UnsupportedProblemError(refusal) from None
    for c in own:
        if not (type(c).__name__ in (*SENSES, *_CONES) and all(argument.is_affine() for argument in c.args)):
            raise UnsupportedProblemError(f"{refusal}, and its epigraph needs a cone of the kind {_name(c)}")
    return affine, own


def _replaced(part: Any, cvxpys: Dcp2Cone) -> tuple[Any, list[Any]]:
    """Return an expression or constraint with epigraphs in place of atoms; affine parts stay as they are."""
    if isinstance(part, cp.Expression) and part.is_affine():
        return part, []
    if type(part).__name__ == "PartialProblem":
        return cvxpys.canonicalize_tree(part, False)
    arguments, constraints = [], []
    for argument in part.args:
        affine, own = _replaced(argument, cvxpys)
        arguments.append(affine)
        constraints += own
    affine, own = cvxpys.canonicalize_expr(part, arguments, False)
    return affine, [*constraints, *own]


def _atoms(c: Any) -> str:
    """Return the names of the atoms of a constraint that are not affine."""
    names = {_name(atom): None for argument in c.args for atom in _not_affine(argument)}
    return " and ".join(names) or _name(c)


def _not_affine(expression: Any) -> list[Any]:
    inner = [atom for argument in expression.args for atom in _not_affine(argument)]
    own = not expression.is_affine() and all(argument.is_affine() for argument in expression.args)
    return [expression, *inner] if own else inner


def _contains(part: Any, name: str) -> bool:
    return _name(part) == name or any(_contains(argument, name) for argument in part.args)


def _name(atom: Any) -> str:
    return type(atom).__name__.removesuffix("Approx")
