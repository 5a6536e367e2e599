"""Bounds on cuts by relaxations, solved as far as they matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bregopt.io.graphs import Graph
from bregopt.modeling.problem import Problem
from bregopt.program import StopReason
from bregopt.routes.driver import warn_unproven
from bregopt.routes.progress import Step
from bregopt.routes.solution import Solution, Status

__all__ = ["TOL", "Proof", "relaxed", "unrelaxed"]

_ROUND_OFF = 1e-6  # round-off of a bound: absolute for whole weights, relative to the cut for others
_SMALL = 200  # vertices of a small graph
TOL, _NEAR = 1e-3, 1e-2  # of other relaxations that are "optimal", and "optimal_inaccurate"
_SHARE = 0.1  # relative to the distance of bound and cut; a smaller gap does not matter

_PROVEN = "The bound proves that no partition is better."
_STALLED = "More rounds of generated rows would hardly bring the bound nearer to the cut."
_NOTHING = "time_limit ended the relaxation before it proved a bound: raise it, or pass bound=False."
_SHARP = "A sharper bound of this relaxation would not matter: the cut is farther from it."


@dataclass
class Proof:
    """The best bound on all cuts so far.

    Parameters
    ----------
    bound : float
    largest : bool
        Whether it is an upper bound on large cuts.
    whole : bool
        Whether all cuts are integers.
    n : int
        The number of vertices.
    """

    bound: float
    largest: bool
    whole: bool
    n: int

    @staticmethod
    def of(graph: Graph, largest: bool) -> Proof:
        """Return the bound that holds without any work: no edge is cut, or all with weights above zero."""
        weights = graph.adjacency.data
        bound = float(np.maximum(weights, 0.0).sum()) / 2 if largest else 0.0
        return Proof(bound, largest, bool((weights == np.round(weights)).all()), graph.n)

    @property
    def small(self) -> bool:
        """Whether relaxations of the graph take so little time that they never end early."""
        return self.n <= _SMALL

    def add(self, bound: float) -> None:
        """Keep a proven bound if it is the best."""
        if not np.isnan(bound):
            self.bound = min(self.bound, bound) if self.largest else max(self.bound, bound)

    def distance(self, cut: float) -> float:
        """Return the distance of a cut from the bound."""
        return max(self.bound - cut if self.largest else cut - self.bound, 0.0)

    def proves(self, cut: float) -> bool:
        """Whether no cut is better than this one."""
        if self.whole:
            return self.distance(cut) < 1 - _ROUND_OFF
        return self.distance(cut) <= _ROUND_OFF * abs(cut)


def relaxed(
    problem: Problem,
    proof: Proof,
    cut: Callable[[], float],
    options: Mapping[str, Any],
    stalled: Callable[[], bool] | None = None,
) -> Solution:
    """Return the answer to a relaxation and add its bound to the proof.

    Beyond 200 vertices it ends when the bound proves the best cut. Without the option ``tol`` it also ends at
    a gap that is small against the distance of bound and cut, at most 1e-3, which is then the tolerance. The
    status is that of the relaxation, also where the bound proves the cut.

    Parameters
    ----------
    problem : Problem
    proof : Proof
    cut : function
        Returns the weight of the best cut so far.
    options : dict
    stalled : function, optional
        Whether further rounds of generated rows gain too little; then rounds of any graph end early.
    """
    asked = options.get("callback")
    why, before = "", proof.bound

    def callback(step: Step) -> bool:
        nonlocal why
        if asked is not None and asked(step):
            return True
        proof.add(step.bound)
        if proof.small and stalled is None:
            return False
        if proof.proves(cut()):
            why = _PROVEN
        elif "tol" not in options and _error(step) <= _tol(proof, cut()):
            why = _SHARP
        elif stalled is not None and stalled():
            why = _STALLED
        return bool(why)

    answer = problem._solve(
        options.get("solver", "auto"),
        None,
        False,
        {name: value for name, value in options.items() if name != "solver"} | {"callback": callback},
    )
    proof.add(answer.dual_value)
    if why and answer.status == Status.USER_LIMIT:
        return replace(answer, status=_judged(answer, options.get("tol", TOL)).value, stop_reason=why)
    useless = abs(proof.bound - before) <= _ROUND_OFF * abs(cut()) and not proof.proves(cut())
    if answer._stop is StopReason.TIME_LIMIT and useless:
        answer = replace(answer, stop_reason=_NOTHING)
    warn_unproven(answer, options.get("tol", 1e-6))
    return answer


def _error(at: Step | Solution) -> float:
    """Return the largest of gap and residuals."""
    return max(at.gap, at.primal_residual, at.dual_residual)


def _judged(answer: Solution, tol: float) -> Status:
    """Return the status of an answer that ended early."""
    if _error(answer) <= tol:
        return Status.OPTIMAL
    return Status.OPTIMAL_INACCURATE if _error(answer) <= _NEAR else Status.USER_LIMIT


def _tol(proof: Proof, cut: float) -> float:
    """Return the relative gap beyond which a sharper bound does not matter."""
    return min(TOL, _SHARE * proof.distance(cut) / max(abs(proof.bound), abs(cut)))


def unrelaxed(bound: float) -> Solution:
    """Return the answer where no relaxation was asked for."""
    return Solution(
        status=Status.USER_LIMIT.value,
        stop_reason="No relaxation was asked for: bound=False.",
        value=np.nan,
        X=None,
        u={},
        duals=None,
        dual_value=bound,
        gap=np.nan,
        primal_residual=np.nan,
        dual_residual=np.nan,
        error=np.nan,
        iterations=0,
        timings={},
        solver="search",
        history={},
        citation="",
    )
