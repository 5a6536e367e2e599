"""The start and the answer of a route: a point, its multipliers, and the reason why it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.program.lowrank import Matrix
from bregopt.program.program import Program
from bregopt.records import dataclass

__all__ = ["ENDED", "LIMITS", "Answer", "Start", "StopReason"]


class StopReason(StrEnum):
    """Why a route stopped, with advice."""

    CONVERGED = "The certificate meets the tolerance."
    MAX_ITER = "max_iter was reached; raise it, loosen tol, or try another solver or method."
    TIME_LIMIT = "time_limit was reached; raise it, loosen tol, or try another solver or method."
    INTERRUPTED = "Interrupted from the keyboard; the best iterate is returned."
    CALLBACK = "The callback ended the solve; the best iterate is returned."
    STALLED = "No further progress in floating point; loosen tol or rescale the problem."
    INFEASIBLE = "No X meets the hard rows: a combination of them contradicts X psd. Make some soft."
    UNBOUNDED = "The objective falls without end along a ray; add a bound or a trace constraint."
    LOCAL_OPTIMUM = "A local optimum: no small change of the answer improves it."
    INACCURATE = "The solver stopped, but the certificate of its answer does not meet tol."


ENDED = frozenset({StopReason.TIME_LIMIT, StopReason.INTERRUPTED, StopReason.CALLBACK})
"""The reasons that come from outside a route."""

LIMITS = ENDED | {StopReason.MAX_ITER}
"""The reasons that are limits of the user, or the documented default of the iterations."""


@dataclass(frozen=True, eq=False)
class Start:
    """The start: an earlier answer to a program with the same rows; `S` as in :class:`Answer`."""

    X: tuple[Matrix, ...]
    u: Array
    y: Array
    S: Sequence[Array | None] | None = None


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of a route; the driver certifies it.

    Parameters
    ----------
    X : sequence of arrays of shape (n_b, n_b) or LowRank
        Positive semidefinite. For an unbounded problem, the ray, dense.
    u : array of shape (k,)
    y : array of shape (m,)
        Multipliers, positive at lower bounds. For an infeasible problem, the Farkas vector.
    stop : StopReason
    iterations : int
    detail : str
        More on why it stopped, such as an external solver's status.
    citation : str
        The citation of the method that ran, where it is not the route's own.
    y_on_faces : array of shape (m,), optional
        Multipliers that are valid only on the faces to which the rows restrict ``X``, should `y` prove less.
    iteration_bound : float, optional
        Upper bound on the iterations that the route needs for the tolerance, where its theory has one.
    S : sequence of arrays of shape (n_b, n_b) or None, optional
        Multipliers of ``X psd``, of blocks with elementwise weights.
    inner : Answer, optional
        An earlier, less accurate iterate farther inside the cones, which proofs mix with the answer.
    """

    X: Sequence[Any]
    u: Array
    y: Array
    stop: StopReason
    iterations: int
    detail: str = ""
    citation: str = ""
    y_on_faces: Array | None = None
    iteration_bound: float | None = None
    S: Sequence[Array | None] | None = None
    inner: Answer | None = None

    @classmethod
    def without_point(cls, program: Program, y: Array, stop: StopReason, iterations: int = 0) -> Answer:
        """Return an answer of multipliers alone, such as a Farkas vector; matrices and variables are zero."""
        X = tuple(np.zeros((block.n, block.n)) for block in program.blocks)
        return cls(X, np.zeros(program.k), y, stop, iterations)
