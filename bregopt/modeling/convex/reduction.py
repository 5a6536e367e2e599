"""The reduction of expressions with curvature to affine expressions, rows, cones and divergences.

Each atom becomes a new variable ``t`` and its epigraph. A term of the objective with a form of its own, such
as a sum of squares, needs neither.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.modeling.constraints import Constraint, MatrixInequality, SecondOrderConstraint
from bregopt.modeling.convex.atom import Atom, ConvexPart, DivergenceTerm, Row, replaced
from bregopt.modeling.convex.divergence import LogDet, started_from_cost
from bregopt.modeling.convex.expression import ConvexConstraint, CurvedExpression
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import PSD, Variable
from bregopt.records import dataclass

__all__ = ["Reduction"]

Share = tuple[Row, Any]  # a row or cone, and the derivative of its multipliers' part in a bound


@dataclass(eq=False)
class Reduction:
    """What a problem needs besides its affine expressions.

    Attributes
    ----------
    rows : list of Constraint
    cones : list of SecondOrderConstraint
    divergences : list of DivergenceTerm
        Of the minimized objective, with weights above 0.
    inequalities : list of MatrixInequality
    terms : list of ConvexPart
        Convex functions of the minimized objective.
    weights : list of Expression
        Scalars of parameters that weigh convex terms: their values must not be negative.
    """

    rows: list[Constraint] = field(default_factory=list)
    cones: list[SecondOrderConstraint] = field(default_factory=list)
    divergences: list[DivergenceTerm] = field(default_factory=list)
    inequalities: list[MatrixInequality] = field(default_factory=list)
    terms: list[ConvexPart] = field(default_factory=list)
    weights: list[Expression] = field(default_factory=list)
    _epigraphs: dict[Atom, Expression] = field(default_factory=dict)
    _source: ConvexConstraint | None = None  # the inequality that is reduced at the moment

    def objective(self, e: CurvedExpression) -> Expression:
        """Return the affine part of a convex objective to be minimized; the other parts are kept here."""
        total, terms, determinants = e.affine, e.terms, list[DivergenceTerm]()
        if len(terms) > 1:  # divergences first: a matrix has one of them
            terms = tuple(sorted(terms, key=lambda term: not term.atom.objective_only))
        for term in terms:
            taken = {d.X for d in self.divergences}
            arguments = [a.expression() if a in taken else a for a in self._arguments(term.atom)]
            weights = term.factor * (np.ones(1) if term.matrix is None else term.matrix.toarray().ravel())
            if not weights.any():  # an array of factors is zero here
                continue
            parts = term.atom.paid(weights, term.parameter, *arguments)
            if parts is None:
                total = total.plus(self._term(term, ()))
                continue
            self._add(parts.rows)
            self.divergences += parts.divergences
            self.terms += parts.terms
            self.weights += [part.parameter for part in parts.terms if part.parameter is not None]
            total = total if parts.affine is None else total.plus(parts.affine)
            determinants += parts.divergences if isinstance(term.atom, LogDet) else ()
        for near in determinants:
            started, total = started_from_cost(near, total)
            self.divergences[self.divergences.index(near)] = started
        return total

    def inequality(self, c: ConvexConstraint) -> list[Share]:
        """Add rows for an inequality, and return them with the derivatives of its bound."""
        self._source = c
        shares = self._without_variable(c)
        if shares is None:
            row = self.affine(c.body) <= 0
            assert isinstance(row, Constraint)
            self._add([row])
            shares = [(row, sp.csr_array(-sp.eye_array(c.size)))]
        self._source = None
        return shares

    def affine(self, e: Any) -> Expression:
        """Return an expression with the variables of epigraphs in place of atoms."""
        if not isinstance(e, CurvedExpression):
            expression: Expression = e.expression()
            return expression
        total = e.affine
        for term in e.terms:
            total = total.plus(self._term(term, e.shape))
        return total

    def _term(self, term: Any, shape: tuple[int, ...]) -> Expression:
        if term.parameter is not None:
            self.weights.append(term.parameter)
        t: Expression = term.of(self._epigraph(term.atom))
        return t.taken(np.arange(t.size), shape, t.label)

    def _arguments(self, atom: Atom) -> list[Any]:
        """Return the arguments of an atom, affine; matrix variables stay as they are."""
        return [a if isinstance(a, PSD) else self.affine(a) for a in atom.arguments]

    def _epigraph(self, atom: Atom) -> Expression:
        if atom not in self._epigraphs:
            t = Variable(atom.shape).expression()
            self._epigraphs[atom] = t
            self._add(atom.epigraph(t, *(a.expression() for a in self._arguments(atom))))
        return self._epigraphs[atom]

    def _add(self, rows: Any) -> None:
        for row in rows:
            row.source = self._source
            if isinstance(row, MatrixInequality):
                self.inequalities.append(row)
            else:
                (self.cones if isinstance(row, SecondOrderConstraint) else self.rows).append(row)

    def _without_variable(self, c: ConvexConstraint) -> list[Share] | None:
        """Bound a single atom by its bound itself, with no new variable; None where this cannot be.

        The rows are those for a variable, which is then replaced by the bound.
        """
        (term, *others) = c.body.terms
        if others or term.matrix is not None or term.parameter is not None:
            return None
        bound = c.body.affine.times(-1 / term.factor)
        t = Variable(term.atom.shape)
        arguments = [a.expression() for a in self._arguments(term.atom)]
        rows = list(term.atom.epigraph(t.expression(), *arguments))
        own = [_bounded(row, t, bound) for row in rows]
        if any(row.body.is_constant and getattr(row, "convex_part", None) is None for row in own):
            return None
        self._add(own)
        slopes = [row.body.variables.get(t) for row in rows]
        return [(row, s / term.factor) for row, s in zip(own, slopes, strict=True) if s is not None]


def _bounded(row: Row, t: Variable, bound: Expression) -> Any:
    """Return rows or cones with a bound in place of a variable."""
    body: Any = replaced(row.body, t, bound)
    if isinstance(row, MatrixInequality):
        return MatrixInequality(body, row.label)
    if isinstance(row, SecondOrderConstraint):
        return SecondOrderConstraint(body, row.dimensions, row.label, np.zeros(body.size))
    moved = body.constant_part()
    lower, upper = (end if end is None else end.plus(moved.times(-1.0)) for end in (row.lower, row.upper))
    if row.sense == "==":
        upper = lower
    own = Constraint(body.variable_part(), lower, upper, row.sense)
    own.convex_part = row.convex_part
    return own
