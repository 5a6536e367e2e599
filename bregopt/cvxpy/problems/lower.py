"""Translate a CVXPY problem, as it was written, to a bregopt problem, and answers back."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.complex2real.complex2real import Complex2Real

from bregopt.arrays import TINY, Array, IntArray, check_memory
from bregopt.cvxpy.problems.affine import Elements, constant_value, joint_rows
from bregopt.cvxpy.problems.constraints import (
    SENSES,
    Claim,
    Link,
    claim_of,
    coefficients,
    compared,
    is_read,
    is_symmetric_array,
    links_of,
    numbered,
    rows_of_constraints,
    text_of,
)
from bregopt.cvxpy.problems.convex_atoms import Goal, Spectral, affine_problem
from bregopt.cvxpy.problems.objective import (
    RelaxedBound,
    eliminate_relaxed_bounds,
    objective_of,
    read_objective,
)
from bregopt.cvxpy.problems.variables import (
    MatrixForm,
    VariableForm,
    box,
    check_variable,
    elements_of,
    expression_of,
    is_matrix,
    is_square,
    matrix,
    psd_part,
    square,
    vector,
)
from bregopt.cvxpy.reductions import coordinates_of
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.constraints import Constraint, SecondOrderConstraint, multiplier_of_cone
from bregopt.modeling.convex.entropies import rel_entr
from bregopt.modeling.convex.expression import Maximize, Minimize
from bregopt.modeling.expressions import Expression
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Parameter
from bregopt.records import Text, dataclass
from bregopt.routes.solution import Solution

_VARIABLE = 32  # bytes for each element of a variable: our form, its places and its value
_CONSTRAINT = 64  # bytes for each element of a constraint: rows and their coefficients
_MOST_EXPONENTIALS = 300  # each has variables and a row of its own in dense equations
_IMPLIED_TOL = 1e-12  # relative to the largest entry: how far below zero an eigenvalue of a psd matrix may be


def from_cvxpy(problem: cp.Problem) -> Problem:
    """Return a CVXPY problem as one of ours, read as it was written: nothing is canonicalized.

    Parameters
    ----------
    problem : cvxpy.Problem
        Parameters that are added to rows become ours, with their current values; other parameters are
        replaced by their values. Constraints keep their order. A psd constraint on anything but a variable
        becomes an equation with a psd matrix.

    Returns
    -------
    Problem
        Its variables have the names of CVXPY's; equal names are followed by ``#`` and the variable's id.

    Raises
    ------
    TypeError
        If `problem` is no ``cvxpy.Problem``.
    UnsupportedProblemError
        If our modeling language cannot express a part of the problem; the message names it.
    ValueError
        If a parameter has no value, or the problem does not fit in memory.
    """
    if not isinstance(problem, cp.Problem):
        raise TypeError(f"problem is {type(problem).__name__}; expected a cvxpy.Problem")
    check_sizes(problem)
    return lower(problem).problem


def lower(problem: Any) -> Lowered:
    """Return our problem for a CVXPY problem, at the current values of its parameters.

    Parameters that are only added to rows become parameters of ours; the values of others are substituted.

    Parameters
    ----------
    problem : cvxpy.Problem

    Raises
    ------
    UnsupportedProblemError
        If a part of it is not supported; the message names it.
    ValueError
        If a parameter has no value, or the problem does not fit in memory.
    """
    real_form = RealForm.of(problem)
    problem = problem if real_form is None else real_form.problem
    _check_kinds(problem)
    given_objective = problem.objective.args[0]
    goal = read_objective(problem.objective)
    given: dict[Any, Any] = {}
    if goal.constraints or not all(map(is_read, problem.constraints)):
        problem, given = affine_problem(problem, goal.constraints)
    claims: dict[Any, Claim | None] = {}
    for number, c in enumerate(problem.constraints):
        if _is_cone(c):
            with numbered(number):
                claims[c] = claim_of(c.args[0])
    forms = _forms(problem, goal, [claim for claim in claims.values() if claim is not None])
    links = links_of(claims, forms)
    parameters, written = _parameters(problem), _written(problem)
    rows, symmetric, trivial = rows_of_constraints(problem, given, forms, parameters, written)
    cones, linked = _cones(problem, claims, forms, links)
    second_orders = _second_orders(problem, forms, parameters, written)
    exponentials = _exponentials(problem, forms)
    spectral, more = _arguments(goal.spectral, forms, links)
    objective, paid = objective_of(goal, forms, spectral)
    others, in_cones = [*linked, *more, *_boxes(forms)], [own.constraint for own in second_orders.values()]
    fixed: list[Constraint | SecondOrderConstraint] = [*others, *in_cones]
    rows, paid, objective, relaxed = eliminate_relaxed_bounds(rows, fixed, paid, objective)
    sense = Maximize(-objective) if isinstance(problem.objective, cp.Maximize) else Minimize(objective)
    if not goal.spectral and not goal.penalties:  # divergences and penalties have labels of their own
        sense.source_text = Text(partial(text_of, given_objective))
    in_exponentials = [own.constraint for own in exponentials.values()]
    constraints: list[Any] = [*rows.values(), *others, *paid, *in_cones, *in_exponentials]
    try:
        ours = Problem(sense, constraints)
    except ValueError as error:
        raise UnsupportedProblemError(str(error)) from None
    used = set(ours.parameters)
    lowered = Lowered(
        ours,
        forms,
        rows,
        symmetric,
        cones,
        second_orders,
        exponentials,
        given,
        trivial,
        relaxed,
        {theirs: parameter for theirs, parameter in parameters.items() if parameter in used},
        {theirs: np.array(constant_value(theirs)) for theirs in written},
        real_form,
    )
    lowered.fill_in()
    return lowered


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


def _check_kinds(problem: Any) -> None:
    """Refuse unsupported kinds of variables and constraints, before anything is read."""
    for variable in problem.variables():
        check_variable(variable)
    for number, c in enumerate(problem.constraints):
        if not _is_cone(c) and type(c).__name__ not in (*SENSES, "SOC", "ExpCone"):
            order = f" over an array of {len(c.shape)} dimensions" if type(c).__name__ == "PSD" else ""
            raise UnsupportedProblemError(f"constraint {number} is of the kind {type(c).__name__}{order}")


def _is_cone(constraint: Any) -> bool:
    """Whether a constraint requires one matrix to be psd."""
    return type(constraint).__name__ == "PSD" and len(constraint.shape) == 2


def _forms(problem: Any, goal: Goal, claims: list[Claim]) -> dict[Any, VariableForm]:
    """Return our form of each variable: a psd matrix if an attribute, constraint or the objective says so."""
    arguments = [claim_of(term.matrix) for term in goal.spectral]
    plain = {c.variable for c in arguments if c is not None and _plain(c)}
    names = _names(list(dict.fromkeys([*problem.variables(), *goal.variables])))
    forms: dict[Any, VariableForm] = {}
    for variable, name in names.items():
        own = [c for c in claims if c.variable is variable]
        if not is_matrix(variable):
            split = bool(own) and is_square(variable)
            forms[variable] = (
                square(variable, name, own[0].sign, own[0].shift) if split else vector(variable, name)
            )
        elif variable.attributes["NSD"]:
            forms[variable] = matrix(variable, name, sign=-1.0)
        elif variable in plain:
            forms[variable] = matrix(variable, name)
        elif variable.attributes["PSD"]:
            above = [c for c in own if c.sign > 0 and _is_psd(c.shift)]
            forms[variable] = matrix(variable, name, shift=above[0].shift if above else None)
        elif own:
            forms[variable] = matrix(variable, name, own[0].sign, own[0].shift)
        else:
            forms[variable] = vector(variable, name)
    return forms


def _names(named: list[Any]) -> dict[Any, str]:
    """Return a name for each of CVXPY's variables or parameters; those of the same name get their id too."""
    count = Counter(each.name() for each in named)
    return {each: each.name() if count[each.name()] == 1 else f"{each.name()}#{each.id}" for each in named}


