"""The convex atoms of a problem, in terms of divergences or of epigraphs.

An atom of the objective that our language knows is a sum of three kinds of terms. A spectral term is
``-logdet F`` or ``tr F log F`` of an affine matrix ``F``. A penalty is a scalar function of affine elements,
as soft rows have. The rest is affine. Each such atom has one function below; `elements` holds its elements
with their weights in the sum to be minimized.

CVXPY knows the epigraph of each of its atoms: a norm is a variable and a second-order cone, a nuclear norm a
psd matrix and its trace, a logistic function two exponential cones. Other atoms are replaced by it, in
constraints and in objectives, where all cones of the epigraph are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.problems.affine import (
    Coefficients,
    ConvexTerm,
    Elements,
    broadcast,
    every_element,
    is_affine,
    one_number,
    rows_of,
)
from bregopt.cvxpy.problems.constraints import KINDS, is_read, is_symmetric
from bregopt.divergences import Divergence, LogDet, Penalty, VonNeumann
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.convex.entropies import (
    exp,
    kl_div,
    log_sum_exp,
    logistic,
    quantum_cond_entr,
    quantum_rel_entr,
    rel_entr,
)
from bregopt.records import dataclass

_APPROXIMATED = "quantum_rel_entr"  # CVXPY has no epigraph of it, but one of an approximation


@dataclass(frozen=True, eq=False)
class Spectral:
    """``weight (-logdet F)`` or ``weight tr(F log F)`` of an affine symmetric matrix ``F``."""

    divergence: type[Divergence]
    matrix: Any
    weight: float


@dataclass(frozen=True, eq=False)
class ElementPenalty:
    """``weight[k] d(e_k, bound[k])`` for elements ``e_k`` at `at` of an affine expression.

    Parameters
    ----------
    kind : bregopt.divergences.Penalty
        The function ``d``: the divergence of two numbers, or their distance.
    sense : {"==", "<="}
        With "==", elements below the bound are penalized too.
    """

    kind: Penalty
    sense: str
    expression: Any
    at: IntArray
    weight: Array
    bound: Array


@dataclass(frozen=True, eq=False)
class Entropy:
    """``weight`` times one of our entropies of affine matrices, made by `atom` of them."""

    atom: Callable[..., Any]
    matrices: Sequence[Any]
    weight: float


@dataclass(frozen=True, eq=False)
class Curved:
    """``weight @ atom(expressions)`` of our atom, at the elements `at` of affine expressions of one shape."""

    atom: Callable[..., Any]
    expressions: Sequence[Any]
    at: IntArray
    weight: Array


@dataclass(eq=False)
class Goal:
    """Terms to be minimized: affine rows, terms of our atoms, spectral terms, penalties, a constant.

    `constraints` are those that the epigraphs of other atoms need.
    """

    spectral: list[Spectral] = field(default_factory=list)
    entropies: list[Entropy] = field(default_factory=list)
    curved: list[Curved] = field(default_factory=list)
    penalties: list[ElementPenalty] = field(default_factory=list)
    affine: list[Coefficients] = field(default_factory=list)
    constraints: list[Any] = field(default_factory=list)
    constant: float = 0.0

    @property
    def variables(self) -> list[Any]:
        """The variables of penalties, of which some may be in no constraint."""
        return [variable for penalty in self.penalties for variable in penalty.expression.variables()]

    def add(self, other: Goal) -> None:
        """Add the terms of another one."""
        for name in ("spectral", "entropies", "curved", "penalties", "affine", "constraints"):
            getattr(self, name).extend(getattr(other, name))
        self.constant += other.constant


def read_convex_atom(term: ConvexTerm) -> Goal:
    """Return the terms of an atom that is not affine.

    Raises
    ------
    UnsupportedProblemError
        If the atom is none of those below, or its weight makes it nonconvex.
    """
    name = term.name.removesuffix("Approx").lower()
    if name not in _ATOMS:
        raise UnsupportedProblemError(f"the objective contains {term.name.removesuffix('Approx')}")
    sign, rule = _ATOMS[name]
    if (sign * term.elements.weight < 0).any():
        raise UnsupportedProblemError(f"the objective contains {name} with a sign that makes it nonconvex")
    return rule(term.atom, term.elements)


def _log_det(atom: Any, elements: Elements) -> Goal:
    return Goal([Spectral(LogDet, _symmetric(atom.args[0], "log_det"), -float(elements.weight.sum()))])


def _von_neumann_entropy(atom: Any, elements: Elements) -> Goal:
    F = _symmetric(atom.args[0], "von_neumann_entr")
    return Goal([Spectral(VonNeumann, F, -float(elements.weight.sum()))])


def _relative_entropy(atom: Any, elements: Elements) -> Goal:
    """Read ``tr(F log F) - <log Y, F>``, or the entropy of two variable matrices."""
    weight = float(elements.weight.sum())
    F, Y = atom.args
    if not Y.is_constant():
        own = Entropy(quantum_rel_entr, [_symmetric(M, "quantum_rel_entr") for M in (F, Y)], weight)
        return Goal(entropies=[own])
    eigenvalues, Q = np.linalg.eigh(np.asarray(Y.value, dtype=float))
    if eigenvalues[0] <= 0:
        raise UnsupportedProblemError(
            "the objective contains quantum_rel_entr with a second argument that is not positive definite"
        )
    slope = -weight * ((Q * np.log(eigenvalues)) @ Q.T).ravel(order="F")
    linear = Elements(np.zeros(F.size, dtype=np.intp), np.arange(F.size), slope)
    return Goal(
        [Spectral(VonNeumann, _symmetric(F, "quantum_rel_entr"), weight)], affine=[rows_of(F, linear, 1)]
    )


def _conditional_entropy(atom: Any, elements: Elements) -> Goal:
    if tuple(atom.dims) == () or len(atom.dims) != 2:
        raise UnsupportedProblemError("the objective contains quantum_cond_entr of other than two parts")
    X = _symmetric(atom.args[0], "quantum_cond_entr")
    own = partial(quantum_cond_entr, dims=tuple(atom.dims), sys=int(atom.sys))
    return Goal(entropies=[Entropy(own, [X], float(elements.weight.sum()))])


def _quad_over_lin(atom: Any, elements: Elements) -> Goal:
    x, y = atom.args
    if atom.size > 1 or not y.is_constant():
        raise UnsupportedProblemError("the objective contains quad_over_lin by axes or of a variable divisor")
    return _squares(x, float(elements.weight.sum()) / one_number(y))


def _power(atom: Any, elements: Elements) -> Goal:
    """Read a square, of elements or of a Frobenius norm."""
    power = _exponent(atom)
    if power != 2:
        raise UnsupportedProblemError(f"the objective contains the power {power:g}; only squares are known")
    (x,) = atom.args
    if type(x).__name__.startswith("Pnorm") and x.size == 1 and _exponent(x) == 2:
        return _squares(x.args[0], float(elements.weight.sum()))
    return Goal(penalties=[_penalty(Penalty.SQUARE, x, elements)])


def _absolute(atom: Any, elements: Elements) -> Goal:
    return Goal(penalties=[_penalty(Penalty.HINGE, atom.args[0], elements)])


# Pays on: a correlation matrix by Huber's loss, n = 10.
def _huber(atom: Any, elements: Elements) -> Goal:
    """Use ``huber(x) = min over s of (x - s)^2 + 2 M |s|`` (Huber 1964)."""
    (x,) = atom.args
    s, M = cp.Variable(x.shape), one_number(atom.M)
    square = _penalty(Penalty.SQUARE, x - s, elements)
    return Goal(penalties=[square, _penalty(Penalty.HINGE, s, elements.times(2 * M))])


def _norm1(atom: Any, elements: Elements) -> Goal:
    (x,) = atom.args
    if atom.size > 1:
        raise UnsupportedProblemError("the objective contains norm1 with an axis")
    return Goal(penalties=[_penalty(Penalty.HINGE, x, every_element(x).times(elements.weight.sum()))])


def _maximum(atom: Any, elements: Elements) -> Goal:
    """Use ``max(a, b) = b + max(a - b, 0)``."""
    a, b = _two(atom)
    over = _penalty(Penalty.HINGE, a - b, elements, sense="<=")
    return Goal(penalties=[over], affine=[_broadcast_rows(b, atom, elements)])


def _minimum(atom: Any, elements: Elements) -> Goal:
    """Use ``min(a, b) = b - max(b - a, 0)``."""
    a, b = _two(atom)
    over = _penalty(Penalty.HINGE, b - a, elements.times(-1.0), sense="<=")
    return Goal(penalties=[over], affine=[_broadcast_rows(b, atom, elements)])


def _log(atom: Any, elements: Elements) -> Goal:
    (x,) = atom.args
    return Goal(penalties=[_penalty(Penalty.LOG, x, elements.times(-1.0))])


def _entropy(atom: Any, elements: Elements) -> Goal:
    """Use ``a log a = d(a, 1) + a - 1`` with the von Neumann divergence ``d`` of numbers."""
    (x,) = atom.args
    gamma = elements.times(-1.0)
    return Goal(
        penalties=[_penalty(Penalty.VON_NEUMANN, x, gamma, bound=1.0)],
        affine=[rows_of(x, gamma, 1)],
        constant=-float(gamma.weight.sum()),
    )


def _elementwise(own: Callable[..., Any]) -> Callable[[Any, Elements], Goal]:
    """Return the rule of an atom that is one of ours, element by element."""

    def rule(atom: Any, elements: Elements) -> Goal:
        if any(argument.shape != atom.shape for argument in atom.args):
            raise UnsupportedProblemError(f"the objective contains {_name(atom)} of different shapes")
        return Goal(curved=[Curved(own, atom.args, elements.at, elements.weight)])

    return rule


def _log_sum_exp(atom: Any, elements: Elements) -> Goal:
    (x,) = atom.args
    if atom.size > 1:
        raise UnsupportedProblemError("the objective contains log_sum_exp with an axis")
    return Goal(curved=[Curved(log_sum_exp, [x], np.arange(x.size), elements.weight.sum(keepdims=True))])


def _kl_div(atom: Any, elements: Elements) -> Goal:
    if not atom.args[1].is_constant():
        return _elementwise(kl_div)(atom, elements)
    x, bound = _above_zero(atom, elements)
    return Goal(penalties=[_penalty(Penalty.VON_NEUMANN, x, elements, bound=bound)])


def _rel_entr(atom: Any, elements: Elements) -> Goal:
    """Use ``a log(a/b) = d(a, b) + a - b``."""
    if not atom.args[1].is_constant():
        return _elementwise(rel_entr)(atom, elements)
    x, bound = _above_zero(atom, elements)
    return Goal(
        penalties=[_penalty(Penalty.VON_NEUMANN, x, elements, bound=bound)],
        affine=[rows_of(x, elements, 1)],
        constant=-float(elements.weight @ bound),
    )


# For each atom: the sign of its weight in a convex sum, and its rule.
_ATOMS: dict[str, tuple[int, Callable[[Any, Elements], Goal]]] = {
    "log_det": (-1, _log_det),
    "von_neumann_entr": (-1, _von_neumann_entropy),
    "quantum_rel_entr": (1, _relative_entropy),
    "quantum_cond_entr": (-1, _conditional_entropy),
    "quad_over_lin": (1, _quad_over_lin),
    "power": (1, _power),
    "abs": (1, _absolute),
    "huber": (1, _huber),
    "norm1": (1, _norm1),
    "maximum": (1, _maximum),
    "minimum": (-1, _minimum),
    "log": (-1, _log),
    "entr": (-1, _entropy),
    "kl_div": (1, _kl_div),
    "rel_entr": (1, _rel_entr),
    "exp": (1, _elementwise(exp)),
    "logistic": (1, _elementwise(logistic)),
    "log_sum_exp": (1, _log_sum_exp),
}


def _squares(x: Any, weight: float) -> Goal:
    return Goal(penalties=[_penalty(Penalty.SQUARE, x, every_element(x).times(weight))])


def _penalty(
    kind: Penalty, x: Any, elements: Elements, sense: str = "==", bound: Any = 0.0
) -> ElementPenalty:
    """Return the penalty of weighted elements; those of weight zero are left out."""
    paying = elements.weight != 0
    bounds = np.broadcast_to(np.asarray(bound, dtype=float), paying.shape)
    return ElementPenalty(kind, sense, x, elements.at[paying], elements.weight[paying], bounds[paying])


def _broadcast_rows(e: Any, atom: Any, elements: Elements) -> Coefficients:
    """Return elements of an argument at the elements of the atom that it is broadcast to."""
    return rows_of(e, elements.moved(broadcast(e, atom.shape, elements.at)), 1)


def _symmetric(F: Any, atom: str) -> Any:
    if not (F.is_symmetric() or is_symmetric(F)):
        raise UnsupportedProblemError(f"the objective contains {atom} of a matrix that is not symmetric")
    return F


def _exponent(atom: Any) -> float:
    p = atom.p
    return one_number(p) if hasattr(p, "value") else float(p)


def _two(atom: Any) -> tuple[Any, Any]:
    if len(atom.args) != 2:
        raise UnsupportedProblemError(f"the objective contains {type(atom).__name__} of more than two")
    a, b = atom.args
    return a, b


def _above_zero(atom: Any, elements: Elements) -> tuple[Any, Array]:
    """Return the first argument, and the constant second one at the elements."""
    x, b = atom.args
    name = type(atom).__name__
    if not b.is_constant() or x.shape != atom.shape:
        raise UnsupportedProblemError(f"the objective contains {name} with a variable second argument")
    bound = np.broadcast_to(np.asarray(b.value, dtype=float), atom.shape).ravel(order="F")[elements.at]
    if (bound <= 0).any():
        raise UnsupportedProblemError(f"the objective contains {name} with a second argument not above 0")
    return x, bound


def affine_problem(problem: Any, more: Sequence[Any]) -> tuple[Any, dict[Any, Any]]:
    """Return a problem with affine constraints, `more` of them at the end, and the given one of each.

    Raises
    ------
    UnsupportedProblemError
        If a constraint needs other cones than ours, or is not convex.
    """
    constraints, given, extra = [], {}, [*more]
    for number, c in enumerate(problem.constraints):
        if is_read(c):
            constraints.append(c)
            continue
        affine, own = _canonical(c, f"constraint {number}: {_atoms(c)} is not affine")
        constraints.append(affine)
        given[affine] = c
        extra += own
    return cp.Problem(problem.objective, [*constraints, *extra]), given


def epigraph(atom: Any) -> tuple[Any, list[Any]]:
    """Return an affine expression in place of an atom of an objective, and the constraints that it needs.

    Raises
    ------
    UnsupportedProblemError
        If it needs other cones than ours, or is not convex.
    """
    return _canonical(atom, f"the objective contains {_name(atom)}")


def _canonical(part: Any, refusal: str) -> tuple[Any, list[Any]]:
    if not part.is_dcp() or _contains(part, _APPROXIMATED):
        raise UnsupportedProblemError(refusal)
    try:
        affine, own = _replaced(part, Dcp2Cone())
    except (NotImplementedError, ValueError, cp.error.SolverError):  # as some atoms say
        raise UnsupportedProblemError(refusal) from None
    for c in own:
        if not (type(c).__name__ in KINDS and all(map(is_affine, c.args))):
            raise UnsupportedProblemError(f"{refusal}, and its epigraph needs a cone of the kind {_name(c)}")
    return affine, own


def _replaced(part: Any, cvxpys: Dcp2Cone) -> tuple[Any, list[Any]]:
    """Return an expression or constraint with epigraphs in place of atoms; affine parts stay as they are."""
    if isinstance(part, cp.Expression) and is_affine(part):
        return part, []
    if type(part).__name__ == "PartialProblem":
        return cvxpys.canonicalize_tree(part, False)
    arguments, constraints = [], []
    for argument in part.args:
        affine, own = _replaced(argument, cvxpys)
        arguments.append(affine)
        constraints += own
    if _name(part) == "lambda_sum_largest" and part.k == part.args[0].shape[0] and is_symmetric(part.args[0]):
        return cp.trace(arguments[0]), constraints  # its epigraph of all eigenvalues is not bounded
    affine, own = cvxpys.canonicalize_expr(part, arguments, False)
    return affine, [*constraints, *own]


def _atoms(c: Any) -> str:
    """Return the names of the atoms of a constraint that are not affine."""
    names = {_name(atom): None for argument in c.args for atom in _not_affine(argument)}
    return " and ".join(names) or _name(c)


def _not_affine(expression: Any) -> list[Any]:
    inner = [atom for argument in expression.args for atom in _not_affine(argument)]
    own = not is_affine(expression) and all(map(is_affine, expression.args))
    return [expression, *inner] if own else inner


def _contains(part: Any, name: str) -> bool:
    return _name(part) == name or any(_contains(argument, name) for argument in part.args)


def _name(atom: Any) -> str:
    return type(atom).__name__.removesuffix("Approx")
