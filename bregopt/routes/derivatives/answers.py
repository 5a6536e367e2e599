"""Answers that are differentiated: what is accepted, refined, and near a point without a derivative.

One nearest correlation matrix is differentiated where Newton's method has left it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bregopt.arrays import Array
from bregopt.errors import DataWarning, warn_caller
from bregopt.program import LowRank, Program
from bregopt.routes.derivatives.anchors import Anchor, anchors_of, symmetric_part
from bregopt.routes.derivatives.changes import Differentiability
from bregopt.routes.derivatives.derivative import Derivative, all_of, columns, labeled_like, unlabeled
from bregopt.routes.derivatives.optimum import Optimum, refined
from bregopt.routes.derivatives.tuning import (
    LARGEST_CHANGE,
    LARGEST_RESIDUAL,
    RESIDUAL,
    SMALL_MARGIN,
    SMALLEST_MARGIN,
)

if TYPE_CHECKING:
    from bregopt.routes.derivatives.stacked import StackedCorrelations

__all__ = ["Products", "check_exists", "derivative_of", "optimum_of"]

_REASONS = {
    "eigenvalue": "an eigenvalue of X - Z is zero",
    "multiplier": "a row that acts has no multiplier",
    "slack": "a row without a multiplier is at its bound",
}


_CHANGED = (
    "the answer is not the one of its problem: X was changed after the solve, as some ready-made problems "
    "do, or it is inaccurate; expected the answer of a problem itself, at a smaller tol"
)


def derivative_of(solution: Any) -> Derivative:
    """Return the derivative of an answer, without a check of its existence.

    Parameters
    ----------
    solution : Solution

    Raises
    ------
    ValueError
        If there is no answer, or its optimality conditions have no linearization.
    """
    restated = solution._restated
    if isinstance(restated, str):
        raise ValueError(restated)
    raw = solution._in_program or solution
    program = raw._program
    if raw.X is None or raw.duals is None:
        raise ValueError(f"the answer is {solution.status}; expected an optimal one to differentiate")
    if program is None:
        raise ValueError(
            "the answer has no program of its own, like one of a stack: solve the problem alone first"
        )
    if any(np.iscomplexobj(own) for own in all_of(solution.X)):
        raise ValueError("the answer is Hermitian; derivatives are known for real matrices")
    if isinstance(solution.X, LowRank) and restated is not None:
        if len(restated.i):
            raise ValueError(
                "fixed keeps entries of a LowRank A, which change with its factor; derivatives need a dense A"
            )
        restated = None
    at, anchors = optimum_of(program, raw)
    compiled = solution._compiled or raw._compiled
    chain = None if compiled is None else compiled.chain()
    u = solution.u
    if not isinstance(u, Mapping):  # an answer in the program's terms
        u = {name: u[place] for name, place in columns(program).items()}
    found = Derivative(at, anchors, at.differentiability(), restated, chain, solution.X, u)
    _check_same(found)
    return found


def optimum_of(program: Program, answer: Any, enough: float = RESIDUAL) -> tuple[Optimum, tuple[Anchor, ...]]:
    """Return an answer to a program after Newton's method, and the data of each block.

    Parameters
    ----------
    program : Program
    answer : Solution
        In the program's terms.
    enough : float
        The residual of the optimality conditions at which Newton's method ends.

    Raises
    ------
    ValueError
        If derivatives of such a program are not known, or its optimality conditions have no linearization.
    """
    _check(program)
    reduced, anchors = anchors_of(program)
    blocks = zip(answer.X, anchors, strict=True)
    X = [_on_range(X, anchor) if isinstance(X, LowRank) else X for X, anchor in blocks]
    return refined(reduced, X, answer.u, answer.duals, answer._S, enough), anchors


def check_exists(found: Differentiability, program: Program | None = None) -> None:
    """Raise where the derivative does not exist, warn where the answer is near such a point.

    Parameters
    ----------
    found : Differentiability
    program : Program, optional
        Whose entries without weight may be the reason.

    Raises
    ------
    ValueError
        If an eigenvalue, a multiplier or a slack is zero up to round-off, or the answer is not accurate.
    """
    if found.residual > LARGEST_RESIDUAL:
        raise ValueError(
            "the answer has no derivative that could be found: Newton's method ends at a residual of "
            f"{found.residual:.1e} of the optimality conditions; expected at most {LARGEST_RESIDUAL:g}. "
            + (
                _without_weight(program)
                or "Multipliers may not be unique or not attained; sol.differentiability() has the margins"
            )
        )
    where = min(_REASONS, key=lambda name: float(getattr(found, name)))
    if found.margin < SMALLEST_MARGIN:
        raise ValueError(
            f"the answer has no derivative: {_REASONS[where]} ({found.margin:.1e}, relative; expected above "
            f"{SMALLEST_MARGIN:g}). Nearby data have different one-sided derivatives"
        )
    if found.margin < SMALL_MARGIN:
        warn_caller(
            f"the derivative is valid for very small changes of the data only: {_REASONS[where]} but for "
            f"{found.margin:.1e}, relative",
            DataWarning,
        )


def _without_weight(program: Program | None) -> str:
    """Return what entries without weight do to an answer, and the remedy; empty if there are none."""
    for block in () if program is None else program.blocks:
        if block.nearness is not None and block.nearness.kind.weights:
            unknown = int((np.triu(block.nearness.parameters["weights"] == 0, 1)).sum())
            if unknown:
                return (
                    f"{unknown} entries of {block.name} are unknown (their weight is 0), so the answer need "
                    "not be unique in them. Give them a guess and a small weight, such as 0.1"
                )
    return ""


def _check(program: Program) -> None:
    """Refuse programs whose derivatives are not known."""
    if program.cones.count:
        raise ValueError(
            f"the problem has {program.cones.count} second-order cones; derivatives are known for rows and "
            "matrices"
        )
    for block in program.blocks:
        if block.nearness is not None:
            kind = block.nearness.kind
            if not (kind.offers("spectrum") or kind.offers("weights")):
                raise ValueError(f"{kind.phrase()} has no spectrum, so its answers no derivative")
            if not kind.offers("anchor_derivative"):
                raise ValueError(f"{kind.phrase()} has no anchor_derivative, so its answers no derivative")
        if block.cap is not None and (block.nearness is None or block.nearness.kind.barrier):
            raise ValueError(
                f"{block.name} has a bound on its eigenvalues and neither the Frobenius nor the von Neumann "
                "divergence; write it as X << c I"
            )


def _check_same(derivative: Derivative) -> None:
    """Refuse an answer that was changed after the solve in a way that is not known here."""
    for own, anchor, point in zip(
        all_of(derivative.X), derivative.anchors, derivative.optimum.points, strict=False
    ):
        if isinstance(own, LowRank):
            continue
        if np.shape(own) != point.X.shape:
            raise ValueError(_CHANGED)
        here = point.X if derivative.restated is None else derivative.restated.tangent(point.X)
        shift = np.asarray(own) - anchor.outside(here, derivative.optimum, None)
        if derivative.restated is not None:
            np.fill_diagonal(shift, 0.0)  # the restated matrix is shifted by a multiple of the identity
        moved = float(np.linalg.norm(shift))
        if moved > LARGEST_CHANGE * max(float(np.linalg.norm(here)), float(np.linalg.norm(own))):
            unknown = _without_weight(derivative.optimum.program)
            raise ValueError(f"the answer has no derivative: {unknown}" if unknown else _CHANGED)


def _on_range(X: LowRank, anchor: Any) -> Array:
    half: Array = anchor.V.T @ X.factor
    return half @ half.T


@dataclass(frozen=True, eq=False)
class Products:
    """Products with the derivative and its transpose: those of :class:`Derivative` in ``data`` alone.

    Parameters
    ----------
    at : StackedCorrelations
        A stack of one.
    """

    at: StackedCorrelations

    def vjp(self, G: Any, like: Any) -> Any:
        """Return the gradient of ``<G, X>``, with the labels of the answer `like`."""
        return self._product(self.at.vjp, G, like, "G")

    def jvp(self, dA: Any, like: Any) -> Any:
        """Return the change of the answer `like`, with its labels."""
        return self._product(self.at.jvp, dA, like, "data")

    def _product(self, product: Callable[[Array], Array], S: Any, like: Any, name: str) -> Any:
        at = self.at
        missed = float(np.abs(at.missed).max())
        check_exists(Differentiability(float(at.margins[0]), np.inf, np.inf, missed))
        S = symmetric_part(unlabeled(S, like, name), len(like), name)
        return labeled_like(product(S[None])[0], like)