def _parameters(problem: Any) -> dict[Any, Parameter]:
    """Return our parameter for each of CVXPY's."""
    named = _names(problem.parameters()).items()
    return {theirs: Parameter(theirs.shape, name=name) for theirs, name in named}


def _written(problem: Any) -> set[Any]:
    """Return the parameters that occur outside the rows."""
    elsewhere = [problem.objective, *problem.variables(), *filter(_is_cone, problem.constraints)]
    return {parameter for part in elsewhere for parameter in part.parameters()}


def _second_orders(
    problem: Any, forms: dict[Any, VariableForm], parameters: dict[Any, Parameter], written: set[Any]
) -> dict[Any, VectorsInCones]:
    """Return the constraints with second-order cones; substituted parameters are added to `written`."""
    found = {}
    for number, c in enumerate(problem.constraints):
        if type(c).__name__ == "SOC":
            with numbered(number):
                found[c] = _second_order(c, forms, parameters, written)
            found[c].constraint.label = text_of(c)
    return found


def _exponentials(problem: Any, forms: dict[Any, VariableForm]) -> dict[Any, InExponentialCones]:
    """Return the constraints with exponential cones: ``y exp(x / y) <= z`` is ``x + y log(y / z) <= 0``."""
    found: dict[Any, InExponentialCones] = {}
    count = sum(c.args[0].size for c in problem.constraints if type(c).__name__ == "ExpCone")
    if count > _MOST_EXPONENTIALS:
        raise UnsupportedProblemError(f"it has {count} exponential cones, for which other solvers are faster")
    for number, c in enumerate(problem.constraints):
        if type(c).__name__ == "ExpCone":
            with numbered(number):
                x, y, z = (elements_of(e, np.arange(e.size), forms, "cone") for e in c.args)
                if y.is_constant and z.is_constant:
                    raise UnsupportedProblemError("its exponential cone has two constant arguments")
                found[c] = InExponentialCones(rel_entr(y, z) <= -x, y, z)
    return found


