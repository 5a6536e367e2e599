"""One program as a stack of one problem: its rows on entries, and its answer with the certificate.

One matrix with a fixed diagonal and bounds on other entries is such a stack. Newton's method for stacks
solves and certifies it, without reductions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.certify import Certificate
from bregopt.certify.stacks import certify_stack
from bregopt.clock import CutShort
from bregopt.divergences import DIVERGENCES
from bregopt.program import Answer, LowRank, Program, StopReason
from bregopt.program.stacks import STACKED, EntryStack
from bregopt.routes.progress import Progress, reason
from bregopt.routes.projection.stack_newton import certificates_at, point_at, solve_stack

KULIS = "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10"
QI_SUN = (
    "Qi, Sun (2006), A Quadratically Convergent Newton Method for Computing the Nearest Correlation Matrix, "
    "SIAM J. Matrix Anal. Appl. 28"
)
CITATIONS = {"frobenius": QI_SUN, "logdet": KULIS, "von_neumann": KULIS}  # of the method for stacks


# Pays on: nearest correlation matrix, n = 30.
def solved_as_stack(
    own: EntryProgram, start: Array | None, settings: Any, progress: Progress
) -> tuple[Answer, Certificate] | None:
    """Return the answer of the stacked method and its certificate, None where it has none."""
    watched: list[Any] = []

    def answer(X: Array, y: Array, stop: StopReason, iterations: int) -> Answer:
        citation = QI_SUN if own.stack.divergence.quadratic else KULIS
        return Answer((X,), np.zeros(0), own.multipliers(y), stop, iterations, citation=citation)

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # multipliers may diverge
        try:
            found = solve_stack(own.stack, settings, start, watched)
        except np.linalg.LinAlgError:
            return None
        except CutShort as cut:
            if not watched:
                raise
            X, y = point_at(own.stack, watched[-1])
            known = certify_stack(own.stack, X, y).of(0, own.mu, own.offset)
            return answer(X[0], y[0], reason(cut), len(watched) - 1), known
        if len(found.solved) == 0:
            return None
        count = int(found.iterations[0])
        steps = certificates_at(own.stack, watched[:count], own.mu, own.offset)
    certificate = found.certificate.of(0, own.mu, own.offset)
    for step, before in enumerate(steps):
        progress.record(step, before)
    progress.record(count, certificate)
    return answer(found.X[0], found.y[0], StopReason.CONVERGED, count), certificate


class EntryProgram(NamedTuple):
    """A program as a stack of one.

    Parameters
    ----------
    stack : EntryStack
    at : int array of shape (m,)
        The rows of the program, in the order of the stack.
    weight : array of shape (m,)
        Their multiples of the entries.
    mu, offset : float
        The objective is ``mu`` times the divergence plus the offset.
    """

    stack: EntryStack
    at: IntArray
    weight: Array
    mu: float
    offset: float

    @classmethod
    def of(cls, program: Program, small: bool = False) -> EntryProgram | None:
        """Return a program as such a stack; None if it has other rows or costs, or violates most bounds.

        LogDet's method, and with `small` all, take orders up to which a stack takes less time than a loop.
        """
        if len(program.blocks) != 1 or program.k or not program.bounds.all_hard:
            return None
        (block,) = program.blocks
        nearness = block.nearness
        if nearness is None or block.cost is not None or block.face is not None or block.cap is not None:
            return None
        kind = nearness.kind
        if nearness.divergence not in STACKED or kind is not DIVERGENCES[nearness.divergence]:
            return None
        stacked = STACKED[nearness.divergence]
        if isinstance(nearness.X0, LowRank) or ((small or kind.barrier) and block.n > stacked.largest_order):
            return None
        rows = _entries_of(program)
        if rows is None:
            return None
        at, i, j, weight = rows
        n, lo, hi = block.n, program.bounds.lo[at] / weight, program.bounds.hi[at] / weight
        if np.logical_or.reduce(weight < 0):
            lo, hi = np.minimum(lo, hi), np.maximum(lo, hi)
        if not np.logical_and.reduce((lo[:n] == hi[:n]) & (lo[:n] > 0)):
            return None
        try:
            divergence = stacked(nearness.X0[None])
        except np.linalg.LinAlgError:
            return None
        stack = EntryStack(divergence, i, j, lo[None], hi[None])
        return None if stack.crowded else cls(stack, at, weight, nearness.mu, program.offset)

    def multipliers(self, y: Array) -> Array:
        """Return the multipliers of the program's rows."""
        own = np.empty(len(self.at))
        own[self.at] = self.mu * y / self.weight
        return own

    def start(self, y: Array) -> Array:
        """Return the multipliers of the stack, shape (1, m)."""
        found: Array = y[self.at] * self.weight / self.mu
        return found[None]


def _entries_of(program: Program) -> tuple[IntArray, IntArray, IntArray, Array] | None:
    """Return the rows, their entries ``i <= j`` and weights: the diagonal, then others, or no row at all.

    None where a row is on no single entry, or two are on the same.
    """
    if not all(term.rows.single for term in program.A.terms):
        return None
    n, none = program.blocks[0].n, np.zeros(0, np.intp)
    rows = [(term.at, term.rows.coordinates()) for term in program.A.terms]
    if len(rows) == 1:
        ((own, t),) = rows
        at, i, j, weight = own[t.row], t.i, t.j, t.value
    elif rows:
        at = np.concatenate([own[t.row] for own, t in rows])
        i, j, weight = (np.concatenate([getattr(t, name) for _, t in rows]) for name in ("i", "j", "value"))
    else:
        at, i, j, weight = none, none, none, np.zeros(0)
    if len(at) != program.m or not np.logical_and.reduce(weight):
        return None
    diagonal = np.arange(n)
    if len(at) == n and np.logical_and.reduce((i == diagonal) & (j == diagonal)):
        return at, i, j, weight
    i, j = np.minimum(i, j), np.maximum(i, j)
    order = np.lexsort((j, i, i != j))
    at, i, j, weight = at[order], i[order], j[order], weight[order]
    if len(at) and not (np.array_equal(i[:n], diagonal) and np.array_equal(j[:n], diagonal)):
        return None
    if (i[n:] == j[n:]).any() or len(np.unique(i * n + j)) < len(i):
        return None
    return at, i, j, weight
