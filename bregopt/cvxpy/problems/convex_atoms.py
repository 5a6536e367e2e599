"""The convex atoms of an objective, in terms of divergences.

An atom is a sum of three kinds of terms. A spectral term is ``-logdet F`` or ``tr F log F`` of an affine
matrix ``F``. A penalty is a scalar function of affine elements, as soft rows have. The rest is affine. Each
atom has one function below; `elements` holds its elements with their weights in the sum to be minimized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.problems.coefficients import ConvexTerm, Elements, broadcast, one_number
from bregopt.cvxpy.problems.psd_claims import is_symmetric
from bregopt.divergences import Divergence, LogDet, Penalty, VonNeumann
from bregopt.errors import UnsupportedProblemError
from bregopt.records import dataclass

__all__ = ["AtomTerms", "ElementPenalty", "Spectral", "read_convex_atom"]


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


@dataclass(eq=False)
class AtomTerms:
    """The terms of one convex atom."""

    spectral: list[Spectral] = field(default_factory=list)
    penalties: list[ElementPenalty] = field(default_factory=list)
    affine: list[tuple[Any, Elements]] = field(default_factory=list)
    constraints: list[Any] = field(default_factory=list)
    constant: float = 0.0


def read_convex_atom(term: ConvexTerm) -> AtomTerms:
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


def _log_det(atom: Any, elements: Elements) -> AtomTerms:
    return AtomTerms([Spectral(LogDet, _symmetric(atom.args[0], "log_det"), -float(elements.weight.sum()))])


def _von_neumann_entropy(atom: Any, elements: Elements) -> AtomTerms:
    F = _symmetric(atom.args[0], "von_neumann_entr")
    return AtomTerms([Spectral(VonNeumann, F, -float(elements.weight.sum()))])


def _relative_entropy(atom: Any, elements: Elements) -> AtomTerms:
    """Read ``tr(F log F) - <log Y, F>``."""
    F, Y = atom.args
    if not Y.is_constant():
        raise UnsupportedProblemError("the objective contains quantum_rel_entr with a variable second matrix")
    eigenvalues, Q = np.linalg.eigh(np.asarray(Y.value, dtype=float))
    if eigenvalues[0] <= 0:
        raise UnsupportedProblemError(
            "the objective contains quantum_rel_entr with a second argument that is not positive definite"
        )
    weight = float(elements.weight.sum())
    slope = -weight * ((Q * np.log(eigenvalues)) @ Q.T).ravel(order="F")
    linear = Elements(np.zeros(F.size, dtype=np.intp), np.arange(F.size), slope)
    return AtomTerms([Spectral(VonNeumann, _symmetric(F, "quantum_rel_entr"), weight)], affine=[(F, linear)])


def _quad_over_lin(atom: Any, elements: Elements) -> AtomTerms:
    x, y = atom.args
    if atom.size > 1 or not y.is_constant():
        raise UnsupportedProblemError("the objective contains quad_over_lin by axes or of a variable divisor")
    return _squares(x, float(elements.weight.sum()) / one_number(y))


def _power(atom: Any, elements: Elements) -> AtomTerms:
    """Read a square, of elements or of a Frobenius norm."""
    power = _exponent(atom)
    if power != 2:
        raise UnsupportedProblemError(f"the objective contains the power {power:g}; only squares are known")
    (x,) = atom.args
    if type(x).__name__.startswith("Pnorm") and x.size == 1 and _exponent(x) == 2:
        return _squares(x.args[0], float(elements.weight.sum()))
    return AtomTerms(penalties=[_penalty(Penalty.SQUARE, x, elements)])


def _absolute(atom: Any, elements: Elements) -> AtomTerms:
    return AtomTerms(penalties=[_penalty(Penalty.HINGE, atom.args[0], elements)])


def _norm1(atom: Any, elements: Elements) -> AtomTerms:
    (x,) = atom.args
    if atom.size > 1:
        raise UnsupportedProblemError("the objective contains norm1 with an axis")
    return AtomTerms(penalties=[_penalty(Penalty.HINGE, x, _all(x, float(elements.weight.sum())))])


def _maximum(atom: Any, elements: Elements) -> AtomTerms:
    """Use ``max(a, b) = b + max(a - b, 0)``."""
    a, b = _two(atom)
    over = _penalty(Penalty.HINGE, a - b, elements, sense="<=")
    return AtomTerms(penalties=[over], affine=[(b, elements.moved(broadcast(b, atom.shape, elements.at)))])


def _minimum(atom: Any, elements: Elements) -> AtomTerms:
    """Use ``min(a, b) = b - max(b - a, 0)``."""
    a, b = _two(atom)
    over = _penalty(Penalty.HINGE, b - a, elements.times(-1.0), sense="<=")
    return AtomTerms(penalties=[over], affine=[(b, elements.moved(broadcast(b, atom.shape, elements.at)))])


def _log(atom: Any, elements: Elements) -> AtomTerms:
    (x,) = atom.args
    return AtomTerms(penalties=[_penalty(Penalty.LOG, x, elements.times(-1.0))])


def _entropy(atom: Any, elements: Elements) -> AtomTerms:
    """Use ``a log a = d(a, 1) + a - 1`` with the von Neumann divergence ``d`` of numbers."""
    (x,) = atom.args
    gamma = elements.times(-1.0)
    return AtomTerms(
        penalties=[_penalty(Penalty.VON_NEUMANN, x, gamma, bound=1.0)],
        affine=[(x, gamma)],
        constant=-float(gamma.weight.sum()),
    )


def _kl_div(atom: Any, elements: Elements) -> AtomTerms:
    x, bound = _above_zero(atom, elements)
    return AtomTerms(penalties=[_penalty(Penalty.VON_NEUMANN, x, elements, bound=bound)])


def _rel_entr(atom: Any, elements: Elements) -> AtomTerms:
    """Use ``a log(a/b) = d(a, b) + a - b``."""
    x, bound = _above_zero(atom, elements)
    return AtomTerms(
        penalties=[_penalty(Penalty.VON_NEUMANN, x, elements, bound=bound)],
        affine=[(x, elements)],
        constant=-float(elements.weight @ bound),
    )


# For each atom: the sign of its weight in a convex sum, and its rule.
_ATOMS: dict[str, tuple[int, Callable[[Any, Elements], AtomTerms]]] = {
    "log_det": (-1, _log_det),
    "von_neumann_entr": (-1, _von_neumann_entropy),
    "quantum_rel_entr": (1, _relative_entropy),
    "quad_over_lin": (1, _quad_over_lin),
    "power": (1, _power),
    "abs": (1, _absolute),
    "norm1": (1, _norm1),
    "maximum": (1, _maximum),
    "minimum": (-1, _minimum),
    "log": (-1, _log),
    "entr": (-1, _entropy),
    "kl_div": (1, _kl_div),
    "rel_entr": (1, _rel_entr),
}


def _squares(x: Any, weight: float) -> AtomTerms:
    return AtomTerms(penalties=[_penalty(Penalty.SQUARE, x, _all(x, weight))])


def _all(x: Any, weight: float) -> Elements:
    order = np.arange(x.size)
    return Elements(order, order, np.full(x.size, weight))


def _penalty(
    kind: Penalty, x: Any, elements: Elements, sense: str = "==", bound: Any = 0.0
) -> ElementPenalty:
    """Return the penalty of weighted elements; those of weight zero are left out."""
    paying = elements.weight != 0
    bounds = np.broadcast_to(np.asarray(bound, dtype=float), paying.shape)
    return ElementPenalty(kind, sense, x, elements.at[paying], elements.weight[paying], bounds[paying])


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