def _cones(
    problem: Any,
    claims: dict[Any, Claim | None],
    forms: dict[Any, VariableForm],
    links: dict[Any, Link],
) -> tuple[dict[Any, ImpliedCone], list[Constraint]]:
    """Return the psd matrix that implies each psd constraint, and rows that equate it with CVXPY's matrix.

    Of several equivalent constraints the first gets the multiplier.
    """
    cones: dict[Any, ImpliedCone] = {}
    linked: list[Constraint] = []
    given: set[PSD] = set()
    place = {c: number for number, c in enumerate(problem.constraints)}
    for number, (c, claim) in enumerate(claims.items()):
        form = None if claim is None else psd_part(forms[claim.variable])
        if claim is not None and form is not None and _implied(claim, form):
            same = np.array_equal(claim.shift, form.shift) and form.psd not in given
            cones[c] = ImpliedCone(form.psd if same else None, claim.scale)
            given.add(form.psd)
        else:
            with numbered(place[c]):
                link = links[c] if c in links else Link.of(c.args[0], f"S{number}")
                linked += link.equations(forms)
            cones[c] = ImpliedCone(link.block, 1.0)
    return cones, linked


def _implied(claim: Claim, form: MatrixForm) -> bool:
    """Whether ``M`` psd implies the claim that ``sign (sign' (M + shift')) - shift`` is psd."""
    return claim.sign == form.sign and _is_psd(form.shift - claim.shift)


def _arguments(
    spectral: list[Spectral], forms: dict[Any, VariableForm], links: dict[Any, Link]
) -> tuple[list[tuple[Spectral, PSD, float]], list[Constraint]]:
    """Return each spectral term, the psd matrix and factor of its argument, and rows that link them."""
    found, linked = [], []
    for number, term in enumerate(spectral):
        claim = claim_of(term.matrix)
        form = None if claim is None else forms[claim.variable]
        if claim is not None and _plain(claim) and isinstance(form, MatrixForm) and form.sign > 0:
            found.append((term, form.psd, claim.scale))
        else:
            link = Link.of(term.matrix, f"F{number}")
            known = link.known_as(links.values(), forms)
            found.append((term, known or link.block, 1.0))
            linked += [] if known else link.equations(forms)
    return found, linked


def _boxes(forms: dict[Any, VariableForm]) -> list[Constraint]:
    """Return the bounds that attributes set on entries of matrices, and on only some elements of vectors."""
    constraints = []
    for variable, form in forms.items():
        for end, sense in zip(box(variable), (">=", "<="), strict=True):
            at = np.flatnonzero(np.isfinite(end))
            if len(at) and (psd_part(form) is not None or len(at) < variable.size):
                above = variable - end.reshape(variable.shape, order="F")
                body = elements_of(above, at, {variable: form}, f"bounds of {variable.name()}")
                constraints.append(compared(body, sense))
    return constraints


def _plain(claim: Claim) -> bool:
    return claim.sign > 0 and not claim.shift.any()


def _is_psd(S: Array) -> bool:
    return bool(np.linalg.eigvalsh(S)[0] >= -_IMPLIED_TOL * np.abs(S).max())


def _second_order(
    c: Any, forms: dict[Any, VariableForm], parameters: dict[Any, Parameter], written: set[Any]
) -> VectorsInCones:
    """Return a constraint ``cvxpy.SOC``, which may hold several cones of equal dimension.

    Parameters
    ----------
    c : cvxpy.SOC
        Its arguments are affine.
    forms : dict from cvxpy.Variable to VariableForm
    parameters : dict from cvxpy.Parameter to Parameter
    written : set of cvxpy.Parameter
        Parameters whose values are substituted are added.

    Raises
    ------
    UnsupportedProblemError
        If it has no variable.
    """
    t, X = c.args
    order = _vectors(t.size, X.shape, c.axis)
    row = np.argsort(order.ravel())
    own = (Elements(part, np.arange(len(part)), np.ones(len(part))) for part in np.split(row, [t.size]))
    found = joint_rows([*zip(c.args, own, strict=True)], order.size, parametric=True)
    written |= found.frozen
    body = expression_of(found, forms, "second-order cone", parameters)
    if body.is_constant:
        raise UnsupportedProblemError("it has no variable")
    dimensions = np.full(t.size, order.shape[1])
    parts = [coefficients(leaf, found) for leaf in (*found.variables, *(found.parameters or ()))]
    better = coordinates_of(sp.hstack([*parts, found.constant[:, None]], format="csr"), dimensions)
    if better is None:
        return VectorsInCones(SecondOrderConstraint(body, dimensions, body.label, np.zeros(order.size)))
    body = body.combined(better.back, (len(better.back.indptr) - 1,), body.label)
    return VectorsInCones(
        SecondOrderConstraint(body, better.dimensions, body.label, np.zeros(body.size)), better.S
    )


def _vectors(count: int, shape: tuple[int, ...], axis: int) -> IntArray:
    """Return, for each cone, the numbers of ``t`` and of the elements of ``X``, which follow by columns."""
    tails = count + np.arange(int(np.prod(shape, dtype=int))).reshape(shape, order="F")
    if len(shape) < 2:
        tails = tails.reshape(1, -1)
    elif axis == 0:
        tails = tails.T
    return np.column_stack([np.arange(count), tails])


@dataclass(frozen=True, eq=False)
class VectorsInCones:
    """A constraint ``cvxpy.SOC`` as ours on its vectors, or on ``S'`` times them."""

    constraint: SecondOrderConstraint
    S: Any = None

    def multipliers(self) -> Array:
        """Return the multipliers of CVXPY's vectors."""
        z = self.constraint.multipliers
        assert z is not None
        return z if self.S is None else np.asarray(self.S @ z)


@dataclass(frozen=True, eq=False)
class InExponentialCones:
    """A constraint ``cvxpy.ExpCone`` as ours, and its last two arguments."""

    constraint: Any
    y: Expression
    z: Expression

    def multipliers(self) -> Array:
        """Return CVXPY's duals, a vector of the dual cone for each element, shape ``(size, 3)``."""
        lam = np.ravel(np.asarray(self.constraint.dual_value))
        ratio = np.ones(len(lam))  # where there is no point, as in a proof of infeasibility
        if self.y.value is not None and self.z.value is not None:
            y, z = np.ravel(np.asarray(self.y.value)), np.ravel(np.asarray(self.z.value))
            ratio = np.maximum(y, TINY) / np.maximum(z, TINY)
        return np.column_stack([-lam, -lam * (np.log(ratio) + 1), lam * ratio])


@dataclass(frozen=True, eq=False)
class ImpliedCone:
    """A psd constraint that `psd` implies; its dual is that of `psd` over `scale`, or zero."""

    psd: PSD | None
    scale: float


@dataclass(frozen=True, eq=False)
class Lowered:
    """Our problem, and the maps from the parts of CVXPY's problem to its parts.

    Parameters
    ----------
    problem : Problem
    forms : dict from cvxpy.Variable to VariableForm
    rows : dict from constraint of CVXPY to constraint of ours
    symmetric : set
        Those of `rows` whose coefficients form a symmetric matrix: mirrored entries are one row.
    cones : dict from psd constraint of CVXPY to the psd matrix that implies it
    second_orders : dict from SOC constraint of CVXPY to VectorsInCones
    exponentials : dict from ExpCone constraint of CVXPY to InExponentialCones
    given : dict
        The user's constraint for each of CVXPY's whose convex atoms were replaced by their epigraphs.
    trivial : list
        Constraints without a variable that hold.
    relaxed : list of RelaxedBound
        Variables that soft rows have replaced.
    parameters : dict from cvxpy.Parameter to Parameter
        Parameters that are only added to rows: they may change.
    written : dict from cvxpy.Parameter to array
        The values of the others, which are substituted.
    real_form : RealForm or None
        The problem in real numbers that was read for a complex one.
    """

    problem: Problem
    forms: dict[Any, VariableForm]
    rows: dict[Any, Constraint]
    symmetric: set[Any]
    cones: dict[Any, ImpliedCone]
    second_orders: dict[Any, VectorsInCones]
    exponentials: dict[Any, InExponentialCones]
    given: dict[Any, Any]
    trivial: list[Any]
    relaxed: list[RelaxedBound]
    parameters: dict[Any, Parameter]
    written: dict[Any, Array]
    real_form: RealForm | None

    def is_current(self) -> bool:
        """Whether the parameters whose values are substituted still have these values."""
        return all(np.array_equal(value, constant_value(p)) for p, value in self.written.items())

    def fill_in(self) -> None:
        """Give our parameters the current values of CVXPY's.

        Raises
        ------
        UnsupportedProblemError
            If a value is complex, NaN or infinite.
        ValueError
            If a parameter has no value.
        """
        for theirs, ours in self.parameters.items():
            value = constant_value(theirs)
            if not np.isfinite(value).all():
                raise UnsupportedProblemError(f"parameter {theirs.name()} has NaN or Inf among its numbers")
            ours.value = value

    def primal(self) -> dict[int, Array]:
        """Return the values of CVXPY's variables by their ids."""
        for bound in self.relaxed:
            bound.set_value()
        return {variable.id: form.value() for variable, form in self.forms.items()}

    def duals(self, solution: Solution) -> dict[int, Array]:
        """Return the duals of CVXPY's constraints by their ids, with CVXPY's signs."""
        if solution.duals is None:
            return {}
        slacks = self._slacks(solution) if self.cones else {}
        duals = {c.id: np.zeros(c.shape) for c in self.trivial}
        for c, ours in self.rows.items():
            duals[c.id] = np.reshape(np.asarray(ours.dual_value), c.shape, order="F")
            if c in self.symmetric and _is_symmetric_bound(c, ours):
                duals[c.id] = (duals[c.id] + duals[c.id].T) / 2
        for c, cone in self.cones.items():
            duals[c.id] = np.zeros(c.shape) if cone.psd is None else slacks[cone.psd] / cone.scale
        for c, second_order in self.second_orders.items():
            duals[c.id] = second_order.multipliers()
        for c, exponential in self.exponentials.items():
            duals[c.id] = exponential.multipliers()
        duals |= {theirs.id: duals[c.id].reshape(theirs.shape) for c, theirs in self.given.items()}
        return duals

    def _slacks(self, solution: Solution) -> dict[PSD, Array]:
        """Return the multiplier of ``X psd`` of each matrix."""
        raw = solution._raw
        assert raw is not None
        assert raw._program is not None
        program, slacks = raw._program, {}  # with tangents in place of convex terms
        for b, X in enumerate(self.problem.matrices):
            value, S = (None if part is None else part[b] for part in (raw.X, raw._S))
            slacks[X.block] = multiplier_of_cone(program, b, value, raw._point[2], S)
        return slacks


def _is_symmetric_bound(c: Any, row: Constraint) -> bool:
    """Whether the bounds of mirrored entries are equal; for feasible equations they are."""
    end = row.lower if row.upper is None else row.upper
    assert end is not None
    return row.sense == "==" or is_symmetric_array(np.ravel(np.asarray(end.value)), c.shape)


@dataclass(frozen=True, eq=False)
class RealForm:
    """A problem in the real and imaginary parts of another one's variables.

    Parameters
    ----------
    problem : cvxpy.Problem
    reduction : Complex2Real
    inverse_data : cvxpy.InverseData
    """

    problem: Any
    reduction: Any
    inverse_data: Any

    @classmethod
    def of(cls, problem: Any) -> RealForm | None:
        """Return the real form of a problem, None if it has no complex number.

        Raises
        ------
        UnsupportedProblemError
            If it has a complex parameter.
        """
        leaves = (*problem.variables(), *problem.parameters(), *problem.constants())
        if not any(leaf.is_complex() for leaf in leaves):
            return None
        for parameter in problem.parameters():
            if parameter.is_complex():
                raise UnsupportedProblemError(f"parameter {parameter.name()} is complex")
        reduction = Complex2Real()
        real, inverse_data = reduction.apply(problem)
        check_sizes(real)
        return cls(real, reduction, inverse_data)

    def inverted(self, solution: Any) -> Any:
        """Return an answer to the real form as one to the given problem."""
        return self.reduction.invert(solution, self.inverse_data)
